//! Where jobs live: one small trait, in memory, in SQLite and in PostgreSQL.
//!
//! The store puts, gets and fences. It decides nothing: order, fairness and limits are the engine's. Every write comes
//! through [`Store::commit`], one commit for each batch of the loop. Reads for people go through [`Reader`], which
//! sees committed state only.
//!
//! [`MemoryStore`] is the readable reference, [`SqliteStore`] the one for one machine, and [`PostgresStore`] the
//! one for servers that share a database. [`StoreAddress`] names one of them. What stores with rows share is in `codec.rs`
//! (what a column holds), `rows.rs` and `batch.rs` (one final image of each row). [`suite`] is what every store must
//! pass.

mod address;
mod batch;
mod codec;
mod columns;
mod job_list;
mod live;
mod log;
mod logs;
pub mod memory;
mod migration;
pub mod postgres;
mod rows;
pub mod search;
pub mod sqlite;
mod store;
#[cfg(feature = "suite")]
pub mod suite;
mod sums;
pub mod transfer;

pub use address::StoreAddress;
pub use job_list::{CountBy, GROUPS_MAX, JobCounts, JobFilter, StateCounts};
pub use logs::{ARTIFACT_LINES_MAX, ARTIFACTS, LOG_BYTES_MAX, LOG_LINES_MAX};
pub use memory::MemoryStore;
pub use postgres::PostgresStore;
pub use search::{Search, SearchError};
pub use sqlite::{SqliteOptions, SqliteStore, check, copy};
pub use store::{
    AttemptView, DeliveryFilter, Epoch, EventFilter, FiringLogFilter, FiringLogPage, JobView, Keys, Lag,
    Loaded, LogView, Page, Priors, ROWS_SCANNED_MAX, Reader, RunFilter, Runnable, Store, StoreError,
};
