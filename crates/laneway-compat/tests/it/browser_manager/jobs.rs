//! Jobs: `GET /api/jobs/{jobId}`, the list, cancel, logs and artifacts.

use laneway_core::Span;
use serde_json::{Value, json};

use super::world::{Rule, World};

#[tokio::test]
async fn a_job_has_every_field_of_the_document() {
    let world = World::new("").await;
    let profile = world.profile("shop").await;
    world.rules.add("browser_start", Rule::Hold);
    let id = world.enqueue("/api/env/start", json!({"id": profile})).await;
    world.running(&id).await;
    let job = world.job(&id).await;
    let names: Vec<&str> = job.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "createdAt",
            "errorMessage",
            "finishedAt",
            "jobId",
            "jobType",
            "maxRetries",
            "result",
            "retryCount",
            "startedAt",
            "status",
            "timeoutSeconds",
        ]
    );
    assert_eq!(job["status"], "running");
    assert_eq!((&job["jobId"], &job["jobType"]), (&json!(id), &json!("browser_start")));
    assert_eq!((&job["maxRetries"], &job["timeoutSeconds"]), (&json!(2), &json!(30)));
    assert_eq!((&job["retryCount"], &job["result"]), (&json!(0), &Value::Null));
    assert_eq!((&job["errorMessage"], &job["finishedAt"]), (&Value::Null, &Value::Null));
    assert_eq!(job["createdAt"], "2023-11-14T22:13:20Z");
    assert_eq!(job["startedAt"], "2023-11-14T22:13:20Z");
    world.release();
    let job = world.ended(&id).await;
    assert_eq!((&job["status"], &job["result"]["debugPort"]), (&json!("succeeded"), &json!(9222)));
    assert_eq!(job["finishedAt"], "2023-11-14T22:13:20Z");
}

#[tokio::test]
async fn every_status_is_shown() {
    let world = World::new("lanes.browsers.running_max = 1").await;
    world.rules.add("browser_stop_all", Rule::Hold);
    let first = world.enqueue("/api/env/closeAll", json!({})).await;
    world.running(&first).await;
    let second = world.enqueue("/api/recycleBin/cleanup", json!({})).await;
    assert_eq!(world.job(&first).await["status"], "running");
    assert_eq!(world.job(&second).await["status"], "queued");
    let (status, answer) = world.post(&format!("/api/jobs/{second}/cancel"), json!({})).await;
    assert_eq!((status, &answer["data"]["status"]), (200, &json!("canceled")), "{answer}");
    assert_eq!(world.job(&second).await["status"], "canceled");
    world.release();
    assert_eq!(world.ended(&first).await["status"], "succeeded");
    world.rules.add("recycle_bin_cleanup", Rule::fail("the disk is away"));
    let third = world.enqueue("/api/recycleBin/cleanup", json!({})).await;
    let job = world.ended(&third).await;
    assert_eq!((&job["status"], &job["errorMessage"]), (&json!("failed"), &json!("the disk is away")));
    for (query, expected) in [
        ("status=failed", vec![&third]),
        ("status=canceled", vec![&second]),
        ("status=succeeded", vec![&first]),
        ("status=queued", vec![]),
        ("status=running", vec![]),
        ("jobType=browser_stop_all", vec![&first]),
        ("pageSize=2", vec![&third, &second]),
        ("pageSize=2&pageNum=2", vec![&first]),
        ("pageNum=9", vec![]),
        ("", vec![&third, &second, &first]),
    ] {
        let (status, answer) = world.get(&format!("/api/jobs?{query}")).await;
        let listed: Vec<&str> = answer["data"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["jobId"].as_str().unwrap())
            .collect();
        assert_eq!((status, listed), (200, expected.iter().map(|id| id.as_str()).collect()), "{query}");
    }
    let (_, answer) = world.get("/api/jobs?pageSize=2").await;
    assert_eq!((&answer["data"]["hasMore"], &answer["data"]["pageNum"]), (&json!(true), &json!(1)));
    let (_, answer) = world.get("/api/jobs?pageSize=2&pageNum=2").await;
    assert_eq!((&answer["data"]["hasMore"], &answer["data"]["pageSize"]), (&json!(false), &json!(2)));
}

#[tokio::test]
async fn an_execution_timeout_is_retried_and_then_shown_as_such() {
    let world = World::new("").await;
    // `recycle_bin_cleanup` has one retry and 300 seconds.
    world.rules.add("recycle_bin_cleanup", Rule::Hold);
    world.rules.add("recycle_bin_cleanup", Rule::Hold);
    let id = world.enqueue("/api/recycleBin/cleanup", json!({})).await;
    world.running(&id).await;
    world.advance(Span::secs(301)).await;
    world.queued(&id).await;
    let job = world.job(&id).await;
    assert_eq!((&job["status"], &job["errorMessage"]), (&json!("queued"), &json!("Execution timeout")));
    assert_eq!(job["retryCount"], 1);
    // The formula gives 1 to 2 seconds for the first retry.
    world.advance(Span::secs(2)).await;
    world.running(&id).await;
    world.advance(Span::secs(301)).await;
    let job = world.ended(&id).await;
    assert_eq!((&job["status"], &job["errorMessage"]), (&json!("failed"), &json!("Execution timeout")));
    assert_eq!((&job["retryCount"], &job["maxRetries"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn an_attempt_that_ran_out_of_time_is_an_execution_timeout_and_a_late_step_says_what_it_waited_for() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    let late = "steps[0] (navigate): the load of http://127.0.0.1/ did not happen within 1000 ms";
    for (kind, path, code, message, shown) in [
        (
            "browser_start",
            "/api/env/start",
            "browser_hung",
            "the browser did not answer",
            "Execution timeout",
        ),
        ("script_run", "/api/script/run", "timed_out", "the script did not end", "Execution timeout"),
        ("script_run", "/api/script/run", "step_timed_out", late, late),
    ] {
        world.rules.add(kind, Rule::fail_with(code, message));
        let body = match kind {
            "script_run" => json!({"id": id, "script": {"steps": [{"kind": "wait", "ms": 1}]}}),
            _ => json!({"id": id}),
        };
        let job = world.enqueue(path, body).await;
        assert_eq!(world.ended(&job).await["errorMessage"], shown, "{code}");
    }
}

#[tokio::test]
async fn a_browser_that_never_answers_is_an_execution_timeout_and_the_log_says_why() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("chromium");
    std::fs::write(&program, "#!/bin/sh\necho no display >&2\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let world = World::with_browsers(&format!(
        "browsers.chromium = {:?}\nkinds.browser_start = {{ timeout = \"2s\", retry = {{ retries_max = 0 }} }}",
        program.display().to_string()
    ))
    .await;
    let id = world.profile("shop").await;
    let job = world.enqueue("/api/env/start", json!({"id": id})).await;
    let ended = world.ended(&job).await;
    assert_eq!((&ended["status"], &ended["errorMessage"]), (&json!("failed"), &json!("Execution timeout")));
    let (_, logs) = world.get(&format!("/api/jobs/{job}/logs")).await;
    let said = logs["data"]["lines"].to_string();
    assert!(said.contains("the browser did not answer within") && said.contains("no display"), "{said}");
}

#[tokio::test]
async fn a_queue_timeout_is_final_and_shown_as_such() {
    let world = World::new("lanes.browsers.paused = true").await;
    let id = world.enqueue("/api/proxy/test", json!({"proxy": {"host": "127.0.0.1", "port": 9}})).await;
    world.advance(Span::secs(61)).await;
    let job = world.ended(&id).await;
    assert_eq!((&job["status"], &job["errorMessage"]), (&json!("failed"), &json!("Queue timeout")));
    assert_eq!((&job["retryCount"], &job["startedAt"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn a_retryable_failure_counts_as_a_retry_and_a_canceled_job_is_never_retried() {
    let world = World::new("").await;
    world.rules.add("browser_stop_all", Rule::retry("busy"));
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    world.queued(&id).await;
    assert_eq!(world.job(&id).await["errorMessage"], "busy");
    world.advance(Span::secs(2)).await;
    let job = world.ended(&id).await;
    assert_eq!((&job["status"], &job["retryCount"]), (&json!("succeeded"), &json!(1)));
    assert_eq!(job["errorMessage"], Value::Null);
    world.rules.add("browser_stop_all", Rule::Hold);
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    world.running(&id).await;
    world.post(&format!("/api/jobs/{id}/cancel"), json!({})).await;
    world.advance(Span::mins(10)).await;
    let job = world.ended(&id).await;
    assert_eq!((&job["status"], &job["retryCount"]), (&json!("canceled"), &json!(0)));
}

#[tokio::test]
async fn code_1401_there_is_no_such_job() {
    let world = World::new("").await;
    let foreign = world.submit_native("echo").await;
    for id in ["nothing", "00000000-0000-0000-0000-000000000007", "%00", foreign.as_str()] {
        for (method, path) in [
            ("GET", format!("/api/jobs/{id}")),
            ("POST", format!("/api/jobs/{id}/cancel")),
            ("GET", format!("/api/jobs/{id}/logs")),
            ("GET", format!("/api/jobs/{id}/artifacts")),
            ("GET", format!("/ws/jobs/{id}")),
            ("GET", format!("/api/logs/stream?job_id={id}")),
        ] {
            let (status, answer) = world.ask(method, &path, Value::Null).await;
            assert_eq!((status, &answer["code"]), (404, &json!(-1401)), "{method} {path}: {answer}");
            assert_eq!(answer["data"], Value::Null);
        }
    }
}

#[tokio::test]
async fn code_1402_a_job_that_has_ended_cannot_be_canceled() {
    let world = World::new("").await;
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    world.ended(&id).await;
    let (status, answer) = world.post(&format!("/api/jobs/{id}/cancel"), json!({})).await;
    assert_eq!((status, &answer["code"]), (422, &json!(-1402)), "{answer}");
    assert_eq!(answer["msg"], "Job already completed: the job is succeeded");
}

#[tokio::test]
async fn logs_have_what_the_job_wrote_and_every_transition() {
    let world = World::new("").await;
    let log = [("log", "one"), ("stderr", "two"), ("debug", "three"), ("artifacts", "{}")];
    world.rules.add("browser_stop_all", Rule::log(&log));
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    world.ended(&id).await;
    let shown = async |query: &str| {
        let (status, answer) = world.get(&format!("/api/jobs/{id}/logs{query}")).await;
        assert_eq!(status, 200, "{answer}");
        let lines = answer["data"]["lines"].as_array().unwrap().clone();
        let text = |line: &Value| {
            let part = |name: &str| line[name].as_str().unwrap().to_owned();
            format!("{} {} {}", part("level"), part("source"), part("message"))
        };
        (lines.iter().map(text).collect::<Vec<_>>(), answer["data"]["truncated"].clone())
    };
    let (lines, truncated) = shown("").await;
    let mut sorted = lines.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        [
            "DEBUG debug three",
            "ERROR stderr two",
            "INFO agent queued",
            "INFO agent running, attempt 1",
            "INFO agent succeeded",
            "INFO log one",
        ]
    );
    assert_eq!((lines[0].as_str(), &truncated), ("INFO agent queued", &json!(false)));
    assert_eq!(shown("?level=ERROR").await.0, ["ERROR stderr two"]);
    let (last, truncated) = shown("?tail=1").await;
    assert_eq!((last.len(), truncated), (1, json!(true)));
    for (query, status, code) in
        [("?level=loud", 400, -1604), ("?tail=-1", 400, -1603), ("?tail=x", 400, -1602)]
    {
        let (found, answer) = world.get(&format!("/api/jobs/{id}/logs{query}")).await;
        assert_eq!((found, &answer["code"]), (status, &json!(code)), "{query}");
    }
}

#[tokio::test]
async fn artifacts_are_listed_once_with_their_url() {
    let world = World::new("").await;
    let described = |size: u64| {
        json!({"resource_id": "1-1", "worker_id": "laneway.local", "type": "file", "size_bytes": size,
               "metadata": {"name": "page.png", "mime_type": "image/png"}})
        .to_string()
    };
    let lines = vec![("artifacts", described(1)), ("log", "x".to_owned()), ("artifacts", described(7))];
    world.rules.add("browser_stop_all", Rule::Lines(lines));
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    world.ended(&id).await;
    let (status, answer) = world.get(&format!("/api/jobs/{id}/artifacts")).await;
    assert_eq!(status, 200, "{answer}");
    let artifact = json!({
        "id": format!("{id}.3"), "name": "page.png", "contentType": "image/png", "size": 7, "attempt": 1,
        "expiresAt": null, "url": format!("/v1/artifacts/{id}.3"),
    });
    assert_eq!(answer["data"], json!({"jobId": id, "artifacts": [artifact]}));
}
