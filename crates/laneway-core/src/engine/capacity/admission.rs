//! What jobs ask of the machine: units, and a quiet enough state of it. Who has room, and who was overtaken too often.
//!
//! Heads of jobs with a demand stand in their lane by that demand (`Lane::by_demand`), so a reading of the machine, a start and an
//! end move nothing: whether a demand has room is looked at when the next job is looked for. There are few different demands,
//! whatever clients ask for: a hundred costs, three rules and two flags.
//!
//! A big job must not wait for ever behind small ones. Each start of a job with a cost overtakes the older jobs that only
//! others' units hold back: of every lane, the first job of every demand. A job that was bypassed `bypasses_max` times is due: no
//! other job with a cost starts until it has. In a lane whose jobs wait to be claimed only claims of that lane overtake, and
//! a due job has its chance when its units are free: nobody may come for it, and others must not wait for that.

use crate::capacity::QuietState;
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::submit::Belongs;
use crate::engine::queue::{Demand, Lane};
use crate::lease::Dispatch;
use crate::{Effects, Now};

/// How much room the machine has for one decision.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Room {
    pub(in crate::engine) busy: u8,
    pub(in crate::engine) quiet: QuietState,
    /// Units that open attempts may hold.
    pub(in crate::engine) usable: u32,
    /// Units that nobody holds.
    pub(in crate::engine) free: u32,
    /// The oldest job that is due and that nothing but units holds back, with its cost.
    pub(in crate::engine) due: Option<(Ix<Job>, u32)>,
}

impl Room {
    /// May a job with this demand start, as far as the machine is concerned?
    pub(in crate::engine) fn takes(&self, demand: Demand) -> bool {
        self.is_quiet_for(demand) && self.has_units_for(demand.cost())
    }

    pub(in crate::engine) fn is_quiet_for(&self, demand: Demand) -> bool {
        demand.rule().is_none_or(|rule| rule.allows(self.quiet))
    }

    pub(in crate::engine) fn has_units_for(&self, cost: u32) -> bool {
        cost == 0 || (cost <= self.free && self.due.is_none())
    }
}

impl Engine {
    /// A job asks for something else from now on. What it costs never changes.
    pub(in crate::engine) fn change_demand(&mut self, job: Ix<Job>, demand: Option<Demand>) {
        let waits = self.jobs[job].bin().is_some();
        if waits {
            self.dequeue(job);
        }
        let old = self.jobs[job].class();
        let (tenant, kind) = (self.queue.class(old).tenant(), self.queue.class(old).own_kind());
        let placement = self.placement_of(old).cloned();
        let names = (self.queue.tenant_name(tenant).clone(), self.queue.kind_name(kind).clone());
        let node = self.jobs[job].agent_queue();
        let belongs = Belongs {
            lane: self.queue.agent_queue(node).lane(),
            agent_queue: Some(node),
            tenant: Some(tenant),
            kind: Some(kind),
        };
        let class = self.hold_class(belongs, &names.0, &names.1, placement, demand);
        self.jobs[job].set_class(class);
        self.release_class(old);
        if waits {
            self.enqueue(job);
        }
    }

    /// Workers ask for the jobs of a lane from now on, or no longer do.
    pub(in crate::engine) fn change_demands_in(&mut self, lane: Ix<Lane>) {
        let pull = self.queue.lane(lane).settings().pull.is_pull();
        let jobs: Vec<Ix<Job>> = self
            .jobs
            .iter()
            .filter(|(_, job)| self.queue.agent_queue(job.agent_queue()).lane() == lane)
            .map(|(ix, _)| ix)
            .collect();
        for job in jobs {
            let was = self.queue.demand_of(&self.jobs[job]);
            let demand = Demand::moved(was, pull, self.jobs[job].unique());
            self.change_demand(job, demand);
        }
    }

    /// How much room the machine has now.
    pub(in crate::engine) fn room(&mut self, now: Now) -> Room {
        let mut room = self.room_at_first_sight(now);
        while let Some((job, cost)) = self.first_due(now, &room) {
            if cost > room.free || !self.waits_for_a_claim(job) {
                room.due = Some((job, cost));
                break;
            }
            // Its units are free, and whoever comes for it may have it.
            self.forget_bypassed(job);
        }
        room
    }

    /// The same, before it is seen whether a job is due.
    pub(in crate::engine) fn room_at_first_sight(&self, now: Now) -> Room {
        let (busy, quiet) = self.load(now);
        let usable = self.settings.capacity.usable(busy);
        Room { busy, quiet, usable, free: usable.saturating_sub(self.capacity.used), due: None }
    }

    /// The oldest due job that nothing but units holds back.
    pub(in crate::engine) fn first_due(&self, now: Now, room: &Room) -> Option<(Ix<Job>, u32)> {
        if self.capacity.due.is_empty() {
            return None;
        }
        let due = self.capacity.due.iter().map(|&(_, job)| (job, self.queue.cost_of(&self.jobs[job])));
        let mut due =
            due.filter(|&(job, cost)| cost <= room.usable && self.is_open_but_for_units(now, job, room));
        due.next()
    }

    pub(in crate::engine) fn waits_for_a_claim(&self, job: Ix<Job>) -> bool {
        let lane = self.queue.lane_of(&self.jobs[job]);
        self.queue.lane(lane).settings().pull.dispatch == Dispatch::Claim
    }

    /// True when every gate of a waiting job is open, units left out.
    pub(in crate::engine) fn is_open_but_for_units(&self, now: Now, job: Ix<Job>, room: &Room) -> bool {
        let entry = &self.jobs[job];
        let Some(bin) = entry.bin().filter(|_| !self.jobs[job].is_overdue(now)) else { return false };
        let is_first = self.queue.first_in_bin(bin).is_some_and(|(_, head)| head == job);
        let in_turn = entry.session().is_none() || is_first;
        let node = self.queue.agent_queue(entry.agent_queue());
        let lane = self.queue.lane(node.lane());
        in_turn
            && self.queue.bin_hangs(bin)
            && self.queue.open() < self.settings.running_max
            && !lane.settings().paused
            && lane.open() < lane.settings().running_max
            && node.open() < lane.settings().running_per_agent_max
            && self.queue.class_is_open(&self.workers, entry.class())
            && self.queue.first_closed_key(&self.jobs[job]).is_none()
            && !(self.goes_to_workers(entry.class()) && self.told_worker(job).is_none())
            && self.queue.demand_of(&self.jobs[job]).is_none_or(|demand| room.is_quiet_for(demand))
    }

    /// A job with a cost is about to start: counts which jobs it bypasses.
    pub(in crate::engine) fn note_bypassed(&mut self, now: Now, starter: Ix<Job>) {
        let room = self.room(now);
        let (seq, home) = (self.jobs[starter].seq(), self.queue.lane_of(&self.jobs[starter]));
        for lane in self.queue.lanes() {
            let entry = self.queue.lane(lane);
            let others = entry.settings().pull.dispatch == Dispatch::Claim && lane != home;
            if others || entry.settings().paused || entry.open() >= entry.settings().running_max {
                continue;
            }
            let blocked = |demand: Demand| {
                demand.cost() > room.free && demand.cost() <= room.usable && room.is_quiet_for(demand)
            };
            for demand in self.queue.demands_in(lane, blocked) {
                if let Some(job) = self.first_of_demand(lane, demand)
                    && self.jobs[job].seq() < seq
                    && !self.jobs[job].is_overdue(now)
                {
                    self.bypass(job);
                }
            }
        }
    }

    fn bypass(&mut self, job: Ix<Job>) {
        if self.jobs[job].bypass() >= self.settings.capacity.bypasses_max {
            self.capacity.due.insert((self.jobs[job].seq(), job));
        }
    }

    /// The job has started, has ended, or had its chance.
    pub(in crate::engine) fn forget_bypassed(&mut self, job: Ix<Job>) {
        if self.jobs[job].clear_bypassed() {
            self.capacity.due.remove(&(self.jobs[job].seq(), job));
        }
    }

    /// The first job of a lane with this demand that no key holds back. Bins that met a closed key are hung there.
    pub(in crate::engine) fn first_of_demand(
        &mut self,
        lane: Ix<Lane>,
        demand: Ix<Demand>,
    ) -> Option<Ix<Job>> {
        loop {
            let head = self.queue.first_with_demand(lane, demand)?;
            let (bin, job) = self.queue.head_of(head);
            if self.is_clear(bin, job) {
                return Some(job);
            }
        }
    }

    /// Says in the event log why the first jobs of each demand do not start, now and then.
    pub(in crate::engine) fn note_denied(&mut self, now: Now, effects: &mut Effects) {
        let room = self.room(now);
        for lane in self.queue.lanes() {
            let entry = self.queue.lane(lane);
            let settings = entry.settings();
            if settings.paused
                || entry.open() >= settings.running_max
                || settings.pull.dispatch == Dispatch::Claim
            {
                continue;
            }
            for demand in self.queue.demands_in(lane, |demand| !room.takes(demand)) {
                if let Some(job) = self.first_of_demand(lane, demand) {
                    self.deny(now, job, &room, effects);
                }
            }
        }
    }
}
