//! The mapper against `crushtool --test`: the same text for the same map.

mod common;

use base::Random;
use common::*;
use crush::*;
use std::fmt::Write;

const MAPS: u64 = 120;
const INPUTS: u32 = 24;

#[test]
fn mappings_are_crushtools() {
    if !have("crushtool") {
        return;
    }
    let scratch = Scratch::new("mappings");
    let mut mappings = 0;
    for seed in 0..MAPS {
        let mut random = Random::from_seed(seed);
        let map = random_map(&mut random);
        let reweights = random_reweights(&map, &mut random);
        let blob = map.encode();
        assert_eq!(CrushMap::decode(&blob).as_ref(), Ok(&map), "seed {seed}");
        let file = scratch.file("map", &blob);

        let mut args: Vec<String> =
            ["--test", "--show-mappings", "--show-bad-mappings", "--min-x", "0"].map(String::from).to_vec();
        args.extend(["--max-x".to_string(), (INPUTS - 1).to_string()]);
        for (device, weight) in reweights.iter().enumerate() {
            let weight = f64::from(*weight) / f64::from(WEIGHT_ONE);
            args.extend(["--weight".to_string(), device.to_string(), weight.to_string()]);
        }
        let theirs = run("crushtool", &file, &args);
        let (ours, count) = mappings_as_text(&map, &reweights);
        mappings += count;
        for (number, (their_line, our_line)) in theirs.lines().zip(ours.lines()).enumerate() {
            assert_eq!(our_line, their_line, "seed {seed}, line {number}");
        }
        assert_eq!(ours.lines().count(), theirs.lines().count(), "seed {seed}");
    }
    println!("{mappings} mappings compared");
    assert!(mappings >= 20_000);
}

/// What `crushtool` prints for all rules, sizes and inputs.
fn mappings_as_text(map: &CrushMap, reweights: &[u32]) -> (String, u64) {
    let mut text = String::new();
    let mut count = 0;
    for (number, rule) in (0..).zip(&map.rules) {
        let rule = rule.as_ref().expect("no holes among the rules");
        for size in rule.min_size..=rule.max_size {
            for x in 0..INPUTS {
                let found = do_rule(map, number, x, size.into(), reweights, map.choose_args_for(0));
                let list: Vec<String> = found.iter().map(i32::to_string).collect();
                let list = list.join(",");
                writeln!(text, "CRUSH rule {number} x {x} [{list}]").expect("into a string");
                if found.len() != usize::from(size) || found.contains(&ITEM_NONE) {
                    writeln!(text, "bad mapping rule {number} x {x} num_rep {size} result [{list}]")
                        .expect("into a string");
                }
                count += 1;
            }
        }
    }
    (text, count)
}
