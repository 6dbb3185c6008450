//! Looks up how an attempt ended, for reports of workers on tasks that the engine does not know any more.
//!
//! A worker whose connection broke repeats its last report. If the attempt ended with that report, the job may be gone from
//! the engine, and only the store knows that the report is a duplicate. The loop looks this up before it applies the
//! report, as it does for idempotency keys.

use laneway_core::command::WorkerCommand;
use laneway_core::worker::WorkerReport;
use laneway_core::{AttemptEnd, ClosedAttempt, Command, Engine, JobEnd, JobState, Name, Reason, Task};
use laneway_store::{Reader, Store, StoreError};

/// Fills in `stored` of every report on a task that the engine does not know. The commands are those of the next batch.
pub(super) fn look_up_ends<'a>(
    engine: &Engine,
    store: &dyn Store,
    commands: impl Iterator<Item = &'a mut Command>,
) {
    let mut reader = None;
    for command in commands {
        let Command::Worker(WorkerCommand::Message(message)) = command else { continue };
        let Some((tenant, worker, task)) = engine.unknown_task(message) else { continue };
        let reader = reader.get_or_insert_with(|| store.reader());
        let end = stored_end(reader.as_ref(), tenant, worker, task).unwrap_or_else(|error| {
            // The report is stale without an answer of the store. That is no reason to stop the loop.
            tracing::warn!(%error, "the end of an attempt cannot be looked up");
            None
        });
        if let WorkerReport::Ended { stored, .. } = &mut message.report {
            *stored = end;
        }
    }
}

/// How the attempt of a task ended, if this worker had it.
fn stored_end(
    reader: &dyn Reader,
    tenant: &Name,
    worker: &Name,
    task: Task,
) -> Result<Option<AttemptEnd>, StoreError> {
    let Some(view) = reader.job(task.job)?.filter(|view| view.row.spec.tenant == *tenant) else {
        return Ok(None);
    };
    let closed = || -> Result<Option<AttemptEnd>, StoreError> {
        let attempts = reader.attempts(view.row.seq)?;
        let of_task = |closed: &&ClosedAttempt| {
            let open = &closed.open;
            open.dispatch_seq == task.dispatch_seq
                && open.holder.as_ref().is_some_and(|holder| holder.worker == *worker)
        };
        Ok(attempts.iter().map(|attempt| &attempt.closed).find(of_task).map(|closed| closed.end))
    };
    // Only the run knows which dispatch the last attempt of an ended node was. Every report on it is late, except those on
    // attempts that were closed before.
    let is_node = view.row.spec.member.is_some();
    if is_node && let Some(end) = closed()? {
        return Ok(Some(end));
    }
    let of_last = |end: &&JobEnd| is_node || u64::from(end.attempts) == task.dispatch_seq;
    if let Some(end) = view.end.as_ref().filter(of_last) {
        return Ok(match (end.state, end.reason) {
            (JobState::Succeeded, _) => Some(AttemptEnd::Succeeded),
            (JobState::Failed, Reason::Permanent | Reason::Exhausted) => Some(AttemptEnd::Failed),
            _ => None,
        });
    }
    closed()
}
