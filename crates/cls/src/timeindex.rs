//! `timeindex`: values in omap, under keys of a time and a name. radosgw keeps what
//! must happen at a time so.
//!
//! Source: Ceph `src/cls/timeindex/`.

use crate::time_key::{ListRequest, PREFIX, exceeds, list_reply, reaches, start, time_prefix};
use crate::{Access, Method, Object, Output};
use base::{Errno, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::{Decode, Decoder, Encode, Encoder, Result as DecodeResult};
use wire::features::Features;

pub(crate) const METHODS: &[Method] = &[
    Method { name: "add", access: Access::ReadWrite, run: add },
    Method { name: "list", access: Access::Read, run: list },
    Method { name: "trim", access: Access::ReadWrite, run: trim },
];

const LIST_MAX: usize = 1000;
const TRIM_MAX: usize = 1000;
/// Of a key's name, as many bytes as listings give.
const LISTED_NAME_LEN_MAX: usize = 255;

/// `cls_timeindex_entry`.
#[derive(PartialEq, Eq, Debug, Default)]
struct IndexEntry {
    time: WallTime,
    name: Bytes,
    value: Bytes,
}

impl Encode for IndexEntry {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.put(&self.time);
            e.put(&self.name);
            e.put(&self.value);
        });
    }
}

impl Decode for IndexEntry {
    const MIN_LEN: usize = 22;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("cls_timeindex_entry", 1, |d, _| {
            Ok(IndexEntry { time: d.get()?, name: d.get()?, value: d.get()? })
        })
    }
}

impl IndexEntry {
    /// As listings of Ceph show it: microseconds where nanoseconds belong, and of the
    /// name what comes before white space.
    fn listed(key: &[u8], value: Bytes) -> IndexEntry {
        let (time, name) = parse_key(key).unwrap_or_default();
        let name: Vec<u8> = name
            .iter()
            .copied()
            .skip_while(u8::is_ascii_whitespace)
            .take_while(|byte| !byte.is_ascii_whitespace() && *byte != 0)
            .take(LISTED_NAME_LEN_MAX)
            .collect();
        IndexEntry { time, name: name.into(), value }
    }
}

/// The time and the name of a key that [`time_prefix`] began; `None` of any other.
fn parse_key(key: &[u8]) -> Option<(WallTime, &[u8])> {
    let rest = key.strip_prefix(PREFIX.as_bytes())?;
    let point = rest.iter().position(|byte| *byte == b'.')?;
    let (sec, rest) = (&rest[..point], &rest[point + 1..]);
    let line = rest.iter().position(|byte| *byte == b'_')?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    Some((WallTime { sec: number(sec)?, nsec: number(&rest[..line])? }, &rest[line + 1..]))
}

fn add(object: &mut dyn Object, input: Bytes) -> Output {
    let entries: Vec<IndexEntry> =
        Decoder::plain(input).versioned("cls_timeindex_add_op", 1, |d, _| d.get())?;
    let mut keyed = BTreeMap::new();
    for entry in entries {
        keyed.insert([time_prefix(entry.time).as_bytes(), &entry.name].concat().into(), entry.value);
    }
    if !keyed.is_empty() {
        object.omap_set(keyed)?;
    }
    Ok(Bytes::new())
}

/// The marker is the last entry's key.
fn list(object: &mut dyn Object, input: Bytes) -> Output {
    let ListRequest { from, marker, to, max } = ListRequest::from_bytes(input, Features::ALL)?;
    // A negative number is a large one.
    let max = usize::try_from(max).unwrap_or(LIST_MAX).min(LIST_MAX);
    let start = start(marker, from);
    let (stored, mut more) = object.omap_list(&start, PREFIX.as_bytes(), max)?;
    let mut entries = Vec::new();
    let mut last = Bytes::new();
    for (key, value) in stored {
        if to >= from && reaches(&key, time_prefix(to).as_bytes()) {
            more = false;
            break;
        }
        entries.push(IndexEntry::listed(&key, value));
        last = key;
    }
    Ok(list_reply(&entries, &last, more))
}

/// `cls_timeindex_trim_op`.
struct Trim {
    from: WallTime,
    /// Included.
    to: WallTime,
    /// Instead of the times, if not empty: after the one key, up to and with what
    /// begins with the other.
    from_marker: Bytes,
    to_marker: Bytes,
}

impl Decode for Trim {
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("cls_timeindex_trim_op", 1, |d, _| {
            Ok(Trim { from: d.get()?, to: d.get()?, from_marker: d.get()?, to_marker: d.get()? })
        })
    }
}

/// ENODATA when there is nothing to remove: callers repeat until then.
fn trim(object: &mut dyn Object, input: Bytes) -> Output {
    let Trim { from, to, from_marker, to_marker } = Trim::from_bytes(input, Features::ALL)?;
    let start = start(from_marker, from);
    let end = if to_marker.is_empty() { time_prefix(to).into() } else { to_marker };
    let (stored, _) = object.omap_list(&start, PREFIX.as_bytes(), TRIM_MAX)?;
    let gone: BTreeSet<Bytes> =
        stored.into_iter().map(|(key, _)| key).take_while(|key| !exceeds(key, &end)).collect();
    if gone.is_empty() {
        return Err(Errno::ENODATA.into());
    }
    object.omap_remove(gone)?;
    Ok(Bytes::new())
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

    fn at(sec: u32, usec: u32) -> WallTime {
        WallTime { sec, nsec: usec * 1000 }
    }

    fn filled() -> MemObject {
        let mut object = MemObject::new();
        let entries: Vec<IndexEntry> = [(10, "b"), (10, "a"), (20, "c"), (30, "")]
            .into_iter()
            .map(|(sec, name)| IndexEntry { time: at(sec, 7), name: name.into(), value: "v".into() })
            .collect();
        object.ok("timeindex", "add", &encoded(|e| e.put(&entries)));
        object
    }

    fn list(
        object: &mut MemObject,
        from: u32,
        to: u32,
        marker: &str,
        max: i32,
    ) -> (Vec<String>, Bytes, bool) {
        let input = encoded(|e| {
            e.put(&at(from, 0));
            e.string(marker);
            e.put(&at(to, 0));
            e.i32(max);
        });
        let out = object.ok("timeindex", "list", &input);
        let show = |entry: &IndexEntry| format!("{}{}", entry.time.sec, entry.name.escape_ascii());
        Decoder::plain(out)
            .versioned("", 1, |d, _| {
                let entries: Vec<IndexEntry> = d.get()?;
                Ok((entries.iter().map(show).collect(), d.get()?, d.bool()?))
            })
            .unwrap()
    }

    fn trim(object: &mut MemObject, to: u32, markers: (&str, &str)) -> i32 {
        let input = encoded(|e| {
            e.put(&at(0, 0));
            e.put(&at(to, 7));
            e.string(markers.0);
            e.string(markers.1);
        });
        object.code("timeindex", "trim", &input)
    }

    #[test]
    fn entries_come_back_in_order_page_by_page() {
        let mut object = filled();
        assert_eq!(list(&mut object, 0, 31, "", -1).0, ["10a", "10b", "20c", "30"]);
        let (page, marker, more) = list(&mut object, 0, 31, "", 2);
        assert_eq!((page.len(), more), (2, true));
        assert_eq!(marker, "1_0000000010.000007_b");
        assert_eq!(list(&mut object, 0, 31, "1_0000000010.000007_b", 9).0, ["20c", "30"]);
        assert_eq!(list(&mut object, 0, 20, "", 9).0, ["10a", "10b"]);
        assert_eq!(list(&mut object, 5, 0, "", 9).0.len(), 4);
        assert_eq!(list(&mut object, 0, 31, "", 0), (vec![], Bytes::new(), true));
    }

    #[test]
    fn trimming_includes_its_end_and_says_when_it_is_done() {
        let mut object = filled();
        assert_eq!(trim(&mut object, 9, ("", "")), -61);
        assert_eq!(trim(&mut object, 10, ("", "")), 0);
        assert_eq!(list(&mut object, 0, 31, "", 9).0, ["20c", "30"]);
        assert_eq!(trim(&mut object, 0, ("", "1_0000000020")), 0);
        assert_eq!(trim(&mut object, 0, ("1_0000000030.000007_", "1_1")), -61);
        assert_eq!(MemObject::new().code("timeindex", "trim", &[]), -22);
    }

    #[test]
    fn keys_that_others_put_there_are_listed_as_far_as_they_can_be_read() {
        let entry = IndexEntry::listed(b"1_0000000010.000007_a b", Bytes::new());
        assert_eq!((entry.time, entry.name), (WallTime { sec: 10, nsec: 7 }, "a".into()));
        for key in [&b"1_"[..], b"1_x", b"1_5.x_", b"1_5", b"1_99999999999.1_"] {
            assert_eq!(IndexEntry::listed(key, Bytes::new()), IndexEntry::default());
        }
    }
}
