//! An ordered map whose clone is cheap: the checkpoint writer walks a clone
//! while transactions go on changing the original.
//!
//! Sorted leaves of at most [`LEAF_MAX`] entries under one vector. A clone
//! copies the vector of pointers; a change then copies the one leaf it touches.
//! Invariants: no leaf is empty; keys ascend within and across leaves.
//!
//! A search first tries around where the last one ended (a transaction names the
//! same object several times), then the last and the first leaf (a PG's log grows
//! at one end and shrinks at the other): most searches touch little memory.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LEAF_MAX: usize = 64;

/// Neighbours that together are smaller than this are joined after a removal.
const LEAF_JOIN: usize = LEAF_MAX / 2;

type Leaf<K, V> = Vec<(K, V)>;

#[derive(Debug)]
pub(crate) struct CowMap<K, V> {
    leaves: Vec<Arc<Leaf<K, V>>>,
    len: usize,
    /// Leaf and entry where the last search ended, and where the one before it
    /// did; only ever guesses.
    last_found: AtomicU64,
    found_before: AtomicU64,
}

impl<K, V> Clone for CowMap<K, V> {
    fn clone(&self) -> Self {
        CowMap { leaves: self.leaves.clone(), len: self.len, ..CowMap::default() }
    }
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        let (last_found, found_before) = (AtomicU64::new(0), AtomicU64::new(0));
        CowMap { leaves: Vec::new(), len: 0, last_found, found_before }
    }
}

impl<K: Clone + Ord, V: Clone> CowMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The leaf that holds `key` if any does; 0 when there are none.
    fn leaf_of<Q>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let starts_after = |leaf: usize| match self.leaves.get(leaf) {
            Some(entries) => entries[0].0.borrow() > key,
            None => true,
        };
        let last = self.leaves.len().saturating_sub(1);
        if !starts_after(last) {
            return last;
        }
        if starts_after(1) {
            return 0;
        }
        self.leaves.partition_point(|leaf| leaf[0].0.borrow() <= key).saturating_sub(1)
    }

    fn find<Q>(&self, key: &Q) -> Option<(usize, Result<usize, usize>)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        if let Some(found) = self.near_last_found(key) {
            return Some(found);
        }
        let last = self.last_found.load(Relaxed);
        let before = self.found_before.load(Relaxed);
        if let Some((found, _)) = self.at(before)
            && found.borrow() == key
        {
            self.last_found.store(before, Relaxed);
            self.found_before.store(last, Relaxed);
            return Some(((before >> 32) as usize, Ok((before & 0xffff_ffff) as usize)));
        }
        let leaf = self.leaf_of(key);
        let entries = self.leaves.get(leaf)?;
        let found = entries.binary_search_by(|(k, _)| k.borrow().cmp(key));
        let (Ok(at) | Err(at)) = found;
        self.last_found.store((leaf as u64) << 32 | at as u64, Relaxed);
        self.found_before.store(last, Relaxed);
        Some((leaf, found))
    }

    fn at(&self, place: u64) -> Option<&(K, V)> {
        self.leaves.get((place >> 32) as usize)?.get((place & 0xffff_ffff) as usize)
    }

    /// At the last place found, right before it, or right after it.
    fn near_last_found<Q>(&self, key: &Q) -> Option<(usize, Result<usize, usize>)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let guess = self.last_found.load(Relaxed);
        let (leaf, at) = ((guess >> 32) as usize, (guess & 0xffff_ffff) as usize);
        let entries = self.leaves.get(leaf)?;
        let compare = |at: usize| Some(key.cmp(entries.get(at)?.0.borrow()));
        match compare(at)? {
            Ordering::Equal => Some((leaf, Ok(at))),
            Ordering::Less => {
                let after = compare(at.checked_sub(1)?)? == Ordering::Greater;
                after.then_some((leaf, Err(at)))
            }
            Ordering::Greater => match compare(at + 1)? {
                Ordering::Equal => {
                    self.last_found.fetch_add(1, Relaxed);
                    Some((leaf, Ok(at + 1)))
                }
                Ordering::Less => Some((leaf, Err(at + 1))),
                Ordering::Greater => None,
            },
        }
    }

    pub(crate) fn get_entry<Q>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match self.find(key)? {
            (leaf, Ok(at)) => {
                let (k, v) = &self.leaves[leaf][at];
                Some((k, v))
            }
            _ => None,
        }
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.get_entry(key).map(|(_, v)| v)
    }

    /// The value, made when missing.
    pub(crate) fn get_or_insert<Q>(&mut self, key: &Q, make: impl FnOnce() -> (K, V)) -> &mut V
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (leaf, at) = match self.find(key) {
            Some((leaf, Ok(at))) => (leaf, at),
            _ => {
                let (k, v) = make();
                self.insert(k, v);
                match self.find(key) {
                    Some((leaf, Ok(at))) => (leaf, at),
                    _ => unreachable!("the key was just inserted"),
                }
            }
        };
        &mut Arc::make_mut(&mut self.leaves[leaf])[at].1
    }

    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        match self.find(key)? {
            (leaf, Ok(at)) => Some(&mut Arc::make_mut(&mut self.leaves[leaf])[at].1),
            _ => None,
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some((at_leaf, found)) = self.find(&key) else {
            self.leaves.push(Arc::new(vec![(key, value)]));
            self.len = 1;
            return None;
        };
        let is_last = at_leaf + 1 == self.leaves.len();
        let leaf = Arc::make_mut(&mut self.leaves[at_leaf]);
        let at = match found {
            Ok(at) => return Some(std::mem::replace(&mut leaf[at].1, value)),
            Err(at) => at,
        };
        self.len += 1;
        if leaf.len() < LEAF_MAX {
            leaf.insert(at, (key, value));
            return None;
        }
        if at == LEAF_MAX && is_last {
            // Ascending insertion, as of a PG's log, leaves full leaves behind.
            self.leaves.push(Arc::new(vec![(key, value)]));
            return None;
        }
        let mut right = leaf.split_off(LEAF_MAX / 2);
        if at <= LEAF_MAX / 2 {
            leaf.insert(at, (key, value));
        } else {
            right.insert(at - LEAF_MAX / 2, (key, value));
        }
        self.leaves.insert(at_leaf + 1, Arc::new(right));
        None
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (at_leaf, Ok(at)) = self.find(key)? else {
            return None;
        };
        let leaf = Arc::make_mut(&mut self.leaves[at_leaf]);
        let (_, value) = leaf.remove(at);
        self.len -= 1;
        if leaf.is_empty() {
            self.leaves.remove(at_leaf);
        } else if let Some(next) = self.leaves.get(at_leaf + 1)
            && self.leaves[at_leaf].len() + next.len() < LEAF_JOIN
        {
            let next = self.leaves.remove(at_leaf + 1);
            Arc::make_mut(&mut self.leaves[at_leaf]).extend(next.iter().cloned());
        }
        Some(value)
    }

    /// Entries from a bound upwards.
    pub(crate) fn iter_from<Q>(&self, start: Bound<&Q>) -> impl Iterator<Item = (&K, &V)> + use<'_, K, V, Q>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (leaf, at) = match start {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) | Bound::Excluded(key) => match self.find(key) {
                None => (0, 0),
                Some((leaf, Ok(at))) => (leaf, at + usize::from(matches!(start, Bound::Excluded(_)))),
                Some((leaf, Err(at))) => (leaf, at),
            },
        };
        let first = self.leaves.get(leaf).map_or(&[][..], |entries| &entries[at..]);
        let rest = self.leaves.get(leaf + 1..).unwrap_or(&[]);
        first.iter().chain(rest.iter().flat_map(|entries| entries.iter())).map(|(k, v)| (k, v))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.leaves.iter().flat_map(|entries| entries.iter()).map(|(k, v)| (k, v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use std::collections::BTreeMap;

    #[test]
    fn behaves_like_a_btreemap_and_clones_stay_as_they_were() {
        let mut random = Random::from_seed(1);
        let mut map: CowMap<u64, u64> = CowMap::default();
        let mut model = BTreeMap::new();
        let mut snapshot = (map.clone(), model.clone());
        for step in 0..40_000u64 {
            let key = random.below(3000);
            if random.chance(if step < 20_000 { 1 } else { 3 }, 4) {
                assert_eq!(map.remove(&key), model.remove(&key));
            } else {
                assert_eq!(map.insert(key, step), model.insert(key, step));
            }
            if step % 5000 == 0 {
                assert!(snapshot.0.iter().eq(snapshot.1.iter()));
                snapshot = (map.clone(), model.clone());
            }
            if step % 64 == 0 {
                let from = random.below(3000);
                let tail = map.iter_from(Bound::Excluded(&from)).take(9);
                assert!(tail.eq(model.range((Bound::Excluded(from), Bound::Unbounded)).take(9)));
                let tail = map.iter_from(Bound::Included(&from)).take(9);
                assert!(tail.eq(model.range(from..).take(9)));
                assert_eq!(map.get(&from), model.get(&from));
                assert_eq!(map.len(), model.len());
                if let Some(value) = map.get_mut(&from) {
                    *value = 7;
                    model.insert(from, 7);
                }
            }
        }
        assert!(map.iter().eq(model.iter()));
    }
}
