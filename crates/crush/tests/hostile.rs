//! Whatever bytes arrive, decoding answers with a map or an error, and mapping
//! over any map that decodes comes to an end.

mod common;

use base::Random;
use common::random_map;
use crush::*;

fn captured(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/16.2.15/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).expect("a committed fixture")
}

#[test]
fn every_truncation_is_an_error_or_an_older_writers_map() {
    let blob = captured("text/crush.bin");
    let whole = CrushMap::decode(&blob).expect("a real map");
    for len in 0..blob.len() {
        if let Ok(map) = CrushMap::decode(&blob[..len]) {
            // The writer of an older release stopped there.
            assert_eq!(map.buckets, whole.buckets, "cut at {len}");
            map.encode();
        }
    }
}

#[test]
fn hostile_counts_reserve_no_memory() {
    for (at, what) in [(4, "buckets"), (8, "rules")] {
        let mut blob = captured("text/crush.bin");
        blob[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CrushMap::decode(&blob).is_err(), "{what}");
    }
}

#[test]
fn damaged_maps_neither_panic_nor_hang() {
    for seed in 0..400 {
        let mut random = Random::from_seed(seed);
        let mut blob = random_map(&mut random).encode().to_vec();
        for _ in 0..1 + random.below(6) {
            let at = random.below(blob.len() as u64) as usize;
            blob[at] = match random.below(3) {
                0 => 0xff,
                1 => blob[at].wrapping_add(1),
                _ => random.next_u64() as u8,
            };
        }
        let Ok(map) = CrushMap::decode(&blob) else { continue };
        assert_eq!(CrushMap::decode(&map.encode()).as_ref(), Ok(&map), "seed {seed}");
        for rule in 0..map.rules.len() as i32 {
            do_rule(&map, rule, seed as u32, 4, &[WEIGHT_ONE; 16], map.choose_args_for(0));
        }
        if map.check().is_ok() {
            map.dump();
            tree::crush_tree_text(&map, true);
            let mut edited = map.clone();
            let _ = edited.boot_device(99, WEIGHT_ONE, Some("ssd"), "newhost");
            let _ = edited.remove_item(0);
            let _ = edited.reweight_all();
        }
    }
}

#[test]
fn a_bucket_in_itself_is_refused_and_survived() {
    let mut map = CrushMap::new_cluster(FailureDomain::Host);
    map.boot_device(0, WEIGHT_ONE, None, "a").expect("room for an OSD");
    assert_eq!(map.check(), Ok(()));
    let root = map.item_id(DEFAULT_ROOT).expect("the root");
    let host = map.item_id("a").expect("the host");
    let mut blob = map.encode().to_vec();
    // The root's only item is the host; make it the root itself.
    let find = |needle: &[u8], blob: &[u8]| blob.windows(needle.len()).position(|w| w == needle);
    let listed = [1u32.to_le_bytes(), host.to_le_bytes()].concat();
    let at = find(&listed, &blob).expect("the root's items");
    blob[at + 4..at + 8].copy_from_slice(&root.to_le_bytes());
    let looped = CrushMap::decode(&blob).expect("it decodes");
    assert!(looped.check().is_err());
    assert!(do_rule(&looped, 0, 1, 3, &[WEIGHT_ONE], None).is_empty());
}

#[test]
fn absurd_rules_come_to_an_end() {
    let mut map = CrushMap::new_cluster(FailureDomain::Osd);
    for device in 0..4 {
        map.boot_device(device, WEIGHT_ONE, None, "a").expect("room for an OSD");
    }
    let step = |op, arg1| RuleStep { op, arg1, arg2: 0 };
    for choose in [op::CHOOSE_FIRSTN, op::CHOOSE_INDEP, op::CHOOSELEAF_INDEP] {
        let steps = vec![
            step(op::SET_CHOOSE_TRIES, i32::MAX),
            step(op::TAKE, -1),
            step(choose, i32::MAX),
            step(choose, i32::MIN),
            step(op::TAKE, -1),
            step(choose, i32::MAX),
            step(op::EMIT, 0),
        ];
        map.rules[0].as_mut().expect("the rule").steps = steps;
        // All devices are out, so that every attempt fails.
        assert!(do_rule(&map, 0, 7, 10, &[0; 4], None).iter().all(|item| *item == ITEM_NONE));
    }
}

#[test]
fn links_that_double_with_each_level_are_refused() {
    let mut map = CrushMap::new_cluster(FailureDomain::Osd);
    for level in 0..40 {
        let id = map.add_bucket(&format!("level{level}"), "host").expect("a bucket");
        let bucket = map.buckets[(-1 - id) as usize].as_mut().expect("the bucket");
        if level > 0 {
            bucket.items = vec![id + 1; 2];
            bucket.weights = BucketWeights::Straw2 { item_weights: vec![0; 2] };
        }
    }
    assert!(map.check().is_err());
}
