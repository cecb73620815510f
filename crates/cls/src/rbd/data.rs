//! Data objects.

use super::stored::{DONE, assert_exists, optional};
use crate::{Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use wire::Decoder;

/// The parent's data for a clone's object; nothing if the object is there already.
pub fn copyup(object: &mut dyn Object, input: Bytes) -> Output {
    if !object.exists() {
        object.write(0, input)?;
    }
    DONE
}

/// The same, as extents and their bytes one after the other.
pub fn sparse_copyup(object: &mut dyn Object, input: Bytes) -> Output {
    let (extents, mut data): (BTreeMap<u64, u64>, Bytes) = Decoder::plain(input).get()?;
    if object.exists() {
        return DONE;
    }
    if extents.is_empty() {
        object.create(true)?;
    }
    for (offset, len) in extents {
        let len = usize::try_from(len).ok().filter(|len| *len <= data.len()).ok_or(Errno::EINVAL)?;
        object.write(offset, data.split_to(len))?;
    }
    DONE
}

/// Guards a copyup against racing with a snapshot: ERANGE unless the writer's
/// snapshot context is newer (0), or is not (1), than what the object has seen.
pub fn assert_snapc_seq(object: &mut dyn Object, input: Bytes) -> Output {
    let (writer, expected): (u64, u8) = Decoder::plain(input).get()?;
    let is_newer = optional(object.snap_seq())?.is_none_or(|seen| writer > seen);
    match (expected, is_newer) {
        (0, true) | (1, false) => DONE,
        (0 | 1, _) => Err(Errno::ERANGE.into()),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Gives back the space of zeros, looked for in steps of `step` bytes; an object
/// of zeros becomes empty or, if wished, goes.
pub fn sparsify(object: &mut dyn Object, input: Bytes) -> Output {
    let (step, remove_empty): (u64, bool) = Decoder::plain(input).get()?;
    assert_exists(object)?;
    // Ceph's OSD would look for ever.
    let step = usize::try_from(step).ok().filter(|step| *step > 0).ok_or(Errno::EINVAL)?;
    let data = object.read(0, 0)?;
    let extents = extents_of_data(&data, step);
    if extents.is_empty() {
        if remove_empty {
            object.remove()?;
        } else if !data.is_empty() {
            object.truncate(0)?;
        }
        return DONE;
    }
    let whole = 0..data.len();
    if extents != [whole] {
        object.truncate(0)?;
        for extent in extents {
            object.write(extent.start as u64, data.slice(extent))?;
        }
    }
    DONE
}

/// The runs of steps that are not all zeros.
fn extents_of_data(data: &[u8], step: usize) -> Vec<Range<usize>> {
    let mut extents: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    for chunk in data.chunks(step) {
        if chunk.iter().any(|byte| *byte != 0) {
            match extents.last_mut().filter(|last| last.end == at) {
                Some(last) => last.end += chunk.len(),
                None => extents.push(at..at + chunk.len()),
            }
        }
        at += chunk.len();
    }
    extents
}
