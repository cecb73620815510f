//! Groups of images, and their snapshots.

use super::{HEAD, NO_POOL, fields};
use bytes::Bytes;

/// `cls::rbd::GroupSpec`: the group an image belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupSpec {
    pub pool: i64,
    pub group: Bytes,
}

impl Default for GroupSpec {
    fn default() -> GroupSpec {
        GroupSpec { pool: NO_POOL, group: Bytes::new() }
    }
}

fields!(GroupSpec, 1, 1: [pool, group]);

/// `cls::rbd::GroupImageSpec`: an image of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupImageSpec {
    pub image: Bytes,
    pub pool: i64,
}

impl Default for GroupImageSpec {
    fn default() -> GroupImageSpec {
        GroupImageSpec { image: Bytes::new(), pool: NO_POOL }
    }
}

fields!(GroupImageSpec, 1, 1: [image, pool]);

/// `cls::rbd::GroupImageStatus`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupImageStatus {
    pub spec: GroupImageSpec,
    /// 0 attached, 1 incomplete.
    pub state: u8,
}

fields!(GroupImageStatus, 1, 1: [spec, state]);

/// `cls::rbd::ImageSnapshotSpec`: one image's part in a group's snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageSnapshotSpec {
    pub pool: i64,
    pub image: Bytes,
    pub snap: u64,
}

impl Default for ImageSnapshotSpec {
    fn default() -> ImageSnapshotSpec {
        ImageSnapshotSpec { pool: NO_POOL, image: Bytes::new(), snap: HEAD }
    }
}

fields!(ImageSnapshotSpec, 1, 1: [pool, image, snap]);

/// `cls::rbd::GroupSnapshot`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupSnapshot {
    pub id: Bytes,
    pub name: Bytes,
    pub state: u8,
    pub snaps: Vec<ImageSnapshotSpec>,
}

impl GroupSnapshot {
    /// `GROUP_SNAPSHOT_STATE_INCOMPLETE`; the other state is complete.
    pub const INCOMPLETE: u8 = 0;
}

fields!(GroupSnapshot, 1, 1: [id, name, state, snaps]);
