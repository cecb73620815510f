//! The compact form of a log entry: in memory, in the store and between OSDs.
//!
//! Layout: docs/protocol/osd-peer.md, "Entry". What nearly every entry has in common costs
//! a bit or nothing, numbers are varints, versions are differences. The version and the
//! request id come first, because searches read them alone.

use super::entry::{EntryKind, LogEntry};
use crate::exec::CloneChange;
use crate::pg::info::PgSums;
use base::WallTime;
use bytes::Bytes;
use ecow::EcoString;
use wire::codec::{DecodeError, Result};
use wire::types::{EVersion, EntityName, EntityType, Epoch, HObject, PoolId, ReqId, SnapId};

/// The first byte.
pub const VERSION: u8 = 3;
/// An entry with an empty name, and everything else absent or zero.
pub const MIN_LEN: usize = 26;
/// That of a write to an image, rounded up.
pub const USUAL_LEN: usize = 128;

const KIND: u8 = 0x03;
const HAS_REQID: u8 = 0x04;
const HAS_PRIOR: u8 = 0x08;
/// A result other than 0, or returns.
const HAS_OUTCOME: u8 = 0x10;
const HAS_CLONES: u8 = 0x20;
const FLAGS: u8 = KIND | HAS_REQID | HAS_PRIOR | HAS_OUTCOME | HAS_CLONES;

const OBJECT_HEAD: u8 = 0x01;
/// A namespace or a locator key.
const OBJECT_PLACED: u8 = 0x02;
const OBJECT_MAX: u8 = 0x04;
const OBJECT_FORM: u8 = OBJECT_HEAD | OBJECT_PLACED | OBJECT_MAX;

pub fn encode(entry: &LogEntry, out: &mut Vec<u8>) {
    let has = |flag, present: bool| if present { flag } else { 0 };
    let has_outcome = entry.result != 0 || !entry.returns.is_empty();
    out.push(VERSION);
    out.push(
        entry.kind.code()
            | has(HAS_REQID, entry.reqid != ReqId::NONE)
            | has(HAS_PRIOR, entry.prior_version != EVersion::ZERO)
            | has(HAS_OUTCOME, has_outcome)
            | has(HAS_CLONES, !entry.clones.is_empty()),
    );
    put_varint(out, entry.version.version);
    put_varint(out, entry.version.epoch.0.into());
    if entry.reqid != ReqId::NONE {
        out.push(entry.reqid.name.kind.as_u8());
        put_signed(out, entry.reqid.name.num);
        put_varint(out, entry.reqid.tid);
        put_signed(out, entry.reqid.inc.into());
    }
    if entry.prior_version != EVersion::ZERO {
        put_version_before(out, entry.prior_version, entry.version);
    }
    put_difference(out, entry.version.version, entry.user_version);
    put_difference(out, entry.last_user_version, entry.user_version);
    put_object(out, &entry.object);
    out.extend_from_slice(&entry.mtime.sec.to_le_bytes());
    out.extend_from_slice(&entry.mtime.nsec.to_le_bytes());
    if has_outcome {
        put_signed(out, entry.result.into());
        put_varint(out, entry.returns.len() as u64);
        for (code, output) in &entry.returns {
            put_signed(out, (*code).into());
            put_bytes(out, output);
        }
    }
    let PgSums { objects, bytes, omap_keys, omap_bytes, clones } = entry.sums;
    [objects, bytes, omap_keys, omap_bytes, clones].into_iter().for_each(|sum| put_signed(out, sum));
    if !entry.clones.is_empty() {
        put_varint(out, entry.clones.len() as u64);
        entry.clones.iter().for_each(|clone| put_clone(out, clone, entry));
    }
}

/// The entry and the length of its record, after which other bytes may follow.
pub fn decode(record: &[u8]) -> Result<(LogEntry, usize)> {
    let mut r = Reader { rest: record };
    let (flags, version) = r.start()?;
    let reqid = r.reqid(flags)?;
    let prior_version = match flags & HAS_PRIOR {
        0 => EVersion::ZERO,
        _ => r.version_before(version)?,
    };
    let user_version = r.difference(version.version)?;
    let last_user_version = user_version.wrapping_add(r.signed()? as u64);
    let object = r.object()?;
    let mtime = WallTime { sec: r.u32()?, nsec: r.u32()? };
    let (result, returns) = match flags & HAS_OUTCOME {
        0 => (0, Vec::new()),
        _ => (r.narrow()?, r.list(|r| Ok((r.narrow()?, Bytes::copy_from_slice(r.bytes()?))))?),
    };
    let sums = PgSums {
        objects: r.signed()?,
        bytes: r.signed()?,
        omap_keys: r.signed()?,
        omap_bytes: r.signed()?,
        clones: r.signed()?,
    };
    let clones = match flags & HAS_CLONES {
        0 => Vec::new(),
        _ => r.list(|r| r.clone_change(version))?,
    };
    let entry = LogEntry {
        kind: EntryKind::from_code(flags & KIND)?,
        version,
        prior_version,
        user_version,
        last_user_version,
        reqid,
        object,
        clones,
        mtime,
        result,
        returns,
        sums,
    };
    Ok((entry, record.len() - r.rest.len()))
}

pub fn version_of(record: &[u8]) -> Result<EVersion> {
    Ok(Reader { rest: record }.start()?.1)
}

pub fn reqid_of(record: &[u8]) -> Result<ReqId> {
    let mut r = Reader { rest: record };
    let (flags, _) = r.start()?;
    r.reqid(flags)
}

fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Small whatever the sign is: 0, -1, 1, -2, …
fn put_signed(out: &mut Vec<u8>, v: i64) {
    put_varint(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// A number near another; any two have a difference.
fn put_difference(out: &mut Vec<u8>, near: u64, v: u64) {
    put_signed(out, near.wrapping_sub(v) as i64);
}

fn put_version_before(out: &mut Vec<u8>, version: EVersion, later: EVersion) {
    put_difference(out, later.version, version.version);
    put_signed(out, i64::from(later.epoch.0) - i64::from(version.epoch.0));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_object(out: &mut Vec<u8>, object: &HObject) {
    let mut form = 0;
    if object.snap == SnapId::HEAD {
        form |= OBJECT_HEAD;
    }
    if !(object.nspace.is_empty() && object.key.is_empty()) {
        form |= OBJECT_PLACED;
    }
    if object.is_max {
        form |= OBJECT_MAX;
    }
    out.push(form);
    out.extend_from_slice(&object.hash.to_le_bytes());
    put_signed(out, object.pool.0);
    put_bytes(out, object.name.as_bytes());
    if form & OBJECT_PLACED != 0 {
        put_bytes(out, object.nspace.as_bytes());
        put_bytes(out, object.key.as_bytes());
    }
    if form & OBJECT_HEAD == 0 {
        put_varint(out, object.snap.0);
    }
}

fn put_clone(out: &mut Vec<u8>, clone: &CloneChange, entry: &LogEntry) {
    put_object(out, &clone.object);
    out.push(clone.deleted.into());
    put_version_before(out, clone.version, entry.version);
    put_version_before(out, clone.prior_version, entry.version);
    for snaps in [&clone.snaps, &clone.dropped] {
        put_varint(out, snaps.len() as u64);
        snaps.iter().for_each(|snap| put_varint(out, snap.0));
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let have = self.rest.len();
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated {
            what: "log entry",
            need: len,
            have,
        })?;
        self.rest = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn varint(&mut self) -> Result<u64> {
        // Most of them are small.
        if let Some((byte @ 0..0x80, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok((*byte).into());
        }
        let mut v = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            v |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(v);
            }
        }
        Err(DecodeError::Invalid { what: "number in a log entry" })
    }

    fn signed(&mut self) -> Result<i64> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    fn narrow(&mut self) -> Result<i32> {
        i32::try_from(self.signed()?).map_err(|_| DecodeError::Invalid { what: "number in a log entry" })
    }

    fn difference(&mut self, near: u64) -> Result<u64> {
        Ok(near.wrapping_sub(self.signed()? as u64))
    }

    fn version_before(&mut self, later: EVersion) -> Result<EVersion> {
        let version = self.difference(later.version)?;
        let epoch = i64::from(later.epoch.0).checked_sub(self.signed()?).and_then(|e| u32::try_from(e).ok());
        let epoch = epoch.ok_or(DecodeError::Invalid { what: "epoch in a log entry" })?;
        Ok(EVersion::new(Epoch(epoch), version))
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn text(&mut self) -> Result<EcoString> {
        let text = std::str::from_utf8(self.bytes()?);
        text.map(EcoString::from).map_err(|_| DecodeError::Invalid { what: "UTF-8 string" })
    }

    /// Grows as items prove real: the count may be a lie.
    fn list<T>(&mut self, item: impl Fn(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        let count = self.varint()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Flags and version.
    fn start(&mut self) -> Result<(u8, EVersion)> {
        if self.u8()? != VERSION {
            return Err(DecodeError::Invalid { what: "log entry version" });
        }
        let flags = self.u8()?;
        if flags & !FLAGS != 0 {
            return Err(DecodeError::Invalid { what: "log entry flags" });
        }
        let version = self.varint()?;
        let epoch = u32::try_from(self.varint()?);
        let epoch = epoch.map_err(|_| DecodeError::Invalid { what: "epoch in a log entry" })?;
        Ok((flags, EVersion::new(Epoch(epoch), version)))
    }

    fn reqid(&mut self, flags: u8) -> Result<ReqId> {
        if flags & HAS_REQID == 0 {
            return Ok(ReqId::NONE);
        }
        let kind = EntityType::from_u8(self.u8()?).ok_or(DecodeError::Invalid { what: "entity type" })?;
        let name = EntityName { kind, num: self.signed()? };
        Ok(ReqId { name, tid: self.varint()?, inc: self.narrow()? })
    }

    fn object(&mut self) -> Result<HObject> {
        let form = self.u8()?;
        if form & !OBJECT_FORM != 0 {
            return Err(DecodeError::Invalid { what: "object of a log entry" });
        }
        let mut object = HObject {
            hash: self.u32()?,
            pool: PoolId(self.signed()?),
            name: self.text()?,
            is_max: form & OBJECT_MAX != 0,
            ..HObject::default()
        };
        if form & OBJECT_PLACED != 0 {
            object.nspace = self.text()?;
            object.key = self.text()?;
        }
        object.snap = match form & OBJECT_HEAD {
            0 => SnapId(self.varint()?),
            _ => SnapId::HEAD,
        };
        Ok(object)
    }

    fn clone_change(&mut self, version: EVersion) -> Result<CloneChange> {
        Ok(CloneChange {
            object: self.object()?,
            deleted: self.u8()? != 0,
            version: self.version_before(version)?,
            prior_version: self.version_before(version)?,
            snaps: self.list(|r| Ok(SnapId(r.varint()?)))?,
            dropped: self.list(|r| Ok(SnapId(r.varint()?)))?,
        })
    }
}
