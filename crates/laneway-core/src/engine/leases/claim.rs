//! Workers that ask: for the next job that suits, or to run one job now or never.
//!
//! A claim looks at the heads of its lane by demand, so it costs as much as there are different demands, not as there are jobs.
//! With an agent it looks at that agent's bins only, with kinds at the classes of those kinds only. What is said about an
//! attempt afterwards is in `by_id.rs`.

use crate::engine::Engine;
use crate::engine::capacity::admission::Room;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::{Belongs, reject};
use crate::engine::state::{AgentQueue, Class, Demand, Job, Lane, QueueHead, Tenant};
use crate::lease::{
    CLAIM_KINDS_MAX, Claim, Decision, Denial, DenyReason, Dispatch, Grant, Holder, LeaseFor, LeaseRequest,
};
use crate::{
    Change, Effects, JobId, JobSpec, JobState, Name, Now, RejectionCode, Reply, Seq, Span, Submission,
};

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
        if claim.token.as_ref().is_some_and(|token| !self.token_holds(token, now.wall)) {
            return Reply::NotFound;
        }
        let Some(&lane) = self.queue.lane_of.get(&claim.lane) else { return Reply::NotFound };
        if !self.queue.lanes[lane].settings.pull.is_pull() {
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
                self.remember_decision(Decision {
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
        let reserved = self.queue.lanes[lane].reserved.iter().map(|&(_, job)| job);
        reserved.filter(|&job| self.jobs.open(job).stopping.is_none()).find(|&job| {
            let demand = self.demand_of_job(job).expect("jobs that workers ask for have a demand");
            let class = &self.queue.classes[self.jobs[job].class];
            self.is_wanted(job, claim)
                && self.unsuited(Some(class.tenant), demand, claim.max_cost, &claim.holder.worker).is_none()
        })
    }

    fn is_wanted(&self, job: Ix<Job>, claim: &Claim) -> bool {
        let entry = &self.jobs[job];
        let class = &self.queue.classes[entry.class];
        *self.queue.tenants.key(class.tenant) == claim.tenant
            && (claim.kinds.is_empty() || claim.kinds.contains(self.queue.kinds.key(class.own_kind())))
            && claim.agent.as_ref().is_none_or(|agent| *agent == self.queue.agent_queues.key(entry.node).2)
    }

    /// Why a worker does not get a job that it could find.
    fn unsuited(
        &self,
        tenant: Option<Ix<Tenant>>,
        demand: Demand,
        max_cost: Option<u32>,
        worker: &Name,
    ) -> Option<DenyReason> {
        if max_cost.is_some_and(|max| demand.cost > max) {
            return Some(DenyReason::TooBig { cost: demand.cost });
        }
        let holds_some = || {
            let known = tenant.and_then(|tenant| self.workers.entries.find(&(tenant, worker.clone())));
            known.is_some_and(|worker| !self.workers.entries[worker].held.is_empty())
        };
        (demand.unique && holds_some()).then_some(DenyReason::Unique)
    }

    /// The job that a claim gets from the queue.
    fn next_claimed(
        &mut self,
        now: Now,
        lane: Ix<Lane>,
        claim: &Claim,
        effects: &mut Effects,
    ) -> Result<Ix<Job>, DenyReason> {
        let tenant = self.queue.tenants.find(&claim.tenant);
        let node = match (&claim.agent, tenant) {
            (Some(agent), Some(tenant)) => self.queue.agent_queues.find(&(lane, tenant, agent.clone())),
            _ => None,
        };
        if let Some(reason) = self.lane_denial(lane, node) {
            return Err(reason);
        }
        let room = self.room(now);
        let mut expiries_left = EXPIRIES_MAX;
        while expiries_left > 0 {
            let head = self.first_claimable(&room, lane, tenant, node, claim)?;
            let (bin, job) = self.head_of(head.1, head.2);
            if self.is_overdue(now, job) {
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
        let lane = &self.queue.lanes[lane];
        let settings = &lane.settings;
        if self.server.draining {
            return Some(DenyReason::Draining);
        }
        if self.server.storage_low {
            return Some(DenyReason::StorageLow);
        }
        if settings.paused {
            return Some(DenyReason::Paused);
        }
        if lane.open >= settings.running_max {
            return Some(DenyReason::MaxLeases { limit: settings.running_max });
        }
        if self.queue.open >= self.settings.running_max {
            return Some(DenyReason::MaxLeases { limit: self.settings.running_max });
        }
        let full =
            node.is_some_and(|node| self.queue.agent_queues[node].open >= settings.running_per_agent_max);
        full.then_some(DenyReason::AgentCap { limit: settings.running_per_agent_max })
    }

    /// The first head that suits and that the machine takes, or why the first of all does not.
    fn first_claimable(
        &self,
        room: &Room,
        lane: Ix<Lane>,
        tenant: Option<Ix<Tenant>>,
        node: Option<Ix<AgentQueue>>,
        claim: &Claim,
    ) -> Result<QueueHead, DenyReason> {
        let mut heads = match (node, claim.agent.is_some(), claim.kinds.is_empty()) {
            (Some(node), _, _) => self.heads_of_agent(node, claim),
            (None, true, _) => Vec::new(),
            (None, false, no_kinds) => match tenant {
                None => Vec::new(),
                Some(tenant) if no_kinds => self.heads_of_tenant(lane, tenant),
                Some(tenant) => self.heads_of_kinds(lane, tenant, claim),
            },
        };
        heads.sort_unstable();
        let mut first = None;
        for head in heads {
            let demand = head.2.class.and_then(|class| self.queue.classes[class].demand);
            let demand = self.queue.demands[demand.expect("jobs that workers ask for have a demand")];
            let denied = self
                .unsuited(tenant, demand, claim.max_cost, &claim.holder.worker)
                .or_else(|| self.denial(demand, room));
            match denied {
                None if self.queue.lanes[lane].settings.pull.dispatch == Dispatch::Claim => {
                    return Ok(head);
                }
                // It is the dispatcher's to reserve, and it will be in this turn.
                None => {}
                Some(reason) => first = first.or(Some(reason)),
            }
        }
        Err(first.unwrap_or(DenyReason::NothingEligible))
    }

    fn heads_of_tenant(&self, lane: Ix<Lane>, tenant: Ix<Tenant>) -> Vec<QueueHead> {
        let of_tenant =
            |head: &&QueueHead| head.2.class.is_some_and(|class| self.queue.classes[class].tenant == tenant);
        let by_demand = self.queue.lanes[lane].by_demand.values();
        by_demand.filter_map(|heads| heads.iter().find(of_tenant)).copied().collect()
    }

    fn heads_of_kinds(&self, lane: Ix<Lane>, tenant: Ix<Tenant>, claim: &Claim) -> Vec<QueueHead> {
        let kinds = claim.kinds.iter().filter_map(|kind| self.queue.kinds.find(kind));
        let classes = kinds.flat_map(|kind| self.queue.kinds[kind].classes.iter().copied());
        let classes = classes.filter(|&class| {
            self.queue.classes[class].tenant == tenant && self.is_pull(self.queue.classes[class].demand)
        });
        let lane = &self.queue.lanes[lane];
        classes.filter_map(|class| lane.classes.get(&class)?.head).collect()
    }

    fn heads_of_agent(&self, node: Ix<AgentQueue>, claim: &Claim) -> Vec<QueueHead> {
        let groups = self.queue.agent_queues[node].groups.iter();
        let shown = groups.filter_map(|(source, group)| Some((group.shown?, node, source)));
        let wanted = |class: Ix<Class>| {
            let kind = self.queue.classes[class].kind;
            claim.kinds.is_empty()
                || kind.is_some_and(|kind| claim.kinds.contains(self.queue.kinds.key(kind)))
        };
        let open = shown.filter(|&(_, _, source)| {
            source.class.is_some_and(|class| self.class_is_open(class) && wanted(class))
                && source.key.is_none_or(|key| self.queue.keys[key].gate.is_open())
        });
        open.collect()
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
        let belongs = self.locate(spec);
        let lane = &self.queue.lanes[belongs.lane];
        if waits || !lane.settings.pull.is_pull() {
            let message = "lease: a new job starts now, in a lane whose workers ask; leave out what it could wait for \
                           (session, keys, not_before, hours, idempotency_key)";
            return Reply::Rejected(reject(RejectionCode::Invalid, message));
        }
        if let Err(rejection) = self.admit(now, spec, belongs, None) {
            return Reply::Rejected(rejection);
        }
        let demand = Engine::demand_of(&spec.capacity, false, &lane.settings).expect("workers ask for it");
        let full = self.is_full_for(spec, belongs);
        let room = self.room(now);
        let denied = self
            .lane_denial(belongs.lane, belongs.node)
            .or(full.then_some(DenyReason::Full))
            .or_else(|| self.unsuited(belongs.tenant, demand, None, &holder.worker))
            .or_else(|| self.denial(demand, &room));
        if let Some(reason) = denied {
            self.remember_decision(Decision {
                at: now.wall,
                tenant: spec.tenant.clone(),
                agent: Some(spec.agent.clone()),
                lane: spec.lane.clone(),
                job: None,
                worker: Some(holder.worker.clone()),
                cost: demand.cost,
                denied: Some(reason.clone()),
            });
            return Reply::Denied(Denial::from(reason));
        }
        let made = match self.submit(now, submission, effects) {
            Ok(made) => made,
            Err(rejection) => return Reply::Rejected(rejection),
        };
        let job = self.find_job(made.job).expect("it was just made");
        self.open_attempt(now, job, Some(&Taker { holder, start: true }), effects);
        Reply::Granted(Box::new(self.grant(job, false)))
    }

    /// Would a new job meet a full tenant, kind or agent? Those that nobody uses yet have their limits all the same.
    fn is_full_for(&self, spec: &JobSpec, belongs: Belongs) -> bool {
        let tenant = match belongs.tenant {
            None => self.tenant_limits(&spec.tenant).running_max > 0,
            Some(tenant) => self.queue.tenants[tenant].gate.is_open(),
        };
        let kind = match belongs.kind {
            None => self.settings.kinds.get(&spec.kind).and_then(|kind| kind.running_max) != Some(0),
            Some(kind) => self.queue.kinds[kind].gate.is_open(),
        };
        let agent =
            belongs.node.is_some() || self.queue.lanes[belongs.lane].settings.running_per_agent_max > 0;
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
        let Some(ix) = self.find_job(job) else { return Reply::NotFound };
        let owner = self.queue.tenants.key(self.tenant_of(ix));
        if self.jobs[ix].state.is_terminal() || tenant.is_some_and(|tenant| tenant != owner) {
            return Reply::NotFound;
        }
        let taker = Taker { holder, start: true };
        if self.jobs[ix].open.is_some() {
            return self.lease_open(now, ix, &taker, effects);
        }
        if self.is_overdue(now, ix) {
            self.expire(now, ix, effects);
            return Reply::NotFound;
        }
        match self.denial_of_job(now, ix, holder) {
            None => {
                self.open_attempt(now, ix, Some(&taker), effects);
                Reply::Granted(Box::new(self.grant(ix, false)))
            }
            Some(reason) => {
                let mut decision = self.decision_about(now, ix, Some(reason.clone()));
                decision.worker = Some(holder.worker.clone());
                self.remember_decision(decision);
                Reply::Denied(Denial::from(reason))
            }
        }
    }

    /// A job whose attempt is open already: reserved for whoever asks, or held by somebody.
    fn lease_open(&mut self, now: Now, job: Ix<Job>, taker: &Taker<'_>, effects: &mut Effects) -> Reply {
        let open = self.jobs.open(job);
        let holder = self.holder_of(open);
        let mine = holder.as_ref().is_some_and(|holder| holder.worker == taker.holder.worker);
        let reserved = self.is_reserved(job);
        if open.stopping.is_some() || !(mine || reserved) {
            return Reply::Denied(Denial::from(DenyReason::Taken));
        }
        if reserved {
            self.bind(now, job, taker, effects);
        } else if self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        } else {
            // Whoever asks again goes by the lease that it is told now.
            self.renew(now, job, effects);
        }
        let mut grant = self.grant(job, mine);
        if mine {
            // Who has lost it and begins anew must have ended when the attempt is over.
            grant.timeout = self.time_left(now, job).unwrap_or(grant.timeout);
        }
        Reply::Granted(Box::new(grant))
    }

    fn denial_of_job(&mut self, now: Now, job: Ix<Job>, holder: &Holder) -> Option<DenyReason> {
        let entry = &self.jobs[job];
        let (node, tenant) = (entry.node, self.queue.classes[entry.class].tenant);
        let lane = self.queue.agent_queues[node].lane;
        if entry.state == JobState::Scheduled {
            return Some(DenyReason::NotYet);
        }
        if let Some(reason) = self.lane_denial(lane, Some(node)) {
            return Some(reason);
        }
        let Some(demand) = self.demand_of_job(job).filter(|demand| demand.pull) else {
            return Some(DenyReason::Taken);
        };
        let room = self.room(now);
        if let Some(reason) = self.denial(demand, &room) {
            return Some(reason);
        }
        if !self.is_open_but_for_units(now, job, &room) {
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
        let (tenant, node) = (self.tenant_of(job), self.jobs[job].node);
        let lane = self.queue.agent_queues[node].lane;
        let lease = self.lease_of(job);
        let worker = self.hold_worker(tenant, &taker.holder.worker);
        let open = self.jobs.open_mut(job);
        open.worker = Some(worker);
        open.pid = taker.holder.pid;
        self.workers.entries[worker].held.insert(job);
        let open = self.jobs.open_mut(job);
        open.lease_until = open.lease_until.max(Some(now.mono + lease));
        let number = open.number;
        self.queue.lanes[lane].reserved.remove(&(number, job));
        if taker.start && self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        } else {
            self.arm(job);
            effects.changes.push(Change::HolderChanged(self.open_row(job)));
        }
        let decision = self.decision_about(now, job, None);
        self.remember_decision(decision);
    }

    fn grant(&self, job: Ix<Job>, again: bool) -> Grant {
        let entry = &self.jobs[job];
        Grant {
            seq: Seq(entry.seq),
            fence: self.fence_of(job),
            kind: self.queue.kinds.key(self.kind_of(job)).clone(),
            agent: self.queue.agent_queues.key(entry.node).2.clone(),
            cost: self.cost_of(job),
            state: entry.state,
            lease: self.lease_of(job),
            timeout: Span(entry.timeout_ms),
            deadline: entry.deadline.get(),
            again,
        }
    }
}
