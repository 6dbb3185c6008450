//! `laneway submit`: asks for one job.

use std::time::{Duration, Instant};

use laneway_wire::{Job, JobRequest};
use reqwest::Method;

use crate::client::Client;
use crate::commands::job_args::JobArgs;
use crate::commands::jobs::show;
use crate::exit::{Exit, Trouble, code_of};
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};

/// The job to ask for.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway submit echo --payload '{\"hello\": \"world\"}' --wait
  laneway submit crawl --payload @page.json --lane browsers --agent a7 --key profile=p1
  laneway submit reply --session chat-42 --timeout 30s --retries 5
  laneway submit reply --session chat-42 --debounce 800ms --cap 10      (what comes within 800 ms is one run)
  laneway submit reply --session chat-42 --mode interrupt               (ends what runs and waits there)
  echo '{\"n\": 1}' | laneway submit report --payload - --not-before 10m
  laneway submit invoice --idempotency-key order-1001 --tag billing")]
pub struct SubmitArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Not started before this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = moment::parse_moment)]
    not_before: Option<String>,
    /// Neither started nor running after this time: RFC 3339, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = moment::parse_moment)]
    deadline: Option<String>,
    /// Your own name for this request: sent again, it gives the first job back. The request must be the same, so give
    /// times as RFC 3339: a duration from now is another time whenever it is sent
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until it has ended and show its result; exit 1 if it did not succeed
    #[arg(long, short)]
    wait: bool,
}

/// Submits the job, and waits for its end where that was asked for.
pub async fn run(screen: &Screen, client: &Client, args: &SubmitArgs) -> anyhow::Result<()> {
    let payload = args.job.payload()?;
    let request = JobRequest {
        not_before: args.not_before.as_deref().map(Into::into),
        deadline: args.deadline.as_deref().map(Into::into),
        idempotency_key: args.idempotency_key.as_deref().map(Into::into),
        ..args.job.request(payload.as_deref())
    };
    let job: Job<'static> = client.send(Method::POST, &["v1", "jobs"], &request).await?;
    if args.wait {
        // Whoever stops to wait, or loses the server, can still find the job.
        screen.aside(format!("submitted {}", job.id));
        return wait_and_show(screen, client, &job.id).await;
    }
    if screen.json {
        return screen.document(&job);
    }
    screen.line(told(screen, &job));
    Ok(())
}

/// One line about a job that was just submitted.
pub fn told(screen: &Screen, job: &Job<'_>) -> String {
    let state = screen.paint(state_paint(&job.state), &job.state);
    let mut line = format!("{}  {state}  {} in lane {}", job.id, job.kind, job.lane);
    if let Some(into) = &job.merged_into {
        line.push_str(&screen.paint(Paint::Dim, &format!("  (merged into {into}, which runs for both)")));
    }
    if job.existing {
        line.push_str(&screen.paint(Paint::Dim, "  (submitted before with the same idempotency key)"));
    }
    line
}

/// Waits until the job has ended and shows it. Ends with an error unless it succeeded.
async fn wait_and_show(screen: &Screen, client: &Client, id: &str) -> anyhow::Result<()> {
    let job = wait(client, id).await?;
    if screen.json {
        screen.document(&job)?;
    } else {
        show::print_end(screen, &job);
    }
    if job.state == "succeeded" {
        return Ok(());
    }
    let reason = job.reason.as_deref().unwrap_or("no reason given");
    Err(Trouble::new(Exit::Refused, format!("the job ended as {} ({reason})", job.state)).into())
}

/// Shortest pause between two looks at a job.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// Longest pause between two looks at a job.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How long a server may be away while its job is waited for: a restart is no reason to stop waiting.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Looks at the job until it has ended. A job that was merged into another one ends as that one does.
async fn wait(client: &Client, id: &str) -> anyhow::Result<Job<'static>> {
    let job = wait_for(client, id).await?;
    match &job.merged_into {
        // What others are merged into is merged into nothing itself.
        Some(into) => wait_for(client, into).await,
        None => Ok(job),
    }
}

async fn wait_for(client: &Client, id: &str) -> anyhow::Result<Job<'static>> {
    let mut pause = LOOK_MIN;
    let mut away_since: Option<Instant> = None;
    loop {
        let looked: anyhow::Result<Job<'static>> = client.get(&["v1", "jobs", id], &[]).await;
        match looked {
            Ok(job) if matches!(&*job.state, "succeeded" | "failed" | "canceled" | "rejected") => {
                return Ok(job);
            }
            Ok(_) => away_since = None,
            Err(error) if !may_come_back(&error) => return Err(error),
            Err(error) => {
                if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY_MAX {
                    let text = format!("stopped waiting for job {id}, which is durable and may still run");
                    let message = format!("{text}: {error}");
                    return Err(Trouble::new(code_of(&error), message).into());
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// True for errors that a restart of the server explains: it does not answer, or says that it stops.
fn may_come_back(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<Trouble>().and_then(|trouble| trouble.problem.as_deref());
    code_of(error) == Exit::Unreachable || problem.is_some_and(|problem| problem.status == 503)
}
