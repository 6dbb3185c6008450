//! The request that submits a job.
//!
//! The types borrow from the body that they are read from, and a payload keeps the bytes that the client sent. A
//! field with two forms (a string or an object) has a hand-written `Deserialize`, because the derived one would hide
//! which field was wrong.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::object;
use crate::worker::WorkerConstraints;

/// A job to submit. Only `kind` is required.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest<'a> {
    /// The type of the job. It selects the handler and the defaults.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// The input of the handler: any JSON, stored byte for byte. Absent means `null`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<&'a RawValue>,
    /// The agent whose fair share and limits the job counts against. Defaults to `default`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Cow<'a, str>>,
    /// The lane that it runs in. Defaults to `main`. The server rejects an unknown lane.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Cow<'a, str>>,
    /// Jobs of one session start in order. A name, or an object with `key` and settings.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRequest<'a>>,
    /// A lower number runs sooner: an integer, or one of `urgent` (-20), `high` (-10), `normal` (0), `low` (10),
    /// `background` (20), in any case. Defaults to 0.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority<'a>>,
    /// The named resources that it holds while it runs, such as `{"profile": "p1"}`; at most 8.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeyMap<'a>>,
    /// The job does not start before this time (RFC 3339).
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T08:00:00Z")]
    pub not_before: Option<Cow<'a, str>>,
    /// The job neither starts nor runs after this time (RFC 3339).
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T09:00:00Z")]
    pub deadline: Option<Cow<'a, str>>,
    /// How long it may wait before its first start, such as `"5m"`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "5m")]
    pub queue_timeout: Option<Cow<'a, str>>,
    /// How long one attempt may run, such as `"30s"`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30s")]
    pub timeout: Option<Cow<'a, str>>,
    /// The retry policy.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub retry: Option<RetryRequest<'a>>,
    /// The client's own name for this request. A second request with the same key returns the first job. The header
    /// `Idempotency-Key` has the same meaning.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Cow<'a, str>>,
    /// Free labels, at most 16.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Cow<'a, str>>>,
    /// The http or https URL that receives a POST with the job when it has ended.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "https://hooks.example/done")]
    pub callback: Option<Cow<'a, str>>,
    /// The units of the machine that it holds while it runs, 0 to 100. Defaults to 0. The server rejects a job that
    /// costs more than an idle machine has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    /// The least quiet state of the machine in which it may start: `quiet`, `normal` or `busy`. Defaults to any.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "quiet")]
    pub quiet: Option<Cow<'a, str>>,
    /// The only hours in which it may start, in UTC or in a time zone.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "22:00-06:00 Europe/Berlin")]
    pub hours: Option<Cow<'a, str>>,
    /// How long it will probably run. The server uses it to decide when the deadline is near.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2m")]
    pub expected_duration: Option<Cow<'a, str>>,
    /// True: only a worker without another lease gets it. For lanes of pull workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<bool>,
    /// The placement constraints: what it requires of its worker.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub worker: Option<WorkerConstraints<'a>>,
    /// The caller's place in its trace, as the header `traceparent` of W3C Trace Context has it. Defaults to that header. It does
    /// not count for the idempotency key.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
    pub traceparent: Option<Cow<'a, str>>,
    /// The `tracestate` that belongs to `traceparent`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "vendor=value")]
    pub tracestate: Option<Cow<'a, str>>,
}

/// A session: its name, or an object with its name and settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum SessionRequest<'a> {
    /// One job at a time.
    Key(Cow<'a, str>),
    /// With settings.
    Object(SessionObject<'a>),
}

/// A session and the settings of this job. They apply to this job only.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionObject<'a> {
    /// The session's name.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
    /// True: the fields that are absent here take the server's `[chat]` defaults (at most 10 wait, the oldest is
    /// dropped, 800 ms of debounce). Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<bool>,
    /// The effect on earlier jobs of the session: `queue` and `followup` (this job waits behind them) or `interrupt`
    /// (this job cancels them). Defaults to `queue`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "interrupt")]
    pub mode: Option<Cow<'a, str>>,
    /// How many jobs of the session may wait when this one arrives. Defaults to no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// What happens when `cap` is reached: `old` (the oldest waiting job is dropped) or `new` (this job is rejected).
    /// Defaults to `old`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "new")]
    pub drop: Option<Cow<'a, str>>,
    /// Jobs that arrive within this time of one another run as one. Defaults to none. `"0s"` joins a debounce batch
    /// and closes it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "800ms")]
    pub debounce: Option<Cow<'a, str>>,
    /// The longest time by which later jobs may delay the first one. Defaults to ten times `debounce`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "8s")]
    pub debounce_max: Option<Cow<'a, str>>,
    /// How many jobs of the session may run at once while this job is first in its queue. Defaults to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// When the sender sent it (RFC 3339). The server rejects the job as stale when this is before the session's
    /// cutoff.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T08:00:00Z")]
    pub sent_at: Option<Cow<'a, str>>,
}

/// The changes of a waiting job. An absent field stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobPatchRequest<'a> {
    /// Its priority: a number, or one of `urgent`, `high`, `normal`, `low`, `background`. A lower number runs sooner.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority<'a>>,
    /// When it starts at the earliest (RFC 3339). A time in the past means now. It becomes the job's `not_before`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T08:00:00Z")]
    pub run_at: Option<Cow<'a, str>>,
    /// The same as a duration from now; `0s` means now. Not together with `run_at`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10m")]
    pub delay: Option<Cow<'a, str>>,
}

/// A priority: a number or a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Priority<'a> {
    /// A lower number runs sooner.
    Number(i32),
    /// `urgent`, `high`, `normal`, `low` or `background`, in any case.
    Name(Cow<'a, str>),
}

/// The named resources in the order of the request. Repeated names are kept, so that the server can reject them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyMap<'a>(pub Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// The retry policy. An absent field takes the default of the kind, then of the server.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryRequest<'a> {
    /// How many failed attempts are retried. 0 means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_max: Option<u32>,
    /// How many lost attempts are retried. 0 means that a lost attempt ends the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses_max: Option<u32>,
    /// The wait before the next attempt: the name of a preset (`standard`, `cron`) or an object.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffRequest<'a>>,
}

/// The wait before the next attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum BackoffRequest<'a> {
    /// `standard`: min(1 s × 2ⁿ + up to 1 s, 60 s). `cron`: min(2 s × 2ⁿ, 30 s) ± 25 %.
    Preset(Cow<'a, str>),
    /// The parameters of the wait.
    Spec(BackoffSpec<'a>),
}

/// A wait that grows: `min(base × factor^n, max)`, with `jitter`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackoffSpec<'a> {
    /// The first wait. Defaults to `"1s"`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1s")]
    pub base: Option<Cow<'a, str>>,
    /// The factor between one wait and the next. Defaults to 2. 1 means a constant wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<u32>,
    /// The longest wait. Defaults to `"60s"`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "60s")]
    pub max: Option<Cow<'a, str>>,
    /// The random part of the wait. Defaults to none.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub jitter: Option<JitterRequest<'a>>,
}

/// The random part of a wait. Use one of the two fields.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterRequest<'a> {
    /// Adds up to this much.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1s")]
    pub add: Option<Cow<'a, str>>,
    /// Adds or subtracts up to this many percent (0 to 100).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

impl<'de: 'a, 'a> Deserialize<'de> for SessionRequest<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = SessionRequest<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a session's name, or an object with `key`")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(SessionRequest::Key(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(SessionRequest::Key(Cow::Owned(text.to_owned())))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                SessionObject::deserialize(MapAccessDeserializer::new(map)).map(SessionRequest::Object)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Priority<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Priority<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "an integer from -2147483648 to 2147483647, or one of urgent, high, normal, low, background",
                )
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                i32::try_from(number)
                    .map(Priority::Number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
                i32::try_from(number)
                    .map(Priority::Number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Priority::Name(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Priority::Name(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for BackoffRequest<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = BackoffRequest<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`standard`, `cron`, or an object with `base`, `factor`, `max` and `jitter`")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(BackoffRequest::Preset(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(BackoffRequest::Preset(Cow::Owned(text.to_owned())))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                BackoffSpec::deserialize(MapAccessDeserializer::new(map)).map(BackoffRequest::Spec)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for KeyMap<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = KeyMap<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of names and values, both texts")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Text(name), Text(value))) = map.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(KeyMap(pairs))
            }
        }
        deserializer.deserialize_map(Shape)
    }
}

/// A string that borrows where it can. `Cow` alone never borrows inside a map.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Serialize for KeyMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(feature = "schemas")]
impl utoipa::PartialSchema for KeyMap<'_> {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        <std::collections::BTreeMap<String, String> as utoipa::PartialSchema>::schema()
    }
}

#[cfg(feature = "schemas")]
impl ToSchema for KeyMap<'_> {}
