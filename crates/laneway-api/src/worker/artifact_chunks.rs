//! Parts of what tasks made, asked of the worker that keeps it.
//!
//! A part is asked for once, and answered once or not at all: whoever waits for it asks again if they still want it. What
//! nobody waits for any more is passed over; all of it is gone with the connection.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use laneway_runtime::{Part, PartTrouble};
use laneway_wire::frame::{ErrorCode, ErrorReport, Message, ResourceData, ResourceRead};

use super::send::report;
use super::session::{Action, FrameHeader, Now, Session};

/// How long a worker has to answer: longer than any disk needs, shorter than a client waits.
pub const CHUNK_TIMEOUT: Duration = Duration::from_secs(15);
/// Most parts that are asked of one connection at a time. Each reader wants one after the other.
pub const CHUNK_REQUESTS_MAX: usize = 32;

/// The parts that are asked for, by the number of the frame that asked.
#[derive(Default)]
pub(super) struct ChunkRequests {
    open: BTreeMap<u64, Asked>,
    /// The worker said that it does not know what a part is. It is not asked again: to it, the question is a bad frame.
    unknown: bool,
}

struct Asked {
    read: ResourceRead,
    due: Duration,
}

impl ChunkRequests {
    /// When the next one is answered too late.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.open.values().map(|asked| asked.due).min()
    }
}

impl Session {
    /// Asks the worker for a part. Gives the number by which the answer will be known.
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

    /// The worker gives a part.
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

    /// The worker does not give a part. False: the error is not about one.
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

    /// Gives up on parts that did not come in time.
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

/// The part, if it is the one that was asked for.
fn decode_chunk(asked: &ResourceRead, data: &ResourceData) -> Result<Part, &'static str> {
    let ResourceData { resource_id, offset, size_bytes, data_base64 } = data;
    if *resource_id != asked.resource_id || *offset != asked.offset {
        return Err("`resource_id` or `offset` is not what was asked for");
    }
    let bytes = STANDARD.decode(data_base64).map_err(|_| "`data_base64` is not base64")?;
    let most = size_bytes.saturating_sub(*offset).min(u64::from(asked.limit));
    let len = bytes.len() as u64;
    // A worker may give less than it was asked for, but must get on.
    if len > most || (len == 0 && most > 0) {
        return Err(
            "`data_base64` has more bytes than were asked for or are there, or none although some are",
        );
    }
    Ok(Part { size: *size_bytes, bytes })
}
