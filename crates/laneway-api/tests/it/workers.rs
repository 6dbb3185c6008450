//! Workers over real sockets: the SDK where a worker behaves, frames by hand where it does not.

mod artifacts;
mod behaving;
mod peer;
mod refused;
mod sessions;
