//! Clones: the parent of an image, and the children of its snapshots.
//!
//! Clones of the second kind are counted in the snapshot they hang on
//! (`child_attach`); those of the first kind are listed in the pool's
//! `rbd_children` (`add_child`), and their snapshots must be protected.

use super::features::{self, operation};
use super::image::{has_layering, require_feature, set_op_features};
use super::snapshots;
use super::stored::{DONE, answer, assert_exists, forget, optional, read, remove, write};
use super::types::{ChildImageSpec, HEAD, Parent, ParentImageSpec, SnapshotKind};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeSet;
use wire::{Decode, Decoder, Encoder};

fn stored_parent(object: &mut dyn Object) -> Result<Option<Parent>, Fault> {
    optional(read(object, "parent"))
}

/// The parent, wherever it is written; pool -1 if there is none.
pub fn parent_get(object: &mut dyn Object, _: Bytes) -> Output {
    assert_exists(object)?;
    let mut parent = None;
    if has_layering(object)? {
        parent = stored_parent(object)?;
        if parent.is_none() {
            // Snapshots from before Nautilus name it themselves.
            parent = snapshots::all(object)?.into_iter().rev().map(|snap| snap.parent).find(Parent::exists);
        }
    }
    answer(&parent.unwrap_or_default().spec)
}

/// How many bytes are shared with the parent, by the image or by a snapshot of it.
pub fn parent_overlap_get(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    let mut overlap = None;
    if has_layering(object)? {
        overlap = if snap == HEAD {
            stored_parent(object)?.and_then(|parent| parent.head_overlap)
        } else {
            let snap = snapshots::get(object, snap)?;
            let in_old_record = if snap.parent.exists() { snap.parent.head_overlap } else { None };
            snap.parent_overlap.or(in_old_record)
        };
    }
    answer(&overlap)
}

/// EEXIST if there is a parent already, unless `reattach`.
fn attach(object: &mut dyn Object, mut parent: Parent, reattach: bool) -> Result<(), Fault> {
    assert_exists(object)?;
    require_feature(object, features::LAYERING)?;
    let overlap = parent.head_overlap.unwrap_or(0);
    if !parent.exists() || overlap == 0 {
        return Err(Errno::EINVAL.into());
    }
    // One that only snapshots still refer to may come back.
    if let Some(stored) = stored_parent(object)?
        && (stored.head_overlap.is_some() || stored.spec != parent.spec)
        && !reattach
    {
        return Err(Errno::EEXIST.into());
    }
    parent.head_overlap = Some(overlap.min(read(object, "size")?));
    write(object, "parent", &parent)
}

/// ENOENT without a parent. Snapshots that cannot be flattened keep the link.
fn detach(object: &mut dyn Object, legacy: bool) -> Result<(), Fault> {
    assert_exists(object)?;
    let features: u64 = optional(read(object, "features"))?.unwrap_or(0);
    if features & features::LAYERING == 0 {
        return Err(Errno::ENOEXEC.into());
    }
    let mut parent: Parent = read(object, "parent")?;
    if legacy && !parent.spec.nspace.is_empty() {
        return Err(Errno::EXDEV.into());
    }
    if parent.head_overlap.is_none() {
        return Err(Errno::ENOENT.into());
    }
    let children: Vec<_> = snapshots::all(object)?.into_iter().filter(|snap| snap.has_parent()).collect();
    if !children.is_empty() && features & features::DEEP_FLATTEN == 0 {
        parent.head_overlap = None;
        return write(object, "parent", &parent);
    }
    for mut snap in children {
        snap.parent = Parent::default();
        snap.parent_overlap = None;
        snapshots::put(object, snap.id, snap)?;
    }
    forget(object, "parent")?;
    set_op_features(object, 0, operation::CLONE_CHILD)
}

pub fn parent_attach(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (spec, overlap): (ParentImageSpec, u64) = args.get()?;
    let reattach = !args.is_empty() && args.bool()?;
    attach(object, Parent { spec, head_overlap: Some(overlap) }, reattach)?;
    DONE
}

pub fn parent_detach(object: &mut dyn Object, _: Bytes) -> Output {
    detach(object, false)?;
    DONE
}

/// Before Nautilus: pool, image, snapshot and overlap in one. EXDEV for a parent
/// in a namespace, which this form cannot name.
pub fn get_parent(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    assert_exists(object)?;
    let mut parent = Parent::default();
    if has_layering(object)? {
        parent = stored_parent(object)?.unwrap_or_default();
        if !parent.spec.nspace.is_empty() {
            return Err(Errno::EXDEV.into());
        }
        if snap != HEAD {
            let record = optional(snapshots::get(object, snap))?.unwrap_or_default();
            if record.parent.exists() {
                parent = record.parent;
            } else if record.parent_overlap.is_some() {
                if !parent.exists() {
                    return Err(Errno::EINVAL.into());
                }
                parent.head_overlap = record.parent_overlap;
            } else {
                parent = Parent::default();
            }
        }
    }
    let mut e = Encoder::plain();
    e.i64(parent.spec.pool);
    e.put(&parent.spec.image);
    e.u64(parent.spec.snap);
    e.u64(parent.head_overlap.unwrap_or(0));
    Ok(e.finish())
}

pub fn set_parent(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let spec =
        ParentImageSpec { pool: args.i64()?, nspace: Bytes::new(), image: args.blob()?, snap: args.u64()? };
    let head_overlap = Some(args.u64()?);
    attach(object, Parent { spec, head_overlap }, false)?;
    DONE
}

pub fn remove_parent(object: &mut dyn Object, _: Bytes) -> Output {
    detach(object, true)?;
    DONE
}

fn children_key(snap: u64) -> String {
    format!("snap_children_{snap:016x}")
}

/// EEXIST; ENOENT also for a snapshot in the trash.
pub fn child_attach(object: &mut dyn Object, input: Bytes) -> Output {
    let (id, child): (u64, ChildImageSpec) = Decoder::plain(input).get()?;
    let mut snap = snapshots::get(object, id)?;
    if snap.namespace.kind() == SnapshotKind::TRASH {
        return Err(Errno::ENOENT.into());
    }
    let mut children: BTreeSet<ChildImageSpec> =
        optional(read(object, children_key(id)))?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EEXIST.into());
    }
    write(object, children_key(id), &children)?;
    snap.child_count = snap.child_count.wrapping_add(1);
    snapshots::put(object, id, snap)?;
    set_op_features(object, operation::CLONE_PARENT, operation::CLONE_PARENT)?;
    DONE
}

/// ENOENT; EINVAL if the count of children is wrong.
pub fn child_detach(object: &mut dyn Object, input: Bytes) -> Output {
    let (id, child): (u64, ChildImageSpec) = Decoder::plain(input).get()?;
    let mut snap = snapshots::get(object, id)?;
    let mut children: BTreeSet<ChildImageSpec> =
        optional(read(object, children_key(id)))?.unwrap_or_default();
    if usize::try_from(snap.child_count) != Ok(children.len()) {
        return Err(Errno::EINVAL.into());
    }
    if !children.remove(&child) {
        return Err(Errno::ENOENT.into());
    }
    if children.is_empty() {
        forget(object, children_key(id))?;
    } else {
        write(object, children_key(id), &children)?;
    }
    snap.child_count = children.len() as u32;
    snapshots::put(object, id, snap)?;
    if children.is_empty()
        && !snapshots::all(object)?.iter().any(|snap| snap.id != id && snap.child_count > 0)
    {
        set_op_features(object, 0, operation::CLONE_PARENT)?;
    }
    DONE
}

/// ENOENT if there are none.
pub fn children_list(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).u64()?;
    snapshots::get(object, id)?;
    answer(&read::<BTreeSet<ChildImageSpec>>(object, children_key(id))?)
}

/// A parent in `rbd_children`: pool, image and snapshot as they are encoded are
/// the key.
fn parent_key(args: &mut Decoder) -> Result<Bytes, Fault> {
    let before = args.rest_bytes();
    args.skip("pool", 8)?;
    Bytes::decode(args)?;
    args.skip("snapshot", 8)?;
    Ok(before.slice(..before.len() - args.remaining()))
}

pub fn add_child(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (key, child) = (parent_key(&mut args)?, args.blob()?);
    let mut children: BTreeSet<Bytes> = optional(read(object, &key))?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EEXIST.into());
    }
    write(object, &key, &children)?;
    DONE
}

pub fn remove_child(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (key, child) = (parent_key(&mut args)?, args.blob()?);
    let mut children: BTreeSet<Bytes> = read(object, &key)?;
    if !children.remove(&child) {
        return Err(Errno::ENOENT.into());
    }
    if children.is_empty() {
        remove(object, &key)?;
    } else {
        write(object, &key, &children)?;
    }
    DONE
}

pub fn get_children(object: &mut dyn Object, input: Bytes) -> Output {
    let key = parent_key(&mut Decoder::plain(input))?;
    answer(&read::<BTreeSet<Bytes>>(object, &key)?)
}
