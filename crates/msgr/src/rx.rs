//! Received bytes on their way into frame parts.
//!
//! A part that one chunk holds whole is a slice of that chunk: nothing is
//! copied. A part spread over chunks is assembled with one copy each, into a
//! buffer that grows with what has arrived, never with what a length field
//! promises. Checksums of assembled parts are computed while the bytes are in
//! the cache. Those of long parts in one piece are remembered by piece
//! ([`base::sums`]): the store and the next link need them again.

use crate::limits::{GATHER_LEN_MIN, RESERVE_FACTOR, RESERVE_FIRST};
use base::{ceph_crc32c, sums};
use bytes::{Buf, Bytes, BytesMut};

/// Ceph's start value for a segment's checksum.
pub(crate) const SEGMENT_CRC_SEED: u32 = 0xffff_ffff;

/// A long part of which only the start has arrived. Whoever can receive it in
/// one piece takes the start, and feeds the whole part as one chunk; whoever
/// cannot just feeds what comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfinished {
    pub head: Bytes,
    pub len: usize,
    /// Where in the part the data begins that a device would want aligned.
    pub lead: usize,
}

pub(crate) struct Rx {
    /// Unread rest of the last chunk.
    chunk: Bytes,
    /// Start of a long part, and the part's length: not copied yet.
    head: Option<(Bytes, usize)>,
    /// Start of a part whose rest has not arrived.
    partial: BytesMut,
    /// Ceph's CRC over `partial`.
    partial_crc: u32,
    /// Every byte read so far, while the handshake may have to be signed.
    transcript: Option<BytesMut>,
}

impl Rx {
    pub fn new() -> Rx {
        Rx {
            chunk: Bytes::new(),
            head: None,
            partial: BytesMut::new(),
            partial_crc: SEGMENT_CRC_SEED,
            transcript: None,
        }
    }

    pub fn record_transcript(&mut self) {
        self.transcript = Some(BytesMut::new());
    }

    pub fn take_transcript(&mut self) -> Bytes {
        self.transcript.take().unwrap_or_default().freeze()
    }

    /// The caller has read the previous chunk to its end.
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.chunk.is_empty(), "the previous chunk is read to its end");
        self.chunk = chunk;
    }

    /// Frees everything: nothing more will be read.
    pub fn clear(&mut self) {
        *self = Rx::new();
    }

    /// The long part that waits for its rest, if none of it has been copied.
    pub fn unfinished(&self, lead: usize) -> Option<Unfinished> {
        self.head.as_ref().map(|(head, len)| Unfinished { head: head.clone(), len: *len, lead })
    }

    /// Forgets the start of the unfinished part: the next chunk begins with it.
    pub fn leave_unfinished(&mut self) {
        self.head = None;
    }

    /// Memory held for an unfinished part.
    pub fn reserved_len(&self) -> usize {
        self.partial.capacity()
    }

    /// A small part of fixed length, on the stack.
    pub fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut array = [0; N];
        if self.partial.is_empty() && self.chunk.len() >= N {
            self.chunk.copy_to_slice(&mut array);
        } else {
            if !self.fill_partial(N, false) {
                return None;
            }
            // Keeps the buffer for the next small part.
            self.partial.copy_to_slice(&mut array);
        }
        self.record(&array);
        Some(array)
    }

    /// A part of `len` bytes.
    pub fn read(&mut self, len: usize) -> Option<Bytes> {
        let part = if self.partial.is_empty() && self.chunk.len() >= len {
            self.chunk.split_to(len)
        } else {
            if !self.fill_partial(len, false) {
                return None;
            }
            self.partial.split().freeze()
        };
        self.record(&part);
        Some(part)
    }

    /// A part of `len` bytes and its checksum as Ceph computes it for segments.
    /// Its data begins at byte `lead`: pieces' checksums are remembered from there.
    pub fn read_checked(&mut self, len: usize, lead: usize) -> Option<(Bytes, u32)> {
        // Nothing of the part had come before this chunk.
        if self.head.as_ref().is_some_and(|(head, _)| head.is_empty()) {
            self.head = None;
        }
        if self.partial.is_empty() && self.head.is_none() {
            if self.chunk.len() >= len {
                return Some(sums::sum(SEGMENT_CRC_SEED, self.chunk.split_to(len), lead));
            }
            if len >= GATHER_LEN_MIN {
                self.head = Some((std::mem::take(&mut self.chunk), len));
                return None;
            }
        }
        if !self.fill_partial(len, true) {
            return None;
        }
        let crc = std::mem::replace(&mut self.partial_crc, SEGMENT_CRC_SEED);
        Some((self.partial.split().freeze(), crc))
    }

    /// Moves bytes until `partial` has `len`; false when the chunk ends before.
    fn fill_partial(&mut self, len: usize, checked: bool) -> bool {
        if let Some((head, _)) = self.head.take() {
            self.append(&head, len, checked);
        }
        let now = self.chunk.len().min(len - self.partial.len());
        let piece = self.chunk.split_to(now);
        self.append(&piece, len, checked);
        if self.chunk.is_empty() {
            // Lets go of the chunk's memory while waiting.
            self.chunk = Bytes::new();
        }
        self.partial.len() == len
    }

    fn append(&mut self, piece: &[u8], len: usize, checked: bool) {
        let have = self.partial.len();
        let with = have + piece.len();
        if with > self.partial.capacity() {
            let reserve = RESERVE_FIRST.max(with.saturating_mul(RESERVE_FACTOR)).min(len);
            self.partial.reserve(reserve - have);
        }
        if checked {
            self.partial_crc = ceph_crc32c(self.partial_crc, piece);
        }
        self.partial.extend_from_slice(piece);
    }

    fn record(&mut self, part: &[u8]) {
        if let Some(transcript) = &mut self.transcript {
            transcript.extend_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_within_one_chunk_shares_its_memory() {
        let chunk = Bytes::from(vec![7u8; 100]);
        let start = chunk.as_ptr();
        let mut rx = Rx::new();
        rx.feed(chunk);
        assert_eq!(rx.read(10).unwrap().as_ptr(), start);
        let (part, crc) = rx.read_checked(90, 0).unwrap();
        assert_eq!(part.as_ptr(), start.wrapping_add(10));
        assert_eq!(crc, ceph_crc32c(SEGMENT_CRC_SEED, &[7; 90]));
    }

    #[test]
    fn part_over_many_chunks_is_whole_and_checked() {
        let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let mut rx = Rx::new();
        let mut found = None;
        for piece in data.chunks(777) {
            assert!(found.is_none());
            rx.feed(Bytes::copy_from_slice(piece));
            found = rx.read_checked(data.len(), 0);
        }
        let (part, crc) = found.unwrap();
        assert_eq!(part, data);
        assert_eq!(crc, ceph_crc32c(SEGMENT_CRC_SEED, &data));
        // The next part starts its checksum anew.
        rx.feed(Bytes::from_static(b"ab"));
        assert!(rx.read_checked(3, 0).is_none());
        rx.feed(Bytes::from_static(b"c"));
        assert_eq!(rx.read_checked(3, 0).unwrap().1, ceph_crc32c(SEGMENT_CRC_SEED, b"abc"));
    }

    #[test]
    fn long_part_may_be_gathered_elsewhere() {
        let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let mut rx = Rx::new();
        rx.feed(Bytes::copy_from_slice(&data[..500]));
        assert!(rx.read_checked(data.len(), 0).is_none());
        let unfinished = rx.unfinished(7).unwrap();
        assert_eq!((unfinished.head.len(), unfinished.len, unfinished.lead), (500, data.len(), 7));
        rx.leave_unfinished();
        let whole = Bytes::from(data);
        rx.feed(whole.clone());
        let (part, crc) = rx.read_checked(whole.len(), 0).unwrap();
        assert_eq!(part.as_ptr(), whole.as_ptr(), "not copied");
        assert_eq!(crc, ceph_crc32c(SEGMENT_CRC_SEED, &whole));
        assert_eq!(rx.unfinished(0), None);
    }

    /// What is remembered while a part is checked is what its frame's checksum
    /// was compared with: a flipped bit changes both.
    #[test]
    fn long_part_is_summed_by_piece_from_its_data_on() {
        let lead = 123;
        let data: Vec<u8> = (0..300_000u32).map(|i| (i * 7) as u8).collect();
        let sums_of = |data: &[u8]| {
            let mut rx = Rx::new();
            rx.feed(Bytes::copy_from_slice(data));
            let (part, crc) = rx.read_checked(data.len(), lead).unwrap();
            assert_eq!(part, data);
            assert_eq!(crc, ceph_crc32c(SEGMENT_CRC_SEED, data));
            let mut pieces = Vec::new();
            sums::piece_crcs(&part[lead..lead + 70 * sums::PIECE_LEN], &mut pieces);
            (crc, pieces)
        };
        let (crc, pieces) = sums_of(&data);
        assert!(pieces.iter().copied().eq(data[lead..].chunks(sums::PIECE_LEN).take(70).map(base::crc32c)));
        let mut flipped = data.clone();
        flipped[lead + 5 * sums::PIECE_LEN] ^= 0x10;
        let (other, others) = sums_of(&flipped);
        assert_ne!(other, crc);
        assert_eq!((0..70).filter(|at| pieces[*at] != others[*at]).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn promised_length_reserves_little() {
        let mut rx = Rx::new();
        rx.feed(Bytes::from_static(&[1; 10]));
        assert!(rx.read_checked(100 << 20, 0).is_none());
        assert!(rx.reserved_len() <= 2 * RESERVE_FIRST);
    }
}
