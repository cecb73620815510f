//! Finding entries, and the pages that must be loaded before they can be found.

use super::hints::search_near;
use super::{At, Kind, LOADED, Slot, Tree};
use std::cmp::Ordering;

/// Where an entry is, as long as [`Tree::structure`] stays the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(super) at: At,
    pub(super) entry: usize,
}

impl Position {
    /// Where this entry is after another one came to be at `new`.
    pub(crate) fn beside_new(self, new: Position) -> Position {
        let moved = self.at == new.at && self.entry >= new.entry;
        Position { entry: self.entry + usize::from(moved), ..self }
    }
}

/// A leaf, and in it the entry or where that would be.
pub(super) type Found = (At, std::result::Result<usize, usize>);

impl<T: Kind> Tree<T> {
    /// The slot that holds the key if any does. `by` orders a key against the one looked for.
    pub(super) fn seek(&self, by: impl Fn(&T::Key) -> Ordering) -> Option<At> {
        let before = |key: &T::Key| by(key) != Ordering::Greater;
        let node = self.nodes.partition_point(|branch| before(&branch.node.slots[0].first)).saturating_sub(1);
        let slots = &self.nodes.get(node)?.node.slots;
        let slot = slots.partition_point(|slot| before(&slot.first)).saturating_sub(1);
        Some((node, slot))
    }

    /// The slot and the entry, or where it would be. None in an empty tree.
    ///
    /// Panics when the page is not in memory: see [`Tree::absent`].
    pub(super) fn locate(&self, token: u64, by: impl Fn(&T::Key) -> Ordering) -> Option<Found> {
        self.try_locate(token, by).unwrap_or_else(|_| panic!("{LOADED}"))
    }

    /// The same; the slot when its page is not in memory.
    fn try_locate(
        &self,
        token: u64,
        by: impl Fn(&T::Key) -> Ordering,
    ) -> std::result::Result<Option<Found>, &Slot<T>> {
        if let Some(found) = self.hinted(token, &by) {
            return Ok(Some(found));
        }
        let Some(at) = self.seek(&by) else { return Ok(None) };
        let Some(leaf) = self.leaf(at) else { return Err(self.slot(at)) };
        leaf.touch();
        let found = search_near(&leaf.entries, self.expected(at, token), by);
        let (Ok(entry) | Err(entry)) = found;
        self.hints.keep(token, at, entry);
        Ok(Some((at, found)))
    }

    /// Where in its page the token's entry would be if all were spread evenly between the page's
    /// beginning and the next one's.
    fn expected(&self, at: At, token: u64) -> usize {
        let slots = &self.nodes[at.0].node.slots;
        let count = slots[at.1].sums.count as usize;
        // What grows grows at its end.
        let Some(next) = slots.get(at.1 + 1) else { return count };
        let (first, end) = (T::rank(&slots[at.1].first), T::rank(&next.first));
        match (first <= token).then(|| token - first) {
            Some(behind) if token < end => (count as f64 * (behind as f64 / (end - first) as f64)) as usize,
            _ => count / 2,
        }
    }

    /// What one of the token's hints says.
    pub(super) fn hinted(&self, token: u64, by: impl Fn(&T::Key) -> Ordering) -> Option<Found> {
        self.hints.places(token).find_map(|place| self.guess(place, &by))
    }

    /// What a hint says, when that is right.
    fn guess(&self, (at, entry): (At, usize), by: impl Fn(&T::Key) -> Ordering) -> Option<Found> {
        let leaf = self.nodes.get(at.0)?.leaves.get(at.1)?.as_ref()?;
        // Others may have come before it in its page.
        let found = search_near(&leaf.entries, entry, &by);
        let right = match found {
            Ok(_) => true,
            // Before or behind all entries: it may belong to a neighbour.
            Err(entry) => {
                (entry > 0 || by(&self.slot(at).first) != Ordering::Greater)
                    && (entry < leaf.entries.len()
                        || self.next(at).is_none_or(|next| by(&self.slot(next).first) == Ordering::Greater))
            }
        };
        leaf.touch();
        right.then_some((at, found))
    }

    /// The page with this key's place when it is not in memory.
    pub(crate) fn absent(&self, by: impl Fn(&T::Key) -> Ordering) -> Option<&Slot<T>> {
        if self.is_loaded() {
            return None;
        }
        let at = self.seek(by)?;
        self.leaf(at).is_none().then(|| self.slot(at))
    }

    /// Pages with keys in a range that are not in memory. `by` answers `Less`
    /// for keys before the range, `Equal` inside, `Greater` behind. With
    /// `edges_only`, pages that lie in the range as a whole do not count.
    pub(crate) fn absent_in(
        &self,
        by: impl Fn(&T::Key) -> Ordering,
        edges_only: bool,
        mut found: impl FnMut(&Slot<T>),
    ) {
        let mut at = self.seek(|key| by(key).then(Ordering::Greater));
        while let Some(here) = at {
            let slot = self.slot(here);
            if by(&slot.first) == Ordering::Greater {
                return;
            }
            at = self.next(here);
            if self.leaf(here).is_none() && !(edges_only && self.is_inside(here, &by)) {
                found(slot);
            }
        }
    }

    /// Whether all the page's keys are in the range.
    pub(super) fn is_inside(&self, at: At, by: impl Fn(&T::Key) -> Ordering) -> bool {
        by(&self.slot(at).first) == Ordering::Equal
            && self.next(at).is_some_and(|next| by(&self.slot(next).first) == Ordering::Equal)
    }

    /// Panics when the page is not in memory: see [`Tree::try_find`].
    pub(crate) fn find(&self, token: u64, by: impl Fn(&T::Key) -> Ordering) -> Option<Position> {
        self.try_find(token, by).unwrap_or_else(|_| panic!("{LOADED}"))
    }

    /// The slot when the page with this key's place is not in memory.
    pub(crate) fn try_find(
        &self,
        token: u64,
        by: impl Fn(&T::Key) -> Ordering,
    ) -> std::result::Result<Option<Position>, &Slot<T>> {
        Ok(match self.try_locate(token, by)? {
            Some((at, Ok(entry))) => Some(Position { at, entry }),
            _ => None,
        })
    }

    /// What [`Tree::find`] has found.
    pub(crate) fn at(&self, position: Position) -> &(T::Key, T::Value) {
        &self.leaf(position.at).expect(LOADED).entries[position.entry]
    }

    /// Panics when the page is not in memory: see [`Tree::absent`].
    pub(crate) fn get(&self, token: u64, by: impl Fn(&T::Key) -> Ordering) -> Option<&(T::Key, T::Value)> {
        self.find(token, by).map(|position| self.at(position))
    }

    /// Entries from the first one that `by` does not call `Less`, until `visit`
    /// declines or a page is not in memory: that page is returned.
    pub(crate) fn walk<'a>(
        &'a self,
        by: impl Fn(&T::Key) -> Ordering,
        mut visit: impl FnMut(&'a T::Key, &'a T::Value) -> bool,
    ) -> Option<&'a Slot<T>> {
        // The first slot that may hold such a key.
        let mut at = self.seek(|key| by(key).then(Ordering::Greater));
        let mut begun = false;
        while let Some(here) = at {
            let Some(leaf) = self.leaf(here) else {
                return Some(self.slot(here));
            };
            leaf.touch();
            let from = match begun {
                true => 0,
                false => leaf.entries.partition_point(|(key, _)| by(key) == Ordering::Less),
            };
            begun = true;
            for (key, value) in &leaf.entries[from..] {
                if !visit(key, value) {
                    return None;
                }
            }
            at = self.next(here);
        }
        None
    }
}
