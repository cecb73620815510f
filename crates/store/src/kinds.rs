//! What the index's four trees hold, and how their entries are encoded in pages.
//!
//! Layout: docs/formats/store.md, "Pages". An object has a number for life (its
//! *nid*), under which its blocks and its omap are found: renaming it moves
//! nothing else.

use crate::api::ObjectId;
use crate::attrs::Attrs;
use crate::blocks::{CHUNK_BLOCKS, Chunk, Few, Mapping, OBJECT_BLOCKS_MAX};
use crate::name::{Name, token_of};
use crate::ops::{Nonsense, Reader, Result, put_bytes, put_coll, put_object, put_varint};
use crate::short::Short;
use crate::tree::Kind;
use bytes::Bytes;
use std::sync::Arc;

/// An object's number in its store; never used again.
pub(crate) type Nid = u64;

/// What is known of an object without its blocks and omap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Onode {
    pub(crate) nid: Nid,
    pub(crate) size: u64,
    /// Blocks with data.
    pub(crate) mapped: u64,
    pub(crate) omap_keys: u64,
    /// Bytes of keys and values.
    pub(crate) omap_len: u64,
    pub(crate) omap_header: Bytes,
    pub(crate) xattrs: Attrs,
}

impl Onode {
    /// An upper bound of what a clone of it adds to the index, without its name.
    pub(crate) fn clone_len_max(&self) -> u64 {
        let xattrs = 24 * self.xattrs.len() + self.xattrs.bytes();
        let omap = self.omap_len + 24 * self.omap_keys + self.omap_header.len() as u64;
        96 + 24 * self.mapped + omap + xattrs as u64
    }
}

/// Onodes by name.
pub(crate) struct Objects;

impl Kind for Objects {
    type Key = Name;
    type Value = Arc<Onode>;
    /// Two blocks. New objects come in any order, so that each changes another page.
    const PAGE_LEN: usize = 8000;
    /// Four pieces of memory: an id, its name, an onode, its xattrs.
    const OVERHEAD: usize = 208;

    fn value_weight(onode: &Arc<Onode>) -> usize {
        let xattrs = 10 * onode.xattrs.len() + onode.xattrs.bytes();
        // Six numbers.
        onode.omap_header.len() + xattrs + 60
    }

    fn token(id: &Name) -> u64 {
        token_of(id.id())
    }

    fn rank(id: &Name) -> u64 {
        id.rank()
    }

    fn key_weight(id: &Name) -> usize {
        // Collection 13, object 21 and three lengths.
        id.text_len() + 13 + 21 + 15
    }

    fn put_key(out: &mut Vec<u8>, id: &Name) {
        let id = id.position();
        put_coll(out, id.coll);
        put_object(out, &id.object);
    }

    fn bound(before: Option<&Name>, first: &Name) -> Name {
        Name::bound(before, first)
    }

    fn read_bound(r: &mut Reader) -> Result<Name> {
        Ok(Name::written_bound(ObjectId { coll: r.coll()?, object: r.object()? }))
    }

    fn read_key(r: &mut Reader) -> Result<Name> {
        Ok(Name::new(Arc::new(ObjectId { coll: r.coll()?, object: r.object()? })))
    }

    fn put(out: &mut Vec<u8>, id: &Name, onode: &Arc<Onode>) {
        Objects::put_key(out, id);
        for number in [onode.nid, onode.size, onode.mapped, onode.omap_keys, onode.omap_len] {
            put_varint(out, number);
        }
        put_bytes(out, &onode.omap_header);
        put_varint(out, onode.xattrs.len() as u64);
        for (name, value) in onode.xattrs.iter() {
            put_bytes(out, name.as_bytes());
            put_bytes(out, value);
        }
    }

    fn read(r: &mut Reader, _device_blocks: u32) -> Result<(Name, Arc<Onode>)> {
        let id = Objects::read_key(r)?;
        let mut onode = Onode {
            nid: r.varint()?,
            size: r.size()?,
            mapped: r.varint()?,
            omap_keys: r.varint()?,
            omap_len: r.varint()?,
            // Copied: a page's buffer should not outlive the page.
            omap_header: Bytes::copy_from_slice(&r.bytes()?),
            xattrs: Attrs::default(),
        };
        let mut last: Option<Bytes> = None;
        for _ in 0..r.varint()? {
            let raw = r.bytes()?;
            let name = str::from_utf8(&raw).map_err(|_| Nonsense("a name is not UTF-8"))?;
            if last.is_some_and(|last| last >= raw) {
                return Err(Nonsense("xattrs are out of order"));
            }
            onode.xattrs.append(name, &r.bytes()?);
            last = Some(raw);
        }
        Ok((id, Arc::new(onode)))
    }
}

/// Device blocks of objects, by nid and stretch of 64 blocks.
pub(crate) struct Blocks;

impl Kind for Blocks {
    type Key = (Nid, u32);
    type Value = Chunk<Mapping>;
    const PAGE_LEN: usize = 4000;
    /// More than one block are a piece of memory of their own.
    const OVERHEAD: usize = 40;

    fn value_weight(chunk: &Chunk<Mapping>) -> usize {
        9 + 8 * chunk.len()
    }

    fn token((nid, chunk): &(Nid, u32)) -> u64 {
        // A stretch's number has 22 bits.
        nid << 22 | u64::from(*chunk)
    }

    fn rank(key: &(Nid, u32)) -> u64 {
        Blocks::token(key)
    }

    fn key_weight(_key: &(Nid, u32)) -> usize {
        15
    }

    fn put_key(out: &mut Vec<u8>, (nid, chunk): &(Nid, u32)) {
        put_varint(out, *nid);
        put_varint(out, u64::from(*chunk));
    }

    fn read_key(r: &mut Reader) -> Result<(Nid, u32)> {
        let key = (r.varint()?, r.narrow()?);
        if u64::from(key.1) >= OBJECT_BLOCKS_MAX / u64::from(CHUNK_BLOCKS) {
            return Err(Nonsense("a block lies past the largest object"));
        }
        Ok(key)
    }

    fn put(out: &mut Vec<u8>, key: &(Nid, u32), chunk: &Chunk<Mapping>) {
        Blocks::put_key(out, key);
        out.extend_from_slice(&chunk.present.to_le_bytes());
        let first = chunk.entries.first().map_or(0, |mapping| mapping.device);
        let adjacent = (first..).zip(chunk.entries.iter()).all(|(device, mapping)| device == mapping.device);
        out.push(u8::from(adjacent));
        let devices = if adjacent { &chunk.entries[..1] } else { &chunk.entries[..] };
        devices.iter().for_each(|mapping| out.extend_from_slice(&mapping.device.to_le_bytes()));
        chunk.entries.iter().for_each(|mapping| out.extend_from_slice(&mapping.crc.to_le_bytes()));
    }

    fn read(r: &mut Reader, device_blocks: u32) -> Result<((Nid, u32), Chunk<Mapping>)> {
        let key = Blocks::read_key(r)?;
        let present = r.u64()?;
        let count = present.count_ones();
        let adjacent = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Nonsense("unknown kind of block list")),
        };
        let mut entries = Few::with_capacity(count as usize);
        let mut next = None;
        for i in 0..count {
            let device = match next {
                Some(next) if adjacent => next,
                _ => r.u32()?,
            };
            if device >= device_blocks {
                return Err(Nonsense("a block lies past the device's end"));
            }
            next = Some(device + 1);
            entries.insert(i as usize, Mapping { device, crc: 0 });
        }
        for mapping in entries.iter_mut() {
            mapping.crc = r.u32()?;
        }
        if entries.is_empty() {
            return Err(Nonsense("an empty stretch of blocks"));
        }
        Ok((key, Chunk { present, entries }))
    }
}

/// Omap entries by nid and key; measured in bytes of key and value.
pub(crate) struct Omap;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct OmapKey {
    pub(crate) nid: Nid,
    pub(crate) key: Short,
}

impl Kind for Omap {
    type Key = OmapKey;
    type Value = Arc<[u8]>;
    const PAGE_LEN: usize = 16 << 10;
    const OVERHEAD: usize = 96;

    fn value_weight(value: &Arc<[u8]>) -> usize {
        5 + value.len()
    }

    fn token(key: &OmapKey) -> u64 {
        key.nid
    }

    fn key_weight(key: &OmapKey) -> usize {
        15 + key.key.len()
    }

    fn measure(key: &OmapKey, value: &Arc<[u8]>) -> u64 {
        (key.key.len() + value.len()) as u64
    }

    fn put_key(out: &mut Vec<u8>, key: &OmapKey) {
        put_varint(out, key.nid);
        put_bytes(out, &key.key);
    }

    fn read_key(r: &mut Reader) -> Result<OmapKey> {
        Ok(OmapKey { nid: r.varint()?, key: r.with_bytes(|key| Short::from(key))? })
    }

    fn put(out: &mut Vec<u8>, key: &OmapKey, value: &Arc<[u8]>) {
        Omap::put_key(out, key);
        put_bytes(out, value);
    }

    fn read(r: &mut Reader, _device_blocks: u32) -> Result<(OmapKey, Arc<[u8]>)> {
        Ok((Omap::read_key(r)?, r.with_bytes(|value| Arc::from(value))?))
    }
}

/// References beyond the first to device blocks that clones share, by stretch
/// of 64 device blocks.
pub(crate) struct Shared;

impl Kind for Shared {
    type Key = u32;
    type Value = Chunk<u32>;
    const PAGE_LEN: usize = 4000;
    const OVERHEAD: usize = 56;

    fn value_weight(chunk: &Chunk<u32>) -> usize {
        8 + 5 * chunk.len()
    }

    fn token(key: &u32) -> u64 {
        u64::from(*key)
    }

    fn rank(key: &u32) -> u64 {
        u64::from(*key)
    }

    fn key_weight(_key: &u32) -> usize {
        5
    }

    fn put_key(out: &mut Vec<u8>, key: &u32) {
        put_varint(out, u64::from(*key));
    }

    fn read_key(r: &mut Reader) -> Result<u32> {
        r.narrow()
    }

    fn put(out: &mut Vec<u8>, key: &u32, chunk: &Chunk<u32>) {
        Shared::put_key(out, key);
        out.extend_from_slice(&chunk.present.to_le_bytes());
        chunk.entries.iter().for_each(|extra| put_varint(out, u64::from(*extra)));
    }

    fn read(r: &mut Reader, device_blocks: u32) -> Result<(u32, Chunk<u32>)> {
        let key = Shared::read_key(r)?;
        let present = r.u64()?;
        if present == 0 || key >= device_blocks.div_ceil(CHUNK_BLOCKS) {
            return Err(Nonsense("references to blocks that do not exist"));
        }
        let mut entries = Few::with_capacity(present.count_ones() as usize);
        for i in 0..present.count_ones() {
            entries.insert(i as usize, r.narrow()?);
        }
        if entries.contains(&0) {
            return Err(Nonsense("a shared block without a second owner"));
        }
        Ok((key, Chunk { present, entries }))
    }
}
