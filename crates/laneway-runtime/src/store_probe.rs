//! How fast the store answers, for health checks.

use std::time::Duration;

use crate::scheduler::Scheduler;

/// A store that takes longer than this for one small read is slow.
pub const SLOW_AFTER: Duration = Duration::from_secs(1);

/// How the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreHealth {
    /// In time.
    Ok,
    /// Not within [`SLOW_AFTER`]: the disk is slow, or other reads take all readers.
    Slow,
    /// With an error; the log says which.
    Failed,
}

impl StoreHealth {
    /// The name that health checks show.
    pub fn as_str(self) -> &'static str {
        match self {
            StoreHealth::Ok => "ok",
            StoreHealth::Slow => "slow",
            StoreHealth::Failed => "failed",
        }
    }

    /// What is wrong, for people.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            StoreHealth::Ok => None,
            StoreHealth::Slow => Some("DB connection slow"),
            StoreHealth::Failed => Some("DB connection failed"),
        }
    }
}

impl Scheduler {
    /// Reads one number from the store, and waits [`SLOW_AFTER`] for it at most.
    pub async fn store_health(&self) -> StoreHealth {
        match tokio::time::timeout(SLOW_AFTER, self.read(|reader| reader.first_event())).await {
            Ok(Ok(_)) => StoreHealth::Ok,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the health check could not read the store");
                StoreHealth::Failed
            }
            Err(_) => StoreHealth::Slow,
        }
    }
}
