//! Leases for people.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::lease::Holder;
use crate::{AttemptId, JobState, Name, Now, Seq, Span, Wall};

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
    /// The job's tenant.
    pub tenant: Name,
    /// The job's agent.
    pub agent: Name,
    /// The job's lane.
    pub lane: Name,
    /// The job's kind.
    pub kind: Name,
    /// The worker that holds it; `None`: the job is reserved and not claimed yet.
    pub holder: Option<Holder>,
    /// Assigned or running, or terminal for a canceled job that still runs.
    pub state: JobState,
    /// Units it holds.
    pub cost: u32,
    /// When it was opened.
    pub opened_at: Wall,
    /// How long until it expires.
    pub remaining: Span,
}

impl Engine {
    /// Open attempts of lanes with pull workers, by id; of one tenant, or of all.
    pub fn leases(&self, now: Now, tenant: Option<&Name>) -> Vec<LeaseView> {
        let views = self.leases.by_id.values().map(|&job| self.lease_view(now, job));
        views.filter(|view| tenant.is_none_or(|tenant| *tenant == view.tenant)).collect()
    }

    /// The lease of this id.
    pub fn lease(&self, now: Now, tenant: Option<&Name>, lease: AttemptId) -> Option<LeaseView> {
        let view = self.lease_view(now, self.leases.find(lease)?);
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
            holder: self.workers.holder_of(open),
            state: entry.state(),
            cost: self.queue.cost_of(&self.jobs[job]),
            opened_at: open.opened_at(),
            remaining: open.lease_until().map_or(Span(0), |until| until.since(now.mono)),
        }
    }
}
