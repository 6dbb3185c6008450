//! The started gateway: schedule, stop, drain.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use laneway_core::job::IdempotencyKey;
use laneway_core::{
    Backoff, EventKind, JobId, JobSpec, Name, Origin, Rejection, RejectionCode, RetryPolicy, Session,
    SessionStopped, Span, StopWhat, Submission, Wall,
};
use laneway_runtime::agent_turn::{AGENT_DEFAULT, AgentTurn, parts_of_session};
use laneway_runtime::config::ConfigErrors;
use laneway_runtime::outbound::{Deliveries, Outbound};
use laneway_runtime::{Interest, Item, Jobs, Scheduler, SessionsReset, Stopped, Subscription};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, oneshot};

use super::builder::{Builder, Estimates, effective};
use super::outcome::{GatewayError, Outcome, outcome_of};
use super::request::{Attachments, MARK, Options, Request};
use crate::{Embedded, Laneway, ShutdownError};

/// Most requests of one gateway that wait for their outcome at once.
pub const PENDING_MAX: usize = 32_768;

/// A failed turn is not retried: it may have sent something already. A turn that was lost in a crash is.
const RETRY: RetryPolicy = RetryPolicy { retries_max: 0, losses_max: 3, backoff: Backoff::STANDARD };

/// A running gateway. Cheap to clone; all clones share the gateway.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    laneway: Laneway,
    _deliveries: Deliveries,
    attachments: Arc<Attachments>,
    estimates: Estimates,
    defaults: Option<Options>,
    tenant: Name,
    draining: AtomicBool,
    pending: Arc<Semaphore>,
}

/// An accepted message. It is durable (as far as the store is).
#[must_use = "await the outcome, or drop the ticket explicitly"]
pub struct Ticket {
    job: JobId,
    outcome: oneshot::Receiver<Outcome>,
}

impl Ticket {
    /// The job.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Waits for the outcome. There always is one, also when the gateway stops.
    pub async fn outcome(self) -> Outcome {
        // The sender is dropped only when the runtime ends.
        self.outcome.await.unwrap_or(Err(GatewayError::GatewayDraining))
    }
}

/// The result of a stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halted {
    /// Turns that ran and were canceled.
    pub running: u32,
    /// Messages that waited, including those in a debounce window.
    pub waiting: u32,
    /// The jobs, those that ran first; the list is bounded.
    pub jobs: Vec<JobId>,
    /// How often the session was reset.
    pub generation: u64,
    what: StopWhat,
}

impl Halted {
    /// True when anything was canceled.
    pub fn any(&self) -> bool {
        self.running + self.waiting > 0
    }

    /// The text for the user of a channel.
    pub fn feedback(&self) -> &'static str {
        match (self.what, self.any()) {
            (StopWhat::One, true) => "Task stopped.",
            (StopWhat::One, false) => "No active task to stop.",
            (_, true) => "All tasks stopped.",
            (_, false) => "No active tasks to stop.",
        }
    }
}

impl Gateway {
    /// Starts to build a gateway on top of a scheduler that is not started yet.
    pub fn builder(embedded: Embedded) -> Builder {
        Builder::new(embedded)
    }

    pub(super) fn new(
        laneway: Laneway,
        deliveries: Deliveries,
        attachments: Arc<Attachments>,
        estimates: Estimates,
        defaults: Option<Options>,
        tenant: Name,
    ) -> Gateway {
        Gateway {
            inner: Arc::new(Inner {
                laneway,
                _deliveries: deliveries,
                attachments,
                estimates,
                defaults,
                tenant,
                draining: AtomicBool::new(false),
                pending: Arc::new(Semaphore::new(PENDING_MAX)),
            }),
        }
    }

    /// Schedules a message, and waits for the answer. An unknown lane means `main`. Dropping the future
    /// cancels nothing: use [`Gateway::cancel_one`] and [`Gateway::cancel_session`].
    pub async fn schedule(&self, lane: &str, request: Request) -> Outcome {
        self.schedule_with(lane, request, self.defaults()).await
    }

    /// The current default session options: those of the builder, else those of `[chat]` in the
    /// configuration.
    pub fn defaults(&self) -> Options {
        let chat = || Options::from(self.inner.laneway.live_config().current().settings().chat);
        self.inner.defaults.unwrap_or_else(chat)
    }

    /// The same, with other options for this message.
    pub async fn schedule_with(&self, lane: &str, request: Request, options: Options) -> Outcome {
        self.enqueue(lane, request, options).await?.outcome().await
    }

    /// Accepts a message; when this returns, it is in its session. Messages are in the session in the order
    /// in which these calls return.
    pub async fn enqueue(
        &self,
        lane: &str,
        request: Request,
        options: Options,
    ) -> Result<Ticket, GatewayError> {
        if self.is_draining() {
            return Err(GatewayError::GatewayDraining);
        }
        let Inner { attachments, pending, .. } = &*self.inner;
        let permit = Arc::clone(pending).try_acquire_owned().map_err(|_| {
            let message = format!("gateway: {PENDING_MAX} requests wait already; try again later");
            GatewayError::Rejected(Rejection::new(RejectionCode::QueueFull, message))
        })?;
        let held = attachments.hold(&request.context);
        let (held, mark) = held.map_or((None, None), |(held, mark)| (Some(held), Some(mark)));
        let (spec, mut turn) = self.turn(lane, request, options)?;
        turn.context.extend(mark.map(|mark| (MARK.to_owned(), mark)));
        let submission = Submission::new(spec, turn.write(), origin());
        let job = self.scheduler().submit(submission).await??.job;
        let (sender, outcome) = oneshot::channel();
        let scheduler = self.scheduler().clone();
        tokio::spawn(async move {
            let ended = scheduler.wait(job).await;
            // Attachments are needed until the turn has ended; the caller may have left long before.
            drop((held, permit));
            // The caller may have left.
            let _ = sender.send(ended.map_err(GatewayError::from).and_then(outcome_of));
        });
        Ok(Ticket { job, outcome })
    }

    /// The job of a request, and its agent turn.
    fn turn(
        &self,
        lane: &str,
        request: Request,
        options: Options,
    ) -> Result<(JobSpec, AgentTurn), GatewayError> {
        let Request { session_key, agent, mut turn, context, sent_at, dedupe_key } = request;
        let key = name("session_key", &session_key)?;
        let agent = agent.as_deref().or_else(|| parts_of_session(&session_key).map(|(agent, _)| agent));
        let Options { max_concurrent, mode, cap, drop, debounce } = options;
        let session = Session {
            max_concurrent: max_concurrent.max(1),
            mode,
            cap: Some(cap),
            drop,
            debounce: Some(span(debounce)).filter(|window| window.0 > 0),
            sent_at: sent_at.map(wall),
            ..Session::new(key)
        };
        turn.context = context.values;
        let agent = name("agent", agent.unwrap_or(AGENT_DEFAULT))?;
        let mut spec = AgentTurn::job(self.inner.tenant.clone(), agent, name("lane", lane)?, session);
        spec.retry = Some(RETRY);
        spec.idempotency = dedupe_key
            .map(|key| {
                // The key alone identifies the message, even if the channel adds other metadata
                // the second time.
                let digest = Sha256::digest(key.as_bytes()).into();
                name("dedupe_key", &key).map(|key| IdempotencyKey { key, digest })
            })
            .transpose()?;
        Ok((spec, turn))
    }

    /// `/stop`: cancels the turn of the session that has run longest, or the message that has waited longest
    /// when none runs.
    pub async fn cancel_one(&self, session_key: &str) -> Result<Halted, GatewayError> {
        self.halt(session_key, StopWhat::One).await
    }

    /// `/stopall`: cancels every turn and every message of the session; earlier messages never run.
    pub async fn cancel_session(&self, session_key: &str) -> Result<Halted, GatewayError> {
        self.halt(session_key, StopWhat::All).await
    }

    /// The same, and the session gets a new generation: waiting callers get the error that it was cleared.
    pub async fn reset(&self, session_key: &str) -> Result<Halted, GatewayError> {
        self.halt(session_key, StopWhat::Reset).await
    }

    /// The same for every session of the gateway's tenant that has messages.
    pub async fn reset_all(&self) -> Result<SessionsReset, GatewayError> {
        Ok(self.scheduler().reset_sessions_of(&self.inner.tenant, &origin()).await?)
    }

    async fn halt(&self, session_key: &str, what: StopWhat) -> Result<Halted, GatewayError> {
        let (tenant, key) = (self.inner.tenant.clone(), name("session_key", session_key)?);
        let stopped = self.scheduler().stop_session(tenant, key, what, origin()).await?;
        let SessionStopped { mut running, waiting, running_count, waiting_count, generation } = stopped;
        running.extend(waiting);
        Ok(Halted { running: running_count, waiting: waiting_count, jobs: running, generation, what })
    }

    /// True while a turn of this agent runs.
    pub async fn has_active_sessions_for_agent(&self, agent: &str) -> Result<bool, GatewayError> {
        let (tenant, agent) = (self.inner.tenant.clone(), name("agent", agent)?);
        Ok(self.scheduler().active_sessions_of(tenant, agent).await? > 0)
    }

    /// Sets a function that returns how full the context of a session is: tokens used, and tokens that fit;
    /// `None`: unknown. From 60 % on, turns of the session run one by one; running turns go on. It is called
    /// before a message is accepted and after a turn.
    pub fn set_token_estimate(&self, estimate: impl Fn(&str) -> Option<(u64, u64)> + Send + Sync + 'static) {
        *self.inner.estimates.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(estimate));
    }

    /// Creates a lane unless it exists: then it keeps its size. Returns the size. 0 counts as 2.
    pub async fn get_or_create_lane(&self, lane: &str, concurrency: u32) -> Result<u32, ConfigErrors> {
        let size_of = |config: &laneway_runtime::config::Config| {
            let lane = Name::new(lane).ok().and_then(|lane| config.settings().lanes.get(&lane).cloned());
            lane.map(|lane| lane.running_max)
        };
        if let Some(size) = size_of(&self.inner.laneway.live_config().current()) {
            return Ok(size);
        }
        let size = effective(concurrency);
        let config = self.inner.laneway.configure(json!({"lanes": {lane: {"running_max": size}}})).await?;
        Ok(size_of(&config).unwrap_or(size))
    }

    /// New outbound messages: answers of cron turns, and empty messages for canceled turns.
    pub fn outbound(&self) -> Messages {
        let tenant = self.inner.tenant.clone();
        // Outbound messages belong to no job.
        let interest = Interest { others: true, ..Interest::in_jobs(Some(tenant.clone()), Jobs::None) };
        Messages { events: self.scheduler().events().listen(interest, None), tenant }
    }

    /// Publishes an outbound message.
    pub async fn publish(&self, message: &Outbound) -> Result<(), GatewayError> {
        self.scheduler().publish(self.inner.tenant.clone(), message).await?;
        Ok(())
    }

    /// Rejects new messages from now on; waiting and running ones go on.
    pub fn mark_draining(&self) {
        self.inner.draining.store(true, Ordering::SeqCst);
    }

    /// True while new messages are rejected.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::SeqCst) || self.scheduler().is_draining()
    }

    /// Stops gracefully: no new turns start, and running turns have until `limit` to end. Every waiting
    /// caller gets an outcome. Waiting messages are kept if the scheduler is durable, and run at the next
    /// start.
    pub async fn stop(&self, limit: Duration) -> Result<(), ShutdownError> {
        self.mark_draining();
        self.inner.laneway.shutdown_within(limit).await.map(|_| ())
    }

    /// The underlying scheduler, for everything else.
    pub fn laneway(&self) -> &Laneway {
        &self.inner.laneway
    }

    pub(super) fn scheduler(&self) -> &Scheduler {
        self.inner.laneway.scheduler()
    }

    pub(super) fn tenant(&self) -> &Name {
        &self.inner.tenant
    }
}

/// A stream of outbound messages.
pub struct Messages {
    events: Subscription,
    tenant: Name,
}

impl Messages {
    /// The next message. An error when the gateway has stopped.
    pub async fn next(&mut self) -> Result<Outbound, Stopped> {
        loop {
            let Ok(item) = self.events.next().await else { return Err(Stopped) };
            if let Item::Event(event) = item
                && event.kind == EventKind::Outbound
                && event.tenant.as_ref() == Some(&self.tenant)
                && let Some(message) = event.detail.as_deref().and_then(Outbound::read)
            {
                return Ok(message);
            }
        }
    }
}

pub(super) fn name(field: &'static str, text: &str) -> Result<Name, GatewayError> {
    Name::new(text).map_err(|error| GatewayError::Invalid { field, problem: error.to_string() })
}

/// The origin of commands of the program itself.
pub(super) fn origin() -> Origin {
    Origin { actor: Name::fixed("gateway"), request: None }
}

fn span(time: Duration) -> Span {
    Span(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn wall(time: SystemTime) -> Wall {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Wall(i64::try_from(millis).unwrap_or(i64::MAX))
}
