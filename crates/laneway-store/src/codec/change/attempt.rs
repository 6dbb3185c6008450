//! Attempts in changes: open ones, closed ones, and fences.

use laneway_core::{AttemptId, ClosedAttempt, Fence, Holder, JobId, OpenAttempt, Seq, Span};

use super::super::failure::read_failure_part;
use super::super::{Input, Intern, put_name, put_u64, put_u128, put_wall, write_failure};
use super::flag;
use crate::StoreError;
use crate::rows::{stored_attempt_end, stored_mode, stored_state};

// One bit for each part of an open attempt that may be missing.
const STARTED: u8 = 1 << 0;
const HOLDER: u8 = 1 << 1;
/// Beside [`HOLDER`]: its process is known.
const PID: u8 = 1 << 2;
/// Beside [`HOLDER`]: the boot id of its process is known.
const BOOT: u8 = 1 << 3;
const ALL_OPEN: u8 = (1 << 4) - 1;

// The same for a closed one.
const ERROR: u8 = 1 << 0;
/// The job ended with it.
const LAST: u8 = 1 << 1;
const ALL_CLOSED: u8 = (1 << 2) - 1;

pub(super) fn write_open(out: &mut Vec<u8>, open: &OpenAttempt) {
    let OpenAttempt {
        seq,
        fence,
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
    let parts = match holder {
        None => 0,
        Some(Holder { worker: _, pid, boot }) => {
            HOLDER | flag(pid.is_some(), PID) | flag(boot.is_some(), BOOT)
        }
    };
    out.extend_from_slice(&[parts | flag(started_at.is_some(), STARTED), mode.code(), state.code()]);
    put_u64(out, seq.0);
    write_fence(out, fence);
    put_name(out, executor);
    put_wall(out, *opened_at);
    put_u64(out, lease.0);
    put_u64(out, *last_event);
    put_u64(out, *dispatch_seq);
    if let Some(time) = started_at {
        put_wall(out, *time);
    }
    if let Some(Holder { worker, pid, boot }) = holder {
        put_name(out, worker);
        if let Some(pid) = pid {
            put_u64(out, (*pid).into());
        }
        if let Some(boot) = boot {
            put_name(out, boot);
        }
    }
}

pub(super) fn read_open(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<OpenAttempt, StoreError> {
    let flags = input.flags(ALL_OPEN)?;
    let has = |bit: u8| flags & bit != 0;
    let (mode, state) = (stored_mode(input.u8()?)?, stored_state(input.u8()?)?);
    // Evaluated in the order in which the parts are written.
    Ok(OpenAttempt {
        mode,
        state,
        seq: Seq(input.u64()?),
        fence: read_fence(input)?,
        executor: intern(input.text()?)?,
        opened_at: input.wall()?,
        lease: Span(input.u64()?),
        last_event: input.u64()?,
        dispatch_seq: input.u64()?,
        started_at: has(STARTED).then(|| input.wall()).transpose()?,
        holder: match has(HOLDER) {
            false if has(PID) || has(BOOT) => return Err(input.damaged("a process has no worker")),
            false => None,
            true => Some(Holder {
                worker: intern(input.text()?)?,
                pid: has(PID).then(|| input.u32()).transpose()?,
                boot: has(BOOT).then(|| intern(input.text()?)).transpose()?,
            }),
        },
    })
}

pub(super) fn write_closed(out: &mut Vec<u8>, closed: &ClosedAttempt) {
    let ClosedAttempt { open, end, error, closed_at, last } = closed;
    out.extend_from_slice(&[flag(error.is_some(), ERROR) | flag(*last, LAST), end.code()]);
    put_wall(out, *closed_at);
    write_open(out, open);
    if let Some(error) = error {
        write_failure(out, error);
    }
}

pub(super) fn read_closed(
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<ClosedAttempt, StoreError> {
    let flags = input.flags(ALL_CLOSED)?;
    // Evaluated in the order in which the parts are written.
    Ok(ClosedAttempt {
        last: flags & LAST != 0,
        end: stored_attempt_end(input.u8()?)?,
        closed_at: input.wall()?,
        open: read_open(input, intern)?,
        error: (flags & ERROR != 0).then(|| read_failure_part(input)).transpose()?,
    })
}

pub(super) fn write_fence(out: &mut Vec<u8>, fence: &Fence) {
    let Fence { job, attempt, attempt_id, lease_epoch } = fence;
    put_u128(out, job.0);
    put_u128(out, attempt_id.0);
    put_u64(out, (*attempt).into());
    put_u64(out, (*lease_epoch).into());
}

pub(super) fn read_fence(input: &mut Input<'_>) -> Result<Fence, StoreError> {
    // Evaluated in the order in which the parts are written.
    Ok(Fence {
        job: JobId(input.u128()?),
        attempt_id: AttemptId(input.u128()?),
        attempt: input.u32()?,
        lease_epoch: input.u32()?,
    })
}
