//! Objects in many pieces are put together again, when nobody asks for anything.
//!
//! Small writes go to fresh places, beside others of the same moment: few device writes, but an object
//! that is overwritten at random has a piece for every block, and reading all of it takes hundreds of
//! requests. It leaves holes, too, so that later writes find no long free runs. So from time to time a
//! sweep goes over all objects, a *unit* (a stretch of 64 blocks) at a time, and writes what lies in
//! many pieces again, side by side.
//!
//! It is a write like any other, which nobody waits for: fresh places and a log record, so that a power
//! cut leaves the old places or the new ones. The index keeps its checksums, with which what was read
//! is compared: damage stays what it is. What is shared with a clone stays where it is, since the clone would keep
//! the old places; a unit that changes while it is read is left for the next sweep.
//!
//! Where free runs have become too short for a unit, some are made: stretches of the device of which
//! little is in use (*regions*) are emptied, and what lies there in short pieces goes to holes elsewhere. Nothing leads
//! from a device block to its object, so it takes two sweeps: one counts what can be moved, and one moves
//! what lies in the regions that are chosen then. Each such block costs a write, so they are bounded by what small writes
//! have written ([`MOVED_PER_CUT`]), and it is done only when nobody asks for anything at all.
//!
//! [`Core::rest`] lets it begin; whoever asks for something stops it, and waits for a unit or two at
//! most. A sweep begins when one in [`CUT_SHARE`] blocks was written to places of the moment, once after
//! opening, and after each sweep that found something to do.

mod sweep;
mod unit;

use crate::alloc::{Regions, Survey};
use crate::api::ObjectId;
use crate::blocks::CHUNK_BLOCKS;
use crate::core::Core;
use crate::ops::LogOp;
use std::sync::Arc;
use sweep::{Cursor, Found};
use unit::Unit;

/// Fewer blocks a piece than this are worth putting together,
const PIECE_BLOCKS: usize = 16;
/// when it makes so many pieces one.
const GAIN: usize = 4;

/// Of so many blocks of data one was cut off since the last sweep.
const CUT_SHARE: u64 = 64;

/// With so many transactions and reads between two calls of [`Core::rest`] it takes a unit each time;
/// with more nothing.
const ASKED_FEW: u32 = 32;

/// So many blocks may leave their regions for each that small writes have written. After opening, as many as there are.
const MOVED_PER_CUT: u64 = 2;
/// Regions that are emptied at once, at first; twice as many when these were not enough, and so on
const REGIONS_MIN: usize = 16;
/// up to this, or a share of the device.
const REGIONS_MAX: usize = 1 << 16;
const REGIONS_SHARE: usize = 32;

/// How far it may go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    None,
    One,
    /// Until somebody asks for something.
    Any,
}

/// Sweeps that make free runs.
struct Emptying {
    stage: Stage,
    /// Where the other sweep goes on afterwards.
    back: Cursor,
}

enum Stage {
    Counting(Survey),
    Moving(Regions),
}

pub(crate) struct Mend {
    enabled: bool,
    leave: Leave,
    /// Transactions and reads since [`Core::rest`] was called.
    asked: u32,
    /// Blocks that small writes have put to places of their moment, since the last sweep began.
    cut: u64,
    /// None: asleep.
    cursor: Option<Cursor>,
    /// This sweep has done something.
    useful: bool,
    emptying: Option<Emptying>,
    /// Regions of the next one.
    regions: usize,
    /// The part of the device that was surveyed last.
    survey: usize,
    /// So many surveys since something was put together.
    vain: usize,
    /// Blocks that may be moved to empty regions; none: not known yet.
    allowance: Option<u64>,
    unit: Option<Unit>,
    /// Since open: put together.
    pub(crate) units: u64,
    pub(crate) blocks: u64,
    /// And moved out of regions.
    pub(crate) moved_blocks: u64,
}

impl Mend {
    pub(crate) fn new(enabled: bool) -> Mend {
        Mend {
            enabled,
            leave: Leave::None,
            asked: 0,
            cut: 0,
            cursor: enabled.then(Cursor::default),
            useful: false,
            emptying: None,
            regions: REGIONS_MIN,
            survey: 0,
            vain: 0,
            allowance: None,
            unit: None,
            units: 0,
            blocks: 0,
            moved_blocks: 0,
        }
    }

    /// Somebody asks for something: what is under way ends, nothing else begins.
    pub(crate) fn on_asked(&mut self) {
        self.asked = self.asked.saturating_add(1);
        self.leave = Leave::None;
    }

    pub(crate) fn stop(&mut self) {
        self.leave = Leave::None;
    }

    /// Small writes went side by side, whatever objects they belong to.
    pub(crate) fn on_cut(&mut self, blocks: u32) {
        self.cut += u64::from(blocks);
        if let Some(allowance) = &mut self.allowance {
            *allowance += MOVED_PER_CUT * u64::from(blocks);
        }
    }

    /// A page of the index is lost: who needs it will be told, this can do without. Until the next opening.
    pub(crate) fn give_up(&mut self) {
        (self.enabled, self.cursor, self.emptying) = (false, None, None);
    }

    /// Before each change of the index.
    pub(crate) fn on_change(&mut self, op: &LogOp<'_>) {
        let Some(unit) = &mut self.unit else { return };
        let object = &*unit.object;
        unit.changed |= match *op {
            LogOp::Map { id, .. } | LogOp::Unmap { id, .. } | LogOp::SetSize { id, .. } => id == object,
            LogOp::Remove(id) => id == object,
            LogOp::Clone { from, to } | LogOp::Rename { from, to } => from == object || to == object,
            _ => false,
        };
    }

    /// `used`: blocks of data in all.
    fn begin_sweep_if_due(&mut self, used: u64) {
        if self.enabled && self.cursor.is_none() && self.cut > used / CUT_SHARE {
            self.begin_sweep();
        }
    }

    fn begin_sweep(&mut self) {
        (self.cursor, self.cut, self.useful) = (Some(Cursor::default()), 0, false);
        (self.regions, self.vain) = (REGIONS_MIN, 0);
    }

    /// All objects were looked at. What was put together has made longer free runs.
    fn end_sweep(&mut self) {
        if let Some(Emptying { back, .. }) = self.emptying.take() {
            self.cursor = Some(back);
            return;
        }
        self.cursor = None;
        if self.useful {
            self.begin_sweep();
        }
    }

    /// `surveys`: of all of the device.
    fn may_empty(&self, surveys: usize) -> bool {
        self.vain < surveys && self.leave == Leave::Any && self.allowance != Some(0)
    }

    /// These device blocks cannot be moved: it is not worth while to move what lies beside them.
    fn stay(&mut self, devices: impl IntoIterator<Item = u32>) {
        if let Some(Emptying { stage: Stage::Moving(regions), .. }) = &mut self.emptying {
            devices.into_iter().for_each(|device| regions.give_up(device));
        }
    }

    /// A unit goes to its new places.
    fn on_written(&mut self, blocks: u32) {
        let blocks = u64::from(blocks);
        if self.emptying.is_some() {
            self.moved_blocks += blocks;
            self.allowance = self.allowance.map(|allowance| allowance.saturating_sub(blocks));
            return;
        }
        self.units += 1;
        self.blocks += blocks;
        (self.useful, self.vain) = (true, 0);
    }

    fn move_to(&mut self, object: Option<Arc<ObjectId>>, unit: Option<u32>) {
        self.cursor = Some(Cursor { object, unit, loads: 0 });
    }
}

impl Core {
    /// Nobody has asked for much lately. True: there is more to do.
    pub(crate) fn rest(&mut self) -> bool {
        if self.failed.is_some() {
            return false;
        }
        self.mend.begin_sweep_if_due(self.index.totals.used);
        self.mend.leave = match std::mem::take(&mut self.mend.asked) {
            0 => Leave::Any,
            1..=ASKED_FEW => Leave::One,
            _ => Leave::None,
        };
        self.pump_mend();
        self.mend.cursor.is_some()
    }

    /// One unit is read while the one before becomes durable, and nobody else's transactions do.
    pub(crate) fn pump_mend(&mut self) {
        let quiet = self.batches.len() == 1
            && self.open_batch().is_empty()
            && self.issued.len() <= 1
            && self.pager.is_idle()
            && self.is_free_to_mend();
        if self.mend.leave == Leave::None || self.mend.unit.is_some() || !quiet {
            return;
        }
        if self.mend.emptying.is_some() && self.mend.leave != Leave::Any {
            return;
        }
        match self.next_unit() {
            Found::Unit(object, blocks) => self.begin_unit(object, blocks),
            Found::Absent(wanted) => self.load_for_mending(wanted),
            Found::Nothing => (),
            Found::NoRoom => self.begin_emptying(),
            Found::End => self.end_sweep(),
        }
    }

    /// There is no room for the unit at the cursor.
    fn begin_emptying(&mut self) {
        let mend = &mut self.mend;
        mend.allowance.get_or_insert(self.index.totals.used);
        mend.vain += 1;
        mend.survey += 1;
        let stage = Stage::Counting(self.alloc.survey(mend.survey));
        let back = mend.cursor.replace(Cursor::default()).unwrap_or_default();
        mend.emptying = Some(Emptying { stage, back });
    }

    fn end_sweep(&mut self) {
        let mend = &mut self.mend;
        match &mut mend.emptying {
            Some(Emptying { stage, .. }) => match stage {
                Stage::Counting(survey) => {
                    let share = self.alloc.blocks() as usize / CHUNK_BLOCKS as usize / REGIONS_SHARE;
                    let count = mend.regions.min(REGIONS_MAX).min(share);
                    *stage = Stage::Moving(self.alloc.choose_regions(survey, count));
                    mend.regions *= 2;
                    mend.cursor = Some(Cursor::default());
                }
                // What was moved last is not free yet.
                Stage::Moving(_) if !self.issued.is_empty() => (),
                Stage::Moving(_) => mend.end_sweep(),
            },
            None => mend.end_sweep(),
        }
    }

    fn is_free_to_mend(&self) -> bool {
        let idle = self.stalled.is_empty() && self.chosen.blocks() == 0 && !self.has_to_wait();
        // What units free comes back only when a checkpoint under way has ended: until then they would
        // take one free place after the other.
        self.failed.is_none() && idle && !self.reclaim.has_snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_begins_after_opening_and_when_enough_was_cut() {
        let mut mend = Mend::new(true);
        assert!(mend.cursor.is_some());
        mend.end_sweep();
        mend.begin_sweep_if_due(6400);
        assert!(mend.cursor.is_none());
        mend.on_cut(100);
        mend.begin_sweep_if_due(6400);
        assert!(mend.cursor.is_none());
        mend.on_cut(1);
        mend.begin_sweep_if_due(6400);
        assert!(mend.cursor.is_some());
        // One that was of use is followed by another.
        mend.useful = true;
        mend.end_sweep();
        assert!(mend.cursor.is_some());
        mend.end_sweep();
        assert!(mend.cursor.is_none());
        assert!(Mend::new(false).cursor.is_none());
    }
}
