//! Schedules over HTTP: created, changed, fired, logged, previewed, and rejected.

use expect_test::expect;
use laneway_core::{Failure, Role, Span};
use laneway_runtime::Handlers;
use serde_json::{Value, json};

use crate::world::{World, answer, without_ids};

/// Creates a schedule and returns its id.
async fn create(world: &World, body: &Value) -> String {
    let schedule = world.ask("POST", "/v1/schedules", &body.to_string()).await;
    schedule["id"].as_str().unwrap().to_owned()
}

fn every(name: &str, every: &str) -> Value {
    json!({"name": name, "every": every, "job": {"kind": "report"}})
}

/// Registers `report`, which returns its payload, and `break`, which fails permanently.
async fn with_reports(world: &World) {
    let report = |job: laneway_runtime::JobContext| async move {
        Ok::<_, Failure>(serde_json::from_slice::<Value>(job.payload()).unwrap())
    };
    let breaks = |_: laneway_runtime::JobContext| async move {
        Err::<(), _>(Failure::permanent("broken", "it broke"))
    };
    world.run(Handlers::new().on("report", report).on("break", breaks)).await;
}

/// Lets time pass until the firing log of a schedule has `total` entries.
async fn until_logged(world: &World, id: &str, total: u64) -> Value {
    loop {
        let runs = world.ask("GET", &format!("/v1/schedules/{id}/firings"), "").await;
        if runs["total"].as_u64() >= Some(total) {
            return runs;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn creates_and_shows_a_schedule() {
    let world = World::new().await;
    let body = r#"{"name":"daily report","cron":"0 9 * * 1-5","zone":"Europe/Berlin","job":{"kind":"report",
        "payload":{"big":12345678901234567890123, "x":1},"session":{"key":"chat/7","cap":3},"priority":"high",
        "retry":{"retries_max":0},"tags":["t"]},"catch_up":{"all":100},"overlap":"queue","jitter":"30s"}"#;
    let made = world.talk("POST", "/v1/schedules", body).await;
    expect![[r#"
        201 Created
        content-type: application/json
        location: /v1/schedules/sch_<id>
        {
          "catch_up": {
            "all": 100
          },
          "created_at": "2023-11-14T22:13:20.000Z",
          "cron": "0 9 * * 1-5",
          "delete_after_run": false,
          "enabled": true,
          "firings": 0,
          "id": "sch_<id>",
          "jitter": "30s",
          "job": {
            "agent": "default",
            "kind": "report",
            "lane": "cron",
            "payload": {
              "big": 1.2345678901234568e+22,
              "x": 1
            },
            "priority": -10,
            "retry": {
              "backoff": {
                "base": "2s",
                "factor": 2,
                "jitter": {
                  "percent": 25
                },
                "max": "30s"
              },
              "losses_max": 3,
              "retries_max": 0
            },
            "session": {
              "cap": 3,
              "key": "chat/7"
            },
            "tags": [
              "t"
            ]
          },
          "name": "daily report",
          "next_at": "2023-11-15T08:00:00.000Z",
          "overlap": "queue",
          "tenant": "default",
          "updated_at": "2023-11-14T22:13:20.000Z",
          "zone": "Europe/Berlin"
        }
    "#]]
    .assert_eq(&made);
    let found = world.ask("GET", "/v1/schedules?name=daily%20report", "").await;
    let id = found["schedules"][0]["id"].as_str().unwrap();
    let shown = world.request("GET", &format!("/v1/schedules/{id}")).send().await.unwrap();
    let text = shown.text().await.unwrap();
    assert!(text.contains(r#""payload":{"big":12345678901234567890123, "x":1}"#), "byte for byte: {text}");
    let (status, problem) = answer(world.request("POST", "/v1/schedules").body(body)).await;
    assert_eq!(
        (status.as_u16(), &problem["code"], &problem["field"]),
        (409, &json!("already_exists"), &json!("name"))
    );
}

#[tokio::test]
async fn a_slot_creates_a_job_and_its_end_is_logged() {
    let world = World::new().await;
    with_reports(&world).await;
    let body = json!({"name": "poll", "every": "30m", "job": {"kind": "report", "payload": {"n": 1}, "agent": "ann"}});
    let id = create(&world, &body).await;
    world.clock.advance(Span::mins(30));
    let runs = until_logged(&world, &id, 1).await;
    let run = &runs["firings"][0];
    assert_eq!(
        (&run["status"], &run["slot"], &run["agent"], &run["summary"]),
        (&json!("ok"), &json!("2023-11-14T22:43:20.000Z"), &json!("ann"), &json!("{\"n\":1}")),
        "{run}"
    );
    let job = world.ask("GET", &format!("/v1/jobs/{}", run["job_id"].as_str().unwrap()), "").await;
    assert_eq!(
        job["schedule"],
        json!({"id": id, "name": "poll", "slot": "2023-11-14T22:43:20.000Z", "by_hand": false})
    );
    assert_eq!((&job["lane"], &job["timeout"]), (&json!("cron"), &json!("10m")));
    let schedule = world.ask("GET", &format!("/v1/schedules/{id}"), "").await;
    assert_eq!(
        (&schedule["next_at"], &schedule["last_status"], &schedule["firings"]),
        (&json!("2023-11-14T23:13:20.000Z"), &json!("ok"), &json!(1))
    );
}

#[tokio::test]
async fn the_firing_log_has_pages_and_a_total() {
    let world = World::new().await;
    with_reports(&world).await;
    let id = create(&world, &every("poll", "1m")).await;
    let other = create(&world, &json!({"name": "bad", "every": "1m", "job": {"kind": "break"}})).await;
    for round in 1..=5 {
        world.clock.advance(Span::mins(1));
        until_logged(&world, &id, round).await;
        until_logged(&world, &other, round).await;
    }
    let (mut seen, mut path) = (Vec::new(), format!("/v1/schedules/{id}/firings?limit=2"));
    loop {
        let page = world.ask("GET", &path, "").await;
        assert_eq!(page["total"], 5);
        seen.push(page["firings"].as_array().unwrap().len());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/schedules/{id}/firings?limit=2&cursor={next}");
    }
    assert_eq!(seen, [2, 2, 1]);
    let all = world.ask("GET", "/v1/schedules/firings?limit=500", "").await;
    assert_eq!(all["total"], 10);
    let failed = all["firings"].as_array().unwrap().iter().filter(|run| run["status"] == "error").count();
    assert_eq!(failed, 5);
    let (status, problem) = answer(world.request("GET", "/v1/schedules/firings?cursor=AAAA")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("invalid_cursor")));
}

#[tokio::test]
async fn patches_are_applied_completely_or_not_at_all() {
    let world = World::new().await;
    let body = r#"{"name":"a","cron":"0 9 * * *","zone":"Europe/Berlin","job":{"kind":"report","payload":{"k":1, "l":2},
        "timeout":"1m","session":{"key":"s","cap":3}},"overlap":"allow","jitter":"5s"}"#;
    let id = create(&world, &serde_json::from_str(body).unwrap()).await;
    let patch =
        async |body: Value| world.ask("PATCH", &format!("/v1/schedules/{id}"), &body.to_string()).await;
    let changed =
        patch(json!({"job": {"timeout": "5m", "session": {"cap": null, "mode": "interrupt"}}})).await;
    assert_eq!(changed["job"]["timeout"], "5m");
    assert_eq!(changed["job"]["session"], json!({"key": "s", "mode": "interrupt"}));
    assert_eq!(changed["job"]["payload"], json!({"k": 1, "l": 2}), "absent fields stay");
    assert_eq!((&changed["overlap"], &changed["zone"]), (&json!("allow"), &json!("Europe/Berlin")));

    let changed = patch(json!({"job": {"payload": {"k": 3}, "session": null, "timeout": null}})).await;
    assert_eq!(
        changed["job"],
        json!({"kind": "report", "agent": "default", "lane": "cron", "payload": {"k": 3}}),
        "a payload is replaced as a whole"
    );
    let changed = patch(json!({"overlap": null, "jitter": null, "catch_up": "latest", "name": "b"})).await;
    assert_eq!(
        (&changed["overlap"], &changed["jitter"], &changed["catch_up"], &changed["name"]),
        (&json!("skip"), &json!("0s"), &json!("latest"), &json!("b"))
    );
    let changed = patch(json!({"zone": "America/New_York"})).await;
    assert_eq!(
        (&changed["cron"], &changed["next_at"]),
        (&json!("0 9 * * *"), &json!("2023-11-15T14:00:00.000Z"))
    );
    let changed = patch(json!({"zone": null})).await;
    assert_eq!((&changed["zone"], &changed["next_at"]), (&json!("UTC"), &json!("2023-11-15T09:00:00.000Z")));
    let changed = patch(json!({"every": "30m"})).await;
    assert_eq!((&changed["every"], changed.get("cron"), changed.get("zone")), (&json!("30m"), None, None));
    let changed = patch(json!({"at": "2030-01-01T00:00:00Z"})).await;
    assert_eq!(
        (&changed["at"], &changed["delete_after_run"]),
        (&json!("2030-01-01T00:00:00.000Z"), &json!(true))
    );

    let before = world.ask("GET", &format!("/v1/schedules/{id}"), "").await;
    for (body, code, field) in [
        (json!({"name": "c", "at": "2001-01-01T00:00:00Z"}), "no_future_run", "at"),
        (json!({"name": "c", "job": {"timeout": "soon"}}), "invalid_field", "job.timeout"),
        (json!({"name": "c", "job": {"kind": null}}), "invalid_field", "job.kind"),
        (json!({"name": "c", "job": {"tmeout": "1s"}}), "unknown_field", "job.tmeout"),
        (json!({"name": "c", "job": "text"}), "invalid_field", "job"),
        (json!({"name": "c", "zone": "UTC"}), "invalid_field", "zone"),
        (json!({"name": "c", "cron": "* * * * *", "every": "1m"}), "invalid_field", "every"),
        (json!({"name": "c", "when": 1}), "unknown_field", "when"),
    ] {
        let request = world.request("PATCH", &format!("/v1/schedules/{id}")).body(body.to_string());
        let (status, problem) = answer(request).await;
        assert!(status.is_client_error(), "{body}: {problem}");
        assert_eq!(
            (problem["code"].as_str(), problem["field"].as_str()),
            (Some(code), Some(field)),
            "{problem}"
        );
    }
    assert_eq!(
        world.ask("GET", &format!("/v1/schedules/{id}"), "").await,
        before,
        "a bad patch changes nothing"
    );
}

#[tokio::test]
async fn concurrent_patches_are_all_applied() {
    let world = std::sync::Arc::new(World::new().await);
    let id = create(&world, &every("a", "1h")).await;
    let keys = ["timeout", "queue_timeout"];
    let calls = keys.map(|key| {
        let (world, path) = (std::sync::Arc::clone(&world), format!("/v1/schedules/{id}"));
        tokio::spawn(async move { world.ask("PATCH", &path, &json!({"job": {key: "7m"}}).to_string()).await })
    });
    for call in calls {
        call.await.unwrap();
    }
    let job = &world.ask("GET", &format!("/v1/schedules/{id}"), "").await["job"];
    assert_eq!((&job["timeout"], &job["queue_timeout"]), (&json!("7m"), &json!("7m")));
}

#[tokio::test]
async fn pauses_resumes_and_lists() {
    let world = World::new().await;
    let (a, b) = (create(&world, &every("a", "1h")).await, create(&world, &every("b", "1h")).await);
    let paused = world.ask("POST", &format!("/v1/schedules/{a}/pause"), "").await;
    assert_eq!((&paused["enabled"], paused.get("next_at")), (&json!(false), None));
    let ids = async |query: &'static str| -> (Vec<String>, Option<String>) {
        let list = world.ask("GET", &format!("/v1/schedules{query}"), "").await;
        let ids = list["schedules"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned());
        (ids.collect(), list["next"].as_str().map(str::to_owned))
    };
    assert_eq!(ids("").await, (vec![b.clone()], None));
    assert_eq!(ids("?include_disabled=true").await, (vec![a.clone(), b.clone()], None));
    let (first, next) = ids("?include_disabled=true&limit=1").await;
    assert_eq!((&first, &next), (&vec![a.clone()], &Some(a.clone())));
    let rest = world.ask("GET", &format!("/v1/schedules?limit=1&after={a}"), "").await;
    assert_eq!((&rest["schedules"][0]["id"], rest.get("next")), (&json!(b), None));
    world.clock.advance(Span::mins(90));
    let resumed = world.ask("POST", &format!("/v1/schedules/{a}/resume"), "").await;
    assert_eq!(resumed["next_at"], "2023-11-15T00:13:20.000Z", "on its grid, after now");
    let (status, _) = answer(world.request("GET", "/v1/schedules?include_disabled=yes")).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn fires_manually() {
    let world = World::new().await;
    with_reports(&world).await;
    let id = create(&world, &every("a", "1h")).await;
    let run = async |body: &'static str| world.ask("POST", &format!("/v1/schedules/{id}/fire"), body).await;
    assert_eq!(run(r#"{"mode":"due"}"#).await, json!({"fired": false, "reason": "not_due"}));
    let ran = run("").await;
    assert_eq!(ran["fired"], true);
    let runs = until_logged(&world, &id, 1).await;
    assert_eq!(runs["firings"][0]["job_id"], ran["job_id"]);
    let job = world.ask("GET", &format!("/v1/jobs/{}", ran["job_id"].as_str().unwrap()), "").await;
    assert_eq!(job["schedule"]["by_hand"], true);
    assert_eq!(
        world.ask("GET", &format!("/v1/schedules/{id}"), "").await["next_at"],
        "2023-11-14T23:13:20.000Z",
        "its slots do not change"
    );
    let waits = create(&world, &json!({"name": "w", "every": "1h", "job": {"kind": "unserved"}})).await;
    let again = async || world.ask("POST", &format!("/v1/schedules/{waits}/fire"), "").await;
    assert_eq!(again().await["fired"], true);
    assert_eq!(again().await, json!({"fired": false, "reason": "already_queued"}));
    let wrong = world.request("POST", &format!("/v1/schedules/{id}/fire")).body(r#"{"mode":"now"}"#);
    assert_eq!(answer(wrong).await.1["field"], "mode");
}

#[tokio::test]
async fn a_one_shot_is_deleted_and_its_log_stays() {
    let world = World::new().await;
    with_reports(&world).await;
    let body = json!({"name": "once", "at": "2023-11-14T22:14:20Z", "job": {"kind": "report"}});
    let id = create(&world, &body).await;
    world.clock.advance(Span::mins(1));
    let runs = until_logged(&world, &id, 1).await;
    assert_eq!((&runs["total"], &runs["firings"][0]["status"]), (&json!(1), &json!("ok")));
    let (status, _) = answer(world.request("GET", &format!("/v1/schedules/{id}"))).await;
    assert_eq!(status, 404, "it is deleted after its firing");
    let other = create(&world, &every("a", "1h")).await;
    let deleted = world.ask("DELETE", &format!("/v1/schedules/{other}"), "").await;
    assert_eq!(deleted["name"], "a");
    for (method, rest) in
        [("GET", ""), ("GET", "/runs"), ("DELETE", ""), ("POST", "/run"), ("POST", "/pause")]
    {
        let (status, _) = answer(world.request(method, &format!("/v1/schedules/{other}{rest}"))).await;
        assert_eq!(status, 404, "{method} {rest}");
    }
}

#[tokio::test]
async fn previews_firings_without_storing_anything() {
    let world = World::new().await;
    let body = r#"{"cron":"30 2 * * *","zone":"Europe/Berlin","from":"2027-03-27T12:00:00Z","count":3}"#;
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "firings": [
            {
              "at": "2027-03-28T01:00:00.000Z",
              "local": "2027-03-28T03:00:00+02:00"
            },
            {
              "at": "2027-03-29T00:30:00.000Z",
              "local": "2027-03-29T02:30:00+02:00"
            },
            {
              "at": "2027-03-30T00:30:00.000Z",
              "local": "2027-03-30T02:30:00+02:00"
            }
          ],
          "zone": "Europe/Berlin"
        }
    "#]]
    .assert_eq(&world.talk("POST", "/v1/schedules/preview", body).await);
    let at = async |body: &'static str| {
        let preview = world.ask("POST", "/v1/schedules/preview", body).await;
        let runs =
            preview["firings"].as_array().unwrap().iter().map(|run| run["at"].as_str().unwrap().to_owned());
        runs.collect::<Vec<_>>()
    };
    assert_eq!(
        at(r#"{"every":"30m","count":2}"#).await,
        ["2023-11-14T22:43:20.000Z", "2023-11-14T23:13:20.000Z"]
    );
    assert_eq!(at(r#"{"at":"2030-01-01T00:00:00Z"}"#).await, ["2030-01-01T00:00:00.000Z"]);
    assert_eq!(at(r#"{"cron":"@hourly","count":100}"#).await.len(), 100);
    for (body, status, field) in [
        (r#"{"cron":"@hourly","count":101}"#, 400, "count"),
        (r#"{"cron":"@hourly","count":0}"#, 400, "count"),
        (r#"{"cron":"@hourly","from":"now"}"#, 400, "from"),
        (r#"{"cron":"@hourly","zone":"Mars/Olympus"}"#, 400, "zone"),
        (r#"{"cron":"0 0 30 2 *"}"#, 422, "cron"),
        (r#"{"at":"2001-01-01T00:00:00Z"}"#, 422, "at"),
        (r#"{}"#, 400, "cron"),
    ] {
        let (got, problem) = answer(world.request("POST", "/v1/schedules/preview").body(body)).await;
        assert_eq!((got.as_u16(), problem["field"].as_str()), (status, Some(field)), "{body}: {problem}");
    }
}

#[tokio::test]
async fn invalid_schedules_are_rejected_with_their_field_and_nothing_is_stored() {
    let world = World::new().await;
    let long = "x".repeat(129);
    let big = "x".repeat(70_000);
    let with = |extra: Value| {
        let mut body = json!({"name": "a", "every": "1h", "job": {"kind": "report"}});
        body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        body
    };
    let cron = |expr: &str| json!({"name": "a", "cron": expr, "job": {"kind": "report"}});
    for (body, code, field) in [
        (cron(""), "invalid_field", "cron"),
        (cron("* * * *"), "invalid_field", "cron"),
        (cron("61 * * * *"), "invalid_field", "cron"),
        (cron("0,99 * * * *"), "invalid_field", "cron"),
        (cron("often"), "invalid_field", "cron"),
        (cron("0 0 30 2 *"), "no_future_run", "cron"),
        (cron("0 0 31 4 *"), "no_future_run", "cron"),
        (
            json!({"name": "a", "cron": "@daily", "zone": "Mars/Olympus", "job": {"kind": "k"}}),
            "invalid_field",
            "zone",
        ),
        (
            json!({"name": "a", "cron": "@daily", "zone": "../../etc/passwd", "job": {"kind": "k"}}),
            "invalid_field",
            "zone",
        ),
        (json!({"name": "a", "at": "2001-01-01T00:00:00Z", "job": {"kind": "k"}}), "no_future_run", "at"),
        (json!({"name": "a", "at": "tomorrow", "job": {"kind": "k"}}), "invalid_field", "at"),
        (json!({"name": "a", "at": 5, "job": {"kind": "k"}}), "invalid_field", "at"),
        (json!({"name": "a", "job": {"kind": "k"}}), "invalid_field", "cron"),
        (with(json!({"every": "0s"})), "invalid_field", "every"),
        (with(json!({"every": "1ms"})), "invalid_field", "every"),
        (with(json!({"every": "30"})), "invalid_field", "every"),
        (with(json!({"cron": "@daily"})), "invalid_field", "every"),
        (with(json!({"zone": "UTC"})), "invalid_field", "zone"),
        (with(json!({"name": ""})), "invalid_field", "name"),
        (with(json!({"name": long})), "invalid_field", "name"),
        (with(json!({"name": " a"})), "invalid_field", "name"),
        (with(json!({"catch_up": "some"})), "invalid_field", "catch_up"),
        (with(json!({"catch_up": {"all": 0}})), "invalid_field", "catch_up.all"),
        (with(json!({"catch_up": {"all": 10001}})), "invalid_field", "catch_up.all"),
        (with(json!({"overlap": "both"})), "invalid_field", "overlap"),
        (with(json!({"jitter": "25h"})), "invalid_field", "jitter"),
        (with(json!({"job": {"kind": "a b"}})), "invalid_field", "job.kind"),
        (with(json!({"job": {}})), "invalid_field", "job.kind"),
        (with(json!({"job": []})), "invalid_field", "job"),
        (
            with(json!({"job": {"kind": "k", "session": {"key": "s", "mode": "m"}}})),
            "invalid_field",
            "job.session.mode",
        ),
        (
            with(json!({"job": {"kind": "k", "not_before": "2030-01-01T00:00:00Z"}})),
            "invalid_field",
            "job.not_before",
        ),
        (with(json!({"job": {"kind": "k", "idempotency_key": "i"}})), "invalid_field", "job.idempotency_key"),
        (with(json!({"job": {"kind": "k", "payload": big}})), "invalid", "job.payload"),
        (with(json!({"when": "now"})), "unknown_field", "when"),
    ] {
        let (status, problem) = answer(world.request("POST", "/v1/schedules").body(body.to_string())).await;
        assert!(status.is_client_error(), "{body}: {status} {problem}");
        let found = (problem["code"].as_str(), problem["field"].as_str());
        assert_eq!(found, (Some(code), Some(field)), "{problem}");
    }
    let keyed = world.request("POST", "/v1/schedules").header("idempotency-key", "k");
    assert_eq!(answer(keyed.body(every("a", "1h").to_string())).await.0, 400);
    let list = world.ask("GET", "/v1/schedules?include_disabled=true", "").await;
    assert_eq!(list["schedules"], json!([]));
}

#[tokio::test]
async fn schedules_of_other_tenants_do_not_exist() {
    let world = World::closed().await;
    with_reports(&world).await;
    let owner = world.token(Some("acme"), Role::Submitter).await;
    let nosy = world.token(Some("nosy"), Role::Submitter).await;
    let body = every("secret", "1m").to_string();
    let (status, made) = answer(world.request_as(&owner, "POST", "/v1/schedules").body(body.clone())).await;
    assert_eq!((status.as_u16(), &made["tenant"]), (201, &json!("acme")));
    let id = made["id"].as_str().unwrap();
    world.clock.advance(Span::mins(1));
    loop {
        let (_, runs) = answer(world.request_as(&owner, "GET", &format!("/v1/schedules/{id}/firings"))).await;
        if runs["total"] == 1 {
            break;
        }
    }
    let missing = "sch_01890000-0000-7000-8000-000000000000";
    for (method, rest, body) in [
        ("GET", "", ""),
        ("GET", "/runs", ""),
        ("PATCH", "", r#"{"name":"mine"}"#),
        ("DELETE", "", ""),
        ("POST", "/pause", ""),
        ("POST", "/resume", ""),
        ("POST", "/run", ""),
    ] {
        let ask = async |id: &str| {
            let request = world.request_as(&nosy, method, &format!("/v1/schedules/{id}{rest}"));
            let (status, mut problem) = answer(request.body(body)).await;
            problem["request_id"] = Value::Null;
            (status.as_u16(), without_ids(&problem.to_string()))
        };
        let theirs = ask(id).await;
        assert_eq!((theirs.0, &theirs), (404, &ask(missing).await), "{method} {rest}");
    }
    for path in ["/v1/schedules?include_disabled=true", "/v1/schedules?name=secret", "/v1/schedules/firings"]
    {
        let (_, seen) = answer(world.request_as(&nosy, "GET", path)).await;
        assert!(!seen.to_string().contains("secret"), "{path}: {seen}");
    }
    let (status, _) = answer(world.request_as(&nosy, "POST", "/v1/schedules").body(body)).await;
    assert_eq!(status, 201, "two tenants may use the same name");
    let (_, still) = answer(world.request_as(&owner, "GET", &format!("/v1/schedules/{id}"))).await;
    assert_eq!((&still["enabled"], &still["name"]), (&json!(true), &json!("secret")));
}

#[tokio::test]
async fn events_name_their_schedule() {
    let world = World::new().await;
    let id = create(&world, &every("a", "1h")).await;
    let mut response = world.request("GET", "/v1/events?after=0").send().await.unwrap();
    let mut heard = String::new();
    while !heard.contains("\n\nid: ") || !heard.ends_with("\n\n") {
        heard.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    let data = heard.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let event: Value = serde_json::from_str(data).unwrap();
    assert_eq!(event["type"], "schedule.created");
    assert_eq!(event["schedule"], json!({"id": id, "name": "a", "action": "created"}));
}
