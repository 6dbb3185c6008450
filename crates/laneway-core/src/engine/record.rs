//! Writing down what happened: events and rows, in the words of the seam.

use super::Engine;
use super::slab::{Ix, NONE};
use crate::command::{PUBLISHED_BYTES_MAX, RefusalCode};
use crate::event::JobLine;
use crate::worker::DispatchLine;
use crate::{
    Effects, Event, EventKind, Fence, JobId, JobState, JobStatus, Now, Origin, Reason, Refusal, Reply, Seq,
    Wall,
};

impl Engine {
    /// Changes a job's state by THE transition table.
    pub(super) fn set_state(&mut self, job: Ix, next: JobState) {
        let entry = &self.jobs[job];
        assert!(entry.state.allows(next), "job {} cannot go from {} to {next}", entry.id, entry.state);
        self.restate(job, next);
    }

    /// Changes a job's state to what is stored of it, and keeps the counts.
    pub(super) fn restate(&mut self, job: Ix, next: JobState) {
        let was = std::mem::replace(&mut self.jobs[job].state, next);
        let states = &mut self.tenants[self.classes[self.jobs[job].class].tenant].states;
        states[usize::from(was.code())] -= 1;
        states[usize::from(next.code())] += 1;
        if self.jobs[job].in_run {
            self.note_queued(job);
        }
    }

    /// Adds an event about a job and links it to the job's event before it.
    pub(super) fn job_event(
        &mut self,
        now: Now,
        kind: EventKind,
        job: Ix,
        reason: Option<Reason>,
        origin: Option<&Origin>,
        effects: &mut Effects,
    ) {
        self.last_event += 1;
        let number = self.last_event;
        let entry = &mut self.jobs[job];
        let previous = std::mem::replace(&mut entry.last_event, number);
        let class = &self.classes[entry.class];
        let (lane, _, agent) = self.nodes.key(entry.node);
        let line = JobLine {
            seq: Seq(entry.seq),
            id: entry.id,
            kind: self.kinds.key(class.kind).clone(),
            lane: self.lanes[*lane as usize].name.clone(),
            agent: agent.clone(),
            attempt: entry.attempts,
            reason,
            previous,
        };
        effects.events.push(Event {
            number,
            at: now.wall,
            kind,
            tenant: Some(self.tenants.key(class.tenant).clone()),
            job: Some(line),
            actor: origin.map(|origin| origin.actor.clone()),
            request: origin.and_then(|origin| origin.request.clone()),
            detail: None,
        });
    }

    /// What became of the dispatch that opened a job's attempt; `None` where no worker was told of it.
    pub(super) fn dispatch_line(&self, job: Ix, outcome: &str) -> Option<Box<str>> {
        let open = (self.jobs[job].open != NONE).then(|| &self.attempts[self.jobs[job].open])?;
        if !open.is_pushed() {
            return None;
        }
        let worker = self.workers.key(open.worker).1.clone();
        let line = DispatchLine { dispatch_seq: open.dispatch_seq, outcome: outcome.into(), worker };
        Some(line.to_string().into())
    }

    /// Adds an event that is about no job.
    pub(super) fn house_event(
        &mut self,
        now: Now,
        kind: EventKind,
        tenant: Option<crate::Name>,
        origin: Option<&Origin>,
        detail: Box<str>,
        effects: &mut Effects,
    ) {
        self.last_event += 1;
        effects.events.push(Event {
            number: self.last_event,
            at: now.wall,
            kind,
            tenant,
            job: None,
            actor: origin.map(|origin| origin.actor.clone()),
            request: origin.and_then(|origin| origin.request.clone()),
            detail: Some(detail),
        });
    }

    /// Tells of a message that is to go out. It is nobody's call, so it has no place in the audit list.
    pub(super) fn publish(
        &mut self,
        now: Now,
        tenant: crate::Name,
        detail: Box<str>,
        effects: &mut Effects,
    ) -> Reply {
        if detail.len() > PUBLISHED_BYTES_MAX {
            let message =
                format!("detail: has {} bytes; at most {PUBLISHED_BYTES_MAX} are allowed", detail.len());
            return Reply::Refused(Refusal::new(RefusalCode::Invalid, message));
        }
        self.house_event(now, EventKind::Outbound, Some(tenant), None, detail, effects);
        Reply::Done
    }

    /// The fence of a job's open attempt.
    pub(super) fn fence_of(&self, job: Ix) -> Fence {
        let entry = &self.jobs[job];
        let open = &self.attempts[entry.open];
        Fence {
            job: entry.id,
            attempt: entry.attempts,
            attempt_id: open.attempt_id,
            lease_epoch: open.lease_epoch,
        }
    }

    /// The stored form of what changes of a waiting job.
    pub(super) fn status_of(&self, job: Ix, wake_at: Option<Wall>) -> JobStatus {
        let entry = &self.jobs[job];
        JobStatus {
            state: entry.state,
            wake_at,
            attempts: entry.attempts,
            failures: entry.failures,
            losses: entry.losses,
            rejections: entry.rejections,
            near_deadline: entry.near,
            last_event: entry.last_event,
        }
    }

    /// The job that `fence` is about, if it has an open attempt and the fence is that attempt's.
    pub(super) fn fenced(&self, fence: &Fence) -> Option<Ix> {
        let job = self.find_job(fence.job)?;
        (self.jobs[job].open != NONE && self.fence_of(job) == *fence).then_some(job)
    }

    /// What a bug lets pass: any word about a job that has an open attempt.
    #[cfg(feature = "zoo")]
    pub(super) fn found_in_the_zoo(
        &self,
        found: Option<Ix>,
        fence: &Fence,
        bug: crate::zoo::Bug,
    ) -> Option<Ix> {
        let by_job = || self.find_job(fence.job).filter(|&job| self.jobs[job].open != NONE);
        found.or_else(|| if crate::zoo::is_out(bug) { by_job() } else { None })
    }

    /// The job of that id, live or lingering.
    pub(super) fn find_job(&self, id: JobId) -> Option<Ix> {
        self.by_id.find(self.hashing.hash(&id), |ix| self.jobs[ix].id == id)
    }

    /// Counts a job that begins to wait.
    pub(super) fn count_waiting(&mut self, job: Ix) {
        let (node, tenant) = (self.jobs[job].node, self.classes[self.jobs[job].class].tenant);
        self.waiting += 1;
        self.nodes[node].waiting += 1;
        self.lanes[self.nodes[node].lane as usize].waiting += 1;
        self.tenants[tenant].waiting += 1;
    }

    /// Counts a job that no longer waits.
    pub(super) fn uncount_waiting(&mut self, job: Ix) {
        let (node, tenant) = (self.jobs[job].node, self.classes[self.jobs[job].class].tenant);
        self.waiting -= 1;
        self.nodes[node].waiting -= 1;
        self.lanes[self.nodes[node].lane as usize].waiting -= 1;
        self.tenants[tenant].waiting -= 1;
    }

    /// Forgets a job that has ended and holds no gates, and whatever only it used.
    pub(super) fn forget(&mut self, job: Ix) {
        self.release_run(job);
        let armed = self.jobs[job].armed;
        self.timers.rearm(job, armed, Default::default());
        self.forget_overtaken(job);
        self.forget_denied(job);
        self.forget_callback(job);
        let hash = self.hashing.hash(&self.jobs[job].id);
        self.by_id.remove(hash, job);
        let entry = self.jobs.remove(job);
        self.tenants[self.classes[entry.class].tenant].states[usize::from(entry.state.code())] -= 1;
        debug_assert!(entry.bin == NONE && entry.open == NONE, "a job leaves its bin and its gates first");
        self.policies.release(entry.policy);
        if entry.hours != NONE {
            self.hours.release(entry.hours);
        }
        if entry.session != NONE {
            self.release_session(entry.session);
        }
        if entry.keyset != NONE
            && let Some((keys, ())) = self.keysets.release(entry.keyset)
        {
            for key in keys.iter() {
                self.release_key(*key);
            }
        }
        self.release_class(entry.class);
        self.release_node(entry.node);
    }
}

/// Says with the event that was just told what became of a dispatch.
pub(super) fn tell_dispatch(line: Option<Box<str>>, effects: &mut Effects) {
    if let (Some(line), Some(event)) = (line, effects.events.last_mut()) {
        event.detail = Some(line);
    }
}

/// Most bytes of a note about a call: notes are kept for days and stand in memory for those who follow.
const NOTE_BYTES_MAX: usize = 1_024;

/// The note, cut between characters where it is too long.
pub(super) fn cut_note(detail: Box<str>) -> Box<str> {
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
