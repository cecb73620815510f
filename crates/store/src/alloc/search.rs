//! Finding free runs.

use super::{Allocator, GROUP_BLOCKS, WORD};

/// Which free blocks a search may find.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    All,
    Touched,
}

impl Allocator {
    /// The free blocks of a word, as set bits.
    pub(super) fn free_bits(&self, word: usize, of: Of) -> u64 {
        let free = self.bitmap.free_bits(word);
        match (&self.untouched, of) {
            (Some(untouched), Of::Touched) => free & !untouched.bits_of(word),
            _ => free,
        }
    }

    /// Whether the group may have a free run of that length.
    pub(super) fn may_have(&self, group: u32, want: u32, of: Of) -> bool {
        let enough = || match (&self.untouched, of) {
            (Some(untouched), Of::Touched) => {
                u32::from(self.bitmap.free_in(group) - untouched.count_in(group)) >= want
            }
            _ => true,
        };
        self.longest.in_group(group) >= want && enough()
    }

    /// Whether a search of the group leaves out nothing that is free.
    fn finds_all(&self, group: u32, of: Of) -> bool {
        of == Of::All || self.untouched.as_ref().is_none_or(|untouched| untouched.count_in(group) == 0)
    }

    /// The free run that starts at `block`, at most `want` long, within its group.
    pub(super) fn run_at(&self, block: u32, want: u32, of: Of) -> u32 {
        let end = (block / GROUP_BLOCKS + 1) * GROUP_BLOCKS;
        let limit = want.min(end - block);
        let mut len = 0;
        while len < limit {
            let at = block + len;
            let taken = !self.free_bits((at / WORD) as usize, of) >> (at % WORD);
            let clear = taken.trailing_zeros().min(WORD - at % WORD);
            len += clear;
            if clear < WORD - at % WORD {
                break;
            }
        }
        len.min(limit)
    }

    /// The first run of `want` blocks at or after `from` in its group. When there
    /// is none in the whole group, then this is known from now on.
    pub(super) fn search_group(&mut self, from: u32, want: u32, of: Of) -> Option<u32> {
        let group = from / GROUP_BLOCKS;
        let (first, end) = (group * GROUP_BLOCKS, (group + 1) * GROUP_BLOCKS);
        // The free run that ends right before the word at hand.
        let mut open = 0;
        for at in (from / WORD * WORD..end).step_by(WORD as usize) {
            let mut free = self.free_bits((at / WORD) as usize, of);
            if at < from {
                free &= u64::MAX << (from % WORD);
            }
            let leading = (!free).trailing_zeros();
            if open + leading >= want {
                return Some(at - open);
            }
            if leading == WORD {
                open += WORD;
                continue;
            }
            if let Some(bit) = run_in_word(free, want) {
                return Some(at + bit);
            }
            open = (!free).leading_zeros();
        }
        if from == first && self.finds_all(group, of) {
            self.longest.note_vain(group, want);
        }
        None
    }

    fn search(&mut self, want: u32) -> Option<u32> {
        let groups = self.bitmap.groups();
        let start_group = self.cursor / GROUP_BLOCKS;
        if self.longest.in_group(start_group) >= want
            && let Some(found) = self.search_group(self.cursor, want, Of::All)
        {
            return Some(found);
        }
        for step in 1..=groups {
            let group = (start_group + step) % groups;
            if self.longest.in_group(group) >= want
                && let Some(found) = self.search_group(group * GROUP_BLOCKS, want, Of::All)
            {
                return Some(found);
            }
        }
        self.longest.note_vain_anywhere(want);
        None
    }

    pub(super) fn search_whole(&mut self, want: u32) -> Option<u32> {
        (want > 0 && want <= self.longest.anywhere()).then(|| self.search(want)).flatten()
    }
}

/// The lowest bit that begins `want` set bits.
pub(super) fn run_in_word(mut bits: u64, want: u32) -> Option<u32> {
    if want > WORD {
        return None;
    }
    // A bit stays set when the `len` bits from it on were.
    let mut len = 1;
    while len < want && bits != 0 {
        let step = len.min(want - len);
        bits &= bits >> step;
        len += step;
    }
    (bits != 0).then(|| bits.trailing_zeros())
}
