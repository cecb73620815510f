//! What a tree is made of: entries in leaves, leaves behind slots, slots in nodes.

use super::Kind;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    pub(super) fn of<T: Kind>(key: &T::Key, value: &T::Value) -> Sums {
        let weight = T::weight(key, value).min(u32::MAX as usize) as u32;
        Sums { count: 1, weight, measure: T::measure(key, value) }
    }

    /// What changes with the value.
    pub(super) fn of_value<T: Kind>(key: &T::Key, value: &T::Value) -> Sums {
        let weight = T::value_weight(value).min(u32::MAX as usize) as u32;
        Sums { count: 0, weight, measure: T::measure(key, value) }
    }

    pub(super) fn of_all<T: Kind>(entries: &[(T::Key, T::Value)]) -> Sums {
        let mut sums = Sums::default();
        entries.iter().for_each(|(k, v)| sums.add(Sums::of::<T>(k, v)));
        sums
    }

    pub(super) fn add(&mut self, other: Sums) {
        self.count += other.count;
        self.weight += other.weight;
        self.measure += other.measure;
    }

    pub(super) fn sub(&mut self, other: Sums) {
        self.count -= other.count;
        self.weight -= other.weight;
        self.measure -= other.measure;
    }

    pub(super) fn memory<T: Kind>(self) -> usize {
        self.weight as usize + self.count as usize * T::OVERHEAD
    }
}

pub(crate) type Entries<T> = Vec<(<T as Kind>::Key, <T as Kind>::Value)>;

pub(crate) struct Leaf<T: Kind> {
    pub(crate) entries: Entries<T>,
    /// Looked at since the cache's hand last came by.
    pub(super) recent: AtomicBool,
}

impl<T: Kind> Clone for Leaf<T> {
    fn clone(&self) -> Self {
        Leaf::new(self.entries.clone())
    }
}

impl<T: Kind> Leaf<T> {
    pub(super) fn new(entries: Entries<T>) -> Leaf<T> {
        Leaf { entries, recent: AtomicBool::new(true) }
    }

    pub(super) fn touch(&self) {
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
}

impl<T: Kind> Clone for Slot<T> {
    fn clone(&self) -> Self {
        let Slot { first, page, changed, sums } = self;
        Slot { first: first.clone(), page: *page, changed: *changed, sums: *sums }
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

/// A node, and those of its pages that are in memory. These are not the node's own: a
/// snapshot that shares it would keep them all, also those that have left since.
pub(crate) struct Branch<T: Kind> {
    pub(super) node: Arc<Node<T>>,
    /// One for each slot.
    pub(super) leaves: Vec<Option<Arc<Leaf<T>>>>,
}

impl<T: Kind> Branch<T> {
    pub(super) fn new(slots: Vec<Slot<T>>, leaves: Vec<Option<Arc<Leaf<T>>>>, changed: u64) -> Branch<T> {
        assert!(slots.len() == leaves.len());
        Branch { node: Arc::new(Node { slots, changed }), leaves }
    }
}

/// The tree as it was; later changes do not touch it.
pub(crate) struct Snapshot<T: Kind> {
    pub(crate) nodes: Vec<Arc<Node<T>>>,
    /// Pages that are not on the device yet, in order.
    pub(crate) changed: VecDeque<(PageId, Arc<Leaf<T>>)>,
    /// The snapshot's own generation.
    pub(crate) generation: u64,
    /// Pages that the one before had, and this one has no more.
    pub(crate) dropped: Vec<PageId>,
}
