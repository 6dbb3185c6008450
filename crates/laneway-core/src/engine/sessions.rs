//! Sessions: what a new job does to the others of its session, what is remembered of a session, and how it is stopped.

pub(in crate::engine) mod arrival;
pub(in crate::engine) mod eviction;
pub(in crate::engine) mod state;
pub(in crate::engine) mod stop;
