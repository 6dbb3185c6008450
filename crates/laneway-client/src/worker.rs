//! The SDK for push workers: it connects to a server, receives tasks, runs handlers and delivers results.
//!
//! ```no_run
//! use laneway_client::worker::{Outcome, Worker};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let worker = Worker::builder("ws://127.0.0.1:7717/v1/workers/connect", "resizer-1")
//!     .max_parallel(4)
//!     .handler("resize", |task| async move {
//!         task.progress(0.5, "half way");
//!         Outcome::of(&serde_json::json!({"width": 640}))
//!     })
//!     .build()?;
//! worker.run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees: an attempt of a task runs at most once, however often its dispatch arrives. An outcome is sent
//! until it is acknowledged, however often the connection breaks. No attempt runs longer than its lease, so an
//! attempt that the scheduler has given to another worker does not run twice at the same time.

mod builder;
mod connect;
mod ended;
mod handlers;
mod metrics;
mod outbox;
mod packages;
mod protocol;
mod resources;
mod run;
mod state;
mod task;
mod tasks;
mod vitals;

#[cfg(test)]
mod samples;

pub use builder::{BuildError, Offer, TokenSource, Worker, WorkerBuilder, WorkerHandle};
pub use connect::{ConnectError, TlsFiles};
pub use ended::{Failure, Outcome};
pub use handlers::{Handler, Ran};
pub use packages::{
    ARCHIVE_LEN_MAX, ENTRIES_MAX, InstalledPackage, Loader, MANIFEST_LEN_MAX, UNPACKED_LEN_MAX,
};
pub use protocol::Thresholds;
pub use resources::{
    RESOURCE_BYTES_MAX, RESOURCE_FILE_BYTES_MAX, RESOURCE_READ_HOLD, RESOURCE_TTL, RESOURCES_MAX,
    ResourceBody, Resources, Scope,
};
pub use run::WorkerError;
pub use state::WorkerState;
pub use task::{NextError, Task};
