//! Leases of pull workers, for the next base job or for one intent by its id.

use axum::extract::{Path, Request};
use laneway_core::lease::{Claim, LeaseFor, LeaseRequest, LeaseUpdate};
use laneway_core::{Denial, Grant, Holder, JobId, Name, Reply};
use laneway_runtime::Caller;
use serde_json::{Value, json};

use super::error::{Answer, Fields, Problem, done, ok};
use super::lookup::{Report, lease_id, outcome, pid, worker};
use super::time::stamp;
use super::vocabulary::denial;
use super::{JOBS_LANE, Synthia};
use crate::body::Call;
use crate::names::name_of;

/// The dialect's names of fields that the engine may reject.
const FIELDS: Fields = Fields { cost: "max_units", deadline: "job_id" };
/// The values of `status` at a completion.
const ENDS: [(&str, bool); 2] = [("completed", true), ("failed", false)];

/// A worker requests a lease.
pub async fn request_base_lease(Call(synthia, caller): Call<Synthia>, request: Request) -> Answer {
    let mut form = synthia.form(request).await?;
    let holder = Holder { worker: worker(&mut form), pid: pid(&mut form), boot: None };
    // Capabilities are accepted and ignored, as on the original server; kinds are requested by name.
    form.texts("capabilities");
    let kinds = form.texts("job_types").iter().map(|kind| name_of(kind)).collect();
    let max_cost = form.opt_int("max_units", 0..=i64::from(u32::MAX));
    let job = form.opt_text("job_id");
    form.finish()?;
    let reply = match job {
        Some(job) => {
            let job = synthia.find(&caller, &job).await?.view.row.id;
            synthia.lease_for(&caller, job, holder).await?
        }
        None => {
            let claim = Claim {
                tenant: caller.tenant.clone(),
                lane: Name::fixed(JOBS_LANE),
                agent: None,
                kinds,
                max_cost: max_cost.and_then(|max| u32::try_from(max).ok()),
                holder,
                start: false,
                token: caller.token().cloned(),
            };
            synthia.scheduler.claim(claim).await?
        }
    };
    match reply {
        Reply::Granted(grant) => synthia.granted(&caller, &grant).await,
        Reply::Denied(denied) => ok(&denied_body(&denied)),
        Reply::Rejected(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
        _ => Err(Problem::no_job()),
    }
}

impl Synthia {
    /// Leases one job by its id.
    pub async fn lease_for(&self, caller: &Caller, job: JobId, holder: Holder) -> Result<Reply, Problem> {
        let what = LeaseFor::Job { tenant: caller.scope().cloned(), job };
        Ok(self.scheduler.request_lease(LeaseRequest { what, holder }).await?)
    }

    async fn granted(&self, caller: &Caller, grant: &Grant) -> Answer {
        let seen = self.find_job(caller, grant.fence.job).await?;
        let lease = seen.lease(self.ends_at(grant.lease), grant.lease);
        let job = match seen.is_intent() {
            true => json!(seen.intent()),
            false => json!(seen.job()),
        };
        let ttl = grant.lease.0 / 1_000;
        ok(&json!({"denied": false, "lease": lease, "job": job, "lease_ttl_sec": ttl}))
    }
}

/// A denial: the reason, and when to try again.
fn denied_body(denied: &Denial) -> Value {
    let ms = denied.retry_after.0;
    json!({
        "denied": true,
        "reason": denial(&denied.reason),
        "retry_after_ms": ms,
        "retry_after_sec": ms.div_ceil(1_000),
    })
}

/// A heartbeat of a worker. The first one marks the job as running.
pub async fn beat_base_lease(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form(request).await?;
    let (worker, pid) = (worker(&mut form), pid(&mut form));
    form.finish()?;
    let expires_at = synthia.beat(&caller, lease_id(&id)?, worker, pid).await?;
    ok(&json!({"ok": true, "expires_at": stamp(expires_at)}))
}

/// A progress report of a worker. It does not renew the lease.
pub async fn report_base_lease(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form(request).await?;
    let worker = worker(&mut form);
    let report = Report {
        progress: form.opt_number("progress", 1.0),
        metrics: form.object("metrics"),
        message: form.opt_text("message"),
    };
    form.finish()?;
    let lease = synthia.lease(&caller, &id).await?;
    synthia.report(&caller, &lease, worker, report).await?;
    done()
}

/// Completes a lease. A lease that no longer exists is an error.
pub async fn complete_base_lease(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form(request).await?;
    let worker = worker(&mut form);
    let status = form.must_choice("status", &ENDS);
    let (result, error) = (form.opt_object("result"), form.opt_text("error"));
    form.finish()?;
    let Ok(lease) = lease_id(&id) else { return done() };
    let update = LeaseUpdate::Ended(outcome(status.unwrap_or_default(), result, error));
    match synthia.update_lease(&caller, lease, Some(worker), None, update).await? {
        Reply::NotYours => Err(Problem::not_yours()),
        Reply::Rejected(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
        _ => done(),
    }
}

/// Revokes a lease: the job has failed.
pub async fn revoke_base_lease(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form(request).await?;
    let reason = form.opt_text("reason").filter(|reason| !reason.is_empty());
    form.finish()?;
    let update = LeaseUpdate::Revoke(reason.unwrap_or_else(|| "revoked".to_owned()).into());
    match synthia.update_lease(&caller, lease_id(&id)?, None, None, update).await? {
        Reply::Done => done(),
        _ => Err(Problem::no_lease()),
    }
}
