//! Calls a loader for limits periodically, and applies them.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use laneway_core::Origin;
use laneway_runtime::live_config::LiveConfig;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::reload::{Config, reload};

/// The default interval.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(30);

/// Calls a loader for limits periodically, until it is stopped or dropped.
#[derive(Debug)]
pub struct ConfigWatcher {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<Option<()>>>>,
}

impl ConfigWatcher {
    /// Calls `loader` every `interval` and applies its limits. A loader that fails changes nothing.
    pub fn start<F, Fut, E>(live: LiveConfig, interval: Duration, mut loader: F) -> ConfigWatcher
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = Result<Config, E>> + Send,
        E: Display,
    {
        let stop = CancellationToken::new();
        let watch = async move {
            loop {
                tokio::time::sleep(interval).await;
                let loaded = loader().await.map_err(|error| error.to_string());
                match loaded {
                    Ok(config) => apply(&live, &config).await,
                    Err(error) => {
                        tracing::warn!(%error, "the loader of the pinchtab limits failed; keeping the current values");
                    }
                }
            }
        };
        let task = tokio::spawn(stop.clone().run_until_cancelled_owned(watch));
        ConfigWatcher { stop, task: Mutex::new(Some(task)) }
    }

    /// Stops; returns when no call is in progress. May be called again.
    pub async fn stop(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take() {
            // A loader that panicked has stopped as well.
            let _ = task.await;
        }
    }
}

impl Drop for ConfigWatcher {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn apply(live: &LiveConfig, config: &Config) {
    if let Err(errors) = reload(live, config, Origin::server("pinchtab")).await {
        tracing::warn!(problems = %errors, "the loaded pinchtab limits are invalid; keeping the current values");
    }
}
