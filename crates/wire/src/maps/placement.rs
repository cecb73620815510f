//! From an object's name to its PG's seed.
//!
//! Source: Ceph 16.2.15, src/common/ceph_hash.cc (`ceph_str_hash_rjenkins`),
//! src/osd/osd_types.cc (`pg_pool_t::hash_key`), src/include/rados.h
//! (`ceph_stable_mod`). The hash is Bob Jenkins' public-domain one of 1996.

use crate::types::ObjectLocator;

/// Stands between namespace and key in what is hashed.
const NAMESPACE_SEPARATOR: u8 = 0x1f;

/// The raw placement hash of an object: what `MOSDOp` carries as the hash, and
/// what [`super::PgPool::raw_hash_to_pg`] turns into a PG.
///
/// The locator's hash, where it has one, overrides everything.
pub fn placement_hash(locator: &ObjectLocator, name: &str) -> u32 {
    if locator.hash >= 0 {
        // Ceph keeps the low 32 bits (`pg_t`'s seed).
        return (locator.hash as u64 & 0xffff_ffff) as u32;
    }
    let key = if locator.key.is_empty() { name } else { &locator.key };
    if locator.nspace.is_empty() {
        return string_hash(key.as_bytes());
    }
    let mut hashed = Vec::with_capacity(locator.nspace.len() + 1 + key.len());
    hashed.extend_from_slice(locator.nspace.as_bytes());
    hashed.push(NAMESPACE_SEPARATOR);
    hashed.extend_from_slice(key.as_bytes());
    string_hash(&hashed)
}

/// `ceph_stable_mod`: `x` modulo `n` such that growing `n` towards the next
/// power of two splits buckets instead of reshuffling them.
///
/// `mask` is the next power of two, minus one.
pub fn stable_mod(x: u32, n: u32, mask: u32) -> u32 {
    if x & mask < n { x & mask } else { x & (mask >> 1) }
}

/// `ceph_str_hash_rjenkins`, the only object hash in use (`object_hash` 2).
pub fn string_hash(text: &[u8]) -> u32 {
    let mut state = [0x9e37_79b9_u32, 0x9e37_79b9, 0];
    let mut chunks = text.chunks_exact(12);
    for chunk in &mut chunks {
        for (i, byte) in chunk.iter().enumerate() {
            add_byte(&mut state, i, *byte);
        }
        mix(&mut state);
    }
    // The length takes the lowest byte of the third word; the tail starts above it.
    state[2] = state[2].wrapping_add(text.len() as u32);
    for (i, byte) in chunks.remainder().iter().enumerate() {
        let place = if i < 8 { i } else { i + 1 };
        add_byte(&mut state, place, *byte);
    }
    mix(&mut state);
    state[2]
}

fn add_byte(state: &mut [u32; 3], place: usize, byte: u8) {
    let word = &mut state[place / 4];
    *word = word.wrapping_add(u32::from(byte) << (8 * (place % 4)));
}

fn mix(state: &mut [u32; 3]) {
    let [mut a, mut b, mut c] = *state;
    for (right_first, left, right_second) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> right_first);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << left);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> right_second);
    }
    *state = [a, b, c];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::PgPool;
    use crate::types::PoolId;

    fn hash(nspace: &str, name: &str) -> u32 {
        let locator = ObjectLocator { nspace: nspace.into(), ..ObjectLocator::pool(PoolId(1)) };
        placement_hash(&locator, name)
    }

    /// From `ceph osd map POOL OBJECT [NAMESPACE]` of a 16.2.15 cluster.
    #[test]
    fn hashes_are_cephs() {
        for (nspace, name, expected) in [
            ("", "a", 0x29ee_c818),
            ("", "foo", 0x7fc1_f406),
            ("", "abcdefg", 0xb9e6_762c),
            ("", "abcdefgh", 0x053f_775e),
            ("", "abcdefghi", 0x3a7b_0a5f),
            ("", "abcdefghijk", 0xe52b_8e4c),
            ("", "abcdefghijkl", 0x0b1b_3ea5),
            ("", "abcdefghijklm", 0x3122_b031),
            ("", "abcdefghijklmnopqrstuvw", 0x68e5_ff21),
            ("", "rbd_data.1234567890ab.0000000000000001", 0x4df3_93f2),
            ("", "été", 0x9849_f513),
            ("", &"x".repeat(200), 0x1d05_3f3b),
            ("ns", "a", 0x217c_94ca),
            ("ns", "abcdefghi", 0xe37f_3e5f),
            ("a longer namespace", "foo", 0xd263_0695),
            ("a longer namespace", "abcdefghijkl", 0x018a_bf43),
        ] {
            assert_eq!(hash(nspace, name), expected, "{nspace:?} {name:?}");
        }
    }

    /// Likewise, in a pool of 12 PGs.
    #[test]
    fn hashes_fall_into_cephs_pgs() {
        let pool = PgPool { pg_num: 12, ..PgPool::default() };
        for (name, seed) in [("a", 8), ("foo", 6), ("abcdefghijk", 4), ("obj13", 5), ("m", 0xa)] {
            assert_eq!(pool.raw_hash_to_seed(hash("", name)), seed, "{name}");
        }
    }

    #[test]
    fn the_locator_overrides_the_name() {
        let mut locator = ObjectLocator { key: "foo".into(), ..ObjectLocator::pool(PoolId(1)) };
        assert_eq!(placement_hash(&locator, "whatever"), hash("", "foo"));
        locator.hash = 0x1_0000_0007;
        assert_eq!(placement_hash(&locator, "whatever"), 7);
    }
}
