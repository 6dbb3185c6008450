//! The work between two batches: queries are answered, and progress of leases is published.

use laneway_core::Now;
use laneway_core::engine::LeaseView;

use super::{AfterBatch, LeaseProgress, Loop};
use crate::events::Progress;

impl Loop {
    /// Does the work that came with the last batch and is not a command.
    pub(super) fn finish_batch(&mut self, now: Now) {
        let mut waiting = std::mem::take(&mut self.after_batch);
        for work in waiting.drain(..) {
            // The caller may have gone away; then the answer is not needed.
            match work {
                AfterBatch::Answer(query, reply) => drop(reply.send(self.driver.engine().query(now, query))),
                AfterBatch::Publish(progress, reply) => {
                    self.publish_progress(now, progress);
                    let _ = reply.send(());
                }
            }
        }
        self.after_batch = waiting;
    }

    /// Publishes nothing when the attempt has closed meanwhile: its entry in the progress table would stay for ever.
    fn publish_progress(&self, now: Now, progress: LeaseProgress) {
        let LeaseProgress { lease, fraction, message } = progress;
        let Some(view) = self.driver.engine().lease(now, None, lease) else { return };
        let LeaseView { job, tenant, attempt, .. } = view;
        let progress = Progress {
            job,
            tenant,
            attempt,
            stage: None,
            fraction,
            message,
            metrics: Default::default(),
            at: now.wall,
        };
        self.shared.progress.put(progress.clone());
        self.shared.events.publish_progress(progress);
    }
}
