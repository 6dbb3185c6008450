//! Workflow runs: their graph, calls between their nodes, and the limits that a chain shares.

pub(in crate::engine) mod calls;
pub(in crate::engine) mod chain_limits;
pub(in crate::engine) mod graph;
pub(in crate::engine) mod groups;
pub(in crate::engine) mod recovery;
pub(in crate::engine) mod runs;

use chain_limits::Chains;
use runs::Runs;

/// Every open workflow run and its chains.
#[derive(Default)]
pub(in crate::engine) struct Workflows {
    pub(in crate::engine) runs: Runs,
    pub(in crate::engine) chains: Chains,
}
