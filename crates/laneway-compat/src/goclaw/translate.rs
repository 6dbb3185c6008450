//! Translates cron jobs into schedules, and schedules into cron jobs.

use laneway_core::schedule::{FiringStatus, Plan, SCHEDULE_SELF, TimingError};
use laneway_core::{
    Bytes, CatchUp, FiringLogEntry, JobSpec, Name, Overlap, Schedule, ScheduleId, SchedulePatch,
    ScheduleSpec, Span, Timing, Wall,
};
use laneway_runtime::agent_turn::{AGENT_TURN, AgentTurn, answer_of};
use serde_json::{Map, Value, json};

use super::frame::Problem;
use super::member::Member;
use super::params::Params;

/// True for a schedule that is a cron job of this dialect.
pub fn is_cron_job(schedule: &Schedule) -> bool {
    schedule.spec.job.kind.as_str() == AGENT_TURN
}

/// The schedule of a `cron.create`.
pub fn new_schedule(member: &Member, params: &Params, now: Wall) -> Result<ScheduleSpec, Problem> {
    let slug = params.text("name").ok_or_else(|| Problem::invalid("name is required"))?;
    check_slug(slug)?;
    let message = params.text("message").ok_or_else(|| Problem::invalid("message is required"))?;
    let schedule = params.object("schedule").unwrap_or_default();
    let timing = timing(&schedule, None, now)?;
    let agent = params.text("agentId");
    let text = |key: &str| params.text(key).unwrap_or_default().to_owned();
    let turn = AgentTurn {
        command: params.text("command").map(str::to_owned),
        credential_user_id: member.credential.clone(),
        user_id: member.user.clone(),
        job_name: Some(slug.to_owned()),
        stateless: params.flag("stateless").unwrap_or(true),
        deliver: params.flag("deliver").unwrap_or(false),
        deliver_channel: text("deliverChannel"),
        deliver_to: text("deliverTo"),
        wake_heartbeat: params.flag("wakeHeartbeat").unwrap_or(false),
        ..AgentTurn::new(message)
    };
    Ok(ScheduleSpec {
        tenant: member.tenant().clone(),
        name: full_name(agent, slug)?,
        timing,
        job: template(member.tenant(), agent, SCHEDULE_SELF)?,
        payload: turn.write(),
        enabled: true,
        delete_after_run: None,
        catch_up: CatchUp::Skip,
        overlap: Overlap::Skip,
        jitter: Span(0),
        note: Bytes::from(Vec::new()),
        owner: member.user.as_deref().map(owner).transpose()?,
    })
}

/// The changes of a `cron.update`. Empty names and messages keep the current ones.
pub fn patch(schedule: &Schedule, patch: &Params, now: Wall) -> Result<SchedulePatch, Problem> {
    let spec = &schedule.spec;
    let mut turn = AgentTurn::read(&spec.payload).map_err(Problem::invalid)?;
    let (old_agent, old_slug) = parts_of_name(&spec.name);
    let slug = patch.text("name").unwrap_or(old_slug);
    if slug != old_slug {
        check_slug(slug)?;
    }
    let agent = match patch.given_text("agentId") {
        Some("") => None,
        Some(agent) => Some(agent),
        None => old_agent,
    };
    let name = full_name(agent, slug)?;
    turn.job_name = Some(slug.to_owned());
    if let Some(message) = patch.text("message") {
        message.clone_into(&mut turn.message);
    }
    for (key, field) in [("deliverChannel", &mut turn.deliver_channel), ("deliverTo", &mut turn.deliver_to)] {
        if let Some(text) = patch.given_text(key) {
            text.clone_into(field);
        }
    }
    for (key, field) in [
        ("stateless", &mut turn.stateless),
        ("deliver", &mut turn.deliver),
        ("wakeHeartbeat", &mut turn.wake_heartbeat),
    ] {
        *field = patch.flag(key).unwrap_or(*field);
    }
    let timing =
        patch.object("schedule").map(|schedule| timing(&schedule, Some(&spec.timing), now)).transpose()?;
    let job = match agent == old_agent {
        true => None,
        false => {
            let fresh = template(&spec.tenant, agent, &schedule.id.to_string())?;
            let JobSpec { agent, session, .. } = fresh;
            Some(Box::new(JobSpec { agent, session, ..spec.job.clone() }))
        }
    };
    Ok(SchedulePatch {
        name: (name != spec.name).then_some(name),
        timing,
        job,
        payload: Some(turn.write()).filter(|payload| *payload != spec.payload),
        enabled: patch.flag("enabled"),
        delete_after_run: patch.flag("deleteAfterRun"),
        ..SchedulePatch::default()
    })
}

/// A schedule as a cron job. `None`: its payload is not an agent turn.
pub fn job(schedule: &Schedule) -> Option<Value> {
    let Schedule { id, spec, created_at, updated_at, state } = schedule;
    let turn = AgentTurn::read(&spec.payload).ok()?;
    let (agent, slug) = parts_of_name(&spec.name);
    let mut payload = json!({"kind": turn.kind, "message": turn.message});
    put(&mut payload, "command", turn.command);
    let mut shown = json!({});
    put(&mut shown, "nextRunAtMs", state.next_at.map(|at| at.0));
    put(&mut shown, "lastRunAtMs", state.last_ended_at.map(|at| at.0));
    put(&mut shown, "lastStatus", state.last_status.map(status));
    put(&mut shown, "lastError", state.last_error.as_deref());
    let mut job = json!({
        "id": id.to_string(),
        "tenantId": spec.tenant.as_str(),
        "name": slug,
        "enabled": spec.enabled,
        "schedule": shown_timing(&spec.timing),
        "payload": payload,
        "state": shown,
        "createdAtMs": created_at.0,
        "updatedAtMs": updated_at.0,
        "stateless": turn.stateless,
        "deliver": turn.deliver,
        "deliverChannel": turn.deliver_channel,
        "deliverTo": turn.deliver_to,
        "wakeHeartbeat": turn.wake_heartbeat,
    });
    put(&mut job, "agentId", agent);
    put(&mut job, "userId", spec.owner.as_ref().map(Name::as_str));
    put(&mut job, "deleteAfterRun", spec.deletes_itself().then_some(true));
    Some(job)
}

/// An entry of the firing log.
pub fn entry(log: &FiringLogEntry) -> Value {
    let mut entry = json!({
        "ts": log.ran_at.0,
        "jobId": log.schedule.to_string(),
        "status": status(log.status),
    });
    put(&mut entry, "error", log.error.as_deref());
    put(&mut entry, "summary", log.summary.as_deref().map(|summary| answer_of(summary.as_bytes())));
    for (key, count) in [
        ("durationMs", log.duration_ms),
        ("inputTokens", log.input_tokens),
        ("outputTokens", log.output_tokens),
    ] {
        put(&mut entry, key, (count > 0).then_some(count));
    }
    entry
}

/// The dialect's name of a firing's state.
pub fn status(status: FiringStatus) -> &'static str {
    match status {
        FiringStatus::Ok => "ok",
        FiringStatus::Error | FiringStatus::Timeout => "error",
        FiringStatus::Running => "running",
        FiringStatus::Queued => "queued",
        FiringStatus::Canceled => "cancelled",
        FiringStatus::Skipped => "skipped",
        FiringStatus::Interrupted => "interrupted",
    }
}

/// The id of the job in the request.
pub fn job_id(params: &Params) -> Result<ScheduleId, Problem> {
    let text = params.job().ok_or_else(|| Problem::invalid("jobId is required"))?;
    ScheduleId::parse(text).ok_or_else(Problem::no_job)
}

/// The agent in a name, and the job's own name.
pub fn parts_of_name(name: &Name) -> (Option<&str>, &str) {
    match name.as_str().rsplit_once('/') {
        Some((agent, slug)) => (Some(agent), slug),
        None => (None, name.as_str()),
    }
}

/// Sets a field, if there is a value.
pub fn put(object: &mut Value, key: &str, value: Option<impl Into<Value>>) {
    if let (Value::Object(fields), Some(value)) = (object, value) {
        fields.insert(key.to_owned(), value.into());
    }
}

/// Names are unique per agent in the dialect and per tenant here: the full name begins with the agent.
fn full_name(agent: Option<&str>, slug: &str) -> Result<Name, Problem> {
    let full = agent.map_or_else(|| slug.to_owned(), |agent| format!("{agent}/{slug}"));
    Name::new(&full).map_err(|error| Problem::invalid(format!("name {error}")))
}

fn check_slug(slug: &str) -> Result<(), Problem> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = !slug.starts_with('-') && !slug.ends_with('-');
    if ends && slug.bytes().all(|byte| inner(byte) || byte == b'-') {
        return Ok(());
    }
    Err(Problem::invalid("name must be a valid slug (lowercase letters, numbers, hyphens only)"))
}

fn owner(user: &str) -> Result<Name, Problem> {
    Name::new(user).map_err(|error| Problem::invalid(format!("user_id {error}")))
}

/// The template of the jobs.
fn template(tenant: &Name, agent: Option<&str>, job: &str) -> Result<JobSpec, Problem> {
    AgentTurn::of_cron(tenant, agent, job).map_err(|error| Problem::invalid(format!("agentId {error}")))
}

/// The timing of a request. In a patch, absent fields keep their values as long as the kind stays the same.
fn timing(asked: &Params, old: Option<&Timing>, now: Wall) -> Result<Timing, Problem> {
    let kind = asked.text("kind").or_else(|| old.map(Timing::as_str)).unwrap_or_default();
    let timing = match kind {
        "at" => {
            let kept = if let Some(Timing::At(at)) = old { Some(at.0) } else { None };
            let at = asked.number("atMs").or(kept);
            Timing::At(Wall(at.ok_or_else(|| Problem::invalid("at schedule requires atMs"))?))
        }
        "every" => {
            let kept = if let Some(Timing::Every { every, .. }) = old { Some(*every) } else { None };
            let asked = asked.number("everyMs");
            let every = asked.map_or(kept, |every| u64::try_from(every).ok().map(Span));
            let every = every.filter(|every| every.0 > 0);
            let every = every.ok_or_else(|| Problem::invalid("every schedule requires positive everyMs"))?;
            Timing::Every { every, anchor: None }
        }
        "cron" => {
            let kept = if let Some(Timing::Cron { expr, .. }) = old { Some(&**expr) } else { None };
            let expr = asked.text("expr").or(kept);
            let expr = expr.ok_or_else(|| Problem::invalid("cron schedule requires expr"))?;
            let zone = asked.text("tz").map(|tz| Name::new(tz).map_err(|_| no_zone(tz))).transpose()?;
            Timing::Cron { expr: expr.into(), zone }
        }
        other => return Err(Problem::invalid(format!("invalid schedule kind: {other}"))),
    };
    check(&timing, now)?;
    Ok(timing)
}

/// Rejects, with the dialect's messages, what the engine would reject.
fn check(timing: &Timing, now: Wall) -> Result<(), Problem> {
    let no_future = |why: &str| Problem::invalid(format!("cron job has no future run: {why}"));
    let plan = Plan::new(timing, now).map_err(|error| match (&error, timing) {
        (TimingError::Expression(reason), Timing::Cron { expr, .. }) => {
            Problem::invalid(format!("invalid cron expression: {expr}")).because(reason)
        }
        (TimingError::Zone(zone), _) => no_zone(zone),
        (error, _) => Problem::invalid(format!("invalid schedule: {error}")),
    })?;
    match (plan.next_after(now), timing) {
        (Some(_), _) => Ok(()),
        (None, Timing::At(_)) => Err(no_future("at schedule is already in the past")),
        (None, Timing::Cron { .. }) => Err(no_future("cron schedule has no valid next execution")),
        (None, Timing::Every { .. }) => Err(no_future("every schedule has no valid interval")),
    }
}

fn no_zone(zone: &str) -> Problem {
    Problem::invalid(format!("invalid timezone: {zone}"))
}

fn shown_timing(timing: &Timing) -> Value {
    let mut shown = Map::new();
    shown.insert("kind".to_owned(), timing.as_str().into());
    let mut shown = Value::Object(shown);
    match timing {
        Timing::At(at) => put(&mut shown, "atMs", Some(at.0)),
        Timing::Every { every, .. } => put(&mut shown, "everyMs", Some(every.0)),
        Timing::Cron { expr, zone } => {
            put(&mut shown, "expr", Some(&**expr));
            put(&mut shown, "tz", zone.as_ref().map(Name::as_str));
        }
    }
    shown
}
