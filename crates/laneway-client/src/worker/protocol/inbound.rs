//! Handles frames of the scheduler.

use std::collections::BTreeSet;
use std::time::Duration;

use laneway_wire::frame::{
    Ack, Cancel, Dispatch, ErrorCode, ErrorReport, Frame, FrameError, KeptTask, List, Message, MessageType,
    Register, Role, TASKS_MAX, Text,
};
use serde_json::json;

use super::super::outbox::{Keep, TaskKey};
use super::super::state::WorkerState;
use super::super::tasks::{Intake, Order, Rejection, StopReason};
use super::{Action, BAD_FRAMES_MAX, CloseReason, Environment, Now, Protocol, report};
use crate::worker::ended::Ended;

impl Protocol {
    /// Handles a frame.
    pub fn handle_frame(
        &mut self,
        now: Now,
        frame: Frame,
        environment: &dyn Environment,
        out: &mut Vec<Action>,
    ) {
        self.bad_frames = 0;
        if let Some(rejection) = self.foreign(&frame) {
            let details = json!({"tenant": frame.tenant.as_str(), "sender": frame.sender.id.as_str()});
            self.send_error(now, Some(frame.id), report(rejection, &details), out);
            return;
        }
        match &frame.message {
            Message::Ack(ack) => {
                let id = frame.acknowledges().unwrap_or(&ack.r#for).clone();
                self.acknowledged(now, &id, ack, out);
            }
            Message::Error(error) => self.error_received(now, &frame, error, out),
            Message::Dispatch(_) => self.dispatched(now, frame, environment, out),
            Message::Cancel(cancel) => {
                self.ack_if_asked(now, &frame, out);
                self.canceled(now, cancel, frame.seq, out);
            }
            Message::Drain(drain) => {
                self.ack_if_asked(now, &frame, out);
                self.drain(now, drain.limit_ms.map(Duration::from_millis), out);
            }
            Message::Install(install) => {
                self.ack_if_asked(now, &frame, out);
                if self.tasks.is_new_frame(&frame.id, frame.corr.as_ref()) {
                    out.push(Action::Install(frame.id.clone(), install.clone()));
                }
            }
            Message::Uninstall(uninstall) => {
                self.ack_if_asked(now, &frame, out);
                if self.tasks.is_new_frame(&frame.id, frame.corr.as_ref()) {
                    out.push(Action::Uninstall(frame.id.clone(), uninstall.clone()));
                }
            }
            Message::ResourceRead(read) => {
                self.is_registered(now, out);
                out.push(Action::Read(frame.id.clone(), read.clone()));
            }
            Message::NextResponse(response) => {
                self.ack_if_asked(now, &frame, out);
                self.tasks.answered(&response.request_id);
                out.push(Action::Next(response.clone()));
            }
            Message::Handshake(_)
            | Message::Register(_)
            | Message::Heartbeat(_)
            | Message::Feedback(_)
            | Message::Result(_)
            | Message::PackageEvent(_)
            | Message::NextRequest(_)
            | Message::ResourceData(_) => {
                let message =
                    format!("a worker does not take frames of type `{}`", frame.message.kind().as_str());
                let rejection = Rejection { code: ErrorCode::CmdUnknown, part: "worker.session", message };
                self.send_error(now, Some(frame.id), report(rejection, &json!({})), out);
            }
        }
    }

    /// A frame could not be parsed. It gets an error; only many such frames in a row end the connection.
    pub fn handle_bad_frame(&mut self, now: Now, error: &FrameError, out: &mut Vec<Action>) {
        self.bad_frames += 1;
        // An error about a broken error would cause an endless exchange.
        let is_answer = error
            .kind
            .as_ref()
            .and_then(|kind| MessageType::parse(kind))
            .is_some_and(|kind| matches!(kind, MessageType::Ack | MessageType::Error));
        if !is_answer {
            self.send_error(now, error.id.clone(), error.report(), out);
        }
        if self.bad_frames >= BAD_FRAMES_MAX {
            self.close(CloseReason::Retry, out);
        }
    }

    fn foreign(&self, frame: &Frame) -> Option<Rejection> {
        let rejection = |message: &str| {
            let message = message.to_owned();
            Some(Rejection { code: ErrorCode::SessionDenied, part: "worker.session", message })
        };
        if frame.tenant != self.profile.tenant {
            return rejection("the frame belongs to another tenant than the connection");
        }
        if frame.sender.role != Role::Scheduler {
            return rejection("the sender of the frame is not a scheduler");
        }
        None
    }

    fn ack_if_asked(&mut self, now: Now, frame: &Frame, out: &mut Vec<Action>) {
        if frame.wants_ack() {
            self.ack(now, frame, None, out);
        }
    }

    /// A frame of this worker was acknowledged.
    fn acknowledged(&mut self, now: Now, id: &Text, ack: &Ack, out: &mut Vec<Action>) {
        if let Some(lease_ms) = ack.info_ms("lease_ms").filter(|lease| *lease > 0) {
            self.lease = Duration::from_millis(lease_ms);
        }
        if let Some(at) = self.beats.iter().position(|beat| beat.id == *id) {
            let sent = self.beats[at].sent;
            // This acknowledgement covers older heartbeats.
            self.beats.drain(..=at);
            self.latency_ms = u64::try_from(now.mono.saturating_sub(sent).as_millis()).ok();
            self.renew_lease(sent);
            return;
        }
        let kept = self.outbox.remove(id);
        if self.handshake.as_ref().is_some_and(|(handshake, _)| handshake == id) {
            self.greeted(now, ack, out);
        } else if self.registration.as_ref().is_some_and(|(registration, _)| registration == id) {
            self.registered(now, ack.ok, out);
        } else if kept.is_some() {
            if !ack.ok {
                self.tally.stale += 1;
            }
            self.close_if_drained(out);
        }
    }

    /// The handshake is acknowledged: sends the registration.
    fn greeted(&mut self, now: Now, ack: &Ack, out: &mut Vec<Action>) {
        let Some((_, register)) = self.handshake.take() else { return };
        if !ack.ok {
            return self.close(CloseReason::Retry, out);
        }
        self.go(WorkerState::Registered);
        let frame = self.frame(now, Message::Register(self.as_process(register)));
        let frame = Frame { ack: laneway_wire::frame::AckNote::requested(), ..frame };
        self.registration = Some((frame.id.clone(), now.mono));
        self.send_kept(now, frame, Keep::Greeting, out);
    }

    /// The registration of this process with its open tasks: running or waiting ones, and outcomes without an
    /// acknowledgement.
    fn as_process(&self, register: Register) -> Register {
        let tasks: BTreeSet<&TaskKey> = self.tasks.keys().chain(self.outbox.attempts()).collect();
        let kept = |key: &&TaskKey| KeptTask { task_id: key.task_id.clone(), seq: key.seq };
        let tasks = tasks.iter().take(TASKS_MAX).map(kept).collect();
        let (boot_id, tasks) = (self.profile.boot_id.clone(), List::new(tasks).unwrap_or_default());
        Register { boot_id: Some(boot_id), tasks: Some(tasks), ..register }
    }

    /// The registration is acknowledged: the session is up, and kept frames are sent.
    fn registered(&mut self, now: Now, ok: bool, out: &mut Vec<Action>) {
        let Some((id, sent)) = self.registration.take() else { return };
        self.outbox.remove(&id);
        if !ok {
            return self.close(CloseReason::Retry, out);
        }
        self.go(WorkerState::Heartbeating);
        self.failures = 0;
        self.handshake_limit = None;
        self.renew_lease(sent);
        self.next_beat = Some(now.mono);
        self.outbox.rewind(now.mono, |keep| *keep != Keep::Greeting);
        out.extend(self.feedback.drain(..).map(Action::Send));
        if self.draining {
            self.go(WorkerState::Draining);
            self.close_if_drained(out);
        }
    }

    /// The scheduler sends tasks and reads only to registered workers: the acknowledgement was lost, or comes
    /// later.
    fn is_registered(&mut self, now: Now, out: &mut Vec<Action>) {
        if self.state == WorkerState::Registered {
            self.registered(now, true, out);
        }
    }

    fn renew_lease(&mut self, sent: Duration) {
        // Counted from when the heartbeat was sent, not from its answer: the scheduler cannot count from
        // later.
        self.lease_until = sent + self.lease;
    }

    /// A task to run.
    fn dispatched(&mut self, now: Now, frame: Frame, environment: &dyn Environment, out: &mut Vec<Action>) {
        let Message::Dispatch(dispatch) = &frame.message else { return };
        self.is_registered(now, out);
        if !self.state.is_up() {
            let message = "the session is not registered yet".to_owned();
            let rejection = Rejection { code: ErrorCode::SessionDenied, part: "worker.session", message };
            self.send_error(now, Some(frame.id.clone()), report(rejection, &details(dispatch)), out);
            return;
        }
        let key = TaskKey { task_id: dispatch.task_id.clone(), seq: frame.seq.unwrap_or(0) };
        if !self.tasks.is_new_frame(&frame.id, frame.corr.as_ref()) {
            self.tally.duplicates += 1;
            return self.again(now, &frame, &key, out);
        }
        let order = Order { key: key.clone(), dispatch: dispatch.clone() };
        let fits = environment.fits(&order, now);
        match self.tasks.take(now.mono, order, &self.outbox, self.draining, fits) {
            Intake::Start(order) => {
                self.ack(now, &frame, None, out);
                out.push(Action::Start(order));
            }
            Intake::Wait { stop } => {
                self.ack(now, &frame, None, out);
                self.stop(&stop, StopReason::Stale, out);
            }
            Intake::Again => {
                self.tally.duplicates += 1;
                self.again(now, &frame, &key, out);
            }
            Intake::Stale => {
                self.tally.duplicates += 1;
                self.ack(now, &frame, Some(ErrorCode::SessionStaleBinding.as_str()), out);
            }
            Intake::Rejected(rejection) => {
                self.tally.rejected += 1;
                self.ack(now, &frame, None, out);
                let run_id = dispatch.run_id.clone();
                let message = Message::Error(report(rejection, &details(dispatch)));
                if self.outbox.is_full(self.tasks.len()) {
                    // A peer that sends more than can be rejected gets each rejection once.
                    self.tally.unkept += 1;
                    let frame = self.frame(now, message);
                    let (corr, seq) = (Some(key.task_id), Some(key.seq));
                    out.push(Action::Send(Frame { corr, seq, ..frame }));
                } else {
                    self.send_outcome(now, key, run_id, message, out);
                }
            }
        }
    }

    /// A duplicate dispatch: it is acknowledged again, and a waiting outcome is sent at once.
    fn again(&mut self, now: Now, frame: &Frame, key: &TaskKey, out: &mut Vec<Action>) {
        self.ack(now, frame, None, out);
        self.outbox.rewind(now.mono, |keep| matches!(keep, Keep::Outcome { key: kept, .. } if kept == key));
    }

    fn canceled(&mut self, now: Now, cancel: &Cancel, seq: Option<u64>, out: &mut Vec<Action>) {
        if let Some(order) = self.tasks.remove_waiting(&cancel.task_id, seq) {
            let run_id = order.dispatch.run_id.clone();
            let message = self.outcome_message(
                &order.key,
                run_id.clone(),
                None,
                None,
                Ended::Stopped,
                StopReason::Canceled,
            );
            if let Some(message) = message {
                self.send_outcome(now, order.key, run_id, message, out);
            }
        }
        for key in self.tasks.attempts(&cancel.task_id, seq) {
            self.stop(&key, StopReason::Canceled, out);
        }
    }

    pub(super) fn stop(&mut self, key: &TaskKey, why: StopReason, out: &mut Vec<Action>) {
        if self.tasks.stop(key, why) {
            out.push(Action::Stop(key.clone(), why));
        }
    }

    /// The scheduler sent an error.
    fn error_received(&mut self, now: Now, frame: &Frame, error: &ErrorReport, out: &mut Vec<Action>) {
        if frame.wants_ack() {
            self.ack(now, frame, None, out);
        }
        let corr = frame.corr.as_ref();
        match ErrorCode::parse(&error.code) {
            Some(ErrorCode::ResultSeqGap) => self.resend_run(now, corr),
            Some(ErrorCode::ResultDuplicate) => {
                if let Some(corr) = corr {
                    self.forget_outcome(corr, frame.seq);
                }
            }
            Some(ErrorCode::SessionStaleBinding) => self.stale(corr, frame.seq, out),
            Some(ErrorCode::AuthInvalidToken | ErrorCode::AuthMtlsRequired | ErrorCode::SessionDenied)
                if !self.state.is_up() =>
            {
                let (code, reason) = (error.code.as_str(), error.message.as_str());
                tracing::error!(code, reason, "the server denied the connection; retrying");
                self.close(CloseReason::Retry, out);
            }
            Some(ErrorCode::AuthInvalidToken | ErrorCode::AuthMtlsRequired) => {
                self.close(CloseReason::Retry, out);
            }
            // A frame that the scheduler cannot parse will fail again.
            Some(ErrorCode::CmdUnknown | ErrorCode::SessionDenied) => {
                if let Some(corr) = corr
                    && self.outbox.remove(corr).is_some()
                {
                    self.tally.stale += 1;
                    tracing::error!(
                        corr = corr.as_str(),
                        code = error.code.as_str(),
                        "the server rejected a frame"
                    );
                }
            }
            _ => {}
        }
        self.close_if_drained(out);
    }

    /// The scheduler misses a result: sends the unacknowledged results of the workflow run again.
    fn resend_run(&mut self, now: Now, corr: Option<&Text>) {
        let run = corr.map(|corr| self.outbox.run_of(corr).unwrap_or_else(|| corr.clone()));
        self.outbox.rewind(now.mono, |keep| match (keep, &run) {
            (Keep::Outcome { run_id, .. }, Some(run)) => run_id == run,
            (Keep::Outcome { .. }, None) => true,
            (Keep::Report | Keep::Greeting, _) => false,
        });
    }

    /// The attempt no longer belongs to this worker; without an attempt, the whole session is stale.
    fn stale(&mut self, corr: Option<&Text>, seq: Option<u64>, out: &mut Vec<Action>) {
        let Some(corr) = corr else { return self.close(CloseReason::Superseded, out) };
        self.tally.stale += 1;
        let (task_id, seq) = match self.forget_outcome(corr, seq) {
            Some(key) => (key.task_id, Some(key.seq)),
            None => (corr.clone(), seq),
        };
        self.tasks.remove_waiting(&task_id, seq);
        for key in self.tasks.attempts(&task_id, seq) {
            self.stop(&key, StopReason::Stale, out);
        }
    }

    /// Removes an outcome by the id of its frame or by its task. Returns the attempt when the id of the frame
    /// matched.
    fn forget_outcome(&mut self, corr: &Text, seq: Option<u64>) -> Option<TaskKey> {
        if let Some(Keep::Outcome { key, .. }) = self.outbox.remove(corr) {
            return Some(key);
        }
        match seq {
            Some(seq) => self.outbox.remove_attempt(&TaskKey { task_id: corr.clone(), seq }),
            None => self.outbox.remove_task(corr),
        }
        None
    }
}

/// The fields that all error details have.
fn details(dispatch: &Dispatch) -> serde_json::Value {
    json!({
        "run_id": dispatch.run_id.as_str(),
        "task_id": dispatch.task_id.as_str(),
        "node_id": dispatch.node_id.as_str(),
    })
}
