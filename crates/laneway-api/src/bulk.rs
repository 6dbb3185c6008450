//! Bulk operations: one action on every job of a filter, in the background.
//!
//! An operation is a record, so it survives a restart and goes on where it was. It walks its list from the newest job back, a page
//! at a time, and sends the same commands as single calls do, a bounded number at once: other callers are served in between. Jobs
//! that are submitted meanwhile are newer than its position, and are left alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderMap;
use futures_util::{StreamExt, stream};
use laneway_core::{Bytes, JobPatch, JobState, Name, Origin, Record, RecordName, Reply, Seq, StartAt};
use laneway_runtime::store::{CountBy, JobFilter, JobView, Page};
use laneway_runtime::{ReadError, RecordError, Retried};
use laneway_wire::{BulkRequest, Operation};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::auth::{self, Caller};
use crate::authority;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::query::Parameters;
use crate::render;
use crate::v1::schedules;

/// The records of operations. All of them are in one collection, so that a start finds them; each names its tenant.
const TENANT: &str = "laneway.operations";
const COLLECTION: &str = "operations";
/// Operations of one tenant that may be open at once.
const OPEN_PER_TENANT_MAX: usize = 4;
/// Operations of all tenants that may be open at once.
const OPEN_MAX: usize = 64;
/// Ended operations of one tenant that are kept.
const ENDED_PER_TENANT_MAX: usize = 50;
/// Jobs between two records of the progress.
const PAGE: usize = 200;
/// Commands of one operation that wait for the loop at once. The loop takes hundreds in a batch.
const AT_ONCE: usize = 16;

const RUNNING: &str = "running";
const DONE: &str = "done";
const CANCELED: &str = "canceled";
const FAILED: &str = "failed";

/// The operations that run here.
#[derive(Default)]
pub struct Operations {
    running: Mutex<HashMap<Name, CancellationToken>>,
}

/// What is done with each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Cancel,
    Retry,
    Reschedule(StartAt),
    Delete,
    ChangePriority(i32),
}

/// The names of the actions.
pub const ACTIONS: [&str; 5] = ["cancel", "retry", "reschedule", "delete", "change_priority"];

/// An operation as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stored {
    operation: Operation,
    /// The number of the job before which it goes on. Absent: at the newest one.
    #[serde(default)]
    before: Option<u64>,
}

impl Action {
    fn of(request: &BulkRequest) -> Result<Action, ApiError> {
        let BulkRequest { action, run_at, delay, priority, filter: _, dry_run: _ } = request;
        let name = action.as_str();
        let unused = |field: &'static str| {
            ApiError::field(field, format!("has no meaning for the action {name}; leave it out"))
        };
        let start = convert::start_at(run_at.as_deref(), delay.as_deref())?;
        let action = match (name, start, *priority) {
            ("cancel", ..) => Action::Cancel,
            ("retry", ..) => Action::Retry,
            ("delete", ..) => Action::Delete,
            ("reschedule", Some(start), _) => Action::Reschedule(start),
            ("reschedule", None, _) => {
                return Err(ApiError::field("run_at", "is absent; give run_at or delay for reschedule"));
            }
            ("change_priority", _, Some(priority)) => Action::ChangePriority(priority),
            ("change_priority", _, None) => {
                return Err(ApiError::field("priority", "is absent; give a number for change_priority"));
            }
            _ => return Err(ApiError::field("action", format!("must be one of {}", ACTIONS.join(", ")))),
        };
        match (action, start, priority) {
            (Action::Reschedule(_), _, Some(_)) => Err(unused("priority")),
            (Action::Reschedule(_), ..) | (_, None, None) => Ok(action),
            (Action::ChangePriority(_), None, _) => Ok(action),
            (_, Some(_), _) => Err(unused(if run_at.is_some() { "run_at" } else { "delay" })),
            _ => Err(unused("priority")),
        }
    }

    /// The states that jobs must have for the action.
    fn allows(self, state: JobState) -> bool {
        match self {
            Action::Cancel => !state.is_terminal(),
            Action::Retry | Action::Delete => state.is_terminal(),
            Action::Reschedule(_) | Action::ChangePriority(_) => {
                matches!(state, JobState::Scheduled | JobState::Queued)
            }
        }
    }

    /// The operation of the API that does the same with one job.
    fn single(self) -> &'static str {
        match self {
            Action::Cancel => "cancel_job",
            Action::Retry => "retry_job",
            Action::Delete => "delete_job",
            Action::Reschedule(_) | Action::ChangePriority(_) => "update_job",
        }
    }
}

/// Starts an operation, or counts the jobs of a dry run.
pub async fn start(api: &Api, caller: &Caller, request: BulkRequest) -> Result<Operation, ApiError> {
    let action = Action::of(&request)?;
    // A caller may do with many jobs what it may do with one.
    if !authority::of(action.single()).is_some_and(|row| row.allows(caller.role, caller.bound.is_none())) {
        let detail = format!(
            "the role {} may not {} jobs; use a token of an operator",
            caller.role.as_str(),
            request.action
        );
        return Err(ApiError::new(Code::Forbidden, detail));
    }
    if request.filter.pairs().is_empty() {
        return Err(ApiError::field("filter", "is empty; name at least one condition, such as state"));
    }
    let scope = caller.scope().cloned();
    let filter = narrowed(&request, action, scope.as_ref())?;
    let matched = match &filter {
        None => Some(0),
        Some(filter) => {
            let filter = filter.clone();
            let count = api.scheduler.list(scope.clone(), move |reader| {
                Ok(reader.count_jobs(&filter, CountBy::Nothing)?.map(|counts| counts.all.sum()))
            });
            count.await?
        }
    };
    let mut operation = Operation {
        state: DONE.to_owned(),
        run_at: match action {
            // The time is the same for all jobs, however long the operation takes.
            Action::Reschedule(start) => Some(render::time(start.time(api.scheduler.now().wall))),
            _ => None,
        },
        priority: request.priority,
        action: request.action,
        filter: request.filter,
        dry_run: request.dry_run,
        matched,
        tenant: scope.map(|tenant| tenant.as_str().to_owned()),
        created_by: Some(caller.actor.as_str().to_owned()),
        created_at: Some(render::time(api.scheduler.now().wall)),
        ..Operation::default()
    };
    if operation.dry_run {
        return Ok(operation);
    }
    make_space(api, operation.tenant.as_deref()).await?;
    let id = new_id()?;
    operation.id = Some(id.as_str().to_owned());
    operation.state = RUNNING.to_owned();
    let stored = Stored { operation, before: None };
    save(api, &id, &stored, Some(0), caller.origin()).await?;
    let operation = stored.operation.clone();
    spawn(api, id, stored);
    Ok(operation)
}

/// The jobs of an operation. `None`: none can match.
fn narrowed(
    request: &BulkRequest,
    action: Action,
    scope: Option<&Name>,
) -> Result<Option<JobFilter>, ApiError> {
    let mut filter = Parameters::of(request.filter.pairs()).job_filter(scope)?;
    let wanted = |state: &JobState| filter.states.is_empty() || filter.states.contains(state);
    filter.states = JobState::ALL.into_iter().filter(wanted).filter(|state| action.allows(*state)).collect();
    Ok((!filter.states.is_empty()).then_some(filter))
}

/// The operations that a caller may see, newest first.
pub async fn list(api: &Api, caller: &Caller) -> Result<Vec<Operation>, ApiError> {
    let mut all: Vec<(Record, Stored)> = read_all(api).await?;
    all.retain(|(_, stored)| is_visible(caller, &stored.operation));
    all.sort_by(|(left, _), (right, _)| {
        right.created_at.cmp(&left.created_at).then(right.version.cmp(&left.version))
    });
    Ok(all.into_iter().map(|(_, stored)| stored.operation).collect())
}

/// One operation.
pub async fn find(api: &Api, caller: &Caller, id: &Name) -> Result<Operation, ApiError> {
    let found = api.scheduler.record(record_name(id)).await?.as_ref().and_then(decode);
    let found = found.map(|stored| stored.operation).filter(|operation| is_visible(caller, operation));
    found.ok_or_else(|| {
        ApiError::new(Code::NotFound, "the operation does not exist; it may have been removed")
    })
}

/// Ends an operation after the jobs that it works on. What it has done stays done.
pub async fn cancel(api: &Api, caller: &Caller, id: &Name) -> Result<Operation, ApiError> {
    let operation = find(api, caller, id).await?;
    if operation.state != RUNNING {
        let detail = format!("the operation has ended ({}) and cannot be canceled", operation.state);
        return Err(ApiError::new(Code::AlreadyEnded, detail));
    }
    if let Some(stop) = api.operations.lock().get(id) {
        stop.cancel();
    }
    Ok(operation)
}

/// Goes on with the operations that an earlier process began.
pub async fn resume(api: &Api) -> Result<(), ApiError> {
    for (record, stored) in read_all(api).await? {
        if stored.operation.state == RUNNING {
            spawn(api, record.name.id, stored);
        }
    }
    Ok(())
}

fn is_visible(caller: &Caller, operation: &Operation) -> bool {
    caller.scope().is_none_or(|tenant| operation.tenant.as_deref() == Some(tenant.as_str()))
}

/// Rejects an operation beyond the limits, and removes the oldest ones that have ended.
async fn make_space(api: &Api, tenant: Option<&str>) -> Result<(), ApiError> {
    let all = read_all(api).await?;
    let open = all.iter().filter(|(_, stored)| stored.operation.state == RUNNING).count();
    let of_tenant: Vec<&(Record, Stored)> =
        all.iter().filter(|(_, stored)| stored.operation.tenant.as_deref() == tenant).collect();
    let (running, mut ended): (Vec<_>, Vec<_>) =
        of_tenant.into_iter().partition(|(_, stored)| stored.operation.state == RUNNING);
    if running.len() >= OPEN_PER_TENANT_MAX || open >= OPEN_MAX {
        let detail = format!(
            "{} bulk operations run already, and at most {OPEN_PER_TENANT_MAX} of a tenant may; wait for one, or cancel it",
            running.len()
        );
        return Err(ApiError::new(Code::TooMany, detail));
    }
    ended.sort_by_key(|(record, _)| std::cmp::Reverse(record.updated_at));
    for (record, _) in ended.into_iter().skip(ENDED_PER_TENANT_MAX) {
        let origin = Origin { actor: Name::fixed(COLLECTION), request: None };
        match api.scheduler.delete_record(record.name.clone(), None, origin).await {
            Ok(_) | Err(RecordError::NotFound) => {}
            Err(error) => return Err(ApiError::internal(error)),
        }
    }
    Ok(())
}

/// Runs an operation in the background.
fn spawn(api: &Api, id: Name, stored: Stored) {
    let stop = CancellationToken::new();
    api.operations.lock().insert(id.clone(), stop.clone());
    let api = api.clone();
    tokio::spawn(async move {
        run(&api, &id, stored, &stop).await;
        api.operations.lock().remove(&id);
    });
}

/// Works through the list. When the server stops, the record stays as it is, and the next start goes on.
async fn run(api: &Api, id: &Name, mut stored: Stored, stop: &CancellationToken) {
    loop {
        let ended = match step(api, id, &mut stored).await {
            Err(ReadError::Stopped(_)) => return,
            Err(error) => {
                stored.operation.error = Some(error.to_string());
                Some(FAILED)
            }
            Ok(false) => Some(DONE),
            Ok(true) if stop.is_cancelled() => Some(CANCELED),
            Ok(true) => None,
        };
        if let Some(state) = ended {
            stored.operation.state = state.to_owned();
            stored.operation.finished_at = Some(render::time(api.scheduler.now().wall));
        }
        if let Err(error) = save(api, id, &stored, None, origin_of_operation(id, &stored.operation)).await {
            tracing::warn!(
                operation = id.as_str(),
                ?error,
                "the progress of a bulk operation cannot be stored"
            );
            return;
        }
        if ended.is_some() || api.closing.is_cancelled() {
            return;
        }
    }
}

/// Works on one page. False: it was the last one.
async fn step(api: &Api, id: &Name, stored: &mut Stored) -> Result<bool, ReadError> {
    let operation = &mut stored.operation;
    let scope = operation.tenant.as_deref().and_then(|tenant| Name::new(tenant).ok());
    let request = BulkRequest {
        action: operation.action.clone(),
        filter: operation.filter.clone(),
        run_at: operation.run_at.clone(),
        priority: operation.priority,
        ..BulkRequest::default()
    };
    let Ok(action) = Action::of(&request) else { return Ok(false) };
    let Ok(Some(filter)) = narrowed(&request, action, scope.as_ref()) else { return Ok(false) };
    let before = stored.before.map(Seq);
    let page: Page<JobView> =
        api.scheduler.list(scope.clone(), move |reader| reader.jobs(&filter, before, PAGE)).await?;
    let origin = origin_of_operation(id, operation);
    let acts = page.items.into_iter().map(|job| act(api, id, action, job, &origin));
    let outcomes: Vec<_> = stream::iter(acts).buffer_unordered(AT_ONCE).collect().await;
    for outcome in outcomes {
        match outcome? {
            Ok(()) => operation.done += 1,
            Err(code) => {
                operation.failed += 1;
                *operation.failures.entry(code.to_owned()).or_default() += 1;
            }
        }
    }
    stored.before = page.next;
    Ok(page.next.is_some())
}

/// Does it with one job. The inner error is the code that a single call would have been answered with.
async fn act(
    api: &Api,
    operation: &Name,
    action: Action,
    job: JobView,
    origin: &Origin,
) -> Result<Result<(), &'static str>, ReadError> {
    let (tenant, id) = (Some(job.row.spec.tenant.clone()), job.row.id);
    match action {
        Action::Cancel => Ok(match api.scheduler.cancel(tenant, id, origin.clone()).await? {
            Reply::Canceled { .. } => Ok(()),
            Reply::Rejected(rejection) => Err(rejection.code.as_str()),
            _ => Err("already_ended"),
        }),
        Action::Reschedule(_) | Action::ChangePriority(_) => {
            let patch = match action {
                Action::Reschedule(start) => JobPatch { start: Some(start), ..JobPatch::default() },
                Action::ChangePriority(priority) => JobPatch { priority: Some(priority), start: None },
                _ => JobPatch::default(),
            };
            Ok(match api.scheduler.update_job(tenant, id, patch, origin.clone()).await? {
                Reply::Updated { .. } => Ok(()),
                Reply::Rejected(rejection) => Err(rejection.code.as_str()),
                _ => Err("already_ended"),
            })
        }
        Action::Delete => Ok(match api.scheduler.delete_job(tenant, id, origin.clone()).await? {
            Reply::Deleted { .. } => Ok(()),
            Reply::Rejected(rejection) => Err(rejection.code.as_str()),
            _ => Err("not_found"),
        }),
        Action::Retry => {
            let seq = job.row.seq;
            let payload = api.scheduler.read(move |reader| reader.payload(seq)).await?.unwrap_or_default();
            if !schedules::holds_credential(api, &job.row.spec.kind, &payload, &HeaderMap::new()) {
                return Ok(Err("forbidden"));
            }
            // A server that died may have retried the job already: the key finds that job.
            let key = Name::new(&format!("{operation}.{id}")).ok();
            Ok(match api.scheduler.retry_once(tenant, id, origin.clone(), key).await? {
                Retried::Submitted(_) => Ok(()),
                Retried::Rejected(rejection) => Err(rejection.code.as_str()),
                Retried::Live(_) => Err("not_ended"),
                Retried::NotFound => Err("not_found"),
            })
        }
    }
}

fn record_name(id: &Name) -> RecordName {
    RecordName { tenant: Name::fixed(TENANT), collection: Name::fixed(COLLECTION), id: id.clone() }
}

/// Events of the jobs name the caller that started the operation, and the operation in place of a request.
fn origin_of_operation(id: &Name, operation: &Operation) -> Origin {
    let actor = operation.created_by.as_deref().and_then(|actor| Name::new(actor).ok());
    Origin { actor: actor.unwrap_or_else(|| Name::fixed(COLLECTION)), request: Some(id.clone()) }
}

async fn save(
    api: &Api,
    id: &Name,
    stored: &Stored,
    expected: Option<u64>,
    origin: Origin,
) -> Result<(), ApiError> {
    let body = serde_json::to_vec(stored).map_err(ApiError::internal)?;
    match api.scheduler.put_record(record_name(id), expected, Bytes::from(body), origin).await {
        Ok(_) => Ok(()),
        Err(RecordError::Rejected(rejection)) => Err(rejection.into()),
        Err(RecordError::Stopped(stopped)) => Err(stopped.into()),
        Err(error) => Err(ApiError::internal(error)),
    }
}

fn decode(record: &Record) -> Option<Stored> {
    serde_json::from_slice(&record.body).ok()
}

/// Every operation. Their number is bounded by the limits of each tenant.
async fn read_all(api: &Api) -> Result<Vec<(Record, Stored)>, ApiError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (tenant, collection) = (Name::fixed(TENANT), Name::fixed(COLLECTION));
        let page = api.scheduler.records(tenant, collection, after.take(), PAGE).await?;
        let Some(last) = page.last() else { return Ok(all) };
        after = Some(last.name.id.clone());
        all.extend(page.into_iter().filter_map(|record| decode(&record).map(|stored| (record, stored))));
    }
}

fn new_id() -> Result<Name, ApiError> {
    let random = u128::from_be_bytes(auth::random().map_err(ApiError::internal)?);
    Name::new(&format!("op_{random:032x}")).map_err(ApiError::internal)
}

impl Operations {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Name, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
