//! Cron jobs over the socket: the acceptance lists.

use laneway_core::{Role, Span};
use serde_json::{Value, json};

use super::world::{START, Socket, World};

/// An hourly job.
fn hourly(name: &str, message: &str) -> Value {
    json!({"name": name, "message": message, "schedule": {"kind": "every", "everyMs": 3_600_000}})
}

/// The hourly job with more fields.
fn with(mut job: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    job.as_object_mut().unwrap().extend(fields);
    job
}

async fn create(socket: &mut Socket, job: Value) -> Value {
    socket.call("cron.create", job).await.unwrap()["job"].clone()
}

async fn list(socket: &mut Socket, all: bool) -> Vec<Value> {
    let answer = socket.call("cron.list", json!({"includeDisabled": all})).await.unwrap();
    answer["jobs"].as_array().unwrap().clone()
}

/// Fires a job and waits for the event of its end.
async fn run(socket: &mut Socket, job: &Value) -> Value {
    let ran = socket.call("cron.run", json!({"jobId": job["id"]})).await.unwrap();
    assert_eq!(ran, json!({"ok": true, "ran": true}));
    loop {
        let event = socket.event("cron").await;
        if event["jobId"] == job["id"] && event["action"] != "running" {
            return event;
        }
    }
}

#[tokio::test]
async fn gc_p1_create_and_list() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    assert_eq!(list(&mut socket, true).await, Vec::<Value>::new());
    for (job, message) in [
        (json!({"message": "m"}), "name is required"),
        (json!({"name": "a"}), "message is required"),
        (hourly("Not A Slug", "m"), "name must be a valid slug (lowercase letters, numbers, hyphens only)"),
        (hourly("-a", "m"), "name must be a valid slug (lowercase letters, numbers, hyphens only)"),
        (hourly("a-", "m"), "name must be a valid slug (lowercase letters, numbers, hyphens only)"),
    ] {
        let error = socket.call("cron.create", job).await.unwrap_err();
        assert_eq!(error, json!({"code": "INVALID_REQUEST", "message": message}));
    }
    let job = create(&mut socket, hourly("daily-report", "report")).await;
    assert_eq!(job["name"], json!("daily-report"));
    assert_eq!(list(&mut socket, false).await, vec![job]);
    world.stop().await;
}

#[tokio::test]
async fn x20_schedules_that_cannot_be_are_rejected_and_nothing_is_stored() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let past = START.wall.0 - 1;
    for (schedule, message) in [
        (json!({}), "invalid schedule kind: "),
        (json!({"kind": "never"}), "invalid schedule kind: never"),
        (json!({"kind": "at"}), "at schedule requires atMs"),
        (
            json!({"kind": "at", "atMs": past}),
            "cron job has no future run: at schedule is already in the past",
        ),
        (json!({"kind": "every"}), "every schedule requires positive everyMs"),
        (json!({"kind": "every", "everyMs": 0}), "every schedule requires positive everyMs"),
        (json!({"kind": "every", "everyMs": -1}), "every schedule requires positive everyMs"),
        (json!({"kind": "cron"}), "cron schedule requires expr"),
        (json!({"kind": "cron", "expr": "bad cron"}), "invalid cron expression: bad cron"),
        (
            json!({"kind": "cron", "expr": "0 0 30 2 *"}),
            "cron job has no future run: cron schedule has no valid next execution",
        ),
        (
            json!({"kind": "cron", "expr": "* * * * *", "tz": "Invalid/Zone"}),
            "invalid timezone: Invalid/Zone",
        ),
    ] {
        let job = json!({"name": "a", "message": "m", "schedule": schedule});
        let error = socket.call("cron.create", job).await.unwrap_err();
        assert_eq!((&error["code"], &error["message"]), (&json!("INVALID_REQUEST"), &json!(message)));
    }
    assert_eq!(list(&mut socket, true).await, Vec::<Value>::new());
    let job = create(&mut socket, hourly("a", "m")).await;
    let patch = json!({"jobId": job["id"], "patch": {"schedule": {"kind": "cron", "expr": "61 * * * *"}}});
    let error = socket.call("cron.update", patch).await.unwrap_err();
    assert_eq!(error["message"], json!("invalid cron expression: 61 * * * *"));
    assert_eq!(list(&mut socket, true).await, vec![job]);
    world.stop().await;
}

#[tokio::test]
async fn names_are_unique_for_an_agent() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    create(&mut socket, hourly("a", "m")).await;
    let again = socket.call("cron.create", hourly("a", "m")).await.unwrap_err();
    assert_eq!(again["code"], json!("ALREADY_EXISTS"));
    let of_agent = create(&mut socket, with(hourly("a", "m"), json!({"agentId": "writer"}))).await;
    assert_eq!((&of_agent["name"], &of_agent["agentId"]), (&json!("a"), &json!("writer")));
    let error = socket.call("cron.create", with(hourly("b", "m"), json!({"agentId": "a:b"}))).await;
    assert!(error.unwrap_err()["message"].as_str().unwrap().starts_with("agentId must not hold a colon"));
    world.stop().await;
}

#[tokio::test]
async fn gc_p2_delete_and_toggle_want_a_job_that_is_there() {
    let world = World::new("").await;
    let mut socket = world.member(json!({"user_id": "u"})).await;
    for method in ["cron.delete", "cron.toggle", "cron.update", "cron.run"] {
        let error = socket.call(method, json!({})).await.unwrap_err();
        assert_eq!(error, json!({"code": "INVALID_REQUEST", "message": "jobId is required"}), "{method}");
        for id in ["nonsense", "sch_00000000-0000-0000-0000-000000000000"] {
            let error = socket.call(method, json!({"jobId": id})).await.unwrap_err();
            assert_eq!(error, json!({"code": "NOT_FOUND", "message": "job not found"}), "{method}");
        }
    }
    let job = create(&mut socket, hourly("a", "m")).await;
    let deleted = socket.call("cron.delete", json!({"jobId": job["id"]})).await.unwrap();
    assert_eq!(deleted, json!({"deleted": true}));
    assert_eq!(list(&mut socket, true).await, Vec::<Value>::new());
    world.stop().await;
}

#[tokio::test]
async fn gc_p3_a_job_with_credentials_runs_for_its_owner_only() {
    let world = World::new("").await;
    let mut owner = world.member(json!({"user_id": "u", "credential_user_id": "c"})).await;
    // The same user, even an admin, without naming the credentials.
    let mut other = world.member(json!({"user_id": "u"})).await;
    let job = create(&mut owner, hourly("a", "who")).await;
    assert!(!job.to_string().contains("credential"), "credentials are not shown: {job}");
    let id = json!({"jobId": job["id"]});
    let blocked = json!({"code": "UNAUTHORIZED", "message": "permission denied: credential context"});
    assert_eq!(other.call("cron.run", id.clone()).await, Err(blocked.clone()));
    let patch = with(id.clone(), json!({"patch": {"message": "x"}}));
    assert_eq!(other.call("cron.update", patch.clone()).await, Err(blocked.clone()));
    assert!(other.call("cron.toggle", with(id.clone(), json!({"enabled": false}))).await.is_ok());
    assert_eq!(other.call("cron.toggle", with(id.clone(), json!({"enabled": true}))).await, Err(blocked));
    assert!(owner.call("cron.toggle", with(id.clone(), json!({"enabled": true}))).await.is_ok());
    assert!(owner.call("cron.update", with(id.clone(), json!({"patch": {"deliver": true}}))).await.is_ok());
    // GC-H1: the credentials reach the job.
    run(&mut owner, &job).await;
    let runs = owner.call("cron.runs", id.clone()).await.unwrap();
    let summary = runs["entries"][0]["summary"].as_str().unwrap();
    assert!(summary.ends_with("credentials of c"), "{summary}");
    assert!(other.call("cron.delete", id).await.is_ok(), "deleting is allowed");
    // Jobs without credentials are free.
    let legacy = create(&mut other, hourly("b", "m")).await;
    run(&mut owner, &legacy).await;
    world.stop().await;
}

#[tokio::test]
async fn gc_p4_lists_never_show_credentials() {
    let world = World::new("").await;
    let mut socket = world.member(json!({"credential_user_id": "secret-user"})).await;
    let job = create(&mut socket, hourly("a", "m")).await;
    run(&mut socket, &job).await;
    for (method, params) in [
        ("cron.list", json!({"includeDisabled": true})),
        ("cron.runs", json!({})),
        ("cron.update", json!({"jobId": job["id"], "patch": {"message": "other"}})),
    ] {
        let answer = socket.call(method, params).await.unwrap();
        assert!(!answer.to_string().contains("secret-user"), "{method}: {answer}");
    }
    world.stop().await;
}

#[tokio::test]
async fn roles_and_owners_bound_what_is_seen_and_done() {
    let world = World::new("").await;
    let admin = world.token(Some("acme"), Role::Admin).await;
    let operator = world.token(Some("acme"), Role::Operator).await;
    let viewer = world.token(Some("acme"), Role::Viewer).await;
    let mut admin = world.member(json!({"token": admin, "user_id": "root"})).await;
    let mut ann = world.member(json!({"token": operator, "user_id": "ann"})).await;
    let mut bob = world.member(json!({"token": operator, "user_id": "bob"})).await;
    let mut viewer = world.member(json!({"token": viewer, "user_id": "ann"})).await;
    let of_ann = create(&mut ann, hourly("a", "m")).await;
    create(&mut bob, hourly("b", "m")).await;
    assert_eq!(list(&mut ann, true).await, vec![of_ann.clone()]);
    assert_eq!(list(&mut viewer, true).await, vec![of_ann.clone()]);
    assert_eq!(list(&mut admin, true).await.len(), 2);
    assert_eq!(ann.call("cron.status", json!({})).await.unwrap()["jobs"], json!(1));
    let id = json!({"jobId": of_ann["id"]});
    let error = bob.call("cron.run", id.clone()).await.unwrap_err();
    assert_eq!(error, json!({"code": "UNAUTHORIZED", "message": "permission denied: cron job"}));
    let error = viewer.call("cron.run", id.clone()).await.unwrap_err();
    let message = "permission denied: cron.run requires operator role";
    assert_eq!(error, json!({"code": "UNAUTHORIZED", "message": message}));
    run(&mut ann, &of_ann).await;
    let total = |answer: Result<Value, Value>| answer.unwrap()["total"].clone();
    assert_eq!(total(ann.call("cron.runs", json!({})).await), json!(1));
    assert_eq!(total(bob.call("cron.runs", json!({})).await), json!(0));
    assert_eq!(total(bob.call("cron.runs", id).await), json!(0));
    assert_eq!(total(admin.call("cron.runs", json!({})).await), json!(1));
    world.stop().await;
}

#[tokio::test]
async fn x21_due_runs_only_what_is_due() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let job = create(&mut socket, hourly("a", "m")).await;
    let answer = socket.call("cron.run", json!({"id": job["id"], "mode": "due"})).await.unwrap();
    assert_eq!(answer, json!({"ok": true, "ran": false, "reason": "not-due"}));
    let error = socket.call("cron.run", json!({"id": job["id"], "mode": "maybe"})).await.unwrap_err();
    assert_eq!(error["code"], json!("INVALID_REQUEST"));
    world.stop().await;
}

#[tokio::test]
async fn x22_a_manual_fire_is_rejected_while_a_slot_runs() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let job = create(&mut socket, hourly("a", "hold")).await;
    world.clock.advance(Span::hours(1));
    assert_eq!(socket.event("cron").await["action"], json!("running"));
    let error = socket.call("cron.run", json!({"jobId": job["id"]})).await.unwrap_err();
    let message = format!("job {} is already running", job["id"].as_str().unwrap());
    assert_eq!(error, json!({"code": "FAILED_PRECONDITION", "message": message, "retryable": true}));
    assert_eq!(list(&mut socket, true).await[0]["state"]["lastStatus"], json!("running"));
    world.release.notify_one();
    assert_eq!(socket.event("cron").await["action"], json!("completed"));
    run_again_works(&world, &mut socket, &job).await;
    world.stop().await;
}

async fn run_again_works(world: &World, socket: &mut Socket, job: &Value) {
    world.release.notify_one();
    assert_eq!(run(socket, job).await["status"], json!("ok"));
}

#[tokio::test]
async fn x23_a_panic_is_logged_and_the_next_run_is_set() {
    let world = World::new("schedules.retry.retries_max = 0").await;
    let mut socket = world.member(json!({})).await;
    let job = create(&mut socket, hourly("a", "panic")).await;
    world.clock.advance(Span::hours(1));
    let ended = loop {
        let event = socket.event("cron").await;
        if event["action"] != "running" {
            break event;
        }
    };
    assert_eq!((&ended["action"], &ended["status"]), (&json!("error"), &json!("error")));
    let runs = socket.call("cron.runs", json!({"jobId": job["id"]})).await.unwrap();
    assert_eq!(runs["entries"][0]["status"], json!("error"));
    let next = START.wall.0 + 2 * 3_600_000;
    assert_eq!(list(&mut socket, true).await[0]["state"]["nextRunAtMs"], json!(next));
    world.stop().await;
}

#[tokio::test]
async fn x24_the_log_of_a_one_shot_outlives_it() {
    let world = World::new("").await;
    let token = world.token(None, Role::Operator).await;
    let mut socket = world.member(json!({"token": token, "user_id": "ann"})).await;
    let at = START.wall.0 + 60_000;
    let job = json!({"name": "once", "message": "m", "schedule": {"kind": "at", "atMs": at}});
    let job = create(&mut socket, job).await;
    assert_eq!(job["deleteAfterRun"], json!(true));
    world.clock.advance(Span::mins(1));
    loop {
        let event = socket.event("cron").await;
        if event["action"] == "completed" {
            assert_eq!(event["userId"], json!("ann"), "the owner is known after the job was deleted");
            break;
        }
    }
    assert_eq!(list(&mut socket, true).await, Vec::<Value>::new());
    let runs = socket.call("cron.runs", json!({"jobId": job["id"]})).await.unwrap();
    assert_eq!(runs["total"], json!(1));
    assert_eq!(runs["entries"][0]["summary"], json!("you said m"));
    world.stop().await;
}

#[tokio::test]
async fn x26_long_answers_are_cut_between_two_characters() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let message = format!("say {}", "ä".repeat(10_000));
    let job = create(&mut socket, hourly("a", &message)).await;
    run(&mut socket, &job).await;
    let runs = socket.call("cron.runs", json!({})).await.unwrap();
    let summary = runs["entries"][0]["summary"].as_str().unwrap();
    assert_eq!(summary, format!("{}...[truncated]", "ä".repeat(8_192)));
    world.stop().await;
}

#[tokio::test]
async fn x27_no_event_reaches_another_tenant_or_an_unauthenticated_socket() {
    let world = World::new("").await;
    let acme = world.token(Some("acme"), Role::Admin).await;
    let other = world.token(Some("other"), Role::Admin).await;
    let mut unauthenticated = world.socket().await;
    let mut other = world.member(json!({"token": other})).await;
    let mut socket = world.member(json!({"token": acme})).await;
    let job = create(&mut socket, hourly("a", "m")).await;
    run(&mut socket, &job).await;
    // The next frame is the answer: no event came before it.
    other.send(r#"{"type":"req","id":"x","method":"cron.list"}"#).await;
    let frame: Value = serde_json::from_str(&other.next().await).unwrap();
    assert_eq!((&frame["id"], &frame["payload"]["jobs"]), (&json!("x"), &json!([])));
    unauthenticated.send(r#"{"type":"req","id":"y","method":"cron.list"}"#).await;
    let frame: Value = serde_json::from_str(&unauthenticated.next().await).unwrap();
    assert_eq!(frame["error"]["message"], json!("first request must be 'connect'"));
    let error = other.call("cron.delete", json!({"jobId": job["id"]})).await.unwrap_err();
    assert_eq!(error["code"], json!("NOT_FOUND"));
    assert_eq!(other.call("cron.runs", json!({})).await.unwrap(), json!({"entries": [], "total": 0}));
    world.stop().await;
}

#[tokio::test]
async fn gc_h3_answers_are_delivered_unless_they_ask_for_silence() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let to = json!({"deliver": true, "deliverChannel": "telegram", "deliverTo": "42"});
    for (name, message, content) in [
        ("plain", "say good morning", Some("good morning")),
        ("almost", "say NO_REPLYING", Some("NO_REPLYING")),
        ("silent", "say NO_REPLY", None),
        ("lower", "say no_reply", None),
        ("inside", "say well. NO_REPLY!", None),
        ("tail", "say NO_REPLY_", None),
    ] {
        let job = create(&mut socket, with(hourly(name, message), to.clone())).await;
        run(&mut socket, &job).await;
        if let Some(content) = content {
            let message = socket.event("outbound").await;
            assert_eq!(message["content"], json!(content));
            assert_eq!((&message["channel"], &message["to"]), (&json!("telegram"), &json!("42")));
            assert_eq!(message["cron_job"], job["id"]);
        }
    }
    // Without a target or without `deliver`, no message goes out; the last one does, and no other came before
    // it.
    let nowhere = create(&mut socket, with(hourly("nowhere", "m"), json!({"deliver": true}))).await;
    let unasked = json!({"deliverChannel": "telegram", "deliverTo": "42"});
    let unasked = create(&mut socket, with(hourly("unasked", "m"), unasked)).await;
    let last = create(&mut socket, with(hourly("last", "say end"), to)).await;
    for job in [nowhere, unasked, last] {
        run(&mut socket, &job).await;
    }
    assert_eq!(socket.event("outbound").await["content"], json!("end"));
    world.stop().await;
}

#[tokio::test]
async fn gc_s1_s2_toggle_recomputes_and_keeps() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let job = create(&mut socket, hourly("a", "m")).await;
    let id = json!({"jobId": job["id"]});
    let next = job["state"]["nextRunAtMs"].clone();
    // Left out means off.
    let off = socket.call("cron.toggle", id.clone()).await.unwrap();
    assert_eq!(off, json!({"jobId": job["id"], "enabled": false}));
    assert_eq!(list(&mut socket, false).await, Vec::<Value>::new());
    assert_eq!(list(&mut socket, true).await[0]["state"]["nextRunAtMs"], Value::Null);
    world.clock.advance(Span::mins(90));
    let on = with(id.clone(), json!({"enabled": true}));
    socket.call("cron.toggle", on.clone()).await.unwrap();
    let later = list(&mut socket, true).await[0]["state"]["nextRunAtMs"].clone();
    assert_eq!(later.as_i64().unwrap(), next.as_i64().unwrap() + 3_600_000, "on its grid, after now");
    socket.call("cron.toggle", on).await.unwrap();
    assert_eq!(list(&mut socket, true).await[0]["state"]["nextRunAtMs"], later);
    world.stop().await;
}

#[tokio::test]
async fn a_patch_changes_what_it_names_and_keeps_the_zone() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let daily = json!({"kind": "cron", "expr": "0 9 * * *", "tz": "Asia/Saigon"});
    let job = create(&mut socket, json!({"name": "a", "message": "m", "schedule": daily})).await;
    let patch = json!({
        "name": "", "message": "", "agentId": "writer", "stateless": false, "deliver": true,
        "deliverChannel": "slack", "deliverTo": "#x", "wakeHeartbeat": true, "schedule": {"expr": "0 10 * * *"},
    });
    let patched = socket.call("cron.update", json!({"id": job["id"], "patch": patch})).await.unwrap();
    let patched = &patched["job"];
    let daily = json!({"kind": "cron", "expr": "0 10 * * *", "tz": "Asia/Saigon"});
    assert_eq!(patched["schedule"], daily);
    assert_eq!((&patched["name"], &patched["payload"]["message"]), (&json!("a"), &json!("m")));
    assert_eq!((&patched["agentId"], &patched["stateless"]), (&json!("writer"), &json!(false)));
    // The job has the new agent and its session.
    let patch = json!({"jobId": job["id"], "patch": {"message": "who", "deliver": false}});
    socket.call("cron.update", patch).await.unwrap();
    run(&mut socket, &job).await;
    let runs = socket.call("cron.runs", json!({})).await.unwrap();
    let session = format!("agent:writer:cron:{}", job["id"].as_str().unwrap());
    let summary = format!("writer in {session}, credentials of none");
    assert_eq!(runs["entries"][0]["summary"], json!(summary));
    // An empty agent is the default agent again.
    let patch = json!({"jobId": job["id"], "patch": {"agentId": "", "name": "b"}});
    let patched = socket.call("cron.update", patch).await.unwrap();
    assert_eq!((&patched["job"]["agentId"], &patched["job"]["name"]), (&Value::Null, &json!("b")));
    let at = START.wall.0 + 1;
    let patch = json!({"jobId": job["id"], "patch": {"schedule": {"kind": "at", "atMs": at}}});
    let patched = socket.call("cron.update", patch).await.unwrap();
    assert_eq!(patched["job"]["deleteAfterRun"], json!(true));
    world.stop().await;
}

#[tokio::test]
async fn gc_s8_pages_of_the_firing_log() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let job = create(&mut socket, hourly("a", "m")).await;
    let failing = create(&mut socket, hourly("b", "fail")).await;
    for _ in 0..4 {
        run(&mut socket, &job).await;
        world.clock.advance(Span(1_000));
    }
    let ended = run(&mut socket, &failing).await;
    assert_eq!((&ended["action"], &ended["error"]), (&json!("error"), &json!("the model is away")));
    let mut sizes = Vec::new();
    for offset in [0, 2, 4, 6] {
        let page = socket.call("cron.runs", json!({"limit": 2, "offset": offset})).await.unwrap();
        assert_eq!(page["total"], json!(5));
        sizes.push(page["entries"].as_array().unwrap().len());
    }
    assert_eq!(sizes, [2, 2, 1, 0]);
    let of_job = socket.call("cron.runs", json!({"id": failing["id"], "limit": -1})).await.unwrap();
    let entry = &of_job["entries"][0];
    assert_eq!((&entry["status"], &entry["error"]), (&json!("error"), &json!("the model is away")));
    assert_eq!(entry["summary"], Value::Null);
    let many = socket.call("cron.runs", json!({"limit": 1_000_000, "offset": -5})).await.unwrap();
    assert_eq!(many["entries"].as_array().unwrap().len(), 5);
    world.stop().await;
}

#[tokio::test]
async fn gc_s5_jobs_whose_payload_cannot_be_read() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let job = create(&mut socket, hourly("a", "m")).await;
    let id = laneway_core::ScheduleId::parse(job["id"].as_str().unwrap()).unwrap();
    let patch = laneway_core::SchedulePatch {
        payload: Some(b"{broken".to_vec().into()),
        ..laneway_core::SchedulePatch::default()
    };
    let origin = laneway_core::Origin::server("test");
    world.scheduler.update_schedule(None, id, patch, origin).await.unwrap();
    assert_eq!(list(&mut socket, true).await, Vec::<Value>::new(), "lists omit it");
    let patch = json!({"jobId": job["id"], "patch": {"message": "x"}});
    let error = socket.call("cron.update", patch).await.unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("payload"), "{error}");
    let off = socket.call("cron.toggle", json!({"jobId": job["id"]})).await.unwrap();
    assert_eq!(off["enabled"], json!(false), "it can be toggled");
    world.stop().await;
}

#[tokio::test]
async fn of_two_updates_at_the_same_time_neither_takes_back_the_other() {
    let world = World::new("").await;
    let (mut one, mut two) = (world.member(json!({})).await, world.member(json!({})).await);
    let job = create(&mut one, hourly("a", "m")).await;
    for round in 0..30 {
        let message = json!({"jobId": job["id"], "patch": {"message": format!("message {round}")}});
        let to = json!({"jobId": job["id"], "patch": {"deliverTo": format!("to {round}")}});
        let (first, second) = tokio::join!(one.call("cron.update", message), two.call("cron.update", to));
        first.unwrap();
        second.unwrap();
        let shown = &list(&mut one, true).await[0];
        assert_eq!(shown["payload"]["message"], json!(format!("message {round}")), "{shown}");
        assert_eq!(shown["deliverTo"], json!(format!("to {round}")), "{shown}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_to_send_is_reported_as_rejected() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    // As large as a cron job may be: with the names around it, the message is larger than the limit.
    let mut asked = hourly("a", "hello");
    for (key, value) in [
        ("deliver", json!(true)),
        ("deliverChannel", json!("mail")),
        ("deliverTo", json!("x".repeat(65_400))),
    ] {
        asked[key] = value;
    }
    let job = create(&mut socket, asked).await;
    socket.call("cron.run", json!({"jobId": job["id"]})).await.unwrap();
    let outbound = socket.event("outbound").await;
    assert_eq!((&outbound["status"], &outbound["content"]), (&json!("rejected"), &json!("")));
    assert_eq!(outbound["cron_job"], job["id"]);
    assert!(outbound["error"].as_str().unwrap().contains("at most 65536"), "{outbound}");
    let page = world.scheduler.render_metrics().await.unwrap();
    assert!(page.contains("laneway_outbound_rejected_total 1"), "{page}");
    world.stop().await;
}

#[tokio::test]
async fn equal_rejections_are_noted_a_few_times_and_counted_then() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let before = world.scheduler.events().latest();
    for _ in 0..200 {
        socket.call("cron.create", json!({"name": "-"})).await.unwrap_err();
    }
    let noted = world.scheduler.events().latest() - before;
    assert!((20..=100).contains(&noted), "{noted} entries for 200 rejections");
    world.stop().await;
}
