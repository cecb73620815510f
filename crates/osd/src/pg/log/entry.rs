//! One entry of the PG log, decoded.

use super::record;
use crate::exec::CloneChange;
use crate::pg::info::PgSums;
use base::WallTime;
use bytes::Bytes;
use wire::codec::{DecodeError, Result};
use wire::types::{EVersion, HObject, ReqId};
use wire::{Decode, Decoder, Encode, Encoder, Features};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    Modify,
    Delete,
    /// Changed nothing; remembers the answer.
    Error,
}

impl EntryKind {
    pub(super) fn code(self) -> u8 {
        match self {
            EntryKind::Modify => 1,
            EntryKind::Delete => 2,
            EntryKind::Error => 3,
        }
    }

    pub(super) fn from_code(code: u8) -> Result<EntryKind> {
        match code {
            1 => Ok(EntryKind::Modify),
            2 => Ok(EntryKind::Delete),
            3 => Ok(EntryKind::Error),
            _ => Err(DecodeError::Invalid { what: "log entry kind" }),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    pub kind: EntryKind,
    pub version: EVersion,
    /// The object's version before; ZERO if it did not exist.
    pub prior_version: EVersion,
    /// The object's user version after this entry, as the reply carries it.
    pub user_version: u64,
    /// The PG's highest user version after this entry.
    pub last_user_version: u64,
    pub reqid: ReqId,
    pub object: HObject,
    /// Made, changed or removed together with the object; each has a version of its own
    /// before this entry's.
    pub clones: Vec<CloneChange>,
    pub mtime: WallTime,
    /// The message's result.
    pub result: i32,
    /// Per operation, only for requests that asked for them.
    pub returns: Vec<(i32, Bytes)>,
    /// After this entry.
    pub sums: PgSums,
}

impl LogEntry {
    /// Versions that the entry takes.
    pub fn span(&self) -> u64 {
        1 + self.clones.len() as u64
    }

    /// Every object that it changes: version before, and version after unless it is gone.
    pub(super) fn touches(&self) -> impl Iterator<Item = (&HObject, EVersion, Option<EVersion>)> {
        let clones = self
            .clones
            .iter()
            .map(|clone| (&clone.object, clone.prior_version, (!clone.deleted).then_some(clone.version)));
        let object = match self.kind {
            EntryKind::Error => None,
            EntryKind::Modify => Some((&self.object, self.prior_version, Some(self.version))),
            EntryKind::Delete => Some((&self.object, self.prior_version, None)),
        };
        clones.chain(object)
    }

    /// After the version byte: 1 had no clones.
    fn decode_old(version: u8, d: &mut Decoder) -> Result<LogEntry> {
        let mut entry = LogEntry {
            kind: EntryKind::from_code(d.u8()?)?,
            version: d.get()?,
            prior_version: d.get()?,
            user_version: d.u64()?,
            last_user_version: d.u64()?,
            reqid: d.get()?,
            object: d.get()?,
            mtime: d.get()?,
            result: d.i32()?,
            returns: d.get()?,
            sums: if version == 1 { PgSums::decode_without_clones(d)? } else { d.get()? },
            clones: Vec::new(),
        };
        if version >= 2 {
            entry.clones = d.get()?;
        }
        Ok(entry)
    }
}

impl Encode for LogEntry {
    fn encode(&self, e: &mut Encoder) {
        e.raw(&self.to_bytes(e.features()));
    }

    fn to_bytes(&self, _: Features) -> Bytes {
        let mut record = Vec::with_capacity(record::USUAL_LEN);
        record::encode(self, &mut record);
        record.into()
    }
}

impl Decode for LogEntry {
    const MIN_LEN: usize = record::MIN_LEN;
    fn decode(d: &mut Decoder) -> Result<Self> {
        match d.rest().first() {
            Some(&record::VERSION) => {
                let (entry, len) = record::decode(d.rest())?;
                d.skip("log entry", len)?;
                Ok(entry)
            }
            Some(&version @ 1..=2) => {
                d.skip("log entry", 1)?;
                LogEntry::decode_old(version, d)
            }
            Some(_) => Err(DecodeError::Invalid { what: "log entry version" }),
            None => Err(DecodeError::Truncated { what: "log entry", need: 1, have: 0 }),
        }
    }
}
