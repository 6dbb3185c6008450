//! A job as a program builds it, before it is checked.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use laneway_core::capacity::Hours;
use laneway_core::job::{IdempotencyKey, KEYS_MAX, TAGS_MAX};
use laneway_core::settings::{DEFAULT_AGENT, DEFAULT_TENANT, MAIN_LANE};
use laneway_core::{
    Bytes, Callback, CapacityRequest, JobSpec, Key, Name, Origin, QuietRule, RetryPolicy, Session, Span,
    Submission, TraceContext, Wall,
};
use laneway_runtime::webhooks::NATIVE_FORMAT;
use serde::Serialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// A job to submit. Only the kind is required; other fields default to those of the kind, then of the server.
///
/// Texts are checked when the job is submitted: see [`crate::SubmitError::Invalid`].
#[derive(Clone, Debug)]
#[must_use = "a job does nothing until it is submitted"]
pub struct Job {
    kind: String,
    payload: Payload,
    tenant: Option<String>,
    agent: Option<String>,
    lane: Option<String>,
    session: Option<Asked>,
    keys: Vec<(String, String)>,
    priority: i32,
    not_before: Option<SystemTime>,
    deadline: Option<SystemTime>,
    queue_timeout: Option<Duration>,
    timeout: Option<Duration>,
    retry: Option<RetryPolicy>,
    idempotency_key: Option<String>,
    tags: Vec<String>,
    callback: Option<String>,
    needs: CapacityRequest,
    trace: Option<(String, Option<String>)>,
}

#[derive(Clone, Debug)]
enum Payload {
    Bytes(Vec<u8>),
    /// The value could not be serialised as JSON.
    Unwritable(String),
}

/// Why a job is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} {problem}")]
pub struct InvalidJob {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it: a fragment that follows the field's name.
    pub problem: String,
}

impl Job {
    /// A job of this kind, with `null` as its payload.
    pub fn new(kind: impl Into<String>) -> Job {
        Job {
            kind: kind.into(),
            payload: Payload::Bytes(b"null".to_vec()),
            tenant: None,
            agent: None,
            lane: None,
            session: None,
            keys: Vec::new(),
            priority: 0,
            not_before: None,
            deadline: None,
            queue_timeout: None,
            timeout: None,
            retry: None,
            idempotency_key: None,
            tags: Vec::new(),
            callback: None,
            needs: CapacityRequest::default(),
            trace: None,
        }
    }

    /// The payload, as bytes. Jobs that are also used over HTTP should have JSON here.
    pub fn payload(mut self, bytes: impl Into<Vec<u8>>) -> Job {
        self.payload = Payload::Bytes(bytes.into());
        self
    }

    /// The payload, serialised as JSON.
    pub fn json(mut self, value: &impl Serialize) -> Job {
        self.payload = match serde_json::to_vec(value) {
            Ok(bytes) => Payload::Bytes(bytes),
            Err(error) => Payload::Unwritable(error.to_string()),
        };
        self
    }

    /// The tenant. Defaults to `default`.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Job {
        self.tenant = Some(tenant.into());
        self
    }

    /// The agent for fair order and limits. Defaults to `default`.
    pub fn agent(mut self, agent: impl Into<String>) -> Job {
        self.agent = Some(agent.into());
        self
    }

    /// The lane. Defaults to `main`; a lane that does not exist is rejected.
    pub fn lane(mut self, lane: impl Into<String>) -> Job {
        self.lane = Some(lane.into());
        self
    }

    /// Jobs of one session run in the order of their submission, one at a time.
    pub fn session(self, key: impl Into<String>) -> Job {
        self.session_concurrent(key, 1)
    }

    /// The same, `max_concurrent` at a time while this job is the next one.
    pub fn session_concurrent(mut self, key: impl Into<String>, max_concurrent: u32) -> Job {
        self.session = Some(Asked::Named(key.into(), max_concurrent));
        self
    }

    /// The same with all options of a session: `Session::chat` suits a conversation.
    pub fn in_session(mut self, session: Session) -> Job {
        self.session = Some(Asked::Whole(session));
        self
    }

    /// Holds the resource `name`=`value` while it runs.
    pub fn key(mut self, name: impl Into<String>, value: impl Into<String>) -> Job {
        self.keys.push((name.into(), value.into()));
        self
    }

    /// Lower runs sooner. Defaults to 0.
    pub fn priority(mut self, priority: i32) -> Job {
        self.priority = priority;
        self
    }

    /// Do not start before this time.
    pub fn not_before(mut self, time: SystemTime) -> Job {
        self.not_before = Some(time);
        self
    }

    /// Do not start or run after this time.
    pub fn deadline(mut self, time: SystemTime) -> Job {
        self.deadline = Some(time);
        self
    }

    /// How long it may wait before its first start.
    pub fn queue_timeout(mut self, time: Duration) -> Job {
        self.queue_timeout = Some(time);
        self
    }

    /// How long one attempt may run.
    pub fn timeout(mut self, time: Duration) -> Job {
        self.timeout = Some(time);
        self
    }

    /// The retry policy for failed and lost attempts.
    pub fn retry(mut self, policy: RetryPolicy) -> Job {
        self.retry = Some(policy);
        self
    }

    /// Your own name for this request: submitted again, it returns the first job.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Job {
        self.idempotency_key = Some(key.into());
        self
    }

    /// A free label, for people and lists.
    pub fn tag(mut self, tag: impl Into<String>) -> Job {
        self.tags.push(tag.into());
        self
    }

    /// The callback URL, http or https: it gets a POST of the job when it has ended. Only public addresses
    /// and hosts in `webhooks.allow_hosts` are called.
    pub fn callback(mut self, url: impl Into<String>) -> Job {
        self.callback = Some(url.into());
        self
    }

    /// The units of the machine that it holds while it runs, 0 to 100. The number of units depends on the
    /// machine's load; a job that does not fit an idle machine is rejected.
    pub fn cost(mut self, units: u32) -> Job {
        self.needs.cost = units;
        self
    }

    /// Start only while the machine is this quiet.
    pub fn quiet(mut self, rule: QuietRule) -> Job {
        self.needs.quiet = Some(rule);
        self
    }

    /// The expected run time: when the deadline is nearer than that, the job is boosted.
    pub fn expected_duration(mut self, span: Duration) -> Job {
        self.needs.expected_duration = Some(self::span(span));
        self
    }

    /// The only hours of the day in which it starts.
    pub fn hours(mut self, hours: Hours) -> Job {
        self.needs.hours = Some(hours);
        self
    }

    /// Makes the job a part of the caller's trace: the headers `traceparent` and `tracestate` of W3C Trace Context. They do not
    /// count for the idempotency key.
    pub fn trace(mut self, traceparent: impl Into<String>, tracestate: Option<&str>) -> Job {
        self.trace = Some((traceparent.into(), tracestate.map(str::to_owned)));
        self
    }

    /// The checked form for the scheduler.
    pub(super) fn into_submission(self, origin: Origin) -> Result<Submission, InvalidJob> {
        let digest = self.idempotency_key.is_some().then(|| self.digest());
        let Job {
            kind,
            payload,
            tenant,
            agent,
            lane,
            session,
            keys,
            priority,
            not_before,
            deadline,
            queue_timeout,
            timeout,
            retry,
            idempotency_key,
            tags,
            callback,
            needs,
            trace,
        } = self;
        let payload: Bytes = match payload {
            Payload::Bytes(bytes) => bytes.into(),
            Payload::Unwritable(problem) => {
                return Err(invalid("payload", format!("cannot be serialised as JSON: {problem}")));
            }
        };
        let tenant = name("tenant", tenant.as_deref().unwrap_or(DEFAULT_TENANT))?;
        let kind = name("kind", &kind)?;
        let spec = JobSpec {
            agent: name("agent", agent.as_deref().unwrap_or(DEFAULT_AGENT))?,
            lane: name("lane", lane.as_deref().unwrap_or(MAIN_LANE))?,
            session: session.map(checked_session).transpose()?,
            keys: checked_keys(&keys)?,
            priority,
            not_before: not_before.map(wall),
            deadline: deadline.map(wall),
            queue_timeout: queue_timeout.map(span),
            timeout: timeout.map(span),
            retry,
            idempotency: match (idempotency_key, digest) {
                (Some(key), Some(digest)) => {
                    Some(IdempotencyKey { key: name("idempotency_key", &key)?, digest })
                }
                _ => None,
            },
            tags: checked_tags(&tags)?,
            callback: callback.map(|url| Callback { url: url.into(), format: Name::fixed(NATIVE_FORMAT) }),
            capacity: needs,
            trace: trace.map(checked_trace).transpose()?,
            ..JobSpec::new(tenant, kind)
        };
        Ok(Submission { strict_lane: true, ..Submission::new(spec, payload, origin) })
    }

    /// A digest of the whole request, so that the same key with another request is noticed.
    fn digest(&self) -> [u8; 32] {
        // The derived form names every field; it only has to differ where requests differ, within one
        // version.
        let untraced = Job { trace: None, ..self.clone() };
        Sha256::digest(format!("embedded job v1 {untraced:?}").as_bytes()).into()
    }
}

fn invalid(field: &'static str, problem: impl Into<String>) -> InvalidJob {
    InvalidJob { field, problem: problem.into() }
}

fn name(field: &'static str, text: &str) -> Result<Name, InvalidJob> {
    Name::new(text).map_err(|error| invalid(field, error.to_string()))
}

fn checked_trace((parent, state): (String, Option<String>)) -> Result<Box<TraceContext>, InvalidJob> {
    let context = TraceContext::parse(&parent).map_err(|error| invalid("traceparent", error.to_string()))?;
    let context = match state {
        Some(state) => {
            context.with_state(&state).map_err(|error| invalid("tracestate", error.to_string()))?
        }
        None => context,
    };
    Ok(Box::new(context))
}

/// The session options of a job.
#[derive(Clone, Debug)]
enum Asked {
    Named(String, u32),
    Whole(Session),
}

fn checked_session(asked: Asked) -> Result<Session, InvalidJob> {
    let session = match asked {
        Asked::Named(key, max_concurrent) => {
            Session { max_concurrent, ..Session::new(name("session", &key)?) }
        }
        Asked::Whole(session) => session,
    };
    if session.max_concurrent == 0 {
        return Err(invalid("session", "needs a max_concurrent of at least 1"));
    }
    Ok(session)
}

fn checked_keys(keys: &[(String, String)]) -> Result<Vec<Key>, InvalidJob> {
    if keys.len() > KEYS_MAX {
        return Err(invalid("keys", format!("are {}; at most {KEYS_MAX} are allowed", keys.len())));
    }
    let mut checked = Vec::with_capacity(keys.len());
    for (key, value) in keys {
        checked.push(Key { name: name("keys", key)?, value: name("keys", value)? });
    }
    checked.sort();
    if checked.windows(2).any(|pair| pair[0].name == pair[1].name) {
        return Err(invalid("keys", "name the same resource twice"));
    }
    Ok(checked)
}

fn checked_tags(tags: &[String]) -> Result<Vec<Name>, InvalidJob> {
    if tags.len() > TAGS_MAX {
        return Err(invalid("tags", format!("are {}; at most {TAGS_MAX} are allowed", tags.len())));
    }
    tags.iter().map(|tag| name("tags", tag)).collect()
}

/// Milliseconds since 1970; earlier times become 1970.
fn wall(time: SystemTime) -> Wall {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Wall(i64::try_from(millis).unwrap_or(i64::MAX))
}

fn span(time: Duration) -> Span {
    Span(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(job: Job) -> Result<Submission, InvalidJob> {
        job.into_submission(Origin::server("test"))
    }

    #[test]
    fn defaults_are_filled_in() {
        let spec = check(Job::new("k")).unwrap().spec;
        assert_eq!(
            (spec.tenant.as_str(), spec.agent.as_str(), spec.lane.as_str()),
            ("default", "default", "main")
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(check(Job::new("")).unwrap_err().field, "kind");
        assert_eq!(check(Job::new("k").session_concurrent("s", 0)).unwrap_err().field, "session");
        assert_eq!(check(Job::new("k").key("p", "1").key("p", "2")).unwrap_err().field, "keys");
        let many = (0..17).fold(Job::new("k"), |job, n| job.tag(format!("t{n}")));
        assert_eq!(check(many).unwrap_err().to_string(), "tags are 17; at most 16 are allowed");
    }

    #[test]
    fn the_digest_distinguishes_requests() {
        let digest = |job: Job| check(job.idempotency_key("x")).unwrap().spec.idempotency.unwrap().digest;
        assert_eq!(digest(Job::new("k").payload("1")), digest(Job::new("k").payload("1")));
        assert_ne!(digest(Job::new("k").payload("1")), digest(Job::new("k").payload("2")));
        assert_ne!(digest(Job::new("k")), digest(Job::new("k").priority(1)));
    }
}
