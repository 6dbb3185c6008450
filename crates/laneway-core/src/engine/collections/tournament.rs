//! The smallest of many keys that change often.
//!
//! A tree in which each node holds the smaller of its two children, as in a tournament. A changed key is compared once on
//! each level. In a sorted set it would be removed and inserted again, which is several times the work.

use crate::engine::collections::slab::Ix;

/// A tree without keys is kept up to this size, for a queue that is often empty.
const KEPT_NODES_MAX: usize = 64;

/// Keys, each in a slot of its own until it is removed.
pub(in crate::engine) struct Tournament<K> {
    /// The keys by slot; `None` for a free slot.
    keys: Vec<Option<K>>,
    /// Free slots.
    free: Vec<Ix<K>>,
    /// The slot of the smallest key below each node; `None` where there is none. Node 1 is the root, the children of `n` are
    /// `2n` and `2n + 1`, and the last half of the nodes are the slots.
    nodes: Vec<Option<Ix<K>>>,
}

impl<K> Default for Tournament<K> {
    fn default() -> Tournament<K> {
        Tournament { keys: Vec::new(), free: Vec::new(), nodes: Vec::new() }
    }
}

impl<K: Ord + Copy> Tournament<K> {
    /// The smallest key.
    pub(in crate::engine) fn first(&self) -> Option<K> {
        let slot = (*self.nodes.get(1)?)?;
        self.keys[slot.position()]
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.keys.len() == self.free.len()
    }

    /// Adds a key. Returns its slot.
    pub(in crate::engine) fn insert(&mut self, key: K) -> Ix<K> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.keys.push(None);
                Ix::at(self.keys.len() - 1)
            }
        };
        self.keys[slot.position()] = Some(key);
        if self.keys.len() * 2 > self.nodes.len() {
            self.grow();
        }
        self.play(slot);
        slot
    }

    /// Replaces the key in a slot.
    pub(in crate::engine) fn replace(&mut self, slot: Ix<K>, key: K) {
        self.keys[slot.position()] = Some(key);
        self.play(slot);
    }

    /// Removes the key in a slot.
    pub(in crate::engine) fn remove(&mut self, slot: Ix<K>) {
        self.keys[slot.position()] = None;
        self.free.push(slot);
        if self.is_empty() && self.nodes.len() > KEPT_NODES_MAX {
            *self = Tournament::default();
            return;
        }
        self.play(slot);
    }

    /// The key in a slot changed: decides the nodes above it again.
    fn play(&mut self, slot: Ix<K>) {
        let Tournament { keys, nodes, free: _ } = self;
        let mut node = nodes.len() / 2 + slot.position();
        let mut best = keys[slot.position()].as_ref();
        let mut winner = best.map(|_| slot);
        nodes[node] = winner;
        while node > 1 {
            if let Some(other) = nodes[node ^ 1]
                && let Some(key) = &keys[other.position()]
                && best.is_none_or(|best| key.cmp(best).is_lt())
            {
                (best, winner) = (Some(key), Some(other));
            }
            node /= 2;
            let before = std::mem::replace(&mut nodes[node], winner);
            if before == winner && winner != Some(slot) {
                // Neither the winner of this node nor its key changed, so nothing changes above it.
                return;
            }
        }
    }

    /// Makes a tree for twice as many slots.
    fn grow(&mut self) {
        let slots = self.keys.len().next_power_of_two();
        self.nodes = vec![None; slots * 2];
        for (position, key) in self.keys.iter().enumerate() {
            self.nodes[slots + position] = key.is_some().then(|| Ix::at(position));
        }
        for node in (1..slots).rev() {
            let (left, right) = (self.nodes[node * 2], self.nodes[node * 2 + 1]);
            self.nodes[node] = match (left, right) {
                (Some(left), Some(right)) => {
                    let right_first = self.keys[right.position()] < self.keys[left.position()];
                    Some(if right_first { right } else { left })
                }
                (left, right) => left.or(right),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Ix, Tournament};

    /// Numbers that look random, the same in every run.
    fn numbers() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(88_172_645_463_325_252_u64), |&was| {
            let mut next = was;
            next ^= next << 13;
            next ^= next >> 7;
            next ^= next << 17;
            Some(next)
        })
    }

    #[test]
    fn the_first_key_is_that_of_a_sorted_map() {
        let mut tournament = Tournament::default();
        let mut keys: BTreeMap<u64, Ix<u64>> = BTreeMap::new();
        let mut random = numbers();
        let mut next = || random.next().expect("endless");
        for round in 0..20_000 {
            // It grows to some hundred keys, shrinks to none, and grows again.
            let growing = round % 4_000 < 2_500;
            let known = keys.iter().nth(next() as usize % keys.len().max(1)).map(|(key, slot)| (*key, *slot));
            match (known, next() % 3) {
                (Some((key, slot)), 0) => {
                    let other = next();
                    tournament.replace(slot, other);
                    keys.remove(&key);
                    keys.insert(other, slot);
                }
                (Some((key, slot)), at) if at == 1 || !growing => {
                    tournament.remove(slot);
                    keys.remove(&key);
                }
                _ => {
                    let key = next() >> (next() % 32);
                    if !keys.contains_key(&key) {
                        keys.insert(key, tournament.insert(key));
                        if growing && round % 2 == 0 {
                            let key = next();
                            keys.insert(key, tournament.insert(key));
                        }
                    }
                }
            }
            assert_eq!(tournament.first(), keys.keys().next().copied(), "in round {round}");
            assert_eq!(tournament.is_empty(), keys.is_empty(), "in round {round}");
        }
    }
}
