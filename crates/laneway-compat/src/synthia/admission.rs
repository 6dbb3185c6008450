//! Admission without a queue: a job may run now, or the caller tries again later.

use axum::extract::{Path, Request};
use laneway_core::engine::LeaseView;
use laneway_core::lease::{LeaseFor, LeaseRequest, LeaseUpdate};
use laneway_core::{Denial, Grant, Holder, Name, Reply};
use serde_json::{Value, json};

use super::decode::{Form, in_any_case};
use super::error::{Answer, Fields, Problem, done, ok};
use super::intents::{cost, priority, seconds};
use super::lookup::{Report, lease_id, outcome, pid};
use super::time::stamp;
use super::translate::Asked;
use super::vocabulary::admission_denial;
use super::{JOBS_LANE, Synthia};
use crate::body::Call;
use crate::names::name_of;

/// The dialect's names of fields that the engine may reject.
const FIELDS: Fields = Fields { cost: "cost_units", deadline: "max_runtime_sec" };
/// The cost of the classes that older clients use.
const CLASSES: [(&str, u32); 3] = [("LOW", 10), ("NORMAL", 30), ("HIGH", 60)];
/// The values of `status` at a release.
const ENDS: [(&str, bool); 4] = [("completed", true), ("done", true), ("succeeded", true), ("failed", false)];
/// How often a lease should be renewed before it expires.
const BEATS: u64 = 3;

/// Requests admission of a job.
pub async fn request_admission(Call(synthia, caller): Call<Synthia>, request: Request) -> Answer {
    let mut form = synthia.form(request).await?;
    let (named, worker, pid) = (form.opt_text("job_id"), form.opt_text("worker_id"), pid(&mut form));
    let (reply, cost) = match named {
        Some(job) => {
            form.finish()?;
            let seen = synthia.find(&caller, &job).await?;
            let spec = &seen.view.row.spec;
            let holder =
                Holder { worker: worker.as_deref().map_or(spec.agent.clone(), name_of), pid, boot: None };
            (synthia.lease_for(&caller, seen.view.row.id, holder).await?, spec.capacity.cost)
        }
        None => {
            let asked = read_asked(&mut form);
            form.finish()?;
            let holder =
                Holder { worker: name_of(worker.as_deref().unwrap_or(&asked.addon)), pid, boot: None };
            let cost = asked.cost;
            let what = LeaseFor::New(Box::new(asked.into_submission(&caller, JOBS_LANE)));
            (synthia.scheduler.request_lease(LeaseRequest { what, holder }).await?, cost)
        }
    };
    match reply {
        Reply::Granted(grant) => ok(&synthia.approved(&grant)),
        Reply::Denied(denied) => ok(&synthia.not_approved(&denied, cost).await?),
        Reply::Rejected(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
        _ => Err(Problem::no_job()),
    }
}

fn read_asked(form: &mut Form) -> Asked {
    let class = form.choice("cost_class", "enum", &CLASSES, in_any_case);
    Asked {
        addon: form.text("addon_id"),
        kind: form.text("job_type"),
        cost: match class {
            Some(cost) if !form.has("cost_units") => cost,
            _ => cost(form, "cost_units"),
        },
        priority: priority(form),
        constraints: form.object("constraints"),
        expected_duration: seconds(form, "expected_duration_sec", 0),
        max_runtime: seconds(form, "max_runtime_sec", 1),
        payload: form.object("payload"),
        considerate: true,
        ..Asked::default()
    }
}

impl Synthia {
    fn approved(&self, grant: &Grant) -> Value {
        let ttl = grant.lease.0 / 1_000;
        json!({
            "approved": true,
            "lease_id": grant.fence.attempt_id.to_string(),
            "job_id": grant.fence.job.to_string(),
            "expires_at": stamp(self.ends_at(grant.lease)),
            "limits": {
                "lease_ttl_sec": ttl,
                "heartbeat_interval_sec": (ttl / BEATS).max(1),
                "max_runtime_sec": grant.timeout.0 / 1_000,
            },
            "reason": "Approved",
        })
    }

    async fn not_approved(&self, denied: &Denial, requested: u32) -> Result<Value, Problem> {
        let capacity = self.scheduler.capacity().await?;
        let ms = denied.retry_after.0;
        Ok(json!({
            "approved": false,
            "reason": admission_denial(&denied.reason, requested, capacity.usable, capacity.used),
            "retry_after_sec": ms.div_ceil(1_000),
            "retry_after_ms": ms,
        }))
    }
}

/// Shows a lease.
pub async fn get_admission(Call(synthia, caller): Call<Synthia>, Path(id): Path<String>) -> Answer {
    let lease = synthia.lease(&caller, &id).await?;
    let ttl = synthia.scheduler.lease_ttl(lease.lane.clone()).await?;
    let expires_at = synthia.ends_at(lease.remaining);
    ok(&json!({
        "lease_id": lease.lease.to_string(),
        "job_id": lease.job.to_string(),
        "addon_id": lease.agent.as_str(),
        "job_type": lease.kind.as_str(),
        "cost_units": lease.cost,
        "worker_id": lease.holder.as_ref().map(|holder| holder.worker.to_string()),
        "granted_at": stamp(lease.opened_at),
        "last_heartbeat_at": stamp(expires_at.before(ttl)),
        "expires_at": stamp(expires_at),
        "state": "ACTIVE",
    }))
}

/// The worker in the form, or the holder of the lease: in this API the lease's id is enough.
fn worker_or_holder(form: &mut Form, lease: &LeaseView) -> Name {
    let holder = || lease.holder.as_ref().map_or(lease.agent.clone(), |holder| holder.worker.clone());
    form.opt_text("worker_id").as_deref().map_or_else(holder, name_of)
}

/// A heartbeat of a lease.
pub async fn beat_admission(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form_if_any(request).await?;
    let lease = synthia.lease(&caller, &id).await?;
    let (worker, pid) = (worker_or_holder(&mut form, &lease), pid(&mut form));
    form.finish()?;
    let expires_at = synthia.beat(&caller, lease.lease, worker, pid).await?;
    ok(&json!({"ok": true, "lease_id": id, "state": "ACTIVE", "expires_at": stamp(expires_at)}))
}

/// A progress report.
pub async fn report_admission(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form(request).await?;
    let lease = synthia.lease(&caller, &id).await?;
    let worker = worker_or_holder(&mut form, &lease);
    let report = Report {
        progress: form.opt_number("progress", 1.0),
        metrics: form.object("metrics"),
        message: form.opt_text("message"),
    };
    form.finish()?;
    synthia.report(&caller, &lease, worker, report).await?;
    done()
}

/// Releases a lease; the job has succeeded unless the form says otherwise.
pub async fn release_admission(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form_if_any(request).await?;
    let status = form.choice("status", "literal_error", &ENDS, in_any_case);
    let worker = form.opt_text("worker_id").as_deref().map(name_of);
    let (result, error) = (form.opt_object("result"), form.opt_text("error"));
    form.finish()?;
    let update = LeaseUpdate::Ended(outcome(status.unwrap_or(true), result, error));
    match synthia.update_lease(&caller, lease_id(&id)?, worker, None, update).await? {
        Reply::Done => ok(&json!({"ok": true, "lease_id": id, "state": "RELEASED"})),
        Reply::NotYours => Err(Problem::not_yours()),
        Reply::Rejected(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
        _ => Err(Problem::no_lease()),
    }
}
