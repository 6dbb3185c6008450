//! The handle that everybody holds: asks the loop, reads the store, hears what happens.
//!
//! It is cheap to clone and works from any async task. What it cannot do is change anything by itself: every change is a
//! command to the loop in `run.rs`, and an answer means that the change is durable. When the last handle is dropped the
//! loop ends, as if by a crash without harm; `drain.rs` is the polite way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use laneway_core::command::{LogLine, Submitted};
use laneway_core::engine::{CapacityView, LeaseView};
use laneway_core::lease::{Claim, Decision, LeaseRequest, LeaseWord, Said};
use laneway_core::{
    AttemptId, Bytes, Command, Engine, EventKind, Fence, JobId, JobState, Name, Now, Origin, Outcome,
    PlaceMode, PlaceOffer, Refusal, RefusalCode, Reply, Settings, Submission, TokenRecord, Wall,
};
use laneway_store::{JobView, Reader, Runnable, StoreError};
use thiserror::Error;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::events::{EventBus, Progress, ProgressTable};
use crate::executors::Place;
use crate::executors::context::{PROGRESS_LEN_MAX, cut};
use crate::executors::local::{Handlers, LocalPlace, Runners};
use crate::metrics::Metrics;
use crate::news::NewsBox;
use crate::probes::{ApiMeter, LoadBoard};
use crate::run::{Ask, Word};
use crate::sessions::TokenEstimate;
use crate::turn::is_runners_word;
use crate::waiters::Waiters;
use crate::webhooks::News;
use crate::workers::Connections;

/// The handle that everybody holds.
#[derive(Clone)]
pub struct Scheduler {
    pub(crate) asks: mpsc::Sender<Ask>,
    pub(crate) words: mpsc::Sender<Word>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) runners: Arc<Runners>,
}

/// What the loop and all handles see.
pub(crate) struct Shared {
    pub(crate) events: EventBus,
    pub(crate) metrics: Metrics,
    pub(crate) tokens: watch::Sender<Arc<TokenTable>>,
    pub(crate) waiters: Waiters,
    pub(crate) progress: ProgressTable,
    pub(crate) reader: Arc<dyn Reader>,
    pub(crate) readers: Arc<Semaphore>,
    pub(crate) clock: Clock,
    pub(crate) news: NewsBox,
    pub(crate) api_meter: ApiMeter,
    pub(crate) load_board: LoadBoard,
    pub(crate) draining: AtomicBool,
    pub(crate) running: AtomicBool,
    pub(crate) token_estimate: Option<TokenEstimate>,
    pub(crate) workers: Connections,
    /// Weak: a loop ends when the last handle is gone, and this is none.
    pub(crate) asks: mpsc::WeakSender<Ask>,
}

/// The loop has stopped: nothing more will be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the scheduler has stopped")]
pub struct Stopped;

/// Why a query gave nothing.
#[derive(Debug, Error)]
pub enum QueryError {
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The query itself panicked.
    #[error("the query panicked")]
    Panicked,
    /// The loop has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why nobody can wait for a job.
#[derive(Debug, Error)]
pub enum WaitError {
    /// There is no such job.
    #[error("there is no such job")]
    NotFound,
    /// Too many calls wait already.
    #[error("too many calls wait already")]
    TooMany,
    /// The store could not answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The loop has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// What became of a retry by hand.
#[derive(Clone, Debug, PartialEq)]
pub enum Retried {
    /// A new job tries it again.
    Submitted(Submitted),
    /// The new job was not admitted.
    Refused(Refusal),
    /// The job has not ended: there is nothing to try again.
    Live(JobState),
    /// This tenant has no such job.
    NotFound,
}

/// Every token at one moment, by id.
#[derive(Clone, Debug, Default)]
pub struct TokenTable {
    by_id: BTreeMap<Name, TokenRecord>,
}

impl TokenTable {
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = &'a TokenRecord>) -> TokenTable {
        TokenTable { by_id: tokens.map(|token| (token.id.clone(), token.clone())).collect() }
    }

    /// The token of this id, revoked or not.
    pub fn get(&self, id: &Name) -> Option<&TokenRecord> {
        self.by_id.get(id)
    }

    /// Every token, by id.
    pub fn iter(&self) -> impl Iterator<Item = &TokenRecord> {
        self.by_id.values()
    }

    /// True while no token was ever made (revoked ones count).
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}

impl Scheduler {
    /// Hands one command to the loop and waits until what follows from it is durable.
    pub async fn send(&self, command: Command) -> Result<Reply, Stopped> {
        let (reply, answer) = oneshot::channel();
        if is_runners_word(&command) {
            self.words.send(Word { command, reply: Some(reply) }).await.map_err(|_| Stopped)?;
        } else {
            self.asks.send(Ask::Command(command, reply)).await.map_err(|_| Stopped)?;
        }
        answer.await.map_err(|_| Stopped)
    }

    /// Asks for one job.
    pub async fn submit(&self, submission: Submission) -> Result<Result<Submitted, Refusal>, Stopped> {
        self.estimate_usage(std::slice::from_ref(&submission)).await?;
        match self.send(Command::Submit(Box::new(submission))).await? {
            Reply::Submitted(submitted) => Ok(Ok(submitted)),
            Reply::Refused(refusal) => Ok(Err(refusal)),
            other => unreachable!("the engine answers a submit with {other:?}"),
        }
    }

    /// Asks for many jobs: each for itself, or (`atomic`) all or none. One verdict for each, in order.
    pub async fn submit_batch(
        &self,
        items: Vec<Submission>,
        atomic: bool,
    ) -> Result<Vec<Result<Submitted, Refusal>>, Stopped> {
        let count = items.len();
        self.estimate_usage(&items).await?;
        match self.send(Command::SubmitBatch { items, atomic }).await? {
            Reply::Batch(verdicts) => Ok(verdicts),
            Reply::Refused(refusal) => Ok(vec![Err(refusal); count]),
            other => unreachable!("the engine answers a batch with {other:?}"),
        }
    }

    /// Ends a job. `Reply::Canceled`, or `Reply::NotFound` when no live job of that name is there for this tenant.
    pub async fn cancel(&self, tenant: Option<Name>, job: JobId, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::Cancel { tenant, job, origin }).await
    }

    /// Submits a new job with the spec and payload of an ended one. A deadline that has passed is left out, and so is the
    /// idempotency key: the new job is asked for on purpose.
    pub async fn retry(
        &self,
        tenant: Option<Name>,
        job: JobId,
        origin: Origin,
    ) -> Result<Retried, QueryError> {
        let found = self
            .query(move |reader| {
                let Some(view) = reader.job(job)? else { return Ok(None) };
                match reader.payloads(&[view.row.seq]) {
                    Ok(mut found) => Ok(found.pop().map(|runnable| (view, runnable))),
                    // Forgotten between the two reads.
                    Err(StoreError::Disagree(_)) => Ok(None),
                    Err(error) => Err(error),
                }
            })
            .await?;
        let Some((view, Runnable { payload, merged, .. })) = found else { return Ok(Retried::NotFound) };
        if tenant.is_some_and(|tenant| tenant != view.row.spec.tenant) {
            return Ok(Retried::NotFound);
        }
        if view.end.is_none() {
            return Ok(Retried::Live(view.state()));
        }
        let mut spec = view.row.spec;
        let now = self.shared.clock.now().wall;
        spec.idempotency = None;
        spec.not_before = None;
        spec.deadline = spec.deadline.filter(|deadline| *deadline > now);
        spec.retry_of = Some(job);
        // Asked for on purpose, and no run of the schedule.
        spec.schedule = None;
        if let Some(session) = &mut spec.session {
            session.sent_at = None;
        }
        let again = |payload| Submission {
            spec: spec.clone(),
            payload,
            origin: origin.clone(),
            prior: None,
            record_refusal: false,
        };
        let verdict = if merged.is_empty() {
            self.submit(again(payload)).await?
        } else {
            // What ran as one is tried again as one: they come together, so the others join the first.
            // The first tells their callback, once.
            let joins = |payload| {
                let mut item = again(payload);
                item.spec.callback = None;
                item
            };
            let items = std::iter::once(again(payload)).chain(merged.into_iter().map(joins)).collect();
            first_of(self.submit_batch(items, true).await?)
        };
        Ok(match verdict {
            Ok(submitted) => Retried::Submitted(submitted),
            Err(refusal) => Retried::Refused(refusal),
        })
    }

    /// Replaces all settings at once. `overrides`: what must be kept so that they hold after a restart.
    pub async fn configure(
        &self,
        settings: Settings,
        overrides: Option<Bytes>,
        detail: &str,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        let settings = Box::new(settings);
        self.send(Command::Configure { settings, overrides, detail: detail.into(), origin }).await
    }

    /// Keeps a token, new or changed.
    pub async fn put_token(&self, token: TokenRecord, origin: Origin) -> Result<Reply, Stopped> {
        self.send(Command::PutToken(Box::new(token), origin)).await
    }

    /// Ends a token.
    pub async fn revoke_token(
        &self,
        tenant: Option<Name>,
        id: Name,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::RevokeToken { id, tenant, origin }).await
    }

    /// Keeps a line for the audit list about a call that reaches no other command.
    pub async fn note(
        &self,
        kind: EventKind,
        tenant: Option<Name>,
        detail: &str,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Note { kind, tenant, detail: detail.into(), origin }).await
    }

    /// A worker's word that its attempt has ended.
    pub async fn finish(&self, fence: Fence, outcome: Outcome) -> Result<Reply, Stopped> {
        self.send(Command::Finish(fence, outcome)).await
    }

    /// A worker's lines about its attempt.
    pub async fn log(&self, fence: Fence, lines: Vec<LogLine>) -> Result<Reply, Stopped> {
        self.send(Command::Log(fence, lines)).await
    }

    /// A worker asks for the next job that suits it: `Reply::Granted`, `Denied`, or `NotFound` and `Refused` for a lane that
    /// is not there or whose workers do not ask.
    pub async fn claim(&self, claim: Claim) -> Result<Reply, Stopped> {
        self.send(Command::Claim(Box::new(claim))).await
    }

    /// A worker asks to run one job now, or not at all.
    pub async fn request_lease(&self, request: LeaseRequest) -> Result<Reply, Stopped> {
        self.send(Command::RequestLease(Box::new(request))).await
    }

    /// Something is said about an attempt, by the attempt's id alone.
    pub async fn lease_word(&self, word: LeaseWord) -> Result<Reply, Stopped> {
        self.send(Command::Lease(Box::new(word))).await
    }

    /// The holder of a lease says how far it is: `fraction` from 0 to 1. Does not make the lease start anew; may be lost, only
    /// the latest is kept. `Reply::Done`, `NotYours` or `NotFound`.
    pub async fn report(
        &self,
        lease: AttemptId,
        tenant: Option<Name>,
        worker: Name,
        fraction: f64,
        message: &str,
    ) -> Result<Reply, Stopped> {
        let worker = Some(worker);
        let word = LeaseWord { lease, tenant, worker, pid: None, said: Said::Report };
        let reply = self.lease_word(word).await?;
        if reply != Reply::Done {
            return Ok(reply);
        }
        let (shared, message) = (Arc::clone(&self.shared), cut(message, PROGRESS_LEN_MAX).to_owned());
        let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        // Between two turns: an attempt that has closed meanwhile leaves nothing behind.
        self.read(move |engine, now| {
            let Some(view) = engine.lease(now, None, lease) else { return };
            let LeaseView { job, tenant, attempt, .. } = view;
            let progress = Progress { job, tenant, attempt, fraction, message: message.into(), at: now.wall };
            shared.progress.put(progress.clone());
            shared.events.publish_progress(progress);
        })
        .await?;
        Ok(reply)
    }

    /// The machine and its jobs.
    pub async fn capacity(&self) -> Result<CapacityView, Stopped> {
        self.read(|engine, now| engine.capacity(now)).await
    }

    /// Open attempts of lanes whose workers ask; of one tenant, or of all.
    pub async fn leases(&self, tenant: Option<Name>) -> Result<Vec<LeaseView>, Stopped> {
        self.read(move |engine, now| engine.leases(now, tenant.as_ref())).await
    }

    /// The latest decisions about jobs with needs, the newest first; of one tenant, or of all.
    pub async fn decisions(&self, tenant: Option<Name>) -> Result<Vec<Decision>, Stopped> {
        self.read(move |engine, _| engine.decisions(tenant.as_ref()).cloned().collect()).await
    }

    /// Looks at the clock now: starts whatever can start.
    pub async fn kick(&self) -> Result<Reply, Stopped> {
        self.send(Command::Tick).await
    }

    /// What the machine was found to be by whoever looks at it; empty where nobody does.
    pub fn load_board(&self) -> &LoadBoard {
        &self.shared.load_board
    }

    /// Forgets jobs of a lane that ended before this time, whatever the lane's retention; a bounded number of them. Those with
    /// an idempotency key are kept as long as the key is.
    pub async fn forget(&self, lane: Name, finished_before: Wall) -> Result<Reply, Stopped> {
        self.send(Command::Forget { lane, finished_before }).await
    }

    /// Counts calls of the API, so that a slow or failing API makes the machine count as busy.
    pub fn api_meter(&self) -> &ApiMeter {
        &self.shared.api_meter
    }

    /// Runs handlers in this process as the place `place`, at most `slots` at once, on the tokio runtime of the caller.
    /// `Reply::Refused` when another place offers one of the kinds.
    pub async fn run_here(&self, place: Name, handlers: Handlers, slots: u32) -> Result<Reply, Stopped> {
        let kinds = handlers.kinds();
        let local = LocalPlace::new(handlers, self.words.clone(), Arc::clone(&self.shared));
        self.runners.add(&local);
        self.add_place(PlaceOffer { place, mode: PlaceMode::Attached, kinds, slots }, local).await
    }

    /// Adds a place that runs jobs, or changes what it offers.
    pub async fn add_place(&self, offer: PlaceOffer, place: Arc<dyn Place>) -> Result<Reply, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(Ask::AddPlace { offer, place, reply }).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    /// Looks at the engine between two turns. Keep it short: nothing else happens meanwhile.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine, Now) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        let look = Box::new(move |engine: &Engine, now: Now| {
            // The caller may be gone; then nobody needs the answer.
            drop(reply.send(look(engine, now)));
        });
        self.asks.send(Ask::Read(look)).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    /// Asks the store, on a thread where blocking hurts nobody; only so many at once.
    pub async fn query<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, QueryError> {
        query(&self.shared.readers, &self.shared.reader, ask).await
    }

    /// Waits until the job has ended, and gives it as stored. For a job that was merged into another one, that is the
    /// one that runs for it.
    pub async fn wait(&self, job: JobId) -> Result<JobView, WaitError> {
        let view = self.wait_for(job).await?;
        match view.end.as_ref().and_then(|end| end.merged_into) {
            // What others are merged into is merged into nothing itself.
            Some(into) => self.wait_for(into.job).await,
            None => Ok(view),
        }
    }

    async fn wait_for(&self, job: JobId) -> Result<JobView, WaitError> {
        // Register before the look into the store: an end between the two must not be missed.
        let waiting = self.shared.waiters.register(job)?;
        let view = self.query(move |reader| reader.job(job)).await?.ok_or(WaitError::NotFound)?;
        if view.end.is_some() {
            return Ok(view);
        }
        waiting.ended().await?;
        self.query(move |reader| reader.job(job)).await?.ok_or(WaitError::NotFound)
    }

    /// What happens, numbered, from any number on.
    pub fn events(&self) -> &EventBus {
        &self.shared.events
    }

    /// Every token as of the latest commit.
    pub fn tokens(&self) -> Arc<TokenTable> {
        Arc::clone(&self.shared.tokens.borrow())
    }

    /// Tells when tokens change, so that what a revoked one opened can be closed.
    pub fn token_changes(&self) -> watch::Receiver<Arc<TokenTable>> {
        self.shared.tokens.subscribe()
    }

    /// Counters of everything that happened. See [`Scheduler::render_metrics`] for the whole page.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The page for Prometheus, figures of now included.
    pub async fn render_metrics(&self) -> Result<String, Stopped> {
        let (stats, capacity) = self.read(|engine, now| (engine.stats(None), engine.capacity(now))).await?;
        let inbox = self.asks.max_capacity() - self.asks.capacity();
        let words = self.words.max_capacity() - self.words.capacity();
        self.shared.metrics.observe_now(&stats, inbox, words);
        self.shared.metrics.observe_capacity(&capacity);
        Ok(self.shared.metrics.render())
    }

    /// Sends the news of a job's end again, whatever became of it. `Reply::NotFound` when none is or was owed to this
    /// tenant.
    pub async fn redeliver(
        &self,
        tenant: Option<Name>,
        job: JobId,
        origin: Origin,
    ) -> Result<Reply, Stopped> {
        self.send(Command::Redeliver { tenant, job, stored: None, origin }).await
    }

    /// News that is due, for the one that sends it; given once.
    pub fn take_news(&self) -> Option<mpsc::Receiver<News>> {
        self.shared.news.take()
    }

    /// A try at some news has ended and was said so.
    pub fn news_told(&self) {
        self.shared.news.told();
    }

    /// How far a running job is, in its own words.
    pub fn progress(&self, job: JobId) -> Option<Progress> {
        self.shared.progress.get(job)
    }

    /// True from the moment the server was asked to stop.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    /// True while the loop runs and takes jobs.
    pub fn ready(&self) -> bool {
        self.shared.running.load(Ordering::Relaxed) && !self.is_draining()
    }

    /// Both clocks, as the loop reads them.
    pub fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// The wall clock, as the loop reads it.
    pub fn wall(&self) -> Wall {
        self.shared.clock.now().wall
    }
}

/// The first job of an atomic batch that is not empty, or the refusal that is to blame.
fn first_of(verdicts: Vec<Result<Submitted, Refusal>>) -> Result<Submitted, Refusal> {
    let to_blame = |verdict: &&Result<Submitted, Refusal>| {
        verdict.as_ref().is_err_and(|refusal| refusal.code != RefusalCode::BatchRefused)
    };
    let verdict = verdicts.iter().find(to_blame).or(verdicts.first());
    verdict.cloned().expect("the batch has items")
}

/// Runs `ask` where blocking hurts nobody, one permit each.
pub(crate) async fn query<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    reader: &Arc<dyn Reader>,
    ask: impl FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, QueryError> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(|_| Stopped)?;
    let reader = Arc::clone(reader);
    let answer = tokio::task::spawn_blocking(move || {
        // Held by the thread, not by the caller: a caller that goes away does not make room for one more.
        let _permit = permit;
        ask(reader.as_ref())
    });
    answer.await.map_err(|_| QueryError::Panicked)?.map_err(QueryError::Store)
}
