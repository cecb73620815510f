//! Omap keys that sort by time, and listings of them: those of `log` and `timeindex`.
//!
//! Shape: `1_`, ten digits of seconds, a point, six digits of microseconds, `_`, and
//! what the class appends. Later times of one width sort later.

use base::WallTime;
use bytes::Bytes;
use wire::codec::{Decode, Decoder, Encode, Encoder, Result as DecodeResult};

pub(crate) const PREFIX: &str = "1_";

/// What the keys of a time begin with.
pub(crate) fn time_prefix(time: WallTime) -> String {
    format!("{PREFIX}{:010}.{:06}_", time.sec, time.nsec / 1000)
}

/// Ceph's `compare(0, bound.size(), bound) >= 0`: the key is at the bound, begins with
/// it, or comes later.
pub(crate) fn reaches(key: &[u8], bound: &[u8]) -> bool {
    &key[..key.len().min(bound.len())] >= bound
}

/// As [`reaches`], but a key that begins with the bound is not yet beyond it.
pub(crate) fn exceeds(key: &[u8], bound: &[u8]) -> bool {
    &key[..key.len().min(bound.len())] > bound
}

/// What a list or a removal begins after: a key, or a time where there is none.
pub(crate) fn start(marker: Bytes, from: WallTime) -> Bytes {
    if marker.is_empty() { time_prefix(from).into() } else { marker }
}

/// `cls_log_list_op`, `cls_timeindex_list_op`.
pub(crate) struct ListRequest {
    pub(crate) from: WallTime,
    /// Instead of `from`, the last key seen.
    pub(crate) marker: Bytes,
    /// Not included; no bound if it is before `from`.
    pub(crate) to: WallTime,
    pub(crate) max: i32,
}

impl Decode for ListRequest {
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("list by time", 1, |d, _| {
            Ok(ListRequest { from: d.get()?, marker: d.get()?, to: d.get()?, max: d.i32()? })
        })
    }
}

/// `cls_log_list_ret`, `cls_timeindex_list_ret`: entries, a key to go on after, whether there may be more.
pub(crate) fn list_reply<T: Encode>(entries: &[T], last: &Bytes, more: bool) -> Bytes {
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| {
        e.put(entries);
        e.put(last);
        e.bool(more);
    });
    e.finish()
}
