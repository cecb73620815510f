//! PGNLS and its filter.

use super::*;
use wire::codec::{Decode, Decoder, Encode};
use wire::messages::osd_op::PgListArgs;

struct Page {
    result: i32,
    handle: HObject,
    names: Vec<String>,
}

fn populated(count: usize) -> Bench {
    let mut bench = Bench::new();
    for i in 0..count {
        let mut create =
            request(vec![bare(OpCode::CREATE), set_xattr("parity", if i % 2 == 0 { "even" } else { "odd" })]);
        create.object = format!("o{i:03}").into();
        create.locator.nspace = if i % 3 == 0 { "space".into() } else { Default::default() };
        bench.run_request(&create);
    }
    bench
}

fn run(bench: &Bench, op: OsdOp, nspace: &str, pg_num: u32) -> Outcome {
    let mut request = request(vec![op]);
    request.object.clear();
    request.locator.nspace = nspace.into();
    let pool = PgPool { pg_num, ..PgPool::default() };
    let context = PgListContext {
        request: &request,
        pool: &pool,
        pg: PG,
        coll: COLL,
        scrub_ls: &|_| Err(Errno::ENOENT),
    };
    assert_eq!(classify(&request), Class::PgOp);
    execute_pg_op(&context, &bench.store).unwrap()
}

fn list_op(cursor: &HObject, max: u64) -> OsdOp {
    let indata = encoded(|e| cursor.encode(e));
    op(OpCode::PGNLS, PgListArgs { count_max: max, start_epoch: 1 }.into_args(), &indata)
}

fn page(bench: &Bench, cursor: &HObject, max: u64, nspace: &str) -> Page {
    decode(&run(bench, list_op(cursor, max), nspace, 1))
}

fn decode(outcome: &Outcome) -> Page {
    let mut d = Decoder::plain(outcome.ops[0].outdata.clone());
    let (handle, names) = d
        .versioned("page", 1, |d, _| {
            let handle = HObject::decode(d)?;
            let mut names = Vec::new();
            for _ in 0..d.count("entries", 12)? {
                let (nspace, name, _key) = (d.string()?, d.string()?, d.string()?);
                names.push(format!("{nspace}/{name}"));
            }
            Ok((handle, names))
        })
        .unwrap();
    assert_eq!(outcome.ops[0].rval, 0);
    Page { result: outcome.result, handle, names }
}

#[test]
fn pages_together_hold_every_object_once_and_end_with_one() {
    let bench = populated(100);
    let start = HObject::pg_start(PG.pool, PG.seed);
    for (nspace, count) in [("\u{1}", 100), ("", 66), ("space", 34), ("none", 0)] {
        for max in [1, 7, 33, 100, 5000] {
            let (mut cursor, mut names) = (start.clone(), Vec::new());
            loop {
                let page = page(&bench, &cursor, max, nspace);
                assert!(page.names.len() as u64 <= max);
                names.extend(page.names);
                cursor = page.handle;
                if page.result == 1 {
                    break;
                }
                assert_eq!(page.result, 0);
            }
            assert!(cursor.is_max);
            let listed = names.len();
            names.sort();
            names.dedup();
            assert_eq!((names.len(), listed), (count, count), "{nspace:?} by {max}");
        }
    }
}

#[test]
fn a_page_holds_1024_objects_at_most() {
    let bench = populated(1030);
    let start = HObject::pg_start(PG.pool, PG.seed);
    let first = page(&bench, &start, u64::MAX, "\u{1}");
    assert_eq!((first.result, first.names.len()), (0, 1024));
    let second = page(&bench, &first.handle, u64::MAX, "\u{1}");
    assert_eq!((second.result, second.names.len()), (1, 6));
}

#[test]
fn cursors_of_no_object_in_the_pg_are_invalid() {
    let bench = populated(3);
    let elsewhere = [
        HObject::pg_start(PG.pool, 1),
        HObject::pg_start(PoolId(PG.pool.0 + 1), 0),
        HObject { hash: 1, ..HObject::default() },
    ];
    for cursor in elsewhere {
        assert_eq!(run(&bench, list_op(&cursor, 10), "", 8).result, -22, "{cursor:?}");
    }
    // A client that has none yet sends the blank object.
    assert!(run(&bench, list_op(&HObject::default(), 10), "", 8).result >= 0);
    let end = decode(&run(&bench, list_op(&HObject::max(), 10), "", 8));
    assert_eq!((end.result, end.handle.hash, end.handle.snap), (1, 4, SnapId::HEAD));
    assert_eq!(run(&bench, op(OpCode::PGNLS, [0; 28], b"\x04\x03"), "", 8).result, -22);
    let pgls = run(&bench, bare(OpCode::PGLS), "", 8);
    assert_eq!((pgls.result, pgls.unsupported), (-95, vec![Unsupported::Operation(OpCode::PGLS)]));
}

#[test]
fn the_plain_filter_passes_objects_with_that_very_value() {
    let bench = populated(10);
    let filtered = |kind: &str, name: &str, value: &str| {
        let indata = encoded(|e| {
            e.string("pg");
            e.string("filter");
            e.string(kind);
            e.string(name);
            e.string(value);
            HObject::pg_start(PG.pool, PG.seed).encode(e);
        });
        let args = PgListArgs { count_max: 100, start_epoch: 1 }.into_args();
        run(&bench, op(OpCode::PGNLS_FILTER, args, &indata), "\u{1}", 1)
    };
    assert_eq!(decode(&filtered("plain", "_parity", "odd")).names.len(), 5);
    assert_eq!(decode(&filtered("plain", "_parity", "od")).names.len(), 0);
    assert_eq!(decode(&filtered("plain", "_none", "")).names.len(), 0);
    assert_eq!(filtered("what", "", "").result, -22);
    assert_eq!(filtered("parent", "", "").result, -95);
}

#[test]
fn a_listing_gets_on_while_metadata_is_loaded_piece_by_piece() {
    let bench = populated(100);
    let even = |cursor: &HObject| {
        let indata = encoded(|e| {
            for text in ["pg", "filter", "plain", "_parity", "even"] {
                e.string(text);
            }
            cursor.encode(e);
        });
        op(OpCode::PGNLS_FILTER, PgListArgs { count_max: 1000, start_epoch: 1 }.into_args(), &indata)
    };
    let mut store = store::PendingStore::new(bench.store.clone(), 30, 7);
    let (mut cursor, mut names, mut waits) = (HObject::pg_start(PG.pool, PG.seed), Vec::new(), 0);
    loop {
        store.end_turn();
        while let Some(load) = store.poll_load() {
            store.finish_load(load);
        }
        while store.poll_event().is_some() {}
        let mut request = request(vec![even(&cursor)]);
        request.object.clear();
        request.locator.nspace = "\u{1}".into();
        let context = PgListContext {
            request: &request,
            pool: &bench.pool,
            pg: PG,
            coll: COLL,
            scrub_ls: &|_| Err(Errno::ENOENT),
        };
        match execute_pg_op(&context, &store) {
            Ok(outcome) => {
                let page = decode(&outcome);
                assert!(page.handle > cursor, "an answer gets on");
                names.extend(page.names);
                cursor = page.handle;
                if page.result == 1 {
                    break;
                }
            }
            Err(Need::Metadata(StoreError::Pending(_))) => waits += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    let listed = names.len();
    names.sort();
    names.dedup();
    assert_eq!((names.len(), listed), (50, 50));
    assert!(waits > 0, "metadata was always there");
}

#[test]
fn a_deleted_object_is_listed_while_it_has_clones() {
    let mut bench = populated(1);
    let mut delete = request(vec![bare(OpCode::DELETE)]);
    delete.object = "o000".into();
    delete.locator.nspace = "space".into();
    (delete.snap_seq, delete.snaps) = (SnapId(4), vec![SnapId(4)]);
    assert_eq!(bench.run_request(&delete).result, 0);
    let start = HObject::pg_start(PG.pool, PG.seed);
    assert_eq!(page(&bench, &start, 10, "space").names, ["space/o000"]);
}
