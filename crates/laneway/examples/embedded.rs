//! The scheduler inside a program: a handler, a durable store, retries, and why a job waits.
//!
//! Run it with `cargo run -p laneway --example embedded`.

use anyhow::ensure;
use laneway::{Backoff, Failure, Job, JobState, RetryPolicy, Span};
use serde_json::{Value, json};

#[tokio::main]
pub async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let laneway = laneway::embedded()
        .data_dir(dir.path())
        .handler("add", |ctx| async move {
            let (a, b): (i64, i64) = ctx.json()?;
            ctx.log(&format!("adding {a} and {b}"));
            Ok::<_, Failure>(json!({"sum": a + b}))
        })
        .handler("flaky", |ctx| async move {
            match ctx.attempt() {
                1 => Err(Failure::retryable("busy", "try again, please")),
                _ => Ok(()),
            }
        })
        .start()
        .await?;

    // When `submit` returns, the job is on disk.
    let job = laneway.submit(Job::new("add").json(&(2, 40)).agent("docs").tag("example")).await?;
    let end = job.wait().await?;
    let sum: Value = end.json()?;
    println!("{} gave {sum} after {} attempt", end.id(), end.attempts());
    ensure!(sum == json!({"sum": 42}), "two and forty are forty-two");

    // A retryable failure is retried after a backoff.
    let backoff = Backoff { base: Span(10), factor: 2, max: Span(100), jitter: laneway::Jitter::None };
    let policy = RetryPolicy { retries_max: 2, backoff, ..RetryPolicy::default() };
    let end = laneway.submit(Job::new("flaky").retry(policy)).await?.wait().await?;
    println!("flaky: {} after {} attempts", end.state(), end.attempts());
    ensure!(end.succeeded() && end.attempts() == 2, "the second attempt succeeds");

    // There is no handler for this kind: the job waits, and `explain` says why.
    let waiting = laneway.submit(Job::new("unheard-of")).await?;
    let explanation = waiting.explain().await?.expect("the job waits");
    println!("{} is {}: {:?}", waiting.id(), explanation.state, explanation.holds);
    ensure!(waiting.cancel().await?, "a waiting job can be canceled");
    ensure!(waiting.wait().await?.state() == JobState::Canceled, "and is canceled then");

    laneway.shutdown().await?;
    Ok(())
}
