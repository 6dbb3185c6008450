//! The limits of the dialect `pinchtab`, for programs that embed the scheduler.
//!
//! The tasks of the dialect are jobs of the kind `tab_action` (see [`crate::Embedded::tab_actions`]) in the lane
//! `pinchtab`. The dialect has its own names for the limits of that lane.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use laneway_core::{Name, Origin};
use laneway_runtime::config::{self, ConfigErrors};

pub use laneway_compat::pinchtab::{Config, ConfigWatcher, LANE, WATCH_INTERVAL};

use crate::Laneway;

/// Applies these limits, all or none; zero keeps the current value. They survive a restart.
pub async fn reload(laneway: &Laneway, config: &Config) -> Result<Arc<config::Config>, ConfigErrors> {
    let origin = Origin { actor: Name::fixed("embedded"), request: None };
    laneway_compat::pinchtab::reload(laneway.live_config(), config, origin).await
}

/// Calls `loader` every `interval` and applies its limits, until the watcher is stopped or dropped. A loader that
/// fails changes nothing. [`WATCH_INTERVAL`] is the default interval.
pub fn watch<F, Fut, E>(laneway: &Laneway, interval: Duration, loader: F) -> ConfigWatcher
where
    F: FnMut() -> Fut + Send + 'static,
    Fut: Future<Output = Result<Config, E>> + Send,
    E: Display,
{
    ConfigWatcher::start(laneway.live_config().clone(), interval, loader)
}
