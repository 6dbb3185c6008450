//! What happened to jobs since the start, counted by agent and lane.
//!
//! An agent's counters live with what the engine remembers of the agent. Agents without jobs are remembered in a bounded
//! number; when one is forgotten its counters go into a sum of its tenant and lane, so that a lane's figures never go
//! back. A restart begins at zero, and so does an engine that is built anew because the store rejected a row.

use crate::engine::jobs::Job;
use crate::engine::queue::{Lane, Tenant};
use std::collections::BTreeMap;

use crate::command::{Rejection, RejectionCode};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::Belongs;
use crate::{AttemptEnd, JobSpec, JobState, Name, Now, Reason, Span, Wall};

/// Most sums of forgotten agents; beyond that they go into one sum of the lane that no tenant sees.
const FORGOTTEN_MAX: usize = 10_000;
/// Most agents that got nothing in yet and are counted one by one; beyond that they go into the sum of their tenant.
const STRANGERS_MAX: usize = 10_000;

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
    /// Jobs that ended because somebody said so.
    pub canceled: u64,
    /// The part of `failed` whose deadline or queue timeout passed while they waited.
    pub expired: u64,
    /// Jobs whose first attempt opened.
    pub dispatched: u64,
    /// How long these waited for it, from when they might have started, all together.
    pub queue_wait: Span,
    /// Attempts that ran and have ended; lost ones are not among them, for nobody knows how long they ran.
    pub runs: u64,
    /// How long these ran, all together.
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

/// The counts of agents that the engine does not remember.
#[derive(Default)]
pub(in crate::engine) struct Forgotten {
    /// Of those that had jobs once, by lane and tenant. `None`: of tenants beyond the bound.
    sums: BTreeMap<(Ix<Lane>, Option<Name>), Counts>,
    /// How often agents were rejected that never got a job in, by lane, tenant and name. To remember them as agents would
    /// give them a place in the round before they have a job.
    strangers: BTreeMap<Stranger, u64>,
}

/// Lane, tenant and name of an agent.
type Stranger = (Ix<Lane>, Name, Name);

impl Forgotten {
    fn reject(&mut self, lane: Ix<Lane>, tenant: &Name, agent: &Name) {
        let stranger = (lane, tenant.clone(), agent.clone());
        if self.strangers.len() < STRANGERS_MAX || self.strangers.contains_key(&stranger) {
            *self.strangers.entry(stranger).or_default() += 1;
        } else {
            self.add(lane, tenant.clone(), &Counts { rejected: 1, ..Counts::default() });
        }
    }

    /// What happened to an agent before it got its first job in; it counts for itself from now on.
    pub(in crate::engine) fn take_stranger(&mut self, lane: Ix<Lane>, tenant: &Name, agent: &Name) -> Counts {
        if self.strangers.is_empty() {
            return Counts::default();
        }
        let rejected = self.strangers.remove(&(lane, tenant.clone(), agent.clone())).unwrap_or(0);
        Counts { rejected, ..Counts::default() }
    }

    /// The strangers that `tenant` may see; all of them without one.
    pub(in crate::engine) fn strangers(
        &self,
        tenant: Option<&Name>,
    ) -> impl Iterator<Item = (&Stranger, Counts)> {
        let seen = move |of: &Name| tenant.is_none_or(|tenant| tenant == of);
        let counts = |rejected: u64| Counts { rejected, ..Counts::default() };
        self.strangers
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

    /// A lane's number stands for another lane from now on.
    pub(in crate::engine) fn drop_lane(&mut self, lane: Ix<Lane>) {
        self.sums.retain(|(of, _), _| *of != lane);
        self.strangers.retain(|(of, _, _), _| *of != lane);
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

impl Engine {
    /// A job was rejected; only full queues are counted, for the rest was never asked rightly.
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
            None => self.queue.forgotten.reject(belongs.lane, &spec.tenant, &spec.agent),
            Some(agent_queue) => self.queue.agent_queues[agent_queue].counts.rejected += 1,
        }
    }

    /// A job's first attempt opens.
    pub(in crate::engine) fn count_dispatch(&mut self, now: Now, job: Ix<Job>) {
        let entry = &self.jobs[job];
        if entry.attempts() != 1 {
            return;
        }
        // The rank time is when it might first have started, on the engine's own clock.
        let wait = self.clock.rank_now(now).saturating_sub(entry.rank_time());
        let counts = &mut self.queue.agent_queues[entry.agent_queue()].counts;
        counts.dispatched += 1;
        counts.queue_wait.0 = counts.queue_wait.0.saturating_add(wait);
    }

    /// An attempt closes.
    pub(in crate::engine) fn count_run(
        &mut self,
        now: Now,
        job: Ix<Job>,
        started_at: Option<Wall>,
        end: AttemptEnd,
    ) {
        let Some(started_at) = started_at.filter(|_| end != AttemptEnd::Lost) else { return };
        let counts = &mut self.queue.agent_queues[self.jobs[job].agent_queue()].counts;
        counts.runs += 1;
        counts.run_time.0 = counts.run_time.0.saturating_add(now.wall.since(started_at).0);
    }

    /// A job ends. `waited`: no attempt of it was open.
    pub(in crate::engine) fn count_end(
        &mut self,
        job: Ix<Job>,
        state: JobState,
        reason: Reason,
        waited: bool,
    ) {
        let counts = &mut self.queue.agent_queues[self.jobs[job].agent_queue()].counts;
        match state {
            JobState::Succeeded => counts.succeeded += 1,
            JobState::Canceled => counts.canceled += 1,
            _ => counts.failed += 1,
        }
        if waited && matches!(reason, Reason::Expired | Reason::QueueTimeout) {
            counts.expired += 1;
        }
    }

    /// An agent is not remembered any more.
    pub(in crate::engine) fn keep_counts(&mut self, lane: Ix<Lane>, tenant: Ix<Tenant>, counts: &Counts) {
        let tenant = self.queue.tenants.key(tenant).clone();
        self.queue.forgotten.add(lane, tenant, counts);
    }
}
