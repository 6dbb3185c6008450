//! A handler that is a program: JSON in, JSON out, log lines, and a process group that can be stopped as a whole.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use laneway_client::worker::{Failure, Handler, Outcome, Ran, Task};
use laneway_wire::frame::{Channel, ErrorCode, JsonObject};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::artifact_dir::{ArtifactDir, AttemptDir};
use super::guard::{EXEC, Guard, OURSELVES, not_started};

/// Longest result in bytes.
const STDOUT_LEN_MAX: u64 = 1 << 20;
/// Longest log line in bytes; longer ones are sent in pieces.
const LINE_LEN_MAX: usize = 8 << 10;
/// Most log lines of one attempt that are sent.
const LINES_MAX: usize = 10_000;
/// How many of the last log lines a failure contains.
const LAST_LINES: usize = 20;
/// The one exit code for a permanent failure (EX_DATAERR of sysexits.h: the input is wrong).
const EXIT_PERMANENT: i32 = 65;
/// How long child processes may still write output after the program has ended.
const LINGER: Duration = Duration::from_millis(500);

/// A program that handles tasks.
pub struct Program {
    /// The command with its arguments; not empty.
    pub command: Vec<String>,
    /// Its working folder, and the base of a relative command.
    pub folder: Option<PathBuf>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// How long it has to end after it was asked to stop.
    pub stop_grace: Duration,
    /// The folder for artifacts.
    pub artifact_dir: ArtifactDir,
    /// Kills its child processes when the worker dies.
    pub guard: Guard,
}

impl Program {
    /// The program as a handler.
    pub fn handler(self) -> Handler {
        let program = Arc::new(self);
        Handler::new(move |task| {
            let program = Arc::clone(&program);
            async move { program.run(task).await }
        })
    }

    async fn run(&self, task: Task) -> Ran {
        // Created before the program, so that the folder outlives it.
        let attempt_dir = self.artifact_dir.attempt_dir()?;
        let mut child = self.spawn(&task, &attempt_dir)?;
        let group = Group::of(&child, self.guard.clone())?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::permanent(ErrorCode::Internal.as_str(), "the program has no pipes"));
        };
        let feed = tokio::spawn(feed(stdin, task.parameters().clone()));
        let mut output = tokio::spawn(read_output(stdout));
        let mut lines = tokio::spawn(read_lines(stderr, task.clone()));
        let status = self.wait(&mut child, &group, &task).await;
        // Child processes must neither keep the pipes open nor run on.
        group.kill();
        feed.abort();
        let last =
            tokio::time::timeout(LINGER, &mut lines).await.ok().and_then(Result::ok).unwrap_or_default();
        let output =
            tokio::time::timeout(LINGER, &mut output).await.ok().and_then(Result::ok).unwrap_or_default();
        lines.abort();
        let mut outcome = judge(status?, output, &last)?;
        outcome.artifacts = attempt_dir.collect(task).await?;
        Ok(outcome)
    }

    fn spawn(&self, task: &Task, attempt_dir: &AttemptDir) -> Result<Child, Failure> {
        let (name, arguments) = self.command.split_first().expect("a command is not empty");
        let path = match &self.folder {
            Some(folder) if name.contains('/') => folder.join(name),
            _ => PathBuf::from(name),
        };
        // It becomes the program after it has asked to be killed with the worker.
        let mut command = Command::new(OURSELVES);
        command
            .args([EXEC, &std::process::id().to_string()])
            .arg(path)
            .args(arguments)
            .env_remove("LANEWAY_TOKEN")
            .env("LANEWAY_TASK_ID", task.id())
            .env("LANEWAY_RUN_ID", task.run_id())
            .env("LANEWAY_SEQ", task.seq().to_string())
            .env("LANEWAY_KIND", task.kind())
            .env("LANEWAY_ARTIFACTS", attempt_dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.spawn().map_err(|error| {
            Failure::permanent("not_started", format!("the program {name:?} cannot be started: {error}"))
        })
    }

    /// Waits until the program ends, or ends it.
    async fn wait(&self, child: &mut Child, group: &Group, task: &Task) -> Result<ExitStatus, Failure> {
        let too_long = async {
            match self.timeout {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        let failed = |error| {
            Failure::permanent(
                ErrorCode::Internal.as_str(),
                format!("waiting for the program failed: {error}"),
            )
        };
        let why = tokio::select! {
            status = child.wait() => return status.map_err(failed),
            () = task.cancellation().cancelled() => {
                Failure::permanent(ErrorCode::RunnerCancelled.as_str(), "the program was stopped")
            }
            () = too_long => {
                Failure::transient(ErrorCode::Timeout.as_str(), "the program took longer than its kind's timeout")
            }
        };
        group.signal(Signal::TERM);
        // SIGKILL comes a little before the handler itself is dropped, so that the end can still be
        // reported.
        if tokio::time::timeout(self.stop_grace.mul_f64(0.8), child.wait()).await.is_err() {
            group.kill();
            let _ = child.wait().await;
        }
        Err(why)
    }
}

/// The process group of a program. It is killed on drop: no process outlives its task.
struct Group(Pid, Guard);

impl Group {
    fn of(child: &Child, guard: Guard) -> Result<Group, Failure> {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let none = || Failure::permanent(ErrorCode::Internal.as_str(), "the program has no process id");
        let pid = pid.ok_or_else(none)?;
        guard.began(pid);
        Ok(Group(pid, guard))
    }

    fn signal(&self, signal: Signal) {
        // A group that has ended needs no signal.
        let _ = kill_process_group(self.0, signal);
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        self.1.ended(self.0);
    }
}

async fn feed(mut stdin: ChildStdin, parameters: JsonObject) {
    // A program need not read its input.
    let _ = stdin.write_all(parameters.get().as_bytes()).await;
    let _ = stdin.write_all(b"\n").await;
}

/// The output of the program, up to one byte more than the limit.
async fn read_output(stdout: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut output = Vec::new();
    let mut rest = stdout.take(STDOUT_LEN_MAX + 1);
    let _ = rest.read_to_end(&mut output).await;
    // A program with too much output fails anyway; it must not block meanwhile.
    let _ = tokio::io::copy(&mut rest.into_inner(), &mut tokio::io::sink()).await;
    output
}

/// Sends log lines as they come, and returns the last ones.
async fn read_lines(mut stderr: impl AsyncRead + Unpin, task: Task) -> VecDeque<String> {
    let (mut last, mut sent) = (VecDeque::new(), 0);
    let (mut buffer, mut line) = (vec![0; LINE_LEN_MAX], Vec::new());
    loop {
        let len = stderr.read(&mut buffer).await.unwrap_or(0);
        if len == 0 {
            break;
        }
        for byte in &buffer[..len] {
            line.push(*byte);
            if *byte == b'\n' || line.len() >= LINE_LEN_MAX {
                take_line(&mut line, &mut last, &mut sent, &task).await;
            }
        }
    }
    take_line(&mut line, &mut last, &mut sent, &task).await;
    last
}

async fn take_line(line: &mut Vec<u8>, last: &mut VecDeque<String>, sent: &mut usize, task: &Task) {
    if line.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(line).into_owned();
    line.clear();
    *sent += 1;
    match (*sent).cmp(&(LINES_MAX + 1)) {
        std::cmp::Ordering::Less => task.chunk(Channel::Stderr, &text).await,
        std::cmp::Ordering::Equal => {
            let note = format!("more than {LINES_MAX} lines: the rest is not sent\n");
            task.chunk(Channel::Log, &note).await;
        }
        std::cmp::Ordering::Greater => {}
    }
    if last.len() == LAST_LINES {
        last.pop_front();
    }
    last.push_back(text.trim_end().to_owned());
}

/// The outcome of a program that ended.
fn judge(status: ExitStatus, output: Vec<u8>, last: &VecDeque<String>) -> Ran {
    if !status.success() {
        if let Some(why) = not_started(status, last.back()) {
            return Err(Failure::permanent("not_started", why));
        }
        let code = status.code().map_or_else(|| "killed".to_owned(), |code| format!("exit_{code}"));
        let message = match last.iter().map(String::as_str).collect::<Vec<_>>().join("\n") {
            lines if lines.is_empty() => {
                format!("the program ended with {status} and wrote nothing to standard error")
            }
            lines => format!("the program ended with {status}; its last log lines:\n{lines}"),
        };
        // A crash, a kill and most exit codes do not rule out a retry.
        let retryable = status.code() != Some(EXIT_PERMANENT);
        return Err(Failure { retryable, ..Failure::permanent(&code, message) });
    }
    if output.len() as u64 > STDOUT_LEN_MAX {
        let message =
            format!("the program wrote more than {STDOUT_LEN_MAX} bytes; return large results as artifacts");
        return Err(Failure::permanent("output_too_long", message));
    }
    if output.iter().all(u8::is_ascii_whitespace) {
        return Ok(Outcome::default());
    }
    let wrong = |error: serde_json::Error| {
        Failure::permanent("bad_output", format!("the output of the program is not JSON: {error}"))
    };
    let raw: Box<RawValue> = serde_json::from_slice(&output).map_err(wrong)?;
    match JsonObject::from_raw(raw.clone()) {
        Ok(result) => Ok(Outcome { result, ..Outcome::default() }),
        Err(_) => Outcome::of(&raw),
    }
}
