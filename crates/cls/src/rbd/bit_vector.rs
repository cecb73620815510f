//! Object maps as bytes: `BitVector<2>`.
//!
//! ```text
//! header   u32 length, v1c1 { u64 count }                        18 bytes
//! data     four states a byte, the first in the highest bits     count / 4, rounded up
//! footer   u32 length, then if checksums are kept:
//!          u32 crc of the header (without its length)
//!          u32 number of blocks, u32 crc of each 4096 bytes of data
//! ```
//! Checksums are CRC32C with seed 0. Bits past the last state mean nothing.
//!
//! Source: Ceph 16.2 `src/common/bit_vector.hpp`.

use base::crc::ceph_crc32c;
use bytes::Bytes;
use std::ops::Range;
use wire::{Decode, DecodeError, Decoder, Encode, Encoder};

pub const HEADER_LEN: u64 = 18;
pub const BLOCK: u64 = 4096;
const STATES_PER_BYTE: u64 = 4;
pub const STATES_PER_BLOCK: u64 = BLOCK * STATES_PER_BYTE;
const MASK: u8 = 3;

/// A state's place: its byte, and how far up in it.
fn place(index: u64) -> (u64, u32) {
    (index / STATES_PER_BYTE, 2 * (3 - (index % STATES_PER_BYTE) as u32))
}

/// `state` four times over.
fn pattern(state: u8) -> u8 {
    (state & MASK) * 0b0101_0101
}

pub fn data_len(count: u64) -> u64 {
    count.div_ceil(STATES_PER_BYTE)
}

/// The block of data that holds a state.
pub fn block_of(index: u64) -> u64 {
    index / STATES_PER_BLOCK
}

/// The checksum of a block of data, or of the header.
pub fn checksum(bytes: &[u8]) -> u32 {
    ceph_crc32c(0, bytes)
}

pub fn get(data: &[u8], index: u64) -> u8 {
    let (byte, shift) = place(index);
    data.get(byte as usize).map_or(0, |byte| byte >> shift & MASK)
}

pub fn set(data: &mut [u8], index: u64, state: u8) {
    let (byte, shift) = place(index);
    if let Some(byte) = data.get_mut(byte as usize) {
        *byte = *byte & !(MASK << shift) | (state & MASK) << shift;
    }
}

/// A map in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitVector {
    count: u64,
    data: Vec<u8>,
    pub has_checksums: bool,
}

impl Default for BitVector {
    fn default() -> BitVector {
        BitVector { count: 0, data: Vec::new(), has_checksums: true }
    }
}

impl BitVector {
    pub fn len(&self) -> u64 {
        self.count
    }

    pub fn get(&self, index: u64) -> u8 {
        get(&self.data, index)
    }

    pub fn set(&mut self, index: u64, state: u8) {
        set(&mut self.data, index, state);
    }

    /// Applies `change` to all states.
    pub fn map(&mut self, change: impl Fn(u8) -> u8) {
        let mut table = [0; 256];
        for (byte, changed) in (0u8..=255).zip(&mut table) {
            *changed = (0..4).fold(0, |sum, i| sum | (change(byte >> (2 * i) & MASK) & MASK) << (2 * i));
        }
        let tail = self.count % STATES_PER_BYTE;
        let last = self.data.last().copied();
        for byte in &mut self.data {
            *byte = table[usize::from(*byte)];
        }
        // What lies past the last state stays.
        if let (1.., Some(old), Some(new)) = (tail, last, self.data.last_mut()) {
            let past = u8::MAX >> (2 * tail);
            *new = *new & !past | old & past;
        }
    }

    /// Whether all states of the range are `state`.
    pub fn all(&self, mut range: Range<u64>, state: u8) -> bool {
        while range.start < range.end {
            let (byte, shift) = place(range.start);
            let whole = shift == 6 && range.end - range.start >= STATES_PER_BYTE;
            if whole && self.data.get(byte as usize) == Some(&pattern(state)) {
                range.start += STATES_PER_BYTE;
            } else if self.get(range.start) == state {
                range.start += 1;
            } else {
                return false;
            }
        }
        true
    }

    /// Drops states at the end, or adds `state`. The caller bounds `count`.
    pub fn resize(&mut self, count: u64, state: u8) {
        let (old, old_len) = (self.count, self.data.len());
        self.data.resize(data_len(count) as usize, pattern(state));
        self.count = count;
        for index in old..count.min(old.next_multiple_of(STATES_PER_BYTE)) {
            self.set(index, state);
        }
        // As Ceph leaves them: zero in new bytes, untouched in an old one.
        if self.data.len() > old_len {
            for index in count..count.next_multiple_of(STATES_PER_BYTE) {
                self.set(index, 0);
            }
        }
    }
}

/// The header without its length: what its checksum covers.
fn header(count: u64) -> Bytes {
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| e.u64(count));
    e.finish()
}

/// The number of states, and the checksum of the header.
pub fn decode_header(d: &mut Decoder) -> Result<(u64, u32), DecodeError> {
    let header = d.blob()?;
    let crc = checksum(&header);
    let count = Decoder::plain(header).versioned("BitVector", 1, |d, _| d.u64())?;
    Ok((count, crc))
}

impl Encode for BitVector {
    fn encode(&self, e: &mut Encoder) {
        let header = header(self.count);
        e.blob(&header);
        e.raw(&self.data);
        e.sized(|e| {
            if self.has_checksums {
                e.u32(checksum(&header));
                e.count(self.data.len().div_ceil(BLOCK as usize));
                for block in self.data.chunks(BLOCK as usize) {
                    e.u32(checksum(block));
                }
            }
        });
    }
}

impl Decode for BitVector {
    const MIN_LEN: usize = 22;
    /// Takes no memory before the data proved to be there.
    fn decode(d: &mut Decoder) -> Result<BitVector, DecodeError> {
        let (count, crc) = decode_header(d)?;
        let len = usize::try_from(data_len(count)).unwrap_or(usize::MAX);
        let data = d.take("object map", len)?;
        let mut footer = d.sized("object map footer")?;
        let has_checksums = !footer.is_empty();
        if has_checksums {
            expect("object map header", crc, footer.u32()?)?;
            footer.skip("number of blocks", 4)?;
            for block in data.chunks(BLOCK as usize) {
                expect("object map", checksum(block), footer.u32()?)?;
            }
        }
        Ok(BitVector { count, data: data.into(), has_checksums })
    }
}

fn expect(what: &'static str, found: u32, expected: u32) -> Result<(), DecodeError> {
    if found == expected { Ok(()) } else { Err(DecodeError::Checksum { what, found, expected }) }
}
