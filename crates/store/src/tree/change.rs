//! Changing entries: values in place, entries that come and go.

use super::search::Found;
use super::{At, Entries, Kind, LOADED, Position, Sums, Tree};
use std::cmp::Ordering;
use std::sync::Arc;

impl<T: Kind> Tree<T> {
    /// Changes a page's entries; `change` answers what it added and took away.
    pub(super) fn edit<R>(&mut self, at: At, change: impl FnOnce(&mut Entries<T>) -> (R, Sums, Sums)) -> R {
        let generation = self.generation;
        let branch = &mut self.nodes[at.0];
        let leaf = Arc::make_mut(branch.leaves[at.1].as_mut().expect(LOADED));
        let (result, added, removed) = change(&mut leaf.entries);
        let was_dirty = branch.node.slots[at.1].changed == generation;
        if was_dirty && added == removed {
            // Most changes: a value is replaced by one of the same length, in a page that has changed.
            return result;
        }
        let node = Arc::make_mut(&mut branch.node);
        node.changed = generation;
        let slot = &mut node.slots[at.1];
        slot.changed = generation;
        let before = slot.sums.memory::<T>();
        slot.sums.add(added);
        slot.sums.sub(removed);
        self.structure += u64::from(added.count != removed.count);
        let after = slot.sums.memory::<T>();
        self.memory = self.memory + after - before;
        self.dirty = self.dirty + after - if was_dirty { before } else { 0 };
        self.total = self.total + u64::from(added.weight) - u64::from(removed.weight);
        result
    }

    /// Changes one value; `None` when the key is not there.
    pub(crate) fn update<R>(
        &mut self,
        token: u64,
        by: impl Fn(&T::Key) -> Ordering,
        change: impl FnOnce(&mut T::Value) -> R,
    ) -> Option<R> {
        let position = self.find(token, by)?;
        Some(self.update_at(position, change))
    }

    /// Changes the value that [`Tree::find`] has found.
    pub(crate) fn update_at<R>(&mut self, position: Position, change: impl FnOnce(&mut T::Value) -> R) -> R {
        let Position { at, entry } = position;
        let (result, grown) = self.edit(at, |entries| {
            let (key, value) = &mut entries[entry];
            let before = Sums::of_value::<T>(key, value);
            let result = change(value);
            let after = Sums::of_value::<T>(key, value);
            ((result, after.weight > before.weight), after, before)
        });
        if grown {
            self.split(at, entry);
        }
        result
    }

    /// The same by key; where that is not there, `make` says what is to be, and the answer is `None`.
    pub(crate) fn update_or_insert<R>(
        &mut self,
        token: u64,
        by: impl Fn(&T::Key) -> Ordering,
        change: impl FnOnce(&mut T::Value) -> R,
        make: impl FnOnce() -> (T::Key, T::Value),
    ) -> Option<R> {
        match self.locate(token, by) {
            Some((at, Ok(entry))) => Some(self.update_at(Position { at, entry }, change)),
            absent => {
                let (key, value) = make();
                self.insert_at(absent, key, value);
                None
            }
        }
    }

    /// Returns the value that was there.
    pub(crate) fn insert(&mut self, key: T::Key, value: T::Value) -> Option<T::Value> {
        match self.locate(T::token(&key), |other| other.cmp(&key)) {
            Some((at, Ok(entry))) => {
                Some(self.update_at(Position { at, entry }, |old| std::mem::replace(old, value)))
            }
            absent => {
                self.insert_at(absent, key, value);
                None
            }
        }
    }

    /// The same for a key that is not there. Returns where it is, if nothing has moved but what
    /// lies behind it in its page.
    pub(crate) fn insert_new(&mut self, key: T::Key, value: T::Value) -> Option<Position> {
        let absent = self.locate(T::token(&key), |other| other.cmp(&key));
        self.insert_at(absent, key, value)
    }

    /// `absent`: where [`Tree::locate`] has not found it.
    fn insert_at(&mut self, absent: Option<Found>, key: T::Key, value: T::Value) -> Option<Position> {
        let Some((at, found)) = absent else {
            self.insert_slot((0, 0), T::bound(None, &key), vec![(key, value)]);
            return None;
        };
        let entry = found.expect_err("the key is not there");
        let sums = Sums::of::<T>(&key, &value);
        let token = T::token(&key);
        let slot = self.slot(at);
        // Not behind nothing: an empty page may begin with this very key.
        let behind = entry > 0 && entry == slot.sums.count as usize;
        if behind && (slot.sums.weight + sums.weight) as usize > T::PAGE_LEN {
            // Ascending insertion, as of a PG's log, leaves full pages behind.
            let last = self.leaf(at).expect(LOADED).entries.last();
            let first = T::bound(last.map(|(key, _)| key), &key);
            let at = self.insert_slot((at.0, at.1 + 1), first, vec![(key, value)]);
            self.hints.keep(token, at, 0);
            return None;
        }
        if entry == 0 && key < slot.first {
            // Only of the first page: others hold what follows the one before.
            let first = T::bound(None, &key);
            self.names -= T::key_weight(&slot.first) as u64;
            self.names += T::key_weight(&first) as u64;
            Arc::make_mut(&mut self.nodes[at.0].node).slots[at.1].first = first;
        }
        self.hints.keep(token, at, entry);
        self.edit(at, |entries| {
            if entries.len() == entries.capacity() {
                // Less to spare than a list takes by itself: a page has an end.
                entries.reserve_exact(entries.len() / 4 + 4);
            }
            entries.insert(entry, (key, value));
            ((), sums, Sums::default())
        });
        let before = self.structure;
        self.split(at, entry);
        (self.structure == before).then_some(Position { at, entry })
    }

    pub(crate) fn remove(
        &mut self,
        token: u64,
        by: impl Fn(&T::Key) -> Ordering,
    ) -> Option<(T::Key, T::Value)> {
        let (at, Ok(entry)) = self.locate(token, by)? else {
            return None;
        };
        let removed = self.edit(at, |entries| {
            let (key, value) = entries.remove(entry);
            let sums = Sums::of::<T>(&key, &value);
            ((key, value), Sums::default(), sums)
        });
        self.shrink(at);
        Some(removed)
    }

    /// Removes a range, as [`Tree::absent_in`] has it, whose keys have that token; pages inside it
    /// go unread. Returns what went.
    pub(crate) fn remove_range(&mut self, token: u64, by: impl Fn(&T::Key) -> Ordering) -> Sums {
        let mut gone = Sums::default();
        let begin = |key: &T::Key| by(key).then(Ordering::Greater);
        let (mut at, mut first) = match self.hinted(token, begin) {
            Some((at, Err(entry))) => (Some(at), Some(entry)),
            _ => (self.seek(begin), None),
        };
        while let Some(here) = at {
            if by(&self.slot(here).first) == Ordering::Greater {
                break;
            }
            if self.is_inside(here, &by) {
                gone.add(self.slot(here).sums);
                at = self.empty_slot(here);
                continue;
            }
            let entries = &self.leaf(here).expect(LOADED).entries;
            let from = first.take().unwrap_or_else(|| {
                let from = entries.partition_point(|(key, _)| by(key) == Ordering::Less);
                self.hints.keep(token, here, from);
                from
            });
            let count = entries[from..].iter().take_while(|(key, _)| by(key) == Ordering::Equal).count();
            let to = from + count;
            if from == to {
                at = self.next(here);
                continue;
            }
            let removed = self.edit(here, |entries| {
                let removed = Sums::of_all::<T>(&entries[from..to]);
                entries.drain(from..to);
                (removed, Sums::default(), removed)
            });
            gone.add(removed);
            at = match self.slot(here).sums.count {
                0 => self.empty_slot(here),
                _ => self.next(here),
            };
        }
        gone
    }
}
