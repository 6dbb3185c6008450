//! Schedules and their slots in SQLite: written beside jobs in the same transaction, loaded before them.

use laneway_core::{JobId, Name, Schedule, ScheduleId, ScheduleSpec, ScheduleState, Timing, Wall};
use rusqlite::types::ToSql;
use rusqlite::{CachedStatement, Connection, params};

use super::commit::{bind, rejected};
use super::row_sums;
use crate::codec::write_template;
use crate::columns::schedules::{SCHEDULE, catch_up_code, read_schedule};
use crate::rows::Interner;
use crate::{Loaded, StoreError};

/// Stores a schedule, new or changed.
pub(super) fn put(conn: &Connection, blob: &mut Vec<u8>, schedule: &Schedule) -> Result<(), StoreError> {
    let Schedule { id, spec, created_at, updated_at, state } = schedule;
    let ScheduleSpec {
        tenant,
        name,
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
    blob.clear();
    write_template(blob, job);
    let mut put = conn.prepare_cached(
        "INSERT INTO schedule (id, enabled, next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, \
         firings, timing, fire_at, interval_ms, anchor_at, cron_expression, timezone, tenant, name, owner, template, \
         delete_after_run, catch_up, overlap, jitter_ms, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
         ?22, ?23, ?24, ?25) \
         ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, name = excluded.name, owner = excluded.owner, \
         enabled = excluded.enabled, timing = excluded.timing, fire_at = excluded.fire_at, \
         interval_ms = excluded.interval_ms, anchor_at = excluded.anchor_at, \
         cron_expression = excluded.cron_expression, timezone = excluded.timezone, template = excluded.template, \
         delete_after_run = excluded.delete_after_run, catch_up = excluded.catch_up, overlap = excluded.overlap, \
         jitter_ms = excluded.jitter_ms, created_at = excluded.created_at, updated_at = excluded.updated_at, \
         next_at = excluded.next_at, last_slot = excluded.last_slot, waiting_slot = excluded.waiting_slot, \
         last_ended_at = excluded.last_ended_at, last_status = excluded.last_status, \
         last_error = excluded.last_error, firings = excluded.firings",
    )?;
    bind_state(&mut put, *id, *enabled, state)?;
    bind_timing(&mut put, timing)?;
    let own = params![
        tenant.as_str(),
        name.as_str(),
        owner.as_ref().map(Name::as_str),
        &blob[..],
        spec.deletes_itself(),
        catch_up_code(*catch_up),
        overlap.code(),
        jitter.0.cast_signed(),
        created_at.0,
        updated_at.0,
    ];
    bind(&mut put, STATE_LEN + TIMING_LEN + 1, own)?;
    put.raw_execute().map_err(|error| rejected(error, || format!("schedule {id}")))?;
    let mut put =
        conn.prepare_cached("REPLACE INTO schedule_payload (id, payload, note) VALUES (?1, ?2, ?3)")?;
    let done = put.execute(params![&id.0.to_be_bytes()[..], &payload[..], &note[..]]);
    done.map_err(|error| rejected(error, || format!("payload of schedule {id}")))?;
    Ok(())
}

/// Stores the part of a schedule that changes by itself.
pub(super) fn move_on(
    conn: &Connection,
    id: ScheduleId,
    enabled: bool,
    state: &ScheduleState,
) -> Result<(), StoreError> {
    let mut update = conn.prepare_cached(&format!(
        "UPDATE schedule SET enabled = ?2, next_at = ?3, last_slot = ?4, waiting_slot = ?5, last_ended_at = ?6, \
         last_status = ?7, last_error = ?8, firings = ?9 WHERE id = ?1 AND {}",
        row_sums::SCHEDULE.check
    ))?;
    bind_state(&mut update, id, enabled, state)?;
    one_row(update.raw_execute()?, id)
}

/// How many parameters [`bind_state`] binds.
const STATE_LEN: usize = 9;

/// Binds the part of a schedule that changes by itself to the first parameters of a statement.
fn bind_state(
    statement: &mut CachedStatement<'_>,
    id: ScheduleId,
    enabled: bool,
    state: &ScheduleState,
) -> rusqlite::Result<()> {
    let ScheduleState { next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, firings } =
        state;
    let columns: &[&dyn ToSql; STATE_LEN] = &[
        &id.0.to_be_bytes(),
        &enabled,
        &next_at.map(|at| at.0),
        &last_slot.map(|at| at.0),
        &waiting_slot.map(|at| at.0),
        &last_ended_at.map(|at| at.0),
        &last_status.map(|status| status.code()),
        &last_error.as_deref(),
        &firings.cast_signed(),
    ];
    bind(statement, 1, columns)
}

/// How many parameters [`bind_timing`] binds.
const TIMING_LEN: usize = 6;

/// Binds a timing to the parameters after those of [`bind_state`].
fn bind_timing(statement: &mut CachedStatement<'_>, timing: &Timing) -> rusqlite::Result<()> {
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
    let columns: &[&dyn ToSql; TIMING_LEN] =
        &[&timing.as_str(), &fire_at, &interval, &anchor_at, &expression, &zone];
    bind(statement, STATE_LEN + 1, columns)
}

/// Deletes a schedule; its slots and its log stay.
pub(super) fn remove(conn: &Connection, id: ScheduleId) -> Result<(), StoreError> {
    let key = id.0.to_be_bytes();
    conn.prepare_cached("DELETE FROM schedule_payload WHERE id = ?1")?.execute([&key[..]])?;
    one_row(conn.prepare_cached("DELETE FROM schedule WHERE id = ?1")?.execute([&key[..]])?, id)
}

/// Stores a slot. A slot that is stored already is a disagreement, not a rejected row: the engine must never fire it twice.
pub(super) fn put_slot(
    conn: &Connection,
    schedule: ScheduleId,
    slot: Wall,
    job: Option<JobId>,
) -> Result<(), StoreError> {
    let mut insert = conn.prepare_cached(
        "INSERT INTO schedule_slot (schedule, slot, job) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    )?;
    let job = job.map(|job| job.0.to_be_bytes());
    let key = schedule.0.to_be_bytes();
    match insert.execute(params![&key[..], slot.0, job.as_ref().map(|job| &job[..])])? {
        1 => Ok(()),
        _ => Err(StoreError::Disagree(format!("slot {} of schedule {schedule} came before", slot.0))),
    }
}

/// Visits every schedule.
pub(super) fn load(
    conn: &Connection,
    names: &mut Interner,
    visit: &mut dyn FnMut(Loaded),
) -> Result<(), StoreError> {
    let mut select = conn.prepare(&format!(
        "SELECT {SCHEDULE}, {}, {} FROM schedule JOIN schedule_payload ON schedule_payload.id = schedule.id ORDER BY schedule.id",
        row_sums::SCHEDULE.check,
        row_sums::SCHEDULE_PAYLOAD.check
    ))?;
    let mut rows = select.query([])?;
    let mut found = 0;
    while let Some(row) = rows.next()? {
        visit(Loaded::Schedule(Box::new(read_schedule(row, names)?)));
        found += 1;
    }
    let stored: i64 = conn.query_row("SELECT count(*) FROM schedule", [], |row| row.get(0))?;
    if found != stored {
        return Err(StoreError::Damaged(format!("of {stored} schedules, {found} have a payload")));
    }
    Ok(())
}

fn one_row(count: usize, id: ScheduleId) -> Result<(), StoreError> {
    if count == 1 { Ok(()) } else { Err(StoreError::Disagree(format!("schedule {id} is not stored"))) }
}
