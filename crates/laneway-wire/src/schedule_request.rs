//! What a client sends to make, change, run or try out a schedule.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{JobRequest, object};

/// A schedule to make: a name, a job, and one of `cron`, `every` and `at`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest<'a> {
    /// Its name, unique within its tenant.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// By a cron expression: five fields, or six with the second first, or a name such as `@daily`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * 1-5")]
    pub cron: Option<Cow<'a, str>>,
    /// The IANA time zone whose clock the expression goes by. Defaults to `schedules.zone` of the configuration.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<Cow<'a, str>>,
    /// Again and again, in this interval.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30m")]
    pub every: Option<Cow<'a, str>>,
    /// Where the grid of the interval begins (RFC 3339). Defaults to now.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T00:00:00Z")]
    pub anchor: Option<Cow<'a, str>>,
    /// Once, at this time (RFC 3339).
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2030-01-01T08:00:00Z")]
    pub at: Option<Cow<'a, str>>,
    /// What each slot makes: the same object as in `POST /v1/jobs`, without times and idempotency key. Its lane defaults
    /// to `cron`, its timeout and retries to those of `[schedules]`.
    #[serde(borrow, deserialize_with = "object::required")]
    pub job: JobRequest<'a>,
    /// False: no slot comes until it is resumed. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// What becomes of slots that passed while the server was not there: `"skip"`, `"latest"`, or `{"all": 100}`.
    /// Defaults to `"skip"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUpRequest>,
    /// What a slot does that finds an earlier run still going: `skip`, `allow`, `queue` or `cancel_running`. Defaults to
    /// `skip`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Cow<'a, str>>,
    /// Jobs start up to this much after their slot, each slot by an amount of its own. Defaults to none.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30s")]
    pub jitter: Option<Cow<'a, str>>,
    /// True: it is deleted once its run has ended. Defaults to true with `at`, else to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_after_run: Option<bool>,
}

/// What is to be changed of a schedule: a merge patch of the object that made it. What is absent stays, `null` takes the
/// default again. One of `cron`, `every` and `at` replaces the timing; `job` is merged field by field, and its payload is
/// replaced as a whole.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulePatchRequest<'a> {
    /// A new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// From now on by this expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// A new time zone for the expression.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub zone: Option<Option<String>>,
    /// From now on in this interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// Where the grid of the interval begins (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub anchor: Option<Option<String>>,
    /// Once, at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Fields of the job.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub job: Option<&'a RawValue>,
    /// On or off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// A new policy for missed slots.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<CatchUpRequest>)]
    pub catch_up: Option<Option<CatchUpRequest>>,
    /// A new policy for slots that meet a run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub overlap: Option<Option<String>>,
    /// A new jitter.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<String>)]
    pub jitter: Option<Option<String>>,
    /// Deleted after its run, or not.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::nullable")]
    #[schema(value_type = Option<bool>)]
    pub delete_after_run: Option<Option<bool>>,
}

/// What becomes of slots that passed while the server was not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CatchUpRequest {
    /// `skip`: none runs. `latest`: the newest runs. `all`: each runs, as far as 100 of them are behind.
    Name(String),
    /// Each runs, oldest first, up to a number.
    Object(CatchUpObject),
}

/// Each missed slot runs, oldest first; where there are more, the newest so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CatchUpObject {
    /// How many at most, 1 to 10000.
    pub all: u32,
}

/// How a run by hand is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FireScheduleRequest {
    /// `force`: now, whatever the timing says. `due`: only if a slot has come that was not looked at yet. Defaults to
    /// `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// A timing to try out: one of `cron`, `every` and `at`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewRequest {
    /// A cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * 1-5")]
    pub cron: Option<String>,
    /// The IANA time zone of the expression, and of the local times in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    pub zone: Option<String>,
    /// An interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "30m")]
    pub every: Option<String>,
    /// Where the grid of the interval begins (RFC 3339). Defaults to `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// A time (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Runs after this time (RFC 3339). Defaults to now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How many runs, 1 to 100. Defaults to 5.
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
