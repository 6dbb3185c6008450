//! The library: the behaviour that embedding programs rely on.

use std::sync::Arc;
use std::time::Duration;

use laneway::{
    Embedded, Failure, Hold, Job, JobContext, JobState, Outcome, Reason, RejectionCode, StartError,
    SubmitError,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

/// Reports that it runs, and waits until its job is canceled.
async fn wait_until_stopped(entered: Arc<Notify>, ctx: JobContext) -> Outcome {
    entered.notify_one();
    ctx.cancellation().cancelled().await;
    Outcome::Canceled
}

/// A scheduler with a kind `wait` whose jobs report that they run, and run until they are canceled.
fn with_waiting(embedded: Embedded) -> (Embedded, Arc<Notify>) {
    let entered = Arc::new(Notify::new());
    let signal = Arc::clone(&entered);
    (embedded.handler("wait", move |ctx| wait_until_stopped(Arc::clone(&signal), ctx)), entered)
}

#[tokio::test]
async fn jobs_are_there_after_a_restart() {
    let dir = TempDir::new().unwrap();
    let laneway = laneway::embedded().data_dir(dir.path()).start().await.unwrap();
    let id = laneway.submit(Job::new("later").json(&7)).await.unwrap().id();
    laneway.shutdown().await.unwrap();
    drop(laneway);

    let laneway = laneway::embedded()
        .data_dir(dir.path())
        .handler("later", |ctx| async move {
            let n: u32 = ctx.json()?;
            Ok::<_, Failure>(json!(n + 1))
        })
        .start()
        .await
        .unwrap();
    assert_eq!(laneway.job(id).wait().await.unwrap().json::<u32>().unwrap(), 8);
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn one_process_at_a_time_has_a_directory() {
    let dir = TempDir::new().unwrap();
    let first = laneway::embedded().data_dir(dir.path()).start().await.unwrap();
    let second = laneway::embedded().data_dir(dir.path()).start().await.err().unwrap();
    assert!(matches!(second, StartError::Store(_)), "{second}");
    assert!(second.to_string().contains("in use"), "{second}");
    first.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_running_job_is_canceled_and_its_handler_notified() {
    let (laneway, entered) = with_waiting(laneway::embedded());
    let laneway = laneway.start().await.unwrap();
    let job = laneway.submit(Job::new("wait")).await.unwrap();
    entered.notified().await;
    assert!(job.cancel().await.unwrap());
    let end = job.wait().await.unwrap();
    assert_eq!((end.state(), end.reason()), (JobState::Canceled, Reason::Requested));
    assert!(end.json::<()>().is_err(), "a canceled job has no result");
    assert!(!job.cancel().await.unwrap(), "it has ended already");
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stop_hands_back_what_runs() {
    let dir = TempDir::new().unwrap();
    let (laneway, entered) = with_waiting(laneway::embedded().data_dir(dir.path()));
    let laneway = laneway.start().await.unwrap();
    let id = laneway.submit(Job::new("wait")).await.unwrap().id();
    entered.notified().await;
    let drained = laneway.shutdown_within(Duration::ZERO).await.unwrap();
    assert_eq!(drained.interrupted, 1);
    drop(laneway);

    let laneway =
        laneway::embedded().data_dir(dir.path()).handler("wait", |_| async { Ok::<_, Failure>(()) });
    let laneway = laneway.start().await.unwrap();
    let end = laneway.job(id).wait().await.unwrap();
    assert!(end.succeeded() && end.failure().is_none(), "{end:?}");
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn settings_change_while_it_runs_and_stay_changed() {
    let dir = TempDir::new().unwrap();
    let start = || laneway::embedded().data_dir(dir.path()).setting("lanes.main.queued_max", 1).start();
    let laneway = start().await.unwrap();
    laneway.submit(Job::new("unserved")).await.unwrap();
    let full = laneway.submit(Job::new("unserved")).await.err().unwrap();
    assert!(
        matches!(&full, SubmitError::Rejected(rejection) if rejection.code == RejectionCode::QueueFull),
        "{full}"
    );
    laneway.configure(json!({"lanes": {"main": {"queued_max": 2}}})).await.unwrap();
    laneway.submit(Job::new("unserved")).await.unwrap();
    let wrong = laneway.configure(json!({"lanes": {"main": {"queued_maximum": 2}}})).await.err().unwrap();
    assert!(wrong.to_string().contains("queued_max"), "{wrong}");
    laneway.shutdown().await.unwrap();
    drop(laneway);

    let laneway = start().await.unwrap();
    let full = laneway.submit(Job::new("unserved")).await.err().unwrap();
    assert!(full.to_string().contains("queue_full"), "{full}");
    laneway.configure(json!({"lanes": {"main": {"queued_max": 3}}})).await.unwrap();
    laneway.submit(Job::new("unserved")).await.unwrap();
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_reload_takes_the_file_as_it_is_now() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("laneway.toml");
    std::fs::write(&file, "[lanes.main]\npaused = true\n").unwrap();
    let laneway = laneway::embedded()
        .config_file(&file)
        .handler("echo", |ctx| async move { Ok::<_, Failure>(ctx.payload().clone()) })
        .start()
        .await
        .unwrap();
    let job = laneway.submit(Job::new("echo")).await.unwrap();
    let held = job.explain().await.unwrap().unwrap();
    assert!(matches!(held.holds[..], [Hold::LanePaused { .. }]), "{held:?}");
    std::fs::write(&file, "[lanes.main]\npaused = false\n").unwrap();
    laneway.reload().await.unwrap();
    assert!(job.wait().await.unwrap().succeeded());
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_same_key_gives_the_same_job() {
    let laneway = laneway::embedded().start().await.unwrap();
    let job = || Job::new("unserved").json(&1).idempotency_key("order-1");
    let first = laneway.submit(job()).await.unwrap();
    let second = laneway.submit(job()).await.unwrap();
    assert_eq!(first.id(), second.id());
    assert!(!first.is_existing() && second.is_existing());
    let other = laneway.submit(job().json(&2)).await.err().unwrap();
    assert!(other.to_string().contains("idempotency_mismatch"), "{other}");
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_atomic_batch_is_all_or_none() {
    let laneway = laneway::embedded().setting("lanes.main.queued_max", 2).start().await.unwrap();
    let jobs = |n: usize| (0..n).map(|_| Job::new("unserved")).collect::<Vec<_>>();
    let rejected = laneway.submit_all(jobs(3), true).await.unwrap();
    assert!(rejected.iter().all(Result::is_err));
    let each = laneway.submit_all(jobs(3), false).await.unwrap();
    assert_eq!(each.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn errors_are_reported_before_anything_starts() {
    let laneway = laneway::embedded().start().await.unwrap();
    let invalid = laneway.submit(Job::new("k").agent("line\nbreak")).await.err().unwrap();
    assert!(invalid.to_string().starts_with("agent "), "{invalid}");
    laneway.shutdown().await.unwrap();
    let wrong = laneway::embedded().setting("lanes.main.running_max", "many").start().await.err().unwrap();
    assert!(matches!(wrong, StartError::Config(_)), "{wrong}");
    let taken = laneway::embedded()
        .setting("kinds.render.target", "http://127.0.0.1:1/")
        .handler("render", |_| async { Ok::<_, Failure>(()) })
        .start()
        .await
        .err()
        .unwrap();
    assert!(matches!(taken, StartError::Handlers(_)), "{taken}");
}

#[tokio::test]
async fn tab_actions_run_here_on_request_and_their_limits_can_be_watched() {
    use laneway::pinchtab::{self, Config};
    let laneway = laneway::embedded().tab_actions().start().await.unwrap();
    let job = laneway
        .submit(Job::new("tab_action").json(&json!({"action": "click", "tabId": "t1"})))
        .await
        .unwrap();
    let end = job.wait().await.unwrap();
    let message = end.failure().unwrap().message.to_string();
    assert_eq!(message, "could not resolve tab \"t1\": tab \"t1\" not found: there are no instances");

    let limits = async |laneway: &laneway::Laneway| {
        let config = laneway.live_config().current();
        config.settings().lanes[&laneway::Name::fixed(pinchtab::LANE)].clone()
    };
    pinchtab::reload(&laneway, &Config { max_inflight: 3, ..Config::default() }).await.unwrap();
    let mut changes = laneway.live_config().subscribe();
    changes.mark_unchanged();
    let watcher = pinchtab::watch(&laneway, Duration::from_millis(5), || async {
        Ok::<_, String>(Config { max_queue_size: 99, ..Config::default() })
    });
    changes.changed().await.unwrap();
    watcher.stop().await;
    let now = limits(&laneway).await;
    assert_eq!((now.running_max, now.queued_max, now.running_per_agent_max), (3, 99, 10));
    laneway.shutdown().await.unwrap();
}

#[tokio::test]
async fn defect_17_lane_variables_of_gateways_hold_in_the_library() {
    const CHILD: &str = "GOCLAW_LANE_TEAM";
    if std::env::var_os(CHILD).is_none() {
        // The environment of a process is set before it begins.
        let me = std::env::current_exe().unwrap();
        let name = "embedded::defect_17_lane_variables_of_gateways_hold_in_the_library";
        let output = std::process::Command::new(me)
            .args(["--exact", name])
            .envs([(CHILD, "7"), ("GOCLAW_LANE_MAIN", "5"), ("LANEWAY_LANE_MAIN", "6")])
            .env("GOCLAW_LANE_CRON", "many")
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && message.contains("1 passed"), "{message}");
        return;
    }
    let laneway =
        laneway::embedded().in_memory().setting("lanes.subagent.running_max", 9).start().await.unwrap();
    let config = laneway.live_config().current();
    let max = |lane| config.settings().lanes[&laneway::Name::fixed(lane)].running_max;
    assert_eq!(["main", "team", "subagent", "cron"].map(max), [6, 7, 9, 30]);
}

#[tokio::test]
async fn defect_17_a_job_may_ask_for_the_session_of_a_chat() {
    let laneway = laneway::embedded().in_memory().start().await.unwrap();
    let chat = || laneway::Session::chat(laneway::Name::fixed("chat-42"));
    let first = laneway.submit(Job::new("turn").in_session(chat())).await.unwrap();
    let second = laneway.submit(Job::new("turn").in_session(chat())).await.unwrap();
    let scheduler = laneway.scheduler();
    let view = scheduler.session(laneway::Name::fixed("default"), laneway::Name::fixed("chat-42")).await;
    assert_eq!(view.unwrap().unwrap().buffered, 2, "what comes within 800 ms is one message");
    assert_ne!(first.id(), second.id());
}
