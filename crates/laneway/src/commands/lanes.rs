//! `laneway lanes`: named pools and their limits.

use clap::Subcommand;
use laneway_wire::{Lane, LaneList, LaneRequest};
use reqwest::Method;

use crate::client::Client;
use crate::moment;
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table};

/// What to do with lanes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway lanes list
  laneway lanes pause main
  laneway lanes set browsers --running-max 4 --running-per-agent-max 2
  laneway lanes resume main")]
pub struct LanesArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Every lane with its limits and its figures of now
    List,
    /// Start nothing more in a lane; what runs goes on
    Pause {
        /// The lane
        lane: String,
    },
    /// Start jobs in a lane again
    Resume {
        /// The lane
        lane: String,
    },
    /// Make a lane, or change its limits; what is not given stays as it is
    Set(Box<SetArgs>),
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
    /// Whose turn it is: the agent with the fewest running jobs, or the best job
    #[arg(long, value_parser = ["fair", "priority"])]
    order: Option<String>,
    /// How much waiting one level of priority is worth, or `off` (also `none`): waiting is worth nothing
    #[arg(long, value_name = "DURATION|off", value_parser = parse_aging_step)]
    aging_step: Option<String>,
    /// How long ended jobs are kept
    #[arg(long, value_name = "DURATION", value_parser = moment::parse_duration)]
    retention: Option<String>,
    /// What becomes of waiting jobs when the server stops
    #[arg(long, value_parser = ["keep", "cancel"])]
    on_shutdown: Option<String>,
}

/// Reads a duration, or `off` or `none`, which the configuration calls `none`.
fn parse_aging_step(text: &str) -> Result<String, String> {
    match text {
        "off" | "none" => Ok("none".to_owned()),
        _ => moment::parse_duration(text)
            .map_err(|_| "is no duration; write one such as 30s or 5m, or off (or none)".to_owned()),
    }
}

/// Does what was asked with lanes.
pub async fn run(screen: &Screen, client: &Client, args: &LanesArgs) -> anyhow::Result<()> {
    match &args.verb {
        Verb::List => {
            let list: LaneList = client.get(&["v1", "lanes"], &[]).await?;
            if screen.json {
                return screen.document(&list);
            }
            table(&list.lanes).print(screen);
            Ok(())
        }
        Verb::Pause { lane } => show(screen, &client.post(&["v1", "lanes", lane, "pause"]).await?),
        Verb::Resume { lane } => show(screen, &client.post(&["v1", "lanes", lane, "resume"]).await?),
        Verb::Set(set) => {
            let lane: Lane = client.send(Method::PUT, &["v1", "lanes", &set.lane], &set.request()).await?;
            show(screen, &lane)
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
        } = self;
        LaneRequest {
            paused: None,
            queued_max: *queued_max,
            queued_per_agent_max: *queued_per_agent_max,
            running_max: *running_max,
            running_per_agent_max: *running_per_agent_max,
            order: order.clone(),
            aging_step: aging_step.clone(),
            retention: retention.clone(),
            on_shutdown: on_shutdown.clone(),
        }
    }
}

fn show(screen: &Screen, lane: &Lane) -> anyhow::Result<()> {
    if screen.json {
        return screen.document(lane);
    }
    table(std::slice::from_ref(lane)).print(screen);
    Ok(())
}

/// Lanes with their limits and figures of now.
pub fn table(lanes: &[Lane]) -> Table {
    let mut table = Table::new()
        .left("LANE")
        .left("STATE")
        .right("WAITING")
        .right("RUNNING")
        .right("LIMIT")
        .right("PER AGENT")
        .left("ORDER")
        .left("OLDEST");
    for lane in lanes {
        let (state, paint) = if lane.paused { ("paused", Paint::Yellow) } else { ("open", Paint::Green) };
        table.row(vec![
            Cell::plain(&lane.name),
            Cell::painted(state, paint),
            Cell::plain(lane.waiting),
            Cell::plain(lane.running),
            Cell::plain(lane.running_max),
            Cell::plain(lane.running_per_agent_max),
            Cell::plain(&lane.order),
            Cell::maybe(lane.oldest.as_ref().map(|oldest| moment::distance(&oldest.created_at))),
        ]);
    }
    table
}
