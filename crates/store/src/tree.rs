//! An ordered map kept in pages: some in memory, all of them written to the
//! device by checkpoints.
//!
//! Sorted leaves (one page each) under nodes of slots, which say for each page
//! where its range begins, how much it holds, and whether it is in memory. All
//! slots are in memory, so what a page is needed for is known without reading.
//! Clones are cheap (`Arc` all the way): a checkpoint walks a [`Snapshot`] while
//! transactions go on changing the tree.
//!
//! A page that is not in memory cannot be changed: callers ask
//! [`Tree::absent`] first and load what it names. The tree must not know the
//! device, nor what its keys mean ([`Kind`] does).
//!
//! Invariants: keys ascend within and across leaves; a slot's `first` is at most
//! its first key, and above all keys before; a slot changed after the last
//! completed checkpoint has its leaf in memory. Where a slot goes, its range falls
//! to a neighbour that is in memory: what was loaded for a transaction suffices
//! to its end. So an empty leaf stays when its neighbour is not.
//!
//! Generations say what a checkpoint must write: every change is stamped with
//! the current one, each snapshot ends one.

use crate::ops::{Reader, Result};
use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Slots of a node.
const NODE_MAX: usize = 128;

/// What a tree holds.
pub(crate) trait Kind: Sized {
    type Key: Clone + Ord + Debug;
    type Value: Clone + Debug;

    /// A page is split when its entries' weights exceed this, in bytes.
    const PAGE_LEN: usize;
    /// Memory of one entry beyond its weight, in bytes, about.
    const OVERHEAD: usize;

    /// An upper bound of the entry's encoded length.
    fn weight(key: &Self::Key, value: &Self::Value) -> usize;
    /// Something to be summed up over ranges that are not in memory.
    fn measure(_key: &Self::Key, _value: &Self::Value) -> u64 {
        0
    }
    /// Keys with the same one are likely to be looked for one after the other.
    fn token(key: &Self::Key) -> u64;
    /// An upper bound of the key's encoded length.
    fn key_weight(key: &Self::Key) -> usize;
    fn put_key(out: &mut Vec<u8>, key: &Self::Key);
    fn read_key(r: &mut Reader) -> Result<Self::Key>;
    fn put(out: &mut Vec<u8>, key: &Self::Key, value: &Self::Value);
    fn read(r: &mut Reader, device_blocks: u32) -> Result<(Self::Key, Self::Value)>;
}

/// A page of one tree; numbers are used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PageId(pub(crate) u32);

/// Sums over entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) count: u32,
    pub(crate) weight: u32,
    pub(crate) measure: u64,
}

impl Sums {
    fn of<T: Kind>(key: &T::Key, value: &T::Value) -> Sums {
        let weight = T::weight(key, value).min(u32::MAX as usize) as u32;
        Sums { count: 1, weight, measure: T::measure(key, value) }
    }

    fn of_all<T: Kind>(entries: &[(T::Key, T::Value)]) -> Sums {
        let mut sums = Sums::default();
        entries.iter().for_each(|(k, v)| sums.add(Sums::of::<T>(k, v)));
        sums
    }

    fn add(&mut self, other: Sums) {
        self.count += other.count;
        self.weight += other.weight;
        self.measure += other.measure;
    }

    fn sub(&mut self, other: Sums) {
        self.count -= other.count;
        self.weight -= other.weight;
        self.measure -= other.measure;
    }

    fn memory<T: Kind>(self) -> usize {
        self.weight as usize + self.count as usize * T::OVERHEAD
    }
}

pub(crate) type Entries<T> = Vec<(<T as Kind>::Key, <T as Kind>::Value)>;

pub(crate) struct Leaf<T: Kind> {
    pub(crate) entries: Entries<T>,
    /// Looked at since the cache's hand last came by.
    recent: AtomicBool,
}

impl<T: Kind> Clone for Leaf<T> {
    fn clone(&self) -> Self {
        Leaf::new(self.entries.clone())
    }
}

impl<T: Kind> Leaf<T> {
    fn new(entries: Entries<T>) -> Leaf<T> {
        Leaf { entries, recent: AtomicBool::new(true) }
    }

    fn touch(&self) {
        if !self.recent.load(Relaxed) {
            self.recent.store(true, Relaxed);
        }
    }
}

pub(crate) struct Slot<T: Kind> {
    pub(crate) first: T::Key,
    pub(crate) page: PageId,
    /// The generation of its last change.
    pub(crate) changed: u64,
    pub(crate) sums: Sums,
    pub(crate) leaf: Option<Arc<Leaf<T>>>,
}

impl<T: Kind> Clone for Slot<T> {
    fn clone(&self) -> Self {
        let Slot { first, page, changed, sums, leaf } = self;
        Slot { first: first.clone(), page: *page, changed: *changed, sums: *sums, leaf: leaf.clone() }
    }
}

pub(crate) struct Node<T: Kind> {
    pub(crate) slots: Vec<Slot<T>>,
    /// The newest change below.
    pub(crate) changed: u64,
}

impl<T: Kind> Clone for Node<T> {
    fn clone(&self) -> Self {
        Node { slots: self.slots.clone(), changed: self.changed }
    }
}

/// The tree as it was; later changes do not touch it.
pub(crate) struct Snapshot<T: Kind> {
    pub(crate) nodes: Vec<Arc<Node<T>>>,
    /// What changed after this generation is not on the device yet.
    pub(crate) since: u64,
    /// The snapshot's own generation.
    pub(crate) generation: u64,
    /// Pages that the one before had, and this one has no more.
    pub(crate) dropped: Vec<PageId>,
}

/// Where a slot is: node and slot.
type At = (usize, usize);

/// Where an entry is, as long as [`Tree::structure`] stays the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    at: At,
    entry: usize,
}

/// Where searches ended lately, by token, two for each: a transaction names the
/// same object several times, and a PG's log grows at one end and shrinks at the
/// other. Only ever guesses.
struct Hints {
    places: Vec<[AtomicU64; 2]>,
}

const HINTS: usize = 512;

impl Default for Hints {
    fn default() -> Self {
        Hints { places: (0..HINTS).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect() }
    }
}

impl Hints {
    fn of(&self, token: u64) -> &[AtomicU64; 2] {
        // Tokens that differ in any of their bits should differ here.
        &self.places[(token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize % HINTS]
    }

    fn keep(&self, token: u64, at: At, entry: usize) {
        let ways = self.of(token);
        let place = (at.0 as u64) << 32 | (at.1 as u64) << 20 | (entry as u64).min(0xf_ffff);
        let newest = ways[0].load(Relaxed);
        if newest != place {
            ways[1].store(newest, Relaxed);
            ways[0].store(place, Relaxed);
        }
    }
}

fn unpacked(place: u64) -> (At, usize) {
    (((place >> 32) as usize, (place >> 20 & 0xfff) as usize), (place & 0xf_ffff) as usize)
}

/// Looks at an entry and its neighbours only.
fn probe<K, V>(
    entries: &[(K, V)],
    at: usize,
    by: impl Fn(&K) -> Ordering,
) -> Option<std::result::Result<usize, usize>> {
    let (key, _) = entries.get(at)?;
    match by(key) {
        Ordering::Equal => Some(Ok(at)),
        Ordering::Less => match entries.get(at + 1).map(|(key, _)| by(key)) {
            None | Some(Ordering::Greater) => Some(Err(at + 1)),
            Some(Ordering::Equal) => Some(Ok(at + 1)),
            Some(Ordering::Less) => None,
        },
        Ordering::Greater => match at.checked_sub(1).map(|before| by(&entries[before].0)) {
            None | Some(Ordering::Less) => Some(Err(at)),
            Some(Ordering::Equal) => Some(Ok(at - 1)),
            Some(Ordering::Greater) => None,
        },
    }
}

pub(crate) struct Tree<T: Kind> {
    nodes: Vec<Arc<Node<T>>>,
    /// Pages ever numbered, and numbers free again.
    pages: u32,
    unused: Vec<PageId>,
    dropped: Vec<PageId>,
    generation: u64,
    last_snapshot: u64,
    /// Changes up to this generation are on the device.
    written: u64,
    hints: Hints,
    /// Bytes of the pages in memory, and of those that the next checkpoint must write.
    memory: usize,
    dirty: usize,
    slots: usize,
    absent: usize,
    /// Of all pages, in memory or not; and of their first keys.
    total: u64,
    names: u64,
    /// Where the cache looks next for pages to let go.
    hand: At,
    /// Grows whenever entries come, go or move.
    structure: u64,
}

impl<T: Kind> Default for Tree<T> {
    fn default() -> Self {
        Tree {
            nodes: Vec::new(),
            pages: 0,
            unused: Vec::new(),
            dropped: Vec::new(),
            generation: 1,
            last_snapshot: 0,
            written: 0,
            hints: Hints::default(),
            memory: 0,
            dirty: 0,
            slots: 0,
            absent: 0,
            total: 0,
            names: 0,
            hand: (0, 0),
            structure: 0,
        }
    }
}

/// A leaf, and in it the entry or where that would be.
type Found = (At, std::result::Result<usize, usize>);

const LOADED: &str = "a page is loaded before it is used";

impl<T: Kind> Tree<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Pages.
    pub(crate) fn len(&self) -> usize {
        self.slots
    }

    /// Bytes of pages in memory.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes of pages changed since the last snapshot.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.absent == 0
    }

    /// An upper bound of all pages' encoded length.
    pub(crate) fn weight(&self) -> u64 {
        self.total
    }

    /// An upper bound of the encoded length of all pages' first keys.
    pub(crate) fn names(&self) -> u64 {
        self.names
    }

    fn slot(&self, at: At) -> &Slot<T> {
        &self.nodes[at.0].slots[at.1]
    }

    fn next(&self, at: At) -> Option<At> {
        if at.1 + 1 < self.nodes[at.0].slots.len() {
            return Some((at.0, at.1 + 1));
        }
        (at.0 + 1 < self.nodes.len()).then_some((at.0 + 1, 0))
    }

    /// The slot that holds the key if any does. `by` orders a key against the one looked for.
    fn seek(&self, by: impl Fn(&T::Key) -> Ordering) -> Option<At> {
        let before = |key: &T::Key| by(key) != Ordering::Greater;
        let node = self.nodes.partition_point(|node| before(&node.slots[0].first)).saturating_sub(1);
        let slots = &self.nodes.get(node)?.slots;
        let slot = slots.partition_point(|slot| before(&slot.first)).saturating_sub(1);
        Some((node, slot))
    }

    /// The slot and the entry, or where it would be. None in an empty tree.
    ///
    /// Panics when the page is not in memory: see [`Tree::absent`].
    fn locate(&self, token: u64, by: impl Fn(&T::Key) -> Ordering) -> Option<Found> {
        self.try_locate(token, by).unwrap_or_else(|_| panic!("{LOADED}"))
    }

    /// The same; the slot when its page is not in memory.
    fn try_locate(
        &self,
        token: u64,
        by: impl Fn(&T::Key) -> Ordering,
    ) -> std::result::Result<Option<Found>, &Slot<T>> {
        for way in self.hints.of(token) {
            if let Some(found) = self.guess(way.load(Relaxed), &by) {
                return Ok(Some(found));
            }
        }
        let Some(at) = self.seek(&by) else { return Ok(None) };
        let slot = self.slot(at);
        let Some(leaf) = &slot.leaf else { return Err(slot) };
        leaf.touch();
        let found = leaf.entries.binary_search_by(|(key, _)| by(key));
        let (Ok(entry) | Err(entry)) = found;
        self.hints.keep(token, at, entry);
        Ok(Some((at, found)))
    }

    /// What a hint says, when that is right.
    fn guess(&self, place: u64, by: impl Fn(&T::Key) -> Ordering) -> Option<Found> {
        let (at, entry) = unpacked(place);
        let slot = self.nodes.get(at.0)?.slots.get(at.1)?;
        let leaf = slot.leaf.as_ref()?;
        let found = probe(&leaf.entries, entry, &by)?;
        let right = match found {
            Ok(_) => true,
            // Before or behind all entries: it may belong to a neighbour.
            Err(entry) => {
                (entry > 0 || by(&slot.first) != Ordering::Greater)
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
        let slot = self.slot(self.seek(by)?);
        slot.leaf.is_none().then_some(slot)
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
            if slot.leaf.is_none() && !(edges_only && self.is_inside(here, &by)) {
                found(slot);
            }
        }
    }

    /// Whether all the page's keys are in the range.
    fn is_inside(&self, at: At, by: impl Fn(&T::Key) -> Ordering) -> bool {
        by(&self.slot(at).first) == Ordering::Equal
            && self.next(at).is_some_and(|next| by(&self.slot(next).first) == Ordering::Equal)
    }

    pub(crate) fn structure(&self) -> u64 {
        self.structure
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
        &self.slot(position.at).leaf.as_ref().expect(LOADED).entries[position.entry]
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
            let slot = self.slot(here);
            let Some(leaf) = &slot.leaf else {
                return Some(slot);
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

    fn new_page(&mut self) -> PageId {
        self.unused.pop().unwrap_or_else(|| {
            self.pages += 1;
            PageId(self.pages - 1)
        })
    }

    /// Changes a page's entries; `change` answers what it added and took away.
    fn edit<R>(&mut self, at: At, change: impl FnOnce(&mut Entries<T>) -> (R, Sums, Sums)) -> R {
        let generation = self.generation;
        let node = Arc::make_mut(&mut self.nodes[at.0]);
        node.changed = generation;
        let slot = &mut node.slots[at.1];
        let was_dirty = slot.changed == generation;
        slot.changed = generation;
        let before = slot.sums.memory::<T>();
        let leaf = Arc::make_mut(slot.leaf.as_mut().expect(LOADED));
        let (result, added, removed) = change(&mut leaf.entries);
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
        let result = self.edit(at, |entries| {
            let (key, value) = &mut entries[entry];
            let before = Sums::of::<T>(key, value);
            let result = change(value);
            (result, Sums::of::<T>(key, value), before)
        });
        self.split(at, entry);
        result
    }

    /// Returns the value that was there.
    pub(crate) fn insert(&mut self, key: T::Key, value: T::Value) -> Option<T::Value> {
        let sums = Sums::of::<T>(&key, &value);
        let token = T::token(&key);
        let Some((at, found)) = self.locate(token, |other| other.cmp(&key)) else {
            self.insert_slot((0, 0), key.clone(), vec![(key, value)]);
            return None;
        };
        let entry = match found {
            Ok(entry) => {
                let old = self.edit(at, |entries| {
                    let old = std::mem::replace(&mut entries[entry].1, value);
                    let removed = Sums::of::<T>(&key, &old);
                    (old, sums, removed)
                });
                self.split(at, entry);
                return Some(old);
            }
            Err(entry) => entry,
        };
        let slot = self.slot(at);
        let behind = entry == slot.sums.count as usize;
        if behind && (slot.sums.weight + sums.weight) as usize > T::PAGE_LEN {
            // Ascending insertion, as of a PG's log, leaves full pages behind.
            let at = self.insert_slot((at.0, at.1 + 1), key.clone(), vec![(key, value)]);
            self.hints.keep(token, at, 0);
            return None;
        }
        if entry == 0 && key < slot.first {
            self.names -= T::key_weight(&slot.first) as u64;
            self.names += T::key_weight(&key) as u64;
            Arc::make_mut(&mut self.nodes[at.0]).slots[at.1].first = key.clone();
        }
        self.hints.keep(token, at, entry);
        self.edit(at, |entries| {
            entries.insert(entry, (key, value));
            ((), sums, Sums::default())
        });
        self.split(at, entry);
        None
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

    /// Removes a range, as [`Tree::absent_in`] has it; pages inside it go
    /// unread. Returns what went.
    pub(crate) fn remove_range(&mut self, by: impl Fn(&T::Key) -> Ordering) -> Sums {
        let mut gone = Sums::default();
        let mut at = self.seek(|key| by(key).then(Ordering::Greater));
        while let Some(here) = at {
            if by(&self.slot(here).first) == Ordering::Greater {
                break;
            }
            if self.is_inside(here, &by) {
                gone.add(self.slot(here).sums);
                at = self.empty_slot(here);
                continue;
            }
            let leaf = self.slot(here).leaf.as_ref().expect(LOADED);
            let from = leaf.entries.partition_point(|(key, _)| by(key) == Ordering::Less);
            let to = leaf.entries.partition_point(|(key, _)| by(key) != Ordering::Greater);
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

    /// A slot with a leaf of its own, before what is at `at`. Returns where it is
    /// then: its node may have been halved.
    fn insert_slot(&mut self, at: At, first: T::Key, entries: Entries<T>) -> At {
        let sums = Sums::of_all::<T>(&entries);
        let page = self.new_page();
        let changed = self.generation;
        self.structure += 1;
        self.memory += sums.memory::<T>();
        self.dirty += sums.memory::<T>();
        self.total += u64::from(sums.weight);
        self.names += T::key_weight(&first) as u64;
        self.slots += 1;
        let slot = Slot { first, page, changed, sums, leaf: Some(Arc::new(Leaf::new(entries))) };
        let Some(node) = self.nodes.get_mut(at.0) else {
            self.nodes.push(Arc::new(Node { slots: vec![slot], changed }));
            return at;
        };
        let node = Arc::make_mut(node);
        node.changed = changed;
        node.slots.insert(at.1, slot);
        if node.slots.len() <= NODE_MAX {
            return at;
        }
        let keep = if at.1 == NODE_MAX { NODE_MAX } else { NODE_MAX / 2 };
        let slots = node.slots.split_off(keep);
        self.nodes.insert(at.0 + 1, Arc::new(Node { slots, changed }));
        if at.1 < keep { at } else { (at.0 + 1, at.1 - keep) }
    }

    fn before(&self, at: At) -> At {
        if at.1 > 0 { (at.0, at.1 - 1) } else { (at.0 - 1, self.nodes[at.0 - 1].slots.len() - 1) }
    }

    /// Takes a page's content away, and the page where its range can fall to a
    /// neighbour. Returns the slot behind it.
    fn empty_slot(&mut self, at: At) -> Option<At> {
        // The one before; where there is none, the one behind.
        let heir = if at == (0, 0) { self.next(at) } else { Some(self.before(at)) };
        if heir.is_none_or(|heir| self.slot(heir).leaf.is_some()) {
            return self.remove_slot(at);
        }
        if self.slot(at).leaf.is_none() {
            self.absent -= 1;
            let sums = self.slot(at).sums;
            self.memory += sums.memory::<T>();
            let node = Arc::make_mut(&mut self.nodes[at.0]);
            node.slots[at.1].leaf = Some(Arc::new(Leaf::new(Vec::new())));
        }
        let sums = self.slot(at).sums;
        self.edit(at, |entries| {
            entries.clear();
            ((), Sums::default(), sums)
        });
        self.next(at)
    }

    /// Returns what is now at its place.
    fn remove_slot(&mut self, at: At) -> Option<At> {
        let node = Arc::make_mut(&mut self.nodes[at.0]);
        node.changed = self.generation;
        let slot = node.slots.remove(at.1);
        self.slots -= 1;
        self.structure += 1;
        self.total -= u64::from(slot.sums.weight);
        self.names -= T::key_weight(&slot.first) as u64;
        match slot.leaf {
            Some(_) => self.memory -= slot.sums.memory::<T>(),
            None => self.absent -= 1,
        }
        if slot.changed == self.generation {
            self.dirty -= slot.sums.memory::<T>();
        }
        self.dropped.push(slot.page);
        let left = node.slots.len();
        if left == 0 {
            self.nodes.remove(at.0);
            return (at.0 < self.nodes.len()).then_some((at.0, 0));
        }
        if at.1 < left {
            return Some(at);
        }
        (at.0 + 1 < self.nodes.len()).then_some((at.0 + 1, 0))
    }

    /// Halves a page that has grown too large by a change of entry `grown`.
    fn split(&mut self, at: At, grown: usize) {
        let slot = self.slot(at);
        if slot.sums.weight as usize <= T::PAGE_LEN || slot.sums.count < 2 {
            return;
        }
        let leaf = slot.leaf.as_ref().expect(LOADED);
        let half = slot.sums.weight as usize / 2;
        let mut sum = 0;
        let heavy = leaf.entries.iter().position(|(key, value)| {
            sum += T::weight(key, value);
            sum > half
        });
        let last = slot.sums.count as usize - 1;
        // One long entry gets a page of its own, nearly.
        let middle = heavy.unwrap_or(last).clamp(1, last);
        let right = self.edit(at, |entries| {
            let right = entries.split_off(middle);
            let moved = Sums::of_all::<T>(&right);
            (right, Sums::default(), moved)
        });
        let right = self.insert_slot((at.0, at.1 + 1), right[0].0.clone(), right);
        // Either half may still be too large when its entries are long.
        if grown < middle {
            self.split(self.before(right), grown);
        } else {
            self.split(right, grown - middle);
        }
    }

    /// An empty page goes; a small one takes its neighbour in.
    fn shrink(&mut self, at: At) {
        let sums = self.slot(at).sums;
        if sums.count == 0 {
            self.empty_slot(at);
            return;
        }
        if sums.weight as usize >= T::PAGE_LEN / 4 || at.1 + 1 >= self.nodes[at.0].slots.len() {
            return;
        }
        let right = (at.0, at.1 + 1);
        let next = self.slot(right);
        if (sums.weight + next.sums.weight) as usize > T::PAGE_LEN / 2 {
            return;
        }
        let Some(leaf) = next.leaf.clone() else {
            return;
        };
        let added = next.sums;
        self.remove_slot(right);
        self.edit(at, |entries| {
            entries.extend(leaf.entries.iter().cloned());
            ((), added, Sums::default())
        });
    }

    // ---- pages and checkpoints

    /// A slot read from a checkpoint, behind all others.
    ///
    /// Errors: it does not belong there.
    pub(crate) fn push_absent(&mut self, first: T::Key, sums: Sums) -> Result<PageId> {
        let last = self.nodes.last().and_then(|node| node.slots.last());
        if last.is_some_and(|last| last.first >= first) {
            return Err(crate::ops::Nonsense("a page is out of order"));
        }
        let page = self.new_page();
        self.slots += 1;
        self.absent += 1;
        self.total += u64::from(sums.weight);
        self.names += T::key_weight(&first) as u64;
        let slot = Slot { first, page, changed: 0, sums, leaf: None };
        match self.nodes.last_mut() {
            Some(node) if node.slots.len() < NODE_MAX => Arc::make_mut(node).slots.push(slot),
            _ => self.nodes.push(Arc::new(Node { slots: vec![slot], changed: 0 })),
        }
        Ok(page)
    }

    /// A page's content has arrived. Its entries must be what the slot says.
    ///
    /// Errors: they are not.
    pub(crate) fn fill(
        &mut self,
        first: &T::Key,
        page: PageId,
        entries: Entries<T>,
        heal: bool,
    ) -> Result<()> {
        let Some(at) = self.seek(|key| key.cmp(first)) else {
            return Ok(());
        };
        let end = self.next(at).map(|next| self.slot(next).first.clone());
        let slot = self.slot(at);
        if slot.page != page || slot.leaf.is_some() {
            return Ok(());
        }
        let ascending = entries.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let within = entries.first().is_none_or(|(key, _)| *key >= slot.first)
            && entries.last().is_none_or(|(key, _)| end.is_none_or(|end| *key < end));
        if !ascending || !within || Sums::of_all::<T>(&entries) != slot.sums {
            return Err(crate::ops::Nonsense("a page does not hold what its directory says"));
        }
        let memory = slot.sums.memory::<T>();
        self.memory += memory;
        self.absent -= 1;
        let generation = self.generation;
        let node = Arc::make_mut(&mut self.nodes[at.0]);
        let slot = &mut node.slots[at.1];
        slot.leaf = Some(Arc::new(Leaf::new(entries)));
        if heal {
            // One of its copies is damaged: the next checkpoint writes it anew.
            slot.changed = generation;
            node.changed = generation;
            self.dirty += memory;
        }
        Ok(())
    }

    /// The tree as it is now; what changes from here on is for the next one.
    pub(crate) fn snapshot(&mut self) -> Snapshot<T> {
        let snapshot = Snapshot {
            nodes: self.nodes.clone(),
            since: self.last_snapshot,
            generation: self.generation,
            dropped: std::mem::take(&mut self.dropped),
        };
        self.last_snapshot = self.generation;
        self.generation += 1;
        self.dirty = 0;
        snapshot
    }

    /// A snapshot is on the device, and nothing refers to the pages it dropped.
    pub(crate) fn written(&mut self, generation: u64, dropped: &[PageId]) {
        self.written = generation;
        self.unused.extend_from_slice(dropped);
    }

    /// Lets go of pages that are on the device and were not looked at lately,
    /// until `enough` bytes are free or all have been looked at twice.
    pub(crate) fn evict(&mut self, enough: usize) -> usize {
        let mut freed = 0;
        let mut steps = 2 * self.slots;
        while freed < enough && steps > 0 {
            steps -= 1;
            let Some(node) = self.nodes.get(self.hand.0) else {
                if self.hand == (0, 0) {
                    break;
                }
                self.hand = (0, 0);
                continue;
            };
            let Some(slot) = node.slots.get(self.hand.1) else {
                self.hand = (self.hand.0 + 1, 0);
                continue;
            };
            let at = self.hand;
            self.hand.1 += 1;
            let Some(leaf) = &slot.leaf else {
                continue;
            };
            if slot.changed > self.written || leaf.recent.swap(false, Relaxed) {
                continue;
            }
            let memory = slot.sums.memory::<T>();
            Arc::make_mut(&mut self.nodes[at.0]).slots[at.1].leaf = None;
            self.memory -= memory;
            self.absent += 1;
            freed += memory;
        }
        freed
    }

    /// All slots, in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot<T>> {
        self.nodes.iter().flat_map(|node| node.slots.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::put_varint;
    use base::Random;
    use std::collections::{BTreeMap, HashMap};

    struct Numbers;

    impl Kind for Numbers {
        type Key = u64;
        type Value = u64;
        const PAGE_LEN: usize = 100;
        const OVERHEAD: usize = 8;

        fn weight(_: &u64, value: &u64) -> usize {
            10 + *value as usize % 7
        }
        fn measure(key: &u64, _: &u64) -> u64 {
            *key
        }
        fn token(key: &u64) -> u64 {
            *key / 100
        }
        fn key_weight(_: &u64) -> usize {
            5
        }
        fn put_key(out: &mut Vec<u8>, key: &u64) {
            put_varint(out, *key);
        }
        fn read_key(r: &mut Reader) -> Result<u64> {
            r.varint()
        }
        fn put(out: &mut Vec<u8>, key: &u64, value: &u64) {
            put_varint(out, *key);
            put_varint(out, *value);
        }
        fn read(r: &mut Reader, _: u32) -> Result<(u64, u64)> {
            Ok((r.varint()?, r.varint()?))
        }
    }

    /// A tree, a model, and a device that holds written pages.
    #[derive(Default)]
    struct Rig {
        tree: Tree<Numbers>,
        model: BTreeMap<u64, u64>,
        device: HashMap<PageId, Entries<Numbers>>,
    }

    impl Rig {
        fn load(&mut self, by: impl Fn(&u64) -> Ordering, edges_only: bool) {
            let mut wanted = Vec::new();
            self.tree.absent_in(by, edges_only, |slot| wanted.push((slot.first, slot.page)));
            for (first, page) in wanted {
                let entries = self.device[&page].clone();
                self.tree.fill(&first, page, entries, false).unwrap();
            }
        }

        fn at(&mut self, key: u64) {
            if let Some(slot) = self.tree.absent(|other| other.cmp(&key)) {
                let (first, page) = (slot.first, slot.page);
                let entries = self.device[&page].clone();
                self.tree.fill(&first, page, entries, false).unwrap();
            }
        }

        fn checkpoint(&mut self) {
            let snapshot = self.tree.snapshot();
            let model = self.model.clone();
            for node in &snapshot.nodes {
                for slot in node.slots.iter().filter(|slot| slot.changed > snapshot.since) {
                    let entries = slot.leaf.as_ref().unwrap().entries.clone();
                    self.device.insert(slot.page, entries);
                }
            }
            let kept: Vec<(u64, u64)> = snapshot
                .nodes
                .iter()
                .flat_map(|node| &node.slots)
                .flat_map(|slot| self.device[&slot.page].clone())
                .collect();
            assert!(kept.into_iter().eq(model));
            self.tree.written(snapshot.generation, &snapshot.dropped);
        }

        fn check(&mut self) {
            self.load(|_| Ordering::Equal, false);
            let mut found = Vec::new();
            let absent = self.tree.walk(
                |_| Ordering::Equal,
                |k, v| {
                    found.push((*k, *v));
                    true
                },
            );
            assert!(absent.is_none());
            assert!(found.into_iter().eq(self.model.clone()));
            let sums = self.tree.slots().fold(Sums::default(), |mut sums, slot| {
                assert_eq!(slot.sums, Sums::of_all::<Numbers>(&slot.leaf.as_ref().unwrap().entries));
                sums.add(slot.sums);
                sums
            });
            assert_eq!(self.tree.memory(), sums.memory::<Numbers>());
            assert_eq!(self.tree.weight(), u64::from(sums.weight));
            assert_eq!(self.tree.len(), self.tree.slots().count());
            assert_eq!(self.tree.names(), 5 * self.tree.len() as u64);
            assert!(self.tree.is_loaded());
        }
    }

    fn range(from: u64, to: u64) -> impl Fn(&u64) -> Ordering {
        move |key| match *key {
            key if key < from => Ordering::Less,
            key if key >= to => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    #[test]
    fn behaves_like_a_btreemap_while_pages_come_and_go() {
        let mut random = Random::from_seed(11);
        let mut rig = Rig::default();
        for step in 0..60_000u64 {
            let key = random.below(4000);
            match random.below(if step < 30_000 { 10 } else { 14 }) {
                0..=5 => {
                    rig.at(key);
                    assert_eq!(rig.tree.insert(key, step), rig.model.insert(key, step));
                }
                6 => {
                    rig.at(key);
                    let updated = rig.tree.update(key / 100, |other| other.cmp(&key), |value| *value += 1);
                    let model = rig.model.get_mut(&key).map(|value| *value += 1);
                    assert_eq!(updated, model);
                }
                7 if random.chance(1, 8) => {
                    let to = key + random.below(400);
                    rig.load(range(key, to), true);
                    let gone = rig.tree.remove_range(range(key, to));
                    let model: Vec<u64> = rig.model.range(key..to).map(|(k, _)| *k).collect();
                    assert_eq!((gone.count as usize, gone.measure), (model.len(), model.iter().sum()));
                    rig.model.retain(|k, _| !model.contains(k));
                }
                8 => {
                    rig.at(key);
                    assert_eq!(
                        rig.tree.get(key / 100, |other| other.cmp(&key)).map(|e| e.1),
                        rig.model.get(&key).copied()
                    );
                }
                _ => {
                    rig.at(key);
                    let removed = rig.tree.remove(key / 100, |other| other.cmp(&key));
                    assert_eq!(removed, rig.model.remove_entry(&key));
                }
            }
            if random.chance(1, 300) {
                rig.checkpoint();
            }
            if random.chance(1, 50) {
                let enough = rig.tree.memory() / 2;
                rig.tree.evict(enough);
            }
            if step % 1000 == 0 {
                rig.check();
            }
        }
        rig.check();
    }

    #[test]
    fn a_range_goes_without_its_pages_being_read() {
        let mut rig = Rig::default();
        for key in 0..1000 {
            rig.tree.insert(key, key);
            rig.model.insert(key, key);
        }
        rig.checkpoint();
        while rig.tree.evict(usize::MAX) > 0 {}
        assert_eq!(rig.tree.memory(), 0);
        rig.load(range(50, 950), true);
        let loaded = rig.tree.slots().filter(|slot| slot.leaf.is_some()).count();
        assert_eq!(loaded, 2, "only the pages at the edges");
        assert_eq!(rig.tree.remove_range(range(50, 950)).count, 900);
        rig.model.retain(|key, _| !(50..950).contains(key));
        rig.check();
    }

    #[test]
    fn a_page_that_is_not_what_the_directory_says_is_refused() {
        let mut tree: Tree<Numbers> = Tree::default();
        let entries = vec![(5, 1), (6, 2)];
        let sums = Sums::of_all::<Numbers>(&entries);
        let page = tree.push_absent(5, sums).unwrap();
        assert!(tree.push_absent(5, sums).is_err());
        tree.push_absent(8, sums).unwrap();
        assert!(tree.fill(&5, page, vec![(5, 1)], false).is_err());
        assert!(tree.fill(&5, page, vec![(6, 2), (5, 1)], false).is_err());
        assert!(tree.fill(&5, page, vec![(5, 1), (9, 2)], false).is_err());
        assert!(tree.fill(&5, page, entries, false).is_ok());
    }
}
