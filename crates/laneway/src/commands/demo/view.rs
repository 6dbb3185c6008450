//! What the demo shows: a live picture on a terminal, lines elsewhere, a table at the end.

use std::time::Duration;

use laneway_core::settings::MAIN_LANE;
use laneway_wire::{Lane, Stats};

use super::tally::{LaneTally, Tally};
use crate::commands::events;
use crate::commands::stats::headline;
use crate::moment;
use crate::screen::{Paint, Screen};
use crate::table::{Cell, Table, cut};

/// Most marks of a bar.
const BAR_WIDTH: usize = 16;
/// From this many lines on, empty ones keep the parts of the picture apart.
const ROOMY_HEIGHT: usize = 24;
/// Agents leave at least this many lines to events.
const EVENTS_MIN: usize = 3;
/// Most agents in the picture.
const AGENTS_MAX: usize = 10;

/// Draws the whole picture over the last one.
pub fn draw(screen: &Screen, stats: &Stats, tally: &Tally, since: Duration, server: &str) {
    let title = format!(
        "{}  {}  {}",
        screen.paint(Paint::Bold, "laneway demo"),
        screen.paint(Paint::Dim, server),
        moment::short(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
    );
    let figures = format!("{} · {} ended · {}", headline(screen, stats), tally.ended(), rate(tally, since));
    let parts = Parts {
        head: vec![title, figures],
        lanes: lanes_table(screen, stats, tally).lines(screen),
        agents: agents_table(stats).lines(screen),
        events: tally.recent.iter().map(|event| short_event(screen, event)).collect(),
        foot: screen.paint(Paint::Dim, "Ctrl-C ends the demo"),
    };
    // Home, then each line with the rest of the old one cleared, then everything below cleared: no flicker.
    let body: String =
        parts.fit(screen.width(), screen.height()).iter().map(|line| format!("{line}\x1b[K\r\n")).collect();
    screen.write(&format!("\x1b[H{}\x1b[J", body.trim_end()));
}

/// What the picture is made of, as lines of any length.
struct Parts {
    head: Vec<String>,
    lanes: Vec<String>,
    agents: Vec<String>,
    /// Oldest first.
    events: Vec<String>,
    foot: String,
}

impl Parts {
    /// The lines that fit a terminal of this size: the head and the lanes first, then agents and the latest events in
    /// what is left, each line cut at the right. A terminal that scrolled would tear the picture.
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
        let room = height.saturating_sub(lines.len() + 3 * gap + 1);
        agents.truncate(room.saturating_sub(EVENTS_MIN));
        let room = room - agents.len();
        // A head alone says nothing.
        if agents.len() > 1 {
            lines.extend(gaps());
            lines.extend(agents);
        }
        lines.extend(gaps());
        let skipped = events.len().saturating_sub(room);
        lines.extend(events.into_iter().skip(skipped));
        lines.extend(gaps());
        lines.truncate(height.saturating_sub(1));
        lines.push(foot);
        lines.iter().map(|line| cut_painted(line, width)).collect()
    }
}

/// A line in at most `width` characters. Colours take no room, and none is left switched on.
fn cut_painted(line: &str, width: usize) -> String {
    let (mut text, mut used, mut in_code) = (String::new(), 0, false);
    for c in line.chars() {
        if c == '\x1b' || in_code {
            in_code = c != 'm';
            text.push(c);
        } else if used < width {
            used += 1;
            text.push(c);
        }
    }
    text
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
    // Lanes that are always there and of which nothing can be told would only fill the screen.
    let is_shown = |lane: &&Lane| {
        lane.name == MAIN_LANE || lane.waiting + lane.running > 0 || tally.lanes.contains_key(&lane.name)
    };
    for lane in stats.lanes.iter().filter(is_shown) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        let lines =
            |word: &str, count: usize| (0..count).map(|n| format!("{word} {n} {}", "x".repeat(90))).collect();
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
