use super::harness::{Cluster, MapHolder};
use wire::maps::{OsdMap, OsdState};
use wire::messages::*;
use wire::types::*;

fn failure(c: &Cluster, reporter: i32, failed: i32, kind: FailureKind) -> MOsdFailure {
    let map = c.mon.osd_map();
    MOsdFailure {
        fsid: c.mon.fsid(),
        reporter: OsdId(reporter),
        failed: OsdId(failed),
        up_from: map.info(OsdId(failed)).unwrap().up_from,
        epoch: map.epoch,
        kind,
    }
}

const SILENT: FailureKind = FailureKind::Silent { for_ms: 25_000 };

#[test]
fn booted_osd_is_up_in_and_has_its_place() {
    let (c, _) = Cluster::with_osds(3);
    let map = c.mon.osd_map();
    assert_eq!((map.num_up_osds(), map.num_in_osds(), map.max_osd), (3, 3, 3));
    let crush = crush::CrushMap::decode(&map.crush).unwrap();
    assert_eq!(crush.item_class(2), Some("ssd"));
    assert_eq!(crush.parent(2).and_then(|host| crush.name(host)), Some("box"));
}

#[test]
fn one_refused_connection_is_proof() {
    let (mut c, s) = Cluster::with_osds(3);
    let report = failure(&c, 0, 1, FailureKind::Refused);
    c.send(s[0], &report);
    c.run(1);
    let map = c.mon.osd_map();
    assert!(map.is_down(OsdId(1)) && map.is_in(OsdId(1)));
    assert_eq!(map.xinfo(OsdId(1)).unwrap().dead_epoch, map.info(OsdId(1)).unwrap().down_at);
}

#[test]
fn silence_takes_two_witnesses_and_time() {
    let (mut c, s) = Cluster::with_osds(3);
    let report = failure(&c, 0, 1, SILENT);
    c.send(s[0], &report);
    c.run(2);
    assert!(c.mon.osd_map().is_up(OsdId(1)), "one witness of two possible");
    let report = failure(&c, 2, 1, FailureKind::Silent { for_ms: 1000 });
    c.send(s[2], &report);
    c.run(1);
    assert!(c.mon.osd_map().is_down(OsdId(1)));
}

#[test]
fn the_only_other_osd_is_witness_enough() {
    let (mut c, s) = Cluster::with_osds(2);
    let report = failure(&c, 0, 1, FailureKind::Silent { for_ms: 5000 });
    c.send(s[0], &report);
    c.run(10);
    assert!(c.mon.osd_map().is_up(OsdId(1)), "within the grace");
    c.run(10);
    assert!(c.mon.osd_map().is_down(OsdId(1)));
}

#[test]
fn a_withdrawn_report_does_not_count() {
    let (mut c, s) = Cluster::with_osds(3);
    for (reporter, kind) in [(0, SILENT), (0, FailureKind::Recovered), (2, SILENT)] {
        let report = failure(&c, reporter, 1, kind);
        c.send(s[usize::try_from(reporter).unwrap()], &report);
    }
    c.run(60);
    assert!(c.mon.osd_map().is_up(OsdId(1)));
}

#[test]
fn reports_of_earlier_lives_by_strangers_or_against_oneself_are_ignored() {
    let (mut c, s) = Cluster::with_osds(3);
    let mut old = failure(&c, 0, 1, FailureKind::Refused);
    old.up_from = Epoch(1);
    c.send(s[0], &old);
    let forged = failure(&c, 2, 1, FailureKind::Refused);
    c.send(s[0], &forged);
    let own = failure(&c, 1, 1, FailureKind::Refused);
    c.send(s[1], &own);
    let mut foreign = failure(&c, 0, 1, FailureKind::Refused);
    foreign.fsid = Uuid::ZERO;
    c.send(s[0], &foreign);
    let client = c.client();
    let by_client = failure(&c, 0, 1, FailureKind::Refused);
    c.send(client, &by_client);
    c.run(1);
    assert!(c.mon.osd_map().is_up(OsdId(1)));
}

#[test]
fn nodown_holds_osds_up() {
    let (mut c, s) = Cluster::with_osds(3);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd set","key":"nodown"}"#);
    let report = failure(&c, 0, 1, FailureKind::Refused);
    c.send(s[0], &report);
    c.run(1);
    assert!(c.mon.osd_map().is_up(OsdId(1)));
}

#[test]
fn an_osd_down_for_long_is_out_and_comes_back_in_with_its_weight() {
    let (mut c, s) = Cluster::with_osds(4);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd reweight","id":1,"weight":0.5}"#);
    let report = failure(&c, 0, 1, FailureKind::Refused);
    c.send(s[0], &report);
    c.run(599);
    assert!(c.mon.osd_map().is_in(OsdId(1)));
    c.run(5);
    let map = c.mon.osd_map();
    assert!(map.is_out(OsdId(1)) && map.state(OsdId(1)).contains(OsdState::AUTOOUT));
    c.boot(1, 2);
    let map = c.mon.osd_map();
    assert!(map.is_up(OsdId(1)));
    assert_eq!(map.weight(OsdId(1)), OsdMap::WEIGHT_IN / 2);
    assert!(!map.state(OsdId(1)).contains(OsdState::AUTOOUT));
}

#[test]
fn an_osd_taken_out_by_hand_stays_out() {
    let (mut c, s) = Cluster::with_osds(3);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd out","ids":["1"]}"#);
    let report = failure(&c, 0, 1, FailureKind::Refused);
    c.send(s[0], &report);
    c.run(1);
    c.boot(1, 2);
    let map = c.mon.osd_map();
    assert!(map.is_up(OsdId(1)) && map.is_out(OsdId(1)));
}

#[test]
fn noout_keeps_data_where_it_is() {
    let (mut c, s) = Cluster::with_osds(4);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd set","key":"noout"}"#);
    let report = failure(&c, 0, 1, FailureKind::Refused);
    c.send(s[0], &report);
    c.run(2000);
    assert!(c.mon.osd_map().is_in(OsdId(1)));
}

#[test]
fn a_new_life_ends_the_old_one_first() {
    let (mut c, _) = Cluster::with_osds(2);
    let client = c.client();
    let mut holder = MapHolder::default();
    c.subscribe(client, "osdmap", 0, false);
    holder.take_in(c.take(client));
    let before = c.mon.osd_map().clone();
    c.boot(1, 2);
    let map = c.mon.osd_map().clone();
    assert!(map.is_up(OsdId(1)));
    assert_eq!(map.client_addrs(OsdId(1)), Some(&Cluster::addrs(1, 2)));
    let info = map.info(OsdId(1)).unwrap();
    assert!(info.down_at > before.epoch && info.up_from > info.down_at);
    holder.take_in(c.take(client));
    assert_eq!(holder.map, map);
}

#[test]
fn a_repeated_boot_changes_nothing() {
    let (mut c, s) = Cluster::with_osds(2);
    let epoch = c.mon.osd_map().epoch;
    let boot = c.boot_message(1, 1);
    c.send(s[1], &boot);
    c.run(1);
    assert_eq!(c.mon.osd_map().epoch, epoch);
}

#[test]
fn another_store_under_a_known_id_is_refused() {
    let (mut c, _) = Cluster::with_osds(2);
    let session = c.osd_session(1);
    let mut boot = c.boot_message(1, 2);
    boot.uuid = Uuid::from_random(9, 9);
    c.send(session, &boot);
    c.run(1);
    assert_eq!(c.mon.osd_map().client_addrs(OsdId(1)), Some(&Cluster::addrs(1, 1)));
}

#[test]
fn an_osd_that_says_goodbye_is_down_at_once() {
    let (mut c, s) = Cluster::with_osds(2);
    let up_from = c.mon.osd_map().info(OsdId(1)).unwrap().up_from;
    c.send(s[1], &MOsdGoingDown { osd: OsdId(1), up_from });
    c.run(1);
    assert!(c.mon.osd_map().is_down(OsdId(1)));
}

#[test]
fn up_thru_and_pg_temp_are_recorded() {
    let (mut c, s) = Cluster::with_osds(3);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let epoch = c.mon.osd_map().epoch;
    c.send(s[0], &MOsdAlive { osd: OsdId(0), epoch, want: epoch });
    c.run(1);
    assert!(c.mon.osd_map().info(OsdId(0)).unwrap().up_thru >= epoch);

    let pg = PgId { pool: PoolId(1), seed: 3 };
    let set = |osds: Vec<OsdId>| MOsdPgTemp { osd: OsdId(0), epoch, pgs: [(pg, osds)].into() };
    c.send(s[0], &set(vec![OsdId(2), OsdId(1)]));
    c.run(1);
    assert_eq!(c.mon.osd_map().pg_temp[&pg], [OsdId(2), OsdId(1)]);
    c.send(s[0], &set(vec![]));
    c.run(1);
    assert!(c.mon.osd_map().pg_temp.is_empty());

    let nowhere = PgId { pool: PoolId(1), seed: 800 };
    c.send(s[0], &MOsdPgTemp { osd: OsdId(0), epoch, pgs: [(nowhere, vec![OsdId(1)])].into() });
    c.run(1);
    assert!(c.mon.osd_map().pg_temp.is_empty());
}

#[test]
fn epochs_that_everybody_is_past_are_trimmed_and_others_kept() {
    let (mut c, s) = Cluster::with_osds(2);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let flip = |c: &mut Cluster, n: usize| {
        for i in 0..n {
            let op = if i % 2 == 0 { "set" } else { "unset" };
            c.ok(client, &format!(r#"{{"prefix":"osd {op}","key":"noout"}}"#));
        }
    };
    flip(&mut c, 600);
    let oldest = |c: &mut Cluster| {
        c.send(client, &MMonGetVersion { handle: 1, what: "osdmap".into() });
        c.take::<MMonGetVersionReply>(client)[0].oldest
    };
    assert_eq!(oldest(&mut c), 1, "a PG is unknown, so all history is kept");
    let report = c.pg_report(PgId { pool: PoolId(1), seed: 0 }, &[0, 1], 0);
    c.report(s[0], 0, vec![report]);
    flip(&mut c, 10);
    let (oldest, newest) = (oldest(&mut c), u64::from(c.mon.osd_map().epoch.0));
    assert!(oldest > 1 && newest - oldest >= 500, "{oldest}..{newest}");
    // One who is behind all of that starts from the oldest full map.
    let mut holder = MapHolder::default();
    c.subscribe(client, "osdmap", 2, true);
    holder.take_in(c.take(client));
    assert_eq!(holder.map, *c.mon.osd_map());
}
