//! Calls between nodes of a run: a middleware calls the next element of its chain, and gets its answer.
//!
//! A called node answers when its attempt ends, and waits to be called again; it ends only with the first middleware of its
//! chain. A call whose caller is gone is withdrawn: its attempt is asked to stop, and the node waits to be called again.

use crate::call::{CALL_PAYLOAD_BYTES_MAX, CallRow, NextAnswer, NextCall, NextCode};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::engine::jobs::record::JobEvent;
use crate::engine::jobs::{Job, Jobs, Wake};
use crate::engine::workflows::Workflows;
use crate::engine::workflows::open_runs::{Call, MemberEntry};
use crate::{
    AttemptEnd, Bytes, Change, Effects, EventKind, Fence, JobState, Name, Notice, Now, Reason, Reply, RunId,
    Seq, Span,
};

impl Engine {
    /// A running middleware calls the next element of its chain. The answer comes as a notice.
    pub(in crate::engine) fn call_next(&mut self, now: Now, call: NextCall, effects: &mut Effects) -> Reply {
        let NextCall { fence, request, index, timeout, payload } = call;
        let Some(caller) = self.jobs.fenced(&fence) else { return Reply::Stale };
        let draining = self.server.is_draining();
        let (run, target, job) =
            match self.workflows.callee(&self.jobs, caller, &fence, (&request, index), draining) {
                Ok(found) => found,
                Err(answer) => return Reply::NextAnswered(answer),
            };
        if payload.as_ref().is_some_and(|payload| payload.len() > CALL_PAYLOAD_BYTES_MAX) {
            return Reply::NextAnswered(NextAnswer::rejected(NextCode::TooLarge));
        }
        let result = self.workflows.runs.member(run, target).result.clone();
        let row = CallRow {
            target: Seq(self.jobs[job].seq()),
            caller: fence,
            request,
            called_at: now.wall,
            after: self.jobs[job].attempts(),
            until: timeout.map(|timeout| now.wall + timeout),
            payload,
            answer: None,
            result,
        };
        effects.changes.push(Change::CallPut(Box::new(row.clone())));
        self.workflows.runs.member_mut(run, target).call = Some(Box::new(Call { row }));
        self.jobs.open_mut(caller).await_call(timeout.map(|timeout| now.mono + timeout));
        self.arm(caller);
        if self.workflows.runs.member(run, target).group {
            self.open_group(now, run, target, effects);
        } else if self.jobs[job].wake() == Some(Wake::Called) {
            self.release_called(now, job, effects);
        }
        Reply::NextCalled
    }

    fn release_called(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        self.become_queued(now, job, Reason::Called, effects);
        self.look_at_needs(now, job, effects);
        self.arm(job);
    }

    /// An attempt of a called node has ended: its caller gets the answer, and the node waits to be called again.
    pub(in crate::engine) fn return_called(
        &mut self,
        now: Now,
        job: Ix<Job>,
        closed: AttemptEnding<'_>,
        answer: NextAnswer,
        effects: &mut Effects,
    ) {
        let &(id, position) = self.workflows.runs.members.get(&job).expect("a called node is a member");
        self.put_back(now, job, closed, effects);
        self.answer(id, position, answer, effects);
    }

    /// Closes the attempt of a called node. The node waits to be called again.
    pub(in crate::engine) fn put_back(
        &mut self,
        now: Now,
        job: Ix<Job>,
        closed: AttemptEnding<'_>,
        effects: &mut Effects,
    ) {
        let detail = self.close_attempt(now, job, closed, false, effects);
        if self.jobs[job].state() == JobState::Assigned {
            self.set_state(job, JobState::Queued);
        }
        self.queue.count_waiting(&self.jobs[job]);
        self.wait_for_call(now, job, detail, effects);
    }

    /// A called node waits for a call. `detail`: the outcome of its dispatch.
    pub(super) fn wait_for_call(
        &mut self,
        now: Now,
        job: Ix<Job>,
        detail: Option<Box<str>>,
        effects: &mut Effects,
    ) {
        self.dequeue(job);
        let entry = &mut self.jobs[job];
        entry.wait_for(Wake::Called);
        entry.reset_retries();
        if entry.state() != JobState::Scheduled {
            self.set_state(job, JobState::Scheduled);
        }
        self.arm(job);
        let event = JobEvent::new(EventKind::JobReturned, Some(Reason::Returned));
        self.job_event(now, job, JobEvent { detail, ..event }, effects);
        let status = self.status_of(job, None);
        effects.changes.push(Change::JobMoved { seq: Seq(self.jobs[job].seq()), status });
    }

    /// Answers the call of a node, if a caller waits for it.
    pub(super) fn answer(&mut self, id: RunId, position: u32, answer: NextAnswer, effects: &mut Effects) {
        let member = self.workflows.runs.member_mut(id, position);
        if let NextAnswer::Done(result) = &answer {
            member.result = result.clone();
        }
        let result = member.result.clone();
        let Some(call) = member.call.as_mut().filter(|call| call.row.answer.is_none()) else { return };
        call.row.answer = Some(answer.clone());
        (call.row.result, call.row.payload) = (result, None);
        let row = call.row.clone();
        let (fence, request) = (row.caller, row.request.clone());
        effects.changes.push(Change::CallPut(Box::new(row)));
        let Some(caller) = caller_of(&self.jobs, &fence) else { return };
        self.jobs.open_mut(caller).await_call(None);
        self.arm(caller);
        let open = self.jobs.open(caller);
        let notice = Notice::Next {
            seq: Seq(self.jobs[caller].seq()),
            fence: self.jobs.fence_of(caller),
            executor: self.queue.executor_name(open.executor()).clone(),
            connection: self.workers.connection_of(open),
            dispatch_seq: open.dispatch_seq(),
            request,
            answer,
        };
        effects.notices.push(notice);
    }

    /// A call has reached its timeout.
    pub(in crate::engine) fn call_timed_out(&mut self, now: Now, caller: Ix<Job>, effects: &mut Effects) {
        self.jobs.open_mut(caller).await_call(None);
        let Some((id, target)) = self.workflows.called_by(caller) else { return };
        self.answer(id, target, NextAnswer::rejected(NextCode::Timeout), effects);
        self.withdraw_call(now, id, target, effects);
    }

    /// Withdraws a call whose caller is gone.
    pub(super) fn abandon_call(&mut self, now: Now, id: RunId, target: u32, effects: &mut Effects) {
        let Some(run) = self.workflows.runs.open.get(&id) else { return };
        let Some(call) = run.member(target).call.as_ref() else { return };
        let caller = caller_of(&self.jobs, &call.row.caller);
        let goes_on = caller.is_some_and(|caller| !self.jobs[caller].state().is_terminal());
        if call.row.answer.is_some() || goes_on {
            return;
        }
        self.answer(id, target, NextAnswer::rejected(NextCode::Cancelled), effects);
        self.withdraw_call(now, id, target, effects);
    }

    /// No caller waits for a called node any more: an attempt is asked to stop, a queued node waits for a call again.
    fn withdraw_call(&mut self, now: Now, id: RunId, target: u32, effects: &mut Effects) {
        let Some(job) = self.workflows.runs.member(id, target).job else { return };
        if self.jobs[job].wake() == Some(Wake::Called) {
            return;
        }
        if !self.jobs[job].has_attempt() {
            return self.wait_for_call(now, job, None, effects);
        }
        if self.jobs.is_reserved(job) {
            return self.hand_back(now, job, AttemptEnd::HandedBack.into(), effects);
        }
        if self.jobs.open(job).stopping().is_none() {
            self.ask_to_stop(now, job, AttemptEnd::HandedBack, effects);
        }
    }

    /// A called node was put back although it has been called again: it is queued at once.
    pub(in crate::engine) fn resume_awaited(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        if self.jobs[job].wake() == Some(Wake::Called) && !self.workflows.is_uncalled(job) {
            self.release_called(now, job, effects);
        }
    }

    /// The outermost middleware has succeeded: the nodes that it and the inner ones called end with it.
    pub(super) fn finish_chain(&mut self, now: Now, id: RunId, first: u32, effects: &mut Effects) {
        let members = &self.workflows.runs.open[&id].members;
        if members[first as usize].link.is_none_or(|link| link.index != Some(0)) {
            return;
        }
        // By dependency: the position in the chain is not known for a node that ended before a restart.
        let called = members.iter().filter(|member| member.is_called() && *member.depends_on == [first]);
        let called: Vec<(Ix<Job>, Option<Bytes>)> =
            called.filter_map(|member| Some((member.job?, member.result.clone()))).collect();
        let group =
            |(_, member): &(u32, &MemberEntry)| member.is_called_group() && *member.depends_on == [first];
        if let Some((group, _)) = (0u32..).zip(members).find(group) {
            self.close_group(now, id, group, effects);
        }
        for (job, result) in called {
            if self.jobs.is_reserved(job) {
                // No worker has claimed it, so there is no attempt to wait for.
                self.put_back(now, job, AttemptEnd::HandedBack.into(), effects);
            }
            if !self.jobs[job].has_attempt() && self.jobs[job].wake() != Some(Wake::Called) {
                // An inner one has called it, and it need not start any more.
                self.wait_for_call(now, job, None, effects);
            }
            if self.jobs[job].state() == JobState::Assigned {
                self.mark_running(now, job, effects);
            }
            if self.jobs[job].has_attempt() {
                self.ask_to_stop(now, job, AttemptEnd::Canceled, effects);
            }
            let member = self.workflows.runs.member_of(job);
            let group_called = member.is_some_and(|member| member.group && member.call.is_some());
            let was_called = self.jobs[job].attempts() > 0 || group_called;
            let reason = if was_called { Reason::Done } else { Reason::Skipped };
            let ending = JobEnding { result, ..JobEnding::new(JobState::Succeeded, reason) };
            self.end_job(now, job, ending, effects);
        }
    }

    /// Loads the latest call of a node.
    pub(in crate::engine) fn resume_call(&mut self, now: Now, row: CallRow, run: RunId) {
        let Some(open) = self.workflows.runs.open.get_mut(&run) else { return };
        let position = row.target.0.wrapping_sub(open.row.first.0);
        let Some(member) = open.members.get_mut(position as usize) else { return };
        member.result = row.result.clone();
        let (target, pending, caller) = (member.job, row.answer.is_none(), row.caller);
        let (called_at, until) = (row.called_at, row.until);
        member.call = Some(Box::new(Call { row }));
        if !pending {
            return;
        }
        if let Some(target) = target.filter(|target| self.jobs[*target].state() == JobState::Queued) {
            // It has been queued since it was called.
            self.jobs[target].resume_queue_timeout(now.mono, now.wall.since(called_at));
            self.arm(target);
        }
        if let Some(until) = until
            && let Some(caller) = caller_of(&self.jobs, &caller)
        {
            // Stored as a wall time; a clock that was set must not stretch it.
            let rest = until.since(now.wall).0.min(until.since(called_at).0);
            self.jobs.open_mut(caller).await_call(Some(now.mono + Span(rest)));
            self.arm(caller);
        }
    }

    /// After a start: attempts for withdrawn calls are asked to stop again. A later call does not get their answers.
    pub(in crate::engine) fn stop_outdated(&mut self, now: Now, effects: &mut Effects) {
        let members = self.workflows.runs.open.values().flat_map(|run| &run.members);
        let outdated = members.filter(|member| member.is_called()).filter_map(|member| {
            let since = member.call.as_ref().filter(|call| call.row.answer.is_none());
            let (ix, job) = (member.job?, &self.jobs[member.job?]);
            (job.has_attempt() && since.is_none_or(|call| job.attempts() <= call.row.after)).then_some(ix)
        });
        let outdated: Vec<Ix<Job>> = outdated.collect();
        for job in outdated {
            if self.jobs.is_reserved(job) {
                self.hand_back(now, job, AttemptEnd::HandedBack.into(), effects);
            } else {
                self.ask_to_stop(now, job, AttemptEnd::HandedBack, effects);
            }
        }
    }
}

impl Workflows {
    /// The element that a call is about, if it may be called now.
    fn callee(
        &self,
        jobs: &Jobs,
        caller: Ix<Job>,
        fence: &Fence,
        (request, index): (&Name, u32),
        draining: bool,
    ) -> Result<(RunId, u32, Ix<Job>), NextAnswer> {
        let rejected = |code| Err(NextAnswer::rejected(code));
        if jobs[caller].state().is_terminal() {
            return rejected(NextCode::RunFinalised);
        }
        let Some((run, position)) = self.runs.run_of(caller) else { return rejected(NextCode::NoChain) };
        let Some(link) = &run.member(position).link else { return rejected(NextCode::NoChain) };
        let Some(target) = link.next.filter(|_| link.index == Some(index)) else {
            return rejected(NextCode::InvalidChain);
        };
        if draining || jobs.open(caller).stopping().is_some() {
            return rejected(NextCode::Unavailable);
        }
        let member = run.member(target);
        if let Some(Call { row }) = member.call.as_deref() {
            let again = row.caller.attempt_id == fence.attempt_id && row.request == *request;
            match &row.answer {
                Some(answer) if again => return Err(answer.clone()),
                None if again => return rejected(NextCode::Duplicate),
                None => return rejected(NextCode::TargetNotReady),
                Some(_) => {}
            }
        }
        // The nodes of a group run once.
        let Some(job) = member.job.filter(|_| !member.group || member.call.is_none()) else {
            return rejected(NextCode::TargetNotReady);
        };
        // An attempt for a caller that is gone ends soon; then the node is ready for the next one.
        if jobs[job].wake() == Some(Wake::Called) || is_given_up(jobs, job) {
            return Ok((run.row.id, target, job));
        }
        rejected(NextCode::TargetNotReady)
    }

    /// The answer of a called node whose attempt ends; `None`: the node itself ends.
    pub(in crate::engine) fn answer_of(&self, job: Ix<Job>, ending: &JobEnding<'_>) -> Option<NextAnswer> {
        let member = self.runs.member_of(job)?;
        let closed = ending.closed.as_ref().filter(|_| member.is_called())?;
        match ending.reason {
            Reason::Done | Reason::Skipped => Some(NextAnswer::Done(ending.result.clone())),
            Reason::Permanent | Reason::Exhausted | Reason::TimedOut | Reason::Lost => {
                let message =
                    closed.failure.as_ref().map_or(NextCode::Failed.message(), |failure| &failure.message);
                Some(NextAnswer::Failed(NextCode::Failed, message.into()))
            }
            _ => None,
        }
    }

    /// True for a called node that no caller waits for.
    pub(in crate::engine) fn is_uncalled(&self, job: Ix<Job>) -> bool {
        self.runs.member_of(job).is_some_and(|member| member.is_called() && !member.is_awaited())
    }

    /// True for a member that starts only when it is called.
    pub(in crate::engine) fn is_called(&self, job: Ix<Job>) -> bool {
        self.runs.member_of(job).is_some_and(MemberEntry::is_called)
    }

    /// True for a called member whose attempt was asked to stop because its caller is gone.
    pub(in crate::engine) fn was_given_up(&self, jobs: &Jobs, job: Ix<Job>) -> bool {
        is_given_up(jobs, job) && self.runs.member_of(job).is_some_and(MemberEntry::is_called)
    }

    /// The element that a member's open attempt has called and waits for.
    fn called_by(&self, caller: Ix<Job>) -> Option<(RunId, u32)> {
        let (run, position) = self.runs.run_of(caller)?;
        let target = run.member(position).link.as_ref()?.next?;
        run.member(target).is_awaited().then_some((run.row.id, target))
    }

    /// The attempt of a member closes: its call has no caller any more. Applied at the end of the command.
    pub(in crate::engine) fn caller_closed(&mut self, caller: Ix<Job>) {
        if let Some(called) = self.called_by(caller) {
            self.runs.abandoned.push_back(called);
        }
    }
}

/// The job whose open attempt made a call. The attempt may be bound to another connection by now: then its fence has
/// changed, and the attempt is the same.
fn caller_of(jobs: &Jobs, fence: &Fence) -> Option<Ix<Job>> {
    let job = jobs.find(fence.job)?;
    (jobs[job].has_attempt() && jobs.fence_of(job).attempt_id == fence.attempt_id).then_some(job)
}

/// True for a job whose open attempt was asked to stop and to be handed back.
fn is_given_up(jobs: &Jobs, job: Ix<Job>) -> bool {
    let open = jobs.attempt_of(job);
    open.is_some_and(|open| matches!(open.stopping(), Some((AttemptEnd::HandedBack, _))))
}
