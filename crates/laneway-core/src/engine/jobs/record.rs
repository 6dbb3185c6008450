//! Recording what happened: states, events, and the stored form of jobs.

use crate::command::{PUBLISHED_BYTES_MAX, RejectionCode};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::KeySet;
use crate::event::{ErrorLine, JobLine};
use crate::worker::DispatchLine;
use crate::{
    Effects, Event, EventKind, JobState, JobStatus, Now, Origin, Reason, Rejection, Reply, Seq, Wall,
};

/// An event about a job.
pub(in crate::engine) struct JobEvent<'a> {
    pub(in crate::engine) kind: EventKind,
    pub(in crate::engine) reason: Option<Reason>,
    /// The caller that asked for it.
    pub(in crate::engine) origin: Option<&'a Origin>,
    /// The error.
    pub(in crate::engine) error: Option<Box<ErrorLine>>,
    /// The outcome of a dispatch, or why the job is denied.
    pub(in crate::engine) detail: Option<Box<str>>,
}

impl<'a> JobEvent<'a> {
    /// An event without caller, error or detail.
    pub(in crate::engine) fn new(kind: EventKind, reason: Option<Reason>) -> JobEvent<'a> {
        JobEvent { kind, reason, origin: None, error: None, detail: None }
    }
}

impl Engine {
    /// Changes a job's state by THE transition table.
    pub(in crate::engine) fn set_state(&mut self, job: Ix<Job>, next: JobState) {
        let entry = &self.jobs[job];
        assert!(entry.state.allows(next), "job {} cannot go from {} to {next}", entry.id, entry.state);
        self.restate(job, next);
    }

    /// Changes a job's state to what is stored of it, and keeps the counts.
    pub(in crate::engine) fn restate(&mut self, job: Ix<Job>, next: JobState) {
        let was = std::mem::replace(&mut self.jobs[job].state, next);
        let tenant = self.queue.tenant_of(&self.jobs[job]);
        self.queue.uncount_state(tenant, was);
        self.queue.count_state(tenant, next);
        if self.jobs[job].in_run {
            self.workflows.note_queued(&self.jobs[job], job);
        }
    }

    /// Adds an event about a job and links it to the job's event before it.
    pub(in crate::engine) fn job_event(
        &mut self,
        now: Now,
        job: Ix<Job>,
        event: JobEvent<'_>,
        effects: &mut Effects,
    ) {
        let JobEvent { kind, reason, origin, error, detail } = event;
        let number = self.numbers.next_event();
        let entry = &mut self.jobs[job];
        let previous = std::mem::replace(&mut entry.last_event, number);
        let class = self.queue.class(entry.class);
        let (lane, _, agent) = self.queue.agent_queue_key(entry.agent_queue);
        let line = JobLine {
            seq: Seq(entry.seq),
            id: entry.id,
            kind: self.queue.kind_name(class.own_kind()).clone(),
            lane: self.queue.lane(*lane).name().clone(),
            agent: agent.clone(),
            attempt: entry.attempts,
            reason,
            previous,
            error,
        };
        effects.events.push(Event {
            number,
            at: now.wall,
            kind,
            tenant: Some(self.queue.tenant_name(class.tenant()).clone()),
            job: Some(line),
            actor: origin.map(|origin| origin.actor.clone()),
            request: origin.and_then(|origin| origin.request.clone()),
            detail,
        });
    }

    /// The outcome of the dispatch of a job's attempt; `None` where it was not pushed to a worker.
    pub(in crate::engine) fn dispatch_line(&self, job: Ix<Job>, outcome: &str) -> Option<Box<str>> {
        let open = self.jobs.attempt_of(job)?;
        let worker = self.workers.name_of(open.pushed_to()?).clone();
        let line = DispatchLine { dispatch_seq: open.dispatch_seq, outcome: outcome.into(), worker };
        Some(line.to_string().into())
    }

    /// Adds the event of an outbound message. No caller asked for it, so the audit list leaves it out.
    pub(in crate::engine) fn publish(
        &mut self,
        now: Now,
        tenant: crate::Name,
        detail: Box<str>,
        effects: &mut Effects,
    ) -> Reply {
        if detail.len() > PUBLISHED_BYTES_MAX {
            let message =
                format!("detail: has {} bytes; at most {PUBLISHED_BYTES_MAX} are allowed", detail.len());
            return Reply::Rejected(Rejection::new(RejectionCode::Invalid, message));
        }
        self.numbers.server_event(now, EventKind::Outbound, Some(tenant), None, detail, effects);
        Reply::Done
    }

    /// The stored form of what changes of a waiting job.
    pub(in crate::engine) fn status_of(&self, job: Ix<Job>, wake_at: Option<Wall>) -> JobStatus {
        let entry = &self.jobs[job];
        JobStatus {
            state: entry.state,
            wake_at,
            attempts: entry.attempts,
            failures: entry.failures,
            losses: entry.losses,
            rejections: entry.rejections,
            near_deadline: entry.near,
            denials: self.capacity.denials_of(job),
            denied_until: None,
            last_event: entry.last_event,
        }
    }

    /// Forgets a job that has ended and holds no gates, with everything that only it used.
    pub(in crate::engine) fn forget(&mut self, job: Ix<Job>) {
        self.schedules.forget_job(job);
        let armed = self.jobs[job].armed;
        self.timers.rearm(job, armed, Default::default());
        self.capacity.forget_bypassed(&mut self.jobs, job);
        self.capacity.forget_job(job);
        self.webhooks.forget_callback(&self.jobs[job]);
        let entry = self.jobs.remove(job);
        self.queue.uncount_state(self.queue.tenant_of(&entry), entry.state);
        if let Some(session) = entry.session {
            self.sessions.release(session);
        }
        let keys = entry.keyset.and_then(|keyset| self.queue.release_keyset(keyset));
        for key in keys.iter().flat_map(KeySet::iter) {
            self.workers.release_key(&mut self.queue, key);
        }
        self.queue.release_class(&mut self.workers, entry.class);
        self.queue.release_agent_queue(entry.agent_queue);
    }
}

/// Most bytes of a note about a call: notes are kept for days, and in memory for clients that follow the event log.
const NOTE_BYTES_MAX: usize = 1_024;

/// The note, cut between characters where it is too long.
pub(in crate::engine) fn cut_note(detail: Box<str>) -> Box<str> {
    if detail.len() <= NOTE_BYTES_MAX {
        return detail;
    }
    let end = (0..=NOTE_BYTES_MAX).rev().find(|&at| detail.is_char_boundary(at)).unwrap_or(0);
    format!("{}…", &detail[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::{NOTE_BYTES_MAX, cut_note};

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(cut_note("short".into()).as_ref(), "short");
        let long = cut_note("ü".repeat(NOTE_BYTES_MAX).into());
        assert!(long.len() <= NOTE_BYTES_MAX + "…".len() && long.ends_with("ü…"), "{}", long.len());
    }
}
