//! `laneway jobs cancel`, `retry`, `reschedule`, `priority` and `delete` for jobs that are named.

use laneway_wire::{Job, JobPatchRequest, Priority};
use reqwest::Method;

use super::{Act, find};
use crate::client::Client;
use crate::commands::submit::summary;
use crate::exit::{self, CliError, Exit};
use crate::output::{Output, Paint};

/// Does the same with every job. A failure is reported and does not stop the others; the command ends with an error
/// then.
pub async fn each(output: &Output, client: &Client, jobs: &[String], act: Act<'_>) -> anyhow::Result<()> {
    let verb = act.verb();
    let mut failed = Vec::new();
    for name in jobs {
        match one(output, client, name, act).await {
            Ok(()) => {}
            // A single job needs no summary.
            Err(error) if jobs.len() == 1 => return Err(error),
            Err(error) => {
                print_failure(output, name, &error);
                failed.push(exit::code_of(&error));
            }
        }
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let exit = if failed.iter().all(|exit| exit == first) { *first } else { Exit::Rejected };
    let message = format!("{verb} failed for {} of {} jobs", failed.len(), jobs.len());
    Err(CliError::new(exit, message).into())
}

/// Does it with one job, and prints the job as it is then.
async fn one(output: &Output, client: &Client, name: &str, act: Act<'_>) -> anyhow::Result<()> {
    let id = find(client, name).await?;
    let path = ["v1", "jobs", &id];
    let patch = match act {
        Act::Cancel | Act::Retry => {
            let job: Job<'static> = client.post(&["v1", "jobs", &id, act.verb()]).await?;
            return print_job(output, &job);
        }
        Act::Delete => {
            client.delete(&path).await?;
            if output.json {
                return output.json_line(&serde_json::json!({"id": id, "deleted": true}));
            }
            output.line(format!("{id} deleted"));
            return Ok(());
        }
        Act::Priority(priority) => {
            JobPatchRequest { priority: Some(Priority::Number(priority)), ..JobPatchRequest::default() }
        }
        Act::Reschedule(start) => JobPatchRequest {
            run_at: start.run_at.as_deref().map(Into::into),
            delay: start.delay.as_deref().map(Into::into),
            ..JobPatchRequest::default()
        },
    };
    let job: Job<'static> = client.send(Method::PATCH, &path, &patch).await?;
    print_job(output, &job)
}

/// One line per job, in JSON too: there may be several.
fn print_job(output: &Output, job: &Job<'_>) -> anyhow::Result<()> {
    if output.json {
        return output.json_line(job);
    }
    output.line(summary(output, job));
    Ok(())
}

fn print_failure(output: &Output, name: &str, error: &anyhow::Error) {
    if output.json {
        let mut document = exit::document(error);
        document["job"] = name.into();
        return output.note(document.to_string());
    }
    output.note(format!("{}: {error:#}", output.paint(Paint::Red, name)));
}
