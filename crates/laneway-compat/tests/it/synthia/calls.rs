//! HTTP details: bodies, lists, limits, tenants.

use laneway_core::{Claim, Holder, Name, Origin, QuietState, Reply, Role, Span};
use laneway_runtime::caller::Right;
use serde_json::{Value, json};

use super::intents::{BASE, IDLE, get, intent, post, state, submit};
use crate::world::{PATIENCE, World, answer};

#[tokio::test]
async fn a1_a_lease_request_may_name_capabilities_and_max_units() {
    let world = World::new(IDLE).await;
    for body in [
        json!({"worker_id": "w1"}),
        json!({"worker_id": "w1", "capabilities": ["gpu"], "max_units": 5}),
        json!({"worker_id": "w1", "capabilities": [], "max_units": null, "unknown": 1}),
    ] {
        let (status, reply) = post(&world, "/leases/request", body).await;
        assert_eq!((status, &reply["denied"], &reply["retry_after_ms"]), (200, &json!(true), &json!(1500)));
    }
    let (status, reply) =
        post(&world, "/leases/request", json!({"worker_id": "w1", "capabilities": "gpu"})).await;
    assert_eq!((status, &reply["detail"][0]["type"]), (422, &json!("list_type")));
}

#[tokio::test]
async fn a2_there_is_no_debug_route() {
    let world = World::new(IDLE).await;
    assert_eq!(answer(world.request("GET", &format!("{BASE}/debug/queue"))).await.0, 404);
}

#[tokio::test]
async fn b8_b25_lists_have_limits_filters_and_errors() {
    let world = World::new(IDLE).await;
    for number in 0..5 {
        submit(&world, json!({"addon_id": "a", "job_type": "j", "cost_units": 30, "payload": {"n": number}}))
            .await;
    }
    let count = async |query: &str| {
        let (status, list) = get(&world, &format!("/queue/jobs{query}")).await;
        assert_eq!(status, 200, "{query}: {list}");
        list["jobs"].as_array().unwrap().len()
    };
    assert_eq!(count("").await, 5);
    assert_eq!(count("?state=QUEUED").await, 2, "three of thirty units fit");
    assert_eq!(count("?state=DISPATCHING").await, 3);
    assert_eq!(count("?limit=0").await, 1, "a limit is at least one");
    assert_eq!(count("?limit=2").await, 2);
    assert_eq!(count("?limit=99999999").await, 5);
    assert_eq!(count("?addon_id=b").await, 0);
    let (_, list) = get(&world, "/queue/jobs?limit=1").await;
    assert_eq!((&list["jobs_len"], &list["reserved_units"]), (&json!(5), &json!(90)));
    assert_eq!(list["queue_depths"], json!({"high": 0, "normal": 2, "low": 0, "background": 0}));
    for path in ["/queue/jobs?state=queued", "/queue/jobs?limit=x", "/jobs?state=QUEUED", "/jobs?state=done"]
    {
        assert_eq!(get(&world, path).await.0, 422, "{path}");
    }
    for path in ["/queue/jobs/x", "/queue/jobs/00000000-0000-7000-8000-000000000000"] {
        let (status, reply) = get(&world, path).await;
        assert_eq!((status, &reply["detail"]), (404, &json!("job_not_found")));
    }
    let id = submit(&world, intent("a", 1)).await;
    let (status, reply) = post(&world, &format!("/queue/jobs/{id}/complete"), json!({"status": "ok"})).await;
    assert_eq!((status, &reply["detail"][0]["type"]), (422, &json!("literal_error")));
}

#[tokio::test]
async fn b12_w16_a_key_gives_the_first_job_in_both_queues_and_rejects_another_body() {
    let world = World::new(IDLE).await;
    for (path, body, other) in [
        ("/jobs", json!({"idempotency_key": "k", "payload": {"n": 1}}), json!({"idempotency_key": "k"})),
        (
            "/queue/jobs/submit",
            json!({"addon_id": "a", "job_type": "j", "cost_units": 1, "idempotency_key": "k"}),
            json!({"addon_id": "a", "job_type": "j", "cost_units": 2, "idempotency_key": "k"}),
        ),
    ] {
        let (_, first) = post(&world, path, body.clone()).await;
        let (status, again) = post(&world, path, body.clone()).await;
        assert_eq!((status, &again["job_id"]), (200, &first["job_id"]));
        let (status, reply) = post(&world, path, other).await;
        assert_eq!((status, &reply["detail"]), (409, &json!("idempotency_mismatch")));
        // The key expires: a day after the job's end it is free again.
        let job = first["job_id"].as_str().unwrap();
        let tenant = None;
        let id = laneway_core::JobId::parse(job).unwrap();
        world.scheduler.cancel(tenant, id, Origin::server("test")).await.unwrap();
    }
    world
        .configure(json!({"lanes": {"synthia": {"retention": "1h"}, "synthia_jobs": {"retention": "1h"}}}))
        .await;
    world.advance(Span::hours(25)).await;
    world.advance(Span::secs(11)).await;
    let (status, reply) = post(&world, "/jobs", json!({"idempotency_key": "k"})).await;
    assert_eq!(status, 200, "{reply}");
}

#[tokio::test]
async fn w18_w19_limits_are_settings_reasons_leak_nothing_and_calls_do_not_block() {
    let world = World::new(&format!("{IDLE}\nlanes.synthia.reservation_timeout = \"7s\"")).await;
    let id = submit(&world, intent("a", 20)).await;
    world.advance(Span::secs(6)).await;
    assert_eq!(get(&world, &format!("/queue/jobs/{id}")).await.1["state"], "DISPATCHING");
    world.advance(Span::secs(1)).await;
    assert_eq!(
        get(&world, &format!("/queue/jobs/{id}")).await.1["state"],
        "QUEUED",
        "the timeout is a setting"
    );
    let (_, denied) = post(&world, "/leases/request", json!({"worker_id": "w1"})).await;
    assert_eq!(denied["reason"], "No eligible job found", "without internal details");
    // The load of the host arrives as a command; the engine calls no probe while it decides.
    world.configure(json!({"capacity": {"measured": true}})).await;
    world.load(9, QuietState::Panic).await;
    assert_eq!(get(&world, "/status").await.1["usable_capacity_units"], 4);
}

#[tokio::test]
async fn w18_tenants_see_nothing_of_each_other() {
    let world = World::new(IDLE).await;
    let (mine, yours) =
        (world.token(Some("a"), Role::Submitter).await, world.token(Some("b"), Role::Submitter).await);
    let call = async |token: &str, method: &str, path: &str, body: Value| {
        let request = world.request(method, &format!("{BASE}{path}")).bearer_auth(token);
        let (status, reply) = answer(request.body(body.to_string())).await;
        (status.as_u16(), reply)
    };
    let (_, made) = call(&mine, "POST", "/queue/jobs/submit", intent("x", 10)).await;
    let path = format!("/queue/jobs/{}", made["job_id"].as_str().unwrap());
    let (_, seen) = call(&mine, "GET", &path, Value::Null).await;
    let lease = seen["lease_id"].as_str().unwrap();
    for (method, path, body) in [
        ("GET", path.clone(), Value::Null),
        ("GET", format!("{path}/events"), Value::Null),
        ("POST", format!("{path}/ack"), json!({})),
        ("POST", format!("{path}/complete"), json!({"status": "DONE"})),
        ("POST", format!("{path}/cancel"), Value::Null),
        ("POST", format!("/leases/{lease}/heartbeat"), json!({"worker_id": "x"})),
        ("POST", format!("/leases/{lease}/revoke"), json!({})),
    ] {
        assert_eq!(call(&yours, method, &path, body).await.0, 404, "{path}");
    }
    let (_, list) = call(&yours, "GET", "/queue/dispatchable", Value::Null).await;
    assert_eq!(list, json!({"jobs": []}));
    let (_, list) = call(&yours, "GET", "/queue/dispatchable?claim=true&worker_id=w", Value::Null).await;
    assert_eq!(list, json!({"jobs": []}));
    let (_, stats) = call(&yours, "GET", "/queue/stats", Value::Null).await;
    assert_eq!(stats["addons"], json!({}));
    assert!(!stats.to_string().contains(made["job_id"].as_str().unwrap()), "{stats}");
    assert_eq!(call(&mine, "GET", &path, Value::Null).await.1["state"], "DISPATCHING");
}

#[tokio::test]
async fn large_and_odd_bodies_are_rejected_without_harm() {
    let world = World::new(IDLE).await;
    let path = format!("{BASE}/queue/jobs/submit");
    let large = format!("{{\"addon_id\":\"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(answer(world.request("POST", &path).body(large)).await.0, 413);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(answer(world.request("POST", &path).body(deep)).await.0, 422);
    let odd = json!({"addon_id": "\u{1}\n odd ", "job_type": "x".repeat(500), "cost_units": 5,
        "earliest_start_at": 1e18, "tags": vec![""; 20]});
    assert_eq!(post(&world, "/queue/jobs/submit", odd).await.0, 422, "no such time");
    let odd = json!({"addon_id": "\u{1}\n odd ", "job_type": "x".repeat(500), "cost_units": 5, "tags": vec![""; 20]});
    let id = submit(&world, odd).await;
    let (_, seen) = get(&world, &format!("/queue/jobs/{id}")).await;
    assert_eq!((&seen["addon_id"], &seen["state"]), (&json!("\u{1}\n odd "), &json!("DISPATCHING")));
    assert_eq!(seen["job_type"].as_str().unwrap().len(), 500);
}

#[tokio::test]
async fn defect_12_pages_claim_nothing() {
    let world = World::new(IDLE).await;
    let id = submit(&world, intent("a", 1)).await;
    let path = format!("{BASE}/queue/dispatchable?claim=true&worker_id=w");
    let pages: [&[(&str, &str)]; 9] = [
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")],
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")],
        &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")],
        &[("referer", "http://evil.example/")],
        &[("user-agent", "Mozilla/5.0 (an old browser)")],
        // A program that could be an old browser behind a proxy, which adds headers.
        &[("user-agent", "python-httpx/0.27")],
        &[("x-forwarded-for", "10.0.0.1"), ("x-request-id", "r1")],
        &[("authorization", "Basic dXNlcjpwYXNz")],
        &[("sec-fetch-site", "cross-site"), ("content-type", "text/plain")],
    ];
    for headers in pages {
        let request = headers
            .iter()
            .fold(world.request("GET", &path), |call, (name, value)| call.header(*name, *value));
        assert_eq!(answer(request).await.0, 403, "{headers:?}");
    }
    assert_eq!(world.request("HEAD", &path).send().await.unwrap().status(), 403);
    assert_eq!(state(&world, &id).await, "DISPATCHING", "no worker has claimed it");
    let (_, listed) = answer(world.request("GET", &format!("{BASE}/queue/dispatchable"))).await;
    assert_eq!(listed["jobs"][0]["job_id"], *id, "the list of the original needs no header: {listed}");
    // A page of the same origin, or a request with a header that other pages cannot send.
    let mut id = id;
    for (name, value) in [
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "none"),
        ("x-laneway-claim", "1"),
        ("x-synthia-node-id", "node-1"),
        ("x-node-trust-token", "secret"),
        ("authorization", "Bearer secret"),
    ] {
        let (_, taken) = answer(world.request("GET", &path).header(name, value)).await;
        assert_eq!(taken["jobs"][0]["job_id"], *id, "{name}: {taken}");
        id = submit(&world, intent("a", 1)).await;
    }
    assert_eq!(post(&world, &format!("/queue/jobs/{id}/cancel"), json!({})).await.0, 200);
    // By POST, with a body or a query.
    let id = submit(&world, intent("a", 1)).await;
    let (status, taken) = post(&world, "/queue/dispatchable", json!({"worker_id": "w"})).await;
    assert_eq!((status, &taken["jobs"][0]["job_id"]), (200, &json!(id)));
    assert_eq!(post(&world, "/queue/dispatchable", json!({})).await.0, 422, "a claim names its worker");
}

#[tokio::test]
async fn defect_12_a_poll_whose_token_is_revoked_gets_no_job() {
    let world = World::in_real_time(IDLE).await;
    let admin = world.token(None, Role::Admin).await;
    let token = world.token(Some("acme"), Role::Worker).await;
    let path = format!("{BASE}/queue/dispatchable?claim=true&worker_id=w&wait=30");
    let listening = world.scheduler.events().listeners();
    let poll = tokio::spawn(answer(world.request("GET", &path).bearer_auth(&token)));
    // The poll has been authenticated once it listens.
    let begun = tokio::time::Instant::now();
    while world.scheduler.events().listeners() == listening {
        assert!(begun.elapsed() < PATIENCE, "the poll does not listen");
        tokio::task::yield_now().await;
    }
    let revoke = token.split('_').nth(1).unwrap();
    world.scheduler.revoke_token(None, Name::new(revoke).unwrap(), Origin::server("test")).await.unwrap();
    let (status, reply) = tokio::time::timeout(PATIENCE, poll).await.unwrap().unwrap();
    assert_eq!(status, 401, "{reply}");
    let submitted = world.request("POST", &format!("{BASE}/queue/jobs/submit")).bearer_auth(&admin);
    let submitted = submitted.header("laneway-tenant", "acme").body(intent("a", 1).to_string());
    let (_, job) = answer(submitted).await;
    assert_eq!(job["state"], "QUEUED", "{job}");
    // The engine gives no job to an expired token.
    let claim = Claim {
        tenant: Name::fixed("acme"),
        lane: Name::fixed("synthia"),
        agent: None,
        kinds: Vec::new(),
        max_cost: None,
        holder: Holder { worker: Name::fixed("w"), pid: None, boot: None },
        start: false,
        token: Some(Name::new(revoke).unwrap()),
    };
    assert!(matches!(world.scheduler.claim(claim.clone()).await.unwrap(), Reply::NotFound));
    let granted = world.scheduler.claim(Claim { token: None, ..claim }).await.unwrap();
    assert!(matches!(granted, Reply::Granted(_)), "{granted:?}");
}

#[tokio::test]
async fn defect_12_only_reads_are_get() {
    let world = World::new(IDLE).await;
    // Workers may read, too; the first of these claims jobs only for programs, see above.
    let for_workers = ["list_dispatchable", "stream_intent_events", "get_admission"];
    assert!(world.gets.len() > 30, "{:?}", world.gets);
    for (operation, right) in &world.gets {
        let reads = matches!(right, Right::Look | Right::Anyone) || for_workers.contains(operation);
        assert!(reads, "GET of {operation} asks for {right:?}");
    }
}
