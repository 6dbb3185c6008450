//! Kills programs whose worker has died, in every case.
//!
//! A program is started through this one ([`EXEC`]), which asks the kernel to kill it with its worker and then
//! becomes the program. The child processes of the program are killed by a second process ([`GUARD`]): it knows
//! the running process groups and kills them when the worker's end of its pipe is closed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

/// The first argument of a process that becomes a program. The worker's process id and the command follow.
pub const EXEC: &str = "worker-exec";
/// The first argument of the process that kills the remaining processes of a dead worker.
const GUARD: &str = "worker-guard";
/// This program, even after its file was replaced.
pub const OURSELVES: &str = "/proc/self/exe";
/// The message in that case.
const NOT_STARTED: &str = "the program cannot be started:";
/// The exit code of a program that cannot be started, as in shells.
const EXIT_NOT_STARTED: u8 = 127;

/// Runs the helper, if this process was started as one by a worker.
pub fn helper(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    let name = arguments.next()?;
    if name == EXEC {
        return Some(become_program(arguments));
    }
    (name == GUARD).then(|| kill_what_is_left(io::stdin().lock()))
}

fn become_program(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let worker = arguments.next().and_then(|pid| pid.to_str()?.parse::<i32>().ok());
    let Some(program) = arguments.next() else { return ExitCode::from(EXIT_NOT_STARTED) };
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The worker may have died before that.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != worker {
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(arguments).exec();
    let _ = writeln!(io::stderr(), "{NOT_STARTED} {program:?}: {error}");
    ExitCode::from(EXIT_NOT_STARTED)
}

/// The last message of a process that could not become its program.
pub fn not_started(status: ExitStatus, last: Option<&String>) -> Option<String> {
    let message = last.filter(|line| line.starts_with(NOT_STARTED))?;
    (status.code() == Some(EXIT_NOT_STARTED.into())).then(|| message.clone())
}

/// Reads which groups start (`+`) and end (`-`) until the pipe is closed.
fn kill_what_is_left(lines: impl BufRead) -> ExitCode {
    let mut groups = BTreeSet::new();
    for line in lines.lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", group)) => drop(groups.insert(group.to_owned())),
            Some(("-", group)) => drop(groups.remove(group)),
            _ => {}
        }
    }
    for group in groups.iter().filter_map(|group| Pid::from_raw(group.parse().ok()?)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    ExitCode::SUCCESS
}

/// The worker's end of the pipe to its guard. Clones share it.
#[derive(Clone)]
pub struct Guard(Arc<Mutex<Option<ChildStdin>>>);

impl Guard {
    /// Starts the guard of this worker. Without one, only child processes of programs could outlive the
    /// worker.
    pub fn start() -> Guard {
        let mut command = Command::new(OURSELVES);
        command.arg(GUARD).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A signal to the worker's process group is not meant for the guard.
        let pipe = match command.process_group(0).env_clear().spawn() {
            Ok(mut guard) => guard.stdin.take(),
            Err(error) => {
                tracing::warn!(%error, "child processes of programs may outlive a killed worker");
                None
            }
        };
        Guard(Arc::new(Mutex::new(pipe)))
    }

    /// A process group has started.
    pub fn began(&self, group: Pid) {
        self.send('+', group);
    }

    /// A process group has ended.
    pub fn ended(&self, group: Pid) {
        self.send('-', group);
    }

    fn send(&self, sign: char, group: Pid) {
        let mut pipe = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = pipe.as_mut()
            && let Err(error) = writeln!(end, "{sign}{}", group.as_raw_nonzero())
        {
            tracing::warn!(%error, "child processes of programs may outlive a killed worker");
            *pipe = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defect_01_groups_that_run_die_when_their_worker_is_gone() {
        let sleeper = || Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let (mut runs, mut ended) = (sleeper(), sleeper());
        let message = format!("+{0}\n+{1}\n-{1}\nnonsense\n", runs.id(), ended.id());
        kill_what_is_left(message.as_bytes());
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&runs.wait().unwrap()), Some(9));
        assert!(
            ended.try_wait().unwrap().is_none(),
            "the id of an ended group may belong to another process"
        );
        ended.kill().unwrap();
        ended.wait().unwrap();
    }
}
