//! Pages between memory and device: read, written by checkpoints, let go.

use super::shape::NODE_MAX;
use super::{Entries, Kind, Leaf, Node, PageId, Slot, Snapshot, Sums, Tree};
use crate::ops::{Nonsense, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl<T: Kind> Tree<T> {
    /// A slot read from a checkpoint, behind all others.
    ///
    /// Errors: it does not belong there.
    pub(crate) fn push_absent(&mut self, first: T::Key, sums: Sums) -> Result<PageId> {
        let last = self.nodes.last().and_then(|node| node.slots.last());
        if last.is_some_and(|last| last.first >= first) {
            return Err(Nonsense("a page is out of order"));
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
            return Err(Nonsense("a page does not hold what its directory says"));
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
}
