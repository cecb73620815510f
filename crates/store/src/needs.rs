//! Which pages must be in memory before something can be done.
//!
//! Answers from what is in memory: where that does not suffice (an object's
//! number is on a page still to be loaded), asking again after the load finds
//! what is missing next. Must not load anything.

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

pub(crate) struct Needs<'a> {
    index: &'a Index,
    wanted: BTreeMap<PageRef, Wanted>,
    /// Objects that this transaction has moved, copied or removed so far.
    moved: Vec<(ObjectId, Known<'a>)>,
    /// Whose omap has lost keys so far: its pages may have gone, so that one which
    /// lay inside a range by now lies at its edge.
    cut: Vec<Nid>,
}

impl<'a> Needs<'a> {
    pub(crate) fn new(index: &'a Index) -> Needs<'a> {
        Needs { index, wanted: BTreeMap::new(), moved: Vec::new(), cut: Vec::new() }
    }

    /// Empty: everything is in memory.
    pub(crate) fn into_wanted(self) -> Vec<Wanted> {
        self.wanted.into_values().collect()
    }

    pub(crate) fn of_transaction(index: &Index, txn: &Transaction) -> Vec<Wanted> {
        let mut needs = Needs::new(index);
        txn.ops.iter().for_each(|op| needs.mutation(op));
        needs.into_wanted()
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

    /// Pages to map other device blocks for `first..end`.
    fn blocks(&mut self, known: Known<'_>, first: u64, end: u64) {
        let Some(nid) = self.nid(known) else {
            return;
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
        found.into_iter().for_each(|wanted| self.want(wanted));
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
            self.blocks(known, 0, ALL_BLOCKS);
            if onode.omap_keys > 0 {
                self.omap_range(known, &[], None, true);
            }
        }
        self.moved.push((id.clone(), Known::New));
    }

    fn clone_object(&mut self, from: &ObjectId, to: &ObjectId) {
        let known = self.object(from);
        self.remove(to);
        if let Known::Is(onode) = known {
            self.blocks(known, 0, ALL_BLOCKS);
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
        self.moved.push((from.clone(), Known::New));
        self.moved.push((to.clone(), known));
    }

    fn cut(&mut self, id: &ObjectId, from: u64) {
        let known = self.object(id);
        self.blocks(known, from / BLOCK_LEN, ALL_BLOCKS);
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
                let end = (offset + data.len() as u64).div_ceil(BLOCK_LEN);
                let known = self.object(id);
                // From the block before: new blocks are put behind it.
                self.blocks(known, (offset / BLOCK_LEN).saturating_sub(1), end);
            }
            Mutation::Zero { id, offset, len } => {
                let known = self.object(id);
                let end = offset.saturating_add(*len).div_ceil(BLOCK_LEN).min(ALL_BLOCKS);
                self.blocks(known, (offset / BLOCK_LEN).min(end), end);
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
            LogOp::Map { id, block, crcs, .. } => {
                let known = self.object(id);
                self.blocks(known, u64::from(block), u64::from(block) + crcs.len() as u64);
            }
            LogOp::Unmap { id, block, count } => {
                let known = self.object(id);
                self.blocks(known, u64::from(block), u64::from(block) + u64::from(count));
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
