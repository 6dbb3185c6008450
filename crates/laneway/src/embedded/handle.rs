//! The started scheduler as its owner sees it: submit, wait, cancel, explain, change, stop.

use std::sync::Arc;
use std::time::Duration;

use laneway_core::engine::Explanation;
use laneway_core::{Bytes, Failure, JobEnd, JobId, JobState, Name, Origin, Reason, Refusal, Reply};
use laneway_runtime::LoadProbe;
use laneway_runtime::config::{Config, ConfigErrors};
use laneway_runtime::drain::Drained;
use laneway_runtime::executors::http::Forwarding;
use laneway_runtime::live_config::{ConfigWatch, LiveConfig, Reloaded};
use laneway_runtime::storage_probe::StorageProbe;
use laneway_runtime::{Fatal, Running, Scheduler, Stopped, Tabs, WaitError, Webhooks};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::watch;

use super::job::{InvalidJob, Job};

/// A running scheduler. Cheap to clone; all clones are the same scheduler.
///
/// Dropping all of them ends the loop as a crash would: nothing is lost, and what ran is tried again at the next start.
/// [`Laneway::shutdown`] is the polite way.
#[derive(Clone)]
pub struct Laneway {
    inner: Arc<Inner>,
}

struct Inner {
    scheduler: Scheduler,
    live: LiveConfig,
    tabs: Option<Tabs>,
    end: watch::Receiver<Option<End>>,
    _guards: Guards,
}

/// How the loop ended.
type End = Result<(), Arc<Fatal>>;

/// What works beside the loop for as long as it is held.
pub(super) struct Guards {
    #[expect(dead_code, reason = "held, not read")]
    pub(super) forwarding: Forwarding,
    #[expect(dead_code, reason = "held, not read")]
    pub(super) webhooks: Option<Webhooks>,
    #[expect(dead_code, reason = "held, not read")]
    pub(super) probe: Option<StorageProbe>,
    #[expect(dead_code, reason = "held, not read")]
    pub(super) load: LoadProbe,
    #[expect(dead_code, reason = "held, not read")]
    pub(super) watch: Option<ConfigWatch>,
}

/// Why a job was not submitted.
#[derive(Debug, Error)]
pub enum SubmitError {
    /// A part of it is not what it must be.
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// There is no room for it, or it cannot be. Nothing was stored.
    #[error("the job was refused: {0}")]
    Refused(Refusal),
    /// The scheduler has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a scheduler did not end well.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub struct ShutdownError(Arc<Fatal>);

/// Why a result cannot be read.
#[derive(Debug, Error)]
pub enum ResultError {
    /// The job did not succeed.
    #[error("the job ended as {state} ({reason}){}", failure.as_ref().map(|f| format!(": {}", f.message)).unwrap_or_default())]
    NotSucceeded {
        /// How it ended.
        state: JobState,
        /// Why it ended so.
        reason: Reason,
        /// What went wrong, where something did.
        failure: Option<Failure>,
    },
    /// The result is not the JSON that was asked for.
    #[error("the result is not what was asked for: {0}")]
    NotJson(#[from] serde_json::Error),
}

impl Laneway {
    pub(super) fn new(
        scheduler: Scheduler,
        live: LiveConfig,
        tabs: Option<Tabs>,
        running: Running,
        guards: Guards,
    ) -> Laneway {
        let (tell, end) = watch::channel(None);
        tokio::spawn(async move {
            let ended = running.ended().await.map_err(Arc::new);
            // Nobody may be left to hear it.
            let _ = tell.send(Some(ended));
        });
        Laneway { inner: Arc::new(Inner { scheduler, live, tabs, end, _guards: guards }) }
    }

    /// Submits a job. When this returns, the job is durable (as far as the store is).
    pub async fn submit(&self, job: Job) -> Result<JobHandle, SubmitError> {
        let submission = job.into_submission(origin())?;
        let submitted = self.inner.scheduler.submit(submission).await?.map_err(SubmitError::Refused)?;
        Ok(JobHandle { laneway: self.clone(), id: submitted.job, existing: submitted.existing })
    }

    /// Submits many jobs in one commit: each for itself, or with `atomic` all or none. One verdict for each, in order.
    pub async fn submit_all(
        &self,
        jobs: impl IntoIterator<Item = Job>,
        atomic: bool,
    ) -> Result<Vec<Result<JobHandle, Refusal>>, SubmitError> {
        let items: Result<Vec<_>, _> = jobs.into_iter().map(|job| job.into_submission(origin())).collect();
        let verdicts = self.inner.scheduler.submit_batch(items?, atomic).await?;
        let handle = |job: laneway_core::command::Submitted| JobHandle {
            laneway: self.clone(),
            id: job.job,
            existing: job.existing,
        };
        Ok(verdicts.into_iter().map(|verdict| verdict.map(handle)).collect())
    }

    /// A handle on a job that was submitted earlier; whether it exists shows when it is used.
    pub fn job(&self, id: JobId) -> JobHandle {
        JobHandle { laneway: self.clone(), id, existing: true }
    }

    /// Ends a job. False when no live job has this id: it has ended already, or never was.
    pub async fn cancel(&self, id: JobId) -> Result<bool, Stopped> {
        let reply = self.inner.scheduler.cancel(None, id, origin()).await?;
        Ok(matches!(reply, Reply::Canceled { .. }))
    }

    /// Why a job is not running: everything that holds it back. `None`: it has ended, or never was.
    pub async fn explain(&self, id: JobId) -> Result<Option<Explanation>, Stopped> {
        self.inner.scheduler.read(move |engine, now| engine.explain(now, None, id)).await
    }

    /// Changes settings while everything runs: a tree of keys as in the configuration file, such as
    /// `{"lanes": {"main": {"running_max": 8}}}`. All of it holds, and survives a restart, or none of it.
    pub async fn configure(&self, patch: serde_json::Value) -> Result<Arc<Config>, ConfigErrors> {
        self.inner.live.patch(patch, origin()).await
    }

    /// Reads the configuration file again.
    pub async fn reload(&self) -> Result<Reloaded, ConfigErrors> {
        self.inner.live.reload().await
    }

    /// Stops: nothing new starts, running handlers have until the configured limit (`server.drain_limit`) to end, the
    /// rest is handed back and runs at the next start.
    pub async fn shutdown(&self) -> Result<Drained, ShutdownError> {
        self.shutdown_within(self.inner.live.current().server.drain_limit).await
    }

    /// The same with another limit.
    pub async fn shutdown_within(&self, limit: Duration) -> Result<Drained, ShutdownError> {
        let drained = self.inner.scheduler.drain(limit).await;
        self.ended().await?;
        // A loop that had ended well before had nothing left to drain.
        Ok(drained.unwrap_or_default())
    }

    /// Waits until the scheduler has ended: by [`Laneway::shutdown`], or because its store failed.
    pub async fn ended(&self) -> Result<(), ShutdownError> {
        let mut end = self.inner.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Ok(())).map_err(ShutdownError),
            Err(_) => Ok(()),
        }
    }

    /// The handle below this one, for what is not here: events, figures, places of your own.
    pub fn scheduler(&self) -> &Scheduler {
        &self.inner.scheduler
    }

    /// Finds browser tabs, where [`crate::Embedded::tab_actions`] asked for it.
    pub fn tabs(&self) -> Option<&Tabs> {
        self.inner.tabs.as_ref()
    }

    /// The configuration while it runs.
    pub fn live_config(&self) -> &LiveConfig {
        &self.inner.live
    }
}

/// A submitted job.
#[derive(Clone)]
pub struct JobHandle {
    laneway: Laneway,
    id: JobId,
    existing: bool,
}

impl JobHandle {
    /// Its id.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// True when an equal submit made the job earlier.
    pub fn is_existing(&self) -> bool {
        self.existing
    }

    /// Waits until the job has ended.
    pub async fn wait(&self) -> Result<Ended, WaitError> {
        let view = self.laneway.inner.scheduler.wait(self.id).await?;
        view.end.map(|end| Ended { id: self.id, end }).ok_or(WaitError::NotFound)
    }

    /// Ends the job. False when it has ended already.
    pub async fn cancel(&self) -> Result<bool, Stopped> {
        self.laneway.cancel(self.id).await
    }

    /// Why the job is not running. `None`: it has ended.
    pub async fn explain(&self) -> Result<Option<Explanation>, Stopped> {
        self.laneway.explain(self.id).await
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
pub struct Ended {
    id: JobId,
    end: JobEnd,
}

impl Ended {
    /// The job.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// `Succeeded`, `Failed`, `Canceled` or `Rejected`.
    pub fn state(&self) -> JobState {
        self.end.state
    }

    /// True when it succeeded.
    pub fn succeeded(&self) -> bool {
        self.end.state == JobState::Succeeded
    }

    /// Why it ended so.
    pub fn reason(&self) -> Reason {
        self.end.reason
    }

    /// What the last failure was, where there was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.end.error.as_ref()
    }

    /// How many attempts were made.
    pub fn attempts(&self) -> u32 {
        self.end.attempts
    }

    /// What the handler gave back.
    pub fn result(&self) -> Option<&Bytes> {
        self.end.result.as_ref()
    }

    /// What the handler gave back, read as JSON; nothing is read as `null`. An error when the job did not succeed.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, ResultError> {
        if !self.succeeded() {
            let failure = self.end.error.clone();
            return Err(ResultError::NotSucceeded {
                state: self.end.state,
                reason: self.end.reason,
                failure,
            });
        }
        Ok(serde_json::from_slice(self.end.result.as_deref().unwrap_or(b"null"))?)
    }
}

/// Who asks, when the program itself does.
fn origin() -> Origin {
    Origin { actor: Name::fixed("embedded"), request: None }
}
