//! Parts of resources that the scheduler asks for: read beside the loop, a bounded number at a time.

use laneway_wire::frame::{ErrorCode, ResourceRead, Text, Timestamp};

use super::{Driver, Event};
use crate::worker::desk::Refusal;
use crate::worker::protocol::Action;

/// Most parts that are being read at a time. A scheduler asks for one after the other of each resource.
const READS_MAX: usize = 16;

impl Driver {
    /// Reads a part of a resource, where threads may wait for a disk.
    pub(super) fn read(&mut self, asked: Text, read: ResourceRead, out: &mut Vec<Action>) {
        if self.reads >= READS_MAX {
            let message = format!("{READS_MAX} parts of resources are being read already; ask again later");
            let code = ErrorCode::CmdConcurrencyViolation;
            let refusal = Refusal { code, part: "worker.resources", message };
            return self.protocol.part_read(self.now(), asked, Err(refusal), out);
        }
        self.reads += 1;
        let (resources, events) = (self.resources.clone(), self.events.clone());
        tokio::spawn(async move {
            let reading = tokio::task::spawn_blocking(move || resources.read(&read, Timestamp::now().0));
            let answer = reading.await.unwrap_or_else(|error| {
                let message = format!("reading the resource broke off: {error}");
                Err(Refusal { code: ErrorCode::Internal, part: "worker.resources", message })
            });
            let _ = events.send(Event::Read { asked, answer }).await;
        });
    }
}
