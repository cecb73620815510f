//! What the OSD records of each object besides its content, and how that
//! record and users' xattrs share the store's xattrs without meeting.
//!
//! In the store, the record is the xattr [`INFO_ATTR`]; a user's xattr has the
//! letter [`USER_PREFIX`] before its name. The size is not recorded: the store has it.

use super::watch::Watchers;
use base::WallTime;
use bytes::Bytes;
use store::{ObjectId, ObjectStore, StoreError};
use wire::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use wire::types::{EVersion, ReqId};

/// The store's xattr that holds the [`ObjectInfo`].
pub const INFO_ATTR: &str = "_";

/// Comes before the name of every user xattr in the store.
pub const USER_PREFIX: char = 'u';

/// `object_info_t` as we keep it; ours alone, no client sees it.
///
/// Shape: version byte first (wire codec's envelope), so later fields can be added.
/// Source: the fields and their meaning, Ceph `src/osd/osd_types.h` (`object_info_t`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectInfo {
    /// Of the last change.
    pub version: EVersion,
    /// Of the change before; ZERO for the first.
    pub prior_version: EVersion,
    /// What clients see and assert on. Grows with every change that a user can notice.
    pub user_version: u64,
    /// As the client gave it.
    pub mtime: WallTime,
    pub last_reqid: Option<ReqId>,
    /// CephFS's truncation counter and the size it last truncated to.
    pub truncate_seq: u32,
    pub truncate_size: u64,
    /// From SETALLOCHINT.
    pub expected_object_size: u64,
    pub expected_write_size: u64,
    pub alloc_hint_flags: u32,
    /// Omap was set at some time since it was last cleared; it may be empty again.
    pub has_omap: bool,
    /// Exact, so that removing an omap need not read it.
    pub omap_keys: u64,
    /// Keys and values, without the header.
    pub omap_bytes: u64,
    /// The highest sequence number of a snapshot context it was written under.
    pub snap_seq: u64,
    /// Who watches it. Belongs to the object's place, not to its content: no copy has them.
    pub watchers: Watchers,
    /// A head with clones: see `exec/snapshots.rs`.
    pub has_clones: bool,
    /// The head is deleted, and stays only to remember its clones.
    pub is_whiteout: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InfoError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("object info: {0}")]
    Corrupt(#[from] DecodeError),
    #[error("an object without object info")]
    Missing,
}

impl ObjectInfo {
    /// Of an object in the store; `None` if there is no such object.
    pub fn load(
        store: &dyn ObjectStore,
        id: &ObjectId,
    ) -> std::result::Result<Option<ObjectInfo>, InfoError> {
        match store.xattr(id, INFO_ATTR) {
            Ok(Some(record)) => Ok(Some(ObjectInfo::from_record(record)?)),
            Ok(None) => Err(InfoError::Missing),
            Err(StoreError::NoObject) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub fn from_record(record: Bytes) -> Result<ObjectInfo> {
        Decoder::plain(record).get()
    }

    pub fn to_record(&self) -> Bytes {
        let mut e = Encoder::plain();
        e.put(self);
        e.finish()
    }
}

const FLAG_OMAP: u32 = 1;
const FLAG_CLONES: u32 = 2;
const FLAG_WHITEOUT: u32 = 4;

impl ObjectInfo {
    fn flags(&self) -> u32 {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        flag(self.has_omap, FLAG_OMAP)
            | flag(self.has_clones, FLAG_CLONES)
            | flag(self.is_whiteout, FLAG_WHITEOUT)
    }
}

impl Encode for ObjectInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 1, |e| {
            e.put(&self.version);
            e.put(&self.prior_version);
            e.u64(self.user_version);
            e.put(&self.mtime);
            e.put(&self.last_reqid);
            e.u32(self.truncate_seq);
            e.u64(self.truncate_size);
            e.u64(self.expected_object_size);
            e.u64(self.expected_write_size);
            e.u32(self.alloc_hint_flags);
            e.u32(self.flags());
            e.u64(self.omap_keys);
            e.u64(self.omap_bytes);
            e.u64(self.snap_seq);
            e.put(&self.watchers);
        });
    }
}

impl Decode for ObjectInfo {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("object info", 2, |d, version| {
            let mut info = ObjectInfo {
                version: d.get()?,
                prior_version: d.get()?,
                user_version: d.u64()?,
                mtime: d.get()?,
                last_reqid: d.get()?,
                truncate_seq: d.u32()?,
                truncate_size: d.u64()?,
                expected_object_size: d.u64()?,
                expected_write_size: d.u64()?,
                alloc_hint_flags: d.u32()?,
                ..ObjectInfo::default()
            };
            let flags = d.u32()?;
            info.has_omap = flags & FLAG_OMAP != 0;
            info.has_clones = flags & FLAG_CLONES != 0;
            info.is_whiteout = flags & FLAG_WHITEOUT != 0;
            info.omap_keys = d.u64()?;
            info.omap_bytes = d.u64()?;
            info.snap_seq = d.u64()?;
            if version >= 2 {
                info.watchers = d.get()?;
            }
            Ok(info)
        })
    }
}

/// A user xattr's name as the store spells it.
///
/// Clients may use any bytes; the store's names are UTF-8. Each byte becomes the
/// character of that number: ASCII stays as it is, the order is kept, and no two
/// names meet.
pub fn stored_name(name: &[u8]) -> String {
    let mut stored = String::with_capacity(name.len() + 1);
    stored.push(USER_PREFIX);
    stored.extend(name.iter().map(|byte| char::from(*byte)));
    stored
}

/// The user's name for a stored xattr; `None` for the OSD's own.
pub fn user_name(stored: &str) -> Option<Bytes> {
    let name = stored.strip_prefix(USER_PREFIX)?;
    if name.is_ascii() {
        return Some(Bytes::copy_from_slice(name.as_bytes()));
    }
    name.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::watch::{WatchInfo, WatchKey};
    use wire::types::{EntityAddr, EntityName, Epoch};

    #[test]
    fn record_survives_and_every_truncation_is_an_error() {
        let info = ObjectInfo {
            version: EVersion::new(Epoch(3), 4),
            prior_version: EVersion::new(Epoch(2), 1),
            user_version: 4,
            mtime: WallTime { sec: 1, nsec: 2 },
            last_reqid: Some(ReqId { name: EntityName::client(7), tid: 9, inc: 0 }),
            truncate_seq: 5,
            truncate_size: 6,
            expected_object_size: 7,
            expected_write_size: 8,
            alloc_hint_flags: 9,
            has_omap: true,
            omap_keys: 10,
            omap_bytes: 11,
            snap_seq: 12,
            watchers: Watchers::from([(
                WatchKey { cookie: 13, client: EntityName::client(14) },
                WatchInfo { timeout_s: 15, addr: EntityAddr::BLANK },
            )]),
            has_clones: true,
            is_whiteout: false,
        };
        let record = info.to_record();
        assert_eq!(ObjectInfo::from_record(record.clone()), Ok(info));
        for cut in 0..record.len() {
            assert!(ObjectInfo::from_record(record.slice(..cut)).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn record_of_version_1_has_no_watchers() {
        let info = ObjectInfo { user_version: 4, snap_seq: 12, ..ObjectInfo::default() };
        let mut record = info.to_record().to_vec();
        // Version 1 ended before the empty map.
        record.truncate(record.len() - 4);
        record[0] = 1;
        let len = u32::try_from(record.len() - 6).unwrap();
        record[2..6].copy_from_slice(&len.to_le_bytes());
        assert_eq!(ObjectInfo::from_record(record.into()), Ok(info));
    }

    #[test]
    fn user_names_of_any_bytes_come_back_and_never_meet_the_record() {
        for name in [&b""[..], b"_", b"user.a", "\u{fc}ber".as_bytes(), &[0xff, 0, 0x80]] {
            let stored = stored_name(name);
            assert_ne!(stored, INFO_ATTR);
            assert_eq!(user_name(&stored).as_deref(), Some(name));
        }
        assert_eq!(user_name(INFO_ATTR), None);
    }
}
