//! Every collection, object and attribute, in memory.
//!
//! It changes only by [`LogOp`]s, in the live path and in replay alike, so the
//! two cannot drift apart. Must not know the device, the log or free space:
//! blocks that lose their last reference are handed to a [`BlockSink`].

use crate::api::{CollId, ObjectId};
use crate::blocks::{BlockMap, Mapping};
use crate::check::Existing;
use crate::cow::CowMap;
use crate::ops::{LogOp, Nonsense, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use wire::types::HObject;

#[derive(Clone, Debug, Default)]
pub(crate) struct Onode {
    pub(crate) size: u64,
    pub(crate) blocks: BlockMap,
    pub(crate) xattrs: BTreeMap<String, Bytes>,
    pub(crate) omap_header: Bytes,
    pub(crate) omap: CowMap<Bytes, Bytes>,
}

impl Onode {
    /// An upper bound of what a checkpoint of it takes.
    pub(crate) fn encoded_len_max(&self) -> u64 {
        let xattrs = self.xattrs.iter().map(|(k, v)| 24 + entry_len(k.as_bytes(), v));
        let omap = self.omap.iter().map(|(k, v)| 24 + entry_len(k, v));
        let attributes = xattrs.sum::<u64>() + omap.sum::<u64>() + self.omap_header.len() as u64;
        96 + self.blocks.len() * 24 + attributes
    }
}

pub(crate) type Objects = CowMap<Arc<HObject>, Arc<Onode>>;
pub(crate) type Collections = BTreeMap<CollId, Objects>;

/// Learns which device blocks come into use and which go out of it.
pub(crate) trait BlockSink {
    /// The first reference. False when the block belongs to something else.
    fn used(&mut self, device: u32) -> bool;
    /// The last reference is gone.
    fn freed(&mut self, device: u32);
    /// Whether object data may be there at all.
    fn allows(&self, _device: u32) -> bool {
        true
    }
}

/// Sums over the index, kept as it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) objects: u64,
    pub(crate) name_len: u64,
    /// Mapped blocks, shared ones counted for each object.
    pub(crate) mapped: u64,
    /// Device blocks in use.
    pub(crate) used: u64,
    pub(crate) omap_keys: u64,
    /// Keys, values and headers.
    pub(crate) omap_len: u64,
    pub(crate) xattrs: u64,
    pub(crate) xattr_len: u64,
}

impl Totals {
    /// An upper bound of what a checkpoint of it takes, without its own overhead.
    pub(crate) fn encoded_len_max(&self) -> u64 {
        self.objects * 96
            + self.name_len
            + self.mapped * 24
            + self.omap_keys * 24
            + self.omap_len
            + self.xattrs * 24
            + self.xattr_len
            + 4096
    }
}

#[derive(Default)]
pub(crate) struct Index {
    pub(crate) collections: Collections,
    /// References beyond the first, of device blocks that clones share.
    extra_refs: HashMap<u32, u32>,
    pub(crate) totals: Totals,
}

impl Existing for Index {
    fn collection_len(&self, coll: CollId) -> Option<u64> {
        self.collections.get(&coll).map(|objects| objects.len() as u64)
    }

    fn has_object(&self, id: &ObjectId) -> bool {
        self.onode(id).is_some()
    }
}

fn name_len(object: &HObject) -> u64 {
    (object.nspace.len() + object.key.len() + object.name.len()) as u64
}

fn entry_len(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

impl Index {
    pub(crate) fn onode(&self, id: &ObjectId) -> Option<&Onode> {
        self.collections.get(&id.coll)?.get(&id.object).map(|onode| &**onode)
    }

    /// With the name as the index holds it, for a reader that outlives this call.
    pub(crate) fn entry(&self, id: &ObjectId) -> Option<(&Arc<HObject>, &Arc<Onode>)> {
        self.collections.get(&id.coll)?.get_entry(&id.object)
    }

    pub(crate) fn is_shared(&self, device: u32) -> bool {
        !self.extra_refs.is_empty() && self.extra_refs.contains_key(&device)
    }

    pub(crate) fn refs(&self, device: u32) -> u32 {
        1 + self.extra_refs.get(&device).copied().unwrap_or(0)
    }

    pub(crate) fn has_shared(&self) -> bool {
        !self.extra_refs.is_empty()
    }

    fn onode_mut(&mut self, id: &ObjectId) -> Option<&mut Onode> {
        self.collections.get_mut(&id.coll)?.get_mut(&id.object).map(Arc::make_mut)
    }

    fn onode_or_new(&mut self, id: &ObjectId) -> Result<&mut Onode> {
        let objects = self.collections.get_mut(&id.coll).ok_or(Nonsense("the collection does not exist"))?;
        let totals = &mut self.totals;
        let onode = objects.get_or_insert(&id.object, || {
            totals.objects += 1;
            totals.name_len += name_len(&id.object);
            (Arc::new(id.object.clone()), Arc::new(Onode::default()))
        });
        Ok(Arc::make_mut(onode))
    }

    fn add_ref(&mut self, device: u32) {
        *self.extra_refs.entry(device).or_insert(0) += 1;
    }

    fn drop_ref(&mut self, device: u32, sink: &mut impl BlockSink) {
        if !self.extra_refs.is_empty()
            && let Some(extra) = self.extra_refs.get_mut(&device)
        {
            *extra -= 1;
            if *extra == 0 {
                self.extra_refs.remove(&device);
            }
            return;
        }
        self.totals.used -= 1;
        sink.freed(device);
    }

    fn map(
        &mut self,
        id: &ObjectId,
        first: u32,
        device: u32,
        crcs: &[u32],
        sink: &mut impl BlockSink,
    ) -> Result<()> {
        let mut replaced = Vec::new();
        let onode = self.onode_or_new(id)?;
        let (mut added, mut fresh) = (0, 0);
        let mut clash = false;
        for (i, crc) in crcs.iter().enumerate() {
            let mapping = Mapping { device: device + i as u32, crc: *crc };
            match onode.blocks.set(first + i as u32, mapping) {
                Some(old) if old.device == mapping.device => continue,
                Some(old) => replaced.push(old.device),
                None => added += 1,
            }
            fresh += 1;
            clash |= !sink.used(mapping.device);
        }
        self.totals.mapped += added;
        self.totals.used += fresh;
        for old in replaced {
            self.drop_ref(old, sink);
        }
        if clash {
            return Err(Nonsense("a mapped block belongs to something else"));
        }
        Ok(())
    }

    fn unmap(&mut self, id: &ObjectId, first: u32, count: u32, sink: &mut impl BlockSink) {
        let (start, end) = (u64::from(first), u64::from(first) + u64::from(count));
        let Some(onode) = self.onode_mut(id) else {
            return;
        };
        let gone: Vec<(u32, Mapping)> = onode.blocks.range(start, end).collect();
        for (block, _) in &gone {
            onode.blocks.remove(*block);
        }
        self.totals.mapped -= gone.len() as u64;
        for (_, mapping) in gone {
            self.drop_ref(mapping.device, sink);
        }
    }

    fn forget_omap(totals: &mut Totals, onode: &Onode) {
        totals.omap_keys -= onode.omap.len() as u64;
        totals.omap_len -= onode.omap.iter().map(|(k, v)| entry_len(k, v)).sum::<u64>();
        totals.omap_len -= onode.omap_header.len() as u64;
    }

    fn forget_xattrs(totals: &mut Totals, onode: &Onode) {
        totals.xattrs -= onode.xattrs.len() as u64;
        let len: u64 = onode.xattrs.iter().map(|(k, v)| entry_len(k.as_bytes(), v)).sum();
        totals.xattr_len -= len;
    }

    /// Takes the object out; its blocks keep their references.
    fn take(&mut self, id: &ObjectId) -> Option<Arc<Onode>> {
        let onode = self.collections.get_mut(&id.coll)?.remove(&id.object)?;
        self.totals.objects -= 1;
        self.totals.name_len -= name_len(&id.object);
        self.totals.mapped -= onode.blocks.len();
        Index::forget_omap(&mut self.totals, &onode);
        Index::forget_xattrs(&mut self.totals, &onode);
        Some(onode)
    }

    /// Puts a whole object in; its blocks' references are already counted.
    fn put(&mut self, id: &ObjectId, onode: Arc<Onode>) -> Result<()> {
        let objects = self.collections.get_mut(&id.coll).ok_or(Nonsense("the collection does not exist"))?;
        let totals = &mut self.totals;
        totals.objects += 1;
        totals.name_len += name_len(&id.object);
        totals.mapped += onode.blocks.len();
        totals.omap_keys += onode.omap.len() as u64;
        totals.omap_len += onode.omap.iter().map(|(k, v)| entry_len(k, v)).sum::<u64>();
        totals.omap_len += onode.omap_header.len() as u64;
        totals.xattrs += onode.xattrs.len() as u64;
        let len: u64 = onode.xattrs.iter().map(|(k, v)| entry_len(k.as_bytes(), v)).sum();
        totals.xattr_len += len;
        objects.insert(Arc::new(id.object.clone()), onode);
        Ok(())
    }

    fn remove(&mut self, id: &ObjectId, sink: &mut impl BlockSink) {
        if let Some(onode) = self.take(id) {
            for (_, mapping) in onode.blocks.iter() {
                self.drop_ref(mapping.device, sink);
            }
        }
    }

    /// Only for checkpoint loading: the block map as stored, where several
    /// objects may map one device block.
    pub(crate) fn load_map(
        &mut self,
        id: &ObjectId,
        block: u32,
        mapping: Mapping,
        sink: &mut impl BlockSink,
    ) -> Result<()> {
        if !sink.allows(mapping.device) {
            return Err(Nonsense("a block lies where the store keeps its own"));
        }
        let onode = self.onode_or_new(id)?;
        if onode.blocks.set(block, mapping).is_some() {
            return Err(Nonsense("a block is mapped twice"));
        }
        self.totals.mapped += 1;
        if sink.used(mapping.device) {
            self.totals.used += 1;
        } else {
            self.add_ref(mapping.device);
        }
        Ok(())
    }

    /// A checksum that became known only now; ignored where the block has moved on.
    pub(crate) fn set_crc(&mut self, id: &ObjectId, block: u32, mapping: Mapping) {
        if let Some(onode) = self.onode_mut(id)
            && onode.blocks.get(block).is_some_and(|found| found.device == mapping.device)
        {
            onode.blocks.set(block, mapping);
        }
    }

    /// Carries out one operation.
    ///
    /// Errors: only in replay of a record that makes no sense; the index is then
    /// of no further use.
    pub(crate) fn apply(&mut self, op: &LogOp<'_>, sink: &mut impl BlockSink) -> Result<()> {
        match *op {
            LogOp::CreateCollection(coll) => {
                self.collections.entry(coll).or_default();
            }
            LogOp::RemoveCollection(coll) => match self.collections.remove(&coll) {
                Some(objects) if objects.is_empty() => (),
                Some(_) => return Err(Nonsense("the removed collection is not empty")),
                None => return Err(Nonsense("the removed collection does not exist")),
            },
            LogOp::Touch(id) => drop(self.onode_or_new(id)?),
            LogOp::SetSize { id, size } => self.onode_or_new(id)?.size = size,
            LogOp::Map { id, block, device, crcs, .. } => {
                self.map(id, block, device, crcs, sink)?;
            }
            LogOp::Unmap { id, block, count } => self.unmap(id, block, count, sink),
            LogOp::Remove(id) => self.remove(id, sink),
            LogOp::Clone { from, to } => self.clone_object(from, to, sink)?,
            LogOp::Rename { from, to } => {
                if from != to {
                    let onode = self.take(from).ok_or(Nonsense("nothing to rename"))?;
                    self.remove(to, sink);
                    self.put(to, onode)?;
                }
            }
            _ => self.apply_attributes(op)?,
        }
        Ok(())
    }

    fn clone_object(&mut self, from: &ObjectId, to: &ObjectId, sink: &mut impl BlockSink) -> Result<()> {
        let (_, onode) = self.entry(from).ok_or(Nonsense("nothing to clone"))?;
        if from == to {
            return Ok(());
        }
        let onode = onode.clone();
        for (_, mapping) in onode.blocks.iter() {
            self.add_ref(mapping.device);
        }
        self.remove(to, sink);
        self.put(to, onode)
    }

    /// Names, keys and values are copied: what they are slices of may be large.
    fn apply_attributes(&mut self, op: &LogOp<'_>) -> Result<()> {
        match *op {
            LogOp::SetXattr { id, name, value } => {
                let old = self.onode_or_new(id)?.xattrs.insert(name.into(), Bytes::copy_from_slice(value));
                match old {
                    Some(old) => self.totals.xattr_len -= old.len() as u64,
                    None => {
                        self.totals.xattrs += 1;
                        self.totals.xattr_len += name.len() as u64;
                    }
                }
                self.totals.xattr_len += value.len() as u64;
            }
            LogOp::RmXattr { id, name } => {
                let removed = self.onode_mut(id).and_then(|onode| onode.xattrs.remove(name));
                if let Some(old) = removed {
                    self.totals.xattrs -= 1;
                    self.totals.xattr_len -= entry_len(name.as_bytes(), &old);
                }
            }
            LogOp::ClearXattrs(id) => {
                if let Some(onode) = self.onode_mut(id) {
                    let old = std::mem::take(&mut onode.xattrs);
                    let old = Onode { xattrs: old, ..Onode::default() };
                    Index::forget_xattrs(&mut self.totals, &old);
                }
            }
            LogOp::SetOmapHeader { id, header } => {
                let onode = self.onode_or_new(id)?;
                let old = std::mem::replace(&mut onode.omap_header, Bytes::copy_from_slice(header));
                self.totals.omap_len -= old.len() as u64;
                self.totals.omap_len += header.len() as u64;
            }
            LogOp::SetOmap { id, key, value } => {
                let onode = self.onode_or_new(id)?;
                let (k, v) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                match onode.omap.insert(k, v) {
                    Some(old) => self.totals.omap_len -= old.len() as u64,
                    None => {
                        self.totals.omap_keys += 1;
                        self.totals.omap_len += key.len() as u64;
                    }
                }
                self.totals.omap_len += value.len() as u64;
            }
            LogOp::RmOmap { id, key } => {
                let removed = self.onode_mut(id).and_then(|onode| onode.omap.remove(key));
                if let Some(old) = removed {
                    self.totals.omap_keys -= 1;
                    self.totals.omap_len -= entry_len(key, &old);
                }
            }
            LogOp::RmOmapRange { id, start, end } => {
                let Some(onode) = self.onode_mut(id) else {
                    return Ok(());
                };
                let from = onode.omap.iter_from(Bound::Included(start));
                let gone: Vec<Bytes> =
                    from.map(|(key, _)| key).take_while(|key| &key[..] < end).cloned().collect();
                for key in gone {
                    self.apply_attributes(&LogOp::RmOmap { id, key: &key })?;
                }
            }
            LogOp::ClearOmap(id) => {
                if let Some(onode) = self.onode_mut(id) {
                    let old = Onode {
                        omap: std::mem::take(&mut onode.omap),
                        omap_header: std::mem::take(&mut onode.omap_header),
                        ..Onode::default()
                    };
                    Index::forget_omap(&mut self.totals, &old);
                }
            }
            _ => return Err(Nonsense("not an operation on attributes")),
        }
        Ok(())
    }
}
