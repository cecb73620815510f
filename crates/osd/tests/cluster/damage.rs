//! Data that a device has lost: repaired from another copy while nobody notices,
//! or said to be lost.

use crate::harness::*;
use base::Duration;
use wire::messages::pg_state;

const SECOND: Duration = Duration::from_secs(1);

fn damage(w: &mut World, osd: usize, object: &str) {
    let id = w.object_id(object);
    w.is_damaged = true;
    let store = w.nodes[osd].as_mut().unwrap().osd.store_mut().inner_mut();
    assert!(store.damage(&id), "osd.{osd} has {object}");
}

fn repaired(w: &World, osd: usize) -> u64 {
    w.nodes[osd].as_ref().unwrap().osd.counters().repaired
}

#[test]
fn a_damaged_object_is_read_from_its_other_copy_and_repaired() {
    crate::trace();
    for percent in [0, 50] {
        let mut w = World::new(31, 3, 2, 1, 4);
        w.settle();
        w.write("a", &[7; 10_000]);
        w.make_metadata_absent(percent);
        let primary = w.acting("a")[0];
        damage(&mut w, primary, "a");
        let reads: Vec<u64> = (0..4).map(|_| w.submit(0, "a", vec![read_all()])).collect();
        let write = w.submit(0, "a", vec![append(b"and more")]);
        for tid in reads {
            assert_eq!(w.wait(tid).ops[0].outdata, vec![7; 10_000]);
        }
        assert_eq!(w.wait(write).result, 0);
        assert_eq!(w.read("a").unwrap().len(), 10_008);
        assert_eq!(repaired(&w, primary), 1);
        w.make_metadata_absent(0);
        w.assert_copies_equal();
    }
}

#[test]
fn an_object_damaged_everywhere_is_an_error_until_it_is_written_again() {
    let mut w = World::new(32, 3, 3, 2, 1);
    w.settle();
    w.write("a", b"something");
    w.write("b", b"else");
    let acting = w.acting("a");
    for osd in &acting {
        damage(&mut w, *osd, "a");
    }
    for _ in 0..2 {
        let tid = w.submit(0, "a", vec![read_all()]);
        assert_eq!(w.wait(tid).result, -5);
    }
    let counters = w.nodes[acting[0]].as_ref().unwrap().osd.counters().clone();
    assert_eq!((counters.repaired, counters.unrepairable), (0, 1));
    assert!(counters.read_errors >= 1);
    let now = w.local(acting[0]);
    let states = w.nodes[acting[0]].as_ref().unwrap().osd.pg_states(now);
    assert!(states.iter().any(|(_, state)| state & pg_state::INCONSISTENT != 0), "it shows");
    assert_eq!(w.read("b").unwrap(), "else");
    w.write("a", b"new");
    assert_eq!(w.read("a").unwrap(), "new");
    w.assert_copies_equal();
}

#[test]
fn a_source_of_recovery_that_is_damaged_is_passed_over_and_repaired() {
    crate::trace();
    for percent in [0, 50] {
        let mut w = World::new(33, 3, 3, 2, 1);
        w.settle();
        w.write("a", b"old");
        w.make_metadata_absent(percent);
        let acting = w.acting("a");
        w.kill(acting[0]);
        w.write("a", &[9; 20_000]);
        // Asked first, for its number is lower.
        let source = acting[1].min(acting[2]);
        damage(&mut w, source, "a");
        w.start(acting[0]);
        w.run_until("the primary is back", SECOND * 5, |w| w.acting("a")[0] == acting[0]);
        w.settle();
        assert_eq!(repaired(&w, source), 1);
        assert_eq!(w.read("a").unwrap(), vec![9; 20_000]);
        w.make_metadata_absent(0);
        w.assert_copies_equal();
    }
}

#[test]
fn a_primary_that_finds_damage_while_it_backfills_repairs_itself_first() {
    crate::trace();
    for percent in [0, 50] {
        let mut w = World::new(34, 3, 3, 2, 1);
        w.settle();
        for i in 0..40 {
            w.write(&format!("o{i}"), format!("data {i}").as_bytes());
        }
        w.make_metadata_absent(percent);
        let acting = w.acting("o0");
        w.kill(acting[2]);
        w.wipe(acting[2]);
        w.run_until("it is missed", SECOND * 5, |w| w.acting("o0").len() == 2);
        for i in [3, 17, 39] {
            damage(&mut w, acting[0], &format!("o{i}"));
        }
        w.start(acting[2]);
        w.run_until("all are back", SECOND * 5, |w| w.acting("o0").len() == 3);
        w.settle();
        assert_eq!(repaired(&w, acting[0]), 3);
        w.make_metadata_absent(0);
        w.assert_copies_equal();
    }
}
