//! Which unit comes next.

use super::emptying::{Emptying, Stage};
use super::{GAIN, PIECE_BLOCKS};
use crate::api::ObjectId;
use crate::blocks::{CHUNK_BLOCKS, Chunk, Mapping};
use crate::core::Core;
use crate::index::{ALL_BLOCKS, Wanted, stretches};
use crate::name::{Name, named};
use crate::needs::Needs;
use crate::ops::LogOp;
use std::cmp::Ordering;
use std::sync::Arc;

/// Objects and units looked at in one go; blocks of those that may be worth it count, too.
const LOOKS_MAX: u32 = 1024;
/// How often the pages for one unit are loaded: others may push them out meanwhile.
const LOADS_MAX: u32 = 8;

/// Where a sweep goes on.
#[derive(Clone, Default)]
pub(super) struct Cursor {
    /// None: before the first.
    pub(super) object: Option<Arc<ObjectId>>,
    /// Its next unit; none when it is through.
    pub(super) unit: Option<u32>,
    /// How often the unit's pages were loaded.
    pub(super) loads: u32,
}

/// What a sweep meets next.
pub(super) enum Found {
    Unit(Arc<ObjectId>, Vec<(u32, Mapping)>),
    /// Pages that have to be in memory before one can go on.
    Absent(Vec<Wanted>),
    /// Nothing yet.
    Nothing,
    /// A unit that is worth it, of so many blocks, but no free run is long enough.
    NoRoom(u32),
    End,
}

/// Stretches of blocks that are adjacent in the object and on the device.
pub(super) fn pieces(blocks: &[(u32, Mapping)]) -> impl Iterator<Item = &[(u32, Mapping)]> {
    blocks.chunk_by(|a, b| a.0 + 1 == b.0 && a.1.device + 1 == b.1.device)
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
    /// The next unit that is worth it and that there is room for; the cursor is behind it then.
    pub(super) fn next_unit(&mut self) -> Found {
        let mut looks = LOOKS_MAX;
        while looks > 0 {
            let Some(Cursor { object, unit, loads }) = self.mend.cursor().cloned() else {
                return Found::Nothing;
            };
            let is_done = |emptying: &Emptying| match &emptying.stage {
                Stage::Moving(regions) => regions.is_done(),
                Stage::Counting(_) => false,
            };
            if self.mend.is_emptying() && self.mend.emptying.as_ref().is_some_and(is_done) {
                return Found::End;
            }
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
                    self.mend.set_cursor(Cursor { object, unit, loads: loads + 1 });
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

    /// The object's next unit from this one on, if it is to be written again.
    fn next_of_object(&mut self, object: &Arc<ObjectId>, unit: u32, looks: &mut u32) -> Found {
        let nid = match self.index.look_up(object) {
            Err(wanted) => return Found::Absent(vec![wanted]),
            Ok(None) => {
                self.mend.move_to(Some(object.clone()), None);
                return Found::Nothing;
            }
            Ok(Some((_, onode))) => onode.nid,
        };
        let is_emptying = self.mend.is_emptying();
        let stage = self.mend.emptying.as_ref().map(|emptying| &emptying.stage).filter(|_| is_emptying);
        let by = stretches(nid, u64::from(unit) * u64::from(CHUNK_BLOCKS), ALL_BLOCKS);
        let (mut next, mut blocks, mut stay) = (None, Vec::new(), Vec::new());
        let absent = self.index.blocks.tree.walk(&by, |key, chunk| {
            *looks = looks.saturating_sub(1);
            if by(key) != Ordering::Equal {
                return false;
            }
            next = Some(key.1 + 1);
            let all = chunk.iter().map(|(bit, mapping)| (key.1 * CHUNK_BLOCKS + bit, mapping));
            let Some(stage) = stage else {
                if is_worth_mending(chunk) {
                    blocks = all.collect();
                }
                return blocks.is_empty() && *looks > 0;
            };
            let all: Vec<(u32, Mapping)> = all.collect();
            for piece in pieces(&all) {
                let within = piece.iter().filter(|(_, mapping)| match stage {
                    Stage::Counting(_) => self.alloc.is_sparse(mapping.device),
                    Stage::Moving(regions) => regions.has(mapping.device),
                });
                // Long pieces are what it is all for.
                match piece.len() < PIECE_BLOCKS {
                    true => blocks.extend(within),
                    false => stay.extend(within.map(|(_, mapping)| mapping.device)),
                }
            }
            blocks.is_empty() && *looks > 0
        });
        self.mend.stay(stay);
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
        let mut fits = self.check_mending_space(count).is_ok();
        if fits && !is_emptying && !self.alloc.has_whole(count) {
            if self.mend.may_empty(self.alloc.surveys()) {
                return Found::NoRoom(count);
            }
            fits = false;
        }
        if fits {
            let wanted = self.pages_to_map(object, blocks[0].0);
            if !wanted.is_empty() {
                return Found::Absent(wanted);
            }
            let is_shared = |(_, mapping): &(u32, Mapping)| self.index.is_shared(mapping.device);
            match is_emptying {
                false => fits = !blocks.iter().any(is_shared),
                true => {
                    let shared: Vec<(u32, Mapping)> =
                        blocks.extract_if(.., |block| is_shared(block)).collect();
                    self.mend.stay(shared.iter().map(|(_, mapping)| mapping.device));
                    fits = !blocks.is_empty();
                }
            }
        }
        self.mend.move_to(Some(object.clone()), next);
        match &mut self.mend.emptying {
            _ if !fits => Found::Nothing,
            Some(Emptying { stage: Stage::Counting(survey), .. }) if is_emptying => {
                blocks.iter().for_each(|(_, mapping)| survey.count(mapping.device));
                Found::Nothing
            }
            _ => Found::Unit(object.clone(), blocks),
        }
    }

    /// Those that are absent of what it takes to give other places to a unit.
    pub(super) fn pages_to_map(&self, object: &ObjectId, block: u32) -> Vec<Wanted> {
        if self.index.is_loaded() {
            return Vec::new();
        }
        let mut needs = Needs::new(&self.index);
        let crcs = &[0; CHUNK_BLOCKS as usize];
        let block = block / CHUNK_BLOCKS * CHUNK_BLOCKS;
        needs.log_op(&LogOp::Map { id: object, block, device: 0, crcs, logged: false });
        needs.into_wanted()
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
}
