//! The machine as the engine sees it: readings, units in use, what was decided, and the figures for people.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Engine;
use super::needs::Room;
use super::slab::{Ix, NONE};
use crate::capacity::{BUSY_MAX, LoadReading, QuietState};
use crate::lease::{DECISIONS_MAX, Decision, DenyReason, Holder};
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{
    AttemptId, Change, Effects, EventKind, JobState, Mono, Name, Now, Reason, Reply, Seq, Span, Wall,
};

/// How long a job that was denied is not denied again in the trail for the same reason, the first time.
const DENIED_AGAIN: Span = Span::secs(5);
/// The same, at most: each time it is twice as long.
const DENIED_AGAIN_MAX: Span = Span::mins(5);

/// Units, readings and leases.
#[derive(Default)]
pub(super) struct Capacity {
    /// What the latest reading said.
    reading: Option<LoadReading>,
    /// Units that open attempts hold.
    pub(super) used: u32,
    /// Open attempts of lanes whose workers ask, by their ids.
    pub(super) leases: BTreeMap<AttemptId, Ix>,
    /// Jobs that were overtaken too often, the oldest first.
    pub(super) due: BTreeSet<(u64, Ix)>,
    /// The latest decisions, the newest last.
    decisions: VecDeque<Decision>,
    /// Of waiting jobs that were denied, for want of quiet or of units: for how long and until when it is not said again.
    denied: BTreeMap<(Ix, Want), (Span, Mono)>,
}

/// What the machine has too little of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Want {
    Quiet,
    Units,
}

/// The machine and its jobs, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacityView {
    /// The busy rating in force.
    pub busy: u8,
    /// The quiet state in force.
    pub quiet: QuietState,
    /// True while the latest reading is fresh, or nobody measures.
    pub fresh: bool,
    /// Units of the whole machine.
    pub total: u32,
    /// Units that open attempts may hold.
    pub usable: u32,
    /// Units that open attempts hold.
    pub used: u32,
    /// Of these, units of jobs that are set aside and not yet taken.
    pub reserved: u32,
    /// Units that nobody holds.
    pub free: u32,
    /// Open attempts of lanes whose workers ask.
    pub leases: u32,
    /// The job that goes next among those with a cost, because it was overtaken too often.
    pub due: Option<crate::JobId>,
    /// Units by tenant and agent, for agents that hold some.
    pub by_agent: BTreeMap<(Name, Name), u32>,
}

/// A lease, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseView {
    /// Its id.
    pub lease: AttemptId,
    /// The job.
    pub job: crate::JobId,
    /// The job's number.
    pub seq: Seq,
    /// The attempt's number.
    pub attempt: u32,
    /// Whose job it is.
    pub tenant: Name,
    /// The job's agent.
    pub agent: Name,
    /// The job's lane.
    pub lane: Name,
    /// The job's kind.
    pub kind: Name,
    /// Who holds it; `None`: it is set aside and nobody has taken it.
    pub holder: Option<Holder>,
    /// Assigned or running, or terminal for a run that outlives its job.
    pub state: JobState,
    /// Units it holds.
    pub cost: u32,
    /// When it was opened.
    pub opened_at: Wall,
    /// How long until it must be heard of.
    pub remaining: Span,
}

impl Engine {
    /// A probe says how the machine is.
    pub(super) fn take_reading(&mut self, now: Now, reading: LoadReading) -> Reply {
        let older = |known: LoadReading| reading.at < known.at;
        if !self.capacity.reading.is_some_and(older) {
            let at = reading.at.min(now.mono);
            self.capacity.reading = Some(LoadReading { busy: reading.busy.min(BUSY_MAX), at, ..reading });
        }
        Reply::Done
    }

    /// The busy rating and the quiet state in force: no fresh reading counts as a busy machine.
    pub(super) fn load(&self, now: Now) -> (u8, QuietState) {
        let settings = &self.settings.capacity;
        if !settings.measured {
            return (0, QuietState::Quiet);
        }
        match self.fresh_reading(now) {
            Some(reading) => (reading.busy, reading.quiet),
            None => (settings.failclosed_busy, QuietState::Busy),
        }
    }

    fn fresh_reading(&self, now: Now) -> Option<LoadReading> {
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::StaleReadingFailsOpen) {
            return self.capacity.reading;
        }
        let stale_after = self.settings.capacity.stale_after;
        self.capacity.reading.filter(|reading| now.mono.since(reading.at) < stale_after)
    }

    /// The latest reading; to be given again to an engine that replaces this one.
    pub fn reading(&self) -> Option<LoadReading> {
        self.capacity.reading
    }

    /// An attempt with a need opened: counts its units, and finds it by its id where a worker holds it.
    pub(super) fn take_units(&mut self, job: Ix) {
        self.capacity.used += self.cost_of(job);
        let open = &self.attempts[self.jobs[job].open];
        if open.pull {
            self.capacity.leases.insert(open.attempt_id, job);
            if self.is_aside(job) && !self.jobs[job].state.is_terminal() {
                let lane = self.nodes[self.jobs[job].node].lane as usize;
                self.lanes[lane].aside.insert((open.number, job));
            }
        }
    }

    /// The attempt closed.
    pub(super) fn free_units(&mut self, job: Ix) {
        self.capacity.used -= self.cost_of(job);
        let open = &self.attempts[self.jobs[job].open];
        let (id, number) = (open.attempt_id, open.number);
        self.capacity.leases.remove(&id);
        let lane = self.nodes[self.jobs[job].node].lane as usize;
        self.lanes[lane].aside.remove(&(number, job));
    }

    /// Remembers a decision for people.
    pub(super) fn remember_decision(&mut self, decision: Decision) {
        if self.capacity.decisions.len() == DECISIONS_MAX {
            self.capacity.decisions.pop_front();
        }
        self.capacity.decisions.push_back(decision);
    }

    /// A decision about a job.
    pub(super) fn decision_about(&self, now: Now, job: Ix, denied: Option<DenyReason>) -> Decision {
        let entry = &self.jobs[job];
        let (lane, tenant, agent) = self.nodes.key(entry.node);
        let open = (entry.open != NONE).then(|| &self.attempts[entry.open]);
        let worker = open.and_then(|open| self.holder_of(open)).map(|holder| holder.worker);
        Decision {
            at: now.wall,
            tenant: self.tenants.key(*tenant).clone(),
            agent: Some(agent.clone()),
            lane: self.lanes[*lane as usize].name.clone(),
            job: Some(entry.id),
            worker,
            cost: self.cost_of(job),
            denied,
        }
    }

    /// Says in the trail that a waiting job is denied, unless that was said a short while ago.
    pub(super) fn deny(&mut self, now: Now, job: Ix, room: &Room, effects: &mut Effects) {
        let Some(need) = self.need_of_job(job) else { return };
        let Some(reason) = self.denial(need, room) else { return };
        let want = if room.is_quiet_for(need) { Want::Units } else { Want::Quiet };
        let wait = match self.capacity.denied.get(&(job, want)) {
            Some((_, until)) if *until > now.mono => return,
            Some((wait, _)) => Span((wait.0 * 2).min(DENIED_AGAIN_MAX.0)),
            None => DENIED_AGAIN,
        };
        self.capacity.denied.insert((job, want), (wait, now.mono + wait));
        self.job_event(now, EventKind::JobDenied, job, Some(Reason::Capacity), None, effects);
        if let Some(event) = effects.events.last_mut() {
            event.detail = Some(self.denial_text(need, room, &reason));
        }
        let status = self.status_of(job, None);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq), status });
        let decision = self.decision_about(now, job, Some(reason));
        self.remember_decision(decision);
    }

    fn denial_text(&self, need: super::state::Need, room: &Room, reason: &DenyReason) -> Box<str> {
        let Room { busy, quiet, usable, free, .. } = room;
        let (word, cost, used) = (reason.word(), need.cost, self.capacity.used);
        let quiet = quiet.word();
        format!("{word}: needs {cost} of {free} free units ({used} of {usable} in use), busy {busy}, {quiet}")
            .into()
    }

    /// The job no longer waits.
    pub(super) fn forget_denied(&mut self, job: Ix) {
        if !self.capacity.denied.is_empty() {
            self.capacity.denied.remove(&(job, Want::Quiet));
            self.capacity.denied.remove(&(job, Want::Units));
        }
    }

    /// Why the machine does not take a job of this need now.
    pub(super) fn denial(&self, need: super::state::Need, room: &Room) -> Option<DenyReason> {
        if !room.is_quiet_for(need) {
            return Some(match room.quiet {
                QuietState::Panic => DenyReason::Panic,
                state => DenyReason::NotQuiet { state },
            });
        }
        if room.has_units_for(need.cost) {
            return None;
        }
        let (usable, used, free) = (room.usable, self.capacity.used, room.free);
        Some(match free {
            0 => DenyReason::NoCapacity { busy: room.busy, usable, used },
            _ if need.cost <= free => DenyReason::Reserved,
            free => DenyReason::NeedsMore { needed: need.cost, free },
        })
    }

    /// The machine and its jobs, for people.
    pub fn capacity(&self, now: Now) -> CapacityView {
        let (busy, quiet) = self.load(now);
        let usable = self.settings.capacity.usable(busy);
        let used = self.capacity.used;
        let mut view = CapacityView {
            busy,
            quiet,
            fresh: !self.settings.capacity.measured || self.fresh_reading(now).is_some(),
            total: self.settings.capacity.total,
            usable,
            used,
            reserved: 0,
            free: usable.saturating_sub(used),
            leases: u32::try_from(self.capacity.leases.len()).unwrap_or(u32::MAX),
            due: self.capacity.due.first().map(|&(_, job)| self.jobs[job].id),
            by_agent: BTreeMap::new(),
        };
        for (_, open) in self.attempts.iter() {
            let cost = self.cost_of(open.job);
            if cost == 0 {
                continue;
            }
            if open.started_at.is_none() && open.worker == NONE {
                view.reserved += cost;
            }
            let (_, tenant, agent) = self.nodes.key(self.jobs[open.job].node);
            *view.by_agent.entry((self.tenants.key(*tenant).clone(), agent.clone())).or_default() += cost;
        }
        view
    }

    /// Open attempts of lanes whose workers ask, by id; of one tenant, or of all.
    pub fn leases(&self, now: Now, tenant: Option<&Name>) -> Vec<LeaseView> {
        let views = self.capacity.leases.values().map(|&job| self.lease_view(now, job));
        views.filter(|view| tenant.is_none_or(|tenant| *tenant == view.tenant)).collect()
    }

    /// The lease of this id.
    pub fn lease(&self, now: Now, tenant: Option<&Name>, lease: AttemptId) -> Option<LeaseView> {
        let view = self.lease_view(now, *self.capacity.leases.get(&lease)?);
        tenant.is_none_or(|tenant| *tenant == view.tenant).then_some(view)
    }

    fn lease_view(&self, now: Now, job: Ix) -> LeaseView {
        let entry = &self.jobs[job];
        let open = &self.attempts[entry.open];
        let (lane, tenant, agent) = self.nodes.key(entry.node);
        LeaseView {
            lease: open.attempt_id,
            job: entry.id,
            seq: Seq(entry.seq),
            attempt: entry.attempts,
            tenant: self.tenants.key(*tenant).clone(),
            agent: agent.clone(),
            lane: self.lanes[*lane as usize].name.clone(),
            kind: self.kinds.key(self.classes[entry.class].kind).clone(),
            holder: self.holder_of(open),
            state: entry.state,
            cost: self.cost_of(job),
            opened_at: open.opened_at,
            remaining: open.lease_until.map_or(Span(0), |until| until.since(now.mono)),
        }
    }

    /// The latest decisions about jobs with needs, the newest first; of one tenant, or of all.
    pub fn decisions(&self, tenant: Option<&Name>) -> impl Iterator<Item = &Decision> {
        let tenant = tenant.cloned();
        let shown =
            move |decision: &&Decision| tenant.as_ref().is_none_or(|tenant| *tenant == decision.tenant);
        self.capacity.decisions.iter().rev().filter(shown)
    }
}
