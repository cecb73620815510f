//! Tells the device which space is free, once there is nothing else to do.
//!
//! Under load freed space is soon used again, and a discard in between costs
//! more than it gives: measured on a file, a millisecond of CPU for each 4 MiB
//! that is overwritten. So freed cells are only remembered, and discarded after
//! some commits in a row that had nothing to write, one request at a time, until
//! the next request of any other kind.
//!
//! Crash: nothing changes. Only blocks are discarded that might as well be
//! overwritten; while the device works on them they count as used.

use crate::alloc::Run;
use crate::core::Core;

/// Blocks of one request: 64 MiB.
const REQUEST_BLOCKS_MAX: u32 = 16 << 10;

/// Cells looked at in one go.
const LOOKS_MAX: u32 = 1024;

/// The device in cells of `discard_blocks_min` blocks: those in which something
/// was freed and that may be free as a whole.
pub(crate) struct Trim {
    cell_blocks: u32,
    cells: u32,
    /// One bit a cell; empty when the device is not to be told.
    pending: Vec<u64>,
    pending_count: u32,
    /// Where the search goes on.
    cursor: u32,
    in_flight: bool,
    /// Commits in a row that had nothing to do.
    quiet: u32,
}

impl Trim {
    pub(crate) fn new(enabled: bool, blocks: u32, cell_blocks: u32) -> Trim {
        let cell_blocks = cell_blocks.max(1);
        let cells = if enabled { blocks.div_ceil(cell_blocks) } else { 0 };
        Trim {
            cell_blocks,
            cells,
            pending: vec![0; cells.div_ceil(64) as usize],
            pending_count: 0,
            cursor: 0,
            in_flight: false,
            quiet: 0,
        }
    }

    pub(crate) fn on_freed(&mut self, run: Run) {
        if self.cells == 0 || run.count == 0 {
            return;
        }
        for cell in run.start / self.cell_blocks..=(run.end() - 1) / self.cell_blocks {
            let bit = 1 << (cell % 64);
            let word = &mut self.pending[(cell / 64) as usize];
            self.pending_count += u32::from(*word & bit == 0);
            *word |= bit;
        }
    }

    fn take(&mut self, cell: u32) -> bool {
        let bit = 1 << (cell % 64);
        let word = &mut self.pending[(cell / 64) as usize];
        let was_pending = *word & bit != 0;
        *word &= !bit;
        self.pending_count -= u32::from(was_pending);
        was_pending
    }

    fn blocks_of(&self, cell: u32, blocks: u32) -> Run {
        let start = cell * self.cell_blocks;
        Run { start, count: self.cell_blocks.min(blocks - start) }
    }

    /// The next run of pending cells that `claim` takes one by one, at most `limit` blocks.
    fn next(&mut self, blocks: u32, limit: u32, mut claim: impl FnMut(Run) -> bool) -> Option<Run> {
        let mut found: Option<Run> = None;
        let mut looks = 0;
        while self.pending_count > 0 && looks < LOOKS_MAX {
            if self.cursor >= self.cells {
                if found.is_some() {
                    break;
                }
                self.cursor = 0;
            }
            let cell = self.cursor;
            // Whole words without a pending cell cost one look.
            if cell.is_multiple_of(64) && self.pending[(cell / 64) as usize] == 0 && found.is_none() {
                self.cursor += 64;
                looks += 1;
                continue;
            }
            let run = self.blocks_of(cell, blocks);
            if found.is_some_and(|found| found.count + run.count > limit) || run.count > limit {
                break;
            }
            self.cursor += 1;
            looks += 1;
            let claimed = self.take(cell) && claim(run);
            match (&mut found, claimed) {
                (Some(found), true) => found.count += run.count,
                (Some(_), false) => break,
                (None, true) => found = Some(run),
                (None, false) => {}
            }
        }
        found
    }
}

/// After so many commits in a row that had nothing to do, memory for long reads is given back.
const BUFFERS_QUIET_COMMITS: u32 = 16;

impl Core {
    /// At each commit, before it does anything.
    pub(crate) fn note_quiet(&mut self) {
        let idle = self.io.len() == usize::from(self.trim.in_flight) + self.lay.in_flight();
        let quiet = idle && self.batches.iter().all(|batch| batch.is_empty());
        self.trim.quiet = if quiet { self.trim.quiet.saturating_add(1) } else { 0 };
        if self.trim.quiet >= BUFFERS_QUIET_COMMITS {
            self.read_buffers.clear();
        }
    }

    pub(crate) fn pump_trim(&mut self) {
        let wait = self.options.discard_quiet_commits;
        if self.trim.pending_count == 0 || self.trim.in_flight || self.trim.quiet < wait {
            return;
        }
        if wait > 0 && !(self.io.is_idle() && self.batches.iter().all(|batch| batch.is_empty())) {
            return;
        }
        // What is being discarded is not there for a write that comes meanwhile.
        let limit = REQUEST_BLOCKS_MAX.min(u32::try_from(self.available_blocks() / 4).unwrap_or(u32::MAX));
        let blocks = self.alloc.blocks();
        let alloc = &mut self.alloc;
        if let Some(run) = self.trim.next(blocks, limit, |run| alloc.mark_run(run)) {
            self.trim.in_flight = true;
            self.io.discard(run);
        }
    }

    /// A refused hint is no harm.
    pub(crate) fn on_discarded(&mut self, run: Run) {
        self.trim.in_flight = false;
        self.alloc.release_untouched(run);
    }

    /// Before a stop: the device's other work comes first.
    pub(crate) fn stop_trimming(&mut self) {
        self.trim.quiet = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, count: u32) -> Run {
        Run { start, count }
    }

    #[test]
    fn neighbouring_cells_go_together_up_to_the_limit() {
        let mut trim = Trim::new(true, 1000, 10);
        trim.on_freed(run(15, 30));
        trim.on_freed(run(995, 5));
        assert_eq!(trim.next(1000, 30, |_| true), Some(run(10, 30)));
        assert_eq!(trim.next(1000, 30, |_| true), Some(run(40, 10)));
        assert_eq!(trim.next(1000, 30, |_| true), Some(run(990, 10)));
        assert_eq!(trim.next(1000, 30, |_| true), None);
    }

    #[test]
    fn cells_in_use_are_left_until_something_is_freed_there_again() {
        let mut trim = Trim::new(true, 100, 10);
        trim.on_freed(run(0, 30));
        let claim = |run: Run| run.start != 10;
        assert_eq!(trim.next(100, 100, claim), Some(run(0, 10)));
        assert_eq!(trim.next(100, 100, claim), Some(run(20, 10)));
        assert_eq!(trim.next(100, 100, |_| true), None);
        trim.on_freed(run(11, 1));
        assert_eq!(trim.next(100, 100, |_| true), Some(run(10, 10)));
    }

    #[test]
    fn the_last_cell_ends_with_the_device() {
        let mut trim = Trim::new(true, 25, 10);
        trim.on_freed(run(24, 1));
        assert_eq!(trim.next(25, 100, |_| true), Some(run(20, 5)));
        assert_eq!(Trim::new(false, 25, 10).next(25, 100, |_| true), None);
    }
}
