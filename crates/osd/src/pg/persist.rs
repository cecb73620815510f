//! Where a PG's records are in the store.
//!
//! Shape:  one object per PG in [`CollId::Meta`], named `pg.<id>`, all in omap:
//!         - `info2`: [`PgInfo`] as of the last change by peering or trimming (`info`:
//!           the same before there were clones, read when there is no `info2`);
//!         - `past`: [`PastIntervals`];
//!         - `l` + version (u64 BE) + epoch (u32 BE): [`LogEntry`];
//!         - `m` + encoded object: version needed ([`Missing`]);
//!         - `s` + snapshot (u64 BE) + encoded object: see [`super::snap_index`].
//!         What every write changes comes from the last log entry.
//! Crash:  all of it changes in the transactions of the changes it describes.

use super::info::PgInfo;
use super::intervals::PastIntervals;
use super::log::{LogEntry, PgLog};
use super::missing::Missing;
use super::snap_index;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use store::{CollId, Mutation, ObjectId, ObjectStore, OmapLimit, StoreError, Transaction};
use wire::types::{EVersion, HObject, PgId, PoolId, SnapId};
use wire::{Decode, DecodeError, Encode, Features};

const KEY_INFO: &[u8] = b"info2";
const KEY_INFO_OLD: &[u8] = b"info";
const KEY_PAST: &[u8] = b"past";
const PREFIX_LOG: u8 = b'l';
const PREFIX_MISSING: u8 = b'm';
/// Entries read at once while loading.
const PAGE: OmapLimit = OmapLimit { entries: 512, bytes: 4 << 20 };

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("PG {pg}: damaged {what}: {error}")]
    Damaged { pg: PgId, what: &'static str, error: DecodeError },
}

/// An object of the OSD's own.
pub fn meta_object(name: String) -> ObjectId {
    let object = HObject { pool: PoolId(-1), name: name.into(), ..HObject::default() };
    ObjectId { coll: CollId::Meta, object }
}

pub fn pg_meta(pg: PgId) -> ObjectId {
    meta_object(format!("pg.{pg}"))
}

const LOG_KEY_LEN: usize = 13;

pub fn log_key(version: EVersion) -> Bytes {
    Bytes::copy_from_slice(&raw_log_key(version))
}

fn raw_log_key(version: EVersion) -> [u8; LOG_KEY_LEN] {
    let mut key = [PREFIX_LOG; LOG_KEY_LEN];
    key[1..9].copy_from_slice(&version.version.to_be_bytes());
    key[9..].copy_from_slice(&version.epoch.0.to_be_bytes());
    key
}

pub fn missing_key(object: &HObject) -> Bytes {
    let encoded = object.to_bytes(Features::ALL);
    let mut key = BytesMut::with_capacity(encoded.len() + 1);
    key.put_u8(PREFIX_MISSING);
    key.put_slice(&encoded);
    key.freeze()
}

/// One log entry, encoded.
pub fn set_entry(meta: ObjectId, version: EVersion, bytes: Bytes) -> Mutation {
    Mutation::SetOmap { id: meta, entries: [(log_key(version), bytes)].into() }
}

fn encoded<T: Encode>(value: &T) -> Bytes {
    value.to_bytes(Features::ALL)
}

/// Collects changes to one PG's records; one omap mutation of each kind comes out.
pub struct Records {
    meta: ObjectId,
    set: BTreeMap<Bytes, Bytes>,
    remove: BTreeSet<Bytes>,
    remove_range: Option<(Bytes, Bytes)>,
}

impl Records {
    pub fn new(meta: ObjectId) -> Records {
        Records { meta, set: BTreeMap::new(), remove: BTreeSet::new(), remove_range: None }
    }

    pub fn info(&mut self, info: &PgInfo) {
        self.set.insert(Bytes::from_static(KEY_INFO), encoded(info));
    }

    pub fn past(&mut self, past: &PastIntervals) {
        self.set.insert(Bytes::from_static(KEY_PAST), encoded(past));
    }

    pub fn entry(&mut self, entry: &LogEntry) {
        self.set.insert(log_key(entry.version), encoded(entry));
    }

    pub fn remove_entry(&mut self, version: EVersion) {
        self.remove.insert(log_key(version));
    }

    /// All entries from one to another, which are next to each other in the log.
    pub fn remove_entries(&mut self, first: EVersion, last: EVersion) {
        // The next key there can be.
        let end = [&raw_log_key(last)[..], &[0]].concat();
        self.remove_range = Some((log_key(first), end.into()));
    }

    /// A clone that stands for these snapshots is, or will be, here.
    pub fn index_clone(&mut self, clone: &HObject, snaps: &[SnapId]) {
        for snap in snaps {
            self.set.insert(snap_index::key(*snap, clone), Bytes::new());
        }
    }

    pub fn unindex_clone(&mut self, clone: &HObject, snaps: &[SnapId]) {
        self.remove.extend(snaps.iter().map(|snap| snap_index::key(*snap, clone)));
    }

    pub fn remove_key(&mut self, key: Bytes) {
        self.remove.insert(key);
    }

    /// What a log entry says of clones.
    pub fn clone_changes(&mut self, entry: &LogEntry) {
        for change in &entry.clones {
            self.unindex_clone(&change.object, &change.dropped);
            self.index_clone(&change.object, &change.snaps);
        }
    }

    pub fn missing(&mut self, object: &HObject, need: EVersion) {
        self.set.insert(missing_key(object), encoded(&need));
    }

    pub fn not_missing(&mut self, object: &HObject) {
        self.remove.insert(missing_key(object));
    }

    /// Removals come first: a key that is both removed and set is set.
    pub fn into_txn(self, txn: &mut Transaction) {
        if let Some((start, end)) = self.remove_range {
            txn.push(Mutation::RmOmapRange { id: self.meta.clone(), start, end });
        }
        if !self.remove.is_empty() {
            txn.push(Mutation::RmOmap { id: self.meta.clone(), keys: self.remove });
        }
        if !self.set.is_empty() {
            txn.push(Mutation::SetOmap { id: self.meta, entries: self.set.into() });
        }
    }
}

/// Forgets log and missing set.
pub fn clear_log(meta: &ObjectId, txn: &mut Transaction) {
    for prefix in [PREFIX_LOG, PREFIX_MISSING] {
        txn.push(Mutation::RmOmapRange {
            id: meta.clone(),
            start: Bytes::copy_from_slice(&[prefix]),
            end: Bytes::copy_from_slice(&[prefix + 1]),
        });
    }
}

/// Everything recorded of one PG.
pub struct Loaded {
    pub info: PgInfo,
    pub past: PastIntervals,
    pub log: PgLog,
    pub missing: Missing,
}

pub fn load(store: &dyn ObjectStore, pg: PgId) -> Result<Option<Loaded>, LoadError> {
    let damaged = |what: &'static str| move |error| LoadError::Damaged { pg, what, error };
    let meta = pg_meta(pg);
    if store.stat(&meta)?.is_none() {
        return Ok(None);
    }
    let info = match store.omap_get(&meta, KEY_INFO)? {
        Some(info) => PgInfo::from_record(info),
        None => match store.omap_get(&meta, KEY_INFO_OLD)? {
            Some(info) => PgInfo::from_old_record(info),
            None => return Ok(None),
        },
    };
    let mut info = info.map_err(damaged("info"))?;
    let past = match store.omap_get(&meta, KEY_PAST)? {
        Some(bytes) => PastIntervals::from_bytes(bytes, Features::ALL).map_err(damaged("intervals"))?,
        None => PastIntervals::default(),
    };
    let mut entries = Vec::new();
    for (_, value) in load_all(store, &meta, PREFIX_LOG)? {
        entries.push(LogEntry::from_bytes(value, Features::ALL).map_err(damaged("log entry"))?);
    }
    let log = PgLog::from_entries(entries, info.log_tail).map_err(damaged("log"))?;
    let mut missing = Missing::default();
    for (key, value) in load_all(store, &meta, PREFIX_MISSING)? {
        let object = HObject::from_bytes(key.slice(1..), Features::ALL).map_err(damaged("missing set"))?;
        let need = EVersion::from_bytes(value, Features::ALL).map_err(damaged("missing set"))?;
        missing.0.insert(object, need);
    }
    info.last_update = log.head();
    info.missing_count = missing.len() as u64;
    if let Some(last) = log.last() {
        info.last_user_version = last.last_user_version;
        if !info.is_incomplete() {
            info.sums = last.sums;
        }
    }
    Ok(Some(Loaded { info, past, log, missing }))
}

fn load_all(store: &dyn ObjectStore, meta: &ObjectId, prefix: u8) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let mut all: Vec<(Bytes, Bytes)> = Vec::new();
    loop {
        let after = all.last().map(|(key, _)| key.clone());
        let page = store.omap_list(meta, after.as_deref(), &[prefix], PAGE)?;
        all.extend(page.entries);
        if !page.more {
            return Ok(all);
        }
    }
}
