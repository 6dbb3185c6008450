//! Webhook deliveries and the order in which they are handed out.

pub(in crate::engine) mod deliveries;
pub(in crate::engine) mod fair_queue;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::collections::index::Hashing;
use crate::engine::collections::slab::{Interned, Ix};
use deliveries::Deliveries;

/// Webhook deliveries, and the callback hosts of live jobs.
pub(in crate::engine) struct Webhooks {
    pub(in crate::engine) deliveries: Deliveries,
    /// Each host is kept once.
    pub(in crate::engine) callback_hosts: Interned<Arc<str>>,
    /// The callback host of a live job, by the job's number.
    pub(in crate::engine) host_of: BTreeMap<u64, Ix<Arc<str>>>,
}

impl Webhooks {
    pub(in crate::engine) fn new(hashing: Hashing) -> Webhooks {
        Webhooks {
            deliveries: Deliveries::default(),
            callback_hosts: Interned::new(hashing),
            host_of: BTreeMap::new(),
        }
    }
}
