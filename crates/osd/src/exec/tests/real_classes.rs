//! Every call of a class's method that `clients/class_semantics.py` put to a real Ceph
//! 16.2.15, with its answers, put to this executor.
//!
//! To record anew: `class_semantics.py --conf ceph.conf --record FILE`.

use super::real_ceph::{recorded, replay};
use super::*;
use std::time::Duration;
use wire::types::AddrType;

const RECORDED: &str = include_str!("fixtures/ceph-16.2.15-classes.txt");

/// Steps that are answered differently on purpose: case, step, why.
const DIFFERENCES: [(&str, usize, &str); 4] = [
    ("hello answers of writes", 6, AFTER_EOVERFLOW),
    ("hello answers of writes", 7, AFTER_EOVERFLOW),
    ("hello answers of writes", 8, AFTER_EOVERFLOW),
    ("hello answers of writes", 9, AFTER_EOVERFLOW),
];
const AFTER_EOVERFLOW: &str = "there the refused writes before move the user version";

/// A client as the recording has it: its nonce is its number.
fn caller(number: i64) -> cls::Origin {
    let socket = ([127, 0, 0, 1], 0).into();
    let addr = EntityAddr { kind: AddrType::Msgr2, nonce: number as u32, socket: Some(socket) };
    cls::Origin { name: EntityName::client(number), addr }
}

#[test]
fn every_answer_is_that_of_real_ceph() {
    let cases = recorded(RECORDED);
    assert!(cases.len() > 30, "{} cases", cases.len());
    replay(cases, &DIFFERENCES, |bench, step| {
        bench.caller = caller(step.caller.0);
        bench.now = bench.now + Duration::from_secs(u64::from(step.caller.1));
    });
}
