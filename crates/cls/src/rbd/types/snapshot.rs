//! Snapshots of an image.

use super::{HEAD, Parent, fields};
use base::WallTime;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Decode, DecodeError, Decoder, Encode, Encoder};

/// Why a snapshot exists: `cls::rbd::SnapshotNamespaceType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotKind(pub u32);

impl SnapshotKind {
    pub const USER: SnapshotKind = SnapshotKind(0);
    pub const GROUP: SnapshotKind = SnapshotKind(1);
    pub const TRASH: SnapshotKind = SnapshotKind(2);
    pub const MIRROR: SnapshotKind = SnapshotKind(3);
    pub const UNKNOWN: SnapshotKind = SnapshotKind(u32::MAX);
}

/// `cls::rbd::SnapshotNamespace`: the kind, and what goes with it.
#[derive(Clone, Debug, Default)]
pub enum SnapshotNamespace {
    #[default]
    User,
    Group {
        pool: i64,
        group: Bytes,
        snapshot: Bytes,
    },
    /// Deleted, but clones still need it: what it was before.
    Trash {
        name: Bytes,
        kind: SnapshotKind,
    },
    Mirror(MirrorSnapshot),
    Unknown,
}

/// `cls::rbd::MirrorSnapshotNamespace`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MirrorSnapshot {
    pub state: u8,
    pub complete: bool,
    pub peers: BTreeSet<Bytes>,
    pub primary_mirror_uuid: Bytes,
    pub primary_snap: u64,
    pub last_copied_object: u64,
    pub snap_seqs: BTreeMap<u64, u64>,
}

impl MirrorSnapshot {
    /// `MIRROR_SNAPSHOT_STATE_NON_PRIMARY`, and the same demoted.
    pub fn is_non_primary(&self) -> bool {
        matches!(self.state, 2 | 3)
    }
}

impl SnapshotNamespace {
    pub fn kind(&self) -> SnapshotKind {
        match self {
            SnapshotNamespace::User => SnapshotKind::USER,
            SnapshotNamespace::Group { .. } => SnapshotKind::GROUP,
            SnapshotNamespace::Trash { .. } => SnapshotKind::TRASH,
            SnapshotNamespace::Mirror(_) => SnapshotKind::MIRROR,
            SnapshotNamespace::Unknown => SnapshotKind::UNKNOWN,
        }
    }
}

/// Whether two snapshots of one name get in each other's way. All trash is alike.
impl PartialEq for SnapshotNamespace {
    fn eq(&self, other: &SnapshotNamespace) -> bool {
        use SnapshotNamespace::*;
        match (self, other) {
            (Group { pool, group, snapshot }, Group { pool: pool2, group: group2, snapshot: snapshot2 }) => {
                (pool, group, snapshot) == (pool2, group2, snapshot2)
            }
            (Mirror(a), Mirror(b)) => a == b,
            _ => self.kind() == other.kind(),
        }
    }
}

impl Encode for SnapshotNamespace {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.u32(self.kind().0);
            match self {
                SnapshotNamespace::User | SnapshotNamespace::Unknown => {}
                SnapshotNamespace::Group { pool, group, snapshot } => {
                    e.i64(*pool);
                    e.put(group);
                    e.put(snapshot);
                }
                SnapshotNamespace::Trash { name, kind } => {
                    e.put(name);
                    e.u32(kind.0);
                }
                SnapshotNamespace::Mirror(mirror) => {
                    e.u8(mirror.state);
                    e.bool(mirror.complete);
                    e.put(&mirror.peers);
                    e.put(&mirror.primary_mirror_uuid);
                    e.u64(mirror.primary_snap);
                    e.u64(mirror.last_copied_object);
                    e.put(&mirror.snap_seqs);
                }
            }
        });
    }
}

impl Decode for SnapshotNamespace {
    const MIN_LEN: usize = 10;
    fn decode(d: &mut Decoder) -> Result<SnapshotNamespace, DecodeError> {
        d.versioned("SnapshotNamespace", 1, |d, _| {
            Ok(match SnapshotKind(d.u32()?) {
                SnapshotKind::USER => SnapshotNamespace::User,
                SnapshotKind::GROUP => {
                    SnapshotNamespace::Group { pool: d.get()?, group: d.get()?, snapshot: d.get()? }
                }
                SnapshotKind::TRASH => {
                    SnapshotNamespace::Trash { name: d.get()?, kind: SnapshotKind(d.get()?) }
                }
                SnapshotKind::MIRROR => SnapshotNamespace::Mirror(MirrorSnapshot {
                    state: d.get()?,
                    complete: d.get()?,
                    peers: d.get()?,
                    primary_mirror_uuid: d.get()?,
                    primary_snap: d.get()?,
                    last_copied_object: d.get()?,
                    snap_seqs: d.get()?,
                }),
                _ => SnapshotNamespace::Unknown,
            })
        })
    }
}

/// Whether clones of the first kind may hang on a snapshot.
pub struct Protection;

impl Protection {
    pub const UNPROTECTED: u8 = 0;
    /// Statuses from here on mean nothing; 1 is "unprotecting", 2 "protected".
    pub const END: u8 = 3;
}

/// `cls_rbd_snap`, under `snapshot_` and the id in 16 hexadecimal digits.
///
/// Shape: written in the form of Nautilus and later, where the parent's identity
///        is in the image's `parent` key and only the overlap is here; read in
///        every form.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub id: u64,
    pub name: Bytes,
    pub image_size: u64,
    pub protection: u8,
    /// Of a snapshot taken before Nautilus; never written.
    pub parent: Parent,
    pub flags: u64,
    pub timestamp: WallTime,
    pub namespace: SnapshotNamespace,
    pub child_count: u32,
    pub parent_overlap: Option<u64>,
}

impl Default for Snapshot {
    fn default() -> Snapshot {
        Snapshot {
            id: HEAD,
            name: Bytes::new(),
            image_size: 0,
            protection: Protection::UNPROTECTED,
            parent: Parent::default(),
            flags: 0,
            timestamp: WallTime { sec: 0, nsec: 0 },
            namespace: SnapshotNamespace::User,
            child_count: 0,
            parent_overlap: None,
        }
    }
}

impl Snapshot {
    pub fn has_parent(&self) -> bool {
        self.parent.spec.pool != super::NO_POOL || self.parent_overlap.is_some()
    }
}

impl Encode for Snapshot {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(8, 8, |e| {
            e.u64(self.id);
            e.put(&self.name);
            e.u64(self.image_size);
            e.u8(self.protection);
            e.u64(self.flags);
            e.put(&self.namespace);
            e.put(&self.timestamp);
            e.u32(self.child_count);
            e.put(&self.parent_overlap);
        });
    }
}

impl Decode for Snapshot {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Snapshot, DecodeError> {
        // The form depends on the writer's compat, which `versioned` keeps to itself.
        let compat = d.rest().get(1).copied().unwrap_or(0);
        d.versioned("cls_rbd_snap", 8, |d, version| {
            let mut snap =
                Snapshot { id: d.get()?, name: d.get()?, image_size: d.get()?, ..Snapshot::default() };
            if compat < 8 {
                d.skip("features", 8)?;
                if version >= 2 {
                    snap.parent = d.get()?;
                }
            }
            if version >= 3 {
                snap.protection = d.get()?;
            }
            if version >= 4 {
                snap.flags = d.get()?;
            }
            if version >= 5 {
                snap.namespace = d.get()?;
            }
            if version >= 6 {
                snap.timestamp = d.get()?;
            }
            if version >= 7 {
                snap.child_count = d.get()?;
            }
            if version >= 8 {
                snap.parent_overlap = d.get()?;
            }
            Ok(snap)
        })
    }
}

/// `cls::rbd::SnapshotInfo`: a snapshot as clients see it.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    pub id: u64,
    pub namespace: SnapshotNamespace,
    pub name: Bytes,
    pub image_size: u64,
    pub timestamp: WallTime,
    pub child_count: u32,
}

impl Default for SnapshotInfo {
    fn default() -> SnapshotInfo {
        SnapshotInfo::from(Snapshot::default())
    }
}

impl From<Snapshot> for SnapshotInfo {
    fn from(snap: Snapshot) -> SnapshotInfo {
        SnapshotInfo {
            id: snap.id,
            namespace: snap.namespace,
            name: snap.name,
            image_size: snap.image_size,
            timestamp: snap.timestamp,
            child_count: snap.child_count,
        }
    }
}

fields!(SnapshotInfo, 1, 1: [id, namespace, name, image_size, timestamp, child_count]);
