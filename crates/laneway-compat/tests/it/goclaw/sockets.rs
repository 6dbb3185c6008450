//! The socket itself: who is let in, what is no frame, how large and how slow a client may be.

use laneway_core::Role;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::world::World;

#[tokio::test]
async fn frames_that_are_none_are_told_so_and_the_connection_stays() {
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
    let mut page = super::world::Socket::of(stream);
    let error = page.call("connect", json!({})).await.unwrap_err();
    assert_eq!(error["code"], json!("UNAUTHORIZED"));
    let error = page.call("cron.list", json!({})).await.unwrap_err();
    assert_eq!(error["message"], json!("first request must be 'connect'"));
    // With a token it is whoever the token says.
    let token = world.token(None, Role::Viewer).await;
    assert!(page.call("connect", json!({"token": token})).await.is_ok());
    world.stop().await;
}

#[tokio::test]
async fn there_is_a_limit_to_sockets() {
    let world = World::new("dialects.goclaw.sockets_max = 2").await;
    let (one, _two) = (world.member(json!({})).await, world.member(json!({})).await);
    let refused = tokio_tungstenite::connect_async(format!("ws://{}/ws", world.address)).await;
    assert!(matches!(refused, Err(Error::Http(response)) if response.status() == 503));
    drop(one);
    // The place is free again once the server has noticed.
    let again = async {
        while tokio_tungstenite::connect_async(format!("ws://{}/ws", world.address)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::world::PATIENCE, again).await.expect("the place is never free again");
    world.stop().await;
}

#[tokio::test]
async fn strangers_take_no_place_of_members() {
    let world = World::new("dialects.goclaw = { sockets_max = 2, strangers_max = 3 }").await;
    let mut strangers = Vec::new();
    for _ in 0..3 {
        strangers.push(world.socket().await);
    }
    let url = format!("ws://{}/ws", world.address);
    let refused = tokio_tungstenite::connect_async(&url).await;
    let Err(Error::Http(response)) = refused else { panic!("{refused:?}") };
    let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    assert_eq!((response.status().as_u16(), body.contains("have not said connect")), (503, true), "{body}");
    // Who says connect makes room for the next stranger.
    strangers[0].call("connect", json!({})).await.unwrap();
    let mut next = world.socket().await;
    next.call("connect", json!({})).await.unwrap();
    assert!(next.call("connect", json!({})).await.is_ok(), "a member needs no second place");
    // Both places of members are taken: the stranger that waits hears so, and stays a stranger.
    let error = strangers[1].call("connect", json!({})).await.unwrap_err();
    assert_eq!(error["code"], json!("RESOURCE_EXHAUSTED"));
    let error = strangers[1].call("cron.list", json!({})).await.unwrap_err();
    assert_eq!(error["message"], json!("first request must be 'connect'"));
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
async fn sockets_end_with_the_server_and_are_told_before() {
    let world = World::new("").await;
    let mut socket = world.member(json!({})).await;
    let stopped = tokio::spawn(world.stop());
    assert_eq!(socket.event("shutdown").await, json!({}));
    assert_eq!(socket.next().await, "close 1001 the server stops");
    stopped.await.unwrap();
}
