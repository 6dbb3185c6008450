//! Leases over HTTP: requested, denied with a reason, reported on, and released.

use laneway_core::{Role, Span};
use serde_json::{Value, json};

use crate::world::{World, answer};

/// A lane of pull workers, on a machine without load readings.
const CLAIMS: &str = "capacity.measured = false\nlanes.bulk.dispatch = \"claim\"\nlanes.bulk.lease = \"60s\"";

async fn post(world: &World, path: &str, body: Value) -> (u16, Value) {
    let (status, response) = answer(world.request("POST", path).body(body.to_string())).await;
    (status.as_u16(), response)
}

async fn lease(world: &World, body: Value) -> Value {
    let (status, answer) = post(world, "/v1/leases", body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

#[tokio::test]
async fn a_worker_requests_runs_and_releases() {
    let world = World::with_config(CLAIMS).await;
    let denied = lease(&world, json!({"worker": "w1", "lane": "bulk"})).await;
    let nothing = json!({"granted": false, "reason": "nothing_eligible", "message": "No waiting job matches the request.",
        "retry_after": "1s500ms", "retry_after_ms": 1500});
    assert_eq!(denied, nothing);
    let id = world
        .submit(r#"{"kind":"render","lane":"bulk","cost":40,"quiet":"quiet","agent":"a","payload":{"n":1}}"#)
        .await;
    let given = lease(&world, json!({"worker": "w1", "pid": 7, "lane": "bulk", "kinds": ["render"]})).await;
    let held = &given["lease"];
    assert_eq!((&given["granted"], &given["payload"]), (&json!(true), &json!({"n": 1})));
    assert_eq!((&held["job"], &held["worker"], &held["cost"]), (&json!(id), &json!("w1"), &json!(40)));
    assert_eq!(held["expires_at"], "2023-11-14T22:14:20.000Z");
    let path = format!("/v1/leases/{}", held["id"].as_str().unwrap());
    assert_eq!(world.ask("GET", &path, "").await, *held);
    assert_eq!(world.ask("GET", "/v1/leases?lane=bulk&worker=w1", "").await, json!({"leases": [held]}));
    assert_eq!(world.ask("GET", "/v1/leases?lane=main", "").await, json!({"leases": []}));
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!((&job["state"], &job["worker"], &job["pid"]), (&json!("running"), &json!("w1"), &json!(7)));
    assert_eq!((&job["cost"], &job["quiet"]), (&json!(40), &json!("quiet")));

    world.clock.advance(Span::secs(50));
    let (status, alive) = post(&world, &format!("{path}/heartbeat"), json!({"worker": "w1"})).await;
    assert_eq!(
        (status, &alive),
        (200, &json!({"expires_at": "2023-11-14T22:15:10.000Z", "ttl_ms": 60000, "stop": false}))
    );
    let (status, problem) = post(&world, &format!("{path}/heartbeat"), json!({"worker": "w2"})).await;
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")));
    let report = json!({"worker": "w1", "progress": 0.5, "message": "half way"});
    assert_eq!(post(&world, &format!("{path}/report"), report).await.0, 204);
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!(job["progress"]["fraction"], 0.5);

    let release = json!({"worker": "w1", "outcome": "succeeded", "result": {"files": 3}});
    assert_eq!(post(&world, &format!("{path}/release"), release.clone()).await.0, 204);
    assert_eq!(post(&world, &format!("{path}/release"), release).await.0, 404, "it has ended already");
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!({"files": 3})));
}

#[tokio::test]
async fn capacity_shows_the_units_of_each_agent() {
    let world = World::with_config(CLAIMS).await;
    let idle = world.ask("GET", "/v1/capacity", "").await;
    assert_eq!(
        idle,
        json!({"busy": 0, "quiet": "quiet", "fresh": true, "total": 100, "usable": 90, "used": 0, "reserved": 0,
            "free": 90, "leases": 0, "agents": []})
    );
    let new = json!({"worker": "w1", "new": {"kind": "x", "lane": "bulk", "cost": 60, "agent": "a"}});
    assert_eq!(lease(&world, new.clone()).await["granted"], true);
    let denied = lease(&world, new).await;
    assert_eq!((&denied["reason"], &denied["retry_after"]), (&json!("needs_more"), &json!("2s")));
    assert_eq!(denied["message"], "The job needs 60 units, and 30 are free.");
    let held = world.ask("GET", "/v1/capacity", "").await;
    assert_eq!((&held["used"], &held["free"], &held["leases"]), (&json!(60), &json!(30), &json!(1)));
    assert_eq!(held["agents"], json!([{"tenant": "default", "agent": "a", "units": 60}]));
    let (status, config) =
        answer(world.request("PATCH", "/v1/config").body(r#"{"capacity":{"total":200}}"#)).await;
    assert_eq!(status, 200, "{config}");
    assert_eq!(world.ask("GET", "/v1/capacity", "").await["usable"], 185);
}

#[tokio::test]
async fn a_revoked_lease_fails_its_job_and_stops_its_attempt() {
    let world = World::with_config(CLAIMS).await;
    let new = json!({"worker": "w1", "new": {"kind": "x", "lane": "bulk", "cost": 60}});
    let given = lease(&world, new).await;
    let (id, job) = (given["lease"]["id"].as_str().unwrap(), given["lease"]["job"].as_str().unwrap());
    let path = format!("/v1/leases/{id}");
    assert_eq!(post(&world, &format!("{path}/revoke"), json!({"reason": "enough"})).await.0, 204);
    assert_eq!(post(&world, &format!("{path}/revoke"), json!({})).await.0, 404);
    let shown = world.ask("GET", &format!("/v1/jobs/{job}"), "").await;
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("failed"), &json!("revoked")));
    assert_eq!(shown["error"]["message"], "enough");
    let (_, alive) = post(&world, &format!("{path}/heartbeat"), json!({"worker": "w1"})).await;
    assert_eq!(alive["stop"], true);
    assert_eq!(world.ask("GET", "/v1/capacity", "").await["used"], 60, "its attempt has not ended yet");
    post(&world, &format!("{path}/release"), json!({"worker": "w1", "outcome": "canceled"})).await;
    assert_eq!(world.ask("GET", "/v1/capacity", "").await["used"], 0);
}

#[tokio::test]
async fn invalid_requests_name_their_field() {
    let world = World::with_config(CLAIMS).await;
    for (path, body, status, code, field) in [
        ("/v1/leases", json!({"worker": "w1"}), 400, "invalid_field", Some("lane")),
        ("/v1/leases", json!({"worker": "", "lane": "bulk"}), 400, "invalid_field", Some("worker")),
        ("/v1/leases", json!({"worker": "w1", "lane": "nowhere"}), 422, "unknown_lane", Some("lane")),
        ("/v1/leases", json!({"worker": "w1", "lane": "main"}), 422, "invalid", None),
        ("/v1/leases", json!({"worker": "w1", "job": "x"}), 400, "invalid_id", None),
        (
            "/v1/leases",
            json!({"worker": "w1", "new": {"kind": "k", "lane": "bulk", "cost": 95}}),
            422,
            "never_fits",
            Some("cost"),
        ),
        ("/v1/jobs", json!({"kind": "k", "cost": 101}), 400, "invalid_field", Some("cost")),
        ("/v1/jobs", json!({"kind": "k", "cost": 95}), 422, "never_fits", Some("cost")),
        ("/v1/jobs", json!({"kind": "k", "quiet": "panic"}), 400, "invalid_field", Some("quiet")),
        (
            "/v1/jobs",
            json!({"kind": "k", "hours": "22:00-06:00 Europe/Nowhere"}),
            400,
            "invalid_field",
            Some("hours"),
        ),
        ("/v1/leases/nonsense/heartbeat", json!({"worker": "w1"}), 400, "invalid_id", None),
        (
            "/v1/leases/00000000-0000-4000-8000-000000000000/release",
            json!({"worker": "w1", "outcome": "well"}),
            400,
            "invalid_field",
            Some("outcome"),
        ),
        (
            "/v1/leases/00000000-0000-4000-8000-000000000000/report",
            json!({"worker": "w1", "progress": 2}),
            400,
            "invalid_field",
            Some("progress"),
        ),
    ] {
        let (response, problem) = post(&world, path, body.clone()).await;
        let found = problem["field"].as_str();
        assert_eq!(
            (response, problem["code"].as_str().unwrap(), found),
            (status, code, field),
            "{body}: {problem}"
        );
    }
}

#[tokio::test]
async fn tenants_see_and_hold_their_own_leases_only() {
    let world = World::with_config(CLAIMS).await;
    let (mine, yours) =
        (world.token(Some("a"), Role::Worker).await, world.token(Some("b"), Role::Worker).await);
    let submitter = world.token(Some("a"), Role::Submitter).await;
    let submit =
        world.request_as(&submitter, "POST", "/v1/jobs").body(r#"{"kind":"k","lane":"bulk","cost":5}"#);
    assert_eq!(answer(submit).await.0, 201);
    let ask = |token: &str| {
        let body = json!({"worker": "w1", "lane": "bulk"}).to_string();
        answer(world.request_as(token, "POST", "/v1/leases").body(body))
    };
    assert_eq!(ask(&yours).await.1["granted"], false, "the job is another tenant's");
    let given = ask(&mine).await.1;
    assert_eq!(given["granted"], true);
    let beat = |token: &str| {
        let path = format!("/v1/leases/{}/heartbeat", given["lease"]["id"].as_str().unwrap());
        answer(world.request_as(token, "POST", &path).body(r#"{"worker":"w1"}"#))
    };
    assert_eq!(beat(&yours).await.0, 404);
    assert_eq!(beat(&mine).await.0, 200);
    let other = world.token(Some("b"), Role::Viewer).await;
    let (_, list) = answer(world.request_as(&other, "GET", "/v1/leases")).await;
    assert_eq!(list, json!({"leases": []}));
    let (_, capacity) = answer(world.request_as(&other, "GET", "/v1/capacity")).await;
    assert_eq!((&capacity["used"], &capacity["agents"]), (&json!(5), &json!([])));
}

#[tokio::test]
async fn hours_follow_the_clock_of_their_zone() {
    // It is 23:13 in Berlin and 22:13 in UTC.
    let world = World::with_config("capacity.measured = false").await;
    for (hours, state) in [
        ("22:00-06:00 Europe/Berlin", "queued"),
        ("22:00-23:00 Europe/Berlin", "scheduled"),
        ("22:00-23:00", "queued"),
        ("07:00-09:00 +08:00", "scheduled"),
    ] {
        let id = world.submit(&json!({"kind": "k", "hours": hours}).to_string()).await;
        let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
        assert_eq!((&job["state"], &job["hours"]), (&json!(state), &json!(hours)));
    }
}
