//! The byte-wise ways of object maps against the plain ones.

use crate::rbd::bit_vector::BitVector;
use base::Random;
use wire::{Decode, Encode, Features};

fn states(map: &BitVector) -> Vec<u8> {
    (0..map.len()).map(|index| map.get(index)).collect()
}

#[test]
fn whole_bytes_do_what_single_states_would() {
    let mut random = Random::from_seed(3);
    for _ in 0..300 {
        let mut map = BitVector::default();
        let mut plain: Vec<u8> = Vec::new();
        for _ in 0..12 {
            let state = random.below(4) as u8;
            let count = random.below(40);
            map.resize(count, state);
            plain.resize(count as usize, state);
            assert_eq!(states(&map), plain);

            let end = random.below(count + 1);
            let start = random.below(end + 1);
            let all = plain[start as usize..end as usize].iter().all(|s| *s == state);
            assert_eq!(map.all(start..end, state), all, "{plain:?}[{start}..{end}] == {state}");

            map.map(|s| (s + state) % 4);
            plain.iter_mut().for_each(|s| *s = (*s + state) % 4);
            if count > 0 {
                let at = random.below(count);
                map.set(at, state);
                plain[at as usize] = state;
            }
            assert_eq!(states(&map), plain);
            let again = BitVector::from_bytes(map.to_bytes(Features::ALL), Features::ALL).unwrap();
            assert_eq!(again, map);
        }
    }
}
