//! `rbd_trash`: images waiting to be removed, by id.

use super::stored::{DONE, answer, assert_valid_id, decode, key, list, optional, read, remove, write};
use super::types::TrashImageSpec;
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::Decoder;

const PREFIX: &str = "id_";

pub fn trash_add(object: &mut dyn Object, input: Bytes) -> Output {
    object.create(false)?;
    let (id, spec): (Bytes, TrashImageSpec) = Decoder::plain(input).get()?;
    assert_valid_id(&id)?;
    let key = key(PREFIX, id);
    if optional(read::<TrashImageSpec>(object, &key))?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    write(object, &key, &spec)?;
    DONE
}

pub fn trash_remove(object: &mut dyn Object, input: Bytes) -> Output {
    let key = key(PREFIX, Decoder::plain(input).blob()?);
    object.omap_get(&key)?;
    remove(object, &key)?;
    DONE
}

pub fn trash_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (Bytes, u64) = Decoder::plain(input).get()?;
    let found = list(object, PREFIX, start_after, max)?;
    let specs = found.into_iter().map(|(id, spec)| Ok((id, decode::<TrashImageSpec>(spec)?)));
    answer(&specs.collect::<Result<BTreeMap<_, _>, Fault>>()?)
}

/// The spec as it is stored.
pub fn trash_get(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    object.omap_get(&key(PREFIX, id))
}

/// ESTALE unless it is in the expected state, or in the new one already.
pub fn trash_state_set(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (id, state, expected) = (args.blob()?, args.u8()?, args.u8()?);
    let key = key(PREFIX, id);
    let mut spec: TrashImageSpec = read(object, &key)?;
    if spec.state == expected {
        spec.state = state;
        write(object, &key, &spec)?;
    } else if spec.state != state {
        return Err(Errno::ESTALE.into());
    }
    DONE
}
