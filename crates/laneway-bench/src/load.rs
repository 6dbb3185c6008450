//! The HTTP client of the benchmarks: keep-alive connections that send one request at a time and read the whole
//! answer.
//!
//! It uses plain sockets, because on a small machine the client shares the cores with the server: the same few
//! instructions are spent on Laneway and on the echo.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Requests per second over `connections` keep-alive connections; `body(n)` makes the body of request `n`.
pub fn requests_per_second(
    address: SocketAddr,
    path: &'static str,
    connections: u64,
    requests: u64,
    body: impl Fn(u64) -> String + Send + Sync + 'static,
) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let next = Arc::new(AtomicU64::new(0));
        let body = Arc::new(body);
        let start = Instant::now();
        let mut tasks = Vec::new();
        for _ in 0..connections {
            let mut connection = Connection::open(address).await?;
            let (next, body) = (Arc::clone(&next), Arc::clone(&body));
            tasks.push(tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= requests {
                        return anyhow::Ok(());
                    }
                    connection.post(path, body(number).as_bytes()).await?;
                }
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(requests as f64 / start.elapsed().as_secs_f64())
    })
}

/// One keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("failed to connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, address, sent: Vec::new(), received: Vec::new() })
    }

    /// Sends a body and waits for the whole answer, which must be a success; returns its body.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<&[u8]> {
        self.send("POST", path, "", body).await
    }

    /// Fetches a page, which must exist.
    pub async fn get(&mut self, path: &str) -> anyhow::Result<&[u8]> {
        self.send("GET", path, "", b"").await
    }

    /// Fetches a page with a further header line.
    pub async fn get_with(&mut self, path: &str, header: &str) -> anyhow::Result<&[u8]> {
        self.send("GET", path, &format!("{header}\r\n"), b"").await
    }

    async fn send(&mut self, method: &str, path: &str, header: &str, body: &[u8]) -> anyhow::Result<&[u8]> {
        self.sent.clear();
        write!(
            &mut self.sent,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{header}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        )?;
        self.sent.extend_from_slice(body);
        self.stream.write_all(&self.sent).await?;
        self.received.clear();
        loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                bail!("the server closed the connection");
            }
            if let Some(whole) = whole_answer(&self.received)? {
                return Ok(&self.received[whole..]);
            }
        }
    }
}

/// Where the body of a complete answer begins, or `None` while it is incomplete.
fn whole_answer(received: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(head) = received.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&received[..head]).context("the head is text")?;
    let status = text.split(' ').nth(1).unwrap_or("");
    ensure!(
        status.starts_with('2'),
        "the server answered {status}: {}",
        String::from_utf8_lossy(&received[head..])
    );
    let length = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .context("the answer has a content-length")?;
    let body = head + 4;
    Ok((received.len() >= body + length.1.trim().parse::<usize>()?).then_some(body))
}
