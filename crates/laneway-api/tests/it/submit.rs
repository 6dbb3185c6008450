//! Submits: one job, many jobs, repeated requests.

use expect_test::expect;
use laneway_core::{Failure, Role};
use laneway_runtime::Handlers;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, answer, problem, with_pauses, write_down};

#[tokio::test]
async fn submits_a_job() {
    let world = World::new().await;
    let answer = world.talk("POST", "/v1/jobs", r#"{"kind":"render"}"#).await;
    expect![[r#"
        201 Created
        content-type: application/json
        location: /v1/jobs/<id>
        {
          "agent": "default",
          "attempt": 0,
          "created_at": "2023-11-14T22:13:20.000Z",
          "failures": 0,
          "id": "<id>",
          "kind": "render",
          "lane": "main",
          "losses": 0,
          "priority": 0,
          "state": "queued",
          "submitted_by": "open",
          "tenant": "default",
          "timeout": "10m",
          "warnings": [
            {
              "code": "unserved_kind",
              "message": "no handler serves kind render; the job waits until a handler, a target or a worker does"
            }
          ]
        }
    "#]]
    .assert_eq(&answer);
}

#[tokio::test]
async fn the_response_has_all_requested_fields() {
    let world = World::new().await;
    world.run(Handlers::new().on("render", |_| async { Ok::<_, Failure>(Vec::new()) })).await;
    let body = r#"{"kind":"render","payload":{"url":"x"},"agent":"a","lane":"main","session":{"key":"s","max_concurrent":2},
        "priority":"HIGH","keys":{"profile":"p1"},"not_before":"2030-01-01T09:00:00+01:00","deadline":"2030-01-02T00:00:00Z",
        "queue_timeout":"90m","timeout":"30s","retry":{"retries_max":1,"backoff":"cron"},"tags":["t1","t2"]}"#;
    let submitted = world.ask("POST", "/v1/jobs", body).await;
    expect![[r#"
        {
          "agent": "a",
          "attempt": 0,
          "created_at": "2023-11-14T22:13:20.000Z",
          "deadline": "2030-01-02T00:00:00.000Z",
          "failures": 0,
          "id": "<id>",
          "keys": {
            "profile": "p1"
          },
          "kind": "render",
          "lane": "main",
          "losses": 0,
          "not_before": "2030-01-01T08:00:00.000Z",
          "priority": -10,
          "queue_timeout": "1h30m",
          "session": "s",
          "state": "scheduled",
          "submitted_by": "open",
          "tags": [
            "t1",
            "t2"
          ],
          "tenant": "default",
          "timeout": "30s"
        }"#]]
    .assert_eq(&crate::world::without_ids(&format!("{submitted:#}")));
    let id = submitted["id"].as_str().unwrap();
    let stored = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!(stored, submitted, "the response to a submit equals the stored job");
    let payload = world.ask("GET", &format!("/v1/jobs/{id}/payload"), "").await;
    assert_eq!(payload, json!({"url": "x"}));
}

#[tokio::test]
async fn the_response_has_the_hours_of_the_agent() {
    let world = World::with_config("agents.night.hours = \"22:00-06:00\"").await;
    let submitted = world.ask("POST", "/v1/jobs", r#"{"kind":"k","agent":"night"}"#).await;
    assert_eq!(submitted["hours"], "22:00-06:00");
    let stored = world.ask("GET", &format!("/v1/jobs/{}", submitted["id"].as_str().unwrap()), "").await;
    assert_eq!(stored["hours"], submitted["hours"], "the response to a submit equals the stored job");
}

#[tokio::test]
async fn keeps_payloads_byte_for_byte() {
    let world = World::new().await;
    for payload in [
        "null",
        "1e400",
        "[1, 2 ,3.0]",
        r#"{"a":1,"a":2}"#,
        "\"\u{1f600} é\"",
        "123456789012345678901234567890",
    ] {
        let id = world.submit(&format!(r#"{{"kind":"k","payload":{payload}}}"#)).await;
        let response = world.request("GET", &format!("/v1/jobs/{id}/payload")).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), payload);
    }
}

#[tokio::test]
async fn repeated_requests_get_the_first_job() {
    let world = World::new().await;
    let body = r#"{"kind":"k","payload":{"n":1},"idempotency_key":"i1"}"#;
    let (status, first) = answer(world.request("POST", "/v1/jobs").body(body)).await;
    assert_eq!(status, 201);
    let (status, again) = answer(world.request("POST", "/v1/jobs").body(body)).await;
    assert_eq!(status, 200);
    assert_eq!((&again["id"], &again["existing"]), (&first["id"], &json!(true)));
    let other_order = r#"{ "payload":{"n":1}, "kind":"k" }"#;
    let by_header = world.request("POST", "/v1/jobs").header("idempotency-key", "i1").body(other_order);
    let (status, again) = answer(by_header).await;
    assert_eq!((status.as_u16(), &again["id"]), (200, &first["id"]));
    let other =
        world.problem("POST", "/v1/jobs", r#"{"kind":"k","payload":{"n":2},"idempotency_key":"i1"}"#).await;
    expect![[r#"
        422 idempotency_mismatch: The key was used for another request
          field: idempotency_key
          idempotency_key: "i1" was used for another request; choose a new key
    "#]]
    .assert_eq(&other);
    let both = world.request("POST", "/v1/jobs").header("idempotency-key", "i2").body(body);
    expect![[r#"
        400 invalid_field: A field has an invalid value
          field: Idempotency-Key
          Idempotency-Key differs from the field idempotency_key; send one of them
    "#]]
    .assert_eq(&problem(both).await);
}

#[tokio::test]
async fn a_thousand_equal_requests_make_one_job() {
    let world = World::new().await;
    let calls = (0..1_000).map(|_| {
        let request = world.request("POST", "/v1/jobs").body(r#"{"kind":"k","idempotency_key":"same"}"#);
        async move { answer(request).await.1["id"].as_str().unwrap().to_owned() }
    });
    let ids: std::collections::BTreeSet<String> =
        futures_util::future::join_all(calls).await.into_iter().collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 1);
}

#[tokio::test]
async fn submits_a_batch_with_one_item_each() {
    let world = World::new().await;
    world.ask("PUT", "/v1/lanes/tight", r#"{"queued_max":1}"#).await;
    let body = r#"{"jobs":[{"kind":"a"},{"kind":"b","lne":"x"},{"kind":"c","priority":"soon"},
        {"kind":"d","lane":"tight"},{"kind":"e","lane":"tight"},{"kind":"f","deadline":"2020-01-01T00:00:00Z"}]}"#;
    expect![[r#"
        200 OK
        content-type: application/json
        {
          "accepted": 2,
          "items": [
            {
              "job": {
                "agent": "default",
                "attempt": 0,
                "created_at": "2023-11-14T22:13:20.000Z",
                "failures": 0,
                "id": "<id>",
                "kind": "a",
                "lane": "main",
                "losses": 0,
                "priority": 0,
                "state": "queued",
                "submitted_by": "open",
                "tenant": "default",
                "timeout": "10m",
                "warnings": [
                  {
                    "code": "unserved_kind",
                    "message": "no handler serves kind a; the job waits until a handler, a target or a worker does"
                  }
                ]
              },
              "status": 201
            },
            {
              "problem": {
                "code": "unknown_field",
                "detail": "lne: unknown field `lne`, expected one of `kind`, `payload`, `agent`, `lane`, `session`, `priority`, `keys`, `not_before`, `deadline`, `queue_timeout`, `timeout`, `retry`, `idempotency_key`, `tags`, `callback`, `cost`, `quiet`, `hours`, `expected_duration`, `unique`, `worker`, `traceparent`, `tracestate`",
                "field": "lne",
                "request_id": "<request>",
                "status": 400,
                "title": "The field is unknown",
                "type": "urn:laneway:problem:unknown_field"
              },
              "status": 400
            },
            {
              "problem": {
                "code": "invalid_field",
                "detail": "priority must be an integer, or one of urgent, high, normal, low, background",
                "field": "priority",
                "request_id": "<request>",
                "status": 400,
                "title": "A field has an invalid value",
                "type": "urn:laneway:problem:invalid_field"
              },
              "status": 400
            },
            {
              "job": {
                "agent": "default",
                "attempt": 0,
                "created_at": "2023-11-14T22:13:20.000Z",
                "failures": 0,
                "id": "<id>",
                "kind": "d",
                "lane": "tight",
                "losses": 0,
                "priority": 0,
                "state": "queued",
                "submitted_by": "open",
                "tenant": "default",
                "timeout": "10m",
                "warnings": [
                  {
                    "code": "unserved_kind",
                    "message": "no handler serves kind d; the job waits until a handler, a target or a worker does"
                  }
                ]
              },
              "status": 201
            },
            {
              "problem": {
                "code": "queue_full",
                "detail": "the queue is full (lane: queued_max): 1 of 1 jobs wait; submit again later",
                "request_id": "<request>",
                "retry_after_ms": 1000,
                "status": 429,
                "title": "The queue is full",
                "type": "urn:laneway:problem:queue_full"
              },
              "status": 429
            },
            {
              "problem": {
                "code": "deadline_past",
                "detail": "deadline: has passed; give a time in the future",
                "field": "deadline",
                "request_id": "<request>",
                "status": 422,
                "title": "The deadline has passed",
                "type": "urn:laneway:problem:deadline_past"
              },
              "status": 422
            }
          ],
          "rejected": 4
        }
    "#]].assert_eq(&world.talk("POST", "/v1/jobs/batch", body).await);
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 2);
}

#[tokio::test]
async fn an_atomic_batch_is_all_or_nothing() {
    let world = World::new().await;
    let (status, done) = answer(
        world.request("POST", "/v1/jobs/batch").body(r#"{"jobs":[{"kind":"a"},{"kind":"b"}],"atomic":true}"#),
    )
    .await;
    assert_eq!((status.as_u16(), &done["accepted"], &done["rejected"]), (201, &json!(2), &json!(0)));
    for (body, expected) in [
        (
            r#"{"atomic":true,"jobs":[{"kind":"a"},{"kind":"b","deadline":"2020-01-01T00:00:00Z"}]}"#,
            (422, "deadline_past", "jobs[1].deadline"),
        ),
        (
            r#"{"atomic":true,"jobs":[{"kind":"a"},{"kind":"b","lane":"no lane"}]}"#,
            (400, "invalid_field", "jobs[1].lane"),
        ),
        (
            r#"{"atomic":true,"jobs":[{"kind":"a"},{"kind":"b","lne":1}]}"#,
            (400, "unknown_field", "jobs[1].lne"),
        ),
    ] {
        let (status, problem) = answer(world.request("POST", "/v1/jobs/batch").body(body)).await;
        let response =
            (status.as_u16(), problem["code"].as_str().unwrap(), problem["field"].as_str().unwrap());
        assert_eq!(response, expected);
    }
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 2, "no job of a rejected batch is stored");
}

#[tokio::test]
async fn a_batch_repeats_single_jobs() {
    let world = World::new().await;
    let id = world.submit(r#"{"kind":"k","payload":[1],"idempotency_key":"i1"}"#).await;
    let body =
        r#"{"jobs":[{"idempotency_key":"i1","payload":[1],"kind":"k"},{"kind":"k","idempotency_key":"i2"}]}"#;
    let done = world.ask("POST", "/v1/jobs/batch", body).await;
    assert_eq!((&done["items"][0]["status"], &done["items"][0]["job"]["id"]), (&json!(200), &json!(id)));
    assert_eq!(done["items"][0]["job"]["existing"], true);
    assert_eq!(done["items"][1]["status"], 201);
    let key_for_all = world.request("POST", "/v1/jobs/batch").header("idempotency-key", "x").body(body);
    assert_eq!(answer(key_for_all).await.1["field"], "Idempotency-Key");
}

#[tokio::test]
async fn an_idempotency_key_may_appear_once() {
    let world = World::new().await;
    for (first, second) in [("a", "b"), ("a", "a")] {
        let request = world.request("POST", "/v1/jobs").header("idempotency-key", first);
        let (status, problem) =
            answer(request.header("idempotency-key", second).body(r#"{"kind":"k"}"#)).await;
        assert_eq!((status.as_u16(), problem["field"].as_str()), (400, Some("Idempotency-Key")));
    }
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0);
}

/// A list of the fields in their order is not a batch, although the generated parser would take it for one.
#[tokio::test]
async fn a_batch_must_be_an_object() {
    let world = World::new().await;
    let (status, problem) =
        answer(world.request("POST", "/v1/jobs/batch").body(r#"[[{"kind":"a"}],true]"#)).await;
    assert_eq!(status, 400, "{problem}");
    assert_eq!(problem["code"], "invalid_field");
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0);
}

/// The limit of a batch applies while it is read: the rest after the first job too many is not parsed.
#[tokio::test]
async fn defect_09_a_batch_is_rejected_at_its_first_job_too_many() {
    let world = World::new().await;
    // A small one is parsed by its task, a large one on a blocking thread.
    for padding in [1, 2 << 20] {
        let first = format!(r#"{{"kind":"k","payload":"{}"}}"#, "x".repeat(padding));
        let body = format!(r#"{{"jobs":[{first}{} and this is no JSON"#, r#",{"kind":"k"}"#.repeat(10_000));
        let (status, problem) = answer(world.request("POST", "/v1/jobs/batch").body(body)).await;
        assert_eq!((status.as_u16(), &problem["code"]), (400, &"invalid_field".into()), "{problem}");
        assert_eq!(problem["field"], "jobs");
        assert!(problem["detail"].as_str().unwrap().contains("at most 10000"), "{problem}");
    }
    assert_eq!(world.ask("GET", "/v1/stats", "").await["queued"], 0);
}

/// A large batch is parsed while it arrives: the answer to a job too many does not wait for the rest of the body.
#[tokio::test]
async fn defect_09_a_large_batch_is_rejected_before_the_rest_of_it_arrives() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST /v1/jobs/batch HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        world.address,
        28 << 20
    );
    let begun = format!(r#"{{"jobs":[{}"#, r#"{"kind":"k"},"#.repeat(10_001));
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(begun.as_bytes()).await.unwrap();
    // A body that stops arriving is answered 408 after five seconds.
    let answer = read_until(&mut stream, "}").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("at most 10000"), "{answer}");
}

/// A large batch within the item limit is parsed in parts, outside of the server's own threads: other tasks go on
/// meanwhile.
#[tokio::test]
async fn defect_09_a_large_batch_stalls_no_other_call() {
    let world = World::new().await;
    let job = format!(r#"{{"kind":"k","payload":[{}0]}}"#, "[],".repeat(950));
    // Without its last bracket, so that the call ends when the body is parsed.
    let body = format!(r#"{{"jobs":[{}]"#, vec![job; 9_999].join(","));
    assert!(body.len() > 27 << 20);
    let call = answer(world.request("POST", "/v1/jobs/batch").body(body));
    let before = (cpu_ms("/proc/thread-self/stat"), cpu_ms("/proc/self/stat"));
    let ((status, problem), took, pause) = with_pauses(call).await;
    let (own, all) = (cpu_ms("/proc/thread-self/stat") - before.0, cpu_ms("/proc/self/stat") - before.1);
    assert_eq!((status.as_u16(), &problem["code"]), (400, &"malformed_json".into()), "{problem}");
    println!("a batch of 27 MiB took {took:?}, the longest pause of other tasks was {pause:?}");
    println!("the thread of the server and its client used {own} ms of CPU, the process {all} ms");
    assert!(pause < took / 3, "other tasks waited {pause:?} of {took:?}");
    assert!(own < all / 2, "the thread of the server parses: {own} of {all} ms");
}

/// The CPU time of a thread or a process, in milliseconds.
fn cpu_ms(stat: &str) -> u64 {
    let stat = std::fs::read_to_string(stat).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // Linux reports 100 ticks per second, independent of the kernel's own rate.
    10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

/// A large body that stops arriving is answered as a small one: late, and not malformed.
#[tokio::test]
async fn defect_11_a_large_body_that_stops_arriving_is_late() {
    let world = World::new().await;
    let mut late = Vec::new();
    for (sent, path) in [(100, "/v1/jobs"), (100_000, "/v1/jobs"), (100_000, "/v1/runs")] {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 200000\r\n\r\n",
            world.address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; sent]).await.unwrap();
        late.push(stream);
    }
    for mut stream in late {
        let answer = read_until(&mut stream, "}").await;
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    }
}

/// What arrives until this text has come.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains(end) {
        let mut part = [0; 1_024];
        let len = stream.read(&mut part).await.unwrap();
        assert!(len > 0, "the connection ended: {}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&part[..len]);
    }
    String::from_utf8_lossy(&received).into_owned()
}

/// A large batch gets the same items as a small one.
#[tokio::test]
async fn defect_09_a_large_batch_is_judged_job_by_job() {
    let world = World::new().await;
    let payload = "x".repeat(8_000);
    let jobs: Vec<String> = (0..200)
        .map(|n| match n {
            7 => r#"{"knd":"k"}"#.to_owned(),
            8 => "[1]".to_owned(),
            _ => format!(r#"{{"kind":"k{n}","payload":"{payload}"}}"#),
        })
        .collect();
    let body = format!(r#"{{"jobs":[{}]}}"#, jobs.join(" ,\n"));
    assert!(body.len() > 1 << 20);
    let (status, done) = answer(world.request("POST", "/v1/jobs/batch").body(body.clone())).await;
    assert_eq!((status.as_u16(), &done["accepted"], &done["rejected"]), (200, &198.into(), &2.into()));
    for (n, item) in done["items"].as_array().unwrap().iter().enumerate() {
        match n {
            7 => assert_eq!(item["problem"]["code"], "unknown_field"),
            8 => assert_eq!(item["problem"]["code"], "invalid_field"),
            _ => assert_eq!(item["job"]["kind"], format!("k{n}")),
        }
    }
    let cut = &body[..body.len() - 1];
    let (status, problem) = answer(world.request("POST", "/v1/jobs/batch").body(cut.to_owned())).await;
    assert_eq!((status.as_u16(), &problem["code"]), (400, &"malformed_json".into()));
}

/// The bodies of one caller have a budget, and do not affect other callers.
#[tokio::test]
async fn defect_09_bodies_in_flight_have_a_budget() {
    let mut world = World::with_config("[server]\nbodies_per_caller_max = \"1MiB\"").await;
    world.close().await;
    let (one, other) =
        (world.token(Some("a"), Role::Submitter).await, world.token(Some("b"), Role::Submitter).await);
    let batch = |kib: usize| format!(r#"{{"jobs":[{{"kind":"k","payload":"{}"}}]}}"#, "x".repeat(kib << 10));
    let rejected = write_down(world.request_as(&one, "POST", "/v1/jobs/batch").body(batch(1_025))).await;
    assert!(rejected.starts_with("429") && rejected.contains("retry-after: 1"), "{rejected}");
    assert!(rejected.contains("server.bodies_per_caller_max"), "the limit is named: {rejected}");
    // The bytes of a rejected body are released.
    for token in [&one, &other] {
        let (status, done) = answer(world.request_as(token, "POST", "/v1/jobs/batch").body(batch(900))).await;
        assert_eq!((status.as_u16(), &done["accepted"]), (200, &1.into()), "{done}");
    }
}
