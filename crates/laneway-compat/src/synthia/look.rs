//! Finding jobs and leases for whoever asks, and what words about leases are answered.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::command::LogLine;
use laneway_core::engine::LeaseView;
use laneway_core::lease::{LeaseWord, Said};
use laneway_core::{AttemptId, Failure, JobId, Name, Outcome, Reply, Span, Wall};
use laneway_runtime::Caller;
use laneway_runtime::store::{JobFilter, Reader, StoreError};
use serde_json::{Map, Value, json};
use tokio::sync::OwnedSemaphorePermit;

use super::Synthia;
use super::decode::{Form, read_body};
use super::error::Problem;
use super::translate::Seen;
use crate::names::name_of;

/// How many jobs are read at once for a list.
const PAGE: usize = 500;
/// How many pages are read for a list; a page may be short, because each looks at a bounded number of rows.
const PAGES_MAX: usize = 200;
/// Most bytes of payloads and results in a list.
const LIST_BYTES_MAX: usize = 32 << 20;
/// Longest line that a report leaves in the job's log, in bytes.
const REPORT_MAX: usize = 8 << 10;

/// What a worker reports.
pub struct Report {
    /// From 0 to 1.
    pub progress: Option<f64>,
    /// Figures of its own.
    pub metrics: Map<String, Value>,
    /// For people.
    pub message: Option<String>,
}

impl Synthia {
    /// The fields of the request's body.
    pub async fn form(&self, request: Request) -> Result<Form, Problem> {
        Form::of_body(&read_body(&self.bodies, request).await?)
    }

    /// The same where a body may be left out.
    pub async fn form_if_any(&self, request: Request) -> Result<Form, Problem> {
        let body = read_body(&self.bodies, request).await?;
        Form::of_body(if body.is_empty() { b"{}" } else { &body })
    }

    /// Room for a call that waits.
    pub fn listener(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.listeners).try_acquire_owned().map_err(|_| {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_listeners");
            problem.retry_after(Span::secs(5))
        })
    }

    /// The job of an id, if the caller has one of this dialect.
    pub async fn find(&self, caller: &Caller, id: &str) -> Result<Seen, Problem> {
        match JobId::parse(id) {
            Some(id) => self.find_job(caller, id).await,
            None => Err(Problem::no_job()),
        }
    }

    /// The same for an id that was read already.
    pub async fn find_job(&self, caller: &Caller, id: JobId) -> Result<Seen, Problem> {
        let found = self
            .scheduler
            .query(move |reader| {
                let Some(view) = reader.job(id)? else { return Ok(None) };
                let payload = reader.payload(view.row.seq)?;
                Ok(payload.map(|payload| (view, payload)))
            })
            .await?;
        let is_theirs = |tenant: &Name| caller.scope().is_none_or(|scope| scope == tenant);
        let seen = found.map(|(view, payload)| Seen { progress: self.scheduler.progress(id), view, payload });
        let seen = seen.filter(|seen| is_theirs(&seen.view.row.spec.tenant));
        seen.filter(|seen| seen.is_intent() || seen.is_base()).ok_or_else(Problem::no_job)
    }

    /// The intent of an id, if the caller has one.
    pub async fn find_intent(&self, caller: &Caller, id: &str) -> Result<Seen, Problem> {
        let seen = self.find(caller, id).await?;
        if seen.is_intent() { Ok(seen) } else { Err(Problem::no_job()) }
    }

    /// Jobs, newest first: at most `limit` of those that `is_shown`.
    pub async fn list(
        &self,
        filter: JobFilter,
        limit: usize,
        is_shown: impl Fn(&Seen) -> bool + Send + 'static,
    ) -> Result<Vec<Seen>, Problem> {
        let mut found =
            self.scheduler.query(move |reader| collect(reader, &filter, limit, &is_shown)).await?;
        for seen in &mut found {
            seen.progress = self.scheduler.progress(seen.view.row.id);
        }
        Ok(found)
    }

    /// The lease of an id, if the caller has one.
    pub async fn lease(&self, caller: &Caller, id: &str) -> Result<LeaseView, Problem> {
        let lease = AttemptId::parse(id).ok_or_else(Problem::no_lease)?;
        let tenant = caller.scope().cloned();
        let found = self.scheduler.read(move |engine, now| engine.lease(now, tenant.as_ref(), lease)).await?;
        found.ok_or_else(Problem::no_lease)
    }

    /// Every lease of a lane that the caller sees.
    pub async fn leases(&self, caller: &Caller, lane: &str) -> Result<Vec<LeaseView>, Problem> {
        let mut leases = self.scheduler.leases(caller.scope().cloned()).await?;
        leases.retain(|lease| lease.lane.as_str() == lane);
        Ok(leases)
    }

    /// When a lease with this much left ends.
    pub fn ends_at(&self, remaining: Span) -> Wall {
        self.scheduler.wall() + remaining
    }

    /// Says something about a lease.
    pub async fn say(
        &self,
        caller: &Caller,
        lease: AttemptId,
        worker: Option<Name>,
        pid: Option<u32>,
        said: Said,
    ) -> Result<Reply, Problem> {
        let tenant = caller.scope().cloned();
        Ok(self.scheduler.lease_word(LeaseWord { lease, tenant, worker, pid, said }).await?)
    }

    /// A worker says that it lives; gives when it must be heard of again. A run that is to stop has no lease any more.
    pub async fn beat(
        &self,
        caller: &Caller,
        lease: AttemptId,
        worker: Name,
        pid: Option<u32>,
    ) -> Result<Wall, Problem> {
        match self.say(caller, lease, Some(worker), pid, Said::Alive).await? {
            Reply::Alive { lease, stop: false } => Ok(self.ends_at(lease)),
            Reply::NotYours => Err(Problem::not_yours()),
            _ => Err(Problem::no_lease()),
        }
    }

    /// A worker reports: how far it is, and a line in the job's log.
    pub async fn report(
        &self,
        caller: &Caller,
        lease: &LeaseView,
        worker: Name,
        report: Report,
    ) -> Result<(), Problem> {
        let known = self.scheduler.progress(lease.job).map(|progress| progress.fraction);
        let fraction = report.progress.or(known).unwrap_or(0.0);
        let message = report.message.clone().unwrap_or_default();
        let tenant = caller.scope().cloned();
        match self.scheduler.report(lease.lease, tenant, worker, fraction, &message).await? {
            Reply::Done => {}
            Reply::NotYours => return Err(Problem::not_yours()),
            _ => return Err(Problem::no_lease()),
        }
        let (job, id) = (lease.job, lease.lease);
        let open =
            self.scheduler.query(move |reader| Ok(reader.job(job)?.and_then(|view| view.open))).await?;
        let Some(open) = open.filter(|open| open.fence.attempt_id == id) else { return Ok(()) };
        let Report { progress, metrics, message } = report;
        let text = json!({"progress": progress, "metrics": metrics, "message": message}).to_string();
        let end = text.floor_char_boundary(REPORT_MAX);
        let (at, stream) = (self.scheduler.wall(), Name::fixed("report"));
        let line = LogLine { at, stream, text: text[..end].into() };
        // A run that has ended meanwhile needs no line.
        self.scheduler.log(open.fence, vec![line]).await?;
        Ok(())
    }
}

fn collect(
    reader: &dyn Reader,
    filter: &JobFilter,
    limit: usize,
    is_shown: &dyn Fn(&Seen) -> bool,
) -> Result<Vec<Seen>, StoreError> {
    let (mut found, mut bytes, mut before) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let page = reader.jobs(filter, before, PAGE.min(limit))?;
        for view in page.items {
            let Some(payload) = reader.payload(view.row.seq)? else { continue };
            let result =
                view.end.as_ref().and_then(|end| end.result.as_ref()).map_or(0, |result| result.len());
            let seen = Seen { view, payload, progress: None };
            if !is_shown(&seen) {
                continue;
            }
            bytes += seen.payload.len() + result;
            if found.len() >= limit || bytes > LIST_BYTES_MAX {
                return Ok(found);
            }
            found.push(seen);
        }
        match page.next {
            Some(next) => before = Some(laneway_core::Seq(next)),
            None => break,
        }
    }
    Ok(found)
}

/// How a run ended, in the words of whoever ran it.
pub fn outcome(good: bool, result: Option<Map<String, Value>>, error: Option<String>) -> Outcome {
    if good {
        let result = result.map(|result| serde_json::to_vec(&result).expect("JSON values are JSON").into());
        return Outcome::Succeeded(result);
    }
    let detail = result.map(|result| serde_json::to_vec(&result).expect("JSON values are JSON").into());
    let message = error.filter(|error| !error.is_empty()).unwrap_or_else(|| "failed".to_owned());
    Outcome::Failed(Failure { detail, ..Failure::permanent("failed", message) })
}

/// The worker that a form names.
pub fn worker(form: &mut Form) -> Name {
    name_of(&form.text("worker_id"))
}

/// The process that a form names.
pub fn pid(form: &mut Form) -> Option<u32> {
    form.opt_int("pid", 1..=i64::from(u32::MAX)).and_then(|pid| u32::try_from(pid).ok())
}

/// The id of a lease in a path.
pub fn lease_id(text: &str) -> Result<AttemptId, Problem> {
    AttemptId::parse(text).ok_or_else(Problem::no_lease)
}
