//! Every request that `clients/op_semantics.py` put to a real Ceph 16.2.15 cluster of
//! three BlueStore OSDs, with its answers, put to this executor.
//!
//! To record anew: `op_semantics.py --conf ceph.conf --record FILE`, on a pool with
//! number 3 (copies name it).

use super::*;

const RECORDED: &str = include_str!("fixtures/ceph-16.2.15.txt");

/// Steps that are answered differently on purpose: case, step, why.
const DIFFERENCES: [(&str, usize, &str); 11] = [
    ("xattr and omap reads after writes of one message", 1, SEES_OWN_WRITES),
    ("xattr and omap reads after writes of one message", 2, SEES_OWN_WRITES),
    ("xattr and omap reads after writes of one message", 3, SEES_OWN_WRITES),
    ("xattr and omap reads after writes of one message", 4, SEES_OWN_WRITES),
    ("xattr and omap reads after writes of one message", 5, SEES_OWN_WRITES),
    ("xattr and omap reads after writes of one message", 6, SEES_OWN_WRITES),
    ("copy from others", 0, COPY_CODE),
    ("copy from others", 1, COPY_CODE),
    ("copy from others", 2, COPY_CODE),
    ("returnvec limits", 4, "there the refused writes before move the version that is reported"),
    ("returnvec limits", 5, "as the step before"),
];
const SEES_OWN_WRITES: &str = "reads see what their own message wrote before";
const COPY_CODE: &str = "Ceph leaves its internal EINPROGRESS as the operation's code";

pub(super) struct Step {
    pub(super) request: MOsdOp,
    /// The client's number, and seconds that it waits before.
    pub(super) caller: (i64, u32),
    result: i32,
    version: Option<i64>,
    user_version: Option<i64>,
    /// `None`: an output that nobody can foretell.
    out: Vec<(i32, Option<Vec<u8>>)>,
}

fn unhex(text: &str) -> Vec<u8> {
    if text == "-" {
        return Vec::new();
    }
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn text(hex: &str) -> String {
    String::from_utf8(unhex(hex)).unwrap()
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().unwrap()
}

pub(super) fn recorded(recording: &'static str) -> Vec<(&'static str, Vec<Step>)> {
    let mut cases: Vec<(&str, Vec<Step>)> = Vec::new();
    let mut caller = (1, 0);
    for line in recording.lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        let words: Vec<&str> = rest.split(' ').collect();
        if kind == "case" {
            cases.push((rest, Vec::new()));
            continue;
        }
        if kind == "caller" {
            caller = (number(words[0]), number(words[1]));
            continue;
        }
        let steps = &mut cases.last_mut().unwrap().1;
        if kind == "step" {
            let mut request = request(Vec::new());
            request.flags = number(words[0]);
            request.snap = SnapId(number(words[1]));
            request.mtime = WallTime { sec: number(words[2]), nsec: number(words[3]) };
            request.object = text(words[4]).into();
            request.locator.nspace = text(words[5]).into();
            request.locator.key = text(words[6]).into();
            let out = Vec::new();
            steps.push(Step { request, caller, result: 0, version: None, user_version: None, out });
            continue;
        }
        let step = steps.last_mut().unwrap();
        match kind {
            "op" => {
                let mut args = unhex(words[2]);
                args.resize(28, 0);
                let mut op = op(OpCode(number(words[0])), args.try_into().unwrap(), &unhex(words[3]));
                op.flags = number(words[1]);
                step.request.ops.push(op);
            }
            "answer" => {
                step.result = number(words[0]);
                step.version = words[1].parse().ok();
                step.user_version = words[2].parse().ok();
            }
            "out" => step.out.push((number(words[0]), (words[1] != "*").then(|| unhex(words[1])))),
            other => panic!("{other}"),
        }
    }
    cases
}

/// The source of copies, with a user version that later writes elsewhere exceed.
fn prepare(bench: &mut Bench) -> i64 {
    let mut source = request(vec![write_full(b"source data"), set_xattr("s", "t"), omap_set(&[("k", "v")])]);
    source.object = "source".into();
    source.mtime = WallTime { sec: 50, nsec: 1 };
    bench.version = 4;
    bench.run_request(&source);
    let mut delete = request(vec![bare(OpCode::DELETE)]);
    delete.object = "the object".into();
    bench.run_request(&delete);
    bench.version as i64
}

#[test]
fn every_answer_is_that_of_real_ceph() {
    let cases = recorded(RECORDED);
    assert!(cases.len() > 70, "{} cases", cases.len());
    replay(cases, &DIFFERENCES, |_, _| {});
}

/// Plays the recorded requests, each after `before` has set the scene for it: the
/// steps that differ are those listed, no more and no fewer.
pub(super) fn replay(
    cases: Vec<(&str, Vec<Step>)>,
    differences: &[(&str, usize, &str)],
    before: impl Fn(&mut Bench, &Step),
) {
    let mut failures = Vec::new();
    for (name, steps) in cases {
        let mut bench = Bench::new();
        let origin = prepare(&mut bench);
        for (index, step) in steps.iter().enumerate() {
            before(&mut bench, step);
            let outcome = bench.run_request(&step.request);
            let problem = compare(step, &outcome, &bench, origin);
            let expected = differences.iter().any(|(case, at, _)| *case == name && *at == index);
            if problem.is_some() != expected {
                failures.push(format!("{name}, step {index}: {problem:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} differ\n{}", failures.len(), failures.join("\n"));
}

fn compare(step: &Step, outcome: &Outcome, bench: &Bench, origin: i64) -> Option<String> {
    let known = |i: usize| step.out.get(i).is_none_or(|(_, out)| out.is_some());
    let ours = outcome.ops.iter().enumerate();
    let out: Vec<_> = ours.map(|(i, op)| (op.rval, known(i).then(|| op.outdata.to_vec()))).collect();
    if outcome.result != step.result || out != step.out {
        return Some(format!("{} {:?} instead of {} {:?}", outcome.result, out, step.result, step.out));
    }
    let takes_version = !matches!(outcome.effect, Effect::None);
    if step.version.is_some_and(|version| takes_version != (version != 0)) {
        return Some(format!("takes a version: {takes_version}"));
    }
    if takes_version && step.version.is_some_and(|version| bench.version as i64 - origin != version) {
        return Some(format!("version {} instead of {:?}", bench.version as i64 - origin, step.version));
    }
    // A failure on a missing object shows in Ceph what its cache happens to hold of it.
    let comparable = step.result >= 0 || bench.store.stat(&id("the object")).unwrap().is_some();
    let user_version = step.user_version.filter(|_| comparable)?;
    let ours = outcome.user_version as i64;
    let relative = if ours == 0 { 0 } else { ours - origin };
    // Below the origin is the source's version: theirs was written long before.
    let same = if user_version < 0 { relative == -1 } else { relative == user_version };
    if same { None } else { Some(format!("user version {relative} instead of {user_version}")) }
}
