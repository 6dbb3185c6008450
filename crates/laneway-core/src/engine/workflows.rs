//! Workflow runs: their graph, calls between their nodes, and the limits that a chain shares.

pub(in crate::engine) mod calls;
pub(in crate::engine) mod chain_limits;
pub(in crate::engine) mod graph;
pub(in crate::engine) mod groups;
pub(in crate::engine) mod recovery;
pub(in crate::engine) mod runs;
