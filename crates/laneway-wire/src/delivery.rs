//! Deliveries: the news of ended jobs, told to the address that their submitters named.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The delivery of a job's end. A job has at most one, and it is named by the job's id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// The job whose end is told.
    pub job_id: String,
    /// `waiting`, `delivered`, `failed` or `dropped` (never tried: too many others waited).
    pub state: String,
    /// The tenant that may see it.
    pub tenant: String,
    /// Where it goes. Only where one delivery is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Tries that have ended.
    pub tries: u32,
    /// When the job ended.
    pub created_at: String,
    /// When it is tried next, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// When it stopped waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// What the last try was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_status: Option<u16>,
    /// What was wrong with the last try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The tries, oldest first. Only where one delivery is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<DeliveryTry>,
}

/// One try at a delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryTry {
    /// 1, 2, 3, … within the delivery.
    pub number: u32,
    /// When it ended.
    pub at: String,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// What it was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What was wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Deliveries, newest job first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryList {
    /// A page of deliveries. It may be short, or empty, while there is still a `next`.
    pub deliveries: Vec<Delivery>,
    /// Pass it as `cursor`, with the same filters, for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
