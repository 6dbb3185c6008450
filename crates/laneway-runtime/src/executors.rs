//! Where attempts run: what a place is told, and what it must say back.
//!
//! A [`Place`] gets offers and stops from the loop, after their commit. It must say `Command::Finish` for every offer,
//! sooner or later. The one place of this crate runs async handlers in the process (`local.rs`); forwarding a job to a URL
//! is such a handler, too (`http.rs`).

pub mod context;
pub mod http;
pub mod local;
mod logs;

use laneway_core::{Bytes, Fence, JobRow, Name, NextAnswer, Seq, Span, Wall};

pub use context::JobContext;
pub use local::{Handler, HandlerFuture, Handlers, IntoOutcome, IntoResult};

/// Where attempts run. Both calls come from the loop's thread and must return at once.
pub trait Place: Send + Sync {
    /// Run these attempts. What was not kept in memory the place reads itself: the loop has no time for it.
    fn offer(&self, offered: Vec<Offered>);

    /// These runs must stop; what has not ended after `grace` is given up by the engine.
    fn stop(&self, fences: &[Fence], grace: Span);

    /// What an attempt here called is answered (see [`crate::Scheduler::call_next`]). A place whose runs call nobody hears
    /// nothing.
    fn answer(&self, _fence: Fence, _request: Name, _answer: NextAnswer) {}
}

/// One attempt on offer.
#[derive(Debug)]
pub struct Offered {
    /// The job.
    pub seq: Seq,
    /// What every word about the attempt must carry.
    pub fence: Fence,
    /// How long the attempt may run.
    pub timeout: Option<Span>,
    /// When the job's deadline passes.
    pub deadline: Option<Wall>,
    /// When it was offered.
    pub at: Wall,
    /// Row and payload, where they are still in memory; never of a job that others were merged into. A payload with
    /// bindings is what was submitted: see [`crate::bindings`].
    pub kept: Option<(Box<JobRow>, Bytes)>,
    /// Which attempt of its run it is; outside of runs, of its job.
    pub dispatch_seq: u64,
}

/// One attempt to run.
#[derive(Debug)]
pub struct Work {
    /// The job as stored.
    pub row: Box<JobRow>,
    /// What the job was submitted with.
    pub payload: Bytes,
    /// What the jobs that were merged into it were submitted with, in the order in which they came.
    pub merged: Vec<Bytes>,
    /// What every word about the attempt must carry.
    pub fence: Fence,
    /// How long the attempt may run.
    pub timeout: Option<Span>,
    /// When the job's deadline passes.
    pub deadline: Option<Wall>,
    /// Which attempt of its run it is; outside of runs, of its job.
    pub dispatch_seq: u64,
}
