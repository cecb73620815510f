//! READ, WRITE and their kin.

use super::*;
use wire::codec::Decoder;
use wire::messages::{MOsdOpReply, Payload};
use wire::types::{EVersion, Epoch};

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
fn reads_end_without_another_run_once_their_data_is_whole() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"0123456789"), set_xattr("a", "1")]);
    let first = |bench: &Bench, ops: Vec<OsdOp>| {
        let fetched = Fetched::default();
        bench.attempt(&request(ops), &fetched).unwrap_err();
        fetched
    };
    let range = |offset, len| DataRange { id: id("o"), offset, len };
    let mut fetched = first(&bench, vec![read(0, 0), get_xattr("a"), read(8, 5)]);
    fetched.data.push((range(0, 10), Ok(Bytes::from_static(b"0123456789"))));
    assert!(fetched.clone().answer().is_none(), "half of it");
    fetched.data.push((range(8, 2), Ok(Bytes::from_static(b"89"))));
    let outcome = fetched.answer().unwrap();
    let answers: Vec<&[u8]> = outcome.ops.iter().map(|op| &op.outdata[..]).collect();
    assert_eq!((outcome.result, answers), (0, vec![&b"0123456789"[..], b"1", b"89"]));
    assert!(fetched.answer().is_none(), "given once");
    // Data that is short or cannot be read, operations that compute, requests that write.
    let damage = StoreError::Checksum { object: "o".into(), offset: 0, device_offset: 7 };
    for bad in [Ok(Bytes::from_static(b"0")), Err(damage)] {
        let mut fetched = first(&bench, vec![read(0, 10)]);
        fetched.data.push((range(0, 10), bad));
        assert!(fetched.answer().is_none());
        assert_eq!(bench.attempt(&request(vec![read(0, 10)]), &fetched).unwrap().result, -5);
    }
    for other in [extent(OpCode::SPARSE_READ, 0, 10, b""), write(20, b"x")] {
        let mut fetched = first(&bench, vec![read(0, 10), other]);
        fetched.data.push((range(0, 10), Ok(Bytes::from_static(b"0123456789"))));
        assert!(fetched.answer().is_none());
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

#[test]
fn long_data_of_a_sparse_read_is_not_copied_and_the_reply_is_the_same() {
    let mut bench = Bench::new();
    let (long, short) = (vec![1; 40_000], vec![2; 100]);
    bench.run(vec![write(0, &long), write(65_536, &short), write(131_072, &long)]);
    let sparse = extent(OpCode::SPARSE_READ, 0, 1 << 20, b"");
    let outcome = bench.run(vec![sparse.clone(), read(65_536, 2), sparse]);
    let shared: Vec<usize> = outcome.ops[0].long.iter().map(Bytes::len).filter(|len| *len > 20_000).collect();
    assert!(!shared.is_empty(), "something is passed on as it was read");
    let reply = MOsdOpReply {
        object: "o".into(),
        pg: PgId { pool: PoolId(1), seed: 0 },
        flags: 0,
        result: 0,
        bad_replay_version: EVersion::ZERO,
        epoch: Epoch(1),
        ops: outcome.ops,
        retry_attempt: 0,
        replay_version: EVersion::ZERO,
        user_version: 0,
    };
    let mut front = Encoder::plain();
    reply.encode_front(&mut front);
    let data = reply.data().concat().into();
    let decoded = MOsdOpReply::decode(&mut Decoder::plain(front.finish()), data, 8).unwrap();
    for op in [0, 2] {
        let mut d = Decoder::plain(decoded.ops[op].outdata.clone());
        let extents: Vec<(u64, u64)> =
            (0..d.u32().unwrap()).map(|_| (d.u64().unwrap(), d.u64().unwrap())).collect();
        let content = d.blob().unwrap();
        assert_eq!(extents.iter().map(|(_, len)| *len).sum::<u64>(), content.len() as u64);
        let mut found = vec![0; 131_072 + 40_000];
        let mut at = 0;
        for (offset, len) in extents {
            let (offset, len) = (offset as usize, len as usize);
            found[offset..offset + len].copy_from_slice(&content[at..at + len]);
            at += len;
        }
        let mut expected = vec![0; 131_072 + 40_000];
        expected[..40_000].copy_from_slice(&long);
        expected[65_536..65_636].copy_from_slice(&short);
        expected[131_072..].copy_from_slice(&long);
        assert!(found == expected);
    }
    assert_eq!(decoded.ops[1].outdata, vec![2; 2]);
}
