//! `laneway jobs`: everything about jobs that exist.

pub mod end;
pub mod explain;
pub mod list;
pub mod logs;
pub mod show;

use clap::Subcommand;
use laneway_core::JobId;
use laneway_wire::JobList;

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::screen::Screen;

/// What to do with jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A job is named by its id, or by the beginning or the end of it, as long as only one of the 500 newest jobs fits.

Examples:
  laneway jobs list --state queued,running --lane browsers
  laneway jobs show 0198c9d2-6f4e-7c31-9a53-0d5b8a7e4f10
  laneway jobs explain 8a7e4f10
  laneway jobs logs --follow 8a7e4f10
  laneway jobs retry 8a7e4f10")]
pub struct JobsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Jobs, newest first
    List(list::ListArgs),
    /// One job with its attempts and its history
    Show {
        /// The job
        job: String,
    },
    /// End jobs
    Cancel {
        /// The jobs
        #[arg(required = true)]
        jobs: Vec<String>,
    },
    /// Try ended jobs again: each becomes a new job
    Retry {
        /// The jobs
        #[arg(required = true)]
        jobs: Vec<String>,
    },
    /// What the attempts of a job wrote
    Logs(logs::LogsArgs),
    /// Why a job is not running
    Explain {
        /// The job
        job: String,
    },
}

/// Does what was asked with jobs.
pub async fn run(screen: &Screen, client: &Client, args: &JobsArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(args) => list::run(screen, client, args).await,
        Verb::Show { job } => show::run(screen, client, &find(client, job).await?).await,
        Verb::Cancel { jobs } => end::cancel(screen, client, jobs).await,
        Verb::Retry { jobs } => end::retry(screen, client, jobs).await,
        Verb::Logs(args) => logs::run(screen, client, args).await,
        Verb::Explain { job } => explain::run(screen, client, &find(client, job).await?).await,
    }
}

/// How many of the newest jobs a short id is looked up in.
const SHORT_ID_REACH: usize = 500;
/// A shorter id would fit too much.
const SHORT_ID_LEN_MIN: usize = 4;

/// The full id of a job that is named by its id, or by a beginning or an end of it.
pub async fn find(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = JobId::parse(text) {
        return Ok(id.to_string());
    }
    let short = text.to_ascii_lowercase();
    let plausible =
        short.len() >= SHORT_ID_LEN_MIN && short.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if !plausible {
        let message =
            format!("{text:?} is no job id; give the whole id, or at least {SHORT_ID_LEN_MIN} digits of it");
        return Err(Trouble::new(Exit::NotFound, message).into());
    }
    let mut fitting = Vec::new();
    let mut looked_at = 0;
    let mut query = vec![("limit", "100".to_owned())];
    while looked_at < SHORT_ID_REACH {
        let page: JobList<'static> = client.get(&["v1", "jobs"], &query).await?;
        looked_at += page.jobs.len();
        let fits = |id: &str| id.starts_with(&short) || id.ends_with(&short);
        fitting.extend(page.jobs.into_iter().map(|job| job.id.into_owned()).filter(|id| fits(id)));
        let Some(next) = page.next else { break };
        query.truncate(1);
        query.push(("cursor", next));
    }
    match fitting.as_slice() {
        [only] => Ok(only.clone()),
        [] => {
            let message =
                format!("none of the {looked_at} newest jobs has an id that begins or ends with {text}");
            Err(Trouble::new(Exit::NotFound, message).into())
        }
        many => {
            let list = many.iter().take(5).cloned().collect::<Vec<_>>().join("\n  ");
            let message =
                format!("{text} is ambiguous: it fits {} jobs; give more of the id:\n  {list}", many.len());
            Err(Trouble::new(Exit::Usage, message).into())
        }
    }
}
