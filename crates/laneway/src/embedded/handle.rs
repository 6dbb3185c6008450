//! The started scheduler: submit, wait, cancel, explain, configure, stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_browser::{Browsers, Tabs};
use laneway_core::engine::Explanation;
use laneway_core::{
    Bytes, Failure, JobEnd, JobId, JobPatch, JobState, Name, Origin, Reason, Rejection, Reply,
};
use laneway_runtime::LoadProbe;
use laneway_runtime::config::{Config, ConfigErrors};
use laneway_runtime::drain::Drained;
use laneway_runtime::executors::http::Forwarding;
use laneway_runtime::live_config::{ConfigWatch, LiveConfig, Reloaded};
use laneway_runtime::otel::Exporter;
use laneway_runtime::storage_probe::StorageProbe;
use laneway_runtime::{Fatal, Running, Scheduler, Stopped, WaitError, Webhooks};
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::watch;

use super::job::{InvalidJob, Job};

/// A running scheduler. Cheap to clone; all clones share the scheduler.
///
/// Dropping all clones ends the loop like a crash: nothing is lost, and running jobs are retried at the next
/// start. [`Laneway::shutdown`] is the graceful stop.
#[derive(Clone)]
pub struct Laneway {
    inner: Arc<Inner>,
}

struct Inner {
    scheduler: Scheduler,
    live: LiveConfig,
    tabs: Option<Tabs>,
    browsers: Option<Browsers>,
    end: watch::Receiver<Option<End>>,
    guards: Guards,
}

/// How the loop ended.
type End = Result<(), Arc<Fatal>>;

/// Tasks beside the loop, which run as long as this is held.
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
    pub(super) exporter: Option<Exporter>,
}

/// Why a job was not submitted.
#[derive(Debug, Error)]
pub enum SubmitError {
    /// A part of it is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidJob),
    /// A limit is reached, or the job is invalid. Nothing was stored.
    #[error("the job was rejected: {0}")]
    Rejected(Rejection),
    /// The scheduler has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a job was not changed or deleted.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// There is no such job; for a change: no such job that has not ended.
    #[error("there is no such job")]
    NotFound,
    /// The job runs, has not ended, or is in use. Nothing was changed.
    #[error("the job was not changed: {0}")]
    Rejected(Rejection),
    /// The scheduler has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a scheduler ended with an error.
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
        /// Why it ended.
        reason: Reason,
        /// The failure, if there was one.
        failure: Option<Failure>,
    },
    /// The result is not the requested JSON.
    #[error("the result has another type: {0}")]
    NotJson(#[from] serde_json::Error),
}

impl Laneway {
    pub(super) fn new(
        scheduler: Scheduler,
        live: LiveConfig,
        (tabs, browsers): (Option<Tabs>, Option<Browsers>),
        running: Running,
        guards: Guards,
    ) -> Laneway {
        let (sender, end) = watch::channel(None);
        tokio::spawn(async move {
            let ended = running.ended().await.map_err(Arc::new);
            // There may be no receiver left.
            let _ = sender.send(Some(ended));
        });
        Laneway { inner: Arc::new(Inner { scheduler, live, tabs, browsers, end, guards }) }
    }

    /// Submits a job. When this returns, the job is durable (as far as the store is).
    pub async fn submit(&self, job: Job) -> Result<JobHandle, SubmitError> {
        let submission = job.into_submission(origin())?;
        let submitted = self.inner.scheduler.submit(submission).await?.map_err(SubmitError::Rejected)?;
        Ok(JobHandle { laneway: self.clone(), id: submitted.job, existing: submitted.existing })
    }

    /// Submits many jobs in one commit: each on its own, or with `atomic` all or none. Returns one verdict
    /// each, in order.
    pub async fn submit_all(
        &self,
        jobs: impl IntoIterator<Item = Job>,
        atomic: bool,
    ) -> Result<Vec<Result<JobHandle, Rejection>>, SubmitError> {
        let items: Result<Vec<_>, _> = jobs.into_iter().map(|job| job.into_submission(origin())).collect();
        let verdicts = self.inner.scheduler.submit_batch(items?, atomic).await?;
        let handle = |job: laneway_core::command::Submitted| JobHandle {
            laneway: self.clone(),
            id: job.job,
            existing: job.existing,
        };
        Ok(verdicts.into_iter().map(|verdict| verdict.map(handle)).collect())
    }

    /// A handle for a job that was submitted earlier. Whether it exists is checked when it is used.
    pub fn job(&self, id: JobId) -> JobHandle {
        JobHandle { laneway: self.clone(), id, existing: true }
    }

    /// Cancels a job. False when no live job has this id.
    pub async fn cancel(&self, id: JobId) -> Result<bool, Stopped> {
        let reply = self.inner.scheduler.cancel(None, id, origin()).await?;
        Ok(matches!(reply, Reply::Canceled { .. }))
    }

    /// Changes the priority or the start of a waiting job: all parts of the patch, or none.
    pub async fn update(&self, id: JobId, patch: JobPatch) -> Result<(), ChangeError> {
        match self.inner.scheduler.update_job(None, id, patch, origin()).await? {
            Reply::Rejected(rejection) => Err(ChangeError::Rejected(rejection)),
            Reply::Updated { .. } => Ok(()),
            _ => Err(ChangeError::NotFound),
        }
    }

    /// Deletes an ended job with everything that is stored of it.
    pub async fn delete(&self, id: JobId) -> Result<(), ChangeError> {
        match self.inner.scheduler.delete_job(None, id, origin()).await? {
            Reply::Rejected(rejection) => Err(ChangeError::Rejected(rejection)),
            Reply::Deleted { .. } => Ok(()),
            _ => Err(ChangeError::NotFound),
        }
    }

    /// Why a job is not running: everything that blocks it. `None`: no live job has this id.
    pub async fn explain(&self, id: JobId) -> Result<Option<Explanation>, Stopped> {
        self.inner.scheduler.explain(None, id).await
    }

    /// Changes settings at run time: a tree of keys as in the configuration file, such as `{"lanes": {"main":
    /// {"running_max": 8}}}`. All changes apply and survive a restart, or none does.
    pub async fn configure(&self, patch: serde_json::Value) -> Result<Arc<Config>, ConfigErrors> {
        self.inner.live.patch(patch, origin()).await
    }

    /// Reads the configuration file again.
    pub async fn reload(&self) -> Result<Reloaded, ConfigErrors> {
        self.inner.live.reload().await
    }

    /// Stops gracefully: no new jobs start, running handlers have until the configured limit
    /// (`server.drain_limit`) to end, and the rest is handed back and runs at the next start. A job that
    /// allows no loss ends as failed instead.
    pub async fn shutdown(&self) -> Result<Drained, ShutdownError> {
        self.shutdown_within(self.inner.live.current().server.drain_limit).await
    }

    /// The same with another limit. Open browsers are closed within it, after the jobs that use them have ended.
    pub async fn shutdown_within(&self, limit: Duration) -> Result<Drained, ShutdownError> {
        let begun = Instant::now();
        let browsers = self.inner.browsers.as_ref();
        // Browsers need a part of the time to close by themselves; half of it at most.
        let reserved = browsers.map(Browsers::shut_down_limit).unwrap_or_default().min(limit / 2);
        let drained = self.inner.scheduler.drain(limit - reserved).await;
        self.end_within(limit.saturating_sub(begun.elapsed())).await?;
        // A loop that had already ended had nothing left to drain.
        Ok(drained.unwrap_or_default())
    }

    /// The same for a scheduler whose jobs another server takes over at once: tasks of workers are not waited for.
    pub async fn hand_over(&self, limit: Duration) -> Result<Drained, ShutdownError> {
        let begun = Instant::now();
        let drained = self.inner.scheduler.hand_over(limit).await;
        self.end_within(limit.saturating_sub(begun.elapsed())).await?;
        Ok(drained.unwrap_or_default())
    }

    /// Ends without a word to the store, because another server owns it: handlers are dropped, and browsers are closed.
    pub async fn abandon(&self) {
        self.inner.scheduler.abandon_runs();
        if let Some(browsers) = &self.inner.browsers {
            browsers.shut_down(Duration::ZERO).await;
        }
    }

    async fn end_within(&self, limit: Duration) -> Result<(), ShutdownError> {
        if let Some(browsers) = &self.inner.browsers {
            browsers.shut_down(limit).await;
        }
        self.ended().await?;
        if let Some(exporter) = &self.inner.guards.exporter {
            exporter.close().await;
        }
        Ok(())
    }

    /// Waits until the scheduler has ended: by [`Laneway::shutdown`], or because its store failed.
    pub async fn ended(&self) -> Result<(), ShutdownError> {
        let mut end = self.inner.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(Ok(())).map_err(ShutdownError),
            Err(_) => Ok(()),
        }
    }

    /// The underlying handle, for everything else: events, statistics, your own executors.
    pub fn scheduler(&self) -> &Scheduler {
        &self.inner.scheduler
    }

    /// The index of browser tabs, with [`crate::Embedded::tab_actions`].
    pub fn tabs(&self) -> Option<&Tabs> {
        self.inner.tabs.as_ref()
    }

    /// The browsers of this machine, with [`crate::Embedded::browsers`].
    pub fn browsers(&self) -> Option<&Browsers> {
        self.inner.browsers.as_ref()
    }

    /// The live configuration.
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

    /// True when an equal submit created the job earlier.
    pub fn is_existing(&self) -> bool {
        self.existing
    }

    /// Waits until the job has ended.
    pub async fn wait(&self) -> Result<Ended, WaitError> {
        let view = self.laneway.inner.scheduler.wait(self.id).await?;
        view.end.map(|end| Ended { id: self.id, end }).ok_or(WaitError::NotFound)
    }

    /// Cancels the job. False when it has ended already.
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

    /// Why it ended.
    pub fn reason(&self) -> Reason {
        self.end.reason
    }

    /// The last failure, if there was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.end.error.as_ref()
    }

    /// How many attempts were made.
    pub fn attempts(&self) -> u32 {
        self.end.attempts
    }

    /// The result of the handler.
    pub fn result(&self) -> Option<&Bytes> {
        self.end.result.as_ref()
    }

    /// The result of the handler, parsed as JSON; no result is parsed as `null`. An error when the job did
    /// not succeed.
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

/// The origin of commands of the program itself.
fn origin() -> Origin {
    Origin { actor: Name::fixed("embedded"), request: None }
}
