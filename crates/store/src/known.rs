//! Where the objects are that one transaction names: it names each of them
//! several times, and comparing names costs more than anything else of a search.
//!
//! Between [`Known::begin`] and [`Known::end`] all names are borrowed from one
//! transaction, so equal addresses are equal names. Outside nothing is kept.

use crate::api::ObjectId;
use crate::tree::Position;
use std::cell::Cell;

/// A transaction of an OSD names the object and the PG's log, twice each.
const KEPT: usize = 4;

#[derive(Clone, Copy)]
struct Kept {
    /// Of the name.
    address: usize,
    position: Position,
    structure: u64,
}

#[derive(Default)]
pub(crate) struct Known {
    active: bool,
    kept: [Cell<Option<Kept>>; KEPT],
    next: Cell<usize>,
}

impl Known {
    pub(crate) fn begin(&mut self) {
        self.active = true;
    }

    pub(crate) fn end(&mut self) {
        self.active = false;
        self.kept.iter().for_each(|kept| kept.set(None));
    }

    /// The object's place in a tree with that structure; `search` when it is not known.
    pub(crate) fn find(
        &self,
        id: &ObjectId,
        structure: u64,
        search: impl FnOnce() -> Option<Position>,
    ) -> Option<Position> {
        if !self.active {
            return search();
        }
        let address = std::ptr::from_ref(id).addr();
        let same = self.kept.iter().find(|kept| kept.get().is_some_and(|kept| kept.address == address));
        if let Some(kept) = same.and_then(Cell::get)
            && kept.structure == structure
        {
            return Some(kept.position);
        }
        let position = search()?;
        let place = same.unwrap_or_else(|| {
            self.next.set((self.next.get() + 1) % KEPT);
            &self.kept[self.next.get()]
        });
        place.set(Some(Kept { address, position, structure }));
        Some(position)
    }
}
