//! `laneway stats`: figures of now.

use laneway_wire::Stats;

use crate::client::Client;
use crate::commands::lanes;
use crate::moment;
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table};

/// What to show.
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

/// Shows figures of now.
pub async fn run(screen: &Screen, client: &Client, args: &StatsArgs) -> anyhow::Result<()> {
    let stats: Stats = client.get(&["v1", "stats"], &[]).await?;
    if screen.json {
        return screen.document(&stats);
    }
    print(screen, &stats, args.agents);
    Ok(())
}

/// Writes figures for people.
pub fn print(screen: &Screen, stats: &Stats, agents_max: usize) {
    screen.line(headline(screen, stats));
    screen.line("");
    lanes::table(&stats.lanes).print(screen);
    screen.line("");
    counts_table(stats).print(screen);
    if stats.agents.is_empty() {
        return;
    }
    screen.line("");
    agents_table(stats, agents_max).print(screen);
    if stats.agents.len() > agents_max {
        let more = stats.agents.len() - agents_max;
        screen.line(screen.paint(Paint::Dim, &format!("… and {more} more agents (--agents N shows more)")));
    }
}

/// The most important figures on one line.
pub fn headline(screen: &Screen, stats: &Stats) -> String {
    let figures = [
        (stats.scheduled, "scheduled", Paint::Yellow),
        (stats.queued, "queued", Paint::Blue),
        (stats.running + stats.assigned, "running", Paint::Cyan),
        (stats.lingering, "stopping", Paint::Dim),
    ];
    let mut parts: Vec<String> = figures
        .into_iter()
        .filter(|(count, word, _)| *count > 0 || *word != "stopping")
        .map(|(count, word, paint)| format!("{} {word}", screen.paint(paint, &count.to_string())))
        .collect();
    parts.push(format!("at most {} at once", stats.running_max));
    if stats.draining {
        parts.push(screen.paint(Paint::Yellow, "stopping: nothing new is admitted"));
    }
    if stats.storage_low {
        parts.push(screen.paint(Paint::Red, "storage is low: nothing new is admitted"));
    }
    parts.join(" · ")
}

/// What happened in the lanes since the server started.
fn counts_table(stats: &Stats) -> Table {
    let mut table = Table::new()
        .left("SINCE START")
        .right("SUBMITTED")
        .right("SUCCEEDED")
        .right("FAILED")
        .right("EXPIRED")
        .right("CANCELED")
        .right("REJECTED")
        .right("AVG WAIT")
        .right("AVG RUN");
    for lane in &stats.lanes {
        let counts = &lane.counts;
        let average = |total: u64, count: u64| total.checked_div(count).map(moment::short);
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
        .right("REJECTED");
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
