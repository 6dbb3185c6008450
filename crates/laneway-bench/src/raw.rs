//! The raw limits: SQLite with the minimum that a queue needs, one append with fdatasync, a bare echo.
//!
//! SQLite, all with `journal_mode=WAL`, `synchronous=FULL`, `cache_size=64 MiB`, `wal_autocheckpoint=1000` (4 MiB):
//!
//! ```sql
//! CREATE TABLE job(id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, prio INTEGER NOT NULL, run_at INTEGER NOT NULL,
//!   state INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0, payload TEXT NOT NULL);
//! CREATE INDEX ready ON job(queue, prio, run_at, id) WHERE state=0;
//! -- insert, 1,024 per transaction:
//! INSERT INTO job(queue,prio,run_at,state,payload) VALUES(?1,?2,?3,0,?4);
//! -- claim and finish, 256 of each per transaction:
//! UPDATE job SET state=2 WHERE id=?1;
//! UPDATE job SET state=1, attempt=attempt+1 WHERE id IN (SELECT id FROM job INDEXED BY ready WHERE queue=0 AND state=0
//!   ORDER BY prio,run_at,id LIMIT 256) RETURNING id, payload;
//! ```

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::post;
use laneway_wire::JobRequest;
use rusqlite::{Connection, params};

const INSERTS_PER_TRANSACTION: u64 = 1_024;
const CLAIMS_PER_TRANSACTION: i64 = 256;

/// The payload of every benchmark: 200 bytes of JSON.
pub fn payload(number: u64) -> String {
    let mut text = format!("{{\"number\":{number},\"data\":\"");
    while text.len() < 198 {
        text.push('x');
    }
    text.push_str("\"}");
    text
}

/// Rows per second of inserting, then of claiming and finishing, the same jobs in SQLite alone.
pub fn sqlite(dir: &Path, jobs: u64) -> anyhow::Result<(f64, f64)> {
    let connection = Connection::open(dir.join("raw.db"))?;
    connection.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-65536; PRAGMA wal_autocheckpoint=1000;
         CREATE TABLE job(id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, prio INTEGER NOT NULL, run_at INTEGER NOT NULL,
           state INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0, payload TEXT NOT NULL);
         CREATE INDEX ready ON job(queue, prio, run_at, id) WHERE state=0;",
    )?;
    let inserted = timed(jobs, || insert(&connection, jobs))?;
    let drained = timed(jobs, || claim_and_finish(&connection))?;
    Ok((inserted, drained))
}

fn timed(count: u64, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

fn insert(connection: &Connection, jobs: u64) -> anyhow::Result<()> {
    let mut number = 0;
    while number < jobs {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut insert = connection
            .prepare_cached("INSERT INTO job(queue,prio,run_at,state,payload) VALUES(?1,?2,?3,0,?4)")?;
        for _ in 0..INSERTS_PER_TRANSACTION.min(jobs - number) {
            number += 1;
            let priority = i64::try_from(number % 10)?;
            insert.execute(params![0, priority, i64::try_from(number)?, payload(number)])?;
        }
        drop(insert);
        connection.execute_batch("COMMIT")?;
    }
    Ok(())
}

fn claim_and_finish(connection: &Connection) -> anyhow::Result<()> {
    let mut claimed: Vec<i64> = Vec::new();
    let mut bytes = 0;
    loop {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut finish = connection.prepare_cached("UPDATE job SET state=2 WHERE id=?1")?;
        for id in claimed.drain(..) {
            finish.execute([id])?;
        }
        let mut claim = connection.prepare_cached(
            "UPDATE job SET state=1, attempt=attempt+1 WHERE id IN (SELECT id FROM job INDEXED BY ready
             WHERE queue=0 AND state=0 ORDER BY prio,run_at,id LIMIT ?1) RETURNING id,payload",
        )?;
        let mut rows = claim.query([CLAIMS_PER_TRANSACTION])?;
        while let Some(row) = rows.next()? {
            claimed.push(row.get(0)?);
            bytes += row.get_ref(1)?.as_str()?.len();
        }
        drop(rows);
        drop((finish, claim));
        connection.execute_batch("COMMIT")?;
        if claimed.is_empty() {
            anyhow::ensure!(bytes > 0, "claimed jobs have payloads");
            return Ok(());
        }
    }
}

/// How long each of `count` appends of 4 KiB with fdatasync takes.
pub fn append_and_sync(dir: &Path, count: u32) -> anyhow::Result<Vec<Duration>> {
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("append"))?;
    let block = [7; 4_096];
    let mut times = Vec::new();
    for _ in 0..count {
        let start = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// A bare axum server that parses the body of a submit and answers with as many fields. It runs until it is
/// killed.
pub fn serve_echo(address: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.context("failed to listen")?;
        let app = Router::new()
            .route("/v1/jobs", post(echo))
            .route("/echo", axum::routing::any(echo_socket))
            .route("/readyz", axum::routing::get(|| async { "ok" }));
        axum::serve(listener, app).await.context("failed to serve")
    })
}

/// Echoes every message.
async fn echo_socket(upgrade: WebSocketUpgrade) -> impl IntoResponse {
    upgrade.on_upgrade(|mut socket| async move {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    })
}

async fn echo(body: Bytes) -> impl IntoResponse {
    let Ok(request) = serde_json::from_slice::<JobRequest<'_>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let answer = serde_json::json!({
        "id": "00000000-0000-7000-8000-000000000000",
        "state": "queued",
        "kind": request.kind,
        "agent": request.agent,
        "lane": "main",
        "tenant": "default",
        "priority": 0,
        "attempt": 0,
        "created_at": "2026-01-01T00:00:00Z",
    });
    (StatusCode::CREATED, [(header::CONTENT_TYPE, "application/json")], answer.to_string()).into_response()
}
