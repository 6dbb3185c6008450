//! `laneway jobs show`: one job with its attempts and its history.

use laneway_wire::{AttemptList, Delivery, EventList, Job};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::commands::{deliveries, events};
use crate::exit::{Exit, code_of};
use crate::output::{Output, Paint, state_paint};
use crate::table::{Cell, Table, cut};
use crate::time_args;

/// The whole output of `--json`.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    job: Job<'static>,
    attempts: AttemptList,
    events: EventList,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<Delivery>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

/// Shows a job.
pub async fn run(output: &Output, client: &Client, id: &str, full: bool) -> anyhow::Result<()> {
    let job: Job<'static> = client.get(&["v1", "jobs", id], &[]).await?;
    let attempts: AttemptList = client.get(&["v1", "jobs", id, "attempts"], &[]).await?;
    let events: EventList = client.get(&["v1", "jobs", id, "events"], &[]).await?;
    let delivery = deliveries::of_job(client, &job).await?;
    let payload = payload(client, &job).await?;
    if output.json {
        return output.document(&Whole { job, attempts, events, delivery, payload });
    }
    print_fields(output, &job);
    let most = if full { usize::MAX } else { LINES_MAX };
    if let Some(payload) = payload.filter(|payload| payload.get() != "null") {
        print_json(output, "payload", payload.get(), most);
    }
    if let Some(result) = &job.result {
        print_json(output, "result", result.get(), most);
    }
    if !attempts.attempts.is_empty() {
        output.line("");
        attempts_table(&attempts).print(output);
    }
    if let Some(delivery) = &delivery {
        output.line("");
        deliveries::print(output, delivery);
    }
    output.line("");
    for event in &events.events {
        output.line(history_line(output, event));
    }
    Ok(())
}

/// The payload of the job. It may have been deleted with the job, or not be JSON if another API accepted it.
async fn payload(client: &Client, job: &Job<'_>) -> anyhow::Result<Option<Box<RawValue>>> {
    match client.get(&["v1", "jobs", &job.id, "payload"], &[]).await {
        Ok(payload) => Ok(Some(payload)),
        Err(error) if code_of(&error) == Exit::Unreachable => Err(error),
        Err(_) => Ok(None),
    }
}

/// Most lines of a payload or a result that are shown without `--full`.
const LINES_MAX: usize = 20;
/// Longest line of a payload or a result that is shown without `--full`, in characters.
const LINE_LEN_MAX: usize = 400;

/// Prints JSON, up to a number of lines.
fn print_json(output: &Output, name: &str, json: &str, most: usize) {
    let indented = serde_json::from_str::<Value>(json)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| json.to_owned());
    // Short JSON stays on one line, byte for byte.
    let text = if json.len() <= ONE_LINE_MAX && !json.contains('\n') { json } else { &indented };
    let text = printable(text);
    let lines: Vec<&str> = text.lines().collect();
    for (index, line) in lines.iter().take(most).enumerate() {
        let name = if index == 0 { name } else { "" };
        let line = if most == usize::MAX { (*line).to_owned() } else { cut(line, LINE_LEN_MAX) };
        output.line(format!("{} {line}", label(output, name)));
    }
    if lines.len() > most
        || (most != usize::MAX && lines.iter().any(|line| line.chars().count() > LINE_LEN_MAX))
    {
        let more = format!("{} lines, {} bytes in all; --full shows them", lines.len(), json.len());
        output.line(format!("{} {}", label(output, ""), output.paint(Paint::Dim, &more)));
    }
}

/// JSON of at most this many bytes is shown on one line.
const ONE_LINE_MAX: usize = 60;

/// Prints how a job ended, for `--wait`.
pub fn print_end(output: &Output, job: &Job<'_>) {
    let took = job.finished_at.as_deref().and_then(|end| time_args::between(&job.created_at, end));
    let state = output.paint(state_paint(&job.state), &job.state);
    output.line(format!("{}  {state}  {}  after {}", job.id, job.kind, took.unwrap_or_default()));
    if let Some(result) = &job.result {
        output.line(printable(result.get()));
    }
    if let Some(error) = &job.error {
        output.line(output.paint(Paint::Red, &printable(&format!("{}: {}", error.code, error.message))));
    }
}

fn print_fields(output: &Output, job: &Job<'_>) {
    let state = output.paint(state_paint(&job.state), &job.state);
    let state = match &job.reason {
        Some(reason) => format!("{state} ({reason})"),
        None => state,
    };
    field(output, "job", &job.id);
    output.line(format!("{} {state}", label(output, "state")));
    field(output, "kind", &job.kind);
    field(output, "lane", &job.lane);
    field(output, "agent", &job.agent);
    field(output, "tenant", &job.tenant);
    maybe(output, "session", job.session.as_deref());
    field(output, "priority", &job.priority.to_string());
    if !job.keys.is_empty() {
        let keys: Vec<String> = job.keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
        field(output, "keys", &keys.join(" "));
    }
    if !job.tags.is_empty() {
        field(output, "tags", &job.tags.join(" "));
    }
    print_times(output, job);
    field(output, "attempts", &counts(job));
    maybe(output, "retry of", job.retry_of.as_deref());
    maybe(output, "callback", job.callback.as_deref());
    maybe(output, "merged into", job.merged_into.as_deref());
    if let Some(schedule) = &job.schedule {
        let how = if schedule.by_hand { "by hand" } else { "slot" };
        field(output, "schedule", &format!("{} ({}), {how} {}", schedule.name, schedule.id, schedule.slot));
    }
    if let Some(progress) = &job.progress {
        field(output, "progress", &format!("{:.0} % {}", progress.fraction * 100.0, progress.message));
    }
    if let Some(error) = &job.error {
        field(output, "error", &format!("{}: {}", error.code, error.message));
    }
    maybe(output, "asked by", job.submitted_by.as_deref());
}

fn print_times(output: &Output, job: &Job<'_>) {
    let moments = [
        ("created", Some(&job.created_at)),
        ("started", job.started_at.as_ref()),
        ("finished", job.finished_at.as_ref()),
        ("not before", job.not_before.as_ref()),
        ("deadline", job.deadline.as_ref()),
    ];
    for (name, time) in moments {
        if let Some(time) = time {
            field(output, name, &format!("{time} ({})", time_args::distance(time)));
        }
    }
    maybe(output, "timeout", job.timeout.as_deref());
    maybe(output, "queue limit", job.queue_timeout.as_deref());
}

fn counts(job: &Job<'_>) -> String {
    let mut text = job.attempt.to_string();
    if job.failures > 0 {
        text.push_str(&format!(", {} failed", job.failures));
    }
    if job.losses > 0 {
        text.push_str(&format!(", {} lost", job.losses));
    }
    text
}

/// The label of a line.
pub fn label(output: &Output, name: &str) -> String {
    output.paint(Paint::Dim, &format!("{name:<11}"))
}

/// Prints one line: a label and a text.
pub fn field(output: &Output, name: &str, text: &str) {
    output.line(format!("{} {}", label(output, name), printable(text)));
}

/// The same if there is a text.
pub fn maybe(output: &Output, name: &str, text: Option<&str>) {
    if let Some(text) = text {
        field(output, name, text);
    }
}

/// A text from a job or its handler, without characters that control the terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c }).collect()
}

fn attempts_table(list: &AttemptList) -> Table {
    let mut table = Table::new()
        .right("TRY")
        .left("ENDED")
        .left("EXECUTOR")
        .left("STARTED")
        .left("RAN")
        .flexible("ERROR");
    for attempt in &list.attempts {
        let started = attempt.started_at.as_deref().or(attempt.opened_at.as_deref());
        let ran =
            started.zip(attempt.finished_at.as_deref()).and_then(|(from, to)| time_args::between(from, to));
        table.row(vec![
            Cell::plain(attempt.attempt),
            Cell::painted(&attempt.state, state_paint(&attempt.state)),
            Cell::maybe(attempt.executor.as_ref()),
            Cell::maybe(started.map(time_args::clock)),
            Cell::maybe(ran),
            Cell::maybe(attempt.error.as_ref().map(|error| format!("{}: {}", error.code, error.message))),
        ]);
    }
    table
}

/// An event of one job, without the fields that all of them share.
fn history_line(output: &Output, event: &laneway_wire::Event) -> String {
    let attempt = event.job.as_ref().map_or(0, |job| job.attempt);
    let reason = event.job.as_ref().and_then(|job| job.reason.as_deref());
    let mut line = format!("{}  {}", time_args::clock(&event.at), events::kind(output, &event.kind));
    if attempt > 0 {
        line.push_str(&format!("  attempt {attempt}"));
    }
    for part in [reason, event.detail.as_deref()].into_iter().flatten() {
        line.push_str(&format!("  {}", printable(part)));
    }
    if let Some(actor) = &event.actor {
        line.push_str(&output.paint(Paint::Dim, &format!("  by {actor}")));
    }
    line
}
