//! Workflow runs: their graph, calls between their nodes, and the limits that a chain shares.

mod calls;
pub(in crate::engine) mod chain_limits;
mod graph;
mod groups;
mod open_runs;
mod recovery;
mod runs;

use crate::engine::collections::fresh::BatchNumber;
use crate::engine::queue::shares::Share;
use chain_limits::Chains;
use open_runs::Runs;

/// Every open workflow run and its chains.
#[derive(Default)]
pub(in crate::engine) struct Workflows {
    runs: Runs,
    chains: Chains,
}

impl Workflows {
    /// True when the consequences of every ended member were applied.
    pub(in crate::engine) fn is_settled(&self) -> bool {
        self.runs.is_settled()
    }

    /// The store knows the idempotency keys of this batch.
    pub(in crate::engine) fn committed(&mut self, batch: BatchNumber) {
        self.runs.fresh_keys.committed(batch);
    }

    /// Sets the parts of the open nodes that are reserved for tenants.
    pub(in crate::engine) fn set_share(&mut self, mut share: Share) {
        for &nodes in self.runs.nodes_of.values() {
            share.moved(0, nodes);
        }
        self.runs.share = share;
    }

    /// The parts of the open nodes that are reserved for tenants.
    pub(in crate::engine) fn share(&self) -> &Share {
        &self.runs.share
    }

    /// How many nodes the open runs of each tenant have.
    pub(in crate::engine) fn nodes_by_tenant(&self) -> impl Iterator<Item = u32> {
        self.runs.nodes_of.values().copied()
    }
}
