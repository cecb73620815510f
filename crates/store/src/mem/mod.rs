//! A store without a device.
//!
//! It is the model: what the engine must answer, written as plainly as
//! possible. PG tests use it too, so a test decides when transactions commit
//! ([`MemStore::hold_commits`]) and can cut the power ([`MemStore::crash`]).

mod object;
#[cfg(test)]
mod tests;

use crate::api::{
    CollId, FetchId, Mutation, ObjectId, ObjectStat, ObjectStore, StoreError, StoreEvent, StoreMemory,
    StoreStats, Transaction, TxnId,
};
use crate::check::{self, Existing};
use crate::omap_page::{OmapLimit, OmapPage};
use bytes::Bytes;
use object::MemObject;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use wire::types::HObject;

/// What [`MemStore::new`] pretends the device holds.
const DEFAULT_CAPACITY: u64 = 1 << 40;

#[derive(Clone, Debug, Default)]
struct Collections(BTreeMap<CollId, BTreeMap<HObject, Arc<MemObject>>>);

impl Existing for Collections {
    fn collection_len(&self, coll: CollId) -> Option<u64> {
        self.0.get(&coll).map(|objects| objects.len() as u64)
    }

    fn has_object(&self, id: &ObjectId) -> bool {
        self.object(id).is_some()
    }
}

impl Collections {
    fn object(&self, id: &ObjectId) -> Option<&Arc<MemObject>> {
        self.0.get(&id.coll)?.get(&id.object)
    }
}

/// How to take one change back.
#[derive(Clone)]
enum Undo {
    /// The object as it was.
    Object(ObjectId, Option<Arc<MemObject>>),
    /// Whether the collection existed; it was empty if so.
    Collection(CollId, bool),
}

#[derive(Clone)]
struct Held {
    txn: TxnId,
    undo: Vec<Undo>,
}

/// An [`ObjectStore`] in memory. A clone costs little until either changes.
#[derive(Clone)]
pub struct MemStore {
    collections: Collections,
    /// Queued and not committed, oldest first.
    held: VecDeque<Held>,
    holding: bool,
    events: VecDeque<StoreEvent>,
    next_txn: u64,
    next_fetch: u64,
    capacity: u64,
    /// Bytes of pages, and of omap keys and values.
    used_data: u64,
    used_omap: u64,
    objects: u64,
    transactions: u64,
}

impl Default for MemStore {
    fn default() -> MemStore {
        MemStore::new()
    }
}

impl MemStore {
    /// Empty; transactions commit as they are queued.
    pub fn new() -> MemStore {
        MemStore::with_capacity(DEFAULT_CAPACITY)
    }

    /// Answers [`StoreError::NoSpace`] beyond `capacity` bytes of data and omap.
    pub fn with_capacity(capacity: u64) -> MemStore {
        MemStore {
            collections: Collections::default(),
            held: VecDeque::new(),
            holding: false,
            events: VecDeque::new(),
            next_txn: 1,
            next_fetch: 1,
            capacity,
            used_data: 0,
            used_omap: 0,
            objects: 0,
            transactions: 0,
        }
    }

    /// As if the device were of another size.
    pub fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    /// From now on queued transactions stay uncommitted.
    pub fn hold_commits(&mut self) {
        self.holding = true;
    }

    /// Commits everything held, and what is queued later at once.
    pub fn release(&mut self) {
        self.holding = false;
        self.commit_held(usize::MAX);
    }

    /// Commits the oldest `count` of the held transactions; goes on holding.
    pub fn commit_held(&mut self, count: usize) {
        for _ in 0..count {
            let Some(held) = self.held.pop_front() else {
                return;
            };
            self.events.push_back(StoreEvent::Committed(held.txn));
        }
    }

    /// From now on reads of the object's data fail, as on a device that lost it;
    /// until the object is replaced. False if there is no such object.
    pub fn damage(&mut self, id: &ObjectId) -> bool {
        let object = self.collections.0.get_mut(&id.coll).and_then(|objects| objects.get_mut(&id.object));
        object.is_some_and(|object| {
            Arc::make_mut(object).damaged = true;
            true
        })
    }

    /// Bytes of data as a store would keep them in which clones share what none has overwritten.
    pub fn distinct_data(&self) -> u64 {
        let objects = self.collections.0.values().flat_map(BTreeMap::values);
        let pages: BTreeSet<_> = objects.flat_map(|object| object.pages_by_place()).collect();
        pages.len() as u64 * object::PAGE_LEN
    }

    /// Queued and not committed.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Power cut and restart: what was not committed never happened, and no
    /// event from before arrives any more.
    pub fn crash(&mut self) {
        while let Some(held) = self.held.pop_back() {
            for undo in held.undo.into_iter().rev() {
                match undo {
                    Undo::Object(id, old) => self.put_object(&id, old),
                    Undo::Collection(coll, true) => {
                        self.collections.0.insert(coll, BTreeMap::new());
                    }
                    Undo::Collection(coll, false) => {
                        self.collections.0.remove(&coll);
                    }
                }
            }
        }
        self.events.clear();
    }

    fn object(&self, id: &ObjectId) -> Result<&Arc<MemObject>, StoreError> {
        if !self.collections.0.contains_key(&id.coll) {
            return Err(StoreError::NoCollection(id.coll));
        }
        self.collections.object(id).ok_or(StoreError::NoObject)
    }

    /// Replaces or removes, keeping the sums right. The collection exists.
    fn put_object(&mut self, id: &ObjectId, object: Option<Arc<MemObject>>) {
        let objects = self.collections.0.get_mut(&id.coll).expect("checked before applying");
        if let Some(new) = &object {
            self.used_data += new.allocated();
            self.used_omap += new.omap_len();
            self.objects += 1;
        }
        let old = match object {
            Some(new) => objects.insert(id.object.clone(), new),
            None => objects.remove(&id.object),
        };
        if let Some(old) = old {
            self.used_data -= old.allocated();
            self.used_omap -= old.omap_len();
            self.objects -= 1;
        }
    }

    fn replace(&mut self, undo: &mut Vec<Undo>, id: &ObjectId, object: Option<Arc<MemObject>>) {
        undo.push(Undo::Object(id.clone(), self.collections.object(id).cloned()));
        self.put_object(id, object);
    }

    /// Changes the object, creating it when `create`; else a missing one is left missing.
    fn change(
        &mut self,
        undo: &mut Vec<Undo>,
        id: &ObjectId,
        create: bool,
        change: impl FnOnce(&mut MemObject),
    ) {
        let old = self.collections.object(id).cloned();
        if old.is_none() && !create {
            return;
        }
        if self.holding {
            undo.push(Undo::Object(id.clone(), old.clone()));
        }
        // Out of the map first, so that without an undo entry nothing is copied.
        self.put_object(id, None);
        let mut object = old.map_or_else(MemObject::default, Arc::unwrap_or_clone);
        change(&mut object);
        self.put_object(id, Some(Arc::new(object)));
    }

    fn apply(&mut self, undo: &mut Vec<Undo>, op: Mutation) {
        match op {
            Mutation::CreateCollection(coll) => {
                if let std::collections::btree_map::Entry::Vacant(slot) = self.collections.0.entry(coll) {
                    slot.insert(BTreeMap::new());
                    undo.push(Undo::Collection(coll, false));
                }
            }
            Mutation::RemoveCollection(coll) => {
                self.collections.0.remove(&coll);
                undo.push(Undo::Collection(coll, true));
            }
            Mutation::Touch(id) => self.change(undo, &id, true, |_| ()),
            Mutation::Write { id, offset, data } => {
                self.change(undo, &id, true, |o| o.write(offset, &data));
            }
            Mutation::Zero { id, offset, len } => {
                self.change(undo, &id, false, |o| o.zero(offset, len));
            }
            Mutation::Truncate { id, size } => {
                self.change(undo, &id, size > 0, |o| o.truncate(size));
            }
            Mutation::Remove(id) => self.replace(undo, &id, None),
            Mutation::SetXattrs { id, attrs } => {
                self.change(undo, &id, true, |o| {
                    o.xattrs.extend(attrs.iter().map(|(name, value)| (name.to_string(), value.clone())));
                });
            }
            Mutation::RmXattr { id, name } => {
                self.change(undo, &id, false, |o| drop(o.xattrs.remove(&name)));
            }
            Mutation::ClearXattrs(id) => self.change(undo, &id, false, |o| o.xattrs.clear()),
            Mutation::SetOmapHeader { id, header } => {
                self.change(undo, &id, true, |o| o.omap_header = header);
            }
            Mutation::SetOmap { id, entries } => {
                self.change(undo, &id, true, |o| o.omap.extend(entries.iter().cloned()));
            }
            Mutation::RmOmap { id, keys } => {
                self.change(undo, &id, false, |o| o.omap.retain(|k, _| !keys.contains(k)));
            }
            Mutation::RmOmapRange { id, start, end } => {
                self.change(undo, &id, false, |o| o.omap.retain(|k, _| *k < start || *k >= end));
            }
            Mutation::ClearOmap(id) => self.change(undo, &id, false, |o| {
                o.omap.clear();
                o.omap_header = Bytes::new();
            }),
            Mutation::Clone { from, to } => {
                let object = self.collections.object(&from).cloned();
                self.replace(undo, &to, object);
            }
            Mutation::Rename { from, to } => {
                if from != to {
                    let object = self.collections.object(&from).cloned();
                    self.replace(undo, &from, None);
                    self.replace(undo, &to, object);
                }
            }
        }
    }

    /// A generous guess at what the transaction adds.
    fn need_of(txn: &Transaction) -> u64 {
        txn.ops
            .iter()
            .map(|op| match op {
                Mutation::Write { data, .. } if !data.is_empty() => {
                    (data.len() as u64).next_multiple_of(object::PAGE_LEN)
                }
                Mutation::SetOmap { entries, .. } => {
                    entries.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum()
                }
                _ => 0,
            })
            .sum()
    }
}

impl ObjectStore for MemStore {
    fn stat(&self, id: &ObjectId) -> Result<Option<ObjectStat>, StoreError> {
        match self.object(id) {
            Ok(object) => Ok(Some(ObjectStat {
                size: object.size,
                allocated: object.allocated(),
                omap_keys: object.omap.len() as u64,
                omap_len: object.omap_len(),
            })),
            Err(StoreError::NoObject) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn xattr(&self, id: &ObjectId, name: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(self.object(id)?.xattrs.get(name).cloned())
    }

    fn xattrs(&self, id: &ObjectId) -> Result<BTreeMap<String, Bytes>, StoreError> {
        Ok(self.object(id)?.xattrs.clone())
    }

    fn omap_header(&self, id: &ObjectId) -> Result<Bytes, StoreError> {
        Ok(self.object(id)?.omap_header.clone())
    }

    fn omap_get(&self, id: &ObjectId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        Ok(self.object(id)?.omap.get(key).cloned())
    }

    fn omap_list(
        &self,
        id: &ObjectId,
        after: Option<&[u8]>,
        prefix: &[u8],
        limit: OmapLimit,
    ) -> Result<OmapPage, StoreError> {
        let mut page = OmapPage::default();
        let asked = |key: &[u8]| after.is_none_or(|after| key > after) && key.starts_with(prefix);
        for (key, value) in self.object(id)?.omap.iter().filter(|(key, _)| asked(key)) {
            if !page.add(limit, key.len() + value.len(), || (key.clone(), value.clone())) {
                break;
            }
        }
        Ok(page)
    }

    fn data_extents(&self, id: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        Ok(self.object(id)?.extents(offset, len))
    }

    fn collections(&self) -> Vec<CollId> {
        self.collections.0.keys().copied().collect()
    }

    fn has_collection(&self, coll: CollId) -> bool {
        self.collections.0.contains_key(&coll)
    }

    fn list(&self, coll: CollId, start: &HObject, max: usize) -> Result<Vec<HObject>, StoreError> {
        let objects = self.collections.0.get(&coll).ok_or(StoreError::NoCollection(coll))?;
        Ok(objects.range(start..).take(max).map(|(name, _)| name.clone()).collect())
    }

    fn read(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<FetchId, StoreError> {
        let object = self.object(id)?;
        check::check_read(offset, len, object.size)?;
        let result = match object.damaged {
            true => {
                Err(StoreError::Checksum { object: id.object.name.to_string(), offset, device_offset: 0 })
            }
            false => Ok(object.read(offset, len)),
        };
        let fetch = FetchId(self.next_fetch);
        self.next_fetch += 1;
        self.events.push_back(StoreEvent::Read { id: fetch, result });
        Ok(fetch)
    }

    fn queue(&mut self, txn: Transaction) -> Result<TxnId, StoreError> {
        check::check(&self.collections, &txn)?;
        let need_bytes = MemStore::need_of(&txn);
        let available_bytes = self.capacity.saturating_sub(self.used_data + self.used_omap);
        if need_bytes > available_bytes {
            return Err(StoreError::NoSpace { need_bytes, available_bytes });
        }
        let id = TxnId(self.next_txn);
        self.next_txn += 1;
        self.transactions += 1;
        let mut undo = Vec::new();
        for op in txn.ops {
            self.apply(&mut undo, op);
        }
        self.held.push_back(Held { txn: id, undo });
        if !self.holding {
            self.commit_held(usize::MAX);
        }
        Ok(id)
    }

    fn take_read(&mut self, id: FetchId) -> Option<Result<Bytes, StoreError>> {
        match self.events.pop_back() {
            Some(StoreEvent::Read { id: last, result }) if last == id => Some(result),
            other => {
                self.events.extend(other);
                None
            }
        }
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            total: self.capacity,
            available: self.capacity.saturating_sub(self.used_data + self.used_omap),
            data: self.used_data,
            omap: self.used_omap,
            objects: self.objects,
            transactions: self.transactions,
            ..StoreStats::default()
        }
    }

    fn memory(&self) -> StoreMemory {
        StoreMemory::default()
    }
}
