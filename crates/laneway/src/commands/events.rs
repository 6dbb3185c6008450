//! `laneway events`: follows the stream of events.

use std::time::Duration;

use laneway_wire::{Event, Gap};

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
    if screen.json {
        screen.line(&message.data);
        return Ok(());
    }
    if let Ok(gap) = serde_json::from_str::<Gap>(&message.data) {
        let text =
            format!("… events {} to {} are no longer kept", gap.after + 1, gap.resumes_at.saturating_sub(1));
        screen.line(screen.paint(Paint::Yellow, &text));
        return Ok(());
    }
    let event: Event = serde_json::from_str(&message.data)?;
    screen.line(line(screen, &event));
    Ok(())
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
