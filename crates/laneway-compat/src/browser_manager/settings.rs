//! The limits of the agent under the setting keys of the original. They are keys of the server's configuration; a change holds
//! at once and survives a restart.

use axum::extract::Request;
use laneway_core::Name;
use laneway_runtime::config::ConfigErrorKind;
use serde_json::{Map, Value, json};

use super::decode::Fields;
use super::error::{Answer, Code, Problem, ok};
use super::{BROWSER_KEY, BrowserManager, LANE, NAME, PROFILE_KEY};
use crate::body::Call;

/// Largest value of a limit.
const LIMIT_MAX: u64 = 1_000_000;

/// The section of the setting keys.
const SECTION: &str = "agent";
/// The number of browsers.
const MAX_BROWSERS: &str = "agent.max_concurrent_browsers";

/// A setting key of the original.
pub struct Setting {
    /// The key.
    pub name: &'static str,
    /// The key as a path.
    pub key: [&'static str; 2],
    /// The key of the configuration that it stands for.
    pub to: &'static [&'static str],
}

/// Every setting key of the original.
pub static SETTINGS: [Setting; 4] = [
    Setting {
        name: "agent.max_concurrent_jobs",
        key: [SECTION, "max_concurrent_jobs"],
        to: &["lanes", LANE, "running_max"],
    },
    Setting {
        name: MAX_BROWSERS,
        key: [SECTION, "max_concurrent_browsers"],
        to: &["keys", BROWSER_KEY, "limit"],
    },
    Setting {
        name: "agent.max_queue_size",
        key: [SECTION, "max_queue_size"],
        to: &["lanes", LANE, "queued_max"],
    },
    Setting {
        name: "agent.max_jobs_per_profile",
        key: [SECTION, "max_jobs_per_profile"],
        to: &["keys", PROFILE_KEY, "limit"],
    },
];

impl BrowserManager {
    fn limits(&self) -> Value {
        let config = self.live.current();
        let settings = config.settings();
        let lane = settings.lanes.get(&Name::fixed(LANE)).cloned().unwrap_or_default();
        let key = |name| settings.keys.get(&Name::fixed(name)).copied().unwrap_or(settings.key_default);
        json!({
            "agent.max_concurrent_jobs": lane.running_max,
            "agent.max_concurrent_browsers": key(BROWSER_KEY),
            "agent.max_queue_size": lane.queued_max,
            "agent.max_jobs_per_profile": key(PROFILE_KEY),
        })
    }

    /// A start beyond the share of the machine would fail instead of waiting.
    fn check_share(&self, limit: u64) -> Result<(), Problem> {
        let (share, open_max) = (self.browsers.share_max(), self.browsers.settings().open_max);
        if limit <= u64::from(share) {
            return Ok(());
        }
        let detail = format!(
            "{MAX_BROWSERS} is {limit}; browsers.open_max is {open_max}, of which one tenant can have {share}; send a smaller number, or raise browsers.open_max and restart the server"
        );
        Err(Problem::new(Code::OutOfRange, detail))
    }
}

/// Shows the limits.
pub async fn get_settings(Call(browser_manager, _): Call<BrowserManager>) -> Answer {
    ok(&browser_manager.limits())
}

/// Changes limits. A key that the request leaves out stays as it is.
pub async fn change_settings(
    Call(browser_manager, caller): Call<BrowserManager>,
    request: Request,
) -> Answer {
    let mut fields = Fields::of_request(request).await?;
    let mut given = Map::new();
    for Setting { name, key: [_, key], .. } in &SETTINGS {
        let Some(number) = fields.opt_number(name, 1, LIMIT_MAX)? else { continue };
        given.insert((*key).to_owned(), number.into());
        if *name == MAX_BROWSERS {
            browser_manager.check_share(number)?;
        }
    }
    if given.is_empty() {
        let known = SETTINGS.each_ref().map(|setting| setting.name).join(", ");
        return Err(Problem::new(Code::MissingField, format!("send at least one of {known}")));
    }
    let patch = json!({"dialects": {NAME: {SECTION: given}}});
    let changed = browser_manager.live.patch(patch, caller.origin()).await;
    changed.map_err(|errors| match errors.kind() {
        ConfigErrorKind::Stopped => Problem::of(Code::AgentNotRunning),
        _ => Problem::new(Code::OutOfRange, errors.to_string()),
    })?;
    ok(&browser_manager.limits())
}
