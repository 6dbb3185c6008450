//! Workers that come over WebSockets.
//!
//! A connection is a session (`session.rs`): a machine without sockets and clocks, which `socket.rs` drives. Who may come in
//! is said in `door.rs`. What frames look like is `laneway-wire`; what they mean is told in `docs/worker-protocol.md`; what
//! follows from them is the engine's business.

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
