//! Translates tasks into jobs, and jobs into tasks.

use laneway_core::command::Submission;
use laneway_core::{
    Backoff, Bytes, Callback, CapScope, Full, JobEnd, JobId, JobSpec, JobState, Name, Reason, RetryPolicy,
    Span, Wall,
};
use laneway_runtime::Caller;
use laneway_runtime::store::JobView;
use laneway_runtime::tabs::{TAB_ACTION, TabAction};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::decode::Fields;
use super::error::Problem;
use super::time::{self, rfc3339};
use super::wire::Task;
use super::{LANE, callback};
use crate::names::name_of;

/// The prefix of task ids.
const ID_PREFIX: &str = "tsk_";
/// The default deadline.
const DEADLINE_DEFAULT: Span = Span::secs(60);
/// The deadline ends an attempt. The engine's timeout of an attempt must come later than that.
const TIMEOUT_MARGIN: Span = Span::mins(1);

/// A task is never retried, neither after a failure nor after a crash: it may have been done already.
const RETRY: RetryPolicy = RetryPolicy { retries_max: 0, losses_max: 0, backoff: Backoff::STANDARD };

/// A task as a client submits it.
#[derive(Debug, Default)]
pub struct Asked {
    /// The agent.
    pub agent_id: String,
    /// The action.
    pub action: String,
    /// The tab.
    pub tab_id: String,
    /// The element.
    pub selector: String,
    /// The element, by an older field name.
    pub reference: String,
    /// Further parameters of the action.
    pub params: Map<String, Value>,
    /// The priority; lower goes first.
    pub priority: i64,
    /// The deadline, as written.
    pub deadline: String,
    /// The callback URL.
    pub callback_url: String,
}

impl Asked {
    /// Parses a single task.
    pub fn of_task(mut fields: Fields) -> Result<Asked, Problem> {
        let agent_id = fields.text("agentId")?;
        let callback_url = fields.text("callbackUrl")?;
        Ok(Asked { agent_id, callback_url, ..Asked::of_item(fields)? })
    }

    /// Parses a task of a batch, which shares agent and callback with the others.
    pub fn of_item(mut fields: Fields) -> Result<Asked, Problem> {
        Ok(Asked {
            agent_id: String::new(),
            action: fields.text("action")?,
            tab_id: fields.text("tabId")?,
            selector: fields.text("selector")?,
            reference: fields.text("ref")?,
            params: fields.object("params")?,
            priority: fields.int("priority")?,
            deadline: fields.text("deadline")?,
            callback_url: String::new(),
        })
    }

    /// Checks required fields and forbidden parameters.
    pub fn check(&mut self) -> Result<(), Problem> {
        for (field, value) in [("agentId", &self.agent_id), ("action", &self.action)] {
            if value.is_empty() {
                return Err(Problem::bad_request(format!("invalid task: missing required field '{field}'")));
            }
        }
        self.promote_selector()?;
        for (taken, field) in [("kind", "action"), ("ref", "ref"), ("tabId", "tabId")] {
            if let Some(key) = self.params.keys().find(|key| key.eq_ignore_ascii_case(taken)) {
                let message = format!(
                    "invalid task: params must not hold '{key}'; use the field '{field}' of the task"
                );
                return Err(Problem::bad_request(message));
            }
        }
        if i32::try_from(self.priority).is_err() {
            let (min, max) = (i32::MIN, i32::MAX);
            return Err(Problem::bad_request(format!("invalid task: priority must be from {min} to {max}")));
        }
        Ok(())
    }

    /// A selector among the parameters becomes the task's own if the task has none.
    fn promote_selector(&mut self) -> Result<(), Problem> {
        let key = self.params.keys().find(|key| key.eq_ignore_ascii_case("selector")).cloned();
        let Some(promoted) = key.and_then(|key| self.params.remove(&key)) else { return Ok(()) };
        match promoted {
            Value::String(selector) if self.selector.is_empty() => self.selector = selector,
            Value::String(_) | Value::Null => {}
            _ => {
                return Err(Problem::bad_request(
                    "invalid task: params holds a 'selector' that is no string",
                ));
            }
        }
        Ok(())
    }

    /// The job of the task. Call [`Asked::check`] first.
    pub fn into_submission(self, caller: &Caller, now: Wall) -> Result<Submission, Problem> {
        let (deadline, written) = deadline(&self.deadline, now)?;
        let callback = (!self.callback_url.trim().is_empty()).then_some(self.callback_url);
        let agent = name_of(&self.agent_id);
        let payload = Payload {
            action: TabAction {
                tab_id: self.tab_id,
                action: self.action,
                selector: self.selector,
                reference: self.reference,
                params: self.params,
                agent_id: (agent.as_str() != self.agent_id).then_some(self.agent_id),
            },
            deadline: written,
        };
        let payload = serde_json::to_vec(&payload).expect("texts and JSON values are JSON");
        let spec = JobSpec {
            agent,
            lane: Name::fixed(LANE),
            priority: i32::try_from(self.priority).unwrap_or_default(),
            deadline: Some(deadline),
            timeout: Some(Span(deadline.since(now).0.saturating_add(TIMEOUT_MARGIN.0))),
            retry: Some(RETRY),
            callback: callback.map(|url| Callback { url: url.into(), format: Name::fixed(callback::FORMAT) }),
            ..JobSpec::new(caller.tenant.clone(), Name::fixed(TAB_ACTION))
        };
        let (payload, origin) = (Bytes::from(payload), caller.origin());
        Ok(Submission { record_rejection: true, ..Submission::new(spec, payload, origin) })
    }
}

/// The deadline, and how the client wrote it.
fn deadline(text: &str, now: Wall) -> Result<(Wall, Option<String>), Problem> {
    if text.is_empty() {
        return Ok((now + DEADLINE_DEFAULT, None));
    }
    let Some(time::Given { at, text }) = time::parse(text) else {
        let message =
            format!("invalid deadline format: {text:?} is not RFC 3339, such as 2030-01-01T08:00:00Z");
        return Err(Problem::bad_request(message));
    };
    if at < now {
        return Err(deadline_past());
    }
    Ok((at, Some(text)))
}

/// The error for a deadline in the past.
pub fn deadline_past() -> Problem {
    Problem::bad_request("deadline is in the past")
}

/// The job's payload: the handler's input, and fields that only the dialect uses.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Payload {
    #[serde(flatten)]
    action: TabAction,
    /// The deadline as the client wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline: Option<String>,
}

/// The task id of a job.
pub fn task_id(job: JobId) -> String {
    format!("{ID_PREFIX}{:032x}", job.0)
}

/// The job of a task id.
pub fn job_id(text: &str) -> Option<JobId> {
    let digits = text.strip_prefix(ID_PREFIX)?;
    let is_ours = digits.len() == 32 && !digits.bytes().any(|byte| byte.is_ascii_uppercase());
    is_ours.then(|| JobId::parse(digits)).flatten()
}

/// The dialect's name of a state.
pub fn state_name(state: JobState) -> &'static str {
    match state {
        JobState::Scheduled | JobState::Queued => "queued",
        JobState::Assigned => "assigned",
        JobState::Running => "running",
        JobState::Succeeded => "done",
        JobState::Failed => "failed",
        JobState::Canceled => "cancelled",
        JobState::Rejected => "rejected",
    }
}

/// The states in a comma-separated list; unknown names are ignored.
pub fn states_of(names: &str) -> Vec<JobState> {
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    JobState::ALL.into_iter().filter(|state| names.contains(&state_name(*state))).collect()
}

/// The job as a task. `None`: it is not a task.
pub fn task(view: &JobView, payload: &[u8]) -> Option<Task> {
    let row = &view.row;
    if row.spec.kind.as_str() != TAB_ACTION {
        return None;
    }
    // A job of another API may have any payload; it is shown as far as it can be parsed.
    let Payload { action, deadline } = serde_json::from_slice(payload).unwrap_or_default();
    let TabAction { tab_id, action, selector, reference, params, agent_id } = action;
    let agent_id = agent_id.unwrap_or_else(|| row.spec.agent.to_string());
    let end = view.end.as_ref();
    let started_at = match end {
        Some(end) => end.started_at,
        None => view.open.as_ref().and_then(|open| open.started_at.or(Some(open.opened_at))),
    };
    let latency = end.zip(started_at).map_or(0, |(end, started)| end.finished_at.since(started).0);
    Some(Task {
        task_id: task_id(row.id),
        error: end.and_then(|end| error_text(end, &agent_id)),
        agent_id,
        action,
        tab_id,
        selector,
        reference,
        params,
        priority: row.spec.priority,
        state: state_name(view.state()),
        deadline: deadline.or_else(|| row.spec.deadline.map(rfc3339)),
        created_at: rfc3339(row.created_at),
        started_at: started_at.map(rfc3339),
        completed_at: end.map(|end| rfc3339(end.finished_at)),
        latency_ms: latency,
        result: end.and_then(|end| end.result.as_deref()).map(result_json),
        callback_url: row.spec.callback.as_ref().map(|callback| callback.url.to_string()),
        position: row.position.into(),
    })
}

fn result_json(bytes: &[u8]) -> Box<RawValue> {
    let json = std::str::from_utf8(bytes).ok().and_then(|text| serde_json::from_str(text).ok());
    json.unwrap_or_else(|| {
        let text = Value::from(String::from_utf8_lossy(bytes)).to_string();
        RawValue::from_string(text).expect("a JSON text is valid JSON")
    })
}

/// The dialect's message for a task that did not succeed.
fn error_text(end: &JobEnd, agent_id: &str) -> Option<String> {
    let message = || end.error.as_ref().map(|error| error.message.to_string());
    let ran = end.started_at.is_some();
    match (end.state, end.reason) {
        (JobState::Succeeded, _) => None,
        (JobState::Canceled, Reason::Shutdown) => Some("scheduler shutdown".to_owned()),
        (JobState::Canceled, _) => ran.then(|| "executor request failed: context canceled".to_owned()),
        (JobState::Rejected, _) => {
            let full = end.error.as_ref().and_then(|error| Full::from_detail(error.detail.as_deref()?));
            full.map(|full| full_message(full, agent_id)).or_else(message)
        }
        (_, Reason::Expired | Reason::QueueTimeout) if !ran => {
            Some("deadline exceeded while queued".to_owned())
        }
        (_, Reason::Expired | Reason::TimedOut) => {
            Some("executor request failed: context deadline exceeded".to_owned())
        }
        (_, Reason::Lost) => {
            Some("executor request failed: the scheduler stopped while the task ran".to_owned())
        }
        _ => message(),
    }
}

/// The dialect's message for a full queue. It does not distinguish limits beyond that of the agent.
pub fn full_message(full: Full, agent_id: &str) -> String {
    let Full { scope, waiting, cap } = full;
    match scope {
        CapScope::Agent => format!("rejected: agent queue full for {agent_id:?} ({waiting}/{cap})"),
        CapScope::Server | CapScope::Lane | CapScope::Tenant => {
            format!("rejected: global queue full ({waiting}/{cap})")
        }
    }
}
