//! The dialect `astraflow` over real sockets: runs, workers, streams of events.

mod chains;
pub mod hand;
mod page;
mod runs;
mod streams;
mod weaknesses;
mod workers;
