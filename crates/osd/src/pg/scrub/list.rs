//! What the last scrub found, for `rados list-inconsistent-obj` and `list-inconsistent-snapset`.
//!
//! Source: Ceph `src/common/scrub_types.cc`, `src/include/rados/rados_types.hpp` (`err_t`,
//! `obj_err_t`, `inconsistent_snapset_t`), `src/osd/PrimaryLogPG.cc` (`do_scrub_ls`).

use super::{Fault, Finding};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::{Decoder, Encoder, Result};
use wire::types::{EVersion, Epoch, HObject, OsdId, SnapId};

/// What a PG's primary can tell.
pub struct Known<'a> {
    pub interval: Epoch,
    /// None before a scrub in this interval has come to its end.
    pub findings: Option<&'a [Finding]>,
    pub acting: &'a [OsdId],
    pub primary: OsdId,
}

/// `scrub_ls_arg_t`.
struct Asked {
    interval: Epoch,
    get_snapsets: bool,
    /// Name, namespace and snapshot of what was listed last.
    after: (String, String, SnapId),
    max: u64,
}

impl Asked {
    fn decode(input: Bytes) -> Result<Asked> {
        Decoder::plain(input).versioned("scrub_ls_arg_t", 1, |d, _| {
            Ok(Asked {
                interval: d.get()?,
                get_snapsets: d.u32()? != 0,
                after: (d.string()?, d.string()?, d.get()?),
                max: d.u64()?,
            })
        })
    }
}

/// Answers SCRUBLS.
///
/// Errors: EAGAIN when the interval that the client knows is over, ENOENT without a scrub in it, EINVAL.
pub fn answer(known: &Known<'_>, input: Bytes) -> std::result::Result<Bytes, Errno> {
    let asked = Asked::decode(input).map_err(|_| Errno::EINVAL)?;
    if asked.interval != Epoch(0) && asked.interval != known.interval {
        return Err(Errno::EAGAIN);
    }
    let findings = known.findings.ok_or(Errno::ENOENT)?;
    let mut vals: BTreeMap<(String, String, SnapId), Bytes> = BTreeMap::new();
    if asked.get_snapsets {
        for (head, faults) in snapset_faults(findings) {
            vals.insert(place_of(&head), snapset_value(&head, &faults));
        }
    } else {
        let of_copies = findings.iter().filter(|finding| !finding.copies.is_empty());
        vals.extend(of_copies.map(|finding| (place_of(&finding.object), object_value(known, finding))));
    }
    let is_first = asked.after == (String::new(), String::new(), SnapId(0));
    let next = vals.into_iter().filter(|(place, _)| is_first || *place > asked.after);
    let max = usize::try_from(asked.max).unwrap_or(usize::MAX);
    let vals: Vec<Bytes> = next.take(max).map(|(_, val)| val).collect();
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| {
        e.put(&known.interval);
        e.put(&vals);
    });
    Ok(e.finish())
}

fn place_of(object: &HObject) -> (String, String, SnapId) {
    (object.name.to_string(), object.nspace.to_string(), object.snap)
}

/// `object_id_t`.
fn put_object(e: &mut Encoder, object: &HObject) {
    e.versioned(1, 1, |e| {
        e.string(&object.name);
        e.string(&object.nspace);
        e.string(&object.key);
        e.put(&object.snap);
    });
}

/// `inconsistent_obj_t`, without the attributes of copies, which scrubs compare by digest: so no
/// error is named of which clients would want to see them.
fn object_value(known: &Known<'_>, finding: &Finding) -> Bytes {
    let faults: BTreeMap<OsdId, Fault> = finding.copies.iter().copied().collect();
    let mut e = Encoder::plain();
    e.versioned(2, 2, |e| {
        e.u64(faults.values().fold(0, |bits, fault| bits | object_bits(*fault)));
        put_object(e, &finding.object);
        e.u64(finding.right.map_or(EVersion::ZERO, |(_, version)| version).version);
        e.count(known.acting.len());
        for osd in known.acting {
            e.versioned(1, 1, |e| {
                e.put(osd);
                e.i8(-1);
            });
            let bits = faults.get(osd).map_or(0, |fault| copy_bits(*fault));
            e.versioned(3, 3, |e| {
                e.u64(bits);
                e.bool(*osd == known.primary);
                if bits & MISSING == 0 {
                    e.count(0);
                    // Size, then both digests: not kept.
                    e.u64(u64::MAX);
                    e.bool(false);
                    e.u32(0);
                    e.bool(false);
                    e.u32(0);
                    e.bool(false);
                }
            });
        }
        e.u64(faults.values().fold(0, |bits, fault| bits | copy_bits(*fault)));
    });
    e.finish()
}

const MISSING: u64 = 1 << 1;

/// `err_t`: of a copy.
fn copy_bits(fault: Fault) -> u64 {
    match fault {
        Fault::Missing => MISSING,
        // Of a copy without object info Ceph's tool wants to see the others' attributes.
        Fault::Unreadable | Fault::NoRecord => 1 << 3,
        _ => 0,
    }
}

/// `obj_err_t`: of copies against each other.
fn object_bits(fault: Fault) -> u64 {
    match fault {
        Fault::Data => 1 << 4,
        Fault::Omap | Fault::OmapKeys => 1 << 5,
        Fault::Size => 1 << 6,
        Fault::Version | Fault::Attrs | Fault::Unindexed => 1 << 7,
        _ => 0,
    }
}

/// Faults of heads and their clones, by head.
fn snapset_faults(findings: &[Finding]) -> BTreeMap<HObject, Vec<(SnapId, Fault)>> {
    let mut heads: BTreeMap<HObject, Vec<(SnapId, Fault)>> = BTreeMap::new();
    for finding in findings {
        if let Some(fault) = finding.itself {
            heads.entry(finding.object.head()).or_default().push((finding.object.snap, fault));
        }
    }
    heads
}

/// `inconsistent_snapset_t`.
fn snapset_value(head: &HObject, faults: &[(SnapId, Fault)]) -> Bytes {
    let bit = |fault: Fault| match fault {
        Fault::BadSnapSet => 1 << 1,
        Fault::LostClone => 1 << 2,
        Fault::OtherClone => 1 << 3,
        Fault::Headless => 1 << 5,
        Fault::UnexpectedClone => 1 << 9,
        _ => 0,
    };
    let with =
        |wanted: Fault| faults.iter().filter(move |(_, fault)| *fault == wanted).map(|(snap, _)| *snap);
    let mut e = Encoder::plain();
    e.versioned(2, 1, |e| {
        e.u64(faults.iter().fold(0, |bits, (_, fault)| bits | bit(*fault)));
        put_object(e, head);
        e.put(&with(Fault::UnexpectedClone).collect::<Vec<_>>());
        e.put(&with(Fault::LostClone).collect::<Vec<_>>());
        e.blob(b"");
    });
    e.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_is_named_that_asks_for_attributes() {
        // `has_info_missing` and what follows it up to `has_hinfo_corrupted`; then
        // `has_object_info_inconsistency` and `has_snapset_inconsistency`.
        let (of_copies, of_objects) = (0b1_1111 << 14, 1 << 1 | 1 << 9);
        use Fault::{
            Attrs, Data, Extra, Missing, NoRecord, Omap, OmapKeys, Size, Unindexed, Unreadable, Version,
        };
        for fault in
            [Missing, Extra, NoRecord, Unreadable, Version, Size, Attrs, OmapKeys, Data, Omap, Unindexed]
        {
            assert_eq!(copy_bits(fault) & of_copies, 0, "{fault}");
            assert_eq!(object_bits(fault) & of_objects, 0, "{fault}");
        }
    }
}
