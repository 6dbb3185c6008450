//! The log of a job: the lines that its attempts wrote, and its transitions, in the order of their times.

use axum::extract::{Path, RawQuery};
use laneway_core::event::JobLine;
use laneway_core::{Event, EventKind, Reason, Seq};
use laneway_runtime::ARTIFACTS;
use laneway_runtime::feedback::REPORTS;
use laneway_runtime::store::{LogView, Reader, StoreError};

use super::BrowserManager;
use super::decode::Fields;
use super::error::{Answer, Problem, ok};
use super::jobs::lines_after;
use super::translate::{self, EXECUTION_TIMEOUT, QUEUE_TIMEOUT, Status, time};
use super::wire::{JobLogs, LogEntry};
use crate::body::Call;

/// Most lines in one answer.
const LINES_MAX: u64 = 10_000;
/// The number of lines where a request names none.
const LINES_DEFAULT: u64 = 1_000;
/// Most transitions that are read of a job.
const EVENTS_MAX: usize = 1_000;

/// The levels of lines, from the least important.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For developers.
    Debug,
    /// As expected.
    Info,
    /// Not as expected, and it goes on.
    Warn,
    /// It failed.
    Error,
}

impl Level {
    const NAMES: [(&'static str, Level); 4] =
        [("DEBUG", Level::Debug), ("INFO", Level::Info), ("WARN", Level::Warn), ("ERROR", Level::Error)];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warn => "WARN",
            Level::Error => "ERROR",
        }
    }

    /// The level of a line in this stream of a log.
    fn of_stream(stream: &str) -> Level {
        match stream {
            "debug" => Level::Debug,
            "warn" => Level::Warn,
            "error" | "stderr" => Level::Error,
            _ => Level::Info,
        }
    }
}

/// Which lines a request wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The least important level.
    pub level: Level,
    /// At most this many lines, the newest.
    pub tail: usize,
}

impl Wanted {
    /// Reads `level` and `tail`.
    pub fn read(fields: &mut Fields, level: Level, tail: u64) -> Result<Wanted, Problem> {
        let level = fields.opt_one_of("level", &Level::NAMES)?.unwrap_or(level);
        let tail = fields.opt_number("tail", 0, LINES_MAX)?.unwrap_or(tail);
        Ok(Wanted { level, tail: usize::try_from(tail).unwrap_or(usize::MAX) })
    }
}

/// A line with its level and its time.
pub struct Line {
    level: Level,
    at: i64,
    /// The order within a millisecond.
    rank: Rank,
    /// As it is shown.
    pub entry: LogEntry,
}

/// The order of lines of one millisecond: an attempt begins, writes, and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Begin,
    Written,
    End,
}

impl Line {
    /// True when the line is important enough.
    pub fn is_at_least(&self, level: Level) -> bool {
        self.level >= level
    }
}

/// Shows the log of a job.
pub async fn get_logs(
    Call(browser_manager, caller): Call<BrowserManager>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let mut fields = Fields::of_query(query.as_deref());
    let wanted = Wanted::read(&mut fields, Level::Debug, LINES_DEFAULT)?;
    let view = browser_manager.find(&caller, &id).await?;
    let (seq, job_id) = (view.row.seq, view.row.id.to_string());
    let shown = job_id.clone();
    let log = browser_manager.scheduler.read(move |reader| Log::read(reader, seq, &shown)).await?;
    let (lines, truncated) = newest(log.lines, wanted);
    ok(&JobLogs { job_id, lines, truncated })
}

/// The newest of the lines that are wanted, oldest first, and whether older ones are left out.
pub fn newest(mut lines: Vec<Line>, wanted: Wanted) -> (Vec<LogEntry>, bool) {
    lines.retain(|line| line.is_at_least(wanted.level));
    let left_out = lines.len().saturating_sub(wanted.tail);
    (lines.drain(left_out..).map(|line| line.entry).collect(), left_out > 0)
}

/// The whole log of a job at one moment.
pub struct Log {
    /// Everything in it, oldest first.
    pub lines: Vec<Line>,
    /// The number of the last line that an attempt wrote.
    pub line: u64,
    /// The number of the last event.
    pub event: u64,
    /// How the job ended, if the lines say so.
    pub ended: Option<Status>,
}

impl Log {
    /// Reads the log of a job.
    pub fn read(reader: &dyn Reader, job: Seq, id: &str) -> Result<Log, StoreError> {
        // In this order: what an attempt wrote before its end is there if its end is.
        let events = reader.events_of(job, EVENTS_MAX)?;
        let written = lines_after(reader, job, 0)?;
        let mut lines: Vec<Line> = events.iter().filter_map(|event| transition(event, id)).collect();
        lines.extend(written.iter().filter_map(|line| written_line(line, id)));
        lines.sort_by_key(|line| (line.at, line.rank));
        Ok(Log {
            lines,
            line: written.last().map_or(0, |line| line.line),
            event: events.last().map_or(0, |event| event.number),
            ended: events.iter().filter_map(status_after).find(|status| status.is_terminal()),
        })
    }
}

/// A line that an attempt wrote. `None`: it is not for people.
pub fn written_line(line: &LogView, id: &str) -> Option<Line> {
    let stream = line.stream.as_str();
    if matches!(stream, ARTIFACTS | REPORTS) {
        return None;
    }
    let level = Level::of_stream(stream);
    Some(Line {
        level,
        at: line.at.0,
        rank: Rank::Written,
        entry: LogEntry {
            timestamp: time(line.at),
            level: level.as_str(),
            job_id: id.to_owned(),
            attempt: line.attempt,
            source: stream.to_owned(),
            message: line.text.to_string(),
        },
    })
}

/// The state that a job has after an event. `None`: the event is no transition.
pub fn status_after(event: &Event) -> Option<Status> {
    match event.kind {
        EventKind::JobSubmitted | EventKind::JobQueued | EventKind::JobRetrying => Some(Status::Queued),
        EventKind::JobStarted => Some(Status::Running),
        EventKind::JobSucceeded => Some(Status::Succeeded),
        EventKind::JobFailed => Some(Status::Failed),
        EventKind::JobCanceled => Some(Status::Canceled),
        _ => None,
    }
}

/// The error in an event, in the words of the dialect.
pub fn error_in(job: &JobLine) -> Option<String> {
    match job.reason {
        Some(Reason::QueueTimeout) => Some(QUEUE_TIMEOUT.to_owned()),
        Some(Reason::TimedOut) => Some(EXECUTION_TIMEOUT.to_owned()),
        _ => job.error.as_ref().map(|error| translate::message_of(error.code.as_str(), &error.message)),
    }
}

/// The line for a transition. `None`: the event is none.
pub fn transition(event: &Event, id: &str) -> Option<Line> {
    let job = event.job.as_ref()?;
    let status = status_after(event)?;
    let error = error_in(job).unwrap_or_default();
    let (level, message) = match event.kind {
        EventKind::JobSubmitted => (Level::Info, "queued".to_owned()),
        EventKind::JobQueued if job.attempt == 0 => (Level::Info, "queued".to_owned()),
        EventKind::JobQueued => (Level::Warn, format!("queued again after attempt {}", job.attempt)),
        EventKind::JobStarted => (Level::Info, format!("running, attempt {}", job.attempt)),
        EventKind::JobRetrying => {
            (Level::Warn, format!("attempt {} failed: {error}; queued for a retry", job.attempt))
        }
        EventKind::JobFailed => (Level::Error, format!("failed: {error}")),
        _ => (Level::Info, status.as_str().to_owned()),
    };
    let entry = LogEntry {
        timestamp: time(event.at),
        level: level.as_str(),
        job_id: id.to_owned(),
        attempt: job.attempt,
        source: "agent".to_owned(),
        message,
    };
    let ends = status.is_terminal() || event.kind == EventKind::JobRetrying;
    let rank = if ends { Rank::End } else { Rank::Begin };
    Some(Line { level, at: event.at.0, rank, entry })
}
