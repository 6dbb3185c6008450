//! Submits jobs: one, or many in one request. The hot path of the API.
//!
//! A body is read once, its payloads are never parsed into a tree, and the response is rendered from the request and the
//! engine's reply. The store is read only when an idempotency key names an earlier job.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use futures_util::StreamExt;
use futures_util::future::join_all;
use laneway_core::command::Submitted;
use laneway_core::{Callback, EventKind, JobId, JobSpec, Rejection, RejectionCode, Settings, Submission};
use laneway_runtime::config::Config;
use laneway_runtime::store::JobView;
use laneway_wire::{BatchItem, BatchRequest, BatchResponse, Job, JobRequest, Problem, UpTo, Warning};
use serde_json::value::RawValue;

use crate::api::Api;
use crate::audit;
use crate::auth::Caller;
use crate::batch::{self, Splitter, UnreadBatch};
use crate::body;
use crate::callback;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::json;
use crate::query::{Call, NoParameters};
use crate::render;
use crate::reply::{self, Answer};
use crate::warnings;

/// A larger batch, in bytes, is parsed while it arrives.
const LARGE_BATCH: usize = 1 << 20;
/// After this many jobs, the task yields to other requests.
const JOBS_AT_ONCE: usize = 256;
/// The largest body of a batch in bytes, unless the configuration allows more for any body.
const BATCH_BODY_MAX: usize = 32 << 20;
/// The header with the same meaning as the field `idempotency_key`.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Submits a job.
///
/// The response means that the job is durable. A repeated request with the same idempotency key gets 200 and the first
/// job.
#[utoipa::path(
    post, path = "/v1/jobs", operation_id = "submit_job", tag = "jobs",
    params(("Idempotency-Key" = Option<String>, Header, description = "The same as the field `idempotency_key`.")),
    request_body = JobRequest<'_>,
    responses(
        (status = 201, description = "The new job", body = Job<'_>),
        (status = 200, description = "The job that an equal request created earlier", body = Job<'_>),
        (status = 400, description = "malformed_json, invalid_field, unknown_field, too_deep", body = Problem),
        (status = 413, description = "body_too_large", body = Problem),
        (status = 422, description = "deadline_past, idempotency_mismatch, unknown_kind, unknown_lane, invalid", body = Problem),
        (status = 409, description = "stale", body = Problem),
        (status = 429, description = "queue_full, session_full, with Retry-After", body = Problem),
        (status = 503, description = "draining, unavailable, with Retry-After", body = Problem),
        (status = 507, description = "storage_low", body = Problem),
    )
)]
pub async fn submit_job(Call(api, caller): Call, _: NoParameters, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    json::check_content_type(&parts.headers)?;
    let config = api.config.current();
    let bytes = body::read(&parts.headers, body, config.server.body_max).await?;
    let mut job: JobRequest<'_> = json::parse_job(&bytes)?;
    if let Some(key) = key_of_header(&parts.headers, job.idempotency_key.as_deref())? {
        job.idempotency_key = Some(Cow::Borrowed(key));
    }
    let mut submission = submission(&api, &caller, &job).await?;
    if submission.spec.trace.is_none() {
        submission.spec.trace = convert::trace_of_headers(&parts.headers);
    }
    submit_one(&api, &caller, submission, StatusCode::CREATED).await
}

/// Submits one job. The response has the status `created` and the new job, or 200 and the earlier one.
pub async fn submit_one(api: &Api, caller: &Caller, submission: Submission, created: StatusCode) -> Answer {
    let spec = with_defaults(&submission.spec, api.config.current().settings());
    let submitted = api.scheduler.submit(submission).await??;
    if submitted.existing {
        return answer_existing(api, &spec, &submitted, caller).await;
    }
    if let Some(view) = read_ended(api, &submitted).await? {
        return reply::new_job(created, submitted.job, &render::job(&view, None));
    }
    let mut shown = render::submitted(&spec, &submitted, caller);
    if !submitted.served {
        let unserved = warnings::unserved_kinds(api, &caller.tenant, [spec.kind.as_str()]).await;
        shown.warnings.extend(unserved.into_values());
    }
    reply::new_job(created, submitted.job, &shown)
}

/// Submits many jobs: each on its own, or all or none.
///
/// Without `atomic` the response is 200 with one item for each job, in order. With `atomic` it is 201 with all jobs, or
/// the error of the first job that was rejected, and none is stored.
#[utoipa::path(
    post, path = "/v1/jobs/batch", operation_id = "submit_batch", tag = "jobs",
    request_body = BatchRequest<'_>,
    responses(
        (status = 200, description = "One item for each job", body = BatchResponse<'_>),
        (status = 201, description = "All jobs of an atomic batch", body = BatchResponse<'_>),
        (status = 400, description = "malformed_json, invalid_field, unknown_field, too_deep", body = Problem),
        (status = 413, description = "body_too_large", body = Problem),
        (status = 422, description = "An atomic batch was rejected", body = Problem),
        (status = 429, description = "queue_full: an atomic batch was rejected", body = Problem),
        (status = 503, description = "draining, unavailable, with Retry-After", body = Problem),
        (status = 507, description = "storage_low", body = Problem),
    )
)]
pub async fn submit_batch(Call(api, caller): Call, _: NoParameters, request: Request) -> Answer {
    let (parts, body) = request.into_parts();
    json::check_content_type(&parts.headers)?;
    reject_key(&parts.headers, "is for single jobs; set the idempotency_key of each job of a batch")?;
    let config = api.config.current();
    let preparer = Preparer { api: api.clone(), caller: caller.clone(), config: Arc::clone(&config) };
    let (jobs, atomic) = match body::declared_len(&parts.headers) {
        Some(0..=LARGE_BATCH) => read_batch(&preparer, &parts.headers, body).await?,
        _ => read_large_batch(preparer, &parts.headers, body).await?,
    };
    if jobs.is_empty() {
        return Err(ApiError::field("jobs", "is empty; send at least one job"));
    }
    let mut submissions = Vec::with_capacity(jobs.len());
    let mut items: Vec<Result<JobSpec, ApiError>> = Vec::with_capacity(jobs.len());
    let callbacks = check_callbacks(&api, &caller, &jobs).await;
    let trace = convert::trace_of_headers(&parts.headers);
    for (index, (job, callback)) in jobs.into_iter().zip(callbacks).enumerate() {
        let prepared = job.and_then(|job| {
            let (mut submission, _) = *job;
            submission.spec.callback = callback.transpose()?;
            if submission.spec.trace.is_none() {
                submission.spec.trace = trace.clone();
            }
            let spec = with_defaults(&submission.spec, config.settings());
            submissions.push(submission);
            Ok(spec)
        });
        match prepared {
            Err(error) if atomic => return Err(error.within(&format!("jobs[{index}]"))),
            prepared => items.push(prepared),
        }
        if index % JOBS_AT_ONCE == JOBS_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
    }
    let verdicts = api.scheduler.submit_batch(submissions, atomic).await?;
    if atomic {
        reject_whole(&verdicts)?;
    }
    let stored = read_stored(&api, &verdicts).await?;
    let kinds = unserved(&items, &verdicts);
    let warnings = warnings::unserved_kinds(&api, &caller.tenant, kinds).await;
    let mut response = judge(&items, verdicts.iter(), &stored, &caller);
    warn(&mut response, &items, &verdicts, &warnings);
    note_rejected(&api, &caller, &response).await;
    reply::batch(if atomic { StatusCode::CREATED } else { StatusCode::OK }, &response)
}

/// Converts a request to a submission, and checks its callback.
pub async fn submission(api: &Api, caller: &Caller, job: &JobRequest<'_>) -> Result<Submission, ApiError> {
    let config = api.config.current();
    let mut submission = prepare(api, caller, config.settings(), job)?;
    if let Some(url) = &job.callback {
        submission.spec.callback = Some(callback::check(&api.guard.on_behalf_of(&caller.tenant), url).await?);
    }
    Ok(submission)
}

/// The key in the header. It must equal the field if both are set.
pub fn key_of_header<'a>(headers: &'a HeaderMap, field: Option<&str>) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(ApiError::field("Idempotency-Key", "appears twice; send it once"));
    }
    let text = value.to_str().map_err(|_| ApiError::field("Idempotency-Key", "must be plain ASCII"))?;
    if field.is_some_and(|key| key != text) {
        return Err(ApiError::field(
            "Idempotency-Key",
            "differs from the field idempotency_key; send one of them",
        ));
    }
    Ok(Some(text))
}

/// Rejects the header where it has no effect, because the client expects one.
pub fn reject_key(headers: &HeaderMap, remedy: &str) -> Result<(), ApiError> {
    if headers.contains_key(IDEMPOTENCY_KEY) {
        return Err(ApiError::field("Idempotency-Key", remedy));
    }
    Ok(())
}

/// Converts a request to a submission, without its callback.
fn prepare(
    api: &Api,
    caller: &Caller,
    settings: &Settings,
    job: &JobRequest<'_>,
) -> Result<Submission, ApiError> {
    let spec = convert::job_spec(job, &caller.tenant, settings, &api.names)?;
    let payload = job.payload.map_or("null", RawValue::get).as_bytes().into();
    Ok(Submission { strict_lane: true, ..Submission::new(spec, payload, caller.origin()) })
}

/// The spec as the engine will store it, for the response.
fn with_defaults(spec: &JobSpec, settings: &Settings) -> JobSpec {
    let mut spec = spec.clone();
    let kind = settings.kinds.get(&spec.kind);
    settings.fill_in_defaults(&mut spec, kind);
    spec
}

/// Converts the jobs of a batch to submissions.
struct Preparer {
    api: Api,
    caller: Caller,
    config: Arc<Config>,
}

/// A job of a batch and the URL of its callback, which is not checked yet, or its error. In a box, because a list that grows
/// would otherwise take twice the memory of its jobs.
type Prepared = Result<Box<(Submission, Option<String>)>, ApiError>;

impl Preparer {
    /// Converts a job, whose payload may not be larger than that of a single job.
    fn prepare(&self, job: &JobRequest<'_>) -> Prepared {
        let Preparer { api, caller, config } = self;
        if job.payload.is_some_and(|payload| payload.get().len() > config.server.body_max) {
            return Err(body::too_large(config.server.body_max));
        }
        let submission = prepare(api, caller, config.settings(), job)?;
        Ok(Box::new((submission, job.callback.as_deref().map(str::to_owned))))
    }

    /// Converts the jobs of a batch.
    async fn prepare_all<'a>(
        &self,
        jobs: impl ExactSizeIterator<Item = Result<JobRequest<'a>, ApiError>>,
    ) -> Vec<Prepared> {
        let mut prepared = Vec::with_capacity(jobs.len());
        for (index, job) in jobs.enumerate() {
            prepared.push(job.and_then(|job| self.prepare(&job)));
            if index % JOBS_AT_ONCE == JOBS_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
        }
        prepared
    }

    /// Parses and converts a job of a large batch.
    fn add(&self, jobs: &mut Vec<Prepared>, job: &[u8], origin: &json::Origin) -> Result<(), ApiError> {
        let parsed = batch::parse_job(job, origin)?;
        jobs.push(parsed.and_then(|job| self.prepare(&job)));
        Ok(())
    }
}

/// Checks the callbacks of a batch, with one result for each job. Each host is checked once.
async fn check_callbacks(
    api: &Api,
    caller: &Caller,
    jobs: &[Prepared],
) -> Vec<Option<Result<Callback, ApiError>>> {
    let guard = api.guard.on_behalf_of(&caller.tenant).for_batch();
    let check = async |job: &Prepared| match job {
        Ok(job) => match &job.1 {
            Some(url) => Some(callback::check(&guard, url).await),
            None => None,
        },
        Err(_) => None,
    };
    if !jobs.iter().any(|job| job.as_ref().is_ok_and(|job| job.1.is_some())) {
        return jobs.iter().map(|_| None).collect();
    }
    join_all(jobs.iter().map(check)).await
}

async fn answer_existing(api: &Api, spec: &JobSpec, submitted: &Submitted, caller: &Caller) -> Answer {
    let id = submitted.job;
    match api.scheduler.read(move |reader| reader.job(id)).await? {
        Some(view) => reply::ok(&Job { existing: true, ..render::job(&view, api.scheduler.progress(id)) }),
        // Its retention ended in between.
        None => reply::ok(&render::submitted(spec, submitted, caller)),
    }
}

/// The stored job, if it has ended already because it was merged into another one.
async fn read_ended(api: &Api, submitted: &Submitted) -> Result<Option<JobView>, ApiError> {
    if !submitted.state.is_terminal() {
        return Ok(None);
    }
    let id = submitted.job;
    Ok(api.scheduler.read(move |reader| reader.job(id)).await?)
}

/// Parses a batch at once. If that fails, it parses each job alone, so that each gets its own error.
async fn read_batch(
    preparer: &Preparer,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Vec<Prepared>, bool), ApiError> {
    let bytes = body::read(headers, body, LARGE_BATCH).await?;
    let text = json::check(&bytes, json::DEPTH_MAX + 2)?;
    Ok(match laneway_wire::json::parse_batch(text) {
        Ok(BatchRequest { jobs, atomic }) => (preparer.prepare_all(jobs.into_iter().map(Ok)).await, atomic),
        Err(_) => {
            let UnreadBatch { jobs: UpTo(jobs), atomic } = json::parse_text(text)?;
            let jobs = jobs.into_iter().map(|job| json::parse_job_text(job.get()));
            (preparer.prepare_all(jobs).await, atomic)
        }
    })
}

/// Parses a large batch while it arrives, part by part, on blocking threads. A part is dropped when its jobs are parsed.
async fn read_large_batch(
    preparer: Preparer,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Vec<Prepared>, bool), ApiError> {
    let max = BATCH_BODY_MAX.max(preparer.config.server.body_max);
    if body::declared_len(headers).is_some_and(|len| len > max) {
        return Err(body::too_large(max));
    }
    let (api, tenant) = (preparer.api.clone(), preparer.caller.bound.clone());
    let mut state = (Splitter::default(), Vec::new(), preparer);
    let mut received = 0;
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(body::broken)?;
        received += part.len();
        if received > max {
            return Err(body::too_large(max));
        }
        // A permit is for one part: a client that sends slowly does not keep it.
        let permit = api.parsers.take(tenant.as_ref()).await;
        let fed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let (splitter, jobs, preparer) = &mut state;
            splitter.feed(&part, |job, origin| preparer.add(jobs, job, origin)).map(|()| state)
        });
        state = fed.await.map_err(ApiError::internal)??;
    }
    let (splitter, mut jobs, preparer) = state;
    let atomic = splitter.finish(|job, origin| preparer.add(&mut jobs, job, origin))?;
    Ok((jobs, atomic))
}

/// The error of an atomic batch that was rejected: that of the job that caused it.
fn reject_whole(verdicts: &[Result<Submitted, Rejection>]) -> Result<(), ApiError> {
    let rejections =
        verdicts.iter().enumerate().filter_map(|(index, verdict)| Some((index, verdict.as_ref().err()?)));
    let Some((index, rejection)) =
        rejections.min_by_key(|(_, rejection)| rejection.code == RejectionCode::BatchRejected)
    else {
        return Ok(());
    };
    Err(ApiError::from(rejection.clone()).within(&format!("jobs[{index}]")))
}

/// The jobs of a batch that must be read from the store: earlier jobs of idempotency keys, and merged jobs.
async fn read_stored(
    api: &Api,
    verdicts: &[Result<Submitted, Rejection>],
) -> Result<HashMap<JobId, JobView>, ApiError> {
    let admitted = verdicts.iter().filter_map(|verdict| verdict.as_ref().ok());
    let ids: Vec<JobId> =
        admitted.filter(|job| job.existing || job.state.is_terminal()).map(|job| job.job).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let views = api.scheduler.read(move |reader| {
        let mut views = HashMap::new();
        for id in ids {
            views.extend(reader.job(id)?.map(|view| (id, view)));
        }
        Ok(views)
    });
    Ok(views.await?)
}

/// One item for each job, in order. `verdicts` has the replies to the jobs that reached the engine.
fn judge<'a>(
    items: &'a [Result<JobSpec, ApiError>],
    mut verdicts: impl Iterator<Item = &'a Result<Submitted, Rejection>>,
    stored: &'a HashMap<JobId, JobView>,
    caller: &'a Caller,
) -> BatchResponse<'a> {
    let rejected = |error: ApiError| BatchItem {
        status: error.code.status().as_u16(),
        job: None,
        problem: Some(error.to_problem(Some(&caller.request))),
    };
    let items: Vec<BatchItem<'a>> = items
        .iter()
        .map(|item| match item {
            Err(error) => rejected(error.clone()),
            Ok(spec) => match verdicts.next() {
                Some(Ok(submitted)) => BatchItem {
                    status: if submitted.existing { 200 } else { 201 },
                    job: Some(match stored.get(&submitted.job) {
                        Some(view) => Job { existing: submitted.existing, ..render::job(view, None) },
                        None => render::submitted(spec, submitted, caller),
                    }),
                    problem: None,
                },
                Some(Err(rejection)) => rejected(rejection.clone().into()),
                None => rejected(ApiError::internal("the engine returned fewer verdicts than jobs")),
            },
        })
        .collect();
    let accepted = items.iter().filter(|item| item.job.is_some()).count();
    BatchResponse { accepted, rejected: items.len() - accepted, items }
}

/// The jobs of a batch that reached the engine, each with its verdict and its index.
fn judged<'a>(
    items: &'a [Result<JobSpec, ApiError>],
    verdicts: &'a [Result<Submitted, Rejection>],
) -> impl Iterator<Item = (usize, &'a str, &'a Result<Submitted, Rejection>)> {
    let asked = items.iter().enumerate();
    let asked = asked.filter_map(|(index, item)| Some((index, item.as_ref().ok()?.kind.as_str())));
    asked.zip(verdicts).map(|((index, kind), verdict)| (index, kind, verdict))
}

/// The kinds of admitted jobs that no handler serves now.
fn unserved<'a>(
    items: &'a [Result<JobSpec, ApiError>],
    verdicts: &'a [Result<Submitted, Rejection>],
) -> BTreeSet<&'a str> {
    let waits = |verdict: &Result<Submitted, Rejection>| verdict.as_ref().is_ok_and(|job| !job.served);
    judged(items, verdicts).filter(|(_, _, verdict)| waits(verdict)).map(|(_, kind, _)| kind).collect()
}

/// Adds the warning of its kind to every job that no handler serves now.
fn warn(
    response: &mut BatchResponse<'_>,
    items: &[Result<JobSpec, ApiError>],
    verdicts: &[Result<Submitted, Rejection>],
    warnings: &HashMap<String, Warning>,
) {
    if warnings.is_empty() {
        return;
    }
    for (index, kind, verdict) in judged(items, verdicts) {
        if verdict.as_ref().is_ok_and(|job| !job.served)
            && let Some(job) = response.items[index].job.as_mut()
        {
            job.warnings.extend(warnings.get(kind).cloned());
        }
    }
}

/// Records the rejected jobs of a batch, which have no event of their own.
async fn note_rejected(api: &Api, caller: &Caller, response: &BatchResponse<'_>) {
    let Some(problem) = response.items.iter().find_map(|item| item.problem.as_ref()) else { return };
    let (rejected, all) = (response.rejected, response.items.len());
    let detail = format!(
        "submit_batch: {rejected} of {all} jobs rejected; the first: {}: {}",
        problem.code, problem.detail
    );
    audit::note(
        api,
        "submit_batch",
        caller.0.clone().into(),
        EventKind::CallRejected,
        Code::BatchRejected,
        detail,
    )
    .await;
}
