//! Watches the free space of the data directory and closes admission before it runs out.
//!
//! New jobs are refused early so that results of running ones still find room. When to open again is decided with some
//! distance, so that admission does not flap around the mark.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use laneway_core::Command;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{Config, format_size};
use crate::live_config::LiveConfig;
use crate::scheduler::{Scheduler, Stopped};

/// How often free space is looked at. At a gigabyte a second the default mark still leaves half a second.
const PERIOD: Duration = Duration::from_secs(3);

/// Free space below which room inside the store does not help: the log of every commit needs the disk itself.
const DISK_MIN: u64 = 64 << 20;

/// Watches free space until it is dropped.
#[derive(Debug)]
pub struct StorageProbe {
    _stop: DropGuard,
}

impl StorageProbe {
    /// Looks once before it returns, and every few seconds from then on. The mark is `limits.storage_low`.
    pub async fn start(scheduler: Scheduler, live: &LiveConfig) -> StorageProbe {
        let configs = live.subscribe();
        let data_dir = configs.borrow().server.data_dir.clone();
        let mut probing = Probing { scheduler, configs, data_dir, low: false, blind: false };
        let first = probing.look().await;
        let stop = CancellationToken::new();
        if first.is_ok() {
            tokio::spawn(stop.clone().run_until_cancelled_owned(probing.go_on()));
        }
        StorageProbe { _stop: stop.drop_guard() }
    }
}

/// Is storage low now, when it was (or was not) a moment ago? Opens again a quarter above the mark.
pub fn is_low(was_low: bool, free: u64, mark: u64) -> bool {
    let opens_at = mark.saturating_add(mark / 4);
    if was_low { free < opens_at } else { free < mark }
}

/// Bytes that this process may still write below `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What counts as free: the disk's room, and what the store can use again while the disk has any.
pub fn usable_bytes(free: u64, reusable: u64) -> u64 {
    if free < DISK_MIN { free } else { free.saturating_add(reusable) }
}

struct Probing {
    scheduler: Scheduler,
    configs: watch::Receiver<Arc<Config>>,
    data_dir: PathBuf,
    /// What the engine was told last.
    low: bool,
    /// True after a look that failed, so that a broken disk fills no log.
    blind: bool,
}

impl Probing {
    async fn go_on(mut self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                changed = self.configs.changed() => if changed.is_err() { return },
            }
            if self.look().await.is_err() {
                return;
            }
        }
    }

    async fn look(&mut self) -> Result<(), Stopped> {
        let mark = self.configs.borrow_and_update().storage_low;
        let data_dir = self.data_dir.clone();
        // A disk that hangs must hang no task but this one.
        let looked = tokio::task::spawn_blocking(move || free_bytes(&data_dir)).await;
        let free = match looked.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(free) => free,
            Err(error) => {
                if !self.blind {
                    tracing::warn!(data_dir = %self.data_dir.display(), %error, "free space cannot be read");
                }
                self.blind = true;
                return Ok(());
            }
        };
        self.blind = false;
        // A database file does not shrink when retention deletes; without this, admission would stay closed for ever.
        let reusable = self.scheduler.query(|reader| reader.reusable_bytes()).await.unwrap_or(0);
        let free = usable_bytes(free, reusable);
        let low = is_low(self.low, free, mark);
        if low != self.low {
            self.scheduler.send(Command::StorageLow(low)).await?;
            self.low = low;
            let (free, mark) = (format_size(free), format_size(mark));
            if low {
                tracing::warn!(%free, %mark, "storage runs low: new jobs are refused until there is room");
            } else {
                tracing::info!(%free, %mark, "storage has room again: new jobs are admitted");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{DISK_MIN, free_bytes, is_low, usable_bytes};

    #[test]
    fn room_inside_the_store_counts_while_the_disk_has_room_for_its_log() {
        assert_eq!(usable_bytes(DISK_MIN, 5), DISK_MIN + 5);
        assert_eq!(usable_bytes(DISK_MIN - 1, 5), DISK_MIN - 1);
        assert_eq!(usable_bytes(u64::MAX, 5), u64::MAX);
    }

    #[test]
    fn admission_closes_at_the_mark_and_opens_a_quarter_above() {
        for (was_low, free, mark, expected) in [
            (false, 400, 400, false),
            (false, 399, 400, true),
            (false, 0, 400, true),
            (false, u64::MAX, 400, false),
            (true, 400, 400, true),
            (true, 499, 400, true),
            (true, 500, 400, false),
            (true, 0, 400, true),
            // A mark of nothing switches the probe off, also when it closed admission before.
            (false, 0, 0, false),
            (true, 0, 0, false),
            // A mark near the end of numbers must not wrap around and open.
            (true, u64::MAX - 1, u64::MAX, true),
        ] {
            assert_eq!(is_low(was_low, free, mark), expected, "{was_low} {free} {mark}");
        }
    }

    #[test]
    fn free_space_is_read_from_the_file_system() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()).unwrap() > 0);
        assert!(free_bytes(&dir.path().join("missing")).is_err());
    }
}
