//! Job intents: submit, show, list, acknowledge, complete, cancel.

use axum::extract::{Path, RawQuery, Request};
use laneway_core::capacity::{COST_MAX, Hours};
use laneway_core::lease::LeaseUpdate;
use laneway_core::{JobState, Name, Reply, Span};
use laneway_runtime::store::JobFilter;
use serde_json::json;

use super::counts::{depths, total_of};
use super::decode::{Form, exactly, in_any_case};
use super::error::{Answer, Fields, Problem, done, ok};
use super::lookup::{lease_id, outcome, pid};
use super::time::stamp;
use super::translate::Asked;
use super::vocabulary::{INTENT_STATES, PRIORITIES, intent_state};
use super::{LANE, Synthia};
use crate::body::Call;
use crate::names::name_of;

/// Longest duration of a field, in seconds: ten years.
const SECONDS_MAX: i64 = 10 * 365 * 24 * 3_600;

/// The dialect's names of fields that the engine may reject.
const FIELDS: Fields = Fields { cost: "cost_units", deadline: "deadline_at" };

/// The values of `status` at a completion.
const ENDS: [(&str, bool); 2] = [("DONE", true), ("FAILED", false)];

/// Submits a job intent.
pub async fn submit_intent(Call(synthia, caller): Call<Synthia>, request: Request) -> Answer {
    let mut form = synthia.form(request).await?;
    let asked = read_intent(&mut form);
    form.finish()?;
    match synthia.scheduler.submit(asked.into_submission(&caller, LANE)).await? {
        Ok(submitted) => {
            // The intent may have been dispatched in the same batch; this response says that it was
            // queued.
            let state = if submitted.existing { intent_state(submitted.state) } else { "QUEUED" };
            ok(&json!({"job_id": submitted.job.to_string(), "state": state}))
        }
        Err(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
    }
}

fn read_intent(form: &mut Form) -> Asked {
    let hours = form.opt_text("quiet_hours");
    let parsed = hours.as_deref().and_then(Hours::parse);
    if hours.is_some() && parsed.is_none() {
        let message = "Input should be hours such as 22:00-06:00 or 22:00-06:00 Europe/Berlin";
        form.reject("quiet_hours", "hours_parsing", message);
    }
    Asked {
        addon: form.text("addon_id"),
        kind: form.text("job_type"),
        cost: cost(form, "cost_units"),
        priority: priority(form),
        constraints: form.object("constraints"),
        expected_duration: seconds(form, "expected_duration_sec", 0),
        payload: form.object("payload"),
        time_sensitive: form.flag("time_sensitive"),
        not_before: form.opt_time("earliest_start_at"),
        deadline: form.opt_time("deadline_at"),
        max_runtime: seconds(form, "max_runtime_sec", 1),
        tags: form.texts("tags"),
        idempotency_key: form.opt_text("idempotency_key").or_else(|| form.opt_text("client_request_id")),
        considerate: true,
        unique: false,
        hours: parsed,
    }
}

/// A required cost, from 1.
pub fn cost(form: &mut Form, name: &str) -> u32 {
    u32::try_from(form.int(name, 1..=i64::from(COST_MAX))).unwrap_or_default()
}

/// A priority in any case; normal by default.
pub fn priority(form: &mut Form) -> i32 {
    form.choice("priority", "enum", &PRIORITIES, in_any_case).unwrap_or_default()
}

/// A duration in seconds.
pub fn seconds(form: &mut Form, name: &str, least: i64) -> Option<Span> {
    let seconds = form.opt_int(name, least..=SECONDS_MAX)?;
    Some(Span::secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Shows an intent.
pub async fn get_intent(Call(synthia, caller): Call<Synthia>, Path(id): Path<String>) -> Answer {
    ok(&synthia.find_intent(&caller, &id).await?.intent())
}

/// Lists intents, latest changes first.
pub async fn list_intents(Call(synthia, caller): Call<Synthia>, RawQuery(query): RawQuery) -> Answer {
    let mut form = Form::of_query(query.as_deref());
    let limit = form.int_clamped("limit", 200, 1..=1_000);
    let states = form.choice("state", "enum", &INTENT_STATES, exactly);
    let addon = form.opt_text("addon_id");
    form.finish()?;
    let filter = JobFilter {
        tenant: caller.scope().cloned(),
        lane: Some(Name::fixed(LANE)),
        agent: addon.as_deref().map(name_of),
        states: states.map(<[JobState]>::to_vec).unwrap_or_default(),
        ..JobFilter::default()
    };
    let limit = usize::try_from(limit).unwrap_or_default();
    let mut found = synthia.list(filter, limit, |_| true).await?;
    found.sort_by_key(|seen| std::cmp::Reverse(seen.updated_at()));
    let counts = synthia.counts(&caller, LANE).await?;
    let jobs_len = total_of(&synthia, &caller, LANE).await?;
    let jobs: Vec<_> = found.iter().map(|seen| seen.intent()).collect();
    ok(&json!({
        "jobs_len": jobs_len,
        "queue_depths": depths(&counts),
        "reserved_units": counts.reserved_units,
        "jobs": jobs,
    }))
}

/// A worker has started a reserved intent: the lease is now its own.
pub async fn ack_intent(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form(request).await?;
    let (named, worker, pid) = (form.opt_text("lease_id"), form.opt_text("worker_id"), pid(&mut form));
    form.finish()?;
    let seen = synthia.find_intent(&caller, &id).await?;
    let not_dispatching = || Problem::conflict("job_not_dispatching");
    let open = seen.view.open.as_ref().filter(|_| seen.view.end.is_none()).ok_or_else(not_dispatching)?;
    let lease = open.fence.attempt_id;
    let is_named = named.as_deref().is_some_and(|text| lease_id(text).is_ok_and(|named| named == lease));
    if named.is_some() && !is_named {
        return Err(Problem::conflict("lease_not_of_job"));
    }
    // The worker that claimed the lease runs it already, and may repeat the call; others come too late.
    if open.state != JobState::Assigned && !is_named {
        return Err(not_dispatching());
    }
    let held = open.holder.as_ref().map(|holder| holder.worker.clone());
    let addon = || seen.view.row.spec.agent.clone();
    let worker = worker.as_deref().map(name_of).or(held).unwrap_or_else(addon);
    match synthia.update_lease(&caller, lease, Some(worker), pid, LeaseUpdate::Alive).await? {
        Reply::Alive { lease: left, stop: false } => {
            let expires_at = stamp(synthia.ends_at(left));
            ok(&json!({"ok": true, "lease_id": lease.to_string(), "expires_at": expires_at}))
        }
        // Another worker has it, or it waits again.
        _ => Err(not_dispatching()),
    }
}

/// Completes an intent. An ended intent does not change.
pub async fn complete_intent(
    Call(synthia, caller): Call<Synthia>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let mut form = synthia.form(request).await?;
    let status = form.must_choice("status", &ENDS);
    // Budgets are not kept here; the field is parsed so that errors are reported.
    form.opt_number("actual_money_spend", f64::MAX);
    form.opt_number("actual_compute_spend", f64::MAX);
    let (result, error) = (form.opt_object("result"), form.opt_text("error"));
    let worker = form.opt_text("worker_id").as_deref().map(name_of);
    form.finish()?;
    let good = status.unwrap_or_default();
    let seen = synthia.find_intent(&caller, &id).await?;
    if let Some(end) = &seen.view.end {
        let same = (end.state == JobState::Succeeded) == good && end.state != JobState::Canceled;
        return if same { done() } else { Err(Problem::conflict("job_already_finished")) };
    }
    let not_running = || Problem::conflict("job_not_running");
    let lease = seen.view.open.as_ref().ok_or_else(not_running)?.fence.attempt_id;
    let update = LeaseUpdate::Ended(outcome(good, result, error));
    match synthia.update_lease(&caller, lease, worker, None, update).await? {
        Reply::Done => done(),
        Reply::NotYours => Err(Problem::not_yours()),
        Reply::Rejected(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
        _ => Err(not_running()),
    }
}

/// Cancels an intent. An ended intent does not change.
pub async fn cancel_intent(Call(synthia, caller): Call<Synthia>, Path(id): Path<String>) -> Answer {
    let seen = synthia.find_intent(&caller, &id).await?;
    let tenant = caller.scope().cloned();
    match synthia.scheduler.cancel(tenant, seen.view.row.id, caller.origin()).await? {
        Reply::Rejected(rejection) => Err(Problem::rejected(&rejection, FIELDS)),
        _ => done(),
    }
}
