//! Schedules: how they are changed, and how they fire.

pub(in crate::engine) mod commands;
pub(in crate::engine) mod firing;
