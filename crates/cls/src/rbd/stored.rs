//! What every group of methods does with the omap: typed values, keys, listings.

use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Decode, Encode, Features};

/// A method without an answer.
pub const DONE: Output = Ok(Bytes::new());

/// An answer in Ceph's encoding.
pub fn answer(value: &impl Encode) -> Output {
    Ok(value.to_bytes(Features::ALL))
}

/// ENOENT as `None`. Other errors, and data that must be fetched first, go up.
pub fn optional<T>(found: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Errno(Errno::ENOENT)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Decodes what was stored. EIO if it is damaged.
pub fn decode<T: Decode>(raw: Bytes) -> Result<T, Fault> {
    T::from_bytes(raw, Features::ALL).map_err(|_| Errno::EIO.into())
}

/// The value of a key. ENOENT; EIO if it is damaged.
pub fn read<T: Decode>(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<T, Fault> {
    decode(object.omap_get(key.as_ref())?)
}

pub fn write(object: &mut dyn Object, key: impl AsRef<[u8]>, value: &impl Encode) -> Result<(), Fault> {
    write_raw(object, key, value.to_bytes(Features::ALL))
}

pub fn write_raw(object: &mut dyn Object, key: impl AsRef<[u8]>, value: Bytes) -> Result<(), Fault> {
    object.omap_set(BTreeMap::from([(Bytes::copy_from_slice(key.as_ref()), value)]))
}

/// ENOENT without the object; a key that is not there does no harm.
pub fn remove(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<(), Fault> {
    object.omap_remove(BTreeSet::from([Bytes::copy_from_slice(key.as_ref())]))
}

/// Neither a missing key nor a missing object does harm.
pub fn forget(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<(), Fault> {
    if object.exists() { remove(object, key) } else { Ok(()) }
}

pub fn assert_exists(object: &mut dyn Object) -> Result<(), Fault> {
    if object.exists() { Ok(()) } else { Err(Errno::ENOENT.into()) }
}

/// `prefix` and `name` as one key.
pub fn key(prefix: &str, name: impl AsRef<[u8]>) -> Bytes {
    [prefix.as_bytes(), name.as_ref()].concat().into()
}

/// At most `max` entries whose keys begin with `prefix` and come after
/// `start_after`, which holds the prefix too: what follows the prefix, and the
/// value. Nothing without the object.
pub fn list_after(
    object: &mut dyn Object,
    prefix: &str,
    start_after: Bytes,
    max: u64,
) -> Result<Vec<(Bytes, Bytes)>, Fault> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut found: Vec<(Bytes, Bytes)> = Vec::new();
    let mut last = start_after;
    let mut more = true;
    while more && found.len() < max {
        let page;
        (page, more) = object.omap_list(&last, prefix.as_bytes(), max - found.len())?;
        let Some((key, _)) = page.last() else { break };
        last = key.clone();
        found.extend(page.into_iter().map(|(key, value)| (key.slice(prefix.len().min(key.len())..), value)));
    }
    Ok(found)
}

/// [`list_after`] for a name without its prefix.
pub fn list(
    object: &mut dyn Object,
    prefix: &str,
    start_after: impl AsRef<[u8]>,
    max: u64,
) -> Result<Vec<(Bytes, Bytes)>, Fault> {
    list_after(object, prefix, key(prefix, start_after), max)
}

/// Every entry of a prefix.
pub fn list_all(object: &mut dyn Object, prefix: &str) -> Result<Vec<(Bytes, Bytes)>, Fault> {
    list(object, prefix, "", u64::MAX)
}

/// Ids are in object names: letters and digits only. EINVAL.
pub fn assert_valid_id(id: &[u8]) -> Result<(), Fault> {
    let valid = !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric);
    if valid { Ok(()) } else { Err(Errno::EINVAL.into()) }
}
