//! Waiting jobs: the tree in which they wait, the gates that hold them back, and the order in which they start.

mod admission;
mod agent_queue;
mod bin;
mod check;
mod claims;
mod class;
pub(in crate::engine) mod counts;
mod dispatch;
pub(in crate::engine) mod explain;
mod gates;
mod interning;
mod keys;
mod lane;
mod lookup;
mod rank;
mod settings;
mod shared_classes;
pub(in crate::engine) mod shares;
mod source;
pub(in crate::engine) mod stats;
mod sweep;
mod tree;

pub(in crate::engine) use admission::PlannedJobs;
pub(in crate::engine) use agent_queue::AgentQueue;
pub(in crate::engine) use bin::Bin;
pub(in crate::engine) use class::{Class, Demand, Executor, Kind, Tenant};
pub(in crate::engine) use gates::Gate;
pub(in crate::engine) use interning::ClassWanted;
pub(in crate::engine) use keys::{KeyEntry, KeyName, KeySet};
pub(in crate::engine) use lane::{Lane, QueueHead};
pub(in crate::engine) use rank::{FairKey, Rank};
pub(in crate::engine) use source::SourceKey;
pub(in crate::engine) use sweep::ROWS_PRUNED_MAX;

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Interned, Ix, Pool, Table};
use crate::{Name, Span};
use bin::BinKey;
use class::ClassKey;
use counts::Forgotten;
use shares::Share;

/// The waiting jobs of every lane, and everything that limits when one of them starts.
pub(in crate::engine) struct Queue {
    bins: Pool<BinKey, Bin>,
    lanes: Table<Lane>,
    by_name: BTreeMap<Name, Ix<Lane>>,
    /// Lanes that were removed from the settings, with the retention of their ended jobs.
    removed_lanes: BTreeMap<Name, Span>,
    /// The removed lane that was swept last.
    removed_lane_swept: Option<Name>,
    /// By lane, tenant and name.
    agent_queues: Pool<(Ix<Lane>, Ix<Tenant>, Name), AgentQueue>,
    /// Agent queues without jobs, by when they were last served.
    idle_agent_queues: BTreeSet<(u64, Ix<AgentQueue>)>,
    tenants: Pool<Name, Tenant>,
    kinds: Pool<Name, Kind>,
    /// By tenant and kind; shared classes by tenant and executor.
    classes: Pool<ClassKey, Class>,
    executors: Pool<Name, Executor>,
    keys: Pool<KeyName, KeyEntry>,
    keysets: Interned<KeySet>,
    demands: Interned<Demand>,
    /// Counts of agents that were forgotten.
    forgotten: Forgotten,
    /// The parts of the server's queue that are reserved for tenants.
    share: Share,
    /// Attempts opened since the start; orders agent queues by when they were served.
    starts: u64,
    /// Waiting jobs, server-wide.
    waiting: u32,
    /// Open attempts, server-wide.
    open: u32,
}

impl Queue {
    pub(in crate::engine) fn new(hashing: Hashing) -> Queue {
        Queue {
            bins: Pool::new(hashing),
            lanes: Table::new(),
            by_name: BTreeMap::new(),
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
