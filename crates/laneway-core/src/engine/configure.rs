//! Settings that change while jobs wait and run, and executors that come and go.
//!
//! A lower limit starts nothing new and stops nothing that runs; a higher one is used in the same command.

use crate::engine::Engine;
use crate::engine::jobs::submit::reject;
use crate::engine::leases::by_id::LEASES;
use crate::engine::workers::messages::WORKERS;
use crate::{
    Bytes, Change, Effects, EventKind, ExecutorOffer, Name, Now, Origin, RejectionCode, Reply, Settings,
};

impl Engine {
    /// Replaces all settings at once.
    pub(in crate::engine) fn configure(
        &mut self,
        now: Now,
        settings: Settings,
        overrides: Option<Bytes>,
        detail: Box<str>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let agents_changed = self.settings.agents != settings.agents;
        self.settings = settings;
        let lanes_changed = self.apply_lanes();
        if agents_changed {
            self.queue.apply_weights(&self.workers, &self.settings);
        }
        self.apply_limits();
        self.recount_shares();
        if lanes_changed {
            self.workers.lanes_changed(&self.settings, &mut self.queue);
        }
        self.numbers.server_event(now, EventKind::ConfigChanged, None, Some(origin), detail, effects);
        if let Some(bytes) = overrides {
            effects.changes.push(Change::OverridesPut(bytes));
        }
        Reply::Done
    }

    /// Brings the lanes in line with the settings. True when other lanes have a name than before.
    fn apply_lanes(&mut self) -> bool {
        let changes = self.queue.apply_lanes(&self.settings);
        for (lane, was) in changes.changed {
            let settings = self.queue.lane(lane).settings();
            let pull_changed = was.pull.is_pull() != settings.pull.is_pull();
            if was.order != settings.order
                || was.aging_step != settings.aging_step
                || was.running_per_agent_max != settings.running_per_agent_max
            {
                self.replant_lane(lane, &was);
            }
            // Only now: a job is found in its bin by the order of the lane.
            if pull_changed {
                self.change_demands_in(lane);
            }
        }
        changes.renamed
    }

    /// Brings every gate in line with the settings and shows or hides what hangs on it.
    fn apply_limits(&mut self) {
        for kind in self.queue.apply_kinds(&self.settings) {
            self.queue.regroup_kind(&mut self.workers, kind);
        }
        self.queue.apply_limits(&self.workers, &self.settings);
    }

    /// An executor appears or changes its offer.
    pub(in crate::engine) fn offer_executor(&mut self, offer: ExecutorOffer) -> Reply {
        let ExecutorOffer { executor: name, mode, kinds, slots } = offer;
        if let Some(kind) = self.queue.offered_by_another(&name, &kinds) {
            let message = format!(
                "kinds: another executor offers {:?} already; a kind runs on one executor",
                kind.as_str()
            );
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        let executor = self.queue.put_executor(&name, mode, slots);
        let (before, offered) = self.queue.set_kinds_of(executor, &self.settings, &kinds);
        for &kind in before.union(&offered) {
            self.queue.regroup_kind(&mut self.workers, kind);
            self.queue.reshow_kind(&self.workers, kind);
        }
        if !before.is_subset(&offered) {
            self.clear_shared_classes(executor);
        }
        self.queue.reshow_executor(&self.workers, executor);
        for kind in before {
            self.queue.release_kind(kind);
        }
        Reply::Done
    }

    /// An executor is gone. Its open attempts end by their own leases or runners.
    pub(in crate::engine) fn withdraw_executor(&mut self, name: &Name) -> Reply {
        let Some(executor) = self.queue.find_executor(name) else { return Reply::NotFound };
        let (mode, slots) = self.queue.mode_and_slots(executor);
        let reply =
            self.offer_executor(ExecutorOffer { executor: name.clone(), mode, kinds: Vec::new(), slots });
        self.queue.forget_executor(executor);
        reply
    }

    /// What the executors offer now; to be given again to an engine that replaces this one.
    pub fn offers(&self) -> Vec<ExecutorOffer> {
        let offers = self.queue.offers();
        offers.filter(|offer| !matches!(offer.executor.as_str(), LEASES | WORKERS)).collect()
    }
}
