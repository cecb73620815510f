//! Where to look first: searches for the same keys come one after the other.

use super::At;
use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where searches ended lately, by token: a transaction names the same object several
/// times, and changes a PG's log at both ends and beside. Only ever guesses, but never
/// about another token: that would be a page read in vain, which is likely not in the
/// CPU's cache.
pub(super) struct Hints {
    /// For the tokens that meet here, the page that was first met last comes first: a line of the CPU's cache each.
    sets: Vec<[Hint; WAYS]>,
}

#[derive(Default)]
struct Hint {
    token: AtomicU64,
    place: AtomicU64,
}

const WAYS: usize = 4;
const SETS: usize = 512;
/// 2^64 by the golden ratio: the product's upper bits depend on all of a token's. So many of them choose the set.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const CHOOSING_BITS: u32 = 16;
const _: () = assert!(SETS <= 1 << CHOOSING_BITS);

/// A place: 32 bits of node, 12 of slot, and these of entry.
const ENTRY_BITS: u32 = 20;
const ENTRY_MAX: u64 = (1 << ENTRY_BITS) - 1;

impl Default for Hints {
    fn default() -> Self {
        Hints { sets: (0..SETS).map(|_| Default::default()).collect() }
    }
}

impl Hint {
    fn get(&self) -> (u64, u64) {
        (self.token.load(Relaxed), self.place.load(Relaxed))
    }

    fn set(&self, (token, place): (u64, u64)) {
        self.token.store(token, Relaxed);
        self.place.store(place, Relaxed);
    }
}

impl Hints {
    fn of(&self, token: u64) -> &[Hint; WAYS] {
        &self.sets[(token.wrapping_mul(SPREAD) >> (u64::BITS - CHOOSING_BITS)) as usize % SETS]
    }

    pub(super) fn places(&self, token: u64) -> impl Iterator<Item = (At, usize)> {
        let known = self.of(token).iter().filter(move |hint| hint.token.load(Relaxed) == token);
        known.map(|hint| unpacked(hint.place.load(Relaxed)))
    }

    /// One for each page: what grows at one end does not push out the other.
    pub(super) fn keep(&self, token: u64, at: At, entry: usize) {
        let set = self.of(token);
        let place = (at.0 as u64) << 32 | (at.1 as u64) << ENTRY_BITS | (entry as u64).min(ENTRY_MAX);
        let same_page = set.iter().position(|hint| {
            let (other, before) = hint.get();
            other == token && before >> ENTRY_BITS == place >> ENTRY_BITS
        });
        if same_page.is_none() {
            (1..WAYS).rev().for_each(|way| set[way].set(set[way - 1].get()));
        }
        set[same_page.unwrap_or(0)].set((token, place));
    }
}

fn unpacked(place: u64) -> (At, usize) {
    (((place >> 32) as usize, (place >> ENTRY_BITS & 0xfff) as usize), (place & ENTRY_MAX) as usize)
}

/// Binary search that begins at `guess` and looks ever further from it: what is near is found in the few
/// lines of the CPU's cache that lie there.
pub(super) fn search_near<K, V>(
    entries: &[(K, V)],
    guess: usize,
    by: impl Fn(&K) -> Ordering,
) -> std::result::Result<usize, usize> {
    let (mut from, mut to) = (0, entries.len());
    let (mut at, mut step) = (guess.min(to.saturating_sub(1)), 1);
    while from < to {
        match by(&entries[at].0) {
            Ordering::Equal => return Ok(at),
            Ordering::Less => from = at + 1,
            Ordering::Greater => to = at,
        }
        at = match (from, to) {
            // Not behind the guess, not before it; then it is between two that were looked at.
            (0, _) => to.saturating_sub(step),
            (_, to) if to == entries.len() => (from + step - 1).min(to - 1),
            _ => from + (to - from) / 2,
        };
        step *= 2;
    }
    Err(from)
}
