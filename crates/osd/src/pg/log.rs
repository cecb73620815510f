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
//! Memory: the entries' records, as they are stored, and a few bytes for each; an entry
//!         is decoded when it is asked for.
//! Stored: one omap entry per log entry in the PG's meta object, written in the
//!         transaction of the change itself. Each entry carries the PG's sums
//!         after it, so that a write updates no other record.
//!
//! Source: Ceph `src/osd/PGLog.{h,cc}`.

mod entry;
mod queue;
mod record;
mod requests;

pub use entry::{EntryKind, LogEntry};

use super::missing::Missing;
use queue::RecordQueue;
use requests::RequestIndex;
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::{DecodeError, Result};
use wire::types::{EVersion, HObject, ReqId};

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

/// The tail has moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trimmed {
    /// First and last of the entries that are gone, if any are.
    pub removed: Option<(EVersion, EVersion)>,
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

#[derive(Clone, Debug, Default)]
pub struct PgLog {
    records: RecordQueue,
    /// The newest entry's version, or the tail.
    head: EVersion,
    tail: EVersion,
    requests: RequestIndex,
}

impl PgLog {
    /// From stored or received entries.
    pub fn from_entries(entries: Vec<LogEntry>, tail: EVersion) -> Result<PgLog> {
        let mut log = PgLog { head: tail, tail, ..PgLog::default() };
        for entry in entries {
            if !log.is_empty() && !follows(log.head(), &entry) {
                return Err(DecodeError::Invalid { what: "order of log entries" });
            }
            log.push(&entry);
        }
        if log.head() < tail {
            return Err(DecodeError::Invalid { what: "log tail" });
        }
        Ok(log)
    }

    pub fn head(&self) -> EVersion {
        self.head
    }

    pub fn tail(&self) -> EVersion {
        self.tail
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held.
    pub fn memory(&self) -> usize {
        self.records.memory() + self.requests.memory()
    }

    fn entry_at(&self, at: usize) -> LogEntry {
        decoded(self.records.get(at), |record| record::decode(record).map(|(entry, _)| entry))
    }

    fn version_at(&self, at: usize) -> EVersion {
        decoded(self.records.get(at), record::version_of)
    }

    fn entries_from(&self, at: usize) -> impl Iterator<Item = LogEntry> {
        (at..self.len()).map(|at| self.entry_at(at))
    }

    pub fn entries(&self) -> impl Iterator<Item = LogEntry> {
        self.entries_from(0)
    }

    /// The last `count` entries, oldest first.
    pub fn newest(&self, count: usize) -> impl Iterator<Item = LogEntry> {
        self.entries_from(self.len() - count)
    }

    pub fn last(&self) -> Option<LogEntry> {
        self.newest(self.len().min(1)).next()
    }

    /// Entries that peers can catch up from.
    pub fn recoverable_len(&self) -> usize {
        self.len() - self.position_after(self.tail)
    }

    fn position_after(&self, version: EVersion) -> usize {
        self.partition_point(|v| v <= version)
    }

    /// How many entries, the oldest ones, have versions of which this holds.
    fn partition_point(&self, holds: impl Fn(EVersion) -> bool) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            match holds(self.version_at(middle)) {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
    }

    fn position_of(&self, version: EVersion) -> Option<usize> {
        let at = self.partition_point(|v| v < version);
        (at < self.len() && self.version_at(at) == version).then_some(at)
    }

    pub fn get(&self, version: EVersion) -> Option<LogEntry> {
        self.position_of(version).map(|at| self.entry_at(at))
    }

    /// The version of the newest entry with this id.
    pub fn find_request(&self, reqid: &ReqId) -> Option<EVersion> {
        let at = self.requests.find(reqid, |at| decoded(self.records.get(at), record::reqid_of))?;
        Some(self.version_at(at))
    }

    pub fn push(&mut self, entry: &LogEntry) {
        self.push_with(entry, |out| record::encode(entry, out));
    }

    /// The same with the entry's encoding at hand, as another OSD may have sent it.
    pub fn push_encoded(&mut self, entry: &LogEntry, encoded: &[u8]) {
        match encoded.first() {
            Some(&record::VERSION) => self.push_with(entry, |out| out.extend_from_slice(encoded)),
            _ => self.push(entry),
        }
    }

    fn push_with(&mut self, entry: &LogEntry, write: impl FnOnce(&mut Vec<u8>)) {
        assert!(self.is_empty() || follows(self.head, entry), "log entries in order");
        self.records.push_back(write);
        self.head = entry.version;
        let records = &self.records;
        self.requests.push_back(&entry.reqid, |at| decoded(records.get(at), record::reqid_of));
    }

    pub fn entries_after(&self, version: EVersion) -> impl Iterator<Item = LogEntry> {
        self.entries_from(self.position_after(version))
    }

    /// The newest version at or before `limit` from which entries can be
    /// handed out without a gap; `None` when the log does not reach back so far.
    pub fn base_at_or_before(&self, limit: EVersion) -> Option<EVersion> {
        if limit < self.tail {
            return None;
        }
        let at = self.position_after(limit);
        let newest = at.checked_sub(1).map(|newest| self.version_at(newest));
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
        let at = self.len().checked_sub(entries_max + 1)?;
        self.tail = self.tail.max(self.version_at(at));
        let excess = self.len().saturating_sub(entries_max + dups_max);
        let removed = excess.checked_sub(1).map(|last| (self.version_at(0), self.version_at(last)));
        self.requests.drop_front(excess);
        self.records.drop_front(excess);
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
        let known = base == self.tail || self.position_of(base).is_some();
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
        let common = (first_ours..self.len())
            .zip(&entries)
            .take_while(|(ours, theirs)| self.version_at(*ours) == theirs.version)
            .count();
        merged.divergent = self.entries_from(first_ours + common).collect();
        merged.divergent.iter().rev().for_each(|entry| self.requests.pop_back(&entry.reqid));
        self.records.drop_back(merged.divergent.len());
        self.head = self.len().checked_sub(1).map_or(self.tail, |at| self.version_at(at));
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
        new.iter().for_each(|entry| self.push(entry));
        Ok(merged)
    }
}

/// What the log itself has encoded.
fn decoded<T>(record: Option<&[u8]>, decode: impl Fn(&[u8]) -> Result<T>) -> T {
    decode(record.expect("a record of the log")).expect("a record as it was encoded")
}

/// Versions count up without gaps, whatever the epoch does.
fn follows(earlier: EVersion, later: &LogEntry) -> bool {
    later.version > earlier && Some(later.version.version) == earlier.version.checked_add(later.span())
}

#[cfg(test)]
mod tests;
