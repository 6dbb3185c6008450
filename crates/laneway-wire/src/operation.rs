//! Bulk operations: one action on every job of a filter.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A bulk operation to start.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkRequest {
    /// What is done with each job: `cancel` (jobs that have not ended), `retry` and `delete` (jobs that have), `reschedule` and
    /// `change_priority` (jobs that wait).
    pub action: String,
    /// The jobs. At least one condition is required.
    pub filter: JobSelection,
    /// For `reschedule`: when the jobs start at the earliest (RFC 3339). A time in the past means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<String>,
    /// The same as a duration from now; `0s` means now. Not together with `run_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10m")]
    pub delay: Option<String>,
    /// For `change_priority`: the priority. A lower number runs sooner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// True: nothing is changed; the answer says how many jobs match.
    #[serde(default)]
    pub dry_run: bool,
}

/// The filters of `GET /v1/jobs`. A job must meet all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSelection {
    /// One or more states, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The code of the error that ended the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// One or more reasons of the end, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Words of the kind, the agent, the tags or the error, or the beginning or the end of an id (at least 8 digits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Only submitted before this time: RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<String>,
    /// Only submitted after this time: RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<String>,
    /// Only ended before this time: RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_before: Option<String>,
    /// Only ended after this time: RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_after: Option<String>,
}

impl JobSelection {
    /// The conditions, by their names.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let fields = [
            ("state", &self.state),
            ("lane", &self.lane),
            ("agent", &self.agent),
            ("kind", &self.kind),
            ("session", &self.session),
            ("tag", &self.tag),
            ("error_code", &self.error_code),
            ("reason", &self.reason),
            ("search", &self.search),
            ("created_before", &self.created_before),
            ("created_after", &self.created_after),
            ("finished_before", &self.finished_before),
            ("finished_after", &self.finished_after),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))).collect()
    }
}

/// A bulk operation. It runs in the background and goes on after a restart of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its id. Absent after a dry run, which is not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `running`, `done`, `canceled` or `failed`.
    pub state: String,
    /// What is done with each job: `cancel`, `retry`, `reschedule`, `delete` or `change_priority`.
    pub action: String,
    /// Of `reschedule`: when the jobs start at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<String>,
    /// Of `change_priority`: the priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The jobs.
    pub filter: JobSelection,
    /// True: nothing was changed.
    #[serde(default)]
    pub dry_run: bool,
    /// How many jobs matched when it started. Absent where counting them would take too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<u64>,
    /// Jobs for which the action succeeded so far.
    pub done: u64,
    /// Jobs for which it failed so far.
    pub failed: u64,
    /// The failed ones by the code of the error.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, u64>,
    /// Why the operation itself failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The tenant whose jobs it is about. Absent: those of all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The caller that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// Bulk operations, newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct OperationList {
    /// The open ones, and the latest that have ended.
    pub operations: Vec<Operation>,
}
