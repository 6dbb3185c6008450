//! A job as it is after commits that the tables do not have yet.

use laneway_core::{Change, Prior};

use crate::JobView;
use crate::batch::Revision;

/// The job after these changes, in order. `base`: the job in the tables.
pub(super) fn changed<'a>(
    base: Option<JobView>,
    changes: impl Iterator<Item = &'a Change>,
) -> Option<JobView> {
    let mut view = base;
    for change in changes {
        if let Change::JobCreated { row, .. } = change {
            view = Some(JobView { row: (**row).clone(), open: None, end: None });
            continue;
        }
        // Retention has deleted the job, or the change is about a job that it was merged into.
        let Some(view) = view.as_mut() else { continue };
        match change {
            Change::JobMoved { status, .. } => view.row.status = status.clone(),
            Change::JobRevised { seq, priority, rank_time, not_before } => {
                Revision::new(*seq, *priority, *rank_time, *not_before).apply(&mut view.row);
            }
            Change::AttemptOpened(open)
            | Change::AttemptStarted(open)
            | Change::LeaseExtended(open)
            | Change::HolderChanged(open)
            | Change::AttemptRebound(open) => view.open = Some(open.clone()),
            Change::AttemptClosed(_) => view.open = None,
            Change::JobEnded(end) if end.seq == view.row.seq => view.end = Some((**end).clone()),
            _ => {}
        }
    }
    view
}

/// What an idempotency key stands for, from the change that created its job.
pub(super) fn prior(created: &Change) -> Option<Prior> {
    let Change::JobCreated { row, .. } = created else { return None };
    let idempotency = row.spec.idempotency.as_ref()?;
    Some(Prior { job: row.id, digest: idempotency.digest })
}
