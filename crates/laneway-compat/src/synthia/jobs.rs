//! Base jobs: the jobs that workers lease without naming them.

use axum::extract::{RawQuery, Request};
use laneway_core::{JobState, Name};
use laneway_runtime::store::JobFilter;
use serde_json::json;

use super::counts::{depths, total_of};
use super::decode::{Form, exactly};
use super::error::{Answer, Fields, Problem, ok};
use super::intents::{cost, priority, seconds};
use super::stats::status_of;
use super::time::iso;
use super::translate::{Asked, addon_of};
use super::vocabulary::{JOB_STATES, job_state};
use super::{JOBS_LANE, Synthia};
use crate::body::Call;

/// The dialect's names of fields that the engine may reject.
const FIELDS: Fields = Fields { cost: "requested_units", deadline: "max_runtime_s" };

/// Submits a base job.
pub async fn submit_base_job(Call(synthia, caller): Call<Synthia>, request: Request) -> Answer {
    let mut form = synthia.form(request).await?;
    let tags = form.texts("tags");
    let asked = Asked {
        addon: addon_of(&tags),
        kind: form.text_or("type", "generic"),
        cost: if form.has("requested_units") { cost(&mut form, "requested_units") } else { 1 },
        priority: priority(&mut form),
        unique: form.flag("unique"),
        payload: form.object("payload"),
        idempotency_key: form.opt_text("idempotency_key"),
        max_runtime: seconds(&mut form, "max_runtime_s", 1),
        tags,
        ..Asked::default()
    };
    form.finish()?;
    match synthia.scheduler.submit(asked.into_submission(&caller, JOBS_LANE)).await? {
        Ok(submitted) if submitted.existing => {
            let job = synthia.find_job(&caller, submitted.job).await?.job();
            ok(&json!({"job_id": job.job_id, "state": job.state}))
        }
        Ok(submitted) => {
            let state = job_state(submitted.state, None);
            ok(&json!({"job_id": submitted.job.to_string(), "state": state}))
        }
        Err(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
    }
}

/// Lists base jobs, latest changes first.
pub async fn list_base_jobs(Call(synthia, caller): Call<Synthia>, RawQuery(query): RawQuery) -> Answer {
    let mut form = Form::of_query(query.as_deref());
    let limit = usize::try_from(form.int_clamped("limit", 200, 1..=1_000)).unwrap_or_default();
    let choices = JOB_STATES.map(|(name, states)| (name, (name, states)));
    let wanted = form.choice("state", "enum", &choices, exactly);
    form.finish()?;
    let filter = JobFilter {
        tenant: caller.scope().cloned(),
        lane: Some(Name::fixed(JOBS_LANE)),
        states: wanted.map(|(_, states): (_, &[JobState])| states.to_vec()).unwrap_or_default(),
        ..JobFilter::default()
    };
    let name = wanted.map(|(name, _)| name);
    let shown = move |seen: &super::translate::Seen| {
        name.is_none_or(|name| job_state(seen.view.state(), seen.view.end.as_ref()) == name)
    };
    let mut found = synthia.list(filter, limit, shown).await?;
    found.sort_by_key(|seen| std::cmp::Reverse(seen.updated_at()));
    let leases = synthia.leases(&caller, JOBS_LANE).await?;
    let counts = synthia.counts(&caller, JOBS_LANE).await?;
    let ttl = synthia.scheduler.lease_ttl(Name::fixed(JOBS_LANE)).await?;
    let now = synthia.scheduler.wall();
    let age = |at: laneway_core::Wall| now.since(at).0 as f64 / 1_000.0;
    let jobs: Vec<_> = found
        .iter()
        .map(|seen| {
            let row = &seen.view.row;
            let held = leases.iter().find(|lease| lease.job == row.id);
            let waits = matches!(seen.view.state(), JobState::Scheduled | JobState::Queued);
            json!({
                "job": seen.job(),
                "lease": held.and_then(|lease| seen.lease(synthia.ends_at(lease.remaining), ttl)),
                "in_queue": waits,
                "age_s": age(row.created_at),
                "since_update_s": age(seen.updated_at()),
            })
        })
        .collect();
    ok(&json!({
        "now": iso(now),
        "store_id": "laneway",
        "jobs_len": total_of(&synthia, &caller, JOBS_LANE).await?,
        "leases_len": leases.len(),
        "queue_depths": depths(&counts),
        "snapshot": status_of(&synthia, &caller).await?,
        "jobs": jobs,
    }))
}
