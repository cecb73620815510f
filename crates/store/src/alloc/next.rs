//! What small writes take one after the other, so that they lie side by side.
//!
//! One free run after the other is filled, and the next is chosen with care: the length asked for
//! doubles while such runs are found at once, and halves when a bounded search finds none. On a
//! fragmented device that costs about a microsecond for each run, and saves a
//! device write for each it makes unnecessary.

use super::search::Of;
use super::{Allocator, GROUP_BLOCKS, Run, WORD};

/// The longest run that [`Allocator::allocate_next`] insists on.
pub(super) const CHOOSY_MAX: u32 = 64;

/// Runs shorter than this make small writes need more device writes than they should.
const CROWDED: u32 = 8;

/// What its search for one run may cost: groups passed over, and groups looked
/// into, each of which counts for so many.
const SEARCH_COST_MAX: u32 = 1024;
const LOOK_COST: u32 = 32;

pub(super) struct Next {
    /// Where it goes on.
    at: u32,
    /// The runs that are asked for.
    choosy: u32,
}

impl Default for Next {
    fn default() -> Next {
        Next { at: 0, choosy: CHOOSY_MAX }
    }
}

impl Allocator {
    /// Small writes find only short runs of touched blocks.
    pub(crate) fn is_crowded(&self) -> bool {
        self.next.choosy < CROWDED
    }

    /// Up to `want` adjacent blocks, right after those that the call before gave
    /// wherever these are free.
    pub(crate) fn allocate_next(&mut self, want: u32) -> Option<Run> {
        if self.bitmap.free() == 0 || want == 0 {
            return None;
        }
        let of = if self.touched_free() > 0 { Of::Touched } else { Of::All };
        let usable = self.next.at < self.bitmap.blocks()
            && self.free_bits((self.next.at / WORD) as usize, of) >> (self.next.at % WORD) & 1 == 1;
        if !usable {
            self.next.at = self.choose_next(of);
        }
        let count = self.run_at(self.next.at, want, of);
        let run = self.take(Run { start: self.next.at, count });
        if let Some(untouched) = &mut self.untouched {
            untouched.note_filled(run);
        }
        self.next.at = run.end();
        Some(run)
    }

    /// Where a run begins that was laid out, if somebody else has not taken it.
    fn next_laid(&mut self) -> Option<u32> {
        loop {
            let run = self.untouched.as_ref()?.next_laid()?;
            let least = CROWDED.min(run.count);
            if self.run_at(run.start, least, Of::Touched) == least {
                return Some(run.start);
            }
            self.untouched.as_mut()?.skip_laid();
        }
    }

    /// The run to be filled next. Such a free block exists.
    fn choose_next(&mut self, of: Of) -> u32 {
        if self.is_crowded()
            && let Some(start) = self.next_laid()
        {
            return start;
        }
        let groups = self.bitmap.groups();
        let mut at = self.next.at % self.bitmap.blocks();
        loop {
            let (from, mut cost) = (at, 0);
            let want = self.next.choosy;
            // All groups and the first one's beginning.
            for _ in 0..=groups {
                let group = at / GROUP_BLOCKS;
                cost += 1;
                if self.may_have(group, want, of) {
                    cost += LOOK_COST;
                    if let Some(found) = self.search_group(at, want, of) {
                        if cost < SEARCH_COST_MAX / 16 {
                            self.next.choosy = (want * 2).min(CHOOSY_MAX);
                        }
                        return found;
                    }
                }
                at = (group + 1) % groups * GROUP_BLOCKS;
                if cost >= SEARCH_COST_MAX && want > 1 {
                    break;
                }
            }
            assert!(want > 1, "a free block exists");
            self.next.choosy = want / 2;
            at = from;
        }
    }
}
