//! Omap keys that sort by time: those of `log` and `timeindex`.
//!
//! Shape: `1_`, ten digits of seconds, a point, six digits of microseconds, `_`, and
//! what the class appends. Later times of one width sort later.

use base::WallTime;

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
