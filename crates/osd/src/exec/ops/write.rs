//! Operations that change data, existence, or the allocation hint.

use super::{Done, OpEnd, StagedObject, Stop, input};
use crate::exec::limits::OBJECT_SIZE_MAX;
use base::Errno;
use bytes::{Bytes, BytesMut};
use wire::messages::OsdOp;
use wire::messages::osd_op::{AllocHintArgs, ExtentArgs, WriteSameArgs, op_flags};

/// `check_offset_and_length`.
fn check_extent(offset: u64, len: u64) -> Result<(), Stop> {
    let fits = offset < OBJECT_SIZE_MAX
        && len <= OBJECT_SIZE_MAX
        && offset.checked_add(len).is_some_and(|end| end <= OBJECT_SIZE_MAX);
    if fits { Ok(()) } else { Err(Errno::EFBIG.into()) }
}

pub(super) fn write(object: &mut StagedObject<'_>, args: ExtentArgs, mut data: Bytes) -> OpEnd {
    if args.len != data.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    let seq = object.info.truncate_seq;
    if seq != 0 && seq > args.truncate_seq && args.offset.saturating_add(args.len) > object.size {
        // Sent before a truncation that came first: it must not grow the object again.
        data.truncate(usize::try_from(object.size.saturating_sub(args.offset)).unwrap_or(usize::MAX));
    }
    if args.truncate_seq > seq {
        // Sent after a truncation that has not come yet: it happens now.
        if object.exists {
            check_extent(0, args.truncate_size)?;
            object.truncate(args.truncate_size);
        }
        object.info.truncate_seq = args.truncate_seq;
        object.info.truncate_size = args.truncate_size;
    }
    check_extent(args.offset, data.len() as u64)?;
    object.create();
    if data.is_empty() && args.offset > object.size {
        object.truncate(args.offset);
    }
    object.write(args.offset, data);
    Ok(Done::OK)
}

pub(super) fn write_full(object: &mut StagedObject<'_>, args: ExtentArgs, data: Bytes) -> OpEnd {
    if args.len != data.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    check_extent(0, args.len)?;
    object.create();
    if args.len < object.size {
        object.truncate(args.len);
    }
    object.write(0, data);
    Ok(Done::OK)
}

pub(super) fn append(object: &mut StagedObject<'_>, args: ExtentArgs, data: Bytes) -> OpEnd {
    let at_end = ExtentArgs {
        offset: object.size,
        len: args.len,
        truncate_seq: object.info.truncate_seq,
        truncate_size: 0,
    };
    write(object, at_end, data)
}

/// The input, repeated over the range.
pub(super) fn write_same(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let args = WriteSameArgs::of(&op.args);
    if args.len == 0 {
        return Ok(Done::OK);
    }
    if args.data_len == 0
        || args.data_len != op.indata.len() as u64
        || !args.len.is_multiple_of(args.data_len)
    {
        return Err(Errno::EINVAL.into());
    }
    // Before the input is multiplied.
    check_extent(args.offset, args.len)?;
    object.account(args.len)?;
    let mut data = BytesMut::with_capacity(args.len as usize);
    for _ in 0..args.len / args.data_len {
        data.extend_from_slice(&op.indata);
    }
    write(object, ExtentArgs::new(args.offset, args.len), data.freeze())
}

/// Never creates and never changes the size, except that zeroing up to the end or
/// beyond it cuts the object instead.
pub(super) fn zero(object: &mut StagedObject<'_>, args: ExtentArgs) -> OpEnd {
    let reaches_end = args.offset.saturating_add(args.len) >= object.size;
    let in_bounds = args.offset < OBJECT_SIZE_MAX && (1..=OBJECT_SIZE_MAX).contains(&args.len);
    if object.exists && in_bounds && reaches_end {
        if args.offset >= object.size {
            return Ok(Done::KEEP);
        }
        return truncate(object, args);
    }
    check_extent(args.offset, args.len)?;
    if args.len == 0 {
        return Err(Errno::EINVAL.into());
    }
    if object.exists {
        object.zero(args.offset, args.len);
    }
    Ok(Done::OK)
}

pub(super) fn truncate(object: &mut StagedObject<'_>, args: ExtentArgs) -> OpEnd {
    if !object.exists {
        return Ok(Done::OK);
    }
    check_extent(args.offset, args.len)?;
    if args.truncate_seq != 0 {
        if args.offset != args.truncate_size {
            return Err(Errno::EINVAL.into());
        }
        if args.truncate_seq <= object.info.truncate_seq {
            return Ok(Done::OK);
        }
        object.info.truncate_seq = args.truncate_seq;
        object.info.truncate_size = args.truncate_size;
    }
    object.truncate(args.offset);
    Ok(Done::OK)
}

pub(super) fn trim_truncate(object: &mut StagedObject<'_>, args: ExtentArgs) -> OpEnd {
    truncate(object, ExtentArgs { offset: args.truncate_size, ..args })
}

pub(super) fn create(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    if object.exists && op.flags & op_flags::EXCL != 0 {
        return Err(Errno::EEXIST.into());
    }
    if !op.indata.is_empty() {
        // A category, of which nothing is made any more.
        input(op).blob()?;
    }
    object.create();
    Ok(Done::OK)
}

pub(super) fn delete(object: &mut StagedObject<'_>) -> OpEnd {
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    object.remove();
    Ok(Done::OK)
}

pub(super) fn set_alloc_hint(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let args = AllocHintArgs::of(&op.args);
    object.create();
    object.info.expected_object_size = args.expected_object_size;
    object.info.expected_write_size = args.expected_write_size;
    object.info.alloc_hint_flags = args.flags;
    Ok(Done::OK)
}
