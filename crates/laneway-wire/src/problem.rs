//! The form of every error (RFC 9457).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error, sent as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URI that identifies the type of error.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The type of error in a few words. It is the same for every error of the type.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong, and the remedy.
    pub detail: String,
    /// A stable code for programs.
    pub code: Cow<'static, str>,
    /// The path of the field, such as `retry.backoff.base`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The id of the request, as in the header `request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// After how many milliseconds a new request may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}
