//! Limits, and input that no honest client sends.

use super::*;
use base::Random;
use wire::messages::osd_op::{ChecksumArgs, WriteSameArgs};

/// The whole message refused, nothing recorded.
fn refusal(change: impl FnOnce(&mut MOsdOp)) -> i32 {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"data")]);
    let mut request = request(vec![write(0, b"x")]);
    change(&mut request);
    let outcome = bench.run_request(&request);
    if outcome.result < 0 {
        assert!(matches!(outcome.effect, Effect::None));
        assert!(outcome.ops.iter().all(|op| op.rval == 0 && op.outdata.is_empty()));
        assert_eq!(outcome.ops.len(), request.ops.len());
    }
    outcome.result
}

#[test]
fn messages_are_refused_before_anything_runs() {
    assert_eq!(refusal(|_| ()), 0);
    assert_eq!(refusal(|r| r.ops.clear()), -22);
    assert_eq!(refusal(|r| r.object.clear()), -22);
    assert_eq!(refusal(|r| r.object = "n".repeat(2048).into()), 0);
    assert_eq!(refusal(|r| r.object = "n".repeat(2049).into()), -36);
    assert_eq!(refusal(|r| r.locator.key = "n".repeat(2049).into()), -36);
    assert_eq!(refusal(|r| r.locator.nspace = "n".repeat(257).into()), -36);
    assert_eq!(refusal(|r| r.snap = SnapId(4)), -22);
    assert_eq!(refusal(|r| (r.snap_seq, r.snaps) = (SnapId(1), vec![SnapId(1)])), 0);
    assert_eq!(refusal(|r| (r.snap_seq, r.snaps) = (SnapId(1), vec![SnapId(2)])), -22);
    assert_eq!(refusal(|r| (r.snap_seq, r.snaps) = (SnapId(3), vec![SnapId(1), SnapId(2)])), -22);
    assert_eq!(refusal(|r| r.ops = vec![write(0, &vec![0; (90 << 20) + 1])]), -90);
    assert_eq!(refusal(|r| r.ops.push(bare(OpCode::PGNLS))), -22);
}

#[test]
fn objects_end_at_128_mib() {
    let mut bench = Bench::new();
    for ops in [
        vec![write(128 << 20, b"")],
        vec![write((128 << 20) - 1, b"ab")],
        vec![write(u64::MAX, b"ab")],
        vec![extent(OpCode::ZERO, u64::MAX, u64::MAX, b"")],
        vec![op(
            OpCode::WRITESAME,
            WriteSameArgs { offset: 0, len: u64::MAX - 1, data_len: 2 }.into_args(),
            b"ab",
        )],
        vec![op(
            OpCode::WRITE,
            ExtentArgs { offset: 0, len: 1, truncate_size: u64::MAX - 5, truncate_seq: 9 }.into_args(),
            b"a",
        )],
    ] {
        bench.run(vec![bare(OpCode::CREATE)]);
        let outcome = bench.run(ops.clone());
        assert_eq!(outcome.result, -27, "{ops:?}");
    }
}

/// Real OSDs of 16.2.15 abort on several of these.
#[test]
fn absurd_ranges_are_answered() {
    let mut bench = Bench::new();
    bench.run(vec![write(0, b"0123456789")]);
    let seed = [0; 8];
    let checksum = ChecksumArgs { offset: 5, len: u64::MAX, chunk_size: 0, kind: 1 };
    for (op, result, out) in [
        (read(1, u64::MAX), 0, &b"123456789"[..]),
        (read(u64::MAX, u64::MAX), 0, b""),
        (extent(OpCode::CMPEXT, 9, u64::MAX, b"9"), 0, b""),
        (extent(OpCode::ZERO, 5, 0, b""), -22, b""),
        (extent(OpCode::TRUNCATE, u64::MAX, 0, b""), -27, b""),
        (op(OpCode::CHECKSUM, [0xff; 28], &seed), 0, b""),
    ] {
        let outcome = bench.run(vec![op.clone()]);
        assert_eq!((outcome.result, &outcome.ops[0].outdata[..]), (result, out), "{op:?}");
    }
    assert_eq!(bench.run(vec![op(OpCode::CHECKSUM, checksum.into_args(), &seed)]).result, 0);
    let sparse = bench.run(vec![extent(OpCode::SPARSE_READ, 1, u64::MAX, b"")]);
    assert_eq!(sparse.ops[0].outdata.len(), 4 + 16 + 4 + 9);
    let mismatch = ExtentArgs { offset: 3, len: 0, truncate_size: 4, truncate_seq: 7 };
    assert_eq!(bench.run(vec![op(OpCode::TRUNCATE, mismatch.into_args(), b"")]).result, -22);
}

#[test]
fn one_message_cannot_ask_for_unbounded_work() {
    let mut bench = Bench::new();
    bench.run(vec![extent(OpCode::TRUNCATE, 0, 0, b""), bare(OpCode::CREATE)]);
    bench.run(vec![extent(OpCode::TRUNCATE, (128 << 20) - 1, 0, b"")]);
    match bench.attempt(&request(vec![read(0, 0); 1000]), &Fetched::default()) {
        // The reads are the same, so they are fetched once; the third is refused.
        Err(Need::Data(ranges)) => assert_eq!(ranges.len(), 1),
        other => panic!("{other:?}"),
    }
    let same = WriteSameArgs { offset: 0, len: 128 << 20, data_len: 1 };
    let outcome = bench.run(vec![op(OpCode::WRITESAME, same.into_args(), b"a"); 3]);
    assert_eq!((outcome.result, rvals(&outcome)), (-90, vec![0, 0, -90]));
}

#[test]
fn xattr_input_must_hold_what_the_arguments_say() {
    let mut bench = Bench::new();
    bench.run(vec![set_xattr("", "nameless"), set_xattr("_", "v")]);
    assert_eq!(bench.run(vec![get_xattr("")]).ops[0].outdata, "nameless");
    assert_eq!(bench.info().unwrap().user_version, 1);
    for code in [OpCode::GETXATTR, OpCode::SETXATTR, OpCode::RMXATTR, OpCode::CMPXATTR] {
        let mut long_name = xattr_op(code, b"a", b"v");
        long_name.args[0] = 99;
        assert_eq!(bench.run(vec![long_name]).result, -22, "{code}");
    }
    let mut long_value = set_xattr("a", "v");
    long_value.args[4] = 99;
    assert_eq!(bench.run(vec![long_value]).result, -22);
}

#[test]
fn random_arguments_and_input_never_panic() {
    let mut random = Random::from_seed(11);
    let mut bench = Bench::new();
    for round in 0..4000 {
        let count = 1 + random.below(4) as usize;
        let ops = (0..count)
            .map(|_| {
                let mode = [0x1200, 0x2200, 0x1300, 0x2300, 0x1400, 0x1500][random.below(6) as usize];
                let code = OpCode(mode + random.below(0x30) as u16);
                let mut args = [0; 28];
                let extremes = [0, 1, 0x7f, 0xff];
                args.iter_mut().for_each(|b| *b = extremes[random.below(4).pow(2) as usize % 4]);
                if random.chance(1, 2) {
                    args[2..8].fill(0);
                    args[10..16].fill(0);
                }
                let indata: Vec<u8> = (0..random.below(40)).map(|_| random.below(5) as u8).collect();
                let mut op = op(code, args, &indata);
                op.flags = random.below(4) as u32;
                op
            })
            .collect();
        let request = MOsdOp { flags: (random.below(2) as u32) * flags::RETURNVEC, ..request(ops) };
        let outcome = bench.run_request(&request);
        assert_eq!(outcome.ops.len(), count, "round {round}");
    }
}
