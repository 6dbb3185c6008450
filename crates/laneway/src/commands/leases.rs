//! `laneway leases`: what workers hold, and a worker by hand.

use clap::Subcommand;
use laneway_wire::{Lease, LeaseAnswer, LeaseError, LeaseList, LeaseRelease, LeaseRequest, LeaseRevoke};
use reqwest::Method;
use serde_json::json;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::exit::{Exit, Trouble};
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table};

/// What to do with leases.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A lease is the time-bound right of a worker to run a job, in lanes whose workers ask for work. It ends when it is released, \
revoked, or not heard of for long enough.

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
    /// Ask for work as a worker; exit 1 when there is none
    Request(RequestArgs),
    /// Say that a run has ended
    Release(ReleaseArgs),
    /// Take a lease away: its job has failed
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
    /// Who asks
    worker: String,
    /// The lane whose next job is asked for
    #[arg(long, short, required_unless_present = "job")]
    lane: Option<String>,
    /// One job, by its id
    #[arg(long, conflicts_with_all = ["lane", "agent", "kinds", "max_cost"])]
    job: Option<String>,
    /// Only jobs of this agent
    #[arg(long, short)]
    agent: Option<String>,
    /// Only jobs of this kind; again for each
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<String>,
    /// Only jobs that cost no more units
    #[arg(long, value_name = "UNITS")]
    max_cost: Option<u32>,
}

#[derive(Debug, clap::Args)]
struct ReleaseArgs {
    /// The lease
    id: String,
    /// Who holds it
    #[arg(long)]
    worker: String,
    /// What came out of it, as JSON
    #[arg(long, value_name = "JSON", conflicts_with_all = ["error", "hand_back"])]
    result: Option<String>,
    /// It failed: what went wrong
    #[arg(long, value_name = "TEXT", conflicts_with = "hand_back")]
    error: Option<String>,
    /// It was not begun, or can be begun again without harm
    #[arg(long)]
    hand_back: bool,
}

/// Does what was asked with leases.
pub async fn run(screen: &Screen, client: &Client, args: &LeasesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(list) => show_list(screen, client, list).await,
        Verb::Request(request) => ask(screen, client, request).await,
        Verb::Release(release) => give_back(screen, client, release).await,
        Verb::Revoke { id, reason } => {
            let body = LeaseRevoke { reason: reason.clone() };
            client.post_empty(&["v1", "leases", id, "revoke"], &body).await?;
            told(screen, id, "revoked")
        }
    }
}

async fn show_list(screen: &Screen, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let given = [("lane", &args.lane), ("worker", &args.worker), ("agent", &args.agent)];
    let query: Vec<(&str, String)> =
        given.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    let list: LeaseList = client.get(&["v1", "leases"], &query).await?;
    if screen.json {
        return screen.document(&list);
    }
    table(&list.leases).print(screen);
    Ok(())
}

async fn ask(screen: &Screen, client: &Client, args: &RequestArgs) -> anyhow::Result<()> {
    let kinds: Vec<_> = args.kinds.iter().map(|kind| kind.as_str().into()).collect();
    let request = LeaseRequest {
        worker: args.worker.as_str().into(),
        lane: args.lane.as_deref().map(Into::into),
        agent: args.agent.as_deref().map(Into::into),
        kinds: (!kinds.is_empty()).then_some(kinds),
        max_cost: args.max_cost,
        job: args.job.as_deref().map(Into::into),
        ..LeaseRequest::default()
    };
    let answer: LeaseAnswer = client.send(Method::POST, &["v1", "leases"], &request).await?;
    if screen.json {
        screen.document(&answer)?;
    } else if let Some(lease) = &answer.lease {
        table(std::slice::from_ref(lease)).print(screen);
        if let Some(payload) = &answer.payload {
            screen.line(screen.paint(Paint::Dim, payload.get()));
        }
    }
    if answer.granted {
        return Ok(());
    }
    let why = answer.message.as_deref().unwrap_or("there is no work");
    let after = answer.retry_after.as_deref().unwrap_or("a while");
    Err(Trouble::new(Exit::Refused, format!("no lease: {why} Ask again after {after}.")).into())
}

async fn give_back(screen: &Screen, client: &Client, args: &ReleaseArgs) -> anyhow::Result<()> {
    let result = args.result.as_deref().map(|text| RawValue::from_string(text.to_owned())).transpose();
    let result =
        result.map_err(|error| Trouble::new(Exit::Usage, format!("--result is not JSON: {error}")))?;
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
    client.post_empty(&["v1", "leases", &args.id, "release"], &body).await?;
    told(screen, &args.id, outcome)
}

fn told(screen: &Screen, id: &str, what: &str) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(&json!({"id": id, "outcome": what}));
    }
    screen.line(format!("{id}: {what}"));
    Ok(())
}

fn table(leases: &[Lease]) -> Table {
    let mut table = Table::new()
        .left("LEASE")
        .left("JOB")
        .left("KIND")
        .left("AGENT")
        .left("LANE")
        .left("WORKER")
        .left("STATE")
        .right("COST")
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
            Cell::plain(&lease.expires_at),
        ]);
    }
    table
}
