//! What the server as a whole does and does not do now.

use crate::Span;
use crate::command::{Rejection, RejectionCode};
use crate::engine::stats::Stats;

/// Whether the server stops, admits jobs, and has space left.
#[derive(Default)]
pub(in crate::engine) struct ServerState {
    /// The server stops: nothing is admitted or started.
    draining: bool,
    /// Nothing is admitted; waiting jobs still start.
    closed: bool,
    /// The disk is nearly full.
    storage_low: bool,
}

impl ServerState {
    /// True while the server stops.
    pub(in crate::engine) fn is_draining(&self) -> bool {
        self.draining
    }

    /// True while storage is low.
    pub(in crate::engine) fn storage_low(&self) -> bool {
        self.storage_low
    }

    /// True while nothing may start. When storage is low, the space that is left is for the results of running jobs.
    pub(in crate::engine) fn starts_nothing(&self) -> bool {
        self.draining || self.storage_low
    }

    /// The server stops. False: it stops already.
    pub(in crate::engine) fn begin_drain(&mut self) -> bool {
        !std::mem::replace(&mut self.draining, true)
    }

    /// Jobs are admitted from now on, or rejected. True when that is new.
    pub(in crate::engine) fn set_admission(&mut self, open: bool) -> bool {
        std::mem::replace(&mut self.closed, !open) == open
    }

    pub(in crate::engine) fn set_storage_low(&mut self, low: bool) {
        self.storage_low = low;
    }

    /// Does the server admit jobs?
    pub(in crate::engine) fn check_admission(&self) -> Result<(), Rejection> {
        let (code, retry_after, message) = if self.draining {
            let message = "the server is stopping; submit again after it has restarted";
            (RejectionCode::Draining, Span::secs(5), message)
        } else if self.closed {
            let message = "the server is drained and admits no new jobs; end the drain (DELETE /v1/drain), or \
                           submit elsewhere";
            (RejectionCode::Draining, Span::secs(5), message)
        } else if self.storage_low {
            let message = "storage runs low; free disk space, then submit again";
            (RejectionCode::StorageLow, Span::secs(30), message)
        } else {
            return Ok(());
        };
        Err(Rejection { retry_after: Some(retry_after), ..Rejection::new(code, message) })
    }

    /// The statistics of a server in this state, without jobs.
    pub(in crate::engine) fn stats(&self) -> Stats {
        Stats {
            draining: self.draining,
            closed: self.closed,
            storage_low: self.storage_low,
            ..Stats::default()
        }
    }
}
