//! The whole index as a stream of entries, cut into chained chunks.
//!
//! Layout: docs/formats/store.md, "Checkpoint". The stream is taken from a
//! snapshot that no later transaction changes. Must not know when to begin,
//! nor what a checkpoint replaces.

use crate::alloc::Run;
use crate::api::{CollId, ObjectId};
use crate::blocks::Mapping;
use crate::index::{BlockSink, Collections, Index, Objects, Onode};
use crate::limits::BLOCK_LEN;
use crate::ops::{LogOp, Nonsense, Reader, Result, put_bytes, put_coll, put_object, put_varint};
use crate::superblock::COPIES_MAX;
use base::crc32c;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use wire::types::HObject;

pub(crate) const MAGIC: [u8; 8] = *b"LOLICKPT";
pub(crate) const HEADER_LEN: usize = 64;

/// Blocks of a chunk; fewer where free space is in pieces.
pub(crate) const CHUNK_BLOCKS: u32 = 16;

/// No entry is longer; omap values are bounded well below.
const ENTRY_LEN_MAX: u64 = 256 << 20;

/// An entry of xattrs ends once it is longer than this.
const XATTRS_LEN: usize = 64 << 10;

/// Longest stretch of checksums in one entry.
const CRCS_MAX: u32 = 4096;

mod tag {
    pub(super) const COLLECTION: u8 = 1;
    pub(super) const OBJECT: u8 = 2;
    pub(super) const XATTR: u8 = 3;
    pub(super) const BLOCKS: u8 = 4;
    pub(super) const OMAP: u8 = 5;
    pub(super) const END: u8 = 6;
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

/// What of the current object comes next.
enum Part {
    Xattrs { after: Option<String> },
    Blocks { from: u64 },
    Omap { after: Option<Bytes> },
}

/// Turns a snapshot into entries, a piece at a time.
pub(crate) struct Stream {
    collections: Vec<(CollId, Objects)>,
    at_collection: usize,
    last_object: Option<Arc<HObject>>,
    object: Option<(Arc<Onode>, Part)>,
    started_collection: bool,
    objects: u64,
    ended: bool,
    /// Checksums that were not known when the snapshot was taken, by device block.
    crcs: BTreeMap<u32, u32>,
}

impl Stream {
    pub(crate) fn new(collections: Collections, crcs: BTreeMap<u32, u32>) -> Stream {
        Stream {
            collections: collections.into_iter().collect(),
            at_collection: 0,
            last_object: None,
            object: None,
            started_collection: false,
            objects: 0,
            ended: false,
            crcs,
        }
    }

    /// Appends entries until `out` has `len` bytes or more, or all is said.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, len: usize) {
        let mut entry = Vec::new();
        while out.len() < len && !self.ended {
            entry.clear();
            self.step(&mut entry);
            if !entry.is_empty() {
                put_bytes(out, &entry);
            }
        }
    }

    /// One entry, or none when it only moved on.
    fn step(&mut self, entry: &mut Vec<u8>) {
        if let Some((onode, part)) = self.object.take() {
            let part = self.step_object(&onode, part, entry);
            self.object = part.map(|part| (onode, part));
            return;
        }
        let Some((coll, objects)) = self.collections.get(self.at_collection) else {
            entry.push(tag::END);
            put_varint(entry, self.objects);
            self.ended = true;
            return;
        };
        if !self.started_collection {
            self.started_collection = true;
            entry.push(tag::COLLECTION);
            put_coll(entry, *coll);
            return;
        }
        let from = match &self.last_object {
            Some(last) => Bound::Excluded(&**last),
            None => Bound::Unbounded,
        };
        let Some((name, onode)) = objects.iter_from::<HObject>(from).next() else {
            self.at_collection += 1;
            self.started_collection = false;
            self.last_object = None;
            return;
        };
        entry.push(tag::OBJECT);
        put_object(entry, name);
        put_varint(entry, onode.size);
        put_bytes(entry, &onode.omap_header);
        self.objects += 1;
        self.object = Some((onode.clone(), Part::Xattrs { after: None }));
        self.last_object = Some(name.clone());
    }

    fn step_object(&self, onode: &Onode, part: Part, entry: &mut Vec<u8>) -> Option<Part> {
        match part {
            Part::Xattrs { after } => {
                let from = match &after {
                    Some(name) => Bound::Excluded(name),
                    None => Bound::Unbounded,
                };
                for (name, value) in onode.xattrs.range::<String, _>((from, Bound::Unbounded)) {
                    if entry.is_empty() {
                        entry.push(tag::XATTR);
                    }
                    put_bytes(entry, name.as_bytes());
                    put_bytes(entry, value);
                    if entry.len() > XATTRS_LEN {
                        return Some(Part::Xattrs { after: Some(name.clone()) });
                    }
                }
                Some(Part::Blocks { from: 0 })
            }
            Part::Blocks { from } => {
                let mut blocks = onode.blocks.range(from, u64::from(u32::MAX)).peekable();
                let Some((first, mapping)) = blocks.next() else {
                    return Some(Part::Omap { after: None });
                };
                let mut crcs = vec![self.crc_of(mapping)];
                while let Some((block, next)) = blocks.peek() {
                    let count = crcs.len() as u32;
                    if count == CRCS_MAX || *block != first + count || next.device != mapping.device + count {
                        break;
                    }
                    crcs.push(self.crc_of(*next));
                    blocks.next();
                }
                entry.push(tag::BLOCKS);
                put_varint(entry, u64::from(first));
                put_varint(entry, u64::from(mapping.device));
                put_varint(entry, crcs.len() as u64);
                crcs.iter().for_each(|crc| entry.extend_from_slice(&crc.to_le_bytes()));
                Some(Part::Blocks { from: u64::from(first) + crcs.len() as u64 })
            }
            Part::Omap { after } => {
                let from = match &after {
                    Some(key) => Bound::Excluded(key),
                    None => Bound::Unbounded,
                };
                let (key, value) = onode.omap.iter_from::<Bytes>(from).next()?;
                entry.push(tag::OMAP);
                put_bytes(entry, key);
                put_bytes(entry, value);
                Some(Part::Omap { after: Some(key.clone()) })
            }
        }
    }

    fn crc_of(&self, mapping: Mapping) -> u32 {
        self.crcs.get(&mapping.device).copied().unwrap_or(mapping.crc)
    }

    fn is_done(&self) -> bool {
        self.ended
    }
}

/// One chunk, ready to be written to each of its places.
pub(crate) struct Chunk {
    pub(crate) places: Places,
    pub(crate) header: ChunkHeader,
    pub(crate) payload: Vec<u8>,
}

/// Cuts the stream into chunks and finds room for them.
pub(crate) struct ChunkWriter {
    stream: Stream,
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

    pub(crate) fn next_chunk(&mut self, mut place: impl FnMut() -> Option<Places>) -> Option<Chunk> {
        let room = capacity(&self.places);
        self.stream.fill(&mut self.buffered, room + 1);
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

/// Rebuilds the index from a checkpoint's payloads, in order.
#[derive(Default)]
pub(crate) struct Loader {
    pending: BytesMut,
    collection: Option<CollId>,
    object: Option<ObjectId>,
    objects: u64,
    ended: bool,
}

impl Loader {
    pub(crate) fn feed(
        &mut self,
        payload: &[u8],
        device_blocks: u32,
        index: &mut Index,
        sink: &mut impl BlockSink,
    ) -> Result<()> {
        self.pending.extend_from_slice(payload);
        while let Some(entry) = self.next_entry()? {
            if self.ended {
                return Err(Nonsense("something follows the checkpoint's end"));
            }
            self.load(entry, device_blocks, index, sink)?;
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

    fn load(
        &mut self,
        entry: Bytes,
        device_blocks: u32,
        index: &mut Index,
        sink: &mut impl BlockSink,
    ) -> Result<()> {
        let mut r = Reader::new(entry);
        let tag = r.u8()?;
        match tag {
            tag::COLLECTION => {
                let coll = r.coll()?;
                self.collection = Some(coll);
                self.object = None;
                return index.apply(&LogOp::CreateCollection(coll), sink);
            }
            tag::OBJECT => {
                let coll = self.collection.ok_or(Nonsense("an object outside any collection"))?;
                let id = ObjectId { coll, object: r.object()? };
                let (size, header) = (r.size()?, r.bytes()?);
                index.apply(&LogOp::SetSize { id: &id, size }, sink)?;
                if !header.is_empty() {
                    index.apply(&LogOp::SetOmapHeader { id: &id, header: &header }, sink)?;
                }
                self.objects += 1;
                self.object = Some(id);
                return Ok(());
            }
            tag::END => {
                if r.varint()? != self.objects || self.objects != index.totals.objects {
                    return Err(Nonsense("the checkpoint's object count does not match"));
                }
                self.ended = true;
                return Ok(());
            }
            _ => (),
        }
        let id = self.object.as_ref().ok_or(Nonsense("an attribute without an object"))?;
        match tag {
            tag::XATTR => {
                while !r.is_empty() {
                    let (name, value) = (r.string()?, r.bytes()?);
                    index.apply(&LogOp::SetXattr { id, name: &name, value: &value }, sink)?;
                }
            }
            tag::BLOCKS => {
                let block = r.block()?;
                let run = r.run(device_blocks)?;
                for i in 0..run.count {
                    let mapping = Mapping { device: run.start + i, crc: r.u32()? };
                    let block = block.checked_add(i).ok_or(Nonsense("a block is out of range"))?;
                    index.load_map(id, block, mapping, sink)?;
                }
            }
            tag::OMAP => {
                let (key, value) = (r.bytes()?, r.bytes()?);
                index.apply(&LogOp::SetOmap { id, key: &key, value: &value }, sink)?;
            }
            _ => return Err(Nonsense("unknown checkpoint entry")),
        }
        Ok(())
    }
}
