//! The history of the last hour and the last day.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What happened in the last hour or the last day. A token that is bound to a tenant sees that tenant only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatsHistory {
    /// `1h` or `1d`.
    pub range: String,
    /// The length of an interval in seconds: 60 for `1h`, 900 for `1d`.
    pub interval_s: u32,
    /// One for each interval, oldest first: 60 for `1h`, 96 for `1d`. The last one is not over yet.
    pub points: Vec<HistoryPoint>,
    /// The sum of all intervals.
    pub total: HistoryActivity,
    /// The sums by lane and kind, those with the most jobs first. One without lane and kind has all others.
    pub groups: Vec<HistoryGroup>,
    /// The intervals by lane.
    pub lanes: Vec<LaneHistory>,
}

/// An interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryPoint {
    /// When it began.
    pub at: String,
    /// Jobs that were admitted.
    pub submitted: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// How long jobs waited for their first attempt.
    pub wait: Times,
    /// How long attempts ran, without lost ones.
    pub run: Times,
    /// Jobs that waited: the sum of the highest samples of the lanes.
    pub waiting: u64,
    /// Open attempts: the sum of the highest samples of the lanes.
    pub running: u64,
    /// The load of the machine. Absent: it was not sampled, because nothing happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<HistoryLoad>,
}

/// The load of the machine in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryLoad {
    /// The highest busy rating, 0 to 10.
    pub busy: u8,
    /// The fewest units that jobs might hold.
    pub usable: u32,
    /// The most units that jobs held.
    pub used: u32,
}

/// What happened to jobs. Each end counts once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryActivity {
    /// Jobs that were admitted.
    pub submitted: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// How long jobs waited for their first attempt.
    pub wait: Times,
    /// How long attempts ran, without lost ones.
    pub run: Times,
}

/// Percentiles of times. Each is off by at most 1/16. They are absent if nothing was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Times {
    /// How many times were counted.
    pub count: u64,
    /// The median, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// 95 % of the times are at most this long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// 99 % of the times are at most this long, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
}

/// The sum of a lane and a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryGroup {
    /// The lane. Absent: all lanes and kinds without a group of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Jobs that were admitted.
    pub submitted: u64,
    /// Jobs that succeeded.
    pub succeeded: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were canceled.
    pub canceled: u64,
    /// How long jobs waited for their first attempt.
    pub wait: Times,
    /// How long attempts ran, without lost ones.
    pub run: Times,
}

/// The intervals of a lane. Each list has as many entries as there are points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LaneHistory {
    /// The lane.
    pub lane: String,
    /// Jobs that were admitted.
    pub submitted: Vec<u64>,
    /// Jobs that ended.
    pub ended: Vec<u64>,
    /// Jobs that failed.
    pub failed: Vec<u64>,
    /// The highest sample of the jobs that waited.
    pub waiting: Vec<u64>,
    /// The highest sample of the open attempts.
    pub running: Vec<u64>,
}
