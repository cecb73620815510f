//! `version`: a number and a tag on an object, kept in an xattr, that radosgw compares
//! before it writes.
//!
//! Source: Ceph `src/cls/version/`.

use crate::{Access, Fault, Method, Object, Output};
use base::Errno;
use bytes::Bytes;
use wire::codec::{Decode, Decoder, Encode, Encoder, Result as DecodeResult};
use wire::features::Features;

pub(crate) const METHODS: &[Method] = &[
    Method { name: "set", access: Access::ReadWrite, run: set },
    Method { name: "inc", access: Access::ReadWrite, run: inc },
    Method { name: "inc_conds", access: Access::ReadWrite, run: inc },
    Method { name: "read", access: Access::Read, run: read },
    Method { name: "check_conds", access: Access::Read, run: check_conds },
];

const ATTR: &[u8] = b"ceph.objclass.version";
const TAG_LEN: usize = 24;

/// `obj_version`. The tag tells one life of an object from the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Version {
    number: u64,
    tag: Bytes,
}

impl Encode for Version {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.u64(self.number);
            e.put(&self.tag);
        });
    }
}

impl Decode for Version {
    const MIN_LEN: usize = 18;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("obj_version", 1, |d, _| Ok(Version { number: d.u64()?, tag: d.get()? }))
    }
}

/// `obj_version_cond`.
struct Condition {
    version: Version,
    kind: u32,
}

impl Decode for Condition {
    const MIN_LEN: usize = 28;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("obj_version_cond", 1, |d, _| Ok(Condition { version: d.get()?, kind: d.u32()? }))
    }
}

impl Condition {
    /// Kinds that are not known hold, as "none" does.
    fn holds(&self, stored: &Version) -> bool {
        let wanted = &self.version;
        match self.kind {
            1 => stored == wanted,
            2 => stored.number > wanted.number,
            3 => stored.number >= wanted.number,
            4 => stored.number < wanted.number,
            5 => stored.number <= wanted.number,
            6 => stored.tag == wanted.tag,
            7 => stored.tag != wanted.tag,
            _ => true,
        }
    }
}

/// `cls_version_inc_op` and `cls_version_check_op`: a version that is not looked at,
/// and the conditions.
fn conditions(input: Bytes) -> Result<Vec<Condition>, Fault> {
    Ok(Decoder::plain(input).versioned("cls_version_inc_op", 1, |d, _| {
        d.get::<Version>()?;
        d.get()
    })?)
}

/// `None` if the object has none.
fn load(object: &mut dyn Object) -> Result<Option<Version>, Fault> {
    match object.xattr(ATTR) {
        Ok(stored) => Ok(Some(Version::from_bytes(stored, Features::ALL).map_err(|_| Errno::EIO)?)),
        Err(Fault::Errno(Errno::ENOENT | Errno::ENODATA)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn store(object: &mut dyn Object, version: &Version) -> Output {
    object.set_xattr(ATTR, version.to_bytes(Features::ALL))?;
    Ok(Bytes::new())
}

fn set(object: &mut dyn Object, input: Bytes) -> Output {
    let version = Decoder::plain(input).versioned("cls_version_set_op", 1, |d, _| d.get())?;
    store(object, &version)
}

/// What has no version gets number 1 and a tag of its own, then counts as any other.
fn inc(object: &mut dyn Object, input: Bytes) -> Output {
    let conditions = conditions(input)?;
    let mut version = match load(object)? {
        Some(version) => version,
        None => Version { number: 1, tag: random_tag(object) },
    };
    if !conditions.iter().all(|condition| condition.holds(&version)) {
        return Err(Errno::ECANCELED.into());
    }
    version.number = version.number.wrapping_add(1);
    store(object, &version)
}

/// Characters of base64.
fn random_tag(object: &mut dyn Object) -> Bytes {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut tag = Vec::with_capacity(TAG_LEN);
    while tag.len() < TAG_LEN {
        let bits = object.random();
        tag.extend((0..8).map(|i| ALPHABET[(bits >> (8 * i)) as usize % ALPHABET.len()]));
    }
    tag.into()
}

fn read(object: &mut dyn Object, _: Bytes) -> Output {
    let version = load(object)?.unwrap_or_default();
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| e.put(&version));
    Ok(e.finish())
}

fn check_conds(object: &mut dyn Object, input: Bytes) -> Output {
    let conditions = conditions(input)?;
    let version = load(object)?.unwrap_or_default();
    if conditions.iter().all(|condition| condition.holds(&version)) {
        Ok(Bytes::new())
    } else {
        Err(Errno::ECANCELED.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;

    fn encoded(body: impl FnOnce(&mut Encoder)) -> Bytes {
        let mut e = Encoder::plain();
        e.versioned(1, 1, body);
        e.finish()
    }

    fn version(number: u64, tag: &'static str) -> Version {
        Version { number, tag: tag.into() }
    }

    fn with_conditions(conditions: &[(u64, &'static str, u32)]) -> Bytes {
        encoded(|e| {
            e.put(&Version::default());
            e.count(conditions.len());
            for (number, tag, kind) in conditions {
                e.versioned(1, 1, |e| {
                    e.put(&version(*number, tag));
                    e.u32(*kind);
                });
            }
        })
    }

    fn stored(object: &mut MemObject) -> Version {
        Decoder::plain(object.ok("version", "read", b"")).versioned("", 1, |d, _| d.get()).unwrap()
    }

    #[test]
    fn counting_begins_at_one_under_a_fresh_tag() {
        let mut object = MemObject::new();
        object.ok("version", "inc", &with_conditions(&[]));
        let first = stored(&mut object);
        assert_eq!((first.number, first.tag.len()), (2, TAG_LEN));
        object.ok("version", "inc", &with_conditions(&[]));
        assert_eq!(stored(&mut object), Version { number: 3, ..first.clone() });
        let mut other = MemObject::new();
        other.random = base::Random::from_seed(2);
        other.ok("version", "inc", &with_conditions(&[]));
        assert_ne!(stored(&mut other).tag, first.tag);
    }

    #[test]
    fn every_condition_is_checked() {
        let mut object = MemObject::new();
        object.ok("version", "set", &encoded(|e| e.put(&version(5, "t"))));
        let cases: [(u32, [bool; 4]); 9] = [
            (0, [true; 4]),
            (1, [false, true, false, false]),
            (2, [true, false, false, false]),
            (3, [true, true, false, true]),
            (4, [false, false, true, false]),
            (5, [false, true, true, true]),
            (6, [true, true, true, false]),
            (7, [false, false, false, true]),
            (8, [true; 4]),
        ];
        for (kind, holds) in cases {
            for (wanted, holds) in [(4, "t"), (5, "t"), (6, "t"), (5, "u")].into_iter().zip(holds) {
                let conditions = with_conditions(&[(0, "", 0), (wanted.0, wanted.1, kind)]);
                let code = if holds { 0 } else { -125 };
                assert_eq!(object.code("version", "check_conds", &conditions), code, "{kind} {wanted:?}");
            }
        }
        assert_eq!(object.code("version", "inc_conds", &with_conditions(&[(6, "t", 1)])), -125);
        assert_eq!(object.code("version", "inc_conds", &with_conditions(&[(5, "t", 1)])), 0);
        assert_eq!(stored(&mut object), version(6, "t"));
    }
}
