//! Which device blocks are in use.
//!
//! A bitmap with counts (`bitmap.rs`), and an upper bound of the longest free run for each group
//! of blocks (`longest.rs`), so that a search (`search.rs`) skips what cannot serve it. Nothing of
//! it is on the device: it is rebuilt from the index at open, so it cannot disagree with the index.
//!
//! Two ways to allocate. [`Allocator::allocate`] finds one run for one piece of
//! data. [`Allocator::allocate_next`] (`next.rs`) hands out what small writes take one after
//! the other, so that they lie side by side.
//!
//! On a device where the first write to a place costs more than later ones (a file
//! with holes), a second bitmap (`untouched.rs`) says which blocks are untouched: never in use since
//! the store was opened, or discarded. Small writes prefer the others, and where they find only short
//! runs of these, what was laid out for them; see [`crate::lay`].
//!
//! Must not know who uses a block, nor when a freed block may be used again.

mod bitmap;
mod emptying;
mod longest;
mod next;
mod search;
#[cfg(test)]
mod tests;
mod untouched;

use bitmap::Bitmap;
pub(crate) use emptying::{Regions, Survey};
use longest::Longest;
use next::Next;
use search::Of;
use untouched::Untouched;

/// Adjacent device blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl Run {
    pub(crate) fn end(self) -> u32 {
        self.start + self.count
    }

    pub(crate) fn overlaps(self, other: Run) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

pub(crate) const WORD: u32 = 64;
const GROUP_WORDS: usize = 64;
/// 16 MiB: also the longest run ever handed out.
const GROUP_BLOCKS: u32 = WORD * GROUP_WORDS as u32;

pub(crate) struct Allocator {
    bitmap: Bitmap,
    longest: Longest,
    /// Where the search for runs of their own goes on.
    cursor: u32,
    /// What small writes take one after the other.
    next: Next,
    untouched: Option<Untouched>,
}

impl Allocator {
    /// All free.
    pub(crate) fn new(blocks: u32) -> Allocator {
        let bitmap = Bitmap::new(blocks);
        let longest = Longest::new(bitmap.groups());
        Allocator { bitmap, longest, cursor: 0, next: Next::default(), untouched: None }
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.bitmap.blocks()
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        u64::from(self.bitmap.free())
    }

    /// Free stretches of [`WORD`] blocks, at multiples of that.
    pub(crate) fn free_words(&self) -> u32 {
        self.bitmap.free_words()
    }

    pub(crate) fn is_used(&self, block: u32) -> bool {
        self.bitmap.is_used(block)
    }

    /// Up to `want` adjacent blocks: all of them where such a run exists, else
    /// half as many, and so on. `hint`, when free, is where they start.
    pub(crate) fn allocate(&mut self, want: u32, hint: Option<u32>) -> Option<Run> {
        if self.bitmap.free() == 0 || want == 0 {
            return None;
        }
        if let Some(hint) = hint
            && hint < self.bitmap.blocks()
            && !self.is_used(hint)
        {
            let count = self.run_at(hint, want, Of::All);
            if count == want || count * 2 > want {
                return Some(self.take(Run { start: hint, count }));
            }
        }
        let mut ask = want;
        loop {
            ask = ask.min(self.longest.anywhere());
            if let Some(run) = self.allocate_whole(ask) {
                return Some(run);
            }
            assert!(ask > 1, "a free block exists");
            ask = ask.div_ceil(2);
        }
    }

    /// `want` adjacent blocks or none, behind those that were found before where that is possible.
    pub(crate) fn allocate_whole(&mut self, want: u32) -> Option<Run> {
        let start = self.search_whole(want)?;
        let run = self.take(Run { start, count: want });
        self.cursor = run.end() % self.bitmap.blocks();
        Some(run)
    }

    /// Whether there is such a run. Where there is none, asking again costs nothing until something is freed.
    pub(crate) fn has_whole(&mut self, want: u32) -> bool {
        self.search_whole(want).is_some()
    }

    /// Marks one block; false when it was in use already.
    pub(crate) fn mark(&mut self, block: u32) -> bool {
        if self.is_used(block) {
            return false;
        }
        self.set(block);
        true
    }

    /// Marks a run; false, with nothing changed, when part of it was in use or outside.
    pub(crate) fn mark_run(&mut self, run: Run) -> bool {
        let Some(end) = run.start.checked_add(run.count) else {
            return false;
        };
        if end > self.bitmap.blocks() || (run.start..end).any(|block| self.is_used(block)) {
            return false;
        }
        (run.start..end).for_each(|block| self.set(block));
        true
    }

    fn set(&mut self, block: u32) {
        self.bitmap.set(block);
        if let Some(untouched) = &mut self.untouched {
            untouched.clear((block / WORD) as usize, 1 << (block % WORD));
        }
    }

    fn take(&mut self, run: Run) -> Run {
        (run.start..run.end()).for_each(|block| self.set(block));
        run
    }

    pub(crate) fn release(&mut self, run: Run) {
        let mut start = run.start;
        while start < run.end() {
            let end = ((start / GROUP_BLOCKS + 1) * GROUP_BLOCKS).min(run.end());
            self.release_in_group(Run { start, count: end - start });
            start = end;
        }
    }

    fn release_in_group(&mut self, run: Run) {
        self.bitmap.clear_in_group(run);
        // With what is free on either side.
        let group = run.start / GROUP_BLOCKS;
        let len = run.end() - self.bitmap.free_since(run.start);
        let is_last = run.end() == (group + 1) * GROUP_BLOCKS;
        let len = if is_last { len } else { len + self.run_at(run.end(), GROUP_BLOCKS, Of::All) };
        self.longest.note_freed(group, len);
    }

    /// From now on tells untouched blocks from others. What is free at this moment is untouched,
    /// unless all of the device was written at some time: then only what is discarded will be.
    pub(crate) fn watch_untouched(&mut self, written_out: bool) {
        self.untouched = Some(if written_out {
            Untouched::none(self.bitmap.groups())
        } else {
            Untouched::all_free(&self.bitmap)
        });
    }

    /// Free blocks that were written before.
    pub(crate) fn touched_free(&self) -> u32 {
        self.bitmap.free() - self.untouched.as_ref().map_or(0, Untouched::count)
    }

    /// Takes up to `want` adjacent untouched blocks, in whole words of the bitmap.
    pub(crate) fn take_untouched(&mut self, want: u32) -> Option<Run> {
        let words = (want / WORD).max(1) as usize;
        let (at, end) = self.untouched.as_mut()?.next_whole_words(words)?;
        Some(self.take(Run { start: at as u32 * WORD, count: (end - at) as u32 * WORD }))
    }

    /// Gives back blocks of [`Self::take_untouched`] that have been written: when small writes find
    /// only short runs, they fill this one.
    pub(crate) fn release_laid(&mut self, run: Run) {
        self.release(run);
        if let Some(untouched) = &mut self.untouched {
            untouched.note_laid(run);
        }
    }

    /// Blocks in runs given back so and not filled since.
    pub(crate) fn laid(&self) -> u32 {
        self.untouched.as_ref().map_or(0, Untouched::laid_blocks)
    }

    /// Gives back blocks whose places the device has forgotten.
    pub(crate) fn release_untouched(&mut self, run: Run) {
        self.release(run);
        if let Some(untouched) = &mut self.untouched {
            for block in run.start..run.end() {
                untouched.set((block / WORD) as usize, 1 << (block % WORD));
            }
        }
    }
}
