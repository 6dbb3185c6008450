//! Recorded rejections: a submission that asked for it gets an id and an end although the queue was full.
//!
//! A flood of rejected jobs must fill neither memory nor disk, so each lane records a bounded number and size of them a
//! minute; jobs beyond that are rejected without a record. Records leave by the lane's retention like any other end.

use std::sync::Arc;

use crate::command::{Rejection, Submission};
use crate::engine::Engine;
use crate::engine::jobs::submit::Belongs;
use crate::event::{ErrorLine, JobLine};
use crate::{
    Change, Effects, Event, EventKind, Failure, JobEnd, JobId, JobRow, JobSpec, JobState, JobStatus, Mono,
    Now, Origin, Reason, RejectionCode, Seq, Span,
};

/// Rejections that a lane records a minute.
pub const RECORDED_REJECTIONS_PER_MINUTE: u32 = 6_000;
/// Bytes of payload of rejected jobs that a lane records a minute.
pub const RECORDED_REJECTION_BYTES_PER_MINUTE: u64 = 64 << 20;

/// What a lane has recorded in the current minute.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct RejectionWindow {
    since: Mono,
    rows: u32,
    bytes: u64,
}

impl RejectionWindow {
    /// Takes space for one more record, if there is.
    pub(in crate::engine) fn take(&mut self, now: Mono, bytes: u64) -> bool {
        if now.since(self.since) >= Span::mins(1) {
            *self = RejectionWindow { since: now, rows: 0, bytes: 0 };
        }
        let fits = self.rows < RECORDED_REJECTIONS_PER_MINUTE
            && self.bytes.saturating_add(bytes) <= RECORDED_REJECTION_BYTES_PER_MINUTE;
        if fits {
            self.rows += 1;
            self.bytes += bytes;
        }
        fits
    }
}

impl Engine {
    /// The queue is full: records the job as one that was never admitted, where the submission asks for it.
    pub(in crate::engine) fn reject_full(
        &mut self,
        now: Now,
        submission: Submission,
        belongs: Belongs,
        mut rejection: Rejection,
        effects: &mut Effects,
    ) -> Rejection {
        if submission.record_rejection
            && rejection.code == RejectionCode::QueueFull
            && self.queue.may_record_rejection(belongs.lane, now.mono, submission.payload.len() as u64)
        {
            rejection.recorded = Some(self.record_rejection(now, submission, belongs, &rejection, effects));
        }
        rejection
    }

    fn record_rejection(
        &mut self,
        now: Now,
        submission: Submission,
        belongs: Belongs,
        rejection: &Rejection,
        effects: &mut Effects,
    ) -> JobId {
        let Submission { mut spec, payload, origin, prior: _, record_rejection: _, strict_lane: _ } =
            submission;
        self.queue.fill_in_defaults(&self.settings, &mut spec, belongs);
        // The key must still work for the submit that is admitted.
        spec.idempotency = None;
        let (seq, id) = (self.numbers.next_seq(), self.numbers.job_id(now.wall));
        let error = Failure {
            detail: rejection.full.map(|full| full.to_detail()),
            ..Failure::retryable("queue_full", rejection.message.clone())
        };
        let last_event = self.numbers.last_event() + 1;
        self.rejection_event(now, (seq, id), &spec, &origin, &error, effects);
        let row = Arc::new(JobRow {
            seq,
            id,
            payload_len: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            created_at: now.wall,
            rank_time: self.clock.rank_now(now),
            submitted_by: origin.actor,
            position: 0,
            status: JobStatus { last_event, ..JobStatus::new(JobState::Queued, None) },
            spec,
        });
        effects.changes.push(Change::JobCreated { row, payload });
        self.queue.count_ended(belongs.lane, 1);
        effects.changes.push(Change::JobEnded(Box::new(JobEnd {
            seq,
            state: JobState::Rejected,
            reason: Reason::QueueFull,
            error: Some(error),
            result: None,
            attempt_id: None,
            started_at: None,
            finished_at: now.wall,
            attempts: 0,
            failures: 0,
            losses: 0,
            last_event,
            merged_into: None,
        })));
        id
    }

    /// The one event of a rejected job. The job is not in memory, so the line is made from its spec.
    fn rejection_event(
        &mut self,
        now: Now,
        (seq, id): (Seq, JobId),
        spec: &JobSpec,
        origin: &Origin,
        error: &Failure,
        effects: &mut Effects,
    ) {
        effects.events.push(Event {
            number: self.numbers.next_event(),
            at: now.wall,
            kind: EventKind::JobRejected,
            tenant: Some(spec.tenant.clone()),
            job: Some(JobLine {
                seq,
                id,
                kind: spec.kind.clone(),
                lane: spec.lane.clone(),
                agent: spec.agent.clone(),
                attempt: 0,
                reason: Some(Reason::QueueFull),
                previous: 0,
                error: Some(ErrorLine::of(error)),
            }),
            actor: Some(origin.actor.clone()),
            request: origin.request.clone(),
            detail: None,
        });
    }
}
