//! Store mutations on the way to a replica.
//!
//! All of them concern one PG's collection, nearly all of them the entry's own
//! object, which is therefore not repeated. The data of writes is not copied:
//! it follows the front in pieces, in order. Nor is anything copied on receipt:
//! the store keeps no slices of what it is given.

use bytes::Bytes;
use store::{CollId, Mutation, ObjectId};
use wire::codec::{DecodeError, Result};
use wire::types::{HObject, PgId};
use wire::{Decode, Decoder, Encoder};

/// The receiver adds its PG's records of the change.
const RECORDS_MAX: usize = 3;

const CODE_TOUCH: u8 = 1;
const CODE_WRITE: u8 = 2;
const CODE_ZERO: u8 = 3;
const CODE_TRUNCATE: u8 = 4;
const CODE_REMOVE: u8 = 5;
const CODE_SET_XATTRS: u8 = 6;
const CODE_RM_XATTR: u8 = 7;
const CODE_CLEAR_XATTRS: u8 = 8;
const CODE_SET_OMAP_HEADER: u8 = 9;
const CODE_SET_OMAP: u8 = 10;
const CODE_RM_OMAP: u8 = 11;
const CODE_RM_OMAP_RANGE: u8 = 12;
const CODE_CLEAR_OMAP: u8 = 13;
const CODE_CLONE: u8 = 14;
const CODE_RENAME: u8 = 15;

fn put_object(id: &ObjectId, own: &HObject, e: &mut Encoder) {
    let same = id.object == *own;
    e.bool(same);
    if !same {
        e.put(&id.object);
    }
}

pub fn encode_mutations(mutations: &[Mutation], own: &HObject, e: &mut Encoder, data: &mut Vec<Bytes>) {
    e.count(mutations.len());
    let begin = |e: &mut Encoder, code: u8, id: &ObjectId| {
        e.u8(code);
        put_object(id, own, e);
    };
    for mutation in mutations {
        match mutation {
            Mutation::CreateCollection(_) | Mutation::RemoveCollection(_) => {
                unreachable!("an operation on an object does not touch collections")
            }
            Mutation::Touch(id) => begin(e, CODE_TOUCH, id),
            Mutation::Write { id, offset, data: bytes } => {
                begin(e, CODE_WRITE, id);
                e.u64(*offset);
                e.count(bytes.len());
                if !bytes.is_empty() {
                    data.push(bytes.clone());
                }
            }
            Mutation::Zero { id, offset, len } => {
                begin(e, CODE_ZERO, id);
                e.u64(*offset);
                e.u64(*len);
            }
            Mutation::Truncate { id, size } => {
                begin(e, CODE_TRUNCATE, id);
                e.u64(*size);
            }
            Mutation::Remove(id) => begin(e, CODE_REMOVE, id),
            Mutation::SetXattrs { id, attrs } => {
                begin(e, CODE_SET_XATTRS, id);
                e.count(attrs.len());
                for (name, value) in attrs {
                    e.string(name);
                    e.blob(value);
                }
            }
            Mutation::RmXattr { id, name } => {
                begin(e, CODE_RM_XATTR, id);
                e.string(name);
            }
            Mutation::ClearXattrs(id) => begin(e, CODE_CLEAR_XATTRS, id),
            Mutation::SetOmapHeader { id, header } => {
                begin(e, CODE_SET_OMAP_HEADER, id);
                e.blob(header);
            }
            Mutation::SetOmap { id, entries } => {
                begin(e, CODE_SET_OMAP, id);
                e.count(entries.len());
                for (key, value) in entries {
                    e.blob(key);
                    e.blob(value);
                }
            }
            Mutation::RmOmap { id, keys } => {
                begin(e, CODE_RM_OMAP, id);
                e.put(keys);
            }
            Mutation::RmOmapRange { id, start, end } => {
                begin(e, CODE_RM_OMAP_RANGE, id);
                e.blob(start);
                e.blob(end);
            }
            Mutation::ClearOmap(id) => begin(e, CODE_CLEAR_OMAP, id),
            Mutation::Clone { from, to } => {
                begin(e, CODE_CLONE, from);
                put_object(to, own, e);
            }
            Mutation::Rename { from, to } => {
                begin(e, CODE_RENAME, from);
                put_object(to, own, e);
            }
        }
    }
}

/// Reads the front, then hands the rest of the message out to the writes.
pub fn decode_mutations(pg: PgId, own: &HObject, d: &mut Decoder) -> Result<Vec<Mutation>> {
    let n = d.count("mutations", 2)?;
    let mut mutations = Vec::with_capacity(n.min(64) + RECORDS_MAX);
    for _ in 0..n {
        mutations.push(decode_one(pg, own, d)?);
    }
    for mutation in &mut mutations {
        if let Mutation::Write { data, .. } = mutation {
            *data = d.take("write data", data.len())?;
        }
    }
    Ok(mutations)
}

/// Writes have as many bytes as theirs will be.
fn decode_one(pg: PgId, own: &HObject, d: &mut Decoder) -> Result<Mutation> {
    let code = d.u8()?;
    let object = |d: &mut Decoder| -> Result<ObjectId> {
        let object = if d.bool()? { own.clone() } else { HObject::decode(d)? };
        Ok(ObjectId { coll: CollId::Pg(pg), object })
    };
    let id = object(d)?;
    Ok(match code {
        CODE_TOUCH => Mutation::Touch(id),
        CODE_WRITE => {
            let offset = d.u64()?;
            let len = d.u32()? as usize;
            Mutation::Write { id, offset, data: d.clone().take("write data", len)? }
        }
        CODE_ZERO => Mutation::Zero { id, offset: d.u64()?, len: d.u64()? },
        CODE_TRUNCATE => Mutation::Truncate { id, size: d.u64()? },
        CODE_REMOVE => Mutation::Remove(id),
        CODE_SET_XATTRS => {
            let n = d.count("xattrs", 8)?;
            let attrs = (0..n).map(|_| Ok((d.text()?, d.blob()?))).collect::<Result<_>>()?;
            Mutation::SetXattrs { id, attrs }
        }
        CODE_RM_XATTR => Mutation::RmXattr { id, name: d.string()? },
        CODE_CLEAR_XATTRS => Mutation::ClearXattrs(id),
        CODE_SET_OMAP_HEADER => Mutation::SetOmapHeader { id, header: d.blob()? },
        CODE_SET_OMAP => {
            let n = d.count("omap", 8)?;
            let entries = (0..n).map(|_| Ok((d.blob()?, d.blob()?))).collect::<Result<_>>()?;
            Mutation::SetOmap { id, entries }
        }
        CODE_RM_OMAP => Mutation::RmOmap { id, keys: d.get()? },
        CODE_RM_OMAP_RANGE => Mutation::RmOmapRange { id, start: d.blob()?, end: d.blob()? },
        CODE_CLEAR_OMAP => Mutation::ClearOmap(id),
        CODE_CLONE => Mutation::Clone { from: id, to: object(d)? },
        CODE_RENAME => Mutation::Rename { from: id, to: object(d)? },
        _ => return Err(DecodeError::Invalid { what: "mutation code" }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PoolId;

    #[test]
    fn mutations_survive_the_wire_with_their_data_apart() {
        let pg = PgId { pool: PoolId(1), seed: 3 };
        let own = HObject { pool: pg.pool, name: "a".into(), ..HObject::default() };
        let id = ObjectId { coll: CollId::Pg(pg), object: own.clone() };
        let other = ObjectId { coll: CollId::Pg(pg), object: HObject { name: "b".into(), ..own.clone() } };
        let all = vec![
            Mutation::Write { id: id.clone(), offset: 9, data: Bytes::from(vec![1; 5000]) },
            Mutation::SetXattrs { id: id.clone(), attrs: [("x", Bytes::from("y"))].into() },
            Mutation::Write { id: other.clone(), offset: 0, data: Bytes::from("zz") },
            Mutation::RmOmapRange { id: id.clone(), start: "a".into(), end: "b".into() },
            Mutation::Clone { from: id, to: other },
        ];
        let mut e = Encoder::plain();
        let mut data = Vec::new();
        encode_mutations(&all, &own, &mut e, &mut data);
        assert_eq!(data.len(), 2);
        let mut body = e.finish().to_vec();
        data.iter().for_each(|piece| body.extend_from_slice(piece));
        let back = decode_mutations(pg, &own, &mut Decoder::plain(body.clone().into())).unwrap();
        assert_eq!(back, all);
        for cut in 0..body.len() {
            let short = Bytes::copy_from_slice(&body[..cut]);
            assert!(decode_mutations(pg, &own, &mut Decoder::plain(short)).is_err(), "cut at {cut}");
        }
    }
}
