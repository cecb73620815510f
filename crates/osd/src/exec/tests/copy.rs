//! COPY_FROM and the source's side of it. What clients see of it is in `real_ceph`.

use super::*;
use wire::codec::{Decode, Encode};
use wire::features::Features;
use wire::messages::osd_op::CopyFromArgs;

fn copy_op(name: &str, version: u64) -> OsdOp {
    let args = CopyFromArgs { snap: SnapId::HEAD.0, src_version: version, ..CopyFromArgs::default() };
    let indata = encoded(|e| {
        e.string(name);
        e.put(&ObjectLocator::pool(PG.pool));
    });
    op(OpCode::COPY_FROM, args.into_args(), &indata)
}

fn source(bench: &mut Bench, keys: usize) -> CopySource {
    let entries: Vec<_> = (0..keys).map(|i| (format!("k{i:05}"), "v")).collect();
    let entries: Vec<_> = entries.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    let odd_name = xattr_op(OpCode::SETXATTR, &[0xff, b'a'], b"odd");
    let truncated = ExtentArgs { offset: 0, len: 4, truncate_size: 100, truncate_seq: 7 };
    let write = op(OpCode::WRITE, truncated.into_args(), b"data");
    let mut create = request(vec![write, set_xattr("a", "b"), odd_name, omap_set(&entries)]);
    create.object = "source".into();
    bench.run_request(&create);
    CopySource { object: object("source"), version: 0 }
}

#[test]
fn a_copy_has_everything_also_what_takes_many_calls_to_list() {
    let mut bench = Bench::new();
    let source = source(&mut bench, 2500);
    let whole = bench.copy(&source).unwrap();
    assert_eq!((&whole.data[..], whole.omap.len(), whole.truncate_seq), (&b"data"[..], 2500, 7));
    let names: Vec<_> = whole.user_xattrs().map(|(name, _)| name).collect();
    assert_eq!(names, [Bytes::from_static(b"a"), Bytes::from_static(&[0xff, b'a'])]);

    let outcome = bench.run(vec![copy_op("source", 1)]);
    assert_eq!((outcome.result, outcome.user_version), (0, 1));
    assert_eq!(change(&outcome).delta.omap_keys, 2500);
    let copy = bench.copy(&CopySource { object: object("o"), version: 0 }).unwrap();
    assert_eq!(copy, whole);
}

#[test]
fn versions_are_checked_at_the_source() {
    let mut bench = Bench::new();
    let source = source(&mut bench, 1);
    for (version, answer) in [(0, None), (1, None), (2, Some(Errno::EOVERFLOW))] {
        let copied = bench.copy(&CopySource { version, ..source.clone() });
        assert_eq!(copied.err(), answer, "version {version}");
    }
    bench.run(vec![write(0, b"moves the counter")]);
    let mut again = request(vec![write(0, b"d")]);
    again.object = "source".into();
    bench.run_request(&again);
    assert_eq!(bench.copy(&CopySource { version: 1, ..source }).err(), Some(Errno::ERANGE));
    let missing = CopySource { object: object("none"), version: 0 };
    assert_eq!(bench.copy(&missing).err(), Some(Errno::ENOENT));
}

#[test]
fn a_copy_survives_its_way_between_osds() {
    let mut bench = Bench::new();
    let source = source(&mut bench, 3);
    let whole = bench.copy(&source).unwrap();
    let bytes = whole.to_bytes(Features::ALL);
    assert_eq!(CopiedObject::from_bytes(bytes.clone(), Features::ALL), Ok(whole));
    for cut in 0..bytes.len() {
        assert!(CopiedObject::from_bytes(bytes.slice(..cut), Features::ALL).is_err(), "cut at {cut}");
    }
}

/// `name` as it is written in three states: snapshot 2 shows "two" and an xattr, 3 and 4 show "four".
fn kept_for_snapshots(bench: &mut Bench, name: &str) {
    for (seq, snaps, ops) in [
        (1, vec![], vec![write_full(b"two"), set_xattr("a", "of two"), omap_set(&[("k", "v")])]),
        (2, vec![2], vec![write_full(b"four"), bare(OpCode::OMAPCLEAR)]),
        (4, vec![4, 3, 2], vec![write_full(b"now")]),
    ] {
        let snaps = snaps.into_iter().map(SnapId).collect();
        let write = MOsdOp { object: name.into(), snap_seq: SnapId(seq), snaps, ..request(ops) };
        assert_eq!(bench.run_request(&write).result, 0);
    }
}

fn at(snap: u64) -> CopySource {
    CopySource { object: HObject { snap: SnapId(snap), ..object("source") }, version: 0 }
}

fn copy_of(name: &str, snap: u64) -> OsdOp {
    OsdOp { args: CopyFromArgs { snap, ..CopyFromArgs::default() }.into_args(), ..copy_op(name, 0) }
}

#[test]
fn a_copy_of_a_snapshot_has_what_it_shows() {
    let mut bench = Bench::new();
    kept_for_snapshots(&mut bench, "source");
    let whole = bench.copy(&at(2)).unwrap();
    assert_eq!(
        (&whole.data[..], whole.omap.len(), whole.xattrs.len(), whole.user_version),
        (&b"two"[..], 1, 1, 1)
    );
    let shown = |bench: &mut Bench, snap: u64| bench.copy(&at(snap)).map(|copied| copied.data);
    assert_eq!(shown(&mut bench, 3).unwrap(), "four");
    assert_eq!(shown(&mut bench, 5).unwrap(), "now", "nothing was written since");
    assert_eq!(shown(&mut bench, 1).err(), Some(Errno::ENOENT), "it is not among the snapshots");
    assert_eq!(shown(&mut bench, SnapId::SNAPDIR.0).err(), Some(Errno::EINVAL));
    let newer = CopySource { version: whole.user_version + 1, ..at(2) };
    assert_eq!(bench.copy(&newer).err(), Some(Errno::EOVERFLOW));
    bench.removed_snaps.insert(2, 1);
    assert_eq!(shown(&mut bench, 2).err(), Some(Errno::ENOENT));
    assert_eq!(bench.run(vec![copy_of("source", 2)]).result, -2);
    assert_eq!(bench.run(vec![copy_of("source", 4)]).result, 0);
    assert_eq!(bench.data().unwrap(), b"four");
}

#[test]
fn an_object_is_no_copy_of_its_own_snapshot() {
    let mut bench = Bench::new();
    kept_for_snapshots(&mut bench, "o");
    for snap in [1, 2, 9, SnapId::HEAD.0, SnapId::SNAPDIR.0] {
        assert_eq!(bench.run(vec![copy_of("o", snap)]).result, -22, "snapshot {snap}");
    }
    assert_eq!(bench.data().unwrap(), b"now");
}
