//! The started gateway as its owner holds it: schedule, stop, drain.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use laneway_core::job::IdempotencyKey;
use laneway_core::{
    Backoff, EventKind, JobId, JobSpec, Name, Origin, Refusal, RefusalCode, RetryPolicy, Session,
    SessionStopped, Span, StopWhat, Submission, Wall,
};
use laneway_runtime::agent_turn::{AGENT_DEFAULT, AgentTurn, parts_of_session};
use laneway_runtime::config::ConfigErrors;
use laneway_runtime::outbound::{Deliveries, Outbound};
use laneway_runtime::{Item, Scheduler, Stopped, Subscription};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, oneshot};

use super::builder::{Builder, Estimates, effective};
use super::outcome::{GatewayError, Outcome, outcome_of};
use super::request::{Attachments, MARK, Options, Request};
use crate::{Embedded, Laneway, ShutdownError};

/// Most requests of one gateway that wait for their outcome at once.
pub const PENDING_MAX: usize = 32_768;

/// A turn is not tried again when it fails: it may have said something already. One that a crash took is.
const RETRY: RetryPolicy = RetryPolicy { retries_max: 0, losses_max: 3, backoff: Backoff::STANDARD };

/// A running gateway. Cheap to clone; all clones are the same gateway.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    laneway: Laneway,
    _deliveries: Deliveries,
    attachments: Arc<Attachments>,
    estimates: Estimates,
    defaults: Options,
    tenant: Name,
    draining: AtomicBool,
    pending: Arc<Semaphore>,
}

/// A request that is durable (as far as the store is) and has not ended, as far as is known.
#[must_use = "the outcome is told to whoever asks for it"]
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
        // Whoever would tell it is gone only when the runtime is.
        self.outcome.await.unwrap_or(Err(GatewayError::GatewayDraining))
    }
}

/// What a stop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halted {
    /// Turns that ran and are told to stop.
    pub running: u32,
    /// Messages that waited, those in a debounce window included.
    pub waiting: u32,
    /// The jobs, those that ran first; a bounded list.
    pub jobs: Vec<JobId>,
    /// How often the session was reset so far.
    pub generation: u64,
    what: StopWhat,
}

impl Halted {
    /// True when anything was ended.
    pub fn any(&self) -> bool {
        self.running + self.waiting > 0
    }

    /// What a channel tells its user.
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
    /// Begins to put a gateway together, on top of a scheduler that has not been started yet.
    pub fn builder(embedded: Embedded) -> Builder {
        Builder::new(embedded)
    }

    pub(super) fn new(
        laneway: Laneway,
        deliveries: Deliveries,
        attachments: Arc<Attachments>,
        estimates: Estimates,
        defaults: Options,
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

    /// Has a message answered, and waits for the answer. An unknown lane means `main`. Dropping this stops nothing:
    /// [`Gateway::cancel_one`] and [`Gateway::cancel_session`] do.
    pub async fn schedule(&self, lane: &str, request: Request) -> Outcome {
        self.schedule_with(lane, request, self.inner.defaults).await
    }

    /// The same, with other options for this message.
    pub async fn schedule_with(&self, lane: &str, request: Request, options: Options) -> Outcome {
        self.enqueue(lane, request, options).await?.outcome().await
    }

    /// Takes a message up; when this returns, it is in its session. For callers that keep an order: messages are in the
    /// session in the order in which these calls return.
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
            let message = format!("gateway: {PENDING_MAX} requests wait already; ask again later");
            GatewayError::Refused(Refusal::new(RefusalCode::QueueFull, message))
        })?;
        let held = attachments.hold(&request.context);
        let (held, mark) = held.map_or((None, None), |(held, mark)| (Some(held), Some(mark)));
        let (spec, mut turn) = self.turn(lane, request, options)?;
        turn.context.extend(mark.map(|mark| (MARK.to_owned(), mark)));
        let submission =
            Submission { spec, payload: turn.write(), origin: origin(), prior: None, record_refusal: false };
        let job = self.scheduler().submit(submission).await??.job;
        let (tell, outcome) = oneshot::channel();
        let scheduler = self.scheduler().clone();
        tokio::spawn(async move {
            let ended = scheduler.wait(job).await;
            // What was attached is needed until the run has ended; the caller may have gone long before.
            drop((held, permit));
            // Whoever asked may be gone.
            let _ = tell.send(ended.map_err(GatewayError::from).and_then(outcome_of));
        });
        Ok(Ticket { job, outcome })
    }

    /// The job that a request is, and its turn.
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
                // The key alone says that it is the same message, whatever the channel adds the second time.
                let digest = Sha256::digest(key.as_bytes()).into();
                name("dedupe_key", &key).map(|key| IdempotencyKey { key, digest })
            })
            .transpose()?;
        Ok((spec, turn))
    }

    /// `/stop`: ends the turn of the session that has run longest, or the message that has waited longest when none runs.
    pub async fn cancel_one(&self, session_key: &str) -> Result<Halted, GatewayError> {
        self.halt(session_key, StopWhat::One).await
    }

    /// `/stopall`: ends every turn and every message of the session; what was sent before now never runs.
    pub async fn cancel_session(&self, session_key: &str) -> Result<Halted, GatewayError> {
        self.halt(session_key, StopWhat::All).await
    }

    /// The same, and the session begins anew: those who wait hear that it was cleared.
    pub async fn reset(&self, session_key: &str) -> Result<Halted, GatewayError> {
        self.halt(session_key, StopWhat::Reset).await
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

    /// Says how full the context of a session is: tokens used, and tokens it holds; `None`: not known. From 60 % on, turns
    /// of the session run one by one; nothing that runs is stopped. Asked before a message is taken up and after a turn.
    pub fn set_token_estimate(&self, estimate: impl Fn(&str) -> Option<(u64, u64)> + Send + Sync + 'static) {
        *self.inner.estimates.write().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(estimate));
    }

    /// Makes a lane, unless there is one of that name: that keeps its size. Gives the size that holds. 0 counts as 2.
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

    /// Messages that are to go out, from now on: answers of cron turns, and empty ones for turns that were canceled.
    pub fn outbound(&self) -> Messages {
        Messages { events: self.scheduler().events().subscribe(None), tenant: self.inner.tenant.clone() }
    }

    /// Publishes a message of your own.
    pub async fn publish(&self, message: &Outbound) -> Result<(), GatewayError> {
        self.scheduler().publish(self.inner.tenant.clone(), message).await?;
        Ok(())
    }

    /// From now on new messages are turned away; what waits and runs goes on.
    pub fn mark_draining(&self) {
        self.inner.draining.store(true, Ordering::SeqCst);
    }

    /// True when new messages are turned away.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::SeqCst) || self.scheduler().is_draining()
    }

    /// Stops: nothing new is taken up or started, running turns have until `limit` to end. Everybody who waits gets an
    /// outcome. What waited is kept where the scheduler is durable, and runs at the next start.
    pub async fn stop(&self, limit: Duration) -> Result<(), ShutdownError> {
        self.mark_draining();
        self.inner.laneway.shutdown_within(limit).await.map(|_| ())
    }

    /// The scheduler below, for what is not here.
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

/// Messages that are to go out, one after the other.
pub struct Messages {
    events: Subscription,
    tenant: Name,
}

impl Messages {
    /// The next one. An error when the gateway has stopped.
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

/// Who asks, when the program itself does.
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
