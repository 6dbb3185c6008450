//! The error codes of the worker protocol, and the error for a frame that cannot be read.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use super::outcome::{ErrorContext, ErrorReport};
use super::text::{JsonObject, Text};

/// The stable codes of the protocol. `docs/worker-protocol.md` says which side sends each of them, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ErrorCode {
    /// The token is missing, wrong, expired or revoked.
    #[serde(rename = "E.AUTH.INVALID_TOKEN")]
    AuthInvalidToken,
    /// The server accepts only client certificates, no tokens.
    #[serde(rename = "E.AUTH.MTLS_REQUIRED")]
    AuthMtlsRequired,
    /// The connection, the attempt or the task is no longer bound to this worker. The worker must stop the attempt.
    #[serde(rename = "E.SESSION.STALE_BINDING")]
    SessionStaleBinding,
    /// The session may not do this: a frame before the handshake, another tenant, a forged sender.
    #[serde(rename = "E.SESSION.DENIED")]
    SessionDenied,
    /// The frame cannot be read (not JSON, too long, an unknown type, a wrong field), or no handler exists for the
    /// kind.
    #[serde(rename = "E.CMD.UNKNOWN")]
    CmdUnknown,
    /// A task with the same `concurrency_key` runs already, or the worker has no free slot.
    #[serde(rename = "E.CMD.CONCURRENCY_VIOLATION")]
    CmdConcurrencyViolation,
    /// The result of this (task, seq) was already accepted.
    #[serde(rename = "E.RESULT.DUPLICATE")]
    ResultDuplicate,
    /// A result of the stream is missing. Send again from the last acknowledged one.
    #[serde(rename = "E.RESULT.SEQ_GAP")]
    ResultSeqGap,
    /// The package cannot be used: a wrong digest, a broken or unsafe archive, a missing manifest.
    #[serde(rename = "E.PKG.INVALID")]
    PkgInvalid,
    /// The worker does not install or remove packages, or not this one.
    #[serde(rename = "E.PKG.PERMISSION")]
    PkgPermission,
    /// An internal error of the sender.
    #[serde(rename = "E.INTERNAL")]
    Internal,
    /// The attempt took longer than `constraints.timeout_ms`.
    #[serde(rename = "E.TIMEOUT")]
    Timeout,
    /// No worker acknowledged the dispatch, although it was sent several times.
    #[serde(rename = "E.DISPATCH.UNAVAILABLE")]
    DispatchUnavailable,
    /// `host_node_id`, `middleware_chain` and `chain_index` contradict one another.
    #[serde(rename = "E.DISPATCH.INVALID_METADATA")]
    DispatchInvalidMetadata,
    /// A resource of the task is not on this worker, or has expired.
    #[serde(rename = "E.RESOURCE.MISSING")]
    ResourceMissing,
    /// The handler failed.
    #[serde(rename = "E.RUNNER.FAILURE")]
    RunnerFailure,
    /// The attempt was stopped: by a command, by the end of its lease, or because the worker stops.
    #[serde(rename = "E.RUNNER.CANCELLED")]
    RunnerCancelled,
}

impl ErrorCode {
    /// All of them, in the order of the table in the docs.
    pub const ALL: [ErrorCode; 17] = [
        ErrorCode::AuthInvalidToken,
        ErrorCode::AuthMtlsRequired,
        ErrorCode::SessionStaleBinding,
        ErrorCode::SessionDenied,
        ErrorCode::CmdUnknown,
        ErrorCode::CmdConcurrencyViolation,
        ErrorCode::ResultDuplicate,
        ErrorCode::ResultSeqGap,
        ErrorCode::PkgInvalid,
        ErrorCode::PkgPermission,
        ErrorCode::Internal,
        ErrorCode::Timeout,
        ErrorCode::DispatchUnavailable,
        ErrorCode::DispatchInvalidMetadata,
        ErrorCode::ResourceMissing,
        ErrorCode::RunnerFailure,
        ErrorCode::RunnerCancelled,
    ];

    /// The code as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::AuthInvalidToken => "E.AUTH.INVALID_TOKEN",
            ErrorCode::AuthMtlsRequired => "E.AUTH.MTLS_REQUIRED",
            ErrorCode::SessionStaleBinding => "E.SESSION.STALE_BINDING",
            ErrorCode::SessionDenied => "E.SESSION.DENIED",
            ErrorCode::CmdUnknown => "E.CMD.UNKNOWN",
            ErrorCode::CmdConcurrencyViolation => "E.CMD.CONCURRENCY_VIOLATION",
            ErrorCode::ResultDuplicate => "E.RESULT.DUPLICATE",
            ErrorCode::ResultSeqGap => "E.RESULT.SEQ_GAP",
            ErrorCode::PkgInvalid => "E.PKG.INVALID",
            ErrorCode::PkgPermission => "E.PKG.PERMISSION",
            ErrorCode::Internal => "E.INTERNAL",
            ErrorCode::Timeout => "E.TIMEOUT",
            ErrorCode::DispatchUnavailable => "E.DISPATCH.UNAVAILABLE",
            ErrorCode::DispatchInvalidMetadata => "E.DISPATCH.INVALID_METADATA",
            ErrorCode::ResourceMissing => "E.RESOURCE.MISSING",
            ErrorCode::RunnerFailure => "E.RUNNER.FAILURE",
            ErrorCode::RunnerCancelled => "E.RUNNER.CANCELLED",
        }
    }

    /// The code with this name.
    pub fn parse(name: &str) -> Option<ErrorCode> {
        ErrorCode::ALL.into_iter().find(|code| code.as_str() == name)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<ErrorCode> for Text {
    fn from(code: ErrorCode) -> Text {
        Text::fixed(code.as_str())
    }
}

/// The part of a frame that could not be read, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePart {
    /// It is too long.
    Size,
    /// It is not text, or not JSON.
    Json,
    /// The envelope is wrong.
    Envelope,
    /// The type is unknown.
    Type,
    /// The payload is wrong.
    Payload,
}

impl FramePart {
    /// The value of `context.where`.
    pub fn as_str(self) -> &'static str {
        match self {
            FramePart::Size => "frame.size",
            FramePart::Json => "frame.json",
            FramePart::Envelope => "envelope",
            FramePart::Type => "envelope.type",
            FramePart::Payload => "payload",
        }
    }
}

/// Why a frame cannot be read. It is data for a reply, and does not end a connection by itself.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{code}: {message}")]
pub struct FrameError {
    /// The code of the reply.
    pub code: ErrorCode,
    /// The field and the remedy.
    pub message: String,
    /// The part of the frame that is wrong.
    pub part: FramePart,
    /// The field in the payload or the envelope, if it is known.
    pub field: Option<String>,
    /// The id of the frame, if it could be read. The reply names it in `corr`.
    pub id: Option<Text>,
    /// The type of the frame, if it could be read.
    pub kind: Option<Text>,
}

/// The longest error message on the wire, in characters.
const MESSAGE_LEN_MAX: usize = 1_000;

impl FrameError {
    /// The payload of the `error` frame that replies to it.
    pub fn report(&self) -> ErrorReport {
        let mut details = Map::new();
        let entries =
            [("field", self.field.as_deref()), ("type", self.kind.as_deref()), ("id", self.id.as_deref())];
        for (name, value) in entries {
            if let Some(value) = value {
                details.insert(name.to_owned(), Value::from(value));
            }
        }
        let message: String = self.message.chars().take(MESSAGE_LEN_MAX).collect();
        ErrorReport {
            code: self.code.into(),
            message,
            remediation: Some("see docs/worker-protocol.md and the schema of the type".to_owned()),
            context: Some(ErrorContext {
                r#where: Some(self.part.as_str().to_owned()),
                details: JsonObject::of(&details).ok(),
            }),
        }
    }
}
