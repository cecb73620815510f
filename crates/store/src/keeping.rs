//! Whether small overwrites keep the places that their blocks have.
//!
//! Fresh places side by side save device writes, as long as there are long free runs. Each block
//! that goes there leaves a hole and cuts its object once more: on a nearly full device random
//! overwrites soon find only holes of one block, a device write each, every object lies in as many
//! places as it has blocks, and what is large finds no room in one piece either. So when the last long
//! runs come into use on such a device, blocks that are overwritten stay where they are, through the
//! log record: no more device writes than holes cost, though of twice the bytes; and the long runs
//! are left for what is large or new.
//!
//! Nothing is remembered: after an open the answer follows from what is free then.

use crate::alloc::{Allocator, WORD};

/// Of the device, in 32nds.
struct Part(u64);

impl Part {
    fn of(&self, alloc: &Allocator) -> u64 {
        u64::from(alloc.blocks()) * self.0 / 32
    }
}

/// With less free space than this, and less than that of it in long runs, places are kept ...
const FULL: Part = Part(4);
const SCATTERED: Part = Part(1);
/// ... until there is this much of either.
const ROOMY: Part = Part(5);
const IN_RUNS: Part = Part(2);

#[derive(Default)]
pub(crate) struct Keeping {
    on: bool,
}

impl Keeping {
    pub(crate) fn keeps_places(&mut self, alloc: &Allocator) -> bool {
        let (full, scattered) = if self.on { (ROOMY, IN_RUNS) } else { (FULL, SCATTERED) };
        let in_runs = u64::from(alloc.free_words() * WORD);
        self.on = alloc.free_blocks() < full.of(alloc) && in_runs < scattered.of(alloc);
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::Run;

    const BLOCKS: u32 = 32 * 1024;

    /// Every eighth block is free, and `long` blocks at the end.
    fn scattered(every: u32, long: u32) -> Allocator {
        let mut alloc = Allocator::new(BLOCKS);
        let taken = (0..BLOCKS - long).filter(|block| block % every != 0);
        taken.for_each(|block| assert!(alloc.mark(block)));
        alloc
    }

    fn take(alloc: &mut Allocator, start: u32, count: u32) {
        assert!(alloc.mark_run(Run { start, count }));
    }

    #[test]
    fn places_are_kept_where_it_is_full_and_long_runs_are_scarce() {
        let part = BLOCKS / 32;
        let keeps = |alloc: &Allocator| Keeping::default().keeps_places(alloc);
        assert!(!keeps(&Allocator::new(BLOCKS)));
        // Scattered, but with room; full, but in one piece; both.
        assert!(!keeps(&scattered(2, 0)));
        assert!(!keeps(&scattered(BLOCKS, 3 * part)));
        assert!(!keeps(&scattered(16, part)));
        assert!(keeps(&scattered(16, part - WORD)));
        assert!(keeps(&scattered(16, 0)));
    }

    #[test]
    fn it_goes_on_until_there_is_clearly_more_room() {
        let part = BLOCKS / 32;
        let mut alloc = scattered(64, 2 * part);
        let mut keeping = Keeping::default();
        let end = BLOCKS - 2 * part;
        assert!(!keeping.keeps_places(&alloc));
        take(&mut alloc, end, part);
        assert!(!keeping.keeps_places(&alloc));
        take(&mut alloc, end + part, 1);
        assert!(keeping.keeps_places(&alloc));
        // A little more does not end it, a little less than that does not begin it again.
        alloc.release(Run { start: end, count: part });
        assert!(keeping.keeps_places(&alloc));
        alloc.release(Run { start: end + part, count: 1 });
        assert!(!keeping.keeps_places(&alloc));
        take(&mut alloc, end, part);
        assert!(!keeping.keeps_places(&alloc));
    }

    #[test]
    fn it_ends_when_much_is_free_however_scattered() {
        let mut alloc = scattered(16, 0);
        let mut keeping = Keeping::default();
        assert!(keeping.keeps_places(&alloc));
        let mut released = (1..BLOCKS).step_by(16);
        for block in released.by_ref().take(BLOCKS as usize / 16 - 1) {
            alloc.release(Run { start: block, count: 1 });
            assert!(keeping.keeps_places(&alloc), "an eighth is free");
        }
        for block in (2..BLOCKS).step_by(16).take(BLOCKS as usize / 32 + 2) {
            alloc.release(Run { start: block, count: 1 });
        }
        assert!(!keeping.keeps_places(&alloc));
    }
}
