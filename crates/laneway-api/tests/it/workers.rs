//! Workers over real sockets: the SDK for correct workers, handwritten frames for others.

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
