//! The constraints of fields and parameters in the OpenAPI document: vocabularies, formats, patterns and bounds.
//!
//! They use the server's own vocabularies and limits, so the document cannot differ from the checks. Rules that a
//! schema cannot express (one of two fields, one time not before another) stay in the descriptions.

use laneway_browser::profiles::{ID_LEN_MAX, NAME_LEN_MAX, ProfileStatus, WINDOW_SIDE_MAX, WINDOW_SIDE_MIN};
use laneway_core::capacity::COST_MAX;
use laneway_core::job::session::{SESSION_DEBOUNCE_MAX, SESSION_DEBOUNCE_TOTAL_MAX};
use laneway_core::job::{CALLBACK_URL_LEN_MAX, KEYS_MAX, TAGS_MAX};
use laneway_core::lease::{CLAIM_KINDS_MAX, DenyReason};
use laneway_core::schedule::{CATCH_UP_MAX, EVERY_MIN, JITTER_MAX, NotFired};
use laneway_core::trace::TRACE_STATE_LEN_MAX;
use laneway_core::worker::{DispatchLine, OFFER_LIST_MAX, PLACEMENT_LIST_MAX, RESOURCES_MAX, Standing};
use laneway_core::{
    AttemptEnd, DeliveryState, Dispatch, DropPolicy, EventKind, FailurePolicy, FiringStatus, JobState, Name,
    Overlap, QuietRule, QuietState, Reason, Role, RunState, SessionMode, Span,
};
use laneway_runtime::config::{self, QUEUED_MAX, RUNNING_MAX};
use laneway_runtime::store::search::SEARCH_LEN_MAX;
use laneway_wire::BATCH_JOBS_MAX;
use laneway_wire::frame::TEXT_LEN_MAX;
use serde_json::{Value, json};

use super::spans::{moment, span, span_or_none};
use crate::bulk;
use crate::convert::{COUNT_MAX, FACTOR_MAX, PRIORITIES, SPAN_MAX};
use crate::error::Code;
use crate::query::LIMIT_MAX;
use crate::v1::jobs::WAIT_MAX;

/// Every status of a profile.
const PROFILE_STATUSES: [&str; 2] = [ProfileStatus::Active.as_str(), ProfileStatus::Trashed.as_str()];
/// A text with a visible character and without control characters.
const NOT_BLANK: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// Every code of a blocker.
const BLOCKER_CODES: [&str; 28] = [
    "draining",
    "storage_low",
    "not_before",
    "backoff",
    "debounce",
    "upstream",
    "uncalled",
    "session_order",
    "session_full",
    "session_throttled",
    "session_stopping",
    "lane_paused",
    "lane_full",
    "agent_full",
    "server_full",
    "tenant_full",
    "kind_full",
    "no_executor",
    "no_worker",
    "workers_full",
    "worker_busy",
    "executor_full",
    "key_full",
    "not_quiet",
    "no_units",
    "reserved",
    "unclaimed",
    "turn",
];

/// A name in the form of the API.
const PLAIN: &str = "^[A-Za-z0-9._:-]+$";
/// A name that may contain any printable character.
const PRINTABLE: &str = "^[^\\u0000-\\u0020\\u007f-\\u009f]([^\\u0000-\\u001f\\u007f-\\u009f]*[^\\u0000-\\u0020\\u007f-\\u009f])?$";
/// A duration in a response.
const SPAN: &str = "^([0-9]+d([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?|[0-9]+h([0-9]+m)?([0-9]+s)?([0-9]+ms)?|[0-9]+m([0-9]+s)?([0-9]+ms)?|[0-9]+s([0-9]+ms)?|[0-9]+ms)$";
/// The shortest duration that is not zero.
const MILLISECOND: Span = Span(1);
/// Hours of the day, in UTC, an offset or a time zone.
const HOURS: &str = "^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]( .+)?$";
/// A `traceparent` of version 00 of W3C Trace Context.
const TRACEPARENT: &str = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$";
/// Members of a `tracestate`.
const TRACESTATE: &str = "^[a-z0-9][a-z0-9_*/@-]*=[!-+.-<>-~-]+(,[a-z0-9][a-z0-9_*/@-]*=[!-+.-<>-~-]+)*$";
/// The hyphenated form of 128 bits.
const HEX: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";

/// The constraints of a field of a schema. `field` is empty for a schema that is a string or has two forms.
pub fn of_schema(schema: &str, field: &str) -> Option<Value> {
    vocabulary(schema, field)
        .or_else(|| number(schema, field))
        .or_else(|| id(schema, field))
        .or_else(|| name(schema, field))
        .or_else(|| text(schema, field))
        .or_else(|| time(schema, field))
}

/// The constraints of a parameter of an operation under `path`.
pub fn of_parameter(path: &str, parameter: &str) -> Option<Value> {
    let section = path.split('/').nth(2).unwrap_or_default();
    Some(match (section, parameter) {
        ("artifacts", "id") => pattern(&format!("^{HEX}\\.[0-9]+$")),
        ("jobs" | "deliveries" | "leases", "id") | (_, "job") => uuid(),
        ("runs", "id") => pattern(&format!("^run_{HEX}$")),
        ("schedules", "id") => pattern(&format!("^sch_{HEX}$")),
        ("profiles", "id") | ("browsers", "profile") => profile_id(),
        ("profiles", "status") => values(&PROFILE_STATUSES),
        ("profiles", "search") => json!({"maxLength": NAME_LEN_MAX}),
        ("operations", "id") => pattern("^op_[0-9a-f]{32}$"),
        ("workers" | "instances" | "tokens", "id") | ("lanes", "name") => plain(),
        ("schedules", "name") | ("sessions", "key") | (_, "session") => printable(),
        ("jobs", "search") => json!({"maxLength": SEARCH_LEN_MAX}),
        ("jobs", "reason") => list_of(Reason::ALL.map(Reason::as_str).as_slice()),
        ("jobs", "by") => values(&["lane", "kind", "agent", "error_code"]),
        (_, "lane" | "agent" | "kind" | "tag" | "error_code" | "worker" | "client" | "Idempotency-Key") => {
            plain()
        }
        (_, "Laneway-Tenant") | ("schemas", "name") => plain(),
        ("schedules" | "sessions", "after") => printable(),
        (_, "created_before" | "created_after" | "finished_before" | "finished_after") => moment(),
        (_, "wait") => span(Span(0), WAIT_MAX),
        ("audit", "action") => actions(),
        ("jobs", "limit") if path.ends_with("/events") => json!({"minimum": 1, "maximum": 1_000}),
        (_, "limit") => json!({"minimum": 1, "maximum": LIMIT_MAX}),
        ("stats", "range") => values(&["1h", "1d"]),
        ("jobs", "state") => list_of(JobState::ALL.map(JobState::as_str).as_slice()),
        ("runs", "state") => list_of(RunState::ALL.map(RunState::as_str).as_slice()),
        ("deliveries", "state") => values(&DeliveryState::ALL.map(DeliveryState::as_str)),
        _ => return None,
    })
}

/// Fields with a vocabulary.
fn vocabulary(schema: &str, field: &str) -> Option<Value> {
    Some(match (schema, field) {
        ("Job" | "Explanation", "state") => values(&JobState::ALL.map(JobState::as_str)),
        ("Job" | "EventJob", "reason") => values(&Reason::ALL.map(Reason::as_str)),
        ("BulkRequest" | "Operation", "action") => values(&bulk::ACTIONS),
        ("Operation", "state") => values(&["running", "done", "canceled", "failed"]),
        ("Attempt", "state") => {
            let open = [JobState::Assigned.as_str(), JobState::Running.as_str()];
            values(&[&open[..], &AttemptEnd::ALL.map(AttemptEnd::as_str)].concat())
        }
        ("Lease", "state") => values(&[JobState::Assigned.as_str(), JobState::Running.as_str()]),
        ("Run", "state") => values(&RunState::ALL.map(RunState::as_str)),
        ("Run" | "RunRequest", "failure") => values(&FailurePolicy::ALL.map(FailurePolicy::as_str)),
        ("Delivery", "state") => values(&DeliveryState::ALL.map(DeliveryState::as_str)),
        ("Token", "state") => values(&["active", "expired", "revoked"]),
        ("StatsHistory", "range") => values(&["1h", "1d"]),
        ("Token" | "TokenRequest" | "Caller", "role") => values(&Role::ALL.map(Role::as_str)),
        ("Worker", "state") => values(&Standing::ALL.map(Standing::as_str)),
        ("ScheduleFiring", "status") | ("Schedule", "last_status") => {
            values(&FiringStatus::ALL.map(FiringStatus::as_str))
        }
        ("Schedule" | "ScheduleRequest" | "SchedulePatchRequest", "overlap") => {
            values(&Overlap::ALL.map(Overlap::as_str))
        }
        ("ScheduleFiredByHand", "reason") => {
            let reasons = [NotFired::NotDue, NotFired::AlreadyRunning, NotFired::AlreadyQueued];
            values(&reasons.map(NotFired::as_str))
        }
        ("FireScheduleRequest", "mode") => values(&["force", "due"]),
        ("CatchUpRequest", "") => values(&["skip", "latest", "all"]),
        ("Capacity", "quiet") => values(&QuietState::ALL.map(QuietState::as_str)),
        ("Job" | "JobRequest", "quiet") => values(&QuietRule::ALL.map(QuietRule::as_str)),
        ("SessionObject", "mode") => values(&SessionMode::ALL.map(SessionMode::as_str)),
        ("SessionObject", "drop") => values(&DropPolicy::ALL.map(DropPolicy::as_str)),
        ("Priority", "") => values(&PRIORITIES.map(|(name, _)| name)),
        ("BackoffRequest", "") => values(&["standard", "cron"]),
        ("Lane" | "LaneRequest", "order") => values(&["fair", "priority"]),
        ("Lane" | "LaneRequest", "on_shutdown") => values(&["keep", "cancel"]),
        ("Lane" | "LaneRequest", "dispatch") => values(&Dispatch::ALL.map(Dispatch::as_str)),
        ("AffinityConstraint", "mode") => values(&["sticky", "preferred"]),
        ("LeaseRelease", "outcome") => values(&["succeeded", "failed", "canceled", "handed_back"]),
        ("LeaseAnswer", "reason") => values(&DenyReason::NAMES),
        ("PackageRequest" | "WorkerCommandSent", "operation") => values(&["install", "uninstall"]),
        ("Event", "type") => values(&EventKind::ALL.map(EventKind::as_str)),
        ("AuditEntry", "action") => actions(),
        ("Problem", "code") => values(&Code::ALL.map(Code::as_str)),
        ("Warning", "code") => values(&["unserved_kind"]),
        ("Blocker", "code") => values(&BLOCKER_CODES),
        ("Readiness", "status") => values(&["ready", "draining", "storage_low"]),
        ("Health", "status") => values(&["ok", "degraded"]),
        ("Profile", "status") => values(&PROFILE_STATUSES),
        ("ProfileProxy" | "ProxyRequest", "scheme") => values(&["http", "https", "socks5"]),
        ("Health", "db") => values(&["ok"]),
        ("Index", "name") => values(&["laneway"]),
        _ => return None,
    })
}

/// Numbers and lists with bounds.
fn number(schema: &str, field: &str) -> Option<Value> {
    let between = |least: u32, most: u32| json!({"minimum": least, "maximum": most});
    Some(match (schema, field) {
        ("JobRequest", "cost") => between(0, COST_MAX),
        ("RetryRequest", "retries_max" | "losses_max") => between(0, COUNT_MAX),
        ("BackoffSpec", "factor") => between(1, FACTOR_MAX),
        ("JitterRequest", "percent") => between(0, 100),
        ("SessionObject", "cap" | "max_concurrent") => between(1, COUNT_MAX),
        ("CatchUpObject", "all") => between(1, CATCH_UP_MAX),
        ("PreviewRequest", "count") => between(1, 100),
        ("LaneRequest", "queued_max" | "queued_per_agent_max") => between(0, QUEUED_MAX),
        ("LaneRequest", "running_max" | "running_per_agent_max") => between(1, RUNNING_MAX),
        ("LeaseReport", "progress") | ("Progress", "fraction") => between(0, 1),
        ("InstanceRequest", "port") => between(1, u16::MAX.into()),
        ("ProxyRequest", "port") => between(1, u16::MAX.into()),
        ("ProfileWindow", "width" | "height") => between(WINDOW_SIDE_MIN, WINDOW_SIDE_MAX),
        ("LeaseRequest", "max_cost" | "pid") | ("LeaseBeat", "pid") => between(0, u32::MAX),
        ("NodeChain", "index") => between(0, u32::MAX),
        ("SessionUsageRequest", "tokens" | "window") => json!({"minimum": 0, "maximum": i64::MAX}),
        ("BatchRequest", "jobs") => json!({"minItems": 1, "maxItems": BATCH_JOBS_MAX}),
        ("RunRequest", "nodes") => json!({"minItems": 1}),
        ("WorkerConstraints", "resources") => json!({"maxItems": RESOURCES_MAX}),
        _ => return None,
    })
}

/// Ids of the server.
fn id(schema: &str, field: &str) -> Option<Value> {
    Some(match (schema, field) {
        ("Job" | "EventJob" | "OldestJob" | "Explanation" | "Lease", "id")
        | ("Job", "retry_of" | "merged_into")
        | ("Lease" | "LeaseRequest", "job")
        | ("Attempt", "attempt_id")
        | ("Capacity", "next_in_line")
        | ("Session", "oldest_running")
        | (_, "job_id") => uuid(),
        ("SessionStopped", "running" | "waiting") => json!({"items": uuid()}),
        ("Run" | "EventRun", "id") | ("Job", "run") => pattern(&format!("^run_{HEX}$")),
        ("Schedule" | "EventSchedule" | "JobSchedule", "id") | (_, "schedule_id") => {
            pattern(&format!("^sch_{HEX}$"))
        }
        ("Profile" | "ProfileRequest", "id") | ("Profile", "cloned_from") | ("OpenBrowser", "profile") => {
            profile_id()
        }
        ("Operation", "id") => pattern("^op_[0-9a-f]{32}$"),
        ("JobSelection", "state" | "reason") => pattern("^[a-z_]+(,[a-z_]+)*$"),
        ("JobSelection", "search") => json!({"maxLength": SEARCH_LEN_MAX}),
        ("JobSelection", "session") => printable(),
        ("JobSelection", "lane" | "agent" | "kind" | "tag" | "error_code") => plain(),
        ("JobGroup", "name") | ("Operation", "created_by") => printable(),
        ("JobArtifact", "id") => pattern(&format!("^{HEX}\\.[0-9]+$")),
        _ => return None,
    })
}

/// Names of callers.
fn name(schema: &str, field: &str) -> Option<Value> {
    Some(match (schema, field) {
        ("JobRequest", "kind" | "agent" | "lane" | "idempotency_key")
        | ("RunRequest", "name" | "lane" | "client" | "idempotency_key")
        | ("NodeRequest", "node" | "within")
        | ("NodeChain", "host")
        | ("NodeBinding", "from")
        | ("ResourceConstraint", "scope")
        | ("LeaseRequest", "agent" | "lane" | "worker")
        | ("LeaseBeat" | "LeaseReport" | "LeaseRelease", "worker")
        | ("LeaseError", "code") => plain(),
        ("TokenRequest", "secret") => json!({"minLength": 16, "maxLength": 512, "pattern": "^[!-~]+$"}),
        ("TokenRequest", "tenant") => {
            json!({"minLength": 1, "maxLength": Name::LEN_MAX, "pattern": "^([*]|[A-Za-z0-9._:-]+)$"})
        }
        ("JobRequest" | "RunRequest", "tags") => json!({"maxItems": TAGS_MAX, "items": plain()}),
        ("NodeRequest", "depends_on") | ("NodeChain", "chain") => json!({"items": plain()}),
        ("LeaseRequest", "kinds") => json!({"maxItems": CLAIM_KINDS_MAX, "items": plain()}),
        ("KeyMap", "") => {
            json!({"maxProperties": KEYS_MAX, "propertyNames": plain(), "additionalProperties": plain()})
        }
        ("SessionRequest", "")
        | ("SessionObject" | "AffinityConstraint", "key")
        | ("ScheduleRequest" | "SchedulePatchRequest", "name")
        | ("ScheduleRequest" | "SchedulePatchRequest" | "PreviewRequest", "zone")
        | ("PackageConstraint", "name" | "version")
        | ("ResourceConstraint", "id" | "type" | "worker") => printable(),
        ("RebindRequest", "lanes") => json!({"maxItems": OFFER_LIST_MAX, "items": printable()}),
        ("WorkerConstraints", "features") => json!({"maxItems": PLACEMENT_LIST_MAX, "items": printable()}),
        ("WorkerConstraints", "labels") => {
            let text = printable();
            json!({"maxProperties": PLACEMENT_LIST_MAX, "propertyNames": text, "additionalProperties": text})
        }
        _ => return None,
    })
}

/// Other strings that the server checks.
fn text(schema: &str, field: &str) -> Option<Value> {
    Some(match (schema, field) {
        (_, "callback") => json!({"format": "uri", "maxLength": CALLBACK_URL_LEN_MAX}),
        ("InstanceRequest" | "PackageRequest" | "Instance" | "Delivery", "url") => json!({"format": "uri"}),
        ("OpenBrowser", "devtools_url") | ("BrowserTab" | "StartBrowserRequest", "url") => {
            json!({"format": "uri"})
        }
        ("ProfileRequest" | "ProfilePatchRequest", "name") => {
            json!({"minLength": 1, "maxLength": NAME_LEN_MAX, "pattern": NOT_BLANK})
        }
        ("Profile" | "ProfileRequest" | "ProfilePatchRequest", "user_agent") => {
            json!({"maxLength": 512, "pattern": "^[ -~]*[!-~][ -~]*$"})
        }
        ("Profile" | "ProfileRequest" | "ProfilePatchRequest", "locale") => {
            json!({"maxLength": 35, "pattern": "^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$"})
        }
        ("Profile" | "ProfileRequest" | "ProfilePatchRequest", "time_zone") => json!({"maxLength": 64}),
        ("ProxyRequest" | "ProfileProxy", "host" | "username") | ("ProxyRequest", "password") => {
            json!({"maxLength": 255})
        }
        ("JobArtifact", "href") => json!({"format": "uri-reference"}),
        ("InstanceRequest", "tabs") => json!({"items": {"minLength": 1, "maxLength": 256}}),
        ("PackageRequest", "name" | "version") => json!({"minLength": 1, "maxLength": TEXT_LEN_MAX}),
        ("PackageRequest", "sha256") => pattern("^[0-9A-Fa-f]{64}$"),
        ("TokenRequest", "note") => json!({"maxLength": 200}),
        ("Job" | "JobRequest", "hours") => pattern(HOURS),
        ("Job" | "JobRequest" | "LeaseAnswer", "traceparent") => pattern(TRACEPARENT),
        ("Job" | "JobRequest" | "LeaseAnswer", "tracestate") => {
            json!({"maxLength": TRACE_STATE_LEN_MAX, "pattern": TRACESTATE})
        }
        ("NodeBinding", "source") => pattern("^/(results|parameters)(/.*)?$"),
        ("NodeBinding", "target") => pattern("^/parameters(/.*)?$"),
        (_, "cron") => json!({"minLength": 1, "maxLength": 256}),
        _ => return None,
    })
}

/// Times and durations.
fn time(schema: &str, field: &str) -> Option<Value> {
    Some(match (schema, field) {
        ("LaneRequest", "aging_step") => span_or_none(MILLISECOND, config::SPAN_MAX),
        ("LaneRequest", "retention") => span(Span(0), config::SPAN_MAX),
        ("JobRequest", "timeout" | "queue_timeout" | "expected_duration")
        | ("TokenRequest" | "RotateTokenRequest", "expires_in") => span(MILLISECOND, SPAN_MAX),
        ("JobPatchRequest" | "BulkRequest", "delay") => span(Span(0), SPAN_MAX),
        ("RotateTokenRequest", "grace") | ("BackoffSpec", "base" | "max") | ("JitterRequest", "add") => {
            span(Span(0), SPAN_MAX)
        }
        ("ScheduleRequest" | "SchedulePatchRequest" | "PreviewRequest", "every") => span(EVERY_MIN, SPAN_MAX),
        ("ScheduleRequest" | "SchedulePatchRequest" | "PreviewRequest", "jitter") => {
            span(Span(0), JITTER_MAX)
        }
        ("SessionObject", "debounce") => span(Span(0), SESSION_DEBOUNCE_MAX),
        ("SessionObject", "debounce_max") => span(Span(0), SESSION_DEBOUNCE_TOTAL_MAX),
        ("PreviewRequest", "from") => moment(),
        ("JobSelection", "created_before" | "created_after" | "finished_before" | "finished_after") => {
            moment()
        }
        (_, "timeout" | "queue_timeout" | "expected_duration" | "every" | "jitter")
        | (_, "retention" | "aging_step" | "retry_after") => pattern(SPAN),
        (_, "at" | "timestamp" | "slot" | "last_slot" | "deadline" | "not_before" | "anchor") => moment(),
        (_, field) if field.ends_with("_at") => moment(),
        _ => return None,
    })
}

/// The actions of audit entries.
fn actions() -> Value {
    values(&[&EventKind::ALL.map(EventKind::as_str)[..], &[DispatchLine::ACTION]].concat())
}

fn values(values: &[&str]) -> Value {
    json!({ "enum": values })
}

/// A parameter that may be repeated.
fn list_of(list: &[&str]) -> Value {
    json!({"type": "array", "items": {"type": "string", "enum": list}})
}

fn plain() -> Value {
    json!({"minLength": 1, "maxLength": Name::LEN_MAX, "pattern": PLAIN})
}

fn printable() -> Value {
    json!({"minLength": 1, "maxLength": Name::LEN_MAX, "pattern": PRINTABLE})
}

fn profile_id() -> Value {
    json!({"minLength": 1, "maxLength": ID_LEN_MAX, "pattern": "^[a-z0-9][a-z0-9_-]*$"})
}

fn uuid() -> Value {
    json!({"format": "uuid"})
}

fn pattern(pattern: &str) -> Value {
    json!({ "pattern": pattern })
}
