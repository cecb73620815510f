//! The fuzz target's body on a stable compiler, bounded and seeded.

mod common;

use base::Random;

#[test]
fn recovery_of_changed_devices_never_panics() {
    let scale: u64 = std::env::var("STORE_FUZZ_SCALE").map_or(1, |n| n.parse().unwrap());
    let mut random = Random::from_seed(77);
    for _ in 0..1500 * scale {
        let steps = 1 + random.below(5);
        let input: Vec<u8> = (0..steps * 8).map(|_| random.next_u64() as u8).collect();
        common::recovery_input::run(&input);
    }
}

/// What the fuzzer once found, as it found it.
#[test]
fn recovery_of_what_once_panicked() {
    let inputs: [&[u8]; 1] = [
        // A superblock whose log begins at sequence 0, behind a right checksum.
        &[0, 0, 246, 247, 0, 0, 125, 10],
    ];
    for input in inputs {
        common::recovery_input::run(input);
    }
}
