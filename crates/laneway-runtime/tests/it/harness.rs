//! What the tests share: a store that survives its loop and fails on demand, submissions, a loop on a manual clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use laneway_core::engine::StoreCounters;
use laneway_core::settings::DEFAULT_TENANT;
use laneway_core::{
    Backoff, Bytes, Change, Effects, EventKind, Failure, Jitter, JobId, JobSpec, Mono, Name, Now, Origin,
    RetryPolicy, Settings, Span, Submission, TokenRecord, Wall,
};
use laneway_runtime::drain::Drained;
use laneway_runtime::{Clock, Handlers, JobContext, Options, Running, Scheduler, Stopped};
use laneway_store::{Epoch, Keys, Loaded, MemoryStore, Priors, Reader, Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// When tests begin.
pub const START: Now = Now { mono: Mono(1_000), wall: Wall(1_700_000_000_000) };

/// A store in memory that outlives the loop that owns it, and fails on demand. Clones are the same store.
#[derive(Clone, Default)]
pub struct TestStore {
    inner: Arc<Mutex<MemoryStore>>,
    broken: Arc<AtomicBool>,
    rejects_results: Arc<AtomicBool>,
    on_next_commit: Arc<Mutex<Option<OnCommit>>>,
}

type OnCommit = Box<dyn FnOnce() + Send>;

impl TestStore {
    /// From now on every commit fails, and it is unknown what was written.
    pub fn break_commits(&self, broken: bool) {
        self.broken.store(broken, Ordering::SeqCst);
    }

    /// Calls this once, on the loop's thread, before the next commit writes anything.
    pub fn on_next_commit(&self, act: impl FnOnce() + Send + 'static) {
        *self.on_next_commit.lock().unwrap() = Some(Box::new(act));
    }

    /// Another process opens the store: from now on commits of this one are fenced.
    pub fn open_elsewhere(&self) -> MemoryStore {
        self.inner().reopen()
    }

    /// From now on a commit that keeps a result is rejected.
    pub fn reject_results(&self, rejects: bool) {
        self.rejects_results.store(rejects, Ordering::SeqCst);
    }

    /// From now on a commit that creates a job of this kind is rejected.
    pub fn reject_kind(&self, kind: &'static str) {
        self.inner().reject_kind(Name::fixed(kind));
    }

    fn inner(&self) -> MutexGuard<'_, MemoryStore> {
        self.inner.lock().unwrap()
    }
}

impl Store for TestStore {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.inner().load(visit)
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.inner().tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.inner().overrides()
    }

    fn epoch(&self) -> Epoch {
        self.inner().epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        let act = self.on_next_commit.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
        if self.broken.load(Ordering::SeqCst) {
            return Err(StoreError::Failed("the disk is gone".into()));
        }
        let keeps_result = |change: &Change| matches!(change, Change::JobEnded(end) if end.result.is_some());
        if self.rejects_results.load(Ordering::SeqCst) && effects.changes.iter().any(keeps_result) {
            return Err(StoreError::Rejected("results cannot be kept".into()));
        }
        self.inner().commit(epoch, effects)
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.inner().priors(keys)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.inner().reader()
    }
}

/// A loop over `store` on a manual clock, with `handlers` at the executor `here`.
pub async fn start(store: &TestStore, handlers: Handlers) -> (Scheduler, Running, Clock) {
    start_with(store, handlers, |_| ()).await
}

/// The same, with a say in the options.
pub async fn start_with(
    store: &TestStore,
    handlers: Handlers,
    adjust: impl FnOnce(&mut Options),
) -> (Scheduler, Running, Clock) {
    let clock = Clock::manual(START);
    let mut options = Options { clock: clock.clone(), ..Options::new(Settings::default()) };
    adjust(&mut options);
    let (scheduler, running) = Scheduler::start(Box::new(store.clone()), options).unwrap();
    if !handlers.is_empty() {
        scheduler.run_here(Name::fixed("here"), handlers, 1_024).await.unwrap();
    }
    (scheduler, running, clock)
}

/// Handlers of `work` that report when a job starts, and end it after they are released.
pub fn gated() -> (Handlers, mpsc::Receiver<()>, watch::Sender<bool>) {
    let (entered, has_entered) = mpsc::channel(1);
    let (let_go, may_go) = watch::channel(false);
    let handlers = Handlers::new().on("work", move |_: JobContext| {
        let (entered, mut may_go) = (entered.clone(), may_go.clone());
        async move {
            entered.send(()).await.unwrap();
            may_go.wait_for(|go| *go).await.unwrap();
            Ok::<(), Failure>(())
        }
    });
    (handlers, has_entered, let_go)
}

/// Begins a drain of at most `limit`, which goes on in the background.
pub async fn begin_drain(scheduler: &Scheduler, limit: Duration) -> JoinHandle<Result<Drained, Stopped>> {
    let mut events = scheduler.events().subscribe(None);
    let draining = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.drain(limit).await }
    });
    crate::events::event_of_kind(&mut events, EventKind::DrainBegan).await;
    draining
}

/// A job of this kind, with an empty payload and one retry without a wait.
pub fn job(kind: &str) -> Submission {
    let spec = JobSpec {
        retry: Some(RetryPolicy { retries_max: 1, losses_max: 1, backoff: NO_WAIT }),
        ..JobSpec::new(Name::fixed(DEFAULT_TENANT), Name::new(kind).unwrap())
    };
    Submission::new(spec, Bytes::from([]), origin())
}

/// A job without retries.
pub fn job_once(kind: &str) -> Submission {
    let mut submission = job(kind);
    submission.spec.retry = Some(RetryPolicy { retries_max: 0, losses_max: 0, backoff: NO_WAIT });
    submission
}

const NO_WAIT: Backoff = Backoff { base: Span(0), factor: 1, max: Span(0), jitter: Jitter::None };

pub fn origin() -> Origin {
    Origin::server("test")
}

/// Submits, and gives the job's id.
pub async fn submit(scheduler: &Scheduler, submission: Submission) -> JobId {
    scheduler.submit(submission).await.unwrap().unwrap().job
}
