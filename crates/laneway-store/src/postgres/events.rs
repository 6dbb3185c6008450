//! Reads the event log: pages of events, the history of a job, the chain of hashes.

use laneway_core::{Event, Seq};

use super::cells::{int, number};
use super::session::{ReadError, Session};
use crate::columns::events::{BATCH, Link, PageOfEvents, VERIFIED_AT_ONCE, read_batch};
use crate::columns::number as number_at;
use crate::{EventFilter, Page, StoreError};

/// Batches that one statement reads at first; later ones read more.
const BATCHES_FIRST: i64 = 16;
/// Batches that one statement reads at most.
const BATCHES_MAX: i64 = 1_024;

/// Events after number `after`, oldest first.
pub(super) fn after(
    session: &Session,
    filter: &EventFilter,
    after: u64,
    limit: usize,
) -> Result<Page<Event>, ReadError> {
    let sql = format!(
        "SELECT {BATCH} FROM laneway.event_batch \
         WHERE first >= coalesce((SELECT max(first) FROM laneway.event_batch WHERE first <= $1), 0) ORDER BY first LIMIT $2"
    );
    let mut page = PageOfEvents::new(filter, limit);
    let mut after = after;
    let mut batches = BATCHES_FIRST;
    loop {
        // The first batch of a later statement may be the last one of the statement before: its events are skipped.
        let from = i64::try_from(after).unwrap_or(i64::MAX).saturating_add(1);
        let rows = session.rows(&sql, vec![int(from), int(batches)])?;
        for row in &rows {
            for event in read_batch(row)? {
                let event = event?;
                let number = event.number;
                if number <= after {
                    continue;
                }
                if !page.take(event) {
                    return Ok(page.full());
                }
                after = number;
            }
        }
        if (rows.len() as i64) < batches {
            return Ok(page.ended());
        }
        batches = (batches * 4).min(BATCHES_MAX);
    }
}

/// Events before number `before`, newest first.
pub(super) fn before(
    session: &Session,
    filter: &EventFilter,
    before: u64,
    limit: usize,
) -> Result<Page<Event>, ReadError> {
    let sql =
        format!("SELECT {BATCH} FROM laneway.event_batch WHERE first < $1 ORDER BY first DESC LIMIT $2");
    let mut page = PageOfEvents::new(filter, limit);
    let mut until = i64::try_from(before).unwrap_or(i64::MAX);
    let mut batches = BATCHES_FIRST;
    loop {
        let rows = session.rows(&sql, vec![int(until), int(batches)])?;
        for row in &rows {
            until = number_at(row, 0)?.cast_signed();
            let events = read_batch(row)?.collect::<Result<Vec<Event>, StoreError>>()?;
            for event in events.into_iter().rev() {
                if event.number < before && !page.take(event) {
                    return Ok(page.full());
                }
            }
        }
        if (rows.len() as i64) < batches {
            return Ok(page.ended());
        }
        batches = (batches * 4).min(BATCHES_MAX);
    }
}

/// The latest `limit` events of a job, oldest first: each names the one before it. Ends where the rest is pruned.
pub(super) fn of_job(session: &Session, job: Seq, limit: usize) -> Result<Vec<Event>, ReadError> {
    let sql = "SELECT coalesce(max(last_event), 0) FROM (
             SELECT last_event FROM laneway.job WHERE seq = $1
             UNION ALL SELECT last_event FROM laneway.open_attempt WHERE seq = $1
             UNION ALL SELECT last_event FROM laneway.attempt WHERE seq = $1
             UNION ALL SELECT last_event FROM laneway.done WHERE seq = $1) AS latest";
    let mut wanted = session.row(sql, vec![number(job.0)])?.map_or(Ok(0), |row| number_at(&row, 0))?;
    let find =
        format!("SELECT {BATCH} FROM laneway.event_batch WHERE first <= $1 ORDER BY first DESC LIMIT 1");
    let mut batch: Vec<Event> = Vec::new();
    let mut walked = Vec::new();
    while walked.len() < limit && wanted > 0 {
        if batch.first().is_none_or(|first| wanted < first.number) {
            let Some(row) = session.row(&find, vec![number(wanted)])? else { break };
            batch = read_batch(&row)?.collect::<Result<Vec<Event>, StoreError>>()?;
        }
        let Some(at) = batch.iter().position(|event| event.number == wanted) else { break };
        let event = batch[at].clone();
        let Some(line) = event.job.as_ref().filter(|line| line.seq == job && line.previous < wanted) else {
            return Err(StoreError::Damaged(format!("event {wanted} is not of job {}", job.0)).into());
        };
        wanted = line.previous;
        walked.push(event);
    }
    walked.reverse();
    Ok(walked)
}

/// Number of the oldest event that is kept; 0 when none is.
pub(super) fn first(session: &Session) -> Result<u64, ReadError> {
    let row = session.row("SELECT coalesce(min(first), 0) FROM laneway.event_batch", vec![])?;
    Ok(row.map_or(Ok(0), |row| number_at(&row, 0))?)
}

/// Hashes some batches again from `from` on (`None`: the oldest kept) and reads their events. Returns the number of events checked,
/// and where to continue.
pub(super) fn verify_part(session: &Session, from: Option<Link>) -> Result<(u64, Option<Link>), ReadError> {
    let sql = "SELECT pruned_event, pruned_hash FROM laneway.server_state";
    let missing = || StoreError::Damaged("the row of table server_state is missing".into());
    let oldest = Link::oldest(&session.row(sql, vec![])?.ok_or_else(missing)?)?;
    // What was to come next may have been pruned in the meantime.
    let mut link = from.filter(|link| link.next >= oldest.next).unwrap_or(oldest);
    let begun_at = link.next;
    let sql = format!(
        "SELECT {BATCH}, hash FROM laneway.event_batch WHERE first >= $1 ORDER BY first LIMIT {VERIFIED_AT_ONCE}"
    );
    let rows = session.rows(&sql, vec![number(link.next)])?;
    rows.iter().try_for_each(|row| link.follow(row))?;
    Ok((link.next - begun_at, (rows.len() == VERIFIED_AT_ONCE).then_some(link)))
}
