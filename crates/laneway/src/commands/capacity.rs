//! `laneway capacity`: how much the machine can take, and who holds it.

use laneway_wire::Capacity;

use crate::client::Client;
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table};

/// Cells of the bar.
const BAR: u32 = 40;

/// What to show.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Jobs with a cost hold units of the machine while they run. How many there are depends on how busy the machine is; \
[capacity] of the configuration says the rest.

Examples:
  laneway capacity
  laneway --json capacity | jq .free")]
pub struct CapacityArgs {}

/// Shows how much the machine can take.
pub async fn run(screen: &Screen, client: &Client, _: &CapacityArgs) -> anyhow::Result<()> {
    let capacity: Capacity = client.get(&["v1", "capacity"], &[]).await?;
    if screen.json {
        return screen.document(&capacity);
    }
    let Capacity { busy, quiet, fresh, total, usable, used, reserved, free, leases, due, agents } = &capacity;
    screen.line(bar(screen, &capacity));
    let set_aside = if *reserved > 0 { format!(" ({reserved} set aside)") } else { String::new() };
    screen.line(format!(
        "{used} of {usable} units held{set_aside}, {free} free, {total} in all; {leases} leases"
    ));
    let stale = if *fresh { "" } else { "; its load is not known" };
    screen.line(format!("the machine is {} (busy {busy} of 10{stale})", screen.paint(paint(quiet), quiet)));
    if let Some(due) = due {
        screen.line(format!("next among jobs with a cost: {due}, which was overtaken too often"));
    }
    if !agents.is_empty() {
        screen.line("");
        let mut table = Table::new().left("TENANT").left("AGENT").right("UNITS");
        for agent in agents {
            table.row(vec![Cell::plain(&agent.tenant), Cell::plain(&agent.agent), Cell::plain(agent.units)]);
        }
        table.print(screen);
    }
    Ok(())
}

fn paint(quiet: &str) -> Paint {
    match quiet {
        "quiet" => Paint::Green,
        "normal" => Paint::Cyan,
        "busy" => Paint::Yellow,
        _ => Paint::Red,
    }
}

/// What runs, what is set aside, what is free, and what the load (or the reserve) takes away.
fn bar(screen: &Screen, capacity: &Capacity) -> String {
    let total = capacity.total.max(capacity.used).max(1);
    let cells =
        |units: u32| usize::try_from(u64::from(units) * u64::from(BAR) / u64::from(total)).unwrap_or(0);
    let running = cells(capacity.used - capacity.reserved.min(capacity.used));
    let held = cells(capacity.used);
    let usable = cells(capacity.usable.max(capacity.used));
    let part = |paint: Paint, sign: &str, count: usize| screen.paint(paint, &sign.repeat(count));
    format!(
        "[{}{}{}{}]",
        part(Paint::Cyan, "#", running),
        part(Paint::Yellow, "=", held - running),
        part(Paint::Green, "-", usable - held),
        part(Paint::Dim, ".", cells(total) - usable),
    )
}
