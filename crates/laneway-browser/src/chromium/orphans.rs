//! Browsers of a server that died: found by the record in their data directory, and ended.
//!
//! A browser is known by its data directory below the root, its pid and its start time. A process that has the same pid, or the
//! same name, is left alone, and so is a browser whose server is running.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::record::{Identity, Record, recorded_below};

/// How deep data directories are: `<root>/<tenant>/<profile>`, and one to spare.
const DEPTH_MAX: usize = 3;
/// How long [`Orphan::end`] waits for the system to act on a SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How often it looks.
const END_CHECK: Duration = Duration::from_millis(10);

/// A browser whose server is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    data_dir: PathBuf,
    processes: Vec<Identity>,
}

/// Every orphan whose data directory is below `root`. Records of browsers that have ended are removed.
pub fn find(root: &Path) -> Vec<Orphan> {
    let mut orphans = Vec::new();
    for data_dir in recorded_below(root, DEPTH_MAX) {
        let Some(record) = Record::read(&data_dir) else { continue };
        if record.server.is_running() {
            continue;
        }
        let processes = record.processes(&data_dir);
        if processes.is_empty() {
            Record::remove(&data_dir);
            continue;
        }
        orphans.push(Orphan { data_dir, processes });
    }
    orphans
}

impl Orphan {
    /// The data directory of the browser.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.pid).collect()
    }

    /// Kills it with its process group and waits until it is gone; blocks for at most five seconds. `Ok(())` if nothing of it
    /// is left. Its record is removed then.
    pub fn end(&self) -> Result<(), StillRunning> {
        let limit = Instant::now() + END_LIMIT;
        loop {
            // The group may have grown since it was found.
            let now = Record::read(&self.data_dir)
                .map(|record| record.processes(&self.data_dir))
                .unwrap_or_default();
            let left: Vec<&Identity> =
                now.iter().chain(&self.processes).filter(|process| process.is_running()).collect();
            if left.is_empty() {
                Record::remove(&self.data_dir);
                return Ok(());
            }
            if Instant::now() >= limit {
                let pids = left.iter().map(|process| process.pid).collect();
                return Err(StillRunning { data_dir: self.data_dir.clone(), pids });
            }
            left.into_iter().for_each(Identity::kill);
            std::thread::park_timeout(END_CHECK);
        }
    }
}

/// The processes of an orphan are still there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the browser of {} is still running after it was killed: pids {pids:?}", .data_dir.display())]
pub struct StillRunning {
    /// The data directory.
    pub data_dir: PathBuf,
    /// Which processes.
    pub pids: Vec<u32>,
}
