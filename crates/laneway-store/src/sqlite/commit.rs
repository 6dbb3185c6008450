//! The hot path: one transaction for each batch, one statement for each row that changed.
//!
//! The rows come folded and in key order from `batch.rs`. Statements are fetched once a batch, not once a row.

use laneway_core::{Change, Effects, Event, JobEnd, JobRow, Name, Seq, TokenRecord};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, ErrorCode, params};
use sha2::{Digest, Sha256};

use super::live::{MEMBERS, Shelf};
use super::sums::sum_of;
use super::{
    SqliteStore, at_commit, deliveries, epoch, files, lacks_index_space, open, prune, runs, schedules,
    sessions,
};
use crate::batch::{Batch, JobImage, Step, fold};
use crate::codec::{read_spec, write_failure, write_spec};
use crate::logs::{LogTally, stream_of};
use crate::rows::stored_name;
use crate::{Epoch, StoreError};

/// Makes all changes and events durable, or writes nothing. A full disk is tried again with the space that the store can
/// find by itself.
pub(super) fn commit(store: &mut SqliteStore, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
    for _ in 0..SPACE_TRIES {
        match commit_once(store, epoch, effects) {
            Err(StoreError::Full(_)) if store.make_space() => {}
            other => return other.map_err(|error| files::name_full(&store.dir, error)),
        }
    }
    commit_once(store, epoch, effects).map_err(|error| files::name_full(&store.dir, error))
}

/// How often space is looked for: the reserve is given back in halves, and then there is the log.
const SPACE_TRIES: u32 = 32;

fn commit_once(store: &mut SqliteStore, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
    let steps = fold(&effects.changes)?;
    check_numbers(store.head.last_event, &effects.events)?;
    if steps.is_empty() && effects.events.is_empty() {
        return Ok(());
    }
    let head = store.head;
    store.conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let written = epoch::check(&store.conn, epoch).and_then(|()| write(store, &steps, &effects.events));
    if let Err(error) = written {
        store.head = head;
        roll_back(store)?;
        return Err(error);
    }
    // From here on an error leaves it unknown what is on disk; the caller stops. Except where the disk is full: the frame
    // that ends the commit was not written.
    let committed = store.conn.prepare_cached("COMMIT")?.execute([]);
    if let Err(error) = committed {
        if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
            store.head = head;
            roll_back(store)?;
        } else if lacks_index_space(&error) {
            // The next start will read the log and needs space for the index, too.
            files::release_reserve(&store.dir);
        }
        return Err(at_commit(error));
    }
    store.live.committed();
    store.mark_commit();
    store.checkpoint_if_due(effects.changes.iter().map(opaque_len).sum())
}

/// How many bytes of payload or result a change carries.
fn opaque_len(change: &Change) -> usize {
    match change {
        Change::JobCreated { payload, .. } => payload.len(),
        Change::JobEnded(end) => end.result.as_ref().map_or(0, |result| result.len()),
        Change::CallPut(call) => {
            [&call.result, &call.payload].into_iter().flatten().map(|bytes| bytes.len()).sum()
        }
        Change::SchedulePut(schedule) => schedule.spec.payload.len() + schedule.spec.note.len(),
        _ => 0,
    }
}

fn write(store: &mut SqliteStore, steps: &[Step<'_>], events: &[Event]) -> Result<(), StoreError> {
    for step in steps {
        match step {
            Step::Write(batch) => write_batch(store, batch)?,
            Step::PurgeJobs(purge) => prune::purge_jobs(store, purge)?,
            Step::PurgeEvents(before) => prune::purge_events(&store.conn, *before)?,
            Step::PutOverrides(bytes) => {
                store.conn.prepare_cached("UPDATE head SET overrides = ?1")?.execute([&bytes[..]])?;
            }
            Step::PutToken(token) => put_token(&store.conn, token)?,
            Step::ForgetToken(id) => {
                store.conn.prepare_cached("DELETE FROM token WHERE id = ?1")?.execute([id.as_str()])?;
            }
            Step::SeeClock(at) => {
                store.conn.prepare_cached("UPDATE head SET clock_seen = ?1")?.execute([at.0])?;
            }
            Step::PutSession(row) => sessions::put(&store.conn, row)?,
            Step::ForgetSession { tenant, key } => sessions::forget(&store.conn, tenant, key)?,
            Step::PutSchedule(schedule) => schedules::put(&store.conn, &mut store.blob, schedule)?,
            Step::MoveSchedule(id, enabled, state) => schedules::move_on(&store.conn, *id, *enabled, state)?,
            Step::RemoveSchedule(id) => schedules::remove(&store.conn, *id)?,
            Step::PutSlot(schedule, slot, job) => schedules::put_slot(&store.conn, *schedule, *slot, *job)?,
            Step::LogRun(log) => schedules::log(&store.conn, log)?,
            Step::PurgeRuns(purge) => schedules::purge(&store.conn, purge)?,
            Step::PutRun(row) => runs::insert(&store.conn, &mut store.blob, row)?,
            Step::DefineRun(first, definition) => runs::define(&store.conn, *first, definition)?,
            Step::MoveRun(first, state, finished_at) => {
                runs::move_on(&store.conn, *first, *state, *finished_at)?;
            }
            Step::PutCall(row) => runs::put_call(&store.conn, row)?,
            Step::PurgeEndedRuns(purge) => runs::purge(store, purge)?,
        }
    }
    store.live.write(&store.conn)?;
    write_events(store, events)
}

fn roll_back(store: &mut SqliteStore) -> Result<(), StoreError> {
    store.live.rolled_back();
    if !store.conn.is_autocommit() {
        store.conn.prepare_cached("ROLLBACK")?.execute([])?;
    }
    store.lanes = open::read_lanes(&store.conn)?;
    Ok(())
}

/// Event numbers have no gaps: this is what lets a reader say that it has seen everything.
fn check_numbers(last: u64, events: &[Event]) -> Result<(), StoreError> {
    match events.iter().zip(last + 1..).find(|(event, number)| event.number != *number) {
        None => Ok(()),
        Some((event, number)) => {
            Err(StoreError::Disagree(format!("event {} comes where {number} must", event.number)))
        }
    }
}

fn write_batch(store: &mut SqliteStore, batch: &Batch<'_>) -> Result<(), StoreError> {
    for &seq in &batch.must_live {
        if store.live.get(seq).is_none() {
            return Err(StoreError::Disagree(format!("job {} is not live", seq.0)));
        }
    }
    insert_jobs(store, &batch.jobs)?;
    move_jobs(&store.conn, batch)?;
    write_open_attempts(&store.conn, batch)?;
    insert_attempts(store, batch)?;
    sessions::merge(store, &batch.ends)?;
    end_jobs(store, batch)?;
    append_logs(store, batch)?;
    deliveries::write(&store.conn, batch)
}

fn insert_jobs(store: &mut SqliteStore, jobs: &[JobImage<'_>]) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    for image in jobs {
        if !store.lanes.contains_key(&image.row.spec.lane) {
            add_lane(store, &image.row.spec.lane)?;
        }
    }
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO job (seq, id, tenant, kind, agent, lane, session, priority, rank_time, created_at, spec, \
         state, wake_at, attempts, failures, losses, last_event, cost, rejections, near_deadline, \
         denials, denied_until, sum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
    )?;
    for JobImage { row, status, .. } in jobs {
        let spec = &row.spec;
        store.blob.clear();
        write_spec(&mut store.blob, row);
        let inserted = insert.execute(params![
            row.seq.0.cast_signed(),
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
            status.state.code(),
            status.wake_at.map(|time| time.0),
            status.attempts,
            status.failures,
            status.losses,
            status.last_event.cast_signed(),
            spec.capacity.cost,
            status.rejections,
            status.near_deadline,
            status.denials,
            status.denied_until.map(|time| time.0),
            job_sum(row, &store.blob),
        ]);
        inserted.map_err(|error| rejected(error, || format!("job {}", row.id)))?;
        store.head.last_seq = store.head.last_seq.max(row.seq.0);
        let lane = store.lanes.get(&spec.lane).copied().unwrap_or_default();
        store.live.add(row.seq, shelf(lane, spec.idempotency.is_some(), spec.member.is_some()));
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

/// The checksum of what never changes in a job's row, in the order of the columns that readers check.
fn job_sum(row: &JobRow, rest: &[u8]) -> i64 {
    let spec = &row.spec;
    fn text(name: &Name) -> &[u8] {
        name.as_str().as_bytes()
    }
    let session = spec.session.as_ref().map_or(ValueRef::Null, |session| ValueRef::Text(text(&session.key)));
    sum_of([
        ValueRef::Integer(row.seq.0.cast_signed()),
        ValueRef::Blob(&row.id.0.to_be_bytes()),
        ValueRef::Text(text(&spec.tenant)),
        ValueRef::Text(text(&spec.kind)),
        ValueRef::Text(text(&spec.agent)),
        ValueRef::Text(text(&spec.lane)),
        session,
        ValueRef::Integer(spec.priority.into()),
        ValueRef::Integer(row.rank_time.cast_signed()),
        ValueRef::Integer(row.created_at.0),
        ValueRef::Blob(rest),
        ValueRef::Integer(spec.capacity.cost.into()),
    ])
}

/// The checksum of an end, in the order of the columns that readers check.
fn end_sum(end: &JobEnd, error: Option<&[u8]>) -> i64 {
    let attempt_id = end.attempt_id.map(|id| id.0.to_be_bytes());
    sum_of([
        ValueRef::Integer(end.seq.0.cast_signed()),
        ValueRef::Integer(end.state.code().into()),
        ValueRef::Integer(end.reason.code().into()),
        attempt_id.as_ref().map_or(ValueRef::Null, |id| ValueRef::Blob(id)),
        end.started_at.map_or(ValueRef::Null, |time| ValueRef::Integer(time.0)),
        ValueRef::Integer(end.finished_at.0),
        ValueRef::Integer(end.attempts.into()),
        ValueRef::Integer(end.failures.into()),
        ValueRef::Integer(end.losses.into()),
        ValueRef::Integer(end.last_event.cast_signed()),
        error.map_or(ValueRef::Null, ValueRef::Blob),
        end.result.as_deref().map_or(ValueRef::Null, ValueRef::Blob),
    ])
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

fn add_lane(store: &mut SqliteStore, lane: &Name) -> Result<(), StoreError> {
    let number = store.conn.prepare_cached("INSERT INTO lane (name) VALUES (?1)")?.insert([lane.as_str()])?;
    store.lanes.insert(lane.clone(), number);
    Ok(())
}

/// Where the ends of a lane's jobs stand: those with an idempotency key apart, because they are kept longer. The ends of
/// a run's members stand where no lane looks: they are kept with their run.
pub(super) fn shelf(lane: i64, keyed: bool, member: bool) -> i64 {
    if member { MEMBERS } else { lane * 2 + i64::from(keyed) }
}

fn move_jobs(conn: &Connection, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.moved.is_empty() {
        return Ok(());
    }
    let mut update = conn.prepare_cached(
        "UPDATE job SET state = ?2, wake_at = ?3, attempts = ?4, failures = ?5, losses = ?6, last_event = ?7, \
         rejections = ?8, near_deadline = ?9, denials = ?10, denied_until = ?11 WHERE seq = ?1",
    )?;
    for (seq, status) in &batch.moved {
        let updated = update.execute(params![
            seq.0.cast_signed(),
            status.state.code(),
            status.wake_at.map(|time| time.0),
            status.attempts,
            status.failures,
            status.losses,
            status.last_event.cast_signed(),
            status.rejections,
            status.near_deadline,
            status.denials,
            status.denied_until.map(|time| time.0),
        ]);
        let updated = updated.map_err(|error| rejected(error, || format!("status of job {}", seq.0)))?;
        one_row(updated, *seq, "is not stored")?;
    }
    Ok(())
}

/// Removes, replaces and inserts open attempts. This is the fence: every row must be there exactly as the engine says.
fn write_open_attempts(conn: &Connection, batch: &Batch<'_>) -> Result<(), StoreError> {
    if !batch.not_open.is_empty() {
        let mut find = conn.prepare_cached("SELECT 1 FROM open_attempt WHERE seq = ?1")?;
        for seq in &batch.not_open {
            if find.exists([seq.0.cast_signed()])? {
                return Err(StoreError::Disagree(format!("job {} has an open attempt already", seq.0)));
            }
        }
    }
    if !batch.closed.is_empty() {
        let mut delete = conn.prepare_cached(
            "DELETE FROM open_attempt WHERE seq = ?1 AND attempt = ?2 AND attempt_id = ?3 AND lease_epoch = ?4",
        )?;
        for (seq, fence) in &batch.closed {
            let id = fence.attempt_id.0.to_be_bytes();
            let deleted =
                delete.execute(params![seq.0.cast_signed(), fence.attempt, &id[..], fence.lease_epoch])?;
            one_row(deleted, *seq, "has no open attempt with that fence")?;
        }
    }
    if !batch.started.is_empty() {
        let mut update = conn.prepare_cached(
            "UPDATE open_attempt SET place = ?5, mode = ?6, state = ?7, opened_at = ?8, started_at = ?9, last_event = ?10, \
             lease_ms = ?11, worker = ?12, pid = ?13, dispatch_seq = ?14, boot = ?15, lease_epoch = ?4 \
             WHERE seq = ?1 AND attempt = ?2 AND attempt_id = ?3 AND lease_epoch = ?16",
        )?;
        for (open, stored) in &batch.started {
            let put = put_open(&mut update, open, Some(*stored))?;
            one_row(put, open.seq, "has no open attempt with that fence")?;
        }
    }
    if !batch.opened.is_empty() {
        let mut insert = conn.prepare_cached(
            "INSERT INTO open_attempt (seq, attempt, attempt_id, lease_epoch, place, mode, state, opened_at, \
             started_at, last_event, lease_ms, worker, pid, dispatch_seq, boot) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?;
        for open in &batch.opened {
            put_open(&mut insert, open, None)?;
        }
    }
    Ok(())
}

/// Runs a statement whose parameters are the columns of `open_attempt`, in their order, and the lease epoch that is stored
/// where a row is to be replaced.
fn put_open(
    statement: &mut CachedStatement<'_>,
    open: &laneway_core::OpenAttempt,
    stored: Option<u32>,
) -> Result<usize, StoreError> {
    let attempt_id = open.fence.attempt_id.0.to_be_bytes();
    let columns = params![
        open.seq.0.cast_signed(),
        open.fence.attempt,
        &attempt_id[..],
        open.fence.lease_epoch,
        open.executor.as_str(),
        open.mode.code(),
        open.state.code(),
        open.opened_at.0,
        open.started_at.map(|time| time.0),
        open.last_event.cast_signed(),
        open.lease.0.cast_signed(),
        open.holder.as_ref().map(|holder| holder.worker.as_str()),
        open.holder.as_ref().and_then(|holder| holder.pid),
        dispatch_seq_of(open),
        boot_of(open),
        stored,
    ];
    let columns = if stored.is_some() { columns } else { &columns[..columns.len() - 1] };
    let put = statement.execute(columns);
    // Two open attempts of one job, or a state that no open attempt has: not a client's doing.
    put.map_err(|error| {
        match rejected(error, || format!("job {} cannot have this open attempt", open.seq.0)) {
            StoreError::Rejected(why) => StoreError::Disagree(why),
            other => other,
        }
    })
}

/// Which attempt of its run it is; nothing where that is the attempt's own number, as outside of runs.
fn dispatch_seq_of(open: &laneway_core::OpenAttempt) -> Option<i64> {
    (open.dispatch_seq != u64::from(open.fence.attempt)).then_some(open.dispatch_seq.cast_signed())
}

/// The process that has it, if it told its boot id.
fn boot_of(open: &laneway_core::OpenAttempt) -> Option<&str> {
    open.holder.as_ref()?.boot.as_ref().map(Name::as_str)
}

fn insert_attempts(store: &mut SqliteStore, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.attempts.is_empty() {
        return Ok(());
    }
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO attempt (seq, attempt, attempt_id, lease_epoch, place, mode, state, opened_at, started_at, \
         last_event, lease_ms, worker, pid, dispatch_seq, boot, ended, error, closed_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    )?;
    for closed in &batch.attempts {
        let open = &closed.open;
        store.blob.clear();
        if let Some(error) = &closed.error {
            write_failure(&mut store.blob, error);
        }
        let inserted = insert.execute(params![
            open.seq.0.cast_signed(),
            open.fence.attempt,
            &open.fence.attempt_id.0.to_be_bytes()[..],
            open.fence.lease_epoch,
            open.executor.as_str(),
            open.mode.code(),
            open.state.code(),
            open.opened_at.0,
            open.started_at.map(|time| time.0),
            open.last_event.cast_signed(),
            open.lease.0.cast_signed(),
            open.holder.as_ref().map(|holder| holder.worker.as_str()),
            open.holder.as_ref().and_then(|holder| holder.pid),
            dispatch_seq_of(open),
            boot_of(open),
            closed.end.code(),
            closed.error.as_ref().map(|_| &store.blob[..]),
            closed.closed_at.0,
        ]);
        inserted.map_err(|error| {
            rejected(error, || format!("attempt {} of job {}", open.fence.attempt, open.fence.job))
        })?;
    }
    Ok(())
}

fn end_jobs(store: &mut SqliteStore, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.ends.is_empty() {
        return Ok(());
    }
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO done (ended, seq, shelf, state, reason, attempt_id, started_at, finished_at, attempts, failures, \
         losses, last_event, error, result, sum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?;
    for end in &batch.ends {
        let shelf = match store.live.get(end.seq) {
            Some(Shelf::Known(shelf)) => shelf,
            Some(Shelf::Unknown) => find_shelf(&store.conn, &store.lanes, end.seq)?,
            None => return Err(StoreError::Disagree(format!("job {} is not live", end.seq.0))),
        };
        store.blob.clear();
        if let Some(error) = &end.error {
            write_failure(&mut store.blob, error);
        }
        store.head.last_ended += 1;
        let inserted = insert.execute(params![
            store.head.last_ended.cast_signed(),
            end.seq.0.cast_signed(),
            shelf,
            end.state.code(),
            end.reason.code(),
            end.attempt_id.map(|id| id.0.to_be_bytes()),
            end.started_at.map(|time| time.0),
            end.finished_at.0,
            end.attempts,
            end.failures,
            end.losses,
            end.last_event.cast_signed(),
            end.error.as_ref().map(|_| &store.blob[..]),
            end.result.as_deref(),
            end_sum(end, end.error.as_ref().map(|_| &store.blob[..])),
        ]);
        inserted.map_err(|error| rejected(error, || format!("end of job {}", end.seq.0)))?;
        store.live.remove(end.seq);
    }
    Ok(())
}

/// Asks a job's row for its shelf. Needed only for jobs from before a start that were not loaded, and where lanes are so
/// many that their numbers do not fit in memory.
fn find_shelf(
    conn: &Connection,
    lanes: &std::collections::HashMap<Name, i64>,
    seq: Seq,
) -> Result<i64, StoreError> {
    let mut find = conn.prepare_cached("SELECT lane, spec FROM job WHERE seq = ?1")?;
    let mut rows = find.query([seq.0.cast_signed()])?;
    let missing = || StoreError::Damaged(format!("live job {} has no row", seq.0));
    let row = rows.next()?.ok_or_else(missing)?;
    let lane = lanes.get(row.get_ref(0)?.as_str()?).copied().ok_or_else(missing)?;
    let spec = read_spec(row.get_ref(1)?.as_blob()?, &mut stored_name)?;
    Ok(shelf(lane, spec.idempotency.is_some(), spec.member.is_some()))
}

fn append_logs(store: &mut SqliteStore, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.logs.is_empty() {
        return Ok(());
    }
    let mut exists = store.conn.prepare_cached("SELECT 1 FROM job WHERE seq = ?1")?;
    let mut last =
        store.conn.prepare_cached("SELECT line, bytes FROM log WHERE seq = ?1 ORDER BY line DESC LIMIT 1")?;
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

fn write_events(store: &mut SqliteStore, events: &[Event]) -> Result<(), StoreError> {
    let (Some(first), Some(last), Some(at)) =
        (events.first(), events.last(), events.iter().map(|e| e.at).max())
    else {
        return Ok(());
    };
    let bytes = store.events.write(events);
    let hash = next_hash(&store.head.hash, bytes);
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO event_batch (first, count, at, hash, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
    let inserted = insert.execute(params![first.number.cast_signed(), count, at.0, &hash[..], bytes]);
    inserted.map_err(|error| rejected(error, || format!("events from {} on", first.number)))?;
    store.head.last_event = last.number;
    store.head.hash = hash;
    Ok(())
}

/// One link of the chain over all event batches.
pub(super) fn next_hash(previous: &[u8; 32], bytes: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(previous).chain_update(bytes).finalize().into()
}

fn one_row(count: usize, seq: Seq, what: &str) -> Result<(), StoreError> {
    if count == 1 { Ok(()) } else { Err(StoreError::Disagree(format!("job {} {what}", seq.0))) }
}

/// Tells a row that cannot be stored from a store that cannot store.
pub(super) fn rejected(error: rusqlite::Error, row: impl FnOnce() -> String) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            StoreError::Rejected(format!("{}: {error}", row()))
        }
        _ => error.into(),
    }
}
