//! What a log record says: changes as they were carried out, with the device
//! blocks that were chosen, so that replay makes no decision of its own.
//!
//! Layout: docs/formats/store.md, "Operations". Integers are LEB128 varints;
//! an object is named once in a record and by its number afterwards.

use crate::alloc::Run;
use crate::api::{CollId, ObjectId};
use crate::blocks::OBJECT_BLOCKS_MAX;
use crate::key_map::KeyMap;
use crate::limits::{self, OBJECT_LEN_MAX};
use crate::name::token_of;
use bytes::Bytes;
use std::sync::Arc;
use wire::types::{HObject, PgId, PoolId, SnapId};

/// Bytes that no writer of ours produced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nonsense(pub(crate) &'static str);

pub(crate) type Result<T> = std::result::Result<T, Nonsense>;

/// One change of the index. `Map` with `logged` finds its checksums in the
/// record's data table; without, its data went straight to the device.
#[derive(Clone, Debug)]
pub(crate) enum LogOp<'a> {
    CreateCollection(CollId),
    RemoveCollection(CollId),
    Touch(&'a ObjectId),
    /// Creates the object; does not touch the map.
    SetSize {
        id: &'a ObjectId,
        size: u64,
    },
    /// Maps adjacent blocks to adjacent device blocks, one for each checksum.
    Map {
        id: &'a ObjectId,
        block: u32,
        device: u32,
        crcs: &'a [u32],
        logged: bool,
    },
    Unmap {
        id: &'a ObjectId,
        block: u32,
        count: u32,
    },
    Remove(&'a ObjectId),
    SetXattr {
        id: &'a ObjectId,
        name: &'a str,
        value: &'a [u8],
    },
    RmXattr {
        id: &'a ObjectId,
        name: &'a str,
    },
    ClearXattrs(&'a ObjectId),
    SetOmapHeader {
        id: &'a ObjectId,
        header: &'a [u8],
    },
    SetOmap {
        id: &'a ObjectId,
        key: &'a [u8],
        value: &'a [u8],
    },
    RmOmap {
        id: &'a ObjectId,
        key: &'a [u8],
    },
    RmOmapRange {
        id: &'a ObjectId,
        start: &'a [u8],
        end: &'a [u8],
    },
    ClearOmap(&'a ObjectId),
    Clone {
        from: &'a ObjectId,
        to: &'a ObjectId,
    },
    Rename {
        from: &'a ObjectId,
        to: &'a ObjectId,
    },
}

impl LogOp<'_> {
    /// Its object exists afterwards, whether it did before or not.
    pub(crate) fn gives(&self) -> bool {
        use LogOp::{Map, SetOmap, SetOmapHeader, SetSize, SetXattr, Touch};
        matches!(
            self,
            Touch(_) | SetSize { .. } | Map { .. } | SetXattr { .. } | SetOmap { .. } | SetOmapHeader { .. }
        )
    }
}

mod tag {
    pub(super) const CREATE_COLLECTION: u8 = 1;
    pub(super) const REMOVE_COLLECTION: u8 = 2;
    pub(super) const TOUCH: u8 = 3;
    pub(super) const SET_SIZE: u8 = 4;
    pub(super) const MAP_LOGGED: u8 = 5;
    pub(super) const MAP_DIRECT: u8 = 6;
    pub(super) const UNMAP: u8 = 7;
    pub(super) const REMOVE: u8 = 8;
    pub(super) const SET_XATTR: u8 = 9;
    pub(super) const RM_XATTR: u8 = 10;
    pub(super) const CLEAR_XATTRS: u8 = 11;
    pub(super) const SET_OMAP_HEADER: u8 = 12;
    pub(super) const SET_OMAP: u8 = 13;
    pub(super) const RM_OMAP: u8 = 14;
    pub(super) const RM_OMAP_RANGE: u8 = 15;
    pub(super) const CLEAR_OMAP: u8 = 16;
    pub(super) const CLONE: u8 = 17;
    pub(super) const RENAME: u8 = 18;
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn raw_pg(pg: PgId) -> [u8; 13] {
    let mut raw = [1; 13];
    raw[1..9].copy_from_slice(&pg.pool.0.to_le_bytes());
    raw[9..].copy_from_slice(&pg.seed.to_le_bytes());
    raw
}

pub(crate) fn put_coll(out: &mut Vec<u8>, coll: CollId) {
    match coll {
        CollId::Meta => out.push(0),
        CollId::Pg(pg) => out.extend_from_slice(&raw_pg(pg)),
    }
}

/// All but the strings. `is_max` is kept although no stored object should have it.
fn raw_object(object: &HObject) -> [u8; 21] {
    let mut raw = [0; 21];
    raw[0] = u8::from(object.is_max);
    raw[1..9].copy_from_slice(&object.pool.0.to_le_bytes());
    raw[9..13].copy_from_slice(&object.hash.to_le_bytes());
    raw[13..].copy_from_slice(&object.snap.0.to_le_bytes());
    raw
}

pub(crate) fn put_object(out: &mut Vec<u8>, object: &HObject) {
    out.extend_from_slice(&raw_object(object));
    put_bytes(out, object.nspace.as_bytes());
    put_bytes(out, object.key.as_bytes());
    put_bytes(out, object.name.as_bytes());
}

/// Reads what the `put_` functions wrote. Every length is checked against what is left.
#[derive(Clone)]
pub(crate) struct Reader {
    buf: Bytes,
}

impl Reader {
    pub(crate) fn new(buf: Bytes) -> Reader {
        Reader { buf }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<Bytes> {
        if len > self.buf.len() {
            return Err(Nonsense("a field reaches past the end"));
        }
        Ok(self.buf.split_to(len))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let found = *self.buf.first_chunk::<N>().ok_or(Nonsense("a field is cut short"))?;
        bytes::Buf::advance(&mut self.buf, N);
        Ok(found)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            v |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(v);
            }
        }
        Err(Nonsense("a varint is too long"))
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes> {
        let len = self.varint()?;
        self.take(usize::try_from(len).map_err(|_| Nonsense("a length is too large"))?)
    }

    /// Hands the next bytes to `read`, which keeps no share of the buffer.
    pub(crate) fn with_bytes<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let len = usize::try_from(self.varint()?).map_err(|_| Nonsense("a length is too large"))?;
        let result = read(self.buf.get(..len).ok_or(Nonsense("a field reaches past the end"))?);
        bytes::Buf::advance(&mut self.buf, len);
        Ok(result)
    }

    /// A name, as whatever keeps text.
    pub(crate) fn text<T: for<'a> From<&'a str>>(&mut self) -> Result<T> {
        let text = self.with_bytes(|raw| str::from_utf8(raw).map(T::from))?;
        text.map_err(|_| Nonsense("a name is not UTF-8"))
    }

    /// Within an object: at most [`OBJECT_BLOCKS_MAX`].
    pub(crate) fn block(&mut self) -> Result<u32> {
        let block = self.varint()?;
        if block >= OBJECT_BLOCKS_MAX {
            return Err(Nonsense("a block lies past the largest object"));
        }
        Ok(block as u32)
    }

    pub(crate) fn narrow(&mut self) -> Result<u32> {
        u32::try_from(self.varint()?).map_err(|_| Nonsense("a number is too large"))
    }

    pub(crate) fn size(&mut self) -> Result<u64> {
        let size = self.varint()?;
        if size > OBJECT_LEN_MAX {
            return Err(Nonsense("a size is above the largest object"));
        }
        Ok(size)
    }

    pub(crate) fn coll(&mut self) -> Result<CollId> {
        match self.u8()? {
            0 => Ok(CollId::Meta),
            1 => Ok(CollId::Pg(PgId { pool: PoolId(self.u64()? as i64), seed: self.u32()? })),
            _ => Err(Nonsense("unknown kind of collection")),
        }
    }

    pub(crate) fn object(&mut self) -> Result<HObject> {
        let is_max = match self.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Nonsense("unknown kind of object")),
        };
        let object = HObject {
            is_max,
            pool: PoolId(self.u64()? as i64),
            hash: self.u32()?,
            snap: SnapId(self.u64()?),
            nspace: self.text()?,
            key: self.text()?,
            name: self.text()?,
        };
        let len = object.nspace.len() + object.key.len() + object.name.len();
        if len as u64 > limits::OBJECT_NAME_LEN_MAX {
            return Err(Nonsense("an object's name is too long"));
        }
        Ok(object)
    }

    /// At least one block, all on the device.
    pub(crate) fn run(&mut self, device_blocks: u32) -> Result<Run> {
        let (start, count) = (self.narrow()?, self.narrow()?);
        match start.checked_add(count) {
            Some(end) if count > 0 && end <= device_blocks => Ok(Run { start, count }),
            _ => Err(Nonsense("a run of blocks lies past the device's end")),
        }
    }
}

/// Collects the operations of one record.
#[derive(Default)]
pub(crate) struct OpWriter {
    pub(crate) out: Vec<u8>,
    /// By number.
    names: Vec<Named>,
    /// The newest name with a [`key_of`].
    newest: KeyMap<u64, u32>,
    /// Numbers of the last ones used: most operations repeat one of them.
    recent: [u32; 2],
}

struct Named {
    id: Arc<ObjectId>,
    /// Named before it, with the same [`key_of`].
    before: Option<u32>,
}

/// Several names with the same one make a search longer, never wrong.
fn key_of(id: &ObjectId) -> u64 {
    token_of(id).rotate_left(32) ^ (id.object.snap.0 & 0xffff_ffff)
}

/// Names as the index holds them: one that it has is one place in memory, so that
/// names need not be compared.
pub(crate) trait Names {
    fn name(&self, id: &ObjectId) -> Option<&Arc<ObjectId>>;
}

impl OpWriter {
    /// Empties it for another record, and keeps its memory.
    pub(crate) fn reset(&mut self) {
        self.out.clear();
        self.names.clear();
        self.newest.clear();
        self.recent = [0; 2];
    }

    /// Writes the object's number; a new one is the next, and its name follows.
    fn id(&mut self, id: &ObjectId, names: &impl Names) {
        let held = names.name(id);
        let number = match self.recent_number(held).or_else(|| self.number_of(id)) {
            Some(number) => {
                put_varint(&mut self.out, u64::from(number));
                number
            }
            None => {
                let number = self.names.len() as u32;
                put_varint(&mut self.out, u64::from(number));
                put_coll(&mut self.out, id.coll);
                put_object(&mut self.out, &id.object);
                let before = self.newest.insert(key_of(id), number);
                let id = held.cloned().unwrap_or_else(|| Arc::new(id.clone()));
                self.names.push(Named { id, before });
                number
            }
        };
        if number != self.recent[0] {
            self.recent = [number, self.recent[0]];
        }
    }

    fn recent_number(&self, held: Option<&Arc<ObjectId>>) -> Option<u32> {
        let held = held?;
        let is_it =
            |number: &u32| self.names.get(*number as usize).is_some_and(|named| Arc::ptr_eq(&named.id, held));
        self.recent.into_iter().find(is_it)
    }

    fn number_of(&self, id: &ObjectId) -> Option<u32> {
        let mut candidate = self.newest.get(&key_of(id)).copied();
        while let Some(number) = candidate {
            let named = &self.names[number as usize];
            if *named.id == *id {
                return Some(number);
            }
            candidate = named.before;
        }
        None
    }

    pub(crate) fn push(&mut self, op: &LogOp<'_>, names: &impl Names) {
        match op {
            LogOp::CreateCollection(coll) => {
                self.out.push(tag::CREATE_COLLECTION);
                put_coll(&mut self.out, *coll);
            }
            LogOp::RemoveCollection(coll) => {
                self.out.push(tag::REMOVE_COLLECTION);
                put_coll(&mut self.out, *coll);
            }
            LogOp::Touch(id) => self.named(tag::TOUCH, id, names),
            LogOp::SetSize { id, size } => {
                self.named(tag::SET_SIZE, id, names);
                put_varint(&mut self.out, *size);
            }
            LogOp::Map { id, block, device, crcs, logged } => {
                self.named(if *logged { tag::MAP_LOGGED } else { tag::MAP_DIRECT }, id, names);
                put_varint(&mut self.out, u64::from(*block));
                put_varint(&mut self.out, u64::from(*device));
                put_varint(&mut self.out, crcs.len() as u64);
                if !*logged {
                    crcs.iter().for_each(|crc| self.out.extend_from_slice(&crc.to_le_bytes()));
                }
            }
            LogOp::Unmap { id, block, count } => {
                self.named(tag::UNMAP, id, names);
                put_varint(&mut self.out, u64::from(*block));
                put_varint(&mut self.out, u64::from(*count));
            }
            LogOp::Remove(id) => self.named(tag::REMOVE, id, names),
            LogOp::SetXattr { id, name, value } => {
                self.named(tag::SET_XATTR, id, names);
                put_bytes(&mut self.out, name.as_bytes());
                put_bytes(&mut self.out, value);
            }
            LogOp::RmXattr { id, name } => {
                self.named(tag::RM_XATTR, id, names);
                put_bytes(&mut self.out, name.as_bytes());
            }
            LogOp::ClearXattrs(id) => self.named(tag::CLEAR_XATTRS, id, names),
            LogOp::SetOmapHeader { id, header } => {
                self.named(tag::SET_OMAP_HEADER, id, names);
                put_bytes(&mut self.out, header);
            }
            LogOp::SetOmap { id, key, value } => {
                self.named(tag::SET_OMAP, id, names);
                put_bytes(&mut self.out, key);
                put_bytes(&mut self.out, value);
            }
            LogOp::RmOmap { id, key } => {
                self.named(tag::RM_OMAP, id, names);
                put_bytes(&mut self.out, key);
            }
            LogOp::RmOmapRange { id, start, end } => {
                self.named(tag::RM_OMAP_RANGE, id, names);
                put_bytes(&mut self.out, start);
                put_bytes(&mut self.out, end);
            }
            LogOp::ClearOmap(id) => self.named(tag::CLEAR_OMAP, id, names),
            LogOp::Clone { from, to } => {
                self.named(tag::CLONE, from, names);
                self.id(to, names);
            }
            LogOp::Rename { from, to } => {
                self.named(tag::RENAME, from, names);
                self.id(to, names);
            }
        }
    }

    fn named(&mut self, tag: u8, id: &ObjectId, names: &impl Names) {
        self.out.push(tag);
        self.id(id, names);
    }
}

/// Reads the operations of one record back, each handed to `apply`.
///
/// `crc_of` answers for the blocks of the record's data table.
pub(crate) fn replay(
    ops: Bytes,
    device_blocks: u32,
    crc_of: impl Fn(u32) -> Option<u32>,
    mut apply: impl FnMut(&LogOp<'_>) -> Result<()>,
) -> Result<()> {
    let mut r = Reader::new(ops);
    let mut names: Vec<ObjectId> = Vec::new();
    while !r.is_empty() {
        let tag = r.u8()?;
        match tag {
            tag::CREATE_COLLECTION => apply(&LogOp::CreateCollection(r.coll()?))?,
            tag::REMOVE_COLLECTION => apply(&LogOp::RemoveCollection(r.coll()?))?,
            tag::CLONE | tag::RENAME => {
                let from = read_id(&mut r, &mut names)?;
                let to = read_id(&mut r, &mut names)?;
                let (from, to) = (&names[from], &names[to]);
                apply(&match tag {
                    tag::CLONE => LogOp::Clone { from, to },
                    _ => LogOp::Rename { from, to },
                })?;
            }
            _ => {
                let at = read_id(&mut r, &mut names)?;
                replay_one(tag, &names[at], &mut r, device_blocks, &crc_of, &mut apply)?;
            }
        }
    }
    Ok(())
}

fn read_id(r: &mut Reader, names: &mut Vec<ObjectId>) -> Result<usize> {
    let number = r.narrow()? as usize;
    if number > names.len() {
        return Err(Nonsense("an object's number was not introduced"));
    }
    if number == names.len() {
        names.push(ObjectId { coll: r.coll()?, object: r.object()? });
    }
    Ok(number)
}

fn replay_one(
    tag: u8,
    id: &ObjectId,
    r: &mut Reader,
    device_blocks: u32,
    crc_of: &impl Fn(u32) -> Option<u32>,
    apply: &mut impl FnMut(&LogOp<'_>) -> Result<()>,
) -> Result<()> {
    match tag {
        tag::TOUCH => apply(&LogOp::Touch(id)),
        tag::SET_SIZE => apply(&LogOp::SetSize { id, size: r.size()? }),
        tag::MAP_LOGGED | tag::MAP_DIRECT => {
            let block = r.block()?;
            let run = r.run(device_blocks)?;
            if u64::from(block) + u64::from(run.count) > OBJECT_BLOCKS_MAX {
                return Err(Nonsense("a mapping reaches past the largest object"));
            }
            let logged = tag == tag::MAP_LOGGED;
            let crcs = if logged {
                let found = (run.start..run.end()).map(crc_of).collect::<Option<Vec<u32>>>();
                found.ok_or(Nonsense("a mapped block is missing from the record"))?
            } else {
                let len = run.count as usize * 4;
                let raw = r.take(len)?;
                raw.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
            };
            apply(&LogOp::Map { id, block, device: run.start, crcs: &crcs, logged })
        }
        tag::UNMAP => {
            let (block, count) = (r.block()?, r.narrow()?);
            apply(&LogOp::Unmap { id, block, count })
        }
        tag::REMOVE => apply(&LogOp::Remove(id)),
        tag::SET_XATTR => {
            let (name, value): (String, Bytes) = (r.text()?, r.bytes()?);
            apply(&LogOp::SetXattr { id, name: &name, value: &value })
        }
        tag::RM_XATTR => apply(&LogOp::RmXattr { id, name: &r.text::<String>()? }),
        tag::CLEAR_XATTRS => apply(&LogOp::ClearXattrs(id)),
        tag::SET_OMAP_HEADER => apply(&LogOp::SetOmapHeader { id, header: &r.bytes()? }),
        tag::SET_OMAP => {
            let (key, value) = (r.bytes()?, r.bytes()?);
            apply(&LogOp::SetOmap { id, key: &key, value: &value })
        }
        tag::RM_OMAP => apply(&LogOp::RmOmap { id, key: &r.bytes()? }),
        tag::RM_OMAP_RANGE => {
            let (start, end) = (r.bytes()?, r.bytes()?);
            apply(&LogOp::RmOmapRange { id, start: &start, end: &end })
        }
        tag::CLEAR_OMAP => apply(&LogOp::ClearOmap(id)),
        _ => Err(Nonsense("unknown operation")),
    }
}
