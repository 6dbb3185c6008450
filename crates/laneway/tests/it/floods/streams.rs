//! The cost of event streams whose clients do not read.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Probe, Server, count, head, sockets};

/// How many jobs each measurement runs.
fn jobs() -> usize {
    count("LANEWAY_FLOOD_JOBS", 2_000)
}

/// How long 99 of 100 probes may take. With the defect they took up to 2.9 s beside 1,000 streams.
const SLOWEST_MAX: Duration = Duration::from_millis(2_200);

/// Streams without events cost nothing, and streams of the tenant whose jobs run cost little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defect_10_unread_streams_cost_little() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]).await;
    let (submitter, viewer) = (server.token("acme", "submitter").await, server.token("acme", "viewer").await);
    let other = server.token("other", "viewer").await;
    server.run_jobs(&submitter, jobs()).await;

    let (alone, _) = cost(&server, &submitter).await;
    let idle = open_streams(&server, &other, sockets()).await;
    let (beside_idle, slowest_idle) = cost(&server, &submitter).await;
    drop(idle);
    let unread = open_streams(&server, &viewer, sockets()).await;
    let (beside_unread, slowest_unread) = cost(&server, &submitter).await;
    drop(unread);

    println!(
        "{} streams, {} jobs: alone {alone:?} of CPU; beside idle streams {beside_idle:?}, the slowest probe \
         {slowest_idle:?}; beside unread streams {beside_unread:?}, the slowest probe {slowest_unread:?}",
        sockets(),
        jobs()
    );
    // The server copies events into the buffer of each connection, even if its client does not read.
    let (slack, per_stream) = (Duration::from_millis(500), Duration::from_millis(3));
    let streams = u32::try_from(sockets()).unwrap();
    assert!(beside_idle < alone * 3 / 2 + slack, "streams of another tenant cost {beside_idle:?}");
    assert!(beside_unread < alone * 3 + per_stream * streams, "unread streams cost {beside_unread:?}");
    for slowest in [slowest_idle, slowest_unread] {
        assert!(slowest < SLOWEST_MAX, "99 of 100 probes take up to {slowest:?}");
    }
}

/// The CPU time of the server while it runs jobs, and the 99th percentile of the probes beside them.
async fn cost(server: &Server, submitter: &str) -> (Duration, Duration) {
    let before = server.cpu();
    let probe = Probe::start(server);
    server.run_jobs(submitter, jobs()).await;
    let slowest = probe.slowest_but(10);
    (server.cpu() - before, slowest)
}

/// Opens streams and reads only their first bytes.
async fn open_streams(server: &Server, token: &str, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(head("GET", "/v1/events", token, "").as_bytes()).await.unwrap();
        let mut received = Vec::new();
        while !received.windows(7).any(|part| part == b"retry: ") {
            let mut part = [0; 1_024];
            let read = stream.read(&mut part).await.unwrap();
            received.extend_from_slice(&part[..read]);
            assert!(read > 0, "the stream ended: {}", String::from_utf8_lossy(&received));
        }
        streams.push(stream);
    }
    streams
}
