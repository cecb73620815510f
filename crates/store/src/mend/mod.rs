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
//! Where free runs have become too short for a unit, some are made (`emptying.rs`).
//!
//! [`Core::rest`] lets it begin; whoever asks for something stops it, and waits for a unit or two at
//! most. A sweep begins when one in [`CUT_SHARE`] blocks was written to places of the moment, once after
//! opening, and after each sweep that found something to do.

mod emptying;
mod sweep;
mod unit;

use crate::api::ObjectId;
use crate::core::Core;
use crate::ops::LogOp;
use emptying::{Emptying, Room};
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

/// How far it may go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    None,
    One,
    /// Until somebody asks for something.
    Any,
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
    /// It has passed over units, since there was no leave to make room for them.
    skipped: bool,
    emptying: Option<Emptying>,
    room: Room,
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
            skipped: false,
            emptying: None,
            room: Room::default(),
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
        self.room.on_cut(u64::from(blocks));
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
        let due = self.cut > used / CUT_SHARE || (self.skipped && self.leave == Leave::Any);
        if self.enabled && self.cursor.is_none() && self.emptying.is_none() && due {
            self.room.begin_small();
            self.begin_sweep();
        }
    }

    fn begin_sweep(&mut self) {
        (self.cursor, self.cut, self.useful, self.skipped) = (Some(Cursor::default()), 0, false, false);
        self.room.try_again();
    }

    /// All objects were looked at. What was put together has made longer free runs.
    fn end_sweep(&mut self) {
        self.cursor = None;
        if self.useful {
            self.begin_sweep();
        }
    }

    /// A unit goes to its new places.
    fn on_written(&mut self, blocks: u32, moves: bool) {
        if moves {
            self.moved_blocks += u64::from(blocks);
            self.room.on_moved(blocks);
            return;
        }
        self.units += 1;
        self.blocks += u64::from(blocks);
        self.useful = true;
        self.room.on_placed(blocks);
    }

    /// Of the sweep that goes on.
    fn cursor(&self) -> Option<&Cursor> {
        match &self.emptying {
            Some(emptying) if self.is_emptying() => Some(&emptying.cursor),
            _ => self.cursor.as_ref(),
        }
    }

    fn set_cursor(&mut self, cursor: Cursor) {
        let emptying = self.is_emptying();
        match &mut self.emptying {
            Some(at) if emptying => at.cursor = cursor,
            _ => self.cursor = Some(cursor),
        }
    }

    fn move_to(&mut self, object: Option<Arc<ObjectId>>, unit: Option<u32>) {
        self.set_cursor(Cursor { object, unit, loads: 0 });
    }
}

impl Core {
    /// Nobody has asked for much lately. True: there is more to do.
    pub(crate) fn rest(&mut self) -> bool {
        if self.failed.is_some() {
            return false;
        }
        self.mend.leave = match std::mem::take(&mut self.mend.asked) {
            0 => Leave::Any,
            1..=ASKED_FEW => Leave::One,
            _ => Leave::None,
        };
        self.mend.begin_sweep_if_due(self.index.totals.used);
        self.pump_mend();
        self.mend.cursor.is_some() || self.mend.emptying.is_some()
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
        match self.next_unit() {
            Found::Unit(object, blocks) => self.begin_unit(object, blocks),
            Found::Absent(wanted) => self.load_for_mending(wanted),
            Found::Nothing => (),
            Found::NoRoom(blocks) => self.begin_emptying(blocks),
            Found::End if self.mend.is_emptying() => self.end_emptying_sweep(),
            Found::End => self.mend.end_sweep(),
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
