//! Jobs: shown, listed, canceled, retried.

use std::collections::BTreeSet;

use expect_test::expect;
use laneway_core::{Failure, Name};
use laneway_runtime::Handlers;
use serde_json::{Value, json};

use crate::world::{World, answer, without_ids};

#[tokio::test]
async fn shows_a_job_that_succeeded() {
    let world = World::new().await;
    world
        .run(Handlers::new().on("add", |job| async move {
            job.log("adding");
            job.progress(0.5, "half");
            let numbers: Vec<u64> = job.json()?;
            Ok::<_, Failure>(json!({ "sum": numbers.iter().sum::<u64>() }))
        }))
        .await;
    let id = world.submit(r#"{"kind":"add","payload":[1,2,3]}"#).await;
    world.wait(&id).await;
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "agent": "default",
          "attempt": 1,
          "created_at": "2023-11-14T22:13:20.000Z",
          "failures": 0,
          "finished_at": "2023-11-14T22:13:20.000Z",
          "id": "<id>",
          "kind": "add",
          "lane": "main",
          "losses": 0,
          "priority": 0,
          "reason": "done",
          "result": {
            "sum": 6
          },
          "started_at": "2023-11-14T22:13:20.000Z",
          "state": "succeeded",
          "submitted_by": "open",
          "tenant": "default",
          "timeout": "10m"
        }
    "#]]
    .assert_eq(&world.talk("GET", &format!("/v1/jobs/{id}"), "").await);
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "lines": [
            {
              "at": "2023-11-14T22:13:20.000Z",
              "attempt": 1,
              "line": 1,
              "stream": "log",
              "text": "adding"
            }
          ]
        }
    "#]]
    .assert_eq(&world.talk("GET", &format!("/v1/jobs/{id}/logs"), "").await);
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "attempts": [
            {
              "attempt": 1,
              "attempt_id": "<id>",
              "finished_at": "2023-11-14T22:13:20.000Z",
              "started_at": "2023-11-14T22:13:20.000Z",
              "state": "succeeded"
            }
          ]
        }
    "#]]
    .assert_eq(&world.talk("GET", &format!("/v1/jobs/{id}/attempts"), "").await);
    let events = world.ask("GET", &format!("/v1/jobs/{id}/events"), "").await;
    let kinds: Vec<&str> =
        events["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["job.submitted", "job.started", "job.succeeded"]);
    let explained = world.ask("GET", &format!("/v1/jobs/{id}/explain"), "").await;
    assert_eq!((&explained["state"], &explained["blocked_by"]), (&json!("succeeded"), &json!([])));
}

#[tokio::test]
async fn shows_results_that_are_not_json() {
    let world = World::new().await;
    world.run(Handlers::new().on("raw", |_| async { Ok::<_, Failure>(vec![0xffu8, 0, 1]) })).await;
    let id = world.submit(r#"{"kind":"raw"}"#).await;
    world.wait(&id).await;
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}"), "").await["result"], json!({"base64": "/wAB"}));
}

#[tokio::test]
async fn shows_failures_and_retries() {
    let world = World::new().await;
    world
        .run(Handlers::new().on("break", |_| async {
            Err::<(), _>(Failure {
                code: Name::fixed("no_luck"),
                message: "it broke".into(),
                retry_after: None,
                retryable: false,
                detail: Some(b"{\"at\":3}"[..].into()),
            })
        }))
        .await;
    let id = world.submit(r#"{"kind":"break","payload":7,"idempotency_key":"i"}"#).await;
    world.wait(&id).await;
    let failed = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!(
        (&failed["state"], &failed["reason"], &failed["failures"]),
        (&json!("failed"), &json!("permanent"), &json!(1))
    );
    assert_eq!(
        failed["error"],
        json!({"code": "no_luck", "message": "it broke", "retryable": false, "detail": {"at": 3}})
    );
    let (status, again) = answer(world.request("POST", &format!("/v1/jobs/{id}/retry"))).await;
    assert_eq!((status.as_u16(), &again["retry_of"]), (201, &json!(id)));
    let new = again["id"].as_str().unwrap();
    assert_ne!(new, id);
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{new}/payload"), "").await, json!(7));
}

#[tokio::test]
async fn cancels_and_rejects_a_second_cancel() {
    let world = World::new().await;
    let id = world.submit(r#"{"kind":"unserved"}"#).await;
    expect![[r#"
        409 not_ended: The job has not ended
          the job is queued; only ended jobs can be retried, so wait or cancel it first
    "#]]
    .assert_eq(&world.problem("POST", &format!("/v1/jobs/{id}/retry"), "").await);
    let canceled = world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    assert_eq!((&canceled["state"], &canceled["reason"]), (&json!("canceled"), &json!("requested")));
    expect![[r#"
        409 already_ended: The job has ended
          the job has ended (canceled) and cannot be canceled
    "#]]
    .assert_eq(&world.problem("POST", &format!("/v1/jobs/{id}/cancel"), "").await);
}

#[tokio::test]
async fn explains_why_a_job_waits() {
    let world = World::new().await;
    world.ask("POST", "/v1/lanes/main/pause", "").await;
    world.submit(r#"{"kind":"unserved","session":"s"}"#).await;
    let id = world.submit(r#"{"kind":"unserved","session":"s"}"#).await;
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "ahead": 1,
          "blocked_by": [
            {
              "ahead": 1,
              "code": "session_order",
              "message": "1 earlier job(s) of session s start first, <id> next.",
              "name": "s"
            },
            {
              "code": "lane_paused",
              "message": "Lane main is paused; resume it to start jobs.",
              "name": "main"
            },
            {
              "code": "no_executor",
              "message": "No worker or handler runs the kind unserved; start one.",
              "name": "unserved"
            }
          ],
          "id": "<id>",
          "state": "queued",
          "summary": "1 earlier job(s) of session s start first, <id> next. 2 more gate(s) block it."
        }
    "#]]
    .assert_eq(&world.talk("GET", &format!("/v1/jobs/{id}/explain"), "").await);
}

async fn walk(world: &World, filter: &str, limit: usize) -> Vec<Value> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    for _ in 0..1_000 {
        let page = world.ask("GET", &format!("/v1/jobs?limit={limit}{filter}{cursor}"), "").await;
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= limit);
        found.extend(jobs.iter().cloned());
        match page["next"].as_str() {
            None => return found,
            Some(next) => cursor = format!("&cursor={next}"),
        }
    }
    panic!("the list has no end");
}

async fn lists_and_pages(world: &World) {
    for n in 0..25 {
        let (agent, kind, tag) = (n % 5, n % 2, n % 3);
        let session = if n % 4 == 0 { r#","session":"s""# } else { "" };
        world
            .submit(&format!(r#"{{"kind":"k{kind}","agent":"a{agent}","tags":["t{tag}","all"]{session}}}"#))
            .await;
    }
    let all = walk(world, "", 7).await;
    assert_eq!(all.len(), 25);
    let ids: BTreeSet<&str> = all.iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 25, "no job is shown twice");
    assert!(all.windows(2).all(|pair| pair[0]["id"].as_str() > pair[1]["id"].as_str()), "newest first");
    for (filter, count) in [
        ("&agent=a3", 5),
        ("&kind=k1", 12),
        ("&tag=t0", 9),
        ("&session=s", 7),
        ("&lane=main", 25),
        ("&lane=other", 0),
        ("&state=queued", 25),
        ("&state=running,failed&state=canceled", 0),
        ("&agent=a0&kind=k0&tag=all", 3),
        ("&created_after=2023-11-14T22:13:19Z", 25),
        ("&created_before=2023-11-14T22:13:20Z", 0),
        ("&search=k1", 12),
        ("&search=k1%20A3", 3),
        ("&search=unknown", 0),
        ("&error_code=timeout", 0),
        ("&reason=requested", 0),
        ("&finished_after=2023-11-14T22:13:19Z", 0),
    ] {
        assert_eq!(walk(world, filter, 3).await.len(), count, "{filter}");
    }
    let ended = all[3]["id"].as_str().unwrap();
    world.ask("POST", &format!("/v1/jobs/{ended}/cancel"), "").await;
    let canceled = walk(world, "&state=canceled", 10).await;
    assert_eq!(canceled.iter().map(|job| job["id"].as_str().unwrap()).collect::<Vec<_>>(), [ended]);
    for filter in
        ["&reason=requested,done", "&finished_after=2023-11-14T22:13:19Z", &format!("&search={ended}")]
    {
        assert_eq!(walk(world, filter, 10).await.len(), 1, "{filter}");
    }
    let counted = world.ask("GET", "/v1/jobs?count=true&limit=1", "").await;
    assert_eq!(
        counted["counts"],
        json!({"total": 25, "states": {"canceled": 1, "queued": 24}, "more_groups": 0})
    );
    let counted = world.ask("GET", "/v1/jobs/counts?by=kind&state=queued,canceled", "").await;
    let (kind, other) = (&counted["groups"][0], &counted["groups"][1]);
    assert_eq!((&kind["name"], &kind["total"], &other["total"]), (&json!("k0"), &json!(13), &json!(12)));
    assert_eq!(counted["total"], 25);
    for (path, field) in [
        ("/v1/jobs?search=-", "search"),
        ("/v1/jobs?reason=bored", "reason"),
        ("/v1/jobs?error_code=a%20b", "error_code"),
        ("/v1/jobs?finished_after=yesterday", "finished_after"),
        ("/v1/jobs/counts?by=color", "by"),
        ("/v1/jobs/counts?limit=1", "limit"),
        ("/v1/jobs?serach=x", "serach"),
    ] {
        let (status, problem) = answer(world.request("GET", path)).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!(field)), "{path}: {problem}");
    }
}

#[tokio::test]
async fn lists_with_filters_and_pages() {
    lists_and_pages(&World::new().await).await;
}

#[tokio::test]
async fn lists_with_filters_and_pages_in_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    lists_and_pages(&World::in_dir(dir.path()).await).await;
}

#[tokio::test]
async fn a_cursor_belongs_to_its_own_list() {
    let world = World::new().await;
    for _ in 0..3 {
        world.submit(r#"{"kind":"k"}"#).await;
    }
    let page = world.ask("GET", "/v1/jobs?limit=1&kind=k", "").await;
    let cursor = page["next"].as_str().unwrap();
    world.ask("GET", &format!("/v1/jobs?limit=2&kind=k&cursor={cursor}"), "").await;
    for path in [
        format!("/v1/jobs?kind=l&cursor={cursor}"),
        format!("/v1/jobs?cursor={cursor}"),
        format!("/v1/audit?cursor={cursor}"),
        "/v1/jobs?kind=k&cursor=AAAA".to_owned(),
    ] {
        let (status, problem) = answer(world.request("GET", &path)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (400, &json!("invalid_cursor")), "{path}");
    }
}

#[tokio::test]
async fn survives_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let id = {
        let world = World::in_dir(dir.path()).await;
        let id = world.submit(r#"{"kind":"k","payload":{"a":1},"tags":["x"]}"#).await;
        let before = without_ids(&world.ask("GET", &format!("/v1/jobs/{id}"), "").await.to_string());
        world.stop().await;
        (id, before)
    };
    let world = World::in_dir(dir.path()).await;
    let after = world.ask("GET", &format!("/v1/jobs/{}", id.0), "").await;
    assert_eq!(without_ids(&after.to_string()), id.1);
}

#[tokio::test]
async fn gives_the_latest_events_of_a_job() {
    let world = World::new().await;
    let id = world.submit(r#"{"kind":"unserved"}"#).await;
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    let kinds = async |query: &str| {
        let events = world.ask("GET", &format!("/v1/jobs/{id}/events{query}"), "").await;
        let events = events["events"].as_array().unwrap().iter();
        events.map(|event| event["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds("").await, ["job.submitted", "job.canceled"]);
    assert_eq!(kinds("?limit=1000").await, ["job.submitted", "job.canceled"]);
    assert_eq!(kinds("?limit=1").await, ["job.canceled"]);
    for limit in ["0", "1001", "x"] {
        let (status, problem) =
            answer(world.request("GET", &format!("/v1/jobs/{id}/events?limit={limit}"))).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("limit")), "{limit}");
    }
}

#[tokio::test]
async fn defect_19_a_retry_into_a_deleted_lane_is_rejected() {
    let world = World::new().await;
    world.ask("PUT", "/v1/lanes/nightly", "{}").await;
    let id = world.submit(r#"{"kind":"unserved","lane":"nightly"}"#).await;
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    assert_eq!(answer(world.request("DELETE", "/v1/lanes/nightly")).await.0, 204);
    let retry = format!("/v1/jobs/{id}/retry");
    let (status, problem) = answer(world.request("POST", &retry)).await;
    assert_eq!((status.as_u16(), &problem["code"]), (422, &json!("unknown_lane")), "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("nightly") && detail.contains("make the lane again"), "{detail}");
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0, "no job was created");
    world.ask("PUT", "/v1/lanes/nightly", "{}").await;
    let (status, again) = answer(world.request("POST", &retry)).await;
    assert_eq!((status.as_u16(), &again["lane"]), (201, &json!("nightly")), "{again}");
}

#[tokio::test]
async fn a_retry_rejects_an_idempotency_key() {
    let world = World::new().await;
    let id = world.submit(r#"{"kind":"unserved"}"#).await;
    world.ask("POST", &format!("/v1/jobs/{id}/cancel"), "").await;
    let retry = format!("/v1/jobs/{id}/retry");
    let (status, problem) = answer(world.request("POST", &retry).header("idempotency-key", "i")).await;
    assert_eq!(
        (status.as_u16(), &problem["code"], &problem["field"]),
        (400, &json!("invalid_field"), &json!("Idempotency-Key"))
    );
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0, "no job was created");
    assert_eq!(answer(world.request("POST", &retry)).await.0, 201);
}
