//! The types of frames and their payloads.

use serde::Serialize;

use super::code::ErrorCode;
use super::command::{Cancel, Dispatch, Drain};
use super::middleware::{NextRequest, NextResponse};
use super::outcome::{ErrorReport, Feedback, TaskResult};
use super::package::{Install, PackageEvent, Uninstall};
use super::resource::{ResourceData, ResourceRead};
use super::session::{Ack, Handshake, Heartbeat, Register};

/// The type of a frame with its payload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Message {
    /// The worker introduces itself.
    Handshake(Handshake),
    /// The worker registers its capabilities.
    Register(Register),
    /// A frame arrived.
    Ack(Ack),
    /// The worker is alive.
    Heartbeat(Heartbeat),
    /// Run a task.
    Dispatch(Box<Dispatch>),
    /// Stop a task.
    Cancel(Cancel),
    /// Accept no more tasks.
    Drain(Drain),
    /// The progress of a task.
    Feedback(Feedback),
    /// How a task ended.
    Result(Box<TaskResult>),
    /// A frame or a command failed.
    Error(ErrorReport),
    /// Install a package.
    Install(Install),
    /// Remove a package.
    Uninstall(Uninstall),
    /// The outcome of an install or an uninstall.
    PackageEvent(PackageEvent),
    /// A middleware calls the next element of its chain.
    NextRequest(NextRequest),
    /// The outcome of that call.
    NextResponse(NextResponse),
    /// Read a part of a resource.
    ResourceRead(ResourceRead),
    /// A part of a resource.
    ResourceData(ResourceData),
}

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageType {
    /// `handshake`
    Handshake,
    /// `register`
    Register,
    /// `ack`
    Ack,
    /// `heartbeat`
    Heartbeat,
    /// `cmd.dispatch`
    Dispatch,
    /// `cmd.cancel`
    Cancel,
    /// `cmd.drain`
    Drain,
    /// `feedback`
    Feedback,
    /// `result`
    Result,
    /// `error`, also read as `command.error`
    Error,
    /// `pkg.install`
    Install,
    /// `pkg.uninstall`
    Uninstall,
    /// `pkg.event`
    PackageEvent,
    /// `middleware.next_request`
    NextRequest,
    /// `middleware.next_response`
    NextResponse,
    /// `resource.read`
    ResourceRead,
    /// `resource.data`
    ResourceData,
}

impl MessageType {
    /// All of them, in the order of the docs.
    pub const ALL: [MessageType; 17] = [
        MessageType::Handshake,
        MessageType::Register,
        MessageType::Ack,
        MessageType::Heartbeat,
        MessageType::Dispatch,
        MessageType::Cancel,
        MessageType::Drain,
        MessageType::Feedback,
        MessageType::Result,
        MessageType::Error,
        MessageType::Install,
        MessageType::Uninstall,
        MessageType::PackageEvent,
        MessageType::NextRequest,
        MessageType::NextResponse,
        MessageType::ResourceRead,
        MessageType::ResourceData,
    ];

    /// The type as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageType::Handshake => "handshake",
            MessageType::Register => "register",
            MessageType::Ack => "ack",
            MessageType::Heartbeat => "heartbeat",
            MessageType::Dispatch => "cmd.dispatch",
            MessageType::Cancel => "cmd.cancel",
            MessageType::Drain => "cmd.drain",
            MessageType::Feedback => "feedback",
            MessageType::Result => "result",
            MessageType::Error => "error",
            MessageType::Install => "pkg.install",
            MessageType::Uninstall => "pkg.uninstall",
            MessageType::PackageEvent => "pkg.event",
            MessageType::NextRequest => "middleware.next_request",
            MessageType::NextResponse => "middleware.next_response",
            MessageType::ResourceRead => "resource.read",
            MessageType::ResourceData => "resource.data",
        }
    }

    /// The type with this name.
    pub fn parse(name: &str) -> Option<MessageType> {
        if name == "command.error" {
            return Some(MessageType::Error);
        }
        MessageType::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The code of the reply to a payload of this type that cannot be read.
    pub fn error_code(self) -> ErrorCode {
        match self {
            MessageType::Install | MessageType::Uninstall | MessageType::PackageEvent => {
                ErrorCode::PkgInvalid
            }
            _ => ErrorCode::CmdUnknown,
        }
    }

    /// Reads a payload of this type and checks its form only. `Frame::parse` checks the fields against one another.
    pub(super) fn read(self, payload: &str) -> Result<Message, PayloadError> {
        Ok(match self {
            MessageType::Handshake => Message::Handshake(read(payload)?),
            MessageType::Register => Message::Register(read(payload)?),
            MessageType::Ack => Message::Ack(read(payload)?),
            MessageType::Heartbeat => Message::Heartbeat(read(payload)?),
            MessageType::Dispatch => Message::Dispatch(read(payload)?),
            MessageType::Cancel => Message::Cancel(read(payload)?),
            MessageType::Drain => Message::Drain(read(payload)?),
            MessageType::Feedback => Message::Feedback(read(payload)?),
            MessageType::Result => Message::Result(read(payload)?),
            MessageType::Error => Message::Error(read(payload)?),
            MessageType::Install => Message::Install(read(payload)?),
            MessageType::Uninstall => Message::Uninstall(read(payload)?),
            MessageType::PackageEvent => Message::PackageEvent(read(payload)?),
            MessageType::NextRequest => Message::NextRequest(read(payload)?),
            MessageType::NextResponse => Message::NextResponse(read(payload)?),
            MessageType::ResourceRead => Message::ResourceRead(read(payload)?),
            MessageType::ResourceData => Message::ResourceData(read(payload)?),
        })
    }
}

impl Message {
    /// Its type.
    pub fn kind(&self) -> MessageType {
        match self {
            Message::Handshake(_) => MessageType::Handshake,
            Message::Register(_) => MessageType::Register,
            Message::Ack(_) => MessageType::Ack,
            Message::Heartbeat(_) => MessageType::Heartbeat,
            Message::Dispatch(_) => MessageType::Dispatch,
            Message::Cancel(_) => MessageType::Cancel,
            Message::Drain(_) => MessageType::Drain,
            Message::Feedback(_) => MessageType::Feedback,
            Message::Result(_) => MessageType::Result,
            Message::Error(_) => MessageType::Error,
            Message::Install(_) => MessageType::Install,
            Message::Uninstall(_) => MessageType::Uninstall,
            Message::PackageEvent(_) => MessageType::PackageEvent,
            Message::NextRequest(_) => MessageType::NextRequest,
            Message::NextResponse(_) => MessageType::NextResponse,
            Message::ResourceRead(_) => MessageType::ResourceRead,
            Message::ResourceData(_) => MessageType::ResourceData,
        }
    }
}

/// What is wrong with the form of a piece of JSON, and where.
pub(super) struct PayloadError {
    pub(super) field: Option<String>,
    pub(super) message: String,
}

/// Reads JSON. A second pass finds the path of the wrong field, only after an error, because it is slower.
pub(super) fn read<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Result<T, PayloadError> {
    let quick: Result<T, serde_json::Error> = serde_json::from_str(json);
    let error = match quick {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let field = serde_path_to_error::deserialize::<_, T>(&mut deserializer)
        .err()
        .map(|error| error.path().to_string())
        .filter(|path| path != ".");
    Err(PayloadError { field, message: strip_position(&error.to_string()) })
}

/// Removes " at line 1 column 7". A frame is one line, so the position does not help.
fn strip_position(message: &str) -> String {
    message.rfind(" at line ").map_or(message, |end| &message[..end]).to_owned()
}
