//! Where an object's blocks lie on the device, with their checksums.
//!
//! Stretches of 64 blocks, each a bitmap and the packed entries of the blocks it
//! has: 8 bytes a block, and no structural change when a mapped block moves.

use crate::limits::{BLOCK_LEN, OBJECT_LEN_MAX};
use std::ops::{Deref, DerefMut};

/// Blocks of the largest object.
pub(crate) const OBJECT_BLOCKS_MAX: u64 = OBJECT_LEN_MAX / BLOCK_LEN;

pub(crate) const CHUNK_BLOCKS: u32 = 64;

/// Where a block lies, and the CRC32C of its newest content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    /// Device block.
    pub(crate) device: u32,
    pub(crate) crc: u32,
}

/// Values for some of 64 adjacent places.
#[derive(Clone, Debug)]
pub(crate) struct Chunk<V> {
    pub(crate) present: u64,
    /// One for each bit of `present`, ascending.
    pub(crate) entries: Few<V>,
}

/// A list that keeps a single value in place: small objects have one block.
#[derive(Clone, Debug)]
pub(crate) enum Few<V> {
    None,
    One(V),
    Many(Vec<V>),
}

const _: () = assert!(size_of::<Chunk<Mapping>>() == 32);

impl<V> Few<V> {
    pub(crate) fn with_capacity(count: usize) -> Few<V> {
        if count > 1 { Few::Many(Vec::with_capacity(count)) } else { Few::None }
    }

    pub(crate) fn insert(&mut self, at: usize, value: V) {
        if let Few::Many(values) = self {
            return values.insert(at, value);
        }
        *self = match std::mem::replace(self, Few::None) {
            Few::One(first) if at == 0 => Few::Many(vec![value, first]),
            Few::One(first) => Few::Many(vec![first, value]),
            _ => Few::One(value),
        };
    }

    pub(crate) fn push(&mut self, value: V) {
        self.insert(self.len(), value);
    }

    fn remove(&mut self, at: usize) -> V {
        if let Few::Many(values) = self {
            return values.remove(at);
        }
        match std::mem::replace(self, Few::None) {
            Few::One(value) => value,
            _ => unreachable!("only what is there is removed"),
        }
    }
}

impl<V> Deref for Few<V> {
    type Target = [V];
    fn deref(&self) -> &[V] {
        match self {
            Few::None => &[],
            Few::One(value) => std::slice::from_ref(value),
            Few::Many(values) => values,
        }
    }
}

impl<V> DerefMut for Few<V> {
    fn deref_mut(&mut self) -> &mut [V] {
        match self {
            Few::None => &mut [],
            Few::One(value) => std::slice::from_mut(value),
            Few::Many(values) => values,
        }
    }
}

impl<V> Default for Chunk<V> {
    fn default() -> Self {
        Chunk { present: 0, entries: Few::None }
    }
}

impl<V: Copy> Chunk<V> {
    fn rank(&self, bit: u32) -> usize {
        (self.present & ((1u64 << bit) - 1)).count_ones() as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.present == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn get(&self, bit: u32) -> Option<V> {
        (self.present >> bit & 1 == 1).then(|| self.entries[self.rank(bit)])
    }

    /// Returns what was there.
    pub(crate) fn set(&mut self, bit: u32, value: V) -> Option<V> {
        let rank = self.rank(bit);
        if self.present >> bit & 1 == 1 {
            return Some(std::mem::replace(&mut self.entries[rank], value));
        }
        self.present |= 1 << bit;
        self.entries.insert(rank, value);
        None
    }

    pub(crate) fn remove(&mut self, bit: u32) -> Option<V> {
        if self.present >> bit & 1 == 0 {
            return None;
        }
        let old = self.entries.remove(self.rank(bit));
        self.present &= !(1 << bit);
        Some(old)
    }

    /// Ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, V)> {
        let mut left = self.present;
        self.entries.iter().map(move |value| {
            let bit = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (bit, *value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use std::collections::BTreeMap;

    #[test]
    fn behaves_like_a_btreemap() {
        let mut random = Random::from_seed(2);
        let mut chunk = Chunk::default();
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        for step in 0..10_000u32 {
            let bit = random.below(64) as u32;
            if random.chance(2, 5) {
                assert_eq!(chunk.remove(bit), model.remove(&bit));
            } else {
                assert_eq!(chunk.set(bit, step), model.insert(bit, step));
            }
            assert_eq!(chunk.get(bit), model.get(&bit).copied());
            assert_eq!(chunk.len(), model.len());
            assert!(chunk.iter().eq(model.iter().map(|(b, v)| (*b, *v))));
        }
    }
}
