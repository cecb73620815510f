//! READ, SYNC_READ, SPARSE_READ, MAPEXT.

use super::{Done, OpEnd, StagedObject, Stop};
use base::Errno;
use wire::codec::Encoder;
use wire::messages::osd_op::ExtentArgs;

/// Shape: length 0 means "to the end"; what lies past the end is left out. A missing
/// object, which only a message that also writes can meet here, reads as an empty one.
pub(super) fn read(object: &mut StagedObject<'_>, args: ExtentArgs) -> OpEnd {
    let (offset, len) = readable(object, args);
    Ok(Done::ok_with(object.read(offset, len)?))
}

/// What of the range asked for there is to read, with regard to a truncation that
/// the client knows of and this object has not seen yet.
pub(super) fn readable(object: &StagedObject<'_>, args: ExtentArgs) -> (u64, u64) {
    let mut size = object.size;
    if object.info.truncate_seq < args.truncate_seq
        && args.offset.saturating_add(args.len) > args.truncate_size
        && size > args.truncate_size
    {
        size = args.truncate_size;
    }
    let len = if args.len == 0 { size } else { args.len };
    (args.offset, len.min(size.saturating_sub(args.offset)))
}

/// From this length on data goes into the reply as it was read, with the checksums that are known
/// of it: librbd reads all that is not short in this way.
const SHARED_LEN_MIN: usize = 16 << 10;

pub(super) fn sparse_read(object: &mut StagedObject<'_>, args: ExtentArgs) -> OpEnd {
    if args.truncate_seq != 0 {
        return Err(Errno::EINVAL.into());
    }
    require_content(object)?;
    let extents = object.extents(args.offset, args.len)?;
    // All of them are asked for at once, so that one fetch suffices.
    let parts: Vec<_> = extents.iter().map(|(offset, len)| object.read(*offset, *len)).collect();
    let mut e = Encoder::plain();
    encode_extents(&extents, &mut e);
    let total: u64 = extents.iter().map(|(_, len)| len).sum();
    e.u32(u32::try_from(total).expect("an object is smaller than 4 GiB"));
    let mut pieces = Vec::new();
    for part in parts {
        let part = part?;
        if part.len() < SHARED_LEN_MIN {
            e.raw(&part);
            continue;
        }
        let before = std::mem::replace(&mut e, Encoder::plain());
        pieces.extend([before.finish(), part]);
    }
    pieces.push(e.finish());
    let outdata = pieces.remove(0);
    Ok(Done { long: pieces, ..Done::ok_with(outdata) })
}

pub(super) fn map_extents(object: &mut StagedObject<'_>, args: ExtentArgs) -> OpEnd {
    require_content(object)?;
    let mut e = Encoder::plain();
    encode_extents(&object.extents(args.offset, args.len)?, &mut e);
    Ok(Done::keep_with(e.finish()))
}

/// An object that this very message creates counts once it has data.
fn require_content(object: &StagedObject<'_>) -> Result<(), Stop> {
    let there = object.exists && (object.before.exists || object.size > 0);
    if there { Ok(()) } else { Err(Errno::ENOENT.into()) }
}

/// A map from offset to length.
fn encode_extents(extents: &[(u64, u64)], e: &mut Encoder) {
    e.count(extents.len());
    for (offset, len) in extents {
        e.u64(*offset);
        e.u64(*len);
    }
}
