//! The objects of the dialect on the wire. Absent values are `null`, except in health checks.

use serde::Serialize;
use serde_json::Value;

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Its id.
    pub job_id: String,
    /// Its kind.
    pub job_type: String,
    /// The name of its state.
    pub status: &'static str,
    /// What it returned.
    pub result: Value,
    /// Why it failed, or why its last attempt did.
    pub error_message: Option<String>,
    /// How often it was tried again.
    pub retry_count: u32,
    /// How often it may be tried again.
    pub max_retries: u32,
    /// How long one attempt may run.
    pub timeout_seconds: Option<u64>,
    /// When it was enqueued.
    pub created_at: String,
    /// When its last attempt started.
    pub started_at: Option<String>,
    /// When it ended.
    pub finished_at: Option<String>,
}

/// A job that was enqueued.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    /// Its id.
    pub job_id: String,
    /// The name of its state.
    pub status: &'static str,
}

/// The job that an idempotency key stands for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Existing {
    /// Its id.
    pub job_id: String,
    /// The name of its state.
    pub status: &'static str,
    /// What it returned.
    pub result: Value,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Always true.
    pub idempotent: bool,
}

/// A page of a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageOf<T> {
    /// The entries.
    pub list: Vec<T>,
    /// Its number, from 1.
    pub page_num: u64,
    /// How many entries it has at most.
    pub page_size: u64,
    /// True: another page follows.
    pub has_more: bool,
}

/// A line of a job's log: what a handler wrote, or a transition of the job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    /// When it was written.
    pub timestamp: String,
    /// `DEBUG`, `INFO`, `WARN` or `ERROR`.
    pub level: &'static str,
    /// The job.
    pub job_id: String,
    /// The attempt; 0 before the first.
    pub attempt: u32,
    /// `agent` for transitions, otherwise the stream: `log`, `stdout`, `stderr`, ….
    pub source: String,
    /// The text.
    pub message: String,
}

/// The log of a job.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobLogs {
    /// The job.
    pub job_id: String,
    /// The lines, oldest first.
    pub lines: Vec<LogEntry>,
    /// True: older lines are left out.
    pub truncated: bool,
}

/// A file that a job created.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// Its media type.
    pub content_type: Option<String>,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// The attempt that created it.
    pub attempt: u32,
    /// When it expires.
    pub expires_at: Option<String>,
    /// Where it can be downloaded.
    pub url: String,
}

/// The files of a job.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobArtifacts {
    /// The job.
    pub job_id: String,
    /// The files, in the order of their creation.
    pub artifacts: Vec<Artifact>,
}

/// The health of the agent, in the words of the original: snake case, and no envelope.
#[derive(Debug, Serialize)]
pub struct Health {
    /// `ok` or `degraded`.
    pub status: &'static str,
    /// Why it is degraded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The version of the program.
    pub agent_version: &'static str,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// The jobs.
    pub queue: HealthQueue,
    /// The browsers.
    pub browsers: HealthBrowsers,
    /// How the store answers.
    pub db: &'static str,
    /// The time of the agent.
    pub timestamp: String,
}

/// The jobs of the agent.
#[derive(Debug, Serialize)]
pub struct HealthQueue {
    /// How many wait.
    pub queued: u64,
    /// How many run.
    pub running: u64,
    /// How many may run.
    pub max_concurrent: u32,
}

/// The browsers of the agent.
#[derive(Debug, Serialize)]
pub struct HealthBrowsers {
    /// How many are open.
    pub active: u64,
    /// How many may be open.
    pub max: u32,
}

/// A profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `active` or `trashed`.
    pub status: &'static str,
    /// True while its browser is open.
    pub is_open: bool,
    /// The proxy, without its password.
    pub proxy: Option<Value>,
    /// The window.
    pub window: Option<Window>,
    /// The user agent.
    pub user_agent: Option<String>,
    /// The language.
    pub locale: Option<String>,
    /// The time zone.
    pub time_zone: Option<String>,
    /// The profile that it is a copy of.
    pub cloned_from: Option<String>,
    /// When it was created.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
    /// When it was moved to the recycle bin.
    pub trashed_at: Option<String>,
}

/// The size of a window in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// Its width.
    pub width: u32,
    /// Its height.
    pub height: u32,
}

/// A page of profiles.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfilePage {
    /// The profiles.
    pub list: Vec<ProfileView>,
    /// Its number, from 1.
    pub page_num: u64,
    /// How many profiles it has at most.
    pub page_size: u64,
    /// How many profiles all pages have.
    pub total: usize,
}

/// The outcome of moving profiles to the recycle bin.
#[derive(Debug, Serialize)]
pub struct Removed {
    /// The ids of those that are there now.
    pub removed: Vec<String>,
    /// The others.
    pub failed: Vec<NotRemoved>,
}

/// A profile that was not moved.
#[derive(Debug, Serialize)]
pub struct NotRemoved {
    /// Its id.
    pub id: String,
    /// The code of the error.
    pub code: i32,
    /// The error.
    pub msg: String,
}
