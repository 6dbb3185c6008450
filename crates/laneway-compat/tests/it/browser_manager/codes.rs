//! A test for every code of a request that is rejected before a job exists. Nothing is enqueued by any of them.

use std::time::Duration;

use laneway_core::command::AdminCommand;
use laneway_core::{Command, Origin, Role};
use serde_json::{Value, json};

use super::world::{Rule, World};

/// Every call that enqueues a job for a profile.
const FOR_PROFILES: [&str; 5] =
    ["/api/env/start", "/api/env/close", "/api/env/removeLocalCache", "/api/env/clone", "/api/script/run"];

/// A body that is valid but for the id.
fn body(path: &str, id: Value) -> Value {
    match path {
        "/api/script/run" => json!({"id": id, "program": {"path": "/bin/true"}}),
        _ => json!({"id": id}),
    }
}

async fn rejects(world: &World, path: &str, body: Value, status: u16, code: i32) -> String {
    let before = world.job_count().await;
    let (found, answer) = world.post(path, body.clone()).await;
    assert_eq!((found, &answer["code"]), (status, &json!(code)), "{path} {body}: {answer}");
    assert_eq!(answer["data"], Value::Null, "{answer}");
    assert!(answer["requestId"].as_str().is_some_and(|id| !id.is_empty()), "{answer}");
    assert_eq!(world.job_count().await, before, "{path} {body}: nothing is enqueued");
    answer["msg"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn code_1001_unknown_profile() {
    let world = World::new("").await;
    for path in FOR_PROFILES {
        for id in ["no-such-profile", "NOT/A/PROFILE", "../../etc", "p 1", "käse"] {
            rejects(&world, path, body(path, json!(id)), 404, -1001).await;
        }
    }
    rejects(&world, "/api/proxy/test", json!({"id": "no-such-profile"}), 404, -1001).await;
    rejects(&world, "/api/profiles/no-such-profile/restore", json!({}), 404, -1001).await;
    rejects(&world, "/api/profiles/..%2f..%2fetc/restore", json!({}), 404, -1001).await;
}

#[tokio::test]
async fn code_1004_profile_in_the_recycle_bin() {
    let world = World::new("").await;
    let id = world.trashed_profile("old").await;
    for path in FOR_PROFILES.into_iter().filter(|path| *path != "/api/env/close") {
        rejects(&world, path, body(path, json!(id)), 422, -1004).await;
    }
    rejects(&world, "/api/proxy/test", json!({"id": id}), 422, -1004).await;
}

#[tokio::test]
async fn code_1601_missing_field() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    for path in FOR_PROFILES {
        for value in [Value::Null, json!(""), json!(" ")] {
            let message = rejects(&world, path, body(path, value), 400, -1601).await;
            assert!(message.contains("id"), "{message}");
        }
        let (status, answer) = world.ask("POST", path, Value::Null).await;
        assert_eq!((status, &answer["code"]), (400, &json!(-1601)), "an empty body: {path}");
    }
    rejects(&world, "/api/script/run", json!({"id": id}), 400, -1601).await;
    rejects(&world, "/api/proxy/test", json!({}), 400, -1601).await;
    rejects(&world, "/api/proxy/test", json!({"proxy": {"port": 1}}), 400, -1601).await;
    rejects(&world, "/api/proxy/test", json!({"proxy": {"host": "h"}}), 400, -1601).await;
    rejects(&world, "/api/env/removeToRecycleBin/batch", json!({}), 400, -1601).await;
    rejects(&world, "/api/env/create/quick", json!({"window": {"width": 800}}), 400, -1601).await;
    rejects(&world, "/api/settings", json!({}), 400, -1601).await;
}

#[tokio::test]
async fn code_1602_wrong_type() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    for path in FOR_PROFILES {
        for value in [json!(7), json!(true), json!(["a"]), json!({})] {
            rejects(&world, path, body(path, value), 400, -1602).await;
        }
        let (status, answer) = world.post(path, json!([1])).await;
        assert_eq!((status, &answer["code"]), (400, &json!(-1602)), "a list as body: {path}");
    }
    rejects(&world, "/api/env/start", json!({"id": id, "failFast": "yes"}), 400, -1602).await;
    rejects(&world, "/api/env/start", json!({"id": id, "headless": 1}), 400, -1602).await;
    rejects(&world, "/api/env/start", json!({"id": id, "callbackUrl": 1}), 400, -1602).await;
    rejects(&world, "/api/env/clone", json!({"id": id, "name": 1}), 400, -1602).await;
    rejects(&world, "/api/script/run", json!({"id": id, "script": {}, "timeout": "5"}), 400, -1602).await;
    rejects(&world, "/api/script/run", json!({"id": id, "program": "x"}), 400, -1602).await;
    rejects(&world, "/api/proxy/test", json!({"proxy": "http://h:1"}), 400, -1602).await;
    rejects(&world, "/api/recycleBin/cleanup", json!({"retentionDays": "x"}), 400, -1602).await;
    rejects(&world, "/api/env/removeToRecycleBin/batch", json!({"ids": "a"}), 400, -1602).await;
    rejects(&world, "/api/env/removeToRecycleBin/batch", json!({"ids": [1]}), 400, -1602).await;
    rejects(&world, "/api/env/create/quick", json!({"name": 1}), 400, -1602).await;
    rejects(&world, "/api/env/create/quick", json!({"window": [1, 2]}), 400, -1602).await;
    rejects(&world, "/api/settings", json!({"agent.max_queue_size": "9"}), 400, -1602).await;
}

#[tokio::test]
async fn code_1603_out_of_range() {
    let world = World::new("").await;
    let id = world.profile("shop").await;
    for timeout in [json!(3_601), json!(0), json!(-1), json!(u64::MAX)] {
        for field in ["timeout", "timeoutSeconds"] {
            let body = json!({"id": id, "program": {"path": "/bin/true"}, field: timeout});
            let message = rejects(&world, "/api/script/run", body, 400, -1603).await;
            assert!(message.contains(field) && message.contains("3600"), "{message}");
        }
    }
    let accepted = json!({"id": id, "program": {"path": "/bin/true"}, "timeout": 3_600});
    let job = world.enqueue("/api/script/run", accepted).await;
    assert_eq!(world.job(&job).await["timeoutSeconds"], 3_600);
    let default = world.enqueue("/api/script/run", json!({"id": id, "program": {"path": "/bin/true"}})).await;
    assert_eq!(world.job(&default).await["timeoutSeconds"], 300);
    rejects(&world, "/api/script/run", json!({"id": id, "script": {"steps": 7}}), 400, -1603).await;
    for (steps, text) in [
        (json!([]), "script.steps must have 1 to 500 steps, and has 0"),
        (json!([{"kind": "navigate"}]), "script.steps[0].url is required"),
    ] {
        let body = json!({"id": id, "script": {"steps": steps}});
        let message = rejects(&world, "/api/script/run", body, 400, -1603).await;
        assert!(message.ends_with(text), "{message}");
    }
    rejects(&world, "/api/proxy/test", json!({"proxy": {"host": "h", "port": 0}}), 400, -1603).await;
    rejects(
        &world,
        "/api/proxy/test",
        json!({"proxy": {"host": "h", "port": 1, "scheme": "ftp"}}),
        400,
        -1603,
    )
    .await;
    rejects(&world, "/api/env/start", json!({"id": id, "callbackUrl": "ftp://x/"}), 400, -1603).await;
    rejects(&world, "/api/env/removeToRecycleBin/batch", json!({"ids": []}), 400, -1603).await;
    rejects(&world, "/api/env/removeToRecycleBin/batch", json!({"ids": vec!["a"; 101]}), 400, -1603).await;
    rejects(&world, "/api/env/create/quick", json!({"window": {"width": 1, "height": 1}}), 400, -1603).await;
    rejects(&world, "/api/env/create/quick", json!({"timeZone": "Mars/Base"}), 400, -1603).await;
    rejects(&world, "/api/env/create/quick", json!({"id": "NO WAY"}), 400, -1603).await;
    rejects(&world, "/api/settings", json!({"agent.max_queue_size": 0}), 400, -1603).await;
    rejects(&world, "/api/recycleBin/cleanup", json!({"retentionDays": -1}), 400, -1603).await;
}

#[tokio::test]
async fn code_1604_not_one_of_the_values() {
    let world = World::new("").await;
    for path in [
        "/api/jobs?status=done",
        "/api/jobs?status=cancelled",
        "/api/jobs?jobType=echo",
        "/api/env/list?status=gone",
        "/api/logs/stream?level=loud",
    ] {
        let (status, answer) = world.get(path).await;
        assert_eq!((status, &answer["code"]), (400, &json!(-1604)), "{path}: {answer}");
    }
}

#[tokio::test]
async fn code_1605_malformed_json() {
    let world = World::new("").await;
    for path in
        FOR_PROFILES.into_iter().chain(["/api/env/closeAll", "/api/env/create/quick", "/api/settings"])
    {
        for text in ["{", "{\"id\":}", "id=1", "nul", "{}{}", "\u{0}"] {
            let (status, answer) = world.answer(world.request("POST", path).body(text)).await;
            assert_eq!((status, &answer["code"]), (400, &json!(-1605)), "{path} {text:?}: {answer}");
        }
        let request = world.request("POST", path).body(b"\xff\xfe{}".to_vec());
        assert_eq!(world.answer(request).await.1["code"], -1605);
    }
    assert_eq!(world.job_count().await, 0);
}

#[tokio::test]
async fn code_1606_too_long() {
    let world = World::new("").await;
    let long = "x".repeat(5_000);
    for path in FOR_PROFILES {
        rejects(&world, path, body(path, json!("p".repeat(129))), 400, -1606).await;
        rejects(&world, path, body(path, json!("p".repeat(65))), 400, -1606).await;
    }
    let id = world.profile("shop").await;
    rejects(&world, "/api/env/clone", json!({"id": id, "name": long}), 400, -1606).await;
    rejects(&world, "/api/env/start", json!({"id": id, "callbackUrl": long}), 400, -1606).await;
    rejects(&world, "/api/env/create/quick", json!({"name": long}), 400, -1606).await;
    rejects(&world, "/api/env/create/quick", json!({"id": "p".repeat(65)}), 400, -1606).await;
    rejects(&world, "/api/env/create/quick", json!({"name": "n".repeat(300)}), 400, -1606).await;
    let large = json!({"id": id, "more": "y".repeat(2 << 20)});
    rejects(&world, "/api/env/start", large, 400, -1606).await;
}

#[tokio::test]
async fn code_1607_paging() {
    let world = World::new("").await;
    for path in ["/api/jobs", "/api/env/list"] {
        for query in
            ["pageNum=0", "pageNum=-1", "pageSize=0", "pageSize=101", "pageNum=999999999&pageSize=100"]
        {
            let (status, answer) = world.get(&format!("{path}?{query}")).await;
            assert_eq!((status, &answer["code"]), (400, &json!(-1607)), "{path} {query}: {answer}");
        }
        let (status, answer) = world.get(&format!("{path}?pageNum=one")).await;
        assert_eq!((status, &answer["code"]), (400, &json!(-1602)), "{path}: {answer}");
        assert_eq!(world.get(&format!("{path}?pageNum=1&pageSize=100")).await.0, 200);
    }
}

#[tokio::test]
async fn code_1801_there_is_no_cloud() {
    let world = World::new("").await;
    for text in ["", "{}", "{\"id\":\"p\"}", "no json"] {
        let request = world.request("POST", "/api/env/cache/cleanCloud").body(text);
        let (status, answer) = world.answer(request).await;
        assert_eq!((status, &answer["code"]), (501, &json!(-1801)), "{answer}");
    }
    assert_eq!(world.job_count().await, 0);
}

#[tokio::test]
async fn codes_1501_to_1504_tokens() {
    let world = World::new("").await;
    let admin = world.token(None, Role::Admin).await;
    let viewer = world.token(Some("acme"), Role::Viewer).await;
    let submitter = world.token(Some("acme"), Role::Submitter).await;
    let call = async |method: &str, path: &str, token: Option<&str>| {
        let mut request = world.request(method, path).body("{}");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let (status, answer) = world.answer(request).await;
        (status, answer["code"].as_i64().unwrap())
    };
    for path in ["/api/jobs", "/api/env/list", "/api/logs/stream", "/ws/jobs/x", "/api/settings"] {
        assert_eq!(call("GET", path, None).await, (401, -1501), "{path}");
        assert_eq!(call("GET", path, Some("nonsense")).await, (401, -1502), "{path}");
    }
    assert_eq!(call("GET", "/api/jobs", Some(&viewer)).await, (200, 0));
    assert_eq!(call("POST", "/api/env/closeAll", Some(&viewer)).await, (403, -1504));
    assert_eq!(call("POST", "/api/db/migrate", Some(&submitter)).await, (403, -1504));
    assert_eq!(call("POST", "/api/script/run", Some(&submitter)).await, (403, -1504));
    assert_eq!(call("POST", "/api/settings", Some(&submitter)).await, (403, -1504));
    assert_eq!(call("POST", "/api/env/closeAll", Some(&submitter)).await, (200, 0));
    let id = laneway_core::Name::new(viewer.split('_').nth(1).unwrap()).unwrap();
    world.scheduler.revoke_token(None, id, Origin::server("test")).await.unwrap();
    assert_eq!(call("GET", "/api/jobs", Some(&viewer)).await, (401, -1503));
    assert_eq!(call("GET", "/api/jobs", Some(&admin)).await, (200, 0));
    let response = world.request("GET", "/api/jobs").send().await.unwrap();
    assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"browser_manager\"");
}

#[tokio::test]
async fn code_1505_too_many_requests() {
    let world = World::limited("").await;
    let mut statuses = Vec::new();
    for _ in 0..150 {
        let response = world.request("GET", "/api/jobs").send().await.unwrap();
        let limited = response.status() == 429;
        statuses.push(response.status().as_u16());
        if limited {
            assert_eq!(response.headers()["retry-after"], "1");
            let answer: Value = response.json().await.unwrap();
            assert_eq!(answer["code"], -1505, "{answer}");
            break;
        }
    }
    // A window may begin anew on the way, but not often within 150 calls.
    assert_eq!(statuses.last(), Some(&429), "{}", statuses.len());
    assert!(statuses.len() > 100, "100 requests in a second are allowed: {}", statuses.len());
}

#[tokio::test]
async fn code_1403_queue_full() {
    let world = World::new("lanes.browsers.queued_max = 2\nlanes.browsers.running_max = 1").await;
    world.rules.add("browser_stop_all", Rule::Hold);
    let first = world.enqueue("/api/env/closeAll", json!({})).await;
    world.running(&first).await;
    for _ in 0..2 {
        world.enqueue("/api/env/closeAll", json!({})).await;
    }
    let (status, answer) = world.post("/api/env/closeAll", json!({})).await;
    assert_eq!((status, &answer["code"]), (422, &json!(-1403)), "{answer}");
    assert_eq!(answer["msg"], "Job queue full");
    assert_eq!(world.job_count().await, 3);
    // A repeated key is answered although the queue is full.
    let (status, _) = world.post("/api/env/closeAll", json!({"idempotencyKey": "k"})).await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn code_1404_the_agent_stops() {
    let world = World::new("").await;
    world.drain(Duration::ZERO).await;
    let (status, answer) = world.post("/api/env/closeAll", json!({})).await;
    assert_eq!((status, &answer["code"]), (503, &json!(-1404)), "{answer}");
}

#[tokio::test]
async fn code_1704_the_disk_is_full() {
    let world = World::new("").await;
    world.scheduler.send(Command::Admin(AdminCommand::StorageLow(true))).await.unwrap();
    let (status, answer) = world.post("/api/env/closeAll", json!({})).await;
    assert_eq!((status, &answer["code"]), (507, &json!(-1704)), "{answer}");
}

#[tokio::test]
async fn code_1600_unknown_paths_and_methods() {
    let world = World::new("").await;
    for (method, path, status) in [
        ("GET", "/api/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/v1/jobs", 404),
        ("DELETE", "/api/jobs", 405),
        ("GET", "/api/env/start", 405),
    ] {
        let (found, answer) = world.ask(method, path, Value::Null).await;
        assert_eq!((found, &answer["code"]), (status, &json!(-1600)), "{method} {path}: {answer}");
    }
}

#[tokio::test]
async fn the_request_id_of_the_client_is_taken_over() {
    let world = World::new("").await;
    for (path, method) in
        [("/api/jobs", "GET"), ("/api/jobs/x", "GET"), ("/nothing", "GET"), ("/api/jobs", "PUT")]
    {
        let response = world.request(method, path).header("x-request-id", "req-xyz").send().await.unwrap();
        assert_eq!(response.headers()["x-request-id"], "req-xyz", "{path}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["requestId"], "req-xyz", "{path}: {answer}");
    }
    world.token(None, Role::Admin).await;
    let response = world.request("GET", "/api/jobs").header("x-request-id", "mine").send().await.unwrap();
    let answer: Value = response.json().await.unwrap();
    assert_eq!((&answer["code"], &answer["requestId"]), (&json!(-1501), &json!("mine")));
    let response = world.request("GET", "/api/jobs").header("x-request-id", "b a d").send().await.unwrap();
    let own = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    let answer: Value = response.json().await.unwrap();
    assert_eq!((answer["requestId"].as_str().unwrap(), own == "b a d"), (own.as_str(), false));
}

#[tokio::test]
async fn code_1005_and_1007_with_a_real_browser() {
    let world = World::with_browsers("keys.browser.limit = 1").await;
    let (one, other) = (world.profile("one").await, world.profile("other").await);
    let id = world.enqueue("/api/env/start", json!({"id": one, "failFast": true})).await;
    let job = world.ended(&id).await;
    assert_eq!(job["status"], "succeeded", "{job}");
    assert!(job["result"]["debugPort"].as_u64().is_some_and(|port| port > 0), "{job}");
    assert!(
        job["result"]["devtoolsUrl"].as_str().is_some_and(|url| url.starts_with("ws://127.0.0.1:")),
        "{job}"
    );
    let message = rejects(&world, "/api/env/start", json!({"id": one}), 409, -1005).await;
    assert!(message.starts_with("Profile is already open"), "{message}");
    rejects(&world, "/api/env/start", json!({"id": other, "failFast": true}), 422, -1007).await;
    let (_, answer) = world.post("/api/env/removeToRecycleBin/batch", json!({"ids": [one]})).await;
    assert_eq!(answer["data"]["failed"][0]["code"], -1005, "{answer}");
    let (_, health) = world.get("/health").await;
    assert_eq!(health["browsers"], json!({"active": 1, "max": 1}));
    // Without `failFast` the start waits for the place, which is free when the first browser is closed.
    let waiting = world.enqueue("/api/env/start", json!({"id": other})).await;
    world.queued(&waiting).await;
    let close = world.enqueue("/api/env/close", json!({"id": one})).await;
    assert_eq!(world.ended(&close).await["status"], "succeeded");
    assert_eq!(world.ended(&waiting).await["status"], "succeeded");
    let all = world.enqueue("/api/env/closeAll", json!({})).await;
    assert_eq!(world.ended(&all).await["status"], "succeeded");
}

#[tokio::test]
async fn code_1007_when_other_tenants_have_the_places_of_the_machine() {
    let world = World::with_browsers("browsers.open_max = 2").await;
    let tokens =
        [world.token(Some("acme"), Role::Operator).await, world.token(Some("other"), Role::Operator).await];
    let post = async |token: &str, path: &str, body: Value| {
        world.answer(world.request("POST", path).bearer_auth(token).body(body.to_string())).await
    };
    let start = async |token: &str, id: &str| {
        let (status, made) = post(token, "/api/env/create/quick", json!({"id": id})).await;
        assert_eq!(status, 200, "{made}");
        post(token, "/api/env/start", json!({"id": id, "failFast": true})).await
    };
    let (_, first) = start(&tokens[0], "p1").await;
    let job = laneway_core::JobId::parse(first["data"]["jobId"].as_str().unwrap()).unwrap();
    world.scheduler.wait(job).await.unwrap();
    // The second place is kept for a tenant that has none.
    let (status, answer) = start(&tokens[0], "p2").await;
    assert_eq!((status, &answer["code"]), (422, &json!(-1007)), "{answer}");
    assert!(answer["msg"].as_str().unwrap().contains("browsers.open_max"), "{answer}");
    let (status, answer) = start(&tokens[1], "p1").await;
    assert_eq!((status, &answer["code"]), (200, &json!(0)), "{answer}");
    let job = laneway_core::JobId::parse(answer["data"]["jobId"].as_str().unwrap()).unwrap();
    let ended = world.scheduler.wait(job).await.unwrap();
    assert_eq!(ended.state(), laneway_core::JobState::Succeeded);
    // The limit of a tenant is one here; two tenants have two.
    assert_eq!(world.get("/health").await.1["browsers"], json!({"active": 2, "max": 2}));
    world.browsers.shut_down(Duration::from_secs(30)).await;
}
