//! The socket itself: authentication, invalid frames, size limits and slow clients.

use laneway_core::Role;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::world::{Socket, World};

#[tokio::test]
async fn invalid_frames_get_an_error_and_the_connection_stays() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let bad = [
        "not json",
        "[]",
        "{}",
        r#"{"type":"res","id":"1","method":"cron.list"}"#,
        r#"{"type":"req","method":"cron.list"}"#,
        r#"{"type":"req","id":"1"}"#,
        r#"{"type":"req","id":{},"method":"cron.list"}"#,
    ];
    for text in bad {
        socket.send(text).await;
        let answer: Value = serde_json::from_str(&socket.next().await).unwrap();
        assert_eq!(answer["id"], json!(""), "{text}");
        assert_eq!(answer["error"]["code"], json!("INVALID_REQUEST"), "{text}");
    }
    socket.send_message(Message::binary(vec![1, 2, 3])).await.unwrap();
    let answer: Value = serde_json::from_str(&socket.next().await).unwrap();
    assert_eq!(answer["error"]["code"], json!("INVALID_REQUEST"));
    assert!(socket.call("cron.list", json!({})).await.is_ok(), "the connection stays");
    world.stop().await;
}

#[tokio::test]
async fn parameters_of_the_wrong_sort_count_as_left_out() {
    let world = World::new("").await;
    let mut socket = world.member(json!({"user_id": 7, "locale": []})).await;
    assert!(socket.call("cron.list", json!("nothing")).await.is_ok());
    let error = socket.call("cron.create", json!({"name": 1})).await.unwrap_err();
    assert_eq!(error["message"], json!("name is required"));
    world.stop().await;
}

#[tokio::test]
async fn frames_beyond_512_kib_end_the_socket_and_nothing_else() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let fits = "x".repeat(512 * 1024 - 200);
    let error = socket.call("cron.create", json!({"name": "a", "message": fits})).await.unwrap_err();
    assert_eq!(error["message"], json!("invalid schedule kind: "));
    socket.send("y".repeat(512 * 1024 + 1)).await;
    assert!(socket.next().await.starts_with("close"), "too large a frame ends the socket");
    assert!(world.member(json!({})).await.call("cron.status", json!({})).await.is_ok());
    world.stop().await;
}

#[tokio::test]
async fn a_page_of_another_origin_gets_nothing_from_an_open_server() {
    let world = World::new("").await;
    let mut request = format!("ws://{}/ws", world.address).into_client_request().unwrap();
    request.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    let (stream, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let mut page = Socket::of(stream);
    let error = page.call("connect", json!({})).await.unwrap_err();
    assert_eq!(error["code"], json!("UNAUTHORIZED"));
    let error = page.call("cron.list", json!({})).await.unwrap_err();
    assert_eq!(error["message"], json!("first request must be 'connect'"));
    // With a token, the token decides.
    let token = world.token(None, Role::Viewer).await;
    assert!(page.call("connect", json!({"token": token})).await.is_ok());
    world.stop().await;
}

#[tokio::test]
async fn defect_14_an_open_server_takes_a_socket_with_any_token() {
    let world = World::new("").await;
    assert!(world.socket().await.call("connect", json!({"token": "dev-token"})).await.is_ok());
    let mut request = format!("ws://{}/ws", world.address).into_client_request().unwrap();
    request.headers_mut().insert("authorization", "Bearer dev-token".parse().unwrap());
    let (stream, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    assert!(Socket::of(stream).call("connect", json!({})).await.is_ok());
    world.stop().await;
}

#[tokio::test]
async fn there_is_a_limit_to_sockets() {
    let world = World::new("dialects.goclaw.sockets_max = 2").await;
    let (one, _two) = (world.member(json!({})).await, world.member(json!({})).await);
    let mut third = world.socket().await;
    let error = third.call("connect", json!({})).await.unwrap_err();
    assert_eq!(error["code"], json!("RESOURCE_EXHAUSTED"));
    assert!(error["message"].as_str().unwrap().contains("dialects.goclaw.sockets_max"), "{error}");
    drop(one);
    // The slot is free again once the server has noticed.
    let again = async {
        while third.call("connect", json!({})).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::world::PATIENCE, again).await.expect("the slot is never free again");
    world.stop().await;
}

#[tokio::test]
async fn defect_07_silent_sockets_keep_no_client_out() {
    let limits = "sockets_max = 2, unauthenticated_max = 3, unauthenticated_per_address_max = 3";
    let world = World::new(&format!("dialects.goclaw = {{ {limits} }}")).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(world.socket().await);
    }
    // With one more, the oldest one ends.
    assert_eq!(silent[0].next().await, "close 1008 connect came too late: there are newer sockets");
    silent[1].call("connect", json!({})).await.unwrap();
    let mut next = world.socket().await;
    next.call("connect", json!({})).await.unwrap();
    assert!(next.call("connect", json!({})).await.is_ok(), "a member needs no second slot");
    // Both slots of members are taken: a waiting unauthenticated client gets an error, and stays
    // unauthenticated.
    let error = silent[2].call("connect", json!({})).await.unwrap_err();
    assert_eq!(error["code"], json!("RESOURCE_EXHAUSTED"));
    let error = silent[2].call("cron.list", json!({})).await.unwrap_err();
    assert_eq!(error["message"], json!("first request must be 'connect'"));
    world.stop().await;
}

#[tokio::test]
async fn defect_07_a_token_in_the_request_counts_at_once() {
    let limits = "unauthenticated_max = 1, unauthenticated_per_address_max = 1";
    let world = World::new(&format!("dialects.goclaw = {{ {limits} }}")).await;
    let token = world.token(None, Role::Viewer).await;
    let request = |token: &str| {
        let mut request = format!("ws://{}/ws", world.address).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    };
    let (stream, _) = tokio_tungstenite::connect_async(request(&token)).await.unwrap();
    let mut known = Socket::of(stream);
    // Silent clients come and go; this one stays, because it is a member.
    let _silent = [world.socket().await, world.socket().await, world.socket().await];
    assert!(known.call("connect", json!({})).await.is_ok());
    let rejected = tokio_tungstenite::connect_async(request("lw_0000_0000")).await;
    assert!(matches!(rejected, Err(Error::Http(response)) if response.status() == 401));
    world.stop().await;
}

#[tokio::test]
async fn defect_07_who_sends_much_before_connect_is_cut() {
    let world = World::new("").await;
    let mut socket = world.socket().await;
    let sent = socket.send_message(Message::text("x".repeat(200 << 10))).await;
    assert!(sent.is_err() || socket.next().await == "close", "it may send as much as a member");
    world.stop().await;
}

#[tokio::test]
async fn what_is_no_upgrade_is_answered_plainly() {
    let world = World::new("").await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let plain = client.get(format!("http://{}/ws", world.address)).send().await.unwrap();
    assert_eq!(plain.status(), 400);
    let post = client.post(format!("http://{}/ws", world.address)).send().await.unwrap();
    assert_eq!(post.status(), 405);
    world.stop().await;
}

#[tokio::test]
async fn sockets_get_an_event_before_the_server_stops() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let stopped = tokio::spawn(world.stop());
    assert_eq!(socket.event("shutdown").await, json!({}));
    assert_eq!(socket.next().await, "close 1001 the server stops");
    stopped.await.unwrap();
}

#[tokio::test]
async fn defect_10_who_falls_behind_is_cut_off() {
    let world = World::with_ring(64).await;
    let mut socket = world.member(json!({})).await;
    // More events at once than the memory keeps.
    let jobs = vec![json!({"kind": "agent_turn", "lane": "cron", "payload": {"kind": "agent_turn"}}); 1_000];
    let url = format!("http://{}/v1/jobs/batch", world.address);
    let sent = reqwest::Client::builder().no_proxy().build().unwrap().post(url).json(&json!({"jobs": jobs}));
    assert_eq!(sent.send().await.unwrap().status(), 200);
    let gap = socket.event("gap").await;
    assert!(gap["from"].as_u64() < gap["to"].as_u64(), "{gap}");
    assert!(socket.next().await.starts_with("close 1013 events were taken too slowly"));
    world.stop().await;
}
