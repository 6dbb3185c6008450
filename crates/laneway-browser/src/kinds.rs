//! The built-in kinds of jobs: they start, stop and drive browsers, and look after profiles. One file for each.
//!
//! A handler says whether a failure can be retried; how often, how many run at once and how long they may take is
//! configuration (`browsers.default.toml`). [`prepare`] gives every job of a kind its lane and its keys, wherever it was submitted.

mod cache_clear_cloud;
mod cache_clear_local;
mod db_migration;
mod fields;
mod payload;
mod profile_clone;
mod program;
mod proxy_test;
mod recycle_bin_cleanup;
mod script_run;
mod start;
mod stop;
mod stop_all;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;

use laneway_core::settings::MAIN_LANE;
use laneway_core::{Bytes, Failure, JobSpec, Key, Name, Outcome};
use laneway_runtime::config::SecretKey;
use laneway_runtime::executors::{Handler, HandlerFuture, Handlers, JobContext};
use serde_json::Value;

use crate::browsers::{Browsers, WeakBrowsers};
use crate::profiles::ProfileError;

pub use fields::{BadPayload, PayloadProblem};
pub use payload::{
    CleanupPayload, ClonePayload, NoPayload, ProfilePayload, ProgramSpec, ProxyTestPayload,
    SCRIPT_TIMEOUT_MAX_SECS, ScriptPayload, ScriptWork, StartPayload, TestedProxy, validate,
};

/// Starts the browser of a profile.
pub const BROWSER_START: &str = "browser_start";
/// Closes the browser of a profile.
pub const BROWSER_STOP: &str = "browser_stop";
/// Closes every browser of the tenant.
pub const BROWSER_STOP_ALL: &str = "browser_stop_all";
/// Runs a script or a program with the browser of a profile.
pub const SCRIPT_RUN: &str = "script_run";
/// Removes the cache of a profile that is not open.
pub const CACHE_CLEAR_LOCAL: &str = "cache_clear_local";
/// There is no cloud: jobs of this kind fail.
pub const CACHE_CLEAR_CLOUD: &str = "cache_clear_cloud";
/// Requests a page through a proxy.
pub const PROXY_TEST: &str = "proxy_test";
/// Copies a profile with its data directory.
pub const PROFILE_CLONE: &str = "profile_clone";
/// Rewrites stored profiles of an earlier version.
pub const DB_MIGRATION: &str = "db_migration";
/// Deletes profiles that were in the recycle bin for too long.
pub const RECYCLE_BIN_CLEANUP: &str = "recycle_bin_cleanup";

/// Every kind.
pub const KINDS: [&str; 10] = [
    BROWSER_START,
    BROWSER_STOP,
    BROWSER_STOP_ALL,
    SCRIPT_RUN,
    CACHE_CLEAR_LOCAL,
    CACHE_CLEAR_CLOUD,
    PROXY_TEST,
    PROFILE_CLONE,
    DB_MIGRATION,
    RECYCLE_BIN_CLEANUP,
];

/// The lane of these kinds.
pub const LANE: &str = "browsers";
/// The key that an open browser holds. Its limit is the number of browsers of a tenant that may be open.
pub const BROWSER_KEY: &str = "browser";
/// The value of [`BROWSER_KEY`].
pub const BROWSER_KEY_VALUE: &str = "open";
/// The key of a profile. Its limit is the number of jobs for one profile that may run at once.
pub const PROFILE_KEY: &str = "browser_profile";

/// The codes of attempts that ended because their time was over: a script, and a browser that did not answer. They end a moment
/// before the timeout of the job, to say what they waited for.
pub const TIMEOUT_CODES: [&str; 2] = ["timed_out", "browser_hung"];

/// Most bytes of a result: a script may extract a lot.
const RESULT_BYTES_MAX: usize = 4 << 20;

/// Gives a job of one of the kinds its lane and its keys, and encrypts the password of a proxy in its payload. Jobs of other
/// kinds stay as they are. A payload that is not valid stays as it is, too: its handler says why it fails.
pub fn prepare(key: Option<&SecretKey>, spec: &mut JobSpec, payload: &mut Bytes) {
    if !KINDS.contains(&spec.kind.as_str()) {
        return;
    }
    if spec.lane.as_str() == MAIN_LANE {
        spec.lane = Name::fixed(LANE);
    }
    if spec.kind.as_str() == BROWSER_START {
        add_key(spec, BROWSER_KEY, Name::fixed(BROWSER_KEY_VALUE));
    }
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(payload) else { return };
    if let Some(profile) = fields.get("profileId").and_then(Value::as_str)
        && let Ok(profile) = Name::new(profile)
    {
        add_key(spec, PROFILE_KEY, profile);
    }
    if let Some(key) = key
        && let Some(Value::String(password)) =
            fields.get_mut("proxy").and_then(|proxy| proxy.get_mut("password"))
    {
        match key.seal_text(proxy_test::PASSWORD_OWNER, password) {
            Ok(sealed) => *password = sealed,
            Err(error) => {
                tracing::warn!(%error, "the password of a proxy in a payload cannot be encrypted and is left out");
                password.clear();
            }
        }
        *payload = Bytes::from(Value::Object(fields).to_string().into_bytes());
    }
}

/// The key has one value: what the job says of it does not count.
fn add_key(spec: &mut JobSpec, name: &'static str, value: Name) {
    spec.keys.retain(|key| key.name.as_str() != name);
    spec.keys.push(Key { name: Name::fixed(name), value });
}

/// The handlers of the kinds for which `is_ours` is true.
pub(crate) fn handlers(browsers: &WeakBrowsers, is_ours: impl Fn(&str) -> bool) -> Handlers {
    let mut handlers =
        Registry { handlers: Handlers::new().result_len_max(RESULT_BYTES_MAX), browsers, is_ours: &is_ours };
    handlers.insert(BROWSER_START, start::run);
    handlers.insert(BROWSER_STOP, stop::run);
    handlers.insert(BROWSER_STOP_ALL, stop_all::run);
    handlers.insert(SCRIPT_RUN, script_run::run);
    handlers.insert(CACHE_CLEAR_LOCAL, cache_clear_local::run);
    handlers.insert(CACHE_CLEAR_CLOUD, cache_clear_cloud::run);
    handlers.insert(PROXY_TEST, proxy_test::run);
    handlers.insert(PROFILE_CLONE, profile_clone::run);
    handlers.insert(DB_MIGRATION, db_migration::run);
    handlers.insert(RECYCLE_BIN_CLEANUP, recycle_bin_cleanup::run);
    handlers.handlers
}

/// The handlers so far.
struct Registry<'a> {
    handlers: Handlers,
    browsers: &'a WeakBrowsers,
    is_ours: &'a dyn Fn(&str) -> bool,
}

impl Registry<'_> {
    fn insert<F>(&mut self, kind: &'static str, run: fn(Browsers, JobContext) -> F)
    where
        F: Future<Output = Result<Outcome, NotDone>> + Send + 'static,
    {
        if !(self.is_ours)(kind) {
            return;
        }
        let browsers = self.browsers.clone();
        let handler: Handler = Arc::new(move |context: JobContext| {
            let browsers = browsers.upgrade();
            Box::pin(async move {
                // The server is gone; there is no one to inform.
                let Some(browsers) = browsers else { return Outcome::HandedBack };
                match run(browsers, context).await {
                    Ok(outcome) => outcome,
                    Err(NotDone::Failed(failure)) => Outcome::Failed(failure),
                    Err(NotDone::Canceled) => Outcome::Canceled,
                }
            }) as HandlerFuture
        });
        self.handlers.insert(Name::fixed(kind), handler);
    }
}

/// Why a job has no result.
#[derive(Debug)]
enum NotDone {
    /// It failed.
    Failed(Failure),
    /// It was asked to stop, and stopped.
    Canceled,
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> NotDone {
        NotDone::Failed(failure)
    }
}

/// A payload that is not valid: no other attempt can succeed.
impl From<BadPayload> for NotDone {
    fn from(bad: BadPayload) -> NotDone {
        Failure::permanent("bad_payload", bad.to_string()).into()
    }
}

/// A profile that is missing or in the recycle bin is a permanent failure; one that is in use, or a full disk, may pass.
impl From<ProfileError> for NotDone {
    fn from(error: ProfileError) -> NotDone {
        let message = error.to_string();
        let failure = match error {
            ProfileError::NotFound(_) => Failure::permanent("profile_not_found", message),
            ProfileError::Trashed(_) => Failure::permanent("profile_trashed", message),
            ProfileError::NotTrashed(_) => Failure::permanent("profile_not_trashed", message),
            ProfileError::Exists(_) => Failure::permanent("profile_exists", message),
            ProfileError::Invalid(_) => Failure::permanent("bad_payload", message),
            ProfileError::Rejected(_) => Failure::permanent("profile_rejected", message),
            ProfileError::Unreadable { .. } => Failure::permanent("profile_unreadable", message),
            ProfileError::InUse { .. } => Failure::retryable("profile_in_use", message),
            ProfileError::Conflict(_) => Failure::retryable("profile_conflict", message),
            ProfileError::Io(_) => Failure::retryable("profile_files", message),
            ProfileError::Stopped(_) => return NotDone::Canceled,
        };
        failure.into()
    }
}

/// A result.
fn succeeded(result: &Value) -> Result<Outcome, NotDone> {
    Ok(Outcome::Succeeded(Some(Bytes::from(result.to_string().into_bytes()))))
}
