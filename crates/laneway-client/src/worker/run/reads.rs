//! Reads parts of resources that the scheduler requests, a bounded number at a time, beside the loop.

use laneway_wire::frame::{ErrorCode, ResourceRead, Text, Timestamp};

use super::{Driver, Event};
use crate::worker::protocol::Action;
use crate::worker::tasks::Rejection;

/// Most parts that are read at a time. A scheduler requests the parts of one resource one after the other.
const READS_MAX: usize = 16;

impl Driver {
    /// Reads a part of a resource on a blocking thread.
    pub(super) fn read(&mut self, asked: Text, read: ResourceRead, out: &mut Vec<Action>) {
        if self.reads >= READS_MAX {
            let message = format!("{READS_MAX} parts of resources are being read already; try again later");
            let code = ErrorCode::CmdConcurrencyViolation;
            let rejection = Rejection { code, part: "worker.resources", message };
            return self.protocol.part_read(self.now(), asked, Err(rejection), out);
        }
        self.reads += 1;
        let (resources, events) = (self.resources.clone(), self.events.clone());
        tokio::spawn(async move {
            let reading = tokio::task::spawn_blocking(move || resources.read(&read, Timestamp::now().0));
            let answer = reading.await.unwrap_or_else(|error| {
                let message = format!("reading the resource was interrupted: {error}");
                Err(Rejection { code: ErrorCode::Internal, part: "worker.resources", message })
            });
            let _ = events.send(Event::Read { asked, answer }).await;
        });
    }
}
