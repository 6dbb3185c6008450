//! Which columns make which row, and back. Every query that reads a job, an attempt or an end reads it here.

use laneway_core::{
    AttemptId, Bytes, CapacityRequest, ClosedAttempt, Failure, Fence, Holder, JobEnd, JobId, JobRow, JobSpec,
    JobStatus, MergedInto, OpenAttempt, Seq, Span, Wall,
};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::sums::{check_sum, in_row};
use crate::StoreError;
use crate::codec::{SpecRest, read_failure, read_spec};
use crate::rows::{
    Interner, stored_attempt_end, stored_attempt_id, stored_job_id, stored_mode, stored_name, stored_reason,
    stored_state,
};

/// The columns that [`read_job`] reads, in its order. All of table `job`.
pub(super) const JOB: &str = "job.seq, job.id, job.tenant, job.kind, job.agent, job.lane, job.session, job.priority, \
     job.rank_time, job.created_at, job.spec, job.state, job.wake_at, job.attempts, job.failures, job.losses, \
     job.last_event, job.cost, job.rejections, job.near_deadline, job.denials, job.denied_until, \
     job.sum";
/// How many columns [`JOB`] has.
pub(super) const JOB_LEN: usize = 23;
/// Columns of [`JOB`] that never change and are in its checksum.
const JOB_SUMMED: [usize; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17];

/// The columns that [`read_payload`] reads, in its order.
pub(super) const PAYLOAD: &str = "payload.seq, payload.bytes, payload.sum";

/// The columns that [`read_open`] reads, in its order. All of table `open_attempt`.
pub(super) const OPEN: &str = "seq, attempt, attempt_id, lease_epoch, place, mode, state, opened_at, started_at, last_event, lease_ms, worker, pid, \
     dispatch_seq, boot";

/// The columns that [`read_closed`] reads after those of [`OPEN`], in its order.
pub(super) const CLOSED: &str = "ended, error, closed_at";

/// The columns that [`read_end`] reads, in its order.
pub(super) const END: &str = "seq, state, reason, attempt_id, started_at, finished_at, attempts, failures, losses, \
     last_event, error, result, sum";

/// A job, from the columns [`JOB`] from the first on.
pub(super) fn read_job(row: &Row<'_>, names: &mut Interner) -> Result<JobRow, StoreError> {
    let read = check_sum(row, JOB_SUMMED, JOB_LEN - 1).and_then(|()| decode_job(row, names));
    read.map_err(|error| in_row("job", row, error))
}

/// A payload, from the columns [`PAYLOAD`], the first of which is the column `from`.
pub(super) fn read_payload(row: &Row<'_>, from: usize) -> Result<Bytes, StoreError> {
    check_sum(row, [from, from + 1], from + 2).map_err(|error| in_row("payload", row, error))?;
    Ok(Bytes::from(row.get_ref(from + 1)?.as_blob()?))
}

fn decode_job(row: &Row<'_>, names: &mut Interner) -> Result<JobRow, StoreError> {
    let spec = read_spec(row.get_ref(10)?.as_blob()?, &mut |text| names.name(text))?;
    let SpecRest {
        payload_len,
        submitted_by,
        position,
        session,
        keys,
        not_before,
        deadline,
        queue_timeout,
        timeout,
        retry,
        idempotency,
        retry_of,
        tags,
        schedule,
        callback,
        needs,
        member,
        wants,
    } = spec;
    let session = match (row.get_ref(6)?.as_str_or_null()?, session) {
        (Some(key), Some(session)) => Some(session.with_key(names.name(key)?)),
        (None, None) => None,
        _ => return Err(StoreError::Damaged("a job has half a session".into())),
    };
    let mut name = |column: usize| names.name(row.get_ref(column)?.as_str()?);
    Ok(JobRow {
        seq: Seq(number(row, 0)?),
        id: stored_job_id(row.get_ref(1)?.as_blob()?)?,
        spec: JobSpec {
            tenant: name(2)?,
            kind: name(3)?,
            agent: name(4)?,
            lane: name(5)?,
            session,
            keys,
            priority: small(row, 7)?,
            not_before,
            deadline,
            queue_timeout,
            timeout,
            retry,
            idempotency,
            retry_of,
            tags,
            schedule,
            callback,
            capacity: CapacityRequest { cost: small(row, 17)?, ..needs },
            member,
            placement: wants,
        },
        payload_len,
        created_at: Wall(row.get_ref(9)?.as_i64()?),
        rank_time: number(row, 8)?,
        submitted_by,
        position,
        status: read_status(row)?,
    })
}

/// What changes of a live job, from the same columns.
fn read_status(row: &Row<'_>) -> Result<JobStatus, StoreError> {
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
pub(super) fn read_open(row: &Row<'_>, job: JobId) -> Result<OpenAttempt, StoreError> {
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

fn read_holder(row: &Row<'_>) -> Result<Option<Holder>, StoreError> {
    let Some(worker) = row.get_ref(11)?.as_str_or_null()? else { return Ok(None) };
    let pid = row.get_ref(12)?.as_i64_or_null()?.map(|_| small(row, 12)).transpose()?;
    let boot = row.get_ref(14)?.as_str_or_null()?.map(stored_name).transpose()?;
    Ok(Some(Holder { worker: stored_name(worker)?, pid, boot }))
}

/// A closed attempt of `job`, from the columns [`OPEN`] and [`CLOSED`] from the first on.
pub(super) fn read_closed(row: &Row<'_>, job: JobId) -> Result<ClosedAttempt, StoreError> {
    Ok(ClosedAttempt {
        open: read_open(row, job)?,
        end: stored_attempt_end(small(row, 15)?)?,
        error: read_error(row.get_ref(16)?)?,
        closed_at: Wall(row.get_ref(17)?.as_i64()?),
        last: false,
    })
}

/// An end, from the columns [`END`] from the first on. Where a merged job went stands in another table.
pub(super) fn read_end(row: &Row<'_>) -> Result<JobEnd, StoreError> {
    let read = check_sum(row, 0..12, 12).and_then(|()| decode_end(row));
    read.map_err(|error| in_row("done", row, error))
}

fn decode_end(row: &Row<'_>) -> Result<JobEnd, StoreError> {
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
pub(super) fn read_merged_into(row: &Row<'_>) -> Result<MergedInto, StoreError> {
    Ok(MergedInto { seq: Seq(number(row, 0)?), job: stored_job_id(row.get_ref(1)?.as_blob()?)? })
}

fn read_error(value: ValueRef<'_>) -> Result<Option<Failure>, StoreError> {
    value.as_blob_or_null()?.map(read_failure).transpose()
}

/// A number that is never negative in the house; SQLite's integers are signed.
pub(super) fn number(row: &Row<'_>, column: usize) -> Result<u64, StoreError> {
    Ok(row.get_ref(column)?.as_i64()?.cast_unsigned())
}

/// A number of a smaller type.
pub(super) fn small<T: TryFrom<i64>>(row: &Row<'_>, column: usize) -> Result<T, StoreError> {
    let value = row.get_ref(column)?.as_i64()?;
    T::try_from(value).map_err(|_| StoreError::Damaged(format!("{value} does not fit its column")))
}
