//! Containers with typed handles.

pub(in crate::engine) mod fresh;
pub(in crate::engine) mod index;
pub(in crate::engine) mod slab;
pub(in crate::engine) mod sorted;
pub(in crate::engine) mod tournament;
