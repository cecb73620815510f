use super::*;
use crate::exec::CloneInfo;
use wire::types::{Epoch, PoolId};

const A: OsdId = OsdId(0);
const B: OsdId = OsdId(1);
const C: OsdId = OsdId(2);

fn object(name: &str, snap: SnapId) -> HObject {
    HObject { pool: PoolId(1), name: name.into(), snap, ..HObject::default() }
}

fn head(name: &str) -> HObject {
    object(name, SnapId::HEAD)
}

fn version(number: u64) -> EVersion {
    EVersion::new(Epoch(3), number)
}

fn copy(number: u64, data: u32) -> Copy {
    Copy { version: version(number), size: 10, data, ..Copy::default() }
}

fn compare_with(copies: &[(OsdId, Option<Copy>)], logged: Option<Logged>, insists: bool) -> Vec<Finding> {
    let one = |copy: &Option<Copy>| copy.iter().map(|copy| (head("a"), copy.clone())).collect::<Map>();
    let maps = copies.iter().map(|(osd, copy)| (*osd, one(copy))).collect();
    Comparison { maps: &maps, logged: &|_| logged, insists }.findings()
}

fn compare(copies: &[(OsdId, Option<Copy>)]) -> Vec<Finding> {
    compare_with(copies, None, false)
}

type Judged = (Option<OsdId>, Vec<(OsdId, Fault)>);

fn summary(findings: &[Finding]) -> Vec<Judged> {
    findings.iter().map(|f| (f.right.map(|(osd, _)| osd), f.copies.clone())).collect()
}

#[test]
fn copies_that_agree_say_nothing() {
    let same = Some(copy(5, 7));
    assert_eq!(compare(&[(A, same.clone()), (B, same.clone()), (C, same.clone())]), []);
    assert_eq!(compare(&[(A, same)]), []);
}

#[test]
fn the_majority_names_the_odd_one_and_is_right_only_for_an_operator() {
    let logged = Logged { version: version(5), deleted: false };
    for wrong in [A, B, C] {
        let of = |osd| (osd, Some(copy(5, if osd == wrong { 8 } else { 7 })));
        let copies = [of(A), of(B), of(C)];
        for logged in [None, Some(logged)] {
            let findings = compare_with(&copies, logged, false);
            assert_eq!(summary(&findings), [(None, vec![(wrong, Fault::Data)])]);
            let insisted = compare_with(&copies, logged, true);
            assert_eq!(insisted[0].copies, findings[0].copies);
            assert_ne!(insisted[0].right.unwrap().0, wrong);
            assert!(insisted[0].is_repairable());
        }
    }
}

#[test]
fn what_is_missing_is_not_taken_from_copies_that_differ() {
    let copies = [(A, Some(copy(5, 7))), (B, Some(copy(5, 8))), (C, None)];
    assert_eq!(compare(&copies)[0].right, None);
    let agree = [(A, Some(copy(5, 7))), (B, Some(copy(5, 7))), (C, None)];
    assert_eq!(summary(&compare(&agree)), [(Some(B), vec![(C, Fault::Missing)])]);
}

#[test]
fn two_that_differ_and_can_both_be_read_are_told_of_and_not_judged() {
    let findings = compare(&[(A, Some(copy(5, 7))), (B, Some(copy(5, 8)))]);
    assert_eq!(summary(&findings), [(None, vec![(A, Fault::Data), (B, Fault::Data)])]);
    assert!(!findings[0].is_repairable());
}

#[test]
fn the_log_decides_between_versions() {
    let logged = Some(Logged { version: version(6), deleted: false });
    let copies = [(A, Some(copy(5, 7))), (B, Some(copy(6, 8))), (C, Some(copy(5, 7)))];
    let findings = compare_with(&copies, logged, false);
    assert_eq!(summary(&findings), [(Some(B), vec![(A, Fault::Version), (C, Fault::Version)])]);
}

#[test]
fn a_copy_newer_than_the_log_is_replaced_only_for_an_operator() {
    let logged = Some(Logged { version: version(5), deleted: false });
    let copies = [(A, Some(copy(5, 7))), (B, Some(copy(5, 7))), (C, Some(copy(6, 8)))];
    assert_eq!(summary(&compare_with(&copies, logged, false)), [(None, vec![(C, Fault::Version)])]);
    assert!(compare_with(&copies, logged, true)[0].is_repairable());
}

#[test]
fn what_cannot_be_read_is_never_right() {
    let bad = Copy { is_unreadable: true, ..copy(5, 0) };
    let findings = compare(&[(A, Some(bad.clone())), (B, Some(bad.clone())), (C, Some(copy(5, 7)))]);
    assert_eq!(summary(&findings), [(Some(C), vec![(A, Fault::Unreadable), (B, Fault::Unreadable)])]);
    let findings = compare(&[(A, Some(bad.clone())), (B, Some(bad))]);
    assert_eq!(summary(&findings), [(None, vec![(A, Fault::Unreadable), (B, Fault::Unreadable)])]);
}

#[test]
fn an_object_that_most_lack_is_only_restored_on_demand_and_never_against_the_log() {
    let copies = [(A, Some(copy(5, 7))), (B, None), (C, None)];
    let ghost = [(None, vec![(A, Fault::Extra)])];
    assert_eq!(summary(&compare(&copies)), ghost);
    let restored = [(Some(A), vec![(B, Fault::Missing), (C, Fault::Missing)])];
    assert_eq!(summary(&compare_with(&copies, None, true)), restored);
    let deleted = Some(Logged { version: version(6), deleted: true });
    assert_eq!(summary(&compare_with(&copies, deleted, true)), ghost);
    let written = Some(Logged { version: version(5), deleted: false });
    assert_eq!(summary(&compare_with(&copies, written, false)), restored);
    // One of two: what is there has not come from nowhere.
    assert_eq!(summary(&compare(&copies[..2])), [(Some(A), vec![(B, Fault::Missing)])]);
}

#[test]
fn what_is_older_never_takes_the_place_of_what_cannot_be_read() {
    let unreadable = Copy { is_unreadable: true, ..copy(6, 0) };
    let copies = [(A, Some(unreadable)), (B, Some(copy(5, 7))), (C, Some(copy(5, 7)))];
    let logged = Some(Logged { version: version(6), deleted: false });
    for logged in [None, logged] {
        let findings = compare_with(&copies, logged, true);
        assert_eq!(findings[0].right, None);
        assert_eq!(findings[0].copies.len(), 3);
    }
    let unknown = compare_with(&copies[1..], logged, true);
    assert_eq!(unknown, [], "two that agree, whatever the log says");
}

#[test]
fn between_versions_that_the_log_does_not_know_only_an_operator_lets_the_majority_decide() {
    let copies = [(A, Some(copy(6, 7))), (B, Some(copy(5, 7))), (C, Some(copy(5, 7)))];
    assert_eq!(compare(&copies)[0].right, None);
    let insisted = compare_with(&copies, None, true);
    assert_eq!(summary(&insisted), [(Some(C), vec![(A, Fault::Version)])]);
}

fn with_clone(listed: &[(u64, u64)], there: &[(u64, u64)]) -> Vec<(SnapId, Fault)> {
    let info = |(id, size): &(u64, u64)| CloneInfo {
        id: SnapId(*id),
        snaps: vec![SnapId(*id)],
        size: *size,
        overlap: IntervalSet::new(),
    };
    let snapset = SnapSet { clones: listed.iter().map(info).collect() };
    let mut map: Map = [(head("a"), Copy { snaps: Some(snapset.to_record()), ..copy(5, 7) })].into();
    for (id, size) in there {
        let snaps = Some(crate::exec::encode_snaps(&[SnapId(*id)]));
        map.insert(object("a", SnapId(*id)), Copy { snaps, size: *size, ..copy(4, 7) });
    }
    let maps = [(A, map.clone()), (B, map)].into();
    let findings = Comparison { maps: &maps, logged: &|_| None, insists: false }.findings();
    findings.iter().flat_map(|f| f.itself.map(|fault| (f.object.snap, fault))).collect()
}

#[test]
fn heads_and_clones_must_know_each_other() {
    assert_eq!(with_clone(&[(2, 9), (4, 3)], &[(2, 9), (4, 3)]), []);
    assert_eq!(with_clone(&[(2, 9), (4, 3)], &[(4, 3)]), [(SnapId(2), Fault::LostClone)]);
    assert_eq!(with_clone(&[(2, 9)], &[(2, 9), (3, 1)]), [(SnapId(3), Fault::UnexpectedClone)]);
    assert_eq!(with_clone(&[(2, 9)], &[(2, 8)]), [(SnapId(2), Fault::OtherClone)]);
}

#[test]
fn clones_without_a_head_are_told_of() {
    let clone = |name| (object(name, SnapId(2)), copy(4, 7));
    let maps = [(A, [clone("a"), (head("b"), copy(5, 7)), clone("c")].into())].into();
    let findings = Comparison { maps: &maps, logged: &|_| None, insists: false }.findings();
    let faults: Vec<_> = findings.iter().map(|f| (f.object.name.as_str(), f.itself)).collect();
    assert_eq!(faults, [("a", Some(Fault::Headless)), ("c", Some(Fault::Headless))]);
}
