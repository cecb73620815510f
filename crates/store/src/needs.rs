//! Which pages must be in memory before something can be done.
//!
//! Answers from what is in memory: where that does not suffice (an object's
//! number is on a page still to be loaded), asking again after the load finds
//! what is missing next. Must not load anything.

use crate::alloc::Run;
use crate::api::{Mutation, ObjectId, Transaction};
use crate::blocks::CHUNK_BLOCKS;
use crate::index::{self, ALL_BLOCKS, Index, PageRef, Wanted, entries, entry, stretches};
use crate::kinds::{Nid, Onode};
use crate::limits::BLOCK_LEN;
use crate::ops::LogOp;
use std::collections::BTreeMap;

/// What is known of an object at some point of a transaction.
#[derive(Clone, Copy)]
enum Known<'a> {
    /// Its page is not in memory.
    Absent,
    /// It does not exist; its blocks and omap will come at the trees' ends.
    New,
    Is(&'a Onode),
}

/// What a transaction lacks.
pub(crate) struct Missing {
    pub(crate) pages: Vec<Wanted>,
    /// Its places have to be chosen before it is applied: see [`crate::chosen`].
    pub(crate) places: bool,
}

pub(crate) struct Needs<'a> {
    index: &'a Index,
    wanted: BTreeMap<PageRef, Wanted>,
    /// Objects that this transaction has moved, copied or removed so far.
    moved: Vec<(ObjectId, Known<'a>)>,
    /// Whose omap has lost keys so far: its pages may have gone, so that one which
    /// lay inside a range by now lies at its edge.
    cut: Vec<Nid>,
    /// Objects that were written so far, with the device blocks they were given; none of a transaction,
    /// whose blocks nobody has chosen yet. Kept only while pages of references are absent.
    given: BTreeMap<ObjectId, Vec<Run>>,
    /// A clone shares blocks that are not chosen yet.
    shares_unchosen: bool,
}

impl<'a> Needs<'a> {
    pub(crate) fn new(index: &'a Index) -> Needs<'a> {
        let (wanted, given) = (BTreeMap::new(), BTreeMap::new());
        Needs { index, wanted, moved: Vec::new(), cut: Vec::new(), given, shares_unchosen: false }
    }

    /// Empty: everything is in memory.
    pub(crate) fn into_wanted(self) -> Vec<Wanted> {
        self.wanted.into_values().collect()
    }

    /// `chosen`: where what it writes will be, if that is known.
    pub(crate) fn of_transaction(index: &Index, txn: &Transaction, chosen: &[Run]) -> Missing {
        let mut needs = Needs::new(index);
        txn.ops.iter().for_each(|op| needs.mutation(op));
        if needs.shares_unchosen {
            chosen.iter().for_each(|run| needs.references_of(*run));
        }
        let places = needs.shares_unchosen && chosen.is_empty();
        Missing { pages: needs.into_wanted(), places }
    }

    fn want(&mut self, wanted: Wanted) {
        self.wanted.entry(wanted.id()).or_insert(wanted);
    }

    fn object(&mut self, id: &ObjectId) -> Known<'a> {
        if let Some((_, known)) = self.moved.iter().rev().find(|(moved, _)| moved == id) {
            return *known;
        }
        match self.index.look_up(id) {
            Err(wanted) => {
                self.want(wanted);
                Known::Absent
            }
            Ok(entry) => entry.map_or(Known::New, |(_, onode)| Known::Is(onode)),
        }
    }

    fn nid(&self, known: Known<'_>) -> Option<Nid> {
        match known {
            Known::Absent => None,
            Known::New => Some(self.index.next_nid),
            Known::Is(onode) => Some(onode.nid),
        }
    }

    /// Pages to map other device blocks for `first..end`. True when they are in memory.
    fn blocks(&mut self, known: Known<'_>, first: u64, end: u64) -> bool {
        let Some(nid) = self.nid(known) else {
            return false;
        };
        let tree = &self.index.blocks.tree;
        let mut found: Vec<Wanted> = Vec::new();
        tree.absent_in(stretches(nid, first, end), false, |slot| found.push(slot.into()));
        // Where stretches that do not exist yet are put.
        for key in
            [(nid, (first / u64::from(CHUNK_BLOCKS)) as u32), (nid, (end / u64::from(CHUNK_BLOCKS)) as u32)]
        {
            found.extend(tree.absent(|other| other.cmp(&key)).map(Wanted::from));
        }
        let complete = found.is_empty();
        found.into_iter().for_each(|wanted| self.want(wanted));
        complete
    }

    /// Pages to count the references of the device blocks that `first..end` has, but for those that
    /// stay where they are.
    fn references(&mut self, known: Known<'_>, first: u64, end: u64, stays: impl Fn(u32, u32) -> bool) {
        let Known::Is(onode) = known else { return };
        if self.index.shared.tree.is_loaded() || first >= end {
            return;
        }
        let mut stretch = None;
        let mut found: Vec<Wanted> = Vec::new();
        self.index.for_mappings(onode.nid, first, end, |block, mapping| {
            let key = mapping.device / CHUNK_BLOCKS;
            if stretch != Some(key) && !stays(block, mapping.device) {
                stretch = Some(key);
                found.extend(self.index.shared.tree.absent(|other| other.cmp(&key)).map(Wanted::from));
            }
        });
        found.into_iter().for_each(|wanted| self.want(wanted));
    }

    fn references_of(&mut self, run: Run) {
        for key in run.start / CHUNK_BLOCKS..run.end().div_ceil(CHUNK_BLOCKS) {
            if let Some(slot) = self.index.shared.tree.absent(|other| other.cmp(&key)) {
                self.want(slot.into());
            }
        }
    }

    /// Pages to give all blocks of `first..end` up, or to share them.
    fn blocks_and_references(&mut self, known: Known<'_>, first: u64, end: u64) {
        if self.blocks(known, first, end) {
            self.references(known, first, end, |_, _| false);
        }
    }

    fn give(&mut self, id: &ObjectId, run: Option<Run>) {
        if !self.index.shared.tree.is_loaded() {
            self.given.entry(id.clone()).or_default().extend(run);
        }
    }

    /// A clone shares what its source was given before.
    fn share_given(&mut self, from: &ObjectId) {
        match self.given.remove(from) {
            Some(runs) if runs.is_empty() => self.shares_unchosen = true,
            Some(runs) => runs.into_iter().for_each(|run| self.references_of(run)),
            None => (),
        }
    }

    fn omap_keys<'k>(&mut self, known: Known<'_>, keys: impl Iterator<Item = &'k [u8]>) {
        let Some(nid) = self.nid(known) else {
            return;
        };
        for key in keys {
            if let Some(slot) = self.index.omap.tree.absent(entry(nid, key)) {
                self.want(slot.into());
            }
        }
    }

    fn omap_range(&mut self, known: Known<'_>, start: &[u8], end: Option<&[u8]>, edges_only: bool) {
        let Some(nid) = self.nid(known) else {
            return;
        };
        let edges_only = edges_only && !self.cut.contains(&nid);
        let mut found: Vec<Wanted> = Vec::new();
        let range = entries(nid, start, end);
        self.index.omap.tree.absent_in(range, edges_only, |slot| found.push(slot.into()));
        found.into_iter().for_each(|wanted| self.want(wanted));
        self.cut.push(nid);
    }

    fn remove(&mut self, id: &ObjectId) {
        let known = self.object(id);
        if let Known::Is(onode) = known {
            self.blocks_and_references(known, 0, ALL_BLOCKS);
            if onode.omap_keys > 0 {
                self.omap_range(known, &[], None, true);
            }
        }
        self.given.remove(id);
        self.moved.push((id.clone(), Known::New));
    }

    fn clone_object(&mut self, from: &ObjectId, to: &ObjectId) {
        let known = self.object(from);
        self.remove(to);
        self.share_given(from);
        if let Known::Is(onode) = known {
            self.blocks_and_references(known, 0, ALL_BLOCKS);
            if onode.omap_keys > 0 {
                self.omap_range(known, &[], None, false);
            }
            self.blocks(Known::New, 0, 1);
            self.omap_keys(Known::New, std::iter::once(&[][..]));
        }
        // Its blocks lie where the old ones do, in a copy of their pages.
        self.moved.push((to.clone(), known));
    }

    fn rename(&mut self, from: &ObjectId, to: &ObjectId) {
        let known = self.object(from);
        if from == to {
            return;
        }
        self.remove(to);
        if let Some(given) = self.given.remove(from) {
            self.given.insert(to.clone(), given);
        }
        self.moved.push((from.clone(), Known::New));
        self.moved.push((to.clone(), known));
    }

    fn cut(&mut self, id: &ObjectId, from: u64) {
        let known = self.object(id);
        self.blocks_and_references(known, from / BLOCK_LEN, ALL_BLOCKS);
        // The rest of a block may go to a fresh place.
        self.give(id, None);
    }

    fn mutation(&mut self, op: &Mutation) {
        match op {
            Mutation::CreateCollection(_) | Mutation::RemoveCollection(_) => (),
            Mutation::Touch(id)
            | Mutation::SetXattrs { id, .. }
            | Mutation::RmXattr { id, .. }
            | Mutation::ClearXattrs(id)
            | Mutation::SetOmapHeader { id, .. } => drop(self.object(id)),
            Mutation::Write { id, offset, data } => {
                let (first, end) = (offset / BLOCK_LEN, (offset + data.len() as u64).div_ceil(BLOCK_LEN));
                let known = self.object(id);
                // From the block before: new blocks are put behind it.
                if self.blocks(known, first.saturating_sub(1), end) {
                    self.references(known, first, end, |_, _| false);
                }
                self.give(id, None);
            }
            Mutation::Zero { id, offset, len } => {
                let known = self.object(id);
                let end = offset.saturating_add(*len).div_ceil(BLOCK_LEN).min(ALL_BLOCKS);
                self.blocks_and_references(known, (offset / BLOCK_LEN).min(end), end);
                self.give(id, None);
            }
            Mutation::Truncate { id, size } => self.cut(id, *size),
            Mutation::Remove(id) => self.remove(id),
            Mutation::SetOmap { id, entries } => {
                let known = self.object(id);
                self.omap_keys(known, entries.iter().map(|(key, _)| &key[..]));
            }
            Mutation::RmOmap { id, keys } => {
                let known = self.object(id);
                self.omap_keys(known, keys.iter().map(|key| &key[..]));
                self.cut.extend(self.nid(known));
            }
            Mutation::RmOmapRange { id, start, end } => {
                let known = self.object(id);
                self.omap_range(known, start, Some(end), true);
            }
            Mutation::ClearOmap(id) => {
                let known = self.object(id);
                self.omap_range(known, &[], None, true);
            }
            Mutation::Clone { from, to } if from != to => self.clone_object(from, to),
            Mutation::Clone { from, .. } => drop(self.object(from)),
            Mutation::Rename { from, to } => self.rename(from, to),
        }
    }

    /// The same for an operation read back from the log.
    pub(crate) fn log_op(&mut self, op: &LogOp<'_>) {
        match *op {
            LogOp::CreateCollection(_) | LogOp::RemoveCollection(_) => (),
            LogOp::Touch(id)
            | LogOp::SetSize { id, .. }
            | LogOp::SetXattr { id, .. }
            | LogOp::RmXattr { id, .. }
            | LogOp::ClearXattrs(id)
            | LogOp::SetOmapHeader { id, .. } => drop(self.object(id)),
            LogOp::Map { id, block: first, device, crcs, .. } => {
                let known = self.object(id);
                let end = u64::from(first) + crcs.len() as u64;
                if self.blocks(known, u64::from(first), end) {
                    let stays = |block: u32, old: u32| old == device + (block - first);
                    self.references(known, u64::from(first), end, stays);
                }
                self.give(id, Some(Run { start: device, count: crcs.len() as u32 }));
            }
            LogOp::Unmap { id, block, count } => {
                let known = self.object(id);
                self.blocks_and_references(known, u64::from(block), u64::from(block) + u64::from(count));
            }
            LogOp::Remove(id) => self.remove(id),
            LogOp::SetOmap { id, key, .. } => {
                let known = self.object(id);
                self.omap_keys(known, std::iter::once(key));
            }
            LogOp::RmOmap { id, key } => {
                let known = self.object(id);
                self.omap_keys(known, std::iter::once(key));
                self.cut.extend(self.nid(known));
            }
            LogOp::RmOmapRange { id, start, end } => {
                let known = self.object(id);
                self.omap_range(known, start, Some(end), true);
            }
            LogOp::ClearOmap(id) => {
                let known = self.object(id);
                self.omap_range(known, &[], None, true);
            }
            LogOp::Clone { from, to } if from != to => self.clone_object(from, to),
            LogOp::Clone { from, .. } => drop(self.object(from)),
            LogOp::Rename { from, to } => self.rename(from, to),
        }
    }
}

/// Pages to read an object's blocks `first..end`.
pub(crate) fn of_read(index: &Index, nid: Nid, first: u64, end: u64) -> Vec<Wanted> {
    let mut found = Vec::new();
    index.blocks.tree.absent_in(index::stretches(nid, first, end), false, |slot| found.push(slot.into()));
    found
}

/// Pages to count the references of a device block.
pub(crate) fn of_references(index: &Index, device: u32) -> Vec<Wanted> {
    let key = device / CHUNK_BLOCKS;
    index.shared.tree.absent(|other| other.cmp(&key)).map(Wanted::from).into_iter().collect()
}
