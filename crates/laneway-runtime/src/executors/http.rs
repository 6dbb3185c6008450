//! Forwards jobs to URLs: one POST for every attempt, its answer is the outcome.
//!
//! Every kind with a target has an executor of its own whose handler makes the call, so that targets can come, move and go
//! while the server runs. A stop drops the call and closes its connection. More cannot be done: a target that goes on
//! working after that may still work while the next attempt runs, which is why every call carries its fence.

pub mod answer;
#[cfg(test)]
mod tests;

use laneway_core::command::AdminCommand;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use laneway_core::{
    Bytes, Command, ExecutorMode, ExecutorOffer, Failure, Fence, Name, Outcome, Reply, TraceContext, Wall,
};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::local::{Handler, HandlerFuture, Handlers, LocalExecutor};
use super::{JobContext, context::cut};
use crate::config::{Config, Target};
use crate::live_config::LiveConfig;
use crate::scheduler::{Scheduler, Stopped};

/// How long a target may take to accept a connection: it is up or it is not.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections to one host that are kept open for the next call.
const IDLE_CONNECTIONS_MAX: usize = 64;
/// Slots of the executor of a target: the limits of lanes, kinds and the server bound the calls, not the executor.
const SLOTS: u32 = 1_000_000;

/// Why calls cannot be made at all.
#[derive(Debug, Error)]
#[error("cannot set up HTTP calls: {0}")]
pub struct HttpError(#[from] reqwest::Error);

/// The client that all calls share.
#[derive(Clone, Debug)]
pub struct HttpClient(reqwest::Client);

impl HttpClient {
    /// Follows no redirects and asks no proxy: a call goes where the configuration says, and nowhere else.
    pub fn new() -> Result<HttpClient, HttpError> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .user_agent(concat!("laneway/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(HttpClient(client))
    }

    /// The client itself, for calls that are no targets'.
    pub fn inner(&self) -> &reqwest::Client {
        &self.0
    }

    /// Makes the call. Returns [`Outcome::Canceled`] as soon as `stop` is canceled; the connection is closed then.
    pub async fn forward(&self, target: &Target, call: &Call, stop: &CancellationToken) -> Outcome {
        tokio::select! {
            biased;
            () = stop.cancelled() => Outcome::Canceled,
            outcome = self.exchange(target, call) => outcome,
        }
    }

    async fn exchange(&self, target: &Target, call: &Call) -> Outcome {
        if call.time_left == Some(Duration::ZERO) {
            return Outcome::Failed(Failure::retryable(
                "http_timeout",
                "no time was left to call the target",
            ));
        }
        match self.request(target, call).send().await {
            Ok(response) => answer::outcome_of(response, target.response_max).await,
            Err(error) => answer::failure_of(error),
        }
    }

    fn request(&self, target: &Target, call: &Call) -> reqwest::RequestBuilder {
        let Fence { job, attempt, attempt_id, lease_epoch: _ } = call.fence;
        let mut request = self.0.post(target.url.clone()).body(call.body());
        if !call.merged.is_empty() {
            request = request.header("laneway-merged", call.merged.len() + 1);
        }
        if let Some(time_left) = call.time_left {
            request = request.timeout(time_left);
        }
        for (name, value) in &target.headers {
            if let Ok(mut value) = HeaderValue::from_str(value.reveal()) {
                value.set_sensitive(true);
                request = request.header(name, value);
            }
        }
        if let Some(token) = &target.token {
            request = request.bearer_auth(token.reveal());
        }
        request = request
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header("idempotency-key", format!("{job}:{attempt}"))
            .header("laneway-job-id", job.to_string())
            .header("laneway-attempt", attempt)
            .header("laneway-attempt-id", attempt_id.to_string());
        for (name, value) in [("kind", &call.kind), ("agent", &call.agent), ("tenant", &call.tenant)] {
            request = request.header(format!("laneway-{name}"), header_text(value));
        }
        if let Some(trace) = &call.trace {
            request = request.header("traceparent", trace.parent());
            if let Some(state) = &trace.state {
                request = request.header("tracestate", &**state);
            }
        }
        match call.ends_at.and_then(rfc3339) {
            Some(deadline) => request.header("laneway-deadline", deadline),
            None => request,
        }
    }
}

/// The data about an attempt that a target gets.
#[derive(Clone, Debug)]
pub struct Call {
    /// The body, or the first part of it.
    pub payload: Bytes,
    /// Payloads of the jobs that were merged into this one. With any, the body is a JSON array of all of them.
    pub merged: Vec<Bytes>,
    /// Names the attempt.
    pub fence: Fence,
    /// The job's kind.
    pub kind: Name,
    /// The job's agent.
    pub agent: Name,
    /// The job's tenant.
    pub tenant: Name,
    /// How long the call may take.
    pub time_left: Option<Duration>,
    /// When that is over, by the wall clock.
    pub ends_at: Option<Wall>,
    /// The trace context of the attempt.
    pub trace: Option<TraceContext>,
}

impl Call {
    fn of(context: &JobContext) -> Call {
        Call {
            payload: context.payload().clone(),
            merged: context.merged().to_vec(),
            fence: context.fence(),
            kind: context.kind().clone(),
            agent: context.agent().clone(),
            tenant: context.tenant().clone(),
            time_left: context.time_left(),
            ends_at: context.ends_at(),
            trace: context.trace().cloned(),
        }
    }
}

impl Call {
    /// The payload as it is; or, where others were merged into the job, an array of all payloads in order.
    fn body(&self) -> Vec<u8> {
        if self.merged.is_empty() {
            // The shared bytes are copied once: the client needs them for itself.
            return self.payload.to_vec();
        }
        let mut body = vec![b'['];
        for (at, payload) in std::iter::once(&self.payload).chain(&self.merged).enumerate() {
            if at > 0 {
                body.push(b',');
            }
            push_json(&mut body, payload);
        }
        body.push(b']');
        body
    }
}

/// Appends a payload as an element of an array: JSON as it is, nothing as null, anything else as a text.
fn push_json(body: &mut Vec<u8>, payload: &[u8]) {
    if payload.is_empty() {
        body.extend_from_slice(b"null");
    } else if serde_json::from_slice::<serde::de::IgnoredAny>(payload).is_ok() {
        body.extend_from_slice(payload);
    } else {
        let text = serde_json::Value::from(String::from_utf8_lossy(payload));
        body.extend_from_slice(text.to_string().as_bytes());
    }
}

/// Keeps the executors of all targets as configured, until it is dropped.
#[derive(Debug)]
pub struct Forwarding {
    _stop: DropGuard,
}

impl Forwarding {
    /// Offers every kind that has a target, and follows the configuration from then on.
    pub async fn start(scheduler: Scheduler, live: &LiveConfig) -> Result<Forwarding, HttpError> {
        let client = HttpClient::new()?;
        let mut configs = live.subscribe();
        let mut executors =
            TargetExecutors { scheduler, client, configs: configs.clone(), executors: BTreeMap::new() };
        let now = configs.borrow_and_update().clone();
        // A loop that has stopped runs nothing, and its owner knows that already.
        let _ = executors.follow(&now).await;
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            while configs.changed().await.is_ok() {
                let now = configs.borrow_and_update().clone();
                if executors.follow(&now).await.is_err() {
                    return;
                }
            }
        }));
        Ok(Forwarding { _stop: stop.drop_guard() })
    }
}

struct TargetExecutors {
    scheduler: Scheduler,
    client: HttpClient,
    configs: watch::Receiver<Arc<Config>>,
    /// The executor of every kind that ever had a target. It is kept when the target goes: a stop must find its attempts.
    executors: BTreeMap<Name, TargetExecutor>,
}

struct TargetExecutor {
    name: Name,
    local: Arc<LocalExecutor>,
    offered: bool,
}

impl TargetExecutors {
    async fn follow(&mut self, config: &Config) -> Result<(), Stopped> {
        for (kind, executor) in &mut self.executors {
            if executor.offered && !config.targets.contains_key(kind) {
                self.scheduler.send(Command::Admin(AdminCommand::Withdraw(executor.name.clone()))).await?;
                executor.offered = false;
                tracing::info!(%kind, "jobs of this kind are no longer forwarded");
            }
        }
        for (kind, target) in &config.targets {
            self.offer(kind, target).await?;
        }
        Ok(())
    }

    async fn offer(&mut self, kind: &Name, target: &Target) -> Result<(), Stopped> {
        let number = self.executors.len() + 1;
        let executor = self.executors.entry(kind.clone()).or_insert_with(|| {
            let mut handlers = Handlers::new().result_len_max(usize::MAX);
            handlers.insert(kind.clone(), handler(self.client.clone(), self.configs.clone()));
            let Scheduler { requests: _, messages, shared, runners } = &self.scheduler;
            let local = LocalExecutor::new(handlers, messages.clone(), Arc::clone(shared));
            runners.add(&local);
            let name = Name::new(&format!("http-{number}")).expect("letters and a number are a name");
            TargetExecutor { name, local, offered: false }
        });
        if executor.offered {
            return Ok(());
        }
        let offer = ExecutorOffer {
            executor: executor.name.clone(),
            mode: ExecutorMode::Attached,
            kinds: vec![kind.clone()],
            slots: SLOTS,
        };
        let host = target.url.host_str().unwrap_or_default();
        match self.scheduler.add_executor(offer, executor.local.clone()).await? {
            Reply::Rejected(rejection) => {
                tracing::error!(%kind, %host, %rejection, "jobs of this kind cannot be forwarded");
            }
            _ => {
                tracing::info!(%kind, %host, "jobs of this kind are forwarded");
                executor.offered = true;
            }
        }
        Ok(())
    }
}

/// The handler of every kind with a target. The target is looked up for every call, so that a changed one holds at once.
fn handler(client: HttpClient, configs: watch::Receiver<Arc<Config>>) -> Handler {
    Arc::new(move |context: JobContext| {
        let client = client.clone();
        let target = configs.borrow().targets.get(context.kind()).cloned();
        Box::pin(async move {
            match target {
                Some(target) => client.forward(&target, &Call::of(&context), context.cancellation()).await,
                // The target went away between the offer and now: the job waits until its kind is offered again.
                None => Outcome::HandedBack,
            }
        }) as HandlerFuture
    })
}

/// A name as a header's value. Names may hold any letter, headers only plain ones: others are escaped.
fn header_text(name: &Name) -> String {
    name.as_str().escape_default().to_string()
}

fn rfc3339(at: Wall) -> Option<String> {
    Timestamp::from_millisecond(at.0).ok().map(|at| format!("{at:.3}"))
}

/// Longest message of a failure, in bytes.
const MESSAGE_MAX: usize = 2_048;

/// A text from outside as part of a message: bounded, and without signs that could disturb a terminal or a log.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len().min(MESSAGE_MAX));
    for letter in text.chars().take(MESSAGE_MAX) {
        if letter.is_control() { safe.extend(letter.escape_default()) } else { safe.push(letter) }
    }
    cut(&safe, MESSAGE_MAX).to_owned()
}
