//! Watches the free space of the data directory and stops admission and starts before it runs out.
//!
//! What is left is for the results of running jobs. For the case that others fill the disk, a reserve is kept in a file;
//! the store removes it when it meets a full disk, and it is made again here when there is space. When to open again is
//! decided with some distance, so that admission does not flap around the mark.

use laneway_core::command::AdminCommand;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use laneway_core::Command;
use laneway_store::sqlite::files::{RESERVE, WAL, open_private};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{Config, StorageConfig, format_size};
use crate::live_config::LiveConfig;
use crate::scheduler::{Scheduler, Stopped};

/// How often free space is looked at. At a gigabyte a second the default mark still leaves half a second.
const PERIOD: Duration = Duration::from_secs(3);

/// Free space below which free pages of the store do not help: every commit needs space on the disk itself.
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

/// True when storage is low, given whether it was low before. It is no longer low a quarter above the limit.
pub fn is_low(was_low: bool, free: u64, mark: u64) -> bool {
    let opens_at = mark.saturating_add(mark / 4);
    if was_low { free < opens_at } else { free < mark }
}

/// The mark that holds now: at least what a checkpoint of the log may need in the database.
pub fn mark_for(low: u64, log: u64) -> u64 {
    if low == 0 { 0 } else { low.max(log) }
}

/// Keeps the reserve of a data directory: makes it where there is space beyond the mark, and of the size that is set.
/// Returns what was done, for the log.
pub fn keep_reserve(dir: &Path, storage: StorageConfig, free: u64) -> io::Result<Option<&'static str>> {
    let path = dir.join(RESERVE);
    let there = std::fs::metadata(&path).ok().map(|found| found.len());
    let StorageConfig { low, reserve, .. } = storage;
    match there {
        _ if reserve == there.unwrap_or(0) => return Ok(None),
        Some(_) if reserve == 0 => {
            std::fs::remove_file(&path)?;
            return Ok(Some("removed"));
        }
        _ => {}
    }
    let missing = reserve.saturating_sub(there.unwrap_or(0));
    if is_low(true, free.saturating_sub(missing), low) {
        return Ok(None);
    }
    let file = open_private(&path)?;
    if missing == 0 {
        file.set_len(reserve)?;
        return Ok(Some("made smaller"));
    }
    let allocated = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, reserve);
    if let Err(error) = allocated {
        // What is there stays: it is what a full disk needs. Only what was begun is taken back.
        match there {
            Some(len) => file.set_len(len)?,
            None => std::fs::remove_file(&path)?,
        }
        return Err(error.into());
    }
    Ok(Some("made"))
}

/// Bytes that this process may still write below `path`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The free space: that of the disk, and the free pages of the store while the disk has any.
pub fn usable_bytes(free: u64, reusable: u64) -> u64 {
    if free < DISK_MIN { free } else { free.saturating_add(reusable) }
}

struct Probing {
    scheduler: Scheduler,
    configs: watch::Receiver<Arc<Config>>,
    data_dir: PathBuf,
    /// The last report to the engine.
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
        let storage = self.configs.borrow_and_update().storage;
        let data_dir = self.data_dir.clone();
        // A disk that hangs must hang no task but this one.
        let looked = tokio::task::spawn_blocking(move || {
            let log = std::fs::metadata(data_dir.join(WAL)).map_or(0, |log| log.len());
            Ok((free_bytes(&data_dir)?, log))
        });
        let looked = looked.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (disk, log) = match looked {
            Ok(found) => found,
            Err(error) => {
                self.warn_once(&error, "free space cannot be read");
                return Ok(());
            }
        };
        self.blind = false;
        // A database file does not shrink when retention deletes; without this, admission would stay closed for ever.
        let reusable = self.scheduler.read(|reader| reader.reusable_bytes()).await.unwrap_or(0);
        let free = usable_bytes(disk, reusable);
        let mark = mark_for(storage.low, log);
        let low = is_low(self.low, free, mark);
        if low != self.low {
            self.scheduler.send(Command::Admin(AdminCommand::StorageLow(low))).await?;
            self.low = low;
            let (free, mark, data_dir) = (format_size(free), format_size(mark), self.data_dir.display());
            if low {
                tracing::warn!(%data_dir, %free, %mark, "storage is low: nothing is admitted and nothing starts, what runs can end; free disk space");
            } else {
                tracing::info!(%data_dir, %free, %mark, "storage has space again: jobs are admitted and start");
            }
        }
        if !low {
            self.keep_reserve(storage, disk).await;
        }
        Ok(())
    }

    async fn keep_reserve(&mut self, storage: StorageConfig, disk: u64) {
        let data_dir = self.data_dir.clone();
        let kept = tokio::task::spawn_blocking(move || keep_reserve(&data_dir, storage, disk)).await;
        match kept.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(None) => {}
            Ok(Some(done)) => {
                let size = format_size(storage.reserve);
                tracing::info!(data_dir = %self.data_dir.display(), %size, "reserve {done}");
            }
            Err(error) => self.warn_once(&error, "the reserve cannot be kept"),
        }
    }

    fn warn_once(&mut self, error: &io::Error, what: &str) {
        if !self.blind {
            tracing::warn!(data_dir = %self.data_dir.display(), %error, "{what}");
        }
        self.blind = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(low: u64, reserve: u64) -> StorageConfig {
        let artifact_retention = Duration::from_secs(60);
        StorageConfig {
            low,
            reserve,
            start_check: Duration::ZERO,
            artifact_retention,
            artifacts_per_tenant_max: 0,
        }
    }

    #[test]
    fn defect_06_the_reserve_is_made_where_there_is_space_and_taken_back_by_its_setting() {
        let dir = tempfile::tempdir().unwrap();
        let storage = |reserve| storage(1 << 20, reserve);
        let len = || std::fs::metadata(dir.path().join(RESERVE)).ok().map(|found| found.len());
        assert_eq!(
            keep_reserve(dir.path(), storage(1 << 16), 1 << 20).unwrap(),
            None,
            "no space beyond the mark"
        );
        assert_eq!(keep_reserve(dir.path(), storage(1 << 16), 2 << 20).unwrap(), Some("made"));
        assert_eq!(len(), Some(1 << 16));
        assert_eq!(keep_reserve(dir.path(), storage(1 << 16), 0).unwrap(), None, "it is there");
        assert_eq!(keep_reserve(dir.path(), storage(0), 0).unwrap(), Some("removed"));
        assert_eq!(len(), None);
    }

    #[test]
    fn defect_06_a_reserve_that_cannot_grow_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let storage = |reserve| storage(0, reserve);
        let len = || std::fs::metadata(dir.path().join(RESERVE)).ok().map(|found| found.len());
        assert_eq!(keep_reserve(dir.path(), storage(1 << 16), 2 << 20).unwrap(), Some("made"));
        // More than any file can have.
        assert!(keep_reserve(dir.path(), storage(u64::MAX), u64::MAX).is_err());
        assert_eq!(len(), Some(1 << 16));
        std::fs::remove_file(dir.path().join(RESERVE)).unwrap();
        assert!(keep_reserve(dir.path(), storage(u64::MAX), u64::MAX).is_err());
        assert_eq!(len(), None);
    }

    #[test]
    fn defect_06_the_mark_is_at_least_what_a_checkpoint_needs() {
        assert_eq!(mark_for(0, 100), 0);
        assert_eq!(mark_for(50, 100), 100);
        assert_eq!(mark_for(500, 100), 500);
    }

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
