//! Pages between memory and device: read, written by checkpoints, let go.

use super::shape::NODE_MAX;
use super::{Branch, Entries, Kind, LOADED, Leaf, PageId, Slot, Snapshot, Sums, Tree};
use crate::ops::{Nonsense, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl<T: Kind> Tree<T> {
    /// A slot read from a checkpoint, behind all others.
    ///
    /// Errors: it does not belong there.
    pub(crate) fn push_absent(&mut self, first: T::Key, sums: Sums) -> Result<PageId> {
        let last = self.nodes.last().and_then(|branch| branch.node.slots.last());
        if last.is_some_and(|last| last.first >= first) {
            return Err(Nonsense("a page is out of order"));
        }
        let page = self.new_page();
        self.slots += 1;
        self.absent += 1;
        self.total += u64::from(sums.weight);
        self.names += T::key_weight(&first) as u64;
        let slot = Slot { first, page, changed: 0, sums };
        match self.nodes.last_mut() {
            Some(branch) if branch.leaves.len() < NODE_MAX => {
                Arc::make_mut(&mut branch.node).slots.push(slot);
                branch.leaves.push(None);
            }
            _ => self.nodes.push(Branch::new(vec![slot], vec![None], 0)),
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
        if slot.page != page || self.leaf(at).is_some() {
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
        let branch = &mut self.nodes[at.0];
        branch.leaves[at.1] = Some(Arc::new(Leaf::new(entries)));
        if heal {
            // One of its copies is damaged: the next checkpoint writes it anew.
            let node = Arc::make_mut(&mut branch.node);
            node.slots[at.1].changed = self.generation;
            node.changed = self.generation;
            self.dirty += memory;
        }
        Ok(())
    }

    /// The tree as it is now; what changes from here on is for the next one.
    pub(crate) fn snapshot(&mut self) -> Snapshot<T> {
        let since = self.last_snapshot;
        let mut changed = VecDeque::new();
        for branch in self.nodes.iter().filter(|branch| branch.node.changed > since) {
            for (slot, leaf) in branch.node.slots.iter().zip(&branch.leaves) {
                if slot.changed > since {
                    changed.push_back((slot.page, leaf.clone().expect(LOADED)));
                }
            }
        }
        let snapshot = Snapshot {
            nodes: self.nodes.iter().map(|branch| branch.node.clone()).collect(),
            changed,
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
            let Some(branch) = self.nodes.get_mut(self.hand.0) else {
                if self.hand == (0, 0) {
                    break;
                }
                self.hand = (0, 0);
                continue;
            };
            let Some(slot) = branch.node.slots.get(self.hand.1) else {
                self.hand = (self.hand.0 + 1, 0);
                continue;
            };
            let place = &mut branch.leaves[self.hand.1];
            self.hand.1 += 1;
            let Some(leaf) = place else {
                continue;
            };
            if slot.changed > self.written || leaf.recent.swap(false, Relaxed) {
                continue;
            }
            let memory = slot.sums.memory::<T>();
            *place = None;
            self.memory -= memory;
            self.absent += 1;
            freed += memory;
        }
        freed
    }
}
