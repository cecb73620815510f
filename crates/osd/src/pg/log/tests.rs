use super::*;
use crate::pg::info::PgSums;
use base::WallTime;
use wire::types::{EntityName, Epoch, PoolId, SnapId};

mod entries;

fn object(name: &str) -> HObject {
    HObject { pool: PoolId(1), hash: 7, name: name.into(), snap: SnapId::HEAD, ..HObject::default() }
}

fn v(epoch: u32, version: u64) -> EVersion {
    EVersion::new(Epoch(epoch), version)
}

fn entry(kind: EntryKind, version: EVersion, prior: EVersion, name: &str) -> LogEntry {
    LogEntry {
        kind,
        version,
        prior_version: prior,
        user_version: version.version,
        last_user_version: version.version,
        reqid: ReqId {
            name: EntityName::client(1),
            tid: u64::from(version.epoch.0) << 32 | version.version,
            inc: 0,
        },
        object: object(name),
        clones: Vec::new(),
        mtime: WallTime::ZERO,
        result: 0,
        returns: Vec::new(),
        sums: PgSums::default(),
    }
}

fn modify(version: EVersion, prior: EVersion, name: &str) -> LogEntry {
    entry(EntryKind::Modify, version, prior, name)
}

fn log(entries: &[LogEntry]) -> PgLog {
    PgLog::from_entries(entries.to_vec(), EVersion::ZERO).unwrap()
}

#[test]
fn catching_up_makes_changed_objects_missing() {
    let common = [modify(v(1, 1), v(0, 0), "a")];
    let mut ours = log(&common);
    let mut missing = Missing::default();
    let news = vec![modify(v(2, 2), v(1, 1), "a"), entry(EntryKind::Delete, v(2, 3), v(2, 2), "a")];
    let merged = ours.merge(v(1, 1), news, &HObject::max(), &mut missing).unwrap();
    assert!(missing.is_empty(), "deleted in the end");
    assert!(merged.remove.contains(&object("a")));
    assert_eq!(ours.head(), v(2, 3));
}

#[test]
fn a_divergent_change_is_undone_to_the_version_before() {
    let mut ours =
        log(&[modify(v(1, 1), v(0, 0), "a"), modify(v(1, 2), v(1, 1), "a"), modify(v(1, 3), v(0, 0), "b")]);
    let mut missing = Missing::default();
    let merged =
        ours.merge(v(1, 1), vec![modify(v(2, 2), v(0, 0), "c")], &HObject::max(), &mut missing).unwrap();
    assert_eq!(merged.divergent.len(), 2);
    assert_eq!(missing.need(&object("a")), Some(v(1, 1)));
    assert_eq!(missing.need(&object("b")), None);
    assert_eq!(missing.need(&object("c")), Some(v(2, 2)));
    assert_eq!(merged.remove, ["a", "b"].map(object).into());
    assert!(ours.find_request(&entry(EntryKind::Modify, v(1, 3), v(0, 0), "b").reqid).is_none());
}

#[test]
fn merging_the_same_log_twice_changes_nothing() {
    let mut ours = log(&[modify(v(1, 1), v(0, 0), "a")]);
    let news = vec![modify(v(1, 2), v(1, 1), "a")];
    let mut missing = Missing::default();
    ours.merge(v(1, 1), news.clone(), &HObject::max(), &mut missing).unwrap();
    missing.0.clear();
    let again = ours.merge(v(1, 1), news, &HObject::max(), &mut missing).unwrap();
    assert_eq!(again, Merged::default());
    assert!(missing.is_empty());
}

#[test]
fn a_base_we_lack_names_our_newest_version_before_it() {
    let mut ours = log(&[modify(v(1, 1), v(0, 0), "a"), modify(v(3, 2), v(1, 1), "a")]);
    let mut missing = Missing::default();
    let error = ours.merge(v(2, 3), vec![], &HObject::max(), &mut missing).unwrap_err();
    assert_eq!(error, MergeError::NoBase { base: v(2, 3), before: Some(v(1, 1)) });
}

#[test]
fn trimming_keeps_dups_beyond_the_tail() {
    let mut log = PgLog::default();
    for i in 1..=10 {
        log.push(&modify(v(1, i), v(0, 0), "a"));
    }
    assert_eq!(log.trim(4, 100, 2), Some(Trimmed { removed: None }));
    assert_eq!(log.trim(4, 100, 2), None);
    assert_eq!(log.tail(), v(1, 6));
    assert_eq!(log.recoverable_len(), 4);
    assert!(log.find_request(&modify(v(1, 2), v(0, 0), "a").reqid).is_some());
    assert_eq!(log.base_at_or_before(v(1, 5)), None);
    log.push(&modify(v(1, 11), v(0, 0), "a"));
    log.push(&modify(v(1, 12), v(0, 0), "a"));
    assert_eq!(log.trim(4, 2, 2).unwrap().removed, Some((v(1, 1), v(1, 6))));
    assert!(log.find_request(&modify(v(1, 2), v(0, 0), "a").reqid).is_none());
    assert!(log.find_request(&modify(v(1, 7), v(0, 0), "a").reqid).is_some());
}
