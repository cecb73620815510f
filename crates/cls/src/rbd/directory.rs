//! `rbd_directory`: image names and ids, each from the other. `rbd_group_directory`
//! keeps groups the same way.

use super::stored::{
    DONE, answer, assert_exists, assert_valid_id, decode, key, list, optional, read, remove, write,
};
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Decoder, Encode, Features};

const NAME: &str = "name_";
const ID: &str = "id_";

/// States of the directory: whether images may be added.
const READY: u8 = 0;
const ADD_DISABLED: u8 = 1;

fn entries(name: &Bytes, id: &Bytes) -> BTreeMap<Bytes, Bytes> {
    let encoded = |value: &Bytes| value.to_bytes(Features::ALL);
    BTreeMap::from([(key(NAME, name), encoded(id)), (key(ID, id), encoded(name))])
}

fn assert_valid(name: &Bytes, id: &Bytes) -> Result<(), Fault> {
    if name.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    assert_valid_id(id)
}

/// ENOENT; ESTALE if they do not belong together.
fn assert_linked(object: &mut dyn Object, name: &Bytes, id: &Bytes) -> Result<(), Fault> {
    let stored_id: Bytes = read(object, key(NAME, name))?;
    let stored_name: Bytes = read(object, key(ID, id))?;
    if (&stored_name, &stored_id) == (name, id) { Ok(()) } else { Err(Errno::ESTALE.into()) }
}

/// EEXIST for a used name, EBADF for a used id.
pub fn dir_add_image(object: &mut dyn Object, input: Bytes) -> Output {
    object.create(false)?;
    let (name, id): (Bytes, Bytes) = Decoder::plain(input).get()?;
    assert_valid(&name, &id)?;
    if optional(object.omap_get(&key(NAME, &name)))?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    if optional(object.omap_get(&key(ID, &id)))?.is_some() {
        return Err(Errno::EBADF.into());
    }
    object.omap_set(entries(&name, &id))?;
    DONE
}

pub fn dir_remove_image(object: &mut dyn Object, input: Bytes) -> Output {
    let (name, id): (Bytes, Bytes) = Decoder::plain(input).get()?;
    assert_linked(object, &name, &id)?;
    object.omap_remove(BTreeSet::from([key(NAME, name), key(ID, id)]))?;
    DONE
}

pub fn dir_rename_image(object: &mut dyn Object, input: Bytes) -> Output {
    let mut args = Decoder::plain(input);
    let (from, to, id) = (args.blob()?, args.blob()?, args.blob()?);
    assert_linked(object, &from, &id)?;
    assert_valid(&to, &id)?;
    if optional(object.omap_get(&key(NAME, &to)))?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    remove(object, key(NAME, from))?;
    object.omap_set(entries(&to, &id))?;
    DONE
}

pub fn dir_get_id(object: &mut dyn Object, input: Bytes) -> Output {
    let name = Decoder::plain(input).blob()?;
    answer(&read::<Bytes>(object, key(NAME, name))?)
}

pub fn dir_get_name(object: &mut dyn Object, input: Bytes) -> Output {
    let id = Decoder::plain(input).blob()?;
    answer(&read::<Bytes>(object, key(ID, id))?)
}

/// Names, and the id of each.
pub fn dir_list(object: &mut dyn Object, input: Bytes) -> Output {
    let (start_after, max): (Bytes, u64) = Decoder::plain(input).get()?;
    let found = list(object, NAME, start_after, max)?;
    let ids = found.into_iter().map(|(name, id)| Ok((name, decode::<Bytes>(id)?)));
    answer(&ids.collect::<Result<BTreeMap<_, _>, Fault>>()?)
}

/// ENOENT if the state is another, or was never set.
pub fn dir_state_assert(object: &mut dyn Object, input: Bytes) -> Output {
    let state = Decoder::plain(input).u8()?;
    if state == read::<u8>(object, "state")? { DONE } else { Err(Errno::ENOENT.into()) }
}

/// EBUSY when additions are to end and there are images.
pub fn dir_state_set(object: &mut dyn Object, input: Bytes) -> Output {
    let state = Decoder::plain(input).u8()?;
    match state {
        READY => {}
        ADD_DISABLED => {
            assert_exists(object)?;
            if !list(object, NAME, "", 1)?.is_empty() {
                return Err(Errno::EBUSY.into());
            }
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    write(object, "state", &state)?;
    DONE
}
