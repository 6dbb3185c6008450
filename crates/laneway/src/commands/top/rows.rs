//! The lists of the view as lines of text: what the columns are, and what is in them.

use jiff::Timestamp;
use laneway_wire::{HistoryGroup, Job, Lane, LaneHistory, Stats, StatsHistory, Times, Worker};

use super::data::Snapshot;
use super::state::Tab;
use crate::output::{Paint, one_line, state_paint};
use crate::short_id::short_id;
use crate::time_args::short;

/// How many minutes a sparkline in a list has.
const SPARK_MINUTES: usize = 20;
/// The width of a bar.
const BAR_WIDTH: usize = 8;
/// The marks of a sparkline, from nothing to the most.
const MARKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A list.
pub struct Sheet {
    pub columns: Vec<Column>,
    pub lines: Vec<Line>,
    /// What stands here instead of an empty list.
    pub empty: &'static str,
}

/// A column.
pub struct Column {
    pub title: &'static str,
    pub is_number: bool,
    /// It takes the rest of the width.
    pub is_flexible: bool,
    /// Left out on a narrow terminal; the lowest number goes first.
    pub spare: Option<u8>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is about: a job's id, a lane's name, ….
    pub id: String,
    pub cells: Vec<Cell>,
}

/// A cell. Its text is safe for a terminal.
#[derive(Clone, Debug)]
pub struct Cell {
    pub text: String,
    pub paint: Paint,
    pub key: Key,
}

/// What a cell is sorted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Number(u64),
    Text(String),
}

impl Line {
    /// True when a cell, or the id, contains this text. `filter` is in lower case.
    pub fn matches(&self, filter: &str) -> bool {
        self.id.to_lowercase().contains(filter)
            || self.cells.iter().any(|cell| cell.text.to_lowercase().contains(filter))
    }
}

impl Cell {
    fn text(text: &str, paint: Paint) -> Cell {
        let text = one_line(text);
        Cell { key: Key::Text(text.to_lowercase()), text, paint }
    }

    fn number(number: u64) -> Cell {
        Cell { text: number.to_string(), paint: Paint::Plain, key: Key::Number(number) }
    }

    /// A count that is a problem unless it is 0.
    fn problems(number: u64) -> Cell {
        let paint = if number > 0 { Paint::Red } else { Paint::Dim };
        Cell { paint, ..Cell::number(number) }
    }

    fn time(millis: Option<u64>) -> Cell {
        let (text, paint) =
            millis.map_or(("–".to_owned(), Paint::Dim), |millis| (short(millis), Paint::Plain));
        Cell { text, paint, key: Key::Number(millis.unwrap_or(0)) }
    }
}

fn left(title: &'static str) -> Column {
    Column { title, is_number: false, is_flexible: false, spare: None }
}

fn right(title: &'static str) -> Column {
    Column { is_number: true, ..left(title) }
}

fn flexible(title: &'static str) -> Column {
    Column { is_flexible: true, ..left(title) }
}

fn spare(rank: u8, column: Column) -> Column {
    Column { spare: Some(rank), ..column }
}

/// The list of a tab.
pub fn sheet(tab: Tab, snapshot: &Snapshot) -> Sheet {
    let Snapshot { now, stats, history, running, waiting, failed, workers } = snapshot;
    match tab {
        Tab::Lanes => lanes(stats.as_ref(), history.as_ref(), *now),
        Tab::Agents => agents(stats.as_ref()),
        Tab::Running => self::running(running, *now),
        Tab::Waiting => self::waiting(waiting, *now),
        Tab::Failures => failures(failed, *now),
        Tab::Workers => self::workers(workers),
    }
}

fn lanes(stats: Option<&Stats>, history: Option<&StatsHistory>, now: Timestamp) -> Sheet {
    let columns = vec![
        left("LANE"),
        left("STATE"),
        left("RUNNING"),
        right("WAITING"),
        spare(3, right("OLDEST")),
        right("ENDED 1H"),
        right("FAILED"),
        spare(1, right("WAIT P95")),
        spare(2, right("RUN P95")),
        spare(4, left("ENDED, 20 MIN")),
    ];
    let line = |lane: &Lane| {
        let series = history.and_then(|history| history.lanes.iter().find(|of| of.lane == lane.name));
        let sum =
            |of: fn(&LaneHistory) -> &Vec<u64>| series.map_or(0, |series| of(series).iter().sum::<u64>());
        let (state, paint) = if lane.paused { ("paused", Paint::Yellow) } else { ("open", Paint::Green) };
        let oldest =
            lane.oldest.as_ref().filter(|_| lane.waiting > 0).and_then(|job| age(&job.created_at, now));
        let spark = series.map_or_else(String::new, |series| sparkline(last(&series.ended, SPARK_MINUTES)));
        Line {
            id: lane.name.clone(),
            cells: vec![
                Cell::text(&lane.name, Paint::Bold),
                Cell::text(state, paint),
                Cell { key: Key::Number(lane.running), ..Cell::text(&bar(lane), Paint::Cyan) },
                Cell::number(lane.waiting),
                Cell::time(oldest),
                Cell::number(sum(|series| &series.ended)),
                Cell::problems(sum(|series| &series.failed)),
                Cell::time(slowest(history, &lane.name, |group| &group.wait)),
                Cell::time(slowest(history, &lane.name, |group| &group.run)),
                Cell { key: Key::Number(sum(|series| &series.ended)), ..Cell::text(&spark, Paint::Green) },
            ],
        }
    };
    let mut lanes: Vec<&Lane> = stats.map_or(&[][..], |stats| &stats.lanes).iter().collect();
    // Lanes that were not used yet come last.
    lanes.sort_by_key(|lane| lane.waiting + lane.running + lane.counts.submitted == 0);
    Sheet { columns, lines: lanes.into_iter().map(line).collect(), empty: "no lanes" }
}

/// The highest 95th percentile of the kinds of a lane.
fn slowest(history: Option<&StatsHistory>, lane: &str, of: fn(&HistoryGroup) -> &Times) -> Option<u64> {
    let groups = history?.groups.iter().filter(|group| group.lane.as_deref() == Some(lane));
    groups.filter_map(|group| of(group).p95_ms).max()
}

fn agents(stats: Option<&Stats>) -> Sheet {
    let columns = vec![
        left("AGENT"),
        left("LANE"),
        spare(1, left("TENANT")),
        right("RUNNING"),
        right("WAITING"),
        right("ENDED"),
        right("FAILED"),
        spare(3, right("REJECTED")),
        spare(2, right("AVG WAIT")),
        spare(2, right("AVG RUN")),
    ];
    let mut agents: Vec<_> = stats.map_or(&[][..], |stats| &stats.agents).iter().collect();
    agents.sort_by_key(|agent| std::cmp::Reverse((agent.running, agent.waiting)));
    let line = |agent: &&laneway_wire::AgentStats| {
        let counts = &agent.counts;
        Line {
            id: format!("{}/{}/{}", agent.tenant, agent.lane, agent.agent),
            cells: vec![
                Cell::text(&agent.agent, Paint::Bold),
                Cell::text(&agent.lane, Paint::Plain),
                Cell::text(&agent.tenant, Paint::Dim),
                Cell { paint: Paint::Cyan, ..Cell::number(agent.running) },
                Cell::number(agent.waiting),
                Cell::number(counts.succeeded + counts.failed + counts.canceled),
                Cell::problems(counts.failed),
                Cell::problems(counts.rejected),
                Cell::time(counts.queue_wait_ms.checked_div(counts.dispatched)),
                Cell::time(counts.run_time_ms.checked_div(counts.runs)),
            ],
        }
    };
    Sheet {
        columns,
        lines: agents.iter().map(line).collect(),
        empty: "no agent has had a job since the start",
    }
}

/// The cells that every job begins with.
fn job_cells(job: &Job<'_>) -> Vec<Cell> {
    vec![
        Cell::text(short_id(&job.id), Paint::Dim),
        Cell::text(&job.kind, Paint::Bold),
        Cell::text(&job.lane, Paint::Plain),
        Cell::text(&job.agent, Paint::Plain),
    ]
}

fn job_columns() -> Vec<Column> {
    vec![spare(3, left("ID")), left("KIND"), spare(4, left("LANE")), spare(5, left("AGENT"))]
}

fn running(jobs: &[Job<'_>], now: Timestamp) -> Sheet {
    let mut columns = job_columns();
    columns.extend([
        left("STATE"),
        right("TRY"),
        right("FOR"),
        spare(1, left("WORKER")),
        spare(2, flexible("PROGRESS")),
    ]);
    let line = |job: &Job<'_>| {
        let mut cells = job_cells(job);
        let progress = job.progress.as_ref().map_or_else(String::new, |progress| {
            format!("{:.0} % {}", progress.fraction * 100.0, progress.message)
        });
        cells.extend([
            Cell::text(&job.state, state_paint(&job.state)),
            Cell::number(job.attempt.into()),
            Cell::time(job.started_at.as_deref().and_then(|at| age(at, now))),
            Cell::text(job.worker.as_deref().unwrap_or_default(), Paint::Plain),
            Cell::text(&progress, Paint::Dim),
        ]);
        Line { id: job.id.to_string(), cells }
    };
    Sheet { columns, lines: jobs.iter().map(line).collect(), empty: "nothing runs" }
}

fn waiting(jobs: &[Job<'_>], now: Timestamp) -> Sheet {
    let mut columns = job_columns();
    columns.extend([spare(1, left("STATE")), right("FOR"), spare(2, right("PRIO")), flexible("WAITS FOR")]);
    let line = |job: &Job<'_>| {
        let mut cells = job_cells(job);
        cells.extend([
            Cell::text(&job.state, state_paint(&job.state)),
            Cell::time(age(&job.created_at, now)),
            Cell { text: job.priority.to_string(), ..Cell::number(job.priority.cast_unsigned().into()) },
            Cell::text(job.waiting_for.as_deref().unwrap_or_default(), Paint::Yellow),
        ]);
        Line { id: job.id.to_string(), cells }
    };
    Sheet { columns, lines: jobs.iter().map(line).collect(), empty: "nothing waits" }
}

fn failures(jobs: &[Job<'_>], now: Timestamp) -> Sheet {
    let mut columns = job_columns();
    columns.extend([right("TRY"), right("AGO"), left("CODE"), flexible("ERROR")]);
    let line = |job: &Job<'_>| {
        let mut cells = job_cells(job);
        let (code, message) = match &job.error {
            Some(error) => (error.code.as_str(), error.message.as_str()),
            None => (job.reason.as_deref().unwrap_or_default(), ""),
        };
        cells.extend([
            Cell::number(job.attempt.into()),
            Cell::time(job.finished_at.as_deref().and_then(|at| age(at, now))),
            Cell::text(code, Paint::Red),
            Cell::text(message, Paint::Plain),
        ]);
        Line { id: job.id.to_string(), cells }
    };
    Sheet { columns, lines: jobs.iter().map(line).collect(), empty: "no job has failed" }
}

fn workers(workers: &[Worker]) -> Sheet {
    let columns = vec![
        left("WORKER"),
        left("STATE"),
        right("RUNNING"),
        right("OF"),
        spare(2, right("CPU %")),
        spare(2, right("MEM %")),
        spare(1, left("VERSION")),
        spare(3, left("HOST")),
        flexible("KINDS"),
    ];
    let percent = |of: Option<f64>| Cell {
        text: of.map_or_else(|| "–".to_owned(), |of| format!("{of:.0}")),
        ..Cell::number(of.unwrap_or(0.0).max(0.0) as u64)
    };
    let line = |worker: &Worker| Line {
        id: worker.id.clone(),
        cells: vec![
            Cell::text(&worker.id, Paint::Bold),
            Cell::text(&worker.state, state_paint(&worker.state)),
            Cell::number(worker.running.into()),
            Cell::number(worker.max_parallel.into()),
            percent(worker.cpu_pct),
            percent(worker.mem_pct),
            Cell::text(&worker.version, Paint::Dim),
            Cell::text(&worker.hostname, Paint::Dim),
            Cell::text(&worker.kinds.join(" "), Paint::Plain),
        ],
    };
    Sheet { columns, lines: workers.iter().map(line).collect(), empty: "no worker is connected" }
}

/// The milliseconds since a time; `None` where it is none.
pub fn age(time: &str, now: Timestamp) -> Option<u64> {
    let time = time.parse::<Timestamp>().ok()?;
    Some(now.as_millisecond().saturating_sub(time.as_millisecond()).max(0).unsigned_abs())
}

/// How full a lane is: `▇▇▇▇···· 4/8`.
fn bar(lane: &Lane) -> String {
    let (running, limit) = (lane.running, u64::from(lane.running_max));
    let full = (running * BAR_WIDTH as u64).div_ceil(limit.max(1)).min(BAR_WIDTH as u64) as usize;
    format!("{}{} {running}/{limit}", "▇".repeat(full), "·".repeat(BAR_WIDTH - full))
}

/// The last `count` of these.
pub fn last(values: &[u64], count: usize) -> &[u64] {
    &values[values.len().saturating_sub(count)..]
}

/// A line of marks, as high as the values; any value but 0 is visible.
pub fn sparkline(values: &[u64]) -> String {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let mark = |value: &u64| MARKS[(value * 8).div_ceil(most) as usize];
    values.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_shows_the_smallest_value_and_nothing_for_none() {
        assert_eq!(sparkline(&[0, 1, 50, 100]), " ▁▄█");
        assert_eq!(sparkline(&[0, 0]), "  ");
        assert_eq!(sparkline(&[]), "");
    }
}
