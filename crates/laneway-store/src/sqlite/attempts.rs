//! Attempts: the fence of open ones, and the rows of closed ones. Written by the commit.

use laneway_core::{ClosedAttempt, Fence, Holder, Name, OpenAttempt, Seq};
use rusqlite::types::ToSql;
use rusqlite::{CachedStatement, Connection, params};

use super::commit::{bind, one_row, rejected};
use super::row_sums::OPEN_ATTEMPT;
use super::tables::Tables;
use crate::StoreError;
use crate::batch::Batch;
use crate::codec::write_failure;

/// Removes, replaces and inserts open attempts. This is the fence: every row must be there exactly as the engine says.
pub(super) fn write_open(conn: &Connection, batch: &Batch<'_>) -> Result<(), StoreError> {
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
            must_be_open(conn, deleted, *seq)?;
        }
    }
    if !batch.started.is_empty() {
        let mut update = conn.prepare_cached(
            "UPDATE open_attempt SET executor = ?5, mode = ?6, state = ?7, opened_at = ?8, started_at = ?9, last_event = ?10, \
             lease_ms = ?11, worker = ?12, pid = ?13, dispatch_seq = ?14, boot = ?15, lease_epoch = ?4 \
             WHERE seq = ?1 AND attempt = ?2 AND attempt_id = ?3 AND lease_epoch = ?16",
        )?;
        for (open, stored) in &batch.started {
            bind_open(&mut update, open)?;
            update.raw_bind_parameter(OPEN_LEN + 1, stored)?;
            let put = update.raw_execute().map_err(|error| not_open(error, open))?;
            must_be_open(conn, put, open.seq)?;
        }
    }
    if !batch.opened.is_empty() {
        let mut insert = conn.prepare_cached(
            "INSERT INTO open_attempt (seq, attempt, attempt_id, lease_epoch, executor, mode, state, opened_at, \
             started_at, last_event, lease_ms, worker, pid, dispatch_seq, boot) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?;
        for open in &batch.opened {
            bind_open(&mut insert, open)?;
            insert.raw_execute().map_err(|error| not_open(error, open))?;
        }
    }
    Ok(())
}

/// The statement must have found the row. Where it did not, the row may be damaged.
fn must_be_open(conn: &Connection, found: usize, seq: Seq) -> Result<(), StoreError> {
    if found != 1 {
        let sql = format!("SELECT {} FROM open_attempt WHERE seq = ?1", OPEN_ATTEMPT.check);
        conn.prepare_cached(&sql)?.exists([seq.0.cast_signed()])?;
    }
    one_row(found, seq, "has no open attempt with that fence")
}

/// How many parameters [`bind_open`] binds.
const OPEN_LEN: usize = 15;

/// Binds an open attempt to the first parameters of a statement, in the order of [`super::columns::OPEN`].
fn bind_open(statement: &mut CachedStatement<'_>, open: &OpenAttempt) -> rusqlite::Result<()> {
    let OpenAttempt {
        seq,
        fence: Fence { job: _, attempt, attempt_id, lease_epoch },
        executor,
        mode,
        state,
        opened_at,
        started_at,
        lease,
        last_event,
        holder,
        dispatch_seq,
    } = open;
    let (mut worker, mut process, mut boot_id) = (None, None, None);
    if let Some(Holder { worker: name, pid, boot }) = holder {
        (worker, process, boot_id) = (Some(name.as_str()), *pid, boot.as_ref().map(Name::as_str));
    }
    // Outside of runs it is the attempt's own number, which is not stored twice.
    let dispatch_seq = Some(*dispatch_seq).filter(|number| *number != u64::from(*attempt));
    let columns: &[&dyn ToSql; OPEN_LEN] = &[
        &seq.0.cast_signed(),
        attempt,
        &attempt_id.0.to_be_bytes(),
        lease_epoch,
        &executor.as_str(),
        &mode.code(),
        &state.code(),
        &opened_at.0,
        &started_at.map(|time| time.0),
        &last_event.cast_signed(),
        &lease.0.cast_signed(),
        &worker,
        &process,
        &dispatch_seq.map(u64::cast_signed),
        &boot_id,
    ];
    bind(statement, 1, columns)
}

/// Two open attempts of one job, or a state that no open attempt has: the engine must never ask for that.
fn not_open(error: rusqlite::Error, open: &OpenAttempt) -> StoreError {
    match rejected(error, || format!("job {} cannot have this open attempt", open.seq.0)) {
        StoreError::Rejected(why) => StoreError::Disagree(why),
        other => other,
    }
}

/// Inserts closed attempts.
pub(super) fn insert_closed(store: &mut Tables, batch: &Batch<'_>) -> Result<(), StoreError> {
    if batch.attempts.is_empty() {
        return Ok(());
    }
    let mut insert = store.conn.prepare_cached(
        "INSERT INTO attempt (seq, attempt, attempt_id, lease_epoch, executor, mode, state, opened_at, started_at, \
         last_event, lease_ms, worker, pid, dispatch_seq, boot, ended, error, closed_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    )?;
    for closed in &batch.attempts {
        let ClosedAttempt { open, end, error, closed_at, last: _ } = *closed;
        store.blob.clear();
        if let Some(error) = error {
            write_failure(&mut store.blob, error);
        }
        bind_open(&mut insert, open)?;
        let own = params![end.code(), error.as_ref().map(|_| &store.blob[..]), closed_at.0];
        bind(&mut insert, OPEN_LEN + 1, own)?;
        insert.raw_execute().map_err(|error| {
            rejected(error, || format!("attempt {} of job {}", open.fence.attempt, open.fence.job))
        })?;
    }
    Ok(())
}
