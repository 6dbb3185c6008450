//! What happens, in their words: the event `cron` when a run begins and ends, `outbound` for messages that are to go out,
//! `cache:cron` when jobs change, `shutdown` when the server stops.

use laneway_core::schedule::{RunStatus, ScheduleLine};
use laneway_core::{Event, EventKind, Name, ScheduleId};
use laneway_runtime::outbound::{Outbound, run_of, turn_of};
use laneway_runtime::store::RunLogFilter;
use laneway_runtime::{QueryError, Scheduler};
use serde_json::{Value, json};

use super::member::Member;
use super::translate::{is_cron_job, parts_of_name, put, status};

/// What a member hears of an event: its name and its payload. `None`: nothing.
pub async fn told(
    scheduler: &Scheduler,
    member: &Member,
    event: &Event,
) -> Result<Option<(&'static str, Value)>, QueryError> {
    if event.kind == EventKind::DrainBegan {
        return Ok(Some(("shutdown", json!({}))));
    }
    if event.tenant.as_ref() != Some(member.tenant()) {
        return Ok(None);
    }
    let detail = event.detail.as_deref();
    let line = detail.and_then(ScheduleLine::parse);
    Ok(match (event.kind, line) {
        (EventKind::ScheduleFired, Some(line)) => begun(scheduler, member, &line).await?,
        (EventKind::ScheduleRunEnded, Some(line)) => ended(scheduler, member, event.number, &line).await?,
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

async fn begun(
    scheduler: &Scheduler,
    member: &Member,
    line: &ScheduleLine,
) -> Result<Option<(&'static str, Value)>, QueryError> {
    let Some(owner) = owner_of(scheduler, member.tenant(), line.id).await? else { return Ok(None) };
    let owner = owner.as_deref();
    Ok(member.sees(owner).then(|| ("cron", cron("running", line.id, &line.name, owner))))
}

/// Whose a cron job is. `None`: it is no cron job of this dialect.
async fn owner_of(
    scheduler: &Scheduler,
    tenant: &Name,
    id: ScheduleId,
) -> Result<Option<Option<String>>, QueryError> {
    if let Some(schedule) = scheduler.schedule(Some(tenant.clone()), id).await? {
        let owner = schedule.spec.owner.as_ref().map(Name::to_string);
        return Ok(is_cron_job(&schedule).then_some(owner));
    }
    // A one-shot may have run and gone before its beginning is told; its log knows the job, and the job knows.
    let filter = RunLogFilter { tenant: Some(tenant.clone()), schedule: Some(id) };
    let page = scheduler.run_logs(filter, None, 1).await?;
    let Some(job) = page.items.first().and_then(|log| log.job) else { return Ok(None) };
    Ok(turn_of(scheduler, job).await?.map(|(_, turn)| turn.user_id))
}

async fn ended(
    scheduler: &Scheduler,
    member: &Member,
    number: u64,
    line: &ScheduleLine,
) -> Result<Option<(&'static str, Value)>, QueryError> {
    let Some(log) = run_of(scheduler, member.tenant(), number).await? else { return Ok(None) };
    // A slot that passed without a run is in the run log; it is no run that ended.
    let Some(job) = log.job else { return Ok(None) };
    // The job knows whose it is, also when its schedule is gone by now.
    let Some((_, turn)) = turn_of(scheduler, job).await? else { return Ok(None) };
    let owner = turn.user_id.as_deref();
    if !member.sees(owner) {
        return Ok(None);
    }
    let action = if log.status == RunStatus::Ok { "completed" } else { "error" };
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
