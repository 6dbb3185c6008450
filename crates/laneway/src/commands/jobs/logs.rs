//! `laneway jobs logs`: what the attempts of a job wrote.

use std::time::Duration;

use laneway_wire::{Job, LogLine, LogList};

use super::find;
use crate::client::Client;
use crate::moment;
use crate::screen::{Paint, Screen};

/// Which lines.
#[derive(Debug, clap::Args)]
pub struct LogsArgs {
    /// The job
    job: String,
    /// Go on until the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Begin after the line with this number
    #[arg(long, default_value_t = 0, value_name = "LINE")]
    after: u64,
}

/// Lines are made durable in batches a fraction of a second apart; looking more often shows nothing more.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Shows the lines, and with `--follow` goes on until the job has ended.
pub async fn run(screen: &Screen, client: &Client, args: &LogsArgs) -> anyhow::Result<()> {
    let id = find(client, &args.job).await?;
    let mut after = args.after;
    loop {
        // Asked before the lines are read, so that the last lines of a job that ends meanwhile are not missed.
        let ended = !args.follow || has_ended(client, &id).await?;
        loop {
            let list: LogList =
                client.get(&["v1", "jobs", &id, "logs"], &[("after", after.to_string())]).await?;
            for line in &list.lines {
                after = after.max(line.line);
                tell(screen, line)?;
            }
            if list.next.is_none() || list.lines.is_empty() {
                break;
            }
        }
        if ended {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn has_ended(client: &Client, id: &str) -> anyhow::Result<bool> {
    let job: Job<'static> = client.get(&["v1", "jobs", id], &[]).await?;
    Ok(job.finished_at.is_some())
}

fn tell(screen: &Screen, line: &LogLine) -> anyhow::Result<()> {
    if screen.json {
        return screen.json_line(line);
    }
    let head = format!("{}  {:>2} {:<6}", moment::clock(&line.at), line.attempt, line.stream);
    let text: String = line.text.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect();
    screen.line(format!("{}  {text}", screen.paint(Paint::Dim, &head)));
    Ok(())
}
