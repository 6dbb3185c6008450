//! Workers that ask: for the next job that suits, or to run one job now or never.
//!
//! A claim looks at the heads of its lane by need, so it costs as much as there are different needs, not as there are jobs.
//! With an agent it looks at that agent's bins only, with kinds at the classes of those kinds only. What is said about an
//! attempt afterwards is in `held.rs`.

use super::Engine;
use super::needs::Room;
use super::slab::{Ix, NONE};
use super::state::{Head, Need};
use super::submit::{Belongs, refuse};
use crate::lease::{
    CLAIM_KINDS_MAX, Claim, Decision, Denial, DenyReason, Dispatch, Grant, Holder, LeaseFor, LeaseRequest,
};
#[cfg(feature = "zoo")]
use crate::zoo::{self, Bug};
use crate::{
    Change, Effects, JobId, JobSpec, JobState, Name, Now, RefusalCode, Reply, Seq, Span, Submission,
};

/// Most overdue jobs that one claim ends on its way.
const EXPIRIES_MAX: u32 = 64;

/// Who takes a job, and whether it runs from now on.
pub(super) struct Taker<'a> {
    pub(super) holder: &'a Holder,
    pub(super) start: bool,
}

impl Engine {
    /// A worker asks for the next job that suits it.
    pub(super) fn claim(&mut self, now: Now, claim: &Claim, effects: &mut Effects) -> Reply {
        let Some(&lane) = self.lane_of.get(&claim.lane) else { return Reply::NotFound };
        if !self.lanes[lane as usize].settings.pull.is_pull() {
            let message = "lane: its jobs are pushed to places; ask in a lane whose workers ask";
            return Reply::Refused(refuse(RefusalCode::Invalid, message));
        }
        if claim.kinds.len() > CLAIM_KINDS_MAX {
            let message = format!("kinds: at most {CLAIM_KINDS_MAX} are allowed");
            return Reply::Refused(refuse(RefusalCode::Invalid, message));
        }
        let taker = Taker { holder: &claim.holder, start: claim.start };
        if let Some(job) = self.find_aside(lane, claim) {
            self.bind(now, job, &taker, effects);
            return Reply::Granted(Box::new(self.grant(job, false)));
        }
        match self.next_claimed(now, lane, claim, effects) {
            Ok(job) => {
                self.open_attempt(now, job, Some(&taker), effects);
                #[cfg(feature = "zoo")]
                self.clamp_in_the_zoo(job, claim.max_cost);
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
    pub(super) fn request_lease(&mut self, now: Now, request: LeaseRequest, effects: &mut Effects) -> Reply {
        let LeaseRequest { what, holder } = request;
        match what {
            LeaseFor::New(submission) => self.lease_new(now, *submission, &holder, effects),
            LeaseFor::Job { tenant, job } => self.lease_job(now, tenant.as_ref(), job, &holder, effects),
        }
    }

    /// The first job that is set aside and suits.
    fn find_aside(&self, lane: Ix, claim: &Claim) -> Option<Ix> {
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::LeaseGivenTwice) {
            let open = self.capacity.leases.values().copied();
            let again = |&job: &Ix| {
                let entry = &self.jobs[job];
                self.nodes[entry.node].lane == lane
                    && !entry.state.is_terminal()
                    && self.is_wanted(job, claim)
                    && self.attempts[entry.open].stopping.is_none()
            };
            return open.filter(again).min();
        }
        let aside = self.lanes[lane as usize].aside.iter().map(|&(_, job)| job);
        aside.filter(|&job| self.attempts[self.jobs[job].open].stopping.is_none()).find(|&job| {
            let need = self.need_of_job(job).expect("jobs that workers ask for have a need");
            let class = &self.classes[self.jobs[job].class];
            self.is_wanted(job, claim)
                && self.unsuited(class.tenant, need, claim.max_cost, &claim.holder.worker).is_none()
        })
    }

    fn is_wanted(&self, job: Ix, claim: &Claim) -> bool {
        let entry = &self.jobs[job];
        let class = &self.classes[entry.class];
        *self.tenants.key(class.tenant) == claim.tenant
            && (claim.kinds.is_empty() || claim.kinds.contains(self.kinds.key(class.kind)))
            && claim.agent.as_ref().is_none_or(|agent| *agent == self.nodes.key(entry.node).2)
    }

    /// Why a worker does not get a job that it could find.
    fn unsuited(&self, tenant: Ix, need: Need, max_cost: Option<u32>, worker: &Name) -> Option<DenyReason> {
        if max_cost.is_some_and(|max| need.cost > max) {
            return Some(DenyReason::TooBig { cost: need.cost });
        }
        let holds_some = || {
            let known = self.workers.find(&(tenant, worker.clone()));
            known.is_some_and(|worker| !self.workers[worker].held.is_empty())
        };
        (need.unique && holds_some()).then_some(DenyReason::Unique)
    }

    /// The job that a claim gets from the queue.
    fn next_claimed(
        &mut self,
        now: Now,
        lane: Ix,
        claim: &Claim,
        effects: &mut Effects,
    ) -> Result<Ix, DenyReason> {
        let tenant = self.tenants.find(&claim.tenant).unwrap_or(NONE);
        let node = match &claim.agent {
            Some(agent) if tenant != NONE => self.nodes.find(&(lane, tenant, agent.clone())),
            _ => None,
        };
        if let Some(reason) = self.lane_denial(lane, node.unwrap_or(NONE)) {
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
    fn lane_denial(&self, lane: Ix, node: Ix) -> Option<DenyReason> {
        let lane = &self.lanes[lane as usize];
        let settings = &lane.settings;
        if self.draining {
            return Some(DenyReason::Draining);
        }
        if settings.paused {
            return Some(DenyReason::Paused);
        }
        if lane.open >= settings.running_max {
            return Some(DenyReason::MaxLeases { limit: settings.running_max });
        }
        if self.open >= self.settings.running_max {
            return Some(DenyReason::MaxLeases { limit: self.settings.running_max });
        }
        let full = node != NONE && self.nodes[node].open >= settings.running_per_agent_max;
        full.then_some(DenyReason::AgentCap { limit: settings.running_per_agent_max })
    }

    /// The first head that suits and that the machine takes, or why the first of all does not.
    fn first_claimable(
        &self,
        room: &Room,
        lane: Ix,
        tenant: Ix,
        node: Option<Ix>,
        claim: &Claim,
    ) -> Result<Head, DenyReason> {
        let mut heads = match (node, claim.agent.is_some(), claim.kinds.is_empty()) {
            (Some(node), _, _) => self.heads_of_agent(node, claim),
            (None, true, _) => Vec::new(),
            (None, false, false) => self.heads_of_kinds(lane, tenant, claim),
            (None, false, true) => self.heads_of_tenant(lane, tenant),
        };
        heads.sort_unstable();
        let mut first = None;
        for head in heads {
            let need = *self.needs.key(self.classes[head.2.class].need);
            let denied = self
                .unsuited(tenant, need, claim.max_cost, &claim.holder.worker)
                .or_else(|| self.denial(need, room));
            #[cfg(feature = "zoo")]
            if denied.is_some() && zoo::is_out(Bug::HeadHidesQueue) {
                return Err(DenyReason::NothingEligible);
            }
            match denied {
                None if self.lanes[lane as usize].settings.pull.dispatch == Dispatch::Claim => {
                    return Ok(head);
                }
                // It is the dispatcher's to set aside, and it will be in this turn.
                None => {}
                Some(reason) => first = first.or(Some(reason)),
            }
        }
        Err(first.unwrap_or(DenyReason::NothingEligible))
    }

    fn heads_of_tenant(&self, lane: Ix, tenant: Ix) -> Vec<Head> {
        let of_tenant = |head: &&Head| self.classes[head.2.class].tenant == tenant;
        let needy = self.lanes[lane as usize].needy.values();
        needy.filter_map(|heads| heads.iter().find(of_tenant)).copied().collect()
    }

    fn heads_of_kinds(&self, lane: Ix, tenant: Ix, claim: &Claim) -> Vec<Head> {
        let kinds = claim.kinds.iter().filter_map(|kind| self.kinds.find(kind));
        let classes = kinds.flat_map(|kind| self.kinds[kind].classes.iter().copied());
        let classes = classes
            .filter(|&class| self.classes[class].tenant == tenant && self.is_pull(self.classes[class].need));
        let lane = &self.lanes[lane as usize];
        classes.filter_map(|class| lane.classes.get(&class)?.head).collect()
    }

    fn heads_of_agent(&self, node: Ix, claim: &Claim) -> Vec<Head> {
        let groups = self.nodes[node].groups.iter();
        let shown = groups.filter_map(|(source, group)| Some((group.shown?, node, source)));
        let open = shown.filter(|&(_, _, source)| {
            source.class != NONE
                && self.class_is_open(source.class)
                && (source.key == NONE || self.keys[source.key].gate.is_open())
        });
        let wanted = |source: Ix| {
            let kind = self.classes[source].kind;
            claim.kinds.is_empty() || (kind != NONE && claim.kinds.contains(self.kinds.key(kind)))
        };
        open.filter(|&(_, _, source)| wanted(source.class)).collect()
    }

    fn lease_new(
        &mut self,
        now: Now,
        submission: Submission,
        holder: &Holder,
        effects: &mut Effects,
    ) -> Reply {
        let spec = &submission.spec;
        let waits = spec.session.is_some()
            || !spec.keys.is_empty()
            || spec.not_before.is_some()
            || spec.idempotency.is_some()
            || spec.needs.hours.is_some();
        let belongs = self.locate(spec);
        let lane = &self.lanes[belongs.lane as usize];
        if waits || !lane.settings.pull.is_pull() {
            let message = "lease: a new job starts now, in a lane whose workers ask; leave out what it could wait for \
                           (session, keys, not_before, hours, idempotency_key)";
            return Reply::Refused(refuse(RefusalCode::Invalid, message));
        }
        if let Err(refusal) = self.admit(now, spec, belongs, None) {
            return Reply::Refused(refusal);
        }
        let need = Engine::need_of(&spec.needs, false, &lane.settings).expect("workers ask for it");
        let full = self.is_full_for(spec, belongs);
        let room = self.room(now);
        let denied = self
            .lane_denial(belongs.lane, belongs.node)
            .or(full.then_some(DenyReason::Full))
            .or_else(|| self.unsuited(belongs.tenant, need, None, &holder.worker))
            .or_else(|| self.denial(need, &room));
        if let Some(reason) = denied {
            self.remember_decision(Decision {
                at: now.wall,
                tenant: spec.tenant.clone(),
                agent: Some(spec.agent.clone()),
                lane: spec.lane.clone(),
                job: None,
                worker: Some(holder.worker.clone()),
                cost: need.cost,
                denied: Some(reason.clone()),
            });
            return Reply::Denied(Denial::from(reason));
        }
        let made = match self.submit(now, submission, effects) {
            Ok(made) => made,
            Err(refusal) => return Reply::Refused(refusal),
        };
        let job = self.find_job(made.job).expect("it was just made");
        self.open_attempt(now, job, Some(&Taker { holder, start: true }), effects);
        Reply::Granted(Box::new(self.grant(job, false)))
    }

    /// Would a new job meet a full tenant, kind or agent? Those that nobody uses yet have their limits all the same.
    fn is_full_for(&self, spec: &JobSpec, belongs: Belongs) -> bool {
        let tenant = match belongs.tenant {
            NONE => self.tenant_limits(&spec.tenant).running_max > 0,
            tenant => self.tenants[tenant].gate.is_open(),
        };
        let kind = match belongs.kind {
            NONE => self.settings.kinds.get(&spec.kind).and_then(|kind| kind.running_max) != Some(0),
            kind => self.kinds[kind].gate.is_open(),
        };
        let agent =
            belongs.node != NONE || self.lanes[belongs.lane as usize].settings.running_per_agent_max > 0;
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
        let owner = self.tenants.key(self.classes[self.jobs[ix].class].tenant);
        if self.jobs[ix].state.is_terminal() || tenant.is_some_and(|tenant| tenant != owner) {
            return Reply::NotFound;
        }
        let taker = Taker { holder, start: true };
        if self.jobs[ix].open != NONE {
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

    /// A job whose attempt is open already: set aside for whoever asks, or held by somebody.
    fn lease_open(&mut self, now: Now, job: Ix, taker: &Taker<'_>, effects: &mut Effects) -> Reply {
        let open = &self.attempts[self.jobs[job].open];
        let holder = self.holder_of(open);
        let mine = holder.as_ref().is_some_and(|holder| holder.worker == taker.holder.worker);
        let aside = self.is_aside(job);
        if open.stopping.is_some() || !(mine || aside) {
            return Reply::Denied(Denial::from(DenyReason::Taken));
        }
        if aside {
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

    fn denial_of_job(&mut self, now: Now, job: Ix, holder: &Holder) -> Option<DenyReason> {
        let entry = &self.jobs[job];
        let (node, tenant) = (entry.node, self.classes[entry.class].tenant);
        let lane = self.nodes[node].lane;
        if entry.state == JobState::Scheduled {
            return Some(DenyReason::NotYet);
        }
        if let Some(reason) = self.lane_denial(lane, node) {
            return Some(reason);
        }
        let Some(need) = self.need_of_job(job).filter(|need| need.pull) else {
            return Some(DenyReason::Taken);
        };
        let room = self.room(now);
        if let Some(reason) = self.denial(need, &room) {
            return Some(reason);
        }
        if !self.is_open_but_for_units(now, job, &room) {
            return Some(DenyReason::Full);
        }
        self.unsuited(tenant, need, None, &holder.worker)
    }

    /// A job that is set aside is taken.
    pub(super) fn bind(&mut self, now: Now, job: Ix, taker: &Taker<'_>, effects: &mut Effects) {
        let (tenant, node) = (self.classes[self.jobs[job].class].tenant, self.jobs[job].node);
        let lane = self.nodes[node].lane as usize;
        let lease = self.lease_of(job);
        let worker = self.hold_worker(tenant, &taker.holder.worker);
        #[cfg(feature = "zoo")]
        let worker = self.rebind_in_the_zoo(job, worker);
        let open = &mut self.attempts[self.jobs[job].open];
        open.worker = worker;
        open.pid = taker.holder.pid;
        self.workers[worker].held.insert(job);
        let open = &mut self.attempts[self.jobs[job].open];
        open.lease_until = open.lease_until.max(Some(now.mono + lease));
        let number = open.number;
        self.lanes[lane].aside.remove(&(number, job));
        #[cfg(feature = "zoo")]
        if zoo::is_out(Bug::ReserveDroppedOnAck) {
            self.capacity.used -= self.cost_of(job);
        }
        if taker.start && self.jobs[job].state == JobState::Assigned {
            self.mark_running(now, job, effects);
        } else {
            self.arm(job);
            effects.changes.push(Change::AttemptStarted(self.open_row(job)));
        }
        let decision = self.decision_about(now, job, None);
        self.remember_decision(decision);
    }

    fn grant(&self, job: Ix, again: bool) -> Grant {
        let entry = &self.jobs[job];
        Grant {
            seq: Seq(entry.seq),
            fence: self.fence_of(job),
            kind: self.kinds.key(self.classes[entry.class].kind).clone(),
            agent: self.nodes.key(entry.node).2.clone(),
            cost: self.cost_of(job),
            state: entry.state,
            lease: self.lease_of(job),
            timeout: Span(entry.timeout_ms),
            deadline: entry.deadline.get(),
            again,
        }
    }

    /// A bug charges what the worker wants to run, not what the job costs.
    #[cfg(feature = "zoo")]
    fn clamp_in_the_zoo(&mut self, job: Ix, max_cost: Option<u32>) {
        if zoo::is_out(Bug::ClampedCharge) {
            let cost = self.cost_of(job);
            self.capacity.used -= cost.saturating_sub(max_cost.map_or(1, |max| max.min(1)));
        }
    }

    /// A bug gives a job to a second worker.
    #[cfg(feature = "zoo")]
    fn rebind_in_the_zoo(&mut self, job: Ix, worker: Ix) -> Ix {
        let before = self.attempts[self.jobs[job].open].worker;
        if before != NONE {
            self.workers[before].held.remove(&job);
            self.workers.release(before);
        }
        worker
    }
}
