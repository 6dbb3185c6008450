//! `laneway jobs logs`: the log lines of a job.

use std::time::Duration;

use laneway_wire::{Job, LogLine, LogList};

use super::find;
use crate::client::Client;
use crate::output::{Output, Paint};
use crate::time_args;

/// Options of the command.
#[derive(Debug, clap::Args)]
pub struct LogsArgs {
    /// The job
    job: String,
    /// Continue until the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Start after the line with this number
    #[arg(long, default_value_t = 0, value_name = "LINE")]
    after: u64,
}

/// Lines are stored in batches a fraction of a second apart; polling more often shows nothing more.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Shows the lines, and with `--follow` continues until the job has ended.
pub async fn run(output: &Output, client: &Client, args: &LogsArgs) -> anyhow::Result<()> {
    let id = find(client, &args.job).await?;
    let mut after = args.after;
    loop {
        // Read before the lines, so that the last lines of a job that ends meanwhile are not missed.
        let ended = !args.follow || has_ended(client, &id).await?;
        loop {
            let list: LogList =
                client.get(&["v1", "jobs", &id, "logs"], &[("after", after.to_string())]).await?;
            for line in &list.lines {
                after = after.max(line.line);
                print_line(output, line)?;
            }
            if list.next.is_none() || list.lines.is_empty() {
                break;
            }
        }
        if ended {
            return Ok(());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

async fn has_ended(client: &Client, id: &str) -> anyhow::Result<bool> {
    let job: Job<'static> = client.get(&["v1", "jobs", id], &[]).await?;
    Ok(job.finished_at.is_some())
}

fn print_line(output: &Output, line: &LogLine) -> anyhow::Result<()> {
    if output.json {
        return output.json_line(line);
    }
    let head = format!("{}  {:>2} {:<6}", time_args::clock(&line.at), line.attempt, line.stream);
    let text: String = line.text.chars().map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect();
    output.line(format!("{}  {text}", output.paint(Paint::Dim, &head)));
    Ok(())
}
