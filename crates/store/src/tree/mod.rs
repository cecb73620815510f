//! An ordered map kept in pages: some in memory, all of them written to the
//! device by checkpoints.
//!
//! Sorted leaves (one page each) under nodes of slots, which say for each page
//! where its range begins, how much it holds, and whether it is in memory. All
//! slots are in memory, so what a page is needed for is known without reading.
//! A [`Snapshot`] is cheap (`Arc` all the way): a checkpoint walks it while
//! transactions go on changing the tree. It keeps the pages that it has to write,
//! and no other from leaving memory.
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

mod change;
mod hints;
mod page;
mod paging;
mod search;
mod shape;
#[cfg(test)]
mod tests;

use crate::ops::{Reader, Result};
use hints::Hints;
use page::{Branch, Leaf};
pub(crate) use page::{Entries, PageId, Slot, Snapshot, Sums};
pub(crate) use search::Position;
use std::fmt::Debug;

/// What a tree holds.
pub(crate) trait Kind: Sized {
    type Key: Clone + Ord + Debug;
    type Value: Clone + Debug;

    /// A page is split when its entries' weights exceed this, in bytes.
    const PAGE_LEN: usize;
    /// Memory of one entry beyond its weight, in bytes, about.
    const OVERHEAD: usize;

    /// An upper bound of the entry's encoded length: of its key and of the rest.
    fn weight(key: &Self::Key, value: &Self::Value) -> usize {
        Self::key_weight(key) + Self::value_weight(value)
    }
    /// Something to be summed up over ranges that are not in memory.
    fn measure(_key: &Self::Key, _value: &Self::Value) -> u64 {
        0
    }
    /// Keys with the same one are likely to be looked for one after the other.
    fn token(key: &Self::Key) -> u64;
    /// Where a key lies among those near to it: a search begins at a token's place among ranks. Rises
    /// with the key, the more evenly the better, but need not.
    fn rank(_key: &Self::Key) -> u64 {
        0
    }
    fn key_weight(key: &Self::Key) -> usize;
    fn value_weight(value: &Self::Value) -> usize;
    fn put_key(out: &mut Vec<u8>, key: &Self::Key);
    fn read_key(r: &mut Reader) -> Result<Self::Key>;
    /// Where a page begins whose first key is `first`, behind `before`: above that and at most
    /// `first`. There is one in memory for every page, in memory or not: the smaller the better.
    fn bound(_before: Option<&Self::Key>, first: &Self::Key) -> Self::Key {
        first.clone()
    }
    /// As [`put_key`](Kind::put_key) wrote it.
    fn read_bound(r: &mut Reader) -> Result<Self::Key> {
        Self::read_key(r)
    }
    fn put(out: &mut Vec<u8>, key: &Self::Key, value: &Self::Value);
    fn read(r: &mut Reader, device_blocks: u32) -> Result<(Self::Key, Self::Value)>;
}

/// Where a slot is: node and slot.
type At = (usize, usize);

pub(crate) struct Tree<T: Kind> {
    nodes: Vec<Branch<T>>,
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

    /// Pages in memory.
    pub(crate) fn loaded(&self) -> usize {
        self.slots - self.absent
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

    pub(crate) fn structure(&self) -> u64 {
        self.structure
    }

    /// All slots, in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot<T>> {
        self.nodes.iter().flat_map(|branch| branch.node.slots.iter())
    }

    /// Those of pages that are not in memory.
    pub(crate) fn absent_slots(&self) -> impl Iterator<Item = &Slot<T>> {
        let all = self.nodes.iter().flat_map(|branch| branch.node.slots.iter().zip(&branch.leaves));
        all.filter(|(_, leaf)| leaf.is_none()).map(|(slot, _)| slot)
    }

    fn slot(&self, at: At) -> &Slot<T> {
        &self.nodes[at.0].node.slots[at.1]
    }

    fn leaf(&self, at: At) -> Option<&Leaf<T>> {
        self.nodes[at.0].leaves[at.1].as_deref()
    }

    fn next(&self, at: At) -> Option<At> {
        if at.1 + 1 < self.nodes[at.0].leaves.len() {
            return Some((at.0, at.1 + 1));
        }
        (at.0 + 1 < self.nodes.len()).then_some((at.0 + 1, 0))
    }

    fn before(&self, at: At) -> At {
        if at.1 > 0 { (at.0, at.1 - 1) } else { (at.0 - 1, self.nodes[at.0 - 1].leaves.len() - 1) }
    }
}
