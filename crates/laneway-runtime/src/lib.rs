//! The loop that drives the engine, the handle everybody holds, executors, configuration.
//!
//! [`Scheduler`] is the handle: every surface of the house asks through it. Behind it one thread runs THE loop
//! (`event_loop.rs`): take commands, decide, commit, and only then publish ([`Driver`]). Results go to callers, to places that
//! run jobs (`executors.rs`) and to the event bus (`events.rs`). This crate decides nothing about jobs: that is
//! `laneway-core`; and it writes no rows: that is `laneway-store`.

pub mod artifacts;
pub mod batch;
pub mod bindings;
mod cache;
pub mod caller;
pub mod clock;
pub mod config;
pub mod cursor;
pub mod dialect;
pub mod drain;
pub mod event_loop;
pub mod events;
pub mod executors;
pub mod failure_log;
pub mod feedback;
pub mod job_log;
pub mod live_config;
pub mod metrics;
mod news;
pub mod note_limits;
pub mod probes;
mod queries;
pub mod runs;
pub mod scheduler;
pub mod schedules;
pub mod sessions;
pub mod shares;
pub mod storage_probe;
mod tokens;
pub mod turns;
pub mod unauthenticated;
mod waiters;
pub mod webhooks;
pub mod workers;

pub use artifacts::{ARTIFACTS, ArtifactId, Part, PartOrder, PartTrouble};
pub use batch::{Batch, Committed, Driver};
pub use caller::Caller;
pub use clock::Clock;
pub use event_loop::{Fatal, Options, Running, StartError};
pub use events::{EventBus, EventRef, Frames, Interest, Item, Jobs, Progress, Representation, Subscription};
pub use executors::{Handler, Handlers, IntoOutcome, JobContext, Offered, Place, Work};
/// What readers of the store give, for the surfaces that [`Scheduler::read`] it.
pub use laneway_store as store;
pub use metrics::Metrics;
pub use probes::{ApiMeter, LoadProbe};
pub use runs::RunView;
pub use scheduler::{ReadError, Retried, Scheduler, Stopped, TokenTable, WaitError};
pub use sessions::{SessionsReset, TokenEstimate};
pub use shares::{NoShare, Share, Shares};
pub use turns::Turns;
pub use webhooks::Webhooks;
pub use workers::{BoundTask, PackageOrder, Report, ToWorker, WorkerLink, WorkerRun, WorkerTask};
