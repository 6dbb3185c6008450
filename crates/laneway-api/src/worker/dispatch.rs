//! The tasks of a session: bound attempts, dispatches, and the reports of the worker.
//!
//! The fence of a frame is (connection, task, `seq`). An attempt is bound before its frame is sent, so that no report
//! can come too early. A report about an attempt that is not bound is looked up, and never accepted.

use laneway_core::{Failure, JobId, Name, Outcome, Task};
use laneway_wire::frame::{
    Ack, Cancel, Dispatch, Drain, ErrorCode, ErrorReport, Feedback, Install, Message, NextRequest,
    NextResponse, TaskResult, Text, Uninstall,
};
use serde_json::json;

use super::ending::{Detail, MESSAGE_LEN_MAX, TaskOutcome, code_name, cut};
use super::messages::{Answer, Ended, Question, Rejection};
use super::outbox::About;
use super::send::{report, report_with};
use super::session::{Action, FrameHeader, Now, OwedFor, SETTLED_MAX, Session, SessionState};

/// An attempt that is bound to the connection.
#[derive(Clone, Debug)]
pub(super) struct Open {
    /// The workflow run. `None` for a job that is not a node.
    run: Option<Text>,
    phase: Phase,
    /// True after the worker was asked to stop it.
    stopping: bool,
    /// The number of the frame that dispatched it, for workers that name the frame instead of the task.
    frame: Option<u64>,
}

/// The phase of an attempt on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is bound; its payload is being read.
    Bound,
    /// Its frame was sent.
    Sent,
    /// The worker accepted it.
    Taken,
    /// Its outcome has arrived and waits for the commit.
    Ending,
}

impl Session {
    /// Binds the attempt to this connection, before its payload is read.
    pub fn bind(&mut self, task: Task, run: Option<Text>) {
        self.mark_registered();
        // After a rebind it may have been here before.
        self.settled.retain(|settled| *settled != task);
        self.tasks.insert(task, Open { run, phase: Phase::Bound, stopping: false, frame: None });
    }

    /// True when an attempt is bound to this connection.
    pub fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// True when the attempt is bound to this connection.
    pub fn is_bound(&self, task: Task) -> bool {
        self.tasks.contains_key(&task)
    }

    /// Sends a task. A task that is no longer bound, or whose outcome has arrived, is not sent. A task that cannot be
    /// sent is handed back.
    pub fn dispatch(&mut self, now: Now, task: Task, dispatch: Dispatch, out: &mut Vec<Action>) {
        if self.tasks.get(&task).is_none_or(|open| open.phase != Phase::Bound) {
            return;
        }
        if !self.outbox.has_capacity(dispatch.parameters.get().len()) {
            self.tasks.remove(&task);
            let message = "too many frames wait for an acknowledgement of the worker".into();
            let rejection = Rejection { code: ErrorCode::CmdConcurrencyViolation.into(), message };
            return self.ask(None, OwedFor::Plain, Question::Rejected(task, rejection), out);
        }
        let about = (Some(dispatch.task_id.clone()), Some(task.dispatch_seq));
        let run = (dispatch.run_id != dispatch.task_id).then(|| dispatch.run_id.clone());
        let message = Message::Dispatch(Box::new(dispatch));
        let number = self.send_kept(now, About::Dispatch(task), about, message, out);
        if let Some(open) = self.tasks.get_mut(&task) {
            (open.run, open.phase, open.frame) = (run, Phase::Sent, Some(number));
        }
    }

    /// The payload of a task cannot be read: the task is handed back, and no frame is sent.
    pub fn give_back(&mut self, task: Task, out: &mut Vec<Action>) {
        if self.tasks.remove(&task).is_none() {
            return;
        }
        let ended = Ended { task, outcome: Outcome::HandedBack, artifacts: Vec::new(), reported: None };
        self.ask(None, OwedFor::Plain, Question::Ended(Box::new(ended)), out);
    }

    /// A frame cannot carry the payload of a task, so a retry does not help.
    pub fn fail_unreadable(&mut self, task: Task, out: &mut Vec<Action>) {
        let message = "the payload is not JSON, and workers accept only JSON";
        self.fail_unsent(task, Failure::permanent("bad_payload", message), out);
    }

    /// A task failed before its frame was sent.
    pub fn fail_unsent(&mut self, task: Task, failure: Failure, out: &mut Vec<Action>) {
        if self.tasks.remove(&task).is_none() {
            return;
        }
        let ended = Ended { task, outcome: Outcome::Failed(failure), artifacts: Vec::new(), reported: None };
        self.ask(None, OwedFor::Plain, Question::Ended(Box::new(ended)), out);
    }

    /// The attempt must stop. An attempt that was asked to stop on an earlier connection is bound to this one.
    pub fn cancel(&mut self, now: Now, task: Task, reason: Option<String>, out: &mut Vec<Action>) {
        self.mark_registered();
        if self.settled.contains(&task) {
            return;
        }
        let unknown = Open { run: None, phase: Phase::Taken, stopping: true, frame: None };
        let open = self.tasks.entry(task).or_insert(unknown);
        open.stopping = true;
        if open.phase == Phase::Bound {
            // The worker has not received it.
            let ended = Ended { task, outcome: Outcome::Canceled, artifacts: Vec::new(), reported: None };
            self.tasks.remove(&task);
            return self.ask(None, OwedFor::Plain, Question::Ended(Box::new(ended)), out);
        }
        if open.phase == Phase::Sent {
            // A dispatch without an acknowledgement is not sent again.
            self.outbox.remove_task(task);
        }
        let Some(open) = self.tasks.get(&task) else { return };
        let task_id = task_id(task);
        let run_id = open.run.clone().unwrap_or_else(|| task_id.clone());
        let about = (Some(task_id.clone()), Some(task.dispatch_seq));
        let message = Message::Cancel(Cancel { run_id, task_id, reason });
        self.send_kept(now, About::Cancel(task), about, message, out);
    }

    /// The attempt is no longer bound to this connection. The worker must stop it.
    pub fn unbind(&mut self, now: Now, task: Task, out: &mut Vec<Action>) {
        if let Some(open) = self.tasks.remove(&task) {
            self.outbox.remove_task(task);
            if open.phase != Phase::Bound {
                self.send_stale(now, task, out);
            }
        }
    }

    /// Accept no more tasks.
    pub fn drain(&mut self, now: Now, drain: Drain, out: &mut Vec<Action>) {
        if matches!(self.state(), SessionState::Registered | SessionState::Heartbeating) {
            self.go(SessionState::Draining);
        }
        self.send_kept(now, About::Other, (None, None), Message::Drain(drain), out);
    }

    /// Install a package. Returns the id of the frame.
    pub fn install(&mut self, now: Now, install: Install, out: &mut Vec<Action>) {
        self.send_kept(now, About::Other, (None, None), Message::Install(install), out);
    }

    /// Remove a package.
    pub fn uninstall(&mut self, now: Now, uninstall: Uninstall, out: &mut Vec<Action>) {
        self.send_kept(now, About::Other, (None, None), Message::Uninstall(uninstall), out);
    }

    /// The response to a call of the rest of a chain.
    pub fn next_done(&mut self, now: Now, response: NextResponse, out: &mut Vec<Action>) {
        let about = (Some(response.request_id.clone()), None);
        self.send_kept(now, About::Other, about, Message::NextResponse(response), out);
    }

    /// A frame of the server was acknowledged.
    pub(super) fn acknowledged(&mut self, _: Now, id: &Text, ack: &Ack, out: &mut Vec<Action>) {
        let about = self.number_of(id).and_then(|number| self.outbox.remove(number));
        if let Some(About::Cancel(task)) = about
            && self.tasks.get(&task).is_some_and(|open| open.phase == Phase::Sent)
        {
            // The worker never accepted it, and must not: nothing more is expected.
            self.tasks.remove(&task);
        }
        let Some(About::Dispatch(task)) = about else { return };
        let Some(open) = self.tasks.get_mut(&task).filter(|open| open.phase == Phase::Sent) else { return };
        let knows_newer = ack.info.as_deref() == Some(ErrorCode::SessionStaleBinding.as_str());
        if ack.ok && !knows_newer {
            open.phase = Phase::Taken;
            return self.ask(None, OwedFor::Taken(task), Question::Accepted(task), out);
        }
        self.tasks.remove(&task);
        let message = ack.info.clone().unwrap_or_else(|| "the worker rejected it".to_owned());
        let code = if knows_newer { ErrorCode::SessionStaleBinding } else { ErrorCode::SessionDenied };
        let rejection = Rejection { code: code.into(), message: message.into() };
        self.ask(None, OwedFor::Plain, Question::Rejected(task, rejection), out);
    }

    /// The result of an attempt.
    pub(super) fn result(
        &mut self,
        now: Now,
        header: FrameHeader,
        result: TaskResult,
        out: &mut Vec<Action>,
    ) {
        let Some(task) = self.task_of(&header, Some(&result.task_id)) else {
            return self.reject_stale(now, &header, &result.task_id, header.seq, out);
        };
        let run_fits = self.tasks.get(&task).is_none_or(|open| {
            open.run.as_ref().map_or(result.run_id == result.task_id, |run| result.run_id == *run)
        });
        if !run_fits {
            let details = json!({"run_id": result.run_id.as_str(), "task_id": result.task_id.as_str()});
            let message = "`run_id` is not the run of this task";
            let report = report_with(ErrorCode::CmdUnknown, "payload", message, &details);
            return self.reject(now, &header, None, None, report, out);
        }
        self.end(now, task, header, TaskOutcome::of(result), out);
    }

    /// An error report. About a dispatch, it ends the attempt.
    pub(super) fn error_reported(
        &mut self,
        now: Now,
        header: FrameHeader,
        error: ErrorReport,
        out: &mut Vec<Action>,
    ) {
        let Some(task) = self.task_of(&header, None) else {
            // About another frame of the server: its command failed, and a resend does not help.
            if let Some(number) = header.corr.as_ref().and_then(|corr| self.number_of(corr)) {
                if self.chunk_rejected(number, &error, out) {
                    return self.ack(now, &header, None, out);
                }
                self.outbox.remove(number);
            }
            tracing::warn!(
                tenant = self.member().map(|member| member.tenant.as_str()),
                "sender.id" = self.worker().map(Name::as_str),
                "type" = "error",
                id = header.id.as_str(),
                corr = header.corr.as_deref(),
                code = error.code.as_str(),
                "a worker reported an error"
            );
            return self.ack(now, &header, None, out);
        };
        let message: Box<str> = cut(&error.message, MESSAGE_LEN_MAX).into();
        match ErrorCode::parse(&error.code) {
            // Not the task's fault: it may run on another worker, or here later.
            Some(
                ErrorCode::CmdConcurrencyViolation
                | ErrorCode::CmdUnknown
                | ErrorCode::SessionDenied
                | ErrorCode::SessionStaleBinding,
            ) => {
                self.outbox.remove_task(task);
                self.tasks.remove(&task);
                let rejection = Rejection { code: error.code, message };
                self.ask(Some(header), OwedFor::Outcome(task), Question::Rejected(task, rejection), out);
            }
            Some(ErrorCode::RunnerCancelled) => {
                // The worker stops. The task may have had an effect already.
                self.end(now, task, header, Outcome::Interrupted.into(), out);
            }
            code => {
                let retryable =
                    !matches!(code, Some(ErrorCode::ResourceMissing | ErrorCode::DispatchInvalidMetadata));
                let detail = Detail::of_report(&error);
                let failure =
                    Failure { code: code_name(&error.code), message, retryable, detail, retry_after: None };
                self.end(now, task, header, Outcome::Failed(failure).into(), out);
            }
        }
    }

    /// The progress of an attempt.
    pub(super) fn feedback(
        &mut self,
        now: Now,
        header: FrameHeader,
        feedback: Feedback,
        out: &mut Vec<Action>,
    ) {
        let task = self.task_of(&header, Some(&feedback.task_id));
        let open = task.and_then(|task| self.tasks.get(&task)).filter(|open| open.phase != Phase::Ending);
        match (open, task) {
            (Some(_), Some(task)) => {
                let question = Question::Feedback(task, Box::new(feedback));
                self.ask(Some(header), OwedFor::Plain, question, out);
            }
            // The outcome arrived first, so the report does not matter any more.
            (_, Some(task)) if self.tasks.contains_key(&task) || self.settled.contains(&task) => {
                self.ack(now, &header, None, out);
            }
            _ => self.reject_stale(now, &header, &feedback.task_id, header.seq, out),
        }
    }

    /// A middleware calls the rest of its chain.
    pub(super) fn next_requested(
        &mut self,
        now: Now,
        header: FrameHeader,
        request: NextRequest,
        out: &mut Vec<Action>,
    ) {
        let bound = self.task_of(&header, None).filter(|task| self.tasks.contains_key(task));
        match (bound, &header.corr) {
            (Some(task), _) => {
                let question = Question::Next(task, Box::new(request));
                self.ask(Some(header), OwedFor::Plain, question, out);
            }
            (None, Some(corr)) => self.reject_stale(now, &header, &corr.clone(), header.seq, out),
            (None, None) => {
                let message = "`corr` is missing; it names the calling task";
                let report = report(ErrorCode::CmdUnknown, "envelope", message);
                self.reject(now, &header, None, None, report, out);
            }
        }
    }

    /// An attempt has ended. If it is not bound here, it may have been bound to an earlier connection, which the
    /// engine knows.
    fn end(
        &mut self,
        now: Now,
        task: Task,
        header: FrameHeader,
        brought: TaskOutcome,
        out: &mut Vec<Action>,
    ) {
        match self.tasks.get_mut(&task) {
            Some(open) if open.phase == Phase::Ending => {
                // The same report under another id. The worker sends it again, and has a reply by then.
                self.dedup.forget(&header.id, header.corr.as_deref());
                return;
            }
            Some(open) => open.phase = Phase::Ending,
            None if self.settled.contains(&task) => {
                return self.ack(now, &header, Some(ErrorCode::ResultDuplicate), out);
            }
            None => {}
        }
        self.outbox.remove_task(task);
        let TaskOutcome { outcome, artifacts, reported } = brought;
        let ended = Ended { task, outcome, artifacts, reported };
        self.ask(Some(header), OwedFor::Outcome(task), Question::Ended(Box::new(ended)), out);
    }

    /// The scheduler has answered an outcome.
    pub(super) fn settle(
        &mut self,
        now: Now,
        task: Task,
        header: &FrameHeader,
        answer: Answer,
        out: &mut Vec<Action>,
    ) {
        match answer {
            Answer::Done | Answer::Alive { .. } => {
                self.tasks.remove(&task);
                self.remember(task);
                self.ack(now, header, None, out);
            }
            Answer::Duplicate => {
                self.tasks.remove(&task);
                self.remember(task);
                self.ack(now, header, Some(ErrorCode::ResultDuplicate), out);
            }
            Answer::Stale | Answer::Superseded => {
                if self.tasks.remove(&task).is_some_and(|open| open.stopping) {
                    // It stopped on request: its outcome is not used, and nothing more is expected.
                    self.remember(task);
                    return self.ack(now, header, None, out);
                }
                self.reject_stale(now, header, &task_id(task), Some(task.dispatch_seq), out);
            }
            Answer::Gap => {
                self.dedup.forget(&header.id, header.corr.as_deref());
                let message = "earlier results of the run are missing; send them again";
                let report = report(ErrorCode::ResultSeqGap, "scheduler.results", message);
                self.send_error(now, Some(task_id(task)), Some(task.dispatch_seq), report, out);
            }
            Answer::Rejected(why) => {
                self.dedup.forget(&header.id, header.corr.as_deref());
                // The attempt stays bound: an outcome that is rejected now may be accepted when it is sent again.
                if let Some(open) = self.tasks.get_mut(&task) {
                    open.phase = Phase::Taken;
                }
                let report = report(ErrorCode::Internal, "scheduler.results", why);
                self.send_error(now, Some(task_id(task)), Some(task.dispatch_seq), report, out);
            }
        }
    }

    /// The attempt of a frame: by the payload, else by `corr`, which older workers set to the id of the dispatch
    /// frame.
    fn task_of(&self, header: &FrameHeader, task_id: Option<&Text>) -> Option<Task> {
        let named = task_id.or(header.corr.as_ref())?;
        let Some(job) = JobId::parse(named) else {
            let number = self.number_of(named)?;
            let found = self.tasks.iter().find(|(_, open)| open.frame == Some(number));
            return found.map(|(task, _)| *task);
        };
        match header.seq {
            Some(dispatch_seq) => Some(Task { job, dispatch_seq }),
            // Without a number, the one open attempt is meant.
            None => self.tasks.keys().copied().rfind(|task| task.job == job),
        }
    }

    fn remember(&mut self, task: Task) {
        if self.settled.len() >= SETTLED_MAX {
            self.settled.pop_front();
        }
        self.settled.push_back(task);
    }

    fn send_stale(&mut self, now: Now, task: Task, out: &mut Vec<Action>) {
        let report = report(ErrorCode::SessionStaleBinding, "scheduler.tasks", STALE);
        self.send_error(now, Some(task_id(task)), Some(task.dispatch_seq), report, out);
    }

    fn reject_stale(
        &mut self,
        now: Now,
        header: &FrameHeader,
        task_id: &Text,
        seq: Option<u64>,
        out: &mut Vec<Action>,
    ) {
        let report = report(ErrorCode::SessionStaleBinding, "scheduler.tasks", STALE);
        self.reject(now, header, Some(task_id.clone()), seq, report, out);
    }
}

/// The message about an attempt that does not belong to the worker.
const STALE: &str = "the attempt does not belong to this worker; stop it and discard its outcome";

/// A task's id in frames.
pub(super) fn task_id(task: Task) -> Text {
    Text::fixed(&task.job.to_string())
}
