//! The display of the demo where there is no terminal: lines, and a table at the end.

use std::time::Duration;

use laneway_wire::Stats;

use super::tally::Tally;
use crate::commands::stats::headline;
use crate::output::{Output, Paint};
use crate::table::{Cell, Table};
use crate::time_args;

/// One line for a log file or a pipe.
pub fn print_text(output: &Output, stats: &Stats, tally: &Tally, since: Duration) -> std::io::Result<()> {
    let text = match output.json {
        true => serde_json::to_string(stats)?,
        false => format!("{:>4}s  {} · {} ended", since.as_secs(), headline(output, stats), tally.ended()),
    };
    output.try_line(&text)
}

/// The totals by lane.
pub fn summary(tally: &Tally) -> Table {
    let mut table = Table::new()
        .left("LANE")
        .right("SUBMITTED")
        .right("SUCCEEDED")
        .right("FAILED")
        .right("CANCELED")
        .spare(1)
        .right("RETRIED")
        .spare(2)
        .right("WAIT P50")
        .right("WAIT P95");
    for (name, lane) in &tally.lanes {
        let waits = lane.wait_quantiles_ms();
        table.row(vec![
            Cell::plain(name),
            Cell::plain(lane.submitted),
            Cell::painted(lane.succeeded.to_string(), Paint::Green),
            Cell::painted(lane.failed.to_string(), if lane.failed > 0 { Paint::Red } else { Paint::Plain }),
            Cell::plain(lane.canceled),
            Cell::plain(lane.retried),
            Cell::maybe(waits.map(|(half, _)| time_args::short(half))),
            Cell::maybe(waits.map(|(_, most)| time_args::short(most))),
        ]);
    }
    table
}
