//! `laneway capacity`: the machine's capacity and its use.

use laneway_wire::Capacity;

use crate::client::Client;
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};

/// Cells of the bar.
const BAR: u32 = 40;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Jobs with a cost hold units of the machine while they run. The number of units depends on the load of the \
machine; see [capacity] in the configuration.

Examples:
  laneway capacity
  laneway --json capacity | jq .free")]
pub struct CapacityArgs {}

/// Shows the machine's capacity.
pub async fn run(output: &Output, client: &Client, _: &CapacityArgs) -> anyhow::Result<()> {
    let capacity: Capacity = client.get(&["v1", "capacity"], &[]).await?;
    if output.json {
        return output.document(&capacity);
    }
    let Capacity { busy, quiet, fresh, total, usable, used, reserved, free, leases, next_in_line, agents } =
        &capacity;
    output.line(bar(output, &capacity));
    let reserved_note = if *reserved > 0 { format!(" ({reserved} reserved)") } else { String::new() };
    output.line(format!(
        "{used} of {usable} units held{reserved_note}, {free} free, {total} in all; {leases} leases"
    ));
    let stale = if *fresh { "" } else { "; its load is unknown" };
    output.line(format!("the machine is {} (busy {busy} of 10{stale})", output.paint(paint(quiet), quiet)));
    if let Some(job) = next_in_line {
        output.line(format!("next in line among jobs with a cost: {job}, which was bypassed too often"));
    }
    if !agents.is_empty() {
        output.line("");
        let mut table = Table::new().left("TENANT").left("AGENT").right("UNITS");
        for agent in agents {
            table.row(vec![Cell::plain(&agent.tenant), Cell::plain(&agent.agent), Cell::plain(agent.units)]);
        }
        table.print(output);
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

/// Running, reserved and free units, and those that the load (or the reserve) takes away.
fn bar(output: &Output, capacity: &Capacity) -> String {
    let total = capacity.total.max(capacity.used).max(1);
    let cells =
        |units: u32| usize::try_from(u64::from(units) * u64::from(BAR) / u64::from(total)).unwrap_or(0);
    let running = cells(capacity.used - capacity.reserved.min(capacity.used));
    let held = cells(capacity.used);
    let usable = cells(capacity.usable.max(capacity.used));
    let part = |paint: Paint, sign: &str, count: usize| output.paint(paint, &sign.repeat(count));
    format!(
        "[{}{}{}{}]",
        part(Paint::Cyan, "#", running),
        part(Paint::Yellow, "=", held - running),
        part(Paint::Green, "-", usable - held),
        part(Paint::Dim, ".", cells(total) - usable),
    )
}
