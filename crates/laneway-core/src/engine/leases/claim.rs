//! Claims of pull workers: for the next job that suits, or for one job, now or never.
//!
//! A claim reads the heads of its lane by demand, so its cost grows with the number of different demands, not of jobs. With
//! an agent it reads that agent's bins only, with kinds the classes of those kinds only. Later messages about the attempt
//! are in `by_id.rs`.

use crate::engine::Engine;
use crate::engine::capacity::FreeCapacity;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::{Belongs, reject};
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::{AgentQueue, Demand, Lane, Queue, QueueHead, Tenant};
use crate::engine::workers::Workers;
use crate::lease::{
    CLAIM_KINDS_MAX, Claim, Decision, Denial, DenyReason, Dispatch, Grant, Holder, LeaseFor, LeaseRequest,
};
use crate::{
    Change, Effects, JobId, JobSpec, JobState, Name, Now, RejectionCode, Reply, Seq, Settings, Submission,
};

/// Most overdue jobs that one claim ends.
const EXPIRIES_MAX: u32 = 64;

/// The worker that takes a job, and whether it runs the job at once.
pub(in crate::engine) struct Taker<'a> {
    pub(in crate::engine) holder: &'a Holder,
    pub(in crate::engine) start: bool,
}

impl Engine {
    /// A worker claims the next job that suits it.
    pub(in crate::engine) fn claim(&mut self, now: Now, claim: &Claim, effects: &mut Effects) -> Reply {
        if claim.token.as_ref().is_some_and(|token| !self.tokens.is_active(token, now.wall)) {
            return Reply::NotFound;
        }
        let Some(lane) = self.queue.find_lane(&claim.lane) else {
            let known = self.settings.check_lane(&claim.lane);
            return known.err().map_or(Reply::NotFound, Reply::Rejected);
        };
        if !self.queue.lane(lane).settings().pull.is_pull() {
            let message = "lane: its jobs are pushed to executors; claim in a lane for pull workers";
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if claim.kinds.len() > CLAIM_KINDS_MAX {
            let message = format!("kinds: at most {CLAIM_KINDS_MAX} are allowed");
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        let taker = Taker { holder: &claim.holder, start: claim.start };
        if let Some(job) = find_reserved(&self.jobs, &self.queue, &self.workers, lane, claim) {
            self.bind(now, job, &taker, effects);
            return Reply::Granted(Box::new(self.grant(job, false)));
        }
        match self.next_claimed(now, lane, claim, effects) {
            Ok(job) => {
                self.open_attempt(now, job, Some(&taker), effects);
                Reply::Granted(Box::new(self.grant(job, false)))
            }
            Err(reason) => {
                self.capacity.remember(Decision {
                    at: now.wall,
                    tenant: claim.tenant.clone(),
                    agent: claim.agent.clone(),
                    lane: claim.lane.clone(),
                    job: None,
                    worker: Some(claim.holder.worker.clone()),
                    cost: 0,
                    denied: Some(reason.clone()),
                });
                Reply::Denied(Denial::from(reason))
            }
        }
    }

    /// A worker asks to run one job, now or not at all.
    pub(in crate::engine) fn request_lease(
        &mut self,
        now: Now,
        request: LeaseRequest,
        effects: &mut Effects,
    ) -> Reply {
        let LeaseRequest { what, holder } = request;
        match what {
            LeaseFor::New(submission) => self.lease_new(now, *submission, &holder, effects),
            LeaseFor::Job { tenant, job } => self.lease_job(now, tenant.as_ref(), job, &holder, effects),
        }
    }

    /// The job that a claim gets from the queue.
    fn next_claimed(
        &mut self,
        now: Now,
        lane: Ix<Lane>,
        claim: &Claim,
        effects: &mut Effects,
    ) -> Result<Ix<Job>, DenyReason> {
        let tenant = self.queue.find_tenant(&claim.tenant);
        let agent_queue = match (&claim.agent, tenant) {
            (Some(agent), Some(tenant)) => self.queue.find_agent_queue(lane, tenant, agent),
            _ => None,
        };
        if let Some(reason) = self.lane_denial(lane, agent_queue) {
            return Err(reason);
        }
        let capacity = self.free_capacity(now);
        let mut expiries_left = EXPIRIES_MAX;
        while expiries_left > 0 {
            let head = first_claimable(&self.queue, &self.workers, &capacity, lane, agent_queue, claim)?;
            let (bin, job) = self.queue.head_of(head);
            if self.jobs[job].is_overdue(now) {
                expiries_left -= 1;
                self.expire(now, job, effects);
            } else if self.is_clear(bin, job) {
                return Ok(job);
            }
        }
        Err(DenyReason::NothingEligible)
    }

    /// Why nothing starts in a lane, or nothing of one agent.
    fn lane_denial(&self, lane: Ix<Lane>, agent_queue: Option<Ix<AgentQueue>>) -> Option<DenyReason> {
        let lane = self.queue.lane(lane);
        let settings = lane.settings();
        if self.server.is_draining() {
            return Some(DenyReason::Draining);
        }
        if self.server.storage_low() {
            return Some(DenyReason::StorageLow);
        }
        if settings.paused {
            return Some(DenyReason::Paused);
        }
        if lane.open() >= settings.running_max {
            return Some(DenyReason::MaxLeases { limit: settings.running_max });
        }
        if self.queue.open() >= self.settings.running_max {
            return Some(DenyReason::MaxLeases { limit: self.settings.running_max });
        }
        let open = agent_queue.map(|agent_queue| self.queue.agent_queue(agent_queue).open());
        let full = open.is_some_and(|open| open >= settings.running_per_agent_max);
        full.then_some(DenyReason::AgentCap { limit: settings.running_per_agent_max })
    }

    fn lease_new(
        &mut self,
        now: Now,
        submission: Submission,
        holder: &Holder,
        effects: &mut Effects,
    ) -> Reply {
        if let Err(rejection) = self.check_lane(&submission) {
            return Reply::Rejected(rejection);
        }
        let spec = &submission.spec;
        let waits = spec.session.is_some()
            || !spec.keys.is_empty()
            || spec.not_before.is_some()
            || spec.idempotency.is_some()
            || spec.capacity.hours.is_some();
        let belongs = self.queue.locate(spec);
        let lane = self.queue.lane(belongs.lane);
        if waits || !lane.settings().pull.is_pull() {
            let message = "lease: a new job starts now, in a lane for pull workers; leave out what it could wait for \
                           (session, keys, not_before, hours, idempotency_key)";
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if let Err(rejection) = self.admit(now, spec, belongs, None) {
            return Reply::Rejected(rejection);
        }
        let demand =
            Demand::of(&spec.capacity, false, lane.settings()).expect("jobs of pull workers have a demand");
        let full = is_full_for(&self.settings, &self.queue, spec, belongs);
        let capacity = self.free_capacity(now);
        let denied = self
            .lane_denial(belongs.lane, belongs.agent_queue)
            .or(full.then_some(DenyReason::Full))
            .or_else(|| unsuited(&self.workers, belongs.tenant, demand, None, &holder.worker))
            .or_else(|| capacity.denial(demand));
        if let Some(reason) = denied {
            self.capacity.remember(Decision {
                at: now.wall,
                tenant: spec.tenant.clone(),
                agent: Some(spec.agent.clone()),
                lane: spec.lane.clone(),
                job: None,
                worker: Some(holder.worker.clone()),
                cost: demand.cost(),
                denied: Some(reason.clone()),
            });
            return Reply::Denied(Denial::from(reason));
        }
        let created = match self.submit(now, submission, effects) {
            Ok(created) => created,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let job = self.jobs.find(created.job).expect("it was just created");
        self.open_attempt(now, job, Some(&Taker { holder, start: true }), effects);
        Reply::Granted(Box::new(self.grant(job, false)))
    }

    fn lease_job(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        job: JobId,
        holder: &Holder,
        effects: &mut Effects,
    ) -> Reply {
        let Some(ix) = self.jobs.find(job) else { return Reply::NotFound };
        let owner = self.queue.owner_of(&self.jobs[ix]);
        if self.jobs[ix].state().is_terminal() || tenant.is_some_and(|tenant| tenant != owner) {
            return Reply::NotFound;
        }
        let taker = Taker { holder, start: true };
        if self.jobs[ix].has_attempt() {
            return self.lease_open(now, ix, &taker, effects);
        }
        if self.jobs[ix].is_overdue(now) {
            self.expire(now, ix, effects);
            return Reply::NotFound;
        }
        match self.denial_of_job(now, ix, holder) {
            None => {
                self.open_attempt(now, ix, Some(&taker), effects);
                Reply::Granted(Box::new(self.grant(ix, false)))
            }
            Some(reason) => {
                self.remember_decision(now, ix, Some(&holder.worker), Some(reason.clone()));
                Reply::Denied(Denial::from(reason))
            }
        }
    }

    /// A job whose attempt is open already: it is reserved, or a worker holds it.
    fn lease_open(&mut self, now: Now, job: Ix<Job>, taker: &Taker<'_>, effects: &mut Effects) -> Reply {
        let open = self.jobs.open(job);
        let holder = self.workers.holder_of(open);
        let mine = holder.as_ref().is_some_and(|holder| holder.worker == taker.holder.worker);
        let reserved = self.jobs.is_reserved(job);
        if open.stopping().is_some() || !(mine || reserved) {
            return Reply::Denied(Denial::from(DenyReason::Taken));
        }
        if reserved {
            self.bind(now, job, taker, effects);
        } else if self.jobs[job].state() == JobState::Assigned {
            self.mark_running(now, job, effects);
        } else {
            // A worker that asks again goes by the lease that it gets now.
            self.renew(now, job, effects);
        }
        let mut grant = self.grant(job, mine);
        if mine {
            // A worker that lost the task and starts it again must have ended when the attempt times out.
            grant.timeout = self.jobs.open(job).time_left(now.mono).unwrap_or(grant.timeout);
        }
        Reply::Granted(Box::new(grant))
    }

    fn denial_of_job(&mut self, now: Now, job: Ix<Job>, holder: &Holder) -> Option<DenyReason> {
        let entry = &self.jobs[job];
        let (agent_queue, tenant) = (entry.agent_queue(), self.queue.tenant_of(entry));
        let lane = self.queue.lane_of(entry);
        if entry.state() == JobState::Scheduled {
            return Some(DenyReason::NotYet);
        }
        if let Some(reason) = self.lane_denial(lane, Some(agent_queue)) {
            return Some(reason);
        }
        let Some(demand) = self.queue.demand_of(&self.jobs[job]).filter(|demand| demand.pull()) else {
            return Some(DenyReason::Taken);
        };
        let capacity = self.free_capacity(now);
        if let Some(reason) = capacity.denial(demand) {
            return Some(reason);
        }
        if !self.is_open_but_for_units(now, job, &capacity) {
            return Some(DenyReason::Full);
        }
        unsuited(&self.workers, Some(tenant), demand, None, &holder.worker)
    }

    /// A worker takes a reserved job.
    pub(in crate::engine) fn bind(
        &mut self,
        now: Now,
        job: Ix<Job>,
        taker: &Taker<'_>,
        effects: &mut Effects,
    ) {
        let tenant = self.queue.tenant_of(&self.jobs[job]);
        let lease = self.lease_of(job);
        let worker = self.workers.hold(tenant, &taker.holder.worker);
        let open = self.jobs.open_mut(job);
        open.claim(worker, taker.holder.pid, now.mono + lease);
        let number = open.number();
        self.workers.add_attempt(worker, job);
        self.queue.unreserve(job, &self.jobs[job], number);
        if taker.start && self.jobs[job].state() == JobState::Assigned {
            self.mark_running(now, job, effects);
        } else {
            self.arm(job);
            effects.changes.push(Change::HolderChanged(self.open_row(job)));
        }
        self.remember_decision(now, job, None, None);
    }

    fn grant(&self, job: Ix<Job>, again: bool) -> Grant {
        let entry = &self.jobs[job];
        Grant {
            seq: Seq(entry.seq()),
            fence: self.jobs.fence_of(job),
            kind: self.queue.kind_name(self.queue.kind_of(&self.jobs[job])).clone(),
            agent: self.queue.agent_of(entry).clone(),
            cost: self.queue.cost_of(&self.jobs[job]),
            state: entry.state(),
            lease: self.lease_of(job),
            timeout: entry.timeout(),
            deadline: entry.deadline().get(),
            again,
        }
    }
}

/// The first reserved job that suits a claim.
fn find_reserved(
    jobs: &Jobs,
    queue: &Queue,
    workers: &Workers,
    lane: Ix<Lane>,
    claim: &Claim,
) -> Option<Ix<Job>> {
    let reserved = queue.reserved_in(lane).filter(|&job| jobs.open(job).stopping().is_none());
    reserved.into_iter().find(|&job| {
        let demand = queue.demand_of(&jobs[job]).expect("jobs of pull workers have a demand");
        let tenant = Some(queue.tenant_of(&jobs[job]));
        is_wanted(queue, &jobs[job], claim)
            && unsuited(workers, tenant, demand, claim.max_cost, &claim.holder.worker).is_none()
    })
}

fn is_wanted(queue: &Queue, job: &Job, claim: &Claim) -> bool {
    let class = queue.class(job.class());
    *queue.tenant_name(class.tenant()) == claim.tenant
        && (claim.kinds.is_empty() || claim.kinds.contains(queue.kind_name(class.own_kind())))
        && claim.agent.as_ref().is_none_or(|agent| agent == queue.agent_of(job))
}

/// Why a worker does not get a job with this demand.
fn unsuited(
    workers: &Workers,
    tenant: Option<Ix<Tenant>>,
    demand: Demand,
    max_cost: Option<u32>,
    worker: &Name,
) -> Option<DenyReason> {
    if max_cost.is_some_and(|max| demand.cost() > max) {
        return Some(DenyReason::TooBig { cost: demand.cost() });
    }
    let is_busy = || tenant.is_some_and(|tenant| workers.is_busy(tenant, worker));
    (demand.unique() && is_busy()).then_some(DenyReason::Unique)
}

/// The first head that suits a claim and that there is capacity for, or why the first of all is denied.
fn first_claimable(
    queue: &Queue,
    workers: &Workers,
    capacity: &FreeCapacity,
    lane: Ix<Lane>,
    agent_queue: Option<Ix<AgentQueue>>,
    claim: &Claim,
) -> Result<QueueHead, DenyReason> {
    let tenant = queue.find_tenant(&claim.tenant);
    let mut heads = match (agent_queue, tenant) {
        (Some(agent_queue), _) => queue.heads_of_agent(workers, agent_queue, claim),
        (None, Some(tenant)) if claim.agent.is_none() && claim.kinds.is_empty() => {
            queue.heads_of_tenant(lane, tenant)
        }
        (None, Some(tenant)) if claim.agent.is_none() => queue.heads_of_kinds(lane, tenant, claim),
        (None, _) => Vec::new(),
    };
    heads.sort_unstable();
    let mut first = None;
    for head in heads {
        let demand = queue.demand_of_head(head);
        let denied = unsuited(workers, tenant, demand, claim.max_cost, &claim.holder.worker)
            .or_else(|| capacity.denial(demand));
        match denied {
            None if queue.lane(lane).settings().pull.dispatch == Dispatch::Claim => return Ok(head),
            // The dispatcher reserves it, in the same command.
            None => {}
            Some(reason) => first = first.or(Some(reason)),
        }
    }
    Err(first.unwrap_or(DenyReason::NothingEligible))
}

/// True when the tenant, the kind or the agent of a new job is at its limit. Names that are not in use yet have limits, too.
fn is_full_for(settings: &Settings, queue: &Queue, spec: &JobSpec, belongs: Belongs) -> bool {
    let tenant = match belongs.tenant {
        None => settings.tenant_limits(&spec.tenant).running_max > 0,
        Some(tenant) => queue.tenant(tenant).is_open(),
    };
    let kind = match belongs.kind {
        None => settings.kinds.get(&spec.kind).and_then(|kind| kind.running_max) != Some(0),
        Some(kind) => queue.kind(kind).is_open(),
    };
    let agent =
        belongs.agent_queue.is_some() || queue.lane(belongs.lane).settings().running_per_agent_max > 0;
    !(tenant && kind && agent)
}
