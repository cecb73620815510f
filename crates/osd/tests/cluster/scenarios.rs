//! One claim each.

use crate::harness::*;
use base::Duration;
use std::collections::BTreeMap;
use wire::messages::OsdOp;
use wire::messages::osd_op::OpCode;

#[test]
fn fresh_pool_becomes_clean_within_a_moment() {
    let mut w = World::new(1, 3, 3, 2, 16);
    w.run_until("clean", Duration::from_millis(100), World::all_clean);
}

#[test]
fn what_was_written_is_read() {
    let mut w = World::new(2, 3, 2, 1, 8);
    for i in 0..20 {
        w.write(&format!("o{i}"), format!("data {i}").as_bytes());
    }
    for i in 0..20 {
        assert_eq!(w.read(&format!("o{i}")).unwrap(), format!("data {i}"));
    }
    assert_eq!(w.read("missing"), None);
    w.assert_copies_equal();
}

#[test]
fn failover_keeps_what_was_acknowledged_and_takes_new_writes() {
    let mut w = World::new(3, 3, 3, 2, 4);
    w.write("a", b"one");
    let primary = w.acting("a")[0];
    w.kill(primary);
    assert_eq!(w.read("a").unwrap(), "one");
    w.write("a", b"two");
    assert_eq!(w.read("a").unwrap(), "two");
    w.start(primary);
    w.settle();
    assert_eq!(w.read("a").unwrap(), "two");
    w.assert_copies_equal();
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn killed_primary_is_replaced_within_a_fraction_of_a_second() {
    let mut w = World::new(4, 3, 3, 2, 4);
    w.settle();
    w.write("a", b"one");
    w.kill(w.acting("a")[0]);
    let before = w.now;
    w.write("a", b"two");
    assert!(w.now.since(before) < Duration::from_millis(150), "{:?}", w.now.since(before));
}

#[test]
fn an_osd_that_missed_little_catches_up_from_the_log() {
    let mut w = World::new(5, 3, 3, 2, 1);
    w.settle();
    for i in 0..30 {
        w.write(&format!("o{i}"), b"before");
    }
    let replica = w.acting("o0")[2];
    w.kill(replica);
    w.write("o7", b"after");
    let gone = w.submit(0, "o8", vec![delete()]);
    assert_eq!(w.wait(gone).result, 0);
    w.start(replica);
    w.settle();
    w.assert_copies_equal();
    let recovered: u64 = w
        .nodes
        .iter()
        .flatten()
        .map(|n| n.osd.pg(w.pg_of("o0")).map_or(0, |p| p.stats.recovered_objects))
        .sum();
    assert_eq!(recovered, 1, "only what changed moves");
}

#[test]
fn an_osd_that_lost_its_data_is_filled_again() {
    let mut w = World::tweaked(6, 3, 3, 2, 1, |config| {
        config.log_entries_max = 5;
        config.log_trim_batch = 1;
        config.recovery_chunk_len = 1000;
    });
    w.settle();
    for i in 0..80 {
        w.write(&format!("o{i}"), &vec![i as u8; 100 * i]);
    }
    let replica = w.acting("o0")[1];
    w.kill(replica);
    w.wipe(replica);
    w.start(replica);
    // Writes go on meanwhile.
    for i in 0..80 {
        w.write(&format!("o{}", (i * 7) % 80), &vec![i as u8; 50 * i]);
    }
    w.settle();
    w.assert_copies_equal();
}

#[test]
fn a_primary_without_data_lets_others_act_until_it_is_filled() {
    let mut w = World::tweaked(7, 3, 2, 1, 1, |config| {
        config.log_entries_max = 5;
        config.log_trim_batch = 1;
    });
    w.settle();
    for i in 0..40 {
        w.write(&format!("o{i}"), b"data");
    }
    let primary = w.acting("o0")[0];
    w.kill(primary);
    w.wipe(primary);
    w.start(primary);
    for i in 0..40 {
        assert_eq!(w.read(&format!("o{i}")).unwrap(), "data");
    }
    w.settle();
    assert_eq!(w.acting("o0")[0], primary);
    w.assert_copies_equal();
}

#[test]
fn an_unacknowledged_write_of_a_lost_primary_is_undone() {
    let mut w = World::new(8, 3, 3, 2, 1);
    w.settle();
    w.write("a", b"one");
    w.write("b", b"one");
    let acting = w.acting("a");
    // Only the primary has the write: its replicas cannot hear it.
    w.cut(acting[0], acting[1]);
    w.cut(acting[0], acting[2]);
    w.cut(acting[0], MON);
    let tid = w.submit(0, "a", vec![write_full(b"lost")]);
    w.run_for(Duration::from_millis(50));
    assert!(!w.clients[0].replies.contains_key(&tid));
    // The client gives up before anyone else can take its write.
    w.clients[0].pending.remove(&tid);
    w.run_until("the others noticed", 5 * SECOND, |w| w.acting("a").len() == 2);
    assert_eq!(w.read("a").unwrap(), "one");
    w.write("b", b"two");
    w.heal();
    w.settle();
    assert_eq!(w.read("a").unwrap(), "one");
    assert_eq!(w.read("b").unwrap(), "two");
    w.assert_copies_equal();
}

#[test]
fn below_min_size_requests_wait() {
    let mut w = World::new(9, 3, 3, 2, 1);
    w.settle();
    w.write("a", b"one");
    let acting = w.acting("a");
    w.kill(acting[1]);
    w.kill(acting[2]);
    w.run_until("noticed", 5 * SECOND, |w| w.acting("a").len() == 1);
    let write = w.submit(0, "a", vec![write_full(b"two")]);
    let read = w.submit(0, "a", vec![read_all()]);
    w.run_for(3 * SECOND);
    assert!(!w.clients[0].replies.contains_key(&write) && !w.clients[0].replies.contains_key(&read));
    w.start(acting[1]);
    assert_eq!(w.wait(write).result, 0);
    assert_eq!(w.wait(read).ops[0].outdata, "two");
}

#[test]
fn a_write_resent_after_failover_takes_effect_once_and_gets_the_same_answer() {
    for seed in 0..20 {
        let mut w = World::new(100 + seed, 3, 3, 2, 1);
        w.settle();
        w.write("a", b"");
        let tid = w.submit(0, "a", vec![append(b"x")]);
        // Killed somewhere between the request and its answer.
        let pause = Duration::from_micros(w.random.below(1500));
        w.run_for(pause);
        w.kill(w.acting("a")[0]);
        let reply = w.wait(tid);
        assert_eq!(reply.result, 0);
        assert_ne!(reply.user_version, 0);
        assert_eq!(w.read("a").unwrap(), "x", "seed {seed}");
    }
}

#[test]
fn a_failed_write_is_remembered_too() {
    let mut w = World::new(10, 3, 3, 2, 1);
    w.settle();
    let tid = w.submit(0, "a", vec![delete()]);
    w.run_for(Duration::from_micros(400));
    w.resend(0);
    let first = w.wait(tid);
    assert_eq!(first.result, -2);
    assert_ne!(first.replay_version, wire::types::EVersion::ZERO);
}

/// The old primary, cut off from all but a client that knows no newer map.
fn read_from_a_deposed_primary(broken: bool) -> Option<String> {
    let sabotage = |config: &mut osd::OsdConfig| config.sabotage.ignore_lease = true;
    let mut w = World::tweaked(11, 3, 3, 2, 1, if broken { sabotage } else { |_| {} });
    w.clients = vec![Client::default(), Client::default()];
    w.settle();
    w.write("a", b"one");
    let primary = w.acting("a")[0];
    w.clients[1].epoch = w.mon.map.epoch;
    w.clients[1].frozen = true;
    for other in (0..3).filter(|o| *o != primary) {
        w.cut(primary, other);
    }
    w.cut(primary, MON);
    w.run_until("deposed", 5 * SECOND, |w| w.acting("a").first() != Some(&primary));
    // The other client knows, so that its write does not reach the old primary.
    w.run_for(Duration::from_millis(20));
    w.write("a", b"two");
    let tid = w.submit(1, "a", vec![read_all()]);
    w.run_for(SECOND);
    let reply = w.clients[1].replies.get(&tid)?;
    Some(String::from_utf8_lossy(&reply.1.ops[0].outdata).to_string())
}

#[test]
fn a_deposed_primary_does_not_serve_the_past() {
    assert_eq!(read_from_a_deposed_primary(false), None);
    assert_eq!(read_from_a_deposed_primary(true).as_deref(), Some("one"), "the test sees it without leases");
}

#[test]
fn a_paused_network_to_the_monitor_alone_does_not_stop_service() {
    let mut w = World::new(12, 3, 3, 2, 4);
    w.settle();
    for osd in 0..3 {
        w.cut(osd, MON);
    }
    w.run_for(5 * SECOND);
    w.write("a", b"one");
    assert_eq!(w.read("a").unwrap(), "one");
}

#[test]
fn down_while_the_only_up_to_date_copy_is_away() {
    let mut w = World::new(13, 2, 2, 1, 1);
    w.settle();
    w.write("a", b"one");
    let acting = w.acting("a");
    w.kill(acting[1]);
    w.write("a", b"two");
    w.kill(acting[0]);
    w.start(acting[1]);
    let read = w.submit(0, "a", vec![read_all()]);
    w.run_for(5 * SECOND);
    assert!(!w.clients[0].replies.contains_key(&read), "the stale copy must not answer");
    assert!(w.describe().contains("down"), "{}", w.describe());
    w.start(acting[0]);
    assert_eq!(w.wait(read).ops[0].outdata, "two");
}

#[test]
fn a_marked_down_osd_that_lives_comes_back_by_itself() {
    let mut w = World::new(14, 3, 3, 2, 4);
    w.settle();
    w.change_map(|inc| {
        inc.new_state.insert(wire::types::OsdId(1), wire::maps::OsdState::UP);
    });
    w.run_for(Duration::from_millis(20));
    w.run_until("up again", 5 * SECOND, |w| w.mon.map.is_up(wire::types::OsdId(1)));
    w.settle();
}

#[test]
fn pgs_of_a_deleted_pool_are_removed() {
    let mut w = World::new(15, 3, 3, 2, 4);
    w.settle();
    for i in 0..50 {
        w.write(&format!("o{i}"), b"data");
    }
    w.change_map(|inc| {
        inc.old_pools.insert(POOL);
    });
    w.run_for(3 * SECOND);
    use store::{CollId, ObjectStore};
    for node in w.nodes.iter().flatten() {
        assert_eq!(node.osd.store().collections(), [CollId::Meta]);
    }
}

#[test]
fn a_pool_older_than_every_osd_is_found_and_made() {
    // The pool's creation is in no incremental that an OSD saw: it starts from a full map.
    let mut w = World::new(16, 3, 2, 1, 4);
    for osd in 0..3 {
        w.kill(osd);
        w.wipe(osd);
    }
    for osd in 0..3 {
        w.start(osd);
    }
    w.settle();
    w.write("a", b"one");
    assert_eq!(w.read("a").unwrap(), "one");
}

#[test]
fn power_loss_of_everything_keeps_what_was_acknowledged() {
    let mut w = World::new(17, 3, 3, 2, 4);
    for round in 0..10 {
        for i in 0..10 {
            w.write(&format!("o{i}"), format!("{round}").as_bytes());
        }
        w.kill_all();
        for i in 0..10 {
            assert_eq!(w.read(&format!("o{i}")).unwrap(), format!("{round}"));
        }
    }
    w.assert_copies_equal();
}

#[test]
fn every_log_entry_is_counted_where_it_is_kept() {
    let mut w = World::new(9, 3, 3, 2, 8);
    w.settle();
    for i in 0..50 {
        w.write(&format!("o{i}"), b"data");
    }
    w.settle();
    for node in w.nodes.iter().flatten() {
        let pools = BTreeMap::from(node.osd.mempools());
        let log = pools["osd_pglog"];
        assert_eq!(log.items, 50, "each write is in one log here");
        assert!((50 * 40..50 * 400).contains(&log.bytes), "{log:?}");
    }
}

/// Short values before long ones: a part has as many as there is room for, and not as many as there may be.
#[test]
fn long_omap_values_are_recovered_in_parts() {
    const CHUNK: usize = 64 << 10;
    let mut w = World::tweaked(13, 3, 3, 2, 1, |config| config.recovery_chunk_len = CHUNK as u64);
    w.settle();
    for n in 0..40 {
        let len = if n < 20 { 10 } else { CHUNK / 3 };
        let mut e = wire::Encoder::plain();
        e.count(1);
        e.string(&format!("{n:02}"));
        e.blob(&vec![n; len]);
        let set = OsdOp::new(OpCode::OMAPSETVALS, [0; 28], e.finish());
        let tid = w.submit(0, "o", vec![set]);
        assert_eq!(w.wait(tid).result, 0);
    }
    let replica = w.acting("o")[1];
    w.kill(replica);
    w.wipe(replica);
    w.run_for(SECOND);
    w.longest_message = 0;
    w.start(replica);
    w.run_for(SECOND);
    w.settle();
    w.assert_copies_equal();
    assert!((CHUNK / 2..CHUNK + 4096).contains(&w.longest_message), "{} bytes", w.longest_message);
}
