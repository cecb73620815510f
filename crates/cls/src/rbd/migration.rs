//! An image's migration: the key `migration` of its header, and a feature bit or,
//! in the old format, another text at the header's start.

use super::features;
use super::old_format::{HEADER_TEXT, MIGRATING_TEXT};
use super::stored::{DONE, answer, forget, optional, read, write};
use super::types::MigrationSpec;
use crate::{Fault, Object, Output};
use base::Errno;
use bytes::Bytes;
use wire::Decoder;

const KEY: &str = "migration";

/// How an image says that it is being migrated.
enum Mark {
    /// In the feature bits, which are these.
    Feature(u64),
    /// In the text of an old header.
    Text { migrating: bool },
}

impl Mark {
    fn is_set(&self) -> bool {
        match self {
            Mark::Feature(features) => features & features::MIGRATING != 0,
            Mark::Text { migrating } => *migrating,
        }
    }

    /// ENXIO if it is a header of neither format.
    fn read(object: &mut dyn Object) -> Result<Mark, Fault> {
        if let Some(features) = optional(read(object, "features"))? {
            return Ok(Mark::Feature(features));
        }
        let text = object.read(0, HEADER_TEXT.len() as u64)?;
        match &text[..] {
            HEADER_TEXT => Ok(Mark::Text { migrating: false }),
            MIGRATING_TEXT => Ok(Mark::Text { migrating: true }),
            _ => Err(Errno::ENXIO.into()),
        }
    }

    fn write(self, object: &mut dyn Object, migrating: bool) -> Result<(), Fault> {
        match self {
            Mark::Feature(features) if migrating => {
                write(object, "features", &(features | features::MIGRATING))
            }
            Mark::Feature(features) => write(object, "features", &(features & !features::MIGRATING)),
            Mark::Text { .. } => {
                let text = if migrating { MIGRATING_TEXT } else { HEADER_TEXT };
                // The zero byte at its end is there already.
                object.write(0, Bytes::from_static(&text[..text.len() - 1]))
            }
        }
    }
}

/// EEXIST if it is under way.
pub fn migration_set(object: &mut dyn Object, input: Bytes) -> Output {
    let spec: MigrationSpec = Decoder::plain(input).get()?;
    if optional(object.omap_get(KEY.as_bytes()))?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    let mark = Mark::read(object)?;
    let is_old = matches!(mark, Mark::Text { .. });
    if mark.is_set() {
        // A destination is created with the feature.
        if is_old || spec.header_type != MigrationSpec::DESTINATION {
            return Err(Errno::EEXIST.into());
        }
    } else {
        if is_old && spec.header_type != MigrationSpec::SOURCE {
            return Err(Errno::EINVAL.into());
        }
        mark.write(object, true)?;
    }
    write(object, KEY, &spec)?;
    DONE
}

/// EINVAL if none is under way.
fn migration(object: &mut dyn Object) -> Result<MigrationSpec, Fault> {
    if !Mark::read(object)?.is_set() {
        return Err(Errno::EINVAL.into());
    }
    read(object, KEY)
}

pub fn migration_get(object: &mut dyn Object, _: Bytes) -> Output {
    answer(&migration(object)?)
}

pub fn migration_set_state(object: &mut dyn Object, input: Bytes) -> Output {
    let (state, state_description): (u8, Bytes) = Decoder::plain(input).get()?;
    let spec = migration(object)?;
    write(object, KEY, &MigrationSpec { state, state_description, ..spec })?;
    DONE
}

pub fn migration_remove(object: &mut dyn Object, _: Bytes) -> Output {
    forget(object, KEY)?;
    let mark = Mark::read(object)?;
    if mark.is_set() {
        mark.write(object, false)?;
    } else if matches!(mark, Mark::Text { .. }) {
        return Err(Errno::EINVAL.into());
    }
    DONE
}
