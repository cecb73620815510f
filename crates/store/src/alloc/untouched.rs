//! Places of a file that were never written: the first write there costs more than later ones.
//!
//! Also knows which places [`crate::lay`] has written in advance, and in what long runs.

use super::bitmap::Bitmap;
use super::{GROUP_WORDS, Run, WORD};
use std::collections::VecDeque;

/// Words and groups that one search for untouched blocks looks at.
const UNTOUCHED_LOOKS: usize = 1024;

/// Places where a write costs more than elsewhere.
pub(super) struct Untouched {
    /// Bit set: untouched, and so free.
    bits: Vec<u64>,
    group_count: Vec<u16>,
    count: u32,
    /// Words of the bitmap that are untouched as a whole: what a search finds.
    whole_words: u32,
    /// Where the search for them goes on, in words.
    cursor: usize,
    /// Runs written for nobody yet, for whom to fill next; some may have been taken since.
    laid: VecDeque<Run>,
    laid_blocks: u32,
}

impl Untouched {
    /// All places were written.
    pub(super) fn none(groups: u32) -> Untouched {
        Untouched {
            bits: vec![0; groups as usize * GROUP_WORDS],
            group_count: vec![0; groups as usize],
            count: 0,
            whole_words: 0,
            cursor: 0,
            laid: VecDeque::new(),
            laid_blocks: 0,
        }
    }

    /// What is free at this moment was never written.
    pub(super) fn all_free(bitmap: &Bitmap) -> Untouched {
        Untouched {
            bits: (0..bitmap.words()).map(|word| bitmap.free_bits(word)).collect(),
            group_count: (0..bitmap.groups()).map(|group| bitmap.free_in(group)).collect(),
            count: bitmap.free(),
            whole_words: bitmap.free_words(),
            ..Untouched::none(0)
        }
    }

    /// The untouched blocks of a word, as set bits.
    pub(super) fn bits_of(&self, word: usize) -> u64 {
        self.bits[word]
    }

    pub(super) fn count_in(&self, group: u32) -> u16 {
        self.group_count[group as usize]
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn note_laid(&mut self, run: Run) {
        self.laid.push_back(run);
        self.laid_blocks += run.count;
    }

    pub(super) fn next_laid(&self) -> Option<Run> {
        self.laid.front().copied()
    }

    /// Somebody else has taken it.
    pub(super) fn skip_laid(&mut self) {
        self.laid_blocks -= self.laid.pop_front().map_or(0, |run| run.count);
    }

    /// Small writes have filled this; they come to the runs in order.
    pub(super) fn note_filled(&mut self, run: Run) {
        while let Some(first) = self.laid.front_mut()
            && run.start <= first.start
            && first.start < run.end()
        {
            let filled = run.end().min(first.end()) - first.start;
            first.start += filled;
            first.count -= filled;
            self.laid_blocks -= filled;
            if first.count > 0 {
                break;
            }
            self.laid.pop_front();
        }
    }

    /// Blocks in the runs of [`Self::note_laid`].
    pub(super) fn laid_blocks(&self) -> u32 {
        self.laid_blocks
    }

    pub(super) fn clear(&mut self, word: usize, bit: u64) {
        if self.bits[word] & bit != 0 {
            self.whole_words -= u32::from(self.bits[word] == u64::MAX);
            self.bits[word] &= !bit;
            self.group_count[word / GROUP_WORDS] -= 1;
            self.count -= 1;
        }
    }

    pub(super) fn set(&mut self, word: usize, bit: u64) {
        self.bits[word] |= bit;
        self.whole_words += u32::from(self.bits[word] == u64::MAX);
        self.group_count[word / GROUP_WORDS] += 1;
        self.count += 1;
    }

    /// Up to `words` adjacent words of the bitmap that are untouched as a whole: the first and the
    /// one behind the last.
    pub(super) fn next_whole_words(&mut self, words: usize) -> Option<(usize, usize)> {
        let at = self.next_whole_word()?;
        let limit = self.bits.len().min(at + words);
        let end = (at..limit).find(|at| self.bits[*at] != u64::MAX).unwrap_or(limit);
        self.cursor = end % self.bits.len();
        Some((at, end))
    }

    /// Groups that cannot have one cost one look.
    fn next_whole_word(&mut self) -> Option<usize> {
        let words = self.bits.len();
        let mut at = self.cursor;
        for _ in 0..UNTOUCHED_LOOKS {
            if self.whole_words == 0 {
                break;
            }
            if self.bits[at] == u64::MAX {
                return Some(at);
            }
            let group = at / GROUP_WORDS;
            let skipped = u32::from(self.group_count[group]) < WORD;
            at = if skipped { (group + 1) * GROUP_WORDS } else { at + 1 } % words;
        }
        self.cursor = at;
        None
    }
}
