//! The firing log in SQLite: written beside the ends of jobs in the same transaction, read in pages, pruned by age and number.

use laneway_core::schedule::RECENT_FIRINGS_MAX;
use laneway_core::{FiringLogEntry, Name};
use rusqlite::{Connection, params};

use super::commit::rejected;
use super::row_sums::{FIRING_COUNT, FIRING_LOG};
use crate::batch::FiringLogPrune;
use crate::columns::firing_log::{ENTRY, read_entry};
use crate::{FiringLogFilter, FiringLogPage, Loaded, StoreError};

/// Stores an entry.
pub(super) fn insert(conn: &Connection, entry: &FiringLogEntry) -> Result<(), StoreError> {
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
    let schedule = schedule.0.to_be_bytes();
    let job = job.map(|job| job.0.to_be_bytes());
    let mut insert = conn.prepare_cached(&format!(
        "INSERT INTO firing_log ({ENTRY}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)"
    ))?;
    let inserted = insert.execute(params![
        number.cast_signed(),
        &schedule[..],
        tenant.as_str(),
        name.as_str(),
        agent.as_str(),
        job.as_ref().map(|job| &job[..]),
        slot.0,
        status.code(),
        summary.as_deref(),
        error.as_deref(),
        attempts,
        duration_ms.cast_signed(),
        input_tokens.cast_signed(),
        output_tokens.cast_signed(),
        ran_at.0,
        ended_at.0,
    ]);
    inserted.map_err(|error| rejected(error, || format!("firing {number}")))?;
    let mut count = conn.prepare_cached(&format!(
        "INSERT INTO firing_count (schedule, tenant, entries) VALUES (?1, ?2, 1) \
         ON CONFLICT (schedule) DO UPDATE SET entries = entries + 1 WHERE {}",
        FIRING_COUNT.check
    ))?;
    count.execute(params![&schedule[..], tenant.as_str()])?;
    Ok(())
}

/// Deletes old entries of the log, and slots that can never fire again.
pub(super) fn prune(conn: &Connection, prune: &FiringLogPrune) -> Result<(), StoreError> {
    let mut gone: Vec<(i64, Vec<u8>)> = Vec::new();
    let mut select = conn.prepare_cached(&format!(
        "SELECT number, schedule, ended_at, {} FROM firing_log ORDER BY number LIMIT ?1",
        FIRING_LOG.check
    ))?;
    let mut rows = select.query([prune.max])?;
    // Up to the first one that is young enough: a walk through all of them would take too long.
    while let Some(row) = rows.next()?.filter(|row| row.get(2).is_ok_and(|at: i64| at < prune.ended_before.0))
    {
        gone.push((row.get(0)?, row.get(1)?));
    }
    drop(rows);
    delete_entries(conn, &gone)?;
    let mut left = i64::from(prune.max);
    let mut select = conn.prepare_cached(&format!(
        "SELECT schedule, entries, {} FROM firing_count WHERE entries > ?1 ORDER BY schedule",
        FIRING_COUNT.check
    ))?;
    let crowded: Vec<(Vec<u8>, i64)> =
        select.query_map([prune.keep], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    for (schedule, entries) in crowded {
        let over = (entries - i64::from(prune.keep)).min(left);
        left -= over;
        let mut select = conn.prepare_cached(&format!(
            "SELECT number, {} FROM firing_log WHERE schedule = ?1 ORDER BY number LIMIT ?2",
            FIRING_LOG.check
        ))?;
        let numbers = select.query_map(params![&schedule[..], over], |row| row.get(0))?;
        let gone: Vec<(i64, Vec<u8>)> =
            numbers.map(|number| Ok((number?, schedule.clone()))).collect::<Result<_, rusqlite::Error>>()?;
        delete_entries(conn, &gone)?;
    }
    conn.prepare_cached(
        "DELETE FROM schedule_slot WHERE (schedule, slot) IN \
         (SELECT schedule, slot FROM schedule_slot INDEXED BY schedule_slot_time WHERE slot < ?1 \
         ORDER BY slot, schedule LIMIT ?2)",
    )?
    .execute(params![prune.slots_before.0, prune.max])?;
    Ok(())
}

fn delete_entries(conn: &Connection, gone: &[(i64, Vec<u8>)]) -> Result<(), StoreError> {
    let mut delete = conn.prepare_cached("DELETE FROM firing_log WHERE number = ?1")?;
    let mut count = conn.prepare_cached(&format!(
        "UPDATE firing_count SET entries = entries - 1 WHERE schedule = ?1 AND {}",
        FIRING_COUNT.check
    ))?;
    for (number, schedule) in gone {
        delete.execute([number])?;
        count.execute([&schedule[..]])?;
    }
    if !gone.is_empty() {
        conn.prepare_cached("DELETE FROM firing_count WHERE entries = 0")?.execute([])?;
    }
    Ok(())
}

/// Visits the newest entries of the firing log, oldest first.
pub(super) fn load(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let most = i64::try_from(RECENT_FIRINGS_MAX).unwrap_or(i64::MAX);
    let mut select = conn.prepare(&format!(
        "SELECT {ENTRY}, {} FROM firing_log WHERE number IN (SELECT number FROM firing_log ORDER BY number DESC LIMIT ?1) \
         ORDER BY number",
        FIRING_LOG.check
    ))?;
    let mut rows = select.query([most])?;
    while let Some(row) = rows.next()? {
        visit(Loaded::FiringLogEntry(Box::new(read_entry(row)?)));
    }
    Ok(())
}

/// Entries before number `before`, newest first.
pub(super) fn list(
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
        .prepare_cached(&format!(
            "SELECT ifnull(sum(entries), 0) FROM firing_count WHERE {wanted} AND {}",
            FIRING_COUNT.check
        ))?
        .query_row(params![key, tenant], |row| row.get(0))?;
    let mut select = conn.prepare_cached(&format!(
        "SELECT {ENTRY}, {} FROM firing_log WHERE {wanted} AND number < ?3 ORDER BY number DESC LIMIT ?4",
        FIRING_LOG.check
    ))?;
    let before = before.map_or(i64::MAX, |number| i64::try_from(number).unwrap_or(i64::MAX));
    let limit = limit.max(1);
    let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let mut rows = select.query(params![key, tenant, before, most])?;
    let mut page = FiringLogPage { items: Vec::new(), next: None, total: total.cast_unsigned() };
    while let Some(row) = rows.next()? {
        if page.items.len() >= limit {
            page.next = page.items.last().map(|entry: &FiringLogEntry| entry.number);
            break;
        }
        page.items.push(read_entry(row)?);
    }
    Ok(page)
}
