//! One bit for each block, and counts of them.
//!
//! 32 MiB per TiB.

use super::{GROUP_BLOCKS, GROUP_WORDS, Run, WORD};

pub(super) struct Bitmap {
    /// Bit set: in use. Bits past the device are set.
    bits: Vec<u64>,
    group_free: Vec<u16>,
    blocks: u32,
    free: u32,
    /// Words of which all blocks are free.
    free_words: u32,
}

impl Bitmap {
    /// All free.
    pub(super) fn new(blocks: u32) -> Bitmap {
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        let mut bitmap = Bitmap {
            bits: vec![0; groups as usize * GROUP_WORDS],
            group_free: vec![GROUP_BLOCKS as u16; groups as usize],
            blocks,
            free: groups * GROUP_BLOCKS,
            free_words: groups * GROUP_WORDS as u32,
        };
        (blocks..groups * GROUP_BLOCKS).for_each(|block| bitmap.set(block));
        bitmap
    }

    pub(super) fn groups(&self) -> u32 {
        self.group_free.len() as u32
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(super) fn free(&self) -> u32 {
        self.free
    }

    pub(super) fn free_words(&self) -> u32 {
        self.free_words
    }

    pub(super) fn free_in(&self, group: u32) -> u16 {
        self.group_free[group as usize]
    }

    pub(super) fn words(&self) -> usize {
        self.bits.len()
    }

    /// The free blocks of a word, as set bits.
    pub(super) fn free_bits(&self, word: usize) -> u64 {
        !self.bits[word]
    }

    pub(super) fn is_used(&self, block: u32) -> bool {
        self.bits[(block / WORD) as usize] >> (block % WORD) & 1 == 1
    }

    pub(super) fn set(&mut self, block: u32) {
        debug_assert!(!self.is_used(block));
        let word = &mut self.bits[(block / WORD) as usize];
        self.free_words -= u32::from(*word == 0);
        *word |= 1 << (block % WORD);
        self.group_free[(block / GROUP_BLOCKS) as usize] -= 1;
        self.free -= 1;
    }

    /// The run is within a group.
    pub(super) fn clear_in_group(&mut self, run: Run) {
        for block in run.start..run.end() {
            assert!(self.is_used(block), "block {block} was free already");
            let word = &mut self.bits[(block / WORD) as usize];
            *word &= !(1 << (block % WORD));
            self.free_words += u32::from(*word == 0);
        }
        self.group_free[(run.start / GROUP_BLOCKS) as usize] += run.count as u16;
        self.free += run.count;
    }

    /// Where the free run that ends with `block` begins, within its group.
    pub(super) fn free_since(&self, block: u32) -> u32 {
        let first = block / GROUP_BLOCKS * GROUP_BLOCKS;
        let mut at = block;
        while at > first {
            let before = at - 1;
            let bit = before % WORD;
            // The block before is the word's highest bit.
            let word = self.bits[(before / WORD) as usize] << (WORD - 1 - bit);
            let clear = word.leading_zeros().min(bit + 1);
            at -= clear;
            if clear < bit + 1 {
                break;
            }
        }
        at
    }
}
