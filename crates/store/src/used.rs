//! Which device blocks hold object data, as the index has it at this moment.
//!
//! The allocator knows more (what is still being freed, what the store keeps
//! for itself); this is what a checkpoint saves, so that an open need not walk
//! all objects. Clones are cheap, for a snapshot.

use std::sync::Arc;

const GROUP_WORDS: usize = 64;
pub(crate) const GROUP_BLOCKS: u32 = 64 * GROUP_WORDS as u32;

pub(crate) type Words = [u64; GROUP_WORDS];

#[derive(Clone, Default)]
pub(crate) struct Used {
    groups: Vec<Option<Arc<Words>>>,
}

impl Used {
    /// Returns false when it was set already.
    pub(crate) fn set(&mut self, block: u32) -> bool {
        let (word, bit) = self.word(block);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    pub(crate) fn clear(&mut self, block: u32) {
        let (word, bit) = self.word(block);
        *word &= !bit;
    }

    pub(crate) fn is_set(&self, block: u32) -> bool {
        let group = self.groups.get((block / GROUP_BLOCKS) as usize);
        let Some(Some(words)) = group else {
            return false;
        };
        words[(block % GROUP_BLOCKS / 64) as usize] >> (block % 64) & 1 == 1
    }

    fn word(&mut self, block: u32) -> (&mut u64, u64) {
        let group = (block / GROUP_BLOCKS) as usize;
        if self.groups.len() <= group {
            self.groups.resize(group + 1, None);
        }
        let words = self.groups[group].get_or_insert_with(|| Arc::new([0; GROUP_WORDS]));
        let word = &mut Arc::make_mut(words)[(block % GROUP_BLOCKS / 64) as usize];
        (word, 1 << (block % 64))
    }

    pub(crate) fn group_len(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn group(&self, group: usize) -> Option<&Words> {
        self.groups.get(group)?.as_deref()
    }

    /// The blocks of one group, as a checkpoint has them.
    pub(crate) fn load(&mut self, group: u32, words: Words) {
        let at = group as usize;
        if self.groups.len() <= at {
            self.groups.resize(at + 1, None);
        }
        self.groups[at] = Some(Arc::new(words));
    }
}

/// First block of a group, and the blocks set in it.
pub(crate) fn blocks_of(group: u32, words: &Words) -> impl Iterator<Item = u32> {
    let base = group * GROUP_BLOCKS;
    words.iter().enumerate().flat_map(move |(i, word)| {
        let mut left = *word;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let bit = left.trailing_zeros();
            left &= left - 1;
            Some(base + i as u32 * 64 + bit)
        })
    })
}
