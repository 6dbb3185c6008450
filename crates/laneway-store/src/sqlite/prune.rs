//! Retention: deletes ended jobs and old events.

use laneway_core::{Reason, Seq, Wall};
use rusqlite::{Connection, params};

use super::facets;
use super::tables::Tables;
use crate::StoreError;
use crate::batch::JobPrune;
use crate::codec::read_spec;
use crate::columns::number;
use crate::columns::retention_bucket;
use crate::rows::stored_name;

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
    let mut update = store.conn.prepare_cached("UPDATE server_state SET last_seq = ?1, last_ended = ?2")?;
    update.execute(params![store.numbers.last_seq.cast_signed(), store.numbers.last_ended.cast_signed()])?;
    facets::remove(&store.conn, &mut store.facets, &gone)
}

fn find_due(
    conn: &Connection,
    lane: i64,
    keyed: bool,
    before: Wall,
    max: u32,
    due: &mut Vec<Due>,
) -> Result<(), StoreError> {
    let mut select = conn.prepare_cached(
        "SELECT finished_at, ended, seq, reason FROM done INDEXED BY done_retention \
         WHERE retention_bucket = ?1 AND finished_at < ?2 \
         AND NOT EXISTS (SELECT 1 FROM open_attempt WHERE open_attempt.seq = done.seq) \
         AND (reason <> ?4 OR NOT EXISTS (SELECT 1 FROM merged JOIN job ON job.seq = merged.leader \
             WHERE merged.seq = done.seq AND NOT EXISTS (SELECT 1 FROM done AS led WHERE led.seq = job.seq))) \
         AND NOT EXISTS (SELECT 1 FROM delivery WHERE delivery.seq = done.seq AND delivery.state = 0) \
         ORDER BY finished_at, ended LIMIT ?3",
    )?;
    let mut rows =
        select.query(params![retention_bucket(lane, keyed, false), before.0, max, Reason::Merged.code()])?;
    while let Some(row) = rows.next()? {
        let merged = row.get::<_, u8>(3)? == Reason::Merged.code();
        due.push(Due {
            finished_at: row.get(0)?,
            ended: row.get(1)?,
            seq: Seq(number(row, 2)?),
            keyed,
            merged,
        });
    }
    Ok(())
}

fn delete_keys(conn: &Connection, due: &[Due]) -> Result<(), StoreError> {
    let mut select = conn.prepare_cached("SELECT tenant, spec FROM job WHERE seq = ?1")?;
    let mut delete = conn.prepare_cached("DELETE FROM idempotency WHERE tenant = ?1 AND key = ?2")?;
    for job in due.iter().filter(|job| job.keyed) {
        let mut rows = select.query([job.seq.0.cast_signed()])?;
        let Some(row) = rows.next()? else { continue };
        let spec = read_spec(row.get_ref(1)?.as_blob()?, &mut stored_name)?;
        if let Some(idempotency) = spec.idempotency {
            delete.execute(params![row.get_ref(0)?.as_str()?, idempotency.key.as_str()])?;
        }
    }
    Ok(())
}

/// Deletes the oldest event batches, up to the first one that has an event from `before` or later. The chain of hashes
/// continues from the last deleted one, which table `server_state` remembers.
pub(super) fn prune_events(conn: &Connection, before: Wall) -> Result<(), StoreError> {
    // `length` reads a blob's header, not the blob.
    let mut select = conn.prepare_cached(
        "SELECT first, count, at, hash, length(bytes) FROM event_batch ORDER BY first LIMIT ?1",
    )?;
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
    conn.prepare_cached("UPDATE server_state SET pruned_event = ?1, pruned_hash = ?2")?
        .execute(params![last, hash])?;
    Ok(())
}
