//! The first page: how much happens, how fast, what fails, and what is stuck and why.

use std::collections::BTreeMap;

use askama::Template;
use laneway_wire::{Capacity, Explanation, Health, JobList, Stats, StatsHistory};

use crate::call::{Failure, query, segment};
use crate::chart::{self, Frame, Series};
use crate::context::{Answer, Context, text};
use crate::format::{Moment, count, duration, percent, short, visible};
use crate::widgets::{Meter, Svg};

/// Lanes whose oldest waiting job is explained.
const STUCK_SHOWN: usize = 6;
/// Rows of the small tables.
const ROWS: usize = 8;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    root: String,
    health: Health,
    uptime: String,
    tiles: Vec<Tile>,
    history: History,
    lanes: Vec<LaneRow>,
    agents: Vec<AgentRow>,
    stuck: Vec<Stuck>,
    failed: Vec<FailedRow>,
    capacity: Option<Capacity>,
    is_empty: bool,
}

struct Tile {
    name: &'static str,
    value: String,
    detail: String,
    href: &'static str,
    class: &'static str,
}

/// What happened in the last hour or day.
struct History {
    is_day: bool,
    range: &'static str,
    done: String,
    peak: String,
    throughput: Svg,
    depth: Svg,
    depth_peak: String,
    waits: Times,
    runs: Times,
}

struct Times {
    p50: String,
    p95: String,
    p99: String,
}

struct LaneRow {
    name: String,
    href: String,
    paused: bool,
    waiting: String,
    running: String,
    load: Meter,
    failures: String,
    oldest: Option<Moment>,
}

struct AgentRow {
    name: String,
    href: String,
    waiting: String,
    running: String,
    done: String,
    share: Meter,
}

struct Stuck {
    reason: String,
    count: String,
    lane: String,
    at: Moment,
    href: String,
    id: String,
}

struct FailedRow {
    href: String,
    id: String,
    kind: String,
    lane: String,
    message: String,
    at: Option<Moment>,
}

/// Shows the overview.
pub async fn show(context: &Context) -> Answer {
    let api = &context.api;
    let stats: Stats = api.get("/v1/stats").await?;
    let health: Health = api.get("/health").await?;
    let is_day = context.field("range") == Some("1d");
    let mut past: StatsHistory =
        api.get(if is_day { "/v1/stats/history?range=1d" } else { "/v1/stats/history?range=1h" }).await?;
    let failed: JobList<'static> = api.get(&format!("/v1/jobs?state=failed&limit={ROWS}")).await?;
    let capacity = api.get_if_allowed("/v1/capacity").await?;
    // Samples are up to fifteen seconds old. The last point has what is known now.
    if let Some(last) = past.points.last_mut() {
        let of_lanes = |of: fn(&laneway_wire::Lane) -> u64| stats.lanes.iter().map(of).sum::<u64>();
        last.waiting = last.waiting.max(of_lanes(|lane| lane.waiting));
        last.running = last.running.max(of_lanes(|lane| lane.running));
    }
    let ended = past.total.succeeded + past.total.failed;
    let is_empty = ended == 0
        && stats.queued + stats.scheduled == 0
        && failed.jobs.is_empty()
        && stats.running + stats.assigned == 0;
    let page = Overview {
        uptime: duration(health.uptime_seconds * 1_000),
        health,
        tiles: tiles(&stats),
        history: history(&past, is_day),
        lanes: lane_rows(context, &stats),
        agents: agent_rows(&stats),
        stuck: stuck(context, &stats).await?,
        failed: failed_rows(context, &failed),
        capacity,
        is_empty,
        root: context.root.clone(),
    };
    context.page("", "Overview", &page)
}

fn tiles(stats: &Stats) -> Vec<Tile> {
    let sum =
        |of: fn(&laneway_wire::Counts) -> u64| stats.lanes.iter().map(|lane| of(&lane.counts)).sum::<u64>();
    let (succeeded, failed) = (sum(|counts| counts.succeeded), sum(|counts| counts.failed));
    let ended = succeeded + failed;
    let running = stats.running + stats.assigned + stats.still_running;
    let rate = match failed {
        0 => "none failed".to_owned(),
        _ => format!("{:.1} % of {} ended", failed as f64 * 100.0 / ended.max(1) as f64, count(&ended)),
    };
    vec![
        Tile {
            name: "Running",
            value: count(&running),
            detail: format!(
                "{} % of {} slots",
                percent(running, stats.running_max.into()),
                stats.running_max
            ),
            href: "jobs?state=running,assigned",
            class: "running",
        },
        Tile {
            name: "Queued",
            value: count(&stats.queued),
            detail: format!("{} scheduled for later", count(&stats.scheduled)),
            href: "jobs?state=queued",
            class: "queued",
        },
        Tile {
            name: "Succeeded",
            value: count(&succeeded),
            detail: "since the server started".to_owned(),
            href: "jobs?state=succeeded",
            class: "succeeded",
        },
        Tile {
            name: "Failed",
            value: count(&failed),
            detail: rate,
            href: "jobs?state=failed",
            class: if failed > 0 { "failed" } else { "" },
        },
    ]
}

/// The charts and times of the past.
fn history(past: &StatsHistory, is_day: bool) -> History {
    let times = |times: &laneway_wire::Times| {
        let shown = |ms: Option<u64>| ms.map_or_else(|| "–".to_owned(), duration);
        Times { p50: shown(times.p50_ms), p95: shown(times.p95_ms), p99: shown(times.p99_ms) }
    };
    let line = |of: fn(&laneway_wire::HistoryPoint) -> u64| -> Vec<f64> {
        past.points.iter().map(|point| of(point) as f64).collect()
    };
    let (done, failed) =
        (line(|point| point.succeeded + point.failed + point.canceled), line(|point| point.failed));
    let (waiting, running) = (line(|point| point.waiting), line(|point| point.running));
    let peak =
        past.points.iter().map(|point| point.succeeded + point.failed + point.canceled).max().unwrap_or(0);
    let deepest = past.points.iter().map(|point| point.waiting).max().unwrap_or(0);
    let throughput = [Series { class: "ok", values: &done }, Series { class: "failed", values: &failed }];
    let depth = [Series { class: "wait", values: &waiting }, Series { class: "running", values: &running }];
    let frame = |label| Frame { width: 600, height: 120, top: None, label };
    History {
        is_day,
        range: if is_day { "last day" } else { "last hour" },
        done: count(&(past.total.succeeded + past.total.failed + past.total.canceled)),
        peak: count(&peak),
        throughput: Svg(chart::lines(
            &throughput,
            &frame("Jobs that ended, and jobs that failed, over time"),
        )),
        depth: Svg(chart::lines(&depth, &frame("Jobs that waited, and open attempts, over time"))),
        depth_peak: count(&deepest),
        waits: times(&past.total.wait),
        runs: times(&past.total.run),
    }
}

fn lane_rows(context: &Context, stats: &Stats) -> Vec<LaneRow> {
    let mut lanes: Vec<_> = stats.lanes.iter().collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse((lane.waiting + lane.running, lane.counts.submitted)));
    let rows = lanes.into_iter().take(ROWS).map(|lane| LaneRow {
        href: format!("{}lanes/{}", context.root, segment(&lane.name)),
        name: lane.name.clone(),
        paused: lane.paused,
        waiting: count(&lane.waiting),
        running: count(&lane.running),
        load: Meter::new(lane.running, lane.running_max.into()),
        failures: count(&lane.counts.failed),
        oldest: lane.oldest.as_ref().map(|oldest| Moment::new(&oldest.created_at, context.now)),
    });
    rows.collect()
}

fn agent_rows(stats: &Stats) -> Vec<AgentRow> {
    #[derive(Default)]
    struct Sum {
        running: u64,
        waiting: u64,
        started: u64,
        ended: u64,
    }
    // An agent may use several lanes.
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for agent in &stats.agents {
        let (sum, counts) = (sums.entry(&agent.agent).or_default(), &agent.counts);
        sum.running += agent.running;
        sum.waiting += agent.waiting;
        sum.started += counts.dispatched;
        sum.ended += counts.succeeded + counts.failed + counts.canceled;
    }
    let all: u64 = sums.values().map(|sum| sum.started).sum();
    let mut agents: Vec<_> = sums.into_iter().collect();
    agents.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.running, sum.waiting, sum.started)));
    let rows = agents.into_iter().take(ROWS).map(|(name, sum)| AgentRow {
        href: format!("jobs{}", query([("agent", name)])),
        name: name.to_owned(),
        waiting: count(&sum.waiting),
        running: count(&sum.running),
        done: count(&sum.ended),
        share: Meter::new(sum.started, all),
    });
    rows.collect()
}

/// Why a job of each lane waits, the oldest where it is known, the longest queues first.
async fn stuck(context: &Context, stats: &Stats) -> Result<Vec<Stuck>, Failure> {
    let mut lanes: Vec<_> = stats.lanes.iter().filter(|lane| lane.waiting > 0).collect();
    lanes.sort_by_key(|lane| std::cmp::Reverse(lane.waiting));
    let mut found = Vec::new();
    for lane in lanes.into_iter().take(STUCK_SHOWN) {
        // Sessions and backoffs block jobs that are not among those that could start next. One of them stands for all.
        let Some((id, created_at)) = (match &lane.oldest {
            Some(oldest) => Some((oldest.id.clone(), oldest.created_at.clone())),
            None => newest_waiting(context, &lane.name).await?,
        }) else {
            continue;
        };
        let path = format!("/v1/jobs/{}/explain", segment(&id));
        let Some(explanation) = context.api.get_if_allowed::<Explanation>(&path).await? else { continue };
        let first = explanation.blocked_by.into_iter().next();
        found.push(Stuck {
            reason: first.map_or(explanation.summary, |blocker| blocker.message),
            count: count(&lane.waiting),
            lane: lane.name.clone(),
            at: Moment::new(&created_at, context.now),
            href: format!("{}jobs/{}", context.root, segment(&id)),
            id: short(&id).to_owned(),
        });
    }
    Ok(found)
}

/// The id and the time of submission of the newest waiting job of a lane.
async fn newest_waiting(context: &Context, lane: &str) -> Result<Option<(String, String)>, Failure> {
    let asked = query([("state", "queued,scheduled"), ("lane", lane), ("limit", "1")]);
    let found: JobList<'static> = context.api.get(&format!("/v1/jobs{asked}")).await?;
    Ok(found.jobs.into_iter().next().map(|job| (job.id.into_owned(), job.created_at.into_owned())))
}

fn failed_rows(context: &Context, failed: &JobList<'_>) -> Vec<FailedRow> {
    let rows = failed.jobs.iter().map(|job| FailedRow {
        href: format!("{}jobs/{}", context.root, segment(&job.id)),
        id: short(&job.id).to_owned(),
        kind: job.kind.clone().into_owned(),
        lane: job.lane.clone().into_owned(),
        message: match &job.error {
            Some(error) => visible(&format!("{}: {}", error.code, error.message)),
            None => text(&job.reason).to_owned(),
        },
        at: Moment::optional(job.finished_at.as_deref(), context.now),
    });
    rows.collect()
}
