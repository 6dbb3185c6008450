//! `laneway jobs cancel` and `laneway jobs retry`: end jobs, or try ended ones again.

use laneway_wire::Job;

use super::find;
use crate::client::Client;
use crate::commands::submit::told;
use crate::exit::{self, Exit, Trouble};
use crate::screen::{Paint, Screen};

/// Cancels each of the jobs.
pub async fn cancel(screen: &Screen, client: &Client, jobs: &[String]) -> anyhow::Result<()> {
    each(screen, client, jobs, "cancel").await
}

/// Tries each of the jobs again and names the new ones.
pub async fn retry(screen: &Screen, client: &Client, jobs: &[String]) -> anyhow::Result<()> {
    each(screen, client, jobs, "retry").await
}

/// Does the same with every job. One that cannot be done is reported and does not keep the others from being done; the
/// run ends with an error then.
async fn each(screen: &Screen, client: &Client, jobs: &[String], verb: &str) -> anyhow::Result<()> {
    let mut failed = Vec::new();
    for name in jobs {
        match one(client, name, verb).await {
            Ok(job) => tell(screen, &job)?,
            // The only one needs no summary.
            Err(error) if jobs.len() == 1 => return Err(error),
            Err(error) => {
                tell_failed(screen, name, &error);
                failed.push(exit::code_of(&error));
            }
        }
    }
    let Some(first) = failed.first() else { return Ok(()) };
    let exit = if failed.iter().all(|exit| exit == first) { *first } else { Exit::Refused };
    let message = format!("{verb}: {} of {} jobs could not be done", failed.len(), jobs.len());
    Err(Trouble::new(exit, message).into())
}

async fn one(client: &Client, name: &str, verb: &str) -> anyhow::Result<Job<'static>> {
    let id = find(client, name).await?;
    client.post(&["v1", "jobs", &id, verb]).await
}

/// One line a job, in JSON too: there may be several.
fn tell(screen: &Screen, job: &Job<'_>) -> anyhow::Result<()> {
    if screen.json {
        return screen.json_line(job);
    }
    screen.line(told(screen, job));
    Ok(())
}

fn tell_failed(screen: &Screen, name: &str, error: &anyhow::Error) {
    if screen.json {
        let mut document = exit::document(error);
        document["job"] = name.into();
        return screen.aside(document.to_string());
    }
    screen.aside(format!("{}: {error:#}", screen.paint(Paint::Red, name)));
}
