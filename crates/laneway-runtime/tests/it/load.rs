//! The load of the machine closes and opens admission, and pull workers get jobs through the handle.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use laneway_core::engine::{CapacityView, Hold};
use laneway_core::lease::{LeaseMessage, LeaseUpdate};
use laneway_core::{
    Bytes, CapacityRequest, Claim, DenyReason, Dispatch, Holder, JobId, JobState, Name, Outcome, QuietState,
    Reason, Reply, Settings,
};
use laneway_runtime::config::{Layers, Overrides, Schema};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::probes::{HostSample, LoadProbe, LoadSource, ProcSource};
use laneway_runtime::{Handlers, Options, Scheduler};
use laneway_store::MemoryStore;

use crate::harness::{self, TestStore, job_once};
use crate::log_lines::Paper;

/// Far longer than anything here takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the real machine may take to calm down: pressure is averaged over ten seconds, load over a minute.
const LONG_PATIENCE: Duration = Duration::from_secs(180);

const IDLE: HostSample = HostSample {
    cpu_percent: 1.0,
    memory_percent: 20.0,
    load_per_core: 0.0,
    io_pressure: None,
    memory_pressure: None,
    cpu_pressure: None,
    drops_per_second: None,
};

/// A machine that is as busy as the test says; `None`: there is no reading.
#[derive(Clone)]
struct Dial(Arc<Mutex<Option<HostSample>>>);

impl Dial {
    fn set(&self, sample: Option<HostSample>) {
        *self.0.lock().unwrap() = sample;
    }
}

impl LoadSource for Dial {
    fn sample(&mut self) -> io::Result<Option<HostSample>> {
        self.0.lock().unwrap().map(Some).ok_or_else(|| io::Error::other("there is no such machine"))
    }
}

/// A scheduler whose configuration can be looked at by a probe.
fn world() -> (Scheduler, LiveConfig) {
    let flags = "[capacity]\nsample_every = \"100ms\"\nstale_after = \"1s\"\n".parse().unwrap();
    let layers = Layers::read(&Schema::native(), None, [], flags).unwrap();
    let config = layers.resolve(&Overrides::none()).unwrap();
    let options = Options::new(config.settings().clone());
    let (scheduler, _running) = Scheduler::start(Box::new(MemoryStore::new()), options).unwrap();
    (scheduler.clone(), LiveConfig::new(layers, Overrides::none(), config, scheduler))
}

async fn submit_heavy(scheduler: &Scheduler, cost: u32) -> JobId {
    let mut submission = job_once("heavy");
    submission.spec.capacity = CapacityRequest { cost, ..CapacityRequest::default() };
    harness::submit(scheduler, submission).await
}

async fn until_busy(scheduler: &Scheduler, holds: impl Fn(u8) -> bool) {
    patient(async {
        while !holds(scheduler.capacity().await.unwrap().busy) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn patient<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens in time")
}

#[tokio::test]
async fn a_loaded_machine_closes_admission_and_a_calm_one_opens_it() {
    let (scheduler, live) = world();
    scheduler
        .run_here(Name::fixed("here"), Handlers::new().on("heavy", |_| async { Outcome::Succeeded(None) }), 4)
        .await
        .unwrap();
    let dial = Dial(Arc::new(Mutex::new(Some(IDLE))));
    let probe = LoadProbe::start_with(scheduler.clone(), live.subscribe(), Box::new(dial.clone()));
    let first = submit_heavy(&scheduler, 90).await;
    assert_eq!(patient(scheduler.wait(first)).await.unwrap().state(), JobState::Succeeded);

    dial.set(Some(HostSample { cpu_percent: 100.0, memory_percent: 99.0, load_per_core: 9.0, ..IDLE }));
    until_busy(&scheduler, |busy| busy >= 9).await;
    let held = submit_heavy(&scheduler, 60).await;
    let explained = scheduler.explain(None, held).await.unwrap().unwrap();
    assert!(matches!(explained.holds[..], [Hold::NoUnits { cost: 60, .. }]), "{explained:?}");
    assert_eq!(probe.latest().unwrap().quiet, QuietState::Panic);

    dial.set(Some(IDLE));
    assert_eq!(patient(scheduler.wait(held)).await.unwrap().state(), JobState::Succeeded);

    dial.set(None);
    until_busy(&scheduler, |busy| busy == 8).await;
    assert!(!scheduler.capacity().await.unwrap().fresh, "there is no reading of the machine");
}

#[tokio::test]
async fn defect_19_another_state_of_the_machine_is_no_line_for_everybody() {
    let paper = Paper::default();
    let subscriber =
        tracing_subscriber::fmt().json().flatten_event(true).with_max_level(tracing::Level::DEBUG);
    // The probe runs on the thread of this test.
    let _listens = tracing::subscriber::set_default(subscriber.with_writer(paper.clone()).finish());
    let (scheduler, live) = world();
    let dial = Dial(Arc::new(Mutex::new(Some(IDLE))));
    let _probe = LoadProbe::start_with(scheduler.clone(), live.subscribe(), Box::new(dial.clone()));
    until_busy(&scheduler, |busy| busy == 0).await;
    dial.set(Some(HostSample { cpu_percent: 100.0, memory_percent: 99.0, load_per_core: 9.0, ..IDLE }));
    until_busy(&scheduler, |busy| busy >= 9).await;
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let about: Vec<_> = lines.iter().filter(|line| line.get("quiet").is_some()).collect();
    assert!(!about.is_empty(), "the state has changed: {text}");
    assert!(about.iter().all(|line| line["level"] == "DEBUG"), "{about:?}");
}

/// The same with the real machine and real work: a step of `scripts/test` of its own, because whatever else loads the machine
/// is waited for, and a machine that is never calm cannot show what a burner changes.
#[tokio::test]
#[ignore = "needs a machine without other load; scripts/test load"]
async fn a_real_burner_closes_admission_and_its_end_opens_it() {
    let (scheduler, live) = world();
    scheduler
        .run_here(Name::fixed("here"), Handlers::new().on("heavy", |_| async { Outcome::Succeeded(None) }), 4)
        .await
        .unwrap();
    let source = Box::new(ProcSource::new("/proc"));
    let _probe = LoadProbe::start_with(scheduler.clone(), live.subscribe(), source);
    until_capacity(&scheduler, |capacity| capacity.fresh && capacity.busy <= 5).await;
    let calm = scheduler.capacity().await.unwrap().usable;
    let burn = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let cores = std::thread::available_parallelism().unwrap().get();
    let burners: Vec<_> = (0..2 * cores)
        .map(|_| {
            let burn = Arc::clone(&burn);
            std::thread::spawn(move || while burn.load(std::sync::atomic::Ordering::Relaxed) {})
        })
        .collect();
    until_capacity(&scheduler, |capacity| capacity.fresh && capacity.usable < calm).await;
    let held = submit_heavy(&scheduler, calm).await;
    let explained = scheduler.explain(None, held).await.unwrap().unwrap();
    burn.store(false, std::sync::atomic::Ordering::Relaxed);
    burners.into_iter().for_each(|burner| burner.join().unwrap());
    assert!(matches!(explained.holds[..], [Hold::NoUnits { .. }]), "{explained:?}");
    let ended =
        tokio::time::timeout(LONG_PATIENCE, scheduler.wait(held)).await.expect("the machine calms down");
    assert_eq!(ended.unwrap().state(), JobState::Succeeded);
}

async fn until_capacity(scheduler: &Scheduler, holds: impl Fn(&CapacityView) -> bool) {
    let waited = async {
        while !holds(&scheduler.capacity().await.unwrap()) {
            // Looking all the time would be load, too.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG_PATIENCE, waited)
        .await
        .expect("the machine gets there in time; is it loaded by others?");
}

fn claim(worker: &'static str) -> Claim {
    Claim {
        tenant: Name::fixed("default"),
        lane: Name::fixed("main"),
        agent: None,
        kinds: Vec::new(),
        max_cost: None,
        holder: Holder { worker: Name::fixed(worker), pid: Some(7), boot: None },
        start: true,
        token: None,
    }
}

async fn start_claims(store: &TestStore) -> Scheduler {
    let mut settings = Settings::default();
    settings.lanes.get_mut("main").unwrap().pull.dispatch = Dispatch::Claim;
    settings.capacity.measured = false;
    let (scheduler, _running, _clock) =
        harness::start_with(store, Handlers::new(), |options| options.settings = settings).await;
    scheduler
}

#[tokio::test]
async fn a_worker_claims_a_job_and_its_result_is_kept() {
    let store = TestStore::default();
    let scheduler = start_claims(&store).await;
    let Reply::Denied(denial) = scheduler.claim(claim("w1")).await.unwrap() else { panic!("nothing waits") };
    assert_eq!(denial.reason, DenyReason::NothingEligible);
    let job = submit_heavy(&scheduler, 40).await;
    let Reply::Granted(grant) = scheduler.claim(claim("w1")).await.unwrap() else { panic!("a job waits") };
    assert_eq!((grant.fence.job, grant.cost, grant.state), (job, 40, JobState::Running));
    let view = scheduler.read(move |reader| reader.job(job)).await.unwrap().unwrap();
    let holder = view.open.and_then(|open| open.holder);
    assert_eq!(
        holder,
        Some(Holder { worker: Name::fixed("w1"), pid: Some(7), boot: None }),
        "who holds it is durable"
    );
    assert_eq!(scheduler.capacity().await.unwrap().used, 40);
    assert_eq!(scheduler.leases(None).await.unwrap()[0].lease, grant.fence.attempt_id);
    let page = scheduler.render_metrics().await.unwrap();
    assert!(page.contains("laneway_capacity_units{state=\"used\"} 40"), "{page}");
    let report = |worker: &'static str| {
        scheduler.report(grant.fence.attempt_id, None, Name::fixed(worker), 0.5, "half way")
    };
    assert_eq!(report("w2").await.unwrap(), Reply::NotYours);
    assert_eq!(report("w1").await.unwrap(), Reply::Done);
    assert_eq!(scheduler.progress(job).unwrap().fraction, 0.5);
    let message = |worker: &'static str| LeaseMessage {
        lease: grant.fence.attempt_id,
        tenant: None,
        worker: Some(Name::fixed(worker)),
        pid: None,
        update: LeaseUpdate::Ended(Outcome::Succeeded(Some(Bytes::from(&b"42"[..])))),
    };
    assert_eq!(scheduler.lease_message(message("w2")).await.unwrap(), Reply::NotYours);
    assert_eq!(scheduler.lease_message(message("w1")).await.unwrap(), Reply::Done);
    let end = patient(scheduler.wait(job)).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.result.as_deref()), (JobState::Succeeded, Some(&b"42"[..])));
    assert_eq!(scheduler.capacity().await.unwrap().used, 0);
    assert_eq!(scheduler.decisions(None).await.unwrap().len(), 2);
    assert_eq!(scheduler.progress(job), None, "its progress is forgotten");
}

#[tokio::test]
async fn a_result_that_the_store_rejects_fails_the_job_and_frees_its_units() {
    let store = TestStore::default();
    let scheduler = start_claims(&store).await;
    let job = submit_heavy(&scheduler, 40).await;
    let Reply::Granted(grant) = scheduler.claim(claim("w1")).await.unwrap() else { panic!("a job waits") };
    store.reject_results(true);
    let update = LeaseUpdate::Ended(Outcome::Succeeded(Some(Bytes::from(&b"42"[..]))));
    let message =
        LeaseMessage { lease: grant.fence.attempt_id, tenant: None, worker: None, pid: None, update };
    scheduler.lease_message(message).await.unwrap();
    let end = patient(scheduler.wait(job)).await.unwrap().end.unwrap();
    assert_eq!((end.state, end.reason), (JobState::Failed, Reason::Permanent));
    assert_eq!(scheduler.capacity().await.unwrap().used, 0);
}
