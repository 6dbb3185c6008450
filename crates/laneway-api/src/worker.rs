//! Workers that come over WebSockets.
//!
//! A connection is a session ([`session`]): a machine without sockets and clocks, which `socket.rs` drives. Who may come in
//! is said in `door.rs`. What frames look like is `laneway-wire`; what they mean is told in `docs/worker-protocol.md`; what
//! follows from them is the engine's business.

pub mod dispatch;
pub mod handshake;
pub mod outbox;
pub mod seen;
pub mod session;
#[cfg(test)]
mod tests;
pub mod words;
