//! Admission by capacity: jobs ask for units and for a quiet machine, and jobs that were bypassed too often are next in line.
//!
//! Heads of jobs with a demand are listed in their lane by that demand (`Lane::by_demand`), so a reading of the machine, a
//! start and an end move nothing: whether there is capacity for a demand is computed when the next job is looked for. There
//! are few different demands, whatever clients ask for: a hundred costs, three rules and two flags.
//!
//! A big job must not wait forever behind small ones. Each start of a job with a cost bypasses the older jobs that only
//! the units of others block: of every lane, the first job of every demand. A job that was bypassed `bypasses_max` times is
//! next in line: no other job with a cost starts until it has. In a lane whose jobs wait for a claim only claims of that
//! lane bypass, and a job that is next in line has its chance when its units are free: no worker may come for it, and others
//! must not wait for that.

use crate::engine::Engine;
use crate::engine::capacity::{Capacity, FreeCapacity};
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::Belongs;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::{ClassWanted, Demand, Lane};
use crate::lease::Dispatch;
use crate::{Effects, Now};

impl Capacity {
    /// A younger job started while only the units of others block this one.
    fn bypass(&mut self, entry: &mut Job, job: Ix<Job>, bypasses_max: u8) {
        if entry.bypass() >= bypasses_max {
            self.next_in_line.insert((entry.seq(), job));
        }
    }

    /// The job has started, has ended, or had its chance.
    pub(in crate::engine) fn forget_bypassed(&mut self, jobs: &mut Jobs, job: Ix<Job>) {
        if jobs[job].clear_bypassed() {
            self.next_in_line.remove(&(jobs[job].seq(), job));
        }
    }

    /// True for a job that is next in line because it was bypassed too often.
    pub(in crate::engine) fn is_next_in_line(&self, seq: u64, job: Ix<Job>) -> bool {
        self.next_in_line.contains(&(seq, job))
    }
}

impl Engine {
    /// Changes the demand of a job. Its cost never changes.
    pub(in crate::engine) fn change_demand(&mut self, job: Ix<Job>, demand: Option<Demand>) {
        let waits = self.jobs[job].bin().is_some();
        if waits {
            self.dequeue(job);
        }
        let old = self.jobs[job].class();
        let (tenant, kind) = (self.queue.class(old).tenant(), self.queue.class(old).own_kind());
        let placement = self.workers.placement_of(&self.queue, old).cloned();
        let names = (self.queue.tenant_name(tenant).clone(), self.queue.kind_name(kind).clone());
        let belongs = Belongs {
            lane: self.queue.lane_of(&self.jobs[job]),
            agent_queue: Some(self.jobs[job].agent_queue()),
            tenant: Some(tenant),
            kind: Some(kind),
        };
        let wanted = ClassWanted { tenant: &names.0, kind: &names.1, placement, demand };
        let class = self.queue.hold_class(&mut self.workers, &self.settings, belongs, wanted);
        self.jobs[job].set_class(class);
        self.queue.release_class(&mut self.workers, old);
        if waits {
            self.enqueue(job);
        }
    }

    /// Pull workers claim the jobs of a lane from now on, or no longer do.
    pub(in crate::engine) fn change_demands_in(&mut self, lane: Ix<Lane>) {
        let pull = self.queue.lane(lane).settings().pull.is_pull();
        let jobs: Vec<Ix<Job>> =
            self.jobs.iter().filter(|(_, job)| self.queue.lane_of(job) == lane).map(|(ix, _)| ix).collect();
        for job in jobs {
            let was = self.queue.demand_of(&self.jobs[job]);
            let demand = Demand::moved(was, pull, self.jobs[job].unique());
            self.change_demand(job, demand);
        }
    }

    /// The free capacity of the machine now.
    pub(in crate::engine) fn free_capacity(&mut self, now: Now) -> FreeCapacity {
        let capacity = self.capacity.free(now, &self.settings.capacity);
        while let Some((job, cost)) = self.first_in_line(now, &capacity) {
            if cost > capacity.units() || !self.queue.waits_for_claim(&self.jobs[job]) {
                return capacity.reserved_for((job, cost));
            }
            // Its units are free, and the next worker that claims it gets it.
            self.capacity.forget_bypassed(&mut self.jobs, job);
        }
        capacity
    }

    /// The oldest job that is next in line and that only units block.
    pub(in crate::engine) fn first_in_line(
        &self,
        now: Now,
        capacity: &FreeCapacity,
    ) -> Option<(Ix<Job>, u32)> {
        if self.capacity.next_in_line.is_empty() {
            return None;
        }
        let jobs =
            self.capacity.next_in_line.iter().map(|&(_, job)| (job, self.queue.cost_of(&self.jobs[job])));
        let mut jobs = jobs.filter(|&(job, cost)| {
            cost <= capacity.usable() && self.is_open_but_for_units(now, job, capacity)
        });
        jobs.next()
    }

    /// True when every gate of a waiting job is open, units left out.
    pub(in crate::engine) fn is_open_but_for_units(
        &self,
        now: Now,
        job: Ix<Job>,
        capacity: &FreeCapacity,
    ) -> bool {
        let entry = &self.jobs[job];
        let Some(bin) = entry.bin().filter(|_| !entry.is_overdue(now)) else { return false };
        let is_first = self.queue.first_in_bin(bin).is_some_and(|(_, head)| head == job);
        let is_head = entry.session().is_none() || is_first;
        let agent_queue = self.queue.agent_queue(entry.agent_queue());
        let lane = self.queue.lane(agent_queue.lane());
        is_head
            && self.queue.bin_hangs(bin)
            && self.queue.open() < self.settings.running_max
            && !lane.settings().paused
            && lane.open() < lane.settings().running_max
            && agent_queue.open() < lane.settings().running_per_agent_max
            && self.queue.class_is_open(&self.workers, entry.class())
            && self.queue.first_closed_key(entry).is_none()
            && !(self.queue.goes_to_workers(entry.class()) && self.picked_worker(job).is_none())
            && self.queue.demand_of(entry).is_none_or(|demand| capacity.is_quiet_for(demand))
    }

    /// A job with a cost is about to start: counts which jobs it bypasses.
    pub(in crate::engine) fn note_bypassed(&mut self, now: Now, starter: Ix<Job>) {
        let capacity = self.free_capacity(now);
        let (seq, home) = (self.jobs[starter].seq(), self.queue.lane_of(&self.jobs[starter]));
        for lane in self.queue.lanes() {
            let entry = self.queue.lane(lane);
            let others = entry.settings().pull.dispatch == Dispatch::Claim && lane != home;
            if others || entry.settings().paused || entry.open() >= entry.settings().running_max {
                continue;
            }
            let blocked = |demand| capacity.lacks_only_units_for(demand);
            for demand in self.queue.demands_in(lane, blocked) {
                if let Some(job) = self.first_of_demand(lane, demand)
                    && self.jobs[job].seq() < seq
                    && !self.jobs[job].is_overdue(now)
                {
                    self.capacity.bypass(&mut self.jobs[job], job, self.settings.capacity.bypasses_max);
                }
            }
        }
    }

    /// An attempt with a demand opened: counts its units, and lists it by its id where a pull worker holds it.
    pub(in crate::engine) fn take_units(&mut self, job: Ix<Job>) {
        self.capacity.take(self.queue.cost_of(&self.jobs[job]));
        let open = self.jobs.open(job);
        if open.pull() {
            self.leases.insert(open.attempt_id(), job);
            if self.jobs.is_reserved(job) && !self.jobs[job].state().is_terminal() {
                self.queue.reserve(job, &self.jobs[job], open.number());
            }
        }
    }

    /// The attempt closed.
    pub(in crate::engine) fn free_units(&mut self, job: Ix<Job>) {
        self.capacity.give_back(self.queue.cost_of(&self.jobs[job]));
        let open = self.jobs.open(job);
        self.leases.remove(open.attempt_id());
        self.queue.unreserve(job, &self.jobs[job], open.number());
    }

    /// The first job of a lane with this demand that no key blocks. Moves bins that met a closed key to that key.
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

    /// Adds events, now and then, about why the first jobs of each demand do not start.
    pub(in crate::engine) fn note_denied(&mut self, now: Now, effects: &mut Effects) {
        let capacity = self.free_capacity(now);
        for lane in self.queue.lanes() {
            let entry = self.queue.lane(lane);
            let settings = &entry.settings();
            if settings.paused
                || entry.open() >= settings.running_max
                || settings.pull.dispatch == Dispatch::Claim
            {
                continue;
            }
            for demand in self.queue.demands_in(lane, |demand| !capacity.fits(demand)) {
                if let Some(job) = self.first_of_demand(lane, demand) {
                    self.deny(now, job, &capacity, effects);
                }
            }
        }
    }
}
