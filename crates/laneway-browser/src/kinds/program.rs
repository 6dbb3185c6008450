//! Runs a program for a `script_run` job: one that the configuration allows, in a process group of its own, with the DevTools URL in
//! its environment. Its standard input is JSON, its standard output is the result, its standard error goes to the log.
//!
//! The program runs as the user of the server. It gets no variable of the server's environment, because that may hold secrets.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use laneway_core::{Bytes, Failure, Name, Outcome};
use laneway_runtime::executors::JobContext;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::{NotDone, ProgramSpec};
use crate::browsers::Browsers;
use crate::fleet::Running;

/// Where the program finds others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Most bytes of output.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Most lines of standard error that are logged.
const LINES_MAX: usize = 10_000;
/// Longest line of standard error, in bytes; the rest is the next line.
const LINE_BYTES_MAX: u64 = 8 << 10;
/// How long a program may take to end after SIGTERM.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long the pipes of an ended program are read.
const LINGER: Duration = Duration::from_secs(2);

pub(super) async fn run(
    browsers: &Browsers,
    context: &JobContext,
    running: &Running,
    spec: &ProgramSpec,
) -> Result<Outcome, NotDone> {
    let path = Path::new(&spec.path);
    if !browsers.settings().programs.iter().any(|allowed| allowed == path) {
        let message = format!(
            "the program {:?} is not allowed; an operator of the machine can add it to browsers.programs",
            spec.path
        );
        return Err(Failure::permanent("program_not_allowed", message).into());
    }
    let mut child = spawn(context, running, spec)?;
    let group = Group::of(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(Failure::permanent("program_failed", "the program has no pipes").into());
    };
    let input = format!("{}\n", spec.input);
    let feed = tokio::spawn(async move { drop(stdin.write_all(input.as_bytes()).await) });
    let output = tokio::spawn(read_output(stdout));
    let lines = tokio::spawn(log_lines(stderr, context.clone()));
    let status = wait(context, &mut child, &group).await;
    // What the program started must neither keep the pipes open nor run on.
    drop(group);
    feed.abort();
    let output = tokio::time::timeout(LINGER, output).await.ok().and_then(Result::ok).unwrap_or_default();
    drop(tokio::time::timeout(LINGER, lines).await);
    judge(status?, output)
}

fn spawn(context: &JobContext, running: &Running, spec: &ProgramSpec) -> Result<Child, Failure> {
    let view = running.view();
    let mut command = Command::new(&spec.path);
    command.args(&spec.args).env_clear();
    command
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .env("LANEWAY_DEVTOOLS_URL", &view.devtools_url)
        .env("LANEWAY_DEBUG_PORT", view.debug_port.to_string())
        .env("LANEWAY_PROFILE_ID", view.profile.as_str())
        .env("LANEWAY_JOB_ID", context.job().to_string())
        .env("LANEWAY_ATTEMPT", context.attempt().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command.spawn().map_err(|error| {
        Failure::permanent(
            "program_failed",
            format!("the program {:?} cannot be started: {error}", spec.path),
        )
    })
}

/// Waits until the program ends, or ends it.
async fn wait(context: &JobContext, child: &mut Child, group: &Group) -> Result<ExitStatus, NotDone> {
    let failed =
        |error| Failure::permanent("program_failed", format!("waiting for the program failed: {error}"));
    tokio::select! {
        status = child.wait() => return Ok(status.map_err(failed)?),
        () = context.cancellation().cancelled() => {}
    }
    group.signal(Signal::TERM);
    if tokio::time::timeout(STOP_GRACE, child.wait()).await.is_err() {
        group.signal(Signal::KILL);
        drop(child.wait().await);
    }
    Err(NotDone::Canceled)
}

/// The process group of a program. It is killed on drop.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            // A group that has ended needs no signal.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The output of the program, up to one byte more than the limit.
async fn read_output(stdout: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut output = Vec::new();
    let mut rest = stdout.take(OUTPUT_BYTES_MAX + 1);
    let _ = rest.read_to_end(&mut output).await;
    // A program with too much output fails anyway; it must not block meanwhile.
    let _ = tokio::io::copy(&mut rest.into_inner(), &mut tokio::io::sink()).await;
    output
}

async fn log_lines(stderr: impl AsyncRead + Unpin, context: JobContext) {
    let stream = Name::fixed("stderr");
    let mut reader = BufReader::new(stderr);
    for number in 0.. {
        let mut line = Vec::new();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|len| len > 0) {
            return;
        }
        // More lines are read, so that the program does not block, and dropped.
        if number < LINES_MAX {
            context.log_to(&stream, String::from_utf8_lossy(&line).trim_end());
        }
    }
}

fn judge(status: ExitStatus, output: Vec<u8>) -> Result<Outcome, NotDone> {
    if !status.success() {
        let message = format!("the program ended with {status}; the job's log has its last lines");
        return Err(Failure::permanent("program_failed", message).into());
    }
    if output.len() as u64 > OUTPUT_BYTES_MAX {
        let message = format!("the program wrote more than {OUTPUT_BYTES_MAX} bytes");
        return Err(Failure::permanent("output_too_long", message).into());
    }
    if output.iter().all(u8::is_ascii_whitespace) {
        return Ok(Outcome::Succeeded(None));
    }
    match serde_json::from_slice::<Value>(&output) {
        Ok(_) => Ok(Outcome::Succeeded(Some(Bytes::from(output)))),
        Err(error) => {
            let message = format!("the output of the program is not JSON: {error}");
            Err(Failure::permanent("bad_output", message).into())
        }
    }
}
