//! The first page: how much happens, how fast, what fails, and what is stuck and why.

use askama::Template;
use laneway_wire::{Capacity, Health, JobList, Stats};

use crate::call::segment;
use crate::context::{Answer, Context, text};
use crate::format::{Moment, Sorted, between, count, duration, percent, short};
use crate::widgets::{Meter, State};

/// The ended jobs whose times are shown.
const SAMPLE: usize = 200;
/// Rows of the small tables.
const ROWS: usize = 8;

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    root: String,
    health: Health,
    uptime: String,
    tiles: Vec<Tile>,
    waits: Times,
    runs: Times,
    sample: usize,
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
    count: usize,
    oldest: Moment,
    href: String,
    example: String,
}

struct FailedRow {
    href: String,
    id: String,
    kind: String,
    lane: String,
    message: String,
    at: Option<Moment>,
    state: State,
}

/// Shows the overview.
pub async fn show(context: &Context) -> Answer {
    let api = &context.api;
    let stats: Stats = api.get("/v1/stats").await?;
    let health: Health = api.get("/health").await?;
    let ended: JobList<'static> =
        api.get(&format!("/v1/jobs?state=succeeded,failed&limit={SAMPLE}")).await?;
    let failed: JobList<'static> = api.get(&format!("/v1/jobs?state=failed&limit={ROWS}")).await?;
    let waiting: JobList<'static> = api.get("/v1/jobs?state=queued,scheduled&explain=true&limit=100").await?;
    let capacity = api.get_if_allowed("/v1/capacity").await?;
    let (waits, runs) = times(&ended);
    let is_empty = ended.jobs.is_empty() && waiting.jobs.is_empty() && stats.running + stats.assigned == 0;
    let page = Overview {
        uptime: duration(health.uptime_seconds * 1_000),
        health,
        tiles: tiles(&stats),
        waits,
        runs,
        sample: ended.jobs.len(),
        lanes: lane_rows(context, &stats),
        agents: agent_rows(&stats),
        stuck: stuck(context, &waiting),
        failed: failed_rows(context, &failed),
        capacity,
        is_empty,
        root: context.root.clone(),
    };
    context.page("", "Overview", &page)
}

fn tiles(stats: &Stats) -> Vec<Tile> {
    let sum = |of: fn(&laneway_wire::Counts) -> u64| stats.lanes.iter().map(|lane| of(&lane.counts)).sum::<u64>();
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
            detail: format!("{} % of {} slots", percent(running, stats.running_max.into()), stats.running_max),
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

/// The waits and run times of the newest ended jobs.
fn times(ended: &JobList<'_>) -> (Times, Times) {
    let (mut waits, mut runs) = (Vec::new(), Vec::new());
    for job in &ended.jobs {
        if let (Some(started), Some(finished)) = (&job.started_at, &job.finished_at) {
            waits.extend(between(&job.created_at, started));
            runs.extend(between(started, finished));
        }
    }
    let shown = |values: Vec<u64>| {
        let sorted = Sorted::new(values);
        let at = |percent| sorted.at(percent).map_or_else(|| "–".to_owned(), duration);
        Times { p50: at(50), p95: at(95), p99: at(99) }
    };
    (shown(waits), shown(runs))
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
    let mut agents: Vec<_> = stats.agents.iter().collect();
    agents.sort_by_key(|agent| std::cmp::Reverse((agent.running, agent.waiting, agent.counts.dispatched)));
    let all: u64 = stats.agents.iter().map(|agent| agent.counts.dispatched).sum();
    let rows = agents.into_iter().take(ROWS).map(|agent| AgentRow {
        href: format!("jobs{}", crate::call::query([("agent", agent.agent.as_str())])),
        name: agent.agent.clone(),
        waiting: count(&agent.waiting),
        running: count(&agent.running),
        done: count(&(agent.counts.succeeded + agent.counts.failed + agent.counts.canceled)),
        share: Meter::new(agent.counts.dispatched, all),
    });
    rows.collect()
}

/// Waiting jobs by the reason why they wait, the most frequent first.
fn stuck(context: &Context, waiting: &JobList<'_>) -> Vec<Stuck> {
    let mut groups: Vec<Stuck> = Vec::new();
    for job in &waiting.jobs {
        let reason = text(&job.waiting_for);
        let reason = if reason.is_empty() { "starts next" } else { reason };
        match groups.iter_mut().find(|group| group.reason == reason) {
            Some(group) => {
                group.count += 1;
                group.oldest = Moment::new(&job.created_at, context.now);
                group.href = format!("{}jobs/{}", context.root, segment(&job.id));
                group.example = job.kind.clone().into_owned();
            }
            None => groups.push(Stuck {
                reason: reason.to_owned(),
                count: 1,
                oldest: Moment::new(&job.created_at, context.now),
                href: format!("{}jobs/{}", context.root, segment(&job.id)),
                example: job.kind.clone().into_owned(),
            }),
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups.truncate(6);
    groups
}

fn failed_rows(context: &Context, failed: &JobList<'_>) -> Vec<FailedRow> {
    let rows = failed.jobs.iter().map(|job| FailedRow {
        href: format!("{}jobs/{}", context.root, segment(&job.id)),
        id: short(&job.id).to_owned(),
        kind: job.kind.clone().into_owned(),
        lane: job.lane.clone().into_owned(),
        message: match &job.error {
            Some(error) => format!("{}: {}", error.code, error.message),
            None => text(&job.reason).to_owned(),
        },
        at: Moment::optional(job.finished_at.as_deref(), context.now),
        state: State::new(&job.state),
    });
    rows.collect()
}
