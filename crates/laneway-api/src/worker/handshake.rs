//! How a session begins: a worker shows who it is, and says what it can do.

use axum::extract::ws::close_code;
use laneway_wire::frame::{ErrorCode, Frame, Handshake, Message, Register, Role};
use serde_json::json;

use super::session::{Action, Head, Now, OwedFor, Session, SessionState};
use super::speech::{report, report_with};
use super::words::{Answer, Member, Question};

/// The version of the protocol that we speak.
pub const PROTOCOL_VERSION: u32 = 1;

/// Who may come in. It knows the connection.
pub trait Door {
    /// Who shows up with this handshake for this tenant, or why they stay outside.
    fn admit(&self, tenant: &str, handshake: &Handshake) -> Result<Member, TurnedAway>;
}

/// Why somebody stays outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedAway {
    /// The code of the answer.
    pub code: ErrorCode,
    /// What is wrong, and what helps.
    pub message: String,
}

impl TurnedAway {
    /// For this reason.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> TurnedAway {
        TurnedAway { code, message: message.into() }
    }
}

impl Session {
    /// The first words of a connection.
    pub(super) fn greet(&mut self, now: Now, frame: Frame, door: &dyn Door, out: &mut Vec<Action>) {
        let Message::Handshake(handshake) = &frame.message else {
            let message =
                format!("`{}` came before the handshake; say who you are first", frame.message.kind().word());
            let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
            self.complain(now, Some(frame.id), None, report, out);
            return self.count_stranger(out);
        };
        match welcome(&frame, handshake, door) {
            Ok(member) => {
                self.seen.before(&frame);
                let (tenant, worker) = (frame.tenant.clone(), handshake.worker.id.clone());
                self.greeted(member, tenant, worker);
                let head = Head { wants_ack: true, ..Head::of(&frame) };
                self.ack(now, &head, None, out);
            }
            Err(TurnedAway { code, message }) => {
                let details =
                    json!({"tenant": frame.tenant.as_str(), "worker": handshake.worker.id.as_str()});
                let report = report_with(code, "scheduler.handshake", message, &details);
                self.complain(now, Some(frame.id.clone()), None, report, out);
                let reason = match code {
                    ErrorCode::AuthInvalidToken => "the token does not open this door",
                    ErrorCode::AuthMtlsRequired => "a client certificate is required",
                    _ => "the handshake was refused",
                };
                self.close(close_code::POLICY, reason, out);
            }
        }
    }

    /// What the worker can do. The engine is told, and answers once it is durable what that means.
    pub(super) fn register(&mut self, now: Now, head: Head, register: Register, out: &mut Vec<Action>) {
        if self.state != SessionState::Handshaking {
            let message = "the worker is registered already; changes of packages are told by `pkg.event`";
            let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
            return self.refuse(now, &head, None, None, report, out);
        }
        self.go(SessionState::Registered);
        let head = Head { wants_ack: true, ..head };
        self.ask(Some(head), OwedFor::Registration, Question::Register(Box::new(register)), out);
    }

    /// The engine has answered the registration.
    pub(super) fn registered(&mut self, now: Now, head: &Head, answer: Answer, out: &mut Vec<Action>) {
        match answer {
            Answer::Alive { lease } => {
                self.stands(lease);
                self.ack_alive(now, head, out);
            }
            Answer::Refused(why) => {
                let report = report(ErrorCode::SessionDenied, "scheduler.register", why);
                self.refuse(now, head, None, None, report, out);
                self.close(close_code::POLICY, "the registration was refused", out);
            }
            _ => self.close(close_code::ERROR, "internal error", out),
        }
    }
}

fn welcome(frame: &Frame, handshake: &Handshake, door: &dyn Door) -> Result<Member, TurnedAway> {
    let denied = |message: String| Err(TurnedAway::new(ErrorCode::SessionDenied, message));
    if handshake.protocol != PROTOCOL_VERSION {
        return denied(format!(
            "`protocol` is {}; this server speaks version {PROTOCOL_VERSION}",
            handshake.protocol
        ));
    }
    if frame.sender.role != Role::Worker {
        return denied("`sender.role` must be `worker`".to_owned());
    }
    if frame.sender.id != handshake.worker.id {
        return denied("`sender.id` and `worker.id` must be the same name".to_owned());
    }
    door.admit(&frame.tenant, handshake)
}
