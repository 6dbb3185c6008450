//! What the store does not know yet: entries of batches that were applied and are not committed.
//!
//! A later batch may be applied while an earlier one commits, so every entry has the number of its batch. A commit forgets
//! the entries of its batch and of those before it.

use std::collections::BTreeMap;

/// The number of a batch of commands: 0, 1, 2, … in the order in which an engine applied them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchNumber(u64);

impl BatchNumber {
    pub(in crate::engine) fn next(self) -> BatchNumber {
        BatchNumber(self.0 + 1)
    }
}

/// Entries by key, each with the batch that put it.
pub(in crate::engine) struct Fresh<K, V> {
    entries: BTreeMap<K, (BatchNumber, V)>,
    /// The batch of the latest entry.
    latest: BatchNumber,
}

impl<K: Ord, V> Fresh<K, V> {
    pub(in crate::engine) fn insert(&mut self, batch: BatchNumber, key: K, value: V) {
        self.latest = batch;
        self.entries.insert(key, (batch, value));
    }

    pub(in crate::engine) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// The store knows everything up to this batch.
    pub(in crate::engine) fn committed(&mut self, batch: BatchNumber) {
        if self.latest <= batch {
            self.entries.clear();
        } else {
            self.entries.retain(|_, (of, _)| *of > batch);
        }
    }
}

impl<K, V> Default for Fresh<K, V> {
    fn default() -> Fresh<K, V> {
        Fresh { entries: BTreeMap::new(), latest: BatchNumber::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_forgets_its_batch_and_those_before_it() {
        let first = BatchNumber::default();
        let (second, third) = (first.next(), first.next().next());
        let mut fresh = Fresh::default();
        fresh.insert(first, "a", 1);
        fresh.insert(second, "b", 2);
        fresh.insert(second, "a", 3);
        fresh.insert(third, "c", 4);
        fresh.committed(first);
        assert_eq!((fresh.get(&"a"), fresh.get(&"b"), fresh.get(&"c")), (Some(&3), Some(&2), Some(&4)));
        fresh.committed(second);
        assert_eq!((fresh.get(&"a"), fresh.get(&"b"), fresh.get(&"c")), (None, None, Some(&4)));
        fresh.committed(third);
        assert_eq!(fresh.get(&"c"), None);
    }
}
