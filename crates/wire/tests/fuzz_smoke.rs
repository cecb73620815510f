//! The fuzz targets' bodies on damaged captures: bounded, seeded, on any
//! compiler. `FUZZ_SMOKE_ROUNDS` runs more of them.

#[path = "../../../fuzz/src/maps.rs"]
mod maps;
#[path = "../../../fuzz/src/messages.rs"]
mod messages;

use base::Random;
use std::fs;
use std::path::Path;

/// Per fixture; all together stay within a few seconds.
const ROUNDS: u64 = 40;

fn rounds() -> u64 {
    std::env::var("FUZZ_SMOKE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS)
}

fn captures(kind: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/16.2.15").join(kind);
    let mut paths: Vec<_> = (fs::read_dir(folder).expect("a fixture folder"))
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a readable fixture")).collect()
}

/// Inputs that once failed, in `fuzz/seeds/<target>`; the fuzzers start from them, too.
fn run_seeds(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    for entry in fs::read_dir(folder).expect("a folder of seeds") {
        let path = entry.expect("a directory entry").path();
        body(&fs::read(&path).expect("a readable seed"));
    }
}

#[test]
fn fuzz_seeds_messages() {
    run_seeds("messages", messages::message);
}

/// One to four changes of the kinds that decoders trip over.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_u64() as u8,
            // A count, a length or an id at its limits.
            2 if at + 4 <= bytes.len() => {
                let extremes = [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, u32::MAX];
                let value = extremes[random.below(extremes.len() as u64) as usize];
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            3 => {
                bytes.remove(at);
            }
            4 => bytes.insert(at, random.next_u64() as u8),
            _ => bytes.truncate(at),
        }
    }
}

fn run(kind: &str, body: fn(&[u8])) {
    for (number, capture) in captures(kind).iter().enumerate() {
        body(capture);
        for round in 0..rounds() {
            let mut bytes = capture.clone();
            damage(&mut bytes, &mut Random::from_seed(round << 32 | number as u64));
            body(&bytes);
        }
    }
}

#[test]
fn fuzz_smoke_osd_map() {
    run("osd_map", maps::osd_map);
}

#[test]
fn fuzz_smoke_osd_map_incremental() {
    run("osd_map_incremental", maps::osd_map_incremental);
}

#[test]
fn fuzz_smoke_mon_map() {
    run("mon_map", maps::mon_map);
}

#[test]
fn fuzz_smoke_mgr_map() {
    run("mgr_map", maps::mgr_map);
}

/// No captures: random bytes, mostly small numbers so that lengths and counts are often plausible.
#[test]
fn fuzz_smoke_messages() {
    for kind in 0..messages::kinds() as u8 {
        for round in 0..rounds() * 50 {
            let mut random = Random::from_seed(round << 8 | u64::from(kind));
            let len = random.below(300) as usize;
            let mut bytes = vec![kind, [0, 128, 200, 255][random.below(4) as usize]];
            while bytes.len() < len {
                bytes.push(match random.below(4) {
                    0 => random.next_u64() as u8,
                    1 => random.below(8) as u8,
                    _ => 0,
                });
            }
            messages::message(&bytes);
        }
    }
}
