//! Push workers: registration, messages, and which worker gets a job.

pub(in crate::engine) mod lanes;
pub(in crate::engine) mod messages;
pub(in crate::engine) mod placement;
pub(in crate::engine) mod pool;
pub(in crate::engine) mod register;
