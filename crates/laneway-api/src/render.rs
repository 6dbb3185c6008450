//! Renders responses: jobs, attempts, log lines, events, tokens.
//!
//! The counterpart of `convert.rs`. It makes no decisions; permissions were checked before. Lanes, statistics and
//! explanations are in `render/stats.rs`.

mod history;
mod leases;
mod runs;
mod schedules;
mod stats;
mod workers;

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimePrinter;
use laneway_core::command::Submitted;
use laneway_core::run::RunLine;
use laneway_core::schedule::ScheduleLine;
use laneway_core::worker::DispatchLine;
use laneway_core::{
    AttemptEnd, DeliveryRow, DeliveryTry, Event, EventKind, Failure, JobEnd, JobId, JobSpec, JobState, Name,
    OpenAttempt, Reason, ScheduleRef, Span, TokenRecord, Wall,
};
use laneway_runtime::Progress;
use laneway_runtime::config::format_span;
use laneway_runtime::store::{AttemptView, JobCounts, JobView, LogView, StateCounts};
use laneway_wire as wire;
use serde_json::value::RawValue;

use crate::auth::Caller;
use crate::convert::EPOCH;
use crate::worker::SCHEDULER;

pub use history::history;
pub use leases::{capacity, denial, lease};
pub use runs::{run, run_row};
pub use schedules::{idle_session, preview, schedule, schedule_firing, session, session_stopped, template};
pub use stats::{explanation, explanation_of_ended, lane, stats, waiting_for};
pub use workers::{placement, worker};

/// A time in UTC with milliseconds.
pub fn time(at: Wall) -> String {
    const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
    if let Ok(at) = jiff::Timestamp::from_millisecond(at.0) {
        return PRINTER.timestamp_to_string(&at);
    }
    // The calendar's instants end a day before the year 9999 does; its dates do not.
    let at = EPOCH.checked_add(SignedDuration::from_millis(at.0)).unwrap_or(DateTime::MAX);
    format!("{}Z", PRINTER.datetime_to_string(&at))
}

fn optional_time(at: Option<Wall>) -> Option<Cow<'static, str>> {
    at.map(|at| Cow::Owned(time(at)))
}

fn optional_span(span: Option<Span>) -> Option<Cow<'static, str>> {
    span.map(|span| Cow::Owned(format_span(span)))
}

/// The job that a submit has just created. It is rendered from its spec, with the defaults filled in, without a read of
/// the store.
pub fn submitted<'a>(spec: &'a JobSpec, submitted: &'a Submitted, caller: &'a Caller) -> wire::Job<'a> {
    wire::Job {
        lane: submitted.lane.as_str().into(),
        submitted_by: Some(caller.actor.as_str().into()),
        existing: submitted.existing,
        ..new_job(submitted.job, submitted.state, submitted.created_at, spec)
    }
}

/// Numbers of jobs, the largest group first.
pub fn job_counts(counts: JobCounts) -> wire::JobCounts {
    let states = |counts: &StateCounts| {
        counts.iter().map(|(state, count)| (state.as_str().to_owned(), count)).collect()
    };
    let group = |(name, counts): (&Name, &StateCounts)| wire::JobGroup {
        name: name.as_str().to_owned(),
        total: counts.sum(),
        states: states(counts),
    };
    let mut groups: Vec<wire::JobGroup> = counts.groups.iter().map(group).collect();
    groups.sort_by(|left, right| right.total.cmp(&left.total).then_with(|| left.name.cmp(&right.name)));
    let JobCounts { all, groups: _, more_groups } = counts;
    wire::JobCounts { total: all.sum(), states: states(&all), groups, more_groups }
}

/// A job as stored, with its progress if it runs.
pub fn job(view: &JobView, progress: Option<Progress>) -> wire::Job<'_> {
    let JobView { row, open, end } = view;
    let state = view.state();
    let (attempts, failures, losses) = match end {
        Some(end) => (end.attempts, end.failures, end.losses),
        None => {
            let opened = open.as_ref().map_or(0, |open| open.fence.attempt);
            (row.status.attempts.max(opened), row.status.failures, row.status.losses)
        }
    };
    let wake_at = row.status.wake_at.filter(|_| state == JobState::Scheduled);
    let holder = open.as_ref().and_then(|open| open.holder.as_ref());
    wire::Job {
        reason: end.as_ref().map(|end| end.reason.as_str().into()),
        attempt: attempts,
        failures,
        losses,
        started_at: optional_time(match end {
            Some(end) => end.started_at,
            None => open.as_ref().and_then(|open| open.started_at),
        }),
        finished_at: optional_time(end.as_ref().map(|end| end.finished_at)),
        not_before: optional_time(wake_at.or(row.spec.not_before)),
        worker: holder.map(|holder| holder.worker.as_str().into()),
        pid: holder.and_then(|holder| holder.pid),
        merged_into: end.as_ref().and_then(|end| end.merged_into).map(|into| into.job.to_string().into()),
        progress: progress.filter(|_| state == JobState::Running).map(progress_of),
        result: end.as_ref().and_then(|end| end.result.as_deref()).map(raw),
        error: end.as_ref().and_then(|end| end.error.as_ref()).map(failure),
        submitted_by: Some(row.submitted_by.as_str().into()),
        ..new_job(row.id, state, row.created_at, &row.spec)
    }
}

/// A job of which nothing is known but its spec: no attempt was opened yet.
fn new_job(id: JobId, state: JobState, created_at: Wall, spec: &JobSpec) -> wire::Job<'_> {
    wire::Job {
        id: id.to_string().into(),
        state: state.as_str().into(),
        reason: None,
        kind: spec.kind.as_str().into(),
        agent: spec.agent.as_str().into(),
        lane: spec.lane.as_str().into(),
        session: spec.session.as_ref().map(|session| session.key.as_str().into()),
        tenant: spec.tenant.as_str().into(),
        priority: spec.priority,
        keys: spec.keys.iter().map(|key| (key.name.as_str().into(), key.value.as_str().into())).collect(),
        attempt: 0,
        failures: 0,
        losses: 0,
        created_at: time(created_at).into(),
        started_at: None,
        finished_at: None,
        not_before: optional_time(spec.not_before),
        deadline: optional_time(spec.deadline),
        timeout: optional_span(spec.timeout),
        queue_timeout: optional_span(spec.queue_timeout),
        cost: spec.capacity.cost,
        quiet: spec.capacity.quiet.map(|rule| rule.as_str().into()),
        hours: spec.capacity.hours.as_ref().map(|hours| hours.to_string().into()),
        worker: None,
        pid: None,
        tags: spec.tags.iter().map(|tag| tag.as_str().into()).collect(),
        traceparent: spec.trace.as_ref().map(|trace| trace.parent().into()),
        tracestate: spec.trace.as_ref().and_then(|trace| trace.state.as_deref()).map(Cow::Borrowed),
        retry_of: spec.retry_of.map(|job| job.to_string().into()),
        callback: spec.callback.as_ref().map(|callback| Cow::Borrowed(&*callback.url)),
        merged_into: None,
        schedule: spec.schedule.as_ref().map(made_by),
        run: spec.member.as_ref().map(|member| member.run.to_string().into()),
        node: spec.member.as_ref().map(|member| member.node.as_str().into()),
        progress: None,
        result: None,
        error: None,
        submitted_by: None,
        existing: false,
        warnings: Vec::new(),
        waiting_for: None,
    }
}

fn made_by(schedule: &ScheduleRef) -> wire::JobSchedule {
    wire::JobSchedule {
        id: schedule.id.to_string(),
        name: schedule.name.to_string(),
        slot: time(schedule.slot),
        by_hand: schedule.by_hand,
    }
}

/// The webhook delivery of a job, without its tries.
pub fn delivery(row: &DeliveryRow) -> wire::Delivery {
    let DeliveryRow {
        seq: _,
        job,
        tenant,
        host: _,
        state,
        tries,
        next_at,
        created_at,
        ended_at,
        last_status,
        last_error,
    } = row;
    wire::Delivery {
        job_id: job.to_string(),
        state: state.as_str().to_owned(),
        tenant: tenant.to_string(),
        url: None,
        tries: *tries,
        created_at: time(*created_at),
        next_at: next_at.map(time),
        ended_at: ended_at.map(time),
        last_status: *last_status,
        last_error: last_error.as_deref().map(str::to_owned),
        history: Vec::new(),
    }
}

/// One try of a delivery.
pub fn delivery_try(tried: &DeliveryTry) -> wire::DeliveryTry {
    wire::DeliveryTry {
        number: tried.number,
        at: time(tried.at),
        took_ms: tried.took.0,
        status: tried.status,
        error: tried.error.as_deref().map(str::to_owned),
    }
}

fn progress_of(progress: Progress) -> wire::Progress {
    let Progress { fraction, message, stage, metrics, at, .. } = progress;
    let message = if message.is_empty() { stage.unwrap_or_default() } else { message };
    let metrics = metrics.into_iter().map(|(name, value)| (name.into(), value)).collect();
    wire::Progress { fraction, message: message.into(), metrics, at: time(at) }
}

/// A progress report of a running job, for the live stream.
pub fn job_progress(progress: &Progress) -> wire::JobProgress {
    wire::JobProgress {
        job_id: progress.job.to_string(),
        attempt: progress.attempt,
        progress: progress_of(progress.clone()),
    }
}

/// Bytes as JSON if they are JSON, else as an object with base64.
pub fn raw(bytes: &[u8]) -> Box<RawValue> {
    let as_json =
        std::str::from_utf8(bytes).ok().and_then(|text| RawValue::from_string(text.to_owned()).ok());
    as_json.unwrap_or_else(|| {
        let text = format!("{{\"base64\":\"{}\"}}", BASE64_STANDARD.encode(bytes));
        RawValue::from_string(text).expect("base64 needs no escapes")
    })
}

fn failure(failure: &Failure) -> wire::JobError {
    wire::JobError {
        code: failure.code.to_string(),
        message: failure.message.to_string(),
        retryable: failure.retryable,
        detail: failure.detail.as_deref().map(|bytes| {
            serde_json::from_slice(bytes)
                .unwrap_or_else(|_| serde_json::json!({ "base64": BASE64_STANDARD.encode(bytes) }))
        }),
    }
}

/// Every attempt of a job, oldest first: closed ones, the one that ended the job, and the open one.
pub fn attempts(view: &JobView, closed: &[AttemptView]) -> wire::AttemptList {
    let mut attempts: Vec<wire::Attempt> = closed.iter().map(closed_attempt).collect();
    if let Some(end) = &view.end {
        let still_open = view.open.as_ref().map(|open| open.fence.attempt_id);
        let listed = |id: &str| attempts.iter().any(|attempt| attempt.attempt_id.as_deref() == Some(id));
        if let Some(id) = end.attempt_id.filter(|id| Some(*id) != still_open && !listed(&id.to_string())) {
            attempts.push(last_attempt(end, id.to_string()));
        }
    }
    attempts.extend(view.open.as_ref().map(open_attempt));
    wire::AttemptList { attempts }
}

fn closed_attempt(view: &AttemptView) -> wire::Attempt {
    let open = &view.closed.open;
    wire::Attempt {
        state: view.end().as_str().to_owned(),
        finished_at: Some(time(view.closed.closed_at)),
        error: view.closed.error.as_ref().map(failure),
        ..open_attempt(open)
    }
}

fn open_attempt(open: &OpenAttempt) -> wire::Attempt {
    wire::Attempt {
        attempt: open.fence.attempt,
        attempt_id: Some(open.fence.attempt_id.to_string()),
        state: open.state.as_str().to_owned(),
        executor: Some(open.executor.to_string()),
        opened_at: Some(time(open.opened_at)),
        started_at: open.started_at.map(time),
        finished_at: None,
        error: None,
    }
}

/// The attempt that ended its job, derived from the job's end: it has no row of its own.
fn last_attempt(end: &JobEnd, id: String) -> wire::Attempt {
    let how = match (end.state, end.reason) {
        (JobState::Succeeded, _) => AttemptEnd::Succeeded,
        (JobState::Canceled, _) => AttemptEnd::Canceled,
        (_, Reason::TimedOut) => AttemptEnd::TimedOut,
        (_, Reason::Expired) => AttemptEnd::Expired,
        (_, Reason::Lost) => AttemptEnd::Lost,
        _ => AttemptEnd::Failed,
    };
    wire::Attempt {
        attempt: end.attempts,
        attempt_id: Some(id),
        state: how.as_str().to_owned(),
        executor: None,
        opened_at: None,
        started_at: end.started_at.map(time),
        finished_at: Some(time(end.finished_at)),
        error: end.error.as_ref().map(failure),
    }
}

/// A log line of a job.
pub fn log_line(line: &LogView) -> wire::LogLine {
    wire::LogLine {
        line: line.line,
        attempt: line.attempt,
        at: time(line.at),
        stream: line.stream.to_string(),
        text: line.text.to_string(),
    }
}

/// An event.
pub fn event(event: &Event) -> wire::Event {
    wire::Event {
        number: event.number,
        at: time(event.at),
        kind: event.kind.as_str().to_owned(),
        tenant: event.tenant.as_ref().map(Name::to_string),
        job: event.job.as_ref().map(|job| wire::EventJob {
            id: job.id.to_string(),
            kind: job.kind.to_string(),
            lane: job.lane.to_string(),
            agent: job.agent.to_string(),
            attempt: job.attempt,
            reason: job.reason.map(|reason| reason.as_str().to_owned()),
        }),
        schedule: about_schedule(event),
        run: about_run(event),
        error: event.job.as_ref().and_then(|job| job.error.as_ref()).map(|error| wire::EventError {
            code: error.code.to_string(),
            message: error.message.to_string(),
        }),
        actor: event.actor.as_ref().map(Name::to_string),
        request_id: event.request.as_ref().map(Name::to_string),
        detail: event.detail.as_ref().map(|detail| detail.to_string()),
    }
}

/// The schedule of an event, from its detail.
fn about_schedule(event: &Event) -> Option<wire::EventSchedule> {
    if !event.kind.as_str().starts_with("schedule.") {
        return None;
    }
    let ScheduleLine { id, action, name } = ScheduleLine::parse(event.detail.as_deref()?)?;
    Some(wire::EventSchedule { id: id.to_string(), name: name.to_string(), action: action.into() })
}

/// The run of an event, from its detail.
fn about_run(event: &Event) -> Option<wire::EventRun> {
    if !event.kind.as_str().starts_with("run.") {
        return None;
    }
    let RunLine { id, name } = RunLine::parse(event.detail.as_deref()?)?;
    Some(wire::EventRun { id: id.to_string(), name: name.map(|name| name.to_string()) })
}

/// An event as an audit entry.
pub fn audit_entry(event: &Event) -> wire::AuditEntry {
    let outcome = match event.kind {
        EventKind::CallRejected => "rejected",
        EventKind::CallDenied => "denied",
        _ => "done",
    };
    wire::AuditEntry {
        number: event.number,
        at: time(event.at),
        actor: event.actor.as_ref().map(Name::to_string).unwrap_or_default(),
        action: event.kind.as_str().to_owned(),
        outcome: outcome.to_owned(),
        tenant: event.tenant.as_ref().map(Name::to_string),
        job_id: event.job.as_ref().map(|job| job.id.to_string()),
        worker: None,
        seq: None,
        request_id: event.request.as_ref().map(Name::to_string),
        detail: event.detail.as_ref().map(|detail| detail.to_string()),
    }
}

/// An event as an audit entry about a dispatch. The scheduler reports that it was sent or not acknowledged; the worker
/// reports the rest.
pub fn dispatch_entry(event: &Event) -> Option<wire::AuditEntry> {
    let DispatchLine { dispatch_seq, outcome, worker } = DispatchLine::parse(event.detail.as_deref()?)?;
    let ours = [DispatchLine::SENT, AttemptEnd::Unanswered.as_str(), AttemptEnd::Lost.as_str()];
    let actor = if ours.contains(&&*outcome) { SCHEDULER } else { worker.as_str() };
    Some(wire::AuditEntry {
        actor: actor.to_owned(),
        action: DispatchLine::ACTION.to_owned(),
        outcome: outcome.into(),
        worker: Some(worker.to_string()),
        seq: Some(dispatch_seq),
        ..audit_entry(event)
    })
}

/// A token without its secret.
pub fn token(record: &TokenRecord, now: Wall) -> wire::Token {
    let state = match record {
        TokenRecord { revoked_at: Some(_), .. } => "revoked",
        TokenRecord { expires_at: Some(at), .. } if *at <= now => "expired",
        _ => "active",
    };
    wire::Token {
        id: record.id.to_string(),
        tenant: record.tenant.as_ref().map_or_else(|| "*".to_owned(), Name::to_string),
        role: record.role.as_str().to_owned(),
        note: record.note.to_string(),
        state: state.to_owned(),
        created_at: time(record.created_at),
        expires_at: record.expires_at.map(time),
        revoked_at: record.revoked_at.map(time),
    }
}
