//! Requests parts of artifacts from the worker that has them.
//!
//! A part is requested once, and answered once or not at all: the reader requests it again if it still needs it. A
//! part without a reader is ignored. Open requests end with the connection.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use laneway_runtime::{Part, PartTrouble};
use laneway_wire::frame::{ErrorCode, ErrorReport, Message, ResourceData, ResourceRead};

use super::send::report;
use super::session::{Action, FrameHeader, Now, Session};

/// How long a worker has to respond: longer than any disk needs, shorter than a client waits.
pub const CHUNK_TIMEOUT: Duration = Duration::from_secs(15);
/// The limit of open requests on one connection. Each reader requests one part after another.
pub const CHUNK_REQUESTS_MAX: usize = 32;

/// The open requests, by the number of their frame.
#[derive(Default)]
pub(super) struct ChunkRequests {
    open: BTreeMap<u64, Asked>,
    /// The worker does not support requests for parts. It gets no more of them, because they are bad frames to it.
    unknown: bool,
}

struct Asked {
    read: ResourceRead,
    due: Duration,
}

impl ChunkRequests {
    /// When the next request times out.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.open.values().map(|asked| asked.due).min()
    }
}

impl Session {
    /// Requests a part. Returns the number of the request.
    pub fn request_chunk(
        &mut self,
        now: Now,
        read: ResourceRead,
        out: &mut Vec<Action>,
    ) -> Result<u64, PartTrouble> {
        if self.parts.unknown {
            return Err(PartTrouble::Unknown);
        }
        if self.parts.open.len() >= CHUNK_REQUESTS_MAX {
            return Err(PartTrouble::Busy);
        }
        self.mark_registered();
        let number = self.send(now, Message::ResourceRead(read.clone()), out);
        self.parts.open.insert(number, Asked { read, due: now.mono + CHUNK_TIMEOUT });
        Ok(number)
    }

    /// The worker sent a part.
    pub(super) fn part(
        &mut self,
        now: Now,
        header: &FrameHeader,
        data: &ResourceData,
        out: &mut Vec<Action>,
    ) {
        self.bad.in_a_row = 0;
        let number = header.corr.as_ref().and_then(|corr| self.number_of(corr));
        if let Some(number) = number
            && let Some(asked) = self.parts.open.remove(&number)
        {
            let part = decode_chunk(&asked.read, data);
            if let Err(wrong) = part {
                let report = report(ErrorCode::CmdUnknown, "payload", wrong);
                self.send_error(now, Some(header.id.clone()), None, report, out);
                self.count_bad(now, out);
            }
            out.push(Action::Chunk(number, part.map_err(|wrong| PartTrouble::Failed(wrong.into()))));
        }
        self.ack(now, header, None, out);
    }

    /// The worker rejected a request for a part. False when the error is about something else.
    pub(super) fn chunk_rejected(&mut self, number: u64, error: &ErrorReport, out: &mut Vec<Action>) -> bool {
        if self.parts.open.remove(&number).is_none() {
            return false;
        }
        let trouble = match ErrorCode::parse(&error.code) {
            Some(ErrorCode::ResourceMissing) => PartTrouble::Missing,
            Some(ErrorCode::CmdConcurrencyViolation) => PartTrouble::Busy,
            Some(ErrorCode::CmdUnknown) => {
                self.parts.unknown = true;
                PartTrouble::Unknown
            }
            _ => PartTrouble::Failed(error.code.as_str().into()),
        };
        out.push(Action::Chunk(number, Err(trouble)));
        true
    }

    /// Ends requests that timed out.
    pub(super) fn expire_chunk_requests(&mut self, now: Now, out: &mut Vec<Action>) {
        self.parts.open.retain(|number, asked| {
            let is_late = asked.due <= now.mono;
            if is_late {
                out.push(Action::Chunk(*number, Err(PartTrouble::TimedOut)));
            }
            !is_late
        });
    }
}

/// The part, if it matches the request.
fn decode_chunk(asked: &ResourceRead, data: &ResourceData) -> Result<Part, &'static str> {
    let ResourceData { resource_id, offset, size_bytes, data_base64 } = data;
    if *resource_id != asked.resource_id || *offset != asked.offset {
        return Err("`resource_id` or `offset` does not match the request");
    }
    let bytes = STANDARD.decode(data_base64).map_err(|_| "`data_base64` is not base64")?;
    let most = size_bytes.saturating_sub(*offset).min(u64::from(asked.limit));
    let len = bytes.len() as u64;
    // A worker may send less than requested, but at least one byte.
    if len > most || (len == 0 && most > 0) {
        return Err("`data_base64` has more bytes than were requested or exist, or none although some exist");
    }
    Ok(Part { size: *size_bytes, bytes })
}
