//! The fuzz target's body on a stable compiler, bounded and seeded.

mod common;

use base::Random;
use std::fs;
use std::path::Path;

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

/// Inputs that once failed, in `fuzz/seeds`; the fuzzer starts from them, too.
#[test]
fn recovery_of_what_once_panicked() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/store_recovery");
    for entry in fs::read_dir(folder).expect("a folder of seeds") {
        let path = entry.expect("a directory entry").path();
        common::recovery_input::run(&fs::read(&path).expect("a readable seed"));
    }
}
