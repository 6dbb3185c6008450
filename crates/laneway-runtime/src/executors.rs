//! Executors: where attempts run.
//!
//! An [`Executor`] gets offers and stops from the loop, after their commit. It must send `Command::Finish` for every offer.
//! The executor of this crate runs async handlers in the process (`local.rs`); forwarding a job to a URL is such a handler,
//! too (`http.rs`).

pub mod context;
pub mod http;
pub mod local;
pub(crate) mod logs;
pub(crate) mod read_jobs;

use std::sync::Arc;

use laneway_core::{Bytes, Fence, JobRow, Name, NextAnswer, Seq, Span, TraceContext, Wall};

pub use context::JobContext;
pub(crate) use context::cut;
pub use local::{Handler, HandlerFuture, Handlers, IntoOutcome, IntoResult};

/// Runs attempts. All calls come from the loop's thread and must return at once.
pub trait Executor: Send + Sync {
    /// Runs these attempts. The executor reads jobs that are not in memory itself: the loop has no time for it.
    fn offer(&self, offered: Vec<Offered>);

    /// Stops these attempts. The engine gives up those that have not ended after `grace`.
    fn stop(&self, fences: &[Fence], grace: Span);

    /// The answer to a call of an attempt (see [`crate::Scheduler::call_next`]). An executor whose attempts make no calls
    /// ignores it.
    fn answer(&self, _fence: Fence, _request: Name, _answer: NextAnswer) {}
}

/// One attempt on offer.
#[derive(Debug)]
pub struct Offered {
    /// The job.
    pub seq: Seq,
    /// The fence of every report on the attempt.
    pub fence: Fence,
    /// How long the attempt may run.
    pub timeout: Option<Span>,
    /// When the job's deadline passes.
    pub deadline: Option<Wall>,
    /// When it was offered.
    pub at: Wall,
    /// Row and payload, where they are still in memory; never of a job that others were merged into. A payload with
    /// bindings is what was submitted: see [`crate::bindings`].
    pub kept: Option<(Arc<JobRow>, Bytes)>,
    /// Which attempt of its run it is; outside of runs, of its job.
    pub dispatch_seq: u64,
}

/// One attempt to run.
#[derive(Debug)]
pub struct Work {
    /// The job as stored.
    pub row: Arc<JobRow>,
    /// The payload of the job.
    pub payload: Bytes,
    /// The payloads of the jobs that were merged into it, in the order of their submission.
    pub merged: Vec<Bytes>,
    /// The fence of every report on the attempt.
    pub fence: Fence,
    /// How long the attempt may run.
    pub timeout: Option<Span>,
    /// When the job's deadline passes.
    pub deadline: Option<Wall>,
    /// Which attempt of its run it is; outside of runs, of its job.
    pub dispatch_seq: u64,
    /// The trace context of the attempt.
    pub trace: Option<Box<TraceContext>>,
}
