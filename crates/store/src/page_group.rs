//! Pages of a checkpoint on their way to the device: so many at once that they make a
//! long request. A request costs the same whatever its length, and new objects, which
//! come in random order, change nearly as many pages as there are objects.

use crate::alloc::{Allocator, Run};
use crate::buffers::Buffers;
use crate::checkpoint::{Page, PageWriter};
use crate::commit::split_pieces;
use crate::core::BLOCK;
use crate::index::PageRef;
use crate::place::{self, Dealer, Place};
use base::crc32c;
use bytes::Bytes;

/// The last page may reach beyond.
const GROUP_BLOCKS: u32 = 32;

pub(crate) struct PageGroup {
    pages: Vec<(PageRef, Place)>,
    /// Of each page, padded.
    data: Vec<Bytes>,
    blocks: u32,
}

impl PageGroup {
    /// The next ones; `None` behind the last.
    pub(crate) fn take(pages: &mut PageWriter, buffers: &Buffers) -> Option<PageGroup> {
        let mut group = PageGroup { pages: Vec::new(), data: Vec::new(), blocks: 0 };
        while group.blocks < GROUP_BLOCKS
            && let Some(page) = pages.next_page()
        {
            group.push(page, buffers);
        }
        (!group.pages.is_empty()).then_some(group)
    }

    fn push(&mut self, page: Page, buffers: &Buffers) {
        let content = page.content;
        let place = Place { len: content.len() as u32, crc: crc32c(&content), copies: Default::default() };
        let blocks = place.blocks();
        let mut buffer = buffers.take(blocks as usize);
        buffer[..content.len()].copy_from_slice(&content);
        buffer[content.len()..].fill(0);
        self.data.push(buffer.freeze().slice(..blocks as usize * BLOCK));
        self.pages.push((page.id, place));
        self.blocks += blocks;
    }

    /// Blocks of each copy.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Finds places for one copy. Returns its requests; `None` when there is no room.
    pub(crate) fn place(&mut self, alloc: &mut Allocator, copy: usize) -> Option<Vec<(Run, Vec<Bytes>)>> {
        let runs = place::find(alloc, self.blocks)?;
        let mut dealer = Dealer::new(&runs);
        for (_, place) in &mut self.pages {
            place.copies[copy] = Some(dealer.deal(place.blocks()));
        }
        let mut data = self.data.clone();
        let requests = runs.into_iter().map(|run| {
            let behind = split_pieces(&mut data, run.count as usize * BLOCK);
            (run, std::mem::replace(&mut data, behind))
        });
        Some(requests.collect())
    }

    pub(crate) fn into_places(self) -> Vec<(PageRef, Place)> {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{CollId, ObjectId};
    use crate::checkpoint::IndexSnapshot;
    use crate::index::{BlockSink, Index};
    use crate::ops::LogOp;
    use std::collections::BTreeMap;
    use wire::types::HObject;

    struct NoBlocks;

    impl BlockSink for NoBlocks {
        fn used(&mut self, _device: u32) -> bool {
            unreachable!("no object has data")
        }
        fn freed(&mut self, _device: u32) {
            unreachable!("no object has data")
        }
    }

    fn index(objects: u32) -> Index {
        let mut index = Index::default();
        index.apply(&LogOp::CreateCollection(CollId::Meta), &mut NoBlocks).unwrap();
        for n in 0..objects {
            let object = HObject { name: format!("object {n}").into(), ..HObject::default() };
            let id = ObjectId { coll: CollId::Meta, object };
            index.apply(&LogOp::Touch(&id), &mut NoBlocks).unwrap();
        }
        index
    }

    #[test]
    fn pages_lie_side_by_side_and_leave_together_wherever_free_space_is() {
        let (blocks, copies) = (4096, 2);
        // Free runs: all of it, some shorter than a group, some shorter than a page.
        for apart in [blocks, GROUP_BLOCKS - 3, 2] {
            let snapshot = IndexSnapshot::take(&mut index(5000));
            let mut pages = PageWriter::new(snapshot, BTreeMap::new());
            let mut alloc = Allocator::new(blocks);
            (0..blocks).step_by(apart as usize).for_each(|block| assert!(alloc.mark(block)));
            let (mut device, mut requests) = (BTreeMap::new(), 0);
            let mut placed = Vec::new();
            while let Some(mut group) = PageGroup::take(&mut pages, &Buffers::short()) {
                for copy in 0..copies {
                    for (run, data) in group.place(&mut alloc, copy).unwrap() {
                        requests += 1;
                        let data = data.concat();
                        assert_eq!(data.len(), run.count as usize * BLOCK);
                        for (block, content) in (run.start..).zip(data.chunks(BLOCK)) {
                            assert!(device.insert(block, content.to_vec()).is_none(), "written twice");
                        }
                    }
                }
                placed.extend(group.into_places());
            }
            assert!(placed.len() > 20);
            for (_, place) in &placed {
                for copy in 0..copies {
                    let found = place.copy_runs(copy).into_iter().flat_map(|run| run.start..run.end());
                    let content: Vec<u8> = found.flat_map(|block| device[&block].clone()).collect();
                    assert!(place.check(&content));
                }
            }
            if apart > 2 {
                assert!(requests < placed.len() * copies / 4, "{requests} for {} pages", placed.len());
            }
        }
    }

    #[test]
    fn without_room_nothing_is_taken() {
        let snapshot = IndexSnapshot::take(&mut index(5000));
        let mut pages = PageWriter::new(snapshot, BTreeMap::new());
        let mut alloc = Allocator::new(64);
        (0..60).for_each(|block| assert!(alloc.mark(block)));
        let mut group = PageGroup::take(&mut pages, &Buffers::short()).unwrap();
        assert!(group.place(&mut alloc, 0).is_none());
        assert_eq!(alloc.free_blocks(), 4);
    }
}
