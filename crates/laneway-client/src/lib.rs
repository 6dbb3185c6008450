//! The client side of Laneway.
//!
//! [`worker`] is the SDK for push workers: it connects to a server over a WebSocket, registers what it can run,
//! runs the tasks that the server sends, and delivers every result. The frames are defined in `laneway-wire` and
//! described in `docs/worker-protocol.md`. [`pull`] is a pull worker: it requests work over plain HTTP.

pub mod pull;
pub mod worker;
