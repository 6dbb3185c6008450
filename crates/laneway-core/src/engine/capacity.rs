//! The capacity of the machine: readings, units, and which jobs have room.

pub(in crate::engine) mod admission;
pub(in crate::engine) mod readings;
