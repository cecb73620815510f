//! What several operations in one message do together.

use super::*;

#[test]
fn a_failing_operation_leaves_nothing_of_those_before() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"before"), set_xattr("a", "1"), omap_set(&[("k", "v")])]);
    let info = bench.info();
    let outcome = bench.run(vec![
        write_full(b"after!"),
        set_xattr("a", "2"),
        omap_set(&[("k", "w")]),
        bare(OpCode::DELETE),
        bare(OpCode::CREATE),
        get_xattr("gone"),
    ]);
    assert_eq!((outcome.result, rvals(&outcome)), (-61, vec![0, 0, 0, 0, 0, -61]));
    assert!(matches!(outcome.effect, Effect::ErrorOnly));
    assert_eq!(bench.data().unwrap(), b"before");
    assert_eq!(bench.info(), info);
}

/// Real Ceph reads what was before the message, or takes the object for damaged.
#[test]
fn reads_see_what_the_message_did_before() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"0123456789"), set_xattr("a", "1"), omap_set(&[("k1", "v1"), ("k2", "v2")])]);
    let list = |after: &str, max: u64| {
        let indata = encoded(|e| {
            e.string(after);
            e.u64(max);
        });
        op(OpCode::OMAPGETKEYS, [0; 28], &indata)
    };
    let keys = |keys: &[&str], more: bool| {
        encoded(|e| {
            e.count(keys.len());
            keys.iter().for_each(|key| e.string(key));
            e.bool(more);
        })
    };
    let outcome = bench.run(vec![
        write(2, b"xy"),
        read(0, 5),
        extent(OpCode::TRUNCATE, 3, 0, b""),
        extent(OpCode::TRUNCATE, 6, 0, b""),
        read(0, 0),
        extent(OpCode::APPEND, 0, 2, b"ab"),
        extent(OpCode::ZERO, 0, 1, b""),
        read(0, 0),
        set_xattr("a", "2"),
        get_xattr("a"),
        omap_set(&[("k0", "new"), ("k2", "other")]),
        omap_keys_op(OpCode::OMAPRMKEYS, &["k1"]),
        list("", 10),
        list("", 1),
        list("k0", 1),
        bare(OpCode::DELETE),
        failok(get_xattr("a")),
        write(1, b"z"),
        read(0, 0),
        list("", 10),
    ]);
    let out: Vec<&[u8]> = outcome.ops.iter().map(|op| &op.outdata[..]).collect();
    assert_eq!(outcome.result, 0, "{outcome:?}");
    assert_eq!(out[1], b"01xy4");
    assert_eq!(out[4], b"01x\0\0\0");
    assert_eq!(out[7], b"\x001x\0\0\0ab");
    assert_eq!(out[9], b"2");
    assert_eq!(out[12], keys(&["k0", "k2"], false));
    assert_eq!(out[13], keys(&["k0"], true));
    assert_eq!(out[14], keys(&["k2"], false));
    assert_eq!(outcome.ops[16].rval, -2);
    assert_eq!(out[18], b"\0z");
    assert_eq!(out[19], keys(&[], false));
    assert_eq!(bench.data().unwrap(), b"\0z");
}

#[test]
fn statistics_follow_every_kind_of_change() {
    let mut bench = Bench::new();
    let mut sums = StatDelta::default();
    let range = encoded(|e| {
        e.string("a");
        e.string("c");
    });
    let steps = [
        vec![write(10, b"abc"), omap_set(&[("a", "1"), ("b", "22"), ("c", "333")])],
        vec![omap_set(&[("a", "longer")]), extent(OpCode::APPEND, 0, 4, b"tail")],
        vec![omap_keys_op(OpCode::OMAPRMKEYS, &["a", "none"]), extent(OpCode::TRUNCATE, 5, 0, b"")],
        vec![omap_set(&[("a", "x")]), op(OpCode::OMAPRMKEYRANGE, [0; 28], &range)],
        vec![bare(OpCode::OMAPCLEAR), write_full(b"")],
        vec![bare(OpCode::DELETE), bare(OpCode::CREATE), omap_set(&[("k", "v")]), write(0, b"1")],
        vec![bare(OpCode::DELETE)],
    ];
    for step in steps {
        let outcome = bench.run(step);
        let delta = change(&outcome).delta;
        sums.objects += delta.objects;
        sums.bytes += delta.bytes;
        sums.omap_keys += delta.omap_keys;
        sums.omap_bytes += delta.omap_bytes;
        assert_eq!(sums, counted(&bench));
    }
    assert_eq!(sums, StatDelta::default());
}

fn counted(bench: &Bench) -> StatDelta {
    let Some(stat) = bench.store.stat(&id("o")).unwrap() else {
        return StatDelta::default();
    };
    let entries = bench.store.omap_list(&id("o"), None, b"", store::OmapLimit::NONE).unwrap().entries;
    StatDelta {
        clones: 0,
        objects: 1,
        bytes: stat.size as i64,
        omap_keys: entries.len() as i64,
        omap_bytes: entries.iter().map(|(k, v)| (k.len() + v.len()) as i64).sum(),
    }
}

#[test]
fn the_record_tells_versions_request_and_hints() {
    use wire::messages::osd_op::AllocHintArgs;
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"1")]);
    let hint = AllocHintArgs { expected_object_size: 4 << 20, expected_write_size: 4096, flags: 5 };
    let outcome = bench.run(vec![op(OpCode::SETALLOCHINT, hint.into_args(), b""), write(0, b"2")]);
    let info = bench.info().unwrap();
    assert_eq!(info.version, EVersion::new(Epoch(1), 2));
    assert_eq!(info.prior_version, EVersion::new(Epoch(1), 1));
    assert_eq!(change(&outcome).prior_version, info.prior_version);
    assert_eq!((info.user_version, info.mtime), (2, WallTime { sec: 100, nsec: 5 }));
    assert_eq!(info.last_reqid.unwrap().tid, 1);
    assert_eq!((info.expected_object_size, info.alloc_hint_flags), (4 << 20, 5));
    let delete = bench.run(vec![bare(OpCode::DELETE)]);
    assert!(change(&delete).deleted);
    assert_eq!(change(&delete).mutations, [Mutation::Remove(id("o"))]);
    assert_eq!(delete.user_version, 3);
}

#[test]
fn codes_not_implemented_are_named() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"1")]);
    let outcome = bench.run(vec![failok(bare(OpCode(0x22fd))), failok(bare(OpCode(0x22fe))), write(0, b"2")]);
    assert_eq!((outcome.result, rvals(&outcome)), (0, vec![-95, -95, 0]));
    let names: Vec<String> = outcome.unsupported.iter().map(|what| what.to_string()).collect();
    assert_eq!(names, ["op 0x22fd", "op 0x22fe"]);
}

#[test]
fn snapshot_contexts_without_snapshots_are_taken_and_remembered() {
    let mut bench = Bench::new();
    let numbered = |seq, flags| MOsdOp { snap_seq: SnapId(seq), flags, ..request(vec![write(0, b"x")]) };
    assert_eq!(bench.run_request(&numbered(3, 0)).result, 0);
    assert_eq!(bench.run_request(&numbered(1, 0)).result, 0);
    assert_eq!(bench.info().unwrap().snap_seq, 3);
    let stale = bench.run_request(&numbered(2, flags::ORDERSNAP));
    assert!(stale.result == -85 && matches!(stale.effect, Effect::None));
    assert_eq!(bench.run_request(&numbered(3, flags::ORDERSNAP)).result, 0);
}
