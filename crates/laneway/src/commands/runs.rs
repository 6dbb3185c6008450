//! `laneway runs`: workflow runs.

use std::io::Read;

use anyhow::Context;
use clap::Subcommand;
use laneway_core::RunId;
use laneway_wire::{Run, RunList, RunNode};
use reqwest::Method;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::commands::jobs::show::{field, maybe};
use crate::exit::{CliError, Exit};
use crate::output::{Output, Paint, state_paint};
use crate::short_id;
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for runs.
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
  laneway runs cancel 5e6f7a80

A run is named by its id, or by the beginning or the end of it.")]
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
    /// Cancel a run: all its jobs that have not ended
    Cancel {
        /// The run
        id: String,
    },
}

/// Runs a command for runs.
pub async fn run(output: &Output, client: &Client, args: &RunsArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::Submit { file } => {
            let body = read_run(file)?;
            show(output, &client.send(Method::POST, &["v1", "runs"], &body).await?)
        }
        Verb::List { state, client: of, limit } => list(output, client, state, of.as_deref(), *limit).await,
        Verb::Get { id } => show(output, &client.get(&["v1", "runs", &find(client, id).await?], &[]).await?),
        Verb::Cancel { id } => {
            show(output, &client.post(&["v1", "runs", &find(client, id).await?, "cancel"]).await?)
        }
    }
}

/// A short id must be unique among this many of the newest runs; the server allows no more in one call.
const SHORT_ID_REACH: u32 = 200;

/// The full id of a run, from its id or from a beginning or an end of it.
async fn find(client: &Client, text: &str) -> anyhow::Result<String> {
    if let Some(id) = RunId::parse(text) {
        return Ok(id.to_string());
    }
    let query = [("limit", SHORT_ID_REACH.to_string())];
    let list: RunList<'static> = client.get(&["v1", "runs"], &query).await?;
    Ok(short_id::choose("run", text, list.runs.into_iter().map(|run| run.id.into_owned()).collect())?)
}

/// The body in the file; the server reports what is wrong with it.
fn read_run(file: &str) -> anyhow::Result<Box<RawValue>> {
    let text = if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?
    };
    RawValue::from_string(text)
        .map_err(|error| CliError::new(Exit::Usage, format!("{file} is not JSON: {error}")).into())
}

async fn list(
    output: &Output,
    client: &Client,
    states: &[String],
    of: Option<&str>,
    limit: u32,
) -> anyhow::Result<()> {
    let mut query = vec![("limit", limit.to_string())];
    query.extend(states.iter().map(|state| ("state", state.clone())));
    query.extend(of.map(|of| ("client", of.to_owned())));
    let list: RunList<'static> = client.get(&["v1", "runs"], &query).await?;
    if output.json {
        return output.document(&list);
    }
    if list.runs.is_empty() {
        output.line(output.paint(Paint::Dim, "no runs"));
        return Ok(());
    }
    let mut table = Table::new()
        .id("ID")
        .left("STATE")
        .flexible("NAME")
        .right("NODES")
        .left("FAILURE")
        .spare(2)
        .left("CLIENT")
        .spare(3)
        .left("SUBMITTED")
        .left("ENDED")
        .spare(1);
    for run in &list.runs {
        table.row(vec![
            Cell::plain(&run.id),
            Cell::painted(&run.state, state_paint(&run.state)),
            Cell::maybe(run.name.as_ref()),
            Cell::plain(run.node_count),
            Cell::plain(&run.failure),
            Cell::maybe(run.client.as_ref()),
            Cell::plain(time_args::distance(&run.created_at)),
            Cell::maybe(run.finished_at.as_deref().map(time_args::distance)),
        ]);
    }
    table.print(output);
    if list.next.is_some() {
        output.line(output.paint(Paint::Dim, "there are more: --limit N"));
    }
    Ok(())
}

fn show(output: &Output, run: &Run<'static>) -> anyhow::Result<()> {
    if output.json {
        return output.document(run);
    }
    field(output, "run", &run.id);
    field(output, "state", &run.state);
    maybe(output, "name", run.name.as_deref());
    maybe(output, "client", run.client.as_deref());
    field(output, "failure", &run.failure);
    field(output, "submitted", &format!("{} ({})", run.created_at, time_args::distance(&run.created_at)));
    if let Some(at) = &run.finished_at {
        field(output, "ended", &format!("{at} ({})", time_args::distance(at)));
    }
    if let Some(error) = &run.error {
        field(output, "error", &format!("node {}: {}: {}", error.node, error.code, error.message));
    }
    if run.existing {
        output.line(output.paint(Paint::Dim, "submitted before with the same idempotency key"));
    }
    output.line("");
    nodes(&run.nodes).print(output);
    Ok(())
}

fn nodes(nodes: &[RunNode<'_>]) -> Table {
    let mut table = Table::new()
        .flexible("NODE")
        .left("STATE")
        .left("REASON")
        .spare(2)
        .right("ATTEMPT")
        .spare(1)
        .left("WAITS FOR")
        .id("JOB");
    for RunNode { node, depends_on, middleware: _, dispatch_seq: _, group: _, within: _, job } in nodes {
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
