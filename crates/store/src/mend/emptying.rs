//! Free runs for what is to be put together, where only holes are free.
//!
//! Stretches of the device of which little is in use (*regions*) are emptied, and what lies there in short pieces
//! goes to holes elsewhere. Nothing leads from a device block to its object, so it takes two sweeps: one counts what can
//! be moved, and one moves what lies in the regions that are chosen then. Each such block costs a write, so they are bounded
//! by what small writes have written ([`MOVED_PER_CUT`]), and it is done only when nobody asks for anything at all; with
//! little to do the other sweep goes on meanwhile, with what has room.

use super::sweep::Cursor;
use super::{Leave, Mend};
use crate::alloc::{Regions, Survey};
use crate::blocks::CHUNK_BLOCKS;
use crate::core::Core;

/// So many blocks may leave their regions for each that small writes have written. After opening, as many as there are.
pub(super) const MOVED_PER_CUT: u64 = 2;
/// Regions that are emptied at once, at first; twice as many when these were not enough, and so on
const REGIONS_MIN: usize = 16;
/// up to this, or a share of the device.
const REGIONS_MAX: usize = 1 << 16;
const REGIONS_SHARE: usize = 32;

pub(super) enum Stage {
    Counting(Survey),
    Moving(Regions),
}

pub(super) struct Emptying {
    pub(super) stage: Stage,
    pub(super) cursor: Cursor,
}

/// How it went until now.
pub(super) struct Room {
    /// Blocks of the unit that had no room last.
    lacked: u32,
    /// Surveys since such a unit found some.
    vain: usize,
    /// The part of the device that was surveyed last.
    survey: usize,
    /// That are emptied next.
    regions: usize,
    /// Blocks that may be moved; none: not known yet.
    allowance: Option<u64>,
}

impl Default for Room {
    fn default() -> Room {
        Room { lacked: 0, vain: 0, survey: 0, regions: REGIONS_MIN, allowance: None }
    }
}

impl Room {
    pub(super) fn on_cut(&mut self, blocks: u64) {
        self.allowance = self.allowance.map(|allowance| allowance + MOVED_PER_CUT * blocks);
    }

    pub(super) fn on_moved(&mut self, blocks: u32) {
        self.allowance = self.allowance.map(|allowance| allowance.saturating_sub(u64::from(blocks)));
    }

    pub(super) fn on_placed(&mut self, blocks: u32) {
        if blocks >= self.lacked {
            self.vain = 0;
        }
    }

    /// Nothing was to be done for a while.
    pub(super) fn begin_small(&mut self) {
        self.regions = REGIONS_MIN;
    }

    /// A sweep begins: what it puts together may have made regions that can be emptied.
    pub(super) fn try_again(&mut self) {
        self.vain = 0;
    }
}

impl Mend {
    pub(super) fn is_emptying(&self) -> bool {
        self.emptying.is_some() && self.leave == Leave::Any
    }

    /// Whether regions may be emptied for a unit that has no room. `surveys`: of all of the device.
    pub(super) fn may_empty(&mut self, surveys: usize) -> bool {
        let of_use = self.room.vain < surveys && self.room.allowance != Some(0);
        let may = self.leave == Leave::Any && self.emptying.is_none();
        self.skipped |= of_use && !may;
        of_use && may
    }

    /// These device blocks cannot be moved: it is not worth while to move what lies beside them.
    pub(super) fn stay(&mut self, devices: impl IntoIterator<Item = u32>) {
        if let Some(Emptying { stage: Stage::Moving(regions), .. }) = &mut self.emptying {
            devices.into_iter().for_each(|device| regions.give_up(device));
        }
    }
}

impl Core {
    /// There is no room for the unit at the cursor, of so many blocks.
    pub(super) fn begin_emptying(&mut self, blocks: u32) {
        let room = &mut self.mend.room;
        room.allowance.get_or_insert(self.index.totals.used);
        room.lacked = blocks;
        room.vain += 1;
        room.survey += 1;
        let stage = Stage::Counting(self.alloc.survey(room.survey));
        self.mend.emptying = Some(Emptying { stage, cursor: Cursor::default() });
    }

    /// One of its sweeps is over.
    pub(super) fn end_emptying_sweep(&mut self) {
        let Some(emptying) = &mut self.mend.emptying else { return };
        match &emptying.stage {
            Stage::Counting(survey) => {
                let room = &mut self.mend.room;
                let share = self.alloc.blocks() as usize / CHUNK_BLOCKS as usize / REGIONS_SHARE;
                let blocks_max = room.allowance.unwrap_or_default();
                let regions = self.alloc.choose_regions(survey, room.regions.min(share), blocks_max);
                room.regions = (room.regions * 2).min(REGIONS_MAX);
                *emptying = Emptying { stage: Stage::Moving(regions), cursor: Cursor::default() };
            }
            // What was moved last is not free yet.
            Stage::Moving(_) if !self.issued.is_empty() => (),
            Stage::Moving(_) => {
                self.mend.emptying = None;
                if self.mend.cursor.is_none() {
                    self.mend.begin_sweep();
                }
            }
        }
    }
}
