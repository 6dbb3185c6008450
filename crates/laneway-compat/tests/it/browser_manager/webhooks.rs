//! Webhooks with the headers `X-BM-…`.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use laneway_compat::browser_manager::{FORMAT, JobCallback};
use laneway_runtime::webhooks::{Formats, Webhooks};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::world::{Rule, World};
use crate::world::PATIENCE;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Delivery = (HeaderMap, Bytes);

async fn receive(State(sender): State<mpsc::Sender<Delivery>>, headers: HeaderMap, body: Bytes) {
    sender.send((headers, body)).await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_job_is_sent_with_event_timestamp_and_signature() {
    let (sender, mut receiver) = mpsc::channel(100);
    let app = Router::new().route("/hook", post(receive)).with_state(sender);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let url = format!("http://{host}/hook");
    let config = format!("webhooks.allow_hosts = [\"{host}\"]\nwebhooks.secret = \"{SECRET}\"");
    let world = World::in_real_time(&config).await;
    let formats = Formats::new().with(FORMAT, Arc::new(JobCallback));
    let _webhooks = Webhooks::start(world.scheduler.clone(), &world.live, formats).unwrap();
    let mut next =
        async || tokio::time::timeout(PATIENCE, receiver.recv()).await.expect("none comes").unwrap();

    world.rules.add("browser_stop_all", Rule::fail("no"));
    world.rules.add("recycle_bin_cleanup", Rule::Hold);
    for (path, event) in [
        ("/api/db/migrate", "job.completed"),
        ("/api/env/closeAll", "job.failed"),
        ("/api/recycleBin/cleanup", "job.cancelled"),
    ] {
        let id = world.enqueue(path, json!({"callbackUrl": url})).await;
        if event == "job.cancelled" {
            world.running(&id).await;
            world.post(&format!("/api/jobs/{id}/cancel"), json!({})).await;
        }
        let (headers, body) = next().await;
        assert_eq!(headers["x-bm-event"], event);
        assert!(
            headers["x-bm-timestamp"].to_str().unwrap().parse::<u64>().is_ok_and(|at| at > 1_700_000_000)
        );
        assert_eq!(headers["x-bm-signature"], signature(&body), "{event}");
        let sent: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&sent["event"], &sent["data"]), (&json!(event), &world.job(&id).await));
    }
}

/// HMAC-SHA256 by its definition, with the text of the secret as the key.
fn signature(body: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let mut key = [0_u8; 64];
    key[..SECRET.len()].copy_from_slice(SECRET.as_bytes());
    let inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(body).finalize();
    let outer = Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
    let digits: String = outer.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}

#[tokio::test]
async fn a_callback_to_a_host_that_is_not_allowed_is_rejected() {
    let world = World::new("").await;
    for url in ["http://127.0.0.1:9/", "ftp://example.com/", "no url"] {
        let (status, answer) = world.post("/api/env/closeAll", json!({"callbackUrl": url})).await;
        assert_eq!((status, &answer["code"]), (400, &json!(-1603)), "{url}: {answer}");
    }
    assert_eq!(world.job_count().await, 0);
}
