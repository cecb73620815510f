//! Contents that prove themselves.
//!
//! An object's bytes follow from a seed, its name, its version and its length.
//! The first 16 bytes of a long enough object name the object and the version,
//! so that a mismatch can be told from an older version's, or another object's,
//! content.

use base::Random;
use bytes::Bytes;

/// Bytes of the stamp: 8 for the name, 8 for the version, little-endian.
const STAMP_LEN: usize = 16;

/// Why an object is not what it should be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mismatch {
    #[error("{have} bytes instead of {want}")]
    Length { want: usize, have: usize },
    #[error("content of version {have} instead of {want}")]
    Version { want: u64, have: u64 },
    #[error("content of another object")]
    OtherObject,
    #[error("wrong bytes from offset {offset}")]
    Bytes { offset: usize },
}

/// The content of one version of an object.
///
/// Units:   `len` in bytes.
pub fn generate(seed: u64, name: &str, version: u64, len: usize) -> Bytes {
    let name_hash = hash_name(name);
    let mut data = Vec::with_capacity(len.next_multiple_of(8).max(STAMP_LEN));
    data.extend_from_slice(&name_hash.to_le_bytes());
    data.extend_from_slice(&version.to_le_bytes());
    let mut words = words(seed, name_hash, version);
    while data.len() < len {
        data.extend_from_slice(&words.next_u64().to_le_bytes());
    }
    // A short object has no stamp: it would be the same for every seed.
    if len < STAMP_LEN {
        data.clear();
        data.extend_from_slice(&words.next_u64().to_le_bytes());
        data.extend_from_slice(&words.next_u64().to_le_bytes());
    }
    data.truncate(len);
    Bytes::from(data)
}

/// Compares what was read with what was written.
pub fn check(seed: u64, name: &str, version: u64, len: usize, found: &[u8]) -> Result<(), Mismatch> {
    let want = generate(seed, name, version, len);
    if *want == *found {
        return Ok(());
    }
    if found.len() != len {
        return Err(Mismatch::Length { want: len, have: found.len() });
    }
    if len >= STAMP_LEN && found[..8] == want[..8] && found[8..16] != want[8..16] {
        let have = u64::from_le_bytes(found[8..16].try_into().expect("eight bytes"));
        // Only a whole content of that version counts as that version's.
        if *generate(seed, name, have, len) == *found {
            return Err(Mismatch::Version { want: version, have });
        }
    }
    if len >= STAMP_LEN && found[..8] != want[..8] && found[8..16] == want[8..16] {
        return Err(Mismatch::OtherObject);
    }
    let offset = want.iter().zip(found).position(|(a, b)| a != b).unwrap_or(len);
    Err(Mismatch::Bytes { offset })
}

fn words(seed: u64, name_hash: u64, version: u64) -> Random {
    let mut mix = Random::from_seed(seed ^ name_hash);
    let per_object = mix.next_u64();
    Random::from_seed(per_object ^ version.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

/// FNV-1a, 64 bits: short, and good enough to tell names apart.
fn hash_name(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_every_length_checks_out_and_differs_by_version_name_and_seed() {
        for len in [0, 1, 7, 8, 15, 16, 17, 4096, 4099] {
            let data = generate(1, "a", 1, len);
            assert_eq!(data.len(), len);
            assert_eq!(check(1, "a", 1, len, &data), Ok(()));
            if len >= 7 {
                assert_ne!(data, generate(1, "a", 2, len));
                assert_ne!(data, generate(1, "b", 1, len));
            }
            if len > 16 || len == 8 {
                assert_ne!(data, generate(2, "a", 1, len));
            }
        }
    }

    #[test]
    fn mismatches_say_what_was_found() {
        let check = |found: &[u8]| super::check(1, "a", 5, 4096, found);
        let old = generate(1, "a", 4, 4096);
        assert_eq!(check(&old), Err(Mismatch::Version { want: 5, have: 4 }));
        assert_eq!(check(&generate(1, "b", 5, 4096)), Err(Mismatch::OtherObject));
        assert_eq!(check(&old[..100]), Err(Mismatch::Length { want: 4096, have: 100 }));
        let mut bad = generate(1, "a", 5, 4096).to_vec();
        bad[2000] ^= 1;
        assert_eq!(check(&bad), Err(Mismatch::Bytes { offset: 2000 }));
        // Half of one version, half of another: no version's content.
        let torn = [&old[..2048], &generate(1, "a", 5, 4096)[2048..]].concat();
        assert_eq!(check(&torn), Err(Mismatch::Bytes { offset: 8 }));
    }
}
