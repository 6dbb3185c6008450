//! One job: its attempts, why it waits, what it got and gave, its log lines, artifacts and events.

use askama::Template;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode};
use laneway_wire::{
    ArtifactList, AttemptList, EventList, Explanation, Job, JobArtifact, JobPatchRequest, LogLine, LogList,
    Priority,
};

use crate::call::{Failure, query, segment};
use crate::context::{Answer, Context, Reply, text};
use crate::format::{Moment, between, duration, millis, short, size, visible};
use crate::viewer::Document;
use crate::widgets::{Button, State};

/// What the field for a start is, and an example.
pub const START_FIELD: (&str, &str) =
    ("Start: a duration from now such as 10m, 0s for now, or a time such as 2030-01-01T08:00:00Z", "10m");
/// What the field for a priority is.
pub const PRIORITY_LABEL: &str = "Priority: a lower number runs sooner";
/// Log lines that the page shows: the last ones.
const LINES_SHOWN: usize = 300;
/// The longest log line that is shown, in characters.
const LINE_CHARS_MAX: usize = 400;
/// Most requests for log lines, of 500 lines each.
const LOG_PAGES_MAX: usize = 40;
/// Events that the page shows.
const EVENTS_SHOWN: usize = 60;

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    root: String,
    id: String,
    kind: String,
    state: State,
    reason: String,
    buttons: Vec<Button>,
    facts: Vec<Fact>,
    progress: Option<(u64, String)>,
    explanation: Option<Explained>,
    error: Option<(String, String, bool)>,
    attempts: Vec<AttemptRow>,
    payload: Option<Document>,
    result: Option<Document>,
    lines: Vec<Line>,
    lines_left_out: u64,
    artifacts: Vec<ArtifactRow>,
    events: Vec<EventRow>,
}

struct Fact {
    name: &'static str,
    value: String,
    href: Option<String>,
    moment: Option<Moment>,
}

struct Explained {
    summary: String,
    blockers: Vec<(String, String)>,
    ahead: u64,
}

struct AttemptRow {
    number: u32,
    state: State,
    executor: String,
    opened: Option<Moment>,
    took: String,
    error: String,
    /// The start and the width of its bar, in thousandths of the job's life.
    from: u64,
    width: u64,
}

struct Line {
    at: String,
    is_error: bool,
    text: String,
}

struct ArtifactRow {
    id: String,
    name: String,
    sort: String,
    size: String,
    worker: String,
    expires: Option<Moment>,
}

struct EventRow {
    at: Moment,
    kind: String,
    detail: String,
    actor: String,
}

/// Shows a job.
pub async fn show(context: &Context, id: &str) -> Answer {
    let api = &context.api;
    let at = format!("/v1/jobs/{}", segment(id));
    let job: Job<'static> = api.get(&at).await?;
    let attempts: AttemptList = api.get(&format!("{at}/attempts")).await?;
    let events: EventList = api.get(&format!("{at}/events")).await?;
    let artifacts: ArtifactList = api.get(&format!("{at}/artifacts")).await?;
    let explanation = match job.finished_at {
        None => api.get_if_allowed::<Explanation>(&format!("{at}/explain")).await?,
        Some(_) => None,
    };
    let payload = match api.bytes(Method::GET, &format!("{at}/payload"), None).await {
        Ok(payload) => Some(Document::new(&payload)),
        // The payload may be hidden from this reader.
        Err(_) => None,
    };
    let (lines, lines_left_out) = last_lines(context, &at).await?;
    let page = JobPage {
        root: context.root.clone(),
        id: job.id.clone().into_owned(),
        kind: job.kind.clone().into_owned(),
        state: State::new(&job.state),
        reason: text(&job.reason).replace('_', " "),
        buttons: buttons(context, &job),
        facts: facts(context, &job),
        progress: job
            .progress
            .as_ref()
            .map(|progress| ((progress.fraction.clamp(0.0, 1.0) * 100.0) as u64, visible(&progress.message))),
        explanation: explanation.map(explained),
        error: job.error.as_ref().map(|error| (error.code.clone(), visible(&error.message), error.retryable)),
        attempts: attempt_rows(context, &job, &attempts),
        payload,
        result: job.result.as_ref().map(|result| Document::new(result.get().as_bytes())),
        lines: lines.into_iter().map(line).collect(),
        lines_left_out,
        artifacts: artifacts.artifacts.iter().map(|artifact| artifact_row(context, artifact)).collect(),
        events: event_rows(context, &events),
    };
    context.page("jobs", format!("{} {}", job.kind, short(&job.id)), &page)
}

fn buttons(context: &Context, job: &Job<'_>) -> Vec<Button> {
    if !context.may().submit {
        return Vec::new();
    }
    let at = format!("jobs/{}", segment(&job.id));
    match job.finished_at {
        None => {
            let mut buttons = Vec::new();
            if matches!(job.state.as_ref(), "scheduled" | "queued") {
                let (label, example) = START_FIELD;
                let start = Button::new(context, &format!("{at}/reschedule"), "Reschedule");
                let priority = Button::new(context, &format!("{at}/priority"), "Change priority");
                buttons.push(start.input("start", label, example).back(at.clone()));
                buttons.push(priority.input("priority", PRIORITY_LABEL, "-5").back(at.clone()));
            }
            buttons.push(
                Button::new(context, &format!("{at}/cancel"), "Cancel job")
                    .danger()
                    .ask("Cancel this job? A running attempt must stop.")
                    .back(at),
            );
            buttons
        }
        Some(_) => {
            let mut buttons =
                vec![Button::new(context, &format!("{at}/retry"), "Retry as a new job").primary()];
            if context.may().operate {
                buttons.push(Button::new(context, &format!("{at}/delete"), "Delete job").danger().ask(
                    "Delete this job with its payload, result, attempts and logs? This cannot be undone.",
                ));
            }
            buttons
        }
    }
}

fn facts(context: &Context, job: &Job<'_>) -> Vec<Fact> {
    let linked = |name, filter: &str, value: &str| Fact {
        name,
        value: value.to_owned(),
        href: Some(format!("jobs{}", query([(filter, value)]))),
        moment: None,
    };
    let plain = |name, value: String| Fact { name, value, href: None, moment: None };
    let moment = |name, time: Option<&str>| {
        let moment = Moment::optional(time, context.now)?;
        Some(Fact { name, value: String::new(), href: None, moment: Some(moment) })
    };
    let to = |name, path: &str, value: &str| Fact {
        name,
        value: value.to_owned(),
        href: Some(format!("{path}/{}", segment(value))),
        moment: None,
    };
    let optional = |name, value: &Option<std::borrow::Cow<'_, str>>| {
        value.as_deref().map(|value| plain(name, value.to_owned()))
    };
    let mut facts = vec![
        to("Lane", "lanes", &job.lane),
        linked("Agent", "agent", &job.agent),
        linked("Kind", "kind", &job.kind),
    ];
    facts.extend(job.session.as_deref().map(|key| to("Session", "sessions", key)));
    facts.extend(job.run.as_deref().map(|run| to("Run", "runs", run)));
    facts.extend(optional("Node", &job.node));
    facts.extend(
        job.schedule.as_ref().map(|schedule| Fact {
            value: schedule.name.clone(),
            ..to("Schedule", "schedules", &schedule.id)
        }),
    );
    facts.extend(
        job.retry_of.as_deref().map(|of| Fact { value: short(of).to_owned(), ..to("Retry of", "jobs", of) }),
    );
    facts.extend(
        job.merged_into
            .as_deref()
            .map(|of| Fact { value: short(of).to_owned(), ..to("Merged into", "jobs", of) }),
    );
    facts.push(plain("Tenant", job.tenant.clone().into_owned()));
    facts.push(plain("Priority", job.priority.to_string()));
    facts.extend(moment("Submitted", Some(&job.created_at)));
    facts.extend(moment("Started", job.started_at.as_deref()));
    facts.extend(moment("Ended", job.finished_at.as_deref()));
    facts.extend(moment("Not before", job.not_before.as_deref()));
    facts.extend(moment("Deadline", job.deadline.as_deref()));
    facts.extend(optional("Timeout", &job.timeout));
    facts.extend((job.cost > 0).then(|| plain("Cost", format!("{} units", job.cost))));
    facts.extend(optional("Hours", &job.hours));
    facts.extend(optional("Worker", &job.worker));
    facts.extend(job.keys.iter().map(|(name, value)| plain("Key", visible(&format!("{name} = {value}")))));
    facts.extend((!job.tags.is_empty()).then(|| plain("Tags", visible(&job.tags.join(", ")))));
    facts.extend(optional("Callback", &job.callback));
    facts.extend(optional("Submitted by", &job.submitted_by));
    facts
}

fn explained(explanation: Explanation) -> Explained {
    let numbers = |blocker: &laneway_wire::Blocker| match (blocker.used, blocker.limit, blocker.remaining_ms)
    {
        (Some(used), Some(limit), _) => format!("{used} of {limit} in use"),
        (_, _, Some(ms)) => format!("opens in {}", duration(ms)),
        _ => String::new(),
    };
    Explained {
        summary: explanation.summary,
        blockers: explanation
            .blocked_by
            .iter()
            .map(|blocker| (visible(&blocker.message), numbers(blocker)))
            .collect(),
        ahead: explanation.ahead,
    }
}

fn attempt_rows(context: &Context, job: &Job<'_>, list: &AttemptList) -> Vec<AttemptRow> {
    let begin = millis(&job.created_at).unwrap_or(context.now);
    let end = job.finished_at.as_deref().and_then(millis).unwrap_or(context.now).max(begin + 1);
    let life = begin.abs_diff(end);
    let share = |ms: u64| (ms.saturating_mul(1_000) / life).min(1_000);
    let rows = list.attempts.iter().map(|attempt| {
        // The last attempt of an ended job has only the time of its start.
        let opened = attempt.opened_at.as_deref().or(attempt.started_at.as_deref());
        let from = opened.and_then(millis).unwrap_or(begin).clamp(begin, end);
        let to = attempt.finished_at.as_deref().and_then(millis).unwrap_or(context.now).clamp(from, end);
        let started = attempt.started_at.as_deref().or(attempt.opened_at.as_deref());
        let took = match (started, attempt.finished_at.as_deref()) {
            (Some(from), Some(to)) => between(from, to).map(duration),
            (Some(from), None) => millis(from).map(|from| duration(from.abs_diff(context.now))),
            _ => None,
        };
        let offset = share(from.abs_diff(begin)).min(994);
        AttemptRow {
            number: attempt.attempt,
            state: State::new(&attempt.state),
            executor: attempt.executor.clone().unwrap_or_default(),
            opened: Moment::optional(opened, context.now),
            took: took.unwrap_or_default(),
            error: attempt
                .error
                .as_ref()
                .map(|error| visible(&format!("{}: {}", error.code, error.message)))
                .unwrap_or_default(),
            from: offset,
            width: share(to.abs_diff(from)).clamp(6, 1_000 - offset),
        }
    });
    rows.collect()
}

/// The last log lines, and the number of those before them.
async fn last_lines(context: &Context, at: &str) -> Result<(Vec<LogLine>, u64), Failure> {
    let mut lines: Vec<LogLine> = Vec::new();
    let (mut after, mut left_out) = (0, 0);
    for _ in 0..LOG_PAGES_MAX {
        let page: Option<LogList> =
            context.api.get_if_allowed(&format!("{at}/logs?after={after}&limit=500")).await?;
        let Some(page) = page else { break };
        lines.extend(page.lines);
        let over = lines.len().saturating_sub(LINES_SHOWN);
        left_out += over as u64;
        lines.drain(..over);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok((lines, left_out))
}

fn line(line: LogLine) -> Line {
    let cut: String = line.text.chars().take(LINE_CHARS_MAX).collect();
    let more = if cut.len() < line.text.len() { "…" } else { "" };
    let time = line.at.split('T').nth(1).unwrap_or(&line.at).trim_end_matches('Z').to_owned();
    Line { at: time, is_error: line.stream == "stderr", text: format!("{}{more}", visible(&cut)) }
}

fn artifact_row(context: &Context, artifact: &JobArtifact) -> ArtifactRow {
    let name = artifact.metadata.as_ref().and_then(|data| data.get("name")).and_then(|name| name.as_str());
    ArtifactRow {
        id: segment(&artifact.id).to_string(),
        name: visible(name.unwrap_or(&artifact.resource_id)),
        sort: artifact.sort.clone(),
        size: artifact.size_bytes.map(size).unwrap_or_default(),
        worker: artifact.worker_id.clone(),
        expires: Moment::optional(artifact.expires_at.as_deref(), context.now),
    }
}

fn event_rows(context: &Context, list: &EventList) -> Vec<EventRow> {
    let from = list.events.len().saturating_sub(EVENTS_SHOWN);
    let rows = list.events[from..].iter().map(|event| EventRow {
        at: Moment::new(&event.at, context.now),
        kind: event.kind.clone(),
        detail: match (&event.error, &event.detail) {
            (Some(error), _) => visible(&format!("{}: {}", error.code, error.message)),
            (None, Some(detail)) => visible(detail),
            (None, None) => event.job.as_ref().and_then(|job| job.reason.clone()).unwrap_or_default(),
        },
        actor: event.actor.clone().unwrap_or_default(),
    });
    rows.collect()
}

/// Cancels or retries a job.
pub async fn act(context: &Context, id: &str, action: &str) -> Answer {
    let page = format!("jobs/{}", segment(id));
    let at = format!("/v1/{page}");
    match action {
        "delete" => {
            context.api.bytes(Method::DELETE, &at, None).await?;
            return context.back("jobs", "The job is deleted.");
        }
        "reschedule" | "priority" => {
            let patch = patch(context, action)?;
            let _: Job<'static> = context.api.send(Method::PATCH, &at, &patch).await?;
            return context.back(page, "The job is changed.");
        }
        _ => {}
    }
    let answer = context.api.post(&format!("/v1/jobs/{}/{action}", segment(id))).await?;
    let job: Option<Job<'static>> = serde_json::from_slice(&answer).ok();
    match (action, job) {
        ("retry", Some(new)) => {
            context.back(format!("jobs/{}", segment(&new.id)), "This is the new job.".to_owned())
        }
        _ => context.back(format!("jobs/{}", segment(id)), "The job is canceled."),
    }
}

/// What the reader has filled in, as a change of a waiting job.
pub fn patch<'a>(context: &'a Context, action: &str) -> Result<JobPatchRequest<'a>, Failure> {
    let bad = |detail: &str| Failure::new(StatusCode::BAD_REQUEST, detail);
    if action == "reschedule" {
        let (run_at, delay) =
            start(context).ok_or_else(|| bad("start is empty; give a duration or a time"))?;
        let (run_at, delay) = (run_at.map(Into::into), delay.map(Into::into));
        return Ok(JobPatchRequest { run_at, delay, ..JobPatchRequest::default() });
    }
    let number = context.field("priority").and_then(|text| text.trim().parse().ok());
    let number = number.ok_or_else(|| bad("priority must be a whole number, such as -5"))?;
    Ok(JobPatchRequest { priority: Some(Priority::Number(number)), ..JobPatchRequest::default() })
}

/// The field `start` as a time or as a duration. Only times have a colon.
pub fn start(context: &Context) -> Option<(Option<&str>, Option<&str>)> {
    let text = context.field("start").map(str::trim).filter(|text| !text.is_empty())?;
    Some(if text.contains(':') { (Some(text), None) } else { (None, Some(text)) })
}

/// The payload as a file.
pub async fn download_payload(context: &Context, id: &str) -> Answer {
    let bytes = context.api.bytes(Method::GET, &format!("/v1/jobs/{}/payload", segment(id)), None).await?;
    Ok(Reply::Raw(file(bytes.into(), &format!("{}-payload.json", short(id)))))
}

/// The result as a file.
pub async fn download_result(context: &Context, id: &str) -> Answer {
    let job: Job<'static> = context.api.get(&format!("/v1/jobs/{}", segment(id))).await?;
    let result = job.result.map(|result| result.get().to_owned()).unwrap_or_default();
    Ok(Reply::Raw(file(result.into(), &format!("{}-result.json", short(id)))))
}

/// An artifact as a file, as the API streams it.
pub async fn download_artifact(context: &Context, id: &str) -> Answer {
    let path = format!("/v1/artifacts/{}", segment(id));
    let response = context.api.respond(Method::GET, &path, None, None).await?;
    if !response.status().is_success() {
        // The API says why.
        context.api.bytes(Method::GET, &path, None).await?;
    }
    let (mut parts, body) = response.into_parts();
    // A page of the dashboard's own origin must never come from a worker.
    let name = format!("attachment; filename=\"{}\"", id.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    parts
        .headers
        .entry(CONTENT_DISPOSITION)
        .or_insert(HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment")));
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(Reply::Raw(axum::response::Response::from_parts(parts, body)))
}

/// A response that browsers save instead of showing it.
fn file(body: axum::body::Body, name: &str) -> axum::response::Response {
    let safe: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).collect();
    let mut response = axum::response::Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{safe}\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    response
}
