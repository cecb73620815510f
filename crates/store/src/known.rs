//! Where the objects are that one transaction names: it names each of them
//! several times, and comparing names costs more than anything else of a search.
//!
//! Between [`Known::begin`] and [`Known::end`] all names are borrowed from one
//! transaction, so equal addresses are equal names. Outside nothing is kept.

use crate::api::ObjectId;
use crate::name::token_of;
use crate::tree::Position;
use std::cell::Cell;

/// A transaction of an OSD names the object and the PG's log, twice each.
const KEPT: usize = 4;

/// None: it does not exist.
#[derive(Clone, Copy, Default)]
struct Kept {
    position: Option<Position>,
    /// Of the name: others need not be compared.
    token: u64,
    /// Of the tree when this was found: later it says nothing.
    structure: u64,
}

#[derive(Default)]
pub(crate) struct Known {
    active: bool,
    /// Of names; 0: of none.
    addresses: [Cell<usize>; KEPT],
    kept: [Cell<Kept>; KEPT],
    /// The name asked for last: most questions repeat it.
    last: Cell<usize>,
    /// Where the next one goes.
    next: Cell<usize>,
}

impl Known {
    pub(crate) fn begin(&mut self) {
        self.active = true;
    }

    pub(crate) fn end(&mut self) {
        self.active = false;
        self.addresses.iter().for_each(|address| address.set(0));
    }

    /// The object's place in a tree with that structure: what is known under the
    /// name's address, or of a name that the tree has (`is_it`), or found by `search`.
    pub(crate) fn find(
        &self,
        id: &ObjectId,
        structure: u64,
        is_it: impl Fn(Position) -> bool,
        search: impl FnOnce() -> Option<Position>,
    ) -> Option<Position> {
        if !self.active {
            return search();
        }
        let address = std::ptr::from_ref(id).addr();
        let known_at = |at: usize| {
            let kept = self.kept[at].get();
            (self.addresses[at].get() == address && kept.structure == structure).then_some(kept.position)
        };
        if let Some(position) = known_at(self.last.get()) {
            return position;
        }
        let at = self.addresses.iter().position(|kept| kept.get() == address);
        if let Some(at) = at
            && let Some(position) = known_at(at)
        {
            self.last.set(at);
            return position;
        }
        let token = token_of(id);
        let position = self.under_another_address(token, structure, is_it).or_else(search);
        let at = at.unwrap_or_else(|| {
            let next = self.next.get();
            self.next.set((next + 1) % KEPT);
            next
        });
        self.last.set(at);
        self.addresses[at].set(address);
        self.kept[at].set(Kept { position, token, structure });
        position
    }

    /// Of the tree with structure `before`, only what lies behind `at` in its page has moved: the
    /// object of that name is new there.
    pub(crate) fn note_inserted(&self, id: &ObjectId, at: Position, before: u64, structure: u64) {
        let new = std::ptr::from_ref(id).addr();
        for (address, kept) in self.addresses.iter().zip(&self.kept) {
            let known = kept.get();
            let position = match known.position {
                _ if address.get() == new => Some(at),
                // Whether this is another name for the new one nobody has looked at.
                None => continue,
                Some(position) => Some(position.beside_new(at)),
            };
            if known.structure == before {
                kept.set(Kept { position, structure, ..known });
            }
        }
    }

    fn under_another_address(
        &self,
        token: u64,
        structure: u64,
        is_it: impl Fn(Position) -> bool,
    ) -> Option<Position> {
        let kept = self.addresses.iter().zip(&self.kept).filter(|(address, _)| address.get() != 0);
        let alike = kept
            .map(|(_, kept)| kept.get())
            .filter(|kept| (kept.token, kept.structure) == (token, structure));
        alike.filter_map(|kept| kept.position).find(|position| is_it(*position))
    }
}
