//! A worker that asks for its work over plain HTTP: request, heartbeat, report, complete.
//!
//! It needs no open connection, so it suits add-ons and scripts; `worker` is for those who want to be told. The calls
//! themselves are in `pull/api.rs`. A run stops by itself when its lease ends without an answer, so that nothing runs twice
//! at the same time: the handler sees that as a canceled token.

mod api;

pub use api::{Dialect, PullError};

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use api::{Api, Asked, Beat, Said};

/// Longest wait after an answer that cannot be had, before it is asked for again.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The first such wait.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// Waits are spread by up to this much, so that many workers do not ask at once.
const SPREAD_MS: u64 = 250;
/// A lease is renewed this many times before it would end.
const BEATS: u32 = 4;

/// How a worker asks.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Where the server is, such as `http://127.0.0.1:7717`.
    pub url: String,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<String>,
    /// The worker's name: every word about a lease carries it.
    pub worker: String,
    /// In which words, and for which jobs.
    pub dialect: Dialect,
    /// Only jobs that cost no more units.
    pub max_cost: Option<u32>,
    /// How long one call may take. Defaults to 10 seconds.
    pub call_timeout: Duration,
}

impl PullOptions {
    /// A worker of this name for a server.
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

/// A worker that asks.
pub struct PullWorker {
    api: Arc<Api>,
}

/// A job that a worker was given.
#[derive(Clone)]
pub struct PulledJob {
    /// The job's id.
    pub job: String,
    /// The lease's id.
    pub lease: String,
    /// The job's kind.
    pub kind: String,
    /// What it was submitted with.
    pub payload: Value,
    /// Canceled when the run must stop: the lease is gone, or the job was canceled.
    pub stop: CancellationToken,
    api: Arc<Api>,
}

impl PulledJob {
    /// Says how far the run is, from 0 to 1. Lost reports hurt nobody.
    pub async fn report(&self, progress: f64, message: &str) -> Result<(), PullError> {
        self.api.report(&self.lease, progress, message).await
    }
}

/// How a handler's run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum PullOutcome {
    /// It worked; what came out must be an object where the dialect has only objects.
    Succeeded(Option<Value>),
    /// It did not.
    Failed(String),
}

/// Why a lease is held no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The server told the run to stop.
    Told,
    /// Nobody answered in time, or the lease is gone.
    Lost,
}

/// What became of one turn of a worker.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// There was no work.
    Denied {
        /// Why.
        reason: String,
        /// When to ask again.
        retry_after: Duration,
    },
    /// A job ran, and the server knows how it ended.
    Done {
        /// The job.
        job: String,
        /// How it ended.
        outcome: PullOutcome,
    },
    /// A job ran, and the lease was lost on the way: whatever came out is not taken.
    Lost {
        /// The job.
        job: String,
    },
}

impl PullWorker {
    /// A worker; nothing is asked yet.
    pub fn new(options: PullOptions) -> Result<PullWorker, PullError> {
        Ok(PullWorker { api: Arc::new(Api::new(options)?) })
    }

    /// Asks and runs until `stop` is canceled; a run that is under way then is let go on to its end.
    pub async fn run<H, F>(&self, handler: H, stop: CancellationToken)
    where
        H: Fn(PulledJob) -> F,
        F: Future<Output = PullOutcome>,
    {
        let mut wait = RETRY_FIRST;
        while !stop.is_cancelled() {
            let pause = match self.turn(&handler).await {
                Ok(Turn::Denied { retry_after, .. }) => retry_after,
                Ok(Turn::Done { .. } | Turn::Lost { .. }) => {
                    wait = RETRY_FIRST;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "the server gives no work");
                    wait = (wait * 2).min(RETRY_MAX);
                    wait
                }
            };
            let pause = pause + Duration::from_millis(fastrand::u64(0..SPREAD_MS));
            stop.run_until_cancelled(sleep(pause)).await;
        }
    }

    /// Asks once, and runs what it is given.
    pub async fn turn<H, F>(&self, handler: &H) -> Result<Turn, PullError>
    where
        H: Fn(PulledJob) -> F,
        F: Future<Output = PullOutcome>,
    {
        let asked_at = Instant::now();
        let (job, ttl) = match self.api.request().await? {
            Asked::Denied { reason, retry_after } => return Ok(Turn::Denied { reason, retry_after }),
            Asked::Granted { job, lease, kind, payload, ttl } => {
                let (stop, api) = (CancellationToken::new(), Arc::clone(&self.api));
                (PulledJob { job, lease, kind, payload, stop, api }, ttl)
            }
        };
        // The lease began when the server gave it, which was after it was asked for.
        let until = Mutex::new(asked_at + ttl);
        let (id, stop, lease) = (job.job.clone(), job.stop.clone(), job.lease.clone());
        let handled = handler(job);
        let held = self.hold(&lease, ttl, &until);
        tokio::pin!(handled, held);
        tokio::select! {
            biased;
            outcome = &mut handled => {
                let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
                self.bring_home(id, &lease, outcome, until).await
            }
            why = &mut held => {
                // The handler is told, and may clean up; what it says is not taken any more.
                stop.cancel();
                handled.await;
                if why == Over::Told {
                    self.api.let_go(&lease).await;
                }
                Ok(Turn::Lost { job: id })
            }
        }
    }

    /// Keeps a lease, and `until` up to date; ends when the lease is lost or the run is told to stop.
    async fn hold(&self, lease: &str, mut ttl: Duration, until: &Mutex<Instant>) -> Over {
        loop {
            let ends = *until.lock().unwrap_or_else(PoisonError::into_inner);
            sleep_until(ends - ttl + ttl / BEATS).await;
            let asked_at = Instant::now();
            match timeout_at(ends, self.api.beat(lease)).await {
                Ok(Ok(Beat::Alive { ttl: given })) => {
                    ttl = given.unwrap_or(ttl);
                    *until.lock().unwrap_or_else(PoisonError::into_inner) = asked_at + ttl;
                }
                Ok(Ok(Beat::Stop)) => return Over::Told,
                // The server may be back before the lease ends.
                Ok(Err(error)) if error.is_passing() && Instant::now() < ends => {
                    tracing::debug!(%error, "a heartbeat got lost");
                    sleep(RETRY_FIRST).await;
                }
                Ok(Err(_)) | Err(_) => return Over::Lost,
            }
        }
    }

    /// Says how a run ended, again and again while the lease may live.
    async fn bring_home(
        &self,
        job: String,
        lease: &str,
        outcome: PullOutcome,
        until: Instant,
    ) -> Result<Turn, PullError> {
        let mut wait = RETRY_FIRST;
        loop {
            match self.api.complete(lease, &outcome).await {
                Ok(Said::Taken) => return Ok(Turn::Done { job, outcome }),
                Ok(Said::Gone) => return Ok(Turn::Lost { job }),
                Err(error) if error.is_passing() && Instant::now() + wait < until => {
                    tracing::debug!(%error, "the end of a run could not be told yet");
                    sleep(wait).await;
                    wait = (wait * 2).min(RETRY_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
