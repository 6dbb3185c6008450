//! Converts requests to commands of the engine.
//!
//! A [`JobSpec`] from here is valid in form: names, times and numbers are in range. The engine decides whether it
//! admits the job, and whether the deadline has passed. Every error names the field and the remedy.

mod capacity;
mod placement;
mod run;
mod schedule;
mod session;
mod trace;

use std::borrow::Cow;

use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use laneway_core::job::{IdempotencyKey, KEYS_MAX, TAGS_MAX};
use laneway_core::settings::{DEFAULT_AGENT, DEFAULT_TENANT, MAIN_LANE};
use laneway_core::{
    Backoff, Jitter, JobId, JobPatch, JobSpec, Key, Name, RetryPolicy, ScheduleId, Settings, Span, StartAt,
    Wall,
};
use laneway_runtime::ArtifactId;
use laneway_runtime::config::parse_span;
use laneway_wire::{
    BackoffRequest, BackoffSpec, JobPatchRequest, JobRequest, KeyMap, Priority, RetryRequest,
};
use sha2::{Digest, Sha256};

use crate::error::{ApiError, Code};

pub use capacity::{lease_id, outcome};
pub use run::{run_id, run_member, run_spec};
pub use schedule::{
    TimingFields, fire_mode, preview_count, rejected_schedule, schedule_patch, schedule_spec, timing,
    timing_error,
};
pub use session::session_key;
pub use trace::trace_of_headers;

/// The longest duration of any field of a job.
pub const SPAN_MAX: Span = Span::hours(24 * 366);
/// The largest number of retries, of losses, and of jobs of a session at once.
pub const COUNT_MAX: u32 = 10_000;
/// The largest factor of a backoff.
pub const FACTOR_MAX: u32 = 100;
/// The latest time, in milliseconds: the end of the year 9999, the last year of RFC 3339.
const WALL_MAX: Wall = Wall(253_402_300_799_999);
/// The default lane of jobs of schedules.
const CRON_LANE: &str = "cron";
/// The start of the wall clock.
pub const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The priorities by name. A lower number runs sooner.
pub const PRIORITIES: [(&str, i32); 5] =
    [("urgent", -20), ("high", -10), ("normal", 0), ("low", 10), ("background", 20)];

/// The default names of jobs. They are created once, not for each submit.
pub struct DefaultNames {
    /// The default tenant of requests.
    pub tenant: Name,
    lane: Name,
    agent: Name,
    /// The default lane of jobs of schedules.
    cron: Name,
}

impl DefaultNames {
    /// The names.
    pub fn new() -> DefaultNames {
        DefaultNames {
            tenant: Name::fixed(DEFAULT_TENANT),
            lane: Name::fixed(MAIN_LANE),
            agent: Name::fixed(DEFAULT_AGENT),
            cron: Name::fixed(CRON_LANE),
        }
    }
}

/// Converts a request to the spec of a job of `tenant`.
pub fn job_spec(
    request: &JobRequest<'_>,
    tenant: &Name,
    settings: &Settings,
    names: &DefaultNames,
) -> Result<JobSpec, ApiError> {
    spec_with(request, tenant, settings, names, &names.lane, &settings.retry)
}

/// The same with other defaults for the lane and the retry policy.
fn spec_with(
    request: &JobRequest<'_>,
    tenant: &Name,
    settings: &Settings,
    names: &DefaultNames,
    lane: &Name,
    retry: &RetryPolicy,
) -> Result<JobSpec, ApiError> {
    let kind = name("kind", &request.kind)?;
    let of_kind = settings.kinds.get(&kind).and_then(|kind| kind.retry.as_ref());
    let retry = match &request.retry {
        None => None,
        Some(asked) => Some(retry_policy(asked, of_kind.unwrap_or(retry))?),
    };
    Ok(JobSpec {
        agent: optional_name("agent", &request.agent)?.unwrap_or_else(|| names.agent.clone()),
        lane: optional_name("lane", &request.lane)?.unwrap_or_else(|| lane.clone()),
        session: request.session.as_ref().map(|asked| session::session(asked, &settings.chat)).transpose()?,
        keys: request.keys.as_ref().map(keys).transpose()?.unwrap_or_default(),
        priority: request.priority.as_ref().map(priority).transpose()?.unwrap_or(0),
        not_before: optional("not_before", &request.not_before, time)?,
        deadline: optional("deadline", &request.deadline, time)?,
        queue_timeout: optional("queue_timeout", &request.queue_timeout, positive_span)?,
        timeout: optional("timeout", &request.timeout, positive_span)?,
        retry,
        idempotency: idempotency(request)?,
        tags: request.tags.as_deref().map(tags).transpose()?.unwrap_or_default(),
        capacity: capacity::capacity_request(request)?,
        placement: request.worker.as_ref().map(placement::placement).transpose()?.map(Box::new),
        trace: trace::trace_of_request(request)?,
        // The caller checks the callback and adds it, because the check may take a while.
        ..JobSpec::new(tenant.clone(), kind)
    })
}

/// A name in the form of the API.
pub fn name(field: &str, text: &str) -> Result<Name, ApiError> {
    let name = Name::new(text).map_err(|error| ApiError::field(field, error))?;
    if name.is_plain() {
        return Ok(name);
    }
    Err(ApiError::field(field, "may hold only the letters A-Z and a-z, digits, and . _ : -"))
}

/// A job's id from a path or a parameter.
pub fn job_id(text: &str) -> Result<JobId, ApiError> {
    JobId::parse(text).ok_or_else(|| {
        let detail =
            "a job id looks like 0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80; the response to the submit has it";
        ApiError::new(Code::InvalidId, detail)
    })
}

/// An artifact's id from a path.
pub fn artifact_id(text: &str) -> Result<ArtifactId, ApiError> {
    ArtifactId::parse(text).ok_or_else(|| {
        let detail = "an artifact id looks like 0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80.3; `GET /v1/jobs/{id}/artifacts` lists \
                      those of a job";
        ApiError::new(Code::InvalidId, detail)
    })
}

/// A schedule's id from a path or a parameter.
pub fn schedule_id(text: &str) -> Result<ScheduleId, ApiError> {
    ScheduleId::parse(text).ok_or_else(|| {
        let detail = "a schedule id looks like sch_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80; `GET /v1/schedules?name=…` finds \
                      it by its name";
        ApiError::new(Code::InvalidId, detail)
    })
}

/// A time of the wall clock.
pub fn time(field: &str, text: &str) -> Result<Wall, ApiError> {
    let wrong = || {
        ApiError::field(
            field,
            "must be a time with a zone (RFC 3339) from 1970 to 9999, such as 2030-01-01T08:00:00Z",
        )
    };
    let at = wall(text).ok_or_else(wrong)?;
    if (Wall(0)..=WALL_MAX).contains(&at) { Ok(at) } else { Err(wrong()) }
}

/// Reads date, time and offset separately, because the calendar's own instants end a day before the year 9999 does.
fn wall(text: &str) -> Option<Wall> {
    let pieces = Pieces::parse(text).ok()?;
    let offset = pieces.to_numeric_offset()?;
    let since = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH);
    // The engine counts whole milliseconds, so a fraction is dropped.
    let millis = i64::try_from(since.as_millis()).ok()?;
    Some(Wall(millis - i64::from(offset.seconds()) * 1_000))
}

/// A duration, possibly zero.
pub fn span(field: &str, text: &str) -> Result<Span, ApiError> {
    let span = parse_span(text).ok_or_else(|| {
        ApiError::field(field, "must be a duration with units, such as 30s, 5m, 1h30m or 500ms")
    })?;
    if span > SPAN_MAX {
        return Err(ApiError::field(field, "is longer than 366d; use a shorter duration"));
    }
    Ok(span)
}

/// A duration that is not zero.
pub fn positive_span(field: &str, text: &str) -> Result<Span, ApiError> {
    match span(field, text)? {
        Span(0) => Err(ApiError::field(field, "must be longer than zero; omit it for the default")),
        span => Ok(span),
    }
}

fn optional<T>(
    field: &str,
    text: &Option<Cow<'_, str>>,
    read: impl FnOnce(&str, &str) -> Result<T, ApiError>,
) -> Result<Option<T>, ApiError> {
    text.as_deref().map(|text| read(field, text)).transpose()
}

fn optional_name(field: &str, text: &Option<Cow<'_, str>>) -> Result<Option<Name>, ApiError> {
    optional(field, text, name)
}

fn count(field: &str, number: u32, min: u32) -> Result<u32, ApiError> {
    if (min..=COUNT_MAX).contains(&number) {
        return Ok(number);
    }
    Err(ApiError::field(field, format!("must be from {min} to {COUNT_MAX}")))
}

/// The changes of a waiting job.
pub fn job_patch(request: &JobPatchRequest<'_>) -> Result<JobPatch, ApiError> {
    let JobPatchRequest { priority: level, run_at, delay } = request;
    let patch = JobPatch {
        priority: level.as_ref().map(priority).transpose()?,
        start: start_at(run_at.as_deref(), delay.as_deref())?,
    };
    if patch == JobPatch::default() {
        return Err(ApiError::field(
            "priority",
            "is absent; give at least one of priority, run_at and delay",
        ));
    }
    Ok(patch)
}

/// A time, or a duration from now.
pub fn start_at(run_at: Option<&str>, delay: Option<&str>) -> Result<Option<StartAt>, ApiError> {
    match (run_at, delay) {
        (None, None) => Ok(None),
        (Some(text), None) => time("run_at", text).map(StartAt::Time).map(Some),
        (None, Some(text)) => span("delay", text).map(StartAt::Delay).map(Some),
        (Some(_), Some(_)) => {
            Err(ApiError::field("delay", "cannot be combined with run_at; give one of them"))
        }
    }
}

fn priority(request: &Priority<'_>) -> Result<i32, ApiError> {
    match request {
        Priority::Number(number) => Ok(*number),
        Priority::Name(text) => PRIORITIES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, number)| *number)
            .ok_or_else(|| {
                ApiError::field(
                    "priority",
                    "must be an integer, or one of urgent, high, normal, low, background",
                )
            }),
    }
}

fn keys(request: &KeyMap<'_>) -> Result<Vec<Key>, ApiError> {
    if request.0.len() > KEYS_MAX {
        return Err(ApiError::field(
            "keys",
            format!("has {} entries; at most {KEYS_MAX} are allowed", request.0.len()),
        ));
    }
    let mut keys: Vec<Key> = Vec::with_capacity(request.0.len());
    for (text, value) in &request.0 {
        let key = Key { name: name("keys", text)?, value: name(&format!("keys.{text}"), value)? };
        if keys.iter().any(|other| other.name == key.name) {
            return Err(ApiError::field(format!("keys.{text}"), "appears twice; send each key once"));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn tags(request: &[Cow<'_, str>]) -> Result<Vec<Name>, ApiError> {
    if request.len() > TAGS_MAX {
        return Err(ApiError::field(
            "tags",
            format!("has {} entries; at most {TAGS_MAX} are allowed", request.len()),
        ));
    }
    request.iter().enumerate().map(|(index, tag)| name(&format!("tags[{index}]"), tag)).collect()
}

/// The retry policy of a request. Absent fields are taken from `default`.
fn retry_policy(request: &RetryRequest<'_>, default: &RetryPolicy) -> Result<RetryPolicy, ApiError> {
    Ok(RetryPolicy {
        retries_max: count("retry.retries_max", request.retries_max.unwrap_or(default.retries_max), 0)?,
        losses_max: count("retry.losses_max", request.losses_max.unwrap_or(default.losses_max), 0)?,
        backoff: request.backoff.as_ref().map(backoff).transpose()?.unwrap_or(default.backoff),
    })
}

fn backoff(request: &BackoffRequest<'_>) -> Result<Backoff, ApiError> {
    match request {
        BackoffRequest::Preset(text) if text == "standard" => Ok(Backoff::STANDARD),
        BackoffRequest::Preset(text) if text == "cron" => Ok(Backoff::CRON),
        BackoffRequest::Preset(_) => Err(ApiError::field(
            "retry.backoff",
            "must be standard, cron, or an object with base, factor, max and jitter",
        )),
        BackoffRequest::Spec(spec) => backoff_spec(spec),
    }
}

fn backoff_spec(spec: &BackoffSpec<'_>) -> Result<Backoff, ApiError> {
    let factor = spec.factor.unwrap_or(2);
    if !(1..=FACTOR_MAX).contains(&factor) {
        return Err(ApiError::field("retry.backoff.factor", format!("must be from 1 to {FACTOR_MAX}")));
    }
    let base = optional("retry.backoff.base", &spec.base, span)?.unwrap_or(Span::secs(1));
    let max = optional("retry.backoff.max", &spec.max, span)?.unwrap_or(Span::secs(60).max(base));
    if max < base {
        return Err(ApiError::field("retry.backoff.max", "must not be shorter than retry.backoff.base"));
    }
    let jitter = match &spec.jitter {
        None => Jitter::None,
        Some(jitter) => match (&jitter.add, jitter.percent) {
            (None, None) => Jitter::None,
            (Some(add), None) => Jitter::Add(span("retry.backoff.jitter.add", add)?),
            (None, Some(percent @ 0..=100)) => Jitter::Percent(percent),
            (None, Some(_)) => {
                return Err(ApiError::field("retry.backoff.jitter.percent", "must be from 0 to 100"));
            }
            (Some(_), Some(_)) => {
                return Err(ApiError::field("retry.backoff.jitter", "accepts add or percent, not both"));
            }
        },
    };
    Ok(Backoff { base, factor, max, jitter })
}

/// The idempotency key with a digest of the request: SHA-256 over the request as this server serializes it, without
/// the key and the trace. So the order of fields and whitespace do not count, and the bytes of the payload do.
fn idempotency(request: &JobRequest<'_>) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(text) = &request.idempotency_key else { return Ok(None) };
    let key = name("idempotency_key", text)?;
    let mut asked = request.clone();
    asked.idempotency_key = None;
    // Every try of a client has a span of its own.
    (asked.traceparent, asked.tracestate) = (None, None);
    let bytes = serde_json::to_vec(&asked).map_err(ApiError::internal)?;
    Ok(Some(IdempotencyKey { key, digest: Sha256::digest(&bytes).into() }))
}

#[cfg(test)]
mod tests {
    use laneway_core::Wall;

    use super::*;

    fn spec(body: &str) -> Result<JobSpec, ApiError> {
        let request: JobRequest<'_> = crate::json::parse(body.as_bytes(), 64)?;
        job_spec(&request, &Name::fixed("t"), &Settings::default(), &DefaultNames::new())
    }

    #[test]
    fn fills_in_names_and_reads_every_field() {
        let spec = spec(
            r#"{"kind":"k","session":{"key":"s","max_concurrent":3},"priority":"High","keys":{"profile":"p1"},
            "not_before":"2030-01-01T08:00:00+01:00","deadline":"2030-01-02T00:00:00.5Z","queue_timeout":"1h30m",
            "timeout":"500ms","retry":{"retries_max":0,"backoff":{"base":"2s","max":"10s","jitter":{"percent":25}}},
            "tags":["a","b"]}"#,
        )
        .unwrap();
        assert_eq!((spec.agent.as_str(), spec.lane.as_str(), spec.tenant.as_str()), ("default", "main", "t"));
        assert_eq!(spec.session.unwrap().max_concurrent, 3);
        assert_eq!(spec.priority, -10);
        assert_eq!(spec.not_before, Some(Wall(1_893_481_200_000)));
        assert_eq!(spec.deadline, Some(Wall(1_893_542_400_500)));
        assert_eq!((spec.queue_timeout, spec.timeout), (Some(Span(5_400_000)), Some(Span(500))));
        let retry = spec.retry.unwrap();
        assert_eq!((retry.retries_max, retry.losses_max), (0, 3));
        assert_eq!(
            retry.backoff,
            Backoff { base: Span::secs(2), factor: 2, max: Span::secs(10), jitter: Jitter::Percent(25) }
        );
    }

    #[test]
    fn accepts_priorities_by_name_in_any_case() {
        for (text, number) in [("\"URGENT\"", -20), ("\"background\"", 20), ("\"nOrMaL\"", 0), ("-7", -7)] {
            assert_eq!(spec(&format!(r#"{{"kind":"k","priority":{text}}}"#)).unwrap().priority, number);
        }
    }

    #[test]
    fn errors_name_the_wrong_field() {
        let long = "x".repeat(129);
        let many_tags = vec!["\"t\""; 17].join(",");
        let many_keys: Vec<String> = (0..9).map(|n| format!("\"k{n}\":\"v\"")).collect();
        for (rest, field) in [
            (r#""kind":"""#.to_owned(), "kind"),
            (r#""kind":"a b""#.to_owned(), "kind"),
            (format!(r#""kind":"{long}""#), "kind"),
            (r#""kind":"k","agent":"é""#.to_owned(), "agent"),
            (r#""kind":"k","lane":"a/b""#.to_owned(), "lane"),
            (r#""kind":"k","session":"""#.to_owned(), "session"),
            (r#""kind":"k","session":{"key":"s","max_concurrent":0}"#.to_owned(), "session.max_concurrent"),
            (r#""kind":"k","priority":"soon""#.to_owned(), "priority"),
            (r#""kind":"k","keys":{"a":"1","a":"2"}"#.to_owned(), "keys.a"),
            (r#""kind":"k","keys":{"a":""}"#.to_owned(), "keys.a"),
            (format!(r#""kind":"k","keys":{{{}}}"#, many_keys.join(",")), "keys"),
            (format!(r#""kind":"k","tags":[{many_tags}]"#), "tags"),
            (r#""kind":"k","tags":["ok","no way"]"#.to_owned(), "tags[1]"),
            (r#""kind":"k","not_before":"tomorrow""#.to_owned(), "not_before"),
            (r#""kind":"k","not_before":"2030-01-01T00:00:00""#.to_owned(), "not_before"),
            (r#""kind":"k","deadline":"1969-01-01T00:00:00Z""#.to_owned(), "deadline"),
            (r#""kind":"k","deadline":"9999-12-31T23:59:59-00:01""#.to_owned(), "deadline"),
            (r#""kind":"k","deadline":"10000-01-01T00:00:00Z""#.to_owned(), "deadline"),
            (r#""kind":"k","deadline":"2030-01-01""#.to_owned(), "deadline"),
            (r#""kind":"k","timeout":"30""#.to_owned(), "timeout"),
            (r#""kind":"k","timeout":"0s""#.to_owned(), "timeout"),
            (r#""kind":"k","timeout":"400d""#.to_owned(), "timeout"),
            (r#""kind":"k","queue_timeout":"-1s""#.to_owned(), "queue_timeout"),
            (r#""kind":"k","retry":{"retries_max":10001}"#.to_owned(), "retry.retries_max"),
            (r#""kind":"k","retry":{"backoff":"fast"}"#.to_owned(), "retry.backoff"),
            (r#""kind":"k","retry":{"backoff":{"factor":0}}"#.to_owned(), "retry.backoff.factor"),
            (r#""kind":"k","retry":{"backoff":{"base":"2m","max":"1m"}}"#.to_owned(), "retry.backoff.max"),
            (
                r#""kind":"k","retry":{"backoff":{"jitter":{"percent":101}}}"#.to_owned(),
                "retry.backoff.jitter.percent",
            ),
            (r#""kind":"k","idempotency_key":"a\nb""#.to_owned(), "idempotency_key"),
        ] {
            let error = spec(&format!("{{{rest}}}")).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (Code::InvalidField, Some(field)), "{rest}");
            assert!(error.detail.starts_with(field), "{}", error.detail);
        }
    }

    #[test]
    fn accepts_times_up_to_the_end_of_the_calendar() {
        for (text, shown) in [
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
            ("9999-12-31T21:59:59-02:00", "9999-12-31T23:59:59.000Z"),
            ("9999-12-30T22:00:00Z", "9999-12-30T22:00:00.000Z"),
            ("2030-01-01T08:00:00.1239+01:00", "2030-01-01T07:00:00.123Z"),
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(crate::render::time(time("deadline", text).unwrap()), shown, "{text}");
        }
    }

    #[test]
    fn the_digest_covers_the_content_and_not_its_formatting() {
        let digest = |body: &str| spec(body).unwrap().idempotency.unwrap().digest;
        let first = digest(r#"{"kind":"k","agent":"a","payload":{"x":1},"idempotency_key":"i"}"#);
        assert_eq!(first, digest(r#"{ "idempotency_key":"j", "payload":{"x":1}, "agent":"a", "kind":"k" }"#));
        assert_ne!(first, digest(r#"{"kind":"k","agent":"a","payload":{"x":2},"idempotency_key":"i"}"#));
        assert_ne!(first, digest(r#"{"kind":"k","agent":"b","payload":{"x":1},"idempotency_key":"i"}"#));
    }
}
