//! What a session makes of a job that comes for it: it is stale, it ends those before it, it takes the place of the
//! oldest, it is rejected, it joins a batch, or it waits.
//!
//! First the whole answer is worked out from an [`Outlook`], without changing anything, so that a rejection leaves nothing
//! half done and an atomic batch can be judged before its first job is made. Stopping sessions is in `stop.rs`, what is
//! remembered of them in `state.rs`.

use crate::command::{Rejection, RejectionCode, Submission, Submitted};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::jobs::submit::{Begins, Belongs, RETRY_SOON, reject};
use crate::engine::state::{DebounceBatch, Job, KeyEntry, KeyName, Lane, Rank, SessionEntry, Tenant, Wake};
use crate::job::session::{
    SESSION_DEBOUNCE_MAX, SESSION_DEBOUNCE_TOTAL_MAX, SESSION_MERGE_BYTES_MAX, SESSION_MERGE_MAX,
};
use crate::{
    Effects, JobSpec, JobState, Key, MergedInto, Name, Now, Origin, Reason, Seq, Session, SessionMode, Wall,
};

/// What a session looks like to the next job that comes for it.
#[derive(Clone, Default)]
pub(in crate::engine) struct Outlook {
    /// What was sent before this is stale.
    cutoff: Option<Wall>,
    /// Its waiting jobs; a batch is one.
    waiting: u32,
    batch: Option<BatchOutlook>,
}

/// A batch that still collects: what a job must be like to join it, and how much it has collected.
#[derive(Clone)]
struct BatchOutlook {
    kind: Name,
    agent: Name,
    lane: Ix<Lane>,
    keys: Vec<Key>,
    merged: u32,
    bytes: u64,
}

/// What becomes of a job that comes for a session.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Arrival {
    /// It joins the batch that collects.
    Joins {
        /// And the batch is over.
        closes: bool,
    },
    /// It waits for its turn.
    Enters {
        /// Everything before it ends.
        interrupts: bool,
        /// The oldest that waits ends.
        drops_oldest: bool,
        /// The batch before it is over.
        flushes: bool,
        /// It begins a batch.
        leads: bool,
    },
}

impl BatchOutlook {
    /// May a job of this sort, with so much payload, still join?
    fn takes(&self, spec: &JobSpec, lane: Ix<Lane>, len: u64) -> bool {
        spec.kind == self.kind
            && spec.agent == self.agent
            && lane == self.lane
            && spec.keys.iter().all(|key| self.keys.contains(key))
            && self.keys.iter().all(|key| spec.keys.contains(key))
            // What it wants of a worker is its own.
            && spec.placement.is_none()
            && self.bytes.saturating_add(len) <= SESSION_MERGE_BYTES_MAX
    }
}

impl Outlook {
    /// What becomes of a job that comes now, or why it is rejected.
    pub(in crate::engine) fn arrival(
        &self,
        now: Now,
        spec: &JobSpec,
        session: &Session,
        lane: Ix<Lane>,
        len: u64,
    ) -> Result<Arrival, Rejection> {
        let Outlook { cutoff, waiting, batch } = self;
        if let (Some(sent_at), Some(cutoff)) = (session.sent_at, *cutoff)
            && sent_at < cutoff
        {
            let message = "session.sent_at: the job was sent before its session was stopped; send a new one";
            return Err(reject(RejectionCode::Stale, message));
        }
        let interrupts = session.mode == SessionMode::Interrupt;
        let later = spec.not_before.is_some_and(|at| at > now.wall);
        let gathers = !interrupts && !later;
        // A run that is logged must not run under another job's name: a slot leads a batch at most.
        let joins = gathers && spec.schedule.is_none();
        if let Some(batch) = batch.as_ref().filter(|batch| joins && batch.takes(spec, lane, len)) {
            let full = batch.merged + 1 >= SESSION_MERGE_MAX || batch.bytes + len >= SESSION_MERGE_BYTES_MAX;
            return Ok(Arrival::Joins { closes: full || session.window().is_none() });
        }
        let waiting = if interrupts { 0 } else { *waiting };
        let full = session.waiting_max().is_some_and(|max| waiting >= max);
        if full && session.drop == crate::DropPolicy::New {
            let cap = session.cap.unwrap_or_default();
            let message =
                format!("session.cap: {waiting} jobs of the session wait, {cap} may; submit again later");
            return Err(Rejection {
                retry_after: Some(RETRY_SOON),
                ..reject(RejectionCode::SessionFull, message)
            });
        }
        Ok(Arrival::Enters {
            interrupts,
            drops_oldest: full,
            flushes: gathers && batch.is_some(),
            leads: gathers && session.window().is_some(),
        })
    }

    /// The outlook after a job came. Where it cannot be said whether a batch goes on, it does not.
    pub(in crate::engine) fn after(&mut self, arrival: Arrival, spec: &JobSpec, lane: Ix<Lane>, len: u64) {
        match arrival {
            Arrival::Joins { closes: true } => self.batch = None,
            Arrival::Joins { closes: false } => {
                if let Some(batch) = &mut self.batch {
                    batch.merged += 1;
                    batch.bytes += len;
                }
            }
            Arrival::Enters { interrupts, drops_oldest, flushes, leads } => {
                if interrupts {
                    self.waiting = 0;
                }
                if interrupts || drops_oldest || flushes {
                    self.batch = None;
                }
                self.waiting = self.waiting.saturating_sub(u32::from(drops_oldest)) + 1;
                if leads {
                    let (kind, agent) = (spec.kind.clone(), spec.agent.clone());
                    self.batch = Some(BatchOutlook {
                        kind,
                        agent,
                        lane,
                        keys: spec.keys.clone(),
                        merged: 0,
                        bytes: len,
                    });
                }
            }
        }
    }
}

impl Engine {
    /// Is what the job asks of its session possible at all?
    pub(in crate::engine) fn check_session(&self, spec: &JobSpec) -> Result<(), Rejection> {
        let Some(session) = &spec.session else { return Ok(()) };
        if session.debounce.is_some_and(|window| window > SESSION_DEBOUNCE_MAX) {
            let most = SESSION_DEBOUNCE_MAX.0 / 1_000;
            return Err(reject(
                RejectionCode::Invalid,
                format!("session.debounce: at most {most} s are allowed"),
            ));
        }
        if session.debounce_max.is_some_and(|most| most > SESSION_DEBOUNCE_TOTAL_MAX) {
            let most = SESSION_DEBOUNCE_TOTAL_MAX.0 / 1_000;
            let message = format!("session.debounce_max: at most {most} s are allowed");
            return Err(reject(RejectionCode::Invalid, message));
        }
        Ok(())
    }

    /// What the session looks like to the next job that comes for it.
    pub(in crate::engine) fn outlook(&self, tenant: Option<Ix<Tenant>>, key: &Name) -> Outlook {
        let found = tenant.and_then(|tenant| self.sessions.entries.find(&(tenant, key.clone())));
        let Some(session) = found else { return Outlook::default() };
        let entry = &self.sessions.entries[session];
        let batch = entry.batch.as_ref().map(|batch| {
            let leader = &self.jobs[batch.leader];
            let (lane, _, agent) = self.queue.agent_queues.key(leader.node);
            let keys = self.keys_held_by(batch.leader);
            let key = |&key: &Ix<KeyEntry>| match self.queue.keys.key(key).clone() {
                KeyName::Named(_, name, value) => Some(Key { name, value }),
                _ => None,
            };
            BatchOutlook {
                kind: self.queue.kinds.key(self.kind_of(batch.leader)).clone(),
                agent: agent.clone(),
                lane: *lane,
                keys: keys.iter().filter_map(key).collect(),
                merged: batch.merged,
                bytes: batch.bytes,
            }
        });
        let cutoff = entry.state.as_ref().and_then(|state| state.cutoff);
        Outlook { cutoff, waiting: self.waiting_in_session(session), batch }
    }

    /// Makes the job of a submission, with all that follows from it for its session.
    pub(in crate::engine) fn arrive(
        &mut self,
        now: Now,
        submission: Submission,
        belongs: Belongs,
        arrival: Arrival,
        effects: &mut Effects,
    ) -> Submitted {
        let (interrupts, drops_oldest, flushes, leads) = match arrival {
            Arrival::Joins { closes } => return self.join(now, submission, belongs, closes, effects),
            Arrival::Enters { interrupts, drops_oldest, flushes, leads } => {
                (interrupts, drops_oldest, flushes, leads)
            }
        };
        let mut belongs = belongs;
        if interrupts || drops_oldest || flushes {
            self.make_way(now, &submission, belongs, (interrupts, drops_oldest, flushes), effects);
            // What ended may have been the last of its agent or kind.
            belongs = self.locate(&submission.spec);
        }
        let session = submission.spec.session.as_ref().expect("it comes for a session");
        let (window, burst_max) = (session.window().unwrap_or_default(), session.debounce_limit());
        let bytes = submission.payload.len() as u64;
        let begins = if leads { Begins::Collecting(window) } else { Begins::AtOnce };
        let submitted = self.create(now, submission, belongs, begins, effects);
        if leads {
            let leader = self.find_job(submitted.job).expect("it was just made");
            let session = self.jobs[leader].session.expect("it was made for a session");
            let until_max = now.mono + burst_max.max(window);
            self.sessions.entries[session].batch =
                Some(DebounceBatch { leader, until_max, merged: 0, bytes });
        }
        submitted
    }

    /// Does to the jobs before it what a new one asks for.
    fn make_way(
        &mut self,
        now: Now,
        submission: &Submission,
        belongs: Belongs,
        (interrupts, drops_oldest, flushes): (bool, bool, bool),
        effects: &mut Effects,
    ) {
        let Some(session) = self.session_of(submission, belongs) else { return };
        // Held, so that it is still there when the last of its jobs has ended.
        self.sessions.entries.hold_again(session);
        if interrupts {
            self.end_session_jobs(now, session, Reason::Interrupted, &submission.origin, effects);
        }
        if drops_oldest {
            self.drop_oldest(now, session, &submission.origin, effects);
        }
        if flushes {
            self.flush(now, session, effects);
        }
        self.release_session(session);
    }

    fn session_of(&self, submission: &Submission, belongs: Belongs) -> Option<Ix<SessionEntry>> {
        let key = submission.spec.session.as_ref()?.key.clone();
        self.sessions.entries.find(&(belongs.tenant?, key))
    }

    /// The job joins the batch that collects: it ends at once, and the batch's first job runs for both.
    fn join(
        &mut self,
        now: Now,
        submission: Submission,
        belongs: Belongs,
        closes: bool,
        effects: &mut Effects,
    ) -> Submitted {
        let session = self.session_of(&submission, belongs).expect("a batch has its session");
        let window = submission.spec.session.as_ref().and_then(Session::window).unwrap_or_default();
        let batch = self.sessions.entries[session].batch.as_mut().expect("a batch gathers");
        batch.merged += 1;
        batch.bytes += submission.payload.len() as u64;
        let (leader, until_max) = (batch.leader, batch.until_max);
        let into = MergedInto { seq: Seq(self.jobs[leader].seq), job: self.jobs[leader].id };
        let submitted = self.create(now, submission, belongs, Begins::Merged(into), effects);
        if closes {
            self.flush(now, session, effects);
        } else {
            // Not written down: after a restart the batch collects no more, and its first window is long enough.
            self.jobs[leader].wake = Some(Wake::Debounce((now.mono + window).min(until_max)));
            self.arm(leader);
        }
        submitted
    }

    /// The batch that collects is over: its first job waits for its turn.
    pub(in crate::engine) fn flush(&mut self, now: Now, session: Ix<SessionEntry>, effects: &mut Effects) {
        let Some(batch) = &self.sessions.entries[session].batch else { return };
        let leader = batch.leader;
        self.become_queued(now, leader, Reason::Due, effects);
        self.look_at_needs(now, leader, effects);
        self.arm(leader);
    }

    fn drop_oldest(&mut self, now: Now, session: Ix<SessionEntry>, origin: &Origin, effects: &mut Effects) {
        let oldest = self.first_waiting_in(session);
        let Some(oldest) = oldest else { return };
        let ending = JobEnding::new(JobState::Canceled, Reason::Dropped);
        self.end_job(now, oldest, JobEnding { origin: Some(origin), ..ending }, effects);
    }

    /// Ends every job of a session that has not ended. Gives those that ran and those that waited, in their order.
    pub(in crate::engine) fn end_session_jobs(
        &mut self,
        now: Now,
        session: Ix<SessionEntry>,
        reason: Reason,
        origin: &Origin,
        effects: &mut Effects,
    ) -> (Vec<crate::JobId>, Vec<crate::JobId>) {
        let waiting = self.all_waiting_in(session);
        let running: Vec<Ix<Job>> = self.running_in(session).collect();
        let ids = |jobs: &[Ix<Job>]| jobs.iter().map(|&job| self.jobs[job].id).collect();
        let told = (ids(&running), ids(&waiting));
        for job in running {
            self.cancel_job(now, job, reason, Some(origin), effects);
        }
        for job in waiting {
            let ending = JobEnding::new(JobState::Canceled, reason);
            self.end_job(now, job, JobEnding { origin: Some(origin), ..ending }, effects);
        }
        told
    }

    /// How many jobs of a session wait, for their turn or for a time.
    pub(in crate::engine) fn waiting_in_session(&self, session: Ix<SessionEntry>) -> u32 {
        let entry = &self.sessions.entries[session];
        let in_bin = entry.bin.map_or(0, |bin| self.queue.bins[bin].jobs.len());
        u32::try_from(in_bin + entry.later.len()).unwrap_or(u32::MAX)
    }

    /// The job of a session that goes first among those that wait.
    pub(in crate::engine) fn first_waiting_in(&self, session: Ix<SessionEntry>) -> Option<Ix<Job>> {
        let entry = &self.sessions.entries[session];
        let in_bin = entry.bin.and_then(|bin| self.queue.bins[bin].jobs.first());
        let later = entry.later.first_key_value().map(|(order, job)| (*order, *job));
        in_bin.into_iter().chain(later).min().map(|(_, job)| job)
    }

    /// Every job of a session that waits, in the order in which they go.
    pub(in crate::engine) fn all_waiting_in(&self, session: Ix<SessionEntry>) -> Vec<Ix<Job>> {
        let entry = &self.sessions.entries[session];
        let mut waiting: Vec<(Rank, Ix<Job>)> =
            entry.later.iter().map(|(order, job)| (*order, *job)).collect();
        if let Some(bin) = entry.bin {
            waiting.extend(self.queue.bins[bin].jobs.iter());
        }
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, job)| job).collect()
    }

    /// Jobs of a session that run and have not ended, those that have run longest first.
    pub(in crate::engine) fn running_in(&self, session: Ix<SessionEntry>) -> impl Iterator<Item = Ix<Job>> {
        self.sessions.entries[session].runs.iter().copied().filter(|&job| !self.jobs[job].state.is_terminal())
    }

    /// Brings the runs of every session into the order in which they opened, after they were read in another.
    pub(in crate::engine) fn sort_session_runs(&mut self) {
        for session in self.sessions.entries.handles() {
            let mut runs = std::mem::take(&mut self.sessions.entries[session].runs);
            runs.sort_by_key(|&job| (self.jobs.open(job).opened_at, self.jobs[job].seq));
            self.sessions.entries[session].runs = runs;
        }
    }

    /// How many jobs of a session may run at once while `job` is the next one.
    pub(in crate::engine) fn session_max_of(&self, job: Ix<Job>) -> u32 {
        let entry = &self.jobs[job];
        let state = entry.session.and_then(|session| self.sessions.entries[session].state.as_ref());
        let throttled = state.is_some_and(|state| state.is_throttled());
        if throttled { 1 } else { entry.session_max }
    }

    /// Runs of ended jobs that `job` must wait for although its session has room: an interrupt never overlaps what it
    /// ended.
    pub(in crate::engine) fn runs_to_await(&self, job: Ix<Job>) -> usize {
        let Some(session) = self.jobs[job].session.filter(|_| self.jobs[job].interrupts) else { return 0 };
        let runs = &self.sessions.entries[session].runs;
        runs.iter().filter(|&&run| self.jobs[run].state.is_terminal()).count()
    }

    /// True while the session lets `job`, its next one, start.
    pub(in crate::engine) fn session_lets_start(&self, job: Ix<Job>) -> bool {
        let Some(session) = self.jobs[job].session else { return true };
        let running = self.sessions.entries[session].runs.len();
        running < self.session_max_of(job) as usize && self.runs_to_await(job) == 0
    }

    /// A job of a session begins to wait for its not-before time, which is in no bin.
    pub(in crate::engine) fn wait_for_later(&mut self, job: Ix<Job>) {
        let Some(session) = self.jobs[job].session else { return };
        let order = self.order_in_bin(job);
        self.sessions.entries[session].later.insert(order, job);
    }

    /// A job of a session waits for no time any more. Must be told while its place in the order is what it was.
    pub(in crate::engine) fn wait_no_longer(&mut self, job: Ix<Job>) {
        let (Some(session), wake) = (self.jobs[job].session, self.jobs[job].wake) else { return };
        let order = self.order_in_bin(job);
        let entry = &mut self.sessions.entries[session];
        match wake {
            Some(Wake::NotBefore(_)) => {
                entry.later.remove(&order);
            }
            Some(Wake::Debounce(_)) if entry.batch.as_ref().is_some_and(|batch| batch.leader == job) => {
                entry.batch = None;
            }
            _ => {}
        }
    }
}
