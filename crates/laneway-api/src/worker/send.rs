//! Sends frames of a session: commands that must be acknowledged, acknowledgements, and errors.

use axum::extract::ws::Utf8Bytes;
use laneway_core::Span;
use laneway_wire::frame::{
    Ack, AckNote, ErrorCode, ErrorContext, ErrorReport, Frame, JsonObject, List, Message, MessageType, Role,
    Sender, Text,
};

use super::dedup::PriorAnswer;
use super::messages::{Question, Ticket};
use super::outbox::About;
use super::session::{Action, FrameHeader, Now, Owed, OwedFor, Session};

/// The sender id of the server in frames.
pub const SCHEDULER: &str = "scheduler-control";

impl Session {
    /// Sends a request to the scheduler. `header` is the frame that gets the reply.
    pub(super) fn ask(
        &mut self,
        header: Option<FrameHeader>,
        what: OwedFor,
        question: Question,
        out: &mut Vec<Action>,
    ) {
        // A frame that causes a request is valid.
        self.bad.in_a_row = 0;
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.owed.insert(ticket, Owed { header, what });
        out.push(Action::Ask(ticket, question));
    }

    /// Sends a frame that the worker must acknowledge, and keeps it until then. Returns its number.
    pub(super) fn send_kept(
        &mut self,
        now: Now,
        about: About,
        (corr, seq): (Option<Text>, Option<u64>),
        message: Message,
        out: &mut Vec<Action>,
    ) -> u64 {
        let (number, frame) = self.frame(now, message);
        let text = write(&Frame { corr, seq, ack: AckNote::requested(), ..frame });
        let jitter = self.rng.f64();
        self.outbox.put(now.mono, number, text.clone(), about, jitter);
        out.push(Action::Send(text));
        number
    }

    /// Sends a frame once. Returns its number.
    pub(super) fn send(&mut self, now: Now, message: Message, out: &mut Vec<Action>) -> u64 {
        let (number, frame) = self.frame(now, message);
        out.push(Action::Send(write(&frame)));
        number
    }

    /// The number of a frame of the server on this connection, from its id.
    pub(super) fn number_of(&self, id: &str) -> Option<u64> {
        id.strip_prefix(&*self.prefix)?.parse().ok()
    }

    /// Acknowledges a frame, if it requests that.
    pub(super) fn ack(
        &mut self,
        now: Now,
        header: &FrameHeader,
        info: Option<ErrorCode>,
        out: &mut Vec<Action>,
    ) {
        let prior = if info.is_some() { PriorAnswer::AckDuplicate } else { PriorAnswer::Ack };
        self.dedup.record(&header.id, header.corr.as_deref(), prior);
        if header.ack_requested {
            self.send_ack(now, header, info.map(|code| code.as_str().to_owned()), out);
        }
    }

    /// Acknowledges a heartbeat or the registration, with the length of the lease.
    pub(super) fn ack_alive(&mut self, now: Now, header: &FrameHeader, out: &mut Vec<Action>) {
        self.dedup.record(&header.id, header.corr.as_deref(), PriorAnswer::AckAlive);
        if header.ack_requested {
            let info = (self.lease > Span(0)).then(|| format!("lease_ms={}", self.lease.0));
            self.send_ack(now, header, info, out);
        }
    }

    pub(super) fn send_ack(
        &mut self,
        now: Now,
        header: &FrameHeader,
        info: Option<String>,
        out: &mut Vec<Action>,
    ) {
        let payload = Ack { ok: true, r#for: header.id.clone(), info };
        let (_, frame) = self.frame(now, Message::Ack(payload));
        let ack = AckNote::of(header.id.clone());
        out.push(Action::Send(write(&Frame { corr: header.corr.clone(), ack, ..frame })));
    }

    /// Replies to a duplicate frame as before.
    pub(super) fn repeat_answer(
        &mut self,
        now: Now,
        header: &FrameHeader,
        prior: PriorAnswer,
        out: &mut Vec<Action>,
    ) {
        match prior {
            // The reply follows when it is known.
            PriorAnswer::Pending => {}
            PriorAnswer::AckAlive => self.ack_alive(now, header, out),
            PriorAnswer::Ack => self.ack(now, header, None, out),
            PriorAnswer::AckDuplicate => self.ack(now, header, Some(ErrorCode::ResultDuplicate), out),
            PriorAnswer::Error(code) => {
                let report = report(code, "scheduler.session", "the frame was already rejected");
                self.send_error(
                    now,
                    header.corr.clone().or(Some(header.id.clone())),
                    header.seq,
                    report,
                    out,
                );
            }
        }
    }

    /// Replies to a frame with an error, and records that. Without `corr`, the error is about the frame itself.
    pub(super) fn reject(
        &mut self,
        now: Now,
        header: &FrameHeader,
        corr: Option<Text>,
        seq: Option<u64>,
        report: ErrorReport,
        out: &mut Vec<Action>,
    ) {
        if let Some(code) = ErrorCode::parse(&report.code) {
            self.dedup.record(&header.id, header.corr.as_deref(), PriorAnswer::Error(code));
        }
        self.send_error(now, corr.or(Some(header.id.clone())), seq, report, out);
    }

    /// Sends an error. It is not kept: the worker repeats frames that matter to it.
    pub(super) fn send_error(
        &mut self,
        now: Now,
        corr: Option<Text>,
        seq: Option<u64>,
        report: ErrorReport,
        out: &mut Vec<Action>,
    ) {
        let (_, frame) = self.frame(now, Message::Error(report));
        out.push(Action::Send(write(&Frame { corr, seq, ..frame })));
    }

    /// Logs a frame that is sent again, with its number and its task.
    pub(super) fn log_again(&self, number: u64, about: About) {
        let (kind, task) = match about {
            About::Dispatch(task) => (Some(MessageType::Dispatch), Some(task)),
            About::Cancel(task) => (Some(MessageType::Cancel), Some(task)),
            About::Other => (None, None),
        };
        tracing::debug!(
            tenant = self.member().map(|member| member.tenant.as_str()),
            "sender.id" = SCHEDULER,
            "type" = kind.map(MessageType::as_str),
            id = format!("{}{number}", self.prefix),
            corr = task.map(|task| task.job.to_string()),
            seq = task.map(|task| task.dispatch_seq),
            "sent again"
        );
    }

    /// A frame of the server, with its number.
    fn frame(&mut self, now: Now, message: Message) -> (u64, Frame) {
        let number = self.numbers;
        self.numbers += 1;
        let tenant = match &self.bound {
            Some(bound) => bound.tenant.clone(),
            // The worker is not known yet, so there is no tenant, and the field must not be empty.
            None => Text::fixed("-"),
        };
        let frame = Frame {
            id: Text::fixed(&format!("{}{number}", self.prefix)),
            ts: now.wall,
            tenant,
            sender: Sender { role: Role::Scheduler, id: Text::fixed(SCHEDULER) },
            corr: None,
            seq: None,
            ack: AckNote::default(),
            flags: List::default(),
            message,
        };
        (number, frame)
    }
}

/// An `error` payload.
pub(super) fn report(code: ErrorCode, part: &str, message: impl Into<String>) -> ErrorReport {
    let context = ErrorContext { r#where: Some(part.to_owned()), details: None };
    ErrorReport { code: code.into(), message: message.into(), remediation: None, context: Some(context) }
}

/// An `error` payload with details.
pub(super) fn report_with(
    code: ErrorCode,
    part: &str,
    message: impl Into<String>,
    details: &serde_json::Value,
) -> ErrorReport {
    let context = ErrorContext { r#where: Some(part.to_owned()), details: JsonObject::of(details).ok() };
    ErrorReport { context: Some(context), ..report(code, part, message) }
}

fn write(frame: &Frame) -> Utf8Bytes {
    log_frame("sent", frame);
    frame.encode().into()
}

/// Logs a frame, with the fields that all protocol logs have.
pub(super) fn log_frame(direction: &'static str, frame: &Frame) {
    let code = match &frame.message {
        Message::Error(error) => Some(error.code.as_str()),
        Message::Result(result) => result.error.as_ref().map(|error| error.code.as_str()),
        Message::Ack(ack) => ack.info.as_deref().filter(|info| ErrorCode::parse(info).is_some()),
        _ => None,
    };
    tracing::debug!(
        tenant = frame.tenant.as_str(),
        "sender.id" = frame.sender.id.as_str(),
        "type" = frame.message.kind().as_str(),
        id = frame.id.as_str(),
        corr = frame.corr.as_deref(),
        code,
        seq = frame.seq,
        "{direction}"
    );
}
