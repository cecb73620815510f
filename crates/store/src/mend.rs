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
//! [`Core::rest`] lets it begin; whoever asks for something stops it, and waits for a unit or two at
//! most. A sweep begins when one in [`CUT_SHARE`] blocks was written to places of the moment, once after
//! opening, and after each sweep that found something to do.

use crate::alloc::Run;
use crate::api::{ObjectId, StoreError};
use crate::blocks::{CHUNK_BLOCKS, Chunk, Mapping};
use crate::buffers::Lent;
use crate::core::{BLOCK, Core};
use crate::gather::Pieces;
use crate::index::{ALL_BLOCKS, Wanted, stretches};
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use crate::name::{Name, named};
use crate::needs::Needs;
use crate::ops::LogOp;
use crate::reads::Place;
use base::crc32c;
use bytes::Bytes;
use env::DiskResult;
use std::cmp::Ordering;
use std::sync::Arc;

/// Fewer blocks a piece than this are worth putting together,
const PIECE_BLOCKS: usize = 16;
/// when it makes so many pieces one.
const GAIN: usize = 4;

/// Of so many blocks of data one was cut off since the last sweep.
const CUT_SHARE: u64 = 64;

/// With so many transactions and reads between two calls of [`Core::rest`] it takes a unit each time;
/// with more nothing.
const ASKED_FEW: u32 = 32;

/// Objects and units looked at in one go; blocks of those that may be worth it count, too.
const LOOKS_MAX: u32 = 1024;
/// How often the pages for one unit are loaded: others may push them out meanwhile.
const LOADS_MAX: u32 = 8;

/// Where a sweep goes on.
#[derive(Clone, Default)]
struct Cursor {
    /// None: before the first.
    object: Option<Arc<ObjectId>>,
    /// Its next unit; none when it is through.
    unit: Option<u32>,
    /// How often the unit's pages were loaded.
    loads: u32,
}

/// What a sweep meets next.
enum Found {
    Unit(Arc<ObjectId>, Vec<(u32, Mapping)>),
    /// Pages that have to be in memory before one can go on.
    Absent(Vec<Wanted>),
    /// Nothing yet.
    Nothing,
    End,
}

/// A unit that is being read.
struct Unit {
    object: Arc<ObjectId>,
    blocks: Vec<(u32, Mapping)>,
    /// Their content, one after the other.
    content: Lent,
    /// Parts that have not arrived.
    pending: usize,
    failed: bool,
    /// Somebody has changed the object since.
    changed: bool,
}

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
    unit: Option<Unit>,
    /// Since open.
    pub(crate) units: u64,
    pub(crate) blocks: u64,
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
            unit: None,
            units: 0,
            blocks: 0,
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
    }

    /// A page of the index is lost: who needs it will be told, this can do without. Until the next opening.
    pub(crate) fn give_up(&mut self) {
        (self.enabled, self.cursor) = (false, None);
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
    }

    /// All objects were looked at. What was put together has made longer free runs.
    fn end_sweep(&mut self) {
        self.cursor = None;
        if self.useful {
            self.begin_sweep();
        }
    }

    fn move_to(&mut self, object: Option<Arc<ObjectId>>, unit: Option<u32>) {
        self.cursor = Some(Cursor { object, unit, loads: 0 });
    }
}

/// Stretches of adjacent blocks, and stretches of these that are adjacent on the device, too.
fn pieces_of(blocks: impl Iterator<Item = (u32, Mapping)>) -> (usize, usize) {
    let (mut stretches, mut pieces) = (0, 0);
    let mut last: Option<(u32, u32)> = None;
    for (block, Mapping { device, .. }) in blocks {
        let adjacent = last.is_some_and(|(before, _)| before + 1 == block);
        stretches += usize::from(!adjacent);
        pieces += usize::from(!adjacent || last.is_none_or(|(_, before)| before + 1 != device));
        last = Some((block, device));
    }
    (stretches, pieces)
}

fn is_worth_mending(chunk: &Chunk<Mapping>) -> bool {
    let (stretches, pieces) = pieces_of(chunk.iter());
    pieces * PIECE_BLOCKS > chunk.len() && pieces >= GAIN * stretches
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
        match self.next_unit() {
            Found::Unit(object, blocks) => self.begin_unit(object, blocks),
            Found::Absent(wanted) => self.load_for_mending(wanted),
            Found::Nothing => (),
            Found::End => self.mend.end_sweep(),
        }
    }

    fn is_free_to_mend(&self) -> bool {
        let idle = self.stalled.is_empty() && self.chosen.blocks() == 0 && !self.has_to_wait();
        // What units free comes back only when a checkpoint under way has ended: until then they would
        // take one free place after the other.
        self.failed.is_none() && idle && !self.reclaim.has_snapshot()
    }

    /// The next unit that is worth it and that there is room for; the cursor is behind it then.
    fn next_unit(&mut self) -> Found {
        let mut looks = LOOKS_MAX;
        while looks > 0 {
            let Some(Cursor { object, unit, loads }) = self.mend.cursor.clone() else {
                return Found::Nothing;
            };
            let found = match (&object, unit) {
                (Some(object), Some(unit)) => self.next_of_object(object, unit, &mut looks),
                _ => self.next_object(object.as_deref(), &mut looks),
            };
            match (found, unit) {
                // They do not fit into memory at once.
                (Found::Absent(_), Some(unit)) if loads == LOADS_MAX => {
                    self.mend.move_to(object, Some(unit + 1));
                }
                (Found::Absent(wanted), _) => {
                    self.mend.cursor = Some(Cursor { object, unit, loads: loads + 1 });
                    return Found::Absent(wanted);
                }
                (Found::Nothing, _) => (),
                (found, _) => return found,
            }
        }
        Found::Nothing
    }

    /// Moves to the next object with as many blocks as it takes.
    fn next_object(&mut self, after: Option<&ObjectId>, looks: &mut u32) -> Found {
        let by = |name: &Name| match after {
            Some(after) => named(after)(name).then(Ordering::Less),
            None => Ordering::Greater,
        };
        let (mut object, mut unit) = (None, None);
        let absent = self.index.objects.tree.walk(by, |name, onode| {
            *looks -= 1;
            object = Some(name.id().clone());
            unit = (onode.mapped >= GAIN as u64).then_some(0);
            unit.is_none() && *looks > 0
        });
        let absent = absent.map(Wanted::from);
        match (absent, object) {
            (Some(wanted), None) => Found::Absent(vec![wanted]),
            (None, None) => Found::End,
            (_, object) => {
                self.mend.move_to(object, unit);
                Found::Nothing
            }
        }
    }

    /// The object's next unit from this one on, if that is to be put together.
    fn next_of_object(&mut self, object: &Arc<ObjectId>, unit: u32, looks: &mut u32) -> Found {
        let nid = match self.index.look_up(object) {
            Err(wanted) => return Found::Absent(vec![wanted]),
            Ok(None) => {
                self.mend.move_to(Some(object.clone()), None);
                return Found::Nothing;
            }
            Ok(Some((_, onode))) => onode.nid,
        };
        let by = stretches(nid, u64::from(unit) * u64::from(CHUNK_BLOCKS), ALL_BLOCKS);
        let (mut next, mut blocks) = (None, Vec::new());
        let absent = self.index.blocks.tree.walk(&by, |key, chunk| {
            *looks = looks.saturating_sub(1);
            if by(key) != Ordering::Equal {
                return false;
            }
            next = Some(key.1 + 1);
            if is_worth_mending(chunk) {
                blocks = chunk.iter().map(|(bit, mapping)| (key.1 * CHUNK_BLOCKS + bit, mapping)).collect();
            }
            blocks.is_empty() && *looks > 0
        });
        if blocks.is_empty() {
            // The walk may end at a page behind the object.
            let absent = absent.filter(|slot| by(&slot.first) != Ordering::Greater && next.is_none());
            if let Some(slot) = absent {
                return Found::Absent(vec![slot.into()]);
            }
            self.mend.move_to(Some(object.clone()), next);
            return Found::Nothing;
        }
        let count = blocks.len() as u32;
        *looks = looks.saturating_sub(count);
        let mut fits = self.alloc.has_whole(count) && self.check_mending_space(count).is_ok();
        if fits {
            let wanted = self.pages_to_map(object, blocks[0].0);
            if !wanted.is_empty() {
                return Found::Absent(wanted);
            }
            fits = !blocks.iter().any(|(_, mapping)| self.index.is_shared(mapping.device));
        }
        self.mend.move_to(Some(object.clone()), next);
        if fits { Found::Unit(object.clone(), blocks) } else { Found::Nothing }
    }

    /// Those that are absent of what it takes to give other places to a unit.
    fn pages_to_map(&self, object: &ObjectId, block: u32) -> Vec<Wanted> {
        if self.index.is_loaded() {
            return Vec::new();
        }
        let mut needs = Needs::new(&self.index);
        let crcs = &[0; CHUNK_BLOCKS as usize];
        let block = block / CHUNK_BLOCKS * CHUNK_BLOCKS;
        needs.log_op(&LogOp::Map { id: object, block, device: 0, crcs, logged: false });
        needs.into_wanted()
    }

    fn check_mending_space(&self, count: u32) -> Result<(), StoreError> {
        self.check_space(u64::from(count), 24 * u64::from(count), true)
    }

    fn begin_unit(&mut self, object: Arc<ObjectId>, blocks: Vec<(u32, Mapping)>) {
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
        if self.mend.leave == Leave::One {
            self.mend.leave = Leave::None;
        }
        for (at, run) in parts.iter().copied() {
            let part = content.part(at * BLOCK..(at + run.count as usize) * BLOCK);
            let token = self.io.read_into(u64::from(run.start) * BLOCK_LEN, part, Purpose::Mend { run });
            self.pins.pin(run, token);
        }
        let unit = Unit { object, blocks, content, pending: parts.len(), failed: false, changed: false };
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
            self.write_unit(&unit.object, &unit.blocks, content.freeze());
        }
    }

    /// To a free run, all of it, with the checksums that it had.
    fn write_unit(&mut self, object: &ObjectId, blocks: &[(u32, Mapping)], content: Bytes) {
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
        if let Some(run) = self.alloc.allocate_whole(count) {
            self.make_room_in_batch(footprint);
            self.index.begin_changes();
            for stretch in blocks.chunk_by(|a, b| a.0 + 1 == b.0) {
                let at = blocks.partition_point(|(block, _)| *block < stretch[0].0) as u32;
                let crcs: Vec<u32> = stretch.iter().map(|(_, mapping)| mapping.crc).collect();
                let (block, device) = (stretch[0].0, run.start + at);
                self.emit(&LogOp::Map { id: object, block, device, crcs: &crcs, logged: false });
            }
            self.send_direct(run, Pieces(vec![content.slice(..blocks.len() * BLOCK)]), false);
            self.mend.units += 1;
            self.mend.blocks += u64::from(count);
            self.mend.useful = true;
        }
        self.index.end_transaction();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks and their places.
    fn chunk(places: impl IntoIterator<Item = (u32, u32)>) -> Chunk<Mapping> {
        let mut chunk = Chunk::default();
        for (block, device) in places {
            chunk.set(block, Mapping { device, crc: 0 });
        }
        chunk
    }

    fn in_pieces_of(len: u32) -> Chunk<Mapping> {
        chunk((0..CHUNK_BLOCKS).map(|block| (block, 1000 * (block / len) + block)))
    }

    #[test]
    fn pieces_are_adjacent_in_the_object_and_on_the_device() {
        let pieces = |places: &[(u32, u32)]| pieces_of(chunk(places.iter().copied()).iter());
        assert_eq!(pieces(&[]), (0, 0));
        assert_eq!(pieces(&[(3, 9)]), (1, 1));
        assert_eq!(pieces(&[(3, 9), (4, 10), (5, 12), (6, 11)]), (1, 3));
        assert_eq!(pieces(&[(3, 9), (5, 10), (6, 11), (8, 2)]), (3, 3));
    }

    #[test]
    fn what_lies_in_many_pieces_is_worth_it_and_holes_are_no_reason() {
        for (len, worth) in [(64, false), (16, false), (13, true), (12, true), (2, true), (1, true)] {
            assert_eq!(is_worth_mending(&in_pieces_of(len)), worth, "{len}");
        }
        let every_other = |step: u32| chunk((0..64).step_by(2).map(|block| (block, 9 + step * block)));
        assert!(!is_worth_mending(&every_other(1)) && !is_worth_mending(&every_other(5)));
        // A small object.
        let few = |count: u32| chunk((0..count).map(|block| (block, 50 - 2 * block)));
        assert!(!is_worth_mending(&few(3)) && is_worth_mending(&few(4)));
        assert!(!is_worth_mending(&Chunk::default()));
    }

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
