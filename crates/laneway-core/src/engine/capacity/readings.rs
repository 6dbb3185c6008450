//! The machine as the engine sees it: readings, units in use, what was decided, and the figures for people.

use crate::engine::jobs::Job;
use crate::engine::jobs::record::JobEvent;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::capacity::{BUSY_MAX, LoadReading, QuietState};
use crate::engine::Engine;
use crate::engine::capacity::admission::Room;
use crate::engine::collections::slab::Ix;
use crate::lease::{DECISIONS_MAX, Decision, DenyReason, Holder};
use crate::{
    AttemptId, Change, Effects, EventKind, JobState, JobStatus, Mono, Name, Now, Reason, Reply, Seq, Span,
    Wall,
};

/// How long a job that was denied is not denied again in the event log for the same reason, the first time.
const DENIED_AGAIN: Span = Span::secs(5);
/// The same, at most: each time it is twice as long.
const DENIED_AGAIN_MAX: Span = Span::mins(5);

/// Units, readings and leases.
#[derive(Default)]
pub(in crate::engine) struct Capacity {
    /// What the latest reading said.
    reading: Option<LoadReading>,
    /// Units that open attempts hold.
    pub(in crate::engine) used: u32,
    /// Open attempts of lanes whose workers ask, by their ids.
    pub(in crate::engine) leases: BTreeMap<AttemptId, Ix<Job>>,
    /// Jobs that were overtaken too often, the oldest first.
    pub(in crate::engine) due: BTreeSet<(u64, Ix<Job>)>,
    /// The latest decisions, the newest last.
    decisions: VecDeque<Decision>,
    /// Of waiting jobs that were denied, for lack of quiet or of units: for how long and until when it is not said again.
    denied: BTreeMap<(Ix<Job>, Shortage), (Span, Mono)>,
    /// How often live jobs were denied. A side map: few are.
    pub(in crate::engine) denials: BTreeMap<Ix<Job>, u32>,
}

/// What the machine has too little of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shortage {
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
    /// Of these, units of jobs that are reserved and not yet taken.
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
    /// Who holds it; `None`: it is reserved and nobody has taken it.
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
    pub(in crate::engine) fn take_reading(&mut self, now: Now, reading: LoadReading) -> Reply {
        let older = |known: LoadReading| reading.at < known.at;
        if !self.capacity.reading.is_some_and(older) {
            let at = reading.at.min(now.mono);
            self.capacity.reading = Some(LoadReading { busy: reading.busy.min(BUSY_MAX), at, ..reading });
        }
        Reply::Done
    }

    /// The busy rating and the quiet state in force: no fresh reading counts as a busy machine.
    pub(in crate::engine) fn load(&self, now: Now) -> (u8, QuietState) {
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
        let stale_after = self.settings.capacity.stale_after;
        self.capacity.reading.filter(|reading| now.mono.since(reading.at) < stale_after)
    }

    /// The latest reading; to be given again to an engine that replaces this one.
    pub fn reading(&self) -> Option<LoadReading> {
        self.capacity.reading
    }

    /// An attempt with a demand opened: counts its units, and finds it by its id where a worker holds it.
    pub(in crate::engine) fn take_units(&mut self, job: Ix<Job>) {
        self.capacity.used += self.queue.cost_of(&self.jobs[job]);
        let open = self.jobs.open(job);
        if open.pull() {
            self.capacity.leases.insert(open.attempt_id(), job);
            if self.jobs.is_reserved(job) && !self.jobs[job].state().is_terminal() {
                self.queue.reserve(job, &self.jobs[job], open.number());
            }
        }
    }

    /// The attempt closed.
    pub(in crate::engine) fn free_units(&mut self, job: Ix<Job>) {
        self.capacity.used -= self.queue.cost_of(&self.jobs[job]);
        let open = self.jobs.open(job);
        let (id, number) = (open.attempt_id(), open.number());
        self.capacity.leases.remove(&id);
        self.queue.unreserve(job, &self.jobs[job], number);
    }

    /// Remembers a decision for people.
    pub(in crate::engine) fn remember_decision(&mut self, decision: Decision) {
        if self.capacity.decisions.len() == DECISIONS_MAX {
            self.capacity.decisions.pop_front();
        }
        self.capacity.decisions.push_back(decision);
    }

    /// A decision about a job.
    pub(in crate::engine) fn decision_about(
        &self,
        now: Now,
        job: Ix<Job>,
        denied: Option<DenyReason>,
    ) -> Decision {
        let entry = &self.jobs[job];
        let (lane, tenant, agent) = self.queue.agent_queue_key(entry.agent_queue());
        let open = self.jobs.attempt_of(job);
        let worker = open.and_then(|open| self.holder_of(open)).map(|holder| holder.worker);
        Decision {
            at: now.wall,
            tenant: self.queue.tenant_name(*tenant).clone(),
            agent: Some(agent.clone()),
            lane: self.queue.lane(*lane).name().clone(),
            job: Some(entry.id()),
            worker,
            cost: self.queue.cost_of(&self.jobs[job]),
            denied,
        }
    }

    /// Says in the event log that a waiting job is denied, unless that was said a short while ago.
    pub(in crate::engine) fn deny(&mut self, now: Now, job: Ix<Job>, room: &Room, effects: &mut Effects) {
        let Some(demand) = self.queue.demand_of(&self.jobs[job]) else { return };
        let Some(reason) = self.denial(demand, room) else { return };
        let shortage = if room.is_quiet_for(demand) { Shortage::Units } else { Shortage::Quiet };
        let wait = match self.capacity.denied.get(&(job, shortage)) {
            Some((_, until)) if *until > now.mono => return,
            Some((wait, _)) => Span((wait.0 * 2).min(DENIED_AGAIN_MAX.0)),
            None => DENIED_AGAIN,
        };
        self.capacity.denied.insert((job, shortage), (wait, now.mono + wait));
        let detail = Some(self.denial_text(demand, room, &reason));
        let event = JobEvent::new(EventKind::JobDenied, Some(Reason::Capacity));
        self.job_event(now, job, JobEvent { detail, ..event }, effects);
        let denials = self.capacity.denials.entry(job).or_default();
        *denials = denials.saturating_add(1);
        let status = JobStatus { denied_until: Some(now.wall + wait), ..self.status_of(job, None) };
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq()), status });
        let decision = self.decision_about(now, job, Some(reason));
        self.remember_decision(decision);
    }

    fn denial_text(
        &self,
        demand: crate::engine::queue::Demand,
        room: &Room,
        reason: &DenyReason,
    ) -> Box<str> {
        let Room { busy, quiet, usable, free, .. } = room;
        let (word, cost, used) = (reason.as_str(), demand.cost(), self.capacity.used);
        let quiet = quiet.as_str();
        format!("{word}: needs {cost} of {free} free units ({used} of {usable} in use), busy {busy}, {quiet}")
            .into()
    }

    /// How often a live job was denied.
    pub(in crate::engine) fn denials_of(&self, job: Ix<Job>) -> u32 {
        self.capacity.denials.get(&job).copied().unwrap_or(0)
    }

    /// The job no longer waits.
    pub(in crate::engine) fn forget_denied(&mut self, job: Ix<Job>) {
        if !self.capacity.denied.is_empty() {
            self.capacity.denied.remove(&(job, Shortage::Quiet));
            self.capacity.denied.remove(&(job, Shortage::Units));
        }
    }

    /// Why the machine does not take a job of this demand now.
    pub(in crate::engine) fn denial(
        &self,
        demand: crate::engine::queue::Demand,
        room: &Room,
    ) -> Option<DenyReason> {
        if !room.is_quiet_for(demand) {
            return Some(match room.quiet {
                QuietState::Panic => DenyReason::Panic,
                state => DenyReason::NotQuiet { state },
            });
        }
        if room.has_units_for(demand.cost()) {
            return None;
        }
        let (usable, used, free) = (room.usable, self.capacity.used, room.free);
        Some(match free {
            0 => DenyReason::NoCapacity { busy: room.busy, usable, used },
            _ if demand.cost() <= free => DenyReason::Reserved,
            free => DenyReason::NeedsMore { needed: demand.cost(), free },
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
            due: self.capacity.due.first().map(|&(_, job)| self.jobs[job].id()),
            by_agent: BTreeMap::new(),
        };
        for open in self.jobs.open_attempts() {
            let cost = self.queue.cost_of(&self.jobs[open.job()]);
            if cost == 0 {
                continue;
            }
            if open.started_at().is_none() && open.worker().is_none() {
                view.reserved += cost;
            }
            let (_, tenant, agent) = self.queue.agent_queue_key(self.jobs[open.job()].agent_queue());
            *view.by_agent.entry((self.queue.tenant_name(*tenant).clone(), agent.clone())).or_default() +=
                cost;
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

    fn lease_view(&self, now: Now, job: Ix<Job>) -> LeaseView {
        let entry = &self.jobs[job];
        let open = self.jobs.open(job);
        let (lane, tenant, agent) = self.queue.agent_queue_key(entry.agent_queue());
        LeaseView {
            lease: open.attempt_id(),
            job: entry.id(),
            seq: Seq(entry.seq()),
            attempt: entry.attempts(),
            tenant: self.queue.tenant_name(*tenant).clone(),
            agent: agent.clone(),
            lane: self.queue.lane(*lane).name().clone(),
            kind: self.queue.kind_name(self.queue.kind_of(&self.jobs[job])).clone(),
            holder: self.holder_of(open),
            state: entry.state(),
            cost: self.queue.cost_of(&self.jobs[job]),
            opened_at: open.opened_at(),
            remaining: open.lease_until().map_or(Span(0), |until| until.since(now.mono)),
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
