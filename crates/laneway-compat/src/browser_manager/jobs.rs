//! Jobs: show one, list them, cancel one, and list the files of one.

use axum::extract::{Path, RawQuery};
use laneway_core::{JobId, Name, Reply, Seq};
use laneway_runtime::store::{JobFilter, JobView, LogView, Reader, StoreError};
use laneway_runtime::{ARTIFACTS, ArtifactId, Caller};
use serde_json::Value;

use super::decode::{Fields, Paging};
use super::error::{Answer, Code, Problem, ok};
use super::translate::{self, STATUSES, Status};
use super::wire::{Artifact, Enqueued, Job, JobArtifacts, PageOf};
use super::{BrowserManager, KINDS, LANE};
use crate::body::Call;

/// How many jobs are read at once for a list.
const PAGE: usize = 500;
/// How many pages are read for a list; a page may be short, because each scans a bounded number of rows.
const PAGES_MAX: usize = 200;
/// How many log lines are read at once.
const LOG_PAGE: usize = 1_000;

impl BrowserManager {
    /// The job with this id, if the caller may see it.
    pub async fn find(&self, caller: &Caller, id: &str) -> Result<JobView, Problem> {
        let none = || Problem::new(Code::JobNotFound, format!("jobId {id:?}"));
        let job = translate::job_id(id).ok_or_else(none)?;
        let found = self.scheduler.read(move |reader| reader.job(job)).await?;
        let theirs = |view: &JobView| caller.scope().is_none_or(|tenant| *tenant == view.row.spec.tenant);
        found.filter(|view| theirs(view) && translate::is_ours(view)).ok_or_else(none)
    }
}

/// Shows a job.
pub async fn get_job(Call(browser_manager, caller): Call<BrowserManager>, Path(id): Path<String>) -> Answer {
    let view = browser_manager.find(&caller, &id).await?;
    let mut job = translate::job(&view);
    if view.end.is_none() && job.retry_count > 0 {
        let seq = view.row.seq;
        let attempts = browser_manager.scheduler.read(move |reader| reader.attempts(seq)).await?;
        job.error_message = attempts.last().and_then(translate::attempt_message);
    }
    ok(&job)
}

/// Lists the caller's jobs, newest first.
pub async fn list_jobs(
    Call(browser_manager, caller): Call<BrowserManager>,
    RawQuery(query): RawQuery,
) -> Answer {
    let mut fields = Fields::of_query(query.as_deref());
    let paging = fields.paging()?;
    let status = fields.opt_one_of("status", &STATUSES)?;
    let kind = fields.opt_one_of("jobType", &KINDS.map(|kind| (kind, kind)))?;
    let filter = JobFilter {
        tenant: caller.scope().cloned(),
        lane: Some(Name::fixed(LANE)),
        kind: kind.map(Name::fixed),
        states: status.map(Status::states).unwrap_or_default(),
        ..JobFilter::default()
    };
    let (scheduler, tenant) = (&browser_manager.scheduler, filter.tenant.clone());
    let (list, has_more) = scheduler.list(tenant, move |reader| page_of(reader, &filter, paging)).await?;
    ok(&PageOf { list, page_num: paging.page_num, page_size: paging.page_size, has_more })
}

/// The jobs of a page, and whether another one follows.
fn page_of(reader: &dyn Reader, filter: &JobFilter, paging: Paging) -> Result<(Vec<Job>, bool), StoreError> {
    let (mut jobs, mut left, mut before) = (Vec::new(), paging.skipped(), None);
    for _ in 0..PAGES_MAX {
        let page = reader.jobs(filter, before, PAGE.min(left + paging.len_max() - jobs.len() + 1))?;
        for view in page.items.iter().filter(|view| translate::is_ours(view)) {
            if left > 0 {
                left -= 1;
            } else if jobs.len() < paging.len_max() {
                jobs.push(translate::job(view));
            } else {
                return Ok((jobs, true));
            }
        }
        match page.next {
            Some(next) => before = Some(Seq(next)),
            None => return Ok((jobs, false)),
        }
    }
    Ok((jobs, true))
}

/// Cancels a job that has not ended.
pub async fn cancel_job(
    Call(browser_manager, caller): Call<BrowserManager>,
    Path(id): Path<String>,
) -> Answer {
    let view = browser_manager.find(&caller, &id).await?;
    let tenant = caller.scope().cloned();
    match browser_manager.scheduler.cancel(tenant, view.row.id, caller.origin()).await? {
        Reply::Canceled { .. } => {
            ok(&Enqueued { job_id: view.row.id.to_string(), status: Status::Canceled.as_str() })
        }
        Reply::Rejected(rejection) => Err(Problem::rejected(&rejection)),
        // It has ended before or since it was looked up.
        _ => {
            let view = browser_manager.find(&caller, &id).await?;
            let status = Status::of(view.state()).as_str();
            Err(Problem::new(Code::JobAlreadyCompleted, format!("the job is {status}")))
        }
    }
}

/// Lists the files that a job created. One that was reported twice appears once, as it was last reported.
pub async fn list_artifacts(
    Call(browser_manager, caller): Call<BrowserManager>,
    Path(id): Path<String>,
) -> Answer {
    let view = browser_manager.find(&caller, &id).await?;
    let (job, seq) = (view.row.id, view.row.seq);
    let lines = browser_manager.scheduler.read(move |reader| lines_after(reader, seq, 0)).await?;
    let mut artifacts: Vec<(Value, Artifact)> = Vec::new();
    for line in lines.iter().filter(|line| line.stream.as_str() == ARTIFACTS) {
        let Some((resource, artifact)) = artifact_of(job, line) else { continue };
        artifacts.retain(|(known, _)| *known != resource);
        artifacts.push((resource, artifact));
    }
    let artifacts = artifacts.into_iter().map(|(_, artifact)| artifact).collect();
    ok(&JobArtifacts { job_id: job.to_string(), artifacts })
}

/// Every line of a job's log after this one.
pub fn lines_after(reader: &dyn Reader, job: Seq, after: u64) -> Result<Vec<LogView>, StoreError> {
    let (mut lines, mut after) = (Vec::new(), after);
    loop {
        let page = reader.logs(job, after, LOG_PAGE)?;
        let Some(last) = page.last() else { return Ok(lines) };
        after = last.line;
        lines.extend(page);
    }
}

/// The file in a log line, with what identifies it. `None` when it cannot be read.
fn artifact_of(job: JobId, line: &LogView) -> Option<(Value, Artifact)> {
    let described: Value = serde_json::from_str(&line.text).ok()?;
    let id = ArtifactId { job, line: line.line };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let metadata = described.get("metadata");
    let artifact = Artifact {
        id: id.to_string(),
        name: text(metadata.and_then(|metadata| metadata.get("name"))),
        content_type: text(metadata.and_then(|metadata| metadata.get("mime_type"))),
        size: described.get("size_bytes").and_then(Value::as_u64),
        attempt: line.attempt,
        expires_at: text(described.get("expires_at")),
        url: id.href(),
    };
    let resource = Value::from(vec![
        described.get("worker_id").cloned().unwrap_or_default(),
        described.get("resource_id").cloned().unwrap_or_default(),
    ]);
    Some((resource, artifact))
}
