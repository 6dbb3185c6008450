//! One test for every row of the tables: kinds, retries, permanent failures, timeouts and limits. The names of the tests begin
//! with the section of the table.

use std::time::Duration;

use laneway::{Job, JobState, Span};
use laneway_browser::kinds;
use laneway_core::settings::KindSettings;
use laneway_core::{Backoff, Jitter, Name, Settings};
use laneway_runtime::config::Config;
use serde_json::json;
use tokio::net::TcpListener;

use super::{World, create_profile, ended, eventually, failure_of, start, tenant};

fn settings() -> Settings {
    Config::builtin(laneway::config_schema()).settings().clone()
}

fn kind(name: &str) -> KindSettings {
    settings().kinds.get(name).cloned().unwrap_or_else(|| panic!("{name} has no settings"))
}

/// The timeout and the retries of a kind. Lost attempts count as the retries do.
fn kind_row(name: &str, timeout_secs: u64, retries_max: u32) {
    let kind = kind(name);
    let retry = kind.retry.unwrap();
    assert_eq!(kind.timeout, Some(Span::secs(timeout_secs)), "{name}");
    assert_eq!((retry.retries_max, retry.losses_max), (retries_max, retries_max), "{name}");
    assert_eq!(retry.backoff, Backoff::STANDARD, "{name}");
}

#[test]
fn s3_browser_start() {
    kind_row("browser_start", 30, 2);
}

#[test]
fn s3_browser_stop() {
    kind_row("browser_stop", 15, 3);
}

#[test]
fn s3_browser_stop_all() {
    kind_row("browser_stop_all", 30, 1);
}

#[test]
fn s3_script_run() {
    kind_row("script_run", 300, 1);
}

#[test]
fn s3_cache_clear_local() {
    kind_row("cache_clear_local", 60, 3);
}

#[tokio::test]
async fn s3_cache_clear_cloud_is_out_of_scope() {
    let world = World::new().await;
    let ended = world.run("cache_clear_cloud", json!({})).await;
    assert_eq!(failure_of(&ended), ("out_of_scope".to_owned(), false, 1));
    world.stop().await;
}

#[test]
fn s3_proxy_test() {
    kind_row("proxy_test", 15, 2);
}

#[test]
fn s3_profile_clone() {
    kind_row("profile_clone", 120, 1);
}

#[test]
fn s3_db_migration() {
    kind_row("db_migration", 60, 0);
}

#[test]
fn s3_recycle_bin_cleanup() {
    kind_row("recycle_bin_cleanup", 300, 1);
}

#[test]
fn s4_2_the_backoff_is_one_second_doubled_with_up_to_a_second_of_jitter_and_at_most_a_minute() {
    let Backoff { base, factor, max, jitter } = settings().retry.backoff;
    assert_eq!((base, factor, max), (Span::secs(1), 2, Span::secs(60)));
    assert_eq!(jitter, Jitter::Add(Span::secs(1)));
}

#[tokio::test]
async fn s4_3_browser_start_a_crashed_process_is_retried_twice() {
    let world = World::with_program("echo no display >&2; exit 21", &[]).await;
    world.profile("p1").await;
    let ended = world.run("browser_start", json!({"profileId": "p1"})).await;
    assert_eq!(failure_of(&ended), ("browser_crashed".to_owned(), true, 3));
    assert!(ended.failure().unwrap().message.contains("no display"), "{:?}", ended.failure());
    world.stop().await;
}

#[tokio::test]
async fn s4_3_browser_start_a_port_that_cannot_be_bound_is_retried_twice() {
    let script = "echo 'Cannot start http server for devtools.' >&2; exit 1";
    let world = World::with_program(script, &[]).await;
    world.profile("p1").await;
    let ended = world.run("browser_start", json!({"profileId": "p1"})).await;
    assert_eq!(failure_of(&ended), ("port_bind".to_owned(), true, 3));
    world.stop().await;
}

#[tokio::test]
async fn s4_3_browser_stop_a_process_that_still_runs_is_retried() {
    // The browser never answers: it is starting as long as the test wants it to.
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let starting = world.submit("browser_start", json!({"profileId": "p1"})).await;
    world.launched(&starting).await;
    let ended = world.run("browser_stop", json!({"profileId": "p1"})).await;
    assert_eq!(failure_of(&ended), ("still_running".to_owned(), true, 4));
    starting.cancel().await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn s3_browser_stop_all_a_browser_that_is_starting_is_not_forgotten() {
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let starting = world.submit("browser_start", json!({"profileId": "p1"})).await;
    world.launched(&starting).await;
    let ended = world.run("browser_stop_all", json!({})).await;
    assert_eq!(failure_of(&ended), ("still_running".to_owned(), true, 2));
    assert!(ended.failure().unwrap().message.contains("p1"), "{:?}", ended.failure());
    starting.cancel().await.unwrap();
    super::ended(&starting).await;
    assert_eq!(world.result("browser_stop_all", json!({})).await, json!({"closed": []}));
    world.stop().await;
}

#[tokio::test]
async fn a_second_start_of_a_profile_fails_at_once() {
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let starting = world.submit("browser_start", json!({"profileId": "p1"})).await;
    world.launched(&starting).await;
    let ended = world.run("browser_start", json!({"profileId": "p1"})).await;
    assert_eq!(failure_of(&ended), ("already_open".to_owned(), false, 1));
    starting.cancel().await.unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_3_script_run_only_a_time_limit_is_retried() {
    let world = World::new().await;
    world.profile("p1").await;
    world.result("browser_start", json!({"profileId": "p1"})).await;
    let script = |steps: serde_json::Value| json!({"profileId": "p1", "script": {"steps": steps}});
    let late = json!([{"kind": "wait", "selector": "#never", "timeoutMs": 200}]);
    let ended = world.run("script_run", script(late)).await;
    assert_eq!(failure_of(&ended), ("step_timed_out".to_owned(), true, 2));
    let endless = json!({"timeoutMs": 300, "steps": [{"kind": "evaluate", "expression": "while (true) {}"}]});
    let ended = world.run("script_run", json!({"profileId": "p1", "script": endless})).await;
    assert_eq!(failure_of(&ended), ("timed_out".to_owned(), true, 2));
    assert!(ended.failure().unwrap().message.contains("steps[0] (evaluate)"), "{:?}", ended.failure());
    let throws = json!([{"kind": "evaluate", "expression": "throw new Error('no')"}]);
    let ended = world.run("script_run", script(throws)).await;
    assert_eq!(failure_of(&ended), ("evaluate_failed".to_owned(), false, 1));
    world.stop().await;
}

#[tokio::test]
async fn s4_3_cache_clear_local_a_locked_file_is_retried() {
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let starting = world.submit("browser_start", json!({"profileId": "p1"})).await;
    world.launched(&starting).await;
    let ended = world.run("cache_clear_local", json!({"profileId": "p1"})).await;
    assert_eq!(failure_of(&ended), ("file_locked".to_owned(), true, 4));
    starting.cancel().await.unwrap();
    super::ended(&starting).await;
    // It is not in use any more.
    let ended = world.run("cache_clear_local", json!({"profileId": "p1"})).await;
    assert!(ended.succeeded(), "{:?}", ended.failure());
    world.stop().await;
}

#[tokio::test]
async fn s4_3_proxy_test_a_connection_timeout_is_retried_and_a_closed_port_is_not() {
    let world = World::with(&[("kinds.proxy_test.timeout", "1s".into())]).await;
    // It accepts, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy =
        |port: u16| json!({"proxy": {"host": "127.0.0.1", "port": port}, "url": "http://127.0.0.1:9/"});
    let ended = world.run("proxy_test", proxy(silent.local_addr().unwrap().port())).await;
    assert_eq!(failure_of(&ended), ("proxy_timed_out".to_owned(), true, 3));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let ended = world.run("proxy_test", proxy(closed)).await;
    assert_eq!(failure_of(&ended), ("proxy_unreachable".to_owned(), false, 1));
    world.stop().await;
}

#[tokio::test]
async fn s4_3_db_migration_is_never_retried() {
    let world = World::new().await;
    let name = laneway_core::RecordName {
        tenant: tenant(),
        collection: Name::fixed("profiles"),
        id: Name::fixed("odd"),
    };
    let body = laneway::Bytes::from(b"not JSON".to_vec());
    world.laneway.scheduler().put_record(name, None, body, super::origin()).await.unwrap();
    let ended = world.run("db_migration", json!({})).await;
    assert_eq!(failure_of(&ended), ("migration_failed".to_owned(), false, 1));
    world.stop().await;
}

#[tokio::test]
async fn s4_4_a_profile_that_does_not_exist_fails_at_once() {
    let world = World::new().await;
    for kind in ["browser_start", "browser_stop", "cache_clear_local", "profile_clone"] {
        let ended = world.run(kind, json!({"profileId": "missing"})).await;
        assert_eq!(failure_of(&ended), ("profile_not_found".to_owned(), false, 1), "{kind}");
    }
    let script = json!({"profileId": "missing", "script": {"steps": [{"kind": "wait", "ms": 1}]}});
    let ended = world.run("script_run", script).await;
    assert_eq!(failure_of(&ended), ("profile_not_found".to_owned(), false, 1));
    world.stop().await;
}

#[tokio::test]
async fn s4_4_a_profile_in_the_recycle_bin_fails_at_once() {
    let world = World::new().await;
    let id = world.profile("p1").await;
    let profiles = world.laneway.browsers().unwrap().profiles();
    profiles.trash(&tenant(), &id, super::origin()).await.unwrap();
    for kind in ["browser_start", "cache_clear_local", "profile_clone"] {
        let ended = world.run(kind, json!({"profileId": "p1"})).await;
        assert_eq!(failure_of(&ended), ("profile_trashed".to_owned(), false, 1), "{kind}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_4_more_browsers_than_the_machine_may_have_fail_at_once() {
    let world = World::with(&[("browsers.open_max", 1.into())]).await;
    world.profile("p1").await;
    world.profile("p2").await;
    world.result("browser_start", json!({"profileId": "p1"})).await;
    let ended = world.run("browser_start", json!({"profileId": "p2"})).await;
    assert_eq!(failure_of(&ended), ("browsers_max".to_owned(), false, 1));
    world.stop().await;
}

#[tokio::test]
async fn s4_4_an_invalid_payload_fails_at_once() {
    let world = World::new().await;
    for (kind, payload, field) in [
        ("browser_start", json!({}), "profileId"),
        ("browser_start", json!({"profileId": "../etc"}), "profileId"),
        ("browser_start", json!({"profileId": "p1", "headles": true}), "headless"),
        ("browser_stop", json!({"profileId": 7}), "profileId"),
        ("browser_stop_all", json!({"all": true}), "all"),
        ("script_run", json!({"profileId": "p1"}), "script"),
        ("script_run", json!({"profileId": "p1", "script": {"steps": [{"kind": "fly"}]}}), "steps[0]"),
        ("cache_clear_local", json!([]), "payload"),
        ("proxy_test", json!({}), "proxy"),
        ("proxy_test", json!({"proxy": {"host": "h", "port": 99_999}}), "proxy.port"),
        ("profile_clone", json!({"profileId": "p1", "newProfileId": "p1"}), "newProfileId"),
        ("db_migration", json!({"to": 2}), "to"),
        ("recycle_bin_cleanup", json!({"retentionDays": -1}), "retentionDays"),
    ] {
        let ended = world.run(kind, payload.clone()).await;
        assert_eq!(failure_of(&ended), ("bad_payload".to_owned(), false, 1), "{kind} {payload}");
        let message = ended.failure().unwrap().message.clone();
        assert!(message.contains(field), "{kind} {payload}: {message}");
    }
    world.stop().await;
}

#[tokio::test]
async fn s4_4_a_canceled_job_is_not_retried() {
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let job = world.submit("browser_start", json!({"profileId": "p1"})).await;
    world.started(&job).await;
    assert!(job.cancel().await.unwrap());
    let ended = ended(&job).await;
    assert_eq!((ended.state(), ended.attempts()), (JobState::Canceled, 1));
    let data_dir = world.dir.path().join("data").display().to_string();
    eventually("the process is gone", async || super::processes_with(&data_dir).is_empty()).await;
    world.stop().await;
}

/// The execution timeout and the queue timeout of a kind.
fn timeout_row(name: &str, execution_secs: u64, queue_secs: u64) {
    let kind = kind(name);
    assert_eq!(kind.timeout, Some(Span::secs(execution_secs)), "{name}");
    assert_eq!(kind.queue_timeout, Some(Span::secs(queue_secs)), "{name}");
}

#[test]
fn s5_2_browser_start() {
    timeout_row("browser_start", 30, 300);
}

#[test]
fn s5_2_browser_stop() {
    timeout_row("browser_stop", 15, 60);
}

#[tokio::test]
async fn s5_2_script_run_has_at_most_an_hour() {
    timeout_row("script_run", 300, 600);
    assert_eq!(kinds::SCRIPT_TIMEOUT_MAX_SECS, 3_600);
    let world = World::new().await;
    let payload = json!({"profileId": "p1", "script": {"steps": [{"kind": "wait", "ms": 1}]}});
    let job = |secs| Job::new("script_run").json(&payload).timeout(Duration::from_secs(secs));
    let too_long = ended(&world.laneway.submit(job(3_601)).await.unwrap()).await;
    assert_eq!(failure_of(&too_long), ("bad_payload".to_owned(), false, 1));
    let an_hour = ended(&world.laneway.submit(job(3_600)).await.unwrap()).await;
    assert_eq!(failure_of(&an_hour), ("profile_not_found".to_owned(), false, 1));
    world.stop().await;
}

#[test]
fn s5_2_cache_clear_local() {
    timeout_row("cache_clear_local", 60, 300);
}

#[test]
fn s5_2_proxy_test() {
    timeout_row("proxy_test", 15, 60);
}

#[test]
fn s5_2_kinds_without_numbers_wait_for_at_most_five_minutes() {
    for name in ["browser_stop_all", "profile_clone", "db_migration", "recycle_bin_cleanup"] {
        assert_eq!(kind(name).queue_timeout, Some(Span::mins(5)), "{name}");
        assert_eq!(kind(name).running_max, Some(1), "{name}");
    }
}

#[tokio::test]
async fn s5_3_a_browser_that_never_answers_is_killed_and_retried() {
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let job = Job::new("browser_start").json(&json!({"profileId": "p1"})).timeout(Duration::from_secs(2));
    let ended = ended(&world.laneway.submit(job).await.unwrap()).await;
    assert_eq!(failure_of(&ended), ("browser_hung".to_owned(), true, 3));
    let data_dir = world.dir.path().join("data").display().to_string();
    eventually("the process is gone", async || super::processes_with(&data_dir).is_empty()).await;
    world.stop().await;
}

#[test]
fn s7_1_running_jobs() {
    assert_eq!(settings().lanes["browsers"].running_max, 20);
}

#[test]
fn s7_1_browsers() {
    assert_eq!(settings().keys[kinds::BROWSER_KEY], 20);
}

#[test]
fn s7_1_queued_jobs() {
    assert_eq!(settings().lanes["browsers"].queued_max, 500);
}

#[tokio::test]
async fn s7_1_jobs_per_profile() {
    assert_eq!(settings().keys[kinds::PROFILE_KEY], 3);
    let world = World::with_program("exec sleep 600", &[]).await;
    world.profile("p1").await;
    let job = world.submit("browser_start", json!({"profileId": "p1"})).await;
    let id = job.id();
    let row = world.laneway.scheduler().read(move |reader| reader.job(id)).await.unwrap().unwrap().row;
    assert_eq!(row.spec.lane.as_str(), kinds::LANE);
    let keys: Vec<(&str, &str)> =
        row.spec.keys.iter().map(|key| (key.name.as_str(), key.value.as_str())).collect();
    assert_eq!(keys, [(kinds::BROWSER_KEY, "open"), (kinds::PROFILE_KEY, "p1")]);
    job.cancel().await.unwrap();
    world.stop().await;
}

#[test]
fn s7_2_browser_start() {
    assert_eq!(kind("browser_start").running_max, Some(5));
}

#[test]
fn s7_2_browser_stop() {
    assert_eq!(kind("browser_stop").running_max, Some(10));
}

#[test]
fn s7_2_script_run_as_many_as_there_are_browsers() {
    assert_eq!(kind("script_run").running_max, Some(settings().keys[kinds::BROWSER_KEY]));
}

#[test]
fn s7_2_cache_clear_local() {
    assert_eq!(kind("cache_clear_local").running_max, Some(10));
}

#[test]
fn s7_2_proxy_test() {
    assert_eq!(kind("proxy_test").running_max, Some(20));
}

#[tokio::test]
async fn s7_3_a_full_queue_rejects_the_next_job() {
    let world =
        World::with(&[("lanes.browsers.queued_max", 1.into()), ("lanes.browsers.paused", true.into())]).await;
    let job = || Job::new("db_migration");
    world.laneway.submit(job()).await.unwrap();
    let full = world.laneway.submit(job()).await.err().expect("the queue is full");
    assert!(full.to_string().contains("queue_full: the queue is full (lane: queued_max): 1 of 1"), "{full}");
    world.stop().await;
}

#[tokio::test]
async fn a_missing_chromium_fails_at_once_and_says_what_to_install() {
    let dir = tempfile::tempdir().unwrap();
    let laneway = start(dir.path(), &[("browsers.chromium", "/nowhere/chromium".into())]).await;
    create_profile(&laneway, "p1").await;
    let job = laneway.submit(Job::new("browser_start").json(&json!({"profileId": "p1"}))).await.unwrap();
    let ended = ended(&job).await;
    assert_eq!(failure_of(&ended), ("browser_missing".to_owned(), false, 1));
    assert!(ended.failure().unwrap().message.contains("browsers.chromium"), "{:?}", ended.failure());
    laneway.shutdown().await.unwrap();
}
