//! The adapter of the conformance suite for this SDK: a worker with the kinds that the suite dispatches, and one line on
//! standard output for everything that a handler sees.
//!
//! `clients/conformance/README.md` has the contract. It is not an example of a worker for production.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use laneway_client::worker::{Failure, Outcome, Task, Worker, WorkerError, WorkerHandle, WorkerState};
use laneway_wire::frame::Channel;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

/// How many tasks run at once, as the contract says.
const MAX_PARALLEL: u32 = 4;
/// How often `wait` looks for its file.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The exit code of a worker that the server denied for good.
const DENIED: u8 = 3;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let url = std::env::var("LANEWAY_URL")?.replacen("http", "ws", 1);
    let id = std::env::var("LANEWAY_WORKER")?;
    let worker = Worker::builder(&format!("{url}/v1/workers/connect"), &id)
        .max_parallel(MAX_PARALLEL)
        .token(|| async { token() })
        .handler("echo", |task| reported(task, echo))
        .handler("fail", |task| reported(task, fail))
        .handler("fatal", |task| reported(task, fatal))
        .handler("wait", |task| reported(task, wait))
        .handler("progress", |task| reported(task, progress))
        .handler("log", |task| reported(task, log))
        .build()?;
    let handle = worker.handle();
    let mut asked_to_end = signal(SignalKind::terminate())?;
    let drained = handle.clone();
    tokio::spawn(async move {
        asked_to_end.recv().await;
        drained.drain(None).await;
    });
    tokio::spawn(report_ready(handle));
    match worker.run().await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(WorkerError::Superseded) => {
            say("denied E.SESSION.STALE_BINDING");
            Ok(ExitCode::from(DENIED))
        }
    }
}

/// The token of the next connection. A file is read again for each.
fn token() -> Option<String> {
    match std::env::var("LANEWAY_TOKEN_FILE") {
        Ok(path) => std::fs::read_to_string(path).ok().map(|token| token.trim().to_owned()),
        Err(_) => std::env::var("LANEWAY_TOKEN").ok(),
    }
}

/// One line for each registration.
async fn report_ready(handle: WorkerHandle) {
    while handle.reached(WorkerState::Heartbeating).await {
        say("ready");
        if !handle.reached(WorkerState::Backoff).await {
            return;
        }
    }
}

/// Runs a handler between the lines for its beginning and its end.
async fn reported<F, Fut>(task: Task, handler: F) -> Result<Outcome, Failure>
where
    F: FnOnce(Task) -> Fut,
    Fut: Future<Output = Result<Outcome, Failure>>,
{
    say(&format!("run {} {}", task.id(), task.kind()));
    let ended = handler(task.clone()).await;
    say(&format!("end {}", task.id()));
    ended
}

async fn echo(task: Task) -> Result<Outcome, Failure> {
    Outcome::of(&task.read::<Value>()?)
}

#[derive(Deserialize)]
struct Message {
    message: String,
}

async fn fail(task: Task) -> Result<Outcome, Failure> {
    Err(Failure::transient("failed", task.read::<Message>()?.message))
}

async fn fatal(task: Task) -> Result<Outcome, Failure> {
    Err(Failure::permanent("fatal", task.read::<Message>()?.message))
}

#[derive(Deserialize)]
struct Wait {
    release: Option<PathBuf>,
}

async fn wait(task: Task) -> Result<Outcome, Failure> {
    let release = task.read::<Wait>()?.release;
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            () = task.cancellation().cancelled() => {
                say(&format!("canceled {}", task.id()));
                return Err(Failure::permanent("canceled", "the task was canceled"));
            }
            _ = look.tick() => {
                if release.as_ref().is_some_and(|file| file.exists()) {
                    return Outcome::of(&json!({"released": true}));
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct Steps {
    steps: u32,
}

async fn progress(task: Task) -> Result<Outcome, Failure> {
    let steps = task.read::<Steps>()?.steps;
    for step in 1..=steps {
        task.progress(f64::from(step) / f64::from(steps), &format!("step {step}"));
    }
    Outcome::of(&task.read::<Value>()?)
}

#[derive(Deserialize)]
struct Lines {
    lines: Vec<String>,
}

async fn log(task: Task) -> Result<Outcome, Failure> {
    for line in task.read::<Lines>()?.lines {
        task.chunk(Channel::Log, &format!("{line}\n")).await;
    }
    Ok(Outcome::default())
}

/// Prints one line at once. A closed pipe means that the suite has ended.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
