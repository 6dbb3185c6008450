//! The frames of the worker protocol: one JSON object each, an envelope with a payload.
//!
//! [`Frame::parse`] reads the envelope first, then the payload that its `type` selects. Input that cannot be read
//! becomes a [`FrameError`], which is data for a reply: no input can panic here, and no bad frame ends a connection
//! by itself. `docs/worker-protocol.md` specifies the meaning and the order of frames. This module defines only their
//! form.

mod code;
mod command;
mod message;
mod middleware;
mod outcome;
mod package;
mod published;
mod resource;
#[cfg(feature = "schemas")]
mod schema;
#[cfg(feature = "schemas")]
mod schema_check;
mod session;
mod text;

#[cfg(test)]
mod tests;

use std::str;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use code::{ErrorCode, FrameError, FramePart};
pub use command::{
    Affinity, AffinityMode, Cancel, Constraints, Dispatch, Drain, MIDDLEWARES_MAX, RESOURCE_REFS_MAX,
    ResourceRef,
};
pub use message::{Message, MessageType};
pub use middleware::{NextRequest, NextResponse};
pub use outcome::{
    ARTIFACTS_MAX, Artifact, CHUNKS_MAX, Channel, Chunk, ErrorContext, ErrorReport, Feedback, ResultError,
    ResultStatus, TaskResult,
};
pub use package::{Install, PackageEvent, PackageOutcome, Uninstall};
pub use published::published_schema;
pub use resource::{READ_LEN_MAX, ResourceData, ResourceRead};
#[cfg(feature = "schemas")]
pub use schema::schemas;
#[cfg(feature = "schemas")]
pub use schema_check::check_schema;
pub use session::{
    Ack, Auth, AuthMode, Capabilities, Concurrency, Handshake, Heartbeat, KeptTask, Limit, METRICS_MAX,
    Manifest, NODE_LIMITS_MAX, OFFERS_MAX, PACKAGES_MAX, Package, PackageHealth, PackageStatus, Register,
    TASKS_MAX, Vitals, WorkerIdentity,
};
pub use text::{JsonObject, LenError, List, Secret, TEXT_LEN_MAX, Table, Text, TextError, Timestamp};

use message::PayloadError;

/// The longest frame in bytes: enough for a result of 1 MiB and its envelope.
pub const FRAME_LEN_MAX: usize = 4 << 20;
/// The largest number of flags of a frame.
pub const FLAGS_MAX: usize = 16;

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The id of the frame. A frame that is sent again keeps its id.
    pub id: Text,
    /// When the frame was created, by the sender's clock. The server does not use it.
    pub ts: Timestamp,
    /// The tenant that the connection is bound to.
    pub tenant: Text,
    /// The sender.
    pub sender: Sender,
    /// The correlation: a task's id, or the id of the frame that this one answers.
    pub corr: Option<Text>,
    /// The number of the attempt of the task, from 1. It grows within a run.
    pub seq: Option<u64>,
    /// The frame that this one acknowledges, and whether this one requests an acknowledgement.
    pub ack: AckNote,
    /// Reserved for later use.
    pub flags: List<Text, 0, FLAGS_MAX>,
    /// The type and the payload.
    pub message: Message,
}

/// The sender of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    /// Its side of the connection.
    pub role: Role,
    /// Its name.
    pub id: Text,
}

/// The two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The server.
    Scheduler,
    /// A worker.
    Worker,
}

/// The part of the envelope about acknowledgements.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckNote {
    /// The frame that this one acknowledges.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::id")]
    #[schemars(schema_with = "schema::id_schema")]
    pub r#for: Option<Text>,
    /// True when the sender requests an acknowledgement of this frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<bool>,
}

impl AckNote {
    /// Requests an acknowledgement.
    pub fn requested() -> AckNote {
        AckNote { r#for: None, request: Some(true) }
    }

    /// Acknowledges `id`.
    pub fn of(id: Text) -> AckNote {
        AckNote { r#for: Some(id), request: None }
    }

    fn is_nothing(&self) -> bool {
        *self == AckNote::default()
    }
}

/// The envelope of a frame.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    /// The type. It selects the schema of the payload.
    r#type: Text,
    /// The id of the frame. A frame that is sent again keeps its id.
    id: Text,
    /// When the frame was created, by the sender's clock.
    ts: Timestamp,
    /// The tenant that the connection is bound to.
    tenant: Text,
    /// The sender.
    #[serde(deserialize_with = "text::object")]
    sender: Sender,
    /// The correlation: a task's id, or the id of the frame that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::id")]
    #[schemars(schema_with = "schema::id_schema")]
    corr: Option<Text>,
    /// The number of the attempt of the task, from 1. It grows within a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// The frame that this one acknowledges, and whether this one requests an acknowledgement.
    #[serde(default, skip_serializing_if = "AckNote::is_nothing", deserialize_with = "text::object")]
    ack: AckNote,
    /// Reserved for later use.
    #[serde(default, skip_serializing_if = "nothing")]
    flags: List<Text, 0, FLAGS_MAX>,
    /// The payload.
    #[serde(borrow)]
    #[schemars(with = "JsonObject")]
    payload: &'a RawValue,
}

fn nothing(flags: &List<Text, 0, FLAGS_MAX>) -> bool {
    flags.is_empty()
}

impl Frame {
    /// Reads a frame. The checks run in this order: size, UTF-8, JSON, envelope, type, payload.
    pub fn parse(bytes: &[u8]) -> Result<Frame, FrameError> {
        if bytes.len() > FRAME_LEN_MAX {
            let message = format!("the frame has {} bytes; send at most {FRAME_LEN_MAX}", bytes.len());
            return Err(frame_error(FramePart::Size, message));
        }
        let json = str::from_utf8(bytes)
            .map_err(|_| frame_error(FramePart::Json, "the frame is not UTF-8; send JSON"))?;
        // The derived `Deserialize` would accept an array as the envelope.
        if json.trim_start().starts_with('[') {
            return Err(frame_error(FramePart::Json, "the frame is not a JSON object"));
        }
        let envelope: Envelope<'_> = message::read(json).map_err(|error| envelope_error(json, error))?;
        let Envelope { r#type, id, ts, tenant, sender, corr, seq, ack, flags, payload } = envelope;
        let about =
            |error: FrameError| FrameError { id: Some(id.clone()), kind: Some(r#type.clone()), ..error };
        if !payload.get().starts_with('{') {
            let error = frame_error(FramePart::Envelope, "`payload` is not an object");
            return Err(about(FrameError { field: Some("payload".to_owned()), ..error }));
        }
        let Some(kind) = MessageType::parse(&r#type) else {
            let message =
                format!("the type {:?} is unknown; docs/worker-protocol.md lists the types", r#type.as_str());
            return Err(about(FrameError {
                field: Some("type".to_owned()),
                ..frame_error(FramePart::Type, message)
            }));
        };
        let message = read_payload(kind, payload.get(), &ack).map_err(about)?;
        Ok(Frame { id, ts, tenant, sender, corr, seq, ack, flags, message })
    }

    /// Encodes the frame.
    pub fn encode(&self) -> String {
        let Frame { id, ts, tenant, sender, corr, seq, ack, flags, message } = self;
        let payload =
            serde_json::value::to_raw_value(message).expect("payloads have nothing that JSON has not");
        let envelope = Envelope {
            r#type: Text::fixed(message.kind().as_str()),
            id: id.clone(),
            ts: *ts,
            tenant: tenant.clone(),
            sender: sender.clone(),
            corr: corr.clone(),
            seq: *seq,
            ack: ack.clone(),
            flags: flags.clone(),
            payload: &payload,
        };
        serde_json::to_string(&envelope).expect("envelopes have nothing that JSON has not")
    }

    /// The frame that this one acknowledges: `ack.for`, else the payload's `for`.
    pub fn acknowledges(&self) -> Option<&Text> {
        let Message::Ack(ack) = &self.message else { return None };
        Some(self.ack.r#for.as_ref().unwrap_or(&ack.r#for))
    }

    /// True when the sender requests an acknowledgement.
    pub fn wants_ack(&self) -> bool {
        self.ack.request == Some(true)
    }
}

/// Reads the payload and checks its fields against one another.
fn read_payload(kind: MessageType, payload: &str, ack: &AckNote) -> Result<Message, FrameError> {
    let message = match kind.read(payload) {
        Ok(message) => message,
        Err(error) if kind == MessageType::Ack => {
            Message::Ack(read_bare_ack(payload, ack).ok_or_else(|| payload_error(kind, error))?)
        }
        Err(error) => return Err(payload_error(kind, error)),
    };
    if let Message::Dispatch(dispatch) = &message
        && let Some((field, wrong)) = dispatch.middleware_error()
    {
        return Err(FrameError {
            code: ErrorCode::DispatchInvalidMetadata,
            field: Some(field.to_owned()),
            ..frame_error(FramePart::Payload, format!("`{field}` {wrong}"))
        });
    }
    Ok(message)
}

/// Older workers name the acknowledged frame in the envelope only.
fn read_bare_ack(payload: &str, ack: &AckNote) -> Option<Ack> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Bare {
        #[serde(default)]
        ok: Option<bool>,
        #[serde(default)]
        info: Option<String>,
    }
    let Bare { ok, info } = serde_json::from_str(payload).ok()?;
    Some(Ack { ok: ok.unwrap_or(true), r#for: ack.r#for.clone()?, info })
}

fn frame_error(part: FramePart, message: impl Into<String>) -> FrameError {
    FrameError {
        code: ErrorCode::CmdUnknown,
        message: message.into(),
        part,
        field: None,
        id: None,
        kind: None,
    }
}

fn payload_error(kind: MessageType, error: PayloadError) -> FrameError {
    let message = match &error.field {
        Some(field) => format!("`{field}` of the payload of `{}`: {}", kind.as_str(), error.message),
        None => format!("the payload of `{}`: {}", kind.as_str(), error.message),
    };
    FrameError { code: kind.error_code(), field: error.field, ..frame_error(FramePart::Payload, message) }
}

/// The error for a bad envelope. It has the id and the type where they can be read, so that the reply can name the
/// frame.
fn envelope_error(json: &str, error: PayloadError) -> FrameError {
    #[derive(Deserialize)]
    struct Glimpse {
        id: Option<serde_json::Value>,
        r#type: Option<serde_json::Value>,
    }
    let Ok(glimpse) = serde_json::from_str::<Glimpse>(json) else {
        let is_json = serde_json::from_str::<&RawValue>(json).is_ok();
        let message = if is_json { "the frame is not a JSON object" } else { "the frame is not JSON" };
        return frame_error(FramePart::Json, format!("{message}: {}", error.message));
    };
    let text = |value: Option<serde_json::Value>| {
        value.and_then(|value| value.as_str().map(str::to_owned)).and_then(|text| Text::new(text).ok())
    };
    let message = match &error.field {
        Some(field) => format!("`{field}` of the envelope: {}", error.message),
        None => format!("the envelope: {}", error.message),
    };
    let (id, kind) = (text(glimpse.id), text(glimpse.r#type));
    FrameError { field: error.field, id, kind, ..frame_error(FramePart::Envelope, message) }
}
