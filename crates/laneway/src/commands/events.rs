//! `laneway events`: follows the stream of events.

use std::time::Duration;

use laneway_wire::{Event, Gap, JobProgress};
use serde_json::{Map, Value};

use crate::client::Client;
use crate::exit::{Exit, Trouble, code_of};
use crate::moment;
use crate::screen::{Paint, Screen, state_paint};
use crate::sse::{Message, Messages};

/// Which events.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  laneway events                          what happens from now on
  laneway events --after 0                everything that is still kept, then what happens
  laneway events --after 0 --until-idle   everything that is still kept, and no more
  laneway --json events | jq -r .type     one JSON object a line")]
pub struct EventsArgs {
    /// Begin after the event with this number; 0 is the oldest that is kept
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// End when nothing happens for a second
    #[arg(long)]
    until_idle: bool,
}

/// How long `--until-idle` waits for one more event.
const IDLE: Duration = Duration::from_secs(1);

/// Follows the stream until Ctrl-C. A broken connection is taken up again after the last event that was seen.
pub async fn run(screen: &Screen, client: &Client, args: &EventsArgs) -> anyhow::Result<()> {
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
                after = message.id.or(after);
                show(screen, &message)?;
            }
            Ok(None) | Err(_) => messages = reconnect(client, after).await?,
        }
    }
}

/// Tries for a while to reach the server again: a restart is no reason to stop watching.
async fn reconnect(client: &Client, after: Option<u64>) -> anyhow::Result<Messages> {
    for wait_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400] {
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        match client.stream(&["v1", "events"], &[], after).await {
            Ok(response) => return Ok(Messages::new(response)),
            Err(error) if code_of(&error) == Exit::Unreachable => {}
            Err(error) => return Err(error),
        }
    }
    Err(Trouble::new(Exit::Unreachable, "the server went away and did not come back").into())
}

fn show(screen: &Screen, message: &Message) -> anyhow::Result<()> {
    let text = if screen.json { typed(message)? } else { told(screen, message)? };
    screen.line(text);
    Ok(())
}

/// A frame on one line for people. Its name says what its data is: gaps and reports of progress are no events and have
/// no number.
fn told(screen: &Screen, message: &Message) -> anyhow::Result<String> {
    match message.event.as_str() {
        "gap" => {
            let Gap { after, resumes_at } = serde_json::from_str(&message.data)?;
            let text = if resumes_at > after {
                format!("… events {} to {} are no longer kept", after + 1, resumes_at.saturating_sub(1))
            } else {
                format!(
                    "… event {after} was never given here: the server counts anew; going on with {resumes_at}"
                )
            };
            Ok(screen.paint(Paint::Yellow, &text))
        }
        PROGRESS => Ok(progress_line(screen, &serde_json::from_str(&message.data)?)),
        _ => Ok(line(screen, &serde_json::from_str(&message.data)?)),
    }
}

/// A frame as one JSON object with a `type`, which gaps and reports of progress do not have of their own.
fn typed(message: &Message) -> anyhow::Result<String> {
    if !matches!(message.event.as_str(), "gap" | PROGRESS) {
        return Ok(message.data.clone());
    }
    let mut object: Map<String, Value> = serde_json::from_str(&message.data)?;
    object.insert("type".to_owned(), message.event.as_str().into());
    Ok(Value::Object(object).to_string())
}

/// What frames with a report of progress are called.
const PROGRESS: &str = "job.progress";

fn progress_line(screen: &Screen, report: &JobProgress) -> String {
    let JobProgress { job_id, attempt, progress } = report;
    let said: String = progress.message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (number, percent) = (screen.paint(Paint::Dim, "     –"), progress.fraction * 100.0);
    let at = moment::clock(&progress.at);
    let text = format!(
        "{number}  {at}  {}  {job_id}  attempt {attempt}  {percent:.0} %  {said}",
        kind(screen, PROGRESS)
    );
    text.trim_end().to_owned()
}

/// An event on one line.
pub fn line(screen: &Screen, event: &Event) -> String {
    let number = screen.paint(Paint::Dim, &format!("{:>6}", event.number));
    let mut text = format!("{number}  {}  {}", moment::clock(&event.at), kind(screen, &event.kind));
    if let Some(job) = &event.job {
        text.push_str(&format!("  {}  {}  lane {}  agent {}", job.id, job.kind, job.lane, job.agent));
        if job.attempt > 0 {
            text.push_str(&format!("  attempt {}", job.attempt));
        }
        if let Some(reason) = &job.reason {
            text.push_str(&format!("  {reason}"));
        }
    }
    if let Some(detail) = &event.detail {
        let clean: String = detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&format!("  {clean}"));
    }
    if let Some(actor) = &event.actor {
        text.push_str(&screen.paint(Paint::Dim, &format!("  by {actor}")));
    }
    text
}

/// What happened, in the colour of the state it leads to, padded for a column.
pub fn kind(screen: &Screen, kind: &str) -> String {
    let state = match kind.rsplit('.').next().unwrap_or_default() {
        "started" => "running",
        "submitted" => "queued",
        "denied" | "refused" => "failed",
        other => other,
    };
    screen.paint(state_paint(state), &format!("{kind:<16}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Screen = Screen { json: false, color: false, tty: false };

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
            told(&PLAIN, &progress).unwrap(),
            "     –  08:09:10.000  job.progress      j1  attempt 2  50 %  half"
        );
        let gap = frame("gap", r#"{"after":4,"resumes_at":9}"#);
        assert_eq!(told(&PLAIN, &gap).unwrap(), "… events 5 to 8 are no longer kept");
        let anew = told(&PLAIN, &frame("gap", r#"{"after":9,"resumes_at":4}"#)).unwrap();
        assert!(anew.contains("going on with 4"), "{anew}");
        let event = frame("job.queued", r#"{"number":7,"at":"2030-01-01T08:09:10Z","type":"job.queued"}"#);
        assert_eq!(told(&PLAIN, &event).unwrap(), "     7  08:09:10.000  job.queued      ");
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
