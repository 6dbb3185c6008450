//! Looks for damage: SQLite's own check of its pages, the chain of event hashes, every row read as the server reads it,
//! and what must hold between tables.
//!
//! A check only reads. It may run beside a server, from another process, on one committed state.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use laneway_core::{JobId, Seq};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};

use super::offline::Offline;
use super::pending::Commit;
use super::row_sums::{self, Summed};
use super::whole::read_state;
use super::{events, facets, files, kept_keys, live, load, open, records, sessions};
use crate::StoreError;
use crate::columns;
use crate::columns::status::{JOB, JOB_LEN, read_job};
use crate::columns::{CLOSED, END, OPEN, PAYLOAD, number, read_closed, read_end, read_open, read_payload};
use crate::log::{self, Known, Logged};
use crate::rows::{Interner, stored_digest, stored_job_id, stored_name};

/// The name under which files that do not belong together are reported.
const FILES: &str = "files";
/// Most findings that are listed. A file that is damaged everywhere would have millions.
const DAMAGE_MAX: usize = 100;
/// How often a log that a server writes is read anew.
const LOG_TRIES: u32 = 5;
/// Instructions of SQLite between two looks at the clock.
const OPS: i32 = 20_000;
/// Rows between two calls for progress.
const STEP: u64 = 1_000;

/// How much a check may read. `None`: everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckBounds {
    /// Rows that are read at most.
    pub rows_max: Option<u64>,
    /// How long it may take.
    pub time_max: Option<Duration>,
}

/// The progress of a check.
#[derive(Clone, Copy, Debug)]
pub struct CheckProgress {
    /// What it reads now: `pages`, `events`, `links`, or a table.
    pub stage: &'static str,
    /// Rows so far, of all tables.
    pub done: u64,
    /// Rows in all.
    pub total: u64,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The table; `pages` for what SQLite found below the tables, `files` for files that do not belong together.
    pub table: String,
    /// The key of the row; empty where it is not about a row.
    pub key: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { table, key, what } = self;
        match key.is_empty() {
            true => write!(f, "table {table}: {what}"),
            false => write!(f, "table {table}, row {key}: {what}"),
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Every finding, up to a hundred.
    pub damage: Vec<Damage>,
    /// Rows that were read.
    pub rows: u64,
    /// Events whose hash was computed again.
    pub events: u64,
    /// False: a bound was reached before the end.
    pub complete: bool,
}

impl CheckReport {
    /// The first finding as an error, if there is one.
    pub fn into_result(self) -> Result<(), StoreError> {
        let more = self.damage.len().saturating_sub(1);
        match self.damage.first() {
            None => Ok(()),
            Some(first) => {
                let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
                Err(StoreError::Damaged(format!("{first}{more}")))
            }
        }
    }
}

/// Checks the database of a data directory, also beside a running server. Without one, the files are compared first, and
/// no server can start until the check has ended. Nothing is changed.
pub fn check_dir(
    dir: &Path,
    bounds: CheckBounds,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    open::check_version()?;
    match files::has_database(dir) {
        Ok(true) => {}
        Ok(false) => return Err(StoreError::Unusable(format!("{} holds no database", dir.display()))),
        Err(StoreError::Damaged(what)) => {
            let damage = vec![Damage { table: FILES.into(), key: String::new(), what }];
            return Ok(CheckReport { damage, complete: true, ..CheckReport::default() });
        }
        Err(other) => return Err(other),
    }
    let in_dir = |error| open::in_dir(dir, error);
    let Some(mut offline) = Offline::open(dir).map_err(in_dir)? else {
        let mut conn = open::open_reader(&dir.join(files::DB), 16 * 1024).map_err(in_dir)?;
        let log = check_log(dir, &conn).map_err(in_dir)?;
        let mut report = check(&mut conn, bounds, progress).map_err(in_dir)?;
        report.damage.splice(0..0, log);
        return Ok(report);
    };
    let torn = match offline.check_files() {
        Ok(()) => None,
        Err(StoreError::Damaged(what)) => Some(Damage { table: FILES.into(), key: String::new(), what }),
        Err(other) => return Err(in_dir(other)),
    };
    let mut report = check(offline.conn(), bounds, progress).map_err(in_dir)?;
    report.damage.splice(0..0, torn);
    Ok(report)
}

/// Reads the commit log beside a server that appends to it: every record up to the last one must be readable.
fn check_log(dir: &Path, conn: &Connection) -> Result<Option<Damage>, StoreError> {
    let Some(state) = read_state(conn)? else { return Ok(None) };
    let Some(id) = state.log_id.filter(|_| !state.closed) else { return Ok(None) };
    let known = Known { id, stored: state.stored, complete: 0, accept_loss: false };
    let mut names = Interner::default();
    let mut found = None;
    // A segment that changes while it is read may look damaged.
    for _ in 0..LOG_TRIES {
        let read = |logged: Logged<'_>| Commit::decode(&logged, &mut names).map(drop);
        found = match log::scan(&dir.join(log::DIR), known, &mut { read }) {
            Ok(_) => return Ok(None),
            Err(StoreError::Damaged(what)) => Some(Damage { table: FILES.into(), key: String::new(), what }),
            Err(other) => return Err(other),
        };
    }
    Ok(found)
}

/// Checks a database file that nothing else uses and that needs no log.
pub(super) fn check_file(
    path: &Path,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(files::immutable_uri(path), flags)?;
    row_sums::add_functions(&conn)?;
    check(&mut conn, CheckBounds::default(), progress)
}

/// Reads every row over this connection; the first damage is an error.
pub(super) fn every_row(conn: &Connection) -> Result<(), StoreError> {
    let mut walk = Walk::new(CheckBounds::default(), 0);
    pages(conn, &mut walk.report)?;
    tables(conn, &mut walk, &mut |_| ())?;
    walk.report.into_result()
}

/// Checks over a connection of its own.
fn check(
    conn: &mut Connection,
    bounds: CheckBounds,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    conn.execute_batch("BEGIN")?;
    let total = total_rows(conn);
    let mut walk = Walk::new(bounds, total);
    progress(CheckProgress { stage: "pages", done: 0, total });
    // Half of the time is for the pages, so that a large store gets to its newest rows.
    let half = bounds.time_max.map(|time| Instant::now() + time / 2);
    stop_at(conn, half)?;
    match pages(conn, &mut walk.report) {
        Err(StoreError::Failed(_)) if half.is_some_and(|end| Instant::now() >= end) => walk.cut = true,
        Err(StoreError::Damaged(what)) => walk.found("pages", String::new(), what),
        other => other?,
    }
    stop_at(conn, walk.end)?;
    match tables(conn, &mut walk, progress) {
        Err(StoreError::Failed(_)) if walk.is_over() => {}
        Err(StoreError::Damaged(what)) => walk.found("pages", String::new(), what),
        other => other?,
    }
    walk.report.complete = !walk.cut && !walk.is_over();
    Ok(walk.report)
}

/// Statements of this connection end at this time.
fn stop_at(conn: &mut Connection, end: Option<Instant>) -> Result<(), StoreError> {
    Ok(conn.progress_handler(OPS, end.map(|end| move || Instant::now() >= end))?)
}

/// The checks of SQLite itself: pages, indexes and constraints.
fn pages(conn: &Connection, report: &mut CheckReport) -> Result<(), StoreError> {
    let mut check = conn.prepare(&format!("PRAGMA integrity_check({DAMAGE_MAX})"))?;
    let mut rows = check.query([])?;
    loop {
        match rows.next() {
            Ok(Some(row)) => {
                let found: String = row.get(0)?;
                // Several findings may be in one row, after a line with the name of the database.
                let lines = found.lines().filter(|line| *line != "ok" && !line.starts_with("***"));
                let found =
                    |what: &str| Damage { table: "pages".into(), key: String::new(), what: what.to_owned() };
                report.damage.extend(lines.map(found));
            }
            Ok(None) => return Ok(()),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                return Err(StoreError::Failed(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Every table whose rows are read as the server reads them. Those of [`row_sums::ALL`] are summed before.
const READ: [&str; 11] = [
    "job",
    "open_attempt",
    "attempt",
    "done",
    "idempotency",
    "run",
    "run_call",
    "schedule",
    "firing_log",
    "delivery",
    "token",
];

fn total_rows(conn: &Connection) -> u64 {
    let count = |table: &str| {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap_or(0)
    };
    let summed = row_sums::ALL.iter().map(|summed| summed.table);
    READ.into_iter().chain(summed).map(|table| count(table).cast_unsigned()).sum()
}

/// A check under way.
struct Walk {
    report: CheckReport,
    bounds: CheckBounds,
    end: Option<Instant>,
    /// When the rows must leave the rest of the time to the events.
    rows_end: Option<Instant>,
    total: u64,
    /// True: something was left out for lack of time.
    cut: bool,
}

impl Walk {
    fn new(bounds: CheckBounds, total: u64) -> Walk {
        let end = bounds.time_max.map(|time| Instant::now() + time);
        let report = CheckReport { complete: true, ..CheckReport::default() };
        Walk { report, bounds, end, rows_end: None, total, cut: false }
    }

    /// From here on, rows have half of the time that is left.
    fn begin_rows(&mut self) {
        self.rows_end = half_until(self.end);
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
            || self.bounds.rows_max.is_some_and(|most| self.report.rows >= most)
            || self.report.damage.len() >= DAMAGE_MAX
    }

    fn found(&mut self, table: &str, key: String, what: String) {
        if self.report.damage.len() < DAMAGE_MAX {
            self.report.damage.push(Damage { table: table.to_owned(), key, what });
        }
    }

    /// Reads rows of one table with `read`. A row that cannot be read is a finding; a table that cannot is one, too.
    fn rows(
        &mut self,
        conn: &Connection,
        (stage, sql): (&'static str, &str),
        progress: &mut dyn FnMut(CheckProgress),
        read: &mut dyn FnMut(&Row<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut select = conn.prepare(sql)?;
        let mut rows = select.query([])?;
        // No table takes all of it: each leaves half of what it found to those that follow.
        let table_end = half_until(self.rows_end);
        loop {
            if self.is_over() || table_end.is_some_and(|end| Instant::now() >= end) {
                self.cut = true;
                break;
            }
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                    self.cut = true;
                    break;
                }
                Err(error) => {
                    self.found(stage, String::new(), error.to_string());
                    break;
                }
            };
            if let Err(error) = read(row) {
                self.found(stage, key_of(row), inner(error));
            }
            self.report.rows += 1;
            if self.report.rows.is_multiple_of(STEP) {
                progress(CheckProgress { stage, done: self.report.rows, total: self.total });
            }
        }
        progress(CheckProgress { stage, done: self.report.rows, total: self.total });
        Ok(())
    }
}

/// The middle between now and then.
fn half_until(end: Option<Instant>) -> Option<Instant> {
    let now = Instant::now();
    end.map(|end| now + end.saturating_duration_since(now) / 2)
}

/// The first column, which is the key or begins it.
fn key_of(row: &Row<'_>) -> String {
    row.get_ref(0).map(row_sums::text_of).unwrap_or_default()
}

fn inner(error: StoreError) -> String {
    match error {
        StoreError::Damaged(why) | StoreError::Failed(why) => why,
        other => other.to_string(),
    }
}

fn tables(
    conn: &Connection,
    walk: &mut Walk,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(), StoreError> {
    // Rows first, because the server needs them next. The chain is as long as the history.
    walk.begin_rows();
    jobs(conn, walk, progress)?;
    sums(conn, walk, progress)?;
    attempts(conn, walk, progress)?;
    others(conn, walk, progress)?;
    chain(conn, walk, progress)?;
    if !walk.is_over() {
        progress(CheckProgress { stage: "links", done: walk.report.rows, total: walk.total });
        links(conn, walk)?;
        lists(conn, walk, progress)?;
    }
    Ok(())
}

/// The sets that lists are read from, against the jobs themselves.
fn lists(
    conn: &Connection,
    walk: &mut Walk,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(), StoreError> {
    for chunk in facets::verify::chunks(conn)? {
        if walk.is_over() {
            walk.cut = true;
            break;
        }
        match facets::verify::check_chunk(conn, chunk) {
            Ok(None) => {}
            Ok(Some(what)) | Err(StoreError::Damaged(what)) => walk.found("facet", chunk.to_string(), what),
            Err(StoreError::Failed(_)) if walk.is_over() => break,
            Err(other) => return Err(other),
        }
        progress(CheckProgress { stage: "lists", done: walk.report.rows, total: walk.total });
    }
    Ok(())
}

/// The chain of hashes, from its oldest end.
fn chain(
    conn: &Connection,
    walk: &mut Walk,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(), StoreError> {
    let mut link = None;
    while !walk.is_over() {
        match events::verify_part(conn, link) {
            Ok((count, next)) => {
                walk.report.events += count;
                link = next;
            }
            Err(StoreError::Damaged(what)) => {
                walk.found("event_batch", String::new(), what);
                break;
            }
            Err(StoreError::Failed(_)) if walk.is_over() => break,
            Err(other) => return Err(other),
        }
        progress(CheckProgress { stage: "events", done: walk.report.rows, total: walk.total });
        if link.is_none() {
            break;
        }
    }
    Ok(())
}

/// The tables that a job's life is in.
fn jobs(
    conn: &Connection,
    walk: &mut Walk,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(), StoreError> {
    let mut names = Interner::default();
    let sql = format!(
        "SELECT {JOB}, {PAYLOAD} FROM job LEFT JOIN payload ON payload.seq = job.seq ORDER BY job.seq DESC"
    );
    walk.rows(conn, ("job", &sql), progress, &mut |row| {
        let job = read_job(row, &mut names)?;
        if row.get_ref(JOB_LEN)?.as_i64_or_null()?.is_none() {
            return Err(StoreError::Damaged("the job has no payload".into()));
        }
        let len = read_payload(row, JOB_LEN)?.len();
        if job.payload_len > 0 && len != job.payload_len as usize {
            return Err(StoreError::Damaged(format!("its payload has {len} bytes, not {}", job.payload_len)));
        }
        Ok(())
    })?;
    let sql = format!("SELECT {END} FROM done ORDER BY ended DESC");
    walk.rows(conn, ("done", &sql), progress, &mut |row| read_end(row).map(drop))
}

/// The checksum of every row of the tables that SQLite sums.
fn sums(
    conn: &Connection,
    walk: &mut Walk,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(), StoreError> {
    for Summed { table, columns, keys, verdict, .. } in row_sums::ALL {
        let sql = format!("SELECT {}, {verdict} FROM {table}", columns[..*keys].join(", "));
        walk.rows(conn, (table, &sql), progress, &mut |row| {
            if row.get(*keys)? {
                return Ok(());
            }
            let key = (0..*keys).map(|at| row.get_ref(at).map(row_sums::text_of));
            let key = key.collect::<Result<Vec<_>, _>>()?.join(" ");
            Err(StoreError::Damaged(format!("the row with the key {key} is not what was written")))
        })?;
    }
    Ok(())
}

/// Attempts and idempotency keys.
fn attempts(
    conn: &Connection,
    walk: &mut Walk,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(), StoreError> {
    let sql = format!("SELECT {OPEN} FROM open_attempt ORDER BY seq");
    walk.rows(conn, ("open_attempt", &sql), progress, &mut |row| read_open(row, JobId(0)).map(drop))?;
    let sql = format!("SELECT {OPEN}, {CLOSED} FROM attempt ORDER BY seq DESC");
    walk.rows(conn, ("attempt", &sql), progress, &mut |row| read_closed(row, JobId(0)).map(drop))?;
    let sql = "SELECT tenant, key, job, digest FROM idempotency";
    walk.rows(conn, ("idempotency", sql), progress, &mut |row| {
        stored_name(row.get_ref(0)?.as_str()?)?;
        stored_name(row.get_ref(1)?.as_str()?)?;
        stored_job_id(row.get_ref(2)?.as_blob()?)?;
        stored_digest(row.get_ref(3)?.as_blob()?).map(drop)
    })
}

/// Runs, schedules, deliveries, sessions, tokens, kept keys and records.
fn others(
    conn: &Connection,
    walk: &mut Walk,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(), StoreError> {
    let sql = format!("SELECT {} FROM run ORDER BY first DESC", columns::runs::RUN);
    walk.rows(conn, ("run", &sql), progress, &mut |row| columns::runs::read_run(row).map(drop))?;
    let sql = format!("SELECT {} FROM run_call", columns::runs::CALL);
    walk.rows(conn, ("run_call", &sql), progress, &mut |row| columns::runs::read_call(row).map(drop))?;
    let mut names = Interner::default();
    let sql = format!(
        "SELECT {} FROM schedule LEFT JOIN schedule_payload ON schedule_payload.id = schedule.id",
        columns::schedules::SCHEDULE
    );
    walk.rows(conn, ("schedule", &sql), progress, &mut |row| {
        columns::schedules::read_schedule(row, &mut names).map(drop)
    })?;
    let sql = format!("SELECT {} FROM firing_log ORDER BY number DESC", columns::firing_log::ENTRY);
    walk.rows(conn, ("firing_log", &sql), progress, &mut |row| {
        columns::firing_log::read_entry(row).map(drop)
    })?;
    let sql = format!("SELECT {} FROM delivery ORDER BY seq DESC", columns::deliveries::DELIVERY);
    walk.rows(conn, ("delivery", &sql), progress, &mut |row| {
        columns::deliveries::read_delivery(row).map(drop)
    })?;
    for (table, loaded) in [
        ("token", load::tokens(conn).map(drop)),
        ("session", sessions::load(conn, &mut |_| ())),
        ("kept_key", kept_keys::load(conn, &mut |_| ())),
        ("record", records::load(conn, &mut |_| ())),
    ] {
        if let Err(StoreError::Damaged(what)) = loaded {
            walk.found(table, String::new(), what);
        }
    }
    Ok(())
}

/// What must hold between tables: a job is live or has ended, and not both.
fn links(conn: &Connection, walk: &mut Walk) -> Result<(), StoreError> {
    let live = match live::read(conn) {
        Ok(live) => live,
        Err(error) => {
            walk.found("live_chunk", String::new(), inner(error));
            return Ok(());
        }
    };
    let mut job = conn.prepare("SELECT 1 FROM job WHERE seq = ?1")?;
    let mut done = conn.prepare("SELECT 1 FROM done WHERE seq = ?1")?;
    let mut lives = 0;
    for seq in live.chunks().into_iter().flat_map(|chunk| chunk.jobs()) {
        lives += 1;
        if !job.exists([seq.0.cast_signed()])? {
            walk.found("live_chunk", seq.0.to_string(), "the live job has no row".into());
        }
        if done.exists([seq.0.cast_signed()])? {
            walk.found("done", seq.0.to_string(), "the live job has an end".into());
        }
    }
    let count = |table: &str| {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))
    };
    let (jobs, ended) = (count("job")?, count("done")?);
    if jobs != ended + lives {
        let what = format!("of {jobs} jobs, {lives} are live and {ended} have ended");
        walk.found("job", String::new(), what);
    }
    let mut select = conn.prepare(
        "SELECT seq FROM done WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.seq = done.seq) \
         UNION ALL SELECT seq FROM open_attempt WHERE NOT EXISTS (SELECT 1 FROM job WHERE job.seq = open_attempt.seq) \
         LIMIT 100",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let Seq(seq) = Seq(number(row, 0)?);
        walk.found("done", seq.to_string(), "the end or open attempt has no job".into());
    }
    Ok(())
}
