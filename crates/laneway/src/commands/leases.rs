//! `laneway leases`: leases of pull workers, and a worker by hand.

use clap::Subcommand;
use laneway_core::AttemptId;
use laneway_wire::{Lease, LeaseAnswer, LeaseError, LeaseList, LeaseRelease, LeaseRequest, LeaseRevoke};
use reqwest::Method;
use serde_json::json;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::commands::jobs;
use crate::exit::{CliError, Exit};
use crate::output::{Output, Paint};
use crate::short_id;
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for leases.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A lease is the time-limited right of a worker to run a job, in lanes with dispatch = \"claim\" or \"reserve\". \
It ends when it is released or revoked, or when it expires.

Examples:
  laneway leases list --lane synthia
  laneway leases request w1 --lane bulk --max-cost 40
  laneway leases request w1 --job 0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80
  laneway leases release LEASE --worker w1 --result '{\"files\": 3}'
  laneway leases release LEASE --worker w1 --error 'no disk'
  laneway leases revoke LEASE --reason 'the host goes down'")]
pub struct LeasesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Every open lease
    List(ListArgs),
    /// Request work as a worker; exit 1 when there is none
    Request(RequestArgs),
    /// Report that a job has ended
    Release(ReleaseArgs),
    /// Revoke a lease: its job has failed
    Revoke {
        /// The lease
        id: String,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only of this lane
    #[arg(long, short)]
    lane: Option<String>,
    /// Only of this worker
    #[arg(long)]
    worker: Option<String>,
    /// Only of jobs of this agent
    #[arg(long, short)]
    agent: Option<String>,
}

#[derive(Debug, clap::Args)]
struct RequestArgs {
    /// The worker's name
    worker: String,
    /// Request the next job of this lane
    #[arg(long, short, required_unless_present = "job")]
    lane: Option<String>,
    /// One job, by its id
    #[arg(long, conflicts_with_all = ["lane", "agent", "kinds", "max_cost"])]
    job: Option<String>,
    /// Only jobs of this agent
    #[arg(long, short)]
    agent: Option<String>,
    /// Only jobs of these kinds; may be repeated
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only jobs that cost at most this many units
    #[arg(long, value_name = "UNITS")]
    max_cost: Option<u32>,
}

#[derive(Debug, clap::Args)]
struct ReleaseArgs {
    /// The lease
    id: String,
    /// The worker that holds it
    #[arg(long)]
    worker: String,
    /// The result, as JSON
    #[arg(long, value_name = "JSON", conflicts_with_all = ["error", "hand_back"])]
    result: Option<String>,
    /// The error: the job has failed
    #[arg(long, value_name = "TEXT", conflicts_with = "hand_back")]
    error: Option<String>,
    /// Hand the job back: it was not started, or can be started again without harm
    #[arg(long)]
    hand_back: bool,
}

/// Runs a command for leases.
pub async fn run(output: &Output, client: &Client, args: &LeasesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(list) => show_list(output, client, list).await,
        Verb::Request(request) => ask(output, client, request).await,
        Verb::Release(release) => give_back(output, client, release).await,
        Verb::Revoke { id, reason } => {
            let id = find(client, id).await?;
            let body = LeaseRevoke { reason: reason.clone() };
            client.post_empty(&["v1", "leases", &id, "revoke"], &body).await?;
            print_lease(output, &id, "revoked")
        }
    }
}

/// The full id of an open lease, from its id or from a beginning or an end of it.
async fn find(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = AttemptId::parse(text) {
        return Ok(id.to_string());
    }
    let list: LeaseList = client.get(&["v1", "leases"], &[]).await?;
    Ok(short_id::choose("lease", text, list.leases.into_iter().map(|lease| lease.id).collect())?)
}

async fn show_list(output: &Output, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let given = [("lane", &args.lane), ("worker", &args.worker), ("agent", &args.agent)];
    let query: Vec<(&str, String)> =
        given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    let list: LeaseList = client.get(&["v1", "leases"], &query).await?;
    if output.json {
        return output.document(&list);
    }
    if list.leases.is_empty() {
        output.line(output.paint(Paint::Dim, "no leases"));
        return Ok(());
    }
    table(&list.leases).print(output);
    Ok(())
}

async fn ask(output: &Output, client: &Client, args: &RequestArgs) -> anyhow::Result<()> {
    let job = match &args.job {
        Some(job) => Some(jobs::find(client, job).await?),
        None => None,
    };
    let kinds: Vec<_> = args.kinds.iter().map(|kind| kind.as_str().into()).collect();
    let request = LeaseRequest {
        worker: args.worker.as_str().into(),
        lane: args.lane.as_deref().map(Into::into),
        agent: args.agent.as_deref().map(Into::into),
        kinds: (!kinds.is_empty()).then_some(kinds),
        max_cost: args.max_cost,
        job: job.as_deref().map(Into::into),
        ..LeaseRequest::default()
    };
    let answer: LeaseAnswer = client.send(Method::POST, &["v1", "leases"], &request).await?;
    if output.json {
        output.document(&answer)?;
    } else if let Some(lease) = &answer.lease {
        table(std::slice::from_ref(lease)).print(output);
        if let Some(payload) = &answer.payload {
            output.line(output.paint(Paint::Dim, payload.get()));
        }
    }
    if answer.granted {
        return Ok(());
    }
    let why = answer.message.as_deref().unwrap_or("there is no work");
    let after = answer.retry_after.as_deref().unwrap_or("a while");
    Err(CliError::new(Exit::Rejected, format!("no lease: {why} Try again after {after}.")).into())
}

async fn give_back(output: &Output, client: &Client, args: &ReleaseArgs) -> anyhow::Result<()> {
    let result = args.result.as_deref().map(|text| RawValue::from_string(text.to_owned())).transpose();
    let result =
        result.map_err(|error| CliError::new(Exit::Usage, format!("--result is not JSON: {error}")))?;
    let outcome = match (args.hand_back, &args.error) {
        (true, _) => "handed_back",
        (false, Some(_)) => "failed",
        (false, None) => "succeeded",
    };
    let error =
        args.error.as_ref().map(|message| LeaseError { message: message.clone(), ..LeaseError::default() });
    let body = LeaseRelease {
        worker: args.worker.as_str().into(),
        outcome: outcome.into(),
        result: result.as_deref(),
        error,
    };
    let id = find(client, &args.id).await?;
    client.post_empty(&["v1", "leases", &id, "release"], &body).await?;
    print_lease(output, &id, outcome)
}

fn print_lease(output: &Output, id: &str, what: &str) -> anyhow::Result<()> {
    if output.json {
        return output.document(&json!({"id": id, "outcome": what}));
    }
    output.line(format!("{id}: {what}"));
    Ok(())
}

fn table(leases: &[Lease]) -> Table {
    let mut table = Table::new()
        .id("LEASE")
        .id("JOB")
        .left("KIND")
        .left("AGENT")
        .spare(1)
        .left("LANE")
        .spare(2)
        .left("WORKER")
        .left("STATE")
        .right("COST")
        .spare(3)
        .left("EXPIRES");
    for lease in leases {
        table.row(vec![
            Cell::plain(&lease.id),
            Cell::plain(&lease.job),
            Cell::plain(&lease.kind),
            Cell::plain(&lease.agent),
            Cell::plain(&lease.lane),
            Cell::maybe(lease.worker.as_deref()),
            Cell::plain(&lease.state),
            Cell::plain(lease.cost),
            Cell::plain(time_args::distance(&lease.expires_at)),
        ]);
    }
    table
}
