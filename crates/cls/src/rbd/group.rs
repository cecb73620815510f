//! Groups of images: a group's header (`rbd_group_header.ID`), and the reference
//! in each image's header. Their directory is like that of images.

use super::features::operation;
use super::image::set_op_features;
use super::stored::{DONE, answer, decode, key, list, list_after, list_all, optional, read, remove, write};
use super::types::{GroupImageSpec, GroupImageStatus, GroupSnapshot, GroupSpec, NO_POOL};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use wire::{Decode, Decoder, Features};

/// In an image's header: the group it belongs to.
const REFERENCE: &str = "rbd_group_ref";
const IMAGE: &str = "image_";
const SNAPSHOT: &str = "snapshot_";

fn image_key(spec: &GroupImageSpec) -> Bytes {
    if spec.pool == NO_POOL {
        return Bytes::new();
    }
    [format!("{IMAGE}{:016x}_", spec.pool).as_bytes(), &spec.image].concat().into()
}

/// The image that a key without its prefix names. EIO.
fn image_of(key: &Bytes) -> Result<GroupImageSpec, Fault> {
    let split = key.iter().position(|c| *c == b'_').ok_or(Errno::EIO)?;
    let pool =
        std::str::from_utf8(&key[..split]).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Ok(GroupImageSpec { image: key.slice(split + 1..), pool: pool.ok_or(Errno::EIO)? as i64 })
}

pub fn group_image_set(object: &mut dyn Object, input: Bytes) -> Output {
    let status: GroupImageStatus = Decoder::plain(input).get()?;
    write(object, image_key(&status.spec), &status.state)?;
    DONE
}

pub fn group_image_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let spec: GroupImageSpec = Decoder::plain(input).get()?;
    remove(object, image_key(&spec))?;
    DONE
}

pub fn group_image_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (GroupImageSpec, u64) = Decoder::plain(input).get()?;
    let found = list_after(object, IMAGE, image_key(&start_after), max)?;
    let images = found
        .into_iter()
        .map(|(key, state)| Ok(GroupImageStatus { state: decode(state)?, spec: image_of(&key)? }));
    answer(&images.collect::<Result<Vec<_>, Fault>>()?)
}

/// EEXIST for another group than the image is in.
pub fn image_group_add(object: &mut dyn Object, input: Bytes) -> Output {
    let group: GroupSpec = Decoder::plain(input).get()?;
    match reference(object)? {
        Some(other) if other == group => {}
        Some(_) => return Err(Errno::EEXIST.into()),
        None => {
            set_op_features(object, operation::GROUP, operation::GROUP)?;
            write(object, REFERENCE, &group)?;
        }
    }
    DONE
}

/// EINVAL if it is damaged, as in Ceph.
fn reference(object: &mut dyn Object) -> Result<Option<GroupSpec>, Fault> {
    let raw = optional(object.omap_get(REFERENCE.as_bytes()))?;
    Ok(raw.map(|raw| GroupSpec::from_bytes(raw, Features::ALL)).transpose()?)
}

/// EBADF for another group than the image is in.
pub fn image_group_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let group: GroupSpec = Decoder::plain(input).get()?;
    if reference(object)?.ok_or(Errno::ENOENT)? != group {
        return Err(Errno::EBADF.into());
    }
    remove(object, REFERENCE)?;
    set_op_features(object, 0, operation::GROUP)?;
    DONE
}

/// Pool -1 if it is in none.
pub fn image_group_get(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&reference(object)?.unwrap_or_default())
}

/// EEXIST for a used name, or for a snapshot begun twice.
pub fn group_snap_set(object: &mut dyn Object, input: Bytes) -> Output {
    let snap: GroupSnapshot = Decoder::plain(input).get()?;
    if snap.name.is_empty() || snap.id.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    for (_, raw) in list_all(object, SNAPSHOT)? {
        let other: GroupSnapshot = decode(raw)?;
        if other.name == snap.name && other.id != snap.id {
            return Err(Errno::EEXIST.into());
        }
    }
    let key = key(SNAPSHOT, &snap.id);
    if snap.state == GroupSnapshot::INCOMPLETE && optional(object.omap_get(&key))?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    write(object, &key, &snap)?;
    DONE
}

pub fn group_snap_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    remove(object, key(SNAPSHOT, id))?;
    DONE
}

pub fn group_snap_get_by_id(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    answer(&read::<GroupSnapshot>(object, key(SNAPSHOT, id))?)
}

/// Ends before the first damaged one, as in Ceph.
pub fn group_snap_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (GroupSnapshot, u64) = Decoder::plain(input).get()?;
    let found = list(object, SNAPSHOT, start_after.id, max)?;
    let snaps: Vec<GroupSnapshot> = found.into_iter().map_while(|(_, raw)| decode(raw).ok()).collect();
    answer(&snaps)
}
