//! A vector with holes, and a vector of named things that are forgotten when nobody uses them.
//!
//! Both give small integer handles, so that a job holds no strings and a million jobs stay small.

use std::hash::Hash;

use super::index::{Hashing, Index};

/// A handle into a [`Slab`] or a [`Pool`].
pub(super) type Ix = u32;
/// No handle.
pub(super) const NONE: Ix = u32::MAX;

/// A vector with holes.
pub(super) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<Ix>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, item: T) -> Ix {
        if let Some(ix) = self.free.pop() {
            self.items[ix as usize] = Some(item);
            return ix;
        }
        self.items.push(Some(item));
        Ix::try_from(self.items.len() - 1).expect("queue caps keep live things below four billion")
    }

    pub(super) fn remove(&mut self, ix: Ix) -> T {
        self.free.push(ix);
        self.items[ix as usize].take().expect("a handle points at something")
    }

    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ix, &T)> {
        self.items.iter().enumerate().filter_map(|(ix, item)| Some((ix as Ix, item.as_ref()?)))
    }
}

impl<T> std::ops::Index<Ix> for Slab<T> {
    type Output = T;
    fn index(&self, ix: Ix) -> &T {
        self.items[ix as usize].as_ref().expect("a handle points at something")
    }
}

impl<T> std::ops::IndexMut<Ix> for Slab<T> {
    fn index_mut(&mut self, ix: Ix) -> &mut T {
        self.items[ix as usize].as_mut().expect("a handle points at something")
    }
}

/// Named things, each with a count of its users; a thing that nobody uses is forgotten.
pub(super) struct Pool<K, V> {
    items: Slab<Entry<K, V>>,
    index: Index,
    hashing: Hashing,
}

struct Entry<K, V> {
    key: K,
    hash: u32,
    users: u32,
    value: V,
}

impl<K: Eq + Hash + Clone, V> Pool<K, V> {
    pub(super) fn new(hashing: Hashing) -> Pool<K, V> {
        Pool { items: Slab::new(), index: Index::new(), hashing }
    }

    /// The handle of `key`, if it is known. Counts no user.
    pub(super) fn find(&self, key: &K) -> Option<Ix> {
        self.find_hashed(key, self.hashing.hash(key))
    }

    fn find_hashed(&self, key: &K, hash: u32) -> Option<Ix> {
        self.index.find(hash, |ix| self.items[ix].key == *key)
    }

    /// Adds one user of `key`; makes the thing when it is new.
    pub(super) fn hold(&mut self, key: &K, make: impl FnOnce() -> V) -> Ix {
        let (ix, new) = self.find_or_make(key, make);
        if !new {
            self.items[ix].users += 1;
        }
        ix
    }

    /// The handle of `key`, made with one user when it is new, and whether it is.
    pub(super) fn find_or_make(&mut self, key: &K, make: impl FnOnce() -> V) -> (Ix, bool) {
        let hash = self.hashing.hash(key);
        if let Some(ix) = self.find_hashed(key, hash) {
            return (ix, false);
        }
        let ix = self.items.insert(Entry { key: key.clone(), hash, users: 1, value: make() });
        self.index.insert(hash, ix);
        (ix, true)
    }

    /// Adds one user of a known thing.
    pub(super) fn hold_again(&mut self, ix: Ix) {
        self.items[ix].users += 1;
    }

    /// Takes one user away; gives the thing back when it was the last.
    pub(super) fn release(&mut self, ix: Ix) -> Option<(K, V)> {
        let entry = &mut self.items[ix];
        entry.users -= 1;
        if entry.users > 0 {
            return None;
        }
        let hash = entry.hash;
        self.index.remove(hash, ix);
        let entry = self.items.remove(ix);
        Some((entry.key, entry.value))
    }

    pub(super) fn key(&self, ix: Ix) -> &K {
        &self.items[ix].key
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.len() == 0
    }

    pub(super) fn users(&self, ix: Ix) -> u32 {
        self.items[ix].users
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ix, &K, &V)> {
        self.items.iter().map(|(ix, entry)| (ix, &entry.key, &entry.value))
    }

    /// Every handle. A copy, so that the things can be changed while walking.
    pub(super) fn handles(&self) -> Vec<Ix> {
        self.items.iter().map(|(ix, _)| ix).collect()
    }
}

impl<K, V> std::ops::Index<Ix> for Pool<K, V> {
    type Output = V;
    fn index(&self, ix: Ix) -> &V {
        &self.items[ix].value
    }
}

impl<K, V> std::ops::IndexMut<Ix> for Pool<K, V> {
    fn index_mut(&mut self, ix: Ix) -> &mut V {
        &mut self.items[ix].value
    }
}
