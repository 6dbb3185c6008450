//! Which ended jobs and runs retention may forget.

use laneway_core::{DeliveryState, Name, Seq, Wall};

use super::Ledger;

impl Ledger {
    /// Ended jobs of a lane that ended before these times may be gone from now on.
    pub(super) fn may_forget_jobs(
        &mut self,
        lane: &Name,
        finished_before: Wall,
        keyed_finished_before: Wall,
    ) {
        // A run that just ended is still among the live ones until the commit is closed.
        let ended = self
            .ended
            .values_mut()
            .chain(self.jobs.values_mut())
            .filter(|entry| entry.open.is_none())
            .filter(|entry| {
                let delivery = self.deliveries.get(&entry.row.seq);
                delivery.is_none_or(|row| row.state != DeliveryState::Waiting)
            });
        // Members of runs are forgotten with their run.
        let ended = ended.filter(|entry| entry.row.spec.member.is_none());
        for entry in ended.filter(|entry| entry.row.spec.lane == *lane) {
            let keyed = entry.row.spec.idempotency.is_some();
            let limit = if keyed { keyed_finished_before.min(finished_before) } else { finished_before };
            entry.purgeable |= entry.end.as_ref().is_some_and(|end| end.finished_at < limit);
        }
    }

    /// Ended runs of a lane that ended before these times may be gone from now on, with all their jobs.
    pub(super) fn may_forget_runs(
        &mut self,
        lane: &Name,
        finished_before: Wall,
        keyed_finished_before: Wall,
    ) {
        let Ledger { runs, jobs, ended, deliveries, .. } = self;
        for run in runs.values_mut().filter(|run| run.row.spec.lane == *lane) {
            let owes = |seq: u64| {
                let delivery = deliveries.get(&Seq(seq));
                jobs.get(&Seq(seq)).is_some_and(|entry| entry.open.is_some())
                    || delivery.is_some_and(|row| row.state == DeliveryState::Waiting)
            };
            let keyed = run.row.spec.idempotency.is_some();
            let limit = if keyed { keyed_finished_before.min(finished_before) } else { finished_before };
            run.purgeable |= run.row.finished_at.is_some_and(|at| at < limit) && !run.row.seqs().any(owes);
            if !run.purgeable {
                continue;
            }
            // What just ended is still among the live ones until the commit is closed.
            for seq in run.row.seqs().map(Seq) {
                let entry = ended.get_mut(&seq).or_else(|| jobs.get_mut(&seq));
                if let Some(entry) = entry {
                    entry.purgeable = true;
                }
            }
        }
    }
}
