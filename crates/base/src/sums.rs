//! Checksums that live as long as the bytes they are of.
//!
//! A large payload is read once to be checked: when its frame has arrived, or
//! when its blocks come from the device. Whoever needs a checksum of the same
//! memory later (the store for its blocks, a connection for its frame) takes
//! the pieces' checksums from here, by address, instead of reading it again.
//! Nothing between the two has to know: slices of [`Bytes`] are enough.
//!
//! This is a memo, not state: without an entry the same value is computed. An
//! entry cannot outlive its memory, for the memory's owner takes it away; and
//! [`Bytes`] that have an owner never change. A bit that flips in memory after
//! the bytes were checked is found by the next who computes: the checksum that
//! travels on is the one that was checked.

use crate::crc::{append_piece, ceph_crc32c, crc32c};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::crc::PIECE_LEN;

/// Less is computed again: that is cheaper than to remember it.
pub const LEN_MIN: usize = 64 << 10;

/// Usual CRC32Cs of adjacent pieces, by the address of the first.
type Known = BTreeMap<usize, Arc<[u32]>>;

static KNOWN: Mutex<Known> = Mutex::new(Known::new());

fn known() -> MutexGuard<'static, Known> {
    // No entry is ever half made.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Owner of bytes whose checksums are known.
struct Summed {
    data: Bytes,
    start: usize,
    crcs: Arc<[u32]>,
}

impl AsRef<[u8]> for Summed {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Summed {
    fn drop(&mut self) {
        let mut known = known();
        if known.get(&self.start).is_some_and(|crcs| Arc::ptr_eq(crcs, &self.crcs)) {
            known.remove(&self.start);
        }
    }
}

/// The same bytes, whose slices' checksums are known from now on.
///
/// Shape: `crcs` are usual CRC32Cs of pieces of [`PIECE_LEN`] from byte `lead` on.
pub fn remember(data: Bytes, lead: usize, crcs: Vec<u32>) -> Bytes {
    assert!(lead + crcs.len() * PIECE_LEN <= data.len(), "pieces lie within their bytes");
    if crcs.len() * PIECE_LEN < LEN_MIN {
        return data;
    }
    let start = data[lead..].as_ptr() as usize;
    let crcs: Arc<[u32]> = crcs.into();
    known().insert(start, crcs.clone());
    Bytes::from_owner(Summed { data, start, crcs })
}

/// Reads all of `data`: Ceph's CRC32C from `seed` on, and the same bytes with
/// their pieces' checksums from byte `lead` on remembered.
pub fn sum(seed: u32, data: Bytes, lead: usize) -> (Bytes, u32) {
    if data.len() < LEN_MIN + lead {
        let crc = ceph_crc32c(seed, &data);
        return (data, crc);
    }
    let (head, body) = data.split_at(lead);
    let (pieces, rest) = body.as_chunks::<PIECE_LEN>();
    let crcs: Vec<u32> = pieces.iter().map(|piece| crc32c(piece)).collect();
    let crc = crcs.iter().copied().fold(ceph_crc32c(seed, head), append_piece);
    let crc = ceph_crc32c(crc, rest);
    (remember(data, lead, crcs), crc)
}

/// Ceph's CRC32C of `data` from `seed` on; reads only what is not known.
pub fn continue_crc(seed: u32, data: &[u8]) -> u32 {
    let Some((at, crcs)) = find(data) else {
        return ceph_crc32c(seed, data);
    };
    let crc = ceph_crc32c(seed, &data[..at.start]);
    let crc = crcs.into_iter().fold(crc, append_piece);
    ceph_crc32c(crc, &data[at.end..])
}

/// Appends the usual CRC32C of each piece of `data`, which is whole pieces.
pub fn piece_crcs(data: &[u8], out: &mut Vec<u32>) {
    match find(data) {
        Some((at, crcs)) if at == (0..data.len()) => out.extend(crcs),
        _ => out.extend(data.chunks(PIECE_LEN).map(crc32c)),
    }
}

/// The part of `data` that is known pieces, and their checksums.
fn find(data: &[u8]) -> Option<(Range<usize>, Vec<u32>)> {
    if data.len() < LEN_MIN {
        return None;
    }
    let address = data.as_ptr() as usize;
    let known = known();
    let (start, crcs) = known.range(..=address).next_back()?;
    let first = (address - start).div_ceil(PIECE_LEN);
    let head = start + first * PIECE_LEN - address;
    let whole = data.len().checked_sub(head)? / PIECE_LEN;
    let crcs = crcs.get(first..)?;
    let crcs = &crcs[..whole.min(crcs.len())];
    (!crcs.is_empty()).then(|| (head..head + crcs.len() * PIECE_LEN, crcs.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(len: usize) -> Bytes {
        Bytes::from((0..len as u32).map(|i| (i * 7 + i / 251) as u8).collect::<Vec<u8>>())
    }

    #[test]
    fn sums_of_any_slice_are_those_of_its_bytes() {
        for lead in [0, 1, 77, 4096] {
            let plain = data(50 * PIECE_LEN + 123);
            let (bytes, crc) = sum(5, plain.clone(), lead);
            assert_eq!(crc, ceph_crc32c(5, &plain));
            for at in [0, 1, lead, lead + 1, lead + PIECE_LEN, lead + 3 * PIECE_LEN + 9] {
                for len in [LEN_MIN - 1, LEN_MIN, 30 * PIECE_LEN, plain.len() - at] {
                    let slice = &bytes[at..at + len];
                    assert_eq!(continue_crc(9, slice), ceph_crc32c(9, slice), "{lead} {at} {len}");
                }
                let whole = &bytes[at..at + 20 * PIECE_LEN];
                let mut crcs = vec![1];
                piece_crcs(whole, &mut crcs);
                assert_eq!(crcs[0], 1, "appended");
                assert!(crcs[1..].iter().copied().eq(whole.chunks(PIECE_LEN).map(crc32c)));
            }
        }
    }

    /// Wrong ones show where they come from.
    #[test]
    fn pieces_are_taken_and_what_is_no_piece_is_read() {
        let plain = data(40 * PIECE_LEN);
        let bytes = remember(plain.clone(), 100, vec![7; 30]);
        let slice = bytes.slice(100 + PIECE_LEN..100 + 21 * PIECE_LEN);
        let mut crcs = Vec::new();
        piece_crcs(&slice, &mut crcs);
        assert_eq!(crcs, [7; 20]);
        assert_ne!(continue_crc(0, &bytes[100..]), ceph_crc32c(0, &plain[100..]));
        // From another boundary on, and beyond what is known.
        for slice in [&bytes[101..101 + 20 * PIECE_LEN], &bytes[100 + 15 * PIECE_LEN..100 + 35 * PIECE_LEN]] {
            crcs.clear();
            piece_crcs(slice, &mut crcs);
            assert!(crcs.iter().copied().eq(slice.chunks(PIECE_LEN).map(crc32c)));
        }
    }

    #[test]
    fn an_entry_goes_with_its_memory() {
        let bytes = remember(data(LEN_MIN), 0, vec![7; LEN_MIN / PIECE_LEN]);
        let (address, slice) = (bytes.as_ptr() as usize, bytes.slice(10..20));
        let is_known = || known().contains_key(&address);
        drop(bytes);
        assert!(is_known());
        drop(slice);
        // The memory may be another test's by now, which remembers no such sums.
        assert!(known().get(&address).is_none_or(|crcs| crcs[0] != 7));
    }

    #[test]
    fn little_is_not_remembered() {
        let plain = data(LEN_MIN - 1);
        let (bytes, crc) = sum(0, plain.clone(), 0);
        assert_eq!((bytes.as_ptr(), crc), (plain.as_ptr(), ceph_crc32c(0, &plain)));
        assert!(find(&bytes).is_none());
    }
}
