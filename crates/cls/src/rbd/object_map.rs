//! `rbd_object_map.ID`: which of an image's data objects exist.

use super::bit_vector::{
    BLOCK, BitVector, HEADER_LEN, STATES_PER_BLOCK, block_of, checksum, data_len, decode_header, get, set,
};
use super::stored::{DONE, answer, optional};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::ops::Range;
use wire::{Decode, Decoder, Encode, Encoder, Features};

/// `MAX_OBJECT_MAP_OBJECT_COUNT`: 64 MB of map.
const OBJECTS_MAX: u64 = 256_000_000;

/// States. 0 is an object that is not there, 2 one that is being removed.
const EXISTS: u8 = 1;
/// Unchanged since the last snapshot.
const EXISTS_CLEAN: u8 = 3;

/// ENOENT also for an empty object; EINVAL if it is damaged, as in Ceph.
fn load(object: &mut dyn Object) -> Result<BitVector, Fault> {
    let (size, _) = object.stat()?;
    if size == 0 {
        return Err(Errno::ENOENT.into());
    }
    Ok(BitVector::from_bytes(object.read(0, size)?, Features::ALL)?)
}

fn store(object: &mut dyn Object, map: &BitVector) -> Result<(), Fault> {
    object.write_full(map.to_bytes(Features::ALL))
}

/// The map, without checksums.
pub fn object_map_load(object: &mut dyn Object, _: Bytes) -> Output {
    let mut map = load(object)?;
    map.has_checksums = false;
    answer(&map)
}

pub fn object_map_save(object: &mut dyn Object, input: Bytes) -> Output {
    let mut map: BitVector = Decoder::plain(input).get()?;
    map.has_checksums = true;
    store(object, &map)?;
    DONE
}

/// ESTALE if what is cut off is not all in the state that new objects get.
pub fn object_map_resize(object: &mut dyn Object, input: Bytes) -> Output {
    let (count, state): (u64, u8) = Decoder::plain(input).get()?;
    if count > OBJECTS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let mut map = optional(load(object))?.unwrap_or_default();
    if count < map.len() && !map.all(count..map.len(), state) {
        return Err(Errno::ESTALE.into());
    }
    map.resize(count, state);
    store(object, &map)?;
    DONE
}

/// Parts of the object. One that is small is read at once, since each read may
/// have to wait for a device.
struct Parts {
    whole: Option<Bytes>,
}

impl Parts {
    const AT_ONCE_MAX: u64 = 64 << 10;

    fn of(object: &mut dyn Object) -> Result<Parts, Fault> {
        let (size, _) = object.stat()?;
        let whole = if size <= Parts::AT_ONCE_MAX { Some(object.read(0, 0)?) } else { None };
        Ok(Parts { whole })
    }

    /// At most `len` bytes, which are not 0.
    fn read(&self, object: &mut dyn Object, at: u64, len: u64) -> Result<Bytes, Fault> {
        let Some(whole) = &self.whole else { return object.read(at, len) };
        let size = whole.len() as u64;
        let (from, to) = (at.min(size), at.saturating_add(len).min(size));
        Ok(whole.slice(from as usize..to as usize))
    }
}

/// Changes the states of a range, or those of it that are in a given state; reads
/// and writes only the blocks concerned. ERANGE outside the map.
pub fn object_map_update(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (start, end, new) = (args.u64()?, args.u64()?, args.u8()?);
    let current: Option<u8> = args.get()?;
    let parts = Parts::of(object)?;
    let (count, _) = decode_header(&mut Decoder::plain(parts.read(object, 0, HEADER_LEN)?))?;
    if start >= end || end > count {
        return Err(Errno::ERANGE.into());
    }

    let (first, last) = (block_of(start), block_of(end - 1));
    // After the data: the footer's length, the header's checksum, the number of blocks.
    let crcs_at = HEADER_LEN + data_len(count) + 12 + 4 * first;
    let data_at = first * BLOCK;
    let data_end = data_len(count).min((last + 1) * BLOCK);
    let mut crcs = Decoder::plain(parts.read(object, crcs_at, 4 * (last - first + 1))?);
    let data = parts.read(object, HEADER_LEN + data_at, data_end - data_at)?;
    if data.len() as u64 != data_end - data_at {
        return Err(Errno::EINVAL.into());
    }
    for block in data.chunks(BLOCK as usize) {
        if crcs.u32()? != checksum(block) {
            return Err(Errno::EINVAL.into());
        }
    }

    let mut data = Vec::from(data);
    let first_state = first * STATES_PER_BLOCK;
    let changed = change(&mut data, start - first_state..end - first_state, new, current);
    if changed {
        let mut crcs = Encoder::plain();
        data.chunks(BLOCK as usize).for_each(|block| crcs.u32(checksum(block)));
        object.write(HEADER_LEN + data_at, data.into())?;
        object.write(crcs_at, crcs.finish())?;
    }
    DONE
}

/// Whether any state became another. Who expects "exists" means "exists, clean", too.
fn change(data: &mut [u8], range: Range<u64>, new: u8, current: Option<u8>) -> bool {
    let mut changed = false;
    for index in range {
        let state = get(data, index);
        let matches =
            current.is_none_or(|current| state == current || (current == EXISTS && state == EXISTS_CLEAN));
        if matches && state != new {
            set(data, index, new);
            changed = true;
        }
    }
    changed
}

/// After a snapshot: what exists is clean.
pub fn object_map_snap_add(object: &mut dyn Object, _: Bytes) -> Output {
    let mut map = load(object)?;
    let old = map.clone();
    map.map(|state| if state == EXISTS { EXISTS_CLEAN } else { state });
    if map != old {
        store(object, &map)?;
    }
    DONE
}

/// Before a snapshot goes, whose map is given: clean objects that it did not
/// have clean are clean no longer.
pub fn object_map_snap_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let removed: BitVector = Decoder::plain(input).get()?;
    let mut map = load(object)?;
    let mut changed = false;
    for index in 0..map.len() {
        let lost = index >= removed.len() || removed.get(index) == EXISTS;
        if lost && map.get(index) == EXISTS_CLEAN {
            map.set(index, EXISTS);
            changed = true;
        }
    }
    if changed {
        store(object, &map)?;
    }
    DONE
}
