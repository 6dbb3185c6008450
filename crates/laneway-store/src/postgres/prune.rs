//! Retention: deletes ended jobs and old events, each in one statement. Calls delete single jobs.

use laneway_core::{Reason, Seq, Wall};

use super::cells::{Param, int};
use super::load::Numbers;
use super::script::Script;
use crate::StoreError;
use crate::batch::JobPrune;
use crate::columns::retention_bucket;

/// Event batches that one commit removes at most, and bytes after which it stops: a commit must stay short. The next prune takes
/// the rest.
const BATCHES_MAX: i64 = 65_536;
const BATCH_BYTES_MAX: i64 = 256 * 1024 * 1024;

/// Deletes ended jobs of a lane, those that ended first first. An open attempt keeps its job, and so do a live job that runs for it
/// and a delivery that waits.
pub(super) fn jobs<'a>(state: &Numbers, prune: &JobPrune<'a>, script: &mut Script<'a>) {
    let Some(lane) = state.lanes.get(prune.lane).copied() else { return };
    let keyed_before = prune.finished_before.min(prune.keyed_finished_before);
    let of_bucket = |bucket: &str, before: &str| {
        format!(
            "(SELECT ended, seq, finished_at FROM laneway.done WHERE retention_bucket = {bucket} AND finished_at < {before} \
             AND NOT EXISTS (SELECT 1 FROM laneway.open_attempt WHERE open_attempt.seq = done.seq) \
             AND (reason <> $6 OR NOT EXISTS (SELECT 1 FROM laneway.merged JOIN laneway.job ON job.seq = merged.leader \
             WHERE merged.seq = done.seq AND NOT EXISTS (SELECT 1 FROM laneway.done AS led WHERE led.seq = job.seq))) \
             AND NOT EXISTS (SELECT 1 FROM laneway.delivery WHERE delivery.seq = done.seq AND delivery.state = 0) \
             ORDER BY finished_at, ended LIMIT $5)"
        )
    };
    let due = format!(
        "SELECT ended, seq FROM ({} UNION ALL {}) AS old ORDER BY finished_at, ended LIMIT $5",
        of_bucket("$1", "$2"),
        of_bucket("$3", "$4")
    );
    let params = vec![
        int(retention_bucket(lane, false, false)),
        int(prune.finished_before.0),
        int(retention_bucket(lane, true, false)),
        int(keyed_before.0),
        int(prune.max),
        int(Reason::Merged.code()),
    ];
    script.any("job", delete_sql(&due), params);
}

/// Deletes ended jobs. Those that are not stored any more are left out.
pub(super) fn delete_jobs<'a>(
    state: &Numbers,
    jobs: &[Seq],
    script: &mut Script<'a>,
) -> Result<(), StoreError> {
    if let Some(seq) = jobs.iter().find(|seq| state.live.get(**seq).is_some()) {
        return Err(StoreError::Disagree(format!("job {} is needed and cannot be deleted", seq.0)));
    }
    let seqs = || vec![Param::seqs(jobs.iter().map(|seq| seq.0))];
    // Neither an open attempt nor a run may need one of them: these statements must find nothing to delete.
    script.exactly(0, "open_attempt", "DELETE FROM laneway.open_attempt WHERE seq = ANY($1)", seqs());
    script.exactly(0, "job", "DELETE FROM laneway.job WHERE seq = ANY($1) AND member", seqs());
    let due = "SELECT ended, seq FROM laneway.done WHERE seq = ANY($1)";
    script.any("job", delete_sql(due), seqs());
    Ok(())
}

/// Deletes the jobs that a query finds, with everything that is stored of them.
fn delete_sql(due: &str) -> String {
    let mut sql = format!(
        "WITH due AS MATERIALIZED ({due}), \
         idempotency_gone AS (DELETE FROM laneway.idempotency USING due JOIN laneway.job ON job.seq = due.seq \
         WHERE idempotency.tenant = job.tenant AND idempotency.key = job.key)"
    );
    for table in ["job", "payload", "attempt", "log", "delivery", "delivery_try", "merged"] {
        sql.push_str(&format!(
            ", {table}_gone AS (DELETE FROM laneway.{table} USING due WHERE {table}.seq = due.seq)"
        ));
    }
    sql.push_str(" DELETE FROM laneway.done USING due WHERE done.ended = due.ended");
    sql
}

/// Deletes the oldest event batches, up to the first one that has an event from `before` or later. The chain of hashes continues from
/// the last deleted one, which table `server_state` remembers.
pub(super) fn events(before: Wall, script: &mut Script<'_>) {
    // `octet_length` does not read a long value.
    script.any(
        "event_batch",
        "WITH oldest AS (SELECT first, count, hash, bool_or(at >= $1) OVER upwards AS young, \
         sum(size) OVER upwards - size AS bytes_before \
         FROM (SELECT first, count, at, hash, octet_length(bytes)::int8 AS size FROM laneway.event_batch \
         ORDER BY first LIMIT $2) AS batch WINDOW upwards AS (ORDER BY first)), \
         last AS (SELECT first, first + count - 1 AS number, hash FROM oldest \
         WHERE NOT young AND bytes_before <= $3 ORDER BY first DESC LIMIT 1), \
         gone AS (DELETE FROM laneway.event_batch USING last WHERE event_batch.first <= last.first) \
         UPDATE laneway.server_state SET pruned_event = last.number, pruned_hash = last.hash FROM last",
        vec![int(before.0), int(BATCHES_MAX), int(BATCH_BYTES_MAX)],
    );
}
