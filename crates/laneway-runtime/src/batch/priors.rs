//! Looks up the idempotency keys of commands in the store, with one call for many commands, and jobs that are to be deleted.
//!
//! The engine remembers the keys of batches that are not durable yet. The store answers for all others. So the look-up must
//! come after the last commit that the engine knows of, and before the command is applied. A key that occurs twice in a
//! batch is unknown to the store both times; the engine finds the second one among its own.

use laneway_core::command::{DeliveryCommand, WorkflowCommand};
use std::collections::VecDeque;
use std::sync::Arc;

use laneway_core::{Command, StoredJob, Submission};
use laneway_store::{JobView, Keys, Priors, Store, StoreError};

/// One call looks up about this many keys. Where a batch is cut before all of them are used, the rest are looked up again.
const KEYS_AT_ONCE: usize = 256;
/// One call looks at no more commands than this.
const COMMANDS_AT_ONCE: usize = 1_024;

/// Looks up the keys of the commands at the front. Gives how many commands it prepared: at least one, if there is one.
pub(super) fn look_up_priors(
    store: &mut dyn Store,
    commands: &mut VecDeque<Command>,
) -> Result<usize, StoreError> {
    let mut keys = Keys::default();
    let mut count = 0;
    for command in commands.iter().take(COMMANDS_AT_ONCE) {
        if keys.len() >= KEYS_AT_ONCE {
            break;
        }
        add_keys(command, &mut keys);
        count += 1;
    }
    let priors = if keys.is_empty() { Priors::default() } else { store.priors(&keys)? };
    let (mut jobs, mut runs) = (priors.jobs.into_iter(), priors.runs.into_iter());
    let mut answer = |submission: &mut Submission| {
        if submission.spec.idempotency.is_some() {
            submission.prior = jobs.next().flatten();
        }
    };
    for command in commands.iter_mut().take(count) {
        match command {
            // No one else has the command yet, so this makes no copy.
            Command::Submit(submission) => answer(Arc::make_mut(submission)),
            Command::SubmitBatch { items, .. } => Arc::make_mut(items).iter_mut().for_each(&mut answer),
            Command::Workflow(WorkflowCommand::Submit(submission))
                if submission.spec.idempotency.is_some() =>
            {
                submission.prior = runs.next().flatten();
            }
            Command::Delivery(DeliveryCommand::Redeliver { job, stored, .. }) => {
                *stored = store.reader().delivery(*job)?.map(Box::new);
            }
            Command::Delete { job, stored, .. } => {
                let found = store.reader().job(*job)?;
                *stored = found.map(|JobView { row, open, end }| {
                    Box::new(StoredJob::new(&row, end.as_ref(), open.is_some()))
                });
            }
            _ => {}
        }
    }
    Ok(count)
}

/// The keys of a command, in the order in which they are answered.
fn add_keys<'a>(command: &'a Command, keys: &mut Keys<'a>) {
    let of = |submission: &'a Submission| {
        let idempotency = submission.spec.idempotency.as_ref()?;
        Some((&submission.spec.tenant, &idempotency.key))
    };
    match command {
        Command::Submit(submission) => keys.jobs.extend(of(submission)),
        Command::SubmitBatch { items, .. } => keys.jobs.extend(items.iter().filter_map(of)),
        Command::Workflow(WorkflowCommand::Submit(submission)) => {
            let idempotency = submission.spec.idempotency.as_ref();
            keys.runs.extend(idempotency.map(|idempotency| (&submission.spec.tenant, &idempotency.key)));
        }
        _ => {}
    }
}
