//! The loop that drives the engine, the scheduler handle, executors and the configuration.
//!
//! Every caller sends its requests through a [`Scheduler`]. Behind it, one thread runs the loop (`event_loop.rs`): it takes
//! commands, lets the engine decide, commits, and only then publishes ([`Driver`]). It publishes replies to callers,
//! attempts to executors (`executors.rs`) and events to the event bus (`events.rs`). This crate makes no decisions about
//! jobs: those are in `laneway-core`. It writes no rows: that is `laneway-store`.

pub mod additions;
pub mod artifacts;
pub mod audit_rate;
pub mod batch;
pub mod bindings;
pub mod caller;
pub mod clock;
pub mod config;
pub mod cursor;
mod damage;
pub mod dialect;
pub mod drain;
pub mod event_loop;
pub mod events;
pub mod executors;
pub mod failure_log;
pub mod feedback;
pub mod history;
pub mod job_log;
pub mod live_config;
pub mod metrics;
pub mod otel;
mod payload_cache;
pub mod probes;
mod queries;
pub mod records;
mod retries;
pub mod runs;
pub mod scheduler;
pub mod schedules;
pub mod sessions;
pub mod shares;
pub mod sse;
pub mod storage_probe;
pub mod store_probe;
pub mod tenant_permits;
mod tokens;
pub mod unauthenticated;
mod waiters;
pub mod webhooks;
pub mod websocket;
pub mod workers;

pub use additions::Prepare;
pub use artifacts::{ARTIFACTS, ArtifactFiles, ArtifactId, LOCAL_WORKER, Part, PartOrder, PartTrouble};
pub use batch::{Batch, Committed, Driver};
pub use caller::Caller;
pub use clock::Clock;
pub use event_loop::{Fatal, Options, Running, StartError};
pub use events::{EventBus, EventRef, Frames, Interest, Item, Jobs, Progress, Representation, Subscription};
pub use executors::{Executor, Handler, Handlers, IntoOutcome, JobContext, Offered, Work};
/// The types that readers of the store return, for callers of [`Scheduler::read`].
pub use laneway_store as store;
pub use metrics::Metrics;
pub use probes::{ApiMeter, LoadProbe};
pub use records::RecordError;
pub use retries::Retried;
pub use runs::RunView;
pub use scheduler::{ReadError, Scheduler, Stopped, TokenTable, WaitError};
pub use sessions::{SessionsReset, TokenEstimate};
pub use shares::{NoShare, Share, Shares};
pub use store_probe::StoreHealth;
pub use tenant_permits::TenantPermits;
pub use webhooks::Webhooks;
pub use workers::{BoundTask, PackageOrder, Report, ToWorker, WorkerLink, WorkerRun, WorkerTask};
