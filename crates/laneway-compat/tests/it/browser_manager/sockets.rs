//! `ws://…/ws/jobs/{jobId}`.

use futures_util::StreamExt;
use laneway_core::{Name, Origin, Role, Span};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::world::{Rule, World};
use crate::world::PATIENCE;

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(world: &World, id: &str, token: Option<&str>) -> Result<Socket, u16> {
        let mut request = format!("ws://{}/ws/jobs/{id}", world.address).into_client_request().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        match connect_async(request).await {
            Ok((stream, _)) => Ok(Socket(stream)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The next message, or the code of the close frame.
    async fn next(&mut self) -> Result<Value, u16> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("no message comes");
            match next {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(text.as_str()).unwrap()),
                Some(Ok(Message::Close(Some(close)))) => return Err(close.code.into()),
                Some(Ok(Message::Close(None)) | Err(_)) | None => return Err(0),
                Some(Ok(_)) => {}
            }
        }
    }

    async fn status(&mut self) -> String {
        let message = self.next().await.unwrap();
        assert_eq!(message["event"], "job.status");
        assert!(message["timestamp"].is_string());
        message["data"]["status"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn every_transition_is_pushed_until_the_job_has_ended() {
    let world = World::new("lanes.browsers.paused = true").await;
    world.rules.add("browser_stop_all", Rule::retry("busy"));
    world.rules.add("browser_stop_all", Rule::Hold);
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    let mut socket = Socket::open(&world, &id, None).await.ok().unwrap();
    assert_eq!(socket.status().await, "queued", "the state at the beginning");
    world
        .live
        .patch(json!({"lanes": {"browsers": {"paused": false}}}), Origin::server("test"))
        .await
        .unwrap();
    assert_eq!(socket.status().await, "running");
    let message = socket.next().await.unwrap();
    let job = &message["data"];
    assert_eq!((&job["status"], &job["errorMessage"]), (&json!("queued"), &json!("busy")), "{message}");
    assert_eq!(job["retryCount"], 1);
    world.advance(Span::secs(2)).await;
    let mut seen = vec![socket.status().await];
    while seen.last().is_some_and(|status| status != "running") {
        seen.push(socket.status().await);
    }
    assert!(seen[..seen.len() - 1].iter().all(|status| status == "queued"), "{seen:?}");
    world.release();
    let message = socket.next().await.unwrap();
    assert_eq!(message["data"], world.job(&id).await, "the end is the job as GET shows it");
    assert_eq!(message["data"]["status"], "succeeded");
    assert_eq!(socket.next().await, Err(1_000), "then the socket is closed");
}

#[tokio::test]
async fn the_socket_of_an_ended_job_is_closed_at_once() {
    let world = World::new("").await;
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    world.ended(&id).await;
    let mut socket = Socket::open(&world, &id, None).await.ok().unwrap();
    assert_eq!(socket.status().await, "succeeded");
    assert_eq!(socket.next().await, Err(1_000));
}

#[tokio::test]
async fn a_canceled_job_is_pushed() {
    let world = World::new("lanes.browsers.paused = true").await;
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    let mut socket = Socket::open(&world, &id, None).await.ok().unwrap();
    assert_eq!(socket.status().await, "queued");
    world.post(&format!("/api/jobs/{id}/cancel"), json!({})).await;
    assert_eq!(socket.status().await, "canceled");
    assert_eq!(socket.next().await, Err(1_000));
}

#[tokio::test]
async fn a_socket_needs_a_token_of_the_jobs_tenant_and_ends_with_it() {
    let world = World::new("lanes.browsers.paused = true").await;
    let (acme, globex) = world.two_tenants().await;
    let viewer = world.token(Some("acme"), Role::Viewer).await;
    let request = world.request("POST", "/api/env/closeAll").bearer_auth(&acme);
    let (_, answer) = world.answer(request).await;
    let id = answer["data"]["jobId"].as_str().unwrap().to_owned();
    assert_eq!(Socket::open(&world, &id, None).await.err(), Some(401));
    assert_eq!(Socket::open(&world, &id, Some("nonsense")).await.err(), Some(401));
    assert_eq!(Socket::open(&world, &id, Some(&globex)).await.err(), Some(404));
    let mut socket = Socket::open(&world, &id, Some(&viewer)).await.ok().unwrap();
    assert_eq!(socket.status().await, "queued");
    let token = Name::new(viewer.split('_').nth(1).unwrap()).unwrap();
    world.scheduler.revoke_token(None, token, Origin::server("test")).await.unwrap();
    assert_eq!(socket.next().await, Err(1_008), "the token was revoked");
}

/// One tenant has every socket while no other wants one, and half of them when another does. Streams count, too.
#[tokio::test]
async fn defect_10_sockets_of_one_tenant_leave_some_for_others() {
    let world = World::new("lanes.browsers.paused = true\nstreams.max = 4").await;
    let (acme, globex) = world.two_tenants().await;
    let mut ids = Vec::new();
    for token in [&acme, &globex] {
        let (_, answer) = world.answer(world.request("POST", "/api/env/closeAll").bearer_auth(token)).await;
        ids.push(answer["data"]["jobId"].as_str().unwrap().to_owned());
    }
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let mut socket = Socket::open(&world, &ids[0], Some(&acme)).await.ok().unwrap();
        assert_eq!(socket.status().await, "queued");
        greedy.push(socket);
    }
    assert_eq!(Socket::open(&world, &ids[0], Some(&acme)).await.err(), Some(429));
    let stream = world.request("GET", "/api/logs/stream").bearer_auth(&globex).send().await.unwrap();
    assert_eq!(stream.status(), 200, "another tenant gets one");
    assert_eq!(greedy.pop().unwrap().next().await, Err(1_013), "the newest ends, and may come again");
    let mut other = Socket::open(&world, &ids[1], Some(&globex)).await.ok().unwrap();
    assert_eq!(other.status().await, "queued");
    assert_eq!(greedy.pop().unwrap().next().await, Err(1_013));
    assert_eq!(Socket::open(&world, &ids[1], Some(&globex)).await.err(), Some(429), "both have half");
    let path = format!("/api/jobs/{}/cancel", ids[0]);
    world.answer(world.request("POST", &path).bearer_auth(&acme)).await;
    for socket in &mut greedy {
        assert_eq!(socket.status().await, "canceled", "the older ones stay");
    }
}

#[tokio::test]
async fn a_request_that_is_no_websocket_is_rejected() {
    let world = World::new("lanes.browsers.paused = true").await;
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    let (status, answer) = world.get(&format!("/ws/jobs/{id}")).await;
    assert_eq!((status, &answer["code"]), (400, &json!(-1601)), "{answer}");
}

#[tokio::test]
async fn sockets_end_when_the_agent_stops() {
    let world = World::new("lanes.browsers.paused = true").await;
    let id = world.enqueue("/api/env/closeAll", json!({})).await;
    let mut socket = Socket::open(&world, &id, None).await.ok().unwrap();
    assert_eq!(socket.status().await, "queued");
    world.drain(std::time::Duration::ZERO).await;
    assert_eq!(socket.next().await, Err(1_001));
}
