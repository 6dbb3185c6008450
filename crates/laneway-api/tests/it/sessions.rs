//! Sessions over HTTP: their settings, stops, usage, and isolation between tenants.

use std::sync::{Arc, Mutex};

use expect_test::expect;
use laneway_core::{Bytes, Failure, Outcome, Role, Span};
use laneway_runtime::Handlers;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::world::{World, answer};

/// Registers `turn`, which reports its start and waits until it is stopped, and `reply`, which returns the texts of all
/// jobs that it runs for.
async fn with_turns(world: &World) -> mpsc::Receiver<String> {
    let (began, beginnings) = mpsc::channel(100);
    let turn = move |job: laneway_runtime::JobContext| {
        let began = began.clone();
        async move {
            began.send(job.job().to_string()).await.unwrap();
            job.cancellation().cancelled().await;
            Outcome::Canceled
        }
    };
    let reply = |job: laneway_runtime::JobContext| async move {
        let texts: Vec<Value> =
            job.payloads().map(|text: &Bytes| serde_json::from_slice(text).unwrap()).collect();
        Ok::<_, Failure>(Value::from(texts))
    };
    world.run(Handlers::new().on("turn", turn).on("reply", reply)).await;
    beginnings
}

async fn job(world: &World, id: &str) -> Value {
    world.ask("GET", &format!("/v1/jobs/{id}"), "").await
}

#[tokio::test]
async fn stop_ends_the_oldest_attempt_then_the_first_waiting_job() {
    let world = World::new().await;
    let mut began = with_turns(&world).await;
    let first = world.submit(r#"{"kind":"turn","session":"chat"}"#).await;
    assert_eq!(began.recv().await.unwrap(), first);
    let second = world.submit(r#"{"kind":"unserved","session":"chat"}"#).await;
    let third = world.submit(r#"{"kind":"unserved","session":"chat"}"#).await;
    let stopped = world.ask("POST", "/v1/sessions/chat/stop", "{}").await;
    assert_eq!(
        stopped,
        json!({"key": "chat", "running": [first], "waiting": [], "running_count": 1, "waiting_count": 0, "generation": 0})
    );
    let ended = job(&world, &first).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("canceled"), &json!("stopped")));
    // When the attempt has ended, the next stop ends the first waiting job.
    world.wait(&first).await;
    let stopped = world.ask("POST", "/v1/sessions/chat/stop", "").await;
    assert_eq!((&stopped["running"], &stopped["waiting"]), (&json!([]), &json!([second])));
    assert_eq!(job(&world, &third).await["state"], "queued");
}

#[tokio::test]
async fn stopall_ends_all_jobs_and_rejects_stale_ones() {
    let world = World::new().await;
    let mut began = with_turns(&world).await;
    let runs = world.submit(r#"{"kind":"turn","session":"chat"}"#).await;
    began.recv().await.unwrap();
    let waits = world.submit(r#"{"kind":"turn","session":"chat"}"#).await;
    let collects = world.submit(r#"{"kind":"reply","session":{"key":"chat","debounce":"1m"}}"#).await;
    world.clock.advance(Span::secs(10));
    let stopped = world.ask("POST", "/v1/sessions/chat/stopall", "").await;
    assert_eq!((&stopped["running"], &stopped["waiting"]), (&json!([runs]), &json!([waits, collects])));
    for id in [&runs, &waits, &collects] {
        let ended = job(&world, id).await;
        assert_eq!((&ended["state"], &ended["reason"]), (&json!("canceled"), &json!("stopped")), "{ended}");
    }
    let sent = |at: &str| format!(r#"{{"kind":"reply","session":{{"key":"chat","sent_at":"{at}"}}}}"#);
    let (status, problem) =
        answer(world.request("POST", "/v1/jobs").body(sent("2023-11-14T22:13:25Z"))).await;
    assert_eq!(
        (status.as_u16(), &problem["code"], &problem["field"]),
        (409, &json!("stale"), &json!("session.sent_at"))
    );
    let fresh = world.submit(&sent("2023-11-14T22:13:31Z")).await;
    world.wait(&fresh).await;
    assert_eq!(job(&world, &fresh).await["state"], "succeeded");
    let view = world.ask("GET", "/v1/sessions/chat", "").await;
    assert_eq!(view["stopped_at"], "2023-11-14T22:13:30.000Z");
}

#[tokio::test]
async fn reset_begins_a_new_generation() {
    let world = World::new().await;
    let waits = world.submit(r#"{"kind":"unserved","session":"chat"}"#).await;
    let stopped = world.ask("POST", "/v1/sessions/chat/reset", "").await;
    assert_eq!((&stopped["generation"], &stopped["waiting_count"]), (&json!(1), &json!(1)));
    assert_eq!(job(&world, &waits).await["reason"], "cleared");
    assert_eq!(world.ask("POST", "/v1/sessions/chat/reset", "").await["generation"], 2);
    assert_eq!(world.ask("GET", "/v1/sessions/chat", "").await["generation"], 2);
}

#[tokio::test]
async fn a_debounce_batch_runs_as_one_and_every_caller_gets_its_outcome() {
    let world = World::new().await;
    let _began = with_turns(&world).await;
    let message = |text: &str| {
        format!(r#"{{"kind":"reply","payload":"{text}","session":{{"key":"chat","debounce":"800ms"}}}}"#)
    };
    let leader = world.ask("POST", "/v1/jobs", &message("one")).await;
    assert_eq!((&leader["state"], &leader["session"]), (&json!("scheduled"), &json!("chat")));
    let (status, merged) = answer(world.request("POST", "/v1/jobs").body(message("two"))).await;
    assert_eq!(status, 201);
    assert_eq!(
        (&merged["state"], &merged["reason"], &merged["merged_into"]),
        (&json!("canceled"), &json!("merged"), &leader["id"]),
        "{merged}"
    );
    let batch = format!(r#"{{"jobs":[{}]}}"#, message("three"));
    let batch = world.ask("POST", "/v1/jobs/batch", &batch).await;
    let third = &batch["items"][0];
    assert_eq!((&third["status"], &third["job"]["merged_into"]), (&json!(201), &leader["id"]), "{batch}");
    assert_eq!(third["job"].get("existing"), None);
    let view = world.ask("GET", "/v1/sessions/chat", "").await;
    assert_eq!((&view["waiting"], &view["buffered"]), (&json!(1), &json!(3)));
    world.clock.advance(Span(800));
    let waited = world.scheduler.wait(laneway_core::JobId::parse(merged["id"].as_str().unwrap()).unwrap());
    let outcome = waited.await.unwrap();
    assert_eq!(outcome.row.id.to_string(), leader["id"].as_str().unwrap(), "the leader's outcome");
    assert_eq!(job(&world, leader["id"].as_str().unwrap()).await["result"], json!(["one", "two", "three"]));
}

#[tokio::test]
async fn an_interrupt_cancels_earlier_jobs() {
    let world = World::new().await;
    let mut began = with_turns(&world).await;
    let runs = world.submit(r#"{"kind":"turn","session":"chat"}"#).await;
    began.recv().await.unwrap();
    let waits = world.submit(r#"{"kind":"turn","session":"chat"}"#).await;
    let breaks_in = world.submit(r#"{"kind":"reply","session":{"key":"chat","mode":"interrupt"}}"#).await;
    world.wait(&breaks_in).await;
    assert_eq!(job(&world, &breaks_in).await["state"], "succeeded");
    for id in [&runs, &waits] {
        assert_eq!(job(&world, id).await["reason"], "interrupted");
    }
}

#[tokio::test]
async fn a_full_session_drops_the_old_or_rejects_the_new() {
    let world = World::new().await;
    let capped =
        |drop: &str| format!(r#"{{"kind":"unserved","session":{{"key":"chat","cap":2,"drop":"{drop}"}}}}"#);
    let oldest = world.submit(&capped("new")).await;
    world.submit(&capped("new")).await;
    let (status, problem) = answer(world.request("POST", "/v1/jobs").body(capped("new"))).await;
    assert_eq!(
        (status.as_u16(), &problem["code"], &problem["field"]),
        (429, &json!("session_full"), &json!("session.cap")),
        "{problem}"
    );
    world.submit(&capped("old")).await;
    let dropped = job(&world, &oldest).await;
    assert_eq!((&dropped["state"], &dropped["reason"]), (&json!("canceled"), &json!("dropped")));
    assert_eq!(world.ask("GET", "/v1/sessions/chat", "").await["waiting"], 2);
}

#[tokio::test]
async fn usage_throttles_from_sixty_percent_on() {
    let world = World::new().await;
    let report = async |tokens: u64, window: u64| {
        let body = json!({"tokens": tokens, "window": window}).to_string();
        world.ask("PUT", "/v1/sessions/chat/usage", &body).await
    };
    assert_eq!(report(59, 100).await["throttled"], false);
    world.submit(r#"{"kind":"unserved","session":{"key":"chat","max_concurrent":3}}"#).await;
    assert_eq!(world.ask("GET", "/v1/sessions/chat", "").await["max_concurrent"], 3);
    let full = report(60, 100).await;
    assert_eq!(
        (&full["throttled"], &full["max_concurrent"], &full["tokens"]),
        (&json!(true), &json!(1), &json!(60))
    );
    assert_eq!(report(60, 0).await["throttled"], false, "a window that is not known");
    for (body, field) in [
        (r#"{"tokens":-1,"window":1}"#, "tokens"),
        (r#"{"tokens":1}"#, "window"),
        (r#"{"tokens":1,"window":18446744073709551615}"#, "window"),
        (r#"{"tokens":1,"window":1,"used":2}"#, "used"),
    ] {
        let (status, problem) = answer(world.request("PUT", "/v1/sessions/chat/usage").body(body)).await;
        assert_eq!((status.as_u16(), problem["field"].as_str()), (400, Some(field)), "{problem}");
    }
}

#[tokio::test]
async fn lists_sessions_by_name_and_page() {
    let world = World::new().await;
    let _began = with_turns(&world).await;
    for key in ["b", "agent:a7/mail jo@example.org", "c"] {
        world.submit(&json!({"kind": "unserved", "session": key}).to_string()).await;
    }
    let page = world.ask("GET", "/v1/sessions?limit=2", "").await;
    let keys = |page: &Value| -> Vec<String> {
        page["sessions"].as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (keys(&page), &page["next"]),
        (vec!["agent:a7/mail jo@example.org".into(), "b".into()], &json!("b"))
    );
    let page = world.ask("GET", "/v1/sessions?limit=2&after=b", "").await;
    assert_eq!((keys(&page), page.get("next")), (vec!["c".into()], None));
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "buffered": 0,
          "generation": 0,
          "key": "agent:a7/mail jo@example.org",
          "lane": "main",
          "max_concurrent": 1,
          "running": 0,
          "stopping": 0,
          "tenant": "default",
          "throttled": false,
          "tokens": 0,
          "waiting": 1,
          "window": 0
        }
    "#]]
    .assert_eq(&world.talk("GET", "/v1/sessions/agent%3Aa7%2Fmail%20jo%40example.org", "").await);
    let listed = world.ask("GET", "/v1/jobs?session=agent:a7%2Fmail%20jo@example.org", "").await;
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn sessions_of_other_tenants_do_not_exist() {
    let world = World::closed().await;
    let owner = world.token(Some("acme"), Role::Submitter).await;
    let nosy = world.token(Some("nosy"), Role::Submitter).await;
    let body = r#"{"kind":"unserved","session":"chat"}"#;
    let (_, waits) = answer(world.request_as(&owner, "POST", "/v1/jobs").body(body)).await;
    let (status, _) = answer(world.request_as(&owner, "GET", "/v1/sessions/chat")).await;
    assert_eq!(status, 200);
    let (status, problem) = answer(world.request_as(&nosy, "GET", "/v1/sessions/chat")).await;
    assert_eq!((status.as_u16(), &problem["code"]), (404, &json!("not_found")));
    for verb in ["stop", "stopall", "reset"] {
        let path = format!("/v1/sessions/chat/{verb}");
        let (status, stopped) = answer(world.request_as(&nosy, "POST", &path)).await;
        assert_eq!((status.as_u16(), &stopped["waiting_count"]), (200, &json!(0)), "{verb} {stopped}");
    }
    let (_, list) = answer(world.request_as(&nosy, "GET", "/v1/sessions")).await;
    assert!(!list.to_string().contains(waits["id"].as_str().unwrap()));
    let path = format!("/v1/jobs/{}", waits["id"].as_str().unwrap());
    assert_eq!(answer(world.request_as(&owner, "GET", &path)).await.1["state"], "queued", "it is untouched");
}

#[tokio::test]
async fn a_stop_leaves_an_audit_entry() {
    let world = World::new().await;
    world.submit(r#"{"kind":"unserved","session":"chat"}"#).await;
    world.ask("POST", "/v1/sessions/chat/stopall", "").await;
    let entries = world.ask("GET", "/v1/audit", "").await;
    let details: Vec<&str> =
        entries["entries"].as_array().unwrap().iter().filter_map(|entry| entry["detail"].as_str()).collect();
    assert!(details.contains(&"stopall session chat: 0 ran, 1 waited"), "{details:?}");
}

/// Counts how many handlers run at once.
#[derive(Default)]
struct Crowd {
    now: usize,
    most: usize,
}

/// Runs `jobs` jobs in a lane of two. Returns how many ran at once at most.
async fn most_at_once(jobs: usize) -> usize {
    let world = World::new().await;
    let lane = world.ask("PUT", "/v1/lanes/two", r#"{"running_max":2}"#).await;
    assert_eq!(lane["running_max"], 2);
    let crowd = Arc::new(Mutex::new(Crowd::default()));
    let (enter, mut entered) = mpsc::channel::<tokio::sync::oneshot::Sender<()>>(100);
    let shared = Arc::clone(&crowd);
    world
        .run(Handlers::new().on("work", move |_| {
            let (crowd, enter) = (Arc::clone(&shared), enter.clone());
            async move {
                {
                    let mut crowd = crowd.lock().unwrap();
                    crowd.now += 1;
                    crowd.most = crowd.most.max(crowd.now);
                }
                let (leave, left) = tokio::sync::oneshot::channel();
                enter.send(leave).await.unwrap();
                left.await.unwrap();
                crowd.lock().unwrap().now -= 1;
                Ok::<_, Failure>(())
            }
        }))
        .await;
    let mut ids = Vec::new();
    for _ in 0..jobs {
        ids.push(world.submit(r#"{"kind":"work","lane":"two"}"#).await);
    }
    let lane = world.ask("GET", "/v1/lanes/two", "").await;
    assert_eq!((lane["running"].as_u64(), lane["waiting"].as_u64()), (Some(2), Some(jobs as u64 - 2)));
    for _ in 0..jobs {
        entered.recv().await.unwrap().send(()).unwrap();
    }
    for id in ids {
        world.wait(&id).await;
    }
    crowd.lock().unwrap().most
}

#[tokio::test]
async fn gc_l1_six_jobs_in_a_lane_of_two_never_run_more_than_two_at_once() {
    assert_eq!(most_at_once(6).await, 2);
}

#[tokio::test]
async fn gc_l2_ten_jobs_in_a_lane_of_two_never_run_more_than_two_at_once() {
    assert_eq!(most_at_once(10).await, 2);
}

#[tokio::test]
async fn gc_l3_lanes_of_a_gateway_are_there_with_their_sizes_and_nothing_in_them() {
    let world = World::new().await;
    let lanes = world.ask("GET", "/v1/lanes", "").await;
    let shown: Vec<(&str, u64, u64)> = lanes["lanes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| {
            let metric = |key: &str| lane[key].as_u64().unwrap();
            (lane["name"].as_str().unwrap(), metric("running_max"), metric("running"))
        })
        .collect();
    for lane in [("cron", 30, 0), ("main", 30, 0), ("subagent", 50, 0), ("team", 100, 0)] {
        assert!(shown.contains(&lane), "{lane:?} in {shown:?}");
    }
}

#[tokio::test]
async fn gc_l4_a_known_lane_is_found_and_an_unknown_one_is_rejected_natively() {
    let world = World::new().await;
    for lane in ["subagent", "team"] {
        let body = json!({"kind": "unserved", "lane": lane}).to_string();
        assert_eq!(world.ask("POST", "/v1/jobs", &body).await["lane"], lane);
    }
    // To the gateway it means `main`; here it is more likely a typo.
    let body = r#"{"kind":"unserved","lane":"nowhere"}"#;
    let (status, problem) = answer(world.request("POST", "/v1/jobs").body(body)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("unknown_lane")));
}

#[tokio::test]
async fn gc_l5_an_existing_lane_keeps_its_size_unless_a_new_one_is_requested() {
    let world = World::new().await;
    let put = async |body: &'static str| {
        let (status, lane) = answer(world.request("PUT", "/v1/lanes/custom").body(body)).await;
        (status.as_u16(), lane["running_max"].as_u64().unwrap())
    };
    assert_eq!(put(r#"{"running_max":8}"#).await, (201, 8));
    assert_eq!(put("{}").await, (200, 8), "requested again, it is the existing lane");
    assert_eq!(put(r#"{"running_max":16}"#).await, (200, 16), "resized while it is in use");
}

#[tokio::test]
async fn gc_l6_a_job_that_is_canceled_while_its_lane_is_full_never_runs() {
    let world = World::new().await;
    let mut began = with_turns(&world).await;
    world.ask("PUT", "/v1/lanes/one", r#"{"running_max":1}"#).await;
    let runs = world.submit(r#"{"kind":"turn","lane":"one"}"#).await;
    assert_eq!(began.recv().await.unwrap(), runs);
    let gone = world.submit(r#"{"kind":"turn","lane":"one"}"#).await;
    world.ask("POST", &format!("/v1/jobs/{gone}/cancel"), "").await;
    let next = world.submit(r#"{"kind":"turn","lane":"one"}"#).await;
    world.ask("POST", &format!("/v1/jobs/{runs}/cancel"), "").await;
    assert_eq!(began.recv().await.unwrap(), next, "the slot goes to the next one");
    assert_eq!(job(&world, &gone).await["attempt"], 0);
}

#[tokio::test]
async fn defect_17_every_session_of_a_tenant_is_reset_by_one_call() {
    let world = World::closed().await;
    let mut beginnings = with_turns(&world).await;
    let (acme, other) =
        (world.token(Some("acme"), Role::Operator).await, world.token(Some("other"), Role::Operator).await);
    let submit = async |token: &str, session: &str| {
        let body = json!({"kind": "turn", "session": session}).to_string();
        let (status, job) = answer(world.request_as(token, "POST", "/v1/jobs").body(body)).await;
        assert_eq!(status, 201, "{job}");
        job["id"].as_str().unwrap().to_owned()
    };
    let mut ids = Vec::new();
    for session in ["a", "b"] {
        for _ in 0..2 {
            ids.push(submit(&acme, session).await);
        }
    }
    let theirs = submit(&other, "a").await;
    for _ in 0..3 {
        beginnings.recv().await.unwrap();
    }
    let submitter = world.token(Some("acme"), Role::Submitter).await;
    assert_eq!(answer(world.request_as(&submitter, "POST", "/v1/sessions/reset")).await.0, 403);
    let (status, reset) = answer(world.request_as(&acme, "POST", "/v1/sessions/reset")).await;
    assert_eq!((status.as_u16(), &reset), (200, &json!({"sessions": 2, "running": 2, "waiting": 2})));
    for id in &ids {
        let shown = job(&world, id).await;
        assert_eq!((&shown["state"], &shown["reason"]), (&json!("canceled"), &json!("cleared")), "{shown}");
    }
    assert_eq!(job(&world, &theirs).await["state"], "running", "other tenants go on");
    let (_, session) = answer(world.request_as(&acme, "GET", "/v1/sessions/a")).await;
    assert_eq!(session["generation"], 1, "{session}");
    let all = world.ask("POST", "/v1/sessions/reset", "").await;
    assert_eq!(all["sessions"], 1, "a server-wide caller that names no tenant means all: {all}");
    world.stop().await;
}
