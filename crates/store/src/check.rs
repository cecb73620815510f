//! Decides whether a transaction can be applied, before anything is changed.
//!
//! Applying is infallible afterwards: that is how "an error means that nothing
//! was applied" holds without an undo. Knows neither where objects live nor
//! how much space there is.

use crate::api::{CollId, Mutation, ObjectId, StoreError, Transaction};
use crate::limits;
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// What exists before the transaction.
pub(crate) trait Existing {
    fn collection_len(&self, coll: CollId) -> Option<u64>;
    /// Only in a collection that exists.
    fn has_object(&self, id: &ObjectId) -> bool;
}

/// A map whose first entry needs no memory: most transactions make one object, in one collection.
/// Keys are the same by their order: names that sort as one may be spelled in two ways.
struct Changed<K, V> {
    first: Option<(K, V)>,
    rest: BTreeMap<K, V>,
}

impl<K: Ord, V> Changed<K, V> {
    fn new() -> Changed<K, V> {
        Changed { first: None, rest: BTreeMap::new() }
    }

    fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        match &self.first {
            Some((first, value)) if first.borrow().cmp(key).is_eq() => Some(value),
            Some(_) if !self.rest.is_empty() => self.rest.get(key),
            _ => None,
        }
    }

    fn insert(&mut self, key: K, value: V) {
        match &mut self.first {
            Some((first, place)) if (*first).cmp(&key).is_eq() => *place = value,
            Some(_) => drop(self.rest.insert(key, value)),
            none => *none = Some((key, value)),
        }
    }
}

/// What the transaction has changed about existence so far.
struct Overlay<'a, E> {
    base: &'a E,
    collections: Changed<CollId, Option<u64>>,
    objects: Changed<&'a ObjectId, bool>,
}

impl<'a, E: Existing> Overlay<'a, E> {
    fn collection_len(&self, coll: CollId) -> Option<u64> {
        match self.collections.get(&coll) {
            Some(len) => *len,
            None => self.base.collection_len(coll),
        }
    }

    fn require_collection(&self, coll: CollId) -> Result<u64, StoreError> {
        self.collection_len(coll).ok_or(StoreError::NoCollection(coll))
    }

    fn has_object(&self, id: &ObjectId) -> bool {
        match self.objects.get(id) {
            Some(exists) => *exists,
            None => self.base.has_object(id),
        }
    }

    fn set_object(&mut self, id: &'a ObjectId, exists: bool) {
        if self.has_object(id) != exists {
            self.change_object(id, exists);
        }
    }

    /// It is not so yet.
    fn change_object(&mut self, id: &'a ObjectId, exists: bool) {
        self.objects.insert(id, exists);
        let len = self.collection_len(id.coll).unwrap_or(0);
        let len = if exists { len + 1 } else { len.saturating_sub(1) };
        self.collections.insert(id.coll, Some(len));
    }

    /// Whether the object exists. Where it does, so does its collection.
    ///
    /// Errors: the collection does not exist.
    fn exists(&self, id: &'a ObjectId) -> Result<bool, StoreError> {
        if self.has_object(id) {
            return Ok(true);
        }
        self.require_collection(id.coll)?;
        Ok(false)
    }

    /// The mutation gives content: the object exists afterwards.
    fn give(&mut self, id: &'a ObjectId) -> Result<(), StoreError> {
        let exists = self.exists(id)?;
        within("object name", name_len(id), limits::OBJECT_NAME_LEN_MAX)?;
        if !exists {
            self.change_object(id, true);
        }
        Ok(())
    }
}

fn within(what: &'static str, len: u64, limit: u64) -> Result<(), StoreError> {
    if len > limit {
        return Err(StoreError::TooLarge { what, len, limit });
    }
    Ok(())
}

/// A read of a sparse object could ask for more than memory holds.
pub(crate) fn check_read(offset: u64, len: u64, size: u64) -> Result<(), StoreError> {
    within("read", len.min(size.saturating_sub(offset)), limits::READ_LEN_MAX)
}

fn name_len(id: &ObjectId) -> u64 {
    (id.object.name.len() + id.object.key.len() + id.object.nspace.len()) as u64
}

fn end_of(offset: u64, len: u64) -> u64 {
    offset.saturating_add(len)
}

/// Checks collections, existence and limits, in the order of the mutations.
/// Returns the bytes that the transaction carries.
pub(crate) fn check<E: Existing>(base: &E, txn: &Transaction) -> Result<u64, StoreError> {
    let mut overlay = Overlay { base, collections: Changed::new(), objects: Changed::new() };
    let mut carried = 0u64;
    for op in &txn.ops {
        carried = carried.saturating_add(check_one(&mut overlay, op)?);
    }
    within("transaction", carried, limits::TRANSACTION_LEN_MAX)?;
    Ok(carried)
}

/// Returns the bytes that the mutation carries.
fn check_one<'a, E: Existing>(overlay: &mut Overlay<'a, E>, op: &'a Mutation) -> Result<u64, StoreError> {
    // Names, lengths and tags of one mutation fit in this besides the payload.
    let mut carried = 64;
    match op {
        Mutation::CreateCollection(coll) => {
            if overlay.collection_len(*coll).is_none() {
                overlay.collections.insert(*coll, Some(0));
            }
        }
        Mutation::RemoveCollection(coll) => {
            if overlay.require_collection(*coll)? > 0 {
                return Err(StoreError::NotEmpty(*coll));
            }
            overlay.collections.insert(*coll, None);
        }
        Mutation::Touch(id) => {
            overlay.give(id)?;
            carried += name_len(id);
        }
        Mutation::Write { id, offset, data } => {
            within("object end", end_of(*offset, data.len() as u64), limits::OBJECT_LEN_MAX)?;
            overlay.give(id)?;
            carried += name_len(id) + data.len() as u64;
        }
        Mutation::Truncate { id, size } => {
            within("object size", *size, limits::OBJECT_LEN_MAX)?;
            if *size > 0 {
                overlay.give(id)?;
            } else {
                overlay.exists(id)?;
            }
            carried += name_len(id);
        }
        Mutation::Remove(id) => {
            overlay.require_collection(id.coll)?;
            overlay.set_object(id, false);
            carried += name_len(id);
        }
        Mutation::SetXattrs { id, attrs } => {
            overlay.give(id)?;
            carried += name_len(id);
            for (name, value) in attrs {
                within("xattr name", name.len() as u64, limits::XATTR_NAME_LEN_MAX)?;
                within("xattr value", value.len() as u64, limits::XATTR_LEN_MAX)?;
                carried += 8 + (name.len() + value.len()) as u64;
            }
        }
        Mutation::SetOmapHeader { id, header } => {
            within("omap header", header.len() as u64, limits::OMAP_VALUE_LEN_MAX)?;
            overlay.give(id)?;
            carried += name_len(id) + header.len() as u64;
        }
        Mutation::SetOmap { id, entries } => {
            overlay.give(id)?;
            carried += name_len(id);
            for (key, value) in entries {
                within("omap key", key.len() as u64, limits::OMAP_KEY_LEN_MAX)?;
                within("omap value", value.len() as u64, limits::OMAP_VALUE_LEN_MAX)?;
                carried += 8 + (key.len() + value.len()) as u64;
            }
        }
        Mutation::RmOmap { id, keys } => {
            overlay.exists(id)?;
            carried += name_len(id) + keys.iter().map(|k| 4 + k.len() as u64).sum::<u64>();
        }
        Mutation::RmOmapRange { id, start, end } => {
            overlay.exists(id)?;
            carried += name_len(id) + (start.len() + end.len()) as u64;
        }
        Mutation::RmXattr { id, name } => {
            overlay.exists(id)?;
            carried += name_len(id) + name.len() as u64;
        }
        Mutation::Zero { id, .. } | Mutation::ClearXattrs(id) | Mutation::ClearOmap(id) => {
            overlay.exists(id)?;
            carried += name_len(id);
        }
        Mutation::Clone { from, to } | Mutation::Rename { from, to } => {
            if !overlay.exists(from)? {
                return Err(StoreError::NoObject);
            }
            overlay.give(to)?;
            if matches!(op, Mutation::Rename { .. }) && from != to {
                overlay.set_object(from, false);
            }
            carried += name_len(from) + name_len(to);
        }
    }
    Ok(carried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::{HObject, PgId, PoolId};

    /// Of one collection.
    struct Objects([ObjectId; 2]);

    impl Existing for Objects {
        fn collection_len(&self, _: CollId) -> Option<u64> {
            Some(2)
        }

        fn has_object(&self, id: &ObjectId) -> bool {
            self.0.iter().any(|object| object.cmp(id).is_eq())
        }
    }

    #[test]
    fn an_object_spelled_in_two_ways_is_removed_once() {
        let coll = CollId::Pg(PgId { pool: PoolId(1), seed: 0 });
        let id = |name: &str, key: &str| ObjectId {
            coll,
            object: HObject { name: name.into(), key: key.into(), ..HObject::default() },
        };
        assert!(id("a", "").cmp(&id("a", "a")).is_eq());
        let ops = vec![
            Mutation::Remove(id("a", "")),
            Mutation::Remove(id("a", "a")),
            Mutation::RemoveCollection(coll),
        ];
        let result = check(&Objects([id("a", ""), id("b", "")]), &Transaction { ops });
        assert!(matches!(result, Err(StoreError::NotEmpty(_))), "{result:?}");
    }
}
