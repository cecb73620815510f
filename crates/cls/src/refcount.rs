//! `refcount`: the names of those who hold on to an object, kept in an xattr. The
//! object goes with the last of them.
//!
//! Who never took a reference may hold an implicit one, whose name is empty. A
//! reference that was put once is not taken off again by a repetition.
//!
//! Source: Ceph `src/cls/refcount/`.

use crate::{Access, Fault, Method, Object, Output};
use base::Errno;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::{Decode, Decoder, Encode, Encoder, Result as DecodeResult};
use wire::features::Features;

pub(crate) const METHODS: &[Method] = &[
    Method { name: "get", access: Access::ReadWrite, run: get },
    Method { name: "put", access: Access::ReadWrite, run: put },
    Method { name: "set", access: Access::ReadWrite, run: set },
    Method { name: "read", access: Access::Read, run: read },
];

const ATTR: &[u8] = b"refcount";
const IMPLICIT: &[u8] = b"";

/// `obj_refcount`.
#[derive(Default)]
struct References {
    /// The value says nothing.
    held: BTreeMap<Bytes, bool>,
    /// Those that were put.
    retired: BTreeSet<Bytes>,
}

impl Encode for References {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 1, |e| {
            e.put(&self.held);
            e.put(&self.retired);
        });
    }
}

impl Decode for References {
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("obj_refcount", 2, |d, version| {
            let held = d.get()?;
            let retired = if version >= 2 { d.get()? } else { BTreeSet::new() };
            Ok(References { held, retired })
        })
    }
}

/// `cls_refcount_get_op` and `cls_refcount_put_op`.
struct Reference {
    tag: Bytes,
    implicit: bool,
}

impl Decode for Reference {
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("cls_refcount_get_op", 1, |d, _| Ok(Reference { tag: d.get()?, implicit: d.bool()? }))
    }
}

fn load(object: &mut dyn Object, implicit: bool) -> Result<References, Fault> {
    match object.xattr(ATTR) {
        Ok(stored) => Ok(References::from_bytes(stored, Features::ALL).map_err(|_| Errno::EIO)?),
        Err(Fault::Errno(Errno::ENODATA)) => {
            let mut references = References::default();
            if implicit {
                references.held.insert(Bytes::from_static(IMPLICIT), true);
            }
            Ok(references)
        }
        Err(fault) => Err(fault),
    }
}

fn store(object: &mut dyn Object, references: &References) -> Output {
    object.set_xattr(ATTR, references.to_bytes(Features::ALL))?;
    Ok(Bytes::new())
}

/// ENOENT without the object.
fn get(object: &mut dyn Object, input: Bytes) -> Output {
    let Reference { tag, implicit } = Reference::from_bytes(input, Features::ALL)?;
    let mut references = load(object, implicit)?;
    references.held.insert(tag, true);
    store(object, &references)
}

/// EINVAL if nobody holds a reference; putting one that is not held does nothing.
fn put(object: &mut dyn Object, input: Bytes) -> Output {
    let Reference { tag, implicit } = Reference::from_bytes(input, Features::ALL)?;
    let mut references = load(object, implicit)?;
    if references.held.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    let name = if implicit && !references.held.contains_key(&tag) { IMPLICIT } else { &tag[..] };
    if references.retired.contains(&tag) || references.held.remove(name).is_none() {
        return Ok(Bytes::new());
    }
    if references.held.is_empty() {
        object.remove()?;
        return Ok(Bytes::new());
    }
    references.retired.insert(tag);
    store(object, &references)
}

/// These and no others; none removes the object.
fn set(object: &mut dyn Object, input: Bytes) -> Output {
    let tags: Vec<Bytes> = Decoder::plain(input).versioned("cls_refcount_set_op", 1, |d, _| d.get())?;
    if tags.is_empty() {
        object.remove()?;
        return Ok(Bytes::new());
    }
    let held = tags.into_iter().map(|tag| (tag, true)).collect();
    store(object, &References { held, retired: BTreeSet::new() })
}

fn read(object: &mut dyn Object, input: Bytes) -> Output {
    let implicit = Decoder::plain(input).versioned("cls_refcount_read_op", 1, |d, _| d.bool())?;
    let tags: Vec<Bytes> = load(object, implicit)?.held.into_keys().collect();
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| e.put(&tags));
    Ok(e.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Content, MemObject};

    fn encoded(body: impl FnOnce(&mut Encoder)) -> Bytes {
        let mut e = Encoder::plain();
        e.versioned(1, 1, body);
        e.finish()
    }

    fn reference(tag: &str, implicit: bool) -> Bytes {
        encoded(|e| {
            e.string(tag);
            e.bool(implicit);
        })
    }

    fn held(object: &mut MemObject, implicit: bool) -> Vec<Bytes> {
        let out = object.ok("refcount", "read", &encoded(|e| e.bool(implicit)));
        Decoder::plain(out).versioned("", 1, |d, _| d.get()).unwrap()
    }

    fn there() -> MemObject {
        MemObject::holding(Content::default())
    }

    #[test]
    fn the_object_goes_with_the_last_reference() {
        let mut object = there();
        assert_eq!(MemObject::new().code("refcount", "get", &reference("a", false)), -2);
        object.ok("refcount", "get", &reference("a", false));
        object.ok("refcount", "get", &reference("b", false));
        assert_eq!(held(&mut object, true), ["a", "b"]);
        object.ok("refcount", "put", &reference("a", false));
        object.ok("refcount", "put", &reference("a", false));
        assert_eq!(held(&mut object, false), ["b"]);
        object.ok("refcount", "put", &reference("b", false));
        assert!(object.content.is_none());
    }

    #[test]
    fn the_implicit_reference_stands_for_any_name_once() {
        let mut object = there();
        assert_eq!(object.code("refcount", "put", &reference("a", false)), -22);
        assert_eq!(held(&mut object, true), [""]);
        object.ok("refcount", "get", &reference("b", true));
        assert_eq!(held(&mut object, false), ["", "b"]);
        object.ok("refcount", "put", &reference("a", true));
        object.ok("refcount", "put", &reference("a", true));
        assert_eq!(held(&mut object, false), ["b"]);
    }

    #[test]
    fn references_are_set_at_once() {
        let mut object = MemObject::new();
        object.ok("refcount", "set", &encoded(|e| e.put(&vec![Bytes::from("y"), Bytes::from("x")])));
        assert_eq!(held(&mut object, false), ["x", "y"]);
        object.ok("refcount", "set", &encoded(|e| e.count(0)));
        assert!(object.content.is_none());
    }

    /// Version 1 of what is stored has no list of those that were put.
    #[test]
    fn old_records_are_read() {
        let mut object = there();
        let old = encoded(|e| e.put(&BTreeMap::from([(Bytes::from("a"), true)])));
        object.content.as_mut().unwrap().xattrs.insert(Bytes::from_static(ATTR), old);
        assert_eq!(held(&mut object, false), ["a"]);
    }
}
