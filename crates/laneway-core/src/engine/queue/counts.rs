//! What happened to jobs since the start, counted by agent and lane.
//!
//! The counters of an agent live in its agent queue. Agent queues without jobs are remembered in a bounded number; when one is
//! dropped, its counters go into a sum of its tenant and lane, so that the counters of a lane never go back. A restart begins
//! at zero, and so does an engine that is built anew because the store rejected a row.

use std::collections::BTreeMap;

use crate::command::{Rejection, RejectionCode};
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::submit::Belongs;
use crate::engine::queue::{Lane, Queue, Tenant};
use crate::{AttemptEnd, JobSpec, JobState, Mono, Name, Reason, Span, Wall};

/// Most sums of forgotten agents; beyond that they go into one sum of the lane that no tenant sees.
const FORGOTTEN_MAX: usize = 10_000;
/// Most agents without any admitted job that are counted one by one; others go into the sum of their tenant.
const UNADMITTED_MAX: usize = 10_000;

/// What happened to jobs since the start. Every end counts in exactly one of `succeeded`, `failed` and `canceled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Jobs that were admitted.
    pub submitted: u64,
    /// Jobs that were rejected because a queue was full, whether that was recorded or not.
    pub rejected: u64,
    /// Jobs that ended well.
    pub succeeded: u64,
    /// Jobs that ended badly.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// The part of `failed` whose deadline or queue timeout passed while they waited.
    pub expired: u64,
    /// Jobs whose first attempt opened.
    pub dispatched: u64,
    /// How long these waited for it, from when they might have started, in total.
    pub queue_wait: Span,
    /// Attempts that ran and have ended. Lost ones do not count: it is not known how long they ran.
    pub runs: u64,
    /// How long these ran, in total.
    pub run_time: Span,
}

impl Counts {
    /// True while nothing has happened.
    pub fn is_empty(&self) -> bool {
        *self == Counts::default()
    }

    /// Adds other counts to these.
    pub fn add(&mut self, other: &Counts) {
        let Counts {
            submitted,
            rejected,
            succeeded,
            failed,
            canceled,
            expired,
            dispatched,
            queue_wait,
            runs,
            run_time,
        } = other;
        self.submitted += submitted;
        self.rejected += rejected;
        self.succeeded += succeeded;
        self.failed += failed;
        self.canceled += canceled;
        self.expired += expired;
        self.dispatched += dispatched;
        self.queue_wait.0 = self.queue_wait.0.saturating_add(queue_wait.0);
        self.runs += runs;
        self.run_time.0 = self.run_time.0.saturating_add(run_time.0);
    }
}

/// The counts of agents that have no agent queue.
#[derive(Default)]
pub(in crate::engine) struct Forgotten {
    /// Of those that had jobs once, by lane and tenant. `None`: of tenants beyond the bound.
    sums: BTreeMap<(Ix<Lane>, Option<Name>), Counts>,
    /// How often agents without any admitted job were rejected, by lane, tenant and name. An agent queue would give them a
    /// position in the fair order before they have a job.
    unadmitted: BTreeMap<UnadmittedAgent, u64>,
}

/// Lane, tenant and name of an agent.
type UnadmittedAgent = (Ix<Lane>, Name, Name);

impl Forgotten {
    fn reject(&mut self, lane: Ix<Lane>, tenant: &Name, agent: &Name) {
        let agent_key = (lane, tenant.clone(), agent.clone());
        if self.unadmitted.len() < UNADMITTED_MAX || self.unadmitted.contains_key(&agent_key) {
            *self.unadmitted.entry(agent_key).or_default() += 1;
        } else {
            self.add(lane, tenant.clone(), &Counts { rejected: 1, ..Counts::default() });
        }
    }

    /// What happened to an agent before its first job was admitted; it has its own counters from now on.
    pub(in crate::engine) fn take_unadmitted(
        &mut self,
        lane: Ix<Lane>,
        tenant: &Name,
        agent: &Name,
    ) -> Counts {
        if self.unadmitted.is_empty() {
            return Counts::default();
        }
        let rejected = self.unadmitted.remove(&(lane, tenant.clone(), agent.clone())).unwrap_or(0);
        Counts { rejected, ..Counts::default() }
    }

    /// The unadmitted agents that `tenant` may see; all of them without one.
    pub(in crate::engine) fn unadmitted(
        &self,
        tenant: Option<&Name>,
    ) -> impl Iterator<Item = (&UnadmittedAgent, Counts)> {
        let seen = move |of: &Name| tenant.is_none_or(|tenant| tenant == of);
        let counts = |rejected: u64| Counts { rejected, ..Counts::default() };
        self.unadmitted
            .iter()
            .filter(move |((_, of, _), _)| seen(of))
            .map(move |(key, count)| (key, counts(*count)))
    }

    fn add(&mut self, lane: Ix<Lane>, tenant: Name, counts: &Counts) {
        if counts.is_empty() {
            return;
        }
        let key = (lane, Some(tenant));
        let fits = self.sums.len() < FORGOTTEN_MAX || self.sums.contains_key(&key);
        self.sums.entry(if fits { key } else { (lane, None) }).or_default().add(counts);
    }

    /// The handle of a lane belongs to another lane from now on.
    pub(in crate::engine) fn drop_lane(&mut self, lane: Ix<Lane>) {
        self.sums.retain(|(of, _), _| *of != lane);
        self.unadmitted.retain(|(of, _, _), _| *of != lane);
    }

    /// The sums that `tenant` may see; all of them without one.
    pub(in crate::engine) fn seen_by(
        &self,
        tenant: Option<&Name>,
    ) -> impl Iterator<Item = (Ix<Lane>, &Counts)> {
        let seen = move |of: &Option<Name>| tenant.is_none_or(|tenant| of.as_ref() == Some(tenant));
        self.sums.iter().filter(move |((_, of), _)| seen(of)).map(|((lane, _), counts)| (*lane, counts))
    }
}

impl Queue {
    /// A job was admitted.
    pub(in crate::engine) fn count_submit(&mut self, job: &Job) {
        self.agent_queues[job.agent_queue()].counts.submitted += 1;
    }

    /// A job was rejected. Only full queues are counted: other rejections mean that the request was wrong.
    pub(in crate::engine) fn count_rejection(
        &mut self,
        spec: &JobSpec,
        belongs: Belongs,
        rejection: &Rejection,
    ) {
        if rejection.code != RejectionCode::QueueFull {
            return;
        }
        match belongs.agent_queue {
            None => self.forgotten.reject(belongs.lane, &spec.tenant, &spec.agent),
            Some(agent_queue) => self.agent_queues[agent_queue].counts.rejected += 1,
        }
    }

    /// An attempt of a job opens. `rank_now`: the time on the clock of its rank time. Returns the wait of a job whose first
    /// attempt it is.
    pub(in crate::engine) fn count_dispatch(&mut self, job: &Job, rank_now: u64) -> Option<Span> {
        if job.attempts() != 1 {
            return None;
        }
        let wait = rank_now.saturating_sub(job.rank_time());
        let counts = &mut self.agent_queues[job.agent_queue()].counts;
        counts.dispatched += 1;
        counts.queue_wait.0 = counts.queue_wait.0.saturating_add(wait);
        Some(Span(wait))
    }

    /// An attempt closes that started then.
    pub(in crate::engine) fn count_attempt(
        &mut self,
        now: Wall,
        job: &Job,
        started_at: Option<Wall>,
        end: AttemptEnd,
    ) {
        let Some(started_at) = started_at.filter(|_| end != AttemptEnd::Lost) else { return };
        let counts = &mut self.agent_queues[job.agent_queue()].counts;
        counts.runs += 1;
        counts.run_time.0 = counts.run_time.0.saturating_add(now.since(started_at).0);
    }

    /// A job has ended. `waited`: no attempt of it was open.
    pub(in crate::engine) fn count_end(&mut self, job: &Job, reason: Reason, waited: bool) {
        let counts = &mut self.agent_queues[job.agent_queue()].counts;
        match job.state() {
            JobState::Succeeded => counts.succeeded += 1,
            JobState::Canceled => counts.canceled += 1,
            _ => counts.failed += 1,
        }
        if waited && matches!(reason, Reason::Expired | Reason::QueueTimeout) {
            counts.expired += 1;
        }
    }

    /// Jobs of a lane have ended: the next retention sweep may delete more rows.
    pub(in crate::engine) fn count_ended(&mut self, lane: Ix<Lane>, jobs: u32) {
        self.lanes[lane].count_ended(jobs);
    }

    /// A job of a tenant is in memory, in this state.
    pub(in crate::engine) fn count_state(&mut self, tenant: Ix<Tenant>, state: JobState) {
        self.tenants[tenant].states[usize::from(state.code())] += 1;
    }

    /// A job of a tenant is no longer in this state.
    pub(in crate::engine) fn uncount_state(&mut self, tenant: Ix<Tenant>, state: JobState) {
        self.tenants[tenant].states[usize::from(state.code())] -= 1;
    }

    /// May a lane record one more rejected job, of so many bytes?
    pub(in crate::engine) fn may_record_rejection(&mut self, lane: Ix<Lane>, now: Mono, bytes: u64) -> bool {
        self.lanes[lane].rejections.take(now, bytes)
    }

    /// An agent is not remembered any more.
    pub(super) fn keep_counts(&mut self, lane: Ix<Lane>, tenant: Ix<Tenant>, counts: &Counts) {
        let tenant = self.tenants.key(tenant).clone();
        self.forgotten.add(lane, tenant, counts);
    }
}
