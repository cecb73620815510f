//! Snapshots of an image: keys `snapshot_` of its header, `snap_seq`, `snap_limit`.

use super::features::{self, operation};
use super::image::{require_feature, set_op_features};
use super::old_format::OldHeader;
use super::stored::{DONE, answer, assert_exists, decode, forget, list_all, optional, read, remove, write};
use super::types::{
    HEAD, Parent, Protection, SNAP_ID_MAX, Snapshot, SnapshotInfo, SnapshotKind, SnapshotNamespace,
};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use wire::Decoder;
use wire::types::Uuid;

const PREFIX: &str = "snapshot_";

fn key(snap: u64) -> String {
    format!("{PREFIX}{snap:016x}")
}

/// The id in what follows the prefix; 0 if there is none, as in Ceph.
fn id_of(digits: &[u8]) -> u64 {
    let digits = digits.split(|c| !c.is_ascii_hexdigit()).next().unwrap_or_default();
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

/// ENOENT; EIO if it is damaged.
pub fn get(object: &mut dyn Object, snap: u64) -> Result<Snapshot, Fault> {
    read(object, key(snap))
}

/// EINVAL for the head, which has no record.
fn get_record(object: &mut dyn Object, snap: u64) -> Result<Snapshot, Fault> {
    if snap == HEAD { Err(Errno::EINVAL.into()) } else { get(object, snap) }
}

/// All snapshots, by id. EIO if one is damaged.
pub fn all(object: &mut dyn Object) -> Result<Vec<Snapshot>, Fault> {
    list_all(object, PREFIX)?.into_iter().map(|(_, raw)| decode(raw)).collect()
}

/// Writes the record of snapshot `id`. A parent that an old record names moves to the image's own
/// `parent` key; the record keeps the overlap.
pub fn put(object: &mut dyn Object, id: u64, mut snap: Snapshot) -> Result<(), Fault> {
    if snap.parent.exists() {
        let stored: Option<Parent> = optional(read(object, "parent"))?;
        if !stored.is_some_and(|parent| parent.exists()) {
            write(object, "parent", &Parent { spec: snap.parent.spec.clone(), head_overlap: None })?;
        }
        snap.parent_overlap = snap.parent.head_overlap;
    }
    write(object, key(id), &snap)
}

/// The newest snapshot's id, and all of them from the newest down: what writes
/// to data objects carry.
pub fn get_snapcontext(object: &mut dyn Object, _: Bytes) -> Output {
    let ids: Vec<u64> = list_all(object, PREFIX)?.iter().rev().map(|(id, _)| id_of(id)).collect();
    let seq: u64 = read(object, "snap_seq")?;
    answer(&(seq, ids))
}

pub fn get_snapshot_name(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    answer(&get_record(object, snap)?.name)
}

pub fn get_snapshot_timestamp(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    answer(&get_record(object, snap)?.timestamp)
}

pub fn snapshot_get(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    answer(&SnapshotInfo::from(get_record(object, snap)?))
}

/// ESTALE below the newest id, EEXIST for a used id or name, EDQUOT over the limit.
pub fn snapshot_add(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let mut snap = Snapshot { name: args.blob()?, id: args.u64()?, ..Snapshot::default() };
    if !args.is_empty() {
        snap.namespace = args.get()?;
    }
    if snap.namespace.kind() == SnapshotKind::UNKNOWN || snap.id > SNAP_ID_MAX {
        return Err(Errno::EINVAL.into());
    }
    // Another client's snapshot came first: ids only ever grow.
    if snap.id < read(object, "snap_seq")? {
        return Err(Errno::ESTALE.into());
    }
    snap.image_size = read(object, "size")?;
    snap.flags = optional(read(object, "flags"))?.unwrap_or(0);
    snap.timestamp = object.now();
    let limit: u64 = limit(object)?;
    for (count, other) in (1u64..).zip(all(object)?) {
        if count >= limit {
            return Err(Errno::EDQUOT.into());
        }
        if snap.id == other.id || (snap.name == other.name && snap.namespace == other.namespace) {
            return Err(Errno::EEXIST.into());
        }
    }
    snap.parent = optional(read(object, "parent"))?.unwrap_or_default();
    if snap.namespace.kind() == SnapshotKind::TRASH {
        set_op_features(object, operation::SNAP_TRASH, operation::SNAP_TRASH)?;
    }
    write(object, "snap_seq", &snap.id)?;
    put(object, snap.id, snap)?;
    DONE
}

pub fn snapshot_rename(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (id, name) = (args.u64()?, args.blob()?);
    if all(object)?.iter().any(|snap| snap.namespace.kind() == SnapshotKind::USER && snap.name == name) {
        return Err(Errno::EEXIST.into());
    }
    let mut snap = get(object, id)?;
    if snap.namespace.kind() != SnapshotKind::USER {
        return Err(Errno::EINVAL.into());
    }
    snap.name = name;
    put(object, id, snap)?;
    DONE
}

/// EBUSY while it is protected or has clones.
pub fn snapshot_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).u64()?;
    let snap = get(object, id)?;
    if snap.protection != Protection::UNPROTECTED || snap.child_count > 0 {
        return Err(Errno::EBUSY.into());
    }
    remove(object, key(id))?;
    let others: Vec<Snapshot> = all(object)?.into_iter().filter(|other| other.id != id).collect();
    let others_have_parent = others.iter().any(Snapshot::has_parent);
    let parent: Option<Parent> = optional(read(object, "parent"))?.filter(Parent::exists);
    let head_has_parent = parent.as_ref().is_some_and(|parent| parent.head_overlap.is_some());
    if parent.is_some() && !head_has_parent && !others_have_parent {
        forget(object, "parent")?;
    }
    let mut unused = 0;
    if !others_have_parent && !head_has_parent {
        unused |= operation::CLONE_CHILD;
    }
    if !others.iter().any(|other| other.namespace.kind() == SnapshotKind::TRASH) {
        unused |= operation::SNAP_TRASH;
    }
    if unused != 0 {
        set_op_features(object, 0, unused)?;
    }
    DONE
}

/// Hides a snapshot that clones still need: it gets a random name, and keeps its own aside.
pub fn snapshot_trash_add(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).u64()?;
    let mut snap = get(object, id)?;
    if snap.protection != Protection::UNPROTECTED {
        return Err(Errno::EBUSY.into());
    }
    let kind = snap.namespace.kind();
    if kind == SnapshotKind::TRASH {
        return Err(Errno::EEXIST.into());
    }
    set_op_features(object, operation::SNAP_TRASH, operation::SNAP_TRASH)?;
    let name = Uuid::from_random(object.random(), object.random()).to_string();
    snap.namespace = SnapshotNamespace::Trash { name: std::mem::replace(&mut snap.name, name.into()), kind };
    put(object, id, snap)?;
    DONE
}

fn limit(object: &mut dyn Object) -> Result<u64, Fault> {
    Ok(optional(read(object, "snap_limit"))?.unwrap_or(u64::MAX))
}

/// All ones: no limit.
pub fn snapshot_get_limit(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&limit(object)?)
}

/// ERANGE below the number of snapshots there are.
pub fn snapshot_set_limit(object: &mut dyn Object, input: Bytes) -> Output {
    let limit = Decoder::plain(input).u64()?;
    if limit == u64::MAX {
        remove(object, "snap_limit")?;
        return DONE;
    }
    let count = match OldHeader::read(object)? {
        Some(header) => u64::from(header.snap_count()),
        None => list_all(object, PREFIX)?.len() as u64,
    };
    if limit < count {
        return Err(Errno::ERANGE.into());
    }
    write(object, "snap_limit", &limit)?;
    DONE
}

pub fn get_protection_status(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    assert_exists(object)?;
    let status = get_record(object, snap)?.protection;
    if status >= Protection::END {
        return Err(Errno::EIO.into());
    }
    answer(&status)
}

pub fn set_protection_status(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (id, status) = (args.u64()?, args.u8()?);
    assert_exists(object)?;
    require_feature(object, features::LAYERING)?;
    if id == HEAD || status >= Protection::END {
        return Err(Errno::EINVAL.into());
    }
    let mut snap = get(object, id)?;
    snap.protection = status;
    put(object, id, snap)?;
    DONE
}
