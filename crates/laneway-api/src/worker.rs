//! Push workers, connected over WebSockets.
//!
//! A connection is a session (`session.rs`): a state machine without sockets and clocks, which `socket.rs` drives.
//! `authenticate.rs` checks credentials. `laneway-wire` defines the form of frames, `docs/worker-protocol.md` their
//! meaning, and the engine decides about jobs.

mod artifact_chunks;
mod authenticate;
mod chain;
mod connection_limits;
mod dedup;
mod dispatch;
mod ending;
mod handshake;
mod messages;
mod offer;
mod outbox;
mod scheduler_port;
mod send;
mod session;
pub mod socket;
mod task;
#[cfg(test)]
mod tests;

pub use connection_limits::ConnectionLimits;
pub use send::SCHEDULER;
