//! Which columns make which row. Every query of every store with tables reads its rows here.
//!
//! Stores with tables have the same columns in the same order. A column holds an integer of 64 bits, a text, bytes or nothing.

pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod firing_log;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod status;

use laneway_core::{
    AttemptId, Bytes, ClosedAttempt, Failure, Fence, Holder, JobEnd, JobId, JobRow, JobStatus, MergedInto,
    Name, OpenAttempt, Seq, Span, Wall,
};
use rusqlite::types::ValueRef;

use crate::StoreError;
use crate::codec::{SpecColumns, read_failure, read_spec};
use crate::live::MEMBERS;
use crate::rows::{
    Interner, stored_attempt_end, stored_attempt_id, stored_job_id, stored_mode, stored_name, stored_reason,
    stored_state,
};
use crate::sums::{check_sum, in_row, sum_of};

/// A row that was read.
pub(crate) trait Columns {
    /// What a column holds. Columns count from 0.
    fn get_ref(&self, column: usize) -> Result<ValueRef<'_>, StoreError>;
}

impl Columns for rusqlite::Row<'_> {
    fn get_ref(&self, column: usize) -> Result<ValueRef<'_>, StoreError> {
        Ok(rusqlite::Row::get_ref(self, column)?)
    }
}

/// The columns that [`read_job`] reads, in its order.
macro_rules! job_columns {
    () => {
        "job.seq, job.id, job.tenant, job.kind, job.agent, job.lane, job.session, job.priority, job.rank_time, job.created_at, \
         job.spec, job.state, job.wake_at, job.attempts, job.failures, job.losses, job.last_event, job.cost, job.rejections, \
         job.near_deadline, job.denials, job.denied_until, job.sum"
    };
}
use job_columns;

/// The columns that [`read_job`] reads, in its order. All of table `job`, where the database itself sums the rest of the row.
pub(crate) const JOB: &str = job_columns!();
/// How many columns [`JOB`] has.
pub(crate) const JOB_LEN: usize = 23;
/// Columns of [`JOB`] that never change and are in its checksum.
const JOB_SUMMED: [usize; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17];

/// The columns that [`read_payload`] reads, in its order.
pub(crate) const PAYLOAD: &str = "payload.seq, payload.bytes, payload.sum";

/// The columns that [`read_open`] reads, in its order. All of table `open_attempt`.
pub(crate) const OPEN: &str = "seq, attempt, attempt_id, lease_epoch, executor, mode, state, opened_at, started_at, last_event, lease_ms, worker, pid, \
     dispatch_seq, boot";

/// The columns that [`read_closed`] reads after those of [`OPEN`], in its order.
pub(crate) const CLOSED: &str = "ended, error, closed_at";

/// The columns that [`read_end`] reads, in its order.
pub(crate) const END: &str = "seq, state, reason, attempt_id, started_at, finished_at, attempts, failures, losses, \
     last_event, error, result, sum";
/// How many columns [`END`] has.
pub(crate) const END_LEN: usize = 13;

/// A job, from the columns [`JOB`] from the first on.
pub(crate) fn read_job(row: &impl Columns, names: &mut Interner) -> Result<JobRow, StoreError> {
    check_job(row)?;
    decode_job(row, names).map_err(|error| in_row("job", row, error))
}

/// Checks what was submitted of a job, from the same columns.
pub(crate) fn check_job(row: &impl Columns) -> Result<(), StoreError> {
    check_sum(row, JOB_SUMMED, JOB_LEN - 1).map_err(|error| in_row("job", row, error))
}

/// A payload, from the columns [`PAYLOAD`], the first of which is the column `from`.
pub(crate) fn read_payload(row: &impl Columns, from: usize) -> Result<Bytes, StoreError> {
    check_sum(row, [from, from + 1], from + 2).map_err(|error| in_row("payload", row, error))?;
    Ok(Bytes::from(row.get_ref(from + 1)?.as_blob()?))
}

fn decode_job(row: &impl Columns, names: &mut Interner) -> Result<JobRow, StoreError> {
    let rest = read_spec(row.get_ref(10)?.as_blob()?, &mut |text| names.name(text))?;
    let (payload_len, submitted_by, position) = (rest.payload_len, rest.submitted_by.clone(), rest.position);
    let mut name = |column: usize| names.name(row.get_ref(column)?.as_str()?);
    let columns = SpecColumns {
        tenant: name(2)?,
        kind: name(3)?,
        agent: name(4)?,
        lane: name(5)?,
        session: row.get_ref(6)?.as_str_or_null()?.map(|key| names.name(key)).transpose()?,
        priority: small(row, 7)?,
        cost: small(row, 17)?,
    };
    Ok(JobRow {
        seq: Seq(number(row, 0)?),
        id: stored_job_id(row.get_ref(1)?.as_blob()?)?,
        spec: rest.with_columns(columns)?,
        payload_len,
        created_at: Wall(row.get_ref(9)?.as_i64()?),
        rank_time: number(row, 8)?,
        submitted_by,
        position,
        status: read_status(row)?,
    })
}

/// What changes of a live job, from the same columns.
fn read_status(row: &impl Columns) -> Result<JobStatus, StoreError> {
    Ok(JobStatus {
        state: stored_state(small(row, 11)?)?,
        wake_at: row.get_ref(12)?.as_i64_or_null()?.map(Wall),
        attempts: small(row, 13)?,
        failures: small(row, 14)?,
        losses: small(row, 15)?,
        rejections: small(row, 18)?,
        near_deadline: number(row, 19)? != 0,
        denials: small(row, 20)?,
        denied_until: row.get_ref(21)?.as_i64_or_null()?.map(Wall),
        last_event: number(row, 16)?,
    })
}

/// An open attempt of `job`, from the columns [`OPEN`] from the first on.
pub(crate) fn read_open(row: &impl Columns, job: JobId) -> Result<OpenAttempt, StoreError> {
    let attempt: u32 = small(row, 1)?;
    let dispatch_seq = row.get_ref(13)?.as_i64_or_null()?;
    Ok(OpenAttempt {
        seq: Seq(number(row, 0)?),
        fence: Fence {
            job,
            attempt,
            attempt_id: stored_attempt_id(row.get_ref(2)?.as_blob()?)?,
            lease_epoch: small(row, 3)?,
        },
        executor: stored_name(row.get_ref(4)?.as_str()?)?,
        mode: stored_mode(small(row, 5)?)?,
        state: stored_state(small(row, 6)?)?,
        opened_at: Wall(row.get_ref(7)?.as_i64()?),
        started_at: row.get_ref(8)?.as_i64_or_null()?.map(Wall),
        lease: Span(number(row, 10)?),
        last_event: number(row, 9)?,
        holder: read_holder(row)?,
        dispatch_seq: dispatch_seq.map_or(attempt.into(), i64::cast_unsigned),
    })
}

fn read_holder(row: &impl Columns) -> Result<Option<Holder>, StoreError> {
    let Some(worker) = row.get_ref(11)?.as_str_or_null()? else { return Ok(None) };
    let pid = row.get_ref(12)?.as_i64_or_null()?.map(|_| small(row, 12)).transpose()?;
    let boot = row.get_ref(14)?.as_str_or_null()?.map(stored_name).transpose()?;
    Ok(Some(Holder { worker: stored_name(worker)?, pid, boot }))
}

/// A closed attempt of `job`, from the columns [`OPEN`] and [`CLOSED`] from the first on.
pub(crate) fn read_closed(row: &impl Columns, job: JobId) -> Result<ClosedAttempt, StoreError> {
    Ok(ClosedAttempt {
        open: read_open(row, job)?,
        end: stored_attempt_end(small(row, 15)?)?,
        error: read_error(row.get_ref(16)?)?,
        closed_at: Wall(row.get_ref(17)?.as_i64()?),
        last: false,
    })
}

/// An end, from the columns [`END`] from the first on. Where a merged job went stands in another table.
pub(crate) fn read_end(row: &impl Columns) -> Result<JobEnd, StoreError> {
    check_end(row)?;
    decode_end(row).map_err(|error| in_row("done", row, error))
}

/// Checks an end, from the same columns.
pub(crate) fn check_end(row: &impl Columns) -> Result<(), StoreError> {
    check_sum(row, 0..END_LEN - 1, END_LEN - 1).map_err(|error| in_row("done", row, error))
}

fn decode_end(row: &impl Columns) -> Result<JobEnd, StoreError> {
    let attempt_id: Option<AttemptId> =
        row.get_ref(3)?.as_blob_or_null()?.map(stored_attempt_id).transpose()?;
    Ok(JobEnd {
        seq: Seq(number(row, 0)?),
        state: stored_state(small(row, 1)?)?,
        reason: stored_reason(small(row, 2)?)?,
        attempt_id,
        started_at: row.get_ref(4)?.as_i64_or_null()?.map(Wall),
        finished_at: Wall(row.get_ref(5)?.as_i64()?),
        attempts: small(row, 6)?,
        failures: small(row, 7)?,
        losses: small(row, 8)?,
        last_event: number(row, 9)?,
        error: read_error(row.get_ref(10)?)?,
        result: row.get_ref(11)?.as_blob_or_null()?.map(Bytes::from),
        merged_into: None,
    })
}

/// Where a job that ended as merged went, from the columns `leader` and `job`.
pub(crate) fn read_merged_into(row: &impl Columns) -> Result<MergedInto, StoreError> {
    Ok(MergedInto { seq: Seq(number(row, 0)?), job: stored_job_id(row.get_ref(1)?.as_blob()?)? })
}

fn read_error(value: ValueRef<'_>) -> Result<Option<Failure>, StoreError> {
    value.as_blob_or_null()?.map(read_failure).transpose()
}

/// A number that is never negative in the engine; SQLite's integers are signed.
pub(crate) fn number(row: &impl Columns, column: usize) -> Result<u64, StoreError> {
    Ok(row.get_ref(column)?.as_i64()?.cast_unsigned())
}

/// A number of a smaller type.
pub(crate) fn small<T: TryFrom<i64>>(row: &impl Columns, column: usize) -> Result<T, StoreError> {
    let value = row.get_ref(column)?.as_i64()?;
    T::try_from(value).map_err(|_| StoreError::Damaged(format!("{value} does not fit its column")))
}

/// The checksum of what never changes in a job's row, in the order of the columns that readers check.
pub(crate) fn job_sum(row: &JobRow, rest: &[u8]) -> i64 {
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
pub(crate) fn end_sum(end: &JobEnd, error: Option<&[u8]>) -> i64 {
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

/// The retention bucket of a job: its lane, and whether it has an idempotency key, because such jobs are kept longer.
/// Members of runs have one bucket that no lane prunes: they are kept with their run.
pub(crate) fn retention_bucket(lane: i64, keyed: bool, member: bool) -> i64 {
    if member { MEMBERS } else { lane * 2 + i64::from(keyed) }
}
