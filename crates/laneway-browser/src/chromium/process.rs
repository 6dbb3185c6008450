//! One process of Chromium, as the leader of a process group.
//!
//! A thread waits for its end. It kills the rest of the group before it reaps the leader: until then the system cannot give the id of the
//! group to another process.

use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// How much nicer browsers are than the server: by 10, a process gets a tenth of the time of the other where both want all of it.
const NICE: i32 = 10;
/// The largest nice value of Linux.
const NICE_MAX: i32 = 19;

/// When a process started: identifies it together with its pid, also after a restart of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStart {
    /// The id of the machine's boot.
    pub boot: String,
    /// Clock ticks since that boot.
    pub ticks: u64,
}

impl ProcessStart {
    /// When a running process started. `None`: there is no such process, or the system does not say.
    pub fn of(pid: u32) -> Option<ProcessStart> {
        Some(ProcessStart { boot: boot_id()?, ticks: Stat::of(pid)?.started })
    }
}

/// The id of the machine's boot.
pub(super) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// The parts of `/proc/<pid>/stat` that identify a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// It has ended, and its parent has not reaped it yet.
    pub(super) is_zombie: bool,
    /// Its process group.
    pub(super) group: u32,
    /// Clock ticks from the boot to its start.
    pub(super) started: u64,
}

impl Stat {
    pub(super) fn of(pid: u32) -> Option<Stat> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program is in parentheses, and can contain anything.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        Some(Stat {
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }
}

/// The processes of a group that have not ended.
pub(super) fn members(group: u32) -> Vec<u32> {
    let is_member = |pid: &u32| Stat::of(*pid).is_some_and(|stat| stat.group == group && !stat.is_zombie);
    pids().filter(is_member).collect()
}

/// Every process that the system shows.
pub(super) fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// How a browser ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit code {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A process that leads a group of its own. When it is dropped, the group is killed.
pub(super) struct Process {
    pid: u32,
    exit: watch::Receiver<Option<Exit>>,
    /// `Some` until the leader is reaped.
    leader: Arc<Mutex<Option<Pid>>>,
}

impl Process {
    /// Starts a program. `ended` is called after the end of the whole group, before anyone sees the exit.
    pub(super) fn spawn(
        command: &mut Command,
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<(Process, ChildStderr)> {
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr =
            child.stderr.take().ok_or_else(|| io::Error::other("the child has no standard error"))?;
        let pid = child.id();
        lower_priority(pid);
        let leader = Arc::new(Mutex::new(Pid::from_raw(pid as i32)));
        let (report, exit) = watch::channel(None);
        let process = Process { pid, exit, leader: leader.clone() };
        // If the thread cannot start, dropping `process` kills the child.
        std::thread::Builder::new().name(format!("browser-{pid}")).spawn(move || {
            let exit = wait_for_the_end(child, &leader);
            ended();
            let _ = report.send(Some(exit));
        })?;
        Ok((process, stderr))
    }

    /// Its pid, which is also the id of its group.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub(super) fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    /// Waits for its end.
    pub(super) async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or(Exit::Code(-1)),
            // The thread panicked: the process cannot be waited for.
            Err(_) => Exit::Code(-1),
        }
    }

    /// Asks the leader to end.
    pub(super) fn terminate(&self) {
        self.signal(|leader| rustix::process::kill_process(leader, Signal::TERM));
    }

    /// Kills the group.
    pub(super) fn kill(&self) {
        self.signal(|leader| rustix::process::kill_process_group(leader, Signal::KILL));
    }

    fn signal(&self, send: impl FnOnce(Pid) -> rustix::io::Result<()>) {
        let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leader) = *leader
            && let Err(error) = send(leader)
        {
            tracing::debug!(pid = self.pid, %error, "a signal was not delivered");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server answers calls and starts jobs while many browsers start, which takes all the time of the machine. The processes that the
/// program starts later inherit its priority.
fn lower_priority(pid: u32) {
    let own = rustix::process::getpriority_process(None).unwrap_or(0);
    let nice = own.saturating_add(NICE).min(NICE_MAX);
    if let Err(error) = rustix::process::setpriority_process(Pid::from_raw(pid as i32), nice) {
        tracing::debug!(pid, %error, "the priority of a browser is not changed");
    }
}

fn wait_for_the_end(mut child: Child, leader: &Mutex<Option<Pid>>) -> Exit {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let waited = loop {
            match rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other,
            }
        };
        if let Err(error) = waited {
            tracing::warn!(pid = child.id(), %error, "cannot wait for the browser");
        }
        // What the browser left behind: its group still has the leader's id, because the leader is not reaped yet.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    let mut leader = leader.lock().unwrap_or_else(PoisonError::into_inner);
    *leader = None;
    let status = child.wait();
    drop(leader);
    use std::os::unix::process::ExitStatusExt;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        },
        Err(_) => Exit::Code(-1),
    }
}
