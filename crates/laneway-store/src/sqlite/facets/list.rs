//! Pages of lists.

use laneway_core::Seq;
use rusqlite::{CachedStatement, Connection, Row};

use super::bits::{Bits, CHUNK};
use super::plan::{Plan, Sets};
use super::seq_at;
use crate::columns::status::JOB;
use crate::columns::{END, check_end, check_job};
use crate::{JobFilter, JobView, Page, StoreError};

/// Sets that one call reads. A set takes one or two microseconds.
const SETS_MAX: usize = 20_000;
/// Jobs whose times one call compares.
const TIMES_MAX: usize = 10_000;
/// Jobs that one call reads without showing them.
const JOBS_MAX: usize = 2_000;

/// A page of jobs, newest first. `view` reads a job. A call that has done enough ends with a page that is short.
pub(in crate::sqlite) fn list(
    conn: &Connection,
    filter: &JobFilter,
    before: Option<Seq>,
    limit: usize,
    view: &mut dyn FnMut(Seq) -> Result<Option<JobView>, StoreError>,
) -> Result<Page<JobView>, StoreError> {
    let mut page = Page { items: Vec::new(), next: None };
    let Some(plan) = Plan::of(conn, filter)? else { return Ok(page) };
    let end = before.map_or(u64::MAX, |seq| seq.0);
    let limit = limit.max(1);
    let mut sets = Sets::new(conn)?;
    let mut times = Comparison::new(conn, filter)?;
    let mut unseen = 0;
    for chunk in sets.chunks(end)? {
        if sets.read >= SETS_MAX {
            page.next = Some((chunk + 1) * CHUNK);
            return Ok(page);
        }
        let mut matched = plan.of_chunk(&mut sets, chunk)?;
        matched.jobs.keep(&Bits::before(end.saturating_sub(chunk * CHUNK)));
        let mut doubtful = matched.doubtful.descending().peekable();
        for place in matched.jobs.descending() {
            let seq = seq_at(chunk, place);
            while doubtful.next_if(|other| *other > place).is_some() {}
            let is_doubtful = doubtful.next_if_eq(&place).is_some();
            if times.compared >= TIMES_MAX || unseen >= JOBS_MAX {
                page.next = Some(seq.0 + 1);
                return Ok(page);
            }
            if is_doubtful && !times.matches(seq)? {
                continue;
            }
            // A set may have a job that was deleted, and is never the last word about one that was not.
            let Some(job) = view(seq)?.filter(|job| filter.matches(job)) else {
                unseen += 1;
                continue;
            };
            if page.items.len() == limit {
                page.next = page.items.last().map(|job| job.row.seq.0);
                return Ok(page);
            }
            page.items.push(job);
        }
    }
    Ok(page)
}

/// Compares the times of single jobs with a filter.
pub(super) struct Comparison<'a> {
    filter: &'a JobFilter,
    created: CachedStatement<'a>,
    finished: CachedStatement<'a>,
    /// Jobs compared so far.
    pub compared: usize,
}

impl<'a> Comparison<'a> {
    pub fn new(conn: &'a Connection, filter: &'a JobFilter) -> Result<Comparison<'a>, StoreError> {
        Ok(Comparison {
            filter,
            created: conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?,
            finished: conn.prepare_cached(&format!("SELECT {END} FROM done WHERE seq = ?1"))?,
            compared: 0,
        })
    }

    /// Are the times of this job within those of the filter?
    pub fn matches(&mut self, seq: Seq) -> Result<bool, StoreError> {
        self.compared += 1;
        let JobFilter { created_after, created_before, finished_after, finished_before, .. } = self.filter;
        for (select, time, after, before) in [
            (&mut self.created, created_at as ReadTime, created_after, created_before),
            (&mut self.finished, finished_at, finished_after, finished_before),
        ] {
            if after.is_none() && before.is_none() {
                continue;
            }
            let mut rows = select.query([seq.0.cast_signed()])?;
            let Some(row) = rows.next()? else { return Ok(false) };
            let time = time(row)?;
            if after.is_some_and(|after| time <= after.0) || before.is_some_and(|before| time >= before.0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

type ReadTime = fn(&Row<'_>) -> Result<i64, StoreError>;

/// From the columns [`JOB`].
fn created_at(row: &Row<'_>) -> Result<i64, StoreError> {
    check_job(row)?;
    Ok(row.get(9)?)
}

/// From the columns [`END`].
fn finished_at(row: &Row<'_>) -> Result<i64, StoreError> {
    check_end(row)?;
    Ok(row.get(5)?)
}
