//! Every call that `clients/rbd_class_semantics.py` put to a real Ceph 16.2.15
//! OSD, with its answers and what was left in the objects, put to the class here.
//!
//! To record anew: `rbd_class_semantics.py --conf ceph.conf --record`.

use crate::testing::{Content, MemObject};
use base::WallTime;
use bytes::Bytes;
use wire::types::{EntityAddr, EntityName};

const RECORDED: &str = include_str!("fixtures/ceph-16.2.15.txt");

/// Some time that occurs nowhere in the arguments.
const NOW: WallTime = WallTime { sec: 0x6f5e_4d3c, nsec: 123_456_789 };

/// Steps that are answered differently on purpose: case, step, why.
const DIFFERENCES: &[(&str, usize, &str)] = &[];

/// Data, then keys and values of the omap; none if the object is not there.
type Left = Option<(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

/// The recording's hexadecimal, with runs as `[XXxN]`.
pub fn bytes_of(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = if text == "-" { "" } else { text };
    let byte = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
    while !rest.is_empty() {
        if let Some(run) = rest.strip_prefix('[') {
            let (run, after) = run.split_once(']').unwrap();
            let (digits, count) = run.split_once('x').unwrap();
            out.extend(std::iter::repeat_n(byte(digits), count.parse().unwrap()));
            rest = after;
        } else {
            out.push(byte(&rest[..2]));
            rest = &rest[2..];
        }
    }
    out
}

/// Zeros for times within an hour of now and for random uuids, as in the recording.
fn masked(raw: &[u8]) -> Vec<u8> {
    let mut raw = raw.to_vec();
    for at in 0..raw.len().saturating_sub(35) {
        if is_random_uuid(&raw[at..at + 36]) {
            raw[at..at + 36].fill(b'0');
        }
    }
    let mut at = 0;
    while at + 8 <= raw.len() {
        if u32::from_le_bytes(raw[at..at + 4].try_into().unwrap()).abs_diff(NOW.sec) < 3600 {
            raw[at..at + 8].fill(0);
            at += 7;
        }
        at += 1;
    }
    raw
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn shown(left: &Left) -> String {
    let Some((data, omap)) = left else { return "nothing".into() };
    let entries = omap.iter().map(|(key, value)| format!(" {}={}", key.escape_ascii(), hex(value)));
    hex(data) + &entries.collect::<String>()
}

fn is_random_uuid(text: &[u8]) -> bool {
    text.iter().enumerate().all(|(i, c)| match i {
        8 | 13 | 18 | 23 => *c == b'-',
        14 => *c == b'4',
        19 => b"89ab".contains(c),
        _ => c.is_ascii_hexdigit(),
    })
}

fn left(object: &MemObject) -> Left {
    let content = object.content.as_ref()?;
    let omap = content.omap.iter().map(|(key, value)| (masked(key), masked(value)));
    Some((masked(&content.data), omap.collect()))
}

fn expected_left(words: &str) -> Left {
    if words == "nothing" {
        return None;
    }
    let mut words = words.split(' ');
    let data = bytes_of(words.next().unwrap());
    let entries = words.map(|entry| {
        let (key, value) = entry.split_once('=').unwrap();
        (bytes_of(key), bytes_of(value))
    });
    Some((data, entries.collect()))
}

/// Every call of the recording: whether it is its case's first, method, input.
pub fn recorded_calls() -> Vec<(bool, &'static str, Vec<u8>)> {
    let mut first = true;
    let mut calls = Vec::new();
    for line in RECORDED.lines() {
        match *line.split(' ').collect::<Vec<_>>() {
            ["case", ..] => first = true,
            ["call", method, input, ..] => calls.push((std::mem::take(&mut first), method, bytes_of(input))),
            _ => {}
        }
    }
    calls
}

fn fresh() -> MemObject {
    let mut object = MemObject::new();
    object.now = NOW;
    object.origin.name = EntityName::client(1);
    object.origin.addr = EntityAddr::BLANK;
    object
}

/// Plays one recorded step; what differs.
fn play(object: &mut MemObject, line: &str) -> Option<String> {
    let (kind, rest) = line.split_once(' ').unwrap();
    let words: Vec<&str> = rest.split(' ').collect();
    match kind {
        "call" => {
            let method = if words[0] == "-" { "" } else { words[0] };
            let (code, out) = object.call("rbd", method, &bytes_of(words[1]));
            // Without RETURNVEC a request that changes something has no output.
            let changes = matches!(crate::find(b"rbd", method.as_bytes()),
                crate::Found::Method(method) if method.access.writes());
            let out = if changes || code < 0 { Vec::new() } else { masked(&out) };
            let expected = (words[2].parse::<i32>().unwrap(), bytes_of(words[3]));
            ((code, &out) != (expected.0, &expected.1)).then(|| {
                format!(
                    "{method} {}: {code} {} instead of {} {}",
                    words[1],
                    hex(&out),
                    expected.0,
                    hex(&expected.1)
                )
            })
        }
        "data" => {
            object.content.get_or_insert_with(Content::default).data = bytes_of(words[0]).into();
            None
        }
        "omap" => {
            let entry = (bytes_of(words[0]).into(), Bytes::from(bytes_of(words[1])));
            object.content.get_or_insert_with(Content::default).omap.extend([entry]);
            None
        }
        "left" if rest == "unseen" => None,
        "left" => {
            let (ours, theirs) = (left(object), expected_left(rest));
            (ours != theirs).then(|| format!("left {} instead of {rest}", shown(&ours)))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn every_answer_and_every_object_is_that_of_real_ceph() {
    let (mut object, mut case, mut step, mut cases) = (fresh(), "", 0, 0);
    let mut failures = Vec::new();
    for line in RECORDED.lines() {
        if let Some(name) = line.strip_prefix("case ") {
            (object, case, step, cases) = (fresh(), name, 0, cases + 1);
            continue;
        }
        let problem = play(&mut object, line);
        let expected = DIFFERENCES.iter().any(|(name, at, _)| *name == case && *at == step);
        if problem.is_some() != expected {
            failures.push(format!("{case}, step {step}: {}", problem.unwrap_or("does not differ".into())));
        }
        step += 1;
    }
    assert!(cases > 150, "{cases} cases");
    assert!(failures.is_empty(), "{} differ\n{}", failures.len(), failures.join("\n"));
}
