//! The display of the demo: a live view on a terminal, lines elsewhere, a table at the end.

use std::time::Duration;

use laneway_core::settings::MAIN_LANE;
use laneway_wire::{Lane, Stats};
use unicode_width::UnicodeWidthChar;

use super::tally::{LaneTally, Tally};
use crate::commands::events;
use crate::commands::stats::headline;
use crate::output::{Output, Paint};
use crate::short_id::short_id;
use crate::table::{Cell, Table, cut};
use crate::time_args;

/// The width of a bar.
const BAR_WIDTH: usize = 16;
/// From this many lines on, empty lines separate the parts.
const ROOMY_HEIGHT: usize = 24;
/// At least this many lines are left for events.
const EVENTS_MIN: usize = 3;
/// Most agents in the view.
const AGENTS_MAX: usize = 10;

/// Draws the whole view over the last one.
pub fn draw(
    output: &Output,
    stats: &Stats,
    tally: &Tally,
    since: Duration,
    server: &str,
) -> std::io::Result<()> {
    let title = format!(
        "{}  {}  {}",
        output.paint(Paint::Bold, "laneway demo"),
        output.paint(Paint::Dim, server),
        time_args::short(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
    );
    let headline_text =
        format!("{} · {} ended · {}", headline(output, stats), tally.ended(), rate(tally, since));
    let parts = Parts {
        head: vec![title, headline_text],
        lanes: lanes_table(output, stats, tally).lines(output),
        agents: agents_table(stats).lines(output),
        events: tally.recent.iter().map(|event| short_event(output, event)).collect(),
        foot: output.paint(Paint::Dim, "Ctrl-C ends the demo"),
    };
    // Home, then each line with the rest of the old one cleared, then everything below cleared: no flicker.
    let body: String =
        parts.fit(output.width(), output.height()).iter().map(|line| format!("{line}\x1b[K\r\n")).collect();
    output.try_write(&format!("\x1b[H{}\x1b[J", body.trim_end()))
}

/// The parts of the view, as lines of any length.
struct Parts {
    head: Vec<String>,
    lanes: Vec<String>,
    agents: Vec<String>,
    /// Oldest first.
    events: Vec<String>,
    foot: String,
}

impl Parts {
    /// The lines that fit a terminal of this size: the head and the lanes first, then agents and the latest
    /// events in the remaining lines, each line cut at the right. Scrolling would break the view.
    fn fit(self, width: usize, height: usize) -> Vec<String> {
        let Parts { head, lanes, mut agents, events, foot } = self;
        let gap = usize::from(height >= ROOMY_HEIGHT);
        let gaps = || std::iter::repeat_n(String::new(), gap);
        let mut lines = Vec::new();
        for line in head {
            lines.push(line);
            lines.extend(gaps());
        }
        lines.extend(lanes);
        let height_left = height.saturating_sub(lines.len() + 3 * gap + 1);
        agents.truncate(height_left.saturating_sub(EVENTS_MIN));
        let height_left = height_left - agents.len();
        // A head without rows is left out.
        if agents.len() > 1 {
            lines.extend(gaps());
            lines.extend(agents);
        }
        lines.extend(gaps());
        let skipped = events.len().saturating_sub(height_left);
        lines.extend(events.into_iter().skip(skipped));
        lines.extend(gaps());
        lines.truncate(height.saturating_sub(1));
        lines.push(foot);
        lines.iter().map(|line| cut_painted(line, width)).collect()
    }
}

/// A line in at most `width` characters. Colour codes take no width, and are always reset.
fn cut_painted(line: &str, width: usize) -> String {
    let (mut text, mut used, mut in_code) = (String::new(), 0, false);
    for c in line.chars() {
        if c == '\x1b' || in_code {
            in_code = c != 'm';
            text.push(c);
        } else if used + c.width().unwrap_or(0) <= width {
            used += c.width().unwrap_or(0);
            text.push(c);
        }
    }
    text
}

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

fn lanes_table(output: &Output, stats: &Stats, tally: &Tally) -> Table {
    let mut table = Table::new()
        .left("LANE")
        .left("STATE")
        .left("RUNNING")
        .right("WAITING")
        .right("DONE")
        .right("FAILED")
        .right("RETRIED")
        .spare(1)
        .right("WAIT P50");
    let nothing = LaneTally::default();
    // Built-in lanes without activity would only fill the screen.
    let is_shown = |lane: &&Lane| {
        lane.name == MAIN_LANE || lane.waiting + lane.running > 0 || tally.lanes.contains_key(&lane.name)
    };
    for lane in stats.lanes.iter().filter(is_shown) {
        let counts = tally.lanes.get(&lane.name).unwrap_or(&nothing);
        let (state, paint) = if lane.paused { ("paused", Paint::Yellow) } else { ("open", Paint::Green) };
        table.row(vec![
            Cell::plain(&lane.name),
            Cell::painted(state, paint),
            Cell::painted(bar(output, lane), Paint::Cyan),
            Cell::plain(lane.waiting),
            Cell::plain(counts.succeeded),
            Cell::plain(counts.failed),
            Cell::plain(counts.retried),
            Cell::maybe(counts.wait_quantiles_ms().map(|(half, _)| time_args::short(half))),
        ]);
    }
    table
}

/// How full a lane is: `▇▇▇▇···· 4/8`. One mark per job where they fit.
fn bar(output: &Output, lane: &Lane) -> String {
    let limit = usize::try_from(lane.running_max).unwrap_or(usize::MAX);
    let running = usize::try_from(lane.running).unwrap_or(usize::MAX);
    let width = limit.min(BAR_WIDTH);
    let full = if limit <= BAR_WIDTH { running } else { (running * width).div_ceil(limit) }.min(width);
    let (mark, rest) = if output.tty { ('▇', '·') } else { ('#', '.') };
    let marks: String =
        std::iter::repeat_n(mark, full).chain(std::iter::repeat_n(rest, width - full)).collect();
    format!("{marks} {running}/{limit}")
}

fn agents_table(stats: &Stats) -> Table {
    let mut table = Table::new().left("AGENT").left("LANE").right("RUNNING").right("WAITING");
    let is_shown = |lane: &str| lane.starts_with("demo-") || lane == laneway_browser::kinds::LANE;
    let mut agents: Vec<_> = stats.agents.iter().filter(|agent| is_shown(&agent.lane)).collect();
    agents.sort_by(|a, b| (&a.lane, &a.agent).cmp(&(&b.lane, &b.agent)));
    for agent in agents.into_iter().take(AGENTS_MAX) {
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
    format!("{:.1}/s", tally.ended() as f64 / seconds)
}

/// An event as one line that fits the terminal.
fn short_event(output: &Output, event: &laneway_wire::Event) -> String {
    let head = format!("{}  {}", time_args::clock(&event.at), events::kind(output, &event.kind));
    let Some(job) = &event.job else {
        let height_left = output.width().saturating_sub(36);
        return format!("{head}  {}", cut(event.detail.as_deref().unwrap_or_default(), height_left));
    };
    let tail = short_id(&job.id);
    let reason = job.reason.as_deref().unwrap_or_default();
    format!(
        "{head}  …{tail}  {:<5}  {:<13}  {:<8}  try {}  {reason}",
        job.kind, job.lane, job.agent, job.attempt
    )
    .trim_end()
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        let lines =
            |name: &str, count: usize| (0..count).map(|n| format!("{name} {n} {}", "x".repeat(90))).collect();
        Parts {
            head: lines("head", 2),
            lanes: lines("lane", 5),
            agents: lines("agent", 8),
            events: lines("event", 64),
            foot: "foot".into(),
        }
    }

    #[test]
    fn the_picture_fits_its_terminal() {
        for (width, height) in [(60, 14), (40, 10), (80, 23), (80, 24), (200, 60)] {
            let lines = parts().fit(width, height);
            assert!(lines.len() <= height, "{} lines in {width}x{height}", lines.len());
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}x{height}: {lines:?}");
            assert_eq!(lines.last().unwrap(), "foot");
            assert!(lines.iter().any(|line| line.starts_with("event 63")), "{width}x{height}: {lines:?}");
        }
        let small = parts().fit(60, 14);
        assert!(small.iter().any(|line| line.starts_with("agent 1")), "{small:?}");
    }

    #[test]
    fn a_cut_keeps_colours_whole() {
        assert_eq!(cut_painted("\x1b[31mabcdef\x1b[0mgh", 3), "\x1b[31mabc\x1b[0m");
        assert_eq!(cut_painted("abc", 3), "abc");
    }
}
