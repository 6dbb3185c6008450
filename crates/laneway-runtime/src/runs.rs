//! Runs through the handle: asked for, canceled, looked at.
//!
//! A run as people see it is its stored row and its jobs, read from one committed state after the other: a job may be
//! further than its run says, never the other way round.

use std::sync::Arc;

use laneway_core::command::WorkflowCommand;
use laneway_core::{
    Bytes, Command, Failure, Fence, JobId, Name, NextCall, Origin, Rejection, Reply, RunId, RunRow,
    RunSubmission, RunSubmitted, Seq, SpanOf, TraceContext,
};
use laneway_store::{JobView, Page, RunFilter};

use crate::bindings::compose;
use crate::scheduler::{ReadError, Scheduler, Stopped};

/// Most runs that one call lists.
pub const RUNS_PER_PAGE_MAX: usize = 200;

/// A run as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    /// Its row.
    pub row: RunRow,
    /// Its jobs, in the order of its nodes.
    pub members: Vec<JobView>,
}

/// What a pull worker needs to run an attempt.
#[derive(Clone, Debug)]
pub struct LeasedWork {
    /// The payload, with what its bindings bring. The error says which binding cannot be carried out.
    pub payload: Result<Bytes, Failure>,
    /// The trace context of the attempt.
    pub trace: Option<Box<TraceContext>>,
}

impl Scheduler {
    /// Asks for a run: all its jobs or none.
    pub async fn submit_run(
        &self,
        submission: RunSubmission,
    ) -> Result<Result<RunSubmitted, Rejection>, Stopped> {
        match self.send(Command::Workflow(WorkflowCommand::Submit(Box::new(submission)))).await? {
            Reply::RunSubmitted(submitted) => Ok(Ok(submitted)),
            Reply::Rejected(rejection) => Ok(Err(rejection)),
            other => unreachable!("the engine answers a run with {other:?}"),
        }
    }

    /// Ends a run: all its jobs that have not ended. `Reply::RunCanceled`, or `Reply::NotFound` when no open run of that
    /// name is there for this tenant.
    pub async fn cancel_run(
        &self,
        tenant: Option<Name>,
        run: RunId,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Workflow(WorkflowCommand::Cancel { tenant, run, origin })).await
    }

    /// A running middleware calls the next element of its chain. `Reply::NextCalled`: its executor gets the answer later
    /// ([`crate::Executor::answer`]); `Reply::NextAnswered`: this is the answer; `Reply::Stale`: the attempt is over.
    pub async fn call_next(&self, call: NextCall) -> Result<Reply, Stopped> {
        self.send(Command::Workflow(WorkflowCommand::CallNext(Box::new(call)))).await
    }

    /// One run with its jobs, open or ended. `None`: this tenant has none of that name.
    pub async fn run(&self, tenant: Option<Name>, id: RunId) -> Result<Option<RunView>, ReadError> {
        self.read(move |reader| {
            let is_theirs = |row: &RunRow| tenant.as_ref().is_none_or(|tenant| *tenant == row.spec.tenant);
            let Some(row) = reader.run(id)?.filter(is_theirs) else { return Ok(None) };
            let seqs: Vec<Seq> = row.seqs().map(Seq).collect();
            let members = reader.jobs_at(&seqs)?;
            Ok(Some(RunView { row, members }))
        })
        .await
    }

    /// Runs, newest first. `before` and `next` are the numbers of first jobs.
    pub async fn runs(
        &self,
        filter: RunFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<RunRow>, ReadError> {
        let tenant = filter.tenant.clone();
        self.list(tenant, move |reader| reader.runs(&filter, before, limit.min(RUNS_PER_PAGE_MAX))).await
    }

    /// The payload that a job gets, with what its bindings bring. `None`: it is not stored. The inner error says which
    /// binding cannot be carried out.
    pub async fn payload_of(&self, job: JobId) -> Result<Option<Result<Bytes, Failure>>, ReadError> {
        self.read(move |reader| {
            let Some(view) = reader.job(job)? else { return Ok(None) };
            let Some(payload) = reader.payload(view.row.seq)? else { return Ok(None) };
            compose(reader, &view.row, &payload).map(Some)
        })
        .await
    }

    /// The same for an attempt that a pull worker got, with its trace context.
    pub async fn work_of(&self, fence: Fence) -> Result<Option<LeasedWork>, ReadError> {
        let shared = Arc::clone(&self.shared);
        self.read(move |reader| {
            let Some(view) = reader.job(fence.job)? else { return Ok(None) };
            let Some(payload) = reader.payload(view.row.seq)? else { return Ok(None) };
            let trace = shared.trace_below(&view.row, SpanOf::Attempt(fence.attempt));
            let payload = compose(reader, &view.row, &payload)?;
            Ok(Some(LeasedWork { payload, trace }))
        })
        .await
    }
}
