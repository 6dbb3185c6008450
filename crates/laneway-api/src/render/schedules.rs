//! Renders sessions, schedules and their firings.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use laneway_core::command::SessionStopped;
use laneway_core::engine::SessionView;
use laneway_core::job::session::is_throttled;
use laneway_core::{
    Backoff, CatchUp, DropPolicy, FiringLogEntry, Jitter, JobId, JobSpec, Name, RetryPolicy, Schedule,
    ScheduleState, Session, SessionMode, Timing, Wall,
};
use laneway_runtime::config::format_span;
use laneway_wire as wire;
use serde_json::value::to_raw_value;

use super::{optional_span, optional_time, raw, time};
use crate::error::ApiError;

/// A session.
pub fn session(tenant: &Name, view: &SessionView) -> wire::Session {
    let SessionView {
        key,
        running,
        stopping,
        waiting,
        buffered,
        max_concurrent,
        throttled,
        tokens,
        window,
        cutoff,
        generation,
        oldest_running,
        lane,
    } = view;
    wire::Session {
        key: key.to_string(),
        tenant: tenant.to_string(),
        running: *running,
        stopping: *stopping,
        waiting: *waiting,
        buffered: *buffered,
        max_concurrent: *max_concurrent,
        throttled: *throttled,
        tokens: *tokens,
        window: *window,
        stopped_at: cutoff.map(time),
        generation: *generation,
        oldest_running: oldest_running.map(|job| job.to_string()),
        lane: lane.as_ref().map(Name::to_string),
    }
}

/// A session of which the server knows only the usage that was just reported.
pub fn idle_session(tenant: &Name, key: &Name, tokens: u64, window: u64) -> wire::Session {
    let throttled = is_throttled(tokens, window);
    wire::Session {
        key: key.to_string(),
        tenant: tenant.to_string(),
        running: 0,
        stopping: 0,
        waiting: 0,
        buffered: 0,
        max_concurrent: None,
        throttled,
        tokens,
        window,
        stopped_at: None,
        generation: 0,
        oldest_running: None,
        lane: None,
    }
}

/// The jobs that a stop of a session ended.
pub fn session_stopped(key: &Name, stopped: &SessionStopped) -> wire::SessionStopped {
    let ids = |jobs: &[JobId]| jobs.iter().map(JobId::to_string).collect();
    wire::SessionStopped {
        key: key.to_string(),
        running: ids(&stopped.running),
        waiting: ids(&stopped.waiting),
        running_count: stopped.running_count,
        waiting_count: stopped.waiting_count,
        generation: stopped.generation,
    }
}

/// A schedule.
pub fn schedule(schedule: &Schedule) -> Result<wire::Schedule, ApiError> {
    let Schedule { id, spec, created_at, updated_at, state } = schedule;
    let ScheduleState {
        next_at,
        last_slot,
        waiting_slot: _,
        last_ended_at: last_run_at,
        last_status,
        last_error,
        firings: runs,
    } = state;
    let payload = raw(&spec.payload);
    let mut job = template(&spec.job);
    job.payload = Some(&*payload).filter(|payload| payload.get() != "null");
    let mut shown = wire::Schedule {
        id: id.to_string(),
        name: spec.name.to_string(),
        tenant: spec.tenant.to_string(),
        enabled: spec.enabled,
        cron: None,
        zone: None,
        every: None,
        anchor: None,
        at: None,
        job: to_raw_value(&job).map_err(ApiError::internal)?,
        catch_up: catch_up(spec.catch_up),
        overlap: spec.overlap.as_str().to_owned(),
        jitter: format_span(spec.jitter),
        delete_after_run: spec.deletes_itself(),
        next_at: next_at.map(time),
        last_slot: last_slot.map(time),
        last_ended_at: last_run_at.map(time),
        last_status: last_status.map(|status| status.as_str().to_owned()),
        last_error: last_error.as_ref().map(|error| error.to_string()),
        firings: *runs,
        created_at: time(*created_at),
        updated_at: time(*updated_at),
    };
    match &spec.timing {
        Timing::At(at) => shown.at = Some(time(*at)),
        Timing::Every { every, anchor } => {
            shown.every = Some(format_span(*every));
            shown.anchor = anchor.map(time);
        }
        Timing::Cron { expr, zone } => {
            shown.cron = Some(expr.to_string());
            shown.zone = zone.as_ref().map(Name::to_string);
        }
    }
    Ok(shown)
}

fn catch_up(policy: CatchUp) -> wire::CatchUpRequest {
    match policy {
        CatchUp::All { max } => wire::CatchUpRequest::Object(wire::CatchUpObject { all: max }),
        other => wire::CatchUpRequest::Name(other.as_str().to_owned()),
    }
}

/// The template of a schedule's jobs as a request, without its payload.
pub fn template(spec: &JobSpec) -> wire::JobRequest<'_> {
    let keys: Vec<(Cow<'_, str>, Cow<'_, str>)> =
        spec.keys.iter().map(|key| (key.name.as_str().into(), key.value.as_str().into())).collect();
    let tags: Vec<Cow<'_, str>> = spec.tags.iter().map(|tag| tag.as_str().into()).collect();
    wire::JobRequest {
        kind: spec.kind.as_str().into(),
        payload: None,
        agent: Some(spec.agent.as_str().into()),
        lane: Some(spec.lane.as_str().into()),
        session: spec.session.as_ref().map(session_request),
        priority: Some(wire::Priority::Number(spec.priority)).filter(|_| spec.priority != 0),
        keys: Some(wire::KeyMap(keys)).filter(|keys| !keys.0.is_empty()),
        not_before: optional_time(spec.not_before),
        deadline: optional_time(spec.deadline),
        queue_timeout: optional_span(spec.queue_timeout),
        timeout: optional_span(spec.timeout),
        retry: spec.retry.as_ref().map(retry),
        idempotency_key: None,
        callback: spec.callback.as_ref().map(|callback| Cow::Owned(callback.url.to_string())),
        tags: Some(tags).filter(|tags| !tags.is_empty()),
        worker: spec.placement.as_deref().map(super::placement),
        cost: Some(spec.capacity.cost).filter(|cost| *cost > 0),
        quiet: spec.capacity.quiet.map(|rule| rule.as_str().into()),
        hours: spec.capacity.hours.as_ref().map(|hours| hours.to_string().into()),
        expected_duration: optional_span(spec.capacity.expected_duration),
        unique: Some(true).filter(|_| spec.capacity.unique),
        // Each firing begins a trace of its own.
        traceparent: None,
        tracestate: None,
    }
}

/// Always an object, so that a patch can change a single field.
fn session_request(session: &Session) -> wire::SessionRequest<'_> {
    let Session { key, max_concurrent, mode, cap, drop, debounce, debounce_max, sent_at } = session;
    wire::SessionRequest::Object(wire::SessionObject {
        key: key.as_str().into(),
        chat: None,
        mode: Some(*mode).filter(|mode| *mode != SessionMode::Queue).map(|mode| mode.as_str().into()),
        cap: *cap,
        drop: Some(*drop).filter(|drop| *drop != DropPolicy::Old).map(|drop| drop.as_str().into()),
        debounce: optional_span(*debounce),
        debounce_max: optional_span(*debounce_max),
        max_concurrent: Some(*max_concurrent).filter(|most| *most != 1),
        sent_at: optional_time(*sent_at),
    })
}

fn retry(policy: &RetryPolicy) -> wire::RetryRequest<'static> {
    let RetryPolicy { retries_max, losses_max, backoff } = policy;
    let Backoff { base, factor, max, jitter } = backoff;
    let jitter = match jitter {
        Jitter::None => None,
        Jitter::Add(most) => {
            Some(wire::JitterRequest { add: Some(format_span(*most).into()), percent: None })
        }
        Jitter::Percent(percent) => Some(wire::JitterRequest { add: None, percent: Some(*percent) }),
    };
    wire::RetryRequest {
        retries_max: Some(*retries_max),
        losses_max: Some(*losses_max),
        backoff: Some(wire::BackoffRequest::Spec(wire::BackoffSpec {
            base: Some(format_span(*base).into()),
            factor: Some(*factor),
            max: Some(format_span(*max).into()),
            jitter,
        })),
    }
}

/// An entry of the firing log.
pub fn schedule_firing(log: &FiringLogEntry) -> wire::ScheduleFiring {
    let FiringLogEntry {
        number,
        schedule,
        tenant,
        name,
        agent,
        job,
        slot,
        status,
        summary,
        error,
        attempts,
        duration_ms,
        input_tokens,
        output_tokens,
        ran_at,
        ended_at,
    } = log;
    wire::ScheduleFiring {
        number: *number,
        schedule_id: schedule.to_string(),
        name: name.to_string(),
        tenant: tenant.to_string(),
        agent: agent.to_string(),
        job_id: job.map(|job| job.to_string()),
        slot: time(*slot),
        status: status.as_str().to_owned(),
        summary: summary.as_ref().map(|text| text.to_string()),
        error: error.as_ref().map(|text| text.to_string()),
        attempts: *attempts,
        duration_ms: *duration_ms,
        input_tokens: *input_tokens,
        output_tokens: *output_tokens,
        ran_at: time(*ran_at),
        ended_at: time(*ended_at),
    }
}

/// Future firings, with the local time of the zone.
pub fn preview(zone: &Name, slots: &[Wall]) -> wire::SchedulePreview {
    let clock = TimeZoneDatabase::bundled().get(zone.as_str()).unwrap_or(TimeZone::UTC);
    let local = |at: Wall| match Timestamp::from_millisecond(at.0) {
        Ok(at) => at.display_with_offset(clock.to_offset(at)).to_string(),
        Err(_) => time(at),
    };
    let firings = slots.iter().map(|&at| wire::PreviewedFiring { at: time(at), local: local(at) }).collect();
    wire::SchedulePreview { zone: zone.to_string(), firings }
}
