//! Every collection, object and attribute.
//!
//! Four trees of pages ([`crate::kinds`]), of which some are in memory. The index
//! changes only by [`LogOp`]s, in the live path and in replay alike, so the
//! two cannot drift apart; the pages an operation needs are loaded before
//! ([`crate::needs`]). Must not know the device, the log or free space: blocks
//! that lose their last reference are handed to a [`BlockSink`].

use crate::api::{CollId, ObjectId};
use crate::blocks::{CHUNK_BLOCKS, Chunk, Few, Mapping};
use crate::check::Existing;
use crate::kinds::{Blocks, Nid, Objects, Omap, OmapKey, Onode, Shared};
use crate::known::Known;
use crate::name::{Name, named, token_of};
use crate::ops::{LogOp, Names, Nonsense, Result};
use crate::place::Place;
use crate::tree::{Kind, PageId, Position, Slot, Tree};
use crate::used::Used;
use base::MemoryUse;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Learns which device blocks come into use and which go out of it.
pub(crate) trait BlockSink {
    /// The first reference. False when the block belongs to something else.
    fn used(&mut self, device: u32) -> bool;
    /// The last reference is gone.
    fn freed(&mut self, device: u32);
}

/// Sums over the index, kept as it changes. They come from checkpoints, which a
/// fault could make lie: going below zero must not end the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) objects: u64,
    /// Device blocks in use.
    pub(crate) used: u64,
    pub(crate) omap_keys: u64,
    /// Keys, values and headers.
    pub(crate) omap_len: u64,
}

/// See [`Index::extent`]. Lengths in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) pages: u64,
    pub(crate) pages_len: u64,
    pub(crate) directory_len: u64,
}

/// Of a slot in the directory, beside its first key: sums, checksum, and two
/// copies in a few runs each.
const SLOT_LEN: u64 = 128;

/// A tree, and where its pages lie.
pub(crate) struct Paged<T: Kind> {
    pub(crate) tree: Tree<T>,
    /// By page number; none before a checkpoint has written it.
    places: Vec<Option<Place>>,
}

impl<T: Kind> Default for Paged<T> {
    fn default() -> Self {
        Paged { tree: Tree::default(), places: Vec::new() }
    }
}

impl<T: Kind> Paged<T> {
    pub(crate) fn place(&self, page: PageId) -> Option<&Place> {
        self.places.get(page.0 as usize)?.as_ref()
    }

    /// Returns the place it had.
    pub(crate) fn set_place(&mut self, page: PageId, place: Option<Place>) -> Option<Place> {
        let at = page.0 as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, None);
        }
        std::mem::replace(&mut self.places[at], place)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum TreeId {
    Objects,
    Blocks,
    Omap,
    Shared,
}

impl TreeId {
    pub(crate) const ALL: [TreeId; 4] = [TreeId::Objects, TreeId::Blocks, TreeId::Omap, TreeId::Shared];
}

/// A page by its tree and number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PageRef {
    pub(crate) tree: TreeId,
    pub(crate) page: PageId,
}

/// A page that is not in memory, and where in its tree it belongs.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) page: PageId,
    pub(crate) first: First,
}

#[derive(Clone, Debug)]
pub(crate) enum First {
    Objects(Name),
    Blocks((Nid, u32)),
    Omap(OmapKey),
    Shared(u32),
}

impl Wanted {
    pub(crate) fn id(&self) -> PageRef {
        let tree = match self.first {
            First::Objects(_) => TreeId::Objects,
            First::Blocks(_) => TreeId::Blocks,
            First::Omap(_) => TreeId::Omap,
            First::Shared(_) => TreeId::Shared,
        };
        PageRef { tree, page: self.page }
    }
}

impl From<&Slot<Objects>> for Wanted {
    fn from(slot: &Slot<Objects>) -> Wanted {
        Wanted { page: slot.page, first: First::Objects(slot.first.clone()) }
    }
}

impl From<&Slot<Blocks>> for Wanted {
    fn from(slot: &Slot<Blocks>) -> Wanted {
        Wanted { page: slot.page, first: First::Blocks(slot.first) }
    }
}

impl From<&Slot<Omap>> for Wanted {
    fn from(slot: &Slot<Omap>) -> Wanted {
        Wanted { page: slot.page, first: First::Omap(slot.first.clone()) }
    }
}

impl From<&Slot<Shared>> for Wanted {
    fn from(slot: &Slot<Shared>) -> Wanted {
        Wanted { page: slot.page, first: First::Shared(slot.first) }
    }
}

pub(crate) struct Index {
    /// With the number of objects in each.
    pub(crate) collections: BTreeMap<CollId, u64>,
    pub(crate) objects: Paged<Objects>,
    pub(crate) blocks: Paged<Blocks>,
    pub(crate) omap: Paged<Omap>,
    pub(crate) shared: Paged<Shared>,
    pub(crate) used: Used,
    pub(crate) next_nid: Nid,
    pub(crate) totals: Totals,
    /// Objects that the transaction at hand has named.
    known: Known,
    /// Device blocks that got their first owner since [`Index::begin_changes`], as long as pages of
    /// references are absent: theirs may be, too.
    given: Vec<Range<u32>>,
}

impl Default for Index {
    fn default() -> Self {
        Index {
            collections: BTreeMap::new(),
            objects: Paged::default(),
            blocks: Paged::default(),
            omap: Paged::default(),
            shared: Paged::default(),
            used: Used::default(),
            next_nid: 1,
            totals: Totals::default(),
            known: Known::default(),
            given: Vec::new(),
        }
    }
}

impl Existing for Index {
    fn collection_len(&self, coll: CollId) -> Option<u64> {
        self.collections.get(&coll).copied()
    }

    fn has_object(&self, id: &ObjectId) -> bool {
        self.find(id).is_some()
    }
}

impl Names for Index {
    fn name(&self, id: &ObjectId) -> Option<&Arc<ObjectId>> {
        self.entry(id).map(|(name, _)| name.id())
    }
}

fn entry_len(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

/// In its place where it fits and no snapshot has it. Returns the old length.
fn replace_value(value: &mut Arc<[u8]>, new: &[u8]) -> usize {
    let old_len = value.len();
    match Arc::get_mut(value) {
        Some(place) if old_len == new.len() => place.copy_from_slice(new),
        _ => *value = new.into(),
    }
    old_len
}

fn note_given(given: &mut Vec<Range<u32>>, device: u32) {
    match given.last_mut() {
        Some(run) if run.end == device => run.end += 1,
        _ => given.push(device..device + 1),
    }
}

/// Orders keys against one omap entry.
pub(crate) fn entry(nid: Nid, key: &[u8]) -> impl Fn(&OmapKey) -> Ordering {
    move |other| other.nid.cmp(&nid).then_with(|| other.key[..].cmp(key))
}

/// All omap entries of an object with keys in a range; `None`: to the last.
pub(crate) fn entries<'a>(
    nid: Nid,
    start: &'a [u8],
    end: Option<&'a [u8]>,
) -> impl Fn(&OmapKey) -> Ordering + 'a {
    move |other| {
        other.nid.cmp(&nid).then_with(|| match end {
            _ if other.key[..] < *start => Ordering::Less,
            Some(end) if other.key[..] >= *end => Ordering::Greater,
            _ => Ordering::Equal,
        })
    }
}

/// The stretches of an object that hold some of its blocks `first..end`.
pub(crate) fn stretches(nid: Nid, first: u64, end: u64) -> impl Fn(&(Nid, u32)) -> Ordering {
    let (first, last) = (first / u64::from(CHUNK_BLOCKS), end.div_ceil(u64::from(CHUNK_BLOCKS)));
    move |(other, chunk)| {
        other.cmp(&nid).then_with(|| match u64::from(*chunk) {
            chunk if chunk < first => Ordering::Less,
            chunk if chunk >= last => Ordering::Greater,
            _ => Ordering::Equal,
        })
    }
}

pub(crate) const ALL_BLOCKS: u64 = crate::blocks::OBJECT_BLOCKS_MAX;

impl Index {
    pub(crate) fn onode(&self, id: &ObjectId) -> Option<&Onode> {
        self.entry(id).map(|(_, onode)| &**onode)
    }

    /// With the name as the index holds it, for a reader that outlives this call.
    pub(crate) fn entry(&self, id: &ObjectId) -> Option<&(Name, Arc<Onode>)> {
        self.find(id).map(|position| self.objects.tree.at(position))
    }

    fn find(&self, id: &ObjectId) -> Option<Position> {
        let tree = &self.objects.tree;
        let is_it = |position| *tree.at(position).0.id().as_ref() == *id;
        self.known.find(id, tree.structure(), is_it, || tree.find(token_of(id), named(id)))
    }

    /// The object's entry if it has one; what must be loaded before that can be said.
    pub(crate) fn look_up(&self, id: &ObjectId) -> std::result::Result<Option<&(Name, Arc<Onode>)>, Wanted> {
        let tree = &self.objects.tree;
        let position = tree.try_find(token_of(id), named(id)).map_err(Wanted::from)?;
        Ok(position.map(|position| tree.at(position)))
    }

    /// Until [`Index::end_transaction`] every name comes from one transaction, which
    /// stays in place: a name's address then stands for the name.
    pub(crate) fn begin_transaction(&mut self) {
        self.known.begin();
    }

    pub(crate) fn end_transaction(&mut self) {
        self.known.end();
    }

    /// Pages were loaded for what is applied from here on, all at once.
    pub(crate) fn begin_changes(&mut self) {
        self.given.clear();
    }

    pub(crate) fn mapping(&self, nid: Nid, block: u32) -> Option<Mapping> {
        self.chunk(nid, block)?.get(block % CHUNK_BLOCKS)
    }

    /// The stretch with this block.
    fn chunk(&self, nid: Nid, block: u32) -> Option<&Chunk<Mapping>> {
        let key = (nid, block / CHUNK_BLOCKS);
        self.blocks.tree.get(Blocks::token(&key), |other| other.cmp(&key)).map(|(_, chunk)| chunk)
    }

    /// Mapped blocks in `first..end`, ascending.
    pub(crate) fn for_mappings(&self, nid: Nid, first: u64, end: u64, mut visit: impl FnMut(u32, Mapping)) {
        let stretch = |block: u64| block / u64::from(CHUNK_BLOCKS);
        if first < end && end <= ALL_BLOCKS && stretch(first) == stretch(end - 1) {
            // Most reads: one entry, and the way to it is remembered.
            let Some(chunk) = self.chunk(nid, first as u32) else { return };
            for block in first as u32..end as u32 {
                if let Some(mapping) = chunk.get(block % CHUNK_BLOCKS) {
                    visit(block, mapping);
                }
            }
            return;
        }
        let by = stretches(nid, first, end);
        let absent = self.blocks.tree.walk(&by, |key, chunk| {
            if by(key) != Ordering::Equal {
                return false;
            }
            let base = key.1 * CHUNK_BLOCKS;
            for (bit, mapping) in chunk.iter() {
                let block = base + bit;
                if (first..end).contains(&u64::from(block)) {
                    visit(block, mapping);
                }
            }
            true
        });
        // The walk may end at a page behind the range.
        assert!(
            absent.is_none_or(|slot| by(&slot.first) == Ordering::Greater),
            "a block page was not loaded"
        );
    }

    pub(crate) fn mappings(&self, nid: Nid, first: u64, end: u64) -> Vec<(u32, Mapping)> {
        let mut found = Vec::new();
        self.for_mappings(nid, first, end, |block, mapping| found.push((block, mapping)));
        found
    }

    pub(crate) fn is_shared(&self, device: u32) -> bool {
        !self.shared.tree.is_empty() && self.extra_refs(device) > 0
    }

    fn extra_refs(&self, device: u32) -> u32 {
        let (key, tree) = (device / CHUNK_BLOCKS, &self.shared.tree);
        let Ok(found) = tree.try_find(u64::from(key), |other| other.cmp(&key)) else {
            // What a clone shares has its page in memory, so this one has no second owner.
            assert!(
                self.given.iter().any(|run| run.contains(&device)),
                "a page of references was not loaded"
            );
            return 0;
        };
        found.and_then(|position| tree.at(position).1.get(device % CHUNK_BLOCKS)).unwrap_or(0)
    }

    pub(crate) fn refs(&self, device: u32) -> u32 {
        1 + self.extra_refs(device)
    }

    pub(crate) fn has_shared(&self) -> bool {
        !self.shared.tree.is_empty()
    }

    /// Bytes of pages in memory.
    pub(crate) fn memory(&self) -> usize {
        let Index { objects, blocks, omap, shared, .. } = self;
        objects.tree.memory() + blocks.tree.memory() + omap.tree.memory() + shared.tree.memory()
    }

    /// Pages in memory: those of objects, and all others.
    pub(crate) fn memory_by_part(&self) -> (MemoryUse, MemoryUse) {
        fn of<T: Kind>(tree: &Tree<T>) -> MemoryUse {
            MemoryUse::new(tree.loaded(), tree.memory())
        }
        let Index { objects, blocks, omap, shared, .. } = self;
        (of(&objects.tree), of(&blocks.tree) + of(&omap.tree) + of(&shared.tree))
    }

    /// Bytes of pages that the next checkpoint must write.
    pub(crate) fn dirty(&self) -> usize {
        let Index { objects, blocks, omap, shared, .. } = self;
        objects.tree.dirty() + blocks.tree.dirty() + omap.tree.dirty() + shared.tree.dirty()
    }

    /// Whether nothing has to be loaded, whatever is asked.
    pub(crate) fn is_loaded(&self) -> bool {
        let Index { objects, blocks, omap, shared, .. } = self;
        objects.tree.is_loaded()
            && blocks.tree.is_loaded()
            && omap.tree.is_loaded()
            && shared.tree.is_loaded()
    }

    /// Upper bounds of what pages and their directory take on the device.
    pub(crate) fn extent(&self) -> Extent {
        let Index { objects, blocks, omap, shared, .. } = self;
        let trees = [
            (objects.tree.len(), objects.tree.weight(), objects.tree.names()),
            (blocks.tree.len(), blocks.tree.weight(), blocks.tree.names()),
            (omap.tree.len(), omap.tree.weight(), omap.tree.names()),
            (shared.tree.len(), shared.tree.weight(), shared.tree.names()),
        ];
        let pages = trees.iter().map(|(count, ..)| *count as u64).sum();
        let names: u64 = trees.iter().map(|(.., names)| names).sum();
        let groups = self.used.group_len() as u64;
        Extent {
            pages,
            pages_len: trees.iter().map(|(_, weight, _)| weight).sum(),
            directory_len: names
                + pages * SLOT_LEN
                + groups * 520
                + self.collections.len() as u64 * 32
                + 4096,
        }
    }

    /// Every page that is not in memory.
    pub(crate) fn absent(&self) -> Vec<Wanted> {
        fn of<T: Kind>(tree: &Tree<T>) -> impl Iterator<Item = Wanted>
        where
            Wanted: for<'s> From<&'s Slot<T>>,
        {
            tree.absent_slots().map(Wanted::from)
        }
        let Index { objects, blocks, omap, shared, .. } = self;
        of(&objects.tree).chain(of(&blocks.tree)).chain(of(&omap.tree)).chain(of(&shared.tree)).collect()
    }

    /// Lets go of pages not needed lately until memory is at most `limit`, if it can.
    pub(crate) fn evict(&mut self, limit: usize) {
        for _ in 0..4 {
            let memory = self.memory();
            if memory <= limit {
                return;
            }
            // From each tree according to its size.
            let excess = memory - limit;
            let part = |of: usize| (excess as u128 * of as u128 / memory as u128) as usize + 1;
            let Index { objects, blocks, omap, shared, .. } = self;
            let freed = objects.tree.evict(part(objects.tree.memory()))
                + blocks.tree.evict(part(blocks.tree.memory()))
                + omap.tree.evict(part(omap.tree.memory()))
                + shared.tree.evict(part(shared.tree.memory()));
            if freed == 0 {
                return;
            }
        }
    }

    /// Changes the onode of an object that may be new.
    fn with_onode<R>(&mut self, id: &ObjectId, change: impl FnOnce(&mut Onode) -> R) -> Result<R> {
        if let Some(position) = self.find(id) {
            return Ok(self.objects.tree.update_at(position, |onode| change(Arc::make_mut(onode))));
        }
        let count = self.collections.get_mut(&id.coll).ok_or(Nonsense("the collection does not exist"))?;
        *count += 1;
        self.totals.objects += 1;
        let mut onode = Onode { nid: self.next_nid, ..Onode::default() };
        self.next_nid += 1;
        let result = change(&mut onode);
        let before = self.objects.tree.structure();
        let name = Name::new(Arc::new(id.clone()));
        if let Some(position) = self.objects.tree.insert_new(name, Arc::new(onode)) {
            self.known.note_inserted(id, position, before, self.objects.tree.structure());
        }
        Ok(result)
    }

    fn nid(&self, id: &ObjectId) -> Option<Nid> {
        self.onode(id).map(|onode| onode.nid)
    }

    fn nid_or_new(&mut self, id: &ObjectId) -> Result<Nid> {
        match self.nid(id) {
            Some(nid) => Ok(nid),
            None => self.with_onode(id, |onode| onode.nid),
        }
    }

    fn add_ref(&mut self, device: u32) {
        let (key, bit) = (device / CHUNK_BLOCKS, device % CHUNK_BLOCKS);
        let add = |chunk: &mut Chunk<u32>| {
            let extra = chunk.get(bit).unwrap_or(0);
            chunk.set(bit, extra + 1);
        };
        if self.shared.tree.update(u64::from(key), |other| other.cmp(&key), add).is_none() {
            let mut chunk = Chunk::default();
            add(&mut chunk);
            self.shared.tree.insert(key, chunk);
        }
    }

    fn drop_ref(&mut self, device: u32, sink: &mut impl BlockSink) {
        if self.is_shared(device) {
            let (key, bit) = (device / CHUNK_BLOCKS, device % CHUNK_BLOCKS);
            let empty = self.shared.tree.update(
                u64::from(key),
                |other| other.cmp(&key),
                |chunk| {
                    match chunk.get(bit) {
                        Some(extra) if extra > 1 => drop(chunk.set(bit, extra - 1)),
                        _ => drop(chunk.remove(bit)),
                    }
                    chunk.is_empty()
                },
            );
            if empty == Some(true) {
                self.shared.tree.remove(u64::from(key), |other| other.cmp(&key));
            }
            return;
        }
        self.totals.used = self.totals.used.saturating_sub(1);
        self.used.clear(device);
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
        let nid = self.nid_or_new(id)?;
        let mut replaced = Few::None;
        let mut added = 0;
        let mut clash = false;
        let notes = !self.shared.tree.is_loaded();
        let mut at = 0;
        while at < crcs.len() {
            let block = first + at as u32;
            let key = (nid, block / CHUNK_BLOCKS);
            let bit = block % CHUNK_BLOCKS;
            let count = (crcs.len() - at).min((CHUNK_BLOCKS - bit) as usize);
            let (used, totals, given) = (&mut self.used, &mut self.totals, &mut self.given);
            let mut set = |chunk: &mut Chunk<Mapping>| {
                for i in 0..count {
                    let mapping = Mapping { device: device + (at + i) as u32, crc: crcs[at + i] };
                    match chunk.set(bit + i as u32, mapping) {
                        Some(old) if old.device == mapping.device => continue,
                        Some(old) => replaced.push(old.device),
                        None => added += 1,
                    }
                    totals.used += 1;
                    if notes {
                        note_given(given, mapping.device);
                    }
                    clash |= !sink.used(mapping.device);
                    clash |= !used.set(mapping.device);
                }
            };
            if self.blocks.tree.update(Blocks::token(&key), |other| other.cmp(&key), &mut set).is_none() {
                let mut chunk = Chunk::default();
                set(&mut chunk);
                self.blocks.tree.insert(key, chunk);
            }
            at += count;
        }
        for old in replaced.iter() {
            self.drop_ref(*old, sink);
        }
        if clash {
            return Err(Nonsense("a mapped block belongs to something else"));
        }
        if added > 0 {
            self.with_onode(id, |onode| onode.mapped += added)?;
        }
        Ok(())
    }

    fn unmap(&mut self, id: &ObjectId, first: u32, count: u32, sink: &mut impl BlockSink) -> Result<()> {
        let (start, end) = (u64::from(first), u64::from(first) + u64::from(count));
        let Some(nid) = self.nid(id) else {
            return Ok(());
        };
        let gone = self.mappings(nid, start, end);
        if gone.is_empty() {
            return Ok(());
        }
        self.remove_mappings(nid, &gone);
        self.with_onode(id, |onode| onode.mapped = onode.mapped.saturating_sub(gone.len() as u64))?;
        for (_, mapping) in gone {
            self.drop_ref(mapping.device, sink);
        }
        Ok(())
    }

    fn remove_mappings(&mut self, nid: Nid, gone: &[(u32, Mapping)]) {
        for part in gone.chunk_by(|a, b| a.0 / CHUNK_BLOCKS == b.0 / CHUNK_BLOCKS) {
            let key = (nid, part[0].0 / CHUNK_BLOCKS);
            let empty = self.blocks.tree.update(
                Blocks::token(&key),
                |other| other.cmp(&key),
                |chunk| {
                    for (block, _) in part {
                        chunk.remove(block % CHUNK_BLOCKS);
                    }
                    chunk.is_empty()
                },
            );
            if empty == Some(true) {
                self.blocks.tree.remove(Blocks::token(&key), |other| other.cmp(&key));
            }
        }
    }

    /// Takes the object out of its collection; its blocks and omap stay.
    fn take(&mut self, id: &ObjectId) -> Option<Arc<Onode>> {
        let (_, onode) = self.objects.tree.remove(token_of(id), named(id))?;
        self.totals.objects = self.totals.objects.saturating_sub(1);
        if let Some(count) = self.collections.get_mut(&id.coll) {
            *count = count.saturating_sub(1);
        }
        Some(onode)
    }

    fn put(&mut self, id: &ObjectId, onode: Arc<Onode>) -> Result<()> {
        let count = self.collections.get_mut(&id.coll).ok_or(Nonsense("the collection does not exist"))?;
        *count += 1;
        self.totals.objects += 1;
        self.objects.tree.insert(Name::new(Arc::new(id.clone())), onode);
        Ok(())
    }

    fn remove(&mut self, id: &ObjectId, sink: &mut impl BlockSink) {
        let Some(onode) = self.take(id) else {
            return;
        };
        // What this very transaction created has no pages to be looked for.
        if onode.mapped > 0 {
            let gone = self.mappings(onode.nid, 0, ALL_BLOCKS);
            self.blocks
                .tree
                .remove_range(Blocks::token(&(onode.nid, 0)), stretches(onode.nid, 0, ALL_BLOCKS));
            for (_, mapping) in gone {
                self.drop_ref(mapping.device, sink);
            }
        }
        if onode.omap_keys > 0 {
            self.omap.tree.remove_range(onode.nid, entries(onode.nid, &[], None));
        }
        self.totals.omap_keys = self.totals.omap_keys.saturating_sub(onode.omap_keys);
        let len = onode.omap_len + onode.omap_header.len() as u64;
        self.totals.omap_len = self.totals.omap_len.saturating_sub(len);
    }

    /// A checksum that became known only now; ignored where the block has moved on.
    pub(crate) fn set_crc(&mut self, nid: Nid, block: u32, mapping: Mapping) {
        if self.mapping(nid, block).is_some_and(|found| found.device == mapping.device) {
            let key = (nid, block / CHUNK_BLOCKS);
            let set = |chunk: &mut Chunk<Mapping>| chunk.set(block % CHUNK_BLOCKS, mapping);
            self.blocks.tree.update(Blocks::token(&key), |other| other.cmp(&key), set);
        }
    }

    /// Carries out one operation, whose pages are in memory.
    ///
    /// Errors: only in replay of a record that makes no sense; the index is then
    /// of no further use.
    pub(crate) fn apply(&mut self, op: &LogOp<'_>, sink: &mut impl BlockSink) -> Result<()> {
        match *op {
            LogOp::CreateCollection(coll) => {
                self.collections.entry(coll).or_default();
            }
            LogOp::RemoveCollection(coll) => match self.collections.remove(&coll) {
                Some(0) => (),
                Some(_) => return Err(Nonsense("the removed collection is not empty")),
                None => return Err(Nonsense("the removed collection does not exist")),
            },
            LogOp::Touch(id) => drop(self.nid_or_new(id)?),
            LogOp::SetSize { id, size } => self.with_onode(id, |onode| onode.size = size)?,
            LogOp::Map { id, block, device, crcs, .. } => {
                self.map(id, block, device, crcs, sink)?;
            }
            LogOp::Unmap { id, block, count } => self.unmap(id, block, count, sink)?,
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
        let mut onode = self.onode(from).ok_or(Nonsense("nothing to clone"))?.clone();
        if from == to {
            return Ok(());
        }
        let source = onode.nid;
        let mut chunks = Vec::new();
        let by = stretches(source, 0, ALL_BLOCKS);
        if onode.mapped > 0 {
            self.blocks.tree.walk(&by, |key, chunk| {
                let inside = by(key) == Ordering::Equal;
                if inside {
                    chunks.push((key.1, chunk.clone()));
                }
                inside
            });
        }
        let mut omap = Vec::new();
        if onode.omap_keys > 0 {
            self.omap.tree.walk(entries(source, &[], None), |key, value| {
                if key.nid == source {
                    omap.push((key.key.clone(), value.clone()));
                }
                key.nid == source
            });
        }
        for (_, chunk) in &chunks {
            chunk.entries.iter().for_each(|mapping| self.add_ref(mapping.device));
        }
        self.remove(to, sink);
        onode.nid = self.next_nid;
        self.next_nid += 1;
        let nid = onode.nid;
        for (chunk, content) in chunks {
            self.blocks.tree.insert((nid, chunk), content);
        }
        for (key, value) in omap {
            self.omap.tree.insert(OmapKey { nid, key }, value);
        }
        self.totals.omap_keys += onode.omap_keys;
        self.totals.omap_len += onode.omap_len + onode.omap_header.len() as u64;
        self.put(to, Arc::new(onode))
    }

    /// Names, keys and values are copied: what they are slices of may be large.
    fn apply_attributes(&mut self, op: &LogOp<'_>) -> Result<()> {
        match *op {
            LogOp::SetXattr { id, name, value } => {
                self.with_onode(id, |onode| onode.xattrs.set(name, value))?;
            }
            LogOp::RmXattr { id, name } => {
                if self.onode(id).is_some_and(|onode| onode.xattrs.contains(name)) {
                    self.with_onode(id, |onode| onode.xattrs.remove(name))?;
                }
            }
            LogOp::ClearXattrs(id) => {
                if self.onode(id).is_some_and(|onode| !onode.xattrs.is_empty()) {
                    self.with_onode(id, |onode| onode.xattrs.clear())?;
                }
            }
            LogOp::SetOmapHeader { id, header } => {
                let new = Bytes::copy_from_slice(header);
                let old = self.with_onode(id, |onode| std::mem::replace(&mut onode.omap_header, new))?;
                let before = self.totals.omap_len.saturating_sub(old.len() as u64);
                self.totals.omap_len = before + header.len() as u64;
            }
            LogOp::SetOmap { id, key, value } => {
                let nid = self.nid_or_new(id)?;
                let replaced = self.omap.tree.update_or_insert(
                    nid,
                    entry(nid, key),
                    |old| replace_value(old, value),
                    || (OmapKey { nid, key: key.into() }, value.into()),
                );
                match replaced {
                    Some(old_len) if old_len == value.len() => (),
                    Some(old_len) => self.count_omap(id, (0, value.len() as u64), (0, old_len as u64))?,
                    None => self.count_omap(id, (1, entry_len(key, value)), (0, 0))?,
                }
            }
            LogOp::RmOmap { id, key } => {
                let Some(nid) = self.nid(id) else {
                    return Ok(());
                };
                if let Some((_, old)) = self.omap.tree.remove(nid, entry(nid, key)) {
                    self.count_omap(id, (0, 0), (1, entry_len(key, &old)))?;
                }
            }
            LogOp::RmOmapRange { id, start, end } => {
                let Some(nid) = self.nid(id) else {
                    return Ok(());
                };
                if start < end {
                    let gone = self.omap.tree.remove_range(nid, entries(nid, start, Some(end)));
                    if gone.count > 0 {
                        self.count_omap(id, (0, 0), (u64::from(gone.count), gone.measure))?;
                    }
                }
            }
            LogOp::ClearOmap(id) => {
                let Some(onode) = self.onode(id) else {
                    return Ok(());
                };
                let header_len = onode.omap_header.len() as u64;
                let (nid, keys, len) = (onode.nid, onode.omap_keys, onode.omap_len);
                if keys > 0 {
                    self.omap.tree.remove_range(nid, entries(nid, &[], None));
                    self.count_omap(id, (0, 0), (keys, len))?;
                }
                if header_len > 0 {
                    self.with_onode(id, |onode| onode.omap_header = Bytes::new())?;
                    self.totals.omap_len = self.totals.omap_len.saturating_sub(header_len);
                }
            }
            _ => return Err(Nonsense("not an operation on attributes")),
        }
        Ok(())
    }

    /// Keys, and bytes of keys and values, that came and went.
    fn count_omap(&mut self, id: &ObjectId, came: (u64, u64), went: (u64, u64)) -> Result<()> {
        let count = |(keys, len): (&mut u64, &mut u64)| {
            *keys = (*keys + came.0).saturating_sub(went.0);
            *len = (*len + came.1).saturating_sub(went.1);
        };
        count((&mut self.totals.omap_keys, &mut self.totals.omap_len));
        self.with_onode(id, |onode| count((&mut onode.omap_keys, &mut onode.omap_len)))
    }
}
