//! The client side of Laneway.
//!
//! [`worker`] is the worker SDK: it connects to a server over a WebSocket, tells what it can run, runs what it is given
//! and brings every result home. The frames themselves are in `laneway-wire`, their story in `docs/worker-protocol.md`.
//! [`pull`] is a worker that asks for its work over plain HTTP.

pub mod pull;
pub mod worker;
