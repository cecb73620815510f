//! The PG log: the last changes of a PG, in order.
//!
//! It serves three purposes: replicas that were away catch up from it, copies
//! that diverged are set right by comparing logs, and a resent request is
//! recognised by its id.
//!
//! Shape:  entries ascending; `version.version` counts up by one for each object that
//!         an entry changes. Entries at or
//!         before `tail` are kept only to recognise duplicates; entries after
//!         it are complete, so a peer that has everything up to `tail` can
//!         catch up from here.
//! Stored: one omap entry per log entry in the PG's meta object, written in the
//!         transaction of the change itself. Each entry carries the PG's sums
//!         after it, so that a write updates no other record.
//!
//! Source: Ceph `src/osd/PGLog.{h,cc}`.

use super::info::PgSums;
use super::missing::Missing;
use crate::exec::CloneChange;
use base::WallTime;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use wire::codec::{DecodeError, Result};
use wire::types::{EVersion, HObject, ReqId};
use wire::{Decode, Decoder, Encode, Encoder};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    Modify,
    Delete,
    /// Changed nothing; remembers the answer.
    Error,
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
    fn touches(&self) -> impl Iterator<Item = (&HObject, EVersion, Option<EVersion>)> {
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
}

impl Encode for LogEntry {
    fn encode(&self, e: &mut Encoder) {
        e.u8(2);
        e.u8(match self.kind {
            EntryKind::Modify => 1,
            EntryKind::Delete => 2,
            EntryKind::Error => 3,
        });
        e.put(&self.version);
        e.put(&self.prior_version);
        e.u64(self.user_version);
        e.u64(self.last_user_version);
        e.put(&self.reqid);
        e.put(&self.object);
        e.put(&self.mtime);
        e.i32(self.result);
        e.put(&self.returns);
        e.put(&self.sums);
        e.put(&self.clones);
    }
}

impl Decode for LogEntry {
    const MIN_LEN: usize = 150;
    fn decode(d: &mut Decoder) -> Result<Self> {
        // The first had no clones.
        let version = d.u8()?;
        if !(1..=2).contains(&version) {
            return Err(DecodeError::Invalid { what: "log entry version" });
        }
        let mut entry = LogEntry {
            kind: match d.u8()? {
                1 => EntryKind::Modify,
                2 => EntryKind::Delete,
                3 => EntryKind::Error,
                _ => return Err(DecodeError::Invalid { what: "log entry kind" }),
            },
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

/// What merging another log did; the caller turns it into a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// Entries that were ours alone and are gone, ascending.
    pub divergent: Vec<LogEntry>,
    /// Entries now in the log that were not.
    pub added: usize,
    /// Objects whose content in the store must go: divergent, or deleted meanwhile.
    pub remove: BTreeSet<HObject>,
}

/// The tail has moved, and these entries are gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trimmed {
    pub removed: Vec<EVersion>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MergeError {
    /// Our log does not reach back to, or does not have, the common version.
    /// Ask again from our newest version at or before it, or copy everything.
    #[error("no entry {base} in the log; the newest before it is {before:?}")]
    NoBase { base: EVersion, before: Option<EVersion> },
    #[error("entries are out of order")]
    OutOfOrder,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PgLog {
    entries: VecDeque<LogEntry>,
    tail: EVersion,
    /// Only looked up, never iterated: its order decides nothing.
    by_reqid: HashMap<ReqId, EVersion, BuildHasherDefault<DefaultHasher>>,
}

impl PgLog {
    /// From stored or received entries.
    pub fn from_entries(entries: Vec<LogEntry>, tail: EVersion) -> Result<PgLog> {
        let mut log = PgLog { tail, ..PgLog::default() };
        for entry in entries {
            if log.entries.back().is_some_and(|last| !follows(last.version, &entry)) {
                return Err(DecodeError::Invalid { what: "order of log entries" });
            }
            log.push(entry);
        }
        if log.head() < tail {
            return Err(DecodeError::Invalid { what: "log tail" });
        }
        Ok(log)
    }

    pub fn head(&self) -> EVersion {
        self.entries.back().map_or(self.tail, |e| e.version)
    }

    pub fn tail(&self) -> EVersion {
        self.tail
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.iter()
    }

    pub fn last(&self) -> Option<&LogEntry> {
        self.entries.back()
    }

    /// Entries that peers can catch up from.
    pub fn recoverable_len(&self) -> usize {
        self.entries.len() - self.position_after(self.tail)
    }

    fn position_after(&self, version: EVersion) -> usize {
        self.entries.partition_point(|e| e.version <= version)
    }

    pub fn get(&self, version: EVersion) -> Option<&LogEntry> {
        let at = self.entries.partition_point(|e| e.version < version);
        self.entries.get(at).filter(|e| e.version == version)
    }

    pub fn find_request(&self, reqid: &ReqId) -> Option<&LogEntry> {
        self.by_reqid.get(reqid).and_then(|version| self.get(*version))
    }

    pub fn push(&mut self, entry: LogEntry) {
        assert!(self.entries.is_empty() || follows(self.head(), &entry), "log entries in order");
        if entry.reqid != ReqId::NONE {
            self.by_reqid.insert(entry.reqid, entry.version);
        }
        self.entries.push_back(entry);
    }

    pub fn entries_after(&self, version: EVersion) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().skip(self.position_after(version))
    }

    /// The newest version at or before `limit` from which entries can be
    /// handed out without a gap; `None` when the log does not reach back so far.
    pub fn base_at_or_before(&self, limit: EVersion) -> Option<EVersion> {
        if limit < self.tail {
            return None;
        }
        let at = self.position_after(limit);
        let newest = at.checked_sub(1).and_then(|i| self.entries.get(i)).map(|e| e.version);
        Some(newest.map_or(self.tail, |version| version.max(self.tail)))
    }

    /// Moves the tail and drops the oldest entries once the bounds are exceeded
    /// by a batch; `None` most of the time.
    pub fn trim(&mut self, entries_max: usize, dups_max: usize, batch: usize) -> Option<Trimmed> {
        // No entry takes less than one version, so no search is needed most of the time.
        let versions = usize::try_from(self.head().version - self.tail.version).unwrap_or(usize::MAX);
        if versions < entries_max + batch || self.recoverable_len() < entries_max + batch {
            return None;
        }
        let at = self.entries.len().checked_sub(entries_max + 1)?;
        self.tail = self.tail.max(self.entries[at].version);
        let excess = self.entries.len().saturating_sub(entries_max + dups_max);
        let mut removed = Vec::with_capacity(excess);
        for entry in self.entries.drain(..excess) {
            // A later entry may have the same id only by a client's mistake.
            if self.by_reqid.get(&entry.reqid) == Some(&entry.version) {
                self.by_reqid.remove(&entry.reqid);
            }
            removed.push(entry.version);
        }
        Some(Trimmed { removed })
    }

    /// Makes the log equal to another whose entries after `base` are given,
    /// and notes what that leaves missing.
    ///
    /// `last_backfill`: objects after it are not expected here, so they are
    /// neither missing nor removed.
    pub fn merge(
        &mut self,
        base: EVersion,
        entries: Vec<LogEntry>,
        last_backfill: &HObject,
        missing: &mut Missing,
    ) -> std::result::Result<Merged, MergeError> {
        let known = base == self.tail || self.get(base).is_some_and(|e| e.version >= self.tail);
        if !known || base < self.tail {
            return Err(MergeError::NoBase { base, before: self.base_at_or_before(base) });
        }
        let mut expected = base;
        for entry in &entries {
            if !follows(expected, entry) {
                return Err(MergeError::OutOfOrder);
            }
            expected = entry.version;
        }
        let mut merged = Merged::default();
        let first_ours = self.position_after(base);
        // What both have stays as it is; a resent log changes nothing.
        let common = self
            .entries
            .range(first_ours..)
            .zip(&entries)
            .take_while(|(ours, theirs)| ours.version == theirs.version)
            .count();
        merged.divergent = self.entries.drain(first_ours + common..).collect();
        for entry in &merged.divergent {
            if self.by_reqid.get(&entry.reqid) == Some(&entry.version) {
                self.by_reqid.remove(&entry.reqid);
            }
        }
        let new: Vec<LogEntry> = entries.into_iter().skip(common).collect();
        merged.added = new.len();

        // 1. Undo: every object that a divergent entry touched goes back to
        //    what it was before the first of them, which only others still have.
        let mut first_touch: BTreeMap<&HObject, EVersion> = BTreeMap::new();
        for (object, prior_version, _) in merged.divergent.iter().flat_map(LogEntry::touches) {
            first_touch.entry(object).or_insert(prior_version);
        }
        for (object, prior_version) in first_touch {
            if object > last_backfill {
                continue;
            }
            merged.remove.insert(object.clone());
            if prior_version == EVersion::ZERO {
                missing.0.remove(object);
            } else {
                missing.0.insert(object.clone(), prior_version);
            }
        }
        // 2. Redo: the newest entry of each object says what is needed now.
        for (object, _, version) in new.iter().flat_map(LogEntry::touches) {
            if object > last_backfill {
                continue;
            }
            match version {
                // The old content stays until the new one replaces it.
                Some(version) => _ = missing.0.insert(object.clone(), version),
                None => {
                    missing.0.remove(object);
                    merged.remove.insert(object.clone());
                }
            }
        }
        for entry in new {
            self.push(entry);
        }
        Ok(merged)
    }
}

/// Versions count up without gaps, whatever the epoch does.
fn follows(earlier: EVersion, later: &LogEntry) -> bool {
    later.version > earlier && Some(later.version.version) == earlier.version.checked_add(later.span())
}

#[cfg(test)]
mod tests;
