//! `log`: entries in omap, under keys that sort by time; the omap header has the
//! newest key and time. radosgw keeps its metadata and data logs so.
//!
//! Source: Ceph `src/cls/log/`.

use crate::time_key::{ListRequest, PREFIX, list_reply, reaches, start, time_prefix};
use crate::{Access, Fault, Method, Object, Output};
use base::{Duration, Errno, WallTime};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::{Decode, Decoder, Encode, Encoder, Result as DecodeResult};
use wire::features::Features;

pub(crate) const METHODS: &[Method] = &[
    Method { name: "add", access: Access::ReadWrite, run: add },
    Method { name: "list", access: Access::Read, run: list },
    Method { name: "trim", access: Access::ReadWrite, run: trim },
    Method { name: "info", access: Access::Read, run: info },
];

const LIST_MAX: usize = 1000;

/// `cls_log_entry`.
struct LogEntry {
    section: Bytes,
    name: Bytes,
    timestamp: WallTime,
    data: Bytes,
    /// Its key; empty in a request that leaves the choice to us.
    id: Bytes,
}

impl Encode for LogEntry {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 1, |e| {
            e.put(&self.section);
            e.put(&self.name);
            e.put(&self.timestamp);
            e.put(&self.data);
            e.put(&self.id);
        });
    }
}

impl Decode for LogEntry {
    const MIN_LEN: usize = 26;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("cls_log_entry", 2, |d, version| {
            Ok(LogEntry {
                section: d.get()?,
                name: d.get()?,
                timestamp: d.get()?,
                data: d.get()?,
                id: if version >= 2 { d.get()? } else { Bytes::new() },
            })
        })
    }
}

/// `cls_log_header`.
#[derive(Default)]
struct Header {
    max_marker: Bytes,
    max_time: WallTime,
}

impl Encode for Header {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.put(&self.max_marker);
            e.put(&self.max_time);
        });
    }
}

impl Decode for Header {
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("cls_log_header", 1, |d, _| Ok(Header { max_marker: d.get()?, max_time: d.get()? }))
    }
}

/// One that does not decode counts as none.
fn load_header(object: &mut dyn Object) -> Result<Header, Fault> {
    Ok(Header::from_bytes(object.omap_header()?, Features::ALL).unwrap_or_default())
}

/// Entries that come late get the key of the newest one's time, if the caller wants
/// keys never to go back; the time within the entry stays.
fn add(object: &mut dyn Object, input: Bytes) -> Output {
    let (entries, monotonic) = Decoder::plain(input).versioned("cls_log_add_op", 2, |d, version| {
        let entries: Vec<LogEntry> = d.get()?;
        Ok((entries, if version >= 2 { d.bool()? } else { true }))
    })?;
    let mut header = load_header(object)?;
    for mut entry in entries {
        let mut time = entry.timestamp;
        if monotonic {
            time = time.max(header.max_time);
        }
        header.max_time = header.max_time.max(time);
        if entry.id.is_empty() {
            let unique = format!("{}.{}", object.version(), object.operation_index());
            entry.id = (time_prefix(time) + &unique).into();
        }
        header.max_marker = header.max_marker.max(entry.id.clone());
        object.omap_set(BTreeMap::from([(entry.id.clone(), entry.to_bytes(Features::ALL))]))?;
    }
    object.set_omap_header(header.to_bytes(Features::ALL))?;
    Ok(Bytes::new())
}

/// The marker is the last key looked at; without `from` there is no end either.
fn list(object: &mut dyn Object, input: Bytes) -> Output {
    let ListRequest { from, marker, to, max } = ListRequest::from_bytes(input, Features::ALL)?;
    let max = match usize::try_from(max) {
        Ok(max @ 1..=LIST_MAX) => max,
        _ => LIST_MAX,
    };
    let start = start(marker, from);
    let bounded = from != WallTime::ZERO && to >= from;
    let (stored, mut more) = object.omap_list(&start, PREFIX.as_bytes(), max)?;
    let mut entries = Vec::new();
    let mut last = Bytes::new();
    for (key, value) in stored {
        last = key;
        if bounded && reaches(&last, time_prefix(to).as_bytes()) {
            more = false;
            break;
        }
        // What is no entry is left out.
        entries.extend(LogEntry::from_bytes(value, Features::ALL));
    }
    Ok(list_reply(&entries, &last, more))
}

/// `cls_log_trim_op`.
struct Trim {
    from: WallTime,
    /// Included.
    to: WallTime,
    /// Instead of the times, if not empty: after the one key, and up to and with the other.
    from_marker: Bytes,
    to_marker: Bytes,
}

impl Decode for Trim {
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("cls_log_trim_op", 2, |d, version| {
            let (from, to) = d.get()?;
            let (from_marker, to_marker) = if version >= 2 { d.get()? } else { Default::default() };
            Ok(Trim { from, to, from_marker, to_marker })
        })
    }
}

/// ENODATA when there is nothing to remove: callers repeat until then.
fn trim(object: &mut dyn Object, input: Bytes) -> Output {
    let Trim { from, to, from_marker, to_marker } = Trim::from_bytes(input, Features::ALL)?;
    let start = start(from_marker, from);
    let end: Bytes = if to_marker.is_empty() {
        time_prefix(to + Duration::from_micros(1)).into()
    } else {
        [&to_marker[..], b"\0"].concat().into()
    };
    let (found, _) = object.omap_list(&start, b"", 1)?;
    match found.into_iter().next() {
        Some((first, _)) if first <= end => object.omap_remove_range(first, end)?,
        _ => return Err(Errno::ENODATA.into()),
    }
    Ok(Bytes::new())
}

fn info(object: &mut dyn Object, input: Bytes) -> Output {
    Decoder::plain(input).versioned("cls_log_info_op", 1, |_, _| Ok(()))?;
    let header = load_header(object)?;
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| e.put(&header));
    Ok(e.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;

    fn encoded(version: u8, body: impl FnOnce(&mut Encoder)) -> Bytes {
        let mut e = Encoder::plain();
        e.versioned(version, 1, body);
        e.finish()
    }

    fn at(sec: u32, usec: u32) -> WallTime {
        WallTime { sec, nsec: usec * 1000 }
    }

    fn add(object: &mut MemObject, times: &[WallTime], monotonic: bool) {
        let entries: Vec<LogEntry> = times
            .iter()
            .map(|time| LogEntry {
                section: "s".into(),
                name: "n".into(),
                timestamp: *time,
                data: "d".into(),
                id: Bytes::new(),
            })
            .collect();
        let input = encoded(2, |e| {
            e.put(&entries);
            e.bool(monotonic);
        });
        object.ok("log", "add", &input);
    }

    /// Seconds of the listed entries, the marker, and whether there are more.
    fn list(object: &mut MemObject, from: u32, to: u32, marker: &Bytes, max: i32) -> (Vec<u32>, Bytes, bool) {
        let input = encoded(1, |e| {
            e.put(&at(from, 0));
            e.put(marker);
            e.put(&at(to, 0));
            e.i32(max);
        });
        let out = object.ok("log", "list", &input);
        Decoder::plain(out)
            .versioned("", 1, |d, _| {
                let entries: Vec<LogEntry> = d.get()?;
                Ok((entries.iter().map(|e| e.timestamp.sec).collect(), d.get()?, d.bool()?))
            })
            .unwrap()
    }

    fn trim(object: &mut MemObject, from: WallTime, to: WallTime, markers: (&str, &str)) -> i32 {
        let input = encoded(2, |e| {
            e.put(&from);
            e.put(&to);
            e.string(markers.0);
            e.string(markers.1);
        });
        object.code("log", "trim", &input)
    }

    #[test]
    fn entries_come_back_in_the_order_of_time_page_by_page() {
        let mut object = MemObject::new();
        add(&mut object, &[at(30, 0), at(10, 5), at(20, 0), at(20, 0)], false);
        let start = Bytes::new();
        assert_eq!(list(&mut object, 0, 0, &start, 0).0, [10, 20, 20, 30]);
        let (page, marker, more) = list(&mut object, 0, 0, &start, 3);
        assert_eq!((page, more), (vec![10, 20, 20], true));
        let (page, _, more) = list(&mut object, 0, 0, &marker, 3);
        assert_eq!((page, more), (vec![30], false));
        assert_eq!(list(&mut object, 10, 20, &start, 3).0, [10]);
        assert_eq!(list(&mut object, 11, 31, &start, -1).0, [20, 20, 30]);
    }

    #[test]
    fn keys_name_the_time_and_are_unique_and_the_header_has_the_newest() {
        let mut object = MemObject::new();
        object.version = 17;
        add(&mut object, &[at(100, 5), at(100, 5)], false);
        let keys: Vec<Bytes> = object.content.as_ref().unwrap().omap.keys().cloned().collect();
        assert_eq!(keys, ["1_0000000100.000005_17.1", "1_0000000100.000005_17.2"]);
        let header = object.ok("log", "info", &encoded(1, |_| ()));
        let header: Header = Decoder::plain(header).versioned("", 1, |d, _| d.get()).unwrap();
        assert_eq!((header.max_marker, header.max_time), (keys[1].clone(), at(100, 5)));
    }

    #[test]
    fn late_entries_keep_their_time_and_get_a_later_key() {
        let mut object = MemObject::new();
        add(&mut object, &[at(20, 0), at(10, 0)], true);
        let (seconds, marker, _) = list(&mut object, 0, 0, &Bytes::new(), 0);
        assert_eq!(seconds, [20, 10]);
        assert!(marker.starts_with(b"1_0000000020."));
    }

    #[test]
    fn trimming_includes_its_end_and_says_when_it_is_done() {
        let mut object = MemObject::new();
        assert_eq!(trim(&mut object, at(0, 0), at(9, 0), ("", "")), -61);
        add(&mut object, &[at(10, 999_999), at(11, 0), at(12, 0)], false);
        assert_eq!(trim(&mut object, at(0, 0), at(10, 999_999), ("", "")), 0);
        assert_eq!(trim(&mut object, at(0, 0), at(10, 999_999), ("", "")), -61);
        let keys: Vec<Bytes> = object.content.as_ref().unwrap().omap.keys().cloned().collect();
        assert_eq!(keys.len(), 2);
        let last = std::str::from_utf8(&keys[0]).unwrap();
        assert_eq!(trim(&mut object, at(0, 0), at(0, 0), ("", last)), 0);
        assert_eq!(list(&mut object, 0, 0, &Bytes::new(), 0).0, [12]);
    }
}
