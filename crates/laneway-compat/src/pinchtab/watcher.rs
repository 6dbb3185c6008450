//! Asks somebody's loader for limits now and then, and makes them hold.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use laneway_core::Origin;
use laneway_runtime::live_config::LiveConfig;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::reload::{Config, reload};

/// How often a loader is asked where nothing else is said.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(30);

/// Asks a loader for limits, again and again, until it is stopped or dropped.
#[derive(Debug)]
pub struct ConfigWatcher {
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<Option<()>>>>,
}

impl ConfigWatcher {
    /// Asks `loader` every `interval` and makes what it gives hold. A loader that fails changes nothing.
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
                        tracing::warn!(%error, "the loader of the pinchtab limits failed; the values stay");
                    }
                }
            }
        };
        let task = tokio::spawn(stop.clone().run_until_cancelled_owned(watch));
        ConfigWatcher { stop, task: Mutex::new(Some(task)) }
    }

    /// Asks no more; returns when nothing is under way. May be called again.
    pub async fn stop(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take() {
            // A loader that panicked has stopped, too.
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
    if let Err(errors) = reload(live, config, Origin::house("pinchtab")).await {
        tracing::warn!(problems = %errors, "the loaded pinchtab limits cannot be; the values stay");
    }
}
