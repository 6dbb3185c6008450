//! Runs and calls between their nodes in changes.

use laneway_core::{Bytes, CallRow, Change, NextAnswer, RunId, RunRow, RunSpec, RunState, Seq, Wall};

use super::super::run::{RunRest, read_run_part};
use super::super::spec::{read_idempotency, write_idempotency};
use super::super::{Input, Intern, put_bytes, put_name, put_u64, put_u128, put_wall, write_run};
use super::attempt::{read_fence, write_fence};
use super::flag;
use crate::StoreError;
use crate::rows::{stored_next_code, stored_run_state};

// One bit for each part of a run that may be missing.
const FINISHED: u8 = 1 << 0;
const IDEMPOTENCY: u8 = 1 << 1;
const ALL_RUN: u8 = (1 << 2) - 1;

// The same for a call.
const UNTIL: u8 = 1 << 0;
const PAYLOAD: u8 = 1 << 1;
const RESULT: u8 = 1 << 2;
/// It is answered, with the result.
const DONE: u8 = 1 << 3;
/// It is answered, with a failure.
const FAILED: u8 = 1 << 4;
const ALL_CALL: u8 = (1 << 5) - 1;

pub(super) fn write_row(out: &mut Vec<u8>, row: &RunRow) {
    // Parts with an underscore are in the form of the run.
    let RunRow { first, id, spec, nodes: _, created_at, submitted_by: _, state, finished_at } = row;
    let RunSpec { tenant, name: _, lane, failure: _, client: _, idempotency, tags: _ } = spec;
    let flags = flag(finished_at.is_some(), FINISHED) | flag(idempotency.is_some(), IDEMPOTENCY);
    out.extend_from_slice(&[flags, state.code()]);
    put_u64(out, first.0);
    put_u128(out, id.0);
    put_name(out, tenant);
    put_name(out, lane);
    put_wall(out, *created_at);
    if let Some(time) = finished_at {
        put_wall(out, *time);
    }
    if let Some(idempotency) = idempotency {
        write_idempotency(out, idempotency);
    }
    write_run(out, row);
}

pub(super) fn read_row(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<RunRow, StoreError> {
    let flags = input.flags(ALL_RUN)?;
    let state = stored_run_state(input.u8()?)?;
    let (first, id) = (Seq(input.u64()?), RunId(input.u128()?));
    let (tenant, lane) = (intern(input.text()?)?, intern(input.text()?)?);
    let created_at = input.wall()?;
    let finished_at = (flags & FINISHED != 0).then(|| input.wall()).transpose()?;
    let idempotency = (flags & IDEMPOTENCY != 0).then(|| read_idempotency(input)).transpose()?;
    let RunRest { submitted_by, failure, name, client, tags, nodes } = read_run_part(input)?;
    let spec = RunSpec { tenant, name, lane, failure, client, idempotency, tags };
    Ok(RunRow { first, id, spec, nodes, created_at, submitted_by, state, finished_at })
}

pub(super) fn write_moved(out: &mut Vec<u8>, first: Seq, state: RunState, finished_at: Option<Wall>) {
    out.extend_from_slice(&[flag(finished_at.is_some(), FINISHED), state.code()]);
    put_u64(out, first.0);
    if let Some(time) = finished_at {
        put_wall(out, time);
    }
}

pub(super) fn read_moved(input: &mut Input<'_>) -> Result<Change, StoreError> {
    let flags = input.flags(FINISHED)?;
    // Evaluated in the order in which the parts are written.
    Ok(Change::RunMoved {
        state: stored_run_state(input.u8()?)?,
        first: Seq(input.u64()?),
        finished_at: (flags & FINISHED != 0).then(|| input.wall()).transpose()?,
    })
}

pub(super) fn write_call(out: &mut Vec<u8>, call: &CallRow) {
    let CallRow { target, caller, request, called_at, after, until, payload, answer, result } = call;
    let answered = match answer {
        None => 0,
        // It is answered with the result, which is written once.
        Some(NextAnswer::Done(_)) => DONE,
        Some(NextAnswer::Failed(..)) => FAILED,
    };
    out.push(
        answered
            | flag(until.is_some(), UNTIL)
            | flag(payload.is_some(), PAYLOAD)
            | flag(result.is_some(), RESULT),
    );
    put_u64(out, target.0);
    write_fence(out, caller);
    put_name(out, request);
    put_wall(out, *called_at);
    put_u64(out, (*after).into());
    if let Some(time) = until {
        put_wall(out, *time);
    }
    for bytes in [payload, result].into_iter().flatten() {
        put_bytes(out, bytes);
    }
    if let Some(NextAnswer::Failed(code, message)) = answer {
        out.push(code.code());
        put_bytes(out, message.as_bytes());
    }
}

pub(super) fn read_call(input: &mut Input<'_>) -> Result<CallRow, StoreError> {
    let flags = input.flags(ALL_CALL)?;
    let has = |bit: u8| flags & bit != 0;
    let (target, caller) = (Seq(input.u64()?), read_fence(input)?);
    let (request, called_at, after) = (input.name()?, input.wall()?, input.u32()?);
    let until = has(UNTIL).then(|| input.wall()).transpose()?;
    let payload = has(PAYLOAD).then(|| input.bytes().map(Bytes::from)).transpose()?;
    let result = has(RESULT).then(|| input.bytes().map(Bytes::from)).transpose()?;
    let answer = match (has(DONE), has(FAILED)) {
        (false, false) => None,
        (true, false) => Some(NextAnswer::Done(result.clone())),
        (false, true) => Some(NextAnswer::Failed(stored_next_code(input.u8()?)?, input.text()?.into())),
        (true, true) => return Err(input.damaged("a call has two answers")),
    };
    Ok(CallRow { target, caller, request, called_at, after, until, payload, answer, result })
}
