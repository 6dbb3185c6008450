//! `laneway jobs cancel` and `laneway jobs retry`: end jobs, or try ended ones again.

use laneway_wire::Job;

use super::find;
use crate::client::Client;
use crate::commands::submit::told;
use crate::screen::Screen;

/// Cancels each of the jobs. The first that cannot be canceled ends the run; the ones before it are canceled.
pub async fn cancel(screen: &Screen, client: &Client, jobs: &[String]) -> anyhow::Result<()> {
    for job in jobs {
        let id = find(client, job).await?;
        let job: Job<'static> = client.post(&["v1", "jobs", &id, "cancel"]).await?;
        tell(screen, &job)?;
    }
    Ok(())
}

/// Tries each of the jobs again and names the new ones.
pub async fn retry(screen: &Screen, client: &Client, jobs: &[String]) -> anyhow::Result<()> {
    for job in jobs {
        let id = find(client, job).await?;
        let job: Job<'static> = client.post(&["v1", "jobs", &id, "retry"]).await?;
        tell(screen, &job)?;
    }
    Ok(())
}

/// One line a job, in JSON too: there may be several.
fn tell(screen: &Screen, job: &Job<'_>) -> anyhow::Result<()> {
    if screen.json {
        return screen.json_line(job);
    }
    screen.line(told(screen, job));
    Ok(())
}
