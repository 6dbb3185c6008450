//! The cost of bodies that never arrive, and of bodies that are mostly invalid.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Probe, Server, count, head, sockets};

/// Items of the batch: far more than a batch may have.
fn items() -> usize {
    count("LANEWAY_FLOOD_ITEMS", 800_000)
}

/// One tenant announces bodies and sends none of them, or a part of them. Other tenants can submit jobs, however many
/// connections those bodies take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_11_withheld_bodies_block_no_other_call() {
    let dir = tempfile::tempdir().unwrap();
    let few = (sockets() / 2).max(4).to_string();
    let server = Server::start(dir.path(), &[("LANEWAY_SERVER__CONNECTIONS_MAX", &few)]).await;
    let (greedy, other) = (server.token("a", "submitter").await, server.token("b", "submitter").await);
    let more = format!("content-type: application/json\r\ncontent-length: {}\r\n", 28 << 20);
    let head = head("POST", "/v1/jobs/batch", &greedy, &more);
    let mut withheld = Vec::new();
    for n in 0..sockets() {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may have closed the connection already.
        drop(stream.write_all(head.as_bytes()).await);
        if n % 2 == 0 {
            drop(stream.write_all(&[b' '; 70_000]).await);
        }
        withheld.push(stream);
    }
    let body = json!({"kind": "k", "payload": "x".repeat(100_000)});
    for _ in 0..20 {
        // Each call has its own connection.
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let call = http.post(format!("http://{}/v1/jobs", server.address)).bearer_auth(&other).json(&body);
        let answered = tokio::time::timeout(Duration::from_secs(4), call.send()).await;
        assert_eq!(answered.expect("another tenant waits").unwrap().status(), 201);
    }
}

/// A batch with far too many items is rejected. It does not delay other calls, and its memory is freed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_09_a_batch_of_waste_stalls_no_client_and_keeps_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]).await;
    let submitter = server.token("acme", "submitter").await;
    server.run_jobs(&submitter, 100).await;
    let item = r#"{"kind":"k","agent":"aaaaaaaaaaaaaa"}"#;
    let body = format!("{{\"jobs\":[{}]}}", vec![item; items()].join(","));
    let body_kib = body.len() as u64 / 1_024;
    assert!(body_kib > 27 * 1_024 || items() < 800_000, "the body has {body_kib} KiB");
    let (peak, resident) = (server.memory_kib("VmHWM"), server.memory_kib("VmRSS"));

    let probe = Probe::start(&server);
    for _ in 0..3 {
        let request = server.http.post(format!("http://{}/v1/jobs/batch", server.address));
        let answer = request.bearer_auth(&submitter).body(body.clone()).send().await.unwrap();
        let (status, problem) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        assert_eq!((status, &problem["field"]), (400, &"jobs".into()), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("at most 10000"), "{problem}");
    }
    let slowest = probe.slowest();
    let peak = server.memory_kib("VmHWM") - peak;
    // The allocator frees memory some time after the answer.
    let kept_max = body_kib * 2 + 32 * 1_024;
    let mut kept = server.memory_kib("VmRSS").saturating_sub(resident);
    for _ in 0..100 {
        if kept < kept_max {
            break;
        }
        server.run_jobs(&submitter, 1).await;
        kept = server.memory_kib("VmRSS").saturating_sub(resident);
    }
    println!(
        "a body of {body_kib} KiB: the slowest probe took {slowest:?}, peak {peak} KiB, kept {kept} KiB"
    );
    assert!(slowest < Duration::from_millis(1_500), "a probe waited {slowest:?}");
    assert!(peak < body_kib * 3 + 32 * 1_024, "the peak grew by {peak} KiB for a body of {body_kib} KiB");
    assert!(kept < kept_max, "the server keeps {kept} KiB");
}
