//! `laneway jobs cancel` and `laneway jobs retry` with filters: a bulk operation, and its progress.

use std::time::Duration;

use laneway_wire::{BulkRequest, Operation};
use reqwest::Method;

use super::EndArgs;
use crate::client::Client;
use crate::commands::backup::bar;
use crate::exit::{CliError, Exit};
use crate::output::Output;

/// Time between two looks at an operation.
const POLL: Duration = Duration::from_millis(200);

/// Starts the operation, and waits until it has ended.
pub async fn run(output: &Output, client: &Client, args: &EndArgs, action: &str) -> anyhow::Result<()> {
    let request =
        BulkRequest { action: action.to_owned(), filter: args.filter.selection(), dry_run: args.dry_run };
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
