//! Writes commits to the tables: one statement for each row that changed, however often it did.
//!
//! The rows come folded and in key order from `batch.rs`. Statements are fetched once a transaction, not once a row.

use std::sync::Arc;

use laneway_core::{Change, JobEnd, JobStatus, Name, Seq, TokenRecord};
use rusqlite::types::{ToSql, ValueRef};
use rusqlite::{CachedStatement, Connection, ErrorCode, params};

use super::live;
use super::pending::Commit;
use super::row_sums::{LOG, SERVER_STATE};
use super::tables::Tables;
use super::{attempts, deliveries, facets, firing_log, kept_keys, prune, records, runs, schedules, sessions};
use crate::StoreError;
use crate::batch::{Batch, JobImage, Revision, Step, fold};
use crate::codec::{write_failure, write_spec};
use crate::columns::events::{EventBytes, next_hash};
use crate::columns::status::{JOB, read_job, status_sum};
use crate::columns::{end_sum, job_sum, retention_bucket};
use crate::live::Bucket;
use crate::logs::{LogTally, stream_of};
use crate::rows::Interner;
use crate::sums::sum_of;

/// Writes commits, in order, in the transaction that is open. A row that several of them change is written once.
pub(super) fn write(store: &mut Tables, commits: &[Arc<Commit>]) -> Result<(), StoreError> {
    // A prune of events must find the events of the commits before it.
    let prunes = |commit: &Arc<Commit>| {
        commit.changes.iter().any(|change| matches!(change, Change::EventsPruned { .. }))
    };
    commits.chunk_by(|_, next| !prunes(next)).try_for_each(|commits| write_together(store, commits))
}

fn write_together(store: &mut Tables, commits: &[Arc<Commit>]) -> Result<(), StoreError> {
    let steps = fold(commits.iter().flat_map(|commit| &commit.changes))?;
    for step in &steps {
        match step {
            Step::Write(batch) => write_batch(store, batch)?,
            Step::PruneJobs(prune) => prune::prune_jobs(store, prune)?,
            Step::ReviseJob(revision) => revise_job(store, revision)?,
            Step::DeleteJobs(jobs) => prune::delete_jobs(store, jobs)?,
            Step::PruneEvents(before) => prune::prune_events(&store.conn, *before)?,
            Step::PutOverrides(bytes) => {
                let sql = format!("UPDATE server_state SET overrides = ?1 WHERE {}", SERVER_STATE.check);
                store.conn.prepare_cached(&sql)?.execute([&bytes[..]])?;
            }
            Step::PutToken(token) => put_token(&store.conn, token)?,
            Step::ForgetToken(id) => {
                store.conn.prepare_cached("DELETE FROM token WHERE id = ?1")?.execute([id.as_str()])?;
            }
            Step::SeeClock(at) => {
                let sql = format!("UPDATE server_state SET clock_seen = ?1 WHERE {}", SERVER_STATE.check);
                store.conn.prepare_cached(&sql)?.execute([at.0])?;
            }
            Step::PutSession(row) => sessions::put(&store.conn, row)?,
            Step::ForgetSession { tenant, key } => sessions::forget(&store.conn, tenant, key)?,
            Step::PutSchedule(schedule) => schedules::put(&store.conn, &mut store.blob, schedule)?,
            Step::MoveSchedule(id, enabled, state) => schedules::move_on(&store.conn, *id, *enabled, state)?,
            Step::RemoveSchedule(id) => schedules::remove(&store.conn, *id)?,
            Step::PutSlot(schedule, slot, job) => schedules::put_slot(&store.conn, *schedule, *slot, *job)?,
            Step::LogFiring(entry) => firing_log::insert(&store.conn, entry)?,
            Step::PruneFiringLog(prune) => firing_log::prune(&store.conn, prune)?,
            Step::PutRun(row) => runs::insert(&store.conn, &mut store.blob, row)?,
            Step::DefineRun(first, definition) => runs::define(&store.conn, *first, definition)?,
            Step::MoveRun(first, state, finished_at) => {
                runs::move_on(&store.conn, *first, *state, *finished_at)?;
            }
            Step::PutCall(row) => runs::put_call(&store.conn, row)?,
            Step::PruneRuns(prune) => runs::prune(store, prune)?,
            Step::KeepKeys(row) => kept_keys::insert(&store.conn, row)?,
            Step::ReleaseKeys(job) => kept_keys::delete(&store.conn, *job)?,
            Step::PutRecord(record, replaces) => records::put(&store.conn, record, *replaces)?,
            Step::DeleteRecord(name, version) => records::delete(&store.conn, name, *version)?,
        }
    }
    live::write(&store.conn, &store.live)?;
    commits
        .iter()
        .filter_map(|commit| commit.events.as_ref())
        .try_for_each(|events| write_events(store, events))
}

fn write_batch(store: &mut Tables, batch: &Batch<'_>) -> Result<(), StoreError> {
    for &seq in &batch.must_live {
        if store.live.get(seq).is_none() {
            return Err(StoreError::Disagree(format!("job {} is not live", seq.0)));
        }
    }
    insert_jobs(store, &batch.jobs)?;
    move_jobs(&store.conn, batch)?;
    attempts::write_open(&store.conn, batch)?;
    attempts::insert_closed(store, batch)?;
    sessions::merge(store, &batch.ends)?;
    end_jobs(store, batch)?;
    append_logs(store, batch)?;
    facets::write(store, batch)?;
    deliveries::write(&store.conn, batch)
}

fn insert_jobs(store: &mut Tables, jobs: &[JobImage<'_>]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    for image in jobs {
        if !store.lanes.contains_key(&image.row.spec.lane) {
            add_lane(store, &image.row.spec.lane)?;
        }
    }
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO job (seq, state, wake_at, attempts, failures, losses, last_event, rejections, near_deadline, \
         denials, denied_until, status_sum, id, tenant, kind, agent, lane, session, priority, rank_time, created_at, spec, cost, \
         sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
    )?;
    for JobImage { row, status, .. } in jobs {
        let spec = &row.spec;
        store.blob.clear();
        write_spec(&mut store.blob, row);
        bind_status(&mut insert, row.seq, status)?;
        let own = params![
            &row.id.0.to_be_bytes()[..],
            spec.tenant.as_str(),
            spec.kind.as_str(),
            spec.agent.as_str(),
            spec.lane.as_str(),
            spec.session.as_ref().map(|session| session.key.as_str()),
            spec.priority,
            row.rank_time.cast_signed(),
            row.created_at.0,
            &store.blob[..],
            spec.capacity.cost,
            job_sum(row, &store.blob),
        ];
        bind(&mut insert, STATUS_LEN + 1, own)?;
        let inserted = insert.raw_execute();
        inserted.map_err(|error| rejected(error, || format!("job {}", row.id)))?;
        store.numbers.last_seq = store.numbers.last_seq.max(row.seq.0);
        let lane = store.lanes.get(&spec.lane).copied().unwrap_or_default();
        store.live.add(row.seq, retention_bucket(lane, spec.idempotency.is_some(), spec.member.is_some()));
    }
    let mut insert =
        store.conn.prepare_cached("INSERT INTO payload (seq, bytes, sum) VALUES (?1, ?2, ?3)")?;
    for JobImage { row, payload, .. } in jobs {
        let seq = row.seq.0.cast_signed();
        let sum = sum_of([ValueRef::Integer(seq), ValueRef::Blob(payload)]);
        let inserted = insert.execute(params![seq, &payload[..], sum]);
        inserted.map_err(|error| rejected(error, || format!("payload of job {}", row.id)))?;
    }
    insert_idempotency_keys(&store.conn, jobs)
}

fn insert_idempotency_keys(conn: &Connection, jobs: &[JobImage<'_>]) -> Result<(), StoreError> {
    let keyed = |image: &&JobImage<'_>| image.row.spec.idempotency.is_some();
    if !jobs.iter().any(|image| keyed(&image)) {
        return Ok(());
    }
    let mut insert =
        conn.prepare_cached("INSERT INTO idempotency (tenant, key, job, digest) VALUES (?1, ?2, ?3, ?4)")?;
    for JobImage { row, .. } in jobs.iter().filter(keyed) {
        if let Some(idempotency) = &row.spec.idempotency {
            let inserted = insert.execute(params![
                row.spec.tenant.as_str(),
                idempotency.key.as_str(),
                &row.id.0.to_be_bytes()[..],
                &idempotency.digest[..],
            ]);
            inserted.map_err(|error| rejected(error, || format!("idempotency key of job {}", row.id)))?;
        }
    }
    Ok(())
}

fn add_lane(store: &mut Tables, lane: &Name) -> Result<(), StoreError> {
    let number = store.conn.prepare_cached("INSERT INTO lane (name) VALUES (?1)")?.insert([lane.as_str()])?;
    store.lanes.insert(lane.clone(), number);
    Ok(())
}

fn move_jobs(conn: &Connection, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.moved.is_empty() {
        return Ok(());
    }
    let mut update = conn.prepare_cached(
        "UPDATE job SET state = ?2, wake_at = ?3, attempts = ?4, failures = ?5, losses = ?6, last_event = ?7, \
         rejections = ?8, near_deadline = ?9, denials = ?10, denied_until = ?11, status_sum = ?12 WHERE seq = ?1",
    )?;
    for (seq, status) in &batch.moved {
        bind_status(&mut update, *seq, status)?;
        let updated =
            update.raw_execute().map_err(|error| rejected(error, || format!("status of job {}", seq.0)))?;
        one_row(updated, *seq, "is not stored")?;
    }
    Ok(())
}

/// Rewrites the row of a live job, with its checksum. Its status is written by [`move_jobs`].
fn revise_job(store: &mut Tables, revision: &Revision) -> Result<(), StoreError> {
    let seq = revision.seq;
    if store.live.get(seq).is_none() {
        return Err(StoreError::Disagree(format!("job {} is not live", seq.0)));
    }
    let mut select = store.conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut rows = select.query([seq.0.cast_signed()])?;
    let found = rows.next()?.map(|row| read_job(row, &mut Interner::default())).transpose()?;
    let mut row = found.ok_or_else(|| StoreError::Damaged(format!("live job {} has no row", seq.0)))?;
    revision.apply(&mut row);
    store.blob.clear();
    write_spec(&mut store.blob, &row);
    let mut update = store
        .conn
        .prepare_cached("UPDATE job SET priority = ?2, rank_time = ?3, spec = ?4, sum = ?5 WHERE seq = ?1")?;
    let updated = update.execute(params![
        seq.0.cast_signed(),
        row.spec.priority,
        row.rank_time.cast_signed(),
        &store.blob[..],
        job_sum(&row, &store.blob),
    ]);
    one_row(updated.map_err(|error| rejected(error, || format!("job {}", row.id)))?, seq, "is not stored")
}

/// How many parameters [`bind_status`] binds.
const STATUS_LEN: usize = 12;

/// Binds the number and the status of a job to the first parameters of a statement.
fn bind_status(statement: &mut CachedStatement<'_>, seq: Seq, status: &JobStatus) -> rusqlite::Result<()> {
    let JobStatus {
        state,
        wake_at,
        attempts,
        failures,
        losses,
        rejections,
        near_deadline,
        denials,
        denied_until,
        last_event,
    } = status;
    let columns: &[&dyn ToSql; STATUS_LEN] = &[
        &seq.0.cast_signed(),
        &state.code(),
        &wake_at.map(|time| time.0),
        attempts,
        failures,
        losses,
        &last_event.cast_signed(),
        rejections,
        near_deadline,
        denials,
        &denied_until.map(|time| time.0),
        &status_sum(seq, status),
    ];
    bind(statement, 1, columns)
}

/// Binds values to the parameters of a statement, from number `from` on. A statement that several functions bind is
/// executed with `raw_execute`.
pub(super) fn bind(
    statement: &mut CachedStatement<'_>,
    from: usize,
    columns: &[&dyn ToSql],
) -> rusqlite::Result<()> {
    columns.iter().zip(from..).try_for_each(|(column, at)| statement.raw_bind_parameter(at, column))
}

fn end_jobs(store: &mut Tables, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.ends.is_empty() {
        return Ok(());
    }
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO done (ended, seq, retention_bucket, state, reason, attempt_id, started_at, finished_at, attempts, failures, \
         losses, last_event, error, result, sum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?;
    for end in &batch.ends {
        let bucket = match store.live.get(end.seq) {
            Some(Bucket::Known(bucket)) => bucket,
            Some(Bucket::Unknown) => find_bucket(&store.conn, &store.lanes, end.seq)?,
            None => return Err(StoreError::Disagree(format!("job {} is not live", end.seq.0))),
        };
        // Table `merged` says where a merged job went.
        let JobEnd {
            seq,
            state,
            reason,
            error,
            result,
            attempt_id,
            started_at,
            finished_at,
            attempts,
            failures,
            losses,
            last_event,
            merged_into: _,
        } = *end;
        store.blob.clear();
        if let Some(error) = error {
            write_failure(&mut store.blob, error);
        }
        let error = error.as_ref().map(|_| &store.blob[..]);
        store.numbers.last_ended += 1;
        let inserted = insert.execute(params![
            store.numbers.last_ended.cast_signed(),
            seq.0.cast_signed(),
            bucket,
            state.code(),
            reason.code(),
            attempt_id.map(|id| id.0.to_be_bytes()),
            started_at.map(|time| time.0),
            finished_at.0,
            attempts,
            failures,
            losses,
            last_event.cast_signed(),
            error,
            result.as_deref(),
            end_sum(end, error),
        ]);
        inserted.map_err(|error| rejected(error, || format!("end of job {}", end.seq.0)))?;
        store.live.remove(end.seq);
    }
    Ok(())
}

/// Reads the retention bucket from a job's row. Needed only for jobs from before a start that were not loaded, and where
/// the number of a lane is too large for the marks in memory.
fn find_bucket(
    conn: &Connection,
    lanes: &std::collections::HashMap<Name, i64>,
    seq: Seq,
) -> Result<i64, StoreError> {
    let mut find = conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut rows = find.query([seq.0.cast_signed()])?;
    let missing = || StoreError::Damaged(format!("live job {} has no row", seq.0));
    let row = rows.next()?.ok_or_else(missing)?;
    let spec = read_job(row, &mut Interner::default())?.spec;
    let lane = lanes.get(&spec.lane).copied().ok_or_else(missing)?;
    Ok(retention_bucket(lane, spec.idempotency.is_some(), spec.member.is_some()))
}

fn append_logs(store: &mut Tables, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.logs.is_empty() {
        return Ok(());
    }
    let mut exists = store.conn.prepare_cached("SELECT 1 FROM job WHERE seq = ?1")?;
    let mut last = store.conn.prepare_cached(&format!(
        "SELECT line, bytes, {} FROM log WHERE seq = ?1 ORDER BY line DESC LIMIT 1",
        LOG.check
    ))?;
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO log (seq, line, attempt, at, stream, text, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (seq, attempt, lines) in &batch.logs {
        let key = seq.0.cast_signed();
        if store.live.get(*seq).is_none() && !exists.exists([key])? {
            return Err(StoreError::Disagree(format!("there is no job {}", seq.0)));
        }
        let mut tally = LogTally::default();
        let mut rows = last.query([key])?;
        if let Some(row) = rows.next()? {
            let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
            tally = LogTally { lines: number(0)?, bytes: number(1)? };
        }
        drop(rows);
        for line in *lines {
            let Some(text) = tally.admit(line) else { continue };
            let stream = stream_of(line, text);
            let (number, bytes) = (tally.lines.cast_signed(), tally.bytes.cast_signed());
            let inserted =
                insert.execute(params![key, number, attempt, line.at.0, stream.as_str(), text, bytes]);
            inserted.map_err(|error| rejected(error, || format!("log of job {}", seq.0)))?;
        }
    }
    Ok(())
}

fn put_token(conn: &Connection, token: &TokenRecord) -> Result<(), StoreError> {
    let TokenRecord { id, tenant, role, digest, note, created_at, expires_at, revoked_at } = token;
    let mut put = conn.prepare_cached(
        "REPLACE INTO token (id, tenant, role, digest, note, created_at, expires_at, revoked_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let done = put.execute(params![
        id.as_str(),
        tenant.as_ref().map(Name::as_str),
        role.code(),
        &digest[..],
        note,
        created_at.0,
        expires_at.map(|time| time.0),
        revoked_at.map(|time| time.0),
    ]);
    done.map_err(|error| rejected(error, || format!("token {id}")))?;
    Ok(())
}

fn write_events(store: &mut Tables, events: &EventBytes) -> Result<(), StoreError> {
    let EventBytes { first, count, at, bytes } = events;
    if *first != store.numbers.last_event + 1 {
        let expected = store.numbers.last_event + 1;
        return Err(StoreError::Disagree(format!("event {first} comes where {expected} must")));
    }
    let hash = next_hash(&store.numbers.hash, bytes);
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO event_batch (first, count, at, hash, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let columns = params![first.cast_signed(), count.cast_signed(), at.0, &hash[..], &bytes[..]];
    let inserted = insert.execute(columns);
    inserted.map_err(|error| rejected(error, || format!("events from {first} on")))?;
    store.numbers.last_event = first + count - 1;
    store.numbers.hash = hash;
    Ok(())
}

pub(super) fn one_row(count: usize, seq: Seq, what: &str) -> Result<(), StoreError> {
    if count == 1 { Ok(()) } else { Err(StoreError::Disagree(format!("job {} {what}", seq.0))) }
}

/// Distinguishes a row that cannot be stored from a store that cannot write.
pub(super) fn rejected(error: rusqlite::Error, row: impl FnOnce() -> String) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            StoreError::Rejected(format!("{}: {error}", row()))
        }
        _ => error.into(),
    }
}
