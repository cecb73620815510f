//! What an opening rebuilds: the index, and from it what is in use.

use crate::alloc::{Allocator, Run};
use crate::dirty::Dirty;
use crate::index::{BlockSink, Index};
use crate::superblock::Superblock;
use std::collections::BTreeMap;

/// What is being rebuilt.
pub(super) struct Rebuilt {
    pub(super) index: Index,
    pub(super) alloc: Allocator,
    pub(super) dirty: Dirty,
    /// Blocks that records near the tail wrote directly: sequence and checksum.
    pub(super) direct: BTreeMap<u32, (u64, u32)>,
    /// A record freed a block that was free.
    pub(super) clash: bool,
}

/// All of [`Rebuilt`] but the index, which borrows it as its sink.
pub(super) struct Sink<'a> {
    pub(super) alloc: &'a mut Allocator,
    pub(super) dirty: &'a mut Dirty,
    pub(super) direct: &'a mut BTreeMap<u32, (u64, u32)>,
    pub(super) clash: &'a mut bool,
}

impl BlockSink for Sink<'_> {
    fn used(&mut self, device: u32) -> bool {
        device < self.alloc.blocks() && self.alloc.mark(device)
    }

    fn freed(&mut self, device: u32) {
        if !self.alloc.is_used(device) {
            *self.clash = true;
            return;
        }
        self.alloc.release(Run { start: device, count: 1 });
        self.dirty.remove(device);
        self.direct.remove(&device);
    }
}

impl Rebuilt {
    pub(super) fn new(superblock: &Superblock) -> Rebuilt {
        let mut alloc = Allocator::new(superblock.blocks());
        let reserved = superblock.reserved();
        for run in reserved {
            alloc.mark_run(run);
        }
        Rebuilt {
            index: Index::default(),
            alloc,
            dirty: Dirty::default(),
            direct: BTreeMap::new(),
            clash: false,
        }
    }

    pub(super) fn split(&mut self) -> (&mut Index, Sink<'_>) {
        let Rebuilt { index, alloc, dirty, direct, clash } = self;
        (index, Sink { alloc, dirty, direct, clash })
    }
}
