//! Typed handles and what they point into: a vector, a vector with holes, named things with a count of their users, and
//! values that are kept once each.
//!
//! A handle is a small integer, so that a job holds no strings and a million jobs stay small. It knows what it points at:
//! a handle of a job cannot be used to look up a worker.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;

use crate::engine::collections::index::{Hashing, Index};

/// A handle of a `T`. `Option<Ix<T>>` has four bytes, too.
pub(in crate::engine) struct Ix<T> {
    /// The position plus one.
    number: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Ix<T> {
    pub(super) fn at(position: usize) -> Ix<T> {
        let number = u32::try_from(position + 1).ok().and_then(NonZeroU32::new);
        Ix { number: number.expect("queue caps keep live things below four billion"), of: PhantomData }
    }

    pub(super) fn position(self) -> usize {
        self.number.get() as usize - 1
    }

    /// A number for each handle, and zero for none: an `Option` compared or hashed as one integer.
    pub(in crate::engine) fn number_of(handle: Option<Ix<T>>) -> u32 {
        handle.map_or(0, |handle| handle.number.get())
    }

    /// The same position in a container that mirrors another.
    fn cast<U>(self) -> Ix<U> {
        Ix { number: self.number, of: PhantomData }
    }
}

impl<T> Clone for Ix<T> {
    fn clone(&self) -> Ix<T> {
        *self
    }
}

impl<T> Copy for Ix<T> {}

impl<T> PartialEq for Ix<T> {
    fn eq(&self, other: &Ix<T>) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Ix<T> {}

impl<T> PartialOrd for Ix<T> {
    fn partial_cmp(&self, other: &Ix<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Ix<T> {
    fn cmp(&self, other: &Ix<T>) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl<T> Hash for Ix<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.number.get());
    }
}

impl<T> fmt::Debug for Ix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.position())
    }
}

impl<T> fmt::Display for Ix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A vector that is indexed by handles of its items. Nothing is ever removed.
pub(in crate::engine) struct Table<T> {
    items: Vec<T>,
}

impl<T> Table<T> {
    pub(in crate::engine) fn new() -> Table<T> {
        Table { items: Vec::new() }
    }

    pub(in crate::engine) fn push(&mut self, item: T) -> Ix<T> {
        self.items.push(item);
        Ix::at(self.items.len() - 1)
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (Ix<T>, &T)> {
        self.items.iter().enumerate().map(|(position, item)| (Ix::at(position), item))
    }

    pub(in crate::engine) fn values(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    pub(in crate::engine) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }

    /// Every handle. The items can be changed while walking.
    pub(in crate::engine) fn handles(&self) -> impl Iterator<Item = Ix<T>> + use<T> {
        (0..self.items.len()).map(Ix::at)
    }

    /// A table of the same handles that holds something else.
    pub(in crate::engine) fn map<U>(&self, make: impl FnMut(&T) -> U) -> Mirror<T, U> {
        Mirror { items: self.items.iter().map(make).collect(), of: PhantomData }
    }
}

impl<T> std::ops::Index<Ix<T>> for Table<T> {
    type Output = T;
    fn index(&self, ix: Ix<T>) -> &T {
        &self.items[ix.position()]
    }
}

impl<T> std::ops::IndexMut<Ix<T>> for Table<T> {
    fn index_mut(&mut self, ix: Ix<T>) -> &mut T {
        &mut self.items[ix.position()]
    }
}

/// Something for each item of a [`Table`].
pub(in crate::engine) struct Mirror<T, U> {
    items: Vec<U>,
    of: PhantomData<fn() -> T>,
}

impl<T, U> Mirror<T, U> {
    pub(in crate::engine) fn into_vec(self) -> Vec<U> {
        self.items
    }
}

impl<T, U> std::ops::Index<Ix<T>> for Mirror<T, U> {
    type Output = U;
    fn index(&self, ix: Ix<T>) -> &U {
        &self.items[ix.position()]
    }
}

impl<T, U> std::ops::IndexMut<Ix<T>> for Mirror<T, U> {
    fn index_mut(&mut self, ix: Ix<T>) -> &mut U {
        &mut self.items[ix.position()]
    }
}

/// A vector with holes.
pub(in crate::engine) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<Ix<T>>,
}

impl<T> Slab<T> {
    pub(in crate::engine) fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    pub(in crate::engine) fn insert(&mut self, item: T) -> Ix<T> {
        if let Some(ix) = self.free.pop() {
            self.items[ix.position()] = Some(item);
            return ix;
        }
        self.items.push(Some(item));
        Ix::at(self.items.len() - 1)
    }

    pub(in crate::engine) fn remove(&mut self, ix: Ix<T>) -> T {
        self.free.push(ix);
        self.items[ix.position()].take().expect("a handle points at something")
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (Ix<T>, &T)> {
        let items = self.items.iter().enumerate();
        items.filter_map(|(position, item)| Some((Ix::at(position), item.as_ref()?)))
    }
}

impl<T> std::ops::Index<Ix<T>> for Slab<T> {
    type Output = T;
    fn index(&self, ix: Ix<T>) -> &T {
        self.items[ix.position()].as_ref().expect("a handle points at something")
    }
}

impl<T> std::ops::IndexMut<Ix<T>> for Slab<T> {
    fn index_mut(&mut self, ix: Ix<T>) -> &mut T {
        self.items[ix.position()].as_mut().expect("a handle points at something")
    }
}

/// Values that are kept once each, with a count of their users; a value without users is forgotten.
pub(in crate::engine) struct Interned<K> {
    values: Pool<K, ()>,
}

impl<K: Eq + Hash + Clone> Interned<K> {
    pub(in crate::engine) fn new(hashing: Hashing) -> Interned<K> {
        Interned { values: Pool::new(hashing) }
    }

    /// Adds one user of `value`.
    pub(in crate::engine) fn hold(&mut self, value: &K) -> Ix<K> {
        self.values.hold(value, || ()).cast()
    }

    /// The handle of `value`, made with one user when it is new, and whether it is.
    pub(in crate::engine) fn find_or_make(&mut self, value: &K) -> (Ix<K>, bool) {
        let (ix, new) = self.values.find_or_make(value, || ());
        (ix.cast(), new)
    }

    /// Adds one user of a known value.
    pub(in crate::engine) fn hold_again(&mut self, ix: Ix<K>) {
        self.values.hold_again(ix.cast());
    }

    /// Takes one user away; gives the value back when it was the last.
    pub(in crate::engine) fn release(&mut self, ix: Ix<K>) -> Option<K> {
        self.values.release(ix.cast()).map(|(value, ())| value)
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl<K> std::ops::Index<Ix<K>> for Interned<K> {
    type Output = K;
    fn index(&self, ix: Ix<K>) -> &K {
        &self.values.items[ix.cast()].key
    }
}

/// Named things, each with a count of its users; a thing without users is forgotten.
pub(in crate::engine) struct Pool<K, V> {
    items: Slab<Entry<K, V>>,
    index: Index<V>,
    hashing: Hashing,
}

struct Entry<K, V> {
    key: K,
    hash: u32,
    users: u32,
    value: V,
}

impl<K: Eq + Hash + Clone, V> Pool<K, V> {
    pub(in crate::engine) fn new(hashing: Hashing) -> Pool<K, V> {
        Pool { items: Slab::new(), index: Index::new(), hashing }
    }

    /// The handle of `key`, if it is known. Counts no user.
    pub(in crate::engine) fn find(&self, key: &K) -> Option<Ix<V>> {
        self.find_hashed(key, self.hashing.hash(key))
    }

    /// The same by a borrowed form of the key, which has the hash of the key.
    pub(in crate::engine) fn find_by(&self, key: &impl Hash, is_it: impl Fn(&K) -> bool) -> Option<Ix<V>> {
        self.index.find(self.hashing.hash(key), |ix| is_it(&self.items[ix.cast()].key))
    }

    fn find_hashed(&self, key: &K, hash: u32) -> Option<Ix<V>> {
        self.index.find(hash, |ix| self.items[ix.cast()].key == *key)
    }

    /// Adds one user of `key`; makes the thing when it is new.
    pub(in crate::engine) fn hold(&mut self, key: &K, make: impl FnOnce() -> V) -> Ix<V> {
        let (ix, new) = self.find_or_make(key, make);
        if !new {
            self.items[ix.cast()].users += 1;
        }
        ix
    }

    /// The handle of `key`, made with one user when it is new, and whether it is.
    pub(in crate::engine) fn find_or_make(&mut self, key: &K, make: impl FnOnce() -> V) -> (Ix<V>, bool) {
        let hash = self.hashing.hash(key);
        if let Some(ix) = self.find_hashed(key, hash) {
            return (ix, false);
        }
        let ix = self.items.insert(Entry { key: key.clone(), hash, users: 1, value: make() }).cast();
        self.index.insert(hash, ix);
        (ix, true)
    }

    /// Adds one user of a known thing.
    pub(in crate::engine) fn hold_again(&mut self, ix: Ix<V>) {
        self.items[ix.cast()].users += 1;
    }

    /// Takes one user away; gives the thing back when it was the last.
    pub(in crate::engine) fn release(&mut self, ix: Ix<V>) -> Option<(K, V)> {
        let entry = &mut self.items[ix.cast()];
        entry.users -= 1;
        if entry.users > 0 {
            return None;
        }
        let hash = entry.hash;
        self.index.remove(hash, ix);
        let entry = self.items.remove(ix.cast());
        Some((entry.key, entry.value))
    }

    pub(in crate::engine) fn key(&self, ix: Ix<V>) -> &K {
        &self.items[ix.cast()].key
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.items.len() == 0
    }

    pub(in crate::engine) fn users(&self, ix: Ix<V>) -> u32 {
        self.items[ix.cast()].users
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (Ix<V>, &K, &V)> {
        self.items.iter().map(|(ix, entry)| (ix.cast(), &entry.key, &entry.value))
    }

    /// Every handle. A copy, so that the things can be changed while walking.
    pub(in crate::engine) fn handles(&self) -> Vec<Ix<V>> {
        self.items.iter().map(|(ix, _)| ix.cast()).collect()
    }
}

impl<K, V> std::ops::Index<Ix<V>> for Pool<K, V> {
    type Output = V;
    fn index(&self, ix: Ix<V>) -> &V {
        &self.items[ix.cast()].value
    }
}

impl<K, V> std::ops::IndexMut<Ix<V>> for Pool<K, V> {
    fn index_mut(&mut self, ix: Ix<V>) -> &mut V {
        &mut self.items[ix.cast()].value
    }
}

#[cfg(test)]
mod tests {
    use super::Ix;

    #[test]
    fn a_handle_that_may_be_missing_has_four_bytes() {
        assert_eq!(size_of::<Ix<String>>(), 4);
        assert_eq!(size_of::<Option<Ix<String>>>(), 4);
    }
}
