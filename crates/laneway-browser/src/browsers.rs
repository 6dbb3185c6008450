//! Browsers on this machine as one thing: profiles, the open browsers, and the handlers of the built-in kinds.
//!
//! [`Browsers::start`] ends what an earlier process left before any job can start: its browsers, and the slots that they held.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use laneway_core::share::Pool;
use laneway_core::{Failure, JobRow, Name, Origin, Rejection, Reply, Role};
use laneway_runtime::config::SecretKey;
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::{Scheduler, Stopped};
use thiserror::Error;

use crate::chromium::{Chromium, NotFound, Tab, orphans};
use crate::devtools::DevToolsError;
use crate::fleet::{Fleet, OpenBrowser};
use crate::kinds::{self, BROWSER_KEY};
use crate::profiles::{ProfileId, Profiles};
use crate::settings::BrowserSettings;
use crate::uses::Uses;

/// The executor of the built-in kinds.
const EXECUTOR: &str = "browsers";
/// The folder of the profiles below the data directory of the server.
const FOLDER: &str = "browsers";

/// Browsers on this machine. Cheap to clone; all clones share them.
#[derive(Clone)]
pub struct Browsers {
    inner: Arc<Inner>,
}

struct Inner {
    scheduler: Scheduler,
    live: LiveConfig,
    settings: BrowserSettings,
    key: Option<SecretKey>,
    profiles: Profiles,
    fleet: Fleet,
    uses: Uses,
}

/// Browsers that may be gone: handlers hold them so, because the loop holds the handlers.
#[derive(Clone)]
pub(crate) struct WeakBrowsers(Weak<Inner>);

impl WeakBrowsers {
    pub fn upgrade(&self) -> Option<Browsers> {
        self.0.upgrade().map(|inner| Browsers { inner })
    }
}

/// Why browsers could not be set up.
#[derive(Debug, Error)]
pub enum BrowsersError {
    /// There is no directory for profiles.
    #[error("browsers need a directory: store jobs in a data directory, or set browsers.data_dir")]
    NoDirectory,
    /// The program has not contributed the section.
    #[error("the configuration has no section [browsers]")]
    NoSection,
    /// The directory cannot be used.
    #[error("the directory {path} for browsers cannot be used: {source}")]
    Directory {
        /// Which one.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another executor offers one of the kinds.
    #[error("the handlers of browsers were rejected: {0}")]
    Rejected(Rejection),
    /// The scheduler has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl Browsers {
    /// Ends what an earlier process left, and runs jobs of the built-in kinds from now on. `data_dir` is the data directory of
    /// the server, if it has one; `key` encrypts passwords.
    pub async fn start(
        scheduler: &Scheduler,
        live: &LiveConfig,
        data_dir: Option<&Path>,
        key: Option<SecretKey>,
    ) -> Result<Browsers, BrowsersError> {
        let config = live.current();
        let settings = BrowserSettings::of(&config).cloned().ok_or(BrowsersError::NoSection)?;
        let root = settings.data_dir.clone().or_else(|| data_dir.map(|dir| dir.join(FOLDER)));
        let root = private_dir(root.ok_or(BrowsersError::NoDirectory)?).await?;
        end_orphans(&root).await;
        release_slots(scheduler).await?;
        let uses = Uses::default();
        let inner = Inner {
            profiles: Profiles::new(scheduler.clone(), root, key.clone(), uses.clone()),
            fleet: Fleet::new(scheduler.clone(), uses.clone()),
            scheduler: scheduler.clone(),
            live: live.clone(),
            settings,
            key: key.clone(),
            uses,
        };
        let browsers = Browsers { inner: Arc::new(inner) };
        scheduler.prepare_with(Arc::new(move |spec, payload| kinds::prepare(key.as_ref(), spec, payload)));
        // A target of a kind in the configuration has precedence.
        let is_ours = |kind: &str| !config.targets.keys().any(|target| target.as_str() == kind);
        let handlers = kinds::handlers(&browsers.downgrade(), is_ours);
        match scheduler.run_here(Name::fixed(EXECUTOR), handlers, config.local_slots).await? {
            Reply::Rejected(rejection) => Err(BrowsersError::Rejected(rejection)),
            _ => Ok(browsers),
        }
    }

    /// The profiles.
    pub fn profiles(&self) -> &Profiles {
        &self.inner.profiles
    }

    /// The section `[browsers]`.
    pub fn settings(&self) -> &BrowserSettings {
        &self.inner.settings
    }

    /// The open browsers of a tenant, or (`None`) of all.
    pub fn open(&self, tenant: Option<&Name>) -> Vec<OpenBrowser> {
        self.inner.fleet.all(tenant).iter().map(|running| running.view()).collect()
    }

    /// The open browser of a profile.
    pub fn open_of(&self, tenant: &Name, profile: &ProfileId) -> Option<OpenBrowser> {
        self.inner.fleet.get(tenant, profile).map(|running| running.view())
    }

    /// The tabs of the open browser of a profile. `None`: it is not open.
    pub async fn tabs_of(
        &self,
        tenant: &Name,
        profile: &ProfileId,
    ) -> Option<Result<Vec<Tab>, DevToolsError>> {
        let running = self.inner.fleet.get(tenant, profile)?;
        Some(running.browser.tabs().await)
    }

    /// How many browsers of a tenant, or (`None`) of all, are open.
    pub fn open_count(&self, tenant: Option<&Name>) -> usize {
        self.inner.fleet.count(tenant)
    }

    /// How many browsers of a tenant may be open: the limit of the key, or the share of the machine if that is less.
    pub fn open_max(&self) -> u32 {
        self.key_limit().min(self.share_max())
    }

    fn key_limit(&self) -> u32 {
        let config = self.inner.live.current();
        let settings = config.settings();
        settings.keys.get(BROWSER_KEY).copied().unwrap_or(settings.key_default)
    }

    /// The most browsers that one tenant can have on this machine, whatever the limit of a tenant is.
    pub fn share_max(&self) -> u32 {
        u32::try_from(Pool::most_of_one(self.inner.settings.open_max)).unwrap_or(u32::MAX)
    }

    /// How many browsers the tenants that have one may have together.
    pub fn open_max_of_all(&self) -> u32 {
        let running = self.inner.fleet.all(None);
        let tenants: BTreeSet<&Name> = running.iter().map(|running| &running.tenant).collect();
        let tenants = u32::try_from(tenants.len().max(1)).unwrap_or(u32::MAX);
        self.open_max().saturating_mul(tenants).min(self.inner.settings.open_max)
    }

    /// Checks that a browser of the tenant could be started now: within the limit of the tenant, and within its share of the machine.
    /// The error says why not.
    pub fn has_place(&self, tenant: &Name) -> Result<(), String> {
        let (open, max) = (self.open_count(Some(tenant)), self.key_limit());
        if open >= max as usize {
            return Err(format!("{open} of {max} browsers are open; close one"));
        }
        let place = self.inner.uses.has_place(tenant, self.inner.settings.open_max);
        place.map_err(|full| full.to_string())
    }

    /// The program that browsers are started with, or what to install.
    pub fn chromium(&self) -> Result<Chromium, NotFound> {
        Chromium::find(self.inner.settings.chromium.as_deref())
    }

    /// True when a caller of this role may run scripts and the action `evaluate`.
    pub fn may_script(&self, role: Role) -> bool {
        self.inner.settings.may_script(role)
    }

    /// Closes all browsers within `limit`, because the server stops. Returns how many there were.
    pub async fn shut_down(&self, limit: Duration) -> usize {
        self.inner.fleet.shut_down(limit.min(self.inner.settings.stop_grace)).await
    }

    /// How long [`Browsers::shut_down`] may take at most. Zero: no browser is open.
    pub fn shut_down_limit(&self) -> Duration {
        if self.open_count(None) == 0 { Duration::ZERO } else { self.inner.settings.stop_grace }
    }

    /// Checks that the submitter of a job may run scripts.
    pub(crate) fn check_script_right(&self, row: &JobRow) -> Result<(), Failure> {
        let needed = self.inner.settings.script_role.as_str();
        let submitter = &row.submitted_by;
        match self.inner.scheduler.role_of(submitter) {
            Some(role) if self.may_script(role) => Ok(()),
            Some(role) => {
                let message = format!(
                    "the submitter {submitter} has the role {}; this needs {needed} (browsers.script_role)",
                    role.as_str()
                );
                Err(Failure::permanent("forbidden", message))
            }
            None => {
                let message = format!(
                    "the submitter {submitter} is no caller with a role; this needs a token with the role {needed} that is still valid (browsers.script_role)"
                );
                Err(Failure::permanent("forbidden", message))
            }
        }
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.inner.fleet
    }

    pub(crate) fn uses(&self) -> &Uses {
        &self.inner.uses
    }

    pub(crate) fn secret_key(&self) -> Option<&SecretKey> {
        self.inner.key.as_ref()
    }

    pub(crate) fn downgrade(&self) -> WeakBrowsers {
        WeakBrowsers(Arc::downgrade(&self.inner))
    }
}

/// Makes the directory, for this user only: profiles hold cookies. Returns its absolute path, by which orphans are found.
async fn private_dir(path: PathBuf) -> Result<PathBuf, BrowsersError> {
    let shown = path.display().to_string();
    let made = tokio::task::spawn_blocking(move || {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        path.canonicalize()
    });
    let made = made.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    made.map_err(|source| BrowsersError::Directory { path: shown, source })
}

/// Ends the browsers of an earlier process that was killed.
async fn end_orphans(root: &Path) {
    let root = root.to_owned();
    let ended = tokio::task::spawn_blocking(move || {
        for orphan in orphans::find(&root) {
            let data_dir = orphan.data_dir().display().to_string();
            match orphan.end() {
                Ok(()) => {
                    tracing::info!(data_dir, pids = ?orphan.pids(), "a browser of an earlier process was ended")
                }
                Err(error) => tracing::warn!(%error, "a browser of an earlier process cannot be ended"),
            }
        }
    });
    if let Err(error) = ended.await {
        tracing::warn!(%error, "browsers of an earlier process were not looked for");
    }
}

/// Releases the slots of browsers of an earlier process: none of them is open any more.
async fn release_slots(scheduler: &Scheduler) -> Result<(), Stopped> {
    for kept in scheduler.kept_keys(None).await? {
        if kept.keys.iter().any(|key| key.name.as_str() == BROWSER_KEY) {
            let origin = Origin::server("browsers");
            scheduler.release_keys(Some(kept.tenant), kept.job, origin).await?;
        }
    }
    Ok(())
}
