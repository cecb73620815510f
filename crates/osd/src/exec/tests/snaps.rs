//! Snapshots; the answers themselves are compared with real Ceph's by `clients/op_semantics.py`.

use super::*;
use wire::messages::osd_op::SnapArgs;

fn under(seq: u64, snaps: &[u64], ops: Vec<OsdOp>) -> MOsdOp {
    let snaps = snaps.iter().map(|snap| SnapId(*snap)).collect();
    MOsdOp { snap_seq: SnapId(seq), snaps, ..request(ops) }
}

fn read_at(bench: &mut Bench, snap: u64) -> Result<Vec<u8>, i32> {
    let outcome = bench.run_request(&MOsdOp { snap: SnapId(snap), ..request(vec![read(0, 0)]) });
    if outcome.result < 0 { Err(outcome.result) } else { Ok(outcome.ops[0].outdata.to_vec()) }
}

fn clone_id(snap: u64) -> ObjectId {
    ObjectId { coll: COLL, object: HObject { snap: SnapId(snap), ..object("o") } }
}

fn trim(bench: &mut Bench, clone: u64, removed: &[u64]) -> Option<Trimmed> {
    let at_version = EVersion::new(Epoch(1), bench.version + 1);
    let is_removed = |snap: SnapId| removed.contains(&snap.0);
    let trimmed = super::trim(&bench.store, &clone_id(clone), is_removed, at_version).unwrap()?;
    bench.version = trimmed.version.version;
    bench.store.queue(Transaction { ops: trimmed.mutations.clone() }).unwrap();
    while bench.store.poll_event().is_some() {}
    Some(trimmed)
}

#[test]
fn snapshots_keep_what_was_until_they_are_trimmed() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"zero")]);
    let mut delta = StatDelta { objects: 1, bytes: 4, ..StatDelta::default() };
    let mut add = |d: &StatDelta| {
        delta.objects += d.objects;
        delta.clones += d.clones;
        delta.bytes += d.bytes;
        delta
    };
    let first = bench.run_request(&under(2, &[2, 1], vec![write(0, b"one")]));
    let change = change(&first);
    assert_eq!((change.clones.len(), change.clones[0].version.version), (1, 2));
    assert_eq!(change.version.version, 3, "the clone takes a version, too");
    assert_eq!(change.clones[0].snaps, [SnapId(2), SnapId(1)]);
    let sums = add(&change.delta);
    assert_eq!((sums.objects, sums.clones, sums.bytes), (2, 1, 4 + 3));
    let gone = bench.run_request(&under(3, &[3, 2, 1], vec![bare(OpCode::DELETE)]));
    assert!(!super::change(&gone).deleted, "a whiteout stays");
    let sums = add(&super::change(&gone).delta);
    assert_eq!((sums.objects, sums.clones, sums.bytes), (3, 2, 4 + 3));
    assert_eq!(bench.data(), None);
    let told: Vec<_> = (1..=4).map(|snap| read_at(&mut bench, snap)).collect();
    assert_eq!(told, [Ok(b"zero".to_vec()), Ok(b"zero".to_vec()), Ok(b"oneo".to_vec()), Err(-2)]);

    // One of the two snapshots of a clone goes: the clone stays for the other.
    let kept = trim(&mut bench, 2, &[1]).unwrap();
    assert!(!kept.clone.deleted && kept.clone.dropped == [SnapId(1)] && kept.clone.snaps == [SnapId(2)]);
    assert_eq!(kept.delta, StatDelta::default());
    assert_eq!(read_at(&mut bench, 1), Err(-2));
    assert_eq!(read_at(&mut bench, 2), Ok(b"zero".to_vec()));
    assert!(trim(&mut bench, 2, &[1]).is_none(), "done is done");
    let sums = add(&trim(&mut bench, 3, &[1, 3]).unwrap().delta);
    assert_eq!((sums.objects, sums.clones, sums.bytes), (2, 1, 4));
    let last = trim(&mut bench, 2, &[1, 2, 3]).unwrap();
    assert!(last.head_deleted && last.clone.deleted);
    let sums = add(&last.delta);
    assert_eq!((sums.objects, sums.clones, sums.bytes), (0, 0, 0));
    assert!(bench.store.list(COLL, &HObject::default(), 10).unwrap().is_empty());
}

#[test]
fn a_removed_snapshot_is_neither_read_nor_cloned_for() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"a")]);
    bench.run_request(&under(1, &[1], vec![write_full(b"b")]));
    bench.removed_snaps.insert(1, 2);
    assert_eq!(read_at(&mut bench, 1), Err(-2));
    let outcome = bench.run_request(&under(2, &[2, 1], vec![write_full(b"c")]));
    assert!(change(&outcome).clones.is_empty());
}

#[test]
fn a_pool_with_snapshots_of_its_own_gives_the_context() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"a")]);
    bench.pool.flags.insert(wire::maps::PoolFlags::POOL_SNAPS);
    bench.pool.snap_seq = SnapId(4);
    bench.pool.snaps.insert(SnapId(4), Default::default());
    let enforced = MOsdOp { flags: flags::ENFORCE_SNAPC, ..request(vec![write_full(b"b")]) };
    assert!(change(&bench.run_request(&enforced)).clones.is_empty());
    // Whatever the client says, be it no context at all.
    let outcome = bench.run_request(&under(9, &[1, 2], vec![write_full(b"c")]));
    assert_eq!(change(&outcome).clones[0].snaps, [SnapId(4)]);
    assert_eq!(read_at(&mut bench, 4), Ok(b"b".to_vec()));
}

#[test]
fn hostile_contexts_are_refused() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"a")]);
    for seq in [u64::MAX, u64::MAX - 1] {
        let outcome = bench.run_request(&under(seq, &[seq], vec![write_full(b"b")]));
        assert_eq!(outcome.result, -22, "the clone would be the head, or the snapdir");
    }
    let many: Vec<u64> = (1..=limits::SNAPS_MAX as u64 + 1).rev().collect();
    let outcome = bench.run_request(&under(many[0], &many, vec![write_full(b"b")]));
    assert_eq!(outcome.result, Errno::E2BIG.negative());
    assert_eq!(bench.data().unwrap(), b"a");
    let rollback = op(OpCode::ROLLBACK, SnapArgs { snap: u64::MAX }.into_args(), b"");
    assert_eq!(bench.run(vec![rollback]).result, 0, "nothing has changed since");
    assert_eq!(bench.data().unwrap(), b"a");
}

#[test]
fn a_missing_clone_is_asked_for_by_name() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"a")]);
    bench.run_request(&under(1, &[1], vec![write_full(b"b")]));
    let request = MOsdOp { snap: SnapId(1), ..request(vec![read(0, 0)]) };
    let context = Context {
        request: &request,
        reqid: ReqId::NONE,
        pool: &bench.pool,
        coll: COLL,
        object: object("o"),
        at_version: EVersion::new(Epoch(1), 9),
        epoch: Epoch(1),
        now: WallTime::ZERO,
        origin: cls::Origin { name: EntityName::client(1), addr: wire::types::EntityAddr::BLANK },
        pg_user_version: 0,
        seed: 0,
        watch: Default::default(),
        ignore_lock_holders: false,
        clones: Clones {
            removed_snaps: None,
            is_unready: &|object, write| object.snap == SnapId(1) && !write,
        },
    };
    let need = execute(&context, &bench.store, &Fetched::default()).unwrap_err();
    assert_eq!(need, Need::Object(clone_id(1).object));
}
