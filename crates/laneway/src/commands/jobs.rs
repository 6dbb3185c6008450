//! `laneway jobs`: commands for existing jobs.

pub mod bulk;
pub mod end;
pub mod explain;
pub mod filter;
pub mod list;
pub mod logs;
pub mod show;
pub mod wait;

use clap::Subcommand;
use laneway_core::JobId;
use laneway_wire::JobList;

use crate::client::Client;
use crate::exit::{CliError, Exit};
use crate::output::Output;
use crate::{short_id, time_args};

/// Commands for jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A job is named by its id, or by the beginning or the end of it if only one of the 500 newest jobs matches. \
Tables show the last eight digits where the whole id does not fit.

Examples:
  laneway jobs list --state queued,running --lane browsers
  laneway jobs list --state failed --kind render --since 1h --search timeout
  laneway jobs show 0198c9d2-6f4e-7c31-9a53-0d5b8a7e4f10
  laneway jobs explain 8a7e4f10
  laneway jobs logs --follow 8a7e4f10
  laneway jobs wait 8a7e4f10 --timeout 5m
  laneway jobs retry 8a7e4f10
  laneway jobs retry --state failed --kind render --since 1h --dry-run
  laneway jobs reschedule 8a7e4f10 --delay 10m
  laneway jobs priority --kind render --state queued --to -5
  laneway jobs delete --state succeeded --finished-before 30d --dry-run")]
pub struct JobsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Jobs, newest first
    List(list::ListArgs),
    /// One job with its payload, its attempts and its history
    Show {
        /// The job
        job: String,
        /// Show payload, result and error in full
        #[arg(long)]
        full: bool,
    },
    /// Wait until a job has ended, and show its result
    Wait(wait::WaitArgs),
    /// Cancel jobs, by their ids or by filters
    Cancel(EndArgs),
    /// Retry ended jobs, by their ids or by filters: each becomes a new job
    Retry(EndArgs),
    /// Change when waiting jobs start, by their ids or by filters
    #[command(after_help = "\
Examples:
  laneway jobs reschedule 8a7e4f10 --delay 10m
  laneway jobs reschedule 8a7e4f10 --run-at 2030-01-01T08:00:00Z
  laneway jobs reschedule --state scheduled --kind report --delay 0s --dry-run")]
    Reschedule {
        #[command(flatten)]
        jobs: EndArgs,
        #[command(flatten)]
        start: StartArgs,
    },
    /// Change the priority of waiting jobs, by their ids or by filters
    #[command(after_help = "\
A lower number runs sooner.

Examples:
  laneway jobs priority 8a7e4f10 --to -5
  laneway jobs priority --agent batch --state queued --to 20 --dry-run")]
    Priority {
        #[command(flatten)]
        jobs: EndArgs,
        /// The priority; a lower number runs sooner
        #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
        to: i32,
    },
    /// Delete ended jobs, by their ids or by filters
    #[command(after_help = "\
A deleted job is gone with its payload, its result, its attempts and its logs. Its events stay in the event log.

Examples:
  laneway jobs delete 8a7e4f10
  laneway jobs delete --state succeeded --finished-before 30d --dry-run
  laneway jobs delete --state succeeded --finished-before 30d --yes")]
    Delete {
        #[command(flatten)]
        jobs: EndArgs,
        /// Delete the jobs of the filters without asking
        #[arg(long)]
        yes: bool,
    },
    /// The log lines of a job
    Logs(logs::LogsArgs),
    /// Why a job is not running
    Explain {
        /// The job
        job: String,
    },
}

/// When jobs start at the earliest.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct StartArgs {
    /// Start no sooner than at this time (RFC 3339); a time in the past means now
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,
    /// Start no sooner than after this duration; 0s means now
    #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration)]
    delay: Option<String>,
}

/// What is done with jobs.
#[derive(Clone, Copy, Debug)]
pub enum Act<'a> {
    /// They are canceled.
    Cancel,
    /// They are retried.
    Retry,
    /// They start at another time.
    Reschedule(&'a StartArgs),
    /// They get another priority.
    Priority(i32),
    /// They are deleted.
    Delete,
}

impl Act<'_> {
    /// The subcommand.
    pub fn verb(self) -> &'static str {
        match self {
            Act::Cancel => "cancel",
            Act::Retry => "retry",
            Act::Reschedule(_) => "reschedule",
            Act::Priority(_) => "priority",
            Act::Delete => "delete",
        }
    }
}

/// The jobs that a command changes.
#[derive(Debug, clap::Args)]
pub struct EndArgs {
    /// The jobs
    jobs: Vec<String>,
    #[command(flatten)]
    filter: filter::FilterArgs,
    /// Only show how many jobs match the filters
    #[arg(long, conflicts_with = "jobs")]
    dry_run: bool,
}

/// Changes jobs: those that are named, or every job of the filters.
async fn act(output: &Output, client: &Client, args: &EndArgs, act: Act<'_>) -> anyhow::Result<()> {
    match (args.jobs.is_empty(), args.filter.query().is_empty()) {
        (false, true) => end::each(output, client, &args.jobs, act).await,
        (true, false) => bulk::run(output, client, args, act).await,
        (false, false) => Err(CliError::new(Exit::Usage, "name jobs or give filters, not both").into()),
        (true, true) => {
            let needed = match act {
                Act::Reschedule(_) => " --delay 10m",
                Act::Priority(_) => " --to 5",
                _ => "",
            };
            let message = format!(
                "name jobs, or give filters: laneway jobs {}{needed} --kind render --dry-run",
                act.verb()
            );
            Err(CliError::new(Exit::Usage, message).into())
        }
    }
}

/// Runs a command for jobs.
pub async fn run(output: &Output, client: &Client, args: &JobsArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(args) => list::run(output, client, args).await,
        Verb::Show { job, full } => show::run(output, client, &find(client, job).await?, *full).await,
        Verb::Wait(args) => wait::run(output, client, args).await,
        Verb::Cancel(jobs) => act(output, client, jobs, Act::Cancel).await,
        Verb::Retry(jobs) => act(output, client, jobs, Act::Retry).await,
        Verb::Reschedule { jobs, start } => act(output, client, jobs, Act::Reschedule(start)).await,
        Verb::Priority { jobs, to } => act(output, client, jobs, Act::Priority(*to)).await,
        Verb::Delete { jobs, yes } => {
            if jobs.jobs.is_empty() && !jobs.filter.query().is_empty() && !jobs.dry_run && !yes {
                bulk::confirm_delete(client, jobs).await?;
            }
            act(output, client, jobs, Act::Delete).await
        }
        Verb::Logs(args) => logs::run(output, client, args).await,
        Verb::Explain { job } => explain::run(output, client, &find(client, job).await?).await,
    }
}

/// A short id must be unique among this many of the newest jobs.
const SHORT_ID_REACH: usize = 500;
/// How many jobs are searched for a short id that none of the newest has.
const SHORT_ID_REACH_MAX: usize = 10_000;
/// The page size; the server allows no more.
const SHORT_ID_PAGE: usize = 500;

/// The full id of a job, from its id or from a beginning or an end of it.
pub async fn find(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = JobId::parse(text) {
        return Ok(id.to_string());
    }
    if !short_id::is_plausible(text) {
        return Err(short_id::implausible("job", text).into());
    }
    let mut fitting = Vec::new();
    let mut looked_at = 0;
    let mut query = vec![("limit", SHORT_ID_PAGE.to_string())];
    while looked_at < SHORT_ID_REACH || (fitting.is_empty() && looked_at < SHORT_ID_REACH_MAX) {
        let page: JobList<'static> = client.get(&["v1", "jobs"], &query).await?;
        looked_at += page.jobs.len();
        let ids = page.jobs.into_iter().map(|job| job.id.into_owned());
        fitting.extend(ids.filter(|id| short_id::fits(id, text)));
        let Some(next) = page.next else { break };
        query.truncate(1);
        query.push(("cursor", next));
    }
    Ok(short_id::only_one("job", text, &fitting, &format!("{looked_at} newest jobs"))?)
}
