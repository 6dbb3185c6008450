//! Reads for callers: one job, lists, logs, events. Every call reads one committed state and a bounded number of rows.

use std::sync::Arc;

use laneway_core::{
    Bytes, Change, DeliveryRow, DeliveryTry, Event, JobId, Name, Prior, Reason, RunId, RunRow, Seq, Wall,
};
use rusqlite::{Connection, Row};

use super::pending::Commit;
use super::shared::Shared;
use super::{deliveries, events, facets, firing_log, load, overlay, row_sums, runs, sessions};
use crate::columns::status::{JOB, read_job};
use crate::columns::{
    CLOSED, END, OPEN, PAYLOAD, number, read_closed, read_end, read_open, read_payload, small,
};
use crate::rows::{Interner, stored_name};
use crate::{
    AttemptView, CountBy, DeliveryFilter, EventFilter, FiringLogFilter, FiringLogPage, JobCounts, JobFilter,
    JobView, Lag, LogView, Page, Reader, RunFilter, Runnable, StoreError,
};

/// Reads what is durable. What is about one job is read from the tables and from the commits that wait; everything else is
/// read when the tables have caught up.
pub(super) struct SqliteReader(pub Arc<Shared>);

impl SqliteReader {
    /// Reads the tables when they have everything that is durable now.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.0.catch_up()?;
        self.0.pool.read(read)
    }

    /// The commits that wait. Where one of them deletes jobs, the tables catch up first.
    fn waiting(&self) -> Result<Vec<Arc<Commit>>, StoreError> {
        let waiting = self.0.pending.snapshot();
        if waiting.iter().any(|commit| commit.prunes()) {
            self.0.catch_up()?;
            return Ok(Vec::new());
        }
        Ok(waiting)
    }

    /// Reads the tables for one job. They must catch up only if a commit that waits changes the job.
    fn read_of<T>(
        &self,
        job: Seq,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let waiting = self.waiting()?;
        if waiting.iter().any(|commit| commit.changes_of(job).next().is_some()) {
            self.0.catch_up()?;
        }
        self.0.pool.read(read)
    }

    /// Jobs, from the tables and the commits that wait. `find` gives those of the tables.
    fn views(
        &self,
        waiting: &[Arc<Commit>],
        jobs: &[Seq],
        find: impl FnOnce(&Connection, &mut Interner) -> Result<Vec<JobView>, StoreError>,
    ) -> Result<Vec<JobView>, StoreError> {
        // The commits that wait were looked at before: none can be missing in both.
        let (stored, found) = self.0.pool.read(|conn| {
            let sql = format!("SELECT stored, {} FROM store_state", row_sums::STORE_STATE.check);
            let mut stored = conn.prepare_cached(&sql)?;
            let stored = stored.query_row([], |row| row.get::<_, i64>(0))?.cast_unsigned();
            Ok((stored, find(conn, &mut Interner::default())?))
        })?;
        let missing: Vec<&Arc<Commit>> = waiting.iter().filter(|commit| commit.number > stored).collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let mut found = found.into_iter().peekable();
        let view = |seq: &Seq| {
            let base = found.next_if(|view| view.row.seq == *seq);
            overlay::changed(base, missing.iter().flat_map(|commit| commit.changes_of(*seq)))
        };
        Ok(jobs.iter().filter_map(view).collect())
    }
}

impl Reader for SqliteReader {
    fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
        let waiting = self.waiting()?;
        let created = waiting.iter().find_map(|commit| commit.created(id));
        let seq = match created {
            Some(seq) => Some(seq),
            None => self.0.pool.read(|conn| seq_of(conn, id))?,
        };
        let Some(seq) = seq else { return Ok(None) };
        let mut views = self.views(&waiting, &[seq], |conn, names| views_at(conn, &[seq], names))?;
        must_have(id, &views)?;
        Ok(views.pop())
    }

    fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError> {
        self.read(|conn| jobs(conn, filter, before, limit))
    }

    fn count_jobs(&self, filter: &JobFilter, by: CountBy) -> Result<Option<JobCounts>, StoreError> {
        self.read(|conn| facets::count(conn, filter, by))
    }

    fn prior(&self, tenant: &Name, key: &Name) -> Result<Option<Prior>, StoreError> {
        let waiting = self.waiting()?;
        let found = waiting.iter().rev().find_map(|commit| overlay::prior(commit.keyed(tenant, key)?));
        match found {
            Some(prior) => Ok(Some(prior)),
            None => self.0.pool.read(|conn| Ok(load::priors(conn, &[(tenant, key)])?.pop().flatten())),
        }
    }

    fn jobs_at(&self, jobs: &[Seq]) -> Result<Vec<JobView>, StoreError> {
        let waiting = self.waiting()?;
        self.views(&waiting, jobs, |conn, names| views_at(conn, jobs, names))
    }

    fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.read(|conn| runs::find(conn, id))
    }

    fn runs(
        &self,
        filter: &RunFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<RunRow>, StoreError> {
        self.read(|conn| runs::list(conn, filter, before, limit))
    }

    fn run_definition(&self, first: Seq) -> Result<Option<Bytes>, StoreError> {
        self.read(|conn| runs::definition(conn, first))
    }

    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Runnable>, StoreError> {
        let waiting = self.waiting()?;
        // An attempt that was opened just now changes nothing here. New jobs, and those merged into others, do.
        let is_new = |seq: &Seq| {
            waiting.iter().flat_map(|commit| commit.changes_of(*seq)).any(|change| {
                matches!(change, Change::JobCreated { .. })
                    || matches!(change, Change::JobEnded(end) if end.merged_into.is_some())
            })
        };
        if jobs.iter().any(is_new) {
            self.0.catch_up()?;
        }
        self.0.pool.read(|conn| load::payloads(conn, &mut Interner::default(), jobs))
    }

    fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        self.read(|conn| deliveries::list(conn, filter, before, limit))
    }

    fn delivery(&self, job: JobId) -> Result<Option<DeliveryRow>, StoreError> {
        self.read(|conn| deliveries::find(conn, job))
    }

    fn delivery_tries(&self, job: Seq) -> Result<Vec<DeliveryTry>, StoreError> {
        self.read_of(job, |conn| deliveries::tries(conn, job))
    }

    fn reusable_bytes(&self) -> Result<u64, StoreError> {
        self.0.pool.read(|conn| {
            let pages: i64 = conn.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
            let page_size: i64 = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
            Ok(u64::try_from(pages.saturating_mul(page_size)).unwrap_or(0))
        })
    }

    fn payload(&self, job: Seq) -> Result<Option<Bytes>, StoreError> {
        self.read_of(job, |conn| {
            let mut select = conn.prepare_cached(&format!("SELECT {PAYLOAD} FROM payload WHERE seq = ?1"))?;
            let mut rows = select.query([job.0.cast_signed()])?;
            match rows.next()? {
                Some(row) => read_payload(row, 0).map(Some),
                None => Ok(None),
            }
        })
    }

    fn call_payload(&self, node: Seq) -> Result<Option<Bytes>, StoreError> {
        self.read_of(node, |conn| runs::call_payload(conn, node))
    }

    fn attempts(&self, job: Seq) -> Result<Vec<AttemptView>, StoreError> {
        self.read_of(job, |conn| attempts(conn, job))
    }

    fn logs(&self, job: Seq, after: u64, limit: usize) -> Result<Vec<LogView>, StoreError> {
        self.read_of(job, |conn| logs(conn, job, after, limit))
    }

    fn events_after(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: usize,
    ) -> Result<Page<Event>, StoreError> {
        self.read(|conn| events::after(conn, filter, after, limit))
    }

    fn events_before(
        &self,
        filter: &EventFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<Event>, StoreError> {
        self.read(|conn| events::before(conn, filter, before.unwrap_or(u64::MAX), limit))
    }

    fn events_of(&self, job: Seq, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.read(|conn| events::of_job(conn, job, limit))
    }

    fn firing_log(
        &self,
        filter: &FiringLogFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<FiringLogPage, StoreError> {
        self.read(|conn| firing_log::list(conn, filter, before, limit))
    }

    fn lag(&self) -> Lag {
        self.0.pending.lag()
    }

    fn first_event(&self) -> Result<u64, StoreError> {
        self.read(events::first)
    }

    fn verify_events(&self) -> Result<u64, StoreError> {
        let (mut checked, mut from) = (0, None);
        loop {
            let (more, next) = self.read(|conn| events::verify_part(conn, from))?;
            checked += more;
            if next.is_none() {
                return Ok(checked);
            }
            from = next;
        }
    }
}

/// The number of the job with this id.
fn seq_of(conn: &Connection, id: JobId) -> Result<Option<Seq>, StoreError> {
    let mut select = conn.prepare_cached("SELECT seq FROM job WHERE id = ?1")?;
    let mut rows = select.query([&id.0.to_be_bytes()[..]])?;
    rows.next()?.map(|row| number(row, 0).map(Seq)).transpose()
}

/// The row must have the id that an index found it by.
fn must_have(id: JobId, views: &[JobView]) -> Result<(), StoreError> {
    match views.iter().find(|view| view.row.id != id) {
        None => Ok(()),
        Some(view) => Err(StoreError::Damaged(format!(
            "table job, row {}: the index of ids has another id for it",
            view.row.seq.0
        ))),
    }
}

/// The jobs of these numbers, in the given order.
fn views_at(conn: &Connection, jobs: &[Seq], names: &mut Interner) -> Result<Vec<JobView>, StoreError> {
    let mut select = conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut found = Vec::with_capacity(jobs.len());
    for seq in jobs {
        let mut rows = select.query([seq.0.cast_signed()])?;
        found.extend(rows.next()?.map(|row| view(conn, row, names)).transpose()?);
    }
    Ok(found)
}

/// The job in `row`, with its open attempt and its end.
fn view(conn: &Connection, row: &Row<'_>, names: &mut Interner) -> Result<JobView, StoreError> {
    let job = read_job(row, names)?;
    let key = job.seq.0.cast_signed();
    let sql = format!("SELECT {OPEN}, {} FROM open_attempt WHERE seq = ?1", row_sums::OPEN_ATTEMPT.check);
    let mut select = conn.prepare_cached(&sql)?;
    let open = select.query([key])?.next()?.map(|row| read_open(row, job.id)).transpose()?;
    let mut select = conn.prepare_cached(&format!("SELECT {END} FROM done WHERE seq = ?1"))?;
    let mut end = select.query([key])?.next()?.map(read_end).transpose()?;
    if let Some(end) = end.as_mut().filter(|end| end.reason == Reason::Merged) {
        end.merged_into = sessions::merged_into(conn, job.seq)?;
    }
    Ok(JobView { row: job, open, end })
}

/// Visits the jobs of a range of numbers, ascending.
pub(super) fn views_between(
    conn: &Connection,
    (from, to): (u64, u64),
    names: &mut Interner,
    visit: &mut dyn FnMut(JobView) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let sql = format!("SELECT {JOB} FROM job WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq");
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query([from.cast_signed(), to.cast_signed()])?;
    while let Some(row) = rows.next()? {
        visit(view(conn, row, names)?)?;
    }
    Ok(())
}

/// A page of jobs, from the sets of their facets.
fn jobs(
    conn: &Connection,
    filter: &JobFilter,
    before: Option<Seq>,
    limit: usize,
) -> Result<Page<JobView>, StoreError> {
    let mut names = Interner::default();
    let mut select = conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    facets::list(conn, filter, before, limit, &mut |seq| {
        let mut rows = select.query([seq.0.cast_signed()])?;
        rows.next()?.map(|row| view(conn, row, &mut names)).transpose()
    })
}

fn attempts(conn: &Connection, job: Seq) -> Result<Vec<AttemptView>, StoreError> {
    let Some(id) = job_id(conn, job)? else { return Ok(Vec::new()) };
    let mut select = conn.prepare_cached(&format!(
        "SELECT {OPEN}, {CLOSED}, {} FROM attempt WHERE seq = ?1 ORDER BY attempt",
        row_sums::ATTEMPT.check
    ))?;
    let mut rows = select.query([job.0.cast_signed()])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(AttemptView { closed: read_closed(row, id)? });
    }
    Ok(attempts)
}

fn job_id(conn: &Connection, job: Seq) -> Result<Option<JobId>, StoreError> {
    let mut select = conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut rows = select.query([job.0.cast_signed()])?;
    Ok(rows.next()?.map(|row| read_job(row, &mut Interner::default())).transpose()?.map(|job| job.id))
}

fn logs(conn: &Connection, job: Seq, after: u64, limit: usize) -> Result<Vec<LogView>, StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT line, attempt, at, stream, text, {} FROM log WHERE seq = ?1 AND line > ?2 ORDER BY line LIMIT ?3",
        row_sums::LOG.check
    ))?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = select.query([job.0.cast_signed(), after, limit])?;
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        lines.push(LogView {
            line: number(row, 0)?,
            attempt: small(row, 1)?,
            at: Wall(row.get_ref(2)?.as_i64()?),
            stream: stored_name(row.get_ref(3)?.as_str()?)?,
            text: row.get_ref(4)?.as_str()?.into(),
        });
    }
    Ok(lines)
}
