//! Reads the event log: pages of events, the history of a job, the chain of hashes.

use laneway_core::{Event, Seq};
use rusqlite::Connection;

use super::row_sums::{ATTEMPT, EVENT_BATCH, OPEN_ATTEMPT, SERVER_STATE};
use crate::columns::events::{BATCH, Link, PageOfEvents, VERIFIED_AT_ONCE, read_batch};
use crate::columns::status::{JOB, read_job};
use crate::columns::{END, number, read_end};
use crate::rows::Interner;
use crate::{EventFilter, Page, StoreError};

/// Checks a row of events.
const CHECK: &str = EVENT_BATCH.check;

/// Events after number `after`, oldest first.
pub(super) fn after(
    conn: &Connection,
    filter: &EventFilter,
    after: u64,
    limit: usize,
) -> Result<Page<Event>, StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {BATCH}, {CHECK} FROM event_batch \
         WHERE first >= coalesce((SELECT max(first) FROM event_batch WHERE first <= ?1), 0) ORDER BY first"
    ))?;
    let mut rows = select.query([i64::try_from(after).unwrap_or(i64::MAX).saturating_add(1)])?;
    let mut page = PageOfEvents::new(filter, limit);
    while let Some(row) = rows.next()? {
        for event in read_batch(row)? {
            let event = event?;
            if event.number > after && !page.take(event) {
                return Ok(page.full());
            }
        }
    }
    Ok(page.ended())
}

/// Events before number `before`, newest first.
pub(super) fn before(
    conn: &Connection,
    filter: &EventFilter,
    before: u64,
    limit: usize,
) -> Result<Page<Event>, StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {BATCH}, {CHECK} FROM event_batch WHERE first < ?1 ORDER BY first DESC"
    ))?;
    let mut rows = select.query([i64::try_from(before).unwrap_or(i64::MAX)])?;
    let mut page = PageOfEvents::new(filter, limit);
    while let Some(row) = rows.next()? {
        let events = read_batch(row)?.collect::<Result<Vec<Event>, StoreError>>()?;
        for event in events.into_iter().rev() {
            if event.number < before && !page.take(event) {
                return Ok(page.full());
            }
        }
    }
    Ok(page.ended())
}

/// The latest `limit` events of a job, oldest first: each names the one before it. Ends where the rest is pruned.
pub(super) fn of_job(conn: &Connection, job: Seq, limit: usize) -> Result<Vec<Event>, StoreError> {
    let mut find = conn.prepare_cached(&format!(
        "SELECT {BATCH}, {CHECK} FROM event_batch WHERE first <= ?1 ORDER BY first DESC LIMIT 1"
    ))?;
    let mut number = latest_of(conn, job)?;
    let mut batch: Vec<Event> = Vec::new();
    let mut walked = Vec::new();
    while walked.len() < limit && number > 0 {
        if batch.first().is_none_or(|first| number < first.number) {
            let mut rows = find.query([number.cast_signed()])?;
            let Some(row) = rows.next()? else { break };
            batch = read_batch(row)?.collect::<Result<Vec<Event>, StoreError>>()?;
        }
        let Some(at) = batch.iter().position(|event| event.number == number) else { break };
        let event = batch[at].clone();
        let Some(line) = event.job.as_ref().filter(|line| line.seq == job && line.previous < number) else {
            return Err(StoreError::Damaged(format!("event {number} is not of job {}", job.0)));
        };
        number = line.previous;
        walked.push(event);
    }
    walked.reverse();
    Ok(walked)
}

/// Number of the latest event of a job, from all its rows; 0: it has none.
fn latest_of(conn: &Connection, job: Seq) -> Result<u64, StoreError> {
    let key = [job.0.cast_signed()];
    let mut select = conn.prepare_cached(&format!(
        "SELECT last_event, {} FROM open_attempt WHERE seq = ?1 UNION ALL SELECT last_event, {} FROM attempt WHERE seq = ?1",
        OPEN_ATTEMPT.check, ATTEMPT.check
    ))?;
    let mut rows = select.query(key)?;
    let mut latest = 0;
    while let Some(row) = rows.next()? {
        latest = latest.max(number(row, 0)?);
    }
    let mut select = conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    if let Some(row) = select.query(key)?.next()? {
        latest = latest.max(read_job(row, &mut Interner::default())?.status.last_event);
    }
    let mut select = conn.prepare_cached(&format!("SELECT {END} FROM done WHERE seq = ?1"))?;
    if let Some(row) = select.query(key)?.next()? {
        latest = latest.max(read_end(row)?.last_event);
    }
    Ok(latest)
}

/// Number of the oldest event that is kept; 0 when none is.
pub(super) fn first(conn: &Connection) -> Result<u64, StoreError> {
    let mut select = conn.prepare_cached("SELECT coalesce(min(first), 0) FROM event_batch")?;
    let first: i64 = select.query_row([], |row| row.get(0))?;
    Ok(first.cast_unsigned())
}

/// Hashes some batches again from `from` on (`None`: the oldest kept) and reads their events. Returns the number of events
/// checked, and where to continue. In parts, because a long read would keep the log from beginning anew.
pub(super) fn verify_part(conn: &Connection, from: Option<Link>) -> Result<(u64, Option<Link>), StoreError> {
    let oldest = oldest_link(conn)?;
    // What was to come next may have been pruned in the meantime.
    let mut link = from.filter(|link| link.next >= oldest.next).unwrap_or(oldest);
    let begun_at = link.next;
    let mut select = conn.prepare_cached(&format!(
        "SELECT {BATCH}, hash, {CHECK} FROM event_batch WHERE first >= ?1 ORDER BY first LIMIT {VERIFIED_AT_ONCE}"
    ))?;
    let mut rows = select.query([link.next.cast_signed()])?;
    let mut batches = 0;
    while let Some(row) = rows.next()? {
        link.follow(row)?;
        batches += 1;
    }
    Ok((link.next - begun_at, (batches == VERIFIED_AT_ONCE).then_some(link)))
}

fn oldest_link(conn: &Connection) -> Result<Link, StoreError> {
    let sql = format!("SELECT pruned_event, pruned_hash, {} FROM server_state", SERVER_STATE.check);
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([])?;
    let row =
        rows.next()?.ok_or_else(|| StoreError::Damaged("the row of table server_state is missing".into()))?;
    Link::oldest(row)
}
