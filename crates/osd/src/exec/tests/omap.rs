//! Listing omap in parts, also of what the message itself has changed.

use super::*;
use bytes::Bytes;
use wire::codec::Decoder;

fn list_op(code: OpCode, start_after: &str, max: u64, prefix: &str) -> OsdOp {
    let indata = encoded(|e| {
        e.string(start_after);
        e.u64(max);
        if code == OpCode::OMAPGETVALS {
            e.string(prefix);
        }
    });
    op(code, [0; 28], &indata)
}

/// Keys, the bytes of values, and whether there are more.
fn listed(outcome: &Outcome, code: OpCode) -> (Vec<String>, usize, bool) {
    assert_eq!(outcome.result, 0);
    let mut d = Decoder::plain(outcome.ops.last().unwrap().outdata.clone());
    let (mut keys, mut bytes) = (Vec::new(), 0);
    for _ in 0..d.u32().unwrap() {
        keys.push(d.string().unwrap().to_string());
        if code == OpCode::OMAPGETVALS {
            bytes += d.blob().unwrap().len();
        }
    }
    (keys, bytes, d.bool().unwrap())
}

#[test]
fn a_reply_is_limited_and_says_whether_there_is_more() {
    let mut bench = Bench::new();
    bench.run(vec![omap_set(&[("a", "1"), ("b1", "2"), ("b2", "3"), ("c", "4")])]);
    for code in [OpCode::OMAPGETKEYS, OpCode::OMAPGETVALS] {
        let mut ask = |after: &str, max, prefix: &str| {
            let (keys, _, more) = listed(&bench.run(vec![list_op(code, after, max, prefix)]), code);
            (keys.join(" "), more)
        };
        assert_eq!(ask("", 4, ""), ("a b1 b2 c".into(), false));
        assert_eq!(ask("", 3, ""), ("a b1 b2".into(), true));
        assert_eq!(ask("b2", 3, ""), ("c".into(), false));
        assert_eq!(ask("c", 3, ""), (String::new(), false));
        assert_eq!(ask("", 0, ""), (String::new(), true));
        if code == OpCode::OMAPGETVALS {
            assert_eq!(ask("", 2, "b"), ("b1 b2".into(), false));
            assert_eq!(ask("", 1, "b"), ("b1".into(), true));
        }
    }
}

#[test]
fn a_reply_of_long_values_ends_before_it_is_too_long() {
    let mut bench = Bench::new();
    // Four times what a reply may hold, behind something short.
    let long = Bytes::from(vec![7; limits::OMAP_BYTES_MAX / 4]);
    let keys = (0..16).map(|n| (Bytes::from(format!("l{n:02}")), long.clone()));
    let entries = keys.chain([("a".into(), "1".into())]).collect();
    bench.run(vec![omap_set(&[("a", "1")])]);
    bench.store.queue(Transaction { ops: vec![Mutation::SetOmap { id: id("o"), entries }] }).unwrap();
    let (mut after, mut found, mut pages) = (String::new(), 0, 0);
    loop {
        let (keys, bytes, more) =
            listed(&bench.run(vec![list_op(OpCode::OMAPGETVALS, &after, 1000, "")]), OpCode::OMAPGETVALS);
        assert!(bytes <= limits::OMAP_BYTES_MAX);
        found += keys.len();
        pages += 1;
        after = keys.last().unwrap().clone();
        if !more {
            break;
        }
    }
    assert_eq!((found, pages), (17, 6));
}

/// Against a map: the store's keys, changed by the message that lists them.
#[test]
fn a_message_lists_what_it_has_changed() {
    let mut random = base::Random::from_seed(9);
    for _ in 0..300 {
        let mut bench = Bench::new();
        let mut model = BTreeMap::new();
        let key = |n: u64| format!("k{n:02}");
        for n in 0..random.below(12) {
            let value = "x".repeat(random.below(40) as usize);
            bench.run(vec![omap_set(&[(&key(n * 2), &value)])]);
            model.insert(key(n * 2), value);
        }
        let mut ops = vec![bare(OpCode::CREATE)];
        for _ in 0..random.below(20) {
            let key = key(random.below(24));
            if random.chance(2, 3) {
                ops.push(omap_keys_op(OpCode::OMAPRMKEYS, &[&key]));
                model.remove(&key);
            } else {
                ops.push(omap_set(&[(&key, "new")]));
                model.insert(key, "new".into());
            }
        }
        let after = key(random.below(24));
        let max = random.below(6);
        ops.push(list_op(OpCode::OMAPGETKEYS, &after, max, ""));
        let mut request = request(ops);
        request.flags |= wire::messages::osd_op::flags::RETURNVEC;
        let (keys, _, more) = listed(&bench.run_request(&request), OpCode::OMAPGETKEYS);
        let mut right = model.into_keys().filter(|key| *key > after);
        let expected: Vec<String> = right.by_ref().take(max as usize).collect();
        assert_eq!((keys, more), (expected, right.next().is_some()));
    }
}
