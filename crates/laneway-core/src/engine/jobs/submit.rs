//! Admitting jobs: is there room, has this been asked before, and where does the job wait.

use std::collections::BTreeMap;

use crate::capacity::COST_MAX;
use crate::command::{Rejection, RejectionCode, Submission, Submitted};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::sessions::arrival::{Arrival, Outlook};
use crate::engine::state::{AgentQueue, Armed, Job, Kind, Lane, MaybeMono, MaybeWall, Tenant, Wake};
use crate::engine::workers::pool::PlacementRule;
use crate::job::{CALLBACK_URL_LEN_MAX, KEYS_MAX, TAGS_MAX};
use crate::{
    CapScope, CapacityRequest, Effects, Full, JobId, JobRow, JobSpec, JobState, MergedInto, Mono, Name, Now,
    Reply, Seq, SessionMode, Span, Wall,
};

/// When a full queue may have room again; a queue moves, so soon.
pub(in crate::engine) const RETRY_SOON: Span = Span::secs(1);

/// Where a job belongs, as far as that is known before it is admitted.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Belongs {
    pub(in crate::engine) lane: Ix<Lane>,
    /// Its agent in that lane.
    pub(in crate::engine) node: Option<Ix<AgentQueue>>,
    /// Its tenant.
    pub(in crate::engine) tenant: Option<Ix<Tenant>>,
    /// Its kind.
    pub(in crate::engine) kind: Option<Ix<Kind>>,
}

/// How a job that may start begins to wait.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Begins {
    /// For its turn.
    AtOnce,
    /// For others to join it, as long as this window.
    Collecting(Span),
    /// Not at all: another job runs for it.
    Merged(MergedInto),
    /// For other nodes of its run to end well.
    Upstream,
    /// For another node of its run to call it.
    Called,
}

/// Jobs that a batch will add, counted before any of them is added.
#[derive(Default)]
pub(in crate::engine) struct Extra {
    total: u32,
    lanes: BTreeMap<Ix<Lane>, u32>,
    nodes: BTreeMap<(Ix<Lane>, Name, Name), u32>,
    tenants: BTreeMap<Name, u32>,
    lane_tenants: BTreeMap<(Ix<Lane>, Name), u32>,
    keys: BTreeMap<(Name, Name), [u8; 32]>,
    /// What the sessions of its jobs look like after them.
    sessions: BTreeMap<(Name, Name), Outlook>,
}

impl Engine {
    /// How much of their own shares other tenants take with earlier items of the same batch: of the server's queue, and
    /// of the lane's.
    fn taken_by_others(&self, extra: &Extra, lane: Ix<Lane>, spec: &JobSpec) -> (u32, u32) {
        let waiting =
            |tenant: &Name| self.queue.tenants.find(tenant).map(|tenant| &self.queue.tenants[tenant]);
        let others = extra.tenants.iter().filter(|(tenant, _)| **tenant != spec.tenant);
        let of_server = others.map(|(tenant, &asked)| {
            self.queue.share.taken(waiting(tenant).map_or(0, |tenant| tenant.waiting), asked)
        });
        let here = extra.lane_tenants.iter();
        let others = here.filter(|((at, tenant), _)| *at == lane && *tenant != spec.tenant);
        let of_lane = others.map(|((_, tenant), &asked)| {
            let own = waiting(tenant).and_then(|tenant| tenant.waiting_in.get(&lane)).copied().unwrap_or(0);
            self.queue.lanes[lane].share.taken(own, asked)
        });
        (of_server.sum(), of_lane.sum())
    }

    /// Admits one job, or says why not.
    pub(in crate::engine) fn submit(
        &mut self,
        now: Now,
        submission: Submission,
        effects: &mut Effects,
    ) -> Result<Submitted, Rejection> {
        if let Some(existing) = self.find_existing(&submission)? {
            return Ok(self.existing(now, existing, &submission.spec));
        }
        self.check_lane(&submission)?;
        let belongs = self.locate(&submission.spec);
        if let Err(rejection) = self.admit(now, &submission.spec, belongs, None) {
            self.count_rejection(&submission.spec, belongs, &rejection);
            return Err(self.reject_full(now, submission, belongs, rejection, effects));
        }
        let Some(session) = &submission.spec.session else {
            return Ok(self.create(now, submission, belongs, Begins::AtOnce, effects));
        };
        let outlook = self.outlook(belongs.tenant, &session.key);
        let len = submission.payload.len() as u64;
        let arrival = outlook.arrival(now, &submission.spec, session, belongs.lane, len)?;
        Ok(self.arrive(now, submission, belongs, arrival, effects))
    }

    /// Admits many jobs: each for itself, or all or none.
    pub(in crate::engine) fn submit_batch(
        &mut self,
        now: Now,
        items: Vec<Submission>,
        atomic: bool,
        effects: &mut Effects,
    ) -> Reply {
        if atomic {
            let verdicts = self.check_batch(now, &items);
            if verdicts.iter().any(Option::is_some) {
                for (item, verdict) in items.iter().zip(&verdicts) {
                    if let Some(rejection) = verdict {
                        self.count_rejection(&item.spec, self.locate(&item.spec), rejection);
                    }
                }
                let rejected = |verdict: Option<Rejection>| {
                    Err(verdict.unwrap_or_else(|| {
                        reject(RejectionCode::BatchRejected, "another job of this atomic batch was rejected")
                    }))
                };
                return Reply::Batch(verdicts.into_iter().map(rejected).collect());
            }
        }
        Reply::Batch(items.into_iter().map(|item| self.submit(now, item, effects)).collect())
    }

    /// What would be rejected if all items were submitted one after the other.
    fn check_batch(&self, now: Now, items: &[Submission]) -> Vec<Option<Rejection>> {
        let mut extra = Extra::default();
        items.iter().map(|item| self.check_item(now, item, &mut extra).err()).collect()
    }

    pub(in crate::engine) fn check_item(
        &self,
        now: Now,
        item: &Submission,
        extra: &mut Extra,
    ) -> Result<(), Rejection> {
        if self.find_existing(item)?.is_some() {
            return Ok(());
        }
        let spec = &item.spec;
        let key = spec.idempotency.as_ref().map(|idempotency| (spec.tenant.clone(), idempotency.key.clone()));
        if let (Some(idempotency), Some(key)) = (&spec.idempotency, &key) {
            match extra.keys.get(key) {
                Some(digest) if *digest != idempotency.digest => return Err(mismatch(&idempotency.key)),
                Some(_) => return Ok(()),
                None => {}
            }
        }
        self.check_lane(item)?;
        let belongs = self.locate(spec);
        let lane = belongs.lane;
        self.admit(now, spec, belongs, Some(extra))?;
        let joins = self.check_arrival(now, item, belongs, extra)?;
        // Only now: a rejected item makes no job that a later one of the same key could be.
        if let (Some(idempotency), Some(key)) = (&spec.idempotency, key) {
            extra.keys.insert(key, idempotency.digest);
        }
        if joins {
            return Ok(());
        }
        extra.total += 1;
        *extra.lanes.entry(lane).or_default() += 1;
        *extra.nodes.entry((lane, spec.tenant.clone(), spec.agent.clone())).or_default() += 1;
        *extra.tenants.entry(spec.tenant.clone()).or_default() += 1;
        *extra.lane_tenants.entry((lane, spec.tenant.clone())).or_default() += 1;
        Ok(())
    }

    /// Would the session of an item take it, after the items before it? True: it joins a batch and never waits.
    fn check_arrival(
        &self,
        now: Now,
        item: &Submission,
        belongs: Belongs,
        extra: &mut Extra,
    ) -> Result<bool, Rejection> {
        let Some(session) = &item.spec.session else { return Ok(false) };
        let key = (item.spec.tenant.clone(), session.key.clone());
        let outlook = extra.sessions.entry(key).or_insert_with(|| self.outlook(belongs.tenant, &session.key));
        let len = item.payload.len() as u64;
        let arrival = outlook.arrival(now, &item.spec, session, belongs.lane, len)?;
        outlook.after(arrival, &item.spec, belongs.lane, len);
        Ok(matches!(arrival, Arrival::Joins { .. }))
    }

    /// Does the lane exist, where the submission asks for one that does?
    pub(in crate::engine) fn check_lane(&self, submission: &Submission) -> Result<(), Rejection> {
        let lane = &submission.spec.lane;
        // The engine always has `main`, whatever the settings name.
        if !submission.strict_lane || self.queue.lane_of.contains_key(lane) {
            return Ok(());
        }
        self.settings.check_lane(lane)
    }

    /// The job that the submission's idempotency key stands for already.
    fn find_existing(&self, submission: &Submission) -> Result<Option<JobId>, Rejection> {
        let Some(idempotency) = &submission.spec.idempotency else { return Ok(None) };
        let fresh = self.jobs.fresh_keys.get(&(submission.spec.tenant.clone(), idempotency.key.clone()));
        match fresh.copied().or(submission.prior) {
            None => Ok(None),
            Some(prior) if prior.digest == idempotency.digest => Ok(Some(prior.job)),
            Some(_) => Err(mismatch(&idempotency.key)),
        }
    }

    fn existing(&self, now: Now, job: JobId, spec: &JobSpec) -> Submitted {
        let live = self.find_job(job).map(|ix| &self.jobs[ix]);
        Submitted {
            seq: Seq(live.map_or(0, |job| job.seq)),
            job,
            existing: true,
            state: live.map_or(JobState::Succeeded, |job| job.state),
            lane: spec.lane.clone(),
            created_at: live.map_or(now.wall, |job| job.created_at),
            waiting: 0,
            served: true,
        }
    }

    /// Is there room for the job, beside what a batch adds before it?
    pub(in crate::engine) fn admit(
        &self,
        now: Now,
        spec: &JobSpec,
        belongs: Belongs,
        extra: Option<&Extra>,
    ) -> Result<(), Rejection> {
        if self.server.draining {
            let message = "the server is stopping; submit again after it has restarted";
            return Err(Rejection {
                retry_after: Some(Span::secs(5)),
                ..reject(RejectionCode::Draining, message)
            });
        }
        if self.server.closed {
            let message = "the server is drained and admits no new jobs; end the drain (DELETE /v1/drain), or \
                           submit elsewhere";
            return Err(Rejection {
                retry_after: Some(Span::secs(5)),
                ..reject(RejectionCode::Draining, message)
            });
        }
        if self.server.storage_low {
            let message = "storage runs low; free disk space, then submit again";
            return Err(Rejection {
                retry_after: Some(Span::secs(30)),
                ..reject(RejectionCode::StorageLow, message)
            });
        }
        self.check_form(now, spec, belongs)?;
        let lane_ix = belongs.lane;
        let lane = &self.queue.lanes[lane_ix];
        let tenant_max =
            self.settings.tenants.get(&spec.tenant).unwrap_or(&self.settings.tenant_default).queued_max;
        let (mut total, mut in_lane, mut of_agent, mut of_tenant, mut of_tenant_here) = (0, 0, 0, 0, 0);
        if let Some(extra) = extra {
            total = extra.total;
            in_lane = extra.lanes.get(&lane_ix).copied().unwrap_or(0);
            of_agent =
                extra.nodes.get(&(lane_ix, spec.tenant.clone(), spec.agent.clone())).copied().unwrap_or(0);
            of_tenant = extra.tenants.get(&spec.tenant).copied().unwrap_or(0);
            of_tenant_here = extra.lane_tenants.get(&(lane_ix, spec.tenant.clone())).copied().unwrap_or(0);
        }
        let (mut own, mut own_here) = (0, 0);
        if let Some(node) = belongs.node {
            of_agent += self.queue.agent_queues[node].waiting;
        }
        if let Some(tenant) = belongs.tenant {
            own = self.queue.tenants[tenant].waiting;
            own_here = self.queue.tenants[tenant].waiting_in.get(&lane_ix).copied().unwrap_or(0);
        }
        let (by_others, by_others_here) =
            extra.map_or((0, 0), |extra| self.taken_by_others(extra, lane_ix, spec));
        let reserved = self.queue.share.reserved_from(own, of_tenant).saturating_sub(by_others);
        let reserved_here = lane.share.reserved_from(own_here, of_tenant_here).saturating_sub(by_others_here);
        of_tenant += own;
        check_cap(CapScope::Server, self.queue.waiting + total, self.settings.queued_max, reserved)?;
        check_cap(CapScope::Lane, lane.waiting + in_lane, lane.settings.queued_max, reserved_here)?;
        check_cap(CapScope::Tenant, of_tenant, tenant_max, 0)?;
        check_cap(CapScope::Agent, of_agent, lane.settings.queued_per_agent_max, 0)
    }

    pub(in crate::engine) fn check_form(
        &self,
        now: Now,
        spec: &JobSpec,
        belongs: Belongs,
    ) -> Result<(), Rejection> {
        if spec.keys.len() > KEYS_MAX {
            return Err(reject(RejectionCode::Invalid, format!("keys: at most {KEYS_MAX} are allowed")));
        }
        if spec.tags.len() > TAGS_MAX {
            return Err(reject(RejectionCode::Invalid, format!("tags: at most {TAGS_MAX} are allowed")));
        }
        self.check_session(spec)?;
        if spec.callback.as_ref().is_some_and(|callback| callback.url.len() > CALLBACK_URL_LEN_MAX) {
            let message = format!("callback: has more than {CALLBACK_URL_LEN_MAX} bytes; use a shorter URL");
            return Err(reject(RejectionCode::Invalid, message));
        }
        self.check_needs(&spec.capacity)?;
        if let Some(wants) = &spec.placement {
            self.check_wants(wants)?;
        }
        if let Some(deadline) = spec.deadline {
            if deadline <= now.wall {
                return Err(reject(
                    RejectionCode::DeadlinePast,
                    "deadline: has passed; give a time in the future",
                ));
            }
            if spec.not_before.is_some_and(|at| at >= deadline) {
                let message = "not_before: comes after the deadline; give an earlier one";
                return Err(reject(RejectionCode::DeadlinePast, message));
            }
        }
        let pull = self.queue.lanes[belongs.lane].settings.pull.is_pull();
        let offered = pull || belongs.kind.is_some_and(|kind| self.queue.kinds[kind].executor.is_some());
        let offered = offered || (self.settings.strict_kinds && self.is_offered_by_workers(spec, belongs));
        if self.settings.strict_kinds && !offered && !self.settings.kinds.contains_key(&spec.kind) {
            let message = format!(
                "kind: nobody offers {:?}; register a handler or a target for it",
                spec.kind.as_str()
            );
            return Err(reject(RejectionCode::UnknownKind, message));
        }
        Ok(())
    }

    /// What the job asks of the machine can be, and the machine can ever give it.
    fn check_needs(&self, needs: &CapacityRequest) -> Result<(), Rejection> {
        if *needs == CapacityRequest::default() {
            return Ok(());
        }
        let CapacityRequest { cost, ref hours, .. } = *needs;
        if cost > COST_MAX {
            return Err(reject(
                RejectionCode::Invalid,
                format!("cost: is {cost}; at most {COST_MAX} is allowed"),
            ));
        }
        if hours.as_ref().is_some_and(|hours| !hours.is_valid()) {
            let message = "hours: must go from one minute of the day to another; give two different times";
            return Err(reject(RejectionCode::Invalid, message));
        }
        let most = self.settings.capacity.usable(0);
        if cost > most {
            let message = format!("cost: is {cost}, and an idle machine gives {most} at most; ask for less");
            return Err(reject(RejectionCode::NeverFits, message));
        }
        Ok(())
    }

    /// When a job's deadline is near; `None` where that means nothing.
    pub(in crate::engine) fn near_at(&self, spec: &JobSpec) -> Option<Wall> {
        let CapacityRequest { quiet, expected_duration, .. } = spec.capacity;
        if quiet.is_none() && expected_duration.is_none() {
            return None;
        }
        let ahead =
            expected_duration.unwrap_or_default().0.saturating_add(self.settings.capacity.near_deadline.0);
        spec.deadline.map(|deadline| deadline.before(Span(ahead)))
    }

    /// Finds what the job shares with others already. An unknown lane means `main`.
    pub(in crate::engine) fn locate(&self, spec: &JobSpec) -> Belongs {
        let lane = self.queue.lane_of.get(&spec.lane).copied();
        let lane = lane.unwrap_or_else(|| self.main_lane());
        let tenant = self.queue.tenants.find(&spec.tenant);
        let kind = self.queue.kinds.find(&spec.kind);
        let node =
            tenant.and_then(|tenant| self.queue.agent_queues.find(&(lane, tenant, spec.agent.clone())));
        Belongs { lane, node, tenant, kind }
    }

    /// Where the job says nothing, its kind does; where that says nothing, the server does.
    pub(in crate::engine) fn fill_in_defaults(&self, spec: &mut JobSpec, belongs: Belongs) {
        let lane = &self.queue.lanes[belongs.lane].name;
        if spec.lane != *lane {
            spec.lane = lane.clone();
        }
        let kind = match belongs.kind {
            None => self.settings.kinds.get(&spec.kind),
            Some(known) => Some(&self.queue.kinds[known].settings),
        };
        spec.timeout = spec.timeout.or(kind.and_then(|kind| kind.timeout)).or(Some(self.settings.timeout));
        spec.queue_timeout =
            spec.queue_timeout.or(kind.and_then(|kind| kind.queue_timeout)).or(self.settings.queue_timeout);
        if spec.retry.is_none() {
            let policy = kind.and_then(|kind| kind.retry.as_ref()).unwrap_or(&self.settings.retry);
            spec.retry = Some(policy.clone());
        }
        if spec.capacity.hours.is_none() && !self.settings.agents.is_empty() {
            spec.capacity.hours = self.settings.agents.get(&spec.agent).and_then(|agent| agent.hours.clone());
        }
        if spec.keys.len() > 1 {
            spec.keys.sort();
            spec.keys.dedup();
        }
    }

    /// Takes a stored row into memory: the job, and whatever it shares with others. Puts it in no bin.
    pub(in crate::engine) fn remember(&mut self, row: &JobRow) -> Ix<Job> {
        let belongs = self.locate(&row.spec);
        self.insert_job(row, belongs)
    }

    pub(in crate::engine) fn insert_job(&mut self, row: &JobRow, belongs: Belongs) -> Ix<Job> {
        let spec = &row.spec;
        let near = row.status.near_deadline;
        let demand = Engine::demand_of(&spec.capacity, near, &self.queue.lanes[belongs.lane].settings);
        let placement = PlacementRule::of(spec.placement.as_deref());
        let class = self.hold_class(belongs, &spec.tenant, &spec.kind, placement, demand);
        let tenant = self.queue.classes[class].tenant;
        let node = self.hold_agent_queue(belongs.node, belongs.lane, tenant, &spec.agent);
        let (session, session_max) = match &spec.session {
            Some(session) => (Some(self.hold_session(tenant, &session.key)), session.max_concurrent.max(1)),
            None => (None, 0),
        };
        let keyset = self.hold_keyset(tenant, &spec.keys, spec.placement.as_deref());
        let policy = self.jobs.policies.hold(spec.retry.as_ref().expect("defaults are filled in"));
        self.remember_callback(row);
        let hours = spec.capacity.hours.as_ref().map(|hours| self.jobs.hours.hold(hours));
        let near_at = if near { MaybeWall::NONE } else { self.near_at(spec).into() };
        let job = self.jobs.insert(Job {
            id: row.id,
            seq: row.seq.0,
            rank_time: row.rank_time,
            last_event: row.status.last_event,
            created_at: row.created_at,
            deadline: spec.deadline.into(),
            wake: None,
            queue_until: MaybeMono::NONE,
            near_at,
            hours_end: MaybeWall::NONE,
            timeout_ms: spec.timeout.expect("defaults are filled in").0,
            queue_timeout_ms: spec.queue_timeout.map_or(u64::MAX, |span| span.0),
            priority: spec.priority,
            node,
            class,
            session,
            keyset,
            policy,
            bin: None,
            session_max,
            interrupts: spec.session.as_ref().is_some_and(|session| session.mode == SessionMode::Interrupt),
            attempts: row.status.attempts,
            failures: row.status.failures,
            losses: row.status.losses,
            rejections: row.status.rejections,
            hours,
            bypassed: 0,
            near,
            unique: spec.capacity.unique,
            state: row.status.state,
            has_callback: spec.callback.is_some(),
            in_run: spec.member.is_some(),
            open: None,
            armed: Armed::default(),
        });
        if row.status.denials > 0 {
            self.capacity.denials.insert(job, row.status.denials);
        }
        let hash = self.jobs.hashing.hash(&row.id);
        self.jobs.by_id.insert(hash, job);
        self.queue.tenants[tenant].states[usize::from(row.status.state.code())] += 1;
        self.count_waiting(job);
        if let Some(of) = &row.spec.schedule {
            // Which attempt was the first is not stored; what is known is that it came after the job.
            self.begin_run(job, of, (row.status.attempts > 0).then_some(row.created_at));
        }
        if row.spec.member.is_some() {
            self.join_run(job, row);
        }
        job
    }

    /// Engine time for ordering.
    pub(in crate::engine) fn rank_now(&self, now: Now) -> u64 {
        self.clock.rank_base.saturating_add(now.mono.since(self.clock.born.mono).0)
    }

    /// From now on the job may start, so from now on its queue timeout runs.
    pub(in crate::engine) fn begin_queue_timeout(&mut self, job: Ix<Job>, from: Mono) {
        let entry = &mut self.jobs[job];
        if entry.attempts == 0 && entry.queue_timeout_ms != u64::MAX {
            entry.queue_until = Some(from + Span(entry.queue_timeout_ms)).into();
        }
    }

    /// Brings the job's timers up to date with its state.
    pub(in crate::engine) fn arm(&mut self, job: Ix<Job>) {
        let armed = self.due_times(job);
        let was = std::mem::replace(&mut self.jobs[job].armed, armed);
        self.timers.rearm(job, was, armed);
    }

    fn due_times(&self, job: Ix<Job>) -> Armed {
        let entry = &self.jobs[job];
        if let Some(open) = entry.open {
            let open = &self.jobs.attempts[open];
            // Who hears nothing cannot stop: it runs on until its lease ends.
            let stop = open.stopping.filter(|_| !self.hears_nothing(open)).map(|(_, until)| until);
            let mono = [open.lease_until, open.timeout_at, stop, open.next_until].into_iter().flatten().min();
            let asked = entry.state.is_terminal() || open.stopping.is_some();
            let wall = if asked { MaybeWall::NONE } else { entry.deadline };
            return Armed { mono: mono.into(), wall };
        }
        match entry.wake {
            Some(Wake::NotBefore(at)) => {
                let wall = entry.deadline.get().map_or(at, |deadline| deadline.min(at));
                Armed { mono: MaybeMono::NONE, wall: Some(wall).into() }
            }
            Some(Wake::Backoff(at) | Wake::Debounce(at)) => {
                Armed { mono: Some(at).into(), wall: entry.deadline }
            }
            Some(Wake::Upstream | Wake::Called) => Armed { mono: MaybeMono::NONE, wall: entry.deadline },
            None if entry.near_at == MaybeWall::NONE
                && entry.hours_end == MaybeWall::NONE
                && self.queue.classes[entry.class].placement.is_none() =>
            {
                Armed { mono: entry.queue_until, wall: entry.deadline }
            }
            None => {
                let times = [entry.deadline, entry.near_at, entry.hours_end, self.pin_expiry(job).into()];
                let wall = times.into_iter().filter_map(MaybeWall::get).min();
                Armed { mono: entry.queue_until, wall: wall.into() }
            }
        }
    }
}

/// `reserved` of the cap is kept for other tenants.
fn check_cap(scope: CapScope, waiting: u32, cap: u32, reserved: u32) -> Result<(), Rejection> {
    if waiting < cap.saturating_sub(reserved) {
        return Ok(());
    }
    let setting = scope.setting();
    let rest = if waiting < cap { ", and the rest is reserved for other tenants" } else { "" };
    let message =
        format!("the queue is full ({setting}): {waiting} of {cap} jobs wait{rest}; submit again later");
    let full = Some(Full { scope, waiting, cap });
    Err(Rejection { retry_after: Some(RETRY_SOON), full, ..reject(RejectionCode::QueueFull, message) })
}

pub(in crate::engine) fn mismatch(key: &Name) -> Rejection {
    let message =
        format!("idempotency_key: {:?} was used for another request; choose a new key", key.as_str());
    reject(RejectionCode::IdempotencyMismatch, message)
}

/// A rejection that asking again does not mend.
pub(in crate::engine) fn reject(code: RejectionCode, message: impl Into<Box<str>>) -> Rejection {
    Rejection::new(code, message)
}
