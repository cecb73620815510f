//! CRC32C (Castagnoli), in the two conventions in use here.
#![allow(unsafe_code)]

use crc_fast::{CrcAlgorithm, Digest};

/// The usual CRC32C: initial and final inversion. Used by our own formats.
pub fn crc32c(data: &[u8]) -> u32 {
    !ceph_crc32c(!0, data)
}

/// Ceph's raw CRC32C: starts from `seed`, inverts nothing.
///
/// Source: Ceph `src/include/crc32c.h` (`ceph_crc32c`).
pub fn ceph_crc32c(seed: u32, data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if data.len() <= SHORT_MAX && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short(seed, data) };
    }
    // The digest's state is the bare register.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(data);
    digest.get_state() as u32
}

/// Up to here the processor's own instruction is done before a digest is set up: a message is
/// half a dozen of such parts.
#[cfg(target_arch = "x86_64")]
const SHORT_MAX: usize = 256;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(seed: u32, data: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = data.as_chunks();
    let step = |crc, word: &[u8; 8]| _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    let crc = words.iter().fold(u64::from(seed), step) as u32;
    rest.iter().fold(crc, |crc, byte| _mm_crc32_u8(crc, *byte))
}

/// Length of the pieces that [`append_piece`] joins.
pub const PIECE_LEN: usize = 4096;

/// [`ceph_crc32c`] of a piece from `seed` on, given the piece's [`crc32c`].
///
/// The register is linear in what it held and in the data: what a piece of
/// zeros makes of the difference of two seeds is the difference of the results.
pub fn append_piece(seed: u32, crc: u32) -> u32 {
    let [a, b, c, d] = (!seed).to_le_bytes().map(usize::from);
    let [low, second, third, high] = &ZEROS;
    low[a] ^ second[b] ^ third[c] ^ high[d] ^ !crc
}

/// What a piece of zeros makes of each value of each byte of the register.
static ZEROS: [[u32; 256]; 4] = zeros();

const fn zeros() -> [[u32; 256]; 4] {
    // A linear map, by the images of the 32 bits: at first of one zero bit.
    let mut map = [0; 32];
    map[0] = 0x82f6_3b78;
    let mut bit = 1;
    while bit < 32 {
        map[bit] = 1 << (bit - 1);
        bit += 1;
    }
    let mut bits = 1;
    while bits < 8 * PIECE_LEN {
        let mut twice = [0; 32];
        let mut bit = 0;
        while bit < 32 {
            twice[bit] = apply(&map, map[bit]);
            bit += 1;
        }
        map = twice;
        bits *= 2;
    }
    let mut table = [[0; 256]; 4];
    let mut at = 0;
    while at < 4 * 256 {
        let (byte, value) = (at / 256, at % 256);
        table[byte][value] = apply(&map, (value as u32) << (8 * byte));
        at += 1;
    }
    table
}

const fn apply(map: &[u32; 32], register: u32) -> u32 {
    let (mut out, mut bit) = (0, 0);
    while bit < 32 {
        if register >> bit & 1 == 1 {
            out ^= map[bit];
        }
        bit += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_matches_the_published_one() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        // The same polynomial without the inversions.
        assert_eq!(ceph_crc32c(0xffff_ffff, b"123456789"), !0xe306_9283);
    }

    /// One bit at a time, as the polynomial is defined.
    fn slow(seed: u32, data: &[u8]) -> u32 {
        data.iter().fold(seed, |crc, byte| {
            (0..8).fold(
                crc ^ u32::from(*byte),
                |crc, _| {
                    if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
                },
            )
        })
    }

    #[test]
    fn every_length_and_seed_agrees_with_the_definition() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 256) as u8).collect();
        for len in (0..600).chain([1023, 1024, 4095, 4096, 4097, 5000]) {
            for seed in [0, 1, 0x8000_0000, 0xffff_ffff] {
                // Unaligned on purpose.
                for at in [0, 3] {
                    let part = &data[at..len.max(at)];
                    assert_eq!(ceph_crc32c(seed, part), slow(seed, part), "{len} {seed}");
                }
            }
        }
    }

    #[test]
    fn ceph_crc_of_parts_equals_crc_of_the_whole() {
        let whole = ceph_crc32c(0, b"hello world");
        assert_eq!(ceph_crc32c(ceph_crc32c(0, b"hello "), b"world"), whole);
    }

    #[test]
    fn pieces_joined_are_the_whole() {
        let data: Vec<u8> = (0..3 * PIECE_LEN as u32 + 5).map(|i| (i * 31 + i / 256) as u8).collect();
        for seed in [0, 1, 0x8000_0000, 0xdead_beef, !0] {
            let (pieces, rest) = data[2..].as_chunks::<PIECE_LEN>();
            let joined = pieces.iter().fold(ceph_crc32c(seed, &data[..2]), |crc, piece| {
                let whole = ceph_crc32c(crc, piece);
                assert_eq!(append_piece(crc, crc32c(piece)), whole);
                whole
            });
            assert_eq!(ceph_crc32c(joined, rest), ceph_crc32c(seed, &data));
        }
    }
}
