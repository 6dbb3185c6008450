//! Sessions of workers that reconnect, disappear, are slow, or connect twice.

use laneway_core::Span;
use laneway_wire::frame::MessageType;
use serde_json::json;

use super::peer::{Peer, dispatch};
use crate::world::World;

/// The types of the audit entries.
async fn audit_kinds(world: &World) -> Vec<String> {
    let after = world.scheduler.events().latest();
    let events = world
        .scheduler
        .read(move |reader| reader.events_after(&Default::default(), 0, usize::try_from(after).unwrap()))
        .await
        .unwrap();
    events.items.iter().map(|event| event.kind.as_str().to_owned()).collect()
}

#[tokio::test]
async fn the_dispatch_has_the_fields_of_the_job() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["resize"], 4).await;
    let id = world
        .submit(
            r#"{"kind": "resize", "payload": {"width": 640}, "priority": -10, "timeout": "30s",
                "keys": {"concurrency_key": "c1"}, "worker": {"affinity": {"key": "m", "mode": "sticky"}}}"#,
        )
        .await;
    let (frame, job, seq) = peer.receive_dispatch().await;
    assert_eq!((job.as_str(), seq), (id.as_str(), 1));
    let sent = dispatch(&frame);
    assert_eq!((sent.run_id.as_str(), sent.task_id.as_str(), sent.node_id.as_str()), (&*id, &*id, &*id));
    assert_eq!((sent.node_type.as_str(), sent.parameters.get()), ("resize", r#"{"width": 640}"#));
    assert_eq!((sent.priority, sent.constraints.timeout_ms), (Some(-10), Some(30_000)));
    assert_eq!(sent.concurrency_key.as_deref(), Some("c1"));
    assert_eq!(sent.affinity.as_ref().map(|affinity| affinity.key.as_str()), Some("m"));
    peer.take(&frame).await;
    let brought = peer.bring(&job, seq, json!({"ok": 1})).await;
    assert_eq!(peer.receive_ack(&brought).await, None);
    world.wait(&id).await;
}

#[tokio::test]
async fn channels_of_another_system_leave_a_worker_with_every_lane() {
    let world = World::new().await;
    for (worker, field, names, lanes) in [
        ("w1", "queues", json!(["default", "no name: \n"]), json!([])),
        ("w2", "queues", json!(["default", "main"]), json!(["default", "main"])),
        ("w3", "channels", json!(["main"]), json!(["main"])),
        ("w4", "channels", json!([]), json!([])),
    ] {
        let mut peer = Peer::open(&world, worker).await;
        peer.shake_hands(None).await;
        let capabilities = json!({"concurrency": {"max_parallel": 1}, "runtimes": ["test"], "features": []});
        let register = json!({"capabilities": capabilities, "packages": [], field: names});
        let id = peer.send("register", register, None).await;
        assert!(peer.receive_ack(&id).await.is_some());
        let shown = world.ask("GET", &format!("/v1/workers/{worker}"), "").await;
        assert_eq!(shown["lanes"], lanes, "{shown}");
    }
}

#[tokio::test]
async fn d9_a_duplicate_result_counts_once() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = peer.receive_dispatch().await;
    peer.take(&frame).await;
    let first = peer.bring(&job, seq, json!({"n": 1})).await;
    assert_eq!(peer.receive_ack(&first).await, None);
    let again = peer.bring(&job, seq, json!({"n": 2})).await;
    assert_eq!(peer.receive_ack(&again).await.as_deref(), Some("E.RESULT.DUPLICATE"));
    // Also over another connection, which does not know the first.
    drop(peer);
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    let late = peer.bring(&job, seq, json!({"n": 3})).await;
    assert_eq!(peer.receive_ack(&late).await.as_deref(), Some("E.RESULT.DUPLICATE"));
    let shown = world.ask("GET", &format!("/v1/jobs/{job}"), "").await;
    assert_eq!(shown["result"], json!({"n": 1}), "the first counts");
}

#[tokio::test]
async fn d10_a_result_without_a_dispatch_is_a_gap() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = peer.receive_dispatch().await;
    peer.take(&frame).await;
    peer.bring(&job, seq + 3, json!({})).await;
    assert_eq!(peer.receive_error().await, ("E.RESULT.SEQ_GAP".to_owned(), Some(job.clone()), Some(seq + 3)));
    let brought = peer.bring(&job, seq, json!({})).await;
    assert_eq!(peer.receive_ack(&brought).await, None);
}

#[tokio::test]
async fn d16_x8_a_reconnect_replaces_the_connection_and_keeps_its_tasks() {
    let world = World::new().await;
    let mut old = Peer::registered(&world, "w1", &["k"], 4).await;
    let id = world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = old.receive_dispatch().await;
    old.take(&frame).await;
    old.beat(json!({"inflight": 1})).await;
    let mut new = Peer::open(&world, "w1").await.having(&job, seq);
    new.greet(&["k"], 4).await;
    // The old one gets an error and is closed. Its later frames change nothing.
    assert_eq!(old.receive_error().await.0, "E.SESSION.STALE_BINDING");
    assert!(old.is_closed().await);
    // The new one stays, and gets open dispatches again, under the same number.
    let (frame, again, same) = new.receive_dispatch().await;
    assert_eq!((&again, same), (&job, seq));
    new.take(&frame).await;
    new.beat(json!({"inflight": 1})).await;
    let brought = new.bring(&job, seq, json!({"from": "new"})).await;
    assert_eq!(new.receive_ack(&brought).await, None);
    let shown = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!(shown["result"], json!({"from": "new"}));
    assert_eq!(shown["attempt"], 1, "no second attempt: {shown}");
}

#[tokio::test]
async fn d16_an_expired_lease_lets_the_job_run_elsewhere() {
    let world = World::new().await;
    let mut gone = Peer::registered(&world, "w1", &["k"], 4).await;
    world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = gone.receive_dispatch().await;
    gone.take(&frame).await;
    gone.beat(json!({"inflight": 1})).await;
    drop(gone);
    let mut other = Peer::registered(&world, "w2", &["k"], 4).await;
    // Its lease lasts 30 s; the other one sends heartbeats meanwhile.
    let mut seconds = 0;
    while world.ask("GET", &format!("/v1/jobs/{job}"), "").await["state"] != "assigned" {
        assert!(seconds < 60, "no other worker gets it");
        world.clock.advance(Span::secs(1));
        seconds += 1;
        other.beat(json!({"inflight": 0})).await;
    }
    assert!(seconds >= 25, "the lease was cut short: {seconds} s");
    let (frame, again, next) = other.receive_dispatch().await;
    assert_eq!((&again, next), (&job, seq + 1));
    other.take(&frame).await;
    // A worker that comes back late must stop.
    let mut late = Peer::registered(&world, "w1", &["x"], 4).await;
    late.bring(&job, seq, json!({"from": "late"})).await;
    assert_eq!(
        late.receive_error().await,
        ("E.SESSION.STALE_BINDING".to_owned(), Some(job.clone()), Some(seq))
    );
    let brought = other.bring(&job, next, json!({"from": "other"})).await;
    assert_eq!(other.receive_ack(&brought).await, None);
    let shown = world.ask("GET", &format!("/v1/jobs/{job}"), "").await;
    assert_eq!(shown["result"], json!({"from": "other"}));
}

#[tokio::test]
async fn d14_x9_silence_is_noticed_and_reported() {
    let world = World::new().await;
    let _peer = Peer::registered(&world, "w1", &["k"], 4).await;
    for (seconds, state) in [(5, "late"), (5, "degraded"), (5, "lost")] {
        world.clock.advance(Span::secs(seconds));
        // The clock is checked in a batch of its own.
        while world.ask("GET", "/v1/workers/w1", "").await["state"] != state {
            tokio::task::yield_now().await;
        }
    }
    let kinds = audit_kinds(&world).await;
    for kind in ["worker.connected", "worker.degraded", "worker.lost"] {
        assert!(kinds.iter().any(|known| known == kind), "{kind} is missing in {kinds:?}");
    }
    // It gets no task.
    let id = world.submit(r#"{"kind": "k"}"#).await;
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}"), "").await["state"], "queued");
}

#[tokio::test]
async fn d15_a_worker_that_is_too_full_gets_no_new_task() {
    let world = World::with_config("[tenants.default]\nworker_memory_full = 50").await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    peer.beat(json!({"inflight": 0, "mem_pct": 51.0, "disk_pct": 10.0})).await;
    let shown = world.ask("GET", "/v1/workers/w1", "").await;
    assert_eq!((&shown["too_full"], &shown["mem_pct"]), (&json!(true), &json!(51.0)), "{shown}");
    let id = world.submit(r#"{"kind": "k"}"#).await;
    assert_eq!(world.ask("GET", &format!("/v1/jobs/{id}"), "").await["state"], "queued");
    peer.beat(json!({"inflight": 0, "mem_pct": 10.0, "disk_pct": 10.0})).await;
    let (_, job, _) = peer.receive_dispatch().await;
    assert_eq!(job, id);
}

#[tokio::test]
async fn d6_x3_a_dispatch_without_a_reply_fails_in_the_end() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    let id = world.submit(r#"{"kind": "k"}"#).await;
    let (frame, _, _) = peer.receive_dispatch().await;
    // Five seconds to reply, and one, two, four, eight, sixteen seconds before the next try; the worker stays healthy.
    let mut seconds = 0;
    while world.ask("GET", &format!("/v1/jobs/{id}"), "").await["state"] != "failed" {
        assert!(seconds < 120, "it is tried forever");
        world.clock.advance(Span::secs(1));
        seconds += 1;
        peer.beat(json!({"inflight": 0})).await;
    }
    let job = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!(
        (&job["error"]["code"], &job["attempt"]),
        (&json!("E.DISPATCH.UNAVAILABLE"), &json!(6)),
        "{job}"
    );
    assert!(seconds >= 6 * 5 + 31, "the waits were not waited for: {seconds} s");
    // A worker that accepts it now must stop.
    peer.take(&frame).await;
}

#[tokio::test]
async fn x2_no_result_is_too_fast() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    for _ in 0..20 {
        let id = world.submit(r#"{"kind": "k"}"#).await;
        let (frame, job, seq) = peer.receive_dispatch().await;
        assert_eq!((&job, seq), (&id, 1), "each is sent once");
        // The result arrives before the acknowledgement.
        let brought = peer.bring(&job, seq, json!({})).await;
        peer.take(&frame).await;
        assert_eq!(peer.receive_ack(&brought).await, None);
    }
}

#[tokio::test]
async fn d18_packages_are_installed_on_demand_and_audited() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &[], 4).await;
    let waits = world
        .submit(r#"{"kind": "resize", "worker": {"package": {"name": "img", "version": "1.1.0"}}}"#)
        .await;
    let sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let order = json!({"operation": "install", "name": "img", "version": "1.1.0",
        "url": "https://packages.example/img.zip", "sha256": sha256});
    let sent = world.ask("POST", "/v1/workers/w1/packages", &order.to_string()).await;
    assert_eq!(sent, json!({"worker": "w1", "operation": "install"}));
    let frame = peer.receive(MessageType::Install).await;
    peer.take(&frame).await;
    let event = json!({"name": "img", "version": "1.1.0", "status": "installed",
        "details": {"operation": "install"}});
    let id = peer.send("pkg.event", event, None).await;
    peer.receive_ack(&id).await;
    let shown = world.ask("GET", "/v1/workers/w1", "").await;
    assert_eq!(shown["packages"], json!([{"name": "img", "version": "1.1.0"}]));
    let (_, job, _) = peer.receive_dispatch().await;
    assert_eq!(job, waits, "the job that waited for the package runs now");
    let page = world.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    let metric = r#"pkg_ops_total{tenant="default",op="install",status="installed"} 1"#;
    assert!(page.contains(metric), "{page}");
    let audit = world.ask("GET", "/v1/audit", "").await.to_string();
    assert!(audit.contains("pkg.install img 1.1.0 sent to worker w1"), "{audit}");
    assert!(audit.contains("pkg.install img 1.1.0 on worker w1: done"), "{audit}");
}

#[tokio::test]
async fn artifacts_are_kept_with_the_result() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    let id = world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = peer.receive_dispatch().await;
    peer.take(&frame).await;
    let result = json!({"run_id": job, "task_id": job, "status": "SUCCEEDED", "result": {},
        "artifacts": [{"resource_id": "res-1", "worker_id": "w1", "type": "file", "size_bytes": 7}]});
    let brought = peer.send("result", result, Some((&job, seq))).await;
    peer.receive_ack(&brought).await;
    let artifacts = world.ask("GET", &format!("/v1/jobs/{id}/artifacts"), "").await;
    assert_eq!(artifacts["artifacts"][0]["resource_id"], "res-1", "{artifacts}");
    assert_eq!(artifacts["artifacts"][0]["size_bytes"], 7);
}

#[tokio::test]
async fn d15_thresholds_are_per_tenant_and_90_and_95_by_default() {
    let world = World::with_config("[tenants.acme]\nworker_memory_full = 50\nworker_disk_full = 60").await;
    for (tenant, metrics, full) in [
        ("acme", json!({"inflight": 0, "mem_pct": 49.0, "disk_pct": 59.0}), false),
        ("acme", json!({"inflight": 0, "mem_pct": 50.0, "disk_pct": 10.0}), true),
        ("acme", json!({"inflight": 0, "mem_pct": 10.0, "disk_pct": 60.0}), true),
        ("default", json!({"inflight": 0, "mem_pct": 89.0, "disk_pct": 94.0}), false),
        ("default", json!({"inflight": 0, "mem_pct": 90.0, "disk_pct": 10.0}), true),
        ("default", json!({"inflight": 0, "mem_pct": 10.0, "disk_pct": 95.0}), true),
    ] {
        let mut peer = Peer::open(&world, "w1").await.tenant(tenant);
        peer.greet(&["k"], 4).await;
        peer.beat(metrics.clone()).await;
        let request = world.request("GET", "/v1/workers/w1").header("laneway-tenant", tenant);
        let (_, shown) = crate::world::answer(request).await;
        assert_eq!(shown["too_full"], json!(full), "{tenant} {metrics}: {shown}");
    }
    let drained = audit_kinds(&world).await.iter().filter(|kind| *kind == "worker.drained").count();
    assert_eq!(drained, 4, "each gets an event");
}

#[tokio::test]
async fn a_worker_at_max_parallel_for_long_is_reported_once() {
    let world = World::with_config("[workers]\nsaturated_after = \"20s\"").await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 1).await;
    world.submit(r#"{"kind": "k"}"#).await;
    let (frame, _, _) = peer.receive_dispatch().await;
    peer.take(&frame).await;
    for seconds in (0..60).step_by(4) {
        peer.beat(json!({"inflight": 1})).await;
        let reported = audit_kinds(&world).await.iter().filter(|kind| *kind == "worker.saturated").count();
        assert_eq!(reported, usize::from(seconds >= 20), "after {seconds} s");
        world.clock.advance(Span::secs(4));
    }
}
