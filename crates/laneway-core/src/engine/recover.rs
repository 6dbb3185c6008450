//! The only start-up path: an engine is always built from stored rows, after a clean stop as after a crash.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::create::within_hours;
use crate::engine::jobs::{Job, Open, Resumed, Wake};
use crate::engine::leases::by_id::{LEASES, REJECTED_MAX};
use crate::schedule::Plan;
use crate::{
    AttemptEnd, CallRow, DeliveryRow, Effects, EndedMember, ExecutorMode, ExecutorOffer, FiringLogEntry,
    JobRow, JobState, KeptKeys, Name, Now, OpenAttempt, Record, RunId, RunRow, Schedule, ScheduleId, Seed,
    Seq, SessionRow, Settings, Span, TokenRecord, Wall,
};

/// The counters of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StoreCounters {
    /// Highest job number ever given, purged ones included.
    pub last_seq: u64,
    /// Highest event number ever given, purged ones included.
    pub last_event: u64,
    /// Highest rank time of a stored job. For people; the engine takes its own from the rows.
    pub last_rank_time: u64,
    /// The time up to which retention has counted; `None`: it never has.
    pub clock_seen: Option<Wall>,
}

/// Why the engine is built from stored rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The process is new: what ran attached died with the old one and is closed as lost.
    Process,
    /// The same process threw its memory away: attached runs still go on.
    Rebuild,
}

/// Builds an engine from stored rows: first every live job, then every open attempt, then `finish`.
pub struct Recovery {
    engine: Engine,
    now: Now,
    /// Jobs with an open attempt.
    open: Vec<Ix<Job>>,
    /// Schedules whose timing cannot be read any more.
    unreadable: Vec<ScheduleId>,
    /// Where the nodes of open runs stand in them.
    nodes: BTreeMap<RunId, BTreeMap<Name, u32>>,
    /// Open runs by their first jobs.
    firsts: BTreeMap<Seq, RunId>,
}

impl Recovery {
    /// Begins with settings, tokens and where the store's numbers stand. `seed` must differ from boot to boot: ids and
    /// jitter are drawn from it.
    pub fn new(
        settings: Settings,
        tokens: Vec<TokenRecord>,
        counters: StoreCounters,
        seed: impl Into<Seed>,
        now: Now,
    ) -> Recovery {
        let mut engine = Engine::empty(settings, seed.into(), now, counters.clock_seen);
        engine.numbers.resume(counters.last_seq, counters.last_event);
        for token in tokens {
            engine.tokens.put(token);
        }
        engine.recount_shares();
        Recovery {
            engine,
            now,
            open: Vec::new(),
            unreadable: Vec::new(),
            nodes: BTreeMap::new(),
            firsts: BTreeMap::new(),
        }
    }

    /// Takes up the name of a lane that has had jobs. Its ended jobs are forgotten in time, also where it is named no more:
    /// then by the retention of `main`.
    pub fn lane(&mut self, lane: Name) {
        self.engine.queue.resume_lane(lane);
    }

    /// Takes up a schedule. All of them come before the jobs.
    pub fn schedule(&mut self, mut schedule: Schedule) {
        let plan = Plan::new(&schedule.spec.timing, self.now.wall);
        let plan = plan.unwrap_or_else(|error| {
            // A zone that no longer exists must not keep the server from starting.
            self.unreadable.push(schedule.id);
            schedule.spec.enabled = false;
            schedule.state.next_at = None;
            schedule.state.last_error = Some(error.to_string().into());
            Plan::never()
        });
        self.engine.schedules.insert(schedule, plan);
    }

    /// Takes up an open run, with those of its members that have ended. All of them come before the jobs.
    pub fn run(&mut self, row: RunRow, ended: &[EndedMember]) {
        self.nodes.insert(row.id, row.nodes.iter().cloned().zip(0..).collect());
        self.firsts.insert(row.first, row.id);
        self.engine.workflows.resume(row, ended);
    }

    /// Takes up an entry of the firing log. The newest entries come last.
    pub fn firing_log_entry(&mut self, log: FiringLogEntry) {
        self.engine.schedules.remember(log);
    }

    /// Takes up a live job.
    pub fn job(&mut self, row: JobRow) {
        let engine = &mut self.engine;
        // A job whose time has not come has a rank ahead of all others; any other job is older than those to come.
        let waits_for_wall =
            row.spec.capacity.hours.is_some() || row.spec.not_before.is_some_and(|at| at > row.created_at);
        let hours = row.spec.capacity.hours.as_ref();
        let not_before = row.spec.not_before.map(|at| within_hours(hours, at));
        // A call may give a job that was tried before another time.
        let rescheduled = not_before.is_some() && not_before == row.status.wake_at;
        let waits_for_wall = rescheduled || (waits_for_wall && row.status.attempts == 0);
        let never_due = row.status.state == JobState::Scheduled && waits_for_wall;
        if !never_due {
            engine.clock.raise_rank(row.rank_time);
        }
        let job = engine.remember(&row);
        if let Some(of) = &row.spec.member
            && let Some(nodes) = self.nodes.get(&of.run)
        {
            engine.workflows.resume_dependencies(nodes, of, job);
        }
        match row.status.state {
            // Only a member that waits for others, or to be called, is scheduled for no time.
            JobState::Scheduled if row.spec.member.is_some() && row.status.wake_at.is_none() => {
                let chain = row.spec.member.as_ref().and_then(|member| member.chain.as_ref());
                let called = chain.is_some_and(crate::Chain::is_called);
                engine.jobs[job].wait_for(if called { Wake::Called } else { Wake::Upstream });
            }
            JobState::Scheduled => {
                let wake_at = row.status.wake_at.unwrap_or(self.now.wall);
                let wake = if row.status.attempts > 0 && !rescheduled {
                    // Stored as a wall time; a clock that was set must not stretch it.
                    let longest = engine.jobs.retry_policy_of(job).backoff.longest();
                    let longest = longest.max(REJECTED_MAX).max(engine.settings.retry_after_max);
                    let rest = wake_at.since(self.now.wall);
                    Wake::Backoff(self.now.mono + Span(rest.0.min(longest.0)))
                } else if waits_for_wall || row.spec.member.is_some() {
                    Wake::NotBefore(wake_at)
                } else {
                    // No job joins it any more: what it collected is not stored. It waits for its own window only.
                    let window =
                        row.spec.session.as_ref().and_then(|session| session.debounce).unwrap_or_default();
                    Wake::Debounce(self.now.mono + Span(wake_at.since(self.now.wall).0.min(window.0)))
                };
                engine.jobs[job].wait_for(wake);
                match wake {
                    Wake::NotBefore(_) => engine.sessions.wait_for_later(&engine.jobs, job),
                    Wake::Backoff(_) | Wake::Debounce(_) if row.spec.session.is_some() => engine.enqueue(job),
                    _ => {}
                }
            }
            _ => {
                self.resume_queue_timeout(job, &row);
                self.engine.workflows.note_queued(&self.engine.jobs[job], job);
                self.engine.jobs.begin_hours(job, self.now.wall);
                self.engine.enqueue(job);
            }
        }
        self.engine.arm(job);
    }

    /// What was waited before the restart counts.
    fn resume_queue_timeout(&mut self, job: Ix<Job>, row: &JobRow) {
        let from = row.spec.not_before.map_or(row.created_at, |at| at.max(row.created_at));
        let from = self.engine.workflows.released_at(job).map_or(from, |at| at.max(from));
        let waited = self.now.wall.since(from);
        self.engine.jobs[job].resume_queue_timeout(self.now.mono, waited);
    }

    /// Takes up the open attempt of a live job.
    pub fn open(&mut self, open: OpenAttempt) {
        let Some(job) = self.engine.jobs.find(open.fence.job) else { return };
        self.engine.sessions.wait_no_longer(&self.engine.jobs, job);
        self.engine.dequeue(job);
        self.engine.queue.uncount_waiting(&self.engine.jobs[job]);
        // Rows are written once; the attempt's row is newer than the job's.
        self.engine.restate(job, open.state);
        self.take_up(job, &open);
    }

    /// Takes up an open attempt of an ended job: it holds its gates until the attempt has ended.
    pub fn still_running(&mut self, row: JobRow, open: OpenAttempt) {
        let job = self.engine.remember(&row);
        self.engine.workflows.resume_canceled(job, &row);
        self.engine.queue.uncount_waiting(&self.engine.jobs[job]);
        // Which end it was is stored with the job; in memory only one matters: it has ended.
        self.engine.restate(job, JobState::Canceled);
        self.take_up(job, &open);
        let until = self.now.mono + self.engine.settings.stop_grace;
        self.engine.jobs.open_mut(job).stop(AttemptEnd::Canceled, until);
        self.engine.arm(job);
    }

    /// Every open attempt gets its full lease and its full timeout again: no heartbeat could arrive during the restart.
    fn take_up(&mut self, job: Ix<Job>, open: &OpenAttempt) {
        let engine = &mut self.engine;
        let offers_nothing =
            ExecutorOffer { executor: open.executor.clone(), mode: open.mode, kinds: Vec::new(), slots: 0 };
        engine.offer_executor(offers_nothing);
        let executor = engine.queue.find_executor(&open.executor).expect("it was just made");
        let tenant = engine.queue.tenant_of(&engine.jobs[job]);
        let worker = open.holder.as_ref().map(|holder| {
            let worker = engine.workers.hold(tenant, &holder.worker);
            if open.executor.as_str() != LEASES {
                engine.workers.set_boot(worker, holder.boot.as_ref());
            }
            worker
        });
        // Its runner goes by the lease that it knows of, not by the settings of now.
        let lease = engine.lease_of(job).max(open.lease);
        engine.jobs[job].resume_attempt(open.fence.attempt, open.last_event);
        engine.schedules.firing_resumed(job, open.opened_at);
        let (pull, timeout) = (open.executor.as_str() == LEASES, engine.jobs[job].timeout());
        let from = Resumed { executor, worker, pull, now: self.now.mono, lease, timeout };
        engine.jobs.set_open(Open::resumed(job, open, from));
        if engine.jobs[job].in_run() {
            engine.workflows.resume_member_attempt(job, open.fence.attempt);
        }
        engine.take_gates(job);
        engine.queue.rekey_agent(&engine.workers, engine.jobs[job].agent_queue());
        engine.refresh_session(job);
        engine.arm(job);
        self.open.push(job);
    }

    /// Takes up the latest call of a node of an open run. All of them come after the open attempts.
    pub fn call(&mut self, row: CallRow) {
        if let Some((_, &run)) = self.firsts.range(..=row.target).next_back() {
            self.engine.resume_call(self.now, row, run);
        }
    }

    /// Takes up what was stored of a session beside its jobs.
    pub fn session(&mut self, row: SessionRow) {
        self.engine.load_session(self.now, &row);
    }

    /// Takes up the keys that an ended job keeps.
    pub fn kept_keys(&mut self, row: KeptKeys) {
        self.engine.resume_kept_keys(row);
    }

    /// Takes up a record.
    pub fn record(&mut self, record: Record) {
        self.engine.resume_record(record);
    }

    /// Takes up a delivery that waits. `under_way`: it is being sent, and its outcome will be reported.
    pub fn delivery(&mut self, row: DeliveryRow, under_way: bool) {
        self.engine.webhooks.resume(self.now, row, under_way, &self.engine.settings.webhooks);
    }

    /// The engine, and what follows from the restart (to be committed before anything else).
    pub fn finish(self, now: Now, restart: Restart, effects: &mut Effects) -> Engine {
        let Recovery { mut engine, open, unreadable, .. } = self;
        engine.sessions.sort_open(&engine.jobs);
        engine.workflows.resume_dependents();
        for id in unreadable {
            engine.schedules.store_state(id, &engine.jobs, effects);
        }
        engine.schedules.resume(now, restart);
        engine.stop_outdated(now, effects);
        if restart == Restart::Process {
            for job in open {
                // One that was reserved for a call that was taken back is closed already.
                let Some(open) = engine.jobs.attempt_of(job) else { continue };
                if open.mode() != ExecutorMode::Attached {
                    continue;
                }
                let stopping = open.stopping();
                match stopping {
                    _ if engine.jobs[job].state().is_terminal() => {
                        engine.release_still_running(now, job, effects)
                    }
                    Some((cause, _)) => engine.close_stopped(now, job, cause, effects),
                    None => engine.lose(now, job, effects),
                }
            }
        }
        engine.settle_runs(now, effects);
        engine
    }
}
