//! Looks up jobs and leases, and sends lease updates.

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::command::LogLine;
use laneway_core::engine::LeaseView;
use laneway_core::lease::{LeaseMessage, LeaseUpdate};
use laneway_core::{AttemptId, Failure, JobId, Name, Outcome, Reply, Span, Wall};
use laneway_runtime::executors::context::cut;
use laneway_runtime::store::{JobFilter, Reader, StoreError};
use laneway_runtime::{Caller, Share};
use serde_json::{Map, Value, json};

use super::Synthia;
use super::decode::{Form, read_body};
use super::error::Problem;
use super::translate::Seen;
use crate::names::name_of;

/// How many jobs are read at once for a list.
const PAGE: usize = 500;
/// How many pages are read for a list; a page may be short, because each scans a bounded number of rows.
const PAGES_MAX: usize = 200;
/// Most bytes of payloads and results in a list.
const LIST_BYTES_MAX: usize = 32 << 20;
/// Longest log line of a report, in bytes.
const REPORT_MAX: usize = 8 << 10;

/// A progress report.
pub struct Report {
    /// From 0 to 1.
    pub progress: Option<f64>,
    /// Metrics of the worker.
    pub metrics: Map<String, Value>,
    /// For people.
    pub message: Option<String>,
}

impl Synthia {
    /// The fields of the request's body.
    pub async fn form(&self, request: Request) -> Result<Form, Problem> {
        Form::of_body(&read_body(request).await?)
    }

    /// The same where the body is optional.
    pub async fn form_if_any(&self, request: Request) -> Result<Form, Problem> {
        let body = read_body(request).await?;
        Form::of_body(if body.is_empty() { b"{}" } else { &body })
    }

    /// A share for a call that waits.
    pub fn listener(&self, caller: &Caller) -> Result<Share, Problem> {
        self.listeners.take(caller).map_err(|none| {
            let problem =
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("too_many_listeners: {none}"));
            problem.retry_after(Span::secs(5))
        })
    }

    /// The job with this id, if it belongs to this dialect and the caller may see it.
    pub async fn find(&self, caller: &Caller, id: &str) -> Result<Seen, Problem> {
        match JobId::parse(id) {
            Some(id) => self.find_job(caller, id).await,
            None => Err(Problem::no_job()),
        }
    }

    /// The same for a parsed id.
    pub async fn find_job(&self, caller: &Caller, id: JobId) -> Result<Seen, Problem> {
        let found = self
            .scheduler
            .read(move |reader| {
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

    /// The intent with this id, if the caller may see it.
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
        let tenant = filter.tenant.clone();
        let collect = move |reader: &dyn Reader| collect(reader, &filter, limit, &is_shown);
        let mut found = self.scheduler.list(tenant, collect).await?;
        for seen in &mut found {
            seen.progress = self.scheduler.progress(seen.view.row.id);
        }
        Ok(found)
    }

    /// The lease with this id, if the caller may see it.
    pub async fn lease(&self, caller: &Caller, id: &str) -> Result<LeaseView, Problem> {
        let lease = AttemptId::parse(id).ok_or_else(Problem::no_lease)?;
        self.scheduler.lease(caller.scope().cloned(), lease).await?.ok_or_else(Problem::no_lease)
    }

    /// Every lease of a lane that the caller sees.
    pub async fn leases(&self, caller: &Caller, lane: &str) -> Result<Vec<LeaseView>, Problem> {
        let mut leases = self.scheduler.leases(caller.scope().cloned()).await?;
        leases.retain(|lease| lease.lane.as_str() == lane);
        Ok(leases)
    }

    /// When a lease with this much time left expires.
    pub fn ends_at(&self, remaining: Span) -> Wall {
        self.scheduler.wall() + remaining
    }

    /// Sends an update of a lease.
    pub async fn update_lease(
        &self,
        caller: &Caller,
        lease: AttemptId,
        worker: Option<Name>,
        pid: Option<u32>,
        said: LeaseUpdate,
    ) -> Result<Reply, Problem> {
        let tenant = caller.scope().cloned();
        Ok(self.scheduler.lease_message(LeaseMessage { lease, tenant, worker, pid, update: said }).await?)
    }

    /// A heartbeat; returns when the next one is due at the latest. A job that is asked to stop has no lease
    /// any more.
    pub async fn beat(
        &self,
        caller: &Caller,
        lease: AttemptId,
        worker: Name,
        pid: Option<u32>,
    ) -> Result<Wall, Problem> {
        match self.update_lease(caller, lease, Some(worker), pid, LeaseUpdate::Alive).await? {
            Reply::Alive { lease, stop: false } => Ok(self.ends_at(lease)),
            Reply::NotYours => Err(Problem::not_yours()),
            _ => Err(Problem::no_lease()),
        }
    }

    /// A progress report, which is also written to the job's log.
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
        let open = self.scheduler.read(move |reader| Ok(reader.job(job)?.and_then(|view| view.open))).await?;
        let Some(open) = open.filter(|open| open.fence.attempt_id == id) else { return Ok(()) };
        let Report { progress, metrics, message } = report;
        let text = json!({"progress": progress, "metrics": metrics, "message": message}).to_string();
        let (at, stream) = (self.scheduler.wall(), Name::fixed("report"));
        let line = LogLine { at, stream, text: cut(&text, REPORT_MAX).into() };
        // An attempt that has ended meanwhile needs no line.
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

/// The outcome that a worker reports.
pub fn outcome(good: bool, result: Option<Map<String, Value>>, error: Option<String>) -> Outcome {
    if good {
        let result = result.map(|result| serde_json::to_vec(&result).expect("JSON values are JSON").into());
        return Outcome::Succeeded(result);
    }
    let detail = result.map(|result| serde_json::to_vec(&result).expect("JSON values are JSON").into());
    let message = error.filter(|error| !error.is_empty()).unwrap_or_else(|| "failed".to_owned());
    Outcome::Failed(Failure { detail, ..Failure::permanent("failed", message) })
}

/// The worker in a form.
pub fn worker(form: &mut Form) -> Name {
    name_of(&form.text("worker_id"))
}

/// The process id in a form.
pub fn pid(form: &mut Form) -> Option<u32> {
    form.opt_int("pid", 1..=i64::from(u32::MAX)).and_then(|pid| u32::try_from(pid).ok())
}

/// The id of a lease in a path.
pub fn lease_id(text: &str) -> Result<AttemptId, Problem> {
    AttemptId::parse(text).ok_or_else(Problem::no_lease)
}
