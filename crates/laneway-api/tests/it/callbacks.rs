//! Callbacks and webhook deliveries over HTTP.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use laneway_api::JobFormat;
use laneway_core::{Failure, Role};
use laneway_runtime::webhooks::{Formats, NATIVE_FORMAT};
use laneway_runtime::{Handlers, JobContext, Webhooks};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::world::{World, answer};

type Calls = mpsc::Receiver<(HeaderMap, Value)>;

async fn take(State(calls): State<mpsc::Sender<(HeaderMap, Value)>>, headers: HeaderMap, body: Bytes) {
    calls.send((headers, serde_json::from_slice(&body).unwrap())).await.unwrap();
}

/// A receiver of webhooks: its URL and the webhooks.
async fn receiver() -> (String, Calls) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/done", listener.local_addr().unwrap());
    let (calls_in, calls) = mpsc::channel(16);
    let app = axum::Router::new().fallback(take).with_state(calls_in);
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, calls)
}

/// A server that sends webhooks to receivers on this machine.
async fn with_webhooks() -> (World, Webhooks) {
    let world = World::with_config("[webhooks]\nallow_hosts = [\"127.0.0.1\"]").await;
    let handlers = Handlers::new()
        .on("echo", async |context: JobContext| Ok::<_, Failure>(context.payload().clone()))
        .on("fail", async |_| Err::<(), _>(Failure::permanent("test", "it cannot work")));
    world.run(handlers).await;
    let formats = Formats::new().with(NATIVE_FORMAT, Arc::new(JobFormat));
    let webhooks = Webhooks::start(world.scheduler.clone(), world.api.config(), formats).unwrap();
    (world, webhooks)
}

async fn next(calls: &mut Calls) -> (HeaderMap, Value) {
    tokio::time::timeout(Duration::from_secs(20), calls.recv()).await.expect("the webhook arrives").unwrap()
}

/// Waits until so many tries have ended.
async fn tried(world: &World, count: u64) {
    let looks = async {
        while world.scheduler.stats(None).await.unwrap().deliveries.tries < count {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), looks).await.expect("the tries end");
}

#[tokio::test]
async fn a_webhook_contains_the_job_as_the_api_shows_it() {
    let ((world, _webhooks), (url, mut calls)) = (with_webhooks().await, receiver().await);
    for (kind, event) in [("echo", "job.succeeded"), ("fail", "job.failed")] {
        let id = world.submit(&json!({"kind": kind, "payload": {"n": 1}, "callback": url}).to_string()).await;
        let (headers, body) = next(&mut calls).await;
        let shown = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
        assert_eq!((&body, &shown["callback"]), (&shown, &json!(url)));
        assert_eq!(headers["laneway-event"], event);
        assert_eq!(headers["laneway-job-id"], id.as_str());
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(headers["webhook-id"], format!("dlv_{}", id.replace('-', "")));
    }
}

#[tokio::test]
async fn deliveries_are_listed_shown_and_sent_again() {
    let ((world, _webhooks), (url, mut calls)) = (with_webhooks().await, receiver().await);
    let body = json!({"kind": "echo", "callback": url}).to_string();
    let first = world.submit(&body).await;
    let second = world.submit(&body).await;
    next(&mut calls).await;
    next(&mut calls).await;
    tried(&world, 2).await;
    let list = world.ask("GET", "/v1/deliveries?limit=1", "").await;
    assert_eq!(list["deliveries"][0]["job_id"], json!(second));
    let cursor = list["next"].as_str().unwrap();
    let list = world.ask("GET", &format!("/v1/deliveries?limit=1&cursor={cursor}"), "").await;
    assert_eq!(list["deliveries"][0]["job_id"], json!(first));
    assert_eq!(world.ask("GET", "/v1/deliveries?state=waiting", "").await["deliveries"], json!([]));
    let list = world.ask("GET", &format!("/v1/deliveries?state=delivered&job={first}"), "").await;
    assert_eq!(list["deliveries"].as_array().unwrap().len(), 1);

    let mut one = world.ask("GET", &format!("/v1/deliveries/{first}"), "").await;
    one["history"][0]["took_ms"] = json!(0);
    assert_eq!(
        one,
        json!({
            "job_id": first, "state": "delivered", "tenant": "default", "url": url, "tries": 1,
            "created_at": "2023-11-14T22:13:20.000Z", "ended_at": "2023-11-14T22:13:20.000Z", "last_status": 200,
            "history": [{"number": 1, "at": "2023-11-14T22:13:20.000Z", "took_ms": 0, "status": 200}],
        })
    );
    let (status, again) = answer(world.request("POST", &format!("/v1/deliveries/{first}/replay"))).await;
    // The response shows the state after the call; on a busy machine the webhook may have been sent by then.
    assert!(
        status == 202 && ["waiting", "delivered"].map(Some).contains(&again["state"].as_str()),
        "{again}"
    );
    assert_eq!(next(&mut calls).await.1["id"], json!(first));
    tried(&world, 3).await;
    assert_eq!(world.ask("GET", &format!("/v1/deliveries/{first}"), "").await["tries"], json!(2));
    let audit = world.ask("GET", "/v1/audit", "").await;
    let detail = audit["entries"][0]["detail"].as_str().unwrap();
    assert!(detail.contains(&first) && detail.contains("sent again"), "{detail}");
}

#[tokio::test]
async fn deliveries_of_other_tenants_do_not_exist() {
    let ((world, _webhooks), (url, mut calls)) = (with_webhooks().await, receiver().await);
    let admin = world.token(None, Role::Admin).await;
    let (ours, theirs) =
        (world.token(Some("acme"), Role::Submitter).await, world.token(Some("other"), Role::Submitter).await);
    let body = json!({"kind": "echo", "callback": url}).to_string();
    let (status, job) = answer(world.request_as(&ours, "POST", "/v1/jobs").body(body)).await;
    assert_eq!(status.as_u16(), 201);
    let id = job["id"].as_str().unwrap();
    next(&mut calls).await;
    tried(&world, 1).await;
    for (token, found) in [(&ours, true), (&theirs, false), (&admin, true)] {
        let status = answer(world.request_as(token, "GET", &format!("/v1/deliveries/{id}"))).await.0;
        assert_eq!(status.as_u16(), if found { 200 } else { 404 });
        let list = answer(world.request_as(token, "GET", "/v1/deliveries")).await.1;
        assert_eq!(list["deliveries"].as_array().unwrap().len(), usize::from(found));
        let replay = world.request_as(token, "POST", &format!("/v1/deliveries/{id}/replay"));
        assert_eq!(answer(replay).await.0.as_u16(), if found { 202 } else { 404 });
    }
}

#[tokio::test]
async fn a_forbidden_callback_is_rejected_with_its_field_and_nothing_is_stored() {
    let world = World::new().await;
    for (url, expected) in [
        ("ftp://hooks.example/", "callback URL must use http or https"),
        ("http://user:pw@93.184.216.34/", "callback URL credentials are not allowed"),
        ("http:///done", "callback URL host is required"),
        ("http://127.0.0.1/hook", "callback URL host is not allowed"),
        ("http://localhost:9000/", "callback URL host is not allowed"),
        ("http://[::ffff:169.254.169.254]/", "callback URL host is not allowed"),
        ("", "invalid callback URL"),
    ] {
        let body = json!({"kind": "echo", "callback": url}).to_string();
        let (status, problem) = answer(world.request("POST", "/v1/jobs").body(body)).await;
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("callback")), "{url}");
        assert!(detail.contains(expected), "{url}: {detail}");
    }
    assert_eq!(world.ask("GET", "/v1/jobs", "").await["jobs"], json!([]));
}

#[tokio::test]
async fn each_job_of_a_batch_has_its_own_callback_error() {
    let world = World::new().await;
    let jobs = json!([
        {"kind": "echo", "callback": "https://93.184.216.34/done"},
        {"kind": "echo", "callback": "http://10.0.0.8/"},
        {"kind": "echo"},
    ]);
    let verdicts = world.ask("POST", "/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
    let statuses: Vec<_> =
        verdicts["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
    assert_eq!(statuses, [json!(201), json!(400), json!(201)]);
    assert_eq!(verdicts["items"][0]["job"]["callback"], "https://93.184.216.34/done");
    assert_eq!(verdicts["items"][1]["problem"]["field"], "callback");
    let body = json!({"jobs": jobs, "atomic": true}).to_string();
    let (status, problem) = answer(world.request("POST", "/v1/jobs/batch").body(body)).await;
    assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("jobs[1].callback")));
}

#[tokio::test]
async fn another_callback_is_another_request() {
    let world = World::new().await;
    let body = |path: &str| {
        json!({"kind": "echo", "idempotency_key": "i", "callback": format!("http://93.184.216.34/{path}")})
            .to_string()
    };
    world.submit(&body("a")).await;
    assert_eq!(answer(world.request("POST", "/v1/jobs").body(body("a"))).await.0.as_u16(), 200);
    let (status, problem) = answer(world.request("POST", "/v1/jobs").body(body("b"))).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("idempotency_mismatch")));
}

#[tokio::test]
async fn counts_are_shown_with_lanes_agents_and_the_page_for_prometheus() {
    let world = World::with_config("[lanes.main]\nqueued_per_agent_max = 1\nrunning_max = 1").await;
    let body = r#"{"kind":"unserved","agent":"a"}"#;
    world.submit(body).await;
    assert_eq!(answer(world.request("POST", "/v1/jobs").body(body)).await.0.as_u16(), 429);
    let stats = world.ask("GET", "/v1/stats", "").await;
    let lanes = stats["lanes"].as_array().unwrap();
    let main = lanes.iter().find(|lane| lane["name"] == "main").unwrap();
    for counts in [&main["counts"], &stats["agents"][0]["counts"]] {
        assert_eq!((&counts["submitted"], &counts["rejected"]), (&json!(1), &json!(1)));
    }
    let page = world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    for line in [
        "laneway_lane_rejected_total{lane=\"main\"} 1.0",
        "laneway_lane_queue_wait_seconds_total{lane=\"main\"} 0.0",
        "laneway_deliveries_waiting 0",
        "laneway_delivery_tries_total 0",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}
