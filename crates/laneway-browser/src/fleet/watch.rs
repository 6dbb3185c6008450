//! The task that watches one browser, from its start until its slot is free.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use laneway_core::{EventKind, JobId, JobState, Origin, Span};
use laneway_runtime::{Scheduler, WaitError};
use tokio_util::sync::CancellationToken;

use super::{Fleet, Inner, Running};

/// How long a browser without a slot may take to close.
const GRACE: Duration = Duration::from_secs(2);
/// When a job is waited for again, if too many calls wait already.
const WAIT_AGAIN: Span = Span::secs(1);

/// Watches the browser. The task holds the browser and not the fleet: when the fleet is gone, it ends, and the browser with it.
pub(super) fn start(fleet: &Fleet, running: &Arc<Running>) {
    let (inner, gone) = (Arc::downgrade(&fleet.inner), fleet.inner.gone.clone());
    let scheduler = Arc::downgrade(&fleet.inner);
    let running = Arc::clone(running);
    tokio::spawn(async move {
        let job = running.job;
        tokio::select! {
            biased;
            () = gone.cancelled() => return,
            () = closes_without_place(&running, &scheduler, &gone) => {}
            _ = running.browser.exited() => {}
        }
        let exit = tokio::select! {
            () = gone.cancelled() => return,
            exit = running.browser.exited() => exit,
        };
        let Some(fleet) = inner.upgrade().map(|inner| Fleet { inner }) else { return };
        fleet.forget(&running);
        drop(running.taken.lock().unwrap_or_else(PoisonError::into_inner).take());
        let scheduler = fleet.inner.scheduler.clone();
        drop(fleet);
        if !running.asked_to_close.load(Ordering::SeqCst) {
            crashed(&scheduler, &running, &exit.to_string()).await;
        }
        // The key is kept by the end of the job, so it is released after that, and never before.
        let _ = end_of(&scheduler, job, &gone).await;
        let origin = Origin::server("browsers");
        if scheduler.release_keys(Some(running.tenant.clone()), job, origin).await.is_err() {
            // The next start releases the keys of all browsers.
            tracing::debug!(profile = %running.profile, "the slot of a browser is released at the next start");
        }
        running.released.send_replace(true);
    });
}

/// Returns when the browser was asked to close because its job did not succeed. If it did, this never returns.
async fn closes_without_place(running: &Running, inner: &Weak<Inner>, gone: &CancellationToken) {
    let Some(scheduler) = inner.upgrade().map(|inner| inner.scheduler.clone()) else { return };
    let end = end_of(&scheduler, running.job, gone).await;
    drop(scheduler);
    if end.is_none_or(|state| state == JobState::Succeeded) {
        return std::future::pending().await;
    }
    tracing::info!(profile = %running.profile, job = %running.job, "the start of a browser did not succeed in the end; it is closed");
    running.asked_to_close.store(true, Ordering::SeqCst);
    running.browser.stop(GRACE).await;
}

/// How the job ended. `None`: it is not stored any more, or the scheduler has stopped.
async fn end_of(scheduler: &Scheduler, job: JobId, gone: &CancellationToken) -> Option<JobState> {
    loop {
        let waited = tokio::select! {
            () = gone.cancelled() => return None,
            waited = scheduler.wait(job) => waited,
        };
        match waited {
            Ok(view) => return view.end.map(|end| end.state),
            Err(WaitError::TooMany) => scheduler.sleep(WAIT_AGAIN).await,
            Err(WaitError::NotFound | WaitError::Read(_) | WaitError::Stopped(_)) => return None,
        }
    }
}

/// Records that a browser ended by itself.
async fn crashed(scheduler: &Scheduler, running: &Running, exit: &str) {
    let (tenant, profile, job) = (&running.tenant, &running.profile, running.job);
    tracing::warn!(%tenant, %profile, %job, pid = running.browser.pid(), exit, "a browser ended by itself");
    let detail = format!("the browser of profile {profile}, started by job {job}, ended by itself: {exit}");
    let origin = Origin::server("browsers");
    let noted = scheduler.note(EventKind::BrowserCrashed, Some(tenant.clone()), &detail, origin).await;
    if noted.is_err() {
        tracing::debug!(%profile, "the end of a browser is not recorded: the server has stopped");
    }
}
