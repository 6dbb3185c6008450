//! The engine of Laneway: commands and time in, effects out.
//!
//! This crate makes every decision: which jobs are admitted, which one runs next, what a late report changes, when to
//! try again. It does no I/O, reads no clock, draws no randomness of its own and starts no thread, so that the same
//! commands at the same times have the same effects, byte for byte. It does not store, send or parse anything. That
//! is the work of `laneway-store`, `laneway-runtime` and the crates above them.

pub mod attempt;
pub mod call;
pub mod capacity;
pub mod command;
pub mod delivery;
pub mod effect;
pub mod engine;
pub mod event;
pub mod full;
pub mod id;
pub mod job;
pub mod kept_keys;
pub mod lease;
pub mod name;
pub mod nearest;
pub mod query;
pub mod record;
pub mod reply;
pub mod retry;
pub mod run;
pub mod schedule;
pub mod seed;
pub mod settings;
pub mod share;
pub mod time;
pub mod token;
pub mod trace;
pub mod worker;

pub use attempt::{AttemptEnd, ClosedAttempt, Failure, Fence, OpenAttempt, Outcome};
pub use call::{CALL_PAYLOAD_BYTES_MAX, CallRow, Chain, NextAnswer, NextCall, NextCode};
pub use capacity::{CapacityRequest, CapacitySettings, LoadReading, QuietRule, QuietState};
pub use command::{
    Command, ExecutorMode, ExecutorOffer, Origin, Prior, RecordCommand, Rejection, RejectionCode, Reply,
    SessionStopped, StopWhat, Submission,
};
pub use delivery::{DeliveryRow, DeliveryState, DeliveryTry, TryOutcome};
pub use effect::{Change, Effects, Notice};
pub use engine::{Engine, Recovery};
pub use event::{Event, EventKind};
pub use full::{CapScope, Full};
pub use id::{AttemptId, JobId, RunId, ScheduleId, Seq};
pub use job::{
    Callback, DropPolicy, JobEnd, JobPatch, JobRow, JobSpec, JobState, JobStatus, Key, MergedInto, Reason,
    Session, SessionMode, SessionRow, StartAt, StoredJob,
};
pub use kept_keys::{KeptKeys, KeyUse};
pub use lease::{Claim, Denial, DenyReason, Dispatch, Grant, Holder, LostPolicy, PullSettings};
pub use name::{Name, NameError};
pub use query::{Answer, LaneUse, Query};
pub use record::{Record, RecordName};
pub use retry::{Backoff, Jitter, RetryPolicy};
pub use run::{
    Binding, EndedMember, FailurePolicy, Member, MemberOf, PriorRun, RunRow, RunSpec, RunState,
    RunSubmission, RunSubmitted,
};
pub use schedule::{
    CatchUp, FiringLogEntry, FiringStatus, Overlap, Schedule, SchedulePatch, ScheduleRef, ScheduleSpec,
    ScheduleState, Timing, TimingError,
};
pub use seed::Seed;
pub use settings::{LaneOrder, LaneSettings, RunSettings, Settings, ShutdownPolicy};
pub use time::{Mono, Now, Span, Wall};
pub use token::{Role, TokenRecord};
pub use trace::{JobTrace, Sampling, SpanOf, TraceContext};
pub use worker::{ConnectionId, Placement, Task, TasksKept, WorkerOffer, WorkerSettings};

/// Opaque bytes of a change: payloads, results, error details. The engine sees only their length.
pub type Bytes = std::sync::Arc<[u8]>;
