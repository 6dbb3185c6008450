//! Dispatches and their outcomes in the event log, and in the audit entries on request.

use laneway_core::{Role, Span};
use laneway_wire::frame::Frame;
use serde_json::{Value, json};

use super::peer::Peer;
use crate::world::{World, answer};

/// The audit entries of dispatches, oldest first.
async fn dispatches(world: &World) -> Vec<Value> {
    let list = world.ask("GET", "/v1/audit?action=cmd.dispatch&limit=500", "").await;
    list["entries"].as_array().unwrap().iter().rev().cloned().collect()
}

/// The sender, the worker, the number and the outcome of a dispatch.
fn line(entry: &Value) -> String {
    let part = |name: &str| entry[name].to_string().replace('"', "");
    assert_eq!((&entry["action"], &entry["tenant"]), (&json!("cmd.dispatch"), &json!("default")), "{entry}");
    format!("{} {} {}: {}", part("actor"), part("worker"), part("seq"), part("outcome"))
}

#[tokio::test]
async fn d18_audit_of_dispatches_names_sender_tenant_task_and_outcome() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    let id = world.submit(r#"{"kind": "k", "retry": {"retries_max": 5}}"#).await;

    // Rejected with a code; then not acknowledged; then accepted and failed; then succeeded.
    let (frame, job, seq) = peer.receive_dispatch().await;
    let rejection = json!({"code": "E.CMD.CONCURRENCY_VIOLATION", "message": "no free slot"});
    let response = peer.send("error", rejection, Some((&job, seq))).await;
    peer.receive_ack(&response).await;
    assert_eq!(frame.corr.as_deref(), Some(id.as_str()));
    wait_for_dispatch(&world, &mut peer, &id, 2).await;
    let (frame, job, seq) = wait_for_dispatch(&world, &mut peer, &id, 3).await;
    peer.take(&frame).await;
    let failed = json!({"run_id": job, "task_id": job, "status": "FAILED", "result": {},
        "error": {"code": "no_paper", "message": "secret message"}, "metadata": {"retryable": true}});
    let response = peer.send("result", failed, Some((&job, seq))).await;
    peer.receive_ack(&response).await;
    let (frame, job, seq) = wait_for_dispatch(&world, &mut peer, &id, 4).await;
    peer.take(&frame).await;
    let response = peer.bring(&job, seq, json!({"secret": "result"})).await;
    peer.receive_ack(&response).await;

    let entries = dispatches(&world).await;
    assert_eq!(
        entries.iter().map(line).collect::<Vec<_>>(),
        [
            "scheduler-control w1 1: dispatched",
            "w1 w1 1: E.CMD.CONCURRENCY_VIOLATION",
            "scheduler-control w1 2: dispatched",
            "scheduler-control w1 2: unanswered",
            "scheduler-control w1 3: dispatched",
            "w1 w1 3: accepted",
            "w1 w1 3: no_paper",
            "scheduler-control w1 4: dispatched",
            "w1 w1 4: accepted",
            "w1 w1 4: succeeded",
        ]
    );
    assert!(entries.iter().all(|entry| entry["job_id"] == json!(id)), "corr is the job's id");
    let text = json!(entries).to_string();
    assert!(!text.contains("secret"), "no result and no message: {text}");
}

/// The dispatch of that number, after enough time for waits and unanswered ones. Each heartbeat causes a batch of the
/// engine, and the clock stops when the dispatch is sent.
async fn wait_for_dispatch(world: &World, peer: &mut Peer, id: &str, number: u64) -> (Frame, String, u64) {
    for _ in 0..60 {
        let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
        if (&job["state"], &job["attempt"]) == (&json!("assigned"), &json!(number)) {
            let is_it = |frame: &Value| frame["type"] == "cmd.dispatch" && frame["seq"] == json!(number);
            while !peer.written.iter().any(is_it) {
                peer.receive_dispatch().await;
            }
            let sent = peer.written.iter().find(|frame| is_it(frame)).unwrap();
            let frame = Frame::parse(sent.to_string().as_bytes()).unwrap();
            return (frame, id.to_owned(), number);
        }
        world.clock.advance(Span::secs(1));
        peer.beat(json!({"inflight": 0})).await;
    }
    panic!("dispatch {number} never comes");
}

#[tokio::test]
async fn audit_shows_dispatches_on_request_to_callers_with_permission() {
    let world = World::closed().await;
    let worker = world.token(Some("acme"), Role::Worker).await;
    let operator = world.token(Some("acme"), Role::Operator).await;
    let foreign = world.token(Some("other"), Role::Operator).await;
    let submitter = world.token(Some("acme"), Role::Submitter).await;
    let mut peer = Peer::open(&world, "w1").await.tenant("acme");
    peer.shake_hands(Some(&worker)).await;
    let capabilities = json!({"concurrency": {"max_parallel": 1}, "runtimes": ["t"], "features": ["kind:k"]});
    peer.register(json!({"capabilities": capabilities, "packages": []})).await;
    let submit = world.request_as(&submitter, "POST", "/v1/jobs").body(r#"{"kind": "k"}"#);
    assert!(answer(submit).await.0.is_success());
    peer.receive_dispatch().await;

    let list = |token: &str, query: &str| {
        let request = world.request_as(token, "GET", &format!("/v1/audit{query}"));
        async move {
            let (status, body) = answer(request).await;
            (status.as_u16(), body)
        }
    };
    let (status, mine) = list(&operator, "?action=cmd.dispatch").await;
    assert_eq!((status, mine["entries"].as_array().unwrap().len()), (200, 1), "{mine}");
    assert_eq!(mine["entries"][0]["tenant"], "acme");
    let (_, theirs) = list(&foreign, "?action=cmd.dispatch").await;
    assert_eq!(theirs["entries"], json!([]), "another tenant's");
    assert_eq!(list(&submitter, "?action=cmd.dispatch").await.0, 403);
    let (_, all) = list(&operator, "").await;
    assert!(!all.to_string().contains("cmd.dispatch"), "they would hide everything else: {all}");
    let (_, submitted) = list(&operator, "?action=job.submitted").await;
    let actions: Vec<&Value> =
        submitted["entries"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["job.submitted"]);
    let (status, problem) = list(&operator, "?action=dance").await;
    assert_eq!((status, &problem["field"]), (400, &json!("action")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("cmd.dispatch"), "{problem}");
}
