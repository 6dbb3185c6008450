//! The arrival of a job for a session: the job is stale, interrupts the jobs before it, replaces the oldest one, is
//! rejected, joins a debounce batch, or waits.
//!
//! The outcome is computed from an [`Outlook`] first, without changing anything, so that a rejection leaves nothing half
//! done and an atomic batch can be checked before its first job is created. Stopping sessions is in `stop.rs`, their
//! stored state in `state.rs`.

use crate::command::{Rejection, RejectionCode, Submission, Submitted};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::jobs::submit::{Begins, Belongs, RETRY_SOON, reject};
use crate::engine::jobs::{Job, Jobs, Wake};
use crate::engine::queue::{KeyEntry, KeyName, Lane, Queue, Tenant};
use crate::engine::sessions::entry::DebounceBatch;
use crate::engine::sessions::{SessionEntry, Sessions};
use crate::job::session::{
    SESSION_DEBOUNCE_MAX, SESSION_DEBOUNCE_TOTAL_MAX, SESSION_MERGE_BYTES_MAX, SESSION_MERGE_MAX,
};
use crate::{
    Effects, JobSpec, JobState, Key, MergedInto, Name, Now, Origin, Reason, Seq, Session, SessionMode, Wall,
};

/// The parts of a session that decide about the next job that arrives.
#[derive(Clone, Default)]
pub(in crate::engine) struct Outlook {
    /// Jobs that were sent before this time are stale.
    cutoff: Option<Wall>,
    /// Its waiting jobs; a debounce batch is one.
    waiting: u32,
    batch: Option<BatchOutlook>,
}

/// A debounce batch: the conditions for joining it, and how much it has collected.
#[derive(Clone)]
struct BatchOutlook {
    kind: Name,
    agent: Name,
    lane: Ix<Lane>,
    keys: Vec<Key>,
    merged: u32,
    bytes: u64,
}

/// The outcome of an arrival.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Arrival {
    /// The job joins the debounce batch.
    Joins {
        /// The batch is complete with it.
        closes: bool,
    },
    /// The job waits in the queue.
    Enters {
        /// Everything before it ends.
        interrupts: bool,
        /// The oldest waiting job ends.
        drops_oldest: bool,
        /// The batch before it is complete.
        flushes: bool,
        /// It begins a batch.
        leads: bool,
    },
}

impl BatchOutlook {
    /// True when a job with this spec and this much payload may still join.
    fn accepts(&self, spec: &JobSpec, lane: Ix<Lane>, len: u64) -> bool {
        spec.kind == self.kind
            && spec.agent == self.agent
            && lane == self.lane
            && spec.keys.iter().all(|key| self.keys.contains(key))
            && self.keys.iter().all(|key| spec.keys.contains(key))
            // Placement constraints are a job's own.
            && spec.placement.is_none()
            && self.bytes.saturating_add(len) <= SESSION_MERGE_BYTES_MAX
    }
}

impl Outlook {
    /// The outcome for a job that arrives now, or why it is rejected.
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
        let collects = !interrupts && !later;
        // A firing that is logged must not run as another job: the job of a slot leads a batch at most.
        let joins = collects && spec.schedule.is_none();
        if let Some(batch) = batch.as_ref().filter(|batch| joins && batch.accepts(spec, lane, len)) {
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
            flushes: collects && batch.is_some(),
            leads: collects && session.window().is_some(),
        })
    }

    /// The outlook after a job arrived. When it is not known whether a batch goes on, it does not.
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

/// Checks that the job's options for its session are within the limits.
pub(in crate::engine) fn check_session(spec: &JobSpec) -> Result<(), Rejection> {
    let Some(session) = &spec.session else { return Ok(()) };
    let options = [
        ("debounce", session.debounce, SESSION_DEBOUNCE_MAX),
        ("debounce_max", session.debounce_max, SESSION_DEBOUNCE_TOTAL_MAX),
    ];
    for (option, value, max) in options {
        if value.is_some_and(|value| value > max) {
            let message = format!("session.{option}: at most {} s are allowed", max.0 / 1_000);
            return Err(reject(RejectionCode::Invalid, message));
        }
    }
    Ok(())
}

impl Sessions {
    /// The outlook of a session for the next job that arrives.
    pub(in crate::engine) fn outlook(
        &self,
        jobs: &Jobs,
        queue: &Queue,
        tenant: Option<Ix<Tenant>>,
        key: &Name,
    ) -> Outlook {
        let Some(session) = tenant.and_then(|tenant| self.find(tenant, key)) else {
            return Outlook::default();
        };
        let entry = &self.entries[session];
        let batch = entry.batch.as_ref().map(|batch| {
            let leader = &jobs[batch.leader];
            let (lane, _, agent) = queue.agent_queue_key(leader.agent_queue());
            let keys = queue.keys_of(leader);
            let key = |&key: &Ix<KeyEntry>| match queue.key_name(key).clone() {
                KeyName::Named(_, name, value) => Some(Key { name, value }),
                _ => None,
            };
            BatchOutlook {
                kind: queue.kind_name(queue.kind_of(leader)).clone(),
                agent: agent.clone(),
                lane: *lane,
                keys: keys.iter().filter_map(key).collect(),
                merged: batch.merged,
                bytes: batch.bytes,
            }
        });
        let cutoff = entry.state.as_ref().and_then(|state| state.cutoff);
        Outlook { cutoff, waiting: self.waiting_count(queue, session), batch }
    }
}

impl Engine {
    /// Creates the job of a submission, with the consequences for its session.
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
            // A job that ended may have been the last of its agent or kind.
            belongs = self.queue.locate(&submission.spec);
        }
        let session = submission.spec.session.as_ref().expect("the job has a session");
        let (window, total_max) = (session.window().unwrap_or_default(), session.debounce_limit());
        let bytes = submission.payload.len() as u64;
        let begins = if leads { Begins::Collecting(window) } else { Begins::AtOnce };
        let submitted = self.create(now, submission, belongs, begins, effects);
        if leads {
            let leader = self.jobs.find(submitted.job).expect("it was just created");
            let session = self.jobs[leader].session().expect("it has a session");
            let until_max = now.mono + total_max.max(window);
            self.sessions.entries[session].batch =
                Some(DebounceBatch { leader, until_max, merged: 0, bytes });
        }
        submitted
    }

    /// Ends or releases the jobs before a new one, as the new one asks.
    fn make_way(
        &mut self,
        now: Now,
        submission: &Submission,
        belongs: Belongs,
        (interrupts, drops_oldest, flushes): (bool, bool, bool),
        effects: &mut Effects,
    ) {
        let Some(session) = self.session_of(submission, belongs) else { return };
        // Held, so that it outlives the last of its jobs.
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
        self.sessions.release(session);
    }

    fn session_of(&self, submission: &Submission, belongs: Belongs) -> Option<Ix<SessionEntry>> {
        self.sessions.find(belongs.tenant?, &submission.spec.session.as_ref()?.key)
    }

    /// The job joins the debounce batch: it ends at once, and the leader of the batch runs for both.
    fn join(
        &mut self,
        now: Now,
        submission: Submission,
        belongs: Belongs,
        closes: bool,
        effects: &mut Effects,
    ) -> Submitted {
        let session = self.session_of(&submission, belongs).expect("a batch has a session");
        let window = submission.spec.session.as_ref().and_then(Session::window).unwrap_or_default();
        let batch = self.sessions.entries[session].batch.as_mut().expect("there is a batch to join");
        batch.merged += 1;
        batch.bytes += submission.payload.len() as u64;
        let (leader, until_max) = (batch.leader, batch.until_max);
        let into = MergedInto { seq: Seq(self.jobs[leader].seq()), job: self.jobs[leader].id() };
        let submitted = self.create(now, submission, belongs, Begins::Merged(into), effects);
        if closes {
            self.flush(now, session, effects);
        } else {
            // Not stored: after a restart the batch collects no more, and its first window is long enough.
            self.jobs[leader].wait_for(Wake::Debounce((now.mono + window).min(until_max)));
            self.arm(leader);
        }
        submitted
    }

    /// The debounce batch is complete: its leader waits in the queue.
    pub(in crate::engine) fn flush(&mut self, now: Now, session: Ix<SessionEntry>, effects: &mut Effects) {
        let Some(batch) = &self.sessions.entries[session].batch else { return };
        let leader = batch.leader;
        self.become_queued(now, leader, Reason::Due, effects);
        self.look_at_needs(now, leader, effects);
        self.arm(leader);
    }

    fn drop_oldest(&mut self, now: Now, session: Ix<SessionEntry>, origin: &Origin, effects: &mut Effects) {
        let Some(oldest) = self.sessions.first_waiting(&self.queue, session) else { return };
        let ending = JobEnding::new(JobState::Canceled, Reason::Dropped);
        self.end_job(now, oldest, JobEnding { origin: Some(origin), ..ending }, effects);
    }

    /// Ends every job of a session that has not ended. Returns those that ran and those that waited, in order.
    pub(in crate::engine) fn end_session_jobs(
        &mut self,
        now: Now,
        session: Ix<SessionEntry>,
        reason: Reason,
        origin: &Origin,
        effects: &mut Effects,
    ) -> (Vec<crate::JobId>, Vec<crate::JobId>) {
        let waiting = self.sessions.all_waiting(&self.queue, session);
        let running: Vec<Ix<Job>> = self.sessions.running(&self.jobs, session).collect();
        let ids = |jobs: &[Ix<Job>]| jobs.iter().map(|&job| self.jobs[job].id()).collect();
        let ended = (ids(&running), ids(&waiting));
        for job in running {
            self.cancel_job(now, job, reason, Some(origin), effects);
        }
        for job in waiting {
            let ending = JobEnding::new(JobState::Canceled, reason);
            self.end_job(now, job, JobEnding { origin: Some(origin), ..ending }, effects);
        }
        ended
    }
}
