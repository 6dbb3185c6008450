//! The life of a job: how it is submitted, created, recorded, canceled and finished.

pub(in crate::engine) mod cancel;
pub(in crate::engine) mod create;
pub(in crate::engine) mod ending;
pub(in crate::engine) mod finish;
pub(in crate::engine) mod record;
pub(in crate::engine) mod recorded_rejections;
pub(in crate::engine) mod submit;
