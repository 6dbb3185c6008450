//! The built-in sample kinds of the server: `echo`, `sleep` and `fail`.

use std::time::Duration;

use laneway_core::{Failure, Outcome};
use laneway_runtime::{Handlers, JobContext};
use serde::Deserialize;

/// Longest sleep, in milliseconds: one day.
const SLEEP_MS_MAX: u64 = 86_400_000;
/// How many progress reports a `sleep` sends.
const PROGRESS_STEPS: u32 = 10;

/// The sample kinds, without those that `is_taken`.
pub fn handlers(is_taken: impl Fn(&str) -> bool) -> Handlers {
    let mut handlers = Handlers::new();
    if !is_taken("echo") {
        handlers = handlers.on("echo", echo);
    }
    if !is_taken("sleep") {
        handlers = handlers.on("sleep", sleep);
    }
    if !is_taken("fail") {
        handlers = handlers.on("fail", fail);
    }
    handlers
}

/// Returns its payload.
async fn echo(context: JobContext) -> Outcome {
    Outcome::Succeeded(Some(context.payload().clone()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SleepPayload {
    ms: u64,
}

/// Sleeps for `{"ms": n}` and can be canceled at any time.
async fn sleep(context: JobContext) -> Outcome {
    let SleepPayload { ms } = match serde_json::from_slice(context.payload()) {
        Ok(payload) => payload,
        Err(error) => return bad_payload(&format!("sleep takes {{\"ms\": n}}: {error}")),
    };
    let step = Duration::from_millis(ms.min(SLEEP_MS_MAX)) / PROGRESS_STEPS;
    for done in 0..PROGRESS_STEPS {
        context.progress(f64::from(done) / f64::from(PROGRESS_STEPS), "asleep");
        tokio::select! {
            () = tokio::time::sleep(step) => {}
            () = context.cancellation().cancelled() => return Outcome::Canceled,
        }
    }
    context.log(&format!("slept for {ms} ms"));
    Outcome::Succeeded(None)
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FailPayload {
    /// How many attempts fail before one succeeds.
    times: u32,
    /// True: a retry cannot help.
    permanent: bool,
}

impl Default for FailPayload {
    fn default() -> FailPayload {
        FailPayload { times: u32::MAX, permanent: false }
    }
}

/// Fails the first `{"times": n}` attempts, or permanently with `{"permanent": true}`.
async fn fail(context: JobContext) -> Outcome {
    let payload: Option<FailPayload> = match serde_json::from_slice(context.payload()) {
        Ok(payload) => payload,
        Err(error) => {
            return bad_payload(&format!("fail takes {{\"times\": n, \"permanent\": bool}}: {error}"));
        }
    };
    let FailPayload { times, permanent } = payload.unwrap_or_default();
    let attempt = context.attempt();
    if permanent {
        return Outcome::Failed(Failure::permanent("asked_to_fail", "failed permanently, as requested"));
    }
    if attempt <= times {
        context.log(&format!("attempt {attempt} fails, as requested"));
        return Outcome::Failed(Failure::retryable(
            "asked_to_fail",
            format!("attempt {attempt} failed, as requested"),
        ));
    }
    Outcome::Succeeded(None)
}

fn bad_payload(message: &str) -> Outcome {
    Outcome::Failed(Failure::permanent("bad_payload", message))
}
