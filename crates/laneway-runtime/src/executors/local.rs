//! Runs jobs in this process: async handlers by kind.
//!
//! A handler that panics fails its attempt and nothing else. A handler that must stop gets its token canceled and some
//! time; what it awaits then is dropped. A handler that blocks its thread cannot be dropped: such work belongs into
//! `spawn_blocking`, with a look at the token now and then.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;

use laneway_core::{AttemptId, Bytes, Command, Failure, Fence, JobRow, Name, Outcome, Seq, Span, SpanOf};
use laneway_store::Runnable;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::context::{JobContext, cut};
use super::read_jobs::read_jobs;
use super::{Executor, Offered, Work};
use crate::bindings::is_bound;
use crate::event_loop::RunnerMessage;
use crate::scheduler::Shared;
use crate::sessions::estimate_usage_after_run;

/// Longest result of a handler in bytes, where [`Handlers::result_len_max`] does not say.
const RESULT_LEN_MAX: usize = 1 << 20;
/// Longest message of a failure in bytes; the rest is cut off.
const MESSAGE_LEN_MAX: usize = 4 << 10;
/// Longest detail of a failure in bytes; a longer one is left out.
const DETAIL_LEN_MAX: usize = 64 << 10;

/// A handler: from a context to an outcome.
pub type Handler = Arc<dyn Fn(JobContext) -> HandlerFuture + Send + Sync>;
/// A handler at work.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Handlers by kind.
#[derive(Clone, Default)]
pub struct Handlers {
    by_kind: BTreeMap<Name, Handler>,
    result_len_max: Option<usize>,
}

impl Handlers {
    /// None yet.
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Adds a handler: `|ctx| async move { Ok::<_, Failure>(…) }`. Panics when `kind` is not a name; see
    /// [`Handlers::insert`] for kinds that come from outside.
    pub fn on<F, Fut>(mut self, kind: &str, handler: F) -> Handlers
    where
        F: Fn(JobContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let kind = Name::new(kind).unwrap_or_else(|error| panic!("the kind {kind:?} {error}"));
        let handler = Arc::new(move |context| {
            let work = handler(context);
            Box::pin(async move { work.await.into_outcome() }) as HandlerFuture
        });
        self.insert(kind, handler);
        self
    }

    /// Adds a handler that is made already.
    pub fn insert(&mut self, kind: Name, handler: Handler) {
        self.by_kind.insert(kind, handler);
    }

    /// Longest result in bytes; a longer one fails its attempt. Defaults to 1 MiB.
    pub fn result_len_max(mut self, bytes: usize) -> Handlers {
        self.result_len_max = Some(bytes);
        self
    }

    /// The kinds that have a handler.
    pub fn kinds(&self) -> Vec<Name> {
        self.by_kind.keys().cloned().collect()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }
}

/// A return value of a handler: an [`Outcome`], or a `Result` of anything that makes result bytes.
pub trait IntoOutcome {
    /// The outcome it means.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<R: IntoResult, E: Into<Failure>> IntoOutcome for Result<R, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(result) => Outcome::Succeeded(result.into_result()),
            Err(failure) => Outcome::Failed(failure.into()),
        }
    }
}

/// A value that makes result bytes.
pub trait IntoResult {
    /// The bytes, or nothing.
    fn into_result(self) -> Option<Bytes>;
}

impl IntoResult for () {
    fn into_result(self) -> Option<Bytes> {
        None
    }
}

impl IntoResult for Bytes {
    fn into_result(self) -> Option<Bytes> {
        Some(self)
    }
}

impl IntoResult for Option<Bytes> {
    fn into_result(self) -> Option<Bytes> {
        self
    }
}

impl IntoResult for Vec<u8> {
    fn into_result(self) -> Option<Bytes> {
        Some(self.into())
    }
}

impl IntoResult for String {
    fn into_result(self) -> Option<Bytes> {
        Some(self.into_bytes().into())
    }
}

impl IntoResult for serde_json::Value {
    fn into_result(self) -> Option<Bytes> {
        Some(self.to_string().into_bytes().into())
    }
}

/// The executor that runs [`Handlers`].
pub(crate) struct LocalExecutor {
    handlers: BTreeMap<Name, Handler>,
    result_len_max: usize,
    messages: mpsc::Sender<RunnerMessage>,
    shared: Arc<Shared>,
    handle: Handle,
    runs: Mutex<HashMap<AttemptId, Arc<Stop>>>,
    /// Notified each time the last attempt has ended.
    idle: Notify,
    /// True from the moment every run was asked to stop because the server stops.
    closing: AtomicBool,
    /// Canceled when what still runs is to be handed back at once.
    abandon: CancellationToken,
    me: Weak<LocalExecutor>,
}

/// The stop signal of an attempt.
struct Stop {
    fence: Fence,
    token: CancellationToken,
    /// How long the attempt may go on after the engine stopped it, in milliseconds; [`NOT_STOPPED`] until then.
    grace_ms: AtomicU64,
}

/// The engine has not stopped the attempt.
const NOT_STOPPED: u64 = u64::MAX;

impl LocalExecutor {
    /// Must be called where a tokio runtime is at hand: the handlers run on it.
    pub(crate) fn new(
        handlers: Handlers,
        messages: mpsc::Sender<RunnerMessage>,
        shared: Arc<Shared>,
    ) -> Arc<LocalExecutor> {
        let Handlers { by_kind, result_len_max } = handlers;
        let handle = Handle::current();
        Arc::new_cyclic(|me| LocalExecutor {
            handlers: by_kind,
            result_len_max: result_len_max.unwrap_or(RESULT_LEN_MAX),
            messages,
            shared,
            handle,
            runs: Mutex::default(),
            idle: Notify::new(),
            closing: AtomicBool::new(false),
            abandon: CancellationToken::new(),
            me: me.clone(),
        })
    }

    /// Waits until nothing runs here, and the end of every attempt was sent to the loop.
    pub(crate) async fn idle(&self) {
        loop {
            let notified = self.idle.notified();
            if self.runs().is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// Asks every run to stop because the server stops. What fails from now on is handed back.
    pub(crate) fn cancel_all(&self) {
        self.closing.store(true, Ordering::SeqCst);
        for run in self.runs().values() {
            run.token.cancel();
        }
    }

    /// Drops every handler where it waits and hands its attempt back.
    pub(crate) fn abandon_all(&self) {
        self.abandon.cancel();
    }

    /// Hands back what could not be dropped, because its handler holds on to a thread. Gives how many there were.
    pub(crate) async fn hand_back_rest(&self) -> usize {
        let rest: Vec<Fence> = self.runs().values().map(|stop| stop.fence).collect();
        for fence in &rest {
            let command = Command::Finish(*fence, Outcome::Interrupted);
            drop(self.messages.send(RunnerMessage { command, reply: None }).await);
        }
        rest.len()
    }

    /// How many attempts run here.
    pub(crate) fn running(&self) -> usize {
        self.runs().len()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<Stop>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a run for every offer; what was not kept in memory is read in one go, beside those that were.
    async fn begin(self: Arc<Self>, begun: Vec<(Offered, Arc<Stop>)>) {
        let (kept, missing): (Vec<_>, Vec<_>) = begun
            .into_iter()
            .partition(|(offered, _)| offered.kept.as_ref().is_some_and(|(row, _)| !is_bound(row)));
        for (mut offered, stop) in kept {
            if let Some((row, payload)) = offered.kept.take() {
                self.start_run(offered, (row, payload, Vec::new()), stop);
            }
        }
        if missing.is_empty() {
            return;
        }
        let jobs: Vec<Seq> = missing.iter().map(|(offered, _)| offered.seq).collect();
        match read_jobs(&self.shared, &jobs).await {
            Some(rows) => {
                for ((offered, stop), job) in missing.into_iter().zip(rows) {
                    match job {
                        Ok(Runnable { row, payload, merged }) => {
                            self.start_run(offered, (Arc::new(row), payload, merged), stop);
                        }
                        Err(clash) => self.end_run(offered.fence, Outcome::Failed(clash)).await,
                    }
                }
            }
            // No fault of theirs: they wait again, at no cost.
            None => {
                for (offered, _) in missing {
                    self.end_run(offered.fence, Outcome::HandedBack).await;
                }
            }
        }
    }

    fn start_run(
        self: &Arc<Self>,
        offered: Offered,
        (row, payload, merged): (Arc<JobRow>, Bytes, Vec<Bytes>),
        stop: Arc<Stop>,
    ) {
        let waited_for_others = row.spec.member.as_ref().is_some_and(|member| !member.depends_on.is_empty());
        if offered.fence.attempt == 1 && !waited_for_others {
            let eligible = row.spec.not_before.map_or(row.created_at, |at| at.max(row.created_at));
            self.shared.metrics.waited(offered.at.since(eligible));
        }
        let Offered { seq: _, fence, timeout, deadline, at: _, kept: _, dispatch_seq } = offered;
        let trace = self.shared.trace_below(&row, SpanOf::Attempt(fence.attempt));
        let work = Work { row, payload, merged, fence, timeout, deadline, dispatch_seq, trace };
        let lines = log_span(&work);
        tokio::spawn(Arc::clone(self).run(work, stop).instrument(lines));
    }

    /// Reports to the loop how an attempt ended, and forgets it.
    async fn end_run(&self, fence: Fence, outcome: Outcome) {
        let command = Command::Finish(fence, bounded(outcome, self.result_len_max));
        // A loop that has stopped finds the attempt open at its next start; there is no one to inform now.
        drop(self.messages.send(RunnerMessage { command, reply: None }).await);
        let mut runs = self.runs();
        runs.remove(&fence.attempt_id);
        if runs.is_empty() {
            self.idle.notify_waiters();
        }
    }

    /// One attempt from its offer to its end.
    async fn run(self: Arc<Self>, work: Work, stop: Arc<Stop>) {
        let fence = work.fence;
        let context = JobContext::new(
            work,
            stop.token.clone(),
            self.messages.clone(),
            Arc::clone(&self.shared),
            self.handle.clone(),
        );
        let stopped_by_engine = || stop.grace_ms.load(Ordering::SeqCst) != NOT_STOPPED;
        let outcome = match self.handlers.get(context.kind()) {
            // It was stopped before it began: an attempt that was acknowledged as canceled must not begin.
            Some(_) if stop.token.is_cancelled() && stopped_by_engine() => Outcome::Canceled,
            Some(_) if stop.token.is_cancelled() => Outcome::HandedBack,
            Some(handler) => self.carry(handler, &context, &stop).await,
            None => {
                Outcome::Failed(Failure::retryable("no_handler", "this process has no handler for the kind"))
            }
        };
        let interrupted =
            self.closing.load(Ordering::SeqCst) && stop.token.is_cancelled() && !stopped_by_engine();
        let outcome = if interrupted { interrupted_unless_done(outcome) } else { outcome };
        context.flush_logs().await;
        context.forget();
        if let Some(session) = context.session() {
            // Before the end is reported: the next job of the session must know how full its context is now.
            estimate_usage_after_run(&self.shared, context.tenant(), session).await;
        }
        self.end_run(fence, outcome).await;
    }

    /// Runs the handler until it ends, or until it was stopped and its grace has passed.
    async fn carry(&self, handler: &Handler, context: &JobContext, stop: &Stop) -> Outcome {
        let begun = catch_unwind(AssertUnwindSafe(|| handler(context.clone())));
        let mut work = match begun {
            Ok(work) => work,
            Err(panic) => return panicked(panic.as_ref()),
        };
        let handler_ends = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(panicked(panic.as_ref())),
        });
        let grace_passes = async {
            stop.token.cancelled().await;
            match stop.grace_ms.load(Ordering::SeqCst) {
                NOT_STOPPED => std::future::pending().await,
                grace_ms => self.shared.clock.sleep(grace_of_runner(Span(grace_ms))).await,
            }
        };
        tokio::select! {
            biased;
            outcome = handler_ends => outcome,
            () = self.abandon.cancelled() => Outcome::Interrupted,
            () = grace_passes => Outcome::Canceled,
        }
    }
}

impl Executor for LocalExecutor {
    fn offer(&self, offered: Vec<Offered>) {
        let Some(me) = self.me.upgrade() else { return };
        let mut begun = Vec::with_capacity(offered.len());
        // Known before anything is read: a stop that comes meanwhile finds its run.
        let mut runs = self.runs();
        for offered in offered {
            let stop = Arc::new(Stop {
                fence: offered.fence,
                token: CancellationToken::new(),
                grace_ms: AtomicU64::new(NOT_STOPPED),
            });
            runs.insert(offered.fence.attempt_id, Arc::clone(&stop));
            begun.push((offered, stop));
        }
        drop(runs);
        // One wake-up for the batch: a task that is on the runtime spawns the others there without crossing threads.
        self.handle.spawn(me.begin(begun));
    }

    fn stop(&self, fences: &[Fence], grace: Span) {
        let runs = self.runs();
        for fence in fences {
            if let Some(run) = runs.get(&fence.attempt_id) {
                run.grace_ms.store(grace.0, Ordering::SeqCst);
                run.token.cancel();
            }
        }
    }
}

/// Every executor in this process; `drain.rs` waits for them.
#[derive(Default)]
pub(crate) struct Runners {
    /// The loop holds an executor while it is offered, an attempt while it runs.
    executors: Mutex<Vec<Weak<LocalExecutor>>>,
}

impl Runners {
    pub(crate) fn add(&self, executor: &Arc<LocalExecutor>) {
        let mut executors = self.executors.lock().unwrap_or_else(PoisonError::into_inner);
        executors.retain(|executor| executor.strong_count() > 0);
        executors.push(Arc::downgrade(executor));
    }

    pub(crate) fn all(&self) -> Vec<Arc<LocalExecutor>> {
        let executors = self.executors.lock().unwrap_or_else(PoisonError::into_inner);
        executors.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Puts the trace on log lines of an attempt. An attempt without a trace has no span.
fn log_span(work: &Work) -> tracing::Span {
    match &work.trace {
        // Enabled at every level: the filter decides about lines, not about what is on them.
        Some(trace) => tracing::error_span!(
            "attempt",
            job = %work.row.id,
            attempt = work.fence.attempt,
            trace_id = format_args!("{:032x}", trace.trace_id),
            span_id = format_args!("{:016x}", trace.span_id)
        ),
        None => tracing::Span::none(),
    }
}

/// The runner gives up a little before the engine does, so that a run that is given up has really ended first.
fn grace_of_runner(grace: Span) -> Span {
    Span(grace.0 - (grace.0 / 10).min(500))
}

/// A run that the server itself interrupted failed through no fault of its own. Only its handler knows whether it can be
/// begun again without harm, and says so by [`Outcome::HandedBack`].
fn interrupted_unless_done(outcome: Outcome) -> Outcome {
    match outcome {
        done if done.is_success() || done == Outcome::HandedBack => done,
        _ => Outcome::Interrupted,
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Outcome::Failed(Failure::retryable("panicked", format!("the handler panicked: {text}")))
}

/// Holds what a handler gave back to its bounds.
fn bounded(outcome: Outcome, result_len_max: usize) -> Outcome {
    match outcome {
        Outcome::Succeeded(Some(result))
        | Outcome::SucceededKeeping { result: Some(result), .. }
        | Outcome::Skipped(Some(result))
            if result.len() > result_len_max =>
        {
            let message = format!("the result has {} bytes; at most {result_len_max} are kept", result.len());
            Outcome::Failed(Failure::permanent("result_too_large", message))
        }
        Outcome::Failed(mut failure) => {
            if failure.message.len() > MESSAGE_LEN_MAX {
                failure.message = cut(&failure.message, MESSAGE_LEN_MAX).into();
            }
            failure.detail = failure.detail.filter(|detail| detail.len() <= DETAIL_LEN_MAX);
            Outcome::Failed(failure)
        }
        outcome => outcome,
    }
}
