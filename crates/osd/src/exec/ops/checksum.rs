//! CHECKSUM: checksums over chunks of an object's data.

use super::{Done, OpEnd, StagedObject, Stop, input};
use base::{Errno, ceph_crc32c};
use wire::codec::Encoder;
use wire::messages::OsdOp;
use wire::messages::osd_op::ChecksumArgs;
use xxhash_rust::{xxh32::xxh32, xxh64::xxh64};

enum Seeded {
    XxHash32(u32),
    XxHash64(u64),
    Crc32c(u32),
}

/// The input is the seed; the output a count and that many values.
pub(super) fn checksum(object: &mut StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let args = ChecksumArgs::of(&op.args);
    let chunk_len = u64::from(args.chunk_size);
    if chunk_len > 0 && (args.len == 0 || !args.len.is_multiple_of(chunk_len)) {
        return Err(Errno::EINVAL.into());
    }
    let len = if args.offset == 0 && args.len == 0 {
        object.size
    } else if args.offset >= object.size {
        return Ok(Done::OK);
    } else {
        args.len.min(object.size - args.offset)
    };
    if chunk_len > 0 && !len.is_multiple_of(chunk_len) {
        return Err(Errno::EINVAL.into());
    }
    let algorithm = algorithm(args.kind, op)?;
    let data = object.read(args.offset, len)?;
    let chunk_len = if chunk_len == 0 { data.len() } else { chunk_len as usize };
    let mut e = Encoder::plain();
    // `chunks` refuses a length of zero, which only no data at all leads to.
    e.count(data.len().checked_div(chunk_len).unwrap_or(0));
    for chunk in data.chunks(chunk_len.max(1)) {
        match algorithm {
            Seeded::XxHash32(seed) => e.u32(xxh32(chunk, seed)),
            Seeded::XxHash64(seed) => e.u64(xxh64(chunk, seed)),
            Seeded::Crc32c(seed) => e.u32(ceph_crc32c(seed, chunk)),
        }
    }
    Ok(Done::ok_with(e.finish()))
}

fn algorithm(kind: u8, op: &OsdOp) -> Result<Seeded, Stop> {
    let mut seed = input(op);
    match kind {
        0 => Ok(Seeded::XxHash32(seed.u32()?)),
        1 => Ok(Seeded::XxHash64(seed.u64()?)),
        2 => Ok(Seeded::Crc32c(seed.u32()?)),
        _ => Err(Errno::EINVAL.into()),
    }
}
