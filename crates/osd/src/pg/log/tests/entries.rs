//! Entries and their bytes, of every version.

use super::*;
use crate::exec::CloneChange;
use bytes::Bytes;
use wire::types::EntityType;
use wire::{Decode, Encode, Features};

fn image(snap: SnapId) -> HObject {
    HObject {
        pool: PoolId(3),
        hash: 0x9d3a_52c1,
        name: "rbd_data.10226b8b4567.0000000000000123".into(),
        snap,
        ..HObject::default()
    }
}

fn image_write() -> LogEntry {
    LogEntry {
        kind: EntryKind::Modify,
        version: v(41, 70_012),
        prior_version: v(39, 68_990),
        user_version: 70_012,
        last_user_version: 70_012,
        reqid: ReqId { name: EntityName::client(4123), tid: 90_311, inc: 0 },
        object: image(SnapId::HEAD),
        clones: Vec::new(),
        mtime: WallTime { sec: 1_790_000_000, nsec: 123_456_789 },
        result: 0,
        returns: Vec::new(),
        sums: PgSums { objects: 1023, bytes: 4_290_772_992, omap_keys: 5, omap_bytes: 412, clones: 7 },
    }
}

fn refused() -> LogEntry {
    LogEntry {
        kind: EntryKind::Error,
        version: v(41, 70_013),
        prior_version: EVersion::ZERO,
        reqid: ReqId { name: EntityName { kind: EntityType::Mds, num: 0 }, tid: 7, inc: 3 },
        object: HObject {
            nspace: "tenant".into(),
            key: "locator".into(),
            name: "gr\u{fc}n".into(),
            ..image(SnapId::HEAD)
        },
        result: -125,
        returns: vec![(0, Bytes::new()), (-125, Bytes::from_static(b"held"))],
        ..image_write()
    }
}

/// One clone goes, another comes.
fn trimmed() -> LogEntry {
    let gone = CloneChange {
        object: image(SnapId(4)),
        version: v(42, 70_014),
        prior_version: v(40, 69_000),
        deleted: true,
        snaps: vec![],
        dropped: vec![SnapId(4)],
    };
    let new = CloneChange {
        object: image(SnapId(6)),
        version: v(42, 70_015),
        prior_version: EVersion::ZERO,
        deleted: false,
        snaps: vec![SnapId(6), SnapId(5)],
        dropped: vec![],
    };
    LogEntry {
        kind: EntryKind::Delete,
        version: v(42, 70_016),
        prior_version: v(41, 70_012),
        user_version: 0,
        reqid: ReqId::NONE,
        clones: vec![gone, new],
        ..image_write()
    }
}

/// Version 1 did not count clones.
fn without_clones(entry: LogEntry) -> LogEntry {
    LogEntry { sums: PgSums { clones: 0, ..entry.sums }, ..entry }
}

/// Numbers at the ends of their ranges, and what no client can bring about.
fn extremes() -> [LogEntry; 2] {
    let low = LogEntry {
        version: v(0, 0),
        prior_version: v(u32::MAX, u64::MAX),
        user_version: u64::MAX,
        last_user_version: 0,
        reqid: ReqId { name: EntityName::client(i64::MIN), tid: u64::MAX, inc: i32::MIN },
        object: HObject::max(),
        result: i32::MIN,
        sums: PgSums { objects: i64::MIN, bytes: i64::MAX, omap_keys: -1, ..PgSums::default() },
        ..image_write()
    };
    let high = LogEntry {
        version: v(u32::MAX, u64::MAX),
        prior_version: v(0, 1),
        user_version: 0,
        last_user_version: u64::MAX,
        object: HObject { pool: PoolId(i64::MIN), snap: SnapId::SNAPDIR, ..HObject::default() },
        mtime: WallTime { sec: u32::MAX, nsec: u32::MAX },
        result: i32::MAX,
        ..image_write()
    };
    [low, high]
}

fn fixture(text: &str) -> Vec<(u8, Bytes)> {
    let line = |line: &str| {
        let (version, hex) = line.split_once(' ').unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (version.parse().unwrap(), (0..hex.len()).step_by(2).map(byte).collect())
    };
    text.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

fn assert_cut_short_fails(record: &Bytes) {
    for len in 0..record.len() {
        assert!(LogEntry::from_bytes(record.slice(..len), Features::ALL).is_err(), "{len} bytes");
    }
}

#[test]
fn records_of_older_versions_are_read() {
    let records = fixture(include_str!("../fixtures/entries-v1-v2.txt"));
    let expected = [
        (2, image_write()),
        (2, refused()),
        (2, trimmed()),
        (1, without_clones(image_write())),
        (1, without_clones(refused())),
    ];
    assert_eq!(records.len(), expected.len());
    for ((version, record), (expected_version, entry)) in records.into_iter().zip(expected) {
        assert_eq!((version, record[0]), (expected_version, expected_version));
        assert_eq!(LogEntry::from_bytes(record.clone(), Features::ALL).unwrap(), entry);
        assert_cut_short_fails(&record);
    }
}

#[test]
fn records_of_this_version_stay_as_they_are() {
    let records = fixture(include_str!("../fixtures/entries-v3.txt"));
    let expected = [image_write(), refused(), trimmed()];
    assert_eq!(records.len(), expected.len());
    for ((version, record), entry) in records.into_iter().zip(expected) {
        assert_eq!((version, record[0]), (3, 3));
        assert_eq!(entry.to_bytes(Features::ALL), record);
        assert_eq!(LogEntry::from_bytes(record.clone(), Features::ALL).unwrap(), entry);
        assert_cut_short_fails(&record);
    }
}

#[test]
fn every_entry_survives_its_record() {
    for entry in extremes() {
        let record = entry.to_bytes(Features::ALL);
        assert_eq!(LogEntry::from_bytes(record.clone(), Features::ALL).unwrap(), entry);
        assert_cut_short_fails(&record);
    }
}

/// In a message one entry follows the other.
#[test]
fn a_list_of_entries_is_read_back() {
    let entries = vec![image_write(), refused(), trimmed()];
    assert_eq!(Vec::<LogEntry>::from_bytes(entries.to_bytes(Features::ALL), Features::ALL).unwrap(), entries);
}

#[test]
fn the_least_record_has_the_stated_length() {
    let least = LogEntry {
        version: EVersion::ZERO,
        prior_version: EVersion::ZERO,
        user_version: 0,
        last_user_version: 0,
        reqid: ReqId::NONE,
        object: HObject { pool: PoolId(0), snap: SnapId::HEAD, ..HObject::default() },
        sums: PgSums::default(),
        ..image_write()
    };
    assert_eq!(least.to_bytes(Features::ALL).len(), LogEntry::MIN_LEN);
}

#[test]
fn damaged_records_give_entries_or_errors() {
    let mut random = base::Random::from_seed(5);
    for entry in [image_write(), refused(), trimmed()] {
        let record = entry.to_bytes(Features::ALL);
        for _ in 0..20_000 {
            let mut damaged = record.to_vec();
            for _ in 0..=random.below(2) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.below(256) as u8;
            }
            // What can be read can be held.
            if let Ok(entry) = LogEntry::from_bytes(damaged.into(), Features::ALL) {
                let again = LogEntry::from_bytes(entry.to_bytes(Features::ALL), Features::ALL);
                assert_eq!(again, Ok(entry));
            }
        }
    }
}

/// 129,000 of them (43 PGs) are 13 MB, not 72 as when entries were kept decoded.
#[test]
fn an_entry_in_memory_is_about_a_hundred_bytes() {
    assert!(image_write().to_bytes(Features::ALL).len() <= 90);
    let mut log = PgLog::default();
    let mut worst = 0;
    for number in 1..=50_000 {
        let version = v(41, number);
        let reqid = ReqId { tid: 90_000 + 7 * number, ..image_write().reqid };
        log.push(&LogEntry {
            version,
            user_version: number,
            last_user_version: number,
            reqid,
            ..image_write()
        });
        log.trim(2000, 1000, 100);
        if log.len() >= 3000 {
            worst = worst.max(log.memory() / log.len());
        }
    }
    assert!((80..=105).contains(&worst), "{worst} bytes an entry");
}
