//! Laneway as a library: the same engine, loop and store as the server, inside your program.
//!
//! Start it with [`embedded`], give it handlers by kind, submit jobs, and wait for their ends:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use laneway::{Failure, Job};
//! use serde_json::json;
//!
//! let laneway = laneway::embedded()
//!     .in_memory()
//!     .handler("greet", |ctx| async move {
//!         let name: String = ctx.json()?;
//!         Ok::<_, Failure>(json!({"text": format!("hello {name}")}))
//!     })
//!     .start()
//!     .await?;
//!
//! let job = laneway.submit(Job::new("greet").json(&"world").agent("docs")).await?;
//! let end = job.wait().await?;
//! assert_eq!(end.json::<serde_json::Value>()?["text"], "hello world");
//! laneway.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! With [`Embedded::data_dir`] instead of [`Embedded::in_memory`], a job that [`Laneway::submit`] returned is on
//! disk and survives a crash. There is no server, no port and no token: the owner of the [`Laneway`] may do
//! everything. The program `laneway` is built from the same parts and adds the HTTP API and the command line.

mod checked_store;
mod cluster;
mod dashboard;
mod embedded;
pub mod gateway;
mod mcp_settings;
pub mod pinchtab;
mod schema;

pub use cluster::ClusterSettings;
pub use dashboard::DashboardSettings;
pub use embedded::{
    ChangeError, Embedded, Ended, InvalidJob, Job, JobHandle, Laneway, ResultError, ShutdownError,
    StartError, SubmitError, embedded, settings_table,
};
pub use laneway_browser::{
    Browsers, BrowsersError, OpenBrowser, Profile, ProfileError, ProfileFields, ProfileId, ProfilePatch,
    Profiles, ProxySpec, Tabs,
};
pub use laneway_core::TraceContext;
pub use laneway_core::capacity::{Hours, QuietRule, QuietState};
pub use laneway_core::engine::{Explanation, Hold};
pub use laneway_core::{
    Backoff, Bytes, DropPolicy, Failure, Jitter, JobId, JobPatch, JobState, Name, Outcome, Reason, Rejection,
    RejectionCode, RetryPolicy, Session, SessionMode, Span, StartAt,
};
pub use laneway_runtime::{Clock, Handlers, IntoOutcome, JobContext, Stopped, WaitError};
pub use mcp_settings::McpSettings;
pub use schema::config_schema;

/// The programs of the guide compile.
#[cfg(all(doctest, feature = "program"))]
#[doc = include_str!("../../../docs/guides/rust.md")]
struct GuideToRust;
