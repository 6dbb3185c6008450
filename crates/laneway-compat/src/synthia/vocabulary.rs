//! The dialect's names of priorities, states, events and reasons.

use laneway_core::{DenyReason, EventKind, JobEnd, JobState, QuietState, Reason};

/// Priorities by name; a lower number goes first.
pub const PRIORITIES: [(&str, i32); 5] =
    [("urgent", -20), ("high", -10), ("normal", 0), ("low", 10), ("background", 20)];

/// The priorities in the depths of queues.
pub const DEPTHS: [&str; 4] = ["high", "normal", "low", "background"];

/// The name of a priority; for a number between two names, the nearest.
pub fn priority_name(priority: i32) -> &'static str {
    match priority {
        ..=-16 => "urgent",
        -15..=-6 => "high",
        -5..=4 => "normal",
        5..=14 => "low",
        15.. => "background",
    }
}

/// The states of an intent, by name.
pub const INTENT_STATES: [(&str, &[JobState]); 6] = [
    ("QUEUED", &[JobState::Scheduled, JobState::Queued]),
    ("DISPATCHING", &[JobState::Assigned]),
    ("RUNNING", &[JobState::Running]),
    ("DONE", &[JobState::Succeeded]),
    ("FAILED", &[JobState::Failed, JobState::Rejected]),
    ("CANCELED", &[JobState::Canceled]),
];

/// The name of an intent's state.
pub fn intent_state(state: JobState) -> &'static str {
    let known = INTENT_STATES.iter().find(|(_, states)| states.contains(&state));
    known.map_or("FAILED", |(name, _)| name)
}

/// The states of a base job, by name. `expired` is a failure for one reason.
pub const JOB_STATES: [(&str, &[JobState]); 6] = [
    ("queued", &[JobState::Scheduled, JobState::Queued]),
    ("leased", &[JobState::Assigned]),
    ("running", &[JobState::Running]),
    ("completed", &[JobState::Succeeded]),
    ("failed", &[JobState::Failed, JobState::Canceled, JobState::Rejected]),
    ("expired", &[JobState::Failed]),
];

/// The name of a base job's state.
pub fn job_state(state: JobState, end: Option<&JobEnd>) -> &'static str {
    if end.is_some_and(|end| end.state == JobState::Failed && end.reason == Reason::Lost) {
        return "expired";
    }
    let known = JOB_STATES.iter().find(|(_, states)| states.contains(&state));
    known.map_or("failed", |(name, _)| name)
}

/// The name of a quiet state.
pub fn quiet_name(state: QuietState) -> &'static str {
    match state {
        QuietState::Quiet => "QUIET",
        QuietState::Normal => "NORMAL",
        QuietState::Busy => "BUSY",
        QuietState::Panic => "PANIC",
    }
}

/// The name of an event of a job. `None`: the dialect has no such event.
pub fn event_name(kind: EventKind, reason: Option<Reason>) -> Option<&'static str> {
    Some(match kind {
        EventKind::JobSubmitted => "SUBMITTED",
        // A dispatch without a claim is one event for clients: its return to the queue. The backoff is the
        // second half of the same change.
        EventKind::JobDeferred if reason == Some(Reason::HandedBack) => return None,
        EventKind::JobQueued | EventKind::JobDeferred => "QUEUED",
        EventKind::JobDenied => "DENIED",
        EventKind::JobBoosted => "BOOSTED",
        EventKind::JobAssigned => "DISPATCHING",
        EventKind::JobStarted => "RUNNING",
        EventKind::JobSucceeded => "DONE",
        EventKind::JobFailed if matches!(reason, Some(Reason::TimedOut | Reason::Expired)) => "TIMEOUT",
        EventKind::JobFailed | EventKind::JobRejected => "FAILED",
        EventKind::JobCanceled => "CANCELED",
        _ => return None,
    })
}

/// Why a request for work is denied.
pub fn denial(reason: &DenyReason) -> String {
    match reason {
        DenyReason::Draining => "The server is stopping".to_owned(),
        DenyReason::StorageLow => "Storage is low".to_owned(),
        DenyReason::Paused => "The lane is paused".to_owned(),
        DenyReason::MaxLeases { limit } => format!("Max active leases reached ({limit})"),
        DenyReason::AgentCap { limit } => format!("Max active leases of the addon reached ({limit})"),
        DenyReason::Full => "A limit of the job's kind, tenant or keys is reached".to_owned(),
        DenyReason::Panic => "Recent PANIC detected; cooling down".to_owned(),
        DenyReason::NotQuiet { state } => format!("System is {}; waiting for QUIET", quiet_name(*state)),
        DenyReason::NoCapacity { busy, usable, used } => {
            format!("No capacity (busy={busy}, usable={usable}, leased={used})")
        }
        DenyReason::NeedsMore { needed, free } => {
            format!("Next job needs {needed}u but only {free}u available")
        }
        DenyReason::Reserved => "Units are kept for a job that was bypassed too often".to_owned(),
        DenyReason::TooBig { cost } => format!("Next job needs {cost}u, more than max_units"),
        DenyReason::Unique => "Next job is unique and the worker holds a lease".to_owned(),
        DenyReason::NotYet => "The job's time has not come".to_owned(),
        DenyReason::Taken => "Another worker has the job".to_owned(),
        DenyReason::NothingEligible => "No eligible job found".to_owned(),
    }
}

/// The same for an admission request, which names its cost.
pub fn admission_denial(reason: &DenyReason, requested: u32, usable: u32, used: u32) -> String {
    match reason {
        DenyReason::NoCapacity { .. } | DenyReason::NeedsMore { .. } => {
            format!("Capacity exceeded: used={used}, requested={requested}, capacity={usable}")
        }
        other => denial(other),
    }
}
