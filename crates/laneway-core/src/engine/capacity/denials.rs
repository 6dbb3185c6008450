//! Denials and decisions: waiting jobs that the machine has no free capacity for, and the latest decisions for people.

use crate::engine::Engine;
use crate::engine::capacity::{Capacity, FreeCapacity};
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::record::JobEvent;
use crate::lease::{DECISIONS_MAX, Decision, DenyReason};
use crate::{Change, Effects, EventKind, JobStatus, Mono, Name, Now, Reason, Seq, Span};

/// The pause between two events about the same job and shortage, the first time.
const DENIED_AGAIN: Span = Span::secs(5);
/// The longest pause: each one is twice as long as the one before.
const DENIED_AGAIN_MAX: Span = Span::mins(5);

/// The reason for a denial: the machine is not quiet enough, or has too few free units.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shortage {
    Quiet,
    Units,
}

impl Capacity {
    /// A job is denied. Returns the pause before the next event about it; `None` during the current pause.
    fn begin_pause(&mut self, now: Mono, job: Ix<Job>, shortage: Shortage) -> Option<Span> {
        let pause = match self.denied.get(&(job, shortage)) {
            Some((_, until)) if *until > now => return None,
            Some((pause, _)) => Span((pause.0 * 2).min(DENIED_AGAIN_MAX.0)),
            None => DENIED_AGAIN,
        };
        self.denied.insert((job, shortage), (pause, now + pause));
        let denials = self.denials.entry(job).or_default();
        *denials = denials.saturating_add(1);
        Some(pause)
    }

    /// How often a live job was denied.
    pub(in crate::engine) fn denials_of(&self, job: Ix<Job>) -> u32 {
        self.denials.get(&job).copied().unwrap_or(0)
    }

    /// Loads how often a stored job was denied.
    pub(in crate::engine) fn load_denials(&mut self, job: Ix<Job>, denials: u32) {
        if denials > 0 {
            self.denials.insert(job, denials);
        }
    }

    /// The job no longer waits.
    pub(in crate::engine) fn forget_denied(&mut self, job: Ix<Job>) {
        if !self.denied.is_empty() {
            self.denied.remove(&(job, Shortage::Quiet));
            self.denied.remove(&(job, Shortage::Units));
        }
    }

    /// The job is forgotten.
    pub(in crate::engine) fn forget_job(&mut self, job: Ix<Job>) {
        self.forget_denied(job);
        self.denials.remove(&job);
    }

    /// Keeps a decision for people.
    pub(in crate::engine) fn remember(&mut self, decision: Decision) {
        if self.decisions.len() == DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }
}

impl Engine {
    /// Keeps a decision about a job for people. `claimed_by`: the worker that asked for it, where none holds it.
    pub(in crate::engine) fn remember_decision(
        &mut self,
        now: Now,
        job: Ix<Job>,
        claimed_by: Option<&Name>,
        denied: Option<DenyReason>,
    ) {
        let entry = &self.jobs[job];
        let (lane, tenant, agent) = self.queue.agent_queue_key(entry.agent_queue());
        let open = self.jobs.attempt_of(job);
        let holder = open.and_then(|open| self.workers.holder_of(open)).map(|holder| holder.worker);
        self.capacity.remember(Decision {
            at: now.wall,
            tenant: self.queue.tenant_name(*tenant).clone(),
            agent: Some(agent.clone()),
            lane: self.queue.lane(*lane).name().clone(),
            job: Some(entry.id()),
            worker: holder.or_else(|| claimed_by.cloned()),
            cost: self.queue.cost_of(&self.jobs[job]),
            denied,
        });
    }

    /// Adds an event that a waiting job is denied, unless there was one a short while ago.
    pub(super) fn deny(&mut self, now: Now, job: Ix<Job>, capacity: &FreeCapacity, effects: &mut Effects) {
        let Some(demand) = self.queue.demand_of(&self.jobs[job]) else { return };
        let Some(reason) = capacity.denial(demand) else { return };
        let shortage = if capacity.is_quiet_for(demand) { Shortage::Units } else { Shortage::Quiet };
        let Some(pause) = self.capacity.begin_pause(now.mono, job, shortage) else { return };
        let detail = Some(capacity.denial_text(demand, &reason));
        let event = JobEvent::new(EventKind::JobDenied, Some(Reason::Capacity));
        self.job_event(now, job, JobEvent { detail, ..event }, effects);
        let status = JobStatus { denied_until: Some(now.wall + pause), ..self.status_of(job, None) };
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq()), status });
        self.remember_decision(now, job, None, Some(reason));
    }

    /// The latest decisions about jobs with a demand, the newest first; of one tenant, or of all.
    pub fn decisions(&self, tenant: Option<&Name>) -> impl Iterator<Item = &Decision> {
        let tenant = tenant.cloned();
        let shown =
            move |decision: &&Decision| tenant.as_ref().is_none_or(|tenant| *tenant == decision.tenant);
        self.capacity.decisions.iter().rev().filter(shown)
    }
}
