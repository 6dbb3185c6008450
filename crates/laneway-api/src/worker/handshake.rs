//! The start of a session: handshake and registration.

use axum::extract::ws::close_code;
use laneway_wire::frame::{ErrorCode, Frame, Handshake, Message, Register, Role};
use serde_json::json;

use super::messages::{Answer, Member, Question};
use super::send::{report, report_with};
use super::session::{Action, FrameHeader, Now, OwedFor, Session, SessionState};

/// The version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;

/// Authenticates the worker of a connection.
pub trait Authenticate {
    /// The worker of this handshake for this tenant, or why it is rejected.
    fn admit(&self, tenant: &str, handshake: &Handshake) -> Result<Member, HandshakeRejection>;
}

/// Why a handshake is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeRejection {
    /// The code of the reply.
    pub code: ErrorCode,
    /// The reason and the remedy.
    pub message: String,
}

impl HandshakeRejection {
    /// A rejection for this reason.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> HandshakeRejection {
        HandshakeRejection { code, message: message.into() }
    }
}

impl Session {
    /// Handles the first frames of a connection.
    pub(super) fn handle_handshake(
        &mut self,
        now: Now,
        frame: Frame,
        authenticator: &dyn Authenticate,
        out: &mut Vec<Action>,
    ) {
        let Message::Handshake(handshake) = &frame.message else {
            let message = format!(
                "`{}` came before the handshake; send `handshake` first",
                frame.message.kind().as_str()
            );
            let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
            self.send_error(now, Some(frame.id), None, report, out);
            return self.count_unauthenticated(out);
        };
        match check_handshake(&frame, handshake, authenticator) {
            Ok(member) => {
                self.dedup.prior_answer(&frame);
                let (tenant, worker) = (frame.tenant.clone(), handshake.worker.id.clone());
                self.bind_worker(member, tenant, worker);
                let header = FrameHeader { ack_requested: true, ..FrameHeader::of(&frame) };
                self.ack(now, &header, None, out);
            }
            Err(HandshakeRejection { code, message }) => {
                let details =
                    json!({"tenant": frame.tenant.as_str(), "worker": handshake.worker.id.as_str()});
                let report = report_with(code, "scheduler.handshake", message, &details);
                self.send_error(now, Some(frame.id.clone()), None, report, out);
                let reason = match code {
                    ErrorCode::AuthInvalidToken => "the token is not valid here",
                    ErrorCode::AuthMtlsRequired => "a client certificate is required",
                    _ => "the handshake was rejected",
                };
                self.close(close_code::POLICY, reason, out);
            }
        }
    }

    /// Handles the registration. The engine replies when it is durable.
    pub(super) fn register(
        &mut self,
        now: Now,
        header: FrameHeader,
        register: Register,
        out: &mut Vec<Action>,
    ) {
        if self.state != SessionState::Handshaking {
            let message = "the worker is registered already; report changes of packages with `pkg.event`";
            let report = report(ErrorCode::SessionDenied, "scheduler.session", message);
            return self.reject(now, &header, None, None, report, out);
        }
        self.go(SessionState::Registered);
        let header = FrameHeader { ack_requested: true, ..header };
        self.ask(Some(header), OwedFor::Registration, Question::Register(Box::new(register)), out);
    }

    /// The engine has replied to the registration.
    pub(super) fn registered(
        &mut self,
        now: Now,
        header: &FrameHeader,
        answer: Answer,
        out: &mut Vec<Action>,
    ) {
        match answer {
            Answer::Alive { lease } => {
                self.complete_registration(lease);
                self.ack_alive(now, header, out);
            }
            Answer::Rejected(why) => {
                let report = report(ErrorCode::SessionDenied, "scheduler.register", why);
                self.reject(now, header, None, None, report, out);
                self.close(close_code::POLICY, "the registration was rejected", out);
            }
            _ => self.close(close_code::ERROR, "internal error", out),
        }
    }
}

fn check_handshake(
    frame: &Frame,
    handshake: &Handshake,
    authenticator: &dyn Authenticate,
) -> Result<Member, HandshakeRejection> {
    let denied = |message: String| Err(HandshakeRejection::new(ErrorCode::SessionDenied, message));
    if handshake.protocol != PROTOCOL_VERSION {
        return denied(format!(
            "`protocol` is {}; this server supports version {PROTOCOL_VERSION}",
            handshake.protocol
        ));
    }
    if frame.sender.role != Role::Worker {
        return denied("`sender.role` must be `worker`".to_owned());
    }
    if frame.sender.id != handshake.worker.id {
        return denied("`sender.id` and `worker.id` must be the same name".to_owned());
    }
    authenticator.admit(&frame.tenant, handshake)
}
