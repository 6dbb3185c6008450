//! What every error looks like (RFC 9457).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error, sent as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URI that names the sort of error.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The sort of error in a few words; the same for every error of the sort.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong this time, and what to do about it.
    pub detail: String,
    /// A stable word for programs.
    pub code: Cow<'static, str>,
    /// The path of the field that was wrong, such as `retry.backoff.base`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The id of the call, as in the header `request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// After how many milliseconds asking again may help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}
