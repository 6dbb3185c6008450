//! Schedules, their slots and their firing log in changes.

use laneway_core::{
    Bytes, CatchUp, Change, FiringLogEntry, JobId, Schedule, ScheduleId, ScheduleSpec, ScheduleState, Span,
    Timing, Wall,
};

use super::super::template::read_template_part;
use super::super::{Input, Intern, put_bytes, put_name, put_u64, put_u128, put_wall, write_template};
use super::flag;
use crate::StoreError;
use crate::rows::{stored_firing_status, stored_overlap};

// One bit for each part of a spec that may be missing.
const ENABLED: u8 = 1 << 0;
const OWNER: u8 = 1 << 1;
/// It says whether the schedule is deleted after a firing.
const DELETION: u8 = 1 << 2;
/// Beside [`DELETION`]: it is.
const DELETED: u8 = 1 << 3;
const ALL_SPEC: u8 = (1 << 4) - 1;

// The same for a state.
const NEXT: u8 = 1 << 0;
const LAST_SLOT: u8 = 1 << 1;
const WAITING_SLOT: u8 = 1 << 2;
const LAST_ENDED: u8 = 1 << 3;
const LAST_STATUS: u8 = 1 << 4;
const LAST_ERROR: u8 = 1 << 5;
const ALL_STATE: u8 = (1 << 6) - 1;

// The kinds of timings.
const AT: u8 = 0;
const EVERY: u8 = 1;
const EVERY_ANCHORED: u8 = 2;
const CRON: u8 = 3;
const CRON_ZONED: u8 = 4;

// One bit for each part of an entry of the firing log that may be missing, and for the job of a slot.
const JOB: u8 = 1 << 0;
const SUMMARY: u8 = 1 << 1;
const ERROR: u8 = 1 << 2;
const ALL_FIRING: u8 = (1 << 3) - 1;

pub(super) fn write_schedule(out: &mut Vec<u8>, schedule: &Schedule) {
    let Schedule { id, spec, created_at, updated_at, state } = schedule;
    put_u128(out, id.0);
    put_wall(out, *created_at);
    put_wall(out, *updated_at);
    write_state(out, state);
    write_spec(out, spec);
}

pub(super) fn read_schedule(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Schedule, StoreError> {
    // Evaluated in the order in which the parts are written.
    Ok(Schedule {
        id: ScheduleId(input.u128()?),
        created_at: input.wall()?,
        updated_at: input.wall()?,
        state: read_state(input)?,
        spec: read_spec(input, intern)?,
    })
}

fn write_spec(out: &mut Vec<u8>, spec: &ScheduleSpec) {
    let ScheduleSpec {
        tenant,
        name,
        timing,
        job,
        payload,
        enabled,
        delete_after_run,
        catch_up,
        overlap,
        jitter,
        note,
        owner,
    } = spec;
    let flags = flag(*enabled, ENABLED)
        | flag(owner.is_some(), OWNER)
        | flag(delete_after_run.is_some(), DELETION)
        | flag(*delete_after_run == Some(true), DELETED);
    out.extend_from_slice(&[flags, overlap.code()]);
    put_name(out, tenant);
    put_name(out, name);
    write_timing(out, timing);
    write_template(out, job);
    put_bytes(out, payload);
    put_bytes(out, note);
    put_u64(out, catch_up_code(*catch_up));
    put_u64(out, jitter.0);
    if let Some(owner) = owner {
        put_name(out, owner);
    }
}

fn read_spec(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<ScheduleSpec, StoreError> {
    let flags = input.flags(ALL_SPEC)?;
    let has = |bit: u8| flags & bit != 0;
    let overlap = stored_overlap(input.u8()?)?;
    let tenant = intern(input.text()?)?;
    // Evaluated in the order in which the parts are written.
    Ok(ScheduleSpec {
        enabled: has(ENABLED),
        delete_after_run: has(DELETION).then_some(has(DELETED)),
        overlap,
        name: input.name()?,
        timing: read_timing(input)?,
        job: read_template_part(tenant.clone(), input, intern)?,
        payload: Bytes::from(input.bytes()?),
        note: Bytes::from(input.bytes()?),
        catch_up: read_catch_up(input)?,
        jitter: Span(input.u64()?),
        owner: has(OWNER).then(|| input.name()).transpose()?,
        tenant,
    })
}

fn write_timing(out: &mut Vec<u8>, timing: &Timing) {
    match timing {
        Timing::At(at) => {
            out.push(AT);
            put_wall(out, *at);
        }
        Timing::Every { every, anchor } => {
            out.push(if anchor.is_some() { EVERY_ANCHORED } else { EVERY });
            put_u64(out, every.0);
            if let Some(anchor) = anchor {
                put_wall(out, *anchor);
            }
        }
        Timing::Cron { expr, zone } => {
            out.push(if zone.is_some() { CRON_ZONED } else { CRON });
            put_bytes(out, expr.as_bytes());
            if let Some(zone) = zone {
                put_name(out, zone);
            }
        }
    }
}

fn read_timing(input: &mut Input<'_>) -> Result<Timing, StoreError> {
    Ok(match input.u8()? {
        AT => Timing::At(input.wall()?),
        EVERY => Timing::Every { every: Span(input.u64()?), anchor: None },
        EVERY_ANCHORED => Timing::Every { every: Span(input.u64()?), anchor: Some(input.wall()?) },
        CRON => Timing::Cron { expr: input.text()?.into(), zone: None },
        CRON_ZONED => Timing::Cron { expr: input.text()?.into(), zone: Some(input.name()?) },
        _ => return Err(input.damaged("there is no such timing")),
    })
}

/// 0: skip, 1: the latest, 2 and more: all, and how many at most.
fn catch_up_code(catch_up: CatchUp) -> u64 {
    match catch_up {
        CatchUp::Skip => 0,
        CatchUp::Latest => 1,
        CatchUp::All { max } => u64::from(max) + 2,
    }
}

fn read_catch_up(input: &mut Input<'_>) -> Result<CatchUp, StoreError> {
    Ok(match input.u64()? {
        0 => CatchUp::Skip,
        1 => CatchUp::Latest,
        code => {
            let max = u32::try_from(code - 2);
            CatchUp::All { max: max.map_err(|_| input.damaged("there is no such catch-up"))? }
        }
    })
}

pub(super) fn write_moved(out: &mut Vec<u8>, id: ScheduleId, enabled: bool, state: &ScheduleState) {
    put_u128(out, id.0);
    out.push(flag(enabled, ENABLED));
    write_state(out, state);
}

pub(super) fn read_moved(input: &mut Input<'_>) -> Result<Change, StoreError> {
    // Evaluated in the order in which the parts are written.
    Ok(Change::ScheduleMoved {
        id: ScheduleId(input.u128()?),
        enabled: input.flags(ENABLED)? != 0,
        state: Box::new(read_state(input)?),
    })
}

fn write_state(out: &mut Vec<u8>, state: &ScheduleState) {
    let ScheduleState { next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, firings } =
        state;
    out.push(
        flag(next_at.is_some(), NEXT)
            | flag(last_slot.is_some(), LAST_SLOT)
            | flag(waiting_slot.is_some(), WAITING_SLOT)
            | flag(last_ended_at.is_some(), LAST_ENDED)
            | flag(last_status.is_some(), LAST_STATUS)
            | flag(last_error.is_some(), LAST_ERROR),
    );
    for time in [next_at, last_slot, waiting_slot, last_ended_at].into_iter().flatten() {
        put_wall(out, *time);
    }
    if let Some(status) = last_status {
        out.push(status.code());
    }
    if let Some(error) = last_error {
        put_bytes(out, error.as_bytes());
    }
    put_u64(out, *firings);
}

fn read_state(input: &mut Input<'_>) -> Result<ScheduleState, StoreError> {
    let flags = input.flags(ALL_STATE)?;
    let has = |bit: u8| flags & bit != 0;
    // Evaluated in the order in which the parts are written.
    Ok(ScheduleState {
        next_at: has(NEXT).then(|| input.wall()).transpose()?,
        last_slot: has(LAST_SLOT).then(|| input.wall()).transpose()?,
        waiting_slot: has(WAITING_SLOT).then(|| input.wall()).transpose()?,
        last_ended_at: has(LAST_ENDED).then(|| input.wall()).transpose()?,
        last_status: has(LAST_STATUS).then(|| stored_firing_status(input.u8()?)).transpose()?,
        last_error: has(LAST_ERROR).then(|| input.text().map(Into::into)).transpose()?,
        firings: input.u64()?,
    })
}

pub(super) fn write_slot(out: &mut Vec<u8>, schedule: ScheduleId, slot: Wall, job: Option<JobId>) {
    out.push(flag(job.is_some(), JOB));
    put_u128(out, schedule.0);
    put_wall(out, slot);
    if let Some(job) = job {
        put_u128(out, job.0);
    }
}

pub(super) fn read_slot(input: &mut Input<'_>) -> Result<Change, StoreError> {
    let flags = input.flags(JOB)?;
    // Evaluated in the order in which the parts are written.
    Ok(Change::SlotFired {
        schedule: ScheduleId(input.u128()?),
        slot: input.wall()?,
        job: (flags & JOB != 0).then(|| input.u128().map(JobId)).transpose()?,
    })
}

pub(super) fn write_firing(out: &mut Vec<u8>, entry: &FiringLogEntry) {
    let FiringLogEntry {
        number,
        schedule,
        tenant,
        name,
        agent,
        job,
        slot,
        status,
        summary,
        error,
        attempts,
        duration_ms,
        input_tokens,
        output_tokens,
        ran_at,
        ended_at,
    } = entry;
    let flags = flag(job.is_some(), JOB) | flag(summary.is_some(), SUMMARY) | flag(error.is_some(), ERROR);
    out.extend_from_slice(&[flags, status.code()]);
    put_u64(out, *number);
    put_u128(out, schedule.0);
    for name in [tenant, name, agent] {
        put_name(out, name);
    }
    for time in [slot, ran_at, ended_at] {
        put_wall(out, *time);
    }
    put_u64(out, (*attempts).into());
    for number in [duration_ms, input_tokens, output_tokens] {
        put_u64(out, *number);
    }
    if let Some(job) = job {
        put_u128(out, job.0);
    }
    for text in [summary, error].into_iter().flatten() {
        put_bytes(out, text.as_bytes());
    }
}

pub(super) fn read_firing(
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<FiringLogEntry, StoreError> {
    let flags = input.flags(ALL_FIRING)?;
    let has = |bit: u8| flags & bit != 0;
    // Evaluated in the order in which the parts are written.
    Ok(FiringLogEntry {
        status: stored_firing_status(input.u8()?)?,
        number: input.u64()?,
        schedule: ScheduleId(input.u128()?),
        tenant: intern(input.text()?)?,
        name: intern(input.text()?)?,
        agent: intern(input.text()?)?,
        slot: input.wall()?,
        ran_at: input.wall()?,
        ended_at: input.wall()?,
        attempts: input.u32()?,
        duration_ms: input.u64()?,
        input_tokens: input.u64()?,
        output_tokens: input.u64()?,
        job: has(JOB).then(|| input.u128().map(JobId)).transpose()?,
        summary: has(SUMMARY).then(|| input.text().map(Into::into)).transpose()?,
        error: has(ERROR).then(|| input.text().map(Into::into)).transpose()?,
    })
}
