//! Schedules in SQLite: written beside jobs in the same transaction, loaded before them, and the log of their runs.

use laneway_core::schedule::RECENT_FIRINGS_MAX;
use laneway_core::{
    Bytes, CatchUp, FiringLogEntry, JobId, Name, Schedule, ScheduleId, ScheduleSpec, ScheduleState, Span,
    Timing, Wall,
};
use rusqlite::{Connection, Row, params};

use super::columns::{number, small};
use super::commit::rejected;
use crate::batch::RunsPurge;
use crate::codec::{read_template, write_template};
use crate::rows::{
    Interner, stored_firing_status, stored_job_id, stored_name, stored_overlap, stored_schedule_id,
};
use crate::{FiringLogFilter, FiringLogPage, Loaded, StoreError};

/// The columns that [`read_schedule`] reads, in its order.
pub(super) const SCHEDULE: &str = "cron_jobs.id, tenant, name, owner, enabled, schedule_kind, run_at, interval_ms, anchor_at, \
     cron_expression, timezone, template, delete_after_run, catch_up, overlap, jitter_ms, created_at, updated_at, \
     next_run_at, last_slot, waiting_slot, last_run_at, last_status, last_error, runs, payload, note";

/// The columns that [`read_run`] reads, in its order.
pub(super) const RUN: &str = "number, schedule, tenant, name, agent, job, slot, status, summary, error, attempts, duration_ms, \
     input_tokens, output_tokens, ran_at, ended_at";

/// Keeps a schedule, new or changed.
pub(super) fn put(conn: &Connection, blob: &mut Vec<u8>, schedule: &Schedule) -> Result<(), StoreError> {
    let Schedule { id, spec, created_at, updated_at, state } = schedule;
    let key = id.0.to_be_bytes();
    blob.clear();
    write_template(blob, &spec.job);
    let (mut run_at, mut interval, mut anchor_at, mut expression, mut zone) = (None, None, None, None, None);
    match &spec.timing {
        Timing::At(at) => run_at = Some(at.0),
        Timing::Every { every, anchor } => {
            interval = Some(every.0.cast_signed());
            anchor_at = anchor.map(|at| at.0);
        }
        Timing::Cron { expr, zone: name } => {
            expression = Some(&**expr);
            zone = name.as_ref().map(Name::as_str);
        }
    }
    let mut put = conn.prepare_cached(
        "INSERT INTO cron_jobs (id, tenant, name, owner, enabled, schedule_kind, run_at, interval_ms, anchor_at, \
         cron_expression, timezone, template, delete_after_run, catch_up, overlap, jitter_ms, created_at, updated_at, \
         next_run_at, last_slot, waiting_slot, last_run_at, last_status, last_error, runs) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
         ?22, ?23, ?24, ?25) \
         ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, name = excluded.name, owner = excluded.owner, \
         enabled = excluded.enabled, schedule_kind = excluded.schedule_kind, run_at = excluded.run_at, \
         interval_ms = excluded.interval_ms, anchor_at = excluded.anchor_at, \
         cron_expression = excluded.cron_expression, timezone = excluded.timezone, template = excluded.template, \
         delete_after_run = excluded.delete_after_run, catch_up = excluded.catch_up, overlap = excluded.overlap, \
         jitter_ms = excluded.jitter_ms, created_at = excluded.created_at, updated_at = excluded.updated_at, \
         next_run_at = excluded.next_run_at, last_slot = excluded.last_slot, waiting_slot = excluded.waiting_slot, \
         last_run_at = excluded.last_run_at, last_status = excluded.last_status, last_error = excluded.last_error, \
         runs = excluded.runs",
    )?;
    let done = put.execute(params![
        &key[..],
        spec.tenant.as_str(),
        spec.name.as_str(),
        spec.owner.as_ref().map(Name::as_str),
        spec.enabled,
        spec.timing.as_str(),
        run_at,
        interval,
        anchor_at,
        expression,
        zone,
        &blob[..],
        spec.deletes_itself(),
        catch_up_code(spec.catch_up),
        spec.overlap.code(),
        spec.jitter.0.cast_signed(),
        created_at.0,
        updated_at.0,
        state.next_at.map(|at| at.0),
        state.last_slot.map(|at| at.0),
        state.waiting_slot.map(|at| at.0),
        state.last_ended_at.map(|at| at.0),
        state.last_status.map(|status| status.code()),
        state.last_error.as_deref(),
        state.firings.cast_signed(),
    ]);
    done.map_err(|error| rejected(error, || format!("schedule {id}")))?;
    let mut put = conn.prepare_cached("REPLACE INTO cron_payload (id, payload, note) VALUES (?1, ?2, ?3)")?;
    let done = put.execute(params![&key[..], &spec.payload[..], &spec.note[..]]);
    done.map_err(|error| rejected(error, || format!("payload of schedule {id}")))?;
    Ok(())
}

/// Writes the part of a schedule that changes by itself.
pub(super) fn move_on(
    conn: &Connection,
    id: ScheduleId,
    enabled: bool,
    state: &ScheduleState,
) -> Result<(), StoreError> {
    let mut update = conn.prepare_cached(
        "UPDATE cron_jobs SET enabled = ?2, next_run_at = ?3, last_slot = ?4, waiting_slot = ?5, last_run_at = ?6, \
         last_status = ?7, last_error = ?8, runs = ?9 WHERE id = ?1",
    )?;
    let updated = update.execute(params![
        &id.0.to_be_bytes()[..],
        enabled,
        state.next_at.map(|at| at.0),
        state.last_slot.map(|at| at.0),
        state.waiting_slot.map(|at| at.0),
        state.last_ended_at.map(|at| at.0),
        state.last_status.map(|status| status.code()),
        state.last_error.as_deref(),
        state.firings.cast_signed(),
    ])?;
    one_row(updated, id)
}

/// Forgets a schedule; its slots and its log stay.
pub(super) fn remove(conn: &Connection, id: ScheduleId) -> Result<(), StoreError> {
    let key = id.0.to_be_bytes();
    conn.prepare_cached("DELETE FROM cron_payload WHERE id = ?1")?.execute([&key[..]])?;
    one_row(conn.prepare_cached("DELETE FROM cron_jobs WHERE id = ?1")?.execute([&key[..]])?, id)
}

/// Writes a slot. One that is there already is no row to be rejected: the engine must never ask for it.
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

/// Keeps an entry of the run log.
pub(super) fn log(conn: &Connection, log: &FiringLogEntry) -> Result<(), StoreError> {
    let schedule = log.schedule.0.to_be_bytes();
    let job = log.job.map(|job| job.0.to_be_bytes());
    let mut insert = conn.prepare_cached(&format!(
        "INSERT INTO cron_run_logs ({RUN}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
    ))?;
    let inserted = insert.execute(params![
        log.number.cast_signed(),
        &schedule[..],
        log.tenant.as_str(),
        log.name.as_str(),
        log.agent.as_str(),
        job.as_ref().map(|job| &job[..]),
        log.slot.0,
        log.status.code(),
        log.summary.as_deref(),
        log.error.as_deref(),
        log.attempts,
        log.duration_ms.cast_signed(),
        log.input_tokens.cast_signed(),
        log.output_tokens.cast_signed(),
        log.ran_at.0,
        log.ended_at.0,
    ]);
    inserted.map_err(|error| rejected(error, || format!("run {}", log.number)))?;
    let mut count = conn.prepare_cached(
        "INSERT INTO cron_run_total (schedule, tenant, logs) VALUES (?1, ?2, 1) \
         ON CONFLICT (schedule) DO UPDATE SET logs = logs + 1",
    )?;
    count.execute(params![&schedule[..], log.tenant.as_str()])?;
    Ok(())
}

/// Forgets old entries of the log and slots that can never come again.
pub(super) fn purge(conn: &Connection, purge: &RunsPurge) -> Result<(), StoreError> {
    let mut gone: Vec<(i64, Vec<u8>)> = Vec::new();
    let mut select =
        conn.prepare_cached("SELECT number, schedule, ended_at FROM cron_run_logs ORDER BY number LIMIT ?1")?;
    let mut rows = select.query([purge.max])?;
    // Up to the first one that is young enough: a walk through all of them would not be short.
    while let Some(row) = rows.next()?.filter(|row| row.get(2).is_ok_and(|at: i64| at < purge.ended_before.0))
    {
        gone.push((row.get(0)?, row.get(1)?));
    }
    drop(rows);
    forget_runs(conn, &gone)?;
    let mut left = i64::from(purge.max);
    let mut select =
        conn.prepare_cached("SELECT schedule, logs FROM cron_run_total WHERE logs > ?1 ORDER BY schedule")?;
    let crowded: Vec<(Vec<u8>, i64)> =
        select.query_map([purge.keep], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (schedule, logs) in crowded {
        let over = (logs - i64::from(purge.keep)).min(left);
        left -= over;
        let mut select = conn.prepare_cached(
            "SELECT number FROM cron_run_logs WHERE schedule = ?1 ORDER BY number LIMIT ?2",
        )?;
        let numbers = select.query_map(params![&schedule[..], over], |row| row.get(0))?;
        let gone: Vec<(i64, Vec<u8>)> =
            numbers.map(|number| Ok((number?, schedule.clone()))).collect::<Result<_, rusqlite::Error>>()?;
        forget_runs(conn, &gone)?;
    }
    conn.prepare_cached(
        "DELETE FROM schedule_slot WHERE (schedule, slot) IN \
         (SELECT schedule, slot FROM schedule_slot INDEXED BY schedule_slot_time WHERE slot < ?1 \
         ORDER BY slot, schedule LIMIT ?2)",
    )?
    .execute(params![purge.slots_before.0, purge.max])?;
    Ok(())
}

fn forget_runs(conn: &Connection, gone: &[(i64, Vec<u8>)]) -> Result<(), StoreError> {
    let mut delete = conn.prepare_cached("DELETE FROM cron_run_logs WHERE number = ?1")?;
    let mut count = conn.prepare_cached("UPDATE cron_run_total SET logs = logs - 1 WHERE schedule = ?1")?;
    for (number, schedule) in gone {
        delete.execute([number])?;
        count.execute([&schedule[..]])?;
    }
    if !gone.is_empty() {
        conn.prepare_cached("DELETE FROM cron_run_total WHERE logs = 0")?.execute([])?;
    }
    Ok(())
}

/// Gives every schedule, then the newest entries of the run log, oldest first.
pub(super) fn load(
    conn: &Connection,
    names: &mut Interner,
    visit: &mut dyn FnMut(Loaded),
) -> Result<(), StoreError> {
    let mut select = conn.prepare(&format!(
        "SELECT {SCHEDULE} FROM cron_jobs JOIN cron_payload ON cron_payload.id = cron_jobs.id ORDER BY cron_jobs.id"
    ))?;
    let mut rows = select.query([])?;
    let mut found = 0;
    while let Some(row) = rows.next()? {
        visit(Loaded::Schedule(Box::new(read_schedule(row, names)?)));
        found += 1;
    }
    let stored: i64 = conn.query_row("SELECT count(*) FROM cron_jobs", [], |row| row.get(0))?;
    if found != stored {
        return Err(StoreError::Damaged(format!("of {stored} schedules, {found} have a payload")));
    }
    let most = i64::try_from(RECENT_FIRINGS_MAX).unwrap_or(i64::MAX);
    let mut select = conn.prepare(&format!(
        "SELECT {RUN} FROM (SELECT * FROM cron_run_logs ORDER BY number DESC LIMIT ?1) ORDER BY number"
    ))?;
    let mut rows = select.query([most])?;
    while let Some(row) = rows.next()? {
        visit(Loaded::FiringLogEntry(Box::new(read_run(row)?)));
    }
    Ok(())
}

/// Entries of the run log before number `before`, newest first.
pub(super) fn runs(
    conn: &Connection,
    filter: &FiringLogFilter,
    before: Option<u64>,
    limit: usize,
) -> Result<FiringLogPage, StoreError> {
    let FiringLogFilter { tenant, schedule } = filter;
    let key = schedule.map(|id| id.0.to_be_bytes());
    let (key, tenant) = (key.as_ref().map(|key| &key[..]), tenant.as_ref().map(Name::as_str));
    // One statement for each filter, so that each finds its index.
    let wanted = match (key, tenant) {
        (Some(_), _) => "schedule = ?1 AND (?2 IS NULL OR tenant = ?2)",
        (None, Some(_)) => "?1 IS NULL AND tenant = ?2",
        (None, None) => "?1 IS NULL AND ?2 IS NULL",
    };
    let total: i64 = conn
        .prepare_cached(&format!("SELECT ifnull(sum(logs), 0) FROM cron_run_total WHERE {wanted}"))?
        .query_row(params![key, tenant], |row| row.get(0))?;
    let mut select = conn.prepare_cached(&format!(
        "SELECT {RUN} FROM cron_run_logs WHERE {wanted} AND number < ?3 ORDER BY number DESC LIMIT ?4"
    ))?;
    let before = before.map_or(i64::MAX, |number| i64::try_from(number).unwrap_or(i64::MAX));
    let limit = limit.max(1);
    let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let mut rows = select.query(params![key, tenant, before, most])?;
    let mut page = FiringLogPage { items: Vec::new(), next: None, total: total.cast_unsigned() };
    while let Some(row) = rows.next()? {
        if page.items.len() >= limit {
            page.next = page.items.last().map(|run: &FiringLogEntry| run.number);
            break;
        }
        page.items.push(read_run(row)?);
    }
    Ok(page)
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

pub(super) fn read_run(row: &Row<'_>) -> Result<FiringLogEntry, StoreError> {
    Ok(FiringLogEntry {
        number: number(row, 0)?,
        schedule: stored_schedule_id(row.get_ref(1)?.as_blob()?)?,
        tenant: stored_name(row.get_ref(2)?.as_str()?)?,
        name: stored_name(row.get_ref(3)?.as_str()?)?,
        agent: stored_name(row.get_ref(4)?.as_str()?)?,
        job: row.get_ref(5)?.as_blob_or_null()?.map(stored_job_id).transpose()?,
        slot: Wall(row.get(6)?),
        status: stored_firing_status(small(row, 7)?)?,
        summary: row.get_ref(8)?.as_str_or_null()?.map(Into::into),
        error: row.get_ref(9)?.as_str_or_null()?.map(Into::into),
        attempts: small(row, 10)?,
        duration_ms: number(row, 11)?,
        input_tokens: number(row, 12)?,
        output_tokens: number(row, 13)?,
        ran_at: Wall(row.get(14)?),
        ended_at: Wall(row.get(15)?),
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
