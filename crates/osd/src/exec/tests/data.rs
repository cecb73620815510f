//! READ, WRITE and their kin.

use super::*;

#[test]
fn write_creates_and_read_returns_it() {
    let mut bench = Bench::new();
    let outcome = bench.run(vec![write(3, b"abc")]);
    assert_eq!((outcome.result, rvals(&outcome), outcome.user_version), (0, vec![0], 1));
    let change = change(&outcome);
    assert_eq!(change.delta, StatDelta { objects: 1, bytes: 6, ..StatDelta::default() });
    assert_eq!((change.deleted, change.prior_version), (false, EVersion::ZERO));
    assert_eq!(bench.data().unwrap(), b"\0\0\0abc");
    let read = bench.run(vec![read(4, 100)]);
    assert_eq!((read.result, read.user_version, &read.ops[0].outdata[..]), (0, 1, &b"bc"[..]));
}

#[test]
fn plain_write_and_read_carry_the_bytes_without_a_copy() {
    let mut bench = Bench::new();
    let op = write(0, &[7; 4096]);
    let sent = op.indata.clone();
    let outcome = bench.run(vec![op]);
    match &change(&outcome).mutations[0] {
        Mutation::Write { data, .. } => assert_eq!(data.as_ptr(), sent.as_ptr()),
        other => panic!("{other:?}"),
    }
    let mut fetched = Fetched::default();
    let outcome = bench.decide(&request(vec![read(0, 4096)]), &mut fetched);
    let got = fetched.data[0].1.as_ref().unwrap();
    assert_eq!(outcome.ops[0].outdata.as_ptr(), got.as_ptr());
}

/// Which ranges are read depends on the size only, so one round of fetching is enough.
#[test]
fn all_ranges_are_asked_for_at_once() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, &[1; 100])]);
    let ops = vec![read(0, 10), read(90, 50), read(0, 10), read(200, 5)];
    match bench.attempt(&request(ops), &Fetched::default()) {
        Err(Need::Data(ranges)) => {
            let ranges: Vec<_> = ranges.iter().map(|r| (r.offset, r.len)).collect();
            assert_eq!(ranges, [(0, 10), (90, 10)]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_range_fails_the_read_and_nothing_else() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"0123456789")]);
    let range = DataRange { id: id("o"), offset: 0, len: 10 };
    let damage = StoreError::Checksum { object: "o".into(), offset: 0, device_offset: 7 };
    let fetched = Fetched { data: vec![(range, Err(damage))], ..Fetched::default() };
    let outcome = bench.attempt(&request(vec![read(0, 0)]), &fetched).unwrap();
    assert_eq!((outcome.result, rvals(&outcome)), (-5, vec![-5]));
    let guarded = vec![extent(OpCode::CMPEXT, 0, 10, b"0123456789"), write(0, b"x")];
    let outcome = bench.attempt(&request(guarded), &fetched).unwrap();
    assert_eq!((outcome.result, rvals(&outcome)), (-5, vec![-5, 0]));
}
