//! Many more calls wait for a job than the limit allows.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Probe, Server, head, sockets};

/// The waiting calls of one tenant take neither the connections nor the waiting calls of another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_11_waiting_calls_block_no_other_call() {
    let dir = tempfile::tempdir().unwrap();
    let (connections, waits) = ((sockets() / 2).max(8).to_string(), (sockets() / 4).max(4).to_string());
    let settings = [("LANEWAY_SERVER__CONNECTIONS_MAX", &*connections), ("LANEWAY_STREAMS__MAX", &*waits)];
    let server = Server::start(dir.path(), &settings).await;
    let (greedy, other) = (server.token("a", "submitter").await, server.token("b", "submitter").await);
    let submit = async |token: &str| {
        let call = server.http.post(format!("http://{}/v1/jobs", server.address)).bearer_auth(token);
        let job: Value = call.json(&json!({"kind": "unserved"})).send().await.unwrap().json().await.unwrap();
        job["id"].as_str().unwrap().to_owned()
    };
    let (job, theirs) = (submit(&greedy).await, submit(&other).await);
    let path = format!("/v1/jobs/{job}?wait=60s");
    let probe = Probe::start(&server);
    let mut waiting = Vec::new();
    for _ in 0..sockets() {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        drop(stream.write_all(head("GET", &path, &greedy, "").as_bytes()).await);
        waiting.push(stream);
    }
    probe.answers(50).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for path in [format!("/v1/jobs/{theirs}?wait=100ms"), "/v1/stats".to_owned()] {
        let call = http.get(format!("http://{}{path}", server.address)).bearer_auth(&other).send();
        let answered = tokio::time::timeout(Duration::from_secs(4), call).await;
        assert_eq!(answered.expect("another tenant waits").unwrap().status(), 200, "{path}");
    }
    let slowest = probe.slowest();
    println!("{} waiting calls: the slowest probe took {slowest:?}", sockets());
    assert!(slowest < Duration::from_millis(1_500), "a probe waited {slowest:?}");
}
