//! Draws an open job: what it is, why it waits, its attempts and its log.

use jiff::Timestamp;
use laneway_wire::Attempt;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::data::Detail;
use super::draw::style;
use super::rows::age;
use crate::output::{Paint, one_line, state_paint};
use crate::time_args::{between, clock, short};

/// Most bytes of a result that are shown.
const RESULT_BYTES_MAX: usize = 2_000;

/// Draws the job from this line on.
pub fn draw(detail: &Detail, now: Timestamp, first: usize, color: bool, frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<Line<'_>> = lines(detail, now)
        .into_iter()
        .map(|parts| {
            Line::from_iter(parts.into_iter().map(|(text, paint)| Span::styled(text, style(paint, color))))
        })
        .collect();
    let last = lines.len().saturating_sub(usize::from(area.height));
    let first = first.min(last);
    let shown = lines.into_iter().skip(first).collect::<Vec<_>>();
    frame.render_widget(Paragraph::new(shown).wrap(Wrap { trim: false }), area);
}

/// How many lines a job has.
pub fn height(detail: &Detail) -> usize {
    lines(detail, Timestamp::UNIX_EPOCH).len()
}

type Part = (String, Paint);

/// A part whose text comes from clients.
fn foreign(text: &str, paint: Paint) -> Part {
    (one_line(text), paint)
}

fn heading(title: &str) -> Vec<Part> {
    vec![(title.to_owned(), Paint::Bold)]
}

fn lines(detail: &Detail, now: Timestamp) -> Vec<Vec<Part>> {
    let Detail { job, explanation, attempts, logs, more_logs } = detail;
    let mut lines = vec![vec![
        ("job ".to_owned(), Paint::Plain),
        foreign(&job.id, Paint::Bold),
        ("  ".to_owned(), Paint::Plain),
        foreign(&job.state, state_paint(&job.state)),
        foreign(&job.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})")), Paint::Dim),
    ]];
    let session = job.session.as_ref().map_or_else(String::new, |session| format!("  session {session}"));
    let of = format!("kind {}  lane {}  agent {}  tenant {}", job.kind, job.lane, job.agent, job.tenant);
    lines.push(vec![foreign(&(of + &session), Paint::Plain)]);
    let submitted = age(&job.created_at, now).map_or_else(String::new, |age| format!("{} ago", short(age)));
    let tries = format!("attempt {}  failures {}  losses {}", job.attempt, job.failures, job.losses);
    lines.push(vec![foreign(
        &format!("submitted {submitted}  priority {}  {tries}", job.priority),
        Paint::Plain,
    )]);
    if !job.keys.is_empty() {
        let keys: Vec<String> = job.keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
        lines.push(vec![foreign(&format!("keys {}", keys.join(" ")), Paint::Plain)]);
    }
    if let Some(error) = &job.error {
        lines.push(vec![
            foreign(&error.code, Paint::Red),
            foreign(&format!("  {}", error.message), Paint::Plain),
        ]);
    }
    if let Some(explanation) = explanation {
        lines.extend([Vec::new(), heading("explain"), vec![foreign(&explanation.summary, Paint::Yellow)]]);
        let blockers = explanation.blocked_by.iter();
        lines.extend(
            blockers.map(|blocker| {
                vec![foreign(&format!("- {}: {}", blocker.code, blocker.message), Paint::Plain)]
            }),
        );
    }
    lines.extend([Vec::new(), heading("attempts")]);
    lines.extend(attempt_lines(attempts));
    if let Some(result) = &job.result {
        let text: String = result.get().chars().take(RESULT_BYTES_MAX).collect();
        lines.extend([Vec::new(), heading("result"), vec![foreign(&text, Paint::Plain)]]);
    }
    lines.extend([Vec::new(), heading("log")]);
    for line in logs {
        let head = format!("{} {} ", clock(&line.at), line.stream);
        lines.push(vec![foreign(&head, Paint::Dim), foreign(&line.text, Paint::Plain)]);
    }
    if logs.is_empty() {
        lines.push(vec![("no lines".to_owned(), Paint::Dim)]);
    }
    if *more_logs {
        lines.push(vec![(format!("… `laneway jobs logs {}` shows the rest", one_line(&job.id)), Paint::Dim)]);
    }
    lines
}

fn attempt_lines(attempts: &[Attempt]) -> Vec<Vec<Part>> {
    let mut lines = Vec::new();
    for attempt in attempts {
        let took = attempt.started_at.as_deref().zip(attempt.finished_at.as_deref());
        let took = took.and_then(|(from, to)| between(from, to)).unwrap_or_default();
        let error = attempt
            .error
            .as_ref()
            .map_or_else(String::new, |error| format!("{}: {}", error.code, error.message));
        lines.push(vec![
            (format!("{:>3}  ", attempt.attempt), Paint::Plain),
            foreign(&format!("{:<12}", attempt.state), state_paint(&attempt.state)),
            (format!("{took:>8}  "), Paint::Plain),
            foreign(&error, Paint::Plain),
        ]);
    }
    if attempts.is_empty() {
        lines.push(vec![("none yet".to_owned(), Paint::Dim)]);
    }
    lines
}
