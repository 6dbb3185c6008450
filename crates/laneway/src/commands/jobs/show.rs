//! `laneway jobs show`: one job with its attempts and its history.

use laneway_wire::{AttemptList, Delivery, EventList, Job};
use serde::Serialize;

use crate::client::Client;
use crate::commands::{deliveries, events};
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};
use crate::table::{Cell, Table};

/// Everything about a job, as `--json` gives it.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    job: Job<'static>,
    attempts: AttemptList,
    events: EventList,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<Delivery>,
}

/// Shows a job.
pub async fn run(screen: &Screen, client: &Client, id: &str) -> anyhow::Result<()> {
    let job: Job<'static> = client.get(&["v1", "jobs", id], &[]).await?;
    let attempts: AttemptList = client.get(&["v1", "jobs", id, "attempts"], &[]).await?;
    let events: EventList = client.get(&["v1", "jobs", id, "events"], &[]).await?;
    let delivery = deliveries::of_job(client, &job).await?;
    if screen.json {
        return screen.document(&Whole { job, attempts, events, delivery });
    }
    print_facts(screen, &job);
    if !attempts.attempts.is_empty() {
        screen.line("");
        attempts_table(&attempts).print(screen);
    }
    if let Some(delivery) = &delivery {
        screen.line("");
        deliveries::print(screen, delivery);
    }
    screen.line("");
    for event in &events.events {
        screen.line(history_line(screen, event));
    }
    Ok(())
}

/// How a job ended, for `--wait`.
pub fn print_end(screen: &Screen, job: &Job<'_>) {
    let took = job.finished_at.as_deref().and_then(|end| moment::between(&job.created_at, end));
    let state = screen.paint(state_paint(&job.state), &job.state);
    screen.line(format!("{}  {state}  {}  after {}", job.id, job.kind, took.unwrap_or_default()));
    if let Some(result) = &job.result {
        screen.line(printable(result.get()));
    }
    if let Some(error) = &job.error {
        screen.line(screen.paint(Paint::Red, &printable(&format!("{}: {}", error.code, error.message))));
    }
}

fn print_facts(screen: &Screen, job: &Job<'_>) {
    let state = screen.paint(state_paint(&job.state), &job.state);
    let state = match &job.reason {
        Some(reason) => format!("{state} ({reason})"),
        None => state,
    };
    fact(screen, "job", &job.id);
    screen.line(format!("{} {state}", label(screen, "state")));
    fact(screen, "kind", &job.kind);
    fact(screen, "lane", &job.lane);
    fact(screen, "agent", &job.agent);
    fact(screen, "tenant", &job.tenant);
    maybe(screen, "session", job.session.as_deref());
    fact(screen, "priority", &job.priority.to_string());
    if !job.keys.is_empty() {
        let keys: Vec<String> = job.keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
        fact(screen, "keys", &keys.join(" "));
    }
    if !job.tags.is_empty() {
        fact(screen, "tags", &job.tags.join(" "));
    }
    print_times(screen, job);
    fact(screen, "attempts", &counts(job));
    maybe(screen, "retry of", job.retry_of.as_deref());
    maybe(screen, "callback", job.callback.as_deref());
    maybe(screen, "merged into", job.merged_into.as_deref());
    if let Some(schedule) = &job.schedule {
        let how = if schedule.by_hand { "by hand" } else { "slot" };
        fact(screen, "schedule", &format!("{} ({}), {how} {}", schedule.name, schedule.id, schedule.slot));
    }
    if let Some(progress) = &job.progress {
        fact(screen, "progress", &format!("{:.0} % {}", progress.fraction * 100.0, progress.message));
    }
    if let Some(error) = &job.error {
        fact(screen, "error", &format!("{}: {}", error.code, error.message));
    }
    if let Some(result) = &job.result {
        fact(screen, "result", result.get());
    }
    maybe(screen, "asked by", job.submitted_by.as_deref());
}

fn print_times(screen: &Screen, job: &Job<'_>) {
    let moments = [
        ("created", Some(&job.created_at)),
        ("started", job.started_at.as_ref()),
        ("finished", job.finished_at.as_ref()),
        ("not before", job.not_before.as_ref()),
        ("deadline", job.deadline.as_ref()),
    ];
    for (word, time) in moments {
        if let Some(time) = time {
            fact(screen, word, &format!("{time} ({})", moment::distance(time)));
        }
    }
    maybe(screen, "timeout", job.timeout.as_deref());
    maybe(screen, "queue limit", job.queue_timeout.as_deref());
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

/// The word of a line about something.
pub fn label(screen: &Screen, word: &str) -> String {
    screen.paint(Paint::Dim, &format!("{word:<11}"))
}

/// One line about something: a word and a text.
pub fn fact(screen: &Screen, word: &str, text: &str) {
    screen.line(format!("{} {}", label(screen, word), printable(text)));
}

/// The same where there is one.
pub fn maybe(screen: &Screen, word: &str, text: Option<&str>) {
    if let Some(text) = text {
        fact(screen, word, text);
    }
}

/// What a job or its handler wrote, without anything that could move the terminal's cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c }).collect()
}

fn attempts_table(list: &AttemptList) -> Table {
    let mut table =
        Table::new().right("TRY").left("ENDED").left("PLACE").left("STARTED").left("RAN").flexible("ERROR");
    for attempt in &list.attempts {
        let started = attempt.started_at.as_deref().or(attempt.opened_at.as_deref());
        let ran =
            started.zip(attempt.finished_at.as_deref()).and_then(|(from, to)| moment::between(from, to));
        table.row(vec![
            Cell::plain(attempt.attempt),
            Cell::painted(&attempt.state, state_paint(&attempt.state)),
            Cell::maybe(attempt.place.as_ref()),
            Cell::maybe(started.map(moment::clock)),
            Cell::maybe(ran),
            Cell::maybe(attempt.error.as_ref().map(|error| format!("{}: {}", error.code, error.message))),
        ]);
    }
    table
}

/// An event of one job: what all of them share is left out.
fn history_line(screen: &Screen, event: &laneway_wire::Event) -> String {
    let attempt = event.job.as_ref().map_or(0, |job| job.attempt);
    let reason = event.job.as_ref().and_then(|job| job.reason.as_deref());
    let mut line = format!("{}  {}", moment::clock(&event.at), events::kind(screen, &event.kind));
    if attempt > 0 {
        line.push_str(&format!("  attempt {attempt}"));
    }
    for part in [reason, event.detail.as_deref()].into_iter().flatten() {
        line.push_str(&format!("  {}", printable(part)));
    }
    if let Some(actor) = &event.actor {
        line.push_str(&screen.paint(Paint::Dim, &format!("  by {actor}")));
    }
    line
}
