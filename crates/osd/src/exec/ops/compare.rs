//! Guards: operations that fail the message unless something holds.
//! CMPXATTR, CMPEXT, OMAP_CMP.

use super::{Done, OpEnd, StagedObject, Stop, input, read, xattr};
use base::Errno;
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use wire::messages::OsdOp;
use wire::messages::osd_op::ExtentArgs;

/// `MAX_ERRNO`: CMPEXT's codes lie beyond it.
const MAX_ERRNO: i32 = 4095;

/// `CEPH_OSD_CMPXATTR_OP_*`.
mod relation {
    pub const EQ: u8 = 1;
    pub const NE: u8 = 2;
    pub const GT: u8 = 3;
    pub const GTE: u8 = 4;
    pub const LT: u8 = 5;
    pub const LTE: u8 = 6;
}

fn holds(relation: u8, order: Ordering) -> Result<bool, Stop> {
    Ok(match relation {
        relation::EQ => order.is_eq(),
        relation::NE => order.is_ne(),
        relation::GT => order.is_gt(),
        relation::GTE => order.is_ge(),
        relation::LT => order.is_lt(),
        relation::LTE => order.is_le(),
        _ => return Err(Errno::EINVAL.into()),
    })
}

/// The given value stands left of the relation, the object's xattr right of it. A
/// missing xattr is empty, or 0.
pub(super) fn cmpxattr(object: &StagedObject<'_>, op: &OsdOp) -> OpEnd {
    const MODE_STRING: u8 = 1;
    const MODE_U64: u8 = 2;
    let (args, name, rest) = xattr::arguments(op)?;
    // Here, and only here, Ceph takes a deleted head with clones for an empty object.
    if !object.exists && !object.before.stored {
        return Err(Errno::ENOENT.into());
    }
    let current = match object.xattr(&name)? {
        Some(value) => value,
        None if object.before.stored => Bytes::new(),
        None => return Err(xattr::no_attr(object)),
    };
    let order = match args.cmp_mode {
        MODE_STRING => xattr::value(args, rest)?.cmp(&current),
        MODE_U64 => {
            let given: [u8; 8] = rest.first_chunk().copied().ok_or(Errno::EINVAL)?;
            u64::from_le_bytes(given).cmp(&parse_number(&current))
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    if !holds(args.cmp_op, order)? {
        return Err(Errno::ECANCELED.into());
    }
    Ok(Done { code: Some(1), ..Done::OK })
}

/// As C's `atoll` reads decimal text, then taken as unsigned.
fn parse_number(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    for digit in digits.iter().take_while(|c| c.is_ascii_digit()) {
        let digit = i64::from(digit - b'0');
        let digit = if negative { -digit } else { digit };
        value = value.saturating_mul(10).saturating_add(digit);
    }
    value as u64
}

/// Compares the input with the object's data, zeros standing for what lies past the end.
///
/// Errors: −4095 − the position of the first byte that differs.
pub(super) fn cmpext(object: &mut StagedObject<'_>, args: ExtentArgs, expected: &Bytes) -> OpEnd {
    let (offset, len) = read::readable(object, args);
    // READ's "length 0 is everything" does not hold here.
    let len = if args.len == 0 { 0 } else { len };
    let data = object.read(offset, len)?;
    let differs = (0..expected.len()).find(|i| expected[*i] != data.get(*i).copied().unwrap_or(0));
    match differs {
        None => Ok(Done::OK),
        Some(position) => {
            let position = i32::try_from(position).expect("a message's data is below 2 GiB");
            Err(Stop::Code(-MAX_ERRNO - position))
        }
    }
}

/// The object's value stands left of the relation, the given one right of it. A
/// missing key has an empty value.
pub(super) fn omap_cmp(object: &StagedObject<'_>, op: &OsdOp) -> OpEnd {
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    let assertions: BTreeMap<Bytes, (Bytes, i32)> = input(op).get()?;
    for (key, (given, relation)) in assertions {
        let current = object.omap_get(&key)?.unwrap_or_default();
        let relation = match u8::try_from(relation) {
            Ok(known @ (relation::EQ | relation::LT | relation::GT)) => known,
            _ => return Err(Errno::EINVAL.into()),
        };
        if !holds(relation, current.cmp(&given))? {
            return Err(Errno::ECANCELED.into());
        }
    }
    Ok(Done::KEEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_atoll_reads_them() {
        let cases: [(&[u8], u64); 9] = [
            (b"", 0),
            (b"42", 42),
            (b"  +7x9", 7),
            (b"x7", 0),
            (b"-1", u64::MAX),
            (b"9223372036854775807", i64::MAX as u64),
            (b"18446744073709551615", i64::MAX as u64),
            (b"-9223372036854775809", i64::MIN as u64),
            (b"007", 7),
        ];
        for (text, value) in cases {
            assert_eq!(parse_number(text), value, "{:?}", String::from_utf8_lossy(text));
        }
    }
}
