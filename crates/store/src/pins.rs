//! Device ranges under a request: neither written in place nor handed out
//! again until the request ends, so that no read sees half of a later write
//! and no late write lands on a new owner's data.

use crate::alloc::Run;
use std::collections::BTreeMap;

/// No pinned run is longer: bounds the search for overlaps.
pub(crate) const PINNED_MAX: u32 = 1024;

#[derive(Default)]
pub(crate) struct Pins {
    /// By first block and the request's token; the number of blocks.
    runs: BTreeMap<(u32, u64), u32>,
}

impl Pins {
    pub(crate) fn pin(&mut self, run: Run, token: u64) {
        assert!(run.count <= PINNED_MAX);
        self.runs.insert((run.start, token), run.count);
    }

    pub(crate) fn unpin(&mut self, run: Run, token: u64) {
        self.runs.remove(&(run.start, token));
    }

    pub(crate) fn overlaps(&self, run: Run) -> bool {
        if self.runs.is_empty() {
            return false;
        }
        let from = (run.start.saturating_sub(PINNED_MAX), 0);
        self.runs
            .range(from..(run.end(), 0))
            .any(|((start, _), count)| Run { start: *start, count: *count }.overlaps(run))
    }
}
