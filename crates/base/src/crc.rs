//! CRC32C (Castagnoli), in the two conventions in use here.

use crc_fast::{CrcAlgorithm, Digest};

/// The usual CRC32C: initial and final inversion. Used by our own formats.
pub fn crc32c(data: &[u8]) -> u32 {
    !ceph_crc32c(!0, data)
}

/// Continues a usual CRC32C over more data.
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    !ceph_crc32c(!crc, data)
}

/// Ceph's raw CRC32C: starts from `seed`, inverts nothing.
///
/// Source: Ceph `src/include/crc32c.h` (`ceph_crc32c`).
pub fn ceph_crc32c(seed: u32, data: &[u8]) -> u32 {
    // The digest's state is the bare register.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(data);
    digest.get_state() as u32
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
}
