//! Schedules and their slots in SQLite: written beside jobs in the same transaction, loaded before them.

use laneway_core::{
    Bytes, CatchUp, JobId, Name, Schedule, ScheduleId, ScheduleSpec, ScheduleState, Span, Timing, Wall,
};
use rusqlite::types::ToSql;
use rusqlite::{CachedStatement, Connection, Row, params};

use super::columns::{number, small};
use super::commit::{bind, rejected};
use crate::codec::{read_template, write_template};
use crate::rows::{Interner, stored_firing_status, stored_name, stored_overlap, stored_schedule_id};
use crate::{Loaded, StoreError};

/// The columns that [`read_schedule`] reads, in its order.
pub(super) const SCHEDULE: &str = "schedule.id, tenant, name, owner, enabled, timing, fire_at, interval_ms, anchor_at, \
     cron_expression, timezone, template, delete_after_run, catch_up, overlap, jitter_ms, created_at, updated_at, \
     next_at, last_slot, waiting_slot, last_ended_at, last_status, last_error, firings, payload, note";

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
    let mut update = conn.prepare_cached(
        "UPDATE schedule SET enabled = ?2, next_at = ?3, last_slot = ?4, waiting_slot = ?5, last_ended_at = ?6, \
         last_status = ?7, last_error = ?8, firings = ?9 WHERE id = ?1",
    )?;
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
        "SELECT {SCHEDULE} FROM schedule JOIN schedule_payload ON schedule_payload.id = schedule.id ORDER BY schedule.id"
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

pub(super) fn read_schedule(row: &Row<'_>, names: &mut Interner) -> Result<Schedule, StoreError> {
    let wall = |column: usize| -> Result<Option<Wall>, StoreError> {
        Ok(row.get_ref(column)?.as_i64_or_null()?.map(Wall))
    };
    let tenant = names.name(row.get_ref(1)?.as_str()?)?;
    let missing = || StoreError::Damaged("a schedule has half a timing".into());
    let timing = match row.get_ref(5)?.as_str()? {
        "at" => Timing::At(wall(6)?.ok_or_else(missing)?),
        "every" => {
            let every = row.get_ref(7)?.as_i64_or_null()?.ok_or_else(missing)?;
            Timing::Every { every: Span(every.cast_unsigned()), anchor: wall(8)? }
        }
        _ => Timing::Cron {
            expr: row.get_ref(9)?.as_str_or_null()?.ok_or_else(missing)?.into(),
            zone: row.get_ref(10)?.as_str_or_null()?.map(stored_name).transpose()?,
        },
    };
    let spec = ScheduleSpec {
        name: stored_name(row.get_ref(2)?.as_str()?)?,
        owner: row.get_ref(3)?.as_str_or_null()?.map(stored_name).transpose()?,
        enabled: row.get(4)?,
        timing,
        job: read_template(tenant.clone(), row.get_ref(11)?.as_blob()?, &mut |text| names.name(text))?,
        tenant,
        delete_after_run: Some(row.get(12)?),
        catch_up: catch_up_of(row.get(13)?)?,
        overlap: stored_overlap(small(row, 14)?)?,
        jitter: Span(number(row, 15)?),
        payload: Bytes::from(row.get_ref(25)?.as_blob()?),
        note: Bytes::from(row.get_ref(26)?.as_blob()?),
    };
    let status = row.get_ref(22)?.as_i64_or_null()?;
    let status = status.map(|code| stored_firing_status(u8::try_from(code).unwrap_or(u8::MAX)));
    Ok(Schedule {
        id: stored_schedule_id(row.get_ref(0)?.as_blob()?)?,
        spec,
        created_at: Wall(row.get(16)?),
        updated_at: Wall(row.get(17)?),
        state: ScheduleState {
            next_at: wall(18)?,
            last_slot: wall(19)?,
            waiting_slot: wall(20)?,
            last_ended_at: wall(21)?,
            last_status: status.transpose()?,
            last_error: row.get_ref(23)?.as_str_or_null()?.map(Into::into),
            firings: number(row, 24)?,
        },
    })
}

fn catch_up_code(catch_up: CatchUp) -> i64 {
    match catch_up {
        CatchUp::Skip => -1,
        CatchUp::Latest => 0,
        CatchUp::All { max } => max.into(),
    }
}

fn catch_up_of(code: i64) -> Result<CatchUp, StoreError> {
    match code {
        -1 => Ok(CatchUp::Skip),
        0 => Ok(CatchUp::Latest),
        max => match u32::try_from(max) {
            Ok(max) => Ok(CatchUp::All { max }),
            Err(_) => Err(StoreError::Damaged(format!("there is no catch-up {max}"))),
        },
    }
}

fn one_row(count: usize, id: ScheduleId) -> Result<(), StoreError> {
    if count == 1 { Ok(()) } else { Err(StoreError::Disagree(format!("schedule {id} is not stored"))) }
}
