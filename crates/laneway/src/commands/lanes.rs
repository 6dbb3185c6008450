//! `laneway lanes`: lanes and their limits.

use clap::Subcommand;
use laneway_wire::{Lane, LaneList, LaneRequest};
use reqwest::Method;
use serde_json::json;

use crate::client::Client;
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Commands for lanes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway lanes list
  laneway lanes pause main
  laneway lanes set crawl --running-max 4 --running-per-agent-max 2
  laneway lanes set bulk --dispatch claim
  laneway lanes resume main
  laneway lanes delete crawl")]
pub struct LanesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// All lanes with their limits and current statistics
    List,
    /// Start no more jobs in a lane; running jobs go on
    Pause {
        /// The lane
        lane: String,
    },
    /// Start jobs in a lane again
    Resume {
        /// The lane
        lane: String,
    },
    /// Create a lane, or change its limits; other settings stay
    Set(Box<SetArgs>),
    /// Delete a lane without waiting or running jobs
    Delete {
        /// The lane
        lane: String,
    },
}

#[derive(Debug, clap::Args)]
struct SetArgs {
    /// The lane
    lane: String,
    /// Most jobs that may wait in it
    #[arg(long, value_name = "N")]
    queued_max: Option<u32>,
    /// Most jobs of one agent that may wait in it
    #[arg(long, value_name = "N")]
    queued_per_agent_max: Option<u32>,
    /// Most jobs that may run in it at once
    #[arg(long, value_name = "N")]
    running_max: Option<u32>,
    /// Most jobs of one agent that may run in it at once
    #[arg(long, value_name = "N")]
    running_per_agent_max: Option<u32>,
    /// Which job is next: of the agent with the fewest running jobs (fair), or the best job of all
    #[arg(long, value_parser = ["fair", "priority"])]
    order: Option<String>,
    /// How much waiting one level of priority is worth, or `off` (also `none`) to switch aging off
    #[arg(long, value_name = "DURATION|off", value_parser = parse_aging_step)]
    aging_step: Option<String>,
    /// How long ended jobs are kept
    #[arg(long, value_name = "DURATION", value_parser = time_args::parse_duration)]
    retention: Option<String>,
    /// Whether waiting jobs are kept or canceled when the server stops
    #[arg(long, value_parser = ["keep", "cancel"])]
    on_shutdown: Option<String>,
    /// How workers get jobs: pushed, claimed, or reserved for pull workers
    #[arg(long, value_parser = ["push", "claim", "reserve"])]
    dispatch: Option<String>,
}

/// Parses a duration, or `off` or `none`, which the configuration calls `none`.
fn parse_aging_step(text: &str) -> Result<String, String> {
    match text {
        "off" | "none" => Ok("none".to_owned()),
        _ => time_args::parse_duration(text)
            .map_err(|_| "is not a duration; use one such as 30s or 5m, or off (or none)".to_owned()),
    }
}

/// Runs a command for lanes.
pub async fn run(output: &Output, client: &Client, args: &LanesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List => {
            let list: LaneList = client.get(&["v1", "lanes"], &[]).await?;
            if output.json {
                return output.document(&list);
            }
            table(&list.lanes).print(output);
            Ok(())
        }
        Verb::Pause { lane } => show(output, &client.post(&["v1", "lanes", lane, "pause"]).await?),
        Verb::Resume { lane } => show(output, &client.post(&["v1", "lanes", lane, "resume"]).await?),
        Verb::Set(set) => {
            let lane: Lane = client.send(Method::PUT, &["v1", "lanes", &set.lane], &set.request()).await?;
            show(output, &lane)
        }
        Verb::Delete { lane } => {
            client.delete(&["v1", "lanes", lane]).await?;
            if output.json {
                return output.document(&json!({"name": lane, "deleted": true}));
            }
            output.line(format!("lane {lane} is deleted"));
            Ok(())
        }
    }
}

impl SetArgs {
    fn request(&self) -> LaneRequest {
        let SetArgs {
            lane: _,
            queued_max,
            queued_per_agent_max,
            running_max,
            running_per_agent_max,
            order,
            aging_step,
            retention,
            on_shutdown,
            dispatch,
        } = self;
        LaneRequest {
            queued_max: *queued_max,
            queued_per_agent_max: *queued_per_agent_max,
            running_max: *running_max,
            running_per_agent_max: *running_per_agent_max,
            order: order.clone(),
            aging_step: aging_step.clone(),
            retention: retention.clone(),
            on_shutdown: on_shutdown.clone(),
            dispatch: dispatch.clone(),
            ..LaneRequest::default()
        }
    }
}

fn show(output: &Output, lane: &Lane) -> anyhow::Result<()> {
    if output.json {
        return output.document(lane);
    }
    table(std::slice::from_ref(lane)).print(output);
    Ok(())
}

/// Lanes with their limits and current statistics. How jobs reach workers is shown where it differs from the default.
pub fn table(lanes: &[Lane]) -> Table {
    let shows_dispatch = lanes.iter().any(|lane| lane.dispatch != "push");
    let mut table = Table::new()
        .left("LANE")
        .left("STATE")
        .right("WAITING")
        .right("RUNNING")
        .right("LIMIT")
        .right("PER AGENT")
        .left("ORDER")
        .spare(1);
    if shows_dispatch {
        table = table.left("DISPATCH");
    }
    table = table.left("OLDEST").spare(2);
    for lane in lanes {
        let (state, paint) = if lane.paused { ("paused", Paint::Yellow) } else { ("open", Paint::Green) };
        let mut row = vec![
            Cell::plain(&lane.name),
            Cell::painted(state, paint),
            Cell::plain(lane.waiting),
            Cell::plain(lane.running),
            Cell::plain(lane.running_max),
            Cell::plain(lane.running_per_agent_max),
            Cell::plain(&lane.order),
        ];
        if shows_dispatch {
            row.push(Cell::plain(&lane.dispatch));
        }
        row.push(Cell::maybe(lane.oldest.as_ref().map(|oldest| time_args::distance(&oldest.created_at))));
        table.row(row);
    }
    table
}
