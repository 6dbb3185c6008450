//! Reads for callers: one job, lists, logs, events. What belongs together is read by one statement, so that it is one committed
//! state, and every call reads a bounded number of rows.

use std::collections::HashMap;
use std::sync::Arc;

use laneway_core::{
    Bytes, DeliveryRow, DeliveryTry, Event, JobId, Name, Prior, Reason, RunId, RunRow, Seq, Wall,
};
use tokio_postgres::Row;

use super::cells::{From, Param, id, int, name, number, of_table};
use super::jobs::{count_jobs, jobs};
use super::session::{ReadError, Server, Session};
use super::{deliveries, events, firing_log, load, runs};
use crate::columns::{
    CLOSED, Columns, END, JOB, JOB_LEN, OPEN, PAYLOAD, number as number_at, read_closed, read_end, read_job,
    read_merged_into, read_open, read_payload, small,
};
use crate::rows::{Interner, stored_job_id, stored_name};
use crate::{
    AttemptView, CountBy, DeliveryFilter, EventFilter, FiringLogFilter, FiringLogPage, JobCounts, JobFilter,
    JobView, LogView, Page, Reader, RunFilter, Runnable, StoreError,
};

/// Reads committed rows, from any server that shares the database.
pub(super) struct PostgresReader(pub Arc<Server>);

impl Reader for PostgresReader {
    fn job(&self, job: JobId) -> Result<Option<JobView>, StoreError> {
        self.0.read(|session| {
            let rows = session.rows(&view_sql("job.id = $1"), vec![id(job.0)])?;
            Ok(rows.first().map(|row| view(row, &mut Interner::default())).transpose()?)
        })
    }

    fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<JobView>, StoreError> {
        self.0.read(|session| jobs(session, filter, before, limit))
    }

    fn count_jobs(&self, filter: &JobFilter, by: CountBy) -> Result<Option<JobCounts>, StoreError> {
        self.0.read(|session| count_jobs(session, filter, by))
    }

    fn prior(&self, tenant: &Name, key: &Name) -> Result<Option<Prior>, StoreError> {
        self.0.read(|session| Ok(load::priors(session, &[(tenant, key)])?.pop().flatten()))
    }

    fn jobs_at(&self, jobs: &[Seq]) -> Result<Vec<JobView>, StoreError> {
        self.0.read(|session| views_at(session, jobs))
    }

    fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        self.0.read(|session| runs::find(session, id))
    }

    fn runs(
        &self,
        filter: &RunFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<RunRow>, StoreError> {
        self.0.read(|session| runs::list(session, filter, before, limit))
    }

    fn run_definition(&self, first: Seq) -> Result<Option<Bytes>, StoreError> {
        self.0.read(|session| runs::definition(session, first))
    }

    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Runnable>, StoreError> {
        self.0.read(|session| load::payloads(session, &mut Interner::default(), jobs))
    }

    fn payload(&self, job: Seq) -> Result<Option<Bytes>, StoreError> {
        self.0.read(|session| {
            let sql = format!("SELECT {PAYLOAD} FROM laneway.payload WHERE seq = $1");
            Ok(session.row(&sql, vec![number(job.0)])?.map(|row| read_payload(&row, 0)).transpose()?)
        })
    }

    fn call_payload(&self, node: Seq) -> Result<Option<Bytes>, StoreError> {
        self.0.read(|session| runs::call_payload(session, node))
    }

    fn attempts(&self, job: Seq) -> Result<Vec<AttemptView>, StoreError> {
        self.0.read(|session| attempts(session, job))
    }

    fn logs(&self, job: Seq, after: u64, limit: usize) -> Result<Vec<LogView>, StoreError> {
        self.0.read(|session| logs(session, job, after, limit))
    }

    fn events_after(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: usize,
    ) -> Result<Page<Event>, StoreError> {
        self.0.read(|session| events::after(session, filter, after, limit))
    }

    fn events_before(
        &self,
        filter: &EventFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<Event>, StoreError> {
        self.0.read(|session| events::before(session, filter, before.unwrap_or(u64::MAX), limit))
    }

    fn events_of(&self, job: Seq, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.0.read(|session| events::of_job(session, job, limit))
    }

    fn firing_log(
        &self,
        filter: &FiringLogFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<FiringLogPage, StoreError> {
        self.0.read(|session| firing_log::list(session, filter, before, limit))
    }

    fn first_event(&self) -> Result<u64, StoreError> {
        self.0.read(events::first)
    }

    fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        self.0.read(|session| deliveries::list(session, filter, before, limit))
    }

    fn delivery(&self, job: JobId) -> Result<Option<DeliveryRow>, StoreError> {
        self.0.read(|session| deliveries::find(session, job))
    }

    fn delivery_tries(&self, job: Seq) -> Result<Vec<DeliveryTry>, StoreError> {
        self.0.read(|session| deliveries::tries(session, job))
    }

    /// The disk is the database server's.
    fn reusable_bytes(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn verify_events(&self) -> Result<u64, StoreError> {
        let (mut checked, mut from) = (0, None);
        loop {
            let (more, next) = self.0.read(|session| events::verify_part(session, from))?;
            checked += more;
            if next.is_none() {
                return Ok(checked);
            }
            from = next;
        }
    }
}

/// The statement that reads jobs with their open attempts and ends. `wanted` is its condition.
pub(super) fn view_sql(wanted: &str) -> String {
    format!(
        "SELECT {JOB}, {}, {}, merged.leader, merged.job FROM laneway.job \
         LEFT JOIN laneway.open_attempt ON open_attempt.seq = job.seq LEFT JOIN laneway.done ON done.seq = job.seq \
         LEFT JOIN laneway.merged ON merged.seq = job.seq AND done.reason = {} WHERE {wanted} ORDER BY job.seq DESC",
        of_table("open_attempt", OPEN),
        of_table("done", END),
        Reason::Merged.code()
    )
}

/// A job, from the columns of [`view_sql`].
pub(super) fn view(row: &Row, names: &mut Interner) -> Result<JobView, StoreError> {
    let job = read_job(row, names)?;
    let open = From(row, JOB_LEN);
    let ended = From(row, open.1 + OPEN.split(", ").count());
    let merged = From(row, ended.1 + END.split(", ").count());
    let has = |part: &From<'_>| Ok::<_, StoreError>(part.get_ref(0)?.as_i64_or_null()?.is_some());
    let open = if has(&open)? { Some(read_open(&open, job.id)?) } else { None };
    let mut end = if has(&ended)? { Some(read_end(&ended)?) } else { None };
    if let Some(end) = &mut end
        && has(&merged)?
    {
        end.merged_into = Some(read_merged_into(&merged)?);
    }
    Ok(JobView { row: job, open, end })
}

/// The jobs of these numbers, in the given order.
pub(super) fn views_at(session: &Session, jobs: &[Seq]) -> Result<Vec<JobView>, ReadError> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let mut names = Interner::default();
    let mut found: HashMap<Seq, JobView> = HashMap::new();
    for row in
        &session.rows(&view_sql("job.seq = ANY($1)"), vec![Param::seqs(jobs.iter().map(|seq| seq.0))])?
    {
        let view = view(row, &mut names)?;
        found.insert(view.row.seq, view);
    }
    Ok(jobs.iter().filter_map(|seq| found.get(seq).cloned()).collect())
}

fn attempts(session: &Session, job: Seq) -> Result<Vec<AttemptView>, ReadError> {
    let sql = format!(
        "SELECT {}, {CLOSED}, job.id FROM laneway.attempt JOIN laneway.job ON job.seq = attempt.seq \
         WHERE attempt.seq = $1 ORDER BY attempt.attempt",
        of_table("attempt", OPEN)
    );
    let mut attempts = Vec::new();
    for row in &session.rows(&sql, vec![number(job.0)])? {
        let id = stored_job_id(row.get_ref(row.columns().len() - 1)?.as_blob()?)?;
        attempts.push(AttemptView { closed: read_closed(row, id)? });
    }
    Ok(attempts)
}

fn logs(session: &Session, job: Seq, after: u64, limit: usize) -> Result<Vec<LogView>, ReadError> {
    let sql = "SELECT line, attempt, at, stream, text FROM laneway.log WHERE seq = $1 AND line > $2 ORDER BY line LIMIT $3";
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut lines = Vec::new();
    for row in session.rows(sql, vec![number(job.0), int(after), int(limit)])? {
        lines.push(LogView {
            line: number_at(&row, 0)?,
            attempt: small(&row, 1)?,
            at: Wall(row.get_ref(2)?.as_i64()?),
            stream: stored_name(row.get_ref(3)?.as_str()?)?,
            text: row.get_ref(4)?.as_str()?.into(),
        });
    }
    Ok(lines)
}

/// A name as a parameter that may be missing.
pub(super) fn wanted(value: Option<&Name>) -> Param<'_> {
    value.map_or(Param::Text(None), name)
}
