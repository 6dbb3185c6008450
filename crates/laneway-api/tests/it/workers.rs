//! Workers over real sockets: the SDK where a worker behaves, frames by hand where it does not.

mod artifacts;
mod behaving;
mod certificates;
mod dialogue;
mod duplicates;
mod event_log;
mod floods;
pub mod peer;
mod placement;
mod processes;
mod promptness;
mod rejected;
mod sessions;
