//! Headers of the first format (`NAME.rbd`): one struct that clients read whole.
//!
//! ```text
//!   0  text, with a zero byte          80  u64 image size     104  u64 length of names
//!  40  prefix of the data objects      88  u64 snap seq       112  per snapshot, newest first:
//!  64  signature, 68 version           96  u32 snap count          u64 id, u64 size
//!  76  order, crypt, compression      100  u32 0                   then their names, each
//!                                                                  with a zero byte
//! ```
//!
//! Source: Ceph 16.2 `src/include/rbd_types.h`.

use super::stored::{DONE, optional, read};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use wire::{Decoder, Encoder};

pub const HEADER_TEXT: &[u8] = b"<<< Rados Block Device Image >>>\n\0";
pub const MIGRATING_TEXT: &[u8] = b"<<< Migrating RBD Image      >>>\n\0";

const IMAGE_SIZE: usize = 80;
const SNAP_SEQ: usize = 88;
const SNAP_COUNT: usize = 96;
const NAMES_LEN: usize = 104;
const LEN: usize = 112;
const SNAP_LEN: usize = 16;

struct OldSnap {
    id: u64,
    size: u64,
    name: Bytes,
}

/// The fixed part, and what follows it.
pub struct OldHeader {
    fixed: Vec<u8>,
    tail: Bytes,
}

impl OldHeader {
    /// None if the object is too short to be one.
    pub fn read(object: &mut dyn Object) -> Result<Option<OldHeader>, Fault> {
        let mut raw = object.read(0, 0)?;
        if raw.len() < LEN {
            return Ok(None);
        }
        let fixed = raw.split_to(LEN).to_vec();
        Ok(Some(OldHeader { fixed, tail: raw }))
    }

    fn u64_at(&self, at: usize) -> u64 {
        self.fixed[at..].first_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.fixed[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn snap_count(&self) -> u32 {
        self.fixed[SNAP_COUNT..].first_chunk().copied().map_or(0, u32::from_le_bytes)
    }

    /// EIO if the header promises more than there is.
    fn snaps(&self) -> Result<Vec<OldSnap>, Fault> {
        let damaged = || Fault::Errno(Errno::EIO);
        let mut d = Decoder::plain(self.tail.clone());
        let mut records = d.take("snapshots", SNAP_LEN.saturating_mul(self.snap_count() as usize));
        let records = records.as_mut().map_err(|_| damaged())?;
        let names_len = usize::try_from(self.u64_at(NAMES_LEN)).unwrap_or(usize::MAX);
        let mut names = d.take("names", names_len).map_err(|_| damaged())?;
        let mut snaps = Vec::new();
        for record in records.chunks_exact(SNAP_LEN) {
            let (id, size) = record.split_at(8);
            let number = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
            let end = names.iter().position(|c| *c == 0).ok_or_else(damaged)?;
            let name = names.split_to(end + 1).slice(..end);
            snaps.push(OldSnap { id: number(id), size: number(size), name });
        }
        Ok(snaps)
    }

    fn store(mut self, object: &mut dyn Object, snaps: &[OldSnap]) -> Result<(), Fault> {
        let names_len: usize = snaps.iter().map(|snap| snap.name.len() + 1).sum();
        self.put(SNAP_COUNT, &(snaps.len() as u32).to_le_bytes());
        self.put(NAMES_LEN, &(names_len as u64).to_le_bytes());
        let mut e = Encoder::plain();
        e.raw(&self.fixed);
        for snap in snaps {
            e.u64(snap.id);
            e.u64(snap.size);
        }
        for snap in snaps {
            e.raw(&snap.name);
            e.u8(0);
        }
        object.write_full(e.finish())
    }
}

/// EINVAL if it is not one.
fn header(object: &mut dyn Object) -> Result<OldHeader, Fault> {
    Ok(OldHeader::read(object)?.ok_or(Errno::EINVAL)?)
}

/// Names end at a zero byte.
fn name(d: &mut Decoder) -> Result<Bytes, Fault> {
    let name = d.blob()?;
    let end = name.iter().position(|c| *c == 0).unwrap_or(name.len());
    Ok(name.slice(..end))
}

pub fn snap_list(object: &mut dyn Object, _: Bytes) -> Output {
    let header = header(object)?;
    let mut e = Encoder::plain();
    e.u64(header.u64_at(SNAP_SEQ));
    e.u32(header.snap_count());
    for snap in header.snaps()? {
        e.u64(snap.id);
        e.u64(snap.size);
        e.put(&snap.name);
    }
    Ok(e.finish())
}

/// ESTALE below the newest id, EEXIST for a used name, EDQUOT over the limit.
pub fn snap_add(object: &mut dyn Object, input: Bytes) -> Output {
    let mut header = header(object)?;
    let mut args = Decoder::plain(input);
    let (name, id) = (name(&mut args)?, args.u64()?);
    if header.u64_at(SNAP_SEQ) > id {
        return Err(Errno::ESTALE.into());
    }
    let limit: u64 = optional(read(object, "snap_limit"))?.unwrap_or(u64::MAX);
    if u64::from(header.snap_count()) >= limit {
        return Err(Errno::EDQUOT.into());
    }
    let mut snaps = header.snaps()?;
    if snaps.iter().any(|snap| snap.name == name) {
        return Err(Errno::EEXIST.into());
    }
    snaps.insert(0, OldSnap { id, size: header.u64_at(IMAGE_SIZE), name });
    header.put(SNAP_SEQ, &id.to_le_bytes());
    header.store(object, &snaps)?;
    DONE
}

pub fn snap_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let header = header(object)?;
    let name = name(&mut Decoder::plain(input))?;
    let mut snaps = header.snaps()?;
    let at = snaps.iter().position(|snap| snap.name == name).ok_or(Errno::ENOENT)?;
    snaps.remove(at);
    header.store(object, &snaps)?;
    DONE
}

pub fn snap_rename(object: &mut dyn Object, input: Bytes) -> Output {
    let header = header(object)?;
    let mut args = Decoder::plain(input);
    let (id, name) = (args.u64()?, name(&mut args)?);
    let mut snaps = header.snaps()?;
    if snaps.iter().any(|snap| snap.name == name) {
        return Err(Errno::EEXIST.into());
    }
    snaps.iter_mut().find(|snap| snap.id == id).ok_or(Errno::ENOENT)?.name = name;
    header.store(object, &snaps)?;
    DONE
}
