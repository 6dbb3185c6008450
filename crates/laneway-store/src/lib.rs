//! Where jobs live: one small trait, in memory and in SQLite.
//!
//! The store puts, gets and fences. It decides nothing: order, fairness and limits are the engine's. Every write comes
//! through [`Store::commit`], one transaction for each turn of the loop. Reads for people go through [`Reader`], which
//! sees committed state only.

mod store;

pub use store::{
    AttemptView, EventFilter, JobFilter, JobView, Loaded, LogView, Page, Reader, Store, StoreError,
};
