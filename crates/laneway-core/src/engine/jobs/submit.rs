//! Admitting jobs: is the request valid, was it sent before, is the queue full, and where does the job wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::COST_MAX;
use crate::command::{Rejection, RejectionCode, Submission, Submitted};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Armed, Job, Jobs, MaybeWall, Times};
use crate::engine::queue::{AgentQueue, ClassWanted, Demand, Kind, Lane, PlannedJobs, Tenant};
use crate::engine::sessions::arrival::{Arrival, Outlook, check_session};
use crate::engine::workers::PlacementRule;
use crate::engine::workers::placement::check_placement;
use crate::job::{CALLBACK_URL_LEN_MAX, KEYS_MAX, TAGS_MAX};
use crate::{
    CapacityRequest, Effects, JobId, JobRow, JobSpec, JobState, MergedInto, Name, Now, Reply, Seq,
    SessionMode, Settings, Span, Wall,
};

/// When a client should try a full queue again.
pub(in crate::engine) const RETRY_SOON: Span = Span::secs(1);

/// Where a job belongs, as far as that is known before it is admitted.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Belongs {
    pub(in crate::engine) lane: Ix<Lane>,
    /// Its agent in that lane.
    pub(in crate::engine) agent_queue: Option<Ix<AgentQueue>>,
    /// Its tenant.
    pub(in crate::engine) tenant: Option<Ix<Tenant>>,
    /// Its kind.
    pub(in crate::engine) kind: Option<Ix<Kind>>,
}

/// How a job that may start begins to wait.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Begins {
    /// In the queue.
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
    jobs: PlannedJobs,
    keys: BTreeMap<(Name, Name), [u8; 32]>,
    /// What the sessions of its jobs look like after them.
    sessions: BTreeMap<(Name, Name), Outlook>,
}

impl Engine {
    /// Admits one job, or returns why not.
    pub(in crate::engine) fn submit(
        &mut self,
        now: Now,
        submission: Submission,
        effects: &mut Effects,
    ) -> Result<Submitted, Rejection> {
        if let Some(existing) = self.jobs.find_existing(&submission)? {
            return Ok(self.jobs.existing(now, existing, &submission.spec));
        }
        self.check_lane(&submission)?;
        let belongs = self.queue.locate(&submission.spec);
        if let Err(rejection) = self.admit(now, &submission.spec, belongs, None) {
            self.queue.count_rejection(&submission.spec, belongs, &rejection);
            return Err(self.reject_full(now, submission, belongs, rejection, effects));
        }
        let Some(session) = &submission.spec.session else {
            return Ok(self.create(now, submission, belongs, Begins::AtOnce, effects));
        };
        let outlook = self.sessions.outlook(&self.jobs, &self.queue, belongs.tenant, &session.key);
        let len = submission.payload.len() as u64;
        let arrival = outlook.arrival(now, &submission.spec, session, belongs.lane, len)?;
        Ok(self.arrive(now, submission, belongs, arrival, effects))
    }

    /// Admits many jobs: each for itself, or all or none.
    pub(in crate::engine) fn submit_batch(
        &mut self,
        now: Now,
        items: Arc<Vec<Submission>>,
        atomic: bool,
        effects: &mut Effects,
    ) -> Reply {
        if atomic {
            let verdicts = self.check_batch(now, &items);
            if verdicts.iter().any(Option::is_some) {
                for (item, verdict) in items.iter().zip(&verdicts) {
                    if let Some(rejection) = verdict {
                        self.queue.count_rejection(&item.spec, self.queue.locate(&item.spec), rejection);
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
        Reply::Batch(match Arc::try_unwrap(items) {
            Ok(items) => items.into_iter().map(|item| self.submit(now, item, effects)).collect(),
            // The loop has the other copy. One job at a time, because a second list of all of them would be large.
            Err(items) => items.iter().map(|item| self.submit(now, item.clone(), effects)).collect(),
        })
    }

    /// The rejections of the items if all were submitted one after the other.
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
        if self.jobs.find_existing(item)?.is_some() {
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
        let belongs = self.queue.locate(spec);
        let lane = belongs.lane;
        self.admit(now, spec, belongs, Some(extra))?;
        let joins = self.check_arrival(now, item, belongs, extra)?;
        // Only now: a rejected item creates no job that a later item with the same key could return.
        if let (Some(idempotency), Some(key)) = (&spec.idempotency, key) {
            extra.keys.insert(key, idempotency.digest);
        }
        if joins {
            return Ok(());
        }
        extra.jobs.add(lane, spec);
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
        let outlook = extra
            .sessions
            .entry(key)
            .or_insert_with(|| self.sessions.outlook(&self.jobs, &self.queue, belongs.tenant, &session.key));
        let len = item.payload.len() as u64;
        let arrival = outlook.arrival(now, &item.spec, session, belongs.lane, len)?;
        outlook.after(arrival, &item.spec, belongs.lane, len);
        Ok(matches!(arrival, Arrival::Joins { .. }))
    }

    /// May the job wait, beside what a batch adds before it?
    pub(in crate::engine) fn admit(
        &self,
        now: Now,
        spec: &JobSpec,
        belongs: Belongs,
        extra: Option<&Extra>,
    ) -> Result<(), Rejection> {
        self.server.check_admission()?;
        self.check_form(now, spec, belongs)?;
        self.queue.check_caps(&self.settings, spec, belongs, extra.map(|extra| &extra.jobs))
    }

    /// Does the lane exist, where the submission asks for one that does?
    pub(in crate::engine) fn check_lane(&self, submission: &Submission) -> Result<(), Rejection> {
        let lane = &submission.spec.lane;
        // The engine always has `main`, whatever the settings name.
        if !submission.strict_lane || self.queue.has_lane(lane) {
            return Ok(());
        }
        self.settings.check_lane(lane)
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
        check_session(spec)?;
        if spec.callback.as_ref().is_some_and(|callback| callback.url.len() > CALLBACK_URL_LEN_MAX) {
            let message = format!("callback: has more than {CALLBACK_URL_LEN_MAX} bytes; use a shorter URL");
            return Err(reject(RejectionCode::Invalid, message));
        }
        check_capacity_request(&self.settings, &spec.capacity)?;
        if let Some(placement) = &spec.placement {
            check_placement(placement)?;
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
        let pull = self.queue.lane(belongs.lane).settings().pull.is_pull();
        let offered = pull || belongs.kind.is_some_and(|kind| self.queue.kind(kind).executor().is_some());
        let offered =
            offered || (self.settings.strict_kinds && self.workers.can_run(&self.queue, spec, belongs));
        if self.settings.strict_kinds && !offered && !self.settings.kinds.contains_key(&spec.kind) {
            let message = format!(
                "kind: no executor offers {:?}; register a handler or a target for it",
                spec.kind.as_str()
            );
            return Err(reject(RejectionCode::UnknownKind, message));
        }
        Ok(())
    }

    /// Takes a stored row into memory: the job, and what it shares with others. Puts it in no bin.
    pub(in crate::engine) fn remember(&mut self, row: &JobRow) -> Ix<Job> {
        let belongs = self.queue.locate(&row.spec);
        self.insert_job(row, belongs)
    }

    pub(in crate::engine) fn insert_job(&mut self, row: &JobRow, belongs: Belongs) -> Ix<Job> {
        let spec = &row.spec;
        let near = row.status.near_deadline;
        let demand = Demand::of(&spec.capacity, near, self.queue.lane(belongs.lane).settings());
        let placement = PlacementRule::of(spec.placement.as_deref());
        let wanted = ClassWanted { tenant: &spec.tenant, kind: &spec.kind, placement, demand };
        let class = self.queue.hold_class(&mut self.workers, &self.settings, belongs, wanted);
        let tenant = self.queue.class(class).tenant();
        let agent_queue = self.queue.hold_agent_queue(
            &self.settings,
            belongs.agent_queue,
            belongs.lane,
            tenant,
            &spec.agent,
        );
        let (session, session_max) = match &spec.session {
            Some(session) => (Some(self.sessions.hold(tenant, &session.key)), session.max_concurrent.max(1)),
            None => (None, 0),
        };
        let keyset = self.hold_keyset(tenant, &spec.keys, spec.placement.as_deref());
        let policy = self.jobs.policies.hold(spec.retry.as_ref().expect("defaults are filled in"));
        self.webhooks.remember_callback(row);
        let hours = spec.capacity.hours.as_ref().map(|hours| self.jobs.hours.hold(hours));
        let near_at = if near { MaybeWall::NONE } else { near_at(&self.settings, spec).into() };
        let times = Times {
            deadline: spec.deadline.into(),
            queue_timeout: spec.queue_timeout,
            near_at,
            ..Times::NONE
        };
        let job = self.jobs.insert(Job {
            id: row.id,
            seq: row.seq.0,
            rank_time: row.rank_time,
            last_event: row.status.last_event,
            created_at: row.created_at,
            times: (times != Times::NONE).then(|| Box::new(times)),
            timeout_ms: spec.timeout.expect("defaults are filled in").0,
            priority: spec.priority,
            agent_queue,
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
        self.capacity.load_denials(job, row.status.denials);
        self.queue.count_state(tenant, row.status.state);
        self.queue.count_waiting(&self.jobs[job]);
        if let Some(of) = &row.spec.schedule {
            // Which attempt was the first is not stored; what is known is that it came after the job.
            self.schedules.firing_created(job, of, (row.status.attempts > 0).then_some(row.created_at));
        }
        if row.spec.member.is_some() {
            self.workflows.join(job, row);
        }
        job
    }
}

impl Jobs {
    /// The job that the submission's idempotency key stands for already.
    fn find_existing(&self, submission: &Submission) -> Result<Option<JobId>, Rejection> {
        let Some(idempotency) = &submission.spec.idempotency else { return Ok(None) };
        let fresh = self.fresh_keys.get(&(submission.spec.tenant.clone(), idempotency.key.clone()));
        // A job that is being deleted has given its key back.
        let prior = submission.prior.filter(|prior| !self.is_being_deleted(prior.job));
        match fresh.copied().or(prior) {
            None => Ok(None),
            Some(prior) if prior.digest == idempotency.digest => Ok(Some(prior.job)),
            Some(_) => Err(mismatch(&idempotency.key)),
        }
    }

    fn existing(&self, now: Now, job: JobId, spec: &JobSpec) -> Submitted {
        let live = self.find(job).map(|ix| &self.slab[ix]);
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
}

/// The capacity request is valid, and the machine can fulfil it at some time.
fn check_capacity_request(settings: &Settings, request: &CapacityRequest) -> Result<(), Rejection> {
    if *request == CapacityRequest::default() {
        return Ok(());
    }
    let CapacityRequest { cost, ref hours, .. } = *request;
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
    let most = settings.capacity.usable(0);
    if cost > most {
        let message = format!("cost: is {cost}, and an idle machine gives {most} at most; ask for less");
        return Err(reject(RejectionCode::NeverFits, message));
    }
    Ok(())
}

/// When the deadline of a job is near; `None` for a job without quiet rule and expected duration.
pub(in crate::engine) fn near_at(settings: &Settings, spec: &JobSpec) -> Option<Wall> {
    let CapacityRequest { quiet, expected_duration, .. } = spec.capacity;
    if quiet.is_none() && expected_duration.is_none() {
        return None;
    }
    let ahead = expected_duration.unwrap_or_default().0.saturating_add(settings.capacity.near_deadline.0);
    spec.deadline.map(|deadline| deadline.before(Span(ahead)))
}

pub(in crate::engine) fn mismatch(key: &Name) -> Rejection {
    let message =
        format!("idempotency_key: {:?} was used for another request; choose a new key", key.as_str());
    reject(RejectionCode::IdempotencyMismatch, message)
}

/// A rejection that a retry does not change.
pub(in crate::engine) fn reject(code: RejectionCode, message: impl Into<Box<str>>) -> Rejection {
    Rejection::new(code, message)
}
