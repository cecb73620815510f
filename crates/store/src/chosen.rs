//! Places that are chosen before their transaction is applied.
//!
//! A clone adds a reference to each block of its source, on pages that have to be in memory. What the
//! same transaction has written before gets its places only when it is applied: where such pages may be
//! absent, these are chosen first, so that it can be said which pages that takes. Nothing refers to them
//! until then: a power cut leaves them free.

use crate::alloc::{Allocator, Run};
use crate::core::Core;

#[derive(Default)]
pub(crate) struct Chosen {
    /// For the first of the waiting transactions; taken from the end.
    runs: Vec<Run>,
}

impl Chosen {
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum()
    }

    /// Up to `want` adjacent blocks, if there are any.
    fn take(&mut self, want: u32) -> Option<Run> {
        let last = self.runs.last_mut()?;
        let run = Run { start: last.start, count: want.min(last.count) };
        *last = Run { start: run.end(), count: last.count - run.count };
        if last.count == 0 {
            self.runs.pop();
        }
        Some(run)
    }
}

impl Core {
    /// So many blocks for the first of the waiting transactions.
    pub(crate) fn choose(&mut self, blocks: u64) {
        let mut left = u32::try_from(blocks).expect("a transaction is smaller than a device");
        while left > 0 {
            let run = self.alloc.allocate(left, None).expect("space was checked before");
            left -= run.count;
            self.chosen.runs.push(run);
        }
    }

    /// Gives back what it has not used.
    pub(crate) fn release_chosen(&mut self) {
        self.chosen.runs.drain(..).for_each(|run| self.alloc.release(run));
    }

    /// A fresh place of up to `want` adjacent blocks: what was chosen, else what `allocate` finds.
    pub(crate) fn fresh(&mut self, want: u32, allocate: impl FnOnce(&mut Allocator) -> Option<Run>) -> Run {
        let run = self.chosen.take(want).or_else(|| allocate(&mut self.alloc));
        run.expect("space was checked before")
    }
}
