//! A store that is slow to find its metadata: for tests of what uses a store.
//!
//! It stands in front of any other store and answers [`StoreError::Pending`]
//! where a store that pages its index might. Must not change anything else:
//! what is asked again after [`StoreEvent::Loaded`] gets the inner store's answer.
//!
//! A turn is what the OSD does between two calls of [`PendingStore::end_turn`].
//! Within one turn an object's metadata is either there or not; what was loaded
//! is there in the turn that says so, and may be gone in the next.

use crate::api::{
    CollId, FetchId, ObjectId, ObjectStat, ObjectStore, StoreError, StoreEvent, StoreMemory, StoreStats,
    Transaction, TxnId,
};
use crate::omap_page::{OmapLimit, OmapPage};
use base::Random;
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use wire::types::HObject;

/// Our loads' ids; the inner store's reads have their own.
const LOAD_BIT: u64 = 1 << 63;

/// What is loaded as one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Object(ObjectId),
    /// The names in a collection.
    Names(CollId),
    /// A queued transaction waits for metadata: nothing can be answered before.
    All,
}

struct Loads {
    random: Random,
    /// Of a hundred parts asked for in a turn, so many are not there.
    percent: u64,
    /// Asked for in this turn: there or not.
    seen: BTreeMap<Part, bool>,
    loading: BTreeMap<Part, FetchId>,
    /// For the driver to carry out.
    begun: VecDeque<FetchId>,
    done: VecDeque<FetchId>,
    next: u64,
    answered_pending: u64,
}

impl Loads {
    fn begin(&mut self, part: Part) -> FetchId {
        if let Some(id) = self.loading.get(&part) {
            return *id;
        }
        let id = FetchId(LOAD_BIT | self.next);
        self.next += 1;
        self.loading.insert(part, id);
        self.begun.push_back(id);
        id
    }

    fn ask(&mut self, part: Part) -> Result<(), StoreError> {
        if self.percent == 0 {
            return Ok(());
        }
        if let Some(id) = self.loading.get(&Part::All) {
            self.answered_pending += 1;
            return Err(StoreError::Pending(*id));
        }
        let there = match self.seen.get(&part) {
            Some(there) => *there,
            None => !self.loading.contains_key(&part) && !self.random.chance(self.percent, 100),
        };
        self.seen.insert(part.clone(), there);
        if there {
            return Ok(());
        }
        self.answered_pending += 1;
        Err(StoreError::Pending(self.begin(part)))
    }
}

/// See the module. Loads are carried out by the driver: [`Self::poll_load`],
/// then some time later [`Self::finish_load`].
pub struct PendingStore<S> {
    inner: S,
    loads: RefCell<Loads>,
}

impl<S> PendingStore<S> {
    /// `percent` of what is asked for is not there at first; 0 changes nothing.
    pub fn new(inner: S, percent: u64, seed: u64) -> PendingStore<S> {
        let loads = Loads {
            random: Random::from_seed(seed),
            percent,
            seen: BTreeMap::new(),
            loading: BTreeMap::new(),
            begun: VecDeque::new(),
            done: VecDeque::new(),
            next: 0,
            answered_pending: 0,
        };
        PendingStore { inner, loads: RefCell::new(loads) }
    }

    pub fn inner(&self) -> &S {
        &self.inner
    }

    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    pub fn into_inner(self) -> S {
        self.inner
    }

    pub fn set_percent(&mut self, percent: u64) {
        self.loads.get_mut().percent = percent;
    }

    pub fn end_turn(&mut self) {
        self.loads.get_mut().seen.clear();
    }

    /// A load that has begun.
    pub fn poll_load(&mut self) -> Option<FetchId> {
        self.loads.get_mut().begun.pop_front()
    }

    pub fn finish_load(&mut self, id: FetchId) {
        self.loads.get_mut().done.push_back(id);
    }

    /// Nothing is being loaded.
    pub fn is_loading(&self) -> bool {
        !self.loads.borrow().loading.is_empty()
    }

    /// How often the answer was [`StoreError::Pending`].
    pub fn answered_pending(&self) -> u64 {
        self.loads.borrow().answered_pending
    }

    fn ask_object(&self, id: &ObjectId) -> Result<(), StoreError> {
        self.loads.borrow_mut().ask(Part::Object(id.clone()))
    }
}

impl<S: ObjectStore> ObjectStore for PendingStore<S> {
    fn stat(&self, id: &ObjectId) -> Result<Option<ObjectStat>, StoreError> {
        self.ask_object(id)?;
        self.inner.stat(id)
    }

    fn xattr(&self, id: &ObjectId, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.ask_object(id)?;
        self.inner.xattr(id, name)
    }

    fn xattrs(&self, id: &ObjectId) -> Result<BTreeMap<String, Bytes>, StoreError> {
        self.ask_object(id)?;
        self.inner.xattrs(id)
    }

    fn omap_header(&self, id: &ObjectId) -> Result<Bytes, StoreError> {
        self.ask_object(id)?;
        self.inner.omap_header(id)
    }

    fn omap_get(&self, id: &ObjectId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.ask_object(id)?;
        self.inner.omap_get(id, key)
    }

    fn omap_list(
        &self,
        id: &ObjectId,
        after: Option<&[u8]>,
        prefix: &[u8],
        limit: OmapLimit,
    ) -> Result<OmapPage, StoreError> {
        self.ask_object(id)?;
        self.inner.omap_list(id, after, prefix, limit)
    }

    fn data_extents(&self, id: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        self.ask_object(id)?;
        self.inner.data_extents(id, offset, len)
    }

    fn collections(&self) -> Vec<CollId> {
        self.inner.collections()
    }

    fn has_collection(&self, coll: CollId) -> bool {
        self.inner.has_collection(coll)
    }

    fn list(&self, coll: CollId, start: &HObject, max: usize) -> Result<Vec<HObject>, StoreError> {
        self.loads.borrow_mut().ask(Part::Names(coll))?;
        self.inner.list(coll, start, max)
    }

    fn read(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<FetchId, StoreError> {
        self.ask_object(id)?;
        self.inner.read(id, offset, len)
    }

    fn read_device(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<FetchId, StoreError> {
        self.ask_object(id)?;
        self.inner.read_device(id, offset, len)
    }

    fn queue(&mut self, txn: Transaction) -> Result<TxnId, StoreError> {
        let id = self.inner.queue(txn)?;
        let loads = self.loads.get_mut();
        // Now and then what a transaction changes is not there either.
        if loads.percent > 0 && loads.random.chance(loads.percent, 1000) {
            loads.begin(Part::All);
        }
        Ok(id)
    }

    fn rest(&mut self) -> bool {
        self.inner.rest()
    }

    fn take_read(&mut self, id: FetchId) -> Option<Result<Bytes, StoreError>> {
        let loads = self.loads.get_mut();
        // Some of what is there comes by an event all the same.
        if loads.percent > 0 && loads.random.chance(1, 2) {
            return None;
        }
        self.inner.take_read(id)
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        let loads = self.loads.get_mut();
        if let Some(id) = loads.done.pop_front() {
            let part =
                loads.loading.iter().find(|(_, loading)| **loading == id).map(|(part, _)| part.clone());
            if let Some(part) = part {
                loads.loading.remove(&part);
                loads.seen.insert(part, true);
            }
            return Some(StoreEvent::Loaded(id));
        }
        self.inner.poll_event()
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn memory(&self) -> StoreMemory {
        self.inner.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemStore;
    use crate::api::Mutation;

    fn object(name: &str) -> ObjectId {
        ObjectId { coll: CollId::Meta, object: HObject { name: name.into(), ..HObject::default() } }
    }

    fn drain(store: &mut PendingStore<MemStore>) {
        while let Some(load) = store.poll_load() {
            store.finish_load(load);
        }
        while store.poll_event().is_some() {}
    }

    #[test]
    fn what_is_loaded_is_there_in_the_turn_that_says_so() {
        let mut store = PendingStore::new(MemStore::new(), 100, 1);
        let ops = vec![Mutation::CreateCollection(CollId::Meta), Mutation::Touch(object("a"))];
        store.queue(Transaction { ops }).unwrap();
        drain(&mut store);
        for _ in 0..3 {
            store.end_turn();
            let Err(StoreError::Pending(id)) = store.stat(&object("a")) else {
                panic!("it is there at once")
            };
            assert_eq!(store.xattrs(&object("a")), Err(StoreError::Pending(id)), "one load for all who ask");
            assert_eq!(store.poll_load(), Some(id));
            store.finish_load(id);
            assert_eq!(store.poll_event(), Some(StoreEvent::Loaded(id)));
            assert!(store.stat(&object("a")).unwrap().is_some());
            assert!(matches!(store.stat(&object("b")), Err(StoreError::Pending(_))));
            drain(&mut store);
        }
    }

    #[test]
    fn without_a_chance_nothing_changes() {
        let mut store = PendingStore::new(MemStore::new(), 0, 1);
        store.queue(Transaction { ops: vec![Mutation::CreateCollection(CollId::Meta)] }).unwrap();
        assert_eq!(store.stat(&object("a")), Ok(None));
        assert_eq!(store.answered_pending(), 0);
    }
}
