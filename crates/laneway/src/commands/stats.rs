//! `laneway stats`: figures of now.

use laneway_wire::Stats;

use crate::client::Client;
use crate::commands::lanes;
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

fn agents_table(stats: &Stats, most: usize) -> Table {
    let mut agents: Vec<_> = stats.agents.iter().collect();
    agents.sort_by_key(|agent| std::cmp::Reverse((agent.running, agent.waiting)));
    let many_tenants = agents.iter().any(|agent| agent.tenant != agents[0].tenant);
    let mut table = Table::new().left("AGENT").left("LANE").right("WAITING").right("RUNNING");
    for agent in agents.into_iter().take(most) {
        let name =
            if many_tenants { format!("{}/{}", agent.tenant, agent.agent) } else { agent.agent.clone() };
        table.row(vec![
            Cell::plain(name),
            Cell::plain(&agent.lane),
            Cell::plain(agent.waiting),
            Cell::plain(agent.running),
        ]);
    }
    table
}
