//! JSON and tables against what `ceph` 16.2.15 printed for the same maps.

use base::Json;
use crush::tree::*;
use crush::*;
use wire::maps::OsdMap;
use wire::{Decode, Features};

fn captured(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/fixtures/16.2.15/text/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).expect("a committed fixture")
}

fn captured_text(name: &str) -> String {
    String::from_utf8(captured(name)).expect("text")
}

/// `ceph` puts a newline of its own before JSON, sometimes.
fn assert_json(ours: &Json, name: &str) {
    assert_eq!(ours.compact(), captured_text(name).trim(), "{name}");
}

fn maps() -> (OsdMap, CrushMap) {
    let map = OsdMap::from_bytes(captured("osdmap.bin").into(), Features::ALL).expect("a real OSDMap");
    let crush = CrushMap::decode(&captured("crush.bin")).expect("a real CRUSH map");
    assert_eq!(crush.encode(), captured("crush.bin"));
    assert_eq!(CrushMap::decode(&map.crush).expect("a real CRUSH map"), crush);
    (map, crush)
}

#[test]
fn dumps_are_cephs() {
    let (_, crush) = maps();
    assert_json(&crush.dump(), "crush_dump.json");
    assert_json(&crush.dump_rules(), "rule_dump.json");
    assert_json(&crush.dump_rule(3).expect("a rule"), "rule_dump_e.json");
    assert_json(&crush.dump_tunables(), "tunables.json");
}

#[test]
fn crush_trees_are_cephs() {
    let (_, crush) = maps();
    assert_eq!(crush_tree_text(&crush, false), captured_text("crush_tree.txt"));
    assert_eq!(crush_tree_text(&crush, true), captured_text("crush_tree_shadow.txt"));
    assert_json(&crush_tree_json(&crush, false), "crush_tree.json");
    assert_json(&crush_tree_json(&crush, true), "crush_tree_shadow.json");
}

#[test]
fn osd_trees_are_cephs() {
    let (map, crush) = maps();
    let all = StateFilter::default();
    let filter = |state| {
        let mut filter = all;
        assert!(filter.add(state));
        filter
    };
    assert_eq!(osd_tree_text(&map, &crush, all, None), captured_text("osd_tree.txt"));
    assert_eq!(osd_tree_text(&map, &crush, filter("out"), None), captured_text("osd_tree_out.txt"));
    assert_json(&osd_tree_json(&map, &crush, all, None), "osd_tree.json");
    assert_json(&osd_tree_json(&map, &crush, filter("down"), None), "osd_tree_down.json");
    let rack = crush.item_id("r1");
    assert_eq!(osd_tree_text(&map, &crush, all, rack), captured_text("osd_tree_from_r1.txt"));
    assert_json(&osd_tree_json(&map, &crush, all, rack), "osd_tree_from_r1.json");
}
