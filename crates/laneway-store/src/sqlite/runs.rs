//! Runs: written by the commit, read at a start and for lists, deleted together with all their jobs.

use laneway_core::{
    Bytes, CallRow, EndedMember, JobEnd, Name, NextAnswer, PriorRun, RunId, RunRow, RunState, Seq, Wall,
};
use rusqlite::{Connection, params};

use super::commit::rejected;
use super::pages::newest_first;
use super::prune::store_last_numbers;
use super::tables::Tables;
use super::{facets, row_sums};
use crate::batch::JobPrune;
use crate::codec::write_run;
use crate::columns::runs::{CALL, RUN, read_call, read_run};
use crate::columns::status::{JOB, read_job};
use crate::columns::{END, read_end};
use crate::rows::{Interner, stored_digest, stored_run_id};
use crate::{Loaded, Page, RunFilter, StoreError};

/// Inserts a run.
pub(super) fn insert(conn: &Connection, blob: &mut Vec<u8>, row: &RunRow) -> Result<(), StoreError> {
    blob.clear();
    write_run(blob, row);
    let mut insert = conn.prepare_cached(
        "INSERT INTO run (first, members, id, tenant, lane, state, created_at, finished_at, key, digest, spec) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    let key = row.spec.idempotency.as_ref();
    let inserted = insert.execute(params![
        row.first.0.cast_signed(),
        i64::try_from(row.nodes.len()).unwrap_or(i64::MAX),
        &row.id.0.to_be_bytes()[..],
        row.spec.tenant.as_str(),
        row.spec.lane.as_str(),
        row.state.code(),
        row.created_at.0,
        row.finished_at.map(|at| at.0),
        key.map(|key| key.key.as_str()),
        key.map(|key| &key.digest[..]),
        &blob[..],
    ]);
    inserted.map_err(|error| rejected(error, || format!("{}", row.id)))?;
    Ok(())
}

/// Stores the definition of a run.
pub(super) fn define(conn: &Connection, first: Seq, definition: &[u8]) -> Result<(), StoreError> {
    let mut insert = conn.prepare_cached("INSERT INTO run_definition (seq, bytes) VALUES (?1, ?2)")?;
    let inserted = insert.execute(params![first.0.cast_signed(), definition]);
    inserted
        .map_err(|error| rejected(error, || format!("the definition of the run from job {} on", first.0)))?;
    Ok(())
}

/// The definition of a run.
pub(super) fn definition(conn: &Connection, first: Seq) -> Result<Option<Bytes>, StoreError> {
    let sql = format!("SELECT bytes, {} FROM run_definition WHERE seq = ?1", row_sums::RUN_DEFINITION.check);
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([first.0.cast_signed()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Bytes::from(row.get_ref(0)?.as_blob()?)))
}

/// A run's state changed.
pub(super) fn move_on(
    conn: &Connection,
    first: Seq,
    state: RunState,
    finished_at: Option<Wall>,
) -> Result<(), StoreError> {
    let sql =
        format!("UPDATE run SET state = ?2, finished_at = ?3 WHERE first = ?1 AND {}", row_sums::RUN.check);
    let mut update = conn.prepare_cached(&sql)?;
    match update.execute(params![first.0.cast_signed(), state.code(), finished_at.map(|at| at.0)])? {
        1 => Ok(()),
        _ => Err(StoreError::Disagree(format!("the run from job {} on is not stored", first.0))),
    }
}

/// Visits every open run, with those of its members that have ended.
pub(super) fn load(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut select = conn.prepare(&format!(
        "SELECT {RUN}, {} FROM run WHERE finished_at IS NULL ORDER BY first",
        row_sums::RUN.check
    ))?;
    let mut members =
        conn.prepare(&format!("SELECT {END} FROM done WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq"))?;
    let mut job = conn.prepare(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut names = Interner::default();
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let run = read_run(row)?;
        let seqs = run.seqs();
        let mut rows = members.query([seqs.start.cast_signed(), seqs.end.cast_signed() - 1])?;
        let mut ended = Vec::new();
        while let Some(row) = rows.next()? {
            let JobEnd { seq, state, attempts, finished_at, .. } = read_end(row)?;
            let mut jobs = job.query([seq.0.cast_signed()])?;
            let missing = || StoreError::Damaged(format!("table done, row {}: there is no such job", seq.0));
            let job = read_job(jobs.next()?.ok_or_else(missing)?, &mut names)?.id;
            ended.push(EndedMember { seq, job, state, attempts, finished_at });
        }
        visit(Loaded::OpenRun(Box::new(run), ended));
    }
    Ok(())
}

/// Stores the latest call of a node.
pub(super) fn put_call(conn: &Connection, row: &CallRow) -> Result<(), StoreError> {
    let CallRow { target, caller, request, called_at, after, until, payload, answer, result } = row;
    let (answered, failure) = match answer {
        None => (0, None),
        Some(NextAnswer::Done(_)) => (1, None),
        Some(NextAnswer::Failed(code, message)) => (2, Some((code.code(), message))),
    };
    let mut put = conn.prepare_cached(&format!(
        "REPLACE INTO run_call ({CALL}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
    ))?;
    let done = put.execute(params![
        target.0.cast_signed(),
        &caller.job.0.to_be_bytes()[..],
        caller.attempt,
        &caller.attempt_id.0.to_be_bytes()[..],
        caller.lease_epoch,
        request.as_str(),
        until.map(|at| at.0),
        answered,
        failure.map(|(code, _)| code),
        failure.map(|(_, message)| message.as_ref()),
        result.as_deref(),
        called_at.0,
        after,
        payload.as_deref(),
    ]);
    done.map_err(|error| rejected(error, || format!("a call of job {}", target.0)))?;
    Ok(())
}

/// Visits the latest call of every node of an open run that was called.
pub(super) fn load_calls(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut runs = conn.prepare(&format!(
        "SELECT first, first + members - 1, {} FROM run WHERE finished_at IS NULL ORDER BY first",
        row_sums::RUN.check
    ))?;
    let mut calls = conn.prepare(&format!(
        "SELECT {CALL}, {} FROM run_call WHERE target BETWEEN ?1 AND ?2 ORDER BY target",
        row_sums::RUN_CALL.check
    ))?;
    let mut rows = runs.query([])?;
    while let Some(row) = rows.next()? {
        let mut rows = calls.query([row.get::<_, i64>(0)?, row.get::<_, i64>(1)?])?;
        while let Some(row) = rows.next()? {
            visit(Loaded::Call(Box::new(read_call(row)?)));
        }
    }
    Ok(())
}

/// The payload of the call that a node works on.
pub(super) fn call_payload(conn: &Connection, node: Seq) -> Result<Option<Bytes>, StoreError> {
    let sql = format!("SELECT payload, {} FROM run_call WHERE target = ?1", row_sums::RUN_CALL.check);
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([node.0.cast_signed()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(row.get_ref(0)?.as_blob_or_null()?.map(Bytes::from))
}

/// What idempotency keys of runs stand for, in the order of the keys.
pub(super) fn priors(
    conn: &Connection,
    keys: &[(&Name, &Name)],
) -> Result<Vec<Option<PriorRun>>, StoreError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!("SELECT id, digest, {} FROM run WHERE tenant = ?1 AND key = ?2", row_sums::RUN.check);
    let mut select = conn.prepare_cached(&sql)?;
    let find = |(tenant, key): &(&Name, &Name)| {
        let mut rows = select.query(params![tenant.as_str(), key.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let run = stored_run_id(row.get_ref(0)?.as_blob()?)?;
        Ok(Some(PriorRun { run, digest: stored_digest(row.get_ref(1)?.as_blob()?)? }))
    };
    keys.iter().map(find).collect()
}

/// One run.
pub(super) fn find(conn: &Connection, id: RunId) -> Result<Option<RunRow>, StoreError> {
    let sql = format!("SELECT {RUN}, {} FROM run WHERE id = ?1", row_sums::RUN.check);
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([&id.0.to_be_bytes()[..]])?;
    rows.next()?.map(read_run).transpose()
}

/// Runs, newest first.
pub(super) fn list(
    conn: &Connection,
    filter: &RunFilter,
    before: Option<Seq>,
    limit: usize,
) -> Result<Page<RunRow>, StoreError> {
    let sql = format!("SELECT {RUN}, {} FROM run WHERE first < ?1 ORDER BY first DESC", row_sums::RUN.check);
    newest_first(conn, &sql, before, limit, |row| Ok(Some(read_run(row)?).filter(|row| filter.matches(row))))
}

/// Deletes ended runs of a lane with all their jobs, those that ended first first.
pub(super) fn prune(store: &mut Tables, prune: &JobPrune<'_>) -> Result<(), StoreError> {
    let keyed_before = prune.finished_before.min(prune.keyed_finished_before);
    let mut left = i64::from(prune.max);
    let mut due: Vec<(i64, i64)> = Vec::new();
    let sql = format!(
        "SELECT first, members, {} FROM run INDEXED BY run_ended \
         WHERE lane = ?1 AND finished_at < ?2 AND (key IS NULL OR finished_at < ?3) \
         AND NOT EXISTS (SELECT 1 FROM open_attempt WHERE seq BETWEEN first AND first + members - 1) \
         AND NOT EXISTS (SELECT 1 FROM delivery WHERE seq BETWEEN first AND first + members - 1 AND delivery.state = 0) \
         ORDER BY finished_at, first LIMIT ?4",
        row_sums::RUN.check
    );
    let mut select = store.conn.prepare_cached(&sql)?;
    let mut rows =
        select.query(params![prune.lane.as_str(), prune.finished_before.0, keyed_before.0, prune.max])?;
    while left > 0
        && let Some(row) = rows.next()?
    {
        let (first, members): (i64, i64) = (row.get(0)?, row.get(1)?);
        due.push((first, first + members - 1));
        left -= members;
    }
    drop(rows);
    drop(select);
    if due.is_empty() {
        return Ok(());
    }
    let mut delete = store.conn.prepare_cached("DELETE FROM run_call WHERE target BETWEEN ?1 AND ?2")?;
    for (first, last) in &due {
        delete.execute([first, last])?;
    }
    for table in ["job", "payload", "attempt", "log", "delivery", "delivery_try", "done", "run_definition"] {
        let sql = format!("DELETE FROM {table} WHERE seq BETWEEN ?1 AND ?2");
        let mut delete = store.conn.prepare_cached(&sql)?;
        for (first, last) in &due {
            delete.execute([first, last])?;
        }
    }
    let mut delete = store.conn.prepare_cached("DELETE FROM run WHERE first = ?1")?;
    for (first, _) in &due {
        delete.execute([first])?;
    }
    // The rows with the highest numbers may be deleted now.
    store_last_numbers(store)?;
    let members = due.iter().flat_map(|(first, last)| first.cast_unsigned()..=last.cast_unsigned());
    let members: Vec<Seq> = members.map(Seq).collect();
    facets::remove(&store.conn, &mut store.facets, &members)
}
