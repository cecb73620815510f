//! OMAPGET*, OMAPSET*, OMAPRM*, OMAPCLEAR.

use super::{Done, OpEnd, StagedObject, Stop, input};
use crate::exec::limits;
use base::Errno;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::{OmapLimit, OmapPage};
use wire::codec::Encoder;
use wire::messages::OsdOp;

pub(super) fn get_keys(object: &StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let mut d = input(op);
    let (start_after, max) = (d.blob()?, d.u64()?);
    list(object, &start_after, &[], max, |e, key, _| e.blob(key))
}

pub(super) fn get_values(object: &StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let mut d = input(op);
    let (start_after, max, prefix) = (d.blob()?, d.u64()?, d.blob()?);
    list(object, &start_after, &prefix, max, |e, key, value| {
        e.blob(key);
        e.blob(value);
    })
}

/// As many as one operation may give.
pub(super) fn entries(
    object: &StagedObject<'_>,
    start_after: &[u8],
    prefix: &[u8],
    max: u64,
) -> Result<OmapPage, Stop> {
    if !object.exists || !object.info.has_omap {
        return Ok(OmapPage::default());
    }
    let entries = max.min(limits::OMAP_ENTRIES_MAX) as usize;
    let limit = OmapLimit { entries, bytes: limits::OMAP_BYTES_MAX };
    object.omap_list(Some(start_after), prefix, limit)
}

/// A count, the entries, and whether there are more.
fn list(
    object: &StagedObject<'_>,
    start_after: &[u8],
    prefix: &[u8],
    max: u64,
    encode: impl Fn(&mut Encoder, &[u8], &[u8]),
) -> OpEnd {
    let page = entries(object, start_after, prefix, max)?;
    let mut e = Encoder::plain();
    e.count(page.entries.len());
    page.entries.iter().for_each(|(key, value)| encode(&mut e, key, value));
    e.bool(page.more);
    Ok(Done::keep_with(e.finish()))
}

pub(super) fn get_header(object: &StagedObject<'_>) -> OpEnd {
    if !object.exists || !object.info.has_omap {
        return Ok(Done::KEEP);
    }
    Ok(Done::keep_with(object.omap_header()?))
}

pub(super) fn get_values_by_keys(object: &StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let keys: BTreeSet<Bytes> = input(op).get()?;
    let mut found = BTreeMap::new();
    if object.exists && object.info.has_omap {
        for key in keys {
            if let Some(value) = object.omap_get(&key)? {
                found.insert(key, value);
            }
        }
    }
    let mut e = Encoder::plain();
    e.put(&found);
    Ok(Done::keep_with(e.finish()))
}

pub(super) fn set_values(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    object.create();
    set_entries(object, input(op).get()?)?;
    Ok(Done::OK)
}

pub(super) fn set_entries(
    object: &mut StagedObject<'_>,
    entries: BTreeMap<Bytes, Bytes>,
) -> Result<(), Stop> {
    for (key, value) in &entries {
        check_key(key)?;
        check_value(value)?;
    }
    object.set_omap(entries)
}

pub(super) fn set_header(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    check_value(&op.indata)?;
    object.set_omap_header(op.indata.clone());
    Ok(Done::OK)
}

/// Clearing what was never set changes nothing, and no version.
pub(super) fn clear(object: &mut StagedObject<'_>) -> OpEnd {
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    if object.info.has_omap {
        object.clear_omap();
    }
    Ok(Done::OK)
}

pub(super) fn remove_keys(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    object.rm_omap(input(op).get()?)?;
    Ok(Done::OK)
}

pub(super) fn remove_key_range(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    let mut d = input(op);
    object.rm_omap_range(d.blob()?, d.blob()?)?;
    Ok(Done::OK)
}

/// Ceph has no bound of its own here; its key-value store does.
fn check_key(key: &[u8]) -> Result<(), Stop> {
    if key.len() > limits::OMAP_KEY_LEN_MAX { Err(Errno::ENAMETOOLONG.into()) } else { Ok(()) }
}

pub(super) fn check_value(value: &[u8]) -> Result<(), Stop> {
    if value.len() > limits::OMAP_VALUE_LEN_MAX { Err(Errno::EFBIG.into()) } else { Ok(()) }
}
