//! Workers that come over WebSockets.
//!
//! A connection is a session (`session.rs`): a machine without sockets and clocks, which `socket.rs` drives. Who may come in
//! is said in `door.rs`. What frames look like is `laneway-wire`; what they mean is told in `docs/worker-protocol.md`; what
//! follows from them is the engine's business.

mod chain;
mod dispatch;
mod door;
mod handshake;
mod house;
mod offer;
mod outbox;
mod parts;
mod room;
mod seen;
mod session;
pub mod socket;
mod speech;
mod task;
#[cfg(test)]
mod tests;
mod words;

pub use room::Room;
pub use speech::SCHEDULER;
