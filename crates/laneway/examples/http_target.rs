//! A kind whose jobs go to an HTTP service: one POST for each attempt, a 2xx answer is the result.
//!
//! Run it with `cargo run -p laneway --example http_target`.

use anyhow::ensure;
use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use laneway::{Backoff, Jitter, Job, RetryPolicy, Span};
use serde_json::{Value, json};

/// The service. It fails the first attempt of every job, to show a retry.
async fn render(headers: HeaderMap, Json(page): Json<Value>) -> (StatusCode, Json<Value>) {
    let attempt = headers.get("laneway-attempt").and_then(|value| value.to_str().ok()).unwrap_or("?");
    if attempt == "1" {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"error": "warming up"})));
    }
    (StatusCode::OK, Json(json!({"rendered": page["url"], "attempt": attempt})))
}

#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let target = format!("http://{}/render", listener.local_addr()?);
    let service = axum::Router::new().route("/render", post(render));
    let serving = tokio::spawn(async move { axum::serve(listener, service).await });

    let laneway = laneway::embedded().in_memory().setting("kinds.render.target", target).start().await?;
    let backoff = Backoff { base: Span(10), factor: 1, max: Span(10), jitter: Jitter::None };
    let job = Job::new("render").json(&json!({"url": "https://example.com"})).retry(RetryPolicy {
        retries_max: 3,
        backoff,
        ..RetryPolicy::default()
    });
    let end = laneway.submit(job).await?.wait().await?;
    let result: Value = end.json()?;
    println!("{} attempts, result {result}", end.attempts());
    ensure!(
        result == json!({"rendered": "https://example.com", "attempt": "2"}),
        "the second attempt succeeds"
    );

    laneway.shutdown().await?;
    serving.abort();
    Ok(())
}
