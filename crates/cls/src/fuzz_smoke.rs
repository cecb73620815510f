//! The fuzz target's body on damaged recordings of real calls: bounded, seeded, on any
//! compiler. `FUZZ_SMOKE_ROUNDS` runs more of them; `FUZZ_SMOKE_CORPUS=DIR` writes the
//! recordings there, for the fuzzer to start from.

use crate::fuzz_classes::{call_step, calls};
use base::Random;
use std::fs;
use std::path::Path;

const CLASSES: &str = include_str!("../../osd/src/exec/tests/fixtures/ceph-16.2.15-classes.txt");
const RBD: &str = include_str!("rbd/tests/fixtures/ceph-16.2.15.txt");
const ROUNDS: u64 = 40;

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

/// Each recorded case as the fuzzer's input.
fn recordings() -> Vec<Vec<u8>> {
    let mut cases = Vec::new();
    for line in CLASSES.lines().chain(RBD.lines()) {
        let words: Vec<&str> = line.split(' ').collect();
        let step = match words[..] {
            ["case", ..] => {
                cases.push(Vec::new());
                continue;
            }
            // The code of CALL.
            ["op", "5121", _, args, indata] => {
                let (args, indata) = (unhex(args), unhex(indata));
                let [class_len, method_len, ..] = args[..] else { continue };
                let method_end = usize::from(class_len) + usize::from(method_len);
                let Some((names, body)) = indata.split_at_checked(method_end) else { continue };
                let (class, method) = names.split_at(usize::from(class_len));
                call_step(class, method, body)
            }
            ["call", method, input, ..] => call_step(b"rbd", method.as_bytes(), &unhex(input)),
            _ => None,
        };
        if let (Some(case), Some(step)) = (cases.last_mut(), step) {
            case.extend(step);
        }
    }
    cases
}

fn damaged(input: &[u8], random: &mut Random) -> Vec<u8> {
    let mut input = input.to_vec();
    for _ in 0..1 + random.below(4) {
        if input.is_empty() {
            break;
        }
        let at = random.below(input.len() as u64) as usize;
        match random.below(6) {
            0 => input.truncate(at),
            1 => input[at] = [0, 1, 0x7f, 0xff][random.below(4) as usize],
            2 => input[at] ^= 1 << random.below(8),
            3 => drop(input.remove(at)),
            4 => input[at] = random.next_u64() as u8,
            // What any client may store under a name that a class uses.
            _ => {
                let name = [&b"lock.l"[..], b"refcount", b"ceph.objclass.version", b"k", b"1_5"];
                let mut body = [name[random.below(5) as usize], b"="].concat();
                body.extend((0..random.below(30)).map(|_| random.next_u64() as u8));
                let step = [&[0, random.below(5) as u8, body.len() as u8, 0], &body[..]].concat();
                let at = if random.chance(1, 2) { 0 } else { at };
                input.splice(at..at, step);
            }
        }
    }
    input
}

#[test]
fn fuzz_smoke_classes() {
    let recordings = recordings();
    assert!(recordings.len() > 50, "{} recordings", recordings.len());
    if let Ok(folder) = std::env::var("FUZZ_SMOKE_CORPUS") {
        for (index, input) in recordings.iter().enumerate() {
            fs::write(Path::new(&folder).join(format!("recording-{index}")), input).expect("a folder");
        }
    }
    let rounds = std::env::var("FUZZ_SMOKE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let mut random = Random::from_seed(1);
    for input in &recordings {
        calls(input);
        for _ in 0..rounds {
            calls(&damaged(input, &mut random));
        }
    }
}
