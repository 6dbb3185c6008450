//! What the view shows, and the calls that read and change it.

use jiff::Timestamp;
use laneway_wire::{
    Attempt, AttemptList, Explanation, Job, JobList, Lane, LogLine, LogList, Stats, StatsHistory, Worker,
    WorkerList,
};

use super::state::{Action, Tab};
use crate::client::Client;
use crate::output::one_line;
use crate::short_id::short_id;

/// Most jobs in a list.
const JOBS_MAX: usize = 200;
/// Most log lines of an open job.
const LOGS_MAX: usize = 500;

/// The server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was read.
    pub now: Timestamp,
    pub stats: Option<Stats>,
    /// The last hour. `None` from a server that has none.
    pub history: Option<StatsHistory>,
    pub running: Vec<Job<'static>>,
    pub waiting: Vec<Job<'static>>,
    pub failed: Vec<Job<'static>>,
    pub workers: Vec<Worker>,
}

/// An open job.
#[derive(Clone, Debug)]
pub struct Detail {
    pub job: Job<'static>,
    pub explanation: Option<Explanation>,
    pub attempts: Vec<Attempt>,
    pub logs: Vec<LogLine>,
    /// True: there are more log lines.
    pub more_logs: bool,
}

/// Reads what these tabs need.
pub async fn read(client: &Client, tabs: &[Tab]) -> anyhow::Result<Snapshot> {
    let needs = |tab: Tab| tabs.contains(&tab);
    let stats = async { client.get::<Stats>(&["v1", "stats"], &[]).await.map(Some) };
    // A server of an earlier version has no history; a token may not list workers.
    let history = async { client.get::<StatsHistory>(&["v1", "stats", "history"], &[]).await.ok() };
    let workers = async {
        let list = async { client.get::<WorkerList>(&["v1", "workers"], &[]).await.ok() };
        if needs(Tab::Workers) { list.await.map_or_else(Vec::new, |list| list.workers) } else { Vec::new() }
    };
    let (stats, history, running, waiting, failed, workers) = tokio::join!(
        stats,
        history,
        jobs(client, needs(Tab::Running), "running,assigned", false),
        jobs(client, needs(Tab::Waiting), "queued,scheduled", true),
        jobs(client, needs(Tab::Failures), "failed,rejected", false),
        workers
    );
    let (running, waiting, failed) = (running?, waiting?, failed?);
    Ok(Snapshot { now: Timestamp::now(), stats: stats?, history, running, waiting, failed, workers })
}

async fn jobs(
    client: &Client,
    wanted: bool,
    state: &str,
    explain: bool,
) -> anyhow::Result<Vec<Job<'static>>> {
    if !wanted {
        return Ok(Vec::new());
    }
    let mut query = vec![("state", state.to_owned()), ("limit", JOBS_MAX.to_string())];
    if explain {
        query.push(("explain", "true".to_owned()));
    }
    let list: JobList<'static> = client.get(&["v1", "jobs"], &query).await?;
    Ok(list.jobs)
}

/// Reads a job with everything about it.
pub async fn open(client: &Client, id: &str) -> anyhow::Result<Detail> {
    let logs = [("limit", LOGS_MAX.to_string())];
    let (job_path, explain_path) = (["v1", "jobs", id], ["v1", "jobs", id, "explain"]);
    let (attempts_path, logs_path) = (["v1", "jobs", id, "attempts"], ["v1", "jobs", id, "logs"]);
    let (job, explanation, attempts, logs) = tokio::join!(
        client.get::<Job<'static>>(&job_path, &[]),
        client.get::<Explanation>(&explain_path, &[]),
        client.get::<AttemptList>(&attempts_path, &[]),
        client.get::<LogList>(&logs_path, &logs)
    );
    let (attempts, logs) = (attempts?, logs?);
    let more_logs = logs.next.is_some() && logs.lines.len() >= LOGS_MAX;
    Ok(Detail {
        job: job?,
        explanation: explanation.ok(),
        attempts: attempts.attempts,
        logs: logs.lines,
        more_logs,
    })
}

/// Carries out a change, and returns a sentence about it.
pub async fn change(client: &Client, action: &Action) -> anyhow::Result<String> {
    Ok(match action {
        Action::Pause(lane) => {
            let lane: Lane = client.post(&["v1", "lanes", lane, "pause"]).await?;
            format!("lane {} is paused", one_line(&lane.name))
        }
        Action::Resume(lane) => {
            let lane: Lane = client.post(&["v1", "lanes", lane, "resume"]).await?;
            format!("lane {} is open", one_line(&lane.name))
        }
        Action::Cancel(id) => {
            let job: Job<'static> = client.post(&["v1", "jobs", id, "cancel"]).await?;
            format!("job {} is {}", short_id(id), one_line(&job.state))
        }
        Action::Retry(id) => {
            let job: Job<'static> = client.post(&["v1", "jobs", id, "retry"]).await?;
            format!("job {} retries {}", short_id(&job.id), short_id(id))
        }
        Action::Quit | Action::Open(_) | Action::Reload => String::new(),
    })
}
