//! The methods: `cron.list`, `cron.status`, `cron.create`, `cron.update`, `cron.delete`, `cron.toggle`,
//! `cron.run` and `cron.runs`. Each sees only the caller's tenant, and unless the caller is an admin, only the
//! caller's own jobs.

use std::collections::BTreeMap;

use laneway_core::schedule::{FireMode, NotFired};
use laneway_core::{FiringLogEntry, Name, Reply, Schedule};
use laneway_runtime::Scheduler;
use laneway_runtime::agent_turn::AgentTurn;
use laneway_runtime::outbound::turn_of;
use laneway_runtime::schedules::SCHEDULES_LISTED_MAX;
use laneway_runtime::store::FiringLogFilter;
use serde_json::{Value, json};

use super::frame::{Code, Problem};
use super::member::{Level, Member};
use super::params::Params;
use super::translate::{self, is_cron_job, job_id};

/// Most jobs that one answer lists.
const LISTED_MAX: usize = 10_000;
/// Most bytes of payloads in one list.
const LISTED_BYTES_MAX: usize = 8 << 20;
/// The default number of log entries.
const RUNS_DEFAULT: i64 = 20;
/// Most log entries in one answer.
const RUNS_MAX: i64 = 200;
/// Largest offset into the firing log.
const OFFSET_MAX: i64 = 10_000;
/// Entries of the firing log that are read at once.
const RUNS_READ: usize = 200;

/// How often an update is repeated because the schedule changed meanwhile.
const UPDATE_TRIES_MAX: u32 = 16;

type Answer = Result<Value, Problem>;

/// Every method, and the level that it requires.
const METHODS: [(&str, Level); 8] = [
    ("cron.list", Level::Viewer),
    ("cron.status", Level::Viewer),
    ("cron.runs", Level::Viewer),
    ("cron.create", Level::Operator),
    ("cron.update", Level::Operator),
    ("cron.delete", Level::Operator),
    ("cron.toggle", Level::Operator),
    ("cron.run", Level::Operator),
];

/// A method by its name. `None`: there is no such method.
pub fn known(method: &str) -> Option<(&'static str, Level)> {
    METHODS.into_iter().find(|(name, _)| *name == method)
}

/// The level that a method requires. `None`: there is no such method.
pub fn level_of(method: &str) -> Option<Level> {
    known(method).map(|(_, level)| level)
}

/// Calls a method that [`level_of`] knows, for an authorised member.
pub async fn call(scheduler: &Scheduler, member: &Member, method: &str, params: &Params) -> Answer {
    match method {
        "cron.list" => list(scheduler, member, params).await,
        "cron.status" => status(scheduler, member).await,
        "cron.create" => create(scheduler, member, params).await,
        "cron.update" => update(scheduler, member, params).await,
        "cron.delete" => delete(scheduler, member, params).await,
        "cron.toggle" => toggle(scheduler, member, params).await,
        "cron.run" => run(scheduler, member, params).await,
        "cron.runs" => runs(scheduler, member, params).await,
        other => Err(Problem::invalid(format!("unknown method: {other}"))),
    }
}

async fn list(scheduler: &Scheduler, member: &Member, params: &Params) -> Answer {
    let include_disabled = params.flag("includeDisabled").unwrap_or(false);
    let schedules = own(scheduler, member).await?;
    let status = status_of(scheduler, &schedules);
    let (mut jobs, mut bytes, mut cut) = (Vec::new(), 0, false);
    for schedule in schedules.iter().rev().filter(|schedule| include_disabled || schedule.spec.enabled) {
        bytes += schedule.spec.payload.len();
        if bytes > LISTED_BYTES_MAX {
            cut = true;
            break;
        }
        match translate::job(schedule) {
            Some(job) => jobs.push(job),
            None => tracing::warn!(schedule = %schedule.id, "the payload of a cron job is not an agent turn"),
        }
    }
    let mut answer = json!({"jobs": jobs, "status": status});
    translate::put(&mut answer, "truncated", cut.then_some(true));
    Ok(answer)
}

async fn status(scheduler: &Scheduler, member: &Member) -> Answer {
    let schedules = own(scheduler, member).await?;
    Ok(status_of(scheduler, &schedules))
}

async fn create(scheduler: &Scheduler, member: &Member, params: &Params) -> Answer {
    let spec = translate::new_schedule(member, params, scheduler.wall())?;
    let reply = scheduler.put_schedule(spec, member.caller.origin()).await?;
    answer_job(&reply, "create cron job")
}

/// A patch names parts of the payload, so it is applied to the stored one. If the schedule changed meanwhile, it
/// is applied again: neither of two concurrent patches is lost.
async fn update(scheduler: &Scheduler, member: &Member, params: &Params) -> Answer {
    let asked = params.object("patch").unwrap_or_default();
    for _ in 0..UPDATE_TRIES_MAX {
        let schedule = touch(scheduler, member, params).await?;
        AgentTurn::read(&schedule.spec.payload).map_err(Problem::invalid)?;
        member.must_hold(&schedule)?;
        let mut patch = translate::patch(&schedule, &asked, scheduler.wall())?;
        patch.made_from = Some(Box::new(schedule.spec));
        let (tenant, origin) = (Some(member.tenant().clone()), member.caller.origin());
        match scheduler.update_schedule(tenant, schedule.id, patch, origin).await? {
            Reply::Stale => {}
            reply => return answer_job(&reply, "update cron job"),
        }
    }
    let message = "update cron job: too many concurrent changes";
    Err(Problem::new(Code::FailedPrecondition, message).retry(None))
}

async fn delete(scheduler: &Scheduler, member: &Member, params: &Params) -> Answer {
    let schedule = touch(scheduler, member, params).await?;
    let (tenant, origin) = (Some(member.tenant().clone()), member.caller.origin());
    match scheduler.delete_schedule(tenant, schedule.id, origin).await? {
        Reply::Schedule(_) => Ok(json!({"deleted": true})),
        other => Err(unexpected(&other, "delete cron job")),
    }
}

async fn toggle(scheduler: &Scheduler, member: &Member, params: &Params) -> Answer {
    let schedule = touch(scheduler, member, params).await?;
    // Absent means off: the wire format says so, and clients rely on it.
    let enabled = params.flag("enabled").unwrap_or(false);
    if enabled {
        member.must_hold(&schedule)?;
    }
    let (tenant, origin) = (Some(member.tenant().clone()), member.caller.origin());
    match scheduler.toggle_schedule(tenant, schedule.id, enabled, origin).await? {
        Reply::Schedule(schedule) => {
            Ok(json!({"jobId": schedule.id.to_string(), "enabled": schedule.spec.enabled}))
        }
        other => Err(unexpected(&other, "toggle cron job")),
    }
}

async fn run(scheduler: &Scheduler, member: &Member, params: &Params) -> Answer {
    let schedule = touch(scheduler, member, params).await?;
    member.must_hold(&schedule)?;
    let mode = match params.text("mode") {
        None | Some("force") => FireMode::Force,
        Some("due") => FireMode::Due,
        Some(other) => {
            return Err(Problem::invalid(format!("mode must be \"force\" or \"due\", not {other:?}")));
        }
    };
    let (tenant, origin) = (Some(member.tenant().clone()), member.caller.origin());
    match scheduler.run_schedule(tenant, schedule.id, mode, origin).await? {
        Reply::ScheduleFiredByHand { fired: true, .. } => Ok(json!({"ok": true, "ran": true})),
        Reply::ScheduleFiredByHand { reason: Some(NotFired::AlreadyRunning), .. } => {
            let message = format!("job {} is already running", schedule.id);
            Err(Problem::new(Code::FailedPrecondition, message).retry(None))
        }
        Reply::ScheduleFiredByHand { reason: Some(NotFired::AlreadyQueued), .. } => {
            let message = format!("job {} is already queued: its run has not started", schedule.id);
            Err(Problem::new(Code::FailedPrecondition, message).retry(None))
        }
        Reply::ScheduleFiredByHand { .. } => Ok(json!({"ok": true, "ran": false, "reason": "not-due"})),
        other => Err(unexpected(&other, "run cron job")),
    }
}

async fn runs(scheduler: &Scheduler, member: &Member, params: &Params) -> Answer {
    let limit = match params.number("limit").unwrap_or(RUNS_DEFAULT) {
        limit if limit <= 0 => RUNS_DEFAULT,
        limit => limit.min(RUNS_MAX),
    };
    let offset = params.number("offset").unwrap_or(0).clamp(0, OFFSET_MAX);
    let schedule = params.job().map(|_| job_id(params)).transpose()?;
    let filter = FiringLogFilter { tenant: Some(member.tenant().clone()), schedule };
    let (limit, offset) = (usize::try_from(limit).unwrap_or(0), usize::try_from(offset).unwrap_or(0));
    let found = match member.sees_all() {
        true => all_runs(scheduler, filter, offset, limit).await?,
        false => own_runs(scheduler, member, filter, offset, limit).await?,
    };
    let (entries, total) = found;
    let entries: Vec<Value> = entries.iter().map(translate::entry).collect();
    Ok(json!({"entries": entries, "total": total}))
}

async fn all_runs(
    scheduler: &Scheduler,
    filter: FiringLogFilter,
    mut skip: usize,
    limit: usize,
) -> Result<(Vec<FiringLogEntry>, u64), Problem> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let asked = (skip + limit - found.len()).min(RUNS_READ);
        let page = scheduler.firing_log(filter.clone(), before, asked).await?;
        let skipped = skip.min(page.items.len());
        skip -= skipped;
        found.extend(page.items.into_iter().skip(skipped));
        before = page.next;
        if found.len() >= limit || before.is_none() {
            found.truncate(limit);
            return Ok((found, page.total));
        }
    }
}

/// Firings of the caller's own jobs, as far back as [`OFFSET_MAX`], including those of deleted jobs.
async fn own_runs(
    scheduler: &Scheduler,
    member: &Member,
    filter: FiringLogFilter,
    offset: usize,
    limit: usize,
) -> Result<(Vec<FiringLogEntry>, u64), Problem> {
    let (mut found, mut total, mut before, mut looked_at) = (Vec::new(), 0, None, 0);
    let mut own = BTreeMap::new();
    loop {
        let page = scheduler.firing_log(filter.clone(), before, RUNS_READ).await?;
        looked_at += RUNS_READ;
        for log in page.items {
            // All firings of a job have one owner, so each job is looked up once.
            let is_own = match own.get(&log.schedule) {
                Some(is_own) => *is_own,
                None => is_own_run(scheduler, member, &log).await?,
            };
            own.insert(log.schedule, is_own);
            if !is_own {
                continue;
            }
            if total >= offset && found.len() < limit {
                found.push(log);
            }
            total += 1;
        }
        before = page.next;
        if before.is_none() || looked_at >= OFFSET_MAX as usize {
            return Ok((found, total as u64));
        }
    }
}

async fn is_own_run(scheduler: &Scheduler, member: &Member, log: &FiringLogEntry) -> Result<bool, Problem> {
    let schedule = scheduler.schedule(Some(member.tenant().clone()), log.schedule).await?;
    if let Some(schedule) = schedule {
        return Ok(member.sees(schedule.spec.owner.as_ref().map(Name::as_str)));
    }
    let Some(job) = log.job else { return Ok(false) };
    let turn = turn_of(scheduler, job).await?;
    Ok(turn.is_some_and(|(_, turn)| member.sees(turn.user_id.as_deref())))
}

/// The caller's jobs, oldest first.
async fn own(scheduler: &Scheduler, member: &Member) -> Result<Vec<Schedule>, Problem> {
    let (mut own, mut after) = (Vec::new(), None);
    loop {
        let tenant = Some(member.tenant().clone());
        let page = scheduler.schedules(tenant, after, SCHEDULES_LISTED_MAX, true).await?;
        let is_last = page.len() < SCHEDULES_LISTED_MAX;
        after = page.last().map(|schedule| schedule.id);
        let visible = |schedule: &Schedule| {
            is_cron_job(schedule) && member.sees(schedule.spec.owner.as_ref().map(Name::as_str))
        };
        own.extend(page.into_iter().filter(visible));
        if is_last || own.len() >= LISTED_MAX {
            return Ok(own);
        }
    }
}

fn status_of(scheduler: &Scheduler, schedules: &[Schedule]) -> Value {
    let enabled = || schedules.iter().filter(|schedule| schedule.spec.enabled);
    let mut status = json!({"enabled": scheduler.ready(), "jobs": enabled().count()});
    let next = enabled().filter_map(|schedule| schedule.state.next_at).min();
    translate::put(&mut status, "nextWakeAtMs", next.map(|at| at.0));
    status
}

/// The job of the request, if it exists and the caller may change it.
async fn touch(scheduler: &Scheduler, member: &Member, params: &Params) -> Result<Schedule, Problem> {
    let id = job_id(params)?;
    let found = scheduler.schedule(Some(member.tenant().clone()), id).await?;
    let schedule = found.filter(is_cron_job).ok_or_else(Problem::no_job)?;
    member.must_see(&schedule)?;
    Ok(schedule)
}

fn answer_job(reply: &Reply, doing: &str) -> Answer {
    let Reply::Schedule(schedule) = reply else { return Err(unexpected(reply, doing)) };
    let job = translate::job(schedule);
    Ok(
        json!({"job": job.ok_or_else(|| Problem::internal(&"a payload that was just written cannot be parsed"))?}),
    )
}

fn unexpected(reply: &Reply, doing: &str) -> Problem {
    match reply {
        Reply::Rejected(rejection) => Problem::rejected(rejection, doing),
        Reply::NotFound => Problem::no_job(),
        other => Problem::internal(&format!("{doing} was answered with {other:?}")),
    }
}
