//! Lanes: their load, pause and resume, and their limits.

use askama::Template;
use laneway_wire::{Lane, LaneList, LaneRequest};

use axum::http::{Method, StatusCode};

use crate::call::{Failure, segment};
use crate::context::{Answer, Context};
use crate::format::{Moment, count, duration};
use crate::widgets::{Button, Meter};

#[derive(Template)]
#[template(path = "lanes.html")]
struct Lanes {
    lanes: Vec<LaneRow>,
    may_operate: bool,
}

struct LaneRow {
    name: String,
    href: String,
    paused: bool,
    waiting: String,
    running: String,
    load: Meter,
    mean_wait: String,
    mean_run: String,
    succeeded: String,
    failed: String,
    oldest: Option<Moment>,
    button: Button,
}

/// Lists lanes.
pub async fn list(context: &Context) -> Answer {
    let found: LaneList = context.api.get("/v1/lanes").await?;
    let lanes = found.lanes.iter().map(|lane| lane_row(context, lane, "lanes".to_owned())).collect();
    context.page("lanes", "Lanes", &Lanes { lanes, may_operate: context.may().operate_server })
}

fn mean(sum: u64, number: u64) -> String {
    sum.checked_div(number).map_or_else(|| "–".to_owned(), duration)
}

fn lane_row(context: &Context, lane: &Lane, back: String) -> LaneRow {
    let counts = &lane.counts;
    LaneRow {
        href: format!("{}lanes/{}", context.root, segment(&lane.name)),
        paused: lane.paused,
        waiting: count(&lane.waiting),
        running: count(&lane.running),
        load: Meter::new(lane.running, lane.running_max.into()),
        mean_wait: mean(counts.queue_wait_ms, counts.dispatched),
        mean_run: mean(counts.run_time_ms, counts.runs),
        succeeded: count(&counts.succeeded),
        failed: count(&counts.failed),
        oldest: lane.oldest.as_ref().map(|oldest| Moment::new(&oldest.created_at, context.now)),
        button: pause_button(context, lane, back),
        name: lane.name.clone(),
    }
}

fn pause_button(context: &Context, lane: &Lane, back: String) -> Button {
    let at = format!("lanes/{}", segment(&lane.name));
    match lane.paused {
        true => Button::new(context, &format!("{at}/resume"), "Resume").primary().back(back),
        false => Button::new(context, &format!("{at}/pause"), "Pause")
            .ask(format!("Pause the lane {}? Jobs are still admitted, and none starts.", lane.name))
            .back(back),
    }
}

#[derive(Template)]
#[template(path = "lane.html")]
struct LanePage {
    root: String,
    csrf: String,
    href: String,
    lane: LaneRow,
    jobs: String,
    limits: Vec<Limit>,
    facts: Vec<(&'static str, String)>,
    may_operate: bool,
    changes: Vec<String>,
}

struct Limit {
    name: &'static str,
    value: String,
    now: String,
    text: &'static str,
}

/// Shows a lane.
pub async fn show(context: &Context, name: &str) -> Answer {
    show_with(context, name, None).await
}

/// Shows a lane, and what a change of its limits would do.
async fn show_with(context: &Context, name: &str, asked: Option<&LaneRequest>) -> Answer {
    let lane: Lane = context.api.get(&format!("/v1/lanes/{}", segment(name))).await?;
    let limit = |name, text, now: u32, asked: Option<u32>| Limit {
        name,
        text,
        now: now.to_string(),
        value: asked.unwrap_or(now).to_string(),
    };
    let of = |pick: fn(&LaneRequest) -> Option<u32>| asked.and_then(pick);
    let page = LanePage {
        root: context.root.clone(),
        csrf: context.csrf.clone(),
        href: format!("lanes/{}", segment(name)),
        jobs: format!("jobs{}", crate::call::query([("lane", name)])),
        limits: vec![
            limit("running_max", "Running at once", lane.running_max, of(|lane| lane.running_max)),
            limit(
                "running_per_agent_max",
                "Running at once, of one agent",
                lane.running_per_agent_max,
                of(|lane| lane.running_per_agent_max),
            ),
            limit("queued_max", "Waiting", lane.queued_max, of(|lane| lane.queued_max)),
            limit(
                "queued_per_agent_max",
                "Waiting, of one agent",
                lane.queued_per_agent_max,
                of(|lane| lane.queued_per_agent_max),
            ),
        ],
        facts: vec![
            ("Order", lane.order.clone()),
            ("Dispatch", lane.dispatch.clone()),
            ("Aging step", lane.aging_step.clone().unwrap_or_else(|| "none".to_owned())),
            ("Retention", lane.retention.clone()),
            ("At shutdown", lane.on_shutdown.clone()),
        ],
        may_operate: context.may().operate_server,
        changes: asked.map(|asked| effects(&lane, asked)).unwrap_or_default(),
        lane: lane_row(context, &lane, format!("lanes/{}", segment(name))),
    };
    context.page("lanes", name, &page)
}

/// What new limits would change, in sentences.
fn effects(lane: &Lane, asked: &LaneRequest) -> Vec<String> {
    let mut effects = Vec::new();
    if let Some(limit) = asked.running_max.filter(|limit| *limit != lane.running_max) {
        let free = u64::from(limit).saturating_sub(lane.running);
        effects.push(match free.min(lane.waiting) {
            _ if u64::from(limit) < lane.running => format!(
                "{} attempts run now, more than {limit}. They go on, and no job starts until fewer run.",
                lane.running
            ),
            0 => format!("At most {limit} instead of {} attempts run at once. No job starts now because of it.", lane.running_max),
            more => format!("At most {limit} instead of {} attempts run at once. Up to {more} waiting jobs may start now.", lane.running_max),
        });
    }
    if let Some(limit) = asked.queued_max.filter(|limit| *limit != lane.queued_max) {
        effects.push(match u64::from(limit) < lane.waiting {
            true => format!(
                "{} jobs wait, more than {limit}. They stay, and new jobs are rejected until fewer wait.",
                lane.waiting
            ),
            false => format!("New jobs are rejected when {limit} instead of {} wait.", lane.queued_max),
        });
    }
    if let Some(limit) = asked.running_per_agent_max.filter(|limit| *limit != lane.running_per_agent_max) {
        effects.push(format!(
            "One agent runs at most {limit} instead of {} attempts at once.",
            lane.running_per_agent_max
        ));
    }
    if let Some(limit) = asked.queued_per_agent_max.filter(|limit| *limit != lane.queued_per_agent_max) {
        effects.push(format!(
            "One agent may have {limit} instead of {} waiting jobs.",
            lane.queued_per_agent_max
        ));
    }
    if effects.is_empty() {
        effects.push("Nothing: these are the limits in effect.".to_owned());
    }
    effects
}

/// Pauses or resumes a lane.
pub async fn act(context: &Context, name: &str, action: &str) -> Answer {
    context.api.post(&format!("/v1/lanes/{}/{action}", segment(name))).await?;
    let done = if action == "pause" { "paused" } else { "resumed" };
    context.back(format!("lanes/{}", segment(name)), format!("The lane {name} is {done}."))
}

/// Changes the limits of a lane, or shows first what would change.
pub async fn change_limits(context: &Context, name: &str) -> Answer {
    if !context.may().operate_server {
        let detail = "changing limits needs the role operator, for the whole server";
        return Err(Failure::new(StatusCode::FORBIDDEN, detail));
    }
    let number = |field: &str| -> Result<Option<u32>, Failure> {
        let Some(text) = context.field(field) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            Failure::new(StatusCode::BAD_REQUEST, &format!("{field} is {text:?}; write a whole number"))
        })
    };
    let asked = LaneRequest {
        running_max: number("running_max")?,
        running_per_agent_max: number("running_per_agent_max")?,
        queued_max: number("queued_max")?,
        queued_per_agent_max: number("queued_per_agent_max")?,
        ..LaneRequest::default()
    };
    if context.field("action") != Some("apply") {
        return show_with(context, name, Some(&asked)).await;
    }
    let _: Lane = context.api.send(Method::PUT, &format!("/v1/lanes/{}", segment(name)), &asked).await?;
    context.back(format!("lanes/{}", segment(name)), "The new limits are in effect.")
}
