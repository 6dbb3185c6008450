//! A pull worker: it requests work over plain HTTP with the calls request, heartbeat, report and complete.
//!
//! It needs no open connection, so it suits add-ons and scripts; `worker` is the SDK for push workers. The HTTP
//! calls are in `pull/api.rs`. A job stops when its lease expires without an answer from the server, so that no
//! job runs twice at the same time. The handler sees this as a canceled token.

mod api;

pub use api::{Dialect, PullError};

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use api::{Api, Beat, OutcomeResponse, Work, WorkResponse};

/// Longest wait before a failed call is repeated.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// First wait before a failed call is repeated.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// Random part of each wait, at most, so that many workers do not poll at once.
const SPREAD_MS: u64 = 250;
/// How many heartbeats are sent within one lease.
const BEATS: u32 = 4;

/// Options of a pull worker.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// The URL of the server, such as `http://127.0.0.1:7717`.
    pub url: String,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
    /// The worker's name. Every message about a lease carries it.
    pub worker: String,
    /// The API to use, and which jobs to request.
    pub dialect: Dialect,
    /// Request only jobs that cost at most this many units.
    pub max_cost: Option<u32>,
    /// How long one call may take. Defaults to 10 seconds.
    pub call_timeout: Duration,
}

impl PullOptions {
    /// Options for a worker of this name, with defaults for the rest.
    pub fn new(url: impl Into<String>, worker: impl Into<String>, dialect: Dialect) -> PullOptions {
        PullOptions {
            url: url.into(),
            token: None,
            worker: worker.into(),
            dialect,
            max_cost: None,
            call_timeout: Duration::from_secs(10),
        }
    }
}

/// A pull worker.
pub struct PullWorker {
    api: Arc<Api>,
}

/// A job that the worker has leased.
#[derive(Clone)]
pub struct PulledJob {
    /// The job's id.
    pub job: String,
    /// The lease's id.
    pub lease: String,
    /// The job's kind.
    pub kind: String,
    /// The payload of the job.
    pub payload: Value,
    /// The place of the attempt in its trace, as a `traceparent` for calls that the handler makes. The dialects of other systems
    /// have none.
    pub traceparent: Option<String>,
    /// The `tracestate` that belongs to it.
    pub tracestate: Option<String>,
    /// Canceled when the handler must stop: the lease was lost, or the job was canceled.
    pub stop: CancellationToken,
    api: Arc<Api>,
}

impl PulledJob {
    /// Reports progress, from 0 to 1. A lost report does no harm.
    pub async fn report(&self, progress: f64, message: &str) -> Result<(), PullError> {
        self.api.report(&self.lease, progress, message).await
    }
}

/// The outcome of a handler.
#[derive(Clone, Debug, PartialEq)]
pub enum PullOutcome {
    /// The handler succeeded. The result must be an object where the dialect allows only objects.
    Succeeded(Option<Value>),
    /// The handler failed, with a message.
    Failed(String),
}

/// Why a lease ended before the handler did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseEnd {
    /// The server asked the worker to stop the job.
    Stopped,
    /// No answer came in time, or the lease no longer exists.
    Lost,
}

/// The outcome of one poll.
#[derive(Clone, Debug, PartialEq)]
pub enum Poll {
    /// The server had no work.
    Denied {
        /// Why.
        reason: String,
        /// When to poll again.
        retry_after: Duration,
    },
    /// A job ran, and the server has accepted its outcome.
    Done {
        /// The job.
        job: String,
        /// How it ended.
        outcome: PullOutcome,
    },
    /// A job ran and its lease was lost meanwhile. The outcome was discarded.
    Lost {
        /// The job.
        job: String,
    },
}

impl PullWorker {
    /// A worker. It makes no call until it is run.
    pub fn new(options: PullOptions) -> Result<PullWorker, PullError> {
        Ok(PullWorker { api: Arc::new(Api::new(options)?) })
    }

    /// Polls and runs jobs until `stop` is canceled. A job that is running then is finished first.
    pub async fn run<H, F>(&self, handler: H, stop: CancellationToken)
    where
        H: Fn(PulledJob) -> F,
        F: Future<Output = PullOutcome>,
    {
        let mut wait = RETRY_FIRST;
        while !stop.is_cancelled() {
            let pause = match self.poll_once(&handler).await {
                Ok(Poll::Denied { retry_after, .. }) => retry_after,
                Ok(Poll::Done { .. } | Poll::Lost { .. }) => {
                    wait = RETRY_FIRST;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot request work; retrying");
                    wait = (wait * 2).min(RETRY_MAX);
                    wait
                }
            };
            let pause = pause + Duration::from_millis(fastrand::u64(0..SPREAD_MS));
            stop.run_until_cancelled(sleep(pause)).await;
        }
    }

    /// Polls once, and runs the job that the server returns.
    pub async fn poll_once<H, F>(&self, handler: &H) -> Result<Poll, PullError>
    where
        H: Fn(PulledJob) -> F,
        F: Future<Output = PullOutcome>,
    {
        let asked_at = Instant::now();
        let (job, ttl) = match self.api.request().await? {
            WorkResponse::Denied { reason, retry_after } => return Ok(Poll::Denied { reason, retry_after }),
            WorkResponse::Granted(work) => {
                let Work { job, lease, kind, payload, traceparent, tracestate, ttl } = *work;
                let (stop, api) = (CancellationToken::new(), Arc::clone(&self.api));
                (PulledJob { job, lease, kind, payload, traceparent, tracestate, stop, api }, ttl)
            }
        };
        // The lease began when the server granted it, which was after the request was sent.
        let until = Mutex::new(asked_at + ttl);
        let (id, stop, lease) = (job.job.clone(), job.stop.clone(), job.lease.clone());
        let handled = handler(job);
        let renewal = self.renew(&lease, ttl, &until);
        tokio::pin!(handled, renewal);
        tokio::select! {
            biased;
            outcome = &mut handled => {
                let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
                self.report_outcome(id, &lease, outcome, until).await
            }
            why = &mut renewal => {
                // The handler is notified and may clean up; its result is discarded.
                stop.cancel();
                handled.await;
                if why == LeaseEnd::Stopped {
                    self.api.report_stopped(&lease).await;
                }
                Ok(Poll::Lost { job: id })
            }
        }
    }

    /// Renews a lease and keeps `until` up to date. Returns when the lease is lost or the server asks to
    /// stop.
    async fn renew(&self, lease: &str, mut ttl: Duration, until: &Mutex<Instant>) -> LeaseEnd {
        loop {
            let ends = *until.lock().unwrap_or_else(PoisonError::into_inner);
            sleep_until(ends - ttl + ttl / BEATS).await;
            let asked_at = Instant::now();
            match timeout_at(ends, self.api.beat(lease)).await {
                Ok(Ok(Beat::Alive { ttl: given })) => {
                    ttl = given.unwrap_or(ttl);
                    *until.lock().unwrap_or_else(PoisonError::into_inner) = asked_at + ttl;
                }
                Ok(Ok(Beat::Stop)) => return LeaseEnd::Stopped,
                // The server may be back before the lease ends.
                Ok(Err(error)) if error.is_transient() && Instant::now() < ends => {
                    tracing::debug!(%error, "a heartbeat was lost");
                    sleep(RETRY_FIRST).await;
                }
                Ok(Err(_)) | Err(_) => return LeaseEnd::Lost,
            }
        }
    }

    /// Reports the outcome, and repeats the report while the lease may still be alive.
    async fn report_outcome(
        &self,
        job: String,
        lease: &str,
        outcome: PullOutcome,
        until: Instant,
    ) -> Result<Poll, PullError> {
        let mut wait = RETRY_FIRST;
        loop {
            match self.api.complete(lease, &outcome).await {
                Ok(OutcomeResponse::Accepted) => return Ok(Poll::Done { job, outcome }),
                Ok(OutcomeResponse::Gone) => return Ok(Poll::Lost { job }),
                Err(error) if error.is_transient() && Instant::now() + wait < until => {
                    tracing::debug!(%error, "the outcome of a job could not be reported; retrying");
                    sleep(wait).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
