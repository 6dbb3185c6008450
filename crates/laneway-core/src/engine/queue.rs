//! Waiting jobs: the tree in which they wait, the gates that hold them back, and the order in which they start.

mod agent_queue;
mod bin;
mod class;
pub(in crate::engine) mod dispatch;
pub(in crate::engine) mod explain;
pub(in crate::engine) mod gates;
pub(in crate::engine) mod interning;
mod keys;
mod lane;
mod rank;
pub(in crate::engine) mod shared_classes;
pub(in crate::engine) mod shares;
mod source;
pub(in crate::engine) mod tree;

pub(in crate::engine) use agent_queue::AgentQueue;
pub(in crate::engine) use bin::{Bin, BinKey, Hanging};
pub(in crate::engine) use class::{Class, ClassKey, Demand, Executor, Kind, Tenant};
pub(in crate::engine) use gates::Gate;
pub(in crate::engine) use keys::{KeyEntry, KeyName, KeySet};
pub(in crate::engine) use lane::{Lane, QueueHead};
pub(in crate::engine) use rank::{FairKey, Rank};
pub(in crate::engine) use source::SourceKey;

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Interned, Ix, Pool, Table};
use crate::engine::counts::Forgotten;
use crate::{Name, Span};
use shares::Share;

/// The waiting jobs of every lane, and everything that limits when one of them starts.
pub(in crate::engine) struct Queue {
    pub(in crate::engine) bins: Pool<BinKey, Bin>,
    pub(in crate::engine) lanes: Table<Lane>,
    pub(in crate::engine) lane_of: BTreeMap<Name, Ix<Lane>>,
    /// Lanes that were removed from the settings, with the retention of their ended jobs.
    pub(in crate::engine) removed_lanes: BTreeMap<Name, Span>,
    /// The removed lane that was swept last.
    pub(in crate::engine) removed_lane_swept: Option<Name>,
    /// By lane, tenant and name.
    pub(in crate::engine) agent_queues: Pool<(Ix<Lane>, Ix<Tenant>, Name), AgentQueue>,
    /// Agent queues without jobs, by when they were last served.
    pub(in crate::engine) idle_agent_queues: BTreeSet<(u64, Ix<AgentQueue>)>,
    pub(in crate::engine) tenants: Pool<Name, Tenant>,
    pub(in crate::engine) kinds: Pool<Name, Kind>,
    /// By tenant and kind; shared classes by tenant and executor.
    pub(in crate::engine) classes: Pool<ClassKey, Class>,
    pub(in crate::engine) executors: Pool<Name, Executor>,
    pub(in crate::engine) keys: Pool<KeyName, KeyEntry>,
    pub(in crate::engine) keysets: Interned<KeySet>,
    pub(in crate::engine) demands: Interned<Demand>,
    /// Counts of agents that were forgotten.
    pub(in crate::engine) forgotten: Forgotten,
    /// The parts of the server's queue that are reserved for tenants.
    pub(in crate::engine) share: Share,
    /// Attempts opened since the start; orders agent queues by when they were served.
    pub(in crate::engine) starts: u64,
    /// Waiting jobs, server-wide.
    pub(in crate::engine) waiting: u32,
    /// Open attempts, server-wide.
    pub(in crate::engine) open: u32,
}

impl Queue {
    pub(in crate::engine) fn new(hashing: Hashing) -> Queue {
        Queue {
            bins: Pool::new(hashing),
            lanes: Table::new(),
            lane_of: BTreeMap::new(),
            removed_lanes: BTreeMap::new(),
            removed_lane_swept: None,
            agent_queues: Pool::new(hashing),
            idle_agent_queues: BTreeSet::new(),
            tenants: Pool::new(hashing),
            kinds: Pool::new(hashing),
            classes: Pool::new(hashing),
            executors: Pool::new(hashing),
            keys: Pool::new(hashing),
            keysets: Interned::new(hashing),
            demands: Interned::new(hashing),
            forgotten: Forgotten::default(),
            share: Share::default(),
            starts: 0,
            waiting: 0,
            open: 0,
        }
    }
}
