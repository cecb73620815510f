//! Transactions that wait: for pages, or for a checkpoint when too much has changed
//! ([`Core::has_to_wait`]).
//!
//! They were accepted and have their place in the order: everything queued
//! after the first of them waits, too, while all their pages are loaded at
//! once. Calls about what they touch are answered once they are applied.

use crate::api::{CollId, Mutation, ObjectId, StoreError, StoreEvent, Transaction, TxnId};
use crate::check::{self, Existing};
use crate::core::Core;
use crate::engine::EngineError;
use crate::index::Wanted;
use crate::needs::Needs;
use std::collections::{BTreeMap, VecDeque};

/// Transactions whose pages are loaded before it is their turn.
const AHEAD_MAX: usize = 32;

struct Waiting {
    id: TxnId,
    txn: Transaction,
    /// The most it can take, as it was promised.
    blocks: u64,
    growth: u64,
}

#[derive(Default)]
pub(crate) struct Stalled {
    queue: VecDeque<Waiting>,
    /// Objects that waiting transactions name, with how often.
    touched: BTreeMap<ObjectId, u32>,
    /// Collections that waiting transactions create (true) or remove, in order.
    collections: VecDeque<(TxnId, CollId, bool)>,
    /// Sums over the queue.
    blocks: u64,
    growth: u64,
    /// The first one waits for a checkpoint.
    paced: bool,
    /// How many have, since open.
    pub(crate) paced_count: u64,
}

/// What can be said before the pages are there, or transactions before are
/// applied: where that is nothing, objects and collections are taken to be what a
/// transaction needs. Whether they are is found out when it is applied.
struct AsFarAsKnown<'a>(&'a Core);

impl Existing for AsFarAsKnown<'_> {
    fn collection_len(&self, coll: CollId) -> Option<u64> {
        match self.0.stalled.collection(coll) {
            Some(exists) => exists.then_some(0),
            None if self.0.stalled.touches_collection(coll) => self.0.index.collection_len(coll).map(|_| 0),
            None => self.0.index.collection_len(coll),
        }
    }

    fn has_object(&self, id: &ObjectId) -> bool {
        self.collection_len(id.coll).is_some()
            && (self.0.stalled.touches(id) || self.0.index.look_up(id).map_or(true, |onode| onode.is_some()))
    }
}

impl Stalled {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.paced
    }

    pub(crate) fn touches(&self, id: &ObjectId) -> bool {
        !self.queue.is_empty() && self.touched.contains_key(id)
    }

    pub(crate) fn touches_collection(&self, coll: CollId) -> bool {
        self.touched.keys().any(|id| id.coll == coll)
    }

    /// Whether a waiting transaction creates or removes the collection: the last one counts.
    pub(crate) fn collection(&self, coll: CollId) -> Option<bool> {
        let last = self.collections.iter().rev().find(|(_, changed, _)| *changed == coll);
        last.map(|(.., exists)| *exists)
    }

    /// Collections that waiting transactions create or remove.
    pub(crate) fn collections(&self) -> impl Iterator<Item = (CollId, bool)> {
        self.collections.iter().map(|(_, coll, exists)| (*coll, *exists))
    }

    /// Device blocks and bytes of metadata promised to waiting transactions.
    pub(crate) fn promised(&self) -> (u64, u64) {
        (self.blocks, self.growth)
    }

    fn count(&mut self, id: TxnId, txn: &Transaction, more: bool) {
        if !more {
            self.collections.retain(|(waiting, ..)| *waiting != id);
        }
        for op in &txn.ops {
            match op {
                Mutation::CreateCollection(coll) if more => self.collections.push_back((id, *coll, true)),
                Mutation::RemoveCollection(coll) if more => self.collections.push_back((id, *coll, false)),
                _ => (),
            }
            for id in op.objects().into_iter().flatten() {
                if more {
                    *self.touched.entry(id.clone()).or_insert(0) += 1;
                } else if let Some(count) = self.touched.get_mut(id) {
                    *count -= 1;
                    if *count == 0 {
                        self.touched.remove(id);
                    }
                }
            }
        }
    }
}

impl Core {
    /// Behind others, or because too much has changed.
    pub(crate) fn stall_behind(&mut self, txn: Transaction) -> Result<TxnId, StoreError> {
        let ahead = self.stalled.queue.len() <= AHEAD_MAX;
        let wanted = if ahead { Needs::of_transaction(&self.index, &txn, &[]).pages } else { Vec::new() };
        let id = self.stall(txn, wanted)?;
        self.stalled.paced |= self.has_to_wait();
        self.stalled.paced_count += u64::from(self.stalled.paced);
        Ok(id)
    }

    pub(crate) fn stall(&mut self, txn: Transaction, wanted: Vec<Wanted>) -> Result<TxnId, StoreError> {
        let carried = check::check(&AsFarAsKnown(self), &txn)?;
        let need = self.promise(&txn, carried)?;
        let id = self.txn_id();
        self.stalled.count(id, &txn, true);
        self.stalled.blocks += need.blocks;
        self.stalled.growth += need.growth;
        self.stalled.queue.push_back(Waiting { id, txn, blocks: need.blocks, growth: need.growth });
        self.load(wanted, None);
        Ok(id)
    }

    /// Goes on with those that waited for a checkpoint, once it has written enough.
    /// False when there was nothing to do.
    pub(crate) fn run_paced(&mut self) -> bool {
        let can = self.stalled.paced && !self.has_to_wait();
        if can {
            self.run_stalled();
        }
        can
    }

    /// Applies what has all its pages, in order, as long as memory has room for what it changes.
    pub(crate) fn run_stalled(&mut self) {
        let mut any = false;
        self.stalled.paced = false;
        while self.failed.is_none() && !self.stalled.is_empty() {
            self.stalled.paced = self.has_to_wait();
            if self.stalled.paced {
                break;
            }
            let wanted = self.pages_of_first();
            if !wanted.is_empty() {
                self.load(wanted, None);
                // Those behind have asked for theirs; where some were applied, others come up.
                if any {
                    self.load_ahead();
                }
                break;
            }
            let Some(Waiting { id, txn, blocks, growth }) = self.stalled.queue.pop_front() else {
                break;
            };
            any = true;
            self.stalled.count(id, &txn, false);
            self.stalled.blocks -= blocks;
            self.stalled.growth -= growth;
            if let Err(error) = self.apply_promised(id, txn) {
                return self.fail(EngineError::Refused { error });
            }
            self.release_chosen();
            self.snapshot_if_due();
        }
        if any {
            // Under pressure there is always somebody waiting, and memory has to be kept then
            // above all. Each time follows some progress: pages that the next one needs
            // may have to come again, but not for ever.
            self.evict();
            // Records may have been sealed, which a checkpoint waits for.
            self.issue();
        }
        if any || self.stalled.is_empty() {
            self.events.extend(self.pager.take_behind().into_iter().map(StoreEvent::Loaded));
        }
    }

    /// What the first one needs now. Its places are chosen when all else is there.
    fn pages_of_first(&mut self) -> Vec<Wanted> {
        while let Some(first) = self.stalled.queue.front() {
            let blocks = first.blocks;
            let missing = Needs::of_transaction(&self.index, &first.txn, self.chosen.runs());
            if !missing.pages.is_empty() || !missing.places || blocks == 0 {
                return missing.pages;
            }
            self.choose(blocks);
        }
        Vec::new()
    }

    /// What transactions behind the first one need, as far as that can be said.
    fn load_ahead(&mut self) {
        let ahead = self.stalled.queue.iter().skip(1).take(AHEAD_MAX);
        let wanted: Vec<Wanted> =
            ahead.flat_map(|waiting| Needs::of_transaction(&self.index, &waiting.txn, &[]).pages).collect();
        self.load(wanted, None);
    }
}
