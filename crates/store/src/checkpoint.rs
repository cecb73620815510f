//! The index on the device: pages that changed, then a stream of entries that
//! says where every page is, cut into chained chunks.
//!
//! Layout: docs/formats/store.md, "Pages" and "Checkpoint". Both are taken from
//! a snapshot that no later transaction changes. Must not know when to begin,
//! nor how requests are paced.

use crate::alloc::{Allocator, Run};
use crate::api::CollId;
use crate::blocks::{Chunk as Stretch, Mapping};
use crate::index::{Index, PageRef, Paged, Totals, TreeId};
use crate::kinds::{Blocks, Nid, Objects, Omap, Shared};
use crate::limits::BLOCK_LEN;
use crate::ops::{Nonsense, Reader, Result, put_bytes, put_coll, put_varint};
use crate::place::{self, Extents, Place};
use crate::superblock::COPIES_MAX;
use crate::tree::{Entries, Kind, PageId, Slot, Snapshot, Sums};
use crate::used::{GROUP_BLOCKS, Used, Words, blocks_of};
use base::crc32c;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

pub(crate) const MAGIC: [u8; 8] = *b"LOLICKPT";
pub(crate) const HEADER_LEN: usize = 64;

/// Blocks of a chunk; fewer where free space is in pieces.
pub(crate) const CHUNK_BLOCKS: u32 = 16;

/// No entry is longer: names of pages are bounded.
const ENTRY_LEN_MAX: u64 = 1 << 20;

/// An entry of slots ends once it is longer than this.
const DIRECTORY_LEN: usize = 16 << 10;

mod tag {
    pub(super) const COLLECTION: u8 = 1;
    pub(super) const PAGES: u8 = 2;
    pub(super) const USED: u8 = 3;
    pub(super) const USED_FULL: u8 = 4;
    pub(super) const END: u8 = 5;
}

/// Places of one chunk, one for each copy.
pub(crate) type Places = [Option<Run>; COPIES_MAX];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkHeader {
    pub(crate) generation: u64,
    pub(crate) index: u32,
    pub(crate) payload_len: u32,
    /// Both `None` in the last chunk.
    pub(crate) next: Places,
}

impl ChunkHeader {
    pub(crate) fn encode(&self, nonce: u64, payload: &[u8]) -> [u8; HEADER_LEN] {
        let mut out = Vec::with_capacity(HEADER_LEN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&nonce.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.payload_len.to_le_bytes());
        for next in self.next {
            let next = next.unwrap_or(Run { start: 0, count: 0 });
            out.extend_from_slice(&next.start.to_le_bytes());
            out.extend_from_slice(&next.count.to_le_bytes());
        }
        out.resize(HEADER_LEN - 8, 0);
        out.extend_from_slice(&crc32c(payload).to_le_bytes());
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        let mut header = [0; HEADER_LEN];
        header.copy_from_slice(&out);
        header
    }

    /// The chunk and its payload; `None` when it is not that chunk, or damaged.
    pub(crate) fn decode(
        chunk: &Bytes,
        nonce: u64,
        generation: u64,
        index: u32,
        device_blocks: u32,
    ) -> Option<(ChunkHeader, Bytes)> {
        let raw = chunk.get(..HEADER_LEN)?;
        let (body, crc) = raw.split_at(HEADER_LEN - 4);
        if raw[..8] != MAGIC || crc != crc32c(body).to_le_bytes() {
            return None;
        }
        let mut r = Reader::new(chunk.slice(8..HEADER_LEN));
        if r.u64().ok()? != nonce || r.u64().ok()? != generation || r.u32().ok()? != index {
            return None;
        }
        let payload_len = r.u32().ok()?;
        let mut next = [None; COPIES_MAX];
        for place in &mut next {
            let run = Run { start: r.u32().ok()?, count: r.u32().ok()? };
            if run.count > CHUNK_BLOCKS {
                return None;
            }
            if run.count > 0 {
                run.start.checked_add(run.count).filter(|end| *end <= device_blocks)?;
                *place = Some(run);
            }
        }
        let payload = chunk.len().checked_sub(HEADER_LEN).filter(|len| *len >= payload_len as usize);
        payload?;
        let payload = chunk.slice(HEADER_LEN..HEADER_LEN + payload_len as usize);
        let mut stored = [0; 4];
        stored.copy_from_slice(&raw[HEADER_LEN - 8..HEADER_LEN - 4]);
        (crc32c(&payload) == u32::from_le_bytes(stored))
            .then_some((ChunkHeader { generation, index, payload_len, next }, payload))
    }
}

/// The index as it was after some record.
pub(crate) struct IndexSnapshot {
    collections: Vec<(CollId, u64)>,
    objects: Snapshot<Objects>,
    blocks: Snapshot<Blocks>,
    omap: Snapshot<Omap>,
    shared: Snapshot<Shared>,
    used: Used,
    next_nid: Nid,
    totals: Totals,
}

impl IndexSnapshot {
    pub(crate) fn take(index: &mut Index) -> IndexSnapshot {
        IndexSnapshot {
            collections: index.collections.iter().map(|(coll, count)| (*coll, *count)).collect(),
            objects: index.objects.tree.snapshot(),
            blocks: index.blocks.tree.snapshot(),
            omap: index.omap.tree.snapshot(),
            shared: index.shared.tree.snapshot(),
            used: index.used.clone(),
            next_nid: index.next_nid,
            totals: index.totals,
        }
    }

    /// Pages still to be written.
    fn changed_len(&self) -> usize {
        let IndexSnapshot { objects, blocks, omap, shared, .. } = self;
        objects.changed.len() + blocks.changed.len() + omap.changed.len() + shared.changed.len()
    }
}

/// Where the pages of a snapshot that changed have been put.
#[derive(Default)]
pub(crate) struct NewPlaces {
    places: BTreeMap<PageRef, Place>,
}

/// Yields the pages that must be written, one after the other.
pub(crate) struct PageWriter {
    pub(crate) snapshot: IndexSnapshot,
    /// Checksums that were not known when the snapshot was taken, by device block.
    crcs: BTreeMap<u32, u32>,
    /// Pages to be written in all.
    total: usize,
    pub(crate) new: NewPlaces,
}

/// A page as it goes to the device.
pub(crate) struct Page {
    pub(crate) id: PageRef,
    pub(crate) content: Vec<u8>,
}

impl PageWriter {
    pub(crate) fn new(snapshot: IndexSnapshot, crcs: BTreeMap<u32, u32>) -> PageWriter {
        let total = snapshot.changed_len();
        PageWriter { snapshot, crcs, total, new: NewPlaces::default() }
    }

    /// Of `whole`, the part of the pages that has gone to the device.
    pub(crate) fn share_written(&self, whole: usize) -> usize {
        let written = self.total - self.snapshot.changed_len();
        (whole as u64 * written as u64 / self.total.max(1) as u64) as usize
    }

    /// Lets go of it: what has changed since is not kept twice for longer than it takes.
    pub(crate) fn next_page(&mut self) -> Option<Page> {
        let IndexSnapshot { objects, blocks, omap, shared, .. } = &mut self.snapshot;
        let crcs = &self.crcs;
        let (tree, (page, content)) = None
            .or_else(|| Some((TreeId::Objects, next_changed(objects, |_| None)?)))
            .or_else(|| Some((TreeId::Blocks, next_changed(blocks, |chunk| with_crcs(chunk, crcs))?)))
            .or_else(|| Some((TreeId::Omap, next_changed(omap, |_| None)?)))
            .or_else(|| Some((TreeId::Shared, next_changed(shared, |_| None)?)))?;
        Some(Page { id: PageRef { tree, page }, content })
    }

    pub(crate) fn placed(&mut self, page: PageRef, place: Place) {
        self.new.places.insert(page, place);
    }
}

/// The next page that changed since the last snapshot.
fn next_changed<T: Kind>(
    snapshot: &mut Snapshot<T>,
    replace: impl Fn(&T::Value) -> Option<T::Value>,
) -> Option<(PageId, Vec<u8>)> {
    let (page, leaf) = snapshot.changed.pop_front()?;
    Some((page, encode_page::<T>(&leaf.entries, replace)))
}

fn with_crcs(chunk: &Stretch<Mapping>, crcs: &BTreeMap<u32, u32>) -> Option<Stretch<Mapping>> {
    if crcs.is_empty() || !chunk.entries.iter().any(|mapping| crcs.contains_key(&mapping.device)) {
        return None;
    }
    let mut chunk = chunk.clone();
    for mapping in chunk.entries.iter_mut() {
        mapping.crc = crcs.get(&mapping.device).copied().unwrap_or(mapping.crc);
    }
    Some(chunk)
}

fn encode_page<T: Kind>(
    entries: &[(T::Key, T::Value)],
    replace: impl Fn(&T::Value) -> Option<T::Value>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK_LEN as usize);
    put_varint(&mut out, entries.len() as u64);
    for (key, value) in entries {
        match replace(value) {
            Some(value) => T::put(&mut out, key, &value),
            None => T::put(&mut out, key, value),
        }
    }
    out
}

/// A page's entries.
pub(crate) fn decode_page<T: Kind>(content: Bytes, device_blocks: u32) -> Result<Entries<T>> {
    let content_len = content.len();
    let mut r = Reader::new(content);
    let count = r.varint()?;
    // No entry is shorter.
    let mut entries = Vec::with_capacity((count as usize).min(content_len / 4));
    for _ in 0..count {
        entries.push(T::read(&mut r, device_blocks)?);
    }
    match r.is_empty() {
        true => Ok(entries),
        false => Err(Nonsense("something follows a page's end")),
    }
}

/// What comes next in the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Collections(usize),
    /// Tree, node, slot.
    Pages(usize, usize, usize),
    Used(usize),
    End,
    Ended,
}

/// Turns a snapshot whose pages are placed into the checkpoint's entries.
pub(crate) struct Stream {
    snapshot: IndexSnapshot,
    pub(crate) new: NewPlaces,
    part: Part,
}

impl Stream {
    pub(crate) fn new(pages: PageWriter) -> Stream {
        Stream { snapshot: pages.snapshot, new: pages.new, part: Part::Collections(0) }
    }

    /// Appends entries until `out` has `len` bytes or more, or all is said.
    fn fill(&mut self, index: &Index, out: &mut Vec<u8>, len: usize) {
        let mut entry = Vec::new();
        while out.len() < len && !self.is_done() {
            entry.clear();
            self.part = self.step(index, &mut entry);
            if !entry.is_empty() {
                put_bytes(out, &entry);
            }
        }
    }

    /// One entry, or none when it only moved on.
    fn step(&self, index: &Index, entry: &mut Vec<u8>) -> Part {
        let snapshot = &self.snapshot;
        match self.part {
            Part::Collections(at) => match snapshot.collections.get(at) {
                Some((coll, count)) => {
                    entry.push(tag::COLLECTION);
                    put_coll(entry, *coll);
                    put_varint(entry, *count);
                    Part::Collections(at + 1)
                }
                None => Part::Pages(0, 0, 0),
            },
            Part::Pages(tree, node, slot) => {
                let Some(id) = TreeId::ALL.get(tree).copied() else {
                    return Part::Used(0);
                };
                let at = (node, slot);
                let next = match id {
                    TreeId::Objects => self.directory(id, &snapshot.objects, &index.objects, at, entry),
                    TreeId::Blocks => self.directory(id, &snapshot.blocks, &index.blocks, at, entry),
                    TreeId::Omap => self.directory(id, &snapshot.omap, &index.omap, at, entry),
                    TreeId::Shared => self.directory(id, &snapshot.shared, &index.shared, at, entry),
                };
                match next {
                    Some((node, slot)) => Part::Pages(tree, node, slot),
                    None => Part::Pages(tree + 1, 0, 0),
                }
            }
            Part::Used(group) => {
                if group == snapshot.used.group_len() {
                    return Part::End;
                }
                if let Some(words) = snapshot.used.group(group) {
                    let full = words.iter().all(|word| *word == u64::MAX);
                    entry.push(if full { tag::USED_FULL } else { tag::USED });
                    put_varint(entry, group as u64);
                    if !full {
                        words.iter().for_each(|word| entry.extend_from_slice(&word.to_le_bytes()));
                    }
                }
                Part::Used(group + 1)
            }
            Part::End => {
                entry.push(tag::END);
                let Totals { objects, used, omap_keys, omap_len } = snapshot.totals;
                for number in [snapshot.next_nid, objects, used, omap_keys, omap_len] {
                    put_varint(entry, number);
                }
                Part::Ended
            }
            Part::Ended => Part::Ended,
        }
    }

    /// An entry for some slots of a tree; where the next one begins.
    fn directory<T: Kind>(
        &self,
        tree: TreeId,
        snapshot: &Snapshot<T>,
        paged: &Paged<T>,
        (node, mut slot): (usize, usize),
        entry: &mut Vec<u8>,
    ) -> Option<(usize, usize)> {
        let slots = &snapshot.nodes.get(node)?.slots;
        entry.push(tag::PAGES);
        entry.push(tree as u8);
        while let Some(found) = slots.get(slot) {
            if entry.len() > DIRECTORY_LEN {
                return Some((node, slot));
            }
            slot += 1;
            let id = PageRef { tree, page: found.page };
            let place = self.new.places.get(&id).or_else(|| paged.place(found.page));
            put_slot(entry, found, place.expect("every page of a snapshot has been placed"));
        }
        Some((node + 1, 0))
    }

    fn is_done(&self) -> bool {
        self.part == Part::Ended
    }
}

fn put_slot<T: Kind>(entry: &mut Vec<u8>, slot: &Slot<T>, place: &Place) {
    T::put_key(entry, &slot.first);
    put_varint(entry, u64::from(slot.sums.count));
    put_varint(entry, u64::from(slot.sums.weight));
    put_varint(entry, slot.sums.measure);
    put_varint(entry, u64::from(place.len));
    entry.extend_from_slice(&place.crc.to_le_bytes());
    for copy in 0..COPIES_MAX {
        let runs = place.copy_runs(copy);
        put_varint(entry, runs.len() as u64);
        for run in runs {
            put_varint(entry, u64::from(run.start));
            put_varint(entry, u64::from(run.count));
        }
    }
}

fn read_slot<T: Kind>(r: &mut Reader, device_blocks: u32) -> Result<(T::Key, Sums, Place)> {
    let first = T::read_bound(r)?;
    let sums = Sums { count: r.narrow()?, weight: r.narrow()?, measure: r.varint()? };
    let mut place = Place { len: r.narrow()?, crc: r.u32()?, copies: [const { None }; COPIES_MAX] };
    let blocks = place.blocks();
    for copy in 0..COPIES_MAX {
        let count = r.varint()?;
        if count > place::RUNS_MAX as u64 {
            return Err(Nonsense("a page lies in too many pieces"));
        }
        let mut runs = Vec::new();
        for _ in 0..count {
            runs.push(r.run(device_blocks)?);
        }
        if !runs.is_empty() {
            if runs.iter().map(|run| u64::from(run.count)).sum::<u64>() != u64::from(blocks) {
                return Err(Nonsense("a page's length and its place do not fit"));
            }
            place.copies[copy] = Some(Extents::new(runs));
        }
    }
    if place.runs().next().is_none() {
        return Err(Nonsense("a page without a place"));
    }
    Ok((first, sums, place))
}

/// What the switch to a written checkpoint changes in the index. Returns the
/// device runs that nothing refers to any more.
pub(crate) fn adopt(index: &mut Index, stream: Stream) -> Vec<Run> {
    let mut free = Vec::new();
    for (id, place) in stream.new.places {
        let old = match id.tree {
            TreeId::Objects => index.objects.set_place(id.page, Some(place)),
            TreeId::Blocks => index.blocks.set_place(id.page, Some(place)),
            TreeId::Omap => index.omap.set_place(id.page, Some(place)),
            TreeId::Shared => index.shared.set_place(id.page, Some(place)),
        };
        free.extend(old.iter().flat_map(Place::runs));
    }
    let IndexSnapshot { objects, blocks, omap, shared, .. } = stream.snapshot;
    adopt_tree(&mut index.objects, objects, &mut free);
    adopt_tree(&mut index.blocks, blocks, &mut free);
    adopt_tree(&mut index.omap, omap, &mut free);
    adopt_tree(&mut index.shared, shared, &mut free);
    free
}

fn adopt_tree<T: Kind>(paged: &mut Paged<T>, snapshot: Snapshot<T>, free: &mut Vec<Run>) {
    for page in &snapshot.dropped {
        let old = paged.set_place(*page, None);
        free.extend(old.iter().flat_map(Place::runs));
    }
    paged.tree.written(snapshot.generation, &snapshot.dropped);
}

/// One chunk, ready to be written to each of its places.
pub(crate) struct Chunk {
    pub(crate) places: Places,
    pub(crate) header: ChunkHeader,
    pub(crate) payload: Vec<u8>,
}

/// Cuts the stream into chunks and finds room for them.
pub(crate) struct ChunkWriter {
    pub(crate) stream: Stream,
    buffered: Vec<u8>,
    generation: u64,
    index: u32,
    places: Places,
    pub(crate) first: Places,
    /// Every place taken so far.
    pub(crate) taken: Vec<Run>,
    pub(crate) finished: bool,
}

fn capacity(places: &Places) -> usize {
    let blocks = places.iter().flatten().map(|run| run.count).min().unwrap_or(0);
    blocks as usize * BLOCK_LEN as usize - HEADER_LEN
}

impl ChunkWriter {
    /// `None` from `place` means that there is no room.
    pub(crate) fn new(
        stream: Stream,
        generation: u64,
        mut place: impl FnMut() -> Option<Places>,
    ) -> Option<ChunkWriter> {
        let places = place()?;
        Some(ChunkWriter {
            stream,
            buffered: Vec::new(),
            generation,
            index: 0,
            places,
            first: places,
            taken: places.iter().flatten().copied().collect(),
            finished: false,
        })
    }

    pub(crate) fn next_chunk(
        &mut self,
        index: &Index,
        mut place: impl FnMut() -> Option<Places>,
    ) -> Option<Chunk> {
        let room = capacity(&self.places);
        self.stream.fill(index, &mut self.buffered, room + 1);
        let places = self.places;
        let mut next = [None; COPIES_MAX];
        let payload = if self.buffered.len() > room {
            next = place()?;
            self.taken.extend(next.iter().flatten());
            self.places = next;
            let rest = self.buffered.split_off(room);
            std::mem::replace(&mut self.buffered, rest)
        } else {
            assert!(self.stream.is_done());
            self.finished = true;
            std::mem::take(&mut self.buffered)
        };
        let header = ChunkHeader {
            generation: self.generation,
            index: self.index,
            payload_len: payload.len() as u32,
            next,
        };
        self.index += 1;
        Some(Chunk { places, header, payload })
    }
}

/// Rebuilds the index from a checkpoint's payloads, in order. Its pages are not
/// in memory then.
#[derive(Default)]
pub(crate) struct Loader {
    pending: BytesMut,
    used: u64,
    ended: bool,
}

impl Loader {
    pub(crate) fn feed(&mut self, payload: &[u8], index: &mut Index, alloc: &mut Allocator) -> Result<()> {
        self.pending.extend_from_slice(payload);
        while let Some(entry) = self.next_entry()? {
            if self.ended {
                return Err(Nonsense("something follows the checkpoint's end"));
            }
            self.load(entry, index, alloc)?;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<()> {
        if !self.ended || !self.pending.is_empty() {
            return Err(Nonsense("the checkpoint has no end"));
        }
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<Bytes>> {
        let mut len = 0u64;
        for (i, byte) in self.pending.iter().take(5).enumerate() {
            len |= u64::from(byte & 0x7f) << (7 * i);
            if *byte >= 0x80 {
                continue;
            }
            if len == 0 || len > ENTRY_LEN_MAX {
                return Err(Nonsense("an entry's length makes no sense"));
            }
            let end = i + 1 + len as usize;
            if self.pending.len() < end {
                return Ok(None);
            }
            let entry = self.pending.split_to(end).freeze();
            return Ok(Some(entry.slice(i + 1..)));
        }
        if self.pending.len() >= 5 {
            return Err(Nonsense("an entry's length makes no sense"));
        }
        Ok(None)
    }

    fn load(&mut self, entry: Bytes, index: &mut Index, alloc: &mut Allocator) -> Result<()> {
        let mut r = Reader::new(entry);
        match r.u8()? {
            tag::COLLECTION => {
                let (coll, count) = (r.coll()?, r.varint()?);
                if index.collections.insert(coll, count).is_some() {
                    return Err(Nonsense("a collection is there twice"));
                }
            }
            tag::PAGES => {
                let tree = r.u8()?;
                let tree = TreeId::ALL.iter().find(|id| **id as u8 == tree);
                while !r.is_empty() {
                    match tree.ok_or(Nonsense("unknown kind of tree"))? {
                        TreeId::Objects => load_slot(&mut r, &mut index.objects, alloc)?,
                        TreeId::Blocks => load_slot(&mut r, &mut index.blocks, alloc)?,
                        TreeId::Omap => load_slot(&mut r, &mut index.omap, alloc)?,
                        TreeId::Shared => load_slot(&mut r, &mut index.shared, alloc)?,
                    }
                }
            }
            kind @ (tag::USED | tag::USED_FULL) => {
                let group = r.narrow()?;
                let mut words: Words = [u64::MAX; _];
                if kind == tag::USED {
                    for word in &mut words {
                        *word = r.u64()?;
                    }
                }
                if u64::from(group) * u64::from(GROUP_BLOCKS) >= u64::from(alloc.blocks()) {
                    return Err(Nonsense("data lies past the device's end"));
                }
                for device in blocks_of(group, &words) {
                    if device >= alloc.blocks() || !alloc.mark(device) {
                        return Err(Nonsense("data lies where something else is"));
                    }
                    self.used += 1;
                }
                index.used.load(group, words);
            }
            tag::END => {
                index.next_nid = r.varint()?;
                let (objects, used) = (r.varint()?, r.varint()?);
                index.totals = Totals { objects, used, omap_keys: r.varint()?, omap_len: r.varint()? };
                let counted = index.collections.values().try_fold(0u64, |sum, n| sum.checked_add(*n));
                if used != self.used || counted != Some(objects) || index.next_nid == 0 {
                    return Err(Nonsense("the checkpoint's counts do not match"));
                }
                self.ended = true;
            }
            _ => return Err(Nonsense("unknown checkpoint entry")),
        }
        match r.is_empty() {
            true => Ok(()),
            false => Err(Nonsense("something follows an entry's end")),
        }
    }
}

fn load_slot<T: Kind>(r: &mut Reader, paged: &mut Paged<T>, alloc: &mut Allocator) -> Result<()> {
    let (first, sums, place) = read_slot::<T>(r, alloc.blocks())?;
    for run in place.runs() {
        if !alloc.mark_run(run) {
            return Err(Nonsense("a page lies where something else is"));
        }
    }
    let page = paged.tree.push_absent(first, sums)?;
    paged.set_place(page, Some(place));
    Ok(())
}
