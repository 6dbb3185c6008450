//! The record of a running browser in its data directory: which process it is, and whose.
//!
//! It is written before the browser starts and completed right after, so that a server that dies in between leaves a browser that
//! can be found.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use super::arguments::CRASH_REPORTS;
use super::process::{ProcessStart, Stat, boot_id, pids};

/// The name of the file in the data directory.
const FILE: &str = "laneway-browser.json";
/// The longest record, in bytes. A longer file is not ours.
const BYTES_MAX: u64 = 16 << 10;
/// What Chromium leaves in a data directory to keep a second process out, and the port of an earlier process.
const LEFT_BEHIND: [&str; 4] = ["SingletonLock", SOCKET, COOKIE, "DevToolsActivePort"];
/// A link to the socket over which a second process would reach the first one, and a link with a secret for it.
const SOCKET: &str = "SingletonSocket";
const COOKIE: &str = "SingletonCookie";

/// A process, known by its pid and its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) pid: u32,
    pub(super) start: ProcessStart,
}

impl Identity {
    pub(super) fn of(pid: u32) -> Option<Identity> {
        Some(Identity { pid, start: ProcessStart::of(pid)? })
    }

    /// True if this very process is running.
    pub(super) fn is_running(&self) -> bool {
        ProcessStart::of(self.pid).is_some_and(|start| start == self.start)
            && Stat::of(self.pid).is_some_and(|stat| !stat.is_zombie)
    }

    /// Kills exactly this process: the descriptor keeps its pid from meaning another one between the check and the signal.
    pub(super) fn kill(&self) {
        let Some(pid) = Pid::from_raw(self.pid as i32) else { return };
        let Ok(descriptor) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_running() {
            let _ = rustix::process::pidfd_send_signal(descriptor, Signal::KILL);
        }
    }
}

/// The record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The server that started the browser.
    pub(super) server: Identity,
    /// The browser. `None` while it starts.
    pub(super) browser: Option<Identity>,
}

impl Record {
    /// The record of a browser that is about to start. `None` where the system does not say when processes started.
    pub(super) fn starting() -> Option<Record> {
        Some(Record { server: Identity::of(std::process::id())?, browser: None })
    }

    pub(super) fn read(data_dir: &Path) -> Option<Record> {
        let path = data_dir.join(FILE);
        // No link: the file is ours only if it is in the directory.
        let found = path.symlink_metadata().ok()?;
        if !found.is_file() || found.len() > BYTES_MAX {
            return None;
        }
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    pub(super) fn write(&self, data_dir: &Path) -> io::Result<()> {
        let new = data_dir.join(format!("{FILE}.new"));
        std::fs::write(&new, serde_json::to_vec(self)?)?;
        std::fs::rename(new, data_dir.join(FILE))
    }

    /// Removes the record of a browser that has ended, and what it left if it was killed.
    pub(super) fn remove(data_dir: &Path) {
        remove_socket(data_dir);
        for name in LEFT_BEHIND {
            let _ = std::fs::remove_file(data_dir.join(name));
        }
        let _ = std::fs::remove_file(data_dir.join(FILE));
    }

    /// The processes of the browser that are still running, the leader first.
    pub(super) fn processes(&self, data_dir: &Path) -> Vec<Identity> {
        if boot_id().as_ref() != Some(&self.server.start.boot) {
            return Vec::new();
        }
        let running =
            pids().filter_map(|pid| Some((pid, Stat::of(pid)?))).filter(|(_, stat)| !stat.is_zombie);
        let leader = match &self.browser {
            Some(browser) if browser.is_running() && is_of(browser.pid, data_dir) => Some(browser.pid),
            Some(_) => None,
            // The server died between the start of the browser and the record of its pid.
            None => running_leader(data_dir, self.server.start.ticks),
        };
        let Some(leader) = leader else { return Vec::new() };
        let mut found: Vec<u32> =
            running.filter(|(_, stat)| stat.group == leader).map(|(pid, _)| pid).collect();
        found.sort_by_key(|pid| *pid != leader);
        found.into_iter().filter_map(Identity::of).collect()
    }
}

/// The process that leads a group, has the data directory open and started after `ticks`.
fn running_leader(data_dir: &Path, ticks: u64) -> Option<u32> {
    pids().find(|pid| {
        Stat::of(*pid).is_some_and(|stat| !stat.is_zombie && stat.group == *pid && stat.started >= ticks)
            && is_of(*pid, data_dir)
    })
}

/// True if the process was started with this data directory.
fn is_of(pid: u32, data_dir: &Path) -> bool {
    has_argument(pid, "--user-data-dir=", data_dir)
}

/// The handlers of crashes of the browser that has this data directory open.
pub(super) fn crash_handlers(data_dir: &Path) -> Vec<Identity> {
    let reports = data_dir.join(CRASH_REPORTS);
    pids().filter(|pid| has_argument(*pid, "--database=", &reports)).filter_map(Identity::of).collect()
}

/// True if the process has this option with this path among its arguments.
fn has_argument(pid: u32, option: &str, path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(command) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let wanted = [option.as_bytes(), path.as_os_str().as_bytes()].concat();
    command.split(|byte| *byte == 0).any(|argument| argument == wanted)
}

/// Prepares the data directory for a start: it exists, and nothing of an earlier process keeps a new one out. Returns its full path,
/// or `None` if a browser has it open.
pub(super) fn prepare(data_dir: &Path) -> io::Result<Option<PathBuf>> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
    let data_dir = data_dir.canonicalize()?;
    if let Some(record) = Record::read(&data_dir) {
        let own_start = record.browser.is_none() && record.server.is_running();
        if own_start || !record.processes(&data_dir).is_empty() {
            return Ok(None);
        }
        Record::remove(&data_dir);
    }
    Ok(Some(data_dir))
}

/// Removes the socket of a killed browser, which is in a directory of its own for temporary files. Only a directory with nothing else in it is
/// removed.
fn remove_socket(data_dir: &Path) {
    let Ok(socket) = std::fs::read_link(data_dir.join(SOCKET)) else { return };
    let Some(directory) = socket.parent().filter(|_| socket.ends_with(SOCKET)) else { return };
    for name in [SOCKET, COOKIE] {
        let _ = std::fs::remove_file(directory.join(name));
    }
    let _ = std::fs::remove_dir(directory);
}

/// The data directories with a record below `root`, at most `depth` directories deep.
pub(super) fn recorded_below(root: &Path, depth: usize) -> Vec<PathBuf> {
    let Ok(root) = root.canonicalize() else { return Vec::new() };
    let mut found = Vec::new();
    let mut open = vec![(root, 0)];
    while let Some((directory, level)) = open.pop() {
        if directory.join(FILE).symlink_metadata().is_ok() {
            // A data directory has no data directories below it.
            found.push(directory);
            continue;
        }
        if level == depth {
            continue;
        }
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push((entry.path(), level + 1));
            }
        }
    }
    found
}
