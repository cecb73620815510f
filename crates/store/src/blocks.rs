//! An object's map from its blocks to the device's, with their checksums.
//!
//! Chunks of 64 blocks, each a bitmap and the packed entries of the blocks it
//! has: 8 bytes a block, and no structural change when a mapped block gets a
//! new checksum.

use crate::limits::{BLOCK_LEN, OBJECT_LEN_MAX};

/// Blocks of the largest object.
pub(crate) const OBJECT_BLOCKS_MAX: u64 = OBJECT_LEN_MAX / BLOCK_LEN;

const CHUNK_BLOCKS: u32 = 64;

/// Where a block lies, and the CRC32C of its newest content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    /// Device block.
    pub(crate) device: u32,
    pub(crate) crc: u32,
}

#[derive(Clone, Debug)]
struct Chunk {
    index: u32,
    present: u64,
    /// One for each bit of `present`, ascending.
    entries: Vec<Mapping>,
}

impl Chunk {
    fn rank(&self, bit: u32) -> usize {
        (self.present & ((1u64 << bit) - 1)).count_ones() as usize
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct BlockMap {
    /// Ascending by index, none empty.
    chunks: Vec<Chunk>,
    len: u64,
}

impl BlockMap {
    /// Mapped blocks.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    fn find(&self, block: u32) -> Result<usize, usize> {
        let index = block / CHUNK_BLOCKS;
        // Most objects have few chunks and most accesses go to dense ones.
        match self.chunks.get(index as usize) {
            Some(chunk) if chunk.index == index => Ok(index as usize),
            _ => self.chunks.binary_search_by_key(&index, |chunk| chunk.index),
        }
    }

    pub(crate) fn get(&self, block: u32) -> Option<Mapping> {
        let chunk = &self.chunks[self.find(block).ok()?];
        let bit = block % CHUNK_BLOCKS;
        (chunk.present >> bit & 1 == 1).then(|| chunk.entries[chunk.rank(bit)])
    }

    /// Returns what was there.
    pub(crate) fn set(&mut self, block: u32, mapping: Mapping) -> Option<Mapping> {
        let at = match self.find(block) {
            Ok(at) => at,
            Err(at) => {
                let index = block / CHUNK_BLOCKS;
                self.chunks.insert(at, Chunk { index, present: 0, entries: Vec::new() });
                at
            }
        };
        let chunk = &mut self.chunks[at];
        let bit = block % CHUNK_BLOCKS;
        let rank = chunk.rank(bit);
        if chunk.present >> bit & 1 == 1 {
            return Some(std::mem::replace(&mut chunk.entries[rank], mapping));
        }
        chunk.present |= 1 << bit;
        chunk.entries.insert(rank, mapping);
        self.len += 1;
        None
    }

    pub(crate) fn remove(&mut self, block: u32) -> Option<Mapping> {
        let at = self.find(block).ok()?;
        let chunk = &mut self.chunks[at];
        let bit = block % CHUNK_BLOCKS;
        if chunk.present >> bit & 1 == 0 {
            return None;
        }
        let old = chunk.entries.remove(chunk.rank(bit));
        chunk.present &= !(1 << bit);
        self.len -= 1;
        if chunk.present == 0 {
            self.chunks.remove(at);
        }
        Some(old)
    }

    /// Mapped blocks in `start..end`, ascending.
    pub(crate) fn range(&self, start: u64, end: u64) -> impl Iterator<Item = (u32, Mapping)> {
        let first = start.min(OBJECT_BLOCKS_MAX) as u32;
        let (Ok(from) | Err(from)) = self.find(first);
        self.chunks[from..]
            .iter()
            .take_while(move |chunk| u64::from(chunk.index) * u64::from(CHUNK_BLOCKS) < end)
            .flat_map(|chunk| {
                let mut left = chunk.present;
                chunk.entries.iter().map(move |mapping| {
                    let bit = left.trailing_zeros();
                    left &= left.wrapping_sub(1);
                    (chunk.index * CHUNK_BLOCKS + bit, *mapping)
                })
            })
            .filter(move |(block, _)| (start..end).contains(&u64::from(*block)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Mapping)> {
        self.range(0, OBJECT_BLOCKS_MAX)
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
        let mut map = BlockMap::default();
        let mut model: BTreeMap<u32, Mapping> = BTreeMap::new();
        for step in 0..30_000u32 {
            let block = random.below(500) as u32 * if random.chance(1, 3) { 977 } else { 1 };
            if random.chance(2, 5) {
                assert_eq!(map.remove(block), model.remove(&block));
            } else {
                let mapping = Mapping { device: step, crc: !step };
                assert_eq!(map.set(block, mapping), model.insert(block, mapping));
            }
            assert_eq!(map.get(block), model.get(&block).copied());
            assert_eq!(map.len(), model.len() as u64);
            if step % 100 == 0 {
                let (start, end) = (random.below(600), random.below(2000));
                let inside = model.range(start as u32..(end.max(start)) as u32);
                assert!(map.range(start, end).eq(inside.map(|(b, m)| (*b, *m))));
            }
        }
    }
}
