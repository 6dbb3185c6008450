//! What the demo shows: a live picture on a terminal, lines elsewhere, a table at the end.

use std::time::Duration;

use laneway_wire::{Lane, Stats};

use super::tally::{LaneTally, Tally};
use crate::commands::events;
use crate::commands::stats::headline;
use crate::moment;
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table, cut};

/// Lines above and below the events: headings, tables, the foot.
const BAR_WIDTH: usize = 16;

/// Draws the whole picture over the last one.
pub fn draw(screen: &Screen, stats: &Stats, tally: &Tally, since: Duration, server: &str) {
    let mut lines = vec![
        format!(
            "{}  {}  {}",
            screen.paint(Paint::Bold, "laneway demo"),
            screen.paint(Paint::Dim, server),
            moment::short(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        ),
        String::new(),
        format!("{} · {} ended · {}", headline(screen, stats), tally.ended(), rate(tally, since)),
        String::new(),
    ];
    lines.extend(lanes_table(screen, stats, tally).lines(screen));
    lines.push(String::new());
    lines.extend(agents_table(stats).lines(screen));
    lines.push(String::new());
    let foot = screen.paint(Paint::Dim, "Ctrl-C ends the demo");
    let room = screen.height().saturating_sub(lines.len() + 3);
    let skipped = tally.recent.len().saturating_sub(room);
    lines.extend(tally.recent.iter().skip(skipped).map(|event| short_event(screen, event)));
    lines.push(String::new());
    lines.push(foot);
    // Home, then each line with the rest of the old one cleared, then everything below cleared: no flicker.
    let body: String = lines.iter().map(|line| format!("{line}\x1b[K\r\n")).collect();
    screen.write(&format!("\x1b[H{}\x1b[J", body.trim_end()));
}

/// One line for a log file or a pipe.
pub fn tell(screen: &Screen, stats: &Stats, tally: &Tally, since: Duration) -> anyhow::Result<()> {
    if screen.json {
        return screen.json_line(stats);
    }
    screen.line(format!("{:>4}s  {} · {} ended", since.as_secs(), headline(screen, stats), tally.ended()));
    Ok(())
}

/// What happened in all, by lane.
pub fn summary(tally: &Tally) -> Table {
    let mut table = Table::new()
        .left("LANE")
        .right("SUBMITTED")
        .right("SUCCEEDED")
        .right("FAILED")
        .right("CANCELED")
        .right("RETRIED")
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
            Cell::maybe(waits.map(|(half, _)| moment::short(half))),
            Cell::maybe(waits.map(|(_, most)| moment::short(most))),
        ]);
    }
    table
}

fn lanes_table(screen: &Screen, stats: &Stats, tally: &Tally) -> Table {
    let mut table = Table::new()
        .left("LANE")
        .left("STATE")
        .left("RUNNING")
        .right("WAITING")
        .right("DONE")
        .right("FAILED")
        .right("RETRIED")
        .right("WAIT P50");
    let nothing = LaneTally::default();
    for lane in &stats.lanes {
        let counts = tally.lanes.get(&lane.name).unwrap_or(&nothing);
        let (state, paint) = if lane.paused { ("paused", Paint::Yellow) } else { ("open", Paint::Green) };
        table.row(vec![
            Cell::plain(&lane.name),
            Cell::painted(state, paint),
            Cell::painted(bar(screen, lane), Paint::Cyan),
            Cell::plain(lane.waiting),
            Cell::plain(counts.succeeded),
            Cell::plain(counts.failed),
            Cell::plain(counts.retried),
            Cell::maybe(counts.wait_quantiles_ms().map(|(half, _)| moment::short(half))),
        ]);
    }
    table
}

/// How full a lane is: `▇▇▇▇···· 4/8`. One mark a job where they fit.
fn bar(screen: &Screen, lane: &Lane) -> String {
    let limit = usize::try_from(lane.running_max).unwrap_or(usize::MAX);
    let running = usize::try_from(lane.running).unwrap_or(usize::MAX);
    let width = limit.min(BAR_WIDTH);
    let full = if limit <= BAR_WIDTH { running } else { (running * width).div_ceil(limit) }.min(width);
    let (mark, rest) = if screen.tty { ('▇', '·') } else { ('#', '.') };
    let marks: String =
        std::iter::repeat_n(mark, full).chain(std::iter::repeat_n(rest, width - full)).collect();
    format!("{marks} {running}/{limit}")
}

fn agents_table(stats: &Stats) -> Table {
    let mut table = Table::new().left("AGENT").left("LANE").right("RUNNING").right("WAITING");
    let mut agents: Vec<_> = stats.agents.iter().filter(|agent| agent.lane.starts_with("demo-")).collect();
    agents.sort_by(|a, b| (&a.lane, &a.agent).cmp(&(&b.lane, &b.agent)));
    for agent in agents.into_iter().take(10) {
        table.row(vec![
            Cell::plain(&agent.agent),
            Cell::plain(&agent.lane),
            Cell::plain(agent.running),
            Cell::plain(agent.waiting),
        ]);
    }
    table
}

fn rate(tally: &Tally, since: Duration) -> String {
    let seconds = since.as_secs_f64();
    if seconds < 1.0 {
        return String::new();
    }
    format!("{:.1} a second", tally.ended() as f64 / seconds)
}

/// An event in one short line that fits the terminal.
fn short_event(screen: &Screen, event: &laneway_wire::Event) -> String {
    let head = format!("{}  {}", moment::clock(&event.at), events::kind(screen, &event.kind));
    let Some(job) = &event.job else {
        let room = screen.width().saturating_sub(36);
        return format!("{head}  {}", cut(event.detail.as_deref().unwrap_or_default(), room));
    };
    let tail = job.id.get(28..).unwrap_or(&job.id);
    let reason = job.reason.as_deref().unwrap_or_default();
    format!(
        "{head}  …{tail}  {:<5}  {:<13}  {:<8}  try {}  {reason}",
        job.kind, job.lane, job.agent, job.attempt
    )
    .trim_end()
    .to_owned()
}
