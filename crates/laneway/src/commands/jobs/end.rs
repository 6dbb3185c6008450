//! `laneway jobs cancel` and `laneway jobs retry`.

use laneway_wire::Job;

use super::find;
use crate::client::Client;
use crate::commands::submit::summary;
use crate::exit::{self, CliError, Exit};
use crate::output::{Output, Paint};

/// Cancels each of the jobs.
pub async fn cancel(output: &Output, client: &Client, jobs: &[String]) -> anyhow::Result<()> {
    each(output, client, jobs, "cancel").await
}

/// Retries each of the jobs and prints the new ones.
pub async fn retry(output: &Output, client: &Client, jobs: &[String]) -> anyhow::Result<()> {
    each(output, client, jobs, "retry").await
}

/// Calls the same verb for every job. A failure is reported and does not stop the others; the command ends with
/// an error then.
async fn each(output: &Output, client: &Client, jobs: &[String], verb: &str) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for name in jobs {
        match one(client, name, verb).await {
            Ok(job) => print_job(output, &job)?,
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

async fn one(client: &Client, name: &str, verb: &str) -> anyhow::Result<Job<'static>> {
    let id = find(client, name).await?;
    client.post(&["v1", "jobs", &id, verb]).await
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
