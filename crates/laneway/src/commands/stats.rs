//! `laneway stats`: current statistics.

use laneway_wire::Stats;

use crate::client::Client;
use crate::commands::lanes;
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway stats
  laneway stats --agents 50
  laneway --json stats | jq .running")]
pub struct StatsArgs {
    /// How many agents to list, busiest first
    #[arg(long, default_value_t = 20, value_name = "N")]
    agents: usize,
}

/// Shows current statistics.
pub async fn run(output: &Output, client: &Client, args: &StatsArgs) -> anyhow::Result<()> {
    let stats: Stats = client.get(&["v1", "stats"], &[]).await?;
    if output.json {
        return output.document(&stats);
    }
    print(output, &stats, args.agents);
    Ok(())
}

/// Prints statistics.
pub fn print(output: &Output, stats: &Stats, agents_max: usize) {
    output.line(headline(output, stats));
    output.line("");
    lanes::table(&stats.lanes).print(output);
    output.line("");
    counts_table(stats).print(output);
    if stats.agents.is_empty() {
        return;
    }
    output.line("");
    agents_table(stats, agents_max).print(output);
    if stats.agents.len() > agents_max {
        let more = stats.agents.len() - agents_max;
        output.line(output.paint(Paint::Dim, &format!("… and {more} more agents (--agents N shows more)")));
    }
}

/// The most important numbers on one line.
pub fn headline(output: &Output, stats: &Stats) -> String {
    let counts = [
        (stats.scheduled, "scheduled", Paint::Yellow),
        (stats.queued, "queued", Paint::Blue),
        (stats.running + stats.assigned, "running", Paint::Cyan),
        (stats.still_running, "stopping", Paint::Dim),
    ];
    let mut parts: Vec<String> = counts
        .into_iter()
        .filter(|(count, name, _)| *count > 0 || *name != "stopping")
        .map(|(count, name, paint)| format!("{} {name}", output.paint(paint, &count.to_string())))
        .collect();
    parts.push(format!("at most {} at once", stats.running_max));
    if stats.draining {
        parts.push(output.paint(Paint::Yellow, "stopping: new jobs are rejected"));
    }
    if stats.storage_low {
        parts.push(output.paint(Paint::Red, "storage is low: new jobs are rejected"));
    }
    parts.join(" · ")
}

/// Counters of the lanes since the server started.
fn counts_table(stats: &Stats) -> Table {
    let mut table = Table::new()
        .left("SINCE START")
        .right("SUBMITTED")
        .right("SUCCEEDED")
        .right("FAILED")
        .right("EXPIRED")
        .spare(1)
        .right("CANCELED")
        .spare(3)
        .right("REJECTED")
        .spare(2)
        .right("AVG WAIT")
        .right("AVG RUN");
    for lane in &stats.lanes {
        let counts = &lane.counts;
        let average = |total: u64, count: u64| total.checked_div(count).map(time_args::short);
        table.row(vec![
            Cell::plain(&lane.name),
            Cell::plain(counts.submitted),
            Cell::plain(counts.succeeded),
            Cell::plain(counts.failed),
            Cell::plain(counts.expired),
            Cell::plain(counts.canceled),
            Cell::plain(counts.rejected),
            Cell::maybe(average(counts.queue_wait_ms, counts.dispatched)),
            Cell::maybe(average(counts.run_time_ms, counts.runs)),
        ]);
    }
    table
}

fn agents_table(stats: &Stats, most: usize) -> Table {
    let mut agents: Vec<_> = stats.agents.iter().collect();
    agents.sort_by_key(|agent| std::cmp::Reverse((agent.running, agent.waiting)));
    let many_tenants = agents.iter().any(|agent| agent.tenant != agents[0].tenant);
    let mut table = Table::new()
        .left("AGENT")
        .left("LANE")
        .right("WAITING")
        .right("RUNNING")
        .right("SUBMITTED")
        .right("SUCCEEDED")
        .right("FAILED")
        .right("CANCELED")
        .spare(2)
        .right("REJECTED")
        .spare(1);
    for agent in agents.into_iter().take(most) {
        let name =
            if many_tenants { format!("{}/{}", agent.tenant, agent.agent) } else { agent.agent.clone() };
        table.row(vec![
            Cell::plain(name),
            Cell::plain(&agent.lane),
            Cell::plain(agent.waiting),
            Cell::plain(agent.running),
            Cell::plain(agent.counts.submitted),
            Cell::plain(agent.counts.succeeded),
            Cell::plain(agent.counts.failed),
            Cell::plain(agent.counts.canceled),
            Cell::plain(agent.counts.rejected),
        ]);
    }
    table
}
