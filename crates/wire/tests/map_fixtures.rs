//! The map codecs against bytes of a real cluster (`fixtures/README.md`).
//!
//! WIRE-TEST: maps#osdmap, maps#incremental, maps#pg_pool_t, maps#monmap, maps#mgrmap

use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::maps::{ApplyError, MgrMap, MonMap, OsdMap, OsdMapIncremental, OsdState};
use wire::types::{Epoch, OsdId, Uuid};
use wire::{Decode, DecodeError, Encode, Features};

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/16.2.15").join(kind)
}

/// The captured encodings of a type by their number.
fn fixtures(kind: &str) -> BTreeMap<u32, Bytes> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder(kind)).expect("a fixture folder") {
        let path = entry.expect("a directory entry").path();
        if path.extension().is_some_and(|e| e == "bin") {
            let number = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse().ok());
            let bytes = fs::read(&path).expect("a readable fixture");
            found.insert(number.expect("a numbered fixture"), Bytes::from(bytes));
        }
    }
    assert!(!found.is_empty(), "no fixtures of {kind}");
    found
}

fn decode<T: Decode>(bytes: &Bytes) -> Result<T, DecodeError> {
    T::from_bytes(bytes.clone(), Features::PACIFIC)
}

fn check_same_bytes<T: Decode + Encode>(kind: &str) {
    for (number, bytes) in fixtures(kind) {
        let value: T = decode(&bytes).unwrap_or_else(|e| panic!("{kind}/{number}: {e}"));
        assert_eq!(value.to_bytes(Features::PACIFIC), bytes, "{kind}/{number}");
    }
}

fn check_truncations<T: Decode>(kind: &str) {
    for (number, bytes) in fixtures(kind) {
        for len in 0..bytes.len() {
            assert!(decode::<T>(&bytes.slice(..len)).is_err(), "{kind}/{number} cut at {len}");
        }
    }
}

#[test]
fn captured_maps_encode_to_the_same_bytes() {
    check_same_bytes::<OsdMap>("osd_map");
    check_same_bytes::<OsdMapIncremental>("osd_map_incremental");
    check_same_bytes::<MonMap>("mon_map");
    check_same_bytes::<MgrMap>("mgr_map");
}

#[test]
fn every_truncation_is_an_error() {
    check_truncations::<OsdMap>("osd_map");
    check_truncations::<OsdMapIncremental>("osd_map_incremental");
    check_truncations::<MonMap>("mon_map");
    check_truncations::<MgrMap>("mgr_map");
}

#[test]
fn every_flipped_bit_of_a_checksummed_map_is_noticed() {
    let bytes = &fixtures("osd_map")[&20];
    // The first byte is the version: a higher one is a newer writer, whose
    // checksum still has to match.
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1 << (at % 8);
        assert!(decode::<OsdMap>(&Bytes::from(damaged)).is_err(), "byte {at}");
    }
}

#[test]
fn incrementals_reproduce_every_full_map() {
    let fulls = fixtures("osd_map");
    let mut map = OsdMap::default();
    let mut compared = 0;
    for (epoch, bytes) in fixtures("osd_map_incremental") {
        let inc: OsdMapIncremental = decode(&bytes).expect("a good incremental");
        // Checks the full map's checksum, at every epoch.
        map.apply(&inc).unwrap_or_else(|e| panic!("epoch {epoch}: {e}"));
        if let Some(full) = fulls.get(&epoch) {
            assert_eq!(map.to_bytes(Features::PACIFIC), *full, "epoch {epoch}");
            compared += 1;
        }
    }
    assert_eq!(compared, fulls.len());
}

#[test]
fn an_incremental_that_does_not_fit_changes_nothing() {
    let incrementals = fixtures("osd_map_incremental");
    let before: OsdMap = decode(&fixtures("osd_map")[&42]).expect("a good map");
    let inc = |epoch| decode::<OsdMapIncremental>(&incrementals[&epoch]).expect("a good incremental");

    let mut map = before.clone();
    assert_eq!(map.apply(&inc(44)), Err(ApplyError::WrongEpoch { at: Epoch(42), makes: Epoch(44) }));
    let mut stranger = inc(43);
    stranger.fsid = Uuid([7; 16]);
    assert!(matches!(map.apply(&stranger), Err(ApplyError::WrongCluster { .. })));
    let mut beyond = inc(43);
    beyond.new_weight.insert(OsdId(4), 0);
    assert!(matches!(map.apply(&beyond), Err(ApplyError::NoSuchOsd { max_osd: 4, .. })));
    beyond.new_weight = [(OsdId(-1), 0)].into();
    assert!(matches!(map.apply(&beyond), Err(ApplyError::NoSuchOsd { .. })));
    let mut lying = inc(43);
    lying.full_crc ^= 1;
    assert!(matches!(map.apply(&lying), Err(ApplyError::Checksum { .. })));
    assert_eq!(map, before);
    map.apply(&inc(43)).expect("the right one");
}

/// Asks Ceph's own tool, which checks the checksum and aborts on bad maps.
#[test]
fn osdmaptool_accepts_our_encoding() {
    let (_, bytes) = fixtures("osd_map").pop_last().expect("a full map");
    let mut map: OsdMap = decode(&bytes).expect("a good map");
    // Something that Ceph did not encode itself.
    map.epoch = map.epoch.next();
    let pool = *map.pools.keys().next().expect("a pool");
    map.pool_names.insert(pool, "ours".to_owned());
    map.pools.get_mut(&pool).expect("that pool").quota_max_bytes = 4096;

    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ours.osdmap");
    fs::write(&path, map.to_bytes(Features::PACIFIC)).expect("a writable target folder");
    let Ok(out) = Command::new("osdmaptool").arg(&path).arg("--print").output() else {
        eprintln!("skipped: osdmaptool is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains(&format!("epoch {}\n", map.epoch)), "{text}");
    assert!(text.contains("'ours'") && text.contains("max_bytes 4096"), "{text}");
}

#[test]
fn monmaptool_accepts_our_encoding() {
    let mut map: MonMap = decode(&fixtures("mon_map")[&1]).expect("a good map");
    map.epoch = 7;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ours.monmap");
    fs::write(&path, map.to_bytes(Features::PACIFIC)).expect("a writable target folder");
    let Ok(out) = Command::new("monmaptool").arg("--print").arg(&path).output() else {
        eprintln!("skipped: monmaptool is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("epoch 7\n"), "{text}");
}

#[test]
fn a_sealed_incremental_applies_after_the_wire() {
    let mut map: OsdMap = decode(&fixtures("osd_map")[&42]).expect("a good map");
    let mut inc = OsdMapIncremental::new(map.fsid, map.epoch.next());
    inc.new_weight.insert(OsdId(1), OsdMap::WEIGHT_OUT);
    inc.new_state.insert(OsdId(2), OsdState::UP);
    let next = inc.seal(&map).expect("a fitting incremental");
    let received = decode(&inc.to_bytes(Features::PACIFIC)).expect("our own encoding");
    map.apply(&received).expect("a sealed incremental");
    assert_eq!(map, next);
    assert!(map.is_out(OsdId(1)) && map.is_down(OsdId(2)) && map.is_up(OsdId(1)));
    assert_eq!(map.info(OsdId(2)).map(|i| i.down_at), Some(Epoch(43)));
}

/// The devices of a CRUSH map are recounted, or Ceph's checksum is missed.
#[test]
fn a_crush_map_with_too_many_devices_is_corrected() {
    let inc: OsdMapIncremental = decode(&fixtures("osd_map_incremental")[&147]).expect("a good incremental");
    let map: OsdMap = decode(&fixtures("osd_map")[&148]).expect("a good map");
    let max_devices_of = |crush: &Bytes| crush[12];
    assert_eq!((max_devices_of(&inc.crush), max_devices_of(&map.crush)), (4, 3));
}
