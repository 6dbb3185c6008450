//! A sorted map that keeps its first entry at hand.
//!
//! Most bins hold one job and most agents one bin, so most of these maps never touch the heap; and what dispatch asks
//! for, the first entry, is where the map itself is.

use std::collections::BTreeMap;

pub(in crate::engine) struct Sorted<K, V> {
    first: Option<(K, V)>,
    /// Everything after the first.
    rest: BTreeMap<K, V>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Sorted<K, V> {
        Sorted { first: None, rest: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, V: Copy> Sorted<K, V> {
    pub(in crate::engine) fn first(&self) -> Option<(K, V)> {
        self.first
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.rest.len() + usize::from(self.first.is_some())
    }

    pub(in crate::engine) fn insert(&mut self, key: K, value: V) {
        match self.first {
            None => self.first = Some((key, value)),
            Some((first, old)) if key < first => {
                self.first = Some((key, value));
                self.rest.insert(first, old);
            }
            Some(_) => {
                self.rest.insert(key, value);
            }
        }
    }

    pub(in crate::engine) fn remove(&mut self, key: &K) {
        if self.first.is_some_and(|(first, _)| first == *key) {
            self.first = self.rest.pop_first();
        } else {
            self.rest.remove(key);
        }
    }

    pub(in crate::engine) fn contains(&self, key: &K) -> bool {
        self.first.is_some_and(|(first, _)| first == *key) || self.rest.contains_key(key)
    }

    /// In order.
    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.first.into_iter().chain(self.rest.iter().map(|(key, value)| (*key, *value)))
    }
}
