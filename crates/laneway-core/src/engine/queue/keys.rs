//! Keys: named resources, and other things that jobs wait for together.

use std::collections::BTreeSet;

use crate::engine::collections::slab::Ix;
use crate::engine::queue::class::{Kind, Tenant};
use crate::engine::queue::gates::Gate;
use crate::engine::queue::lane::Lane;
use crate::engine::queue::source::SourceKey;
use crate::engine::workers::Worker;
use crate::worker::Affinity;
use crate::{Name, Wall};

/// The keys of a job. An attempt takes all of them together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct KeySet(pub(super) Box<[Ix<KeyEntry>]>);

/// What a key is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum KeyName {
    /// A named resource of a tenant.
    Named(Ix<Tenant>, Name, Name),
    /// Jobs that stay together. Always open: it keeps them in bins of their own.
    Affinity { tenant: Ix<Tenant>, affinity: Affinity },
    /// Jobs that use a resource on a worker, until then. Always open, too.
    Pin { worker: Ix<Worker>, expires_at: Option<Wall> },
    /// Jobs that wait for a free slot of a worker, for any kind (`None`) or for one. No attempt takes it.
    Slot { worker: Ix<Worker>, kind: Option<Ix<Kind>>, number: u64 },
}

/// A named resource, or another thing that jobs wait for together.
pub(in crate::engine) struct KeyEntry {
    /// Taken by open attempts and by ended jobs that keep it.
    pub(super) gate: Gate,
    /// The part of it that ended jobs keep.
    pub(super) kept: u32,
    /// Sources that hang on it, by lane.
    pub(super) sources: BTreeSet<(Ix<Lane>, SourceKey)>,
}

impl KeyEntry {
    pub(super) fn with_limit(limit: u32) -> KeyEntry {
        KeyEntry { gate: Gate::with_limit(limit), kept: 0, sources: BTreeSet::new() }
    }
}

impl KeySet {
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = Ix<KeyEntry>> {
        self.0.iter().copied()
    }
}
