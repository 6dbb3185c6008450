//! The types of the HTTP API and the frames of the worker protocol.
//!
//! Servers, clients and the command line share these types, so that each field is defined once. They have no behaviour:
//! the server checks values where it converts requests to commands. Objects that a client sends reject unknown and
//! repeated fields. Objects that a server sends may gain fields, and readers skip fields that they do not know. The one
//! exception is [`resend`], the state machine that both sides of the worker protocol share.

// Builds without the feature `schemas` generate none.
#[cfg(not(feature = "schemas"))]
extern crate laneway_no_schema as schemars;
#[cfg(not(feature = "schemas"))]
extern crate laneway_no_schema as utoipa;

mod artifact;
mod attempt;
mod batch;
mod browser;
mod config;
mod delivery;
mod event;
mod explanation;
pub mod frame;
mod history;
mod instance;
mod job;
mod job_request;
pub mod json;
mod lane;
mod lease;
mod log;
mod object;
mod operation;
mod problem;
mod profile;
pub mod resend;
mod run;
mod schedule;
mod schedule_request;
mod server;
mod session;
mod stats;
mod token;
mod worker;

#[cfg(test)]
mod tests;

pub use artifact::{ArtifactList, JobArtifact};
pub use attempt::{Attempt, AttemptList};
pub use batch::{BATCH_JOBS_MAX, BatchItem, BatchRequest, BatchResponse};
pub use browser::{BrowserList, BrowserTab, BrowserTabList, OpenBrowser, StartBrowserRequest};
pub use config::ConfigReload;
pub use delivery::{Delivery, DeliveryList, DeliveryTry};
pub use event::{
    AuditEntry, AuditList, Event, EventError, EventJob, EventList, EventRun, EventSchedule, Gap,
};
pub use explanation::{Blocker, Explanation};
pub use history::{
    HistoryActivity, HistoryGroup, HistoryLoad, HistoryPoint, LaneHistory, StatsHistory, Times,
};
pub use instance::{Instance, InstanceList, InstanceRequest};
pub use job::{Job, JobCounts, JobError, JobGroup, JobList, JobProgress, JobSchedule, Progress, Warning};
pub use job_request::{
    BackoffRequest, BackoffSpec, JitterRequest, JobPatchRequest, JobRequest, KeyMap, Priority, RetryRequest,
    SessionObject, SessionRequest,
};
pub use lane::{Lane, LaneList, LaneRequest, OldestJob};
pub use lease::{
    AgentUnits, Capacity, Lease, LeaseAlive, LeaseAnswer, LeaseBeat, LeaseError, LeaseList, LeaseRelease,
    LeaseReport, LeaseRequest, LeaseRevoke,
};
pub use log::{LogLine, LogList};
pub use object::{Object, UpTo};
pub use operation::{BulkRequest, JobSelection, Operation, OperationList};
pub use problem::Problem;
pub use profile::{
    Profile, ProfileList, ProfilePatchRequest, ProfileProxy, ProfileRequest, ProfileWindow, ProxyRequest,
};
pub use run::{NodeBinding, NodeChain, NodeRequest, Run, RunError, RunList, RunNode, RunRequest};
pub use schedule::{
    PreviewedFiring, Schedule, ScheduleFiredByHand, ScheduleFiring, ScheduleFiringList, ScheduleList,
    SchedulePreview,
};
pub use schedule_request::{
    CatchUpObject, CatchUpRequest, FireScheduleRequest, PreviewRequest, SchedulePatchRequest, ScheduleRequest,
};
pub use server::{Drain, Health, HealthQueue, Index, Readiness};
pub use session::{Session, SessionList, SessionStopped, SessionUsageRequest, SessionsReset};
pub use stats::{AgentStats, Counts, Stats};
pub use token::{Caller, RotateTokenRequest, Token, TokenList, TokenRequest, TokenSecret};
pub use worker::{
    AffinityConstraint, DrainRequest, PackageConstraint, PackageRequest, RebindRequest, ResourceConstraint,
    Worker, WorkerCommandSent, WorkerConstraints, WorkerList, WorkerPackage,
};
