//! `rbd_namespace`: the namespaces of a pool.

use super::stored::{DONE, answer, key, list, optional, remove, write_raw};
use crate::{Object, Output};
use base::Errno;
use bytes::Bytes;
use wire::Decoder;

const PREFIX: &str = "name_";

pub fn namespace_add(object: &mut dyn Object, input: Bytes) -> Output {
    let key = key(PREFIX, Decoder::plain(input).blob()?);
    if optional(object.omap_get(&key))?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    write_raw(object, &key, Bytes::new())?;
    DONE
}

pub fn namespace_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let key = key(PREFIX, Decoder::plain(input).blob()?);
    object.omap_get(&key)?;
    remove(object, &key)?;
    DONE
}

pub fn namespace_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (Bytes, u64) = Decoder::plain(input).get()?;
    let names: Vec<Bytes> =
        list(object, PREFIX, start_after, max)?.into_iter().map(|(name, _)| name).collect();
    answer(&names)
}
