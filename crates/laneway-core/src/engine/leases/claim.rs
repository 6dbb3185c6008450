//! Workers that ask: for the next job that suits, or to run one job now or never.
//!
//! A claim looks at the heads of its lane by demand, so it costs as much as there are different demands, not as there are jobs.
//! With an agent it looks at that agent's bins only, with kinds at the classes of those kinds only. What is said about an
//! attempt afterwards is in `by_id.rs`.

use crate::engine::Engine;
use crate::engine::capacity::FreeCapacity;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::jobs::submit::{Belongs, reject};
use crate::engine::queue::{AgentQueue, Demand, Lane, QueueHead, Tenant};
use crate::lease::{
    CLAIM_KINDS_MAX, Claim, Decision, Denial, DenyReason, Dispatch, Grant, Holder, LeaseFor, LeaseRequest,
};
use crate::{Change, Effects, JobId, JobSpec, JobState, Name, Now, RejectionCode, Reply, Seq, Submission};

/// Most overdue jobs that one claim ends on its way.
const EXPIRIES_MAX: u32 = 64;

/// Who takes a job, and whether it runs from now on.
pub(in crate::engine) struct Taker<'a> {
    pub(in crate::engine) holder: &'a Holder,
    pub(in crate::engine) start: bool,
}

impl Engine {
    /// A worker asks for the next job that suits it.
    pub(in crate::engine) fn claim(&mut self, now: Now, claim: &Claim, effects: &mut Effects) -> Reply {
        if claim.token.as_ref().is_some_and(|token| !self.tokens.is_active(token, now.wall)) {
            return Reply::NotFound;
        }
        let Some(lane) = self.queue.find_lane(&claim.lane) else { return Reply::NotFound };
        if !self.queue.lane(lane).settings().pull.is_pull() {
            let message = "lane: its jobs are pushed to places; ask in a lane whose workers ask";
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if claim.kinds.len() > CLAIM_KINDS_MAX {
            let message = format!("kinds: at most {CLAIM_KINDS_MAX} are allowed");
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        let taker = Taker { holder: &claim.holder, start: claim.start };
        if let Some(job) = self.find_reserved(lane, claim) {
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

    /// A worker asks to run one job now, or not at all.
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

    /// The first job that is reserved and suits.
    fn find_reserved(&self, lane: Ix<Lane>, claim: &Claim) -> Option<Ix<Job>> {
        let reserved = self.queue.reserved_in(lane);
        reserved.filter(|&job| self.jobs.open(job).stopping().is_none()).find(|&job| {
            let demand =
                self.queue.demand_of(&self.jobs[job]).expect("jobs that workers ask for have a demand");
            let class = self.queue.class(self.jobs[job].class());
            self.is_wanted(job, claim)
                && self.unsuited(Some(class.tenant()), demand, claim.max_cost, &claim.holder.worker).is_none()
        })
    }

    fn is_wanted(&self, job: Ix<Job>, claim: &Claim) -> bool {
        let entry = &self.jobs[job];
        let class = self.queue.class(entry.class());
        *self.queue.tenant_name(class.tenant()) == claim.tenant
            && (claim.kinds.is_empty() || claim.kinds.contains(self.queue.kind_name(class.own_kind())))
            && claim.agent.as_ref().is_none_or(|agent| *agent == *self.queue.agent_of(entry))
    }

    /// Why a worker does not get a job that it could find.
    fn unsuited(
        &self,
        tenant: Option<Ix<Tenant>>,
        demand: Demand,
        max_cost: Option<u32>,
        worker: &Name,
    ) -> Option<DenyReason> {
        if max_cost.is_some_and(|max| demand.cost() > max) {
            return Some(DenyReason::TooBig { cost: demand.cost() });
        }
        let is_busy = || tenant.is_some_and(|tenant| self.workers.is_busy(tenant, worker));
        (demand.unique() && is_busy()).then_some(DenyReason::Unique)
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
        let node = match (&claim.agent, tenant) {
            (Some(agent), Some(tenant)) => self.queue.find_agent_queue(lane, tenant, agent),
            _ => None,
        };
        if let Some(reason) = self.lane_denial(lane, node) {
            return Err(reason);
        }
        let capacity = self.free_capacity(now);
        let mut expiries_left = EXPIRIES_MAX;
        while expiries_left > 0 {
            let head = self.first_claimable(&capacity, lane, tenant, node, claim)?;
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
    fn lane_denial(&self, lane: Ix<Lane>, node: Option<Ix<AgentQueue>>) -> Option<DenyReason> {
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
        let full =
            node.is_some_and(|node| self.queue.agent_queue(node).open() >= settings.running_per_agent_max);
        full.then_some(DenyReason::AgentCap { limit: settings.running_per_agent_max })
    }

    /// The first head that suits and that the machine takes, or why the first of all does not.
    fn first_claimable(
        &self,
        capacity: &FreeCapacity,
        lane: Ix<Lane>,
        tenant: Option<Ix<Tenant>>,
        node: Option<Ix<AgentQueue>>,
        claim: &Claim,
    ) -> Result<QueueHead, DenyReason> {
        let mut heads = match (node, claim.agent.is_some(), claim.kinds.is_empty()) {
            (Some(node), _, _) => self.queue.heads_of_agent(&self.workers, node, claim),
            (None, true, _) => Vec::new(),
            (None, false, no_kinds) => match tenant {
                None => Vec::new(),
                Some(tenant) if no_kinds => self.queue.heads_of_tenant(lane, tenant),
                Some(tenant) => self.queue.heads_of_kinds(lane, tenant, claim),
            },
        };
        heads.sort_unstable();
        let mut first = None;
        for head in heads {
            let demand = self.queue.demand_of_head(head);
            let denied = self
                .unsuited(tenant, demand, claim.max_cost, &claim.holder.worker)
                .or_else(|| capacity.denial(demand));
            match denied {
                None if self.queue.lane(lane).settings().pull.dispatch == Dispatch::Claim => {
                    return Ok(head);
                }
                // It is the dispatcher's to reserve, and it will be in this turn.
                None => {}
                Some(reason) => first = first.or(Some(reason)),
            }
        }
        Err(first.unwrap_or(DenyReason::NothingEligible))
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
            let message = "lease: a new job starts now, in a lane whose workers ask; leave out what it could wait for \
                           (session, keys, not_before, hours, idempotency_key)";
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if let Err(rejection) = self.admit(now, spec, belongs, None) {
            return Reply::Rejected(rejection);
        }
        let demand = Demand::of(&spec.capacity, false, lane.settings()).expect("workers ask for it");
        let full = self.is_full_for(spec, belongs);
        let capacity = self.free_capacity(now);
        let denied = self
            .lane_denial(belongs.lane, belongs.agent_queue)
            .or(full.then_some(DenyReason::Full))
            .or_else(|| self.unsuited(belongs.tenant, demand, None, &holder.worker))
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
        let made = match self.submit(now, submission, effects) {
            Ok(made) => made,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let job = self.jobs.find(made.job).expect("it was just made");
        self.open_attempt(now, job, Some(&Taker { holder, start: true }), effects);
        Reply::Granted(Box::new(self.grant(job, false)))
    }

    /// Would a new job meet a full tenant, kind or agent? Those that nobody uses yet have their limits all the same.
    fn is_full_for(&self, spec: &JobSpec, belongs: Belongs) -> bool {
        let tenant = match belongs.tenant {
            None => self.settings.tenant_limits(&spec.tenant).running_max > 0,
            Some(tenant) => self.queue.tenant(tenant).is_open(),
        };
        let kind = match belongs.kind {
            None => self.settings.kinds.get(&spec.kind).and_then(|kind| kind.running_max) != Some(0),
            Some(kind) => self.queue.kind(kind).is_open(),
        };
        let agent = belongs.agent_queue.is_some()
            || self.queue.lane(belongs.lane).settings().running_per_agent_max > 0;
        !(tenant && kind && agent)
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

    /// A job whose attempt is open already: reserved for whoever asks, or held by somebody.
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
            // Whoever asks again goes by the lease that it is told now.
            self.renew(now, job, effects);
        }
        let mut grant = self.grant(job, mine);
        if mine {
            // Who has lost it and begins anew must have ended when the attempt is over.
            grant.timeout = self.jobs.open(job).time_left(now.mono).unwrap_or(grant.timeout);
        }
        Reply::Granted(Box::new(grant))
    }

    fn denial_of_job(&mut self, now: Now, job: Ix<Job>, holder: &Holder) -> Option<DenyReason> {
        let entry = &self.jobs[job];
        let (node, tenant) = (entry.agent_queue(), self.queue.class(entry.class()).tenant());
        let lane = self.queue.agent_queue(node).lane();
        if entry.state() == JobState::Scheduled {
            return Some(DenyReason::NotYet);
        }
        if let Some(reason) = self.lane_denial(lane, Some(node)) {
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
        self.unsuited(Some(tenant), demand, None, &holder.worker)
    }

    /// A job that is reserved is taken.
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
        self.workers.add_held(worker, job);
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
