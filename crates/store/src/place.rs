//! Where a page lies on the device: up to two copies, each in as few runs as
//! free space allows.

use crate::alloc::{Allocator, Run};
use crate::limits::BLOCK_LEN;
use crate::superblock::COPIES_MAX;
use base::crc32c;

/// Pages of a tree lie in no more runs than this; longer pages exist only for
/// single long values, whose limit this covers at 16 blocks a run and more.
pub(crate) const RUNS_MAX: usize = 4096;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Extents {
    /// All of it from this block on.
    At(u32),
    Runs(Box<[Run]>),
}

impl Extents {
    pub(crate) fn new(runs: Vec<Run>) -> Extents {
        match runs[..] {
            [run] => Extents::At(run.start),
            _ => Extents::Runs(runs.into()),
        }
    }

    pub(crate) fn runs(&self, blocks: u32) -> impl Iterator<Item = Run> {
        let (one, many) = match self {
            Extents::At(start) => (Some(Run { start: *start, count: blocks }), &[][..]),
            Extents::Runs(runs) => (None, &runs[..]),
        };
        one.into_iter().chain(many.iter().copied())
    }
}

/// A page on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Bytes of the page.
    pub(crate) len: u32,
    pub(crate) crc: u32,
    pub(crate) copies: [Option<Extents>; COPIES_MAX],
}

pub(crate) fn blocks_of(len: usize) -> u32 {
    len.div_ceil(BLOCK_LEN as usize) as u32
}

impl Place {
    pub(crate) fn blocks(&self) -> u32 {
        blocks_of(self.len as usize)
    }

    /// Of all copies.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        let blocks = self.blocks();
        self.copies.iter().flatten().flat_map(move |extents| extents.runs(blocks))
    }

    pub(crate) fn copy_runs(&self, copy: usize) -> Vec<Run> {
        let blocks = self.blocks();
        self.copies[copy].iter().flat_map(|extents| extents.runs(blocks)).collect()
    }

    /// The page without its padding, when it is intact.
    pub(crate) fn check(&self, content: &[u8]) -> bool {
        content.get(..self.len as usize).is_some_and(|page| crc32c(page) == self.crc)
    }
}

/// Blocks in as few runs as free space allows, `None` when there are not enough.
pub(crate) fn find(alloc: &mut Allocator, blocks: u32) -> Option<Vec<Run>> {
    let mut left = blocks;
    let mut runs: Vec<Run> = Vec::new();
    while left > 0 {
        let found = (runs.len() < RUNS_MAX).then(|| alloc.allocate(left, None)).flatten();
        let Some(run) = found else {
            runs.into_iter().for_each(|run| alloc.release(run));
            return None;
        };
        left -= run.count;
        runs.push(run);
    }
    Some(runs)
}

/// Deals out what [`find`] has found, in order.
pub(crate) struct Dealer<'a> {
    runs: &'a [Run],
    /// Blocks of the first that are gone.
    dealt: u32,
}

impl Dealer<'_> {
    pub(crate) fn new(runs: &[Run]) -> Dealer<'_> {
        Dealer { runs, dealt: 0 }
    }

    /// Panics when so many are not left.
    pub(crate) fn deal(&mut self, blocks: u32) -> Extents {
        let mut left = blocks;
        let mut dealt = Vec::new();
        while left > 0 {
            let run = self.runs[0];
            let count = left.min(run.count - self.dealt);
            dealt.push(Run { start: run.start + self.dealt, count });
            left -= count;
            self.dealt += count;
            if self.dealt == run.count {
                (self.runs, self.dealt) = (&self.runs[1..], 0);
            }
        }
        Extents::new(dealt)
    }
}
