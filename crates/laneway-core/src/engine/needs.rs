//! What jobs ask of the machine: units, and a quiet enough state of it. Who has room, and who was overtaken too often.
//!
//! Heads of jobs with a need stand in their lane by that need (`Lane::needy`), so a reading of the machine, a start and an
//! end move nothing: whether a need has room is looked at when the next job is looked for. There are few different needs,
//! whatever clients ask for: a hundred costs, three rules and two flags.
//!
//! A big job must not wait for ever behind small ones. Each start of a job with a cost overtakes the older jobs that only
//! others' units hold back: of every lane, the first job of every need. Who was overtaken `overtakes_max` times is due: no
//! other job with a cost starts until it has. In a lane whose jobs wait to be claimed only claims of that lane overtake, and
//! a due job has its chance when its units are free: nobody may come for it, and others must not wait for that.

use super::Engine;
use super::slab::{Ix, NONE};
use super::state::Need;
use super::submit::Belongs;
use crate::capacity::{Needs, QuietRule, QuietState};
use crate::lease::Dispatch;
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{Effects, LaneSettings, Now};

/// How much room the machine has for one decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) busy: u8,
    pub(super) quiet: QuietState,
    /// Units that open attempts may hold.
    pub(super) usable: u32,
    /// Units that nobody holds.
    pub(super) free: u32,
    /// The oldest job that is due and that nothing but units holds back, with its cost.
    pub(super) due: Option<(Ix, u32)>,
}

impl Room {
    /// May a job with this need start, as far as the machine is concerned?
    pub(super) fn takes(&self, need: Need) -> bool {
        self.is_quiet_for(need) && self.has_units_for(need.cost)
    }

    pub(super) fn is_quiet_for(&self, need: Need) -> bool {
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::PanicLetsHighPass) && need.rule == Some(QuietRule::Busy) {
            return true;
        }
        need.rule.is_none_or(|rule| rule.allows(self.quiet))
    }

    pub(super) fn has_units_for(&self, cost: u32) -> bool {
        cost == 0 || (cost <= self.free && self.due.is_none())
    }
}

impl Engine {
    /// What a job of these needs asks for in this lane. `None`: nothing.
    pub(super) fn need_of(needs: &Needs, near: bool, lane: &LaneSettings) -> Option<Need> {
        let pull = lane.pull.is_pull();
        let rule = match needs.quiet {
            Some(QuietRule::Quiet) if near => Some(QuietRule::Normal),
            rule => rule,
        };
        let need = Need { cost: needs.cost, rule, pull, unique: pull && needs.unique };
        (need.cost > 0 || need.rule.is_some() || pull).then_some(need)
    }

    pub(super) fn hold_need(&mut self, need: Option<Need>) -> Ix {
        need.map_or(NONE, |need| self.needs.hold(&need, || ()))
    }

    pub(super) fn release_need(&mut self, need: Ix) {
        if need != NONE {
            self.needs.release(need);
        }
    }

    pub(super) fn is_pull(&self, need: Ix) -> bool {
        need != NONE && self.needs.key(need).pull
    }

    /// What a job asks for now.
    pub(super) fn need_of_job(&self, job: Ix) -> Option<Need> {
        match self.classes[self.jobs[job].class].need {
            NONE => None,
            need => Some(*self.needs.key(need)),
        }
    }

    pub(super) fn cost_of(&self, job: Ix) -> u32 {
        self.need_of_job(job).map_or(0, |need| need.cost)
    }

    /// A job asks for something else from now on. What it costs never changes.
    pub(super) fn change_need(&mut self, job: Ix, need: Option<Need>) {
        let waits = self.jobs[job].bin != NONE;
        if waits {
            self.dequeue(job);
        }
        let old = self.jobs[job].class;
        let (tenant, kind) = (self.classes[old].tenant, self.classes[old].kind);
        let want = self.want_of(old).cloned();
        let names = (self.tenants.key(tenant).clone(), self.kinds.key(kind).clone());
        let node = self.jobs[job].node;
        let belongs = Belongs { lane: self.nodes[node].lane, node, tenant, kind };
        self.jobs[job].class = self.hold_class(belongs, &names.0, &names.1, want, need);
        self.release_class(old);
        if waits {
            self.enqueue(job);
        }
    }

    /// Workers ask for the jobs of a lane from now on, or no longer do.
    pub(super) fn change_needs_in(&mut self, lane: Ix) {
        let pull = self.lanes[lane as usize].settings.pull.is_pull();
        let jobs: Vec<Ix> =
            self.jobs.iter().filter(|(_, job)| self.nodes[job.node].lane == lane).map(|(ix, _)| ix).collect();
        for job in jobs {
            let was = self.need_of_job(job);
            let (cost, rule) = was.map_or((0, None), |need| (need.cost, need.rule));
            let unique = pull && self.jobs[job].unique;
            let need = (cost > 0 || rule.is_some() || pull).then_some(Need { cost, rule, pull, unique });
            self.change_need(job, need);
        }
    }

    /// How much room the machine has now.
    pub(super) fn room(&mut self, now: Now) -> Room {
        let mut room = self.room_at_first_sight(now);
        while let Some((job, cost)) = self.first_due(now, &room) {
            if cost > room.free || !self.waits_for_a_claim(job) {
                room.due = Some((job, cost));
                break;
            }
            // Its units are free, and whoever comes for it may have it.
            self.forget_overtaken(job);
        }
        room
    }

    /// The same, before it is seen whether a job is due.
    pub(super) fn room_at_first_sight(&self, now: Now) -> Room {
        let (busy, quiet) = self.load(now);
        let usable = self.settings.capacity.usable(busy);
        Room { busy, quiet, usable, free: usable.saturating_sub(self.capacity.used), due: None }
    }

    /// The oldest due job that nothing but units holds back.
    pub(super) fn first_due(&self, now: Now, room: &Room) -> Option<(Ix, u32)> {
        if self.capacity.due.is_empty() {
            return None;
        }
        let due = self.capacity.due.iter().map(|&(_, job)| (job, self.cost_of(job)));
        let mut due =
            due.filter(|&(job, cost)| cost <= room.usable && self.is_open_but_for_units(now, job, room));
        due.next()
    }

    pub(super) fn waits_for_a_claim(&self, job: Ix) -> bool {
        let lane = self.nodes[self.jobs[job].node].lane;
        self.lanes[lane as usize].settings.pull.dispatch == Dispatch::Claim
    }

    /// True when every gate of a waiting job is open, units left out.
    pub(super) fn is_open_but_for_units(&self, now: Now, job: Ix, room: &Room) -> bool {
        let entry = &self.jobs[job];
        if entry.bin == NONE || self.is_overdue(now, job) {
            return false;
        }
        let bin = &self.bins[entry.bin];
        let in_turn = entry.session == NONE || bin.jobs.first().is_some_and(|(_, head)| head == job);
        let node = &self.nodes[entry.node];
        let lane = &self.lanes[node.lane as usize];
        in_turn
            && bin.at.is_some()
            && self.open < self.settings.running_max
            && !lane.settings.paused
            && lane.open < lane.settings.running_max
            && node.open < lane.settings.running_per_agent_max
            && self.class_is_open(entry.class)
            && self.first_closed_key(job).is_none()
            && !(self.goes_to_workers(entry.class) && self.told_worker(job).is_none())
            && self.need_of_job(job).is_none_or(|need| room.is_quiet_for(need))
    }

    /// A job with a cost is about to start: counts whom it overtakes.
    pub(super) fn note_overtaken(&mut self, now: Now, starter: Ix) {
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::BigJobStarves) {
            return;
        }
        let room = self.room(now);
        let (seq, home) = (self.jobs[starter].seq, self.nodes[self.jobs[starter].node].lane);
        for lane in 0..self.lanes.len() {
            let entry = &self.lanes[lane];
            let others = entry.settings.pull.dispatch == Dispatch::Claim && lane != home as usize;
            if others || entry.settings.paused || entry.open >= entry.settings.running_max {
                continue;
            }
            let held =
                |need: &Need| need.cost > room.free && need.cost <= room.usable && room.is_quiet_for(*need);
            let needs: Vec<Ix> =
                entry.needy.keys().copied().filter(|&need| held(self.needs.key(need))).collect();
            for need in needs {
                if let Some(job) = self.first_of_need(lane, need)
                    && self.jobs[job].seq < seq
                    && !self.is_overdue(now, job)
                {
                    self.overtake(job);
                }
            }
        }
    }

    fn overtake(&mut self, job: Ix) {
        let entry = &mut self.jobs[job];
        entry.overtaken = entry.overtaken.saturating_add(1);
        if entry.overtaken >= self.settings.capacity.overtakes_max {
            self.capacity.due.insert((entry.seq, job));
        }
    }

    /// The job has started, has ended, or had its chance.
    pub(super) fn forget_overtaken(&mut self, job: Ix) {
        let entry = &mut self.jobs[job];
        if entry.overtaken > 0 {
            entry.overtaken = 0;
            self.capacity.due.remove(&(entry.seq, job));
        }
    }

    /// The first job of a lane with this need that no key holds back. Bins that met a closed key are hung there.
    pub(super) fn first_of_need(&mut self, lane: usize, need: Ix) -> Option<Ix> {
        loop {
            let &(_, node, source) = self.lanes[lane].needy.get(&need)?.first()?;
            let (bin, job) = self.head_of(node, source);
            if self.is_clear(bin, job) {
                return Some(job);
            }
        }
    }

    /// Says in the trail why the first jobs of each need do not start, now and then.
    pub(super) fn note_denied(&mut self, now: Now, effects: &mut Effects) {
        let room = self.room(now);
        for lane in 0..self.lanes.len() {
            let entry = &self.lanes[lane];
            let settings = &entry.settings;
            if settings.paused
                || entry.open >= settings.running_max
                || settings.pull.dispatch == Dispatch::Claim
            {
                continue;
            }
            let closed = |need: Ix| !room.takes(*self.needs.key(need));
            let needs: Vec<Ix> = entry.needy.keys().copied().filter(|&need| closed(need)).collect();
            for need in needs {
                if let Some(job) = self.first_of_need(lane, need) {
                    self.deny(now, job, &room, effects);
                }
            }
        }
    }
}
