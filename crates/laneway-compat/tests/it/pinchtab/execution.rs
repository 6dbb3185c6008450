//! Executing tasks: the request to the instance, and the outcome of every answer.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use laneway_core::{Name, Origin, Span};
use laneway_runtime::config::{InstancePatch, Secret};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::instance::Instance;
use crate::world::{World, click};

async fn world_with(instance: &Instance) -> World {
    let world = World::new("").await;
    world.put_instance("desk", instance.address, &["t1"]).await;
    world
}

#[tokio::test]
async fn pt_s8_json_is_the_result() {
    let instance = Instance::answering(|_| "{\"a\": [1, 2.50]}".into_response()).await;
    let world = world_with(&instance).await;
    let task = world.submit(click("a1")).await;
    let task = world.ended(&task).await;
    assert_eq!((&task["state"], &task["result"]), (&json!("done"), &json!({"a": [1, 2.5]})));
}

#[tokio::test]
async fn other_text_is_the_result_as_a_text() {
    let instance = Instance::answering(|_| "<html>\u{1}\"x\"".into_response()).await;
    let world = world_with(&instance).await;
    let task = world.submit(click("a1")).await;
    assert_eq!(world.ended(&task).await["result"], "<html>\u{1}\"x\"");
}

#[tokio::test]
async fn the_instance_gets_the_caller_and_the_token() {
    let instance = Instance::echo(&["t 1/x"]).await;
    let world = World::new("").await;
    let patch = InstancePatch {
        port: Some(instance.address.port()),
        token: Some(Secret::new("s3cret")),
        ..InstancePatch::default()
    };
    world.live.put_instance(Name::fixed("desk"), patch, Origin::server("test")).await.unwrap();
    let task = json!({"agentId": " odd \u{e9}", "action": "type", "tabId": "t 1/x", "ref": "e5", "params": {"text": "hi"}});
    let id = world.submit(task).await;
    let call = instance.call().await;
    assert_eq!(call.tab, "t 1/x");
    assert_eq!(call.body, json!({"kind": "type", "ref": "e5", "text": "hi"}));
    assert_eq!(call.header("content-type"), Some("application/json"));
    assert_eq!(call.header("x-pinchtab-source"), Some("scheduler"));
    assert_eq!(call.header("x-pinchtab-tab-id"), Some("t 1/x"));
    assert_eq!(
        call.headers["x-agent-id"].as_bytes(),
        "odd \u{e9}".as_bytes(),
        "headers have no spaces around them"
    );
    assert_eq!(call.header("authorization"), Some("Bearer s3cret"));
    let task = world.ended(&id).await;
    assert_eq!((&task["state"], &task["agentId"]), (&json!("done"), &json!(" odd \u{e9}")));
    let dump = world.live.current().dump();
    assert!(!dump.contains("s3cret") && dump.contains("***"), "{dump}");
}

#[tokio::test]
async fn pt_s9_errors_of_the_instance_fail_the_task_with_its_message() {
    let instance = Instance::answering(|_| (http_status(500), "boom").into_response()).await;
    let world = world_with(&instance).await;
    let id = world.submit(click("a1")).await;
    let task = world.ended(&id).await;
    assert_eq!((&task["state"], &task["error"]), (&json!("failed"), &json!("executor returned 500: boom")));
}

fn http_status(status: u16) -> axum::http::StatusCode {
    axum::http::StatusCode::from_u16(status).unwrap()
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let elsewhere = Instance::echo(&["t1"]).await;
    let location = format!("http://{}/tabs/t1/action", elsewhere.address);
    let instance = Instance::answering(move |_| {
        Response::builder().status(307).header("location", &location).body(Body::empty()).unwrap()
    })
    .await;
    let world = world_with(&instance).await;
    let id = world.submit(click("a1")).await;
    assert_eq!(world.ended(&id).await["error"], "executor returned 307: redirects are not followed");
    assert!(elsewhere.is_quiet().await);
}

#[tokio::test]
async fn pt_s10_an_unknown_tab_fails_the_task() {
    let instance = Instance::echo(&["t1"]).await;
    let world = world_with(&instance).await;
    let id = world.submit(json!({"agentId": "a1", "action": "click", "tabId": "t9"})).await;
    let error = world.ended(&id).await["error"].as_str().unwrap().to_owned();
    assert_eq!(error, "could not resolve tab \"t9\": tab \"t9\" not found: no instance has it");
    assert_eq!(world.submit(click("a1")).await.len(), 36, "the scheduler goes on");
}

#[tokio::test]
async fn an_instance_that_is_down_fails_the_task_and_nothing_else() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let world = World::new("").await;
    world.put_instance("down", address, &["t1"]).await;
    let id = world.submit(click("a1")).await;
    let error = world.ended(&id).await["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("executor request failed: ") && error.len() < 500, "{error}");
    assert!(!error.contains(&address.port().to_string()), "addresses are the operator's: {error}");
    let up = Instance::echo(&["t2"]).await;
    world.put_instance("up", up.address, &[]).await;
    let id = world.submit(json!({"agentId": "a1", "action": "click", "tabId": "t2"})).await;
    assert_eq!(world.ended(&id).await["state"], "done", "another instance still works");
}

#[tokio::test]
async fn an_answer_of_a_hundred_megabytes_is_cut_short() {
    let instance = Instance::answering(|_| {
        let chunk = axum::body::Bytes::from(vec![b'x'; 1 << 20]);
        let chunks = stream::iter(0..100).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
        Response::new(Body::from_stream(chunks))
    })
    .await;
    let world = world_with(&instance).await;
    let id = world.submit(click("a1")).await;
    let task = world.ended(&id).await;
    assert_eq!(task["error"], "failed to read executor response: the answer has more than 1048576 bytes");
}

/// A server that answers one call after the other with these bytes and closes the connection.
async fn server_answering(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = Vec::new();
            while !asked.windows(4).any(|part| part == b"\r\n\r\n")
                && stream.read_buf(&mut asked).await.unwrap_or(0) > 0
            {}
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            // Closing a connection with unread data resets it, and the answer is lost.
            while stream.read_buf(&mut asked).await.unwrap_or(0) > 0 {}
        }
    });
    address
}

#[tokio::test]
async fn garbage_fails_the_task_with_a_clear_message() {
    for (bytes, begins) in [
        (&b"\x00\xffnonsense\r\n\r\n"[..], "executor request failed: "),
        (&b""[..], "executor request failed: "),
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort"[..], "failed to read executor response: "),
    ] {
        let world = World::new("").await;
        world.put_instance("odd", server_answering(bytes).await, &["t1"]).await;
        let id = world.submit(click("a1")).await;
        let task = world.ended(&id).await;
        let error = task["error"].as_str().unwrap();
        assert!(error.starts_with(begins) && error.len() < 500, "{bytes:?}: {error}");
    }
}

#[tokio::test]
async fn a_running_deadline_closes_the_connection() {
    let instance = Instance::holding(&["t1"]).await;
    let world = world_with(&instance).await;
    let id = world.submit(click("a1")).await;
    instance.call().await;
    world.clock.advance(Span::secs(60));
    let task = world.ended(&id).await;
    assert_eq!(
        (&task["state"], &task["error"]),
        (&json!("failed"), &json!("executor request failed: context deadline exceeded"))
    );
    assert_eq!(world.stats().await["metrics"]["tasksExpired"], 0, "it did not wait");
}

#[tokio::test]
async fn a_deadline_far_away_is_the_only_limit() {
    let instance = Instance::holding(&["t1"]).await;
    let world = world_with(&instance).await;
    let mut task = click("a1");
    task["deadline"] = json!("2023-11-15T22:13:20Z");
    let id = world.submit(task).await;
    instance.call().await;
    world.clock.advance(Span::hours(20));
    assert_eq!(world.task(&id).await["state"], "running", "neither 60 seconds nor 10 minutes end it");
    instance.release.add_permits(1);
    assert_eq!(world.ended(&id).await["state"], "done");
}

#[tokio::test]
async fn a_crash_fails_what_ran_and_keeps_what_waited() {
    let instance = Instance::holding(&["t1"]).await;
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        Box::new(
            laneway_store::SqliteStore::open(dir.path(), laneway_store::SqliteOptions::default()).unwrap(),
        )
    };
    let limits = "lanes.pinchtab.running_max = 1";
    let world = World::over(open(), limits, laneway_runtime::Clock::system()).await;
    world.put_instance("desk", instance.address, &["t1"]).await;
    let mut patient = click("a1");
    patient["deadline"] = json!("2100-01-01T00:00:00Z");
    let (ran, waited) = (world.submit(patient.clone()).await, world.submit(patient).await);
    instance.call().await;
    // The loop gets no report: it finds the attempt open at its next start.
    world.die().await;
    let world = World::over(open(), limits, laneway_runtime::Clock::system()).await;
    let lost = world.ended(&ran).await;
    assert_eq!(
        (&lost["state"], &lost["error"]),
        (&json!("failed"), &json!("executor request failed: the scheduler stopped while the task ran"))
    );
    instance.call().await;
    instance.release.add_permits(8);
    assert_eq!(world.ended(&waited).await["state"], "done", "instances that calls put survive, too");
    world.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn tabs_are_found_by_asking_and_lost_when_the_instance_says_so() {
    let (one, other) = (Instance::echo(&["t1"]).await, Instance::echo(&["t2"]).await);
    let world = World::new("").await;
    world.put_instance("one", one.address, &[]).await;
    world.put_instance("other", other.address, &[]).await;
    for tab in ["t1", "t2", "t1"] {
        let id = world.submit(json!({"agentId": "a1", "action": "click", "tabId": tab})).await;
        assert_eq!(world.ended(&id).await["result"]["tab"], tab);
    }
    assert!(one.lists() <= 2 && other.lists() <= 2, "what is known is not asked again");
    let gone = Instance::answering(|_| (http_status(404), "no such tab").into_response()).await;
    let world = World::new("").await;
    world.put_instance("gone", gone.address, &[]).await;
    let (status, reply) = world.ask("POST", "/tabs/t1/action", &Value::Null).await;
    assert_eq!((status, &reply), (404, &json!("no such tab")));
}

#[tokio::test]
async fn unknown_tabs_do_not_make_instances_list_all_day() {
    let instance = Instance::echo(&["t1"]).await;
    let world = World::new("").await;
    world.put_instance("desk", instance.address, &[]).await;
    let began = std::time::Instant::now();
    let tasks = (0..20).map(|number| json!({"action": "click", "tabId": format!("none-{number}")}));
    let batch = json!({"agentId": "a1", "tasks": tasks.collect::<Vec<_>>()});
    let (_, answer) = world.ask("POST", "/tasks/batch", &batch).await;
    for task in answer["tasks"].as_array().unwrap() {
        let task = world.ended(task["taskId"].as_str().unwrap()).await;
        assert!(task["error"].as_str().unwrap().ends_with("not found: no instance has it"), "{task}");
    }
    assert!(instance.lists() as u64 <= 1 + began.elapsed().as_secs(), "asked {} times", instance.lists());
}

#[tokio::test]
async fn an_instance_that_lists_nonsense_is_reported_and_does_not_hide_the_others() {
    let world = World::new("").await;
    world
        .put_instance("odd", server_answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnope").await, &[])
        .await;
    let id = world.submit(click("a1")).await;
    let error = world.ended(&id).await["error"].as_str().unwrap().to_owned();
    let expected = "could not resolve tab \"t1\": tab \"t1\" not found: no instance that answers has it (odd: does not list tabs)";
    assert_eq!(error, expected);
    let good = Instance::echo(&["t1"]).await;
    world.put_instance("good", good.address, &[]).await;
    let id = world.submit(click("a1")).await;
    assert_eq!(world.ended(&id).await["state"], "done");
}
