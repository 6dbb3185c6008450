//! `laneway events`: follows the event stream.

use std::time::Duration;

use laneway_wire::{Event, EventError, Gap, JobProgress};
use serde_json::{Map, Value};

use crate::client::Client;
use crate::exit::{CliError, Exit, code_of};
use crate::output::{Output, Paint, state_paint};
use crate::sse::{Message, Messages};
use crate::time_args;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway events                          new events
  laneway events --after 0                all events that are kept, then new ones
  laneway events --after 0 --until-idle   all events that are kept, and no more
  laneway --json events | jq -r .type     one JSON object per line")]
pub struct EventsArgs {
    /// Start after the event with this number; 0 is the oldest that is kept
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// End when no event comes for a second
    #[arg(long)]
    until_idle: bool,
}

/// How long `--until-idle` waits for another event.
const IDLE: Duration = Duration::from_secs(1);

/// Follows the stream until Ctrl-C. A broken connection is resumed after the last event.
pub async fn run(output: &Output, client: &Client, args: &EventsArgs) -> anyhow::Result<()> {
    let mut after = args.after;
    let mut messages = Messages::new(client.stream(&["v1", "events"], &[], after).await?);
    loop {
        let next = if args.until_idle {
            match tokio::time::timeout(IDLE, messages.next()).await {
                Ok(next) => next,
                Err(_) => return Ok(()),
            }
        } else {
            messages.next().await
        };
        match next {
            Ok(Some(message)) => {
                after = message.id.or_else(|| cut_off_after(&message)).or(after);
                show(output, &message)?;
            }
            Ok(None) | Err(_) => messages = reconnect(client, after).await?,
        }
    }
}

/// Tries to reconnect for a while: the server may be restarting.
async fn reconnect(client: &Client, after: Option<u64>) -> anyhow::Result<Messages> {
    for wait_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400] {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        match client.stream(&["v1", "events"], &[], after).await {
            Ok(response) => return Ok(Messages::new(response)),
            Err(error) if code_of(&error) == Exit::Unreachable => {}
            Err(error) => return Err(error),
        }
    }
    Err(CliError::new(Exit::Unreachable, "the server went away and did not come back").into())
}

/// Where to resume after the server has disconnected a slow reader.
fn cut_off_after(message: &Message) -> Option<u64> {
    let gap: Gap = serde_json::from_str(&message.data).ok().filter(|_| message.event == "gap")?;
    gap.reason.is_some().then_some(gap.after)
}

fn show(output: &Output, message: &Message) -> anyhow::Result<()> {
    let text = if output.json { typed(message)? } else { text_of(output, message)? };
    output.line(text);
    Ok(())
}

/// A frame as one line for people. Gaps and progress reports are not events and have no number.
fn text_of(output: &Output, message: &Message) -> anyhow::Result<String> {
    match message.event.as_str() {
        "gap" => {
            let Gap { after, resumes_at, reason } = serde_json::from_str(&message.data)?;
            let text = if reason.is_some() {
                format!("… fell behind; resuming after event {after}")
            } else if resumes_at > after {
                format!("… events {} to {} are no longer kept", after + 1, resumes_at.saturating_sub(1))
            } else {
                format!("… event {after} does not exist on this server; resuming with {resumes_at}")
            };
            Ok(output.paint(Paint::Yellow, &text))
        }
        PROGRESS => Ok(progress_line(output, &serde_json::from_str(&message.data)?)),
        _ => Ok(line(output, &serde_json::from_str(&message.data)?)),
    }
}

/// A frame as one JSON object with a `type`, which gaps and progress reports do not have themselves.
fn typed(message: &Message) -> anyhow::Result<String> {
    if !matches!(message.event.as_str(), "gap" | PROGRESS) {
        return Ok(message.data.clone());
    }
    let mut object: Map<String, Value> = serde_json::from_str(&message.data)?;
    object.insert("type".to_owned(), message.event.as_str().into());
    Ok(Value::Object(object).to_string())
}

/// The event name of progress reports.
const PROGRESS: &str = "job.progress";

fn progress_line(output: &Output, report: &JobProgress) -> String {
    let JobProgress { job_id, attempt, progress } = report;
    let message: String = progress.message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (number, percent) = (output.paint(Paint::Dim, "     –"), progress.fraction * 100.0);
    let at = time_args::clock(&progress.at);
    let text = format!(
        "{number}  {at}  {}  {job_id}  attempt {attempt}  {percent:.0} %  {message}",
        kind(output, PROGRESS)
    );
    text.trim_end().to_owned()
}

/// An event on one line.
pub fn line(output: &Output, event: &Event) -> String {
    let number = output.paint(Paint::Dim, &format!("{:>6}", event.number));
    let mut text = format!("{number}  {}  {}", time_args::clock(&event.at), kind(output, &event.kind));
    if let Some(job) = &event.job {
        text.push_str(&format!("  {}  {}  lane {}  agent {}", job.id, job.kind, job.lane, job.agent));
        if job.attempt > 0 {
            text.push_str(&format!("  attempt {}", job.attempt));
        }
        if let Some(reason) = &job.reason {
            text.push_str(&format!("  {reason}"));
        }
    }
    if let Some(EventError { code, message }) = &event.error {
        let clean: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&output.paint(Paint::Red, &format!("  {code}: {clean}")));
    }
    if let Some(detail) = &event.detail {
        let clean: String = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&format!("  {clean}"));
    }
    if let Some(actor) = &event.actor {
        text.push_str(&output.paint(Paint::Dim, &format!("  by {actor}")));
    }
    text
}

/// The type of an event, in the colour of the state it leads to, padded for a column.
pub fn kind(output: &Output, kind: &str) -> String {
    let state = match kind.rsplit('.').next().unwrap_or_default() {
        "started" => "running",
        "submitted" => "queued",
        "denied" | "rejected" => "failed",
        other => other,
    };
    output.paint(state_paint(state), &format!("{kind:<16}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Output = Output { json: false, color: false, tty: false, columns: None };

    fn frame(event: &str, data: &str) -> Message {
        Message { event: event.into(), id: None, data: data.into() }
    }

    #[test]
    fn frames_are_read_by_their_names() {
        let progress = frame(
            "job.progress",
            r#"{"job_id":"j1","attempt":2,"progress":{"fraction":0.5,"message":"half\u001b","at":"2030-01-01T08:09:10Z"}}"#,
        );
        assert_eq!(
            text_of(&PLAIN, &progress).unwrap(),
            "     –  08:09:10.000  job.progress      j1  attempt 2  50 %  half"
        );
        let gap = frame("gap", r#"{"after":4,"resumes_at":9}"#);
        assert_eq!(text_of(&PLAIN, &gap).unwrap(), "… events 5 to 8 are no longer kept");
        let anew = text_of(&PLAIN, &frame("gap", r#"{"after":9,"resumes_at":4}"#)).unwrap();
        assert!(anew.contains("resuming with 4"), "{anew}");
        let event = frame("job.queued", r#"{"number":7,"at":"2030-01-01T08:09:10Z","type":"job.queued"}"#);
        assert_eq!(text_of(&PLAIN, &event).unwrap(), "     7  08:09:10.000  job.queued      ");
    }

    #[test]
    fn defect_19_failures_are_shown_with_their_error() {
        let failed = frame(
            "job.failed",
            r#"{"number":8,"at":"2030-01-01T08:09:10Z","type":"job.failed","error":{"code":"http_status","message":"503\nlater"},
            "job":{"id":"j1","kind":"k","lane":"main","agent":"a","attempt":1,"reason":"permanent"}}"#,
        );
        assert_eq!(
            text_of(&PLAIN, &failed).unwrap(),
            "     8  08:09:10.000  job.failed        j1  k  lane main  agent a  attempt 1  permanent  http_status: 503 later"
        );
    }

    #[test]
    fn every_json_object_has_a_type() {
        let frames = [
            frame("job.progress", r#"{"job_id":"j1"}"#),
            frame("gap", r#"{"after":4,"resumes_at":9}"#),
            frame("job.queued", r#"{"number":7,"type":"job.queued"}"#),
        ];
        for frame in frames {
            let object: Value = serde_json::from_str(&typed(&frame).unwrap()).unwrap();
            assert_eq!(object["type"], frame.event.as_str(), "{object}");
        }
    }
}
