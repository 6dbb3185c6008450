//! Admitting jobs: is there room, has this been asked before, and where does the job wait.

use std::collections::BTreeMap;

use super::Engine;
use super::slab::{Ix, NONE};
use super::state::{Armed, Job, Wake};
use crate::command::{Refusal, RefusalCode, Submission, Submitted};
use crate::job::{KEYS_MAX, TAGS_MAX};
use crate::settings::MAIN_LANE;
use crate::{
    Change, Effects, EventKind, JobId, JobRow, JobSpec, JobState, Mono, Name, Now, Prior, Reply, Seq, Span, Wall,
};

/// When a full queue may have room again; a queue moves, so soon.
const RETRY_SOON: Span = Span::secs(1);

/// Jobs that a batch will add, counted before any of them is added.
#[derive(Default)]
struct Extra {
    total: u32,
    lanes: BTreeMap<Ix, u32>,
    nodes: BTreeMap<(Ix, Name, Name), u32>,
    tenants: BTreeMap<Name, u32>,
    keys: BTreeMap<(Name, Name), [u8; 32]>,
}

impl Engine {
    /// Admits one job, or says why not.
    pub(super) fn submit(
        &mut self,
        now: Now,
        submission: Submission,
        effects: &mut Effects,
    ) -> Result<Submitted, Refusal> {
        if let Some(existing) = self.find_existing(&submission)? {
            return Ok(self.existing(now, existing, &submission.spec));
        }
        self.admit(now, &submission.spec, None)?;
        Ok(self.create(now, submission, effects))
    }

    /// Admits many jobs: each for itself, or all or none.
    pub(super) fn submit_batch(
        &mut self,
        now: Now,
        items: Vec<Submission>,
        atomic: bool,
        effects: &mut Effects,
    ) -> Reply {
        if atomic {
            let verdicts = self.check_batch(now, &items);
            if verdicts.iter().any(Option::is_some) {
                let refused = |verdict: Option<Refusal>| {
                    Err(verdict.unwrap_or_else(|| {
                        refuse(RefusalCode::BatchRefused, "another job of this atomic batch was refused")
                    }))
                };
                return Reply::Batch(verdicts.into_iter().map(refused).collect());
            }
        }
        Reply::Batch(items.into_iter().map(|item| self.submit(now, item, effects)).collect())
    }

    /// What would be refused if all items were submitted one after the other.
    fn check_batch(&self, now: Now, items: &[Submission]) -> Vec<Option<Refusal>> {
        let mut extra = Extra::default();
        items.iter().map(|item| self.check_item(now, item, &mut extra).err()).collect()
    }

    fn check_item(&self, now: Now, item: &Submission, extra: &mut Extra) -> Result<(), Refusal> {
        if self.find_existing(item)?.is_some() {
            return Ok(());
        }
        let spec = &item.spec;
        if let Some(idempotency) = &spec.idempotency {
            let key = (spec.tenant.clone(), idempotency.key.clone());
            match extra.keys.get(&key) {
                Some(digest) if *digest != idempotency.digest => return Err(mismatch(&idempotency.key)),
                Some(_) => return Ok(()),
                None => extra.keys.insert(key, idempotency.digest),
            };
        }
        self.admit(now, spec, Some(extra))?;
        let lane = self.lane_for(&spec.lane);
        extra.total += 1;
        *extra.lanes.entry(lane).or_default() += 1;
        *extra.nodes.entry((lane, spec.tenant.clone(), spec.agent.clone())).or_default() += 1;
        *extra.tenants.entry(spec.tenant.clone()).or_default() += 1;
        Ok(())
    }

    /// The job that the submission's idempotency key stands for already.
    fn find_existing(&self, submission: &Submission) -> Result<Option<JobId>, Refusal> {
        let Some(idempotency) = &submission.spec.idempotency else { return Ok(None) };
        let fresh = self.fresh_keys.get(&(submission.spec.tenant.clone(), idempotency.key.clone()));
        match fresh.copied().or(submission.prior) {
            None => Ok(None),
            Some(prior) if prior.digest == idempotency.digest => Ok(Some(prior.job)),
            Some(_) => Err(mismatch(&idempotency.key)),
        }
    }

    fn existing(&self, now: Now, job: JobId, spec: &JobSpec) -> Submitted {
        let live = self.by_id.get(&job).map(|&ix| &self.jobs[ix]);
        Submitted {
            seq: Seq(live.map_or(0, |job| job.seq)),
            job,
            existing: true,
            state: live.map_or(JobState::Succeeded, |job| job.state),
            lane: spec.lane.clone(),
            created_at: live.map_or(now.wall, |job| job.created_at),
        }
    }

    /// Is there room for the job, beside what a batch adds before it?
    fn admit(&self, now: Now, spec: &JobSpec, extra: Option<&Extra>) -> Result<(), Refusal> {
        if self.draining {
            let message = "the server is stopping; submit again after it has restarted";
            return Err(Refusal { retry_after: Some(Span::secs(5)), ..refuse(RefusalCode::Draining, message) });
        }
        if self.storage_low {
            let message = "storage runs low; free disk space, then submit again";
            return Err(Refusal { retry_after: Some(Span::secs(30)), ..refuse(RefusalCode::StorageLow, message) });
        }
        self.check_form(now, spec)?;
        let lane_ix = self.lane_for(&spec.lane);
        let lane = &self.lanes[lane_ix as usize];
        let tenant_ix = self.tenants.find(&spec.tenant);
        let node = tenant_ix.and_then(|tenant| self.nodes.find(&(lane_ix, tenant, spec.agent.clone())));
        let tenant_max = self.settings.tenants.get(&spec.tenant).unwrap_or(&self.settings.tenant_default).queued_max;
        let (mut total, mut in_lane, mut of_agent, mut of_tenant) = (0, 0, 0, 0);
        if let Some(extra) = extra {
            total = extra.total;
            in_lane = extra.lanes.get(&lane_ix).copied().unwrap_or(0);
            of_agent =
                extra.nodes.get(&(lane_ix, spec.tenant.clone(), spec.agent.clone())).copied().unwrap_or(0);
            of_tenant = extra.tenants.get(&spec.tenant).copied().unwrap_or(0);
        }
        of_agent += node.map_or(0, |node| self.nodes[node].waiting);
        of_tenant += tenant_ix.map_or(0, |tenant| self.tenants[tenant].waiting);
        check_cap("server: limits.queued_max", self.waiting + total, self.settings.queued_max)?;
        check_cap("lane: queued_max", lane.waiting + in_lane, lane.settings.queued_max)?;
        check_cap("tenant: queued_max", of_tenant, tenant_max)?;
        check_cap("agent in this lane: queued_per_agent_max", of_agent, lane.settings.queued_per_agent_max)
    }

    fn check_form(&self, now: Now, spec: &JobSpec) -> Result<(), Refusal> {
        if spec.keys.len() > KEYS_MAX {
            return Err(refuse(RefusalCode::Invalid, format!("keys: at most {KEYS_MAX} are allowed")));
        }
        if spec.tags.len() > TAGS_MAX {
            return Err(refuse(RefusalCode::Invalid, format!("tags: at most {TAGS_MAX} are allowed")));
        }
        if let Some(deadline) = spec.deadline {
            if deadline <= now.wall {
                return Err(refuse(RefusalCode::DeadlinePast, "deadline: has passed; give a time in the future"));
            }
            if spec.not_before.is_some_and(|at| at >= deadline) {
                let message = "not_before: comes after the deadline; give an earlier one";
                return Err(refuse(RefusalCode::DeadlinePast, message));
            }
        }
        if self.settings.strict_kinds && !self.is_known_kind(&spec.kind) {
            let message = format!("kind: nobody offers {:?}; register a handler or a target for it", spec.kind.as_str());
            return Err(refuse(RefusalCode::UnknownKind, message));
        }
        Ok(())
    }

    fn is_known_kind(&self, kind: &Name) -> bool {
        self.settings.kinds.contains_key(kind)
            || self.kinds.find(kind).is_some_and(|kind| self.kinds[kind].place != NONE)
    }

    pub(super) fn lane_for(&self, name: &Name) -> Ix {
        self.lane_of.get(name).copied().unwrap_or_else(|| self.lane_of[&Name::fixed(MAIN_LANE)])
    }

    /// Makes the job: it is admitted.
    fn create(&mut self, now: Now, submission: Submission, effects: &mut Effects) -> Submitted {
        let Submission { mut spec, payload, origin, prior: _ } = submission;
        self.fill_in_defaults(&mut spec);
        self.rank_clock = self.rank_clock.max(u64::try_from(now.wall.0).unwrap_or(0));
        let wake = spec.not_before.filter(|&at| at > now.wall);
        let rank_time = wake.map_or(self.rank_clock, |at| self.rank_clock.max(u64::try_from(at.0).unwrap_or(0)));
        self.last_seq += 1;
        let (seq, id) = (Seq(self.last_seq), self.rng.job_id(now.wall));
        let lane = spec.lane.clone();
        let state = if wake.is_some() { JobState::Scheduled } else { JobState::Queued };
        let mut row = Box::new(JobRow {
            seq,
            id,
            payload_len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            created_at: now.wall,
            rank_time,
            submitted_by: origin.actor.clone(),
            status: crate::JobStatus { state, wake_at: wake, attempts: 0, failures: 0, losses: 0, last_event: 0 },
            spec,
        });
        if let Some(idempotency) = &row.spec.idempotency {
            let key = (row.spec.tenant.clone(), idempotency.key.clone());
            self.fresh_keys.insert(key, Prior { job: id, digest: idempotency.digest });
        }
        let job = self.remember(&row);
        self.jobs[job].wake = wake.map(Wake::NotBefore);
        if state == JobState::Queued {
            self.begin_queue_timeout(job, now.mono);
            self.enqueue(job);
        }
        self.arm(job);
        self.job_event(now, EventKind::JobSubmitted, job, None, Some(&origin), effects);
        row.status.last_event = self.jobs[job].last_event;
        effects.changes.push(Change::JobCreated { row, payload });
        Submitted { seq, job: id, existing: false, state, lane, created_at: now.wall }
    }

    /// Where the job says nothing, its kind does; where that says nothing, the server does.
    fn fill_in_defaults(&self, spec: &mut JobSpec) {
        if !self.lane_of.contains_key(&spec.lane) {
            spec.lane = Name::fixed(MAIN_LANE);
        }
        let kind = self.settings.kinds.get(&spec.kind);
        spec.timeout = spec.timeout.or(kind.and_then(|kind| kind.timeout)).or(Some(self.settings.timeout));
        spec.queue_timeout =
            spec.queue_timeout.or(kind.and_then(|kind| kind.queue_timeout)).or(self.settings.queue_timeout);
        if spec.retry.is_none() {
            let policy = kind.and_then(|kind| kind.retry.as_ref()).unwrap_or(&self.settings.retry);
            spec.retry = Some(policy.clone());
        }
        spec.keys.sort();
        spec.keys.dedup();
    }

    /// Takes a stored row into memory: the job, and whatever it shares with others. Puts it in no bin.
    pub(super) fn remember(&mut self, row: &JobRow) -> Ix {
        let spec = &row.spec;
        let lane = self.lane_for(&spec.lane);
        let class = self.hold_class(&spec.tenant, &spec.kind);
        let tenant = self.classes[class].tenant;
        let node = self.hold_node(lane, tenant, &spec.agent);
        let (session, session_max) = match &spec.session {
            Some(session) => (self.hold_session(tenant, &session.key), session.max_concurrent.max(1)),
            None => (NONE, 0),
        };
        let keyset = self.hold_keyset(tenant, &spec.keys);
        let policy = self.policies.hold(spec.retry.as_ref().expect("defaults are filled in"), || ());
        let job = self.jobs.insert(Job {
            id: row.id,
            seq: row.seq.0,
            rank_time: row.rank_time,
            last_event: row.status.last_event,
            created_at: row.created_at,
            deadline: spec.deadline,
            wake: None,
            queue_until: None,
            timeout_ms: spec.timeout.expect("defaults are filled in").0,
            queue_timeout_ms: spec.queue_timeout.map_or(u64::MAX, |span| span.0),
            priority: spec.priority,
            node,
            class,
            session,
            keyset,
            policy,
            bin: NONE,
            session_max,
            attempts: row.status.attempts,
            failures: row.status.failures,
            losses: row.status.losses,
            state: row.status.state,
            open: None,
            armed: Armed::default(),
        });
        self.by_id.insert(row.id, job);
        self.tenants[tenant].states[usize::from(row.status.state.code())] += 1;
        self.count_waiting(job);
        job
    }

    /// From now on the job may start, so from now on its queue timeout runs.
    pub(super) fn begin_queue_timeout(&mut self, job: Ix, from: Mono) {
        let entry = &mut self.jobs[job];
        if entry.attempts == 0 && entry.queue_timeout_ms != u64::MAX {
            entry.queue_until = Some(from + Span(entry.queue_timeout_ms));
        }
    }

    /// Brings the job's timers up to date with its state.
    pub(super) fn arm(&mut self, job: Ix) {
        let armed = self.due_times(job);
        let was = std::mem::replace(&mut self.jobs[job].armed, armed);
        self.timers.rearm(job, was, armed);
    }

    fn due_times(&self, job: Ix) -> Armed {
        let entry = &self.jobs[job];
        if let Some(open) = &entry.open {
            let stop = open.stopping.map(|(_, until)| until);
            let mono = [open.lease_until, open.timeout_at, stop].into_iter().flatten().min();
            let asked = entry.state.is_terminal() || open.stopping.is_some();
            return Armed { mono, wall: if asked { None } else { entry.deadline } };
        }
        match entry.wake {
            Some(Wake::NotBefore(at)) => Armed { mono: None, wall: earlier(Some(at), entry.deadline) },
            Some(Wake::Backoff(at)) => Armed { mono: Some(at), wall: entry.deadline },
            None => Armed { mono: entry.queue_until, wall: entry.deadline },
        }
    }
}

fn earlier(a: Option<Wall>, b: Option<Wall>) -> Option<Wall> {
    [a, b].into_iter().flatten().min()
}

fn check_cap(scope: &str, waiting: u32, cap: u32) -> Result<(), Refusal> {
    if waiting < cap {
        return Ok(());
    }
    let message = format!("the queue is full ({scope}): {waiting} of {cap} jobs wait; submit again later");
    Err(Refusal { retry_after: Some(RETRY_SOON), ..refuse(RefusalCode::QueueFull, message) })
}

fn mismatch(key: &Name) -> Refusal {
    let message = format!("idempotency_key: {:?} was used for another request; choose a new key", key.as_str());
    refuse(RefusalCode::IdempotencyMismatch, message)
}

/// A refusal that asking again does not mend.
pub(super) fn refuse(code: RefusalCode, message: impl Into<Box<str>>) -> Refusal {
    Refusal { code, message: message.into(), retry_after: None }
}
