//! Making a job that was admitted: its row, and what it waits for first.

use std::sync::Arc;

use crate::capacity::Hours;
use crate::command::Submitted;
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::JobEnding;
use crate::engine::jobs::record::JobEvent;
use crate::engine::jobs::submit::{Begins, Belongs, near_at};
use crate::engine::jobs::{Job, Wake};
use crate::{
    Change, Effects, EventKind, JobRow, JobSpec, JobState, JobStatus, MergedInto, Now, Origin, Prior, Reason,
    Span, Submission, Wall,
};

impl Engine {
    /// Makes the job: it is admitted.
    pub(in crate::engine) fn create(
        &mut self,
        now: Now,
        submission: Submission,
        belongs: Belongs,
        begins: Begins,
        effects: &mut Effects,
    ) -> Submitted {
        let Submission { mut spec, payload, origin, prior: _, record_rejection: _, strict_lane: _ } =
            submission;
        self.queue.fill_in_defaults(&self.settings, &mut spec, belongs);
        let upstream = matches!(begins, Begins::Upstream | Begins::Called);
        let not_before = first_start(&spec, now.wall).filter(|&at| at > now.wall && !upstream);
        let near_deadline = near_at(&self.settings, &spec).is_some_and(|at| at <= now.wall);
        let wake = first_wake(now, not_before, begins);
        // A job that waits for a time begins to age when that time comes.
        let ahead = not_before.map_or(Span(0), |at| at.since(now.wall));
        let rank_time = self.clock.rank_now(now).saturating_add(ahead.0);
        let (seq, id) = (self.numbers.next_seq(), self.numbers.job_id(now.wall));
        let lane = spec.lane.clone();
        let state = if wake.is_some() { JobState::Scheduled } else { JobState::Queued };
        let mut row = Arc::new(JobRow {
            seq,
            id,
            payload_len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            created_at: now.wall,
            rank_time,
            submitted_by: origin.actor.clone(),
            position: 0,
            status: JobStatus { near_deadline, ..JobStatus::new(state, wake.and_then(|(_, at)| at)) },
            spec,
        });
        if let Some(idempotency) = &row.spec.idempotency {
            let key = (row.spec.tenant.clone(), idempotency.key.clone());
            self.jobs.fresh_keys.insert(
                self.numbers.batch(),
                key,
                Prior { job: id, digest: idempotency.digest },
            );
        }
        let job = self.insert_job(&row, belongs);
        let served = self.workers.is_served(&self.queue, self.jobs[job].class());
        self.jobs[job].set_wake(wake.map(|(wake, _)| wake));
        match (wake, begins) {
            (Some((Wake::NotBefore(_), _)), _) => self.sessions.wait_for_later(&self.jobs, job),
            (Some((Wake::Upstream | Wake::Called, _)), _) => {}
            (Some(_), _) => self.enqueue(job),
            (None, Begins::Merged(_)) => {}
            (None, _) => {
                self.jobs[job].begin_queue_timeout(now.mono);
                self.jobs.begin_hours(job, now.wall);
                self.enqueue(job);
            }
        }
        self.arm(job);
        self.queue.count_submit(&self.jobs[job]);
        let event = JobEvent::new(EventKind::JobSubmitted, None);
        self.job_event(now, job, JobEvent { origin: Some(&origin), ..event }, effects);
        let waiting = self.queue.lane(belongs.lane).waiting();
        let stored = Arc::get_mut(&mut row).expect("the row is not shared yet");
        stored.status.last_event = self.jobs[job].last_event;
        stored.position = waiting;
        effects.changes.push(Change::JobCreated { row, payload });
        let state = match begins {
            Begins::Merged(into) => self.merge(now, job, into, &origin, effects),
            _ => state,
        };
        Submitted { seq, job: id, existing: false, state, lane, created_at: now.wall, waiting, served }
    }

    /// The job ends before it began: another one runs for it.
    fn merge(
        &mut self,
        now: Now,
        job: Ix<Job>,
        into: MergedInto,
        origin: &Origin,
        effects: &mut Effects,
    ) -> JobState {
        let state = JobState::Canceled;
        let (merged_into, origin) = (Some(into), Some(origin));
        let ending = JobEnding { merged_into, origin, ..JobEnding::new(state, Reason::Merged) };
        self.end_job(now, job, ending, effects);
        state
    }
}

/// What a job waits for before it is queued, and until when where that is a time.
fn first_wake(now: Now, not_before: Option<Wall>, begins: Begins) -> Option<(Wake, Option<Wall>)> {
    match (not_before, begins) {
        (_, Begins::Upstream) => Some((Wake::Upstream, None)),
        (_, Begins::Called) => Some((Wake::Called, None)),
        (Some(at), _) => Some((Wake::NotBefore(at), Some(at))),
        (None, Begins::Collecting(window)) => {
            Some((Wake::Debounce(now.mono + window), Some(now.wall + window)))
        }
        (None, _) => None,
    }
}

/// When a job may first start: its time has come, and its hours have begun.
fn first_start(spec: &JobSpec, now: Wall) -> Option<Wall> {
    let at = spec.not_before.map_or(now, |at| at.max(now));
    let first = within_hours(spec.capacity.hours.as_ref(), at);
    if first == at { spec.not_before } else { Some(first) }
}

/// The first time from `at` on that is within the hours.
pub(in crate::engine) fn within_hours(hours: Option<&Hours>, at: Wall) -> Wall {
    match hours {
        Some(hours) if !hours.holds(at) => hours.next_begin(at),
        _ => at,
    }
}
