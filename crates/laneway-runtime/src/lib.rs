//! The loop that drives the engine, the handle everybody holds, executors, configuration.
//!
//! [`Scheduler`] is the handle: every surface of the house asks through it. Behind it one thread runs THE loop
//! (`run.rs`): take commands, decide, commit, and only then tell ([`Turn`]). What is told goes to callers, to places that
//! run jobs (`executors.rs`) and to the event bus (`events.rs`). This crate decides nothing about jobs: that is
//! `laneway-core`; and it writes no rows: that is `laneway-store`.

pub mod agent_turn;
pub mod artifacts;
pub mod bindings;
mod cache;
pub mod caller;
pub mod clock;
pub mod config;
pub mod drain;
pub mod events;
pub mod executors;
pub mod feedback;
pub mod job_log;
pub mod live_config;
pub mod metrics;
mod news;
pub mod note_limits;
pub mod outbound;
pub mod probes;
pub mod run;
pub mod runs;
pub mod scheduler;
pub mod schedules;
pub mod sessions;
pub mod storage_probe;
pub mod tabs;
pub mod turn;
mod waiters;
pub mod webhooks;
pub mod workers;

pub use artifacts::{ARTIFACTS, ArtifactId, Part, PartOrder, PartTrouble};
pub use caller::Caller;
pub use clock::Clock;
pub use events::{EventBus, Item, Progress, Subscription};
pub use executors::{Handler, Handlers, IntoOutcome, JobContext, Offered, Place, Work};
/// What readers of the store give, for the surfaces that [`Scheduler::query`] it.
pub use laneway_store as store;
pub use metrics::Metrics;
pub use probes::{ApiMeter, LoadProbe};
pub use run::{Fatal, Options, Running, StartError};
pub use runs::RunView;
pub use scheduler::{QueryError, Retried, Scheduler, Stopped, TokenTable, WaitError};
pub use sessions::TokenEstimate;
pub use tabs::Tabs;
pub use turn::{Told, Turn};
pub use webhooks::Webhooks;
pub use workers::{BoundTask, PackageOrder, ToWorker, WorkerLink, WorkerRun, WorkerTask};
