//! One log line for every step of a job's life, as an operator who asks for them reads them.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use laneway_core::{Callback, Command, Failure, FiringStatus, JobId, Name, Reply, Span, Timing};
use laneway_runtime::config::{JobsOf, Layers, Overrides, Schema};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::webhooks::guard::SystemResolver;
use laneway_runtime::webhooks::{Formats, Guard};
use laneway_runtime::{Handlers, Options, Scheduler, Webhooks, job_log};
use laneway_store::MemoryStore;
use serde_json::Value;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;

use crate::harness::{TestStore, job_once, origin, start, start_with, submit};

/// Everything that was written, by whatever test of this process.
#[derive(Clone, Default)]
pub struct Paper(pub Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Paper {
    type Writer = Paper;

    fn make_writer(&'a self) -> Paper {
        self.clone()
    }
}

/// Lines are written by the loop's own thread, so the whole process must listen.
static PAPER: LazyLock<Paper> = LazyLock::new(|| {
    let paper = Paper::default();
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_writer(paper.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).expect("this is the only subscriber");
    paper
});

fn lines() -> Vec<Value> {
    let text = PAPER.0.lock().unwrap().clone();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The messages about a job, in order. Lines about failures have a target, and tests, of their own.
fn about(job: JobId) -> Vec<String> {
    let is_about = |line: &Value| line["job"] == job.to_string() && line["target"] != "laneway::failures";
    lines()
        .iter()
        .filter(|line| is_about(line))
        .map(|line| line["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until the loop has written what it has to say about earlier batches. The end of a job can be read from the store as soon as it
/// is committed, which is before its lines are written.
async fn written(scheduler: &Scheduler) {
    assert_eq!(scheduler.send(Command::Tick).await.unwrap(), Reply::Done);
}

#[tokio::test]
async fn every_step_of_a_job_is_one_line_with_its_fields() {
    LazyLock::force(&PAPER);
    let handlers = Handlers::new()
        .on("echo", async |_| Ok::<_, Failure>(()))
        .on("fail", async |_| Err::<(), _>(Failure::permanent("test", "it cannot work")));
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let done = submit(&scheduler, job_once("echo")).await;
    scheduler.wait(done).await.unwrap();
    let failed = submit(&scheduler, job_once("fail")).await;
    scheduler.wait(failed).await.unwrap();
    let canceled = submit(&scheduler, job_once("unserved")).await;
    scheduler.cancel(None, canceled, origin()).await.unwrap();
    written(&scheduler).await;
    assert_eq!(about(done), ["job submitted", "job dispatched", "job completed"]);
    assert_eq!(about(failed), ["job submitted", "job dispatched", "job failed"]);
    assert_eq!(about(canceled), ["job submitted", "job canceled"]);
    let lines = lines();
    let of_jobs = |line: &&Value| line["job"] == failed.to_string() && line["target"] == job_log::TARGET;
    let line = lines.iter().filter(of_jobs).find(|line| line["message"] == "job failed").unwrap();
    assert_eq!(line["level"], "INFO");
    for (field, value) in [
        ("agent", "default"),
        ("lane", "main"),
        ("kind", "fail"),
        ("tenant", "default"),
        ("reason", "permanent"),
    ] {
        assert_eq!(line[field], value, "{field}");
    }
    assert_eq!(line["attempt"], 1);
}

#[tokio::test]
async fn a_rejection_is_one_line() {
    LazyLock::force(&PAPER);
    let (scheduler, _running, _clock) = start_with(&TestStore::default(), Handlers::new(), |options| {
        options.settings.queued_max = 0;
    })
    .await;
    let mut submission = job_once("echo");
    submission.record_rejection = true;
    let rejection = scheduler.submit(submission).await.unwrap().unwrap_err();
    assert_eq!(about(rejection.recorded.unwrap()), ["job rejected"]);
}

#[tokio::test]
async fn a_webhooks_outcome_is_one_line_without_secrets() {
    LazyLock::force(&PAPER);
    let handlers = Handlers::new().on("echo", async |_| Ok::<_, Failure>(()));
    let (scheduler, _running, _clock) = start(&TestStore::default(), handlers).await;
    let config = Layers::read(&Schema::native(), None, [], toml::Table::new())
        .unwrap()
        .resolve(&Overrides::none())
        .unwrap();
    let (_, configs) = tokio::sync::watch::channel(Arc::new(config));
    let guard = Guard::new(Arc::new(SystemResolver), &[]);
    let _webhooks = Webhooks::start_with(scheduler.clone(), configs, Formats::new(), guard).unwrap();
    let mut submission = job_once("echo");
    let url = "https://user:pw@hooks.example/done?token=hush#part";
    submission.spec.callback = Some(Callback { url: url.into(), format: Name::fixed("unheard") });
    let job = submit(&scheduler, submission).await;
    let tried = async {
        while scheduler.stats(None).await.unwrap().deliveries.tries == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), tried).await.unwrap();
    let lines = lines();
    let line = lines
        .iter()
        .find(|line| line["job"] == job.to_string() && line["message"] == "webhook not delivered");
    let line = line.unwrap();
    assert_eq!(
        (&line["url"], &line["number"]),
        (&Value::from("https://hooks.example/done"), &Value::from(1))
    );
    assert!(!lines.iter().any(|line| line.to_string().contains("hush")), "a secret was written");
}

#[tokio::test]
async fn a_reload_is_one_line() {
    LazyLock::force(&PAPER);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("laneway.toml");
    std::fs::write(&file, "[lanes.reloaded]\nrunning_max = 3\n").unwrap();
    let layers = Layers::read(&Schema::native(), Some(&file), [], toml::Table::new()).unwrap();
    let config = layers.resolve(&Overrides::none()).unwrap();
    let options = Options::new(config.settings().clone());
    let (scheduler, _running) = Scheduler::start(Box::new(MemoryStore::new()), options).unwrap();
    let live = LiveConfig::new(layers, Overrides::none(), config, scheduler);
    std::fs::write(&file, "[lanes.reloaded]\nrunning_max = 7\n").unwrap();
    live.reload().await.unwrap();
    let reloads =
        lines().iter().filter(|line| line.to_string().contains("lanes.reloaded.running_max")).count();
    assert_eq!(reloads, 1);
}

#[tokio::test]
async fn defect_05_a_jump_of_the_clock_is_logged() {
    LazyLock::force(&PAPER);
    let (scheduler, _running, clock) = start(&TestStore::default(), Handlers::new()).await;
    // No other test jumps so far.
    clock.set_wall(123_456_000);
    assert_eq!(scheduler.send(Command::Tick).await.unwrap(), Reply::Done);
    let warnings: Vec<Value> =
        lines().into_iter().filter(|line| line["message"].to_string().contains("123456 s ahead")).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0]["level"], "WARN");
}

#[tokio::test]
async fn defect_18_jobs_of_dialects_have_a_target_of_their_own() {
    LazyLock::force(&PAPER);
    let handlers = Handlers::new().on("tab_action", async |_| Ok::<_, Failure>(()));
    let (scheduler, _running, _clock) = start_with(&TestStore::default(), handlers, |options| {
        options.settings.lanes.insert(Name::fixed("tabs"), Default::default());
        options.dialect_jobs = job_log::DialectJobs::new([JobsOf { lane: "tabs", kind: None }]);
    })
    .await;
    let mut submission = job_once("tab_action");
    submission.spec.lane = Name::fixed("tabs");
    let job = submit(&scheduler, submission).await;
    scheduler.wait(job).await.unwrap();
    written(&scheduler).await;
    assert_eq!(about(job), ["job submitted", "job dispatched", "job completed"]);
    let lines = lines();
    let of = lines.iter().filter(|line| line["job"] == job.to_string());
    assert!(of.into_iter().all(|line| line["target"] == job_log::DIALECTS_TARGET), "{lines:?}");
}

#[tokio::test]
async fn defect_17_a_schedule_whose_kind_is_not_offered_warns_once_and_says_what_to_do() {
    LazyLock::force(&PAPER);
    let (scheduler, _running, clock) = start(&TestStore::default(), Handlers::new()).await;
    let timing = Timing::Every { every: Span::secs(10), anchor: None };
    let spec = crate::schedules::spec("ghostly", "ghost_turn", timing);
    let Reply::Schedule(schedule) = scheduler.put_schedule(spec, origin()).await.unwrap() else {
        panic!("it is made");
    };
    for _ in 0..3 {
        clock.advance(Span::secs(10));
        scheduler.kick().await.unwrap();
    }
    let shown = scheduler.schedule(None, schedule.id).await.unwrap().unwrap();
    assert_eq!(shown.state.last_status, Some(FiringStatus::Queued), "it does not run");
    let warnings: Vec<Value> =
        lines().into_iter().filter(|line| line["kind"] == "ghost_turn" && line["level"] == "WARN").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0]["schedule"], "ghostly");
    let message = warnings[0]["message"].as_str().unwrap();
    assert!(message.contains("laneway worker") && message.contains("kinds.ghost_turn.target"), "{message}");
}

/// The systems whose dialects are spoken write these lines, so they are written here without any setting.
#[test]
fn defect_18_lines_of_dialects_are_on_by_default() {
    let config = Layers::builtin(&Schema::native()).resolve(&Overrides::none()).unwrap();
    let filter: Targets = config.log.filter.parse().unwrap();
    assert!(filter.would_enable(job_log::DIALECTS_TARGET, &tracing::Level::INFO), "{}", config.log.filter);
    assert!(!filter.would_enable(job_log::TARGET, &tracing::Level::INFO), "native jobs write none");
}
