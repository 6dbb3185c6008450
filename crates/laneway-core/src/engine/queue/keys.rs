//! Keys: named resources, and other things that jobs wait for together.

use std::collections::BTreeSet;

use crate::engine::collections::slab::Ix;
use crate::engine::queue::class::{Kind, Tenant};
use crate::engine::queue::gates::Gate;
use crate::engine::queue::lane::Lane;
use crate::engine::queue::source::SourceKey;
use crate::engine::workers::pool::Worker;
use crate::worker::Affinity;
use crate::{Name, Wall};

/// Keys that a job holds together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct KeySet(pub(in crate::engine) Box<[Ix<KeyEntry>]>);

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum KeyName {
    /// A named resource of a tenant.
    Named(Ix<Tenant>, Name, Name),
    /// Jobs that stay together. Always open: it keeps them in bins of their own.
    Affinity { tenant: Ix<Tenant>, affinity: Affinity },
    /// Jobs that use something on a worker, until then. Always open, too.
    Pin { worker: Ix<Worker>, expires_at: Option<Wall> },
    /// Jobs that wait for a free slot of a worker, for any kind (`None`) or for one. No job holds it.
    Slot { worker: Ix<Worker>, kind: Option<Ix<Kind>>, number: u64 },
}

/// A named resource, or another thing that jobs wait for together.
pub(in crate::engine) struct KeyEntry {
    pub(in crate::engine) gate: Gate,
    /// Sources that hang on it, by lane.
    pub(in crate::engine) sources: BTreeSet<(Ix<Lane>, SourceKey)>,
}
