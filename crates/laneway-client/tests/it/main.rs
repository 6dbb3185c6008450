//! The worker SDK against a simulated scheduler, over real sockets on this machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop at once")]

mod faults;
mod peer;
mod sessions;
