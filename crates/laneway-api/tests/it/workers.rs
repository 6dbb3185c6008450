//! Workers over real sockets: the SDK where a worker behaves, frames by hand where it does not.

mod artifacts;
mod behaving;
mod certificates;
mod dialogue;
mod peer;
mod placing;
mod promptness;
mod refused;
mod sessions;
mod trail;
mod twice;
