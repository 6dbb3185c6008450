//! `laneway deliveries`: webhook deliveries.

use clap::Subcommand;
use laneway_wire::{Delivery, DeliveryList, Job};

use crate::client::Client;
use crate::commands::jobs;
use crate::exit::{Exit, code_of};
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for webhook deliveries.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A delivery is named by its job's id, or by the beginning or the end of it.

Examples:
  laneway deliveries list --state failed
  laneway deliveries show 8a7e4f10
  laneway deliveries replay 8a7e4f10")]
pub struct DeliveriesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Deliveries, newest job first
    List(ListArgs),
    /// One delivery with its tries
    Show {
        /// The job
        job: String,
    },
    /// Send deliveries again
    Replay {
        /// The jobs
        #[arg(required = true)]
        jobs: Vec<String>,
    },
}

/// Options of the list.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only in this state: waiting, delivered, failed or dropped
    #[arg(long)]
    state: Option<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
}

/// Runs a command for deliveries.
pub async fn run(output: &Output, client: &Client, args: &DeliveriesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List(args) => list(output, client, args).await,
        Verb::Show { job } => {
            let id = jobs::find(client, job).await?;
            let delivery: Delivery = client.get(&["v1", "deliveries", &id], &[]).await?;
            if output.json {
                return output.document(&delivery);
            }
            print(output, &delivery);
            Ok(())
        }
        Verb::Replay { jobs } => replay(output, client, jobs).await,
    }
}

async fn list(output: &Output, client: &Client, args: &ListArgs) -> anyhow::Result<()> {
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.state.clone().map(|state| ("state", state)));
    query.extend(args.cursor.clone().map(|cursor| ("cursor", cursor)));
    let list: DeliveryList = client.get(&["v1", "deliveries"], &query).await?;
    if output.json {
        return output.document(&list);
    }
    if list.deliveries.is_empty() {
        output.line(output.paint(Paint::Dim, "no deliveries"));
        return Ok(());
    }
    table(&list.deliveries).print(output);
    if let Some(next) = &list.next {
        output.line(output.paint(Paint::Dim, &format!("there are more: --cursor {next}")));
    }
    Ok(())
}

/// Sends each delivery again, and stops at the first error.
async fn replay(output: &Output, client: &Client, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        let id = jobs::find(client, name).await?;
        let delivery: Delivery = client.post(&["v1", "deliveries", &id, "replay"]).await?;
        if output.json {
            output.json_line(&delivery)?;
        } else {
            output.line(format!("{}  {} after {} tries", delivery.job_id, delivery.state, delivery.tries));
        }
    }
    Ok(())
}

/// The delivery of a job, if it has one.
pub async fn of_job(client: &Client, job: &Job<'_>) -> anyhow::Result<Option<Delivery>> {
    if job.callback.is_none() || job.finished_at.is_none() {
        return Ok(None);
    }
    match client.get(&["v1", "deliveries", &job.id], &[]).await {
        Ok(delivery) => Ok(Some(delivery)),
        Err(error) if code_of(&error) == Exit::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Prints a delivery and its tries.
pub fn print(output: &Output, delivery: &Delivery) {
    let state = output.paint(paint(&delivery.state), &delivery.state);
    let mut line = format!("delivery {state} after {} tries", delivery.tries);
    if let Some(next) = &delivery.next_at {
        line.push_str(&format!(", next {}", time_args::distance(next)));
    }
    output.line(line);
    if delivery.history.is_empty() {
        return;
    }
    let mut table = Table::new().right("TRY").left("AT").right("TOOK").right("STATUS").flexible("ERROR");
    for tried in &delivery.history {
        table.row(vec![
            Cell::plain(tried.number),
            Cell::plain(time_args::clock(&tried.at)),
            Cell::plain(time_args::short(tried.took_ms)),
            Cell::maybe(tried.status),
            Cell::maybe(tried.error.as_deref().map(printable)),
        ]);
    }
    table.print(output);
}

fn table(deliveries: &[Delivery]) -> Table {
    let mut table = Table::new()
        .id("JOB")
        .left("STATE")
        .right("TRIES")
        .left("ENDED")
        .spare(1)
        .left("NEXT")
        .right("STATUS")
        .flexible("ERROR");
    for delivery in deliveries {
        table.row(vec![
            Cell::plain(&delivery.job_id),
            Cell::painted(&delivery.state, paint(&delivery.state)),
            Cell::plain(delivery.tries),
            Cell::plain(time_args::distance(&delivery.created_at)),
            Cell::maybe(delivery.next_at.as_deref().map(time_args::distance)),
            Cell::maybe(delivery.last_status),
            Cell::maybe(delivery.last_error.as_deref().map(printable)),
        ]);
    }
    table
}

fn paint(state: &str) -> Paint {
    match state {
        "delivered" => Paint::Green,
        "waiting" => Paint::Yellow,
        _ => Paint::Red,
    }
}

/// A text from a receiver, without characters that control the terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}
