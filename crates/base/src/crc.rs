//! CRC32C (Castagnoli), in the two conventions in use here.

/// The usual CRC32C: initial and final inversion. Used by our own formats.
pub fn crc32c(data: &[u8]) -> u32 {
    ::crc32c::crc32c(data)
}

/// Continues a usual CRC32C over more data.
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, data)
}

/// Ceph's raw CRC32C: starts from `seed`, inverts nothing.
///
/// Source: Ceph `src/include/crc32c.h` (`ceph_crc32c`).
pub fn ceph_crc32c(seed: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, data)
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

    #[test]
    fn ceph_crc_of_parts_equals_crc_of_the_whole() {
        let whole = ceph_crc32c(0, b"hello world");
        assert_eq!(ceph_crc32c(ceph_crc32c(0, b"hello "), b"world"), whole);
    }
}
