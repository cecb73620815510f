//! A unit on its way to other places.

use crate::alloc::{Run, WORD};
use crate::api::{ObjectId, StoreError};
use crate::blocks::Mapping;
use crate::buffers::Lent;
use crate::core::{BLOCK, Core};
use crate::gather::Pieces;
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use crate::ops::LogOp;
use crate::reads::Place;
use base::crc32c;
use bytes::Bytes;
use env::DiskResult;
use std::sync::Arc;

use super::Leave;
use super::emptying::{Emptying, Stage};
use super::sweep::pieces;

/// A unit that is being read.
pub(super) struct Unit {
    pub(super) object: Arc<ObjectId>,
    blocks: Vec<(u32, Mapping)>,
    /// Their content, one after the other.
    content: Lent,
    /// Out of regions; else they are put together.
    moves: bool,
    /// Parts that have not arrived.
    pending: usize,
    failed: bool,
    /// Somebody has changed the object since.
    pub(super) changed: bool,
}

impl Core {
    pub(super) fn check_mending_space(&self, count: u32) -> Result<(), StoreError> {
        self.check_space(u64::from(count), 24 * u64::from(count), true)
    }

    pub(super) fn begin_unit(&mut self, object: Arc<ObjectId>, blocks: Vec<(u32, Mapping)>) {
        let mut content = self.read_buffers.take(blocks.len()).lend();
        let mut parts: Vec<(usize, Run)> = Vec::new();
        for (at, (_, Mapping { device, crc })) in blocks.iter().enumerate() {
            match self.find(*device, *crc, false) {
                Place::Memory(block) => content.rest(at * BLOCK..(at + 1) * BLOCK).copy_from_slice(&block),
                Place::Device { device, .. } => match parts.last_mut() {
                    Some((first, run)) if run.end() == device && *first + run.count as usize == at => {
                        run.count += 1;
                    }
                    _ => parts.push((at, Run { start: device, count: 1 })),
                },
                Place::Bad | Place::Waits { .. } => return,
            }
        }
        let moves = self.mend.is_emptying();
        if self.mend.leave == Leave::One {
            self.mend.leave = Leave::None;
        }
        for (at, run) in parts.iter().copied() {
            let part = content.part(at * BLOCK..(at + run.count as usize) * BLOCK);
            let token = self.io.read_into(u64::from(run.start) * BLOCK_LEN, part, Purpose::Mend { run });
            self.pins.pin(run, token);
        }
        let unit =
            Unit { object, blocks, content, moves, pending: parts.len(), failed: false, changed: false };
        self.mend.unit = Some(unit);
        self.finish_unit();
    }

    pub(crate) fn on_mend_read(&mut self, token: u64, run: Run, result: DiskResult) {
        self.unpin(run, token);
        let Some(unit) = &mut self.mend.unit else { return };
        unit.pending -= 1;
        unit.failed |= result.is_err();
        drop(result);
        self.finish_unit();
    }

    fn finish_unit(&mut self) {
        let Some(unit) = self.mend.unit.take_if(|unit| unit.pending == 0) else { return };
        // What cannot be read is left to those who ask for it.
        if unit.failed || unit.changed {
            return;
        }
        let content = unit.content.take_back().expect("all reads have ended");
        let sums = content.chunks(BLOCK).map(crc32c);
        if unit.blocks.iter().zip(sums).all(|((_, mapping), crc)| crc == mapping.crc) {
            self.write_unit(&unit.object, &unit.blocks, unit.moves, content.freeze());
        }
    }

    /// To fresh places, with the checksums that it had.
    fn write_unit(&mut self, object: &ObjectId, blocks: &[(u32, Mapping)], moves: bool, content: Bytes) {
        let count = blocks.len() as u32;
        // Much may have happened since it was chosen.
        if !self.is_free_to_mend()
            || !self.pages_to_map(object, blocks[0].0).is_empty()
            || self.check_mending_space(count).is_err()
        {
            return;
        }
        let name_len =
            (object.object.nspace.len() + object.object.key.len() + object.object.name.len()) as u64;
        let footprint = BLOCK_LEN + name_len + 32 * u64::from(count);
        if footprint > self.region.record_len_max() {
            return;
        }
        self.index.begin_transaction();
        let places = if moves { self.holes_for(blocks) } else { self.run_for(count).into_iter().collect() };
        if !places.is_empty() {
            self.make_room_in_batch(footprint);
            self.index.begin_changes();
            let mut at = 0;
            for run in places {
                let end = at + run.count as usize;
                self.map_unit(object, &blocks[at..end], run.start);
                self.send_direct(run, Pieces(vec![content.slice(at * BLOCK..end * BLOCK)]), false);
                at = end;
            }
            self.mend.on_written(count, moves);
        }
        self.index.end_transaction();
    }

    /// For all of a unit. A long one takes a region of its own; shorter ones share them.
    fn run_for(&mut self, count: u32) -> Option<Run> {
        let region = if count > WORD / 2 { self.alloc.allocate_in_free_region(count) } else { None };
        region.or_else(|| self.alloc.allocate_whole(count))
    }

    /// Outside of the regions, for each piece one if possible. None where there are not enough: that
    /// is the end of emptying.
    fn holes_for(&mut self, blocks: &[(u32, Mapping)]) -> Vec<Run> {
        let Some(Emptying { stage: Stage::Moving(regions), .. }) = &mut self.mend.emptying else {
            return Vec::new();
        };
        let mut holes = Vec::new();
        for piece in pieces(blocks) {
            let mut left = piece.len() as u32;
            while left > 0 {
                let Some(hole) = self.alloc.take_hole(left, regions) else {
                    holes.into_iter().for_each(|hole| self.alloc.release(hole));
                    regions.give_up_all();
                    return Vec::new();
                };
                left -= hole.count;
                holes.push(hole);
            }
        }
        regions.moved(blocks.len() as u32);
        holes
    }

    /// The blocks lie side by side from `device` on.
    fn map_unit(&mut self, object: &ObjectId, blocks: &[(u32, Mapping)], mut device: u32) {
        for stretch in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
            let crcs: Vec<u32> = stretch.iter().map(|(_, mapping)| mapping.crc).collect();
            self.emit(&LogOp::Map { id: object, block: stretch[0].0, device, crcs: &crcs, logged: false });
            device += crcs.len() as u32;
        }
    }
}
