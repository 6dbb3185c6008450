//! Webhook deliveries: one POST for the end of each job that has a callback.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The webhook delivery of a job's end. A job has at most one, and the job's id is its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// The job whose end is delivered.
    pub job_id: String,
    /// `waiting`, `delivered`, `failed`, or `dropped` (never tried, because too many others waited).
    pub state: String,
    /// The tenant that may see it.
    pub tenant: String,
    /// The callback URL. Only in the response for a single delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The number of tries that have ended.
    pub tries: u32,
    /// When the job ended.
    pub created_at: String,
    /// The time of the next try, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// When it was delivered, failed or dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The HTTP status of the last try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<u16>,
    /// The error of the last try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The tries, oldest first. Only in the response for a single delivery.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<DeliveryTry>,
}

/// One try of a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryTry {
    /// 1, 2, 3, … within the delivery.
    pub number: u32,
    /// When it ended.
    pub at: String,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The HTTP status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error, if the try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Deliveries, newest job first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryList {
    /// A page of deliveries. It may be short or empty although there is a `next`.
    pub deliveries: Vec<Delivery>,
    /// Pass it as `cursor`, with the same filters, for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
