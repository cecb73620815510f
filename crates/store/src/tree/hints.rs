//! Where to look first: searches for the same keys come one after the other.

use super::At;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where searches ended lately, by token, two for each: a transaction names the
/// same object several times, and a PG's log grows at one end and shrinks at the
/// other. Only ever guesses.
pub(super) struct Hints {
    places: Vec<[AtomicU64; 2]>,
}

const HINTS: usize = 512;

impl Default for Hints {
    fn default() -> Self {
        Hints { places: (0..HINTS).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect() }
    }
}

impl Hints {
    pub(super) fn of(&self, token: u64) -> &[AtomicU64; 2] {
        // Tokens that differ in any of their bits should differ here.
        &self.places[(token.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize % HINTS]
    }

    pub(super) fn keep(&self, token: u64, at: At, entry: usize) {
        let ways = self.of(token);
        let place = (at.0 as u64) << 32 | (at.1 as u64) << 20 | (entry as u64).min(0xf_ffff);
        let newest = ways[0].load(Relaxed);
        if newest != place {
            ways[1].store(newest, Relaxed);
            ways[0].store(place, Relaxed);
        }
    }
}

pub(super) fn unpacked(place: u64) -> (At, usize) {
    (((place >> 32) as usize, (place >> 20 & 0xfff) as usize), (place & 0xf_ffff) as usize)
}

/// Looks at an entry and its neighbours only.
pub(super) fn probe<K, V>(
    entries: &[(K, V)],
    at: usize,
    by: impl Fn(&K) -> Ordering,
) -> Option<std::result::Result<usize, usize>> {
    let (key, _) = entries.get(at)?;
    match by(key) {
        Ordering::Equal => Some(Ok(at)),
        Ordering::Less => match entries.get(at + 1).map(|(key, _)| by(key)) {
            None | Some(Ordering::Greater) => Some(Err(at + 1)),
            Some(Ordering::Equal) => Some(Ok(at + 1)),
            Some(Ordering::Less) => None,
        },
        Ordering::Greater => match at.checked_sub(1).map(|before| by(&entries[before].0)) {
            None | Some(Ordering::Less) => Some(Err(at)),
            Some(Ordering::Equal) => Some(Ok(at - 1)),
            Some(Ordering::Greater) => None,
        },
    }
}
