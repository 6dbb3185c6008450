//! Attempts: the fence of open ones, and the rows of closed ones.

use laneway_core::{ClosedAttempt, Fence, Holder, OpenAttempt};

use super::cells::{Param, Rows, id, int, name, number, opt_int, opt_name, opt_wall, own_blob};
use super::script::Script;
use crate::batch::Batch;
use crate::codec::write_failure;
use crate::columns::{CLOSED, OPEN};

/// Removes, replaces and inserts open attempts. This is the fence: every row must be there exactly as the engine says.
pub(super) fn write_open<'a>(batch: &Batch<'a>, script: &mut Script<'a>) {
    if !batch.not_open.is_empty() {
        // Writes nothing where all is well: it must find no row.
        let sql = "UPDATE laneway.open_attempt SET seq = seq WHERE seq = ANY($1)";
        script.exactly(0, "open_attempt", sql, vec![Param::seqs(batch.not_open.iter().map(|seq| seq.0))]);
    }
    let mut closed = Rows::default();
    for (seq, fence) in &batch.closed {
        closed.push([number(seq.0), int(fence.attempt), id(fence.attempt_id.0), int(fence.lease_epoch)]);
    }
    if !closed.is_empty() {
        let sql = format!(
            "DELETE FROM laneway.open_attempt AS open USING {} AS gone (c1, c2, c3, c4) \
             WHERE open.seq = c1 AND open.attempt = c2 AND open.attempt_id = c3 AND open.lease_epoch = c4",
            closed.unnest()
        );
        script.exactly(closed.len(), "open_attempt", sql, closed.into_params());
    }
    let mut started = Rows::default();
    for (open, stored) in &batch.started {
        started.push(columns_of(open).into_iter().chain([int(*stored)]));
    }
    if !started.is_empty() {
        let sql = format!(
            "UPDATE laneway.open_attempt AS open SET executor = c5, mode = c6, state = c7, opened_at = c8, started_at = c9, \
             last_event = c10, lease_ms = c11, worker = c12, pid = c13, dispatch_seq = c14, boot = c15, lease_epoch = c4 \
             FROM {} AS rows (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16) \
             WHERE open.seq = c1 AND open.attempt = c2 AND open.attempt_id = c3 AND open.lease_epoch = c16",
            started.unnest()
        );
        script.exactly(started.len(), "open_attempt", sql, started.into_params());
        script.strictly();
    }
    let mut opened = Rows::default();
    for open in &batch.opened {
        opened.push(columns_of(open));
    }
    if !opened.is_empty() {
        // Two open attempts of one job, or a state that no open attempt has: the engine must never ask for that.
        script.insert("open_attempt", OPEN, opened);
        script.strictly();
    }
}

/// An open attempt, in the order of [`OPEN`].
fn columns_of(open: &OpenAttempt) -> [Param<'_>; 15] {
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
        (worker, process, boot_id) = (Some(name), *pid, boot.as_ref());
    }
    // Outside of runs it is the attempt's own number, which is not stored twice.
    let dispatch_seq = Some(*dispatch_seq).filter(|number| *number != u64::from(*attempt));
    [
        number(seq.0),
        int(*attempt),
        id(attempt_id.0),
        int(*lease_epoch),
        name(executor),
        int(mode.code()),
        int(state.code()),
        int(opened_at.0),
        opt_wall(*started_at),
        number(*last_event),
        number(lease.0),
        opt_name(worker),
        opt_int(process),
        opt_int(dispatch_seq.map(u64::cast_signed)),
        opt_name(boot_id),
    ]
}

/// Inserts closed attempts.
pub(super) fn insert_closed<'a>(batch: &Batch<'a>, script: &mut Script<'a>) {
    let mut rows = Rows::default();
    for closed in &batch.attempts {
        let ClosedAttempt { open, end, error, closed_at, last: _ } = *closed;
        let form = error.as_ref().map(|error| {
            let mut form = Vec::new();
            write_failure(&mut form, error);
            form
        });
        rows.push(columns_of(open).into_iter().chain([int(end.code()), own_blob(form), int(closed_at.0)]));
    }
    script.insert("attempt", &format!("{OPEN}, {CLOSED}"), rows);
}
