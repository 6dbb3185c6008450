//! Help for new users: suggestions for typos, requests that wait, lists with reasons, removable lanes.

use std::sync::Arc;
use std::time::Duration;

use laneway_core::{Failure, Role};
use laneway_runtime::Handlers;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::world::{World, answer};

/// Far longer than any response takes; a test that waits for it has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn echo() -> Handlers {
    Handlers::new().on("echo", |_| async { Ok::<_, Failure>(b"1".to_vec()) })
}

fn lane_names(lanes: &Value) -> Vec<&str> {
    lanes["lanes"].as_array().unwrap().iter().map(|lane| lane["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn defect_19_a_submit_of_an_unserved_kind_warns_and_suggests() {
    let world = World::new().await;
    world.run(echo()).await;
    let (status, job) = answer(world.request("POST", "/v1/jobs").body(r#"{"kind":"ehco"}"#)).await;
    assert_eq!(status, 201, "it is admitted all the same");
    let expected =
        json!([{"code": "unserved_kind", "message": "no handler serves kind ehco; did you mean echo?"}]);
    assert_eq!(job["warnings"], expected);
    let id = job["id"].as_str().unwrap();
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}"), "").await.get("warnings"), None);
    let served = world.ask("POST", "/v1/jobs", r#"{"kind":"echo"}"#).await;
    assert_eq!(served.get("warnings"), None);
    let body = r#"{"jobs":[{"kind":"echo"},{"kind":"ehco"},{"kind":""},{"kind":"screenshots"}]}"#;
    let batch = world.ask("POST", "/v1/jobs/batch", body).await;
    let warnings: Vec<&Value> =
        batch["items"].as_array().unwrap().iter().map(|item| &item["job"]["warnings"]).collect();
    assert_eq!((warnings[0], warnings[1], warnings[2]), (&Value::Null, &expected, &Value::Null));
    let message = warnings[3][0]["message"].as_str().unwrap();
    assert_eq!(
        message,
        "no handler serves kind screenshots; the job waits until a handler, a target or a worker does"
    );
}

#[tokio::test]
async fn defect_19_an_unknown_lane_is_a_422_with_the_nearest_one() {
    let world = World::new().await;
    for (path, body, field) in [
        ("/v1/jobs", r#"{"kind":"k","lane":"mian"}"#, "lane"),
        ("/v1/jobs/batch", r#"{"atomic":true,"jobs":[{"kind":"k","lane":"mian"}]}"#, "jobs[0].lane"),
        ("/v1/runs", r#"{"nodes":[{"node":"a","job":{"kind":"k","lane":"mian"}}]}"#, "lane"),
        ("/v1/runs", r#"{"lane":"mian","nodes":[{"node":"a","job":{"kind":"k","lane":"main"}}]}"#, "lane"),
        ("/v1/schedules", r#"{"name":"s","every":"1h","job":{"kind":"k","lane":"mian"}}"#, "job.lane"),
        ("/v1/leases", r#"{"worker":"w","new":{"kind":"k","lane":"mian"}}"#, "lane"),
    ] {
        let (status, problem) = answer(world.request("POST", path).body(body)).await;
        let found = (status.as_u16(), problem["code"].as_str().unwrap_or_default());
        assert_eq!(found, (422, "unknown_lane"), "{path}: {problem}");
        assert_eq!(problem["field"], field, "{path}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.ends_with("lane: there is no lane \"mian\"; did you mean \"main\"?"), "{detail}");
    }
    let (status, problem) =
        answer(world.request("POST", "/v1/jobs").body(r#"{"kind":"k","lane":"overnight"}"#)).await;
    assert_eq!(status, 422);
    assert!(
        problem["detail"].as_str().unwrap().contains("create it with PUT /v1/lanes/overnight"),
        "{problem}"
    );
    assert_eq!(world.ask("GET", "/v1/jobs", "").await["jobs"], json!([]), "nothing was stored");
}

#[tokio::test]
async fn defect_19_a_request_waits_until_its_job_has_ended() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let (held, opened) = (gate.clone(), Handlers::new());
    world
        .run(opened.on("slow", move |_| {
            let held = held.clone();
            async move {
                drop(held.acquire().await);
                Ok::<_, Failure>(b"7".to_vec())
            }
        }))
        .await;
    let id = world.submit(r#"{"kind":"slow"}"#).await;
    let mut call = tokio::spawn(answer(world.request("GET", &format!("/v1/jobs/{id}?wait=30s"))));
    let early = tokio::time::timeout(Duration::from_millis(200), &mut call).await;
    assert!(early.is_err(), "it answers before the job has ended: {early:?}");
    gate.add_permits(1);
    let (status, job) = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
    assert_eq!((status.as_u16(), &job["state"], &job["result"]), (200, &json!("succeeded"), &json!(7)));
    // One that has ended is shown at once, and one that goes on is shown when the time is over.
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}?wait=60s"), "").await["state"], "succeeded");
    let other = world.submit(r#"{"kind":"nothing"}"#).await;
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{other}?wait=20ms"), "").await["state"], "queued");
    for (wait, status) in [("61s", 400), ("soon", 400), ("0s", 200), ("", 400)] {
        let (found, problem) = answer(world.request("GET", &format!("/v1/jobs/{other}?wait={wait}"))).await;
        assert_eq!(found.as_u16(), status, "{wait}: {problem}");
        assert!(status == 200 || problem["field"] == "wait", "{problem}");
    }
}

#[tokio::test]
async fn defect_19_waiting_requests_get_a_response_when_the_server_stops() {
    let world = World::new().await;
    let id = world.submit(r#"{"kind":"nothing"}"#).await;
    let call = tokio::spawn(answer(world.request("GET", &format!("/v1/jobs/{id}?wait=60s"))));
    let early = tokio::time::timeout(Duration::from_millis(100), async {
        while !call.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(early.await.is_err(), "the job waits, and so does the call");
    world
        .scheduler
        .send(laneway_core::Command::Admin(laneway_core::command::AdminCommand::Drain))
        .await
        .unwrap();
    let (status, job) = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
    assert_eq!((status.as_u16(), &job["state"]), (200, &json!("queued")));
}

#[tokio::test]
async fn defect_19_a_waiting_request_of_a_revoked_token_fails() {
    let world = World::closed().await;
    let viewer = world.token(Some("default"), Role::Viewer).await;
    let id = world.submit(r#"{"kind":"nothing"}"#).await;
    let path = format!("/v1/jobs/{id}?wait=60s");
    let mut call = tokio::spawn(answer(world.request_as(&viewer, "GET", &path)));
    let early = tokio::time::timeout(Duration::from_millis(100), &mut call).await;
    assert!(early.is_err(), "{early:?}");
    let tokens = world.ask("GET", "/v1/tokens", "").await;
    let token = tokens["tokens"].as_array().unwrap().iter().find(|token| token["role"] == "viewer").unwrap();
    world.ask("DELETE", &format!("/v1/tokens/{}", token["id"].as_str().unwrap()), "").await;
    let (status, problem) = tokio::time::timeout(PATIENCE, call).await.unwrap().unwrap();
    assert_eq!((status.as_u16(), &problem["code"]), (401, &json!("unauthorized")));
}

#[tokio::test]
async fn defect_19_a_list_says_why_its_jobs_wait() {
    let world = World::new().await;
    world.run(echo()).await;
    world.ask("POST", "/v1/lanes/team/pause", "").await;
    world.submit(r#"{"kind":"echo","lane":"team"}"#).await;
    world.submit(r#"{"kind":"echo","not_before":"2030-01-01T00:00:00Z"}"#).await;
    let done = world.submit(r#"{"kind":"echo"}"#).await;
    world.wait(&done).await;
    let reasons = |list: &Value| -> Vec<Value> {
        list["jobs"].as_array().unwrap().iter().map(|job| job["waiting_for"].clone()).collect()
    };
    let list = world.ask("GET", "/v1/jobs?explain=true", "").await;
    let expected = [
        Value::Null,
        json!("The job may not start before 2030-01-01T00:00:00.000Z"),
        json!("Lane team is paused"),
    ];
    assert_eq!(reasons(&list), expected);
    assert_eq!(reasons(&world.ask("GET", "/v1/jobs", "").await), [Value::Null, Value::Null, Value::Null]);
    let (status, problem) = answer(world.request("GET", "/v1/jobs?explain=yes")).await;
    assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("explain")));
}

#[tokio::test]
async fn defect_19_lanes_of_the_api_can_be_removed() {
    let world = World::with_config("[lanes.filed]").await;
    world.ask("PUT", "/v1/lanes/bulk", r#"{"running_max":3,"dispatch":"claim"}"#).await;
    let delete = |name: &str| answer(world.request("DELETE", &format!("/v1/lanes/{name}")));
    let conflict = |found: &(reqwest::StatusCode, Value), about: &str| {
        assert_eq!((found.0.as_u16(), &found.1["code"]), (409, &json!("conflict")), "{about}");
        assert!(found.1["detail"].as_str().unwrap().contains(about), "{}", found.1["detail"]);
    };
    for (name, about) in [
        ("main", "built in"),
        ("team", "built in"),
        ("pinchtab", "built in"),
        ("filed", "remove it where it is written"),
    ] {
        conflict(&delete(name).await, about);
    }
    assert_eq!(delete("nothing").await.0, 404);
    let id = world.submit(r#"{"kind":"k","lane":"bulk"}"#).await;
    conflict(&delete("bulk").await, "still has 1 jobs waiting");
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    let schedule = r#"{"name":"s","every":"1h","job":{"kind":"k","lane":"bulk"}}"#;
    let schedule = world.ask("POST", "/v1/schedules", schedule).await;
    conflict(&delete("bulk").await, "1 schedules make jobs in the lane");
    world.ask("DELETE", &format!("/v1/schedules/{}", schedule["id"].as_str().unwrap()), "").await;
    assert_eq!(delete("bulk").await.0, 204);
    assert_eq!(answer(world.request("GET", "/v1/lanes/bulk")).await.0, 404);
    let (status, _) = answer(world.request("POST", "/v1/jobs").body(r#"{"kind":"k","lane":"bulk"}"#)).await;
    assert_eq!(status, 422);
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}"), "").await["lane"], "bulk", "its jobs are kept");
}

#[tokio::test]
async fn defect_19_dispatch_of_a_lane_is_set_by_a_call() {
    let world = World::new().await;
    let lane = world.ask("PUT", "/v1/lanes/pulled", r#"{"dispatch":"claim"}"#).await;
    assert_eq!(lane["dispatch"], "claim");
    let id = world.submit(r#"{"kind":"k","lane":"pulled"}"#).await;
    let granted = world.ask("POST", "/v1/leases", r#"{"worker":"w","lane":"pulled"}"#).await;
    assert_eq!(granted["lease"]["job"], json!(id));
    let (status, problem) =
        answer(world.request("PUT", "/v1/lanes/pulled").body(r#"{"dispatch":"pull"}"#)).await;
    assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("lanes.pulled.dispatch")), "{problem}");
}

#[tokio::test]
async fn defect_19_lanes_of_dialects_are_shown_once_they_are_used() {
    let world = World::new().await;
    let hidden = ["astraflow", "pinchtab", "synthia", "synthia_jobs"];
    let lanes = world.ask("GET", "/v1/lanes", "").await;
    assert_eq!(lane_names(&lanes), ["cron", "main", "subagent", "team"]);
    assert_eq!(lane_names(&world.ask("GET", "/v1/stats", "").await), ["cron", "main", "subagent", "team"]);
    for path in ["/v1/lanes?all=true", "/v1/stats?all=true"] {
        let all = world.ask("GET", path, "").await;
        assert!(hidden.iter().all(|lane| lane_names(&all).contains(lane)), "{path}");
    }
    let metrics = async || world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(!metrics().await.contains("lane=\"pinchtab\""));
    assert_eq!(world.ask("GET", "/v1/lanes/pinchtab", "").await["name"], "pinchtab", "it is there");
    world.submit(r#"{"kind":"k","lane":"pinchtab"}"#).await;
    world.ask("PUT", "/v1/lanes/astraflow", r#"{"running_max":7}"#).await;
    let lanes = world.ask("GET", "/v1/lanes", "").await;
    assert_eq!(lane_names(&lanes), ["astraflow", "cron", "main", "pinchtab", "subagent", "team"]);
    assert!(metrics().await.contains("lane=\"pinchtab\""));
}

#[tokio::test]
async fn defect_19_events_have_the_error() {
    let world = World::new().await;
    let breaks =
        Handlers::new().on("break", |_| async { Err::<(), _>(Failure::permanent("no_luck", "it broke")) });
    world.run(breaks).await;
    let id = world.submit(r#"{"kind":"break"}"#).await;
    world.wait(&id).await;
    let events = world.ask("GET", &format!("/v1/jobs/{id}/events"), "").await;
    let last = events["events"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["type"], &last["job"]["reason"]), (&json!("job.failed"), &json!("permanent")));
    assert_eq!(last["error"], json!({"code": "no_luck", "message": "it broke"}));
    let others = &events["events"].as_array().unwrap()[..2];
    assert!(others.iter().all(|event| event.get("error").is_none()));
}

#[tokio::test]
async fn defect_19_health_shows_the_version() {
    let health = World::new().await.ask("GET", "/health", "").await;
    assert_eq!((health["version"].is_string(), health.get("agent_version")), (true, None));
}
