//! Reports of workers and requests of clients are stored and shown: failures with their data, metrics, metadata,
//! references, commands.

use std::time::Duration;

use laneway_core::Span;
use serde_json::{Value, json};

use super::fake_worker::FakeWorker;
use super::page::{Page, node, workflow};
use crate::world::World;

/// The node `a` of a run, once `is_so`: feedback is written to the job's log a little later.
async fn node_when(world: &World, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..300 {
        let run = world.run(id).await;
        if is_so(&run["nodes"][0]) {
            return run["nodes"][0].clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the condition never holds: {}", world.run(id).await);
}

#[tokio::test]
async fn defect_15_a_failed_result_keeps_its_error_and_its_data() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let task = fake.take().await;
    let error = json!({"code": "E.MY.DISK", "message": "the disk is full", "remediation": "make room"});
    let result = json!({"rows": 3, "path": "/tmp/x"});
    fake.bring(&task, json!({"status": "FAILED", "result": result, "error": error})).await;
    let received = page.until("failed").await;
    let run = world.run(&id).await;
    let failed = &run["nodes"][0];
    assert_eq!((&failed["status"], &failed["result"]), (&json!("failed"), &result), "{failed}");
    assert_eq!((&failed["error"]["code"], &failed["error"]["message"]), (&error["code"], &error["message"]));
    assert_eq!(failed["error"]["details"]["remediation"], "make room");
    assert_eq!(run["error"]["details"]["remediation"], "make room");
    let reported =
        |kind: &str| received.iter().find(|event| event["type"] == kind).unwrap_or_else(|| panic!("{kind}"));
    assert_eq!(reported("node.error")["data"]["error"]["details"]["remediation"], "make room");
    let snapshot = &reported("node.result.snapshot")["data"];
    assert_eq!((&snapshot["content"], &snapshot["complete"]), (&result, &json!(true)));
    // The native API returns the same.
    let job = failed["metadata"]["jobId"].as_str().unwrap();
    let (_, job) = world.ask("GET", &format!("/v1/jobs/{job}"), &Value::Null).await;
    assert_eq!(job["error"]["detail"]["result"], result, "{job}");
    assert_eq!(job["error"]["detail"]["remediation"], "make room");
}

/// Workers of the original system send no `error`; the result contains the handler's message.
#[tokio::test]
async fn defect_15_a_failed_result_without_an_error_says_what_its_result_says() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    for (result, message) in [
        (json!({"error": "no such file"}), "no such file"),
        (json!({"error": {"message": "deep", "code": "E.DEEP"}}), "deep"),
        (json!({"message": "plain"}), "plain"),
        (Value::Null, "the worker gave no reason"),
    ] {
        let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
        let task = fake.take().await;
        // An empty result has no information, and is not shown.
        let reply = if result.is_null() { json!({}) } else { result.clone() };
        fake.end(&task, "FAILED", reply).await;
        page.until("failed").await;
        let failed = &world.run(&id).await["nodes"][0];
        assert_eq!((&failed["error"]["message"], &failed["result"]), (&json!(message), &result), "{failed}");
    }
}

#[tokio::test]
async fn defect_15_an_error_frame_keeps_its_context() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let task = fake.take().await;
    let context = json!({"where": "worker.runner", "details": {"node_id": "a", "line": 7}});
    let report = json!({"code": "E.RUNNER.FAILURE", "message": "it broke", "context": context});
    fake.ask("command.error", report, Some(&task)).await;
    page.until("failed").await;
    let details = &world.run(&id).await["nodes"][0]["error"]["details"];
    assert_eq!((&details["where"], &details["line"]), (&json!("worker.runner"), &json!(7)), "{details}");
}

#[tokio::test]
async fn defect_15_feedback_adds_to_earlier_feedback_and_its_metrics_are_kept() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let task = fake.take().await;
    fake.send_feedback(
        &task,
        json!({"stage": "training", "progress": 0.25, "message": "epoch 1", "metrics": {"loss": 0.9}}),
    )
    .await;
    fake.send_feedback(
        &task,
        json!({"progress": 0.5, "metrics": {"rate": 12.5}, "metadata": {"model": "m1", "gone": 1}}),
    )
    .await;
    fake.send_feedback(
        &task,
        json!({"metrics": {"loss": 0.5}, "metadata": {"gone": null},
        "chunks": [{"channel": "stdout", "text": "hello", "index": 4, "metadata": {"color": "red"}}]}),
    )
    .await;
    let running = node_when(&world, &id, |node| node["metadata"]["metrics"]["loss"] == 0.5).await;
    let state = &running["state"];
    assert_eq!(
        (&state["stage"], &state["progress"], &state["message"]),
        (&json!("training"), &json!(0.5), &json!("epoch 1")),
        "{state}"
    );
    let last = loop {
        let event = page.receive("node.state").await;
        if event["data"]["state"]["metrics"]["loss"] == 0.5 {
            break event["data"]["state"].clone();
        }
    };
    assert_eq!((&last["message"], &last["metrics"]["rate"]), (&json!("epoch 1"), &json!(12.5)), "{last}");
    let metadata = json!({"tokens": 41, "model": "m2"});
    fake.bring(&task, json!({"status": "SUCCEEDED", "result": {}, "metadata": metadata})).await;
    page.until("succeeded").await;
    let kept = world.run(&id).await["nodes"][0]["metadata"].clone();
    assert_eq!(kept["metrics"], json!({"loss": 0.5, "rate": 12.5}), "{kept}");
    assert_eq!((&kept["tokens"], &kept["model"], &kept["gone"]), (&json!(41), &json!("m2"), &Value::Null));
    // The metadata of a chunk is in the job's log, next to its text.
    let logs = format!("/v1/jobs/{}/logs", kept["jobId"].as_str().unwrap());
    let (_, logs) = world.ask("GET", &logs, &Value::Null).await;
    assert!(logs.to_string().contains("red"), "{logs}");
}

#[tokio::test]
async fn defect_15_a_timeout_has_the_code_of_the_protocol() {
    let world = World::new("kinds.\"test.step\".timeout = \"5s\"\nlimits.stop_grace = \"1s\"").await;
    let mut fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let id = world.start_run("desk", &workflow(&[node("a")], &[])).await;
    let task = fake.take().await;
    fake.send_feedback(&task, json!({"progress": 0.1})).await;
    world.advance(Span::secs(6)).await;
    fake.receive("cmd.cancel").await;
    fake.end(&task, "CANCELLED", json!({})).await;
    let run = world.run(&id).await;
    assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!("E.TIMEOUT")), "{run}");
}

#[tokio::test]
async fn defect_15_resource_refs_and_affinity_come_from_the_workflow() {
    let world = World::in_real_time("").await;
    let mut pinned = node("a");
    pinned["resourceRefs"] = json!([{"resourceId": "r1", "workerId": "w2", "type": "file", "scope": "run"}]);
    pinned["affinity"] = json!({"key": "session-7", "mode": "sticky"});
    let mut fake = FakeWorker::registered(world.address, "w2", "test", "1.0", 4).await;
    let mut other = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    other.beat().await;
    let id = world.start_run("desk", &workflow(&[pinned.clone()], &[])).await;
    let task = fake.take().await;
    assert_eq!(task.payload["resource_refs"][0]["resource_id"], "r1", "{:?}", task.payload);
    assert_eq!(task.payload["affinity"]["key"], "session-7");
    let shown = &world.run(&id).await["nodes"][0];
    assert_eq!(shown["resourceRefs"][0]["workerId"], "w2", "{shown}");
    assert_eq!((&shown["affinity"]["mode"], &shown["workerId"]), (&json!("sticky"), &json!("w2")));
    // The field names of the frames work as well, and errors name the field.
    let rejected = async |change: &dyn Fn(&mut Value)| {
        let mut node = pinned.clone();
        change(&mut node);
        let body = json!({"workflow": workflow(&[node], &[]), "clientId": "desk"});
        let (status, reply) = world.ask("POST", "/api/v1/runs", &body).await;
        (status, reply["details"]["field"].as_str().unwrap_or_default().to_owned())
    };
    let frames = rejected(&|node| {
        node.as_object_mut().unwrap().remove("resourceRefs");
        node["resource_refs"] = json!([{"resource_id": "r1", "worker_id": "w2", "type": "file",
            "expires_at": "2099-01-01T00:00:00Z"}]);
    });
    assert_eq!(frames.await, (202, String::new()));
    let mode = rejected(&|node| node["affinity"]["mode"] = json!("glued")).await;
    assert_eq!(mode, (400, "workflow.nodes[0].affinity.mode".to_owned()));
    let time = rejected(&|node| node["resourceRefs"][0]["expiresAt"] = json!("soon")).await;
    assert_eq!(time, (400, "workflow.nodes[0].resourceRefs[0].expiresAt".to_owned()));
}

#[tokio::test]
async fn defect_15_the_audit_line_of_a_command_names_the_package() {
    let world = World::in_real_time("").await;
    let mut page = Page::open(&world, "desk").await;
    let _fake = FakeWorker::registered(world.address, "w1", "test", "1.0", 4).await;
    let install = json!({"type": "pkg.install", "name": "img", "version": "2.0",
        "url": "https://packages.example/img.cwx", "sha256": "ab".repeat(32)});
    for command in [install, json!({"type": "pkg.uninstall", "name": "old tools"}), json!({"type": "drain"})]
    {
        let (status, reported) = world.ask("POST", "/api/v1/workers/w1/commands", &command).await;
        assert_eq!(status, 202, "{reported}");
        assert_eq!(page.receive("command.ack").await["data"]["commandId"], reported["commandId"]);
    }
    let (_, audit) = world.ask("GET", "/v1/audit", &Value::Null).await;
    let text = audit.to_string();
    assert!(text.contains("command pkg.install img 2.0 for worker w1"), "{text}");
    assert!(text.contains("command pkg.uninstall old tools * for worker w1"), "{text}");
    assert!(text.contains("command drain for worker w1"), "{text}");
}

/// An idle worker leaves as soon as it is asked to drain: the call has succeeded.
#[tokio::test]
async fn defect_15_draining_a_worker_that_leaves_at_once_is_a_success() {
    let world = World::in_real_time("").await;
    for round in 0..40 {
        let name = format!("w{round}");
        let mut fake = FakeWorker::registered(world.address, &name, "test", "1.0", 4).await;
        let leaves = tokio::spawn(async move {
            fake.receive("cmd.drain").await;
            drop(fake);
        });
        let path = match round % 2 {
            0 => format!("/v1/workers/{name}/drain"),
            _ => format!("/api/v1/workers/{name}/commands"),
        };
        let body = if round % 2 == 0 { json!({}) } else { json!({"type": "drain"}) };
        let request = world.request("POST", &path).header("content-type", "application/json");
        let (status, reply) = crate::world::answer(request.body(body.to_string())).await;
        assert!(status.is_success(), "round {round}: {status} {reply}");
        leaves.await.unwrap();
    }
}
