//! Our dumps against what Ceph's commands printed for the same maps.

use bytes::Bytes;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use wire::maps::{MonMap, OsdMap};
use wire::{Decode, Features, dump};

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/16.2.15").join(kind)
}

/// Captured maps with the command output of the given suffix beside them.
fn with_output<T: Decode>(kind: &str, suffix: &str) -> Vec<(String, T, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(kind)).expect("a fixture folder") {
        let path = entry.expect("a directory entry").path();
        let Some(output) = path.to_str().and_then(|p| p.strip_suffix(suffix)) else { continue };
        let bytes = Bytes::from(fs::read(format!("{output}.bin")).expect("the map of the output"));
        let map = T::from_bytes(bytes, Features::PACIFIC).expect("a good map");
        found.push((output.to_owned(), map, fs::read_to_string(&path).expect("a readable output")));
    }
    assert!(!found.is_empty(), "no {suffix} in {kind}");
    found
}

/// Equal with the order of keys, but for Ceph's unordered containers.
fn assert_same(path: &str, ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = |m: &serde_json::Map<String, Value>| m.keys().cloned().collect::<Vec<_>>();
            let (mut ka, mut kb) = (keys(a), keys(b));
            if path.ends_with("blocklist") {
                ka.sort();
                kb.sort();
            }
            assert_eq!(ka, kb, "{path}");
            for (key, value) in a {
                assert_same(&format!("{path}.{key}"), value, &b[key]);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{path}");
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                assert_same(&format!("{path}[{i}]"), x, y);
            }
        }
        _ => assert_eq!(ours, theirs, "{path}"),
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("Ceph's JSON")
}

/// Ceph keeps the blocklist in a hash map and prints it in that order.
fn with_blocklist_sorted(text: &str) -> Vec<&str> {
    let (mut blocked, mut lines): (Vec<&str>, Vec<&str>) =
        text.split_inclusive('\n').partition(|line| line.starts_with("blocklist "));
    blocked.sort_unstable();
    lines.extend(blocked);
    lines
}

#[test]
fn osd_dump_json_is_cephs() {
    for (name, map, theirs) in with_output::<OsdMap>("osd_map", ".dump.json") {
        assert_same(&name, &dump::osd_map(&map), &parse(&theirs));
    }
}

#[test]
fn osd_dump_text_is_cephs() {
    for (name, map, theirs) in with_output::<OsdMap>("osd_map", ".dump.txt") {
        let ours = dump::osd_map_text(&map);
        assert_eq!(with_blocklist_sorted(&ours), with_blocklist_sorted(&theirs), "{name}");
    }
}

#[test]
fn pool_details_are_cephs() {
    for (name, map, theirs) in with_output::<OsdMap>("osd_map", ".pools.txt") {
        assert_eq!(dump::pools_detail_text(&map), theirs, "{name}");
    }
    for (name, map, theirs) in with_output::<OsdMap>("osd_map", ".pools.json") {
        assert_same(&name, &dump::pools_detail(&map), &parse(&theirs));
    }
}

#[test]
fn mon_dump_is_cephs() {
    for (name, map, theirs) in with_output::<MonMap>("mon_map", ".dump.json") {
        assert_same(&name, &dump::mon_map(&map, &[0]), &parse(&theirs));
    }
    for (name, map, theirs) in with_output::<MonMap>("mon_map", ".dump.txt") {
        assert_eq!(dump::mon_map_text(&map), theirs, "{name}");
    }
}
