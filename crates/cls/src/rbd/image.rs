//! The header of an image (`rbd_header.ID`): size, features, where its data is.

use super::features::{self, operation};
use super::snapshots;
use super::stored::{DONE, answer, assert_exists, assert_valid_id, decode, forget, optional, read, write};
use super::types::{HEAD, NO_POOL, Parent};
use crate::{Fault, Object, Output};
use base::{Errno, WallTime};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Decoder, Encode, Features};

/// ENOEXEC unless the image has these features; an image without the key is of
/// the old format, which has none.
pub fn require_feature(object: &mut dyn Object, need: u64) -> Result<(), Fault> {
    let features: u64 = optional(read(object, "features"))?.ok_or(Errno::ENOEXEC)?;
    if features & need == need { Ok(()) } else { Err(Errno::ENOEXEC.into()) }
}

/// Whether clones are possible: an error of any kind is a no, as in Ceph.
pub fn has_layering(object: &mut dyn Object) -> Result<bool, Fault> {
    match require_feature(object, features::LAYERING) {
        Ok(()) => Ok(true),
        Err(Fault::Later) => Err(Fault::Later),
        Err(_) => Ok(false),
    }
}

/// Changes the bits of `mask`; keeps the feature "operations" set just while
/// there are any.
pub fn set_op_features(object: &mut dyn Object, bits: u64, mask: u64) -> Result<(), Fault> {
    let features: u64 = read(object, "features")?;
    let old: u64 = optional(read(object, "op_features"))?.unwrap_or(0);
    let new = (old & !mask) | (bits & mask);
    if new == old {
        return Ok(());
    }
    let changed = if new == 0 {
        forget(object, "op_features")?;
        features & !features::OPERATIONS
    } else {
        write(object, "op_features", &new)?;
        features | features::OPERATIONS
    };
    if changed != features {
        write(object, "features", &changed)?;
    }
    Ok(())
}

/// Makes a header. ENOSYS for features unknown here, EEXIST if it is there.
pub fn create(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (size, order, features, prefix) = (args.u64()?, args.u8()?, args.u64()?, args.blob()?);
    let data_pool = if args.is_empty() { NO_POOL } else { args.i64()? };
    if features & !features::ALL != 0 {
        return Err(Errno::ENOSYS.into());
    }
    if prefix.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    if optional(object.omap_get(b"object_prefix"))?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    if features & features::OPERATIONS != 0 || (features & features::DATA_POOL != 0) != (data_pool != NO_POOL)
    {
        return Err(Errno::EINVAL.into());
    }
    let now = object.now();
    let mut entries = BTreeMap::new();
    let mut put = |key: &'static str, value: &dyn Encode| {
        entries.insert(Bytes::from_static(key.as_bytes()), value.to_bytes(Features::ALL));
    };
    put("size", &size);
    put("order", &order);
    put("features", &features);
    put("object_prefix", &prefix);
    put("snap_seq", &0u64);
    put("create_timestamp", &now);
    put("access_timestamp", &now);
    put("modify_timestamp", &now);
    if data_pool != NO_POOL {
        put("data_pool_id", &data_pool);
    }
    object.omap_set(entries)?;
    DONE
}

/// Features, and those a client must know to use the image.
pub fn get_features(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let _snap = args.u64()?;
    let read_only = !args.is_empty() && args.bool()?;
    let features: u64 = read(object, "features")?;
    let needed = if read_only { features::INCOMPATIBLE } else { features::WRITE_INCOMPATIBLE };
    answer(&(features, features & needed))
}

pub fn set_features(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (features, mask) = (args.u64()?, args.u64()?);
    let old: u64 = optional(read(object, "features"))?.unwrap_or(0);
    if mask & features::INTERNAL != 0 {
        return Err(Errno::EINVAL.into());
    }
    // Newer clients switch off what is unknown here.
    let mask = mask & features::ALL;
    let (enabled, disabled) = (features & mask, !features & mask);
    if enabled & !features::MUTABLE != 0 || disabled & !(features::MUTABLE | features::DISABLE_ONLY) != 0 {
        return Err(Errno::EINVAL.into());
    }
    write(object, "features", &((old & !mask) | enabled))?;
    DONE
}

/// All features this class knows.
pub fn get_all_features(_: &mut dyn Object, _: Bytes) -> Output {
    answer(&features::ALL)
}

/// Order and size, of the image or of a snapshot.
pub fn get_size(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    let order: u8 = read(object, "order")?;
    let size = if snap == HEAD { read(object, "size")? } else { snapshots::get(object, snap)?.image_size };
    answer(&(order, size))
}

/// Shrinking shrinks what the image shares with its parent, too.
pub fn set_size(object: &mut dyn Object, input: Bytes) -> Output {
    let size = Decoder::plain(input).u64()?;
    let old: u64 = read(object, "size")?;
    write(object, "size", &size)?;
    if size < old
        && let Some(mut parent) = optional(read::<Parent>(object, "parent"))?
        && parent.exists()
        && parent.head_overlap.is_some_and(|overlap| overlap > size)
    {
        parent.head_overlap = Some(size);
        write(object, "parent", &parent)?;
    }
    DONE
}

pub fn get_flags(object: &mut dyn Object, input: Bytes) -> Output {
    let snap = Decoder::plain(input).u64()?;
    let flags = match snap {
        HEAD => optional(read(object, "flags"))?.unwrap_or(0),
        snap => snapshots::get(object, snap)?.flags,
    };
    answer(&flags)
}

pub fn set_flags(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (flags, mask) = (args.u64()?, args.u64()?);
    let snap = if args.is_empty() { HEAD } else { args.u64()? };
    let merge = |old: u64| (old & !mask) | (flags & mask);
    if snap == HEAD {
        let old = optional(read(object, "flags"))?.unwrap_or(0);
        write(object, "flags", &merge(old))?;
    } else {
        let mut record = snapshots::get(object, snap)?;
        record.flags = merge(record.flags);
        snapshots::put(object, snap, record)?;
    }
    DONE
}

pub fn op_features_get(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&optional(read::<u64>(object, "op_features"))?.unwrap_or(0))
}

pub fn op_features_set(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (bits, mask) = (args.u64()?, args.u64()?);
    if mask & !operation::ALL != 0 {
        return Err(Errno::EINVAL.into());
    }
    set_op_features(object, bits, mask)?;
    DONE
}

pub fn get_object_prefix(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&read::<Bytes>(object, "object_prefix")?)
}

/// The pool of the data objects; -1 if it is the header's.
pub fn get_data_pool(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&optional(read(object, "data_pool_id"))?.unwrap_or(NO_POOL))
}

/// Bytes of a data object. Orders from 64 on wrap, as they do in Ceph.
fn object_size(order: u8) -> u64 {
    1u64.wrapping_shl(u32::from(order))
}

/// Stripe unit in bytes, and the number of objects a stripe spans.
pub fn get_stripe_unit_count(object: &mut dyn Object, _: Bytes) -> Output {
    assert_exists(object)?;
    require_feature(object, features::STRIPINGV2)?;
    let unit = match optional(read(object, "stripe_unit"))? {
        Some(unit) => unit,
        None => object_size(optional(read(object, "order"))?.ok_or(Errno::EIO)?),
    };
    let count: u64 = optional(read(object, "stripe_count"))?.unwrap_or(1);
    answer(&(unit, count))
}

pub fn set_stripe_unit_count(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (unit, count) = (args.u64()?, args.u64()?);
    if unit == 0 || count == 0 {
        return Err(Errno::EINVAL.into());
    }
    assert_exists(object)?;
    require_feature(object, features::STRIPINGV2)?;
    let size = object_size(read(object, "order")?);
    if !size.is_multiple_of(unit) || unit > size {
        return Err(Errno::EINVAL.into());
    }
    write(object, "stripe_unit", &unit)?;
    write(object, "stripe_count", &count)?;
    DONE
}

/// Zero if it was never set.
fn timestamp(object: &mut dyn Object, key: &str) -> Output {
    answer(&optional(read(object, key))?.unwrap_or(WallTime { sec: 0, nsec: 0 }))
}

fn set_timestamp(object: &mut dyn Object, key: &str) -> Output {
    assert_exists(object)?;
    let now = object.now();
    write(object, key, &now)?;
    DONE
}

pub fn get_create_timestamp(object: &mut dyn Object, _: Bytes) -> Output {
    timestamp(object, "create_timestamp")
}

pub fn get_access_timestamp(object: &mut dyn Object, _: Bytes) -> Output {
    timestamp(object, "access_timestamp")
}

pub fn get_modify_timestamp(object: &mut dyn Object, _: Bytes) -> Output {
    timestamp(object, "modify_timestamp")
}

pub fn set_access_timestamp(object: &mut dyn Object, _: Bytes) -> Output {
    set_timestamp(object, "access_timestamp")
}

pub fn set_modify_timestamp(object: &mut dyn Object, _: Bytes) -> Output {
    set_timestamp(object, "modify_timestamp")
}

/// The id in `rbd_id.NAME`.
pub fn get_id(object: &mut dyn Object, _: Bytes) -> Output {
    let (size, _) = object.stat()?;
    if size == 0 {
        return Err(Errno::ENOENT.into());
    }
    answer(&decode::<Bytes>(object.read(0, size)?)?)
}

/// ENOENT unless the object was made before, EEXIST if it holds an id.
pub fn set_id(object: &mut dyn Object, input: Bytes) -> Output {
    assert_exists(object)?;
    let id = Decoder::plain(input).blob()?;
    assert_valid_id(&id)?;
    if object.stat()?.0 != 0 {
        return Err(Errno::EEXIST.into());
    }
    object.write(0, id.to_bytes(Features::ALL))?;
    DONE
}
