use super::*;
use base::Errno;
use std::collections::BTreeSet;
use wire::types::{PgId, PoolId, SnapId};

const COLL: CollId = CollId::Pg(PgId { pool: PoolId(1), seed: 0 });

fn id(name: &str) -> ObjectId {
    let object = HObject { pool: PoolId(1), name: name.into(), snap: SnapId::HEAD, ..HObject::default() };
    ObjectId { coll: COLL, object }
}

fn store() -> MemStore {
    let mut store = MemStore::new();
    run(&mut store, [Mutation::CreateCollection(COLL)]).unwrap();
    drain(&mut store);
    store
}

fn run(store: &mut MemStore, ops: impl IntoIterator<Item = Mutation>) -> Result<TxnId, StoreError> {
    store.queue(Transaction { ops: ops.into_iter().collect() })
}

fn drain(store: &mut MemStore) -> Vec<StoreEvent> {
    std::iter::from_fn(|| store.poll_event()).collect()
}

fn write(name: &str, offset: u64, data: &[u8]) -> Mutation {
    Mutation::Write { id: id(name), offset, data: Bytes::copy_from_slice(data) }
}

fn read(store: &mut MemStore, name: &str, offset: u64, len: u64) -> Bytes {
    let fetch = store.read(&id(name), offset, len).unwrap();
    match drain(store).pop() {
        Some(StoreEvent::Read { id, result }) if id == fetch => result.unwrap(),
        other => panic!("no answer to the read: {other:?}"),
    }
}

fn size(store: &MemStore, name: &str) -> Option<u64> {
    store.stat(&id(name)).unwrap().map(|stat| stat.size)
}

#[test]
fn gaps_and_cut_tails_read_as_zeros() {
    let mut s = store();
    run(&mut s, [write("a", 10, b"hello")]).unwrap();
    assert_eq!(read(&mut s, "a", 8, 100), &b"\0\0hello"[..]);
    run(&mut s, [Mutation::Truncate { id: id("a"), size: 12 }]).unwrap();
    run(&mut s, [Mutation::Truncate { id: id("a"), size: 16 }]).unwrap();
    assert_eq!(read(&mut s, "a", 10, 6), &b"he\0\0\0\0"[..]);
    assert_eq!(read(&mut s, "a", 16, 6), Bytes::new());
    assert_eq!(read(&mut s, "a", u64::MAX, 6), Bytes::new());
}

#[test]
fn zero_frees_whole_blocks_and_never_changes_the_size() {
    let mut s = store();
    run(&mut s, [write("a", 0, &[7; 10000])]).unwrap();
    run(&mut s, [Mutation::Zero { id: id("a"), offset: 100, len: u64::MAX }]).unwrap();
    assert_eq!(size(&s, "a"), Some(10000));
    assert_eq!(s.data_extents(&id("a"), 0, u64::MAX).unwrap(), [(0, 4096)]);
    assert_eq!(read(&mut s, "a", 98, 4), &[7, 7, 0, 0][..]);
    run(&mut s, [write("a", 8192, b"x"), write("a", 9000, b"y")]).unwrap();
    assert_eq!(s.data_extents(&id("a"), 50, 9000).unwrap(), [(50, 4046), (8192, 858)]);
}

#[test]
fn taking_away_from_a_missing_object_does_not_create_it() {
    let mut s = store();
    run(
        &mut s,
        [
            Mutation::Zero { id: id("a"), offset: 0, len: 10 },
            Mutation::Truncate { id: id("a"), size: 0 },
            Mutation::Remove(id("a")),
            Mutation::RmXattr { id: id("a"), name: "x".into() },
            Mutation::ClearXattrs(id("a")),
            Mutation::RmOmap { id: id("a"), keys: BTreeSet::new() },
            Mutation::RmOmapRange { id: id("a"), start: Bytes::new(), end: "z".into() },
            Mutation::ClearOmap(id("a")),
        ],
    )
    .unwrap();
    assert_eq!(s.stat(&id("a")).unwrap(), None);
    run(&mut s, [Mutation::Truncate { id: id("a"), size: 3 }, write("b", 5, b"")]).unwrap();
    assert_eq!((size(&s, "a"), size(&s, "b")), (Some(3), Some(0)));
}

#[test]
fn a_failing_transaction_changes_nothing() {
    let mut s = store();
    let other = CollId::Pg(PgId { pool: PoolId(9), seed: 0 });
    let stray = ObjectId { coll: other, ..id("x") };
    let error = run(&mut s, [write("a", 0, b"1"), Mutation::Touch(stray)]).unwrap_err();
    assert_eq!(error, StoreError::NoCollection(other));
    let clone = Mutation::Clone { from: id("a"), to: id("b") };
    assert_eq!(run(&mut s, [clone]), Err(StoreError::NoObject));
    let error = run(&mut s, [write("a", u64::MAX, b"1")]).unwrap_err();
    assert_eq!(error.errno(), Errno::EFBIG);
    assert_eq!(s.stat(&id("a")).unwrap(), None);
    assert_eq!(drain(&mut s), []);
}

#[test]
fn collections_are_removed_only_when_empty_also_within_one_transaction() {
    let mut s = store();
    run(&mut s, [Mutation::Touch(id("a"))]).unwrap();
    let remove = Mutation::RemoveCollection(COLL);
    assert_eq!(run(&mut s, [remove.clone()]), Err(StoreError::NotEmpty(COLL)));
    run(&mut s, [Mutation::Remove(id("a")), remove.clone()]).unwrap();
    assert!(!s.has_collection(COLL));
    assert_eq!(run(&mut s, [remove]), Err(StoreError::NoCollection(COLL)));
}

#[test]
fn clone_is_independent_and_rename_replaces() {
    let mut s = store();
    let attrs = BTreeMap::from([("k".to_string(), Bytes::from_static(b"v"))]);
    run(
        &mut s,
        [
            write("a", 0, b"old"),
            Mutation::SetXattrs { id: id("a"), attrs: attrs.clone().into() },
            Mutation::Clone { from: id("a"), to: id("b") },
            write("a", 0, b"new"),
        ],
    )
    .unwrap();
    assert_eq!(read(&mut s, "b", 0, 3), "old");
    assert_eq!(s.xattrs(&id("b")).unwrap(), attrs);
    run(&mut s, [Mutation::Rename { from: id("a"), to: id("b") }]).unwrap();
    assert_eq!(read(&mut s, "b", 0, 3), "new");
    assert_eq!(s.stat(&id("a")).unwrap(), None);
    assert_eq!(s.list(COLL, &HObject::default(), 10).unwrap(), [id("b").object]);
    run(&mut s, [Mutation::Rename { from: id("b"), to: id("b") }]).unwrap();
    assert_eq!(size(&s, "b"), Some(3));
}

#[test]
fn omap_lists_after_a_key_within_a_prefix() {
    let mut s = store();
    let keys = ["a1", "b1", "b2", "b3", "c1"];
    let entries = keys.iter().map(|k| (Bytes::from(*k), Bytes::from("v"))).collect();
    run(&mut s, [Mutation::SetOmap { id: id("o"), entries }]).unwrap();
    let list = |s: &MemStore, after: Option<&[u8]>, prefix: &[u8], max| {
        let limit = OmapLimit { entries: max, ..OmapLimit::NONE };
        let found = s.omap_list(&id("o"), after, prefix, limit).unwrap();
        found.entries.into_iter().map(|(k, _)| String::from_utf8(k.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(list(&s, None, b"b", 10), ["b1", "b2", "b3"]);
    assert_eq!(list(&s, Some(b"b1"), b"b", 1), ["b2"]);
    assert_eq!(list(&s, Some(b"b3"), b"", 10), ["c1"]);
    let range = Mutation::RmOmapRange { id: id("o"), start: "b1".into(), end: "b3".into() };
    run(&mut s, [range, Mutation::RmOmap { id: id("o"), keys: BTreeSet::from(["c1".into()]) }]).unwrap();
    assert_eq!(list(&s, None, b"", 10), ["a1", "b3"]);
    assert_eq!(s.stats().omap, 6);
    run(&mut s, [Mutation::ClearOmap(id("o"))]).unwrap();
    assert_eq!((list(&s, None, b"", 10).len(), s.stats().omap), (0, 0));
}

#[test]
fn held_commits_come_in_order_when_released() {
    let mut s = store();
    s.hold_commits();
    let first = run(&mut s, [write("a", 0, b"1")]).unwrap();
    let second = run(&mut s, [write("a", 0, b"2")]).unwrap();
    let third = run(&mut s, [write("a", 0, b"3")]).unwrap();
    assert_eq!(s.poll_event(), None);
    assert_eq!(read(&mut s, "a", 0, 1), "3");
    s.commit_held(1);
    assert_eq!(drain(&mut s), [StoreEvent::Committed(first)]);
    s.release();
    assert_eq!(drain(&mut s), [StoreEvent::Committed(second), StoreEvent::Committed(third)]);
    let fourth = run(&mut s, [write("a", 0, b"4")]).unwrap();
    assert_eq!(drain(&mut s), [StoreEvent::Committed(fourth)]);
}

#[test]
fn crash_takes_back_exactly_what_was_not_committed() {
    let mut s = store();
    run(&mut s, [write("a", 0, b"kept"), write("gone", 0, b"x")]).unwrap();
    let before = s.stats();
    s.hold_commits();
    run(&mut s, [write("a", 2, b"lost"), Mutation::Remove(id("gone"))]).unwrap();
    run(&mut s, [write("b", 0, b"lost"), Mutation::Rename { from: id("a"), to: id("c") }]).unwrap();
    run(
        &mut s,
        [
            Mutation::Remove(id("b")),
            Mutation::Remove(id("c")),
            Mutation::RemoveCollection(COLL),
            Mutation::CreateCollection(CollId::Meta),
        ],
    )
    .unwrap();
    s.crash();
    s.release();
    assert_eq!(read(&mut s, "a", 0, 10), "kept");
    assert_eq!(read(&mut s, "gone", 0, 10), "x");
    assert_eq!(s.list(COLL, &HObject::default(), 10).unwrap().len(), 2);
    assert_eq!(s.collections(), [COLL]);
    assert_eq!((s.stats().data, s.stats().objects), (before.data, before.objects));
}

#[test]
fn full_store_refuses_writes_and_still_deletes() {
    let mut s = MemStore::with_capacity(8192);
    run(&mut s, [Mutation::CreateCollection(COLL), write("a", 0, &[1; 8192])]).unwrap();
    let error = run(&mut s, [write("b", 0, b"1")]).unwrap_err();
    assert_eq!(error, StoreError::NoSpace { need_bytes: 4096, available_bytes: 0 });
    run(&mut s, [Mutation::Remove(id("a"))]).unwrap();
    run(&mut s, [write("b", 0, b"1")]).unwrap();
    assert_eq!(s.stats().available, 4096);
}
