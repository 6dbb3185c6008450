//! `laneway jobs wait` and `--wait`: waits for the end of a job, and shows its progress.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use laneway_runtime::config::parse_span;
use laneway_wire::{AttemptList, Explanation, Job};

use super::{find, show};
use crate::client::{Client, DEFAULT_URL, is_unknown_parameter};
use crate::exit::{CliError, Exit, code_of};
use crate::output::{Output, Paint};
use crate::short_id::short_id;
use crate::table::cut;
use crate::time_args;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0    the job succeeded
  1    it ended without success
  3    there is no such job
  4    the server was unreachable for more than a minute
  124  it has not ended within --timeout; it goes on
  130  Ctrl-C ended the wait; the job goes on

Attempts, progress and what the job waits for are written to standard error.")]
pub struct WaitArgs {
    /// The job
    job: String,
    /// Wait no longer than this; the job goes on
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    timeout: Option<Duration>,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_span(text)
        .map(|span| Duration::from_millis(span.0))
        .ok_or("write a duration such as 30s or 5m".to_owned())
}

/// Waits for one job.
pub async fn run(output: &Output, client: &Client, args: &WaitArgs) -> anyhow::Result<()> {
    wait_and_show(output, client, &find(client, &args.job).await?, args.timeout).await
}

/// Waits until the job has ended and shows it. Returns an error unless it succeeded.
pub async fn wait_and_show(
    output: &Output,
    client: &Client,
    id: &str,
    timeout: Option<Duration>,
) -> anyhow::Result<()> {
    let mut status = Status::new(output);
    let waited = tokio::select! {
        waited = wait(client, id, &mut status) => Some(waited),
        () = sleep_for(timeout) => None,
        _ = tokio::signal::ctrl_c() => {
            status.clear();
            return Err(CliError::new(Exit::Interrupted, goes_on(client, id, "stopped waiting")).into());
        }
    };
    status.clear();
    let Some(job) = waited.transpose()? else {
        let after = time_args::short(timeout.unwrap_or_default().as_millis().try_into().unwrap_or(u64::MAX));
        let why = format!("not ended after {after}");
        return Err(CliError::new(Exit::TimedOut, goes_on(client, id, &why)).into());
    };
    if output.json {
        output.document(&job)?;
    } else {
        show::print_end(output, &job);
    }
    if job.state == "succeeded" {
        return Ok(());
    }
    let reason = job.reason.as_deref().unwrap_or("no reason given");
    Err(CliError::new(Exit::Rejected, format!("the job ended as {} ({reason})", job.state)).into())
}

async fn sleep_for(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// A message that the job goes on, and how to follow or cancel it.
fn goes_on(client: &Client, id: &str, why: &str) -> String {
    let at = if client.base() == DEFAULT_URL { String::new() } else { format!(" --url {}", client.base()) };
    let short = short_id(id);
    format!(
        "{why}; job {id} goes on\n  laneway{at} jobs wait {short}     waits again\n  laneway{at} jobs show {short}     \
         shows it\n  laneway{at} jobs cancel {short}   cancels it"
    )
}

/// Shortest pause between two polls, where the server does not support waiting.
const POLL_MIN: Duration = Duration::from_millis(10);
/// Longest pause between two polls, where the server does not support waiting.
const POLL_MAX: Duration = Duration::from_millis(500);
/// How long the server waits for the end before it answers; each answer updates the progress.
const SERVER_WAIT: &str = "1s";
/// How long a server may be unreachable during a wait: it may be restarting.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Polls the job until it has ended. A merged job ends like the job that it was merged into.
async fn wait(client: &Client, id: &str, status: &mut Status<'_>) -> anyhow::Result<Job<'static>> {
    let job = wait_for(client, id, status).await?;
    match &job.merged_into {
        // A job that others were merged into is never merged itself.
        Some(into) => {
            status.note(&format!("merged into {into}, which runs for both"));
            wait_for(client, into, status).await
        }
        None => Ok(job),
    }
}

/// How the next poll is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The first one only reads the current state.
    First,
    /// The server answers when the job has ended, or after a while.
    LongPoll,
    /// The server is of an earlier version and answers at once.
    Poll,
}

async fn wait_for(client: &Client, id: &str, status: &mut Status<'_>) -> anyhow::Result<Job<'static>> {
    let mut mode = Mode::First;
    let mut pause = POLL_MIN;
    let mut away_since: Option<Instant> = None;
    let mut watch = Watch::default();
    loop {
        let asked_at = Instant::now();
        let wait = (mode == Mode::LongPoll).then(|| ("wait", SERVER_WAIT.to_owned()));
        let found: anyhow::Result<Job<'static>> = client.get(&["v1", "jobs", id], wait.as_slice()).await;
        match found {
            Ok(job) => {
                away_since = None;
                watch.observe(client, &job, status).await;
                if has_ended(&job) {
                    return Ok(job);
                }
            }
            // An earlier version, or too many waiting calls.
            Err(error) if mode == Mode::LongPoll && cannot_wait(&error) => mode = Mode::Poll,
            Err(error) if !may_come_back(&error) => return Err(error),
            Err(error) => {
                status.show("away", || "the server does not answer; it may come back".to_owned());
                if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY_MAX {
                    let text = format!("stopped waiting for job {id}, which is durable and may still run");
                    let message = format!("{text}: {error}");
                    return Err(CliError::new(code_of(&error), message).into());
                }
            }
        }
        if mode == Mode::First {
            mode = Mode::LongPoll;
        } else if asked_at.elapsed() < POLL_MAX {
            // The server did not wait: it does not support it, or is unreachable.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }
}

fn has_ended(job: &Job<'_>) -> bool {
    matches!(&*job.state, "succeeded" | "failed" | "canceled" | "rejected")
}

/// True while an attempt is open.
fn is_open(job: &Job<'_>) -> bool {
    matches!(&*job.state, "assigned" | "running")
}

/// True when the server does not support waiting calls, or has too many of them: polling works.
fn cannot_wait(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<CliError>().and_then(|cli_error| cli_error.problem.as_deref());
    is_unknown_parameter(error) || problem.is_some_and(|problem| problem.code == "too_many")
}

/// True for errors that a restart of the server explains: it is unreachable or stopping.
fn may_come_back(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<CliError>().and_then(|cli_error| cli_error.problem.as_deref());
    code_of(error) == Exit::Unreachable || problem.is_some_and(|problem| problem.status == 503)
}

/// What was reported so far, so that every change is written once.
#[derive(Default)]
struct Watch {
    /// The last attempt whose failure was written.
    written_attempt: u32,
    /// Failed and lost attempts at the last poll.
    ended_badly: u32,
}

impl Watch {
    async fn observe(&mut self, client: &Client, job: &Job<'_>, status: &mut Status<'_>) {
        if status.silent {
            return;
        }
        let ended_badly = job.failures + job.losses;
        // The caller writes the end of the job.
        if ended_badly > self.ended_badly && !has_ended(job) {
            let list: anyhow::Result<AttemptList> =
                client.get(&["v1", "jobs", &job.id, "attempts"], &[]).await;
            // A call that fails now is repeated at the next poll.
            if let Ok(list) = list {
                self.note_attempts(&list, job, status);
                self.ended_badly = ended_badly;
            }
        }
        match &*job.state {
            "running" => status.show(&running_key(job), || running(job)),
            "assigned" => {
                status.show("assigned", || format!("attempt {} is offered to a worker", job.attempt))
            }
            "queued" | "scheduled" if ended_badly > 0 && job.not_before.is_some() => {
                status.show_live(|| format!("attempt {} {}", job.attempt + 1, until(job)));
            }
            "queued" | "scheduled" if status.is_due() => {
                let explained: anyhow::Result<Explanation> =
                    client.get(&["v1", "jobs", &job.id, "explain"], &[]).await;
                // It may have started meanwhile; then the next poll shows it.
                if let Ok(explanation) = explained
                    && !explanation.blocked_by.is_empty()
                {
                    let codes: Vec<&str> =
                        explanation.blocked_by.iter().map(|blocker| blocker.code.as_str()).collect();
                    let key = format!("{} {}", job.state, codes.join(" "));
                    status.show(&key, || format!("{}: {}", job.state, explanation.summary));
                }
            }
            _ => {}
        }
    }

    /// Writes one line for each attempt that ended without success since the last poll.
    fn note_attempts(&mut self, list: &AttemptList, job: &Job<'_>, status: &mut Status<'_>) {
        for attempt in &list.attempts {
            if attempt.attempt <= self.written_attempt {
                continue;
            }
            let Some(error) = &attempt.error else { continue };
            self.written_attempt = attempt.attempt;
            let waits = attempt.attempt == job.attempt && !is_open(job) && job.not_before.is_some();
            let next =
                if waits { format!("; attempt {} {}", job.attempt + 1, until(job)) } else { String::new() };
            status.note(&format!(
                "attempt {} {}: {}: {}{next}",
                attempt.attempt, attempt.state, error.code, error.message
            ));
        }
    }
}

/// When a delayed job may start.
fn until(job: &Job<'_>) -> String {
    job.not_before.as_deref().map(time_args::distance).unwrap_or_default()
}

/// What distinguishes a new line about a running job: ten percent more, or another text.
fn running_key(job: &Job<'_>) -> String {
    let progress = job.progress.as_ref();
    let tenth = progress.map_or(0, |progress| (progress.fraction * 10.0) as u32);
    let message = progress.map(|progress| progress.message.as_str()).unwrap_or_default();
    format!("running {} {tenth} {message}", job.attempt)
}

fn running(job: &Job<'_>) -> String {
    let mut text = format!("attempt {} runs", job.attempt);
    if let Some(progress) = &job.progress {
        text.push_str(&format!(", {:.0} % {}", progress.fraction * 100.0, progress.message));
    }
    text.trim_end().to_owned()
}

/// A wait that ends sooner than this writes only its end.
const QUIET: Duration = Duration::from_millis(700);
/// The shortest interval of progress lines in files and pipes.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The status of a wait: one line on standard error that is overwritten, or a line for every change where
/// standard error is not a terminal.
struct Status<'a> {
    output: &'a Output,
    /// True: the output is for a program, and no status is written.
    silent: bool,
    live: bool,
    begin: Instant,
    /// The last text that was written, without its changing parts.
    key: String,
    /// When it was written.
    written: Option<Instant>,
}

impl Status<'_> {
    fn new(output: &Output) -> Status<'_> {
        let live = io::stderr().is_terminal() && !output.json;
        Status { output, silent: output.json, live, begin: Instant::now(), key: String::new(), written: None }
    }

    /// True once the wait has lasted long enough to write a status.
    fn is_due(&self) -> bool {
        !self.silent && self.begin.elapsed() >= QUIET
    }

    /// Shows the current state. `key` identifies it.
    fn show(&mut self, key: &str, text: impl FnOnce() -> String) {
        if !self.is_due() {
            return;
        }
        if self.live {
            return self.draw(&text());
        }
        let same_sort = self.key.split(' ').next() == key.split(' ').next();
        let too_soon = self.written.is_some_and(|written| written.elapsed() < LINE_EVERY);
        if self.key == key || (same_sort && too_soon) {
            return;
        }
        key.clone_into(&mut self.key);
        self.written = Some(Instant::now());
        self.output.note(show::printable(&text()));
    }

    /// Shows the current state on a terminal only.
    fn show_live(&mut self, text: impl FnOnce() -> String) {
        if self.live && self.is_due() {
            self.draw(&text());
        }
    }

    /// Writes a line that stays.
    fn note(&mut self, text: &str) {
        if self.silent {
            return;
        }
        self.clear();
        self.key.clear();
        self.output.note(show::printable(text).replace('\n', " "));
    }

    fn draw(&mut self, text: &str) {
        let since = time_args::short(self.begin.elapsed().as_millis().try_into().unwrap_or(u64::MAX));
        let width =
            terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
        // So that neither the terminal nor an added ^C wraps the line.
        let line = cut(
            &format!("{since:>6}  {}", show::printable(text).replace('\n', " ")),
            width.saturating_sub(3),
        );
        let painted = self.output.paint_stderr(Paint::Dim, &line);
        // A closed terminal does not stop the wait.
        let _ = write!(io::stderr(), "\r\x1b[K{painted}");
    }

    /// Removes the line.
    fn clear(&mut self) {
        if self.live {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
