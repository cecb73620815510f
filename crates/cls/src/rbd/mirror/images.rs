//! Which images are mirrored, and which instance of the mirror daemon has each.

use super::status::remove_status;
use crate::rbd::snapshots;
use crate::rbd::stored::{DONE, answer, decode, forget, key, list, optional, read, remove, write};
use crate::rbd::types::mirror::{MirrorImage, MirrorImageMap, image_state};
use crate::rbd::types::{MirrorSnapshot, SnapshotNamespace};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Decode, Decoder, Features};

pub(super) const IMAGE: &str = "image_";
/// From the id that all clusters share to the image's id here.
pub(super) const GLOBAL: &str = "global_";
const MAP: &str = "image_map_";

/// Image ids, and the id that all clusters share.
pub fn mirror_image_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (Bytes, u64) = Decoder::plain(input).get()?;
    let found = list(object, IMAGE, start_after, max)?;
    let ids = found.into_iter().map(|(id, raw)| Ok((id, decode::<MirrorImage>(raw)?.global_id)));
    answer(&ids.collect::<Result<BTreeMap<_, _>, Fault>>()?)
}

pub fn mirror_image_get_image_id(object: &mut dyn Object, input: Bytes) -> Output {
    let global_id = Decoder::plain(input).blob()?;
    answer(&read::<Bytes>(object, key(GLOBAL, global_id))?)
}

pub fn mirror_image_get(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    answer(&read::<MirrorImage>(object, key(IMAGE, id))?)
}

/// EEXIST if another image has the shared id; EINVAL to change it; ENOENT to
/// disable what was never enabled.
pub fn mirror_image_set(object: &mut dyn Object, input: Bytes) -> Output {
    let (id, image): (Bytes, MirrorImage) = Decoder::plain(input).get()?;
    match optional(read::<MirrorImage>(object, key(IMAGE, &id)))? {
        Some(stored) if stored.global_id != image.global_id => return Err(Errno::EINVAL.into()),
        Some(_) => {}
        None => {
            if optional(read::<Bytes>(object, key(GLOBAL, &image.global_id)))?.is_some() {
                return Err(Errno::EEXIST.into());
            }
            if image.state == image_state::DISABLING {
                return Err(Errno::ENOENT.into());
            }
        }
    }
    write(object, key(IMAGE, &id), &image)?;
    write(object, key(GLOBAL, &image.global_id), &id)?;
    DONE
}

/// EBUSY unless it is being disabled.
pub fn mirror_image_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    let image: MirrorImage = read(object, key(IMAGE, &id))?;
    if image.state != image_state::DISABLING {
        return Err(Errno::EBUSY.into());
    }
    remove(object, key(IMAGE, id))?;
    forget(object, key(GLOBAL, &image.global_id))?;
    remove_status(object, &image.global_id)?;
    DONE
}

/// EINVAL if an entry is damaged, as in Ceph.
pub fn mirror_image_map_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (Bytes, u64) = Decoder::plain(input).get()?;
    let found = list(object, MAP, start_after, max)?;
    let maps = found.into_iter().map(|(id, raw)| Ok((id, MirrorImageMap::from_bytes(raw, Features::ALL)?)));
    answer(&maps.collect::<Result<BTreeMap<_, _>, Fault>>()?)
}

pub fn mirror_image_map_update(object: &mut dyn Object, input: Bytes) -> Output {
    let (global_id, map): (Bytes, MirrorImageMap) = Decoder::plain(input).get()?;
    write(object, key(MAP, global_id), &map)?;
    DONE
}

pub fn mirror_image_map_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let global_id = Decoder::plain(input).blob()?;
    forget(object, key(MAP, global_id))?;
    DONE
}

/// Changes a mirroring snapshot's particulars. EINVAL for one of another kind.
fn change_snapshot(
    object: &mut dyn Object,
    id: u64,
    change: impl FnOnce(&mut MirrorSnapshot) -> Result<(), Errno>,
) -> Output {
    let mut snap = snapshots::get(object, id)?;
    let SnapshotNamespace::Mirror(mirror) = &mut snap.namespace else {
        return Err(Errno::EINVAL.into());
    };
    change(mirror)?;
    snapshots::put(object, id, snap)?;
    DONE
}

/// A peer no longer needs the snapshot. ENOENT if it did not.
pub fn mirror_image_snapshot_unlink_peer(object: &mut dyn Object, input: Bytes) -> Output {
    let (id, peer): (u64, Bytes) = Decoder::plain(input).get()?;
    change_snapshot(object, id, |mirror| if mirror.peers.remove(&peer) { Ok(()) } else { Err(Errno::ENOENT) })
}

pub fn mirror_image_snapshot_set_copy_progress(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (id, complete, last_copied) = (args.u64()?, args.bool()?, args.u64()?);
    change_snapshot(object, id, |mirror| {
        mirror.complete = complete;
        if mirror.is_non_primary() {
            mirror.last_copied_object = last_copied;
        }
        Ok(())
    })
}
