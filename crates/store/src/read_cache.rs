//! Blocks of objects that were read lately, by their place on the device.
//!
//! Written ones stay out: a copy of each cost 5 % of an OSD's CPU for a write, and who writes
//! small blocks (a file system, a database) has them in a larger cache of its own.
//!
//! Bounded in bytes. Only small requests go through it: a stream of large ones
//! would push out everything else, and gains nothing. Evicts as S3-FIFO does, so
//! what is touched once leaves soon.
//!
//! A block's content changes only where it lies: whoever frees a place, or puts
//! something new there, forgets it here first. Besides, a block is only found
//! under the checksum that the index has for it.

use crate::alloc::Run;
use crate::key_map::KeyHasher;
use crate::limits::BLOCK_LEN;
use base::MemoryUse;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use std::hash::BuildHasherDefault;

/// Requests of more blocks pass by.
pub(crate) const BLOCKS_MAX: u32 = 16;

/// A block, its entry, and what the allocator adds.
const WEIGHT: u64 = BLOCK_LEN + 128;

#[derive(Clone)]
struct Block {
    crc: u32,
    content: Bytes,
}

#[derive(Clone)]
struct SameWeight;

impl Weighter<u32, Block> for SameWeight {
    fn weight(&self, _: &u32, _: &Block) -> u64 {
        WEIGHT
    }
}

type Blocks = Cache<u32, Block, SameWeight, BuildHasherDefault<KeyHasher>, DefaultLifecycle<u32, Block>>;

pub(crate) struct ReadCache {
    /// None when it is to hold nothing.
    blocks: Option<Blocks>,
    pub(crate) hits: u64,
}

impl ReadCache {
    pub(crate) fn new(bytes: usize) -> ReadCache {
        let count = bytes as u64 / WEIGHT;
        let blocks = (count > 0).then(|| {
            let weight = count * WEIGHT;
            Cache::with(count as usize, weight, SameWeight, Default::default(), Default::default())
        });
        ReadCache { blocks, hits: 0 }
    }

    pub(crate) fn get(&self, device: u32, crc: u32) -> Option<Bytes> {
        let block = self.blocks.as_ref()?.get(&device)?;
        (block.crc == crc).then(|| block.content.clone())
    }

    /// `content` is one block, whose checksum was compared.
    pub(crate) fn put(&mut self, device: u32, crc: u32, content: &Bytes) {
        let Some(blocks) = &mut self.blocks else { return };
        // Not a slice: that would keep the memory around it.
        let content = Bytes::copy_from_slice(content);
        blocks.insert(device, Block { crc, content });
    }

    pub(crate) fn forget(&mut self, run: Run) {
        let Some(blocks) = &mut self.blocks else { return };
        if !blocks.is_empty() {
            (run.start..run.end()).for_each(|device| drop(blocks.remove(&device)));
        }
    }

    pub(crate) fn memory(&self) -> MemoryUse {
        let of = |blocks: &Blocks| MemoryUse { items: blocks.len() as u64, bytes: blocks.weight() };
        self.blocks.as_ref().map(of).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(fill: u8) -> Bytes {
        Bytes::from(vec![fill; BLOCK_LEN as usize])
    }

    #[test]
    fn a_block_is_found_under_its_checksum_until_its_place_is_forgotten() {
        let mut cache = ReadCache::new(1 << 20);
        cache.put(7, 1, &block(1));
        assert_eq!(cache.get(7, 1), Some(block(1)));
        assert_eq!(cache.get(7, 2), None);
        assert_eq!(cache.get(8, 1), None);
        cache.put(7, 2, &block(2));
        assert_eq!((cache.get(7, 1), cache.get(7, 2)), (None, Some(block(2))));
        cache.forget(Run { start: 0, count: 100 });
        assert_eq!((cache.get(7, 2), cache.memory().bytes), (None, 0));
    }

    #[test]
    fn takes_no_more_than_its_bytes_and_keeps_what_is_asked_for_again() {
        let limit = 256 << 10;
        let mut cache = ReadCache::new(limit);
        for device in 0..1000 {
            cache.put(device, 0, &block(0));
            for hot in 0..device.min(10) {
                let _ = cache.get(hot, 0);
            }
            assert!(cache.memory().bytes <= limit as u64);
        }
        assert!(cache.memory().bytes > limit as u64 / 2);
        let kept = (0..10).filter(|hot| cache.get(*hot, 0).is_some()).count();
        assert!(kept >= 8, "{kept}");
        assert_eq!(ReadCache::new(0).get(1, 0), None);
    }
}
