//! GETXATTR, GETXATTRS, SETXATTR, RMXATTR.

use super::{Done, OpEnd, StagedObject, Stop, input};
use crate::exec::limits;
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Encoder;
use wire::messages::OsdOp;
use wire::messages::osd_op::XattrArgs;

/// The arguments, the name, and what follows it.
pub(super) fn arguments(op: &OsdOp) -> Result<(XattrArgs, Bytes, Bytes), Stop> {
    let args = XattrArgs::of(&op.args);
    let mut d = input(op);
    let name = d.take("xattr name", args.name_len as usize)?;
    Ok((args, name, d.rest_bytes()))
}

/// The value, of the length the arguments give.
pub(super) fn value(args: XattrArgs, mut rest: Bytes) -> Result<Bytes, Stop> {
    let len = args.value_len as usize;
    if len > rest.len() {
        return Err(Errno::EINVAL.into());
    }
    Ok(rest.split_to(len))
}

pub(super) fn get(object: &StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let (_, name, _) = arguments(op)?;
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    match object.xattr(&name)? {
        Some(value) => Ok(Done::ok_with(value)),
        None => Err(no_attr(object)),
    }
}

/// Of an object that this very message creates Ceph says that it is not there.
pub(super) fn no_attr(object: &StagedObject<'_>) -> Stop {
    if object.before.exists { Errno::ENODATA.into() } else { Errno::ENOENT.into() }
}

/// A failure has output too: an empty map.
pub(super) fn get_all(object: &StagedObject<'_>) -> OpEnd {
    let all = if object.exists { object.xattrs()? } else { BTreeMap::new() };
    let mut e = Encoder::plain();
    e.put(&all);
    let there = object.before.exists || !all.is_empty();
    let code = if object.exists && there { 0 } else { Errno::ENOENT.negative() };
    Ok(Done { code: Some(code), outdata: e.finish(), long: Vec::new() })
}

pub(super) fn set(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let args = XattrArgs::of(&op.args);
    check_lengths(args.name_len as usize, args.value_len as usize)?;
    let (args, name, rest) = arguments(op)?;
    let value = value(args, rest)?;
    object.set_xattr(&name, value);
    Ok(Done::OK)
}

pub(super) fn check_lengths(name: usize, value: usize) -> Result<(), Stop> {
    if value > limits::XATTR_VALUE_LEN_MAX {
        return Err(Errno::EFBIG.into());
    }
    if name > limits::XATTR_NAME_LEN_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    Ok(())
}

/// Removing what is not there is a change like any other.
pub(super) fn remove(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let (_, name, _) = arguments(op)?;
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    object.rm_xattr(&name);
    Ok(Done::OK)
}
