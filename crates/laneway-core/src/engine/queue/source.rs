//! Where bins hang: ready, on a class, or on a key.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::engine::collections::slab::Ix;
use crate::engine::queue::class::Class;
use crate::engine::queue::keys::KeyEntry;

/// Where a bin hangs: ready (neither), on its class, or on one key of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct SourceKey {
    pub(super) class: Option<Ix<Class>>,
    pub(super) key: Option<Ix<KeyEntry>>,
}

impl SourceKey {
    pub(super) const READY: SourceKey = SourceKey { class: None, key: None };

    /// Both handles as one integer: sources are compared several times for every job.
    fn number(self) -> u64 {
        (u64::from(Ix::number_of(self.class)) << 32) | u64::from(Ix::number_of(self.key))
    }
}

impl PartialEq for SourceKey {
    fn eq(&self, other: &SourceKey) -> bool {
        self.number() == other.number()
    }
}

impl Eq for SourceKey {}

impl PartialOrd for SourceKey {
    fn partial_cmp(&self, other: &SourceKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SourceKey {
    fn cmp(&self, other: &SourceKey) -> Ordering {
        self.number().cmp(&other.number())
    }
}

/// Something for each source. The ready one, which nearly all need, stands apart from those that hang on a gate.
#[derive(Default)]
pub(in crate::engine) struct Sources<T> {
    pub(super) ready: T,
    pub(super) parked: BTreeMap<SourceKey, T>,
}

impl<T: Default> Sources<T> {
    pub(super) fn get(&self, source: SourceKey) -> Option<&T> {
        if source == SourceKey::READY { Some(&self.ready) } else { self.parked.get(&source) }
    }

    pub(super) fn get_mut(&mut self, source: SourceKey) -> Option<&mut T> {
        if source == SourceKey::READY { Some(&mut self.ready) } else { self.parked.get_mut(&source) }
    }

    pub(super) fn get_or_default(&mut self, source: SourceKey) -> &mut T {
        if source == SourceKey::READY { &mut self.ready } else { self.parked.entry(source).or_default() }
    }

    /// Forgets what is empty now.
    pub(super) fn prune(&mut self, source: SourceKey) {
        if source != SourceKey::READY {
            self.parked.remove(&source);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SourceKey, &T)> {
        let parked = self.parked.iter().map(|(source, item)| (*source, item));
        std::iter::once((SourceKey::READY, &self.ready)).chain(parked)
    }
}
