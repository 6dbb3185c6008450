//! Calls between nodes of a run: a middleware calls the next element of its chain, and hears how that ended.
//!
//! A called node that has ended an attempt answers and waits to be called again; only with its chain's first middleware
//! does it end itself. A call whose caller is gone is taken back: what runs for it is told to stop, and the node waits to be
//! called again.

use crate::call::{CALL_PAYLOAD_BYTES_MAX, CallRow, NextAnswer, NextCall, NextCode};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::ending::{AttemptEnding, JobEnding};
use crate::engine::jobs::record::JobEvent;
use crate::engine::jobs::{Job, Wake};
use crate::engine::workflows::runs::{Call, MemberEntry};
use crate::{
    AttemptEnd, Bytes, Change, Effects, EventKind, Fence, JobState, Name, Notice, Now, Reason, Reply, RunId,
    Seq, Span,
};

impl Engine {
    /// A running middleware calls the next element of its chain. The answer comes as a notice.
    pub(in crate::engine) fn call_next(&mut self, now: Now, call: NextCall, effects: &mut Effects) -> Reply {
        let NextCall { fence, request, index, timeout, payload } = call;
        let Some(caller) = self.jobs.fenced(&fence) else { return Reply::Stale };
        let (run, target, job) = match self.callee(caller, &fence, &request, index) {
            Ok(found) => found,
            Err(answer) => return Reply::NextAnswered(answer),
        };
        if payload.as_ref().is_some_and(|payload| payload.len() > CALL_PAYLOAD_BYTES_MAX) {
            return Reply::NextAnswered(NextAnswer::rejected(NextCode::TooLarge));
        }
        let member = &self.workflows.runs.open[&run].members[target as usize];
        let result = member.result.clone();
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
        self.member_mut(run, target).call = Some(Box::new(Call { row }));
        self.jobs.open_mut(caller).await_call(timeout.map(|timeout| now.mono + timeout));
        self.arm(caller);
        if self.workflows.runs.open[&run].members[target as usize].group {
            self.open_group(now, run, target, effects);
        } else if self.jobs[job].wake() == Some(Wake::Called) {
            self.release_called(now, job, effects);
        }
        Reply::NextCalled
    }

    /// The element that a call is about, if it may be called now.
    fn callee(
        &self,
        caller: Ix<Job>,
        fence: &Fence,
        request: &Name,
        index: u32,
    ) -> Result<(RunId, u32, Ix<Job>), NextAnswer> {
        let rejected = |code| Err(NextAnswer::rejected(code));
        if self.jobs[caller].state().is_terminal() {
            return rejected(NextCode::RunFinalised);
        }
        let Some(&(id, position)) = self.workflows.runs.members.get(&caller) else {
            return rejected(NextCode::NoChain);
        };
        let run = &self.workflows.runs.open[&id];
        let Some(link) = &run.members[position as usize].link else { return rejected(NextCode::NoChain) };
        let Some(target) = link.next.filter(|_| link.index == Some(index)) else {
            return rejected(NextCode::InvalidChain);
        };
        if self.server.is_draining() || self.jobs.open(caller).stopping().is_some() {
            return rejected(NextCode::Unavailable);
        }
        let member = &run.members[target as usize];
        if let Some(call) = &member.call {
            match &call.row.answer {
                Some(answer)
                    if call.row.caller.attempt_id == fence.attempt_id && call.row.request == *request =>
                {
                    return Err(answer.clone());
                }
                None if call.row.caller.attempt_id == fence.attempt_id && call.row.request == *request => {
                    return rejected(NextCode::Duplicate);
                }
                None => return rejected(NextCode::TargetNotReady),
                Some(_) => {}
            }
        }
        // The nodes of a group run once.
        let Some(job) = member.job.filter(|_| !member.group || member.call.is_none()) else {
            return rejected(NextCode::TargetNotReady);
        };
        // What runs for a caller that is gone ends soon; then the node is there for the next one.
        let open = self.jobs.attempt_of(job);
        let given_up = open.is_some_and(|open| matches!(open.stopping(), Some((AttemptEnd::HandedBack, _))));
        if self.jobs[job].wake() == Some(Wake::Called) || given_up {
            return Ok((id, target, job));
        }
        rejected(NextCode::TargetNotReady)
    }

    fn release_called(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        self.become_queued(now, job, Reason::Called, effects);
        self.look_at_needs(now, job, effects);
        self.arm(job);
    }

    /// What the end of a called node's attempt is to whoever called it; `None`: the node itself ends.
    pub(in crate::engine) fn answer_of(&self, job: Ix<Job>, ending: &JobEnding<'_>) -> Option<NextAnswer> {
        let (id, position) = self.workflows.runs.members.get(&job)?;
        let called = self.workflows.runs.open[id].members[*position as usize].is_called();
        let closed = ending.closed.as_ref().filter(|_| called)?;
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

    /// An attempt of a called node has ended: whoever called hears of it, and the node waits to be called again.
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

    /// True for a called node that nobody waits for.
    pub(in crate::engine) fn is_uncalled(&self, job: Ix<Job>) -> bool {
        let Some((id, position)) = self.workflows.runs.members.get(&job) else { return false };
        let member = &self.workflows.runs.open[id].members[*position as usize];
        member.is_called() && !member.is_awaited()
    }

    /// Closes the attempt of a called node, which waits to be called (again) from then on; if it has been, it goes on.
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

    /// A called node that waits for nothing else waits to be called. `detail`: what became of its dispatch.
    pub(in crate::engine) fn wait_for_call(
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

    /// Answers the call of a node, if somebody waits for it.
    pub(in crate::engine) fn answer(
        &mut self,
        id: RunId,
        position: u32,
        answer: NextAnswer,
        effects: &mut Effects,
    ) {
        let member = self.member_mut(id, position);
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
        let Some(caller) = self.attempt_of_caller(&fence) else { return };
        self.jobs.open_mut(caller).await_call(None);
        self.arm(caller);
        let open = self.jobs.open(caller);
        let notice = Notice::Next {
            seq: Seq(self.jobs[caller].seq()),
            fence: self.jobs.fence_of(caller),
            executor: self.queue.executor_name(open.executor()).clone(),
            connection: self.connection_of(open),
            dispatch_seq: open.dispatch_seq(),
            request,
            answer,
        };
        effects.notices.push(notice);
    }

    /// A call has waited as long as it may.
    pub(in crate::engine) fn call_timed_out(&mut self, now: Now, caller: Ix<Job>, effects: &mut Effects) {
        self.jobs.open_mut(caller).await_call(None);
        let Some((id, target)) = self.called_by(caller) else { return };
        self.answer(id, target, NextAnswer::rejected(NextCode::Timeout), effects);
        self.withdraw_call(now, id, target, effects);
    }

    /// The job whose open attempt has called. It may be bound to another connection by now: then its fence has changed, and
    /// the attempt is the same.
    fn attempt_of_caller(&self, fence: &Fence) -> Option<Ix<Job>> {
        let job = self.jobs.find(fence.job)?;
        (self.jobs[job].has_attempt() && self.jobs.fence_of(job).attempt_id == fence.attempt_id)
            .then_some(job)
    }

    /// The element that a member's open attempt has called and waits for.
    fn called_by(&self, caller: Ix<Job>) -> Option<(RunId, u32)> {
        let &(id, position) = self.workflows.runs.members.get(&caller)?;
        let run = &self.workflows.runs.open[&id];
        let target = run.members[position as usize].link.as_ref()?.next?;
        run.members[target as usize].is_awaited().then_some((id, target))
    }

    /// The attempt of a member closes: what it has called is called by nobody any more. Settled at the end of the turn.
    pub(in crate::engine) fn caller_closes(&mut self, caller: Ix<Job>) {
        if let Some(called) = self.called_by(caller) {
            self.workflows.runs.abandoned.push_back(called);
        }
    }

    /// A call whose caller is gone is taken back.
    pub(in crate::engine) fn abandon_call(
        &mut self,
        now: Now,
        id: RunId,
        target: u32,
        effects: &mut Effects,
    ) {
        let Some(run) = self.workflows.runs.open.get(&id) else { return };
        let Some(call) = run.members[target as usize].call.as_ref() else { return };
        let caller = self.attempt_of_caller(&call.row.caller);
        let goes_on = caller.is_some_and(|caller| !self.jobs[caller].state().is_terminal());
        if call.row.answer.is_some() || goes_on {
            return;
        }
        self.answer(id, target, NextAnswer::rejected(NextCode::Cancelled), effects);
        self.withdraw_call(now, id, target, effects);
    }

    /// Nobody waits for a called node any more: what runs is told to stop, what waits for its turn waits for a call again.
    fn withdraw_call(&mut self, now: Now, id: RunId, target: u32, effects: &mut Effects) {
        let Some(job) = self.workflows.runs.open[&id].members[target as usize].job else { return };
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

    /// A node that was called comes back while it has been called anew: it goes on at once.
    pub(in crate::engine) fn resume_awaited(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        if self.jobs[job].wake() == Some(Wake::Called) && !self.is_uncalled(job) {
            self.release_called(now, job, effects);
        }
    }

    /// The outermost middleware has ended well: the nodes that it and its inner ones called end with it.
    pub(in crate::engine) fn finish_chain(&mut self, now: Now, id: RunId, first: u32, effects: &mut Effects) {
        let members = &self.workflows.runs.open[&id].members;
        if members[first as usize].link.is_none_or(|link| link.index != Some(0)) {
            return;
        }
        // By what they depend on: of a node that ended before a restart, its place in the chain is not known.
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
                // Nobody has taken it, so nobody must be waited for.
                self.put_back(now, job, AttemptEnd::HandedBack.into(), effects);
            }
            if !self.jobs[job].has_attempt() && self.jobs[job].wake() != Some(Wake::Called) {
                // An inner one has called it, and it waits for its turn in vain.
                self.wait_for_call(now, job, None, effects);
            }
            if self.jobs[job].state() == JobState::Assigned {
                self.mark_running(now, job, effects);
            }
            if self.jobs[job].has_attempt() {
                self.ask_to_stop(now, job, AttemptEnd::Canceled, effects);
            }
            let (id, position) = self.workflows.runs.members[&job];
            let member = &self.workflows.runs.open[&id].members[position as usize];
            let was_called = self.jobs[job].attempts() > 0 || (member.group && member.call.is_some());
            let reason = if was_called { Reason::Done } else { Reason::Skipped };
            let ending = JobEnding { result, ..JobEnding::new(JobState::Succeeded, reason) };
            self.end_job(now, job, ending, effects);
        }
    }

    /// A member ended although somebody waits for it.
    pub(in crate::engine) fn answer_ended(
        &mut self,
        id: RunId,
        position: u32,
        ended: JobState,
        effects: &mut Effects,
    ) {
        let code = if ended == JobState::Failed { NextCode::Failed } else { NextCode::Cancelled };
        self.answer(id, position, NextAnswer::rejected(code), effects);
    }

    /// The latest call of a node, as it was stored.
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
            // It waits for its turn since it was called.
            self.jobs[target].resume_queue_timeout(now.mono, now.wall.since(called_at));
            self.arm(target);
        }
        if let Some(until) = until
            && let Some(caller) = self.attempt_of_caller(&caller)
        {
            // Stored as a wall time; a clock that was set must not stretch it.
            let rest = until.since(now.wall).0.min(until.since(called_at).0);
            self.jobs.open_mut(caller).await_call(Some(now.mono + Span(rest)));
            self.arm(caller);
        }
    }

    /// After a start: what runs for a call that was taken back is told to stop again. Nobody else may wait for it, whoever
    /// has called since.
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
