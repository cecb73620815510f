//! Names and values that users and clients attach to an image or a pool: keys
//! `metadata_` of its header or of `rbd_info`.

use super::stored::{DONE, answer, key, list, remove};
use crate::{Object, Output};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::Decoder;

const PREFIX: &str = "metadata_";
/// What a client gets that asks for none.
const DEFAULT_MAX: u64 = 64;

pub fn metadata_set(object: &mut dyn Object, input: Bytes) -> Output {
    let entries: BTreeMap<Bytes, Bytes> = Decoder::plain(input).get()?;
    object.omap_set(entries.into_iter().map(|(name, value)| (key(PREFIX, name), value)).collect())?;
    DONE
}

/// A name that is not there does no harm.
pub fn metadata_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let name = Decoder::plain(input).blob()?;
    remove(object, key(PREFIX, name))?;
    DONE
}

pub fn metadata_get(object: &mut dyn Object, input: Bytes) -> Output {
    let name = Decoder::plain(input).blob()?;
    answer(&object.omap_get(&key(PREFIX, name))?)
}

pub fn metadata_list(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (start_after, max) = (args.blob()?, args.u64()?);
    let max = if max == 0 { DEFAULT_MAX } else { max };
    answer(&BTreeMap::from_iter(list(object, PREFIX, start_after, max)?))
}
