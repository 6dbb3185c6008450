//! Jobs in changes: new ones, their status, their ends, and their log lines.

use laneway_core::command::LogLine;
use laneway_core::{AttemptId, Bytes, Change, JobEnd, JobId, JobRow, JobStatus, MergedInto, Seq};

use super::super::failure::read_failure_part;
use super::super::spec::read_rest;
use super::super::template::{read_columns, write_columns};
use super::super::{
    Input, Intern, put_bytes, put_i64, put_name, put_u64, put_u128, put_wall, write_failure, write_spec,
};
use super::flag;
use crate::StoreError;
use crate::rows::{stored_reason, stored_state};

// One bit for each part of a status that may be missing.
const WAKE_AT: u8 = 1 << 0;
const DENIED_UNTIL: u8 = 1 << 1;
const NEAR_DEADLINE: u8 = 1 << 2;
const ALL_STATUS: u8 = (1 << 3) - 1;

// The same for a job that a call changed.
const NOT_BEFORE: u8 = 1 << 0;

// The same for an end.
const ERROR: u8 = 1 << 0;
const RESULT: u8 = 1 << 1;
const ATTEMPT: u8 = 1 << 2;
const STARTED: u8 = 1 << 3;
const MERGED: u8 = 1 << 4;
const ALL_END: u8 = (1 << 5) - 1;

pub(super) fn write_created(out: &mut Vec<u8>, row: &JobRow, payload: &[u8]) {
    // Parts with an underscore are in the form of the spec.
    let JobRow { seq, id, spec, payload_len: _, created_at, rank_time, submitted_by: _, position: _, status } =
        row;
    put_u64(out, seq.0);
    put_u128(out, id.0);
    put_wall(out, *created_at);
    put_u64(out, *rank_time);
    write_status(out, status);
    put_name(out, &spec.tenant);
    write_columns(out, spec);
    write_spec(out, row);
    put_bytes(out, payload);
}

pub(super) fn read_created(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Change, StoreError> {
    let (seq, id) = (Seq(input.u64()?), JobId(input.u128()?));
    let (created_at, rank_time) = (input.wall()?, input.u64()?);
    let status = read_status(input)?;
    let tenant = intern(input.text()?)?;
    let columns = read_columns(tenant, input, intern)?;
    let rest = read_rest(input, intern)?;
    let row = JobRow {
        seq,
        id,
        payload_len: rest.payload_len,
        created_at,
        rank_time,
        submitted_by: rest.submitted_by.clone(),
        position: rest.position,
        status,
        spec: rest.with_columns(columns)?,
    };
    Ok(Change::JobCreated { row: row.into(), payload: Bytes::from(input.bytes()?) })
}

pub(super) fn write_moved(out: &mut Vec<u8>, seq: Seq, status: &JobStatus) {
    put_u64(out, seq.0);
    write_status(out, status);
}

pub(super) fn read_moved(input: &mut Input<'_>) -> Result<Change, StoreError> {
    Ok(Change::JobMoved { seq: Seq(input.u64()?), status: read_status(input)? })
}

pub(super) fn write_revised(out: &mut Vec<u8>, change: &Change) {
    let Change::JobRevised { seq, priority, rank_time, not_before } = *change else { return };
    put_u64(out, seq.0);
    put_i64(out, priority.into());
    put_u64(out, rank_time);
    out.push(flag(not_before.is_some(), NOT_BEFORE));
    if let Some(time) = not_before {
        put_wall(out, time);
    }
}

pub(super) fn read_revised(input: &mut Input<'_>) -> Result<Change, StoreError> {
    let (seq, priority) = (Seq(input.u64()?), input.i64()?);
    let priority =
        i32::try_from(priority).map_err(|_| input.damaged(&format!("{priority} is not a priority")))?;
    let rank_time = input.u64()?;
    let flags = input.flags(NOT_BEFORE)?;
    let not_before = (flags & NOT_BEFORE != 0).then(|| input.wall()).transpose()?;
    Ok(Change::JobRevised { seq, priority, rank_time, not_before })
}

fn write_status(out: &mut Vec<u8>, status: &JobStatus) {
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
    let flags = flag(wake_at.is_some(), WAKE_AT)
        | flag(denied_until.is_some(), DENIED_UNTIL)
        | flag(*near_deadline, NEAR_DEADLINE);
    out.extend_from_slice(&[flags, state.code()]);
    for count in [attempts, failures, losses, rejections, denials] {
        put_u64(out, (*count).into());
    }
    put_u64(out, *last_event);
    for time in [wake_at, denied_until].into_iter().flatten() {
        put_wall(out, *time);
    }
}

fn read_status(input: &mut Input<'_>) -> Result<JobStatus, StoreError> {
    let flags = input.flags(ALL_STATUS)?;
    // Evaluated in the order in which the parts are written.
    Ok(JobStatus {
        near_deadline: flags & NEAR_DEADLINE != 0,
        state: stored_state(input.u8()?)?,
        attempts: input.u32()?,
        failures: input.u32()?,
        losses: input.u32()?,
        rejections: input.u32()?,
        denials: input.u32()?,
        last_event: input.u64()?,
        wake_at: (flags & WAKE_AT != 0).then(|| input.wall()).transpose()?,
        denied_until: (flags & DENIED_UNTIL != 0).then(|| input.wall()).transpose()?,
    })
}

pub(super) fn write_end(out: &mut Vec<u8>, end: &JobEnd) {
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
        merged_into,
    } = end;
    let flags = flag(error.is_some(), ERROR)
        | flag(result.is_some(), RESULT)
        | flag(attempt_id.is_some(), ATTEMPT)
        | flag(started_at.is_some(), STARTED)
        | flag(merged_into.is_some(), MERGED);
    out.extend_from_slice(&[flags, state.code(), reason.code()]);
    put_u64(out, seq.0);
    put_wall(out, *finished_at);
    for count in [attempts, failures, losses] {
        put_u64(out, (*count).into());
    }
    put_u64(out, *last_event);
    if let Some(error) = error {
        write_failure(out, error);
    }
    if let Some(result) = result {
        put_bytes(out, result);
    }
    if let Some(id) = attempt_id {
        put_u128(out, id.0);
    }
    if let Some(time) = started_at {
        put_wall(out, *time);
    }
    if let Some(MergedInto { seq, job }) = merged_into {
        put_u64(out, seq.0);
        put_u128(out, job.0);
    }
}

pub(super) fn read_end(input: &mut Input<'_>) -> Result<JobEnd, StoreError> {
    let flags = input.flags(ALL_END)?;
    let has = |bit: u8| flags & bit != 0;
    // Evaluated in the order in which the parts are written.
    Ok(JobEnd {
        state: stored_state(input.u8()?)?,
        reason: stored_reason(input.u8()?)?,
        seq: Seq(input.u64()?),
        finished_at: input.wall()?,
        attempts: input.u32()?,
        failures: input.u32()?,
        losses: input.u32()?,
        last_event: input.u64()?,
        error: has(ERROR).then(|| read_failure_part(input)).transpose()?,
        result: has(RESULT).then(|| input.bytes().map(Bytes::from)).transpose()?,
        attempt_id: has(ATTEMPT).then(|| input.u128().map(AttemptId)).transpose()?,
        started_at: has(STARTED).then(|| input.wall()).transpose()?,
        merged_into: has(MERGED).then(|| read_merged_into(input)).transpose()?,
    })
}

fn read_merged_into(input: &mut Input<'_>) -> Result<MergedInto, StoreError> {
    Ok(MergedInto { seq: Seq(input.u64()?), job: JobId(input.u128()?) })
}

pub(super) fn write_log(out: &mut Vec<u8>, seq: Seq, attempt: u32, lines: &[LogLine]) {
    put_u64(out, seq.0);
    put_u64(out, attempt.into());
    put_u64(out, lines.len() as u64);
    for LogLine { at, stream, text } in lines {
        put_wall(out, *at);
        put_name(out, stream);
        put_bytes(out, text.as_bytes());
    }
}

pub(super) fn read_log(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Change, StoreError> {
    let (seq, attempt) = (Seq(input.u64()?), input.u32()?);
    let lines = input.list(|input| {
        Ok(LogLine { at: input.wall()?, stream: intern(input.text()?)?, text: input.text()?.into() })
    })?;
    Ok(Change::LogAppended { seq, attempt, lines })
}
