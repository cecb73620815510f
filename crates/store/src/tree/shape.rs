//! Pages that come, go, are split and joined.

use super::{At, Branch, Entries, Kind, LOADED, Leaf, PageId, Slot, Sums, Tree};
use std::sync::Arc;

/// Slots of a node.
pub(super) const NODE_MAX: usize = 128;

impl<T: Kind> Tree<T> {
    pub(super) fn new_page(&mut self) -> PageId {
        self.unused.pop().unwrap_or_else(|| {
            self.pages += 1;
            PageId(self.pages - 1)
        })
    }

    /// A slot with a leaf of its own, before what is at `at`. Returns where it is
    /// then: its node may have been halved.
    pub(super) fn insert_slot(&mut self, at: At, first: T::Key, entries: Entries<T>) -> At {
        let sums = Sums::of_all::<T>(&entries);
        let page = self.new_page();
        let changed = self.generation;
        self.structure += 1;
        self.memory += sums.memory::<T>();
        self.dirty += sums.memory::<T>();
        self.total += u64::from(sums.weight);
        self.names += T::key_weight(&first) as u64;
        self.slots += 1;
        let slot = Slot { first, page, changed, sums };
        let leaf = Some(Arc::new(Leaf::new(entries)));
        let Some(branch) = self.nodes.get_mut(at.0) else {
            self.nodes.push(Branch::new(vec![slot], vec![leaf], changed));
            return at;
        };
        let node = Arc::make_mut(&mut branch.node);
        node.changed = changed;
        node.slots.insert(at.1, slot);
        branch.leaves.insert(at.1, leaf);
        if branch.leaves.len() <= NODE_MAX {
            return at;
        }
        let keep = if at.1 == NODE_MAX { NODE_MAX } else { NODE_MAX / 2 };
        let behind = Branch::new(node.slots.split_off(keep), branch.leaves.split_off(keep), changed);
        self.nodes.insert(at.0 + 1, behind);
        if at.1 < keep { at } else { (at.0 + 1, at.1 - keep) }
    }

    /// Takes a page's content away, and the page where its range can fall to a
    /// neighbour. Returns the slot behind it.
    pub(super) fn empty_slot(&mut self, at: At) -> Option<At> {
        // The one before; where there is none, the one behind.
        let heir = if at == (0, 0) { self.next(at) } else { Some(self.before(at)) };
        if heir.is_none_or(|heir| self.leaf(heir).is_some()) {
            return self.remove_slot(at);
        }
        if self.leaf(at).is_none() {
            self.absent -= 1;
            let sums = self.slot(at).sums;
            self.memory += sums.memory::<T>();
            self.nodes[at.0].leaves[at.1] = Some(Arc::new(Leaf::new(Vec::new())));
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
        let branch = &mut self.nodes[at.0];
        let node = Arc::make_mut(&mut branch.node);
        node.changed = self.generation;
        let slot = node.slots.remove(at.1);
        let leaf = branch.leaves.remove(at.1);
        self.slots -= 1;
        self.structure += 1;
        self.total -= u64::from(slot.sums.weight);
        self.names -= T::key_weight(&slot.first) as u64;
        match leaf {
            Some(_) => self.memory -= slot.sums.memory::<T>(),
            None => self.absent -= 1,
        }
        if slot.changed == self.generation {
            self.dirty -= slot.sums.memory::<T>();
        }
        self.dropped.push(slot.page);
        let left = branch.leaves.len();
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
    pub(super) fn split(&mut self, at: At, grown: usize) {
        let slot = self.slot(at);
        if slot.sums.weight as usize <= T::PAGE_LEN || slot.sums.count < 2 {
            return;
        }
        let leaf = self.leaf(at).expect(LOADED);
        let half = slot.sums.weight as usize / 2;
        let mut sum = 0;
        let heavy = leaf.entries.iter().position(|(key, value)| {
            sum += T::weight(key, value);
            sum > half
        });
        let last = slot.sums.count as usize - 1;
        // One long entry gets a page of its own, nearly.
        let middle = heavy.unwrap_or(last).clamp(1, last);
        let (first, right) = self.edit(at, |entries| {
            let right = entries.split_off(middle);
            let moved = Sums::of_all::<T>(&right);
            let first = T::bound(entries.last().map(|(key, _)| key), &right[0].0);
            ((first, right), Sums::default(), moved)
        });
        let right = self.insert_slot((at.0, at.1 + 1), first, right);
        // Either half may still be too large when its entries are long.
        if grown < middle {
            self.split(self.before(right), grown);
        } else {
            self.split(right, grown - middle);
        }
    }

    /// An empty page goes; a small one takes its neighbour in.
    pub(super) fn shrink(&mut self, at: At) {
        let sums = self.slot(at).sums;
        if sums.count == 0 {
            self.empty_slot(at);
            return;
        }
        if sums.weight as usize >= T::PAGE_LEN / 4 || at.1 + 1 >= self.nodes[at.0].leaves.len() {
            return;
        }
        let right = (at.0, at.1 + 1);
        let added = self.slot(right).sums;
        if (sums.weight + added.weight) as usize > T::PAGE_LEN / 2 {
            return;
        }
        let Some(leaf) = self.nodes[right.0].leaves[right.1].clone() else {
            return;
        };
        self.remove_slot(right);
        self.edit(at, |entries| {
            entries.extend(leaf.entries.iter().cloned());
            ((), added, Sums::default())
        });
    }
}
