//! Bad input: what is rejected, with which code, and that nothing changes by it.

use laneway_core::{Origin, Role};
use serde_json::json;

use super::peer::Peer;
use crate::world::{World, answer};

#[tokio::test]
async fn d1_x13_a_bad_frame_is_answered_and_the_connection_lives() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    peer.send_raw("garbage").await;
    assert_eq!(peer.receive_error().await.0, "E.CMD.UNKNOWN");
    peer.send_binary(&[0xff, 0, 7]).await;
    assert_eq!(peer.receive_error().await.0, "E.CMD.UNKNOWN");
    let long = "x".repeat(laneway_wire::frame::FRAME_LEN_MAX);
    let too_long = peer.frame("feedback", json!({"run_id": "r", "task_id": "t", "message": long}), None);
    peer.send_raw(&too_long.to_string()).await;
    assert_eq!(peer.receive_error().await.0, "E.CMD.UNKNOWN");
    peer.send("result", json!({"run_id": "r"}), None).await;
    assert_eq!(peer.receive_error().await.0, "E.CMD.UNKNOWN");
    peer.send("pkg.event", json!({"name": ""}), None).await;
    assert_eq!(peer.receive_error().await.0, "E.PKG.INVALID");
    peer.send("cmd.dance", json!({}), None).await;
    assert_eq!(peer.receive_error().await.0, "E.CMD.UNKNOWN");
    peer.beat(json!({"inflight": 0})).await;
}

#[tokio::test]
async fn d3_frames_before_the_handshake_are_rejected() {
    let world = World::new().await;
    let mut peer = Peer::open(&world, "w1").await;
    peer.send("heartbeat", json!({"healthy": true, "metrics": {"inflight": 0}}), None).await;
    assert_eq!(peer.receive_error().await.0, "E.SESSION.DENIED");
    assert_eq!(world.ask("GET", "/v1/workers", "").await["workers"], json!([]));
    peer.greet(&["k"], 1).await;
}

#[tokio::test]
async fn d4_x10_tokens_open_the_door_and_nothing_else_does() {
    let world = World::closed().await;
    let worker = world.token(Some("acme"), Role::Worker).await;
    let viewer = world.token(Some("acme"), Role::Viewer).await;
    for (token, tenant, code) in [
        (None, "acme", "E.AUTH.INVALID_TOKEN"),
        (Some("lw_0000_0000"), "acme", "E.AUTH.INVALID_TOKEN"),
        (Some(viewer.as_str()), "acme", "E.SESSION.DENIED"),
        (Some(worker.as_str()), "other", "E.SESSION.DENIED"),
    ] {
        let mut peer = Peer::open(&world, "w1").await.tenant(tenant);
        peer.send("handshake", peer.handshake(token), None).await;
        assert_eq!(peer.receive_error().await.0, code, "{token:?} {tenant}");
        assert!(peer.is_closed().await);
    }
    let mut peer = Peer::open(&world, "w1").await.tenant("acme");
    peer.shake_hands(Some(&worker)).await;
}

#[tokio::test]
async fn a_revoked_token_ends_its_live_connections() {
    let world = World::closed().await;
    let token = world.token(Some("acme"), Role::Worker).await;
    let other = world.token(Some("acme"), Role::Worker).await;
    let mut kicked = Peer::open(&world, "w1").await.tenant("acme");
    kicked.shake_hands(Some(&token)).await;
    let mut stays = Peer::open(&world, "w2").await.tenant("acme");
    stays.shake_hands(Some(&other)).await;
    let id = token.split('_').nth(1).unwrap();
    let id = laneway_core::Name::new(id).unwrap();
    world.scheduler.revoke_token(None, id, Origin::server("test")).await.unwrap();
    assert_eq!(kicked.receive_error().await.0, "E.AUTH.INVALID_TOKEN");
    assert!(kicked.is_closed().await);
    let register = json!({"capabilities": {"concurrency": {"max_parallel": 1}, "runtimes": ["t"], "features": []},
        "packages": []});
    let id = stays.send("register", register, None).await;
    stays.receive_ack(&id).await;
}

#[tokio::test]
async fn certificates_may_be_demanded() {
    let world = World::with_config("[workers]\nrequire_certificate = true").await;
    let mut peer = Peer::open(&world, "w1").await;
    peer.send("handshake", peer.handshake(None), None).await;
    assert_eq!(peer.receive_error().await.0, "E.AUTH.MTLS_REQUIRED");
    assert!(peer.is_closed().await);
    // Without a certificate nobody comes in as one who has one, either.
    let world = World::new().await;
    let mut peer = Peer::open(&world, "w1").await;
    let mut handshake = peer.handshake(None);
    handshake["auth"] = json!({"mode": "mtls"});
    peer.send("handshake", handshake, None).await;
    assert_eq!(peer.receive_error().await.0, "E.AUTH.MTLS_REQUIRED");
}

#[tokio::test]
async fn d5_every_frame_carries_the_tenant_and_the_worker_of_its_connection() {
    let world = World::new().await;
    let mut peer = Peer::registered(&world, "w1", &["k"], 4).await;
    for (pointer, value) in [("/tenant", "other"), ("/sender/id", "w2"), ("/sender/role", "scheduler")] {
        let mut frame = peer.frame("heartbeat", json!({"healthy": true, "metrics": {"inflight": 0}}), None);
        *frame.pointer_mut(pointer).unwrap() = json!(value);
        peer.send_raw(&frame.to_string()).await;
        assert_eq!(peer.receive_error().await.0, "E.SESSION.DENIED", "{pointer}");
    }
    peer.beat(json!({"inflight": 0})).await;
}

#[tokio::test]
async fn d22_x10_nobody_brings_results_for_others() {
    let world = World::new().await;
    let mut owner = Peer::registered(&world, "w1", &["k"], 4).await;
    let mut thief = Peer::registered(&world, "w2", &["other"], 4).await;
    let mut foreign = Peer::open(&world, "w1").await.tenant("acme");
    foreign.greet(&["k"], 4).await;
    let id = world.submit(r#"{"kind": "k"}"#).await;
    let (frame, job, seq) = owner.receive_dispatch().await;
    owner.take(&frame).await;
    for forger in [&mut thief, &mut foreign] {
        forger.bring(&job, seq, json!({"forged": true})).await;
        let expected = ("E.SESSION.STALE_BINDING".to_owned(), Some(job.clone()), Some(seq));
        assert_eq!(forger.receive_error().await, expected);
    }
    let brought = owner.bring(&job, seq, json!({"mine": true})).await;
    owner.receive_ack(&brought).await;
    let shown = world.ask("GET", &format!("/v1/jobs/{id}"), "").await;
    assert_eq!(shown["result"], json!({"mine": true}));
}

#[tokio::test]
async fn bad_calls_name_the_field() {
    let world = World::new().await;
    let _peer = Peer::registered(&world, "w1", &["k"], 4).await;
    for (body, field) in [
        (json!({"operation": "dance", "name": "p"}), "operation"),
        (json!({"operation": "install", "name": "p", "version": "1", "sha256": "00"}), "url"),
        (
            json!({"operation": "install", "name": "p", "version": "1", "url": "ftp://x", "sha256": "00"}),
            "url",
        ),
        (
            json!({"operation": "install", "name": "p", "version": "1", "url": "http://x", "sha256": "00"}),
            "sha256",
        ),
        (json!({"operation": "uninstall", "name": ""}), "name"),
    ] {
        let request = world.request("POST", "/v1/workers/w1/packages").body(body.to_string());
        let (status, problem) = answer(request).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!(field)), "{problem}");
    }
    for (body, field) in [
        (json!({"lanes": ["main", "nowhere"]}), "lanes"),
        (json!({"lanes": ["main", ""]}), "lanes[1]"),
        (json!({"lanes": "main"}), "lanes"),
        (json!({}), "lanes"),
        (json!({"lanes": [], "queue": "main"}), "queue"),
    ] {
        let request = world.request("POST", "/v1/workers/w1/rebind").body(body.to_string());
        let (status, problem) = answer(request).await;
        assert_eq!((status.as_u16(), &problem["field"]), (400, &json!(field)), "{problem}");
    }
    for path in ["/v1/workers/nobody/drain", "/v1/workers/nobody/rebind"] {
        let missing =
            world.request("POST", path).body(if path.ends_with("n") { "" } else { r#"{"lanes":[]}"# });
        assert_eq!(answer(missing).await.0, 404, "{path}");
    }
    let bad = world
        .request("POST", "/v1/jobs")
        .body(r#"{"kind": "k", "worker": {"affinity": {"key": "a", "mode": "x"}}}"#);
    let (status, problem) = answer(bad).await;
    assert_eq!((status.as_u16(), &problem["field"]), (400, &json!("worker.affinity.mode")));
}

#[tokio::test]
async fn the_schemas_are_published() {
    let world = World::new().await;
    let schema = world.ask("GET", "/v1/schemas/ws.cmd.dispatch.schema.json", "").await;
    assert_eq!(schema["$id"], "ws.cmd.dispatch.schema.json");
    assert_eq!(answer(world.request("GET", "/v1/schemas/ws.dance.schema.json")).await.0, 404);
}
