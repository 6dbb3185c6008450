//! Schedules and their slots: written beside jobs in the same transaction, loaded before them.

use laneway_core::{JobId, Name, Schedule, ScheduleId, ScheduleSpec, ScheduleState, Timing, Wall};

use super::cells::{
    Param, blob, id, int, name, number, opt_int, opt_name, opt_text, opt_wall, own_blob, text,
};
use super::script::Script;
use super::session::{ReadError, Session};
use crate::codec::write_template;
use crate::columns::number as number_at;
use crate::columns::schedules::{SCHEDULE, catch_up_code, read_schedule};
use crate::rows::Interner;
use crate::{Loaded, StoreError};

/// The columns of a schedule, in the order in which [`put`] gives them.
const COLUMNS: &str = "id, enabled, next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, firings, timing, \
     fire_at, interval_ms, anchor_at, cron_expression, timezone, tenant, name, owner, template, delete_after_run, catch_up, overlap, \
     jitter_ms, created_at, updated_at";

/// Stores a schedule, new or changed.
pub(super) fn put<'a>(schedule: &'a Schedule, script: &mut Script<'a>) {
    let Schedule { id: key, spec, created_at, updated_at, state } = schedule;
    let ScheduleSpec {
        tenant,
        name: own_name,
        timing,
        job,
        payload,
        enabled,
        delete_after_run: _,
        catch_up,
        overlap,
        jitter,
        note,
        owner,
    } = spec;
    let mut template = Vec::new();
    write_template(&mut template, job);
    let mut params: Vec<Param<'a>> = state_of(*key, *enabled, state).into();
    params.extend(timing_of(timing));
    params.extend([
        name(tenant),
        name(own_name),
        opt_name(owner.as_ref()),
        own_blob(Some(template)),
        int(spec.deletes_itself()),
        int(catch_up_code(*catch_up)),
        int(overlap.code()),
        number(jitter.0),
        int(created_at.0),
        int(updated_at.0),
    ]);
    let numbers: Vec<String> = (1..=params.len()).map(|number| format!("${number}")).collect();
    let changed: Vec<String> =
        COLUMNS.split(", ").skip(1).map(|column| format!("{column} = excluded.{column}")).collect();
    let sql = format!(
        "INSERT INTO laneway.schedule ({COLUMNS}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}",
        numbers.join(", "),
        changed.join(", ")
    );
    script.any("schedule", sql, params);
    script.any(
        "schedule_payload",
        "INSERT INTO laneway.schedule_payload (id, payload, note) VALUES ($1, $2, $3) \
         ON CONFLICT (id) DO UPDATE SET payload = excluded.payload, note = excluded.note",
        vec![id(key.0), blob(payload), blob(note)],
    );
}

/// Stores the part of a schedule that changes by itself.
pub(super) fn move_on<'a>(key: ScheduleId, enabled: bool, state: &'a ScheduleState, script: &mut Script<'a>) {
    script.exactly(
        1,
        "schedule",
        "UPDATE laneway.schedule SET enabled = $2, next_at = $3, last_slot = $4, waiting_slot = $5, last_ended_at = $6, \
         last_status = $7, last_error = $8, firings = $9 WHERE id = $1",
        state_of(key, enabled, state).into(),
    );
}

fn state_of(key: ScheduleId, enabled: bool, state: &ScheduleState) -> [Param<'_>; 9] {
    let ScheduleState { next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, firings } =
        state;
    [
        id(key.0),
        int(enabled),
        opt_wall(*next_at),
        opt_wall(*last_slot),
        opt_wall(*waiting_slot),
        opt_wall(*last_ended_at),
        opt_int(last_status.map(|status| status.code())),
        opt_text(last_error.as_deref()),
        number(*firings),
    ]
}

fn timing_of(timing: &Timing) -> [Param<'_>; 6] {
    let (mut fire_at, mut interval, mut anchor_at, mut expression, mut zone) = (None, None, None, None, None);
    match timing {
        Timing::At(at) => fire_at = Some(at.0),
        Timing::Every { every, anchor } => {
            interval = Some(every.0.cast_signed());
            anchor_at = anchor.map(|at| at.0);
        }
        Timing::Cron { expr, zone: name } => {
            expression = Some(&**expr);
            zone = name.as_ref().map(Name::as_str);
        }
    }
    [
        text(timing.as_str()),
        opt_int(fire_at),
        opt_int(interval),
        opt_int(anchor_at),
        opt_text(expression),
        opt_text(zone),
    ]
}

/// Deletes a schedule; its slots and its log stay.
pub(super) fn remove(key: ScheduleId, script: &mut Script<'_>) {
    script.any("schedule_payload", "DELETE FROM laneway.schedule_payload WHERE id = $1", vec![id(key.0)]);
    script.exactly(1, "schedule", "DELETE FROM laneway.schedule WHERE id = $1", vec![id(key.0)]);
}

/// Stores a slot. A slot that is stored already is a disagreement, not a rejected row: the engine must never fire it twice.
pub(super) fn put_slot(schedule: ScheduleId, slot: Wall, job: Option<JobId>, script: &mut Script<'_>) {
    let job = own_blob(job.map(|job| job.0.to_be_bytes().to_vec()));
    script.exactly(
        1,
        "schedule_slot",
        "INSERT INTO laneway.schedule_slot (schedule, slot, job) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        vec![id(schedule.0), int(slot.0), job],
    );
}

/// Visits every schedule.
pub(super) fn load(
    session: &Session,
    names: &mut Interner,
    visit: &mut dyn FnMut(Loaded),
) -> Result<(), ReadError> {
    let sql = format!(
        "SELECT {SCHEDULE} FROM laneway.schedule JOIN laneway.schedule_payload ON schedule_payload.id = schedule.id \
         ORDER BY schedule.id"
    );
    let rows = session.rows(&sql, vec![])?;
    for row in &rows {
        visit(Loaded::Schedule(Box::new(read_schedule(row, names)?)));
    }
    let stored = session.row("SELECT count(*) FROM laneway.schedule", vec![])?;
    let stored = stored.map_or(Ok(0), |row| number_at(&row, 0))?;
    if rows.len() as u64 != stored {
        let why = format!("of {stored} schedules, {} have a payload", rows.len());
        return Err(StoreError::Damaged(why).into());
    }
    Ok(())
}
