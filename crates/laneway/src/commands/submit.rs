//! `laneway submit`: submits one job.

use laneway_wire::{Job, JobRequest};
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::commands::job_args::{DELIVERY, JobArgs, TIME};
use crate::commands::jobs::show::printable;
use crate::commands::jobs::wait;
use crate::output::{Output, Paint, state_paint};
use crate::time_args;

/// The job to submit.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway submit echo --payload '{\"hello\": \"world\"}' --wait
  laneway submit crawl --payload @page.json --lane browsers --agent a7 --key profile=p1
  laneway submit reply --session chat-42 --timeout 30s --retries 5
  laneway submit reply --session chat-42 --debounce 800ms --cap 10      (jobs within 800 ms run as one)
  laneway submit reply --session chat-42 --mode interrupt               (cancels the other jobs of the session)
  echo '{\"n\": 1}' | laneway submit report --payload - --not-before 10m
  laneway submit invoice --idempotency-key order-1001 --tag billing")]
pub struct SubmitArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Do not start before this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_time, help_heading = TIME)]
    not_before: Option<String>,
    /// Do not start or run after this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = time_args::parse_time, help_heading = TIME)]
    deadline: Option<String>,
    /// Your own name for this request: sent again, it returns the first job. The requests must be equal, so
    /// give times as RFC 3339: a duration from now is a different time whenever it is sent
    #[arg(long, value_name = "KEY", help_heading = DELIVERY)]
    idempotency_key: Option<String>,
    /// The `traceparent` of the caller (W3C Trace Context), for traces with OpenTelemetry
    #[arg(long, value_name = "TRACEPARENT", help_heading = DELIVERY)]
    traceparent: Option<String>,
    /// The `tracestate` that belongs to --traceparent
    #[arg(long, value_name = "TRACESTATE", requires = "traceparent", help_heading = DELIVERY)]
    tracestate: Option<String>,
    /// Wait until the job has ended and show its result; exit 1 if it did not succeed. Attempts, progress and
    /// the reason for a wait are written to standard error. Ctrl-C ends the wait, not the job
    #[arg(long, short)]
    wait: bool,
}

/// Submits the job, and waits for its end with `--wait`.
pub async fn run(output: &Output, client: &Client, args: &SubmitArgs) -> anyhow::Result<()> {
    let payload = args.job.payload()?;
    let request = JobRequest {
        not_before: args.not_before.as_deref().map(Into::into),
        deadline: args.deadline.as_deref().map(Into::into),
        idempotency_key: args.idempotency_key.as_deref().map(Into::into),
        traceparent: args.traceparent.as_deref().map(Into::into),
        tracestate: args.tracestate.as_deref().map(Into::into),
        ..args.job.request(payload.as_deref())
    };
    let answer: Box<RawValue> = client.send(Method::POST, &["v1", "jobs"], &request).await?;
    let job: Job<'static> = serde_json::from_str(answer.get())?;
    if args.wait {
        // So that the job can be found when the wait is interrupted or the server is lost.
        output.note(format!("submitted {}", job.id));
    }
    for Warning { message } in warnings(&answer) {
        let head = output.paint_stderr(Paint::Yellow, "warning:");
        output.note(format!("{head} {}", printable(&message)));
    }
    if args.wait {
        return wait::wait_and_show(output, client, &job.id, None).await;
    }
    if output.json {
        return output.document(&job);
    }
    output.line(summary(output, &job));
    Ok(())
}

/// A probable mistake in an accepted job.
#[derive(Deserialize)]
struct Warning {
    message: String,
}

/// The warnings in the answer to a submit; older servers send none.
fn warnings(answer: &RawValue) -> Vec<Warning> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        warnings: Vec<Warning>,
    }
    serde_json::from_str(answer.get()).map_or_else(|_| Vec::new(), |Answer { warnings }| warnings)
}

/// One line about a new job.
pub fn summary(output: &Output, job: &Job<'_>) -> String {
    let state = output.paint(state_paint(&job.state), &job.state);
    let mut line = format!("{}  {state}  {} in lane {}", job.id, job.kind, job.lane);
    if let Some(into) = &job.merged_into {
        line.push_str(&output.paint(Paint::Dim, &format!("  (merged into {into}, which runs for both)")));
    }
    if job.existing {
        line.push_str(&output.paint(Paint::Dim, "  (submitted before with the same idempotency key)"));
    }
    line
}
