//! Retention: deletes ended jobs and old events. Calls delete single jobs.

use laneway_core::{Reason, Seq, Wall};
use rusqlite::{Connection, params};

use super::facets;
use super::row_sums::{EVENT_BATCH, SERVER_STATE};
use super::tables::{Numbers, Tables};
use crate::StoreError;
use crate::batch::JobPrune;
use crate::columns::status::{JOB, read_job};
use crate::columns::{END, END_LEN, read_end, retention_bucket};
use crate::live::MEMBERS;
use crate::rows::Interner;

/// Event batches that one commit removes at most, and bytes after which it stops: a commit must stay short. The
/// next prune takes the rest.
const BATCHES_MAX: i64 = 65_536;
const BATCH_BYTES_MAX: i64 = 256 * 1024 * 1024;

/// An ended job that may be deleted.
struct Due {
    finished_at: i64,
    ended: i64,
    seq: Seq,
    keyed: bool,
    merged: bool,
}

/// Deletes ended jobs of a lane, those that ended first first. An open attempt keeps its job, and so do a live job that
/// runs for it and a delivery that waits.
pub(super) fn prune_jobs(store: &mut Tables, prune: &JobPrune<'_>) -> Result<(), StoreError> {
    let Some(lane) = store.lanes.get(prune.lane).copied() else { return Ok(()) };
    let keyed_before = prune.finished_before.min(prune.keyed_finished_before);
    let mut due = Vec::new();
    find_due(&store.conn, lane, false, prune.finished_before, prune.max, &mut due)?;
    find_due(&store.conn, lane, true, keyed_before, prune.max, &mut due)?;
    due.sort_unstable_by_key(|job| (job.finished_at, job.ended));
    due.truncate(usize::try_from(prune.max).unwrap_or(usize::MAX));
    delete(store, due)
}

/// Deletes ended jobs. Those that are not stored any more are left out.
pub(super) fn delete_jobs(store: &mut Tables, jobs: &[Seq]) -> Result<(), StoreError> {
    let mut due = Vec::with_capacity(jobs.len());
    for &seq in jobs {
        due.extend(find_ended(store, seq)?);
    }
    due.dedup_by_key(|job| job.seq);
    delete(store, due)
}

/// An ended job that a call deletes.
fn find_ended(store: &Tables, seq: Seq) -> Result<Option<Due>, StoreError> {
    let mut select = store.conn.prepare_cached(&format!(
        "SELECT {END}, ended, retention_bucket, EXISTS (SELECT 1 FROM open_attempt WHERE open_attempt.seq = ?1) \
         FROM done WHERE seq = ?1"
    ))?;
    let mut rows = select.query([seq.0.cast_signed()])?;
    let needed = || StoreError::Disagree(format!("job {} is needed and cannot be deleted", seq.0));
    let Some(row) = rows.next()? else {
        return if store.live.get(seq).is_some() { Err(needed()) } else { Ok(None) };
    };
    let end = read_end(row)?;
    let bucket: i64 = row.get(END_LEN + 1)?;
    if bucket == MEMBERS || row.get(END_LEN + 2)? {
        return Err(needed());
    }
    Ok(Some(Due {
        finished_at: end.finished_at.0,
        ended: row.get(END_LEN)?,
        seq,
        // See `retention_bucket`.
        keyed: bucket % 2 == 1,
        merged: end.reason == Reason::Merged,
    }))
}

/// Deletes these jobs with everything that is stored of them.
fn delete(store: &mut Tables, mut due: Vec<Due>) -> Result<(), StoreError> {
    if due.is_empty() {
        return Ok(());
    }
    due.sort_unstable_by_key(|job| job.seq);
    delete_keys(&store.conn, &due)?;
    for table in ["job", "payload", "attempt", "log", "delivery", "delivery_try"] {
        let mut delete = store.conn.prepare_cached(&format!("DELETE FROM {table} WHERE seq = ?1"))?;
        for job in &due {
            delete.execute([job.seq.0.cast_signed()])?;
        }
    }
    let mut delete = store.conn.prepare_cached("DELETE FROM merged WHERE seq = ?1")?;
    for job in due.iter().filter(|job| job.merged) {
        delete.execute([job.seq.0.cast_signed()])?;
    }
    let gone: Vec<Seq> = due.iter().map(|job| job.seq).collect();
    due.sort_unstable_by_key(|job| job.ended);
    let mut delete = store.conn.prepare_cached("DELETE FROM done WHERE ended = ?1")?;
    for job in &due {
        delete.execute([job.ended])?;
    }
    // The rows with the highest numbers may be deleted now.
    store_last_numbers(store)?;
    facets::remove(&store.conn, &mut store.facets, &gone)
}

/// Stores the highest numbers that were given out.
pub(super) fn store_last_numbers(store: &Tables) -> Result<(), StoreError> {
    let Numbers { last_seq, last_ended, .. } = store.numbers;
    let mut update = store.conn.prepare_cached(&format!(
        "UPDATE server_state SET last_seq = ?1, last_ended = ?2 WHERE {}",
        SERVER_STATE.check
    ))?;
    update.execute([last_seq.cast_signed(), last_ended.cast_signed()])?;
    Ok(())
}

fn find_due(
    conn: &Connection,
    lane: i64,
    keyed: bool,
    before: Wall,
    max: u32,
    due: &mut Vec<Due>,
) -> Result<(), StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {END}, ended FROM done INDEXED BY done_retention \
         WHERE retention_bucket = ?1 AND finished_at < ?2 \
         AND NOT EXISTS (SELECT 1 FROM open_attempt WHERE open_attempt.seq = done.seq) \
         AND (reason <> ?4 OR NOT EXISTS (SELECT 1 FROM merged JOIN job ON job.seq = merged.leader \
             WHERE merged.seq = done.seq AND NOT EXISTS (SELECT 1 FROM done AS led WHERE led.seq = job.seq))) \
         AND NOT EXISTS (SELECT 1 FROM delivery WHERE delivery.seq = done.seq AND delivery.state = 0) \
         ORDER BY finished_at, ended LIMIT ?3",
    ))?;
    let mut rows =
        select.query(params![retention_bucket(lane, keyed, false), before.0, max, Reason::Merged.code()])?;
    while let Some(row) = rows.next()? {
        // A damaged row or index must not delete a job before its time.
        let end = read_end(row)?;
        due.push(Due {
            finished_at: end.finished_at.0,
            ended: row.get(END_LEN)?,
            seq: end.seq,
            keyed,
            merged: end.reason == Reason::Merged,
        });
    }
    Ok(())
}

fn delete_keys(conn: &Connection, due: &[Due]) -> Result<(), StoreError> {
    let mut select = conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut delete = conn.prepare_cached("DELETE FROM idempotency WHERE tenant = ?1 AND key = ?2")?;
    for job in due.iter().filter(|job| job.keyed) {
        let mut rows = select.query([job.seq.0.cast_signed()])?;
        let Some(row) = rows.next()? else { continue };
        let spec = read_job(row, &mut Interner::default())?.spec;
        if let Some(idempotency) = spec.idempotency {
            delete.execute(params![spec.tenant.as_str(), idempotency.key.as_str()])?;
        }
    }
    Ok(())
}

/// Deletes the oldest event batches, up to the first one that has an event from `before` or later. The chain of hashes
/// continues from the last deleted one, which table `server_state` remembers.
pub(super) fn prune_events(conn: &Connection, before: Wall) -> Result<(), StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT first, count, at, hash, length(bytes), {} FROM event_batch ORDER BY first LIMIT ?1",
        EVENT_BATCH.check
    ))?;
    let mut rows = select.query([BATCHES_MAX])?;
    let mut gone: Option<(i64, i64, Vec<u8>)> = None;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(2)? >= before.0 || bytes > BATCH_BYTES_MAX {
            break;
        }
        bytes += row.get::<_, i64>(4)?;
        gone = Some((row.get(0)?, row.get::<_, i64>(0)? + row.get::<_, i64>(1)? - 1, row.get(3)?));
    }
    drop(rows);
    let Some((first, last, hash)) = gone else { return Ok(()) };
    conn.prepare_cached("DELETE FROM event_batch WHERE first <= ?1")?.execute([first])?;
    let sql =
        format!("UPDATE server_state SET pruned_event = ?1, pruned_hash = ?2 WHERE {}", SERVER_STATE.check);
    conn.prepare_cached(&sql)?.execute(params![last, hash])?;
    Ok(())
}
