//! The requests that create, change, fire or preview a schedule.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{JobRequest, object};

/// A schedule to create: a name, a job, and one of `cron`, `every` and `at`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest<'a> {
    /// Its name, unique within its tenant.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// A cron expression: five fields, six fields with seconds first, or a name such as `@daily`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * 1-5")]
    pub cron: Option<Cow<'a, str>>,
    /// The IANA time zone of the expression. Defaults to `schedules.zone` of the configuration.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<Cow<'a, str>>,
    /// An interval.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30m")]
    pub every: Option<Cow<'a, str>>,
    /// The start of the interval's grid (RFC 3339). Defaults to now.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T00:00:00Z")]
    pub anchor: Option<Cow<'a, str>>,
    /// A single time (RFC 3339).
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T08:00:00Z")]
    pub at: Option<Cow<'a, str>>,
    /// The job that each slot creates: the same object as in `POST /v1/jobs`, without times and idempotency key. Its
    /// lane defaults to `cron`, its timeout and retries to those of `[schedules]`.
    #[serde(borrow, deserialize_with = "object::required")]
    pub job: JobRequest<'a>,
    /// False: it does not fire until it is enabled. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The policy for slots that passed while the server was down: `"skip"`, `"latest"`, or `{"all": 100}`. Defaults
    /// to `"skip"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUpRequest>,
    /// The policy for a slot that comes while an earlier firing is active: `skip`, `allow`, `queue` or
    /// `cancel_running`. Defaults to `skip`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Cow<'a, str>>,
    /// Jobs start up to this much after their slot, at random for each slot. Defaults to none.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30s")]
    pub jitter: Option<Cow<'a, str>>,
    /// True: the server deletes it when its job has ended. Defaults to true with `at`, otherwise to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
}

/// The changes to a schedule: a merge patch of the object that created it. An absent field keeps its value, `null`
/// restores the default. One of `cron`, `every` and `at` replaces the timing. `job` is merged field by field, and its
/// payload is replaced as a whole.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulePatchRequest<'a> {
    /// A new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The new time zone of the expression.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub zone: Option<Option<String>>,
    /// The new interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The start of the interval's grid (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub anchor: Option<Option<String>>,
    /// The new single time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The changed fields of the job.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub job: Option<&'a RawValue>,
    /// Whether it fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The new policy for missed slots.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<CatchUpRequest>)]
    pub catch_up: Option<Option<CatchUpRequest>>,
    /// The new policy for slots that come while a firing is active.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub overlap: Option<Option<String>>,
    /// The new jitter.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub jitter: Option<Option<String>>,
    /// Whether the server deletes it when its job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<bool>)]
    pub delete_after_run: Option<Option<bool>>,
}

/// The policy for slots that passed while the server was down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CatchUpRequest {
    /// `skip`: no missed slot fires. `latest`: the newest one fires. `all`: each fires, at most the newest 100.
    Name(String),
    /// Missed slots fire, oldest first, up to a number.
    Object(CatchUpObject),
}

/// Missed slots fire, oldest first. If there are more than the number, only the newest ones fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CatchUpObject {
    /// The largest number of slots, 1 to 10000.
    pub all: u32,
}

/// A manual fire.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FireScheduleRequest {
    /// `force`: fire now, whatever the timing. `due`: fire only if a slot has passed that was not processed yet.
    /// Defaults to `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// A timing to preview: one of `cron`, `every` and `at`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewRequest {
    /// A cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * 1-5")]
    pub cron: Option<String>,
    /// The IANA time zone of the expression and of the local times in the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<String>,
    /// An interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30m")]
    pub every: Option<String>,
    /// The start of the interval's grid (RFC 3339). Defaults to `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// A time (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Firings after this time (RFC 3339). Defaults to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The number of firings, 1 to 100. Defaults to 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

impl<'de> Deserialize<'de> for CatchUpRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = CatchUpRequest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`skip`, `latest`, or an object such as {\"all\": 100}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(CatchUpRequest::Name(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                CatchUpObject::deserialize(MapAccessDeserializer::new(map)).map(CatchUpRequest::Object)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}
