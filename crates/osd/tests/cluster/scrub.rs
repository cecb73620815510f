//! Scrubs find what devices have lost, and repair it where some copy is right; else they find nothing.

use crate::harness::*;
use base::Duration;
use bytes::Bytes;
use osd::OsdConfig;
use osd::pg::scrub::ScrubRecord;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use store::{Mutation, ObjectId, ObjectStore, Transaction};
use wire::maps::OsdMapFlags;
use wire::messages::osd_op::OpCode;
use wire::messages::{MOsdScrub, OsdOp, Outgoing, pg_state};
use wire::types::{HObject, SnapId, SpgId};
use wire::{Encoder, Features};

const SECOND: Duration = Duration::from_secs(1);

/// Two clones and a head.
const WITH_CLONES: &str = "c";

fn world(percent: u64, tweak: fn(&mut OsdConfig)) -> World {
    crate::trace();
    let mut w = World::tweaked(41, 3, 3, 2, 1, tweak);
    w.settle();
    for i in 0..70 {
        w.write(&format!("o{i}"), &vec![i as u8; 100 * i]);
    }
    for (snaps, data) in [(&[][..], "first"), (&[1], "second!"), (&[2, 1], "third of them")] {
        let under: Vec<SnapId> = snaps.iter().map(|snap| SnapId(*snap)).collect();
        let tid = w.submit_at(0, WITH_CLONES, vec![write_full(data.as_bytes())], SnapId::HEAD, &under);
        assert_eq!(w.wait(tid).result, 0);
    }
    w.settle();
    w.make_metadata_absent(percent);
    w
}

fn clone_of(w: &World, object: &str, snap: u64) -> ObjectId {
    let head = w.object_id(object);
    ObjectId { object: HObject { snap: SnapId(snap), ..head.object }, ..head }
}

fn damage(w: &mut World, osd: usize, id: &ObjectId) {
    w.is_damaged = true;
    let store = w.nodes[osd].as_mut().unwrap().osd.store_mut().inner_mut();
    assert!(store.damage(id), "osd.{osd} has {id:?}");
}

/// Behind the OSD's back.
fn change(w: &mut World, osd: usize, mutation: Mutation) {
    w.is_damaged = true;
    let store = w.nodes[osd].as_mut().unwrap().osd.store_mut().inner_mut();
    let mut txn = Transaction::new();
    txn.push(mutation);
    store.queue(txn).unwrap();
    store.commit_held(usize::MAX);
    // Of which the OSD must not hear.
    while store.poll_event().is_some() {}
}

fn record(w: &World) -> ScrubRecord {
    let primary = w.acting("o0")[0];
    let node = w.nodes[primary].as_ref().unwrap();
    node.osd.pg(w.pg_of("o0")).unwrap().info.history.scrub
}

fn state(w: &World) -> u64 {
    let Some(primary) = w.acting("o0").first().copied() else { return 0 };
    let states = w.nodes[primary].as_ref().unwrap().osd.pg_states(w.local(primary));
    states.first().map_or(0, |(_, state)| *state)
}

fn ask(w: &mut World, deep: bool, repair: bool) {
    let command = MOsdScrub {
        fsid: w.mon.map.fsid,
        epoch: w.mon.map.epoch,
        pgs: vec![SpgId::replicated(w.pg_of("o0"))],
        repair,
        deep,
    };
    let message = incoming(Outgoing::new(&command, 0, Features::PACIFIC));
    let primary = w.acting("o0")[0];
    w.with(primary, |o, ctx| o.on_mon_message(ctx, message));
}

/// Asks for a scrub, and for what it says in the end.
fn scrub(w: &mut World, deep: bool, repair: bool) -> ScrubRecord {
    let before = record(w).last_stamp;
    ask(w, deep, repair);
    w.run_until("scrubbed", SECOND * 20, |w| record(w).last_stamp > before);
    w.run_for(SECOND / 10);
    record(w)
}

fn sum(w: &World, of: fn(&osd::Counters) -> u64) -> u64 {
    w.nodes.iter().flatten().map(|node| of(node.osd.counters())).sum()
}

fn errors_found(w: &World) -> u64 {
    sum(w, |counters| counters.scrub_errors)
}

fn end(w: &mut World) {
    w.make_metadata_absent(0);
    w.assert_copies_equal();
}

#[test]
fn a_clean_pg_is_scrubbed_and_everybody_remembers() {
    for percent in [0, 50, 80] {
        let mut w = world(percent, |_| {});
        let created = record(&w);
        assert!(created.last_stamp == created.last_deep_stamp && created.last_stamp.sec > 0);
        let light = scrub(&mut w, false, false);
        assert!(light.last_stamp > created.last_stamp && light.last_deep_stamp == created.last_deep_stamp);
        let deep = scrub(&mut w, true, false);
        assert_eq!((deep.last_deep_stamp, deep.errors()), (deep.last_stamp, 0));
        assert_eq!(deep.last_deep.version, deep.last.version);
        for node in w.nodes.iter().flatten() {
            assert_eq!(node.osd.pg(w.pg_of("o0")).unwrap().info.history.scrub, deep);
        }
        w.kill_all();
        w.settle();
        assert_eq!(record(&w), deep, "after a restart");
        end(&mut w);
    }
}

#[test]
fn data_that_one_device_has_lost_is_found_by_a_deep_scrub_and_repaired() {
    for (percent, position) in [(0, 0), (0, 1), (50, 0), (50, 2)] {
        let mut w = world(percent, |_| {});
        let osd = w.acting("o0")[position];
        let clone = clone_of(&w, WITH_CLONES, 1);
        for id in [w.object_id("o9"), w.object_id("o69"), clone] {
            damage(&mut w, osd, &id);
        }
        assert_eq!((scrub(&mut w, false, false).errors(), errors_found(&w)), (0, 0));
        let record = scrub(&mut w, true, false);
        assert_eq!((record.errors(), errors_found(&w)), (0, 3));
        assert_eq!(w.nodes[osd].as_ref().unwrap().osd.counters().repaired, 3);
        assert_eq!(state(&w), pg_state::ACTIVE | pg_state::CLEAN);
        assert!(
            w.mon.log.iter().any(|line| line.ends_with("deep-scrub 3 errors, 3 fixed")),
            "{:?}",
            w.mon.log
        );
        end(&mut w);
    }
}

#[test]
fn what_one_device_has_lost_or_changed_is_found_by_a_light_scrub_and_repaired() {
    for (percent, position) in [(0, 0), (0, 1), (50, 0), (50, 2)] {
        let mut w = world(percent, |_| {});
        let osd = w.acting("o0")[position];
        let (head, clone) = (w.object_id(WITH_CLONES), clone_of(&w, WITH_CLONES, 2));
        let (lost, cut) = (w.object_id("o7"), w.object_id("o12"));
        change(&mut w, osd, Mutation::Remove(lost));
        change(&mut w, osd, Mutation::Remove(clone));
        change(&mut w, osd, Mutation::Truncate { id: cut, size: 3 });
        let attrs = [("usome", Bytes::from_static(b"thing"))];
        change(&mut w, osd, Mutation::SetXattrs { id: head, attrs: attrs.into_iter().collect() });
        // What is gone comes back. What was changed, no device has: that is for an operator to decide.
        let record = scrub(&mut w, false, false);
        assert_eq!((record.errors(), errors_found(&w)), (2, 4), "{:?}", w.mon.log);
        assert!(state(&w) & pg_state::INCONSISTENT != 0);
        assert_eq!(scrub(&mut w, true, true).errors(), 0);
        assert_eq!(state(&w), pg_state::ACTIVE | pg_state::CLEAN);
        end(&mut w);
    }
}

#[test]
fn what_all_devices_have_lost_stays_reported() {
    let mut w = world(0, |_| {});
    let (damaged, clone) = (w.object_id("o30"), clone_of(&w, WITH_CLONES, 1));
    for osd in w.acting("o0") {
        damage(&mut w, osd, &damaged);
        change(&mut w, osd, Mutation::Remove(clone.clone()));
    }
    let found = scrub(&mut w, true, true);
    assert_eq!((found.shallow_errors, found.deep_errors), (1, 3));
    assert!(state(&w) & pg_state::INCONSISTENT != 0);
    // A light scrub does not look at what the deep one has found.
    assert_eq!(scrub(&mut w, false, false).deep_errors, 3);
    w.kill_all();
    w.run_until("active", SECOND * 20, |w| state(w) & pg_state::ACTIVE != 0);
    assert!(state(&w) & pg_state::INCONSISTENT != 0, "after a restart");
    w.write("o30", b"anew");
    w.run_for(SECOND);
    assert_eq!(scrub(&mut w, true, false).deep_errors, 0);
}

#[test]
fn an_operator_may_want_to_see_before_anything_is_repaired() {
    let mut w = world(0, |config| config.scrub_auto_repair = false);
    let replica = w.acting("o0")[1];
    let damaged = w.object_id("o30");
    damage(&mut w, replica, &damaged);
    assert_eq!(scrub(&mut w, true, false).errors(), 1);
    assert!(state(&w) & pg_state::INCONSISTENT != 0);
    let pg = w.pg_of("o0");
    let primary = w.nodes[w.acting("o0")[0]].as_ref().unwrap();
    let findings = primary.osd.pg(pg).unwrap().scrub().findings().unwrap();
    assert_eq!(findings[0].object.name, "o30");
    assert_eq!(findings[0].copies[0].0.0, replica as i32);
    assert_eq!(scrub(&mut w, true, true).errors(), 0);
    assert_eq!(state(&w), pg_state::ACTIVE | pg_state::CLEAN);
    end(&mut w);
}

#[test]
fn intact_copies_that_differ_are_for_an_operator_to_judge_and_all_of_an_omap_is_compared() {
    for position in [0, 1] {
        let mut w = world(50, |_| {});
        let key = |i: u32| Bytes::from(format!("k{i:04}"));
        let entry = |i| (key(i), Bytes::from(vec![i as u8; if i % 100 == 0 { 300_000 } else { 10 }]));
        let entries: BTreeMap<Bytes, Bytes> = (0..700).map(entry).collect();
        let mut e = Encoder::plain();
        e.put(&entries);
        let tid = w.submit(0, "o3", vec![OsdOp::new(OpCode::OMAPSETVALS, [0; 28], e.finish())]);
        assert_eq!(w.wait(tid).result, 0);
        w.run_for(SECOND);
        assert_eq!(scrub(&mut w, true, false).errors(), 0);
        let osd = w.acting("o0")[position];
        let entries = [(key(699), Bytes::from_static(b"otherwise!"))].into();
        let id = w.object_id("o3");
        change(&mut w, osd, Mutation::SetOmap { id, entries });
        assert_eq!(scrub(&mut w, true, false).deep_errors, 1);
        let told = format!("shard {osd} soid ");
        assert!(w.mon.log.iter().any(|line| line.contains(&told) && line.ends_with("omap_digest mismatch")));
        assert_eq!(scrub(&mut w, true, true).errors(), 0);
        end(&mut w);
    }
}

#[test]
fn the_cluster_log_names_some_of_many_objects() {
    let mut w = world(0, |_| {});
    let osd = w.acting("o0")[1];
    for i in 10..70 {
        let id = w.object_id(&format!("o{i}"));
        change(&mut w, osd, Mutation::Remove(id));
    }
    assert_eq!((scrub(&mut w, false, false).errors(), errors_found(&w)), (0, 60));
    let count = |what: &str| w.mon.log.iter().filter(|line| line.ends_with(what)).count();
    assert_eq!(count(" : missing"), 50, "{:?}", w.mon.log);
    assert_eq!((count("scrub 10 more objects with errors"), count("scrub 60 errors, 60 fixed")), (1, 1));
    end(&mut w);
}

#[test]
fn a_ghost_stays_reported_until_the_object_is_written_and_deleted_again() {
    let mut w = world(50, |_| {});
    let ghost = w.object_id("o5");
    let remove = |w: &mut World| {
        let tid = w.submit(0, "o5", vec![delete()]);
        assert_eq!(w.wait(tid).result, 0);
        w.run_for(SECOND);
    };
    remove(&mut w);
    let replica = w.acting("o0")[1];
    let attrs = [("_old", Bytes::from_static(b"thing"))].into_iter().collect();
    change(&mut w, replica, Mutation::Touch(ghost.clone()));
    change(&mut w, replica, Mutation::SetXattrs { id: ghost, attrs });
    assert_eq!(scrub(&mut w, true, true).errors(), 1);
    assert!(w.mon.log.iter().any(|line| line.ends_with("unexpected object")), "{:?}", w.mon.log);
    w.write("o5", b"anew");
    remove(&mut w);
    assert_eq!(scrub(&mut w, true, false).errors(), 0);
    end(&mut w);
}

#[test]
fn flags_stop_the_schedule_and_not_an_operator() {
    let mut w = world(0, crate::often_scrubbed);
    let of = |w: &World| (sum(w, |c| c.scrubs), sum(w, |c| c.deep_scrubs));
    w.run_for(SECOND * 3);
    assert!(of(&w).0 > of(&w).1 && of(&w).1 > 0, "both kinds by themselves: {:?}", of(&w));
    w.change_map(|inc| inc.new_flags = Some(OsdMapFlags::NOSCRUB | OsdMapFlags::NODEEP_SCRUB));
    w.run_for(SECOND);
    let before = of(&w);
    w.run_for(SECOND * 3);
    assert_eq!(of(&w), before);
    scrub(&mut w, true, false);
    assert_eq!(of(&w), (before.0 + 1, before.1 + 1));
    w.change_map(|inc| inc.new_flags = Some(OsdMapFlags::NODEEP_SCRUB));
    w.run_for(SECOND * 3);
    assert!(of(&w).0 > before.0 + 2);
    assert_eq!(of(&w).1, before.1 + 1);
}

/// Writes that never cease, to objects with clones and without.
fn write_through_scrubs(w: &mut World) {
    let mut under: Vec<SnapId> = Vec::new();
    for round in 0..600u64 {
        if round % 40 == 0 {
            under.insert(0, SnapId(round + 10));
        }
        for i in 0..8 {
            let name = format!("o{}", (round + i) % 12);
            w.submit_at(0, &name, vec![append(&round.to_le_bytes())], SnapId::HEAD, &under);
        }
        w.run_for(Duration::from_millis(7));
    }
    w.run_until("all answered", SECOND * 20, |w| w.clients[0].pending.is_empty());
}

#[test]
fn scrubs_find_nothing_wrong_while_objects_are_written() {
    for percent in [0, 30] {
        let mut w = world(percent, crate::often_scrubbed);
        write_through_scrubs(&mut w);
        assert!(sum(&w, |counters| counters.scrubs) > 3);
        end(&mut w);
    }
}

#[test]
fn scrubs_that_do_not_hold_writes_back_are_caught() {
    let broken = || {
        // Where nothing has to be waited for, all look at the same moment of a link's time.
        let mut w = world(30, |config| {
            crate::often_scrubbed(config);
            config.sabotage.scrub_without_hold = true;
        });
        write_through_scrubs(&mut w);
    };
    assert!(std::panic::catch_unwind(AssertUnwindSafe(broken)).is_err(), "not noticed");
}
