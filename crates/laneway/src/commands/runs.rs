//! `laneway runs`: jobs that depend on one another.

use std::io::Read;

use anyhow::Context;
use clap::Subcommand;
use laneway_wire::{Run, RunList, RunNode};
use reqwest::Method;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::commands::jobs::show::{fact, maybe};
use crate::exit::{Exit, Trouble};
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};
use crate::table::{Cell, Table};

/// What to do with runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A file for `submit` is the body of POST /v1/runs:
  {\"nodes\": [{\"node\": \"fetch\", \"job\": {\"kind\": \"crawl\"}},
             {\"node\": \"sum\", \"depends_on\": [\"fetch\"], \"job\": {\"kind\": \"report\"},
              \"bindings\": [{\"from\": \"fetch\", \"source\": \"/results/rows\", \"target\": \"/parameters/rows\"}]}]}

Examples:
  laneway runs submit report.json
  laneway runs list --state running,failed
  laneway runs get run_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80
  laneway runs cancel run_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80")]
pub struct RunsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Submit a run: all its jobs or none
    Submit {
        /// A JSON file, or `-` for standard input
        file: String,
    },
    /// Runs, newest first
    List {
        /// Only in these states: queued, running, succeeded, failed, canceled
        #[arg(long, value_name = "STATE", value_delimiter = ',')]
        state: Vec<String>,
        /// Only of this client
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// How many at most
        #[arg(long, short = 'n', default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
        limit: u32,
    },
    /// One run with its nodes
    #[command(alias = "show")]
    Get {
        /// The run
        id: String,
    },
    /// End a run: all its jobs that have not ended
    Cancel {
        /// The run
        id: String,
    },
}

/// Does what was asked with runs.
pub async fn run(screen: &Screen, client: &Client, args: &RunsArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::Submit { file } => {
            let body = read_run(file)?;
            show(screen, &client.send(Method::POST, &["v1", "runs"], &body).await?)
        }
        Verb::List { state, client: of, limit } => list(screen, client, state, of.as_deref(), *limit).await,
        Verb::Get { id } => show(screen, &client.get(&["v1", "runs", id], &[]).await?),
        Verb::Cancel { id } => show(screen, &client.post(&["v1", "runs", id, "cancel"]).await?),
    }
}

/// The body as it stands in the file; the server says what is wrong with it.
fn read_run(file: &str) -> anyhow::Result<Box<RawValue>> {
    let text = if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?
    };
    RawValue::from_string(text)
        .map_err(|error| Trouble::new(Exit::Usage, format!("{file} is not JSON: {error}")).into())
}

async fn list(
    screen: &Screen,
    client: &Client,
    states: &[String],
    of: Option<&str>,
    limit: u32,
) -> anyhow::Result<()> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(states.iter().map(|state| ("state", state.clone())));
    query.extend(of.map(|of| ("client", of.to_owned())));
    let list: RunList<'static> = client.get(&["v1", "runs"], &query).await?;
    if screen.json {
        return screen.document(&list);
    }
    if list.runs.is_empty() {
        screen.line(screen.paint(Paint::Dim, "no runs"));
        return Ok(());
    }
    let mut table = Table::new()
        .left("ID")
        .left("STATE")
        .flexible("NAME")
        .right("NODES")
        .left("FAILURE")
        .left("CLIENT")
        .left("SUBMITTED")
        .left("ENDED");
    for run in &list.runs {
        table.row(vec![
            Cell::plain(&run.id),
            Cell::painted(&run.state, state_paint(&run.state)),
            Cell::maybe(run.name.as_ref()),
            Cell::plain(run.node_count),
            Cell::plain(&run.failure),
            Cell::maybe(run.client.as_ref()),
            Cell::plain(moment::distance(&run.created_at)),
            Cell::maybe(run.finished_at.as_deref().map(moment::distance)),
        ]);
    }
    table.print(screen);
    if list.next.is_some() {
        screen.line(screen.paint(Paint::Dim, "there are more: --limit N"));
    }
    Ok(())
}

fn show(screen: &Screen, run: &Run<'static>) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(run);
    }
    fact(screen, "run", &run.id);
    fact(screen, "state", &run.state);
    maybe(screen, "name", run.name.as_deref());
    maybe(screen, "client", run.client.as_deref());
    fact(screen, "failure", &run.failure);
    fact(screen, "submitted", &format!("{} ({})", run.created_at, moment::distance(&run.created_at)));
    if let Some(at) = &run.finished_at {
        fact(screen, "ended", &format!("{at} ({})", moment::distance(at)));
    }
    if let Some(error) = &run.error {
        fact(screen, "error", &format!("node {}: {}: {}", error.node, error.code, error.message));
    }
    if run.existing {
        screen.line(screen.paint(Paint::Dim, "submitted before with the same idempotency key"));
    }
    screen.line("");
    nodes(&run.nodes).print(screen);
    Ok(())
}

fn nodes(nodes: &[RunNode<'_>]) -> Table {
    let mut table = Table::new()
        .flexible("NODE")
        .left("STATE")
        .left("REASON")
        .right("ATTEMPT")
        .left("WAITS FOR")
        .left("JOB");
    for RunNode { node, depends_on, middleware: _, dispatch_seq: _, job } in nodes {
        let depends_on = (!depends_on.is_empty()).then(|| depends_on.join(" "));
        table.row(vec![
            Cell::plain(node),
            Cell::painted(&job.state, state_paint(&job.state)),
            Cell::maybe(job.reason.as_ref()),
            Cell::plain(job.attempt),
            Cell::maybe(depends_on),
            Cell::plain(&job.id),
        ]);
    }
    table
}
