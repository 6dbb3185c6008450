//! A store that cannot be read, or whose reads panic: -1702 and -1701.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use laneway_core::engine::StoreCounters;
use laneway_core::{
    Bytes, DeliveryRow, DeliveryTry, Effects, Event, JobId, Name, Prior, RunId, RunRow, Seq, TokenRecord,
};
use laneway_store::{
    AttemptView, CountBy, DeliveryFilter, Epoch, EventFilter, FiringLogFilter, FiringLogPage, JobCounts,
    JobFilter, JobView, Keys, Loaded, LogView, MemoryStore, Page, Priors, Reader, RunFilter, Runnable, Store,
    StoreError,
};
use serde_json::json;

use super::world::World;

const WELL: u8 = 0;
const UNREADABLE: u8 = 1;
const PANICS: u8 = 2;

/// A store whose reads go wrong when the test says so.
struct Fragile {
    store: MemoryStore,
    state: Arc<AtomicU8>,
}

impl Store for Fragile {
    fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        self.store.load(visit)
    }

    fn tokens(&mut self) -> Result<Vec<TokenRecord>, StoreError> {
        self.store.tokens()
    }

    fn overrides(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.store.overrides()
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn commit(&mut self, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
        self.store.commit(epoch, effects)
    }

    fn priors(&mut self, keys: &Keys<'_>) -> Result<Priors, StoreError> {
        self.store.priors(keys)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(FragileReader { reader: self.store.reader(), state: Arc::clone(&self.state) })
    }
}

struct FragileReader {
    reader: Arc<dyn Reader>,
    state: Arc<AtomicU8>,
}

impl FragileReader {
    fn check(&self) -> Result<&dyn Reader, StoreError> {
        match self.state.load(Ordering::SeqCst) {
            WELL => Ok(self.reader.as_ref()),
            UNREADABLE => Err(StoreError::Failed("canary: the disk is gone".to_owned())),
            _ => panic!("canary: a read panics"),
        }
    }
}

/// Every read is checked, and passed on.
macro_rules! passed_on {
    ($($name:ident($($argument:ident: $of:ty),*) -> $result:ty;)*) => {
        impl Reader for FragileReader {
            $(fn $name(&self, $($argument: $of),*) -> Result<$result, StoreError> {
                self.check()?.$name($($argument),*)
            })*
        }
    };
}

passed_on! {
    job(id: JobId) -> Option<JobView>;
    jobs(filter: &JobFilter, before: Option<Seq>, limit: usize) -> Page<JobView>;
    count_jobs(filter: &JobFilter, by: CountBy) -> Option<JobCounts>;
    prior(tenant: &Name, key: &Name) -> Option<Prior>;
    jobs_at(jobs: &[Seq]) -> Vec<JobView>;
    run(id: RunId) -> Option<RunRow>;
    runs(filter: &RunFilter, before: Option<Seq>, limit: usize) -> Page<RunRow>;
    run_definition(first: Seq) -> Option<Bytes>;
    payloads(jobs: &[Seq]) -> Vec<Runnable>;
    payload(job: Seq) -> Option<Bytes>;
    call_payload(node: Seq) -> Option<Bytes>;
    attempts(job: Seq) -> Vec<AttemptView>;
    logs(job: Seq, after: u64, limit: usize) -> Vec<LogView>;
    events_after(filter: &EventFilter, after: u64, limit: usize) -> Page<Event>;
    events_before(filter: &EventFilter, before: Option<u64>, limit: usize) -> Page<Event>;
    events_of(job: Seq, limit: usize) -> Vec<Event>;
    firing_log(filter: &FiringLogFilter, before: Option<u64>, limit: usize) -> FiringLogPage;
    first_event() -> u64;
    deliveries(filter: &DeliveryFilter, before: Option<Seq>, limit: usize) -> Page<DeliveryRow>;
    delivery(job: JobId) -> Option<DeliveryRow>;
    delivery_tries(job: Seq) -> Vec<DeliveryTry>;
    reusable_bytes() -> u64;
    verify_events() -> u64;
}

/// Asks for a job in every way, while the store is in a state.
async fn every_read_answers(state: u8, status: u16, code: i64, message: &str) {
    let broken = Arc::new(AtomicU8::new(WELL));
    let store = Fragile { store: MemoryStore::new(), state: Arc::clone(&broken) };
    let world = World::over(Box::new(store)).await;
    let job = world.enqueue("/api/recycleBin/cleanup", json!({})).await;
    world.ended(&job).await;
    broken.store(state, Ordering::SeqCst);
    for path in ["", "/logs", "/artifacts"] {
        let (found, answer) = world.get(&format!("/api/jobs/{job}{path}")).await;
        assert_eq!(
            (found, &answer["code"], &answer["msg"]),
            (status, &json!(code), &json!(message)),
            "{path}"
        );
        assert!(answer["data"].is_null() && answer["requestId"].is_string(), "{answer}");
        assert!(!answer.to_string().contains("canary"), "the reason is in the log only: {answer}");
    }
    let (found, answer) = world.get("/api/jobs").await;
    assert_eq!((found, &answer["code"]), (status, &json!(code)), "{answer}");
    // The agent goes on as soon as the store does.
    broken.store(WELL, Ordering::SeqCst);
    assert_eq!(world.job(&job).await["status"], "succeeded");
}

#[tokio::test]
async fn code_1701_internal_errors() {
    every_read_answers(PANICS, 500, -1701, "Internal error: the server's log says why").await;
}

#[tokio::test]
async fn code_1702_the_store_cannot_be_read() {
    every_read_answers(UNREADABLE, 503, -1702, "Database unavailable: the server's log says why").await;
}

#[tokio::test]
async fn a_store_that_cannot_be_read_is_degraded_and_still_200() {
    let broken = Arc::new(AtomicU8::new(UNREADABLE));
    let store = Fragile { store: MemoryStore::new(), state: Arc::clone(&broken) };
    let world = World::over(Box::new(store)).await;
    let (status, health) = world.get("/health").await;
    assert_eq!(
        (status, &health["status"], &health["reason"]),
        (200, &json!("degraded"), &json!("DB connection failed"))
    );
    broken.store(WELL, Ordering::SeqCst);
    assert_eq!(world.get("/health").await.1["status"], "ok");
}
