//! Webhooks: the durable deliveries of ended jobs, and the order in which they are handed to the sender.

pub(in crate::engine) mod deliveries;
mod fair_queue;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::collections::fresh::Fresh;
use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Interned, Ix};
use crate::{DeliveryRow, Name, Seq};
use deliveries::{DeliveryStats, Pending};
use fair_queue::FairQueue;

/// Webhook deliveries that wait, and the callback hosts of live jobs.
pub(in crate::engine) struct Webhooks {
    pending: BTreeMap<Seq, Pending>,
    /// How many of these each tenant has.
    by_tenant: BTreeMap<Name, u32>,
    /// The order in which they are handed out.
    queue: FairQueue,
    /// How many are under way.
    open: u32,
    /// Ended in commands whose commit has not come yet: the store still says that they wait.
    fresh: Fresh<Seq, DeliveryRow>,
    /// Counts of deliveries that do not wait any more.
    totals: DeliveryStats,
    /// Each host is kept once.
    callback_hosts: Interned<Arc<str>>,
    /// The callback host of a live job, by the job's number.
    host_of: BTreeMap<u64, Ix<Arc<str>>>,
}

impl Webhooks {
    pub(in crate::engine) fn new(hashing: Hashing) -> Webhooks {
        Webhooks {
            pending: BTreeMap::new(),
            by_tenant: BTreeMap::new(),
            queue: FairQueue::default(),
            open: 0,
            fresh: Fresh::default(),
            totals: DeliveryStats::default(),
            callback_hosts: Interned::new(hashing),
            host_of: BTreeMap::new(),
        }
    }
}
