//! Schedules: when they fire next, how they fired, and the ways to pause them or fire one now.

use askama::Template;
use axum::http::Method;
use laneway_wire::{
    PreviewRequest, Schedule, ScheduleFiredByHand, ScheduleFiring, ScheduleFiringList, ScheduleList,
    SchedulePreview,
};

use crate::call::{query, segment};
use crate::context::{Answer, Context};
use crate::format::{Moment, count, duration, visible};
use crate::viewer::Document;
use crate::widgets::{Button, State};

#[derive(Template)]
#[template(path = "schedules.html")]
struct Schedules {
    root: String,
    schedules: Vec<Row>,
    next: Option<String>,
}

struct Row {
    name: String,
    href: String,
    enabled: bool,
    timing: String,
    next: Option<Moment>,
    last: Option<State>,
    last_at: Option<Moment>,
    error: String,
    firings: String,
    buttons: Vec<Button>,
}

fn row(context: &Context, schedule: &Schedule, back: &str) -> Row {
    Row {
        href: format!("{}schedules/{}", context.root, segment(&schedule.id)),
        name: schedule.name.clone(),
        enabled: schedule.enabled,
        timing: timing(schedule),
        next: Moment::optional(schedule.next_at.as_deref(), context.now),
        last: schedule.last_status.as_deref().map(State::new),
        last_at: Moment::optional(schedule.last_ended_at.as_deref(), context.now),
        error: visible(schedule.last_error.as_deref().unwrap_or_default()),
        firings: count(&schedule.firings),
        buttons: buttons(context, schedule, back),
    }
}

fn buttons(context: &Context, schedule: &Schedule, back: &str) -> Vec<Button> {
    if !context.may().submit {
        return Vec::new();
    }
    let at = format!("schedules/{}", segment(&schedule.id));
    let toggle = match schedule.enabled {
        true => Button::new(context, &format!("{at}/pause"), "Pause"),
        false => Button::new(context, &format!("{at}/resume"), "Resume").primary(),
    };
    vec![Button::new(context, &format!("{at}/fire"), "Run now").back(back), toggle.back(back)]
}

/// When a schedule fires, in words where the expression is simple.
fn timing(schedule: &Schedule) -> String {
    match (&schedule.cron, &schedule.every, &schedule.at) {
        (Some(cron), _, _) => {
            let zone = schedule.zone.as_deref().unwrap_or("UTC");
            match in_words(cron) {
                Some(words) => format!("{words} ({zone})"),
                None => format!("cron {cron} ({zone})"),
            }
        }
        (_, Some(every), _) => format!("every {every}"),
        (_, _, Some(at)) => format!("once, at {at}"),
        _ => String::new(),
    }
}

/// A cron expression of a common form as words.
fn in_words(cron: &str) -> Option<String> {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    let [minute, hour, "*", "*", weekday] = fields.as_slice() else {
        return match cron {
            "@hourly" => Some("every hour".to_owned()),
            "@daily" | "@midnight" => Some("every day at 00:00".to_owned()),
            "@weekly" => Some("every Sunday at 00:00".to_owned()),
            _ => None,
        };
    };
    let days = match *weekday {
        "*" => "every day",
        "1-5" => "Monday to Friday",
        "0,6" | "6,0" | "6-7" => "every weekend day",
        "0" | "7" => "every Sunday",
        "1" => "every Monday",
        "2" => "every Tuesday",
        "3" => "every Wednesday",
        "4" => "every Thursday",
        "5" => "every Friday",
        "6" => "every Saturday",
        _ => return None,
    };
    let step = |text: &str| text.strip_prefix("*/").and_then(|step| step.parse::<u8>().ok());
    match (minute.parse::<u8>().ok(), hour.parse::<u8>().ok()) {
        (Some(minute), Some(hour)) => Some(format!("{days} at {hour:02}:{minute:02}")),
        (Some(minute), None) if *hour == "*" && days == "every day" => {
            Some(format!("every hour at minute {minute}"))
        }
        (None, None) if *minute == "*" && *hour == "*" && days == "every day" => {
            Some("every minute".to_owned())
        }
        (None, None) if *hour == "*" && days == "every day" => {
            Some(format!("every {} minutes", step(minute)?))
        }
        _ => None,
    }
}

/// Lists schedules.
pub async fn list(context: &Context) -> Answer {
    let after = context.field("after").unwrap_or_default();
    let asked = query([("limit", "100"), ("include_disabled", "true"), ("after", after)]);
    let found: ScheduleList = context.api.get(&format!("/v1/schedules{asked}")).await?;
    let page = Schedules {
        root: context.root.clone(),
        schedules: found.schedules.iter().map(|schedule| row(context, schedule, "schedules")).collect(),
        next: found.next.map(|next| format!("schedules{}", query([("after", next.as_str())]))),
    };
    context.page("schedules", "Schedules", &page)
}

#[derive(Template)]
#[template(path = "schedule.html")]
struct SchedulePage {
    root: String,
    schedule: Row,
    facts: Vec<(&'static str, String)>,
    job: Document,
    zone: String,
    upcoming: Vec<(String, Moment)>,
    firings: Vec<FiringRow>,
    total: String,
}

struct FiringRow {
    status: State,
    slot: Moment,
    job: Option<String>,
    attempts: u32,
    took: String,
    detail: String,
}

/// Shows a schedule with its next firings and its firing log.
pub async fn show(context: &Context, id: &str) -> Answer {
    let at = format!("/v1/schedules/{}", segment(id));
    let schedule: Schedule = context.api.get(&at).await?;
    let firings: ScheduleFiringList = context.api.get(&format!("{at}/firings?limit=30")).await?;
    let asked = PreviewRequest {
        cron: schedule.cron.clone(),
        zone: schedule.zone.clone(),
        every: schedule.every.clone(),
        anchor: schedule.anchor.clone(),
        at: schedule.at.clone(),
        count: Some(8),
        ..PreviewRequest::default()
    };
    let preview: Option<SchedulePreview> =
        context.api.send(Method::POST, "/v1/schedules/preview", &asked).await.ok();
    let (zone, upcoming) = preview.map(|preview| (preview.zone, preview.firings)).unwrap_or_default();
    let job = serde_json::to_vec(&schedule.job).unwrap_or_default();
    let catch_up = match &schedule.catch_up {
        laneway_wire::CatchUpRequest::Name(name) => name.clone(),
        laneway_wire::CatchUpRequest::Object(object) => format!("at most {}", object.all),
    };
    let page = SchedulePage {
        root: context.root.clone(),
        facts: vec![
            ("Id", schedule.id.clone()),
            ("Tenant", schedule.tenant.clone()),
            ("Missed slots", catch_up),
            ("Overlap", schedule.overlap.clone()),
            ("Jitter", schedule.jitter.clone()),
        ],
        job: Document::new(&job),
        zone,
        upcoming: upcoming
            .iter()
            .map(|firing| (firing.local.replacen('T', " ", 1), Moment::new(&firing.at, context.now)))
            .collect(),
        firings: firings.firings.iter().map(|firing| firing_row(context, firing)).collect(),
        total: count(&firings.total),
        schedule: row(context, &schedule, &format!("schedules/{}", segment(id))),
    };
    context.page("schedules", schedule.name.clone(), &page)
}

fn firing_row(context: &Context, firing: &ScheduleFiring) -> FiringRow {
    FiringRow {
        status: State::new(&firing.status),
        slot: Moment::new(&firing.slot, context.now),
        job: firing.job_id.as_deref().map(|job| segment(job).to_string()),
        attempts: firing.attempts,
        took: if firing.job_id.is_some() { duration(firing.duration_ms) } else { String::new() },
        detail: visible(firing.error.as_deref().or(firing.summary.as_deref()).unwrap_or_default())
            .chars()
            .take(300)
            .collect(),
    }
}

/// Pauses, resumes or fires a schedule.
pub async fn act(context: &Context, id: &str, action: &str) -> Answer {
    let answer = context.api.post(&format!("/v1/schedules/{}/{action}", segment(id))).await?;
    let note = match action {
        "pause" => "The schedule is paused.".to_owned(),
        "resume" => "The schedule fires again.".to_owned(),
        _ => match serde_json::from_slice::<ScheduleFiredByHand>(&answer) {
            Ok(ScheduleFiredByHand { fired: false, reason: Some(reason), .. }) => {
                format!("The schedule has not fired: {}.", reason.replace('_', " "))
            }
            _ => "The schedule has fired: its job is queued.".to_owned(),
        },
    };
    context.back(format!("schedules/{}", segment(id)), note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_expressions_have_words() {
        let cases = [
            ("0 9 * * 1-5", Some("Monday to Friday at 09:00")),
            ("*/15 * * * *", Some("every 15 minutes")),
            ("30 * * * *", Some("every hour at minute 30")),
            ("@daily", Some("every day at 00:00")),
            ("0 9 1 * *", None),
            ("0 9-17 * * 1", None),
        ];
        for (cron, words) in cases {
            assert_eq!(in_words(cron).as_deref(), words, "{cron}");
        }
    }
}
