//! Translates events: `cron` when a firing is queued, starts and ends, `outbound` for outbound messages,
//! `cache:cron` when cron jobs change, `shutdown` when the server stops.

use laneway_core::schedule::{FiringStatus, ScheduleLine};
use laneway_core::{Event, EventKind, Name, ScheduleId};
use laneway_runtime::agent_turn::AGENT_TURN;
use laneway_runtime::outbound::{Outbound, run_of, turn_of};
use laneway_runtime::{ReadError, Scheduler};
use serde_json::{Value, json};

use super::member::Member;
use super::translate::{is_cron_job, parts_of_name, put, status};

/// The name and payload of an event for a member. `None`: the member does not get it.
pub async fn translate(
    scheduler: &Scheduler,
    member: &Member,
    event: &Event,
) -> Result<Option<(&'static str, Value)>, ReadError> {
    if event.kind == EventKind::DrainBegan {
        return Ok(Some(("shutdown", json!({}))));
    }
    if event.tenant.as_ref() != Some(member.tenant()) {
        return Ok(None);
    }
    let detail = event.detail.as_deref();
    let line = detail.and_then(ScheduleLine::parse);
    Ok(match (event.kind, line) {
        (EventKind::ScheduleFired, Some(line)) => fired(scheduler, member, &line).await?,
        (EventKind::JobStarted, _) => started(scheduler, member, event).await?,
        (EventKind::ScheduleFiringEnded, Some(line)) => ended(scheduler, member, event.number, &line).await?,
        (
            EventKind::ScheduleCreated
            | EventKind::ScheduleUpdated
            | EventKind::ScheduleDeleted
            | EventKind::ScheduleToggled,
            Some(line),
        ) => Some(("cache:cron", json!({"key": line.id.to_string(), "action": &*line.action}))),
        (EventKind::Outbound, _) => detail.and_then(Outbound::read).and_then(|message| out(member, message)),
        _ => None,
    })
}

/// A job was created. A started job has its own event; one that has not started is `queued`.
async fn fired(
    scheduler: &Scheduler,
    member: &Member,
    line: &ScheduleLine,
) -> Result<Option<(&'static str, Value)>, ReadError> {
    let Some(schedule) = scheduler.schedule(Some(member.tenant().clone()), line.id).await? else {
        return Ok(None);
    };
    let owner = schedule.spec.owner.as_ref().map(Name::as_str);
    let waits = is_cron_job(&schedule) && schedule.state.last_status == Some(FiringStatus::Queued);
    Ok((waits && member.sees(owner)).then(|| {
        let mut payload = cron("queued", line.id, &line.name, owner);
        put(&mut payload, "status", Some(status(FiringStatus::Queued)));
        ("cron", payload)
    }))
}

/// A firing started: the first attempt of a job that a schedule created.
async fn started(
    scheduler: &Scheduler,
    member: &Member,
    event: &Event,
) -> Result<Option<(&'static str, Value)>, ReadError> {
    let first = event.job.as_ref().filter(|job| job.attempt == 1 && job.kind.as_str() == AGENT_TURN);
    let Some(job) = first else { return Ok(None) };
    // The job names its owner, even if its schedule no longer exists.
    let Some((view, turn)) = turn_of(scheduler, job.id).await? else { return Ok(None) };
    let (Some(schedule), owner) = (&view.row.spec.schedule, turn.user_id.as_deref()) else {
        return Ok(None);
    };
    Ok(member.sees(owner).then(|| ("cron", cron("running", schedule.id, &schedule.name, owner))))
}

async fn ended(
    scheduler: &Scheduler,
    member: &Member,
    number: u64,
    line: &ScheduleLine,
) -> Result<Option<(&'static str, Value)>, ReadError> {
    let Some(log) = run_of(scheduler, member.tenant(), number).await? else { return Ok(None) };
    // A skipped slot is in the firing log, but it has no firing that ended.
    let Some(job) = log.job else { return Ok(None) };
    // The job names its owner, even if its schedule no longer exists.
    let Some((_, turn)) = turn_of(scheduler, job).await? else { return Ok(None) };
    let owner = turn.user_id.as_deref();
    if !member.sees(owner) {
        return Ok(None);
    }
    let action = if log.status == FiringStatus::Ok { "completed" } else { "error" };
    let mut payload = cron(action, line.id, &line.name, owner);
    put(&mut payload, "status", Some(status(log.status)));
    put(&mut payload, "error", log.error.as_deref());
    Ok(Some(("cron", payload)))
}

fn out(member: &Member, message: Outbound) -> Option<(&'static str, Value)> {
    member.sees(message.user_id.as_deref()).then(|| {
        let payload = serde_json::to_value(message).expect("texts are JSON");
        ("outbound", payload)
    })
}

fn cron(action: &str, id: ScheduleId, name: &Name, owner: Option<&str>) -> Value {
    let (_, slug) = parts_of_name(name);
    let mut payload = json!({"action": action, "jobId": id.to_string(), "jobName": slug});
    put(&mut payload, "userId", owner);
    payload
}
