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
use crate::short_id;

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
  laneway jobs retry --state failed --kind render --since 1h --dry-run")]
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
    /// The log lines of a job
    Logs(logs::LogsArgs),
    /// Why a job is not running
    Explain {
        /// The job
        job: String,
    },
}

/// The jobs to cancel or retry.
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

/// Cancels or retries jobs: those that are named, or every job of the filters.
async fn end_jobs(output: &Output, client: &Client, args: &EndArgs, action: &str) -> anyhow::Result<()> {
    match (args.jobs.is_empty(), args.filter.query().is_empty()) {
        (false, true) if action == "cancel" => end::cancel(output, client, &args.jobs).await,
        (false, true) => end::retry(output, client, &args.jobs).await,
        (true, false) => bulk::run(output, client, args, action).await,
        (false, false) => Err(CliError::new(Exit::Usage, "name jobs or give filters, not both").into()),
        (true, true) => {
            let message =
                format!("name jobs, or give filters: laneway jobs {action} --kind render --dry-run");
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
        Verb::Cancel(args) => end_jobs(output, client, args, "cancel").await,
        Verb::Retry(args) => end_jobs(output, client, args, "retry").await,
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
