//! Translates intents and base jobs into jobs, and back.

use laneway_core::capacity::Hours;
use laneway_core::command::Submission;
use laneway_core::job::{IdempotencyKey, TAGS_MAX};
use laneway_core::{
    Backoff, Bytes, CapacityRequest, JobSpec, JobState, Name, QuietRule, Reason, RetryPolicy, Span, Wall,
};
use laneway_runtime::Caller;
use laneway_runtime::store::JobView;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::time::stamp;
use super::vocabulary::{intent_state, job_state, priority_name};
use super::wire::{Intent, Job, Lease, Progress};
use super::{JOBS_LANE, LANE};
use crate::names::name_of;

/// The default timeout of a job. Its lease ends it much sooner when its worker is silent.
const RUNTIME_DEFAULT: Span = Span::hours(24);
/// A failed job is not retried; a job whose worker was lost is, this often.
const RETRY: RetryPolicy = RetryPolicy { retries_max: 0, losses_max: 3, backoff: Backoff::STANDARD };
/// The prefix of the tag that names the add-on of a base job.
const ADDON_TAG: &str = "addon:";
/// The add-on of base jobs without one.
pub const NO_ADDON: &str = "unknown";

/// A job as a client submits it, through any route.
#[derive(Debug, Default)]
pub struct Asked {
    pub addon: String,
    pub kind: String,
    pub cost: u32,
    pub priority: i32,
    pub time_sensitive: bool,
    /// False: it starts in any state of the machine that has units for it.
    pub considerate: bool,
    pub unique: bool,
    pub expected_duration: Option<Span>,
    pub not_before: Option<Wall>,
    pub deadline: Option<Wall>,
    pub max_runtime: Option<Span>,
    pub hours: Option<Hours>,
    pub tags: Vec<String>,
    pub payload: Map<String, Value>,
    pub constraints: Map<String, Value>,
    pub idempotency_key: Option<String>,
}

/// The job's payload: the worker's input, and fields that only the dialect uses.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Payload {
    #[serde(default)]
    payload: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    constraints: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    time_sensitive: bool,
    /// Texts that are not valid names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    addon_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    job_type: Option<String>,
    /// True when the client set a timeout.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bounded: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
}

impl Asked {
    /// The job in a lane of the dialect.
    pub fn into_submission(self, caller: &Caller, lane: &'static str) -> Submission {
        let (agent, kind) = (name_of(&self.addon), name_of(&self.kind));
        let tags = self.tags.iter().filter_map(|tag| Name::new(tag).ok()).take(TAGS_MAX).collect();
        let payload = Payload {
            addon_id: (agent.as_str() != self.addon).then_some(self.addon),
            job_type: (kind.as_str() != self.kind).then_some(self.kind),
            payload: self.payload,
            constraints: self.constraints,
            tags: self.tags,
            time_sensitive: self.time_sensitive,
            bounded: self.max_runtime.is_some(),
            idempotency_key: self.idempotency_key.clone(),
        };
        let payload = serde_json::to_vec(&payload).expect("texts and JSON values are JSON");
        let quiet = self.considerate.then(|| QuietRule::considerate(self.priority, self.time_sensitive));
        let needs = CapacityRequest {
            cost: self.cost,
            quiet,
            unique: self.unique,
            expected_duration: self.expected_duration,
            hours: self.hours,
        };
        let mut spec = JobSpec {
            agent,
            lane: Name::fixed(lane),
            priority: self.priority,
            not_before: self.not_before,
            deadline: self.deadline,
            timeout: Some(self.max_runtime.unwrap_or(RUNTIME_DEFAULT)),
            retry: Some(RETRY),
            tags,
            capacity: needs,
            ..JobSpec::new(caller.tenant.clone(), kind)
        };
        spec.idempotency = self.idempotency_key.map(|key| idempotency(lane, &key, &spec, &payload));
        let (payload, origin) = (Bytes::from(payload), caller.origin());
        Submission::new(spec, payload, origin)
    }
}

/// The idempotency key of a submit. It is separate from keys of other APIs and of the other queue.
fn idempotency(lane: &str, key: &str, spec: &JobSpec, payload: &[u8]) -> IdempotencyKey {
    let JobSpec { kind, agent, priority, not_before, deadline, timeout, capacity: needs, .. } = spec;
    let fields = format!("{kind:?} {agent:?} {priority} {not_before:?} {deadline:?} {timeout:?} {needs:?}");
    let digest = Sha256::new().chain_update(fields).chain_update(payload).finalize().into();
    IdempotencyKey { key: name_of(&format!("{lane}:{key}")), digest }
}

/// The add-on in the tags of a base job.
pub fn addon_of(tags: &[String]) -> String {
    let named = tags.iter().find_map(|tag| tag.strip_prefix(ADDON_TAG)).filter(|addon| !addon.is_empty());
    named.unwrap_or(NO_ADDON).to_owned()
}

/// A stored job with its payload and progress.
pub struct Seen {
    pub view: JobView,
    pub payload: Bytes,
    pub progress: Option<laneway_runtime::Progress>,
}

impl Seen {
    /// True for an intent.
    pub fn is_intent(&self) -> bool {
        self.view.row.spec.lane.as_str() == LANE
    }

    /// True for a base job, or a job that was created for a lease.
    pub fn is_base(&self) -> bool {
        self.view.row.spec.lane.as_str() == JOBS_LANE
    }

    /// The job as an intent.
    pub fn intent(&self) -> Intent {
        let Seen { view, .. } = self;
        let (row, spec) = (&view.row, &view.row.spec);
        let payload = self.read_payload();
        let holder = view.open.as_ref().and_then(|open| open.holder.as_ref());
        let waits = matches!(view.state(), JobState::Scheduled | JobState::Queued);
        Intent {
            job_id: row.id.to_string(),
            addon_id: payload.addon_id.unwrap_or_else(|| spec.agent.to_string()),
            job_type: payload.job_type.unwrap_or_else(|| spec.kind.to_string()),
            cost_units: spec.capacity.cost,
            priority: priority_name(spec.priority),
            constraints: payload.constraints,
            expected_duration_sec: spec.capacity.expected_duration.map(seconds),
            payload: payload.payload,
            time_sensitive: payload.time_sensitive,
            earliest_start_at: spec.not_before.map(stamp),
            deadline_at: spec.deadline.map(stamp),
            max_runtime_sec: spec.timeout.filter(|_| payload.bounded).map(seconds),
            tags: payload.tags,
            state: intent_state(view.state()),
            attempts: self.attempts(),
            next_earliest_start_at: row
                .status
                .wake_at
                .or(row.status.denied_until)
                .filter(|_| waits)
                .map(stamp),
            lease_id: self.lease_id(),
            created_at: stamp(row.created_at),
            updated_at: stamp(self.updated_at()),
            worker_id: holder.map(|holder| holder.worker.to_string()),
            pid: holder.and_then(|holder| holder.pid),
            progress: self.progress(),
            result: self.result(),
            error: self.error(),
            quiet_hours: spec.capacity.hours.as_ref().map(|hours| hours.to_string()),
        }
    }

    /// The job as a base job.
    pub fn job(&self) -> Job {
        let Seen { view, .. } = self;
        let (row, spec) = (&view.row, &view.row.spec);
        let mut payload = self.read_payload();
        let revoked = view.end.as_ref().filter(|end| end.reason == Reason::Revoked);
        if let Some(error) = revoked.and_then(|end| end.error.as_ref()) {
            payload.payload.insert("revoke_reason".to_owned(), Value::from(&*error.message));
        }
        Job {
            job_id: row.id.to_string(),
            r#type: payload.job_type.unwrap_or_else(|| spec.kind.to_string()),
            priority: priority_name(spec.priority),
            requested_units: spec.capacity.cost,
            unique: spec.capacity.unique,
            state: job_state(view.state(), view.end.as_ref()),
            payload: payload.payload,
            idempotency_key: payload.idempotency_key,
            tags: payload.tags,
            max_runtime_s: spec.timeout.filter(|_| payload.bounded).map(seconds),
            lease_id: self.lease_id(),
            created_at: stamp(row.created_at),
            updated_at: stamp(self.updated_at()),
            progress: self.progress(),
            result: self.result(),
            error: self.error(),
        }
    }

    /// The lease of the running job. `ttl`: the lease time.
    pub fn lease(&self, expires_at: Wall, ttl: Span) -> Option<Lease> {
        let open = self.view.open.as_ref()?;
        let worker = open.holder.as_ref().map_or(String::new(), |holder| holder.worker.to_string());
        Some(Lease {
            lease_id: open.fence.attempt_id.to_string(),
            job_id: self.view.row.id.to_string(),
            worker_id: worker,
            capacity_units: self.view.row.spec.capacity.cost,
            issued_at: stamp(open.opened_at),
            expires_at: stamp(expires_at),
            last_heartbeat: stamp(expires_at.before(ttl)),
        })
    }

    fn read_payload(&self) -> Payload {
        // A job of another API may have any payload; it is shown as far as it can be parsed.
        serde_json::from_slice(&self.payload).unwrap_or_else(|_| {
            match serde_json::from_slice(&self.payload) {
                Ok(Value::Object(payload)) => Payload { payload, ..Payload::default() },
                _ => Payload::default(),
            }
        })
    }

    /// Every dispatch and every denial counts.
    fn attempts(&self) -> u32 {
        let JobView { row, open, end } = &self.view;
        let dispatched = match (end, open) {
            (Some(end), _) => end.attempts,
            (None, Some(open)) => open.fence.attempt,
            (None, None) => row.status.attempts,
        };
        dispatched.saturating_add(row.status.denials)
    }

    /// The lease of the open attempt, or of the one that ended the job; an expired lease is none.
    fn lease_id(&self) -> Option<String> {
        let JobView { open, end, .. } = &self.view;
        let id = match end {
            Some(end) if end.reason == Reason::Lost => None,
            Some(end) => end.attempt_id.or(open.as_ref().map(|open| open.fence.attempt_id)),
            None => open.as_ref().map(|open| open.fence.attempt_id),
        };
        id.map(|id| id.to_string())
    }

    /// When its state changed last, as far as it is known.
    pub fn updated_at(&self) -> Wall {
        let JobView { row, open, end } = &self.view;
        match (end, open) {
            (Some(end), _) => end.finished_at,
            (None, Some(open)) => open.started_at.unwrap_or(open.opened_at),
            (None, None) => row.created_at,
        }
    }

    fn progress(&self) -> Option<Progress> {
        let said = self.progress.as_ref()?;
        Some(Progress { progress: said.fraction, message: said.message.to_string(), at: stamp(said.at) })
    }

    fn result(&self) -> Option<Box<RawValue>> {
        let bytes = self.view.end.as_ref()?.result.as_deref()?;
        let json = std::str::from_utf8(bytes).ok().and_then(|text| serde_json::from_str(text).ok());
        json.or_else(|| {
            let text = Value::from(String::from_utf8_lossy(bytes)).to_string();
            RawValue::from_string(text).ok()
        })
    }

    fn error(&self) -> Option<String> {
        let end = self.view.end.as_ref()?;
        let said = end.error.as_ref().map(|error| error.message.to_string());
        match (end.state, end.reason) {
            // A job that ends while it waits has no message of a runner: its reason is all that is known of it here.
            (JobState::Failed, Reason::Expired | Reason::QueueTimeout) if end.attempt_id.is_none() => {
                Some(end.reason.as_str().to_owned())
            }
            (JobState::Failed, _) => said.or_else(|| Some(end.reason.as_str().to_owned())),
            _ => said,
        }
    }
}

fn seconds(span: Span) -> u64 {
    span.0 / 1_000
}
