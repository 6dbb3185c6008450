//! Commands for jobs with filters: a bulk operation, and its progress.

use std::io::IsTerminal;
use std::time::Duration;

use laneway_wire::{BulkRequest, Operation};
use reqwest::Method;

use super::{Act, EndArgs};
use crate::client::Client;
use crate::commands::backup::bar;
use crate::exit::{CliError, Exit};
use crate::output::Output;

/// Time between two looks at an operation.
const POLL: Duration = Duration::from_millis(200);

/// Starts the operation, and waits until it has ended.
pub async fn run(output: &Output, client: &Client, args: &EndArgs, act: Act<'_>) -> anyhow::Result<()> {
    let action = act.verb();
    let request = request(args, act);
    let mut operation: Operation = client.send(Method::POST, &["v1", "jobs", "bulk"], &request).await?;
    let progress = bar(output);
    while operation.state == "running"
        && let Some(id) = operation.id.clone()
    {
        let ended = operation.done + operation.failed;
        progress.set_length(operation.matched.unwrap_or(ended).max(1));
        progress.set_position(ended);
        progress.set_message(action.to_owned());
        tokio::time::sleep(POLL).await;
        operation = client.get(&["v1", "operations", &id], &[]).await?;
    }
    progress.finish_and_clear();
    if output.json {
        output.document(&operation)?;
    } else {
        output.line(summary(&operation));
    }
    match operation.state.as_str() {
        "done" if operation.failed == 0 => Ok(()),
        "failed" => Err(CliError::new(Exit::Rejected, operation.error.unwrap_or_default()).into()),
        _ => {
            Err(CliError::new(Exit::Rejected, format!("{action} failed for {} jobs", operation.failed))
                .into())
        }
    }
}

fn request(args: &EndArgs, act: Act<'_>) -> BulkRequest {
    let (filter, dry_run) = (args.filter.selection(), args.dry_run);
    let request = BulkRequest { action: act.verb().to_owned(), filter, dry_run, ..BulkRequest::default() };
    match act {
        Act::Cancel | Act::Retry | Act::Delete => request,
        Act::Reschedule(start) => {
            BulkRequest { run_at: start.run_at.clone(), delay: start.delay.clone(), ..request }
        }
        Act::Priority(priority) => {
            BulkRequest { action: "change_priority".to_owned(), priority: Some(priority), ..request }
        }
    }
}

/// Asks whether the jobs of the filters are to be deleted. Without a terminal the command is rejected.
pub async fn confirm_delete(client: &Client, args: &EndArgs) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        let message = "deleting every job of a filter cannot be undone: repeat the command with --yes, or with --dry-run to \
                       see how many jobs match";
        return Err(CliError::new(Exit::Usage, message).into());
    }
    let dry = BulkRequest { dry_run: true, ..request(args, Act::Delete) };
    let found: Operation = client.send(Method::POST, &["v1", "jobs", "bulk"], &dry).await?;
    let count = found.matched.map_or("an unknown number of".to_owned(), |matched| matched.to_string());
    eprint!("delete {count} jobs? This cannot be undone. [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::new(Exit::Usage, "nothing was deleted").into()),
    }
}

fn summary(operation: &Operation) -> String {
    let matched = operation.matched.map_or("an unknown number of".to_owned(), |matched| matched.to_string());
    if operation.dry_run {
        return format!("{matched} jobs match; nothing was changed (--dry-run)");
    }
    let failures: Vec<String> =
        operation.failures.iter().map(|(code, count)| format!("{count} {code}")).collect();
    let failed = match operation.failed {
        0 => String::new(),
        failed => format!(", {failed} failed: {}", failures.join(", ")),
    };
    format!("{} {}: {} of {matched} jobs{failed}", operation.action, operation.state, operation.done)
}
