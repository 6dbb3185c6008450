//! The open browsers of this process, by tenant and profile.
//!
//! An open browser is watched by one task. When the browser ends, whether it was closed or crashed, the task frees the profile and
//! the key that the start job keeps, so that the next start gets the slot. A browser whose start job did not succeed in
//! the end (it was canceled or timed out at the last moment) has no slot, and is closed.

mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use laneway_core::{JobId, Name, Wall};
use laneway_runtime::Scheduler;
use tokio::sync::watch as state;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::chromium::{Browser, Stopped};
use crate::devtools::DevToolsError;
use crate::page::Page;
use crate::profiles::ProfileId;
use crate::uses::{Owned, Taken, Use, Uses};

/// How long the release of a slot may take after its browser has ended: it is one commit.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The open browsers. Clones share them.
#[derive(Clone)]
pub(crate) struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    scheduler: Scheduler,
    uses: Uses,
    open: Mutex<BTreeMap<Owned, Arc<Running>>>,
    /// True from the moment the server stops its browsers.
    closing: AtomicBool,
    /// Ends the watching tasks with this struct, and the browsers with them.
    gone: CancellationToken,
    _gone_on_drop: DropGuard,
}

/// A browser that runs.
pub(crate) struct Running {
    pub tenant: Name,
    pub profile: ProfileId,
    /// The job that started it, and its attempt.
    pub job: JobId,
    pub attempt: u32,
    pub since: Wall,
    pub browser: Browser,
    /// True once it was asked to close: its end is no crash then.
    asked_to_close: AtomicBool,
    /// The data directory, until the browser has ended.
    taken: Mutex<Option<Taken>>,
    /// True when it has ended and its slot is free.
    released: state::Sender<bool>,
}

/// An open browser, as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBrowser {
    /// The profile.
    pub profile: ProfileId,
    /// The job that started it.
    pub job: JobId,
    /// When it was started.
    pub since: Wall,
    /// The pid.
    pub pid: u32,
    /// The port of DevTools on loopback.
    pub debug_port: u16,
    /// The URL of DevTools.
    pub devtools_url: String,
}

/// How a browser was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It was not open.
    WasNotOpen,
    /// It ended: `closed`, `terminated` or `killed`.
    By(&'static str),
    /// Its process is still there.
    StillRunning,
    /// It is being started.
    Starting,
}

impl Fleet {
    pub fn new(scheduler: Scheduler, uses: Uses) -> Fleet {
        let gone = CancellationToken::new();
        let inner = Inner {
            scheduler,
            uses,
            open: Mutex::default(),
            closing: AtomicBool::new(false),
            _gone_on_drop: gone.clone().drop_guard(),
            gone,
        };
        Fleet { inner: Arc::new(inner) }
    }

    /// True from the moment the server stops its browsers: no other is started.
    pub fn is_closing(&self) -> bool {
        self.inner.closing.load(Ordering::SeqCst)
    }

    /// Adds a browser that has just started, and watches it.
    pub fn add(&self, started: Started) -> Arc<Running> {
        let Started { tenant, profile, job, attempt, browser, taken } = started;
        taken.becomes(Use::Open);
        let running = Arc::new(Running {
            since: self.inner.scheduler.wall(),
            tenant,
            profile,
            job,
            attempt,
            browser,
            asked_to_close: AtomicBool::new(false),
            taken: Mutex::new(Some(taken)),
            released: state::Sender::new(false),
        });
        self.open().insert(running.owned(), Arc::clone(&running));
        watch::start(self, &running);
        running
    }

    /// The browser of a profile.
    pub fn get(&self, tenant: &Name, profile: &ProfileId) -> Option<Arc<Running>> {
        self.open().get(&(tenant.clone(), profile.clone())).cloned()
    }

    /// The browsers of a tenant, or all.
    pub fn all(&self, tenant: Option<&Name>) -> Vec<Arc<Running>> {
        let of_tenant = |running: &&Arc<Running>| tenant.is_none_or(|tenant| running.tenant == *tenant);
        self.open().values().filter(of_tenant).cloned().collect()
    }

    /// How many browsers are open.
    pub fn count(&self, tenant: Option<&Name>) -> usize {
        self.open().keys().filter(|(of, _)| tenant.is_none_or(|tenant| of == tenant)).count()
    }

    /// Closes the browser of a profile, and waits until its slot is free.
    pub async fn close(&self, tenant: &Name, profile: &ProfileId, grace: Duration) -> Closed {
        match self.get(tenant, profile) {
            Some(running) => running.close(grace).await,
            None => match self.inner.uses.take(tenant, profile, Use::Changing) {
                Err(Use::Starting) => Closed::Starting,
                _ => Closed::WasNotOpen,
            },
        }
    }

    /// Closes the browsers of a tenant, or all.
    pub async fn close_all(&self, tenant: Option<&Name>, grace: Duration) -> Vec<(ProfileId, Closed)> {
        let close =
            |running: Arc<Running>| async move { (running.profile.clone(), running.close(grace).await) };
        join_all(self.all(tenant).into_iter().map(close)).await
    }

    /// Closes all browsers because the server stops. No other is started.
    pub async fn shut_down(&self, grace: Duration) -> usize {
        self.inner.closing.store(true, Ordering::SeqCst);
        self.close_all(None, grace).await.len()
    }

    /// A tab of an open browser of the tenant. `None`: no browser has it.
    pub async fn page(&self, tenant: &Name, tab: &str) -> Option<Page> {
        let ask = |running: Arc<Running>| async move { running.browser.page(tab).await };
        // All are asked at once: one that does not answer must not keep the tabs of the others from being found.
        let mut answers: FuturesUnordered<_> = self.all(Some(tenant)).into_iter().map(ask).collect();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(page) => return Some(page),
                Err(DevToolsError::NoTab(_) | DevToolsError::Closed) => {}
                Err(error) => tracing::debug!(tab, %error, "a browser was not asked for a tab"),
            }
        }
        None
    }

    fn forget(&self, running: &Running) {
        let mut open = self.open();
        if open.get(&running.owned()).is_some_and(|known| std::ptr::eq(known.as_ref(), running)) {
            open.remove(&running.owned());
        }
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<Owned, Arc<Running>>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A browser that has just started.
pub(crate) struct Started {
    pub tenant: Name,
    pub profile: ProfileId,
    pub job: JobId,
    pub attempt: u32,
    pub browser: Browser,
    pub taken: Taken,
}

impl Running {
    /// The browser as callers see it.
    pub fn view(&self) -> OpenBrowser {
        OpenBrowser {
            profile: self.profile.clone(),
            job: self.job,
            since: self.since,
            pid: self.browser.pid(),
            debug_port: self.browser.debug_port(),
            devtools_url: self.browser.devtools_url().to_owned(),
        }
    }

    /// Closes the browser, and waits until its slot is free.
    pub async fn close(&self, grace: Duration) -> Closed {
        self.asked_to_close.store(true, Ordering::SeqCst);
        let how = match self.browser.stop(grace).await {
            Stopped::Closed(_) => "closed",
            Stopped::Terminated(_) => "terminated",
            Stopped::Killed(_) => "killed",
            Stopped::StillRunning => return Closed::StillRunning,
        };
        // A job that says "closed" means that the slot is free, too.
        let mut released = self.released.subscribe();
        drop(tokio::time::timeout(RELEASE_LIMIT, released.wait_for(|released| *released)).await);
        Closed::By(how)
    }

    fn owned(&self) -> Owned {
        (self.tenant.clone(), self.profile.clone())
    }
}
