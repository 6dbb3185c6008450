//! The dialect `astraflow` over real sockets: runs, workers, streams of events.

mod chains;
mod containers;
pub mod fake_worker;
mod kept;
mod page;
mod runs;
mod streams;
mod weaknesses;
mod workers;
