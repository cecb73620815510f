use super::harness::Cluster;
use wire::messages::*;
use wire::types::*;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn pool_life() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    let created =
        c.command(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":"16","format":"json"}"#);
    assert_eq!((created.result, created.status.as_str()), (0, "pool 'p' created"));
    let again = c.command(client, r#"{"prefix":"osd pool create","pool":"p"}"#);
    assert_eq!((again.result, again.status.as_str()), (0, "pool 'p' already exists"));
    assert_eq!(c.ok(client, r#"{"prefix":"osd lspools"}"#), "1 p\n");
    assert_eq!(c.ok(client, r#"{"prefix":"osd pool get","pool":"p","var":"size"}"#), "size: 2\n");
    let set = c.command(client, r#"{"prefix":"osd pool set","pool":"p","var":"size","val":"3"}"#);
    assert_eq!((set.result, set.status.as_str()), (0, "set pool 1 size to 3"));
    assert_eq!(c.mon.osd_map().pool(PoolId(1)).unwrap().size, 3);
    assert_eq!(
        c.command(client, r#"{"prefix":"osd pool set","pool":"p","var":"pg_num","val":"32"}"#).result,
        -95
    );
    assert_eq!(
        c.command(client, r#"{"prefix":"osd pool set","pool":"p","var":"min_size","val":"4"}"#).result,
        -22
    );
    let renamed = c.command(client, r#"{"prefix":"osd pool rename","srcpool":"p","destpool":"q"}"#);
    assert_eq!(renamed.status, "pool 'p' renamed to 'q'");
    assert_eq!(c.command(client, r#"{"prefix":"osd pool rm","pool":"q","pool2":"q"}"#).result, -1);
    let removed = c.command(
        client,
        r#"{"prefix":"osd pool rm","pool":"q","pool2":"q","yes_i_really_really_mean_it":true}"#,
    );
    assert_eq!((removed.result, removed.status.as_str()), (0, "pool 'q' removed"));
    assert!(c.mon.osd_map().pools.is_empty());
    // Numbers of pools are not used again.
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p"}"#);
    assert_eq!(c.ok(client, r#"{"prefix":"osd lspools"}"#), "2 p\n");
}

#[test]
fn refused_pools() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    for (args, errno) in [
        (r#""pg_num":100000"#, -34),
        (r#""pg_num":2000"#, -34),
        (r#""pg_num":-3"#, -22),
        (r#""pg_num":8,"pgp_num":16"#, -34),
        (r#""pool_type":"erasure""#, -95),
        (r#""rule":"nosuch""#, -2),
        (r#""size":1"#, -1),
        (r#""size":11"#, -22),
    ] {
        let answer = c.command(client, &format!(r#"{{"prefix":"osd pool create","pool":"p",{args}}}"#));
        assert_eq!(answer.result, errno, "{args}: {}", answer.status);
    }
    assert_eq!(c.command(client, r#"{"prefix":"osd pool create","pool":""}"#).result, -22);
    assert!(c.mon.osd_map().pools.is_empty());
}

#[test]
fn deletion_needs_the_clusters_consent() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p"}"#);
    c.ok(client, r#"{"prefix":"config set","who":"mon","name":"mon_allow_pool_delete","value":"false"}"#);
    let rm = r#"{"prefix":"osd pool rm","pool":"p","pool2":"p","yes_i_really_really_mean_it":true}"#;
    assert_eq!(c.command(client, rm).result, -1);
    c.ok(client, r#"{"prefix":"config set","who":"mon","name":"mon_allow_pool_delete","value":"1"}"#);
    c.ok(client, r#"{"prefix":"osd pool set","pool":"p","var":"nodelete","val":"true"}"#);
    assert_eq!(c.command(client, rm).result, -1);
    c.ok(client, r#"{"prefix":"osd pool set","pool":"p","var":"nodelete","val":"false"}"#);
    assert_eq!(c.command(client, rm).result, 0);
}

#[test]
fn pool_operations_by_message() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    let fsid = c.mon.fsid();
    let op = |op: PoolOpKind, pool: i64, snap: u64, name: &str| MPoolOp {
        fsid,
        pool: PoolId(pool),
        op,
        snap: SnapId(snap),
        name: name.into(),
        crush_rule: -1,
    };
    let run = |c: &mut Cluster, message: &MPoolOp| {
        c.send(client, message);
        c.take::<MPoolOpReply>(client).remove(0)
    };
    let reply = run(&mut c, &op(PoolOpKind::Create, 0, 0, "p"));
    assert_eq!((reply.code, reply.epoch), (0, c.mon.osd_map().epoch));
    assert_eq!(run(&mut c, &op(PoolOpKind::Create, 0, 0, "p")).code, 0, "asked again");
    for wanted in 2u64..5 {
        let reply = run(&mut c, &op(PoolOpKind::CreateUnmanagedSnap, 1, 0, ""));
        assert_eq!(reply.data.as_deref(), Some(&wanted.to_le_bytes()[..]));
    }
    assert_eq!(run(&mut c, &op(PoolOpKind::DeleteUnmanagedSnap, 1, 2, "")).code, 0);
    assert!(c.mon.osd_map().removed_snaps_queue[&PoolId(1)].contains(2));
    assert_eq!(run(&mut c, &op(PoolOpKind::CreateSnap, 1, 0, "s")).code, -22, "the other kind of snapshots");
    assert_eq!(run(&mut c, &op(PoolOpKind::Delete, 1, 0, "")).code, 0);
    assert_eq!(run(&mut c, &op(PoolOpKind::Delete, 1, 0, "")).code, 0);
    assert!(c.mon.osd_map().pools.is_empty());
}

#[test]
fn status_follows_reports() {
    let (mut c, s) = Cluster::with_osds(2);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let status = json(&c.ok(client, r#"{"prefix":"status","format":"json"}"#));
    assert_eq!(status["pgmap"]["pgs_by_state"][0]["state_name"], "unknown");
    let report = c.pg_report(PgId { pool: PoolId(1), seed: 0 }, &[0, 1], 5);
    c.report(s[0], 0, vec![report]);
    c.report(s[1], 1, vec![]);
    c.run(1);
    let status = json(&c.ok(client, r#"{"prefix":"status","format":"json"}"#));
    assert_eq!(status["pgmap"]["pgs_by_state"][0]["state_name"], "active+clean");
    assert_eq!(status["pgmap"]["num_objects"], 5);
    assert_eq!(status["osdmap"]["num_up_osds"], 2);
    assert_eq!(status["health"]["status"], "HEALTH_WARN");
    assert!(status["health"]["checks"]["POOL_APP_NOT_ENABLED"].is_object());
    c.ok(client, r#"{"prefix":"osd pool application enable","pool":"p","app":"rados"}"#);
    assert_eq!(c.ok(client, r#"{"prefix":"health"}"#), "HEALTH_OK\n");
    let stat = c.ok(client, r#"{"prefix":"pg stat"}"#);
    assert_eq!(stat, "1 pgs: 1 active+clean; 20 KiB data, 2 GiB used, 38 GiB / 40 GiB avail\n");
    let df = json(&c.ok(client, r#"{"prefix":"df","format":"json"}"#));
    assert_eq!(df["pools"][0]["stats"]["stored"], 20480);
    assert_eq!(df["pools"][0]["stats"]["bytes_used"], 40960);
    c.send(client, &MStatfs { fsid: c.mon.fsid(), data_pool: None });
    assert_eq!(c.take::<MStatfsReply>(client)[0].objects, 5);
    c.send(client, &MGetPoolStats { fsid: c.mon.fsid(), pools: vec!["p".into(), "q".into()] });
    let stats = c.take::<MGetPoolStatsReply>(client).remove(0).stats;
    assert_eq!(stats.keys().collect::<Vec<_>>(), ["p"]);
}

#[test]
fn health_tells_what_is_down_and_mutes_it() {
    let (mut c, s) = Cluster::with_osds(3);
    let client = c.client();
    let up_from = c.mon.osd_map().info(OsdId(1)).unwrap().up_from;
    c.send(s[1], &MOsdGoingDown { osd: OsdId(1), up_from });
    c.run(1);
    let detail = c.ok(client, r#"{"prefix":"health","detail":"detail"}"#);
    assert_eq!(
        detail,
        "HEALTH_WARN 1 osds down\n[WRN] OSD_DOWN: 1 osds down\n    osd.1 (root=default,host=box) is down\n"
    );
    c.ok(client, r#"{"prefix":"health mute","code":"OSD_DOWN","ttl":"1h"}"#);
    assert_eq!(c.ok(client, r#"{"prefix":"health"}"#), "HEALTH_OK (muted: OSD_DOWN)\n");
    assert_eq!(c.command(client, r#"{"prefix":"health mute","code":"OSD_FULL"}"#).result, -2);
    assert!(
        c.ok(client, r#"{"prefix":"log last","num":50}"#)
            .contains("Health check failed: 1 osds down (OSD_DOWN)")
    );
}

#[test]
fn quotas_set_and_clear_the_full_flag() {
    let (mut c, s) = Cluster::with_osds(2);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    c.ok(client, r#"{"prefix":"osd pool set-quota","pool":"p","field":"max_objects","val":"10"}"#);
    let pg = PgId { pool: PoolId(1), seed: 0 };
    for (objects, full) in [(5, false), (10, true), (3, false)] {
        c.run(1);
        let report = c.pg_report(pg, &[0, 1], objects);
        c.report(s[0], 0, vec![report]);
        c.run(2);
        let flags = c.mon.osd_map().pool(PoolId(1)).unwrap().flags;
        assert_eq!(flags.contains(wire::maps::PoolFlags::FULL_QUOTA), full, "{objects}");
    }
    let quota = c.ok(client, r#"{"prefix":"osd pool get-quota","pool":"p"}"#);
    assert!(quota.contains("max objects: 10 objects  (current num objects: 3 objects)"), "{quota}");
}

#[test]
fn full_osds_flag_themselves_and_their_pools_until_they_have_room() {
    use wire::maps::{OsdState, PoolFlags};
    let (mut c, s) = Cluster::with_osds(2);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let levels = [
        (97, OsdState::FULL, PoolFlags::FULL, "POOL_FULL"),
        (92, OsdState::BACKFILLFULL, PoolFlags::BACKFILLFULL, "POOL_BACKFILLFULL"),
        (86, OsdState::NEARFULL, PoolFlags::NEARFULL, "POOL_NEARFULL"),
        (10, OsdState::default(), PoolFlags::default(), "HEALTH_OK"),
    ];
    for (percent, bit, flag, code) in levels {
        let available = (20_u64 << 30) * (100 - percent) / 100;
        c.report_space(s[0], 0, available, Vec::new());
        c.report(s[1], 1, Vec::new());
        c.run(3);
        let map = c.mon.osd_map();
        let all = OsdState::FULL | OsdState::BACKFILLFULL | OsdState::NEARFULL;
        assert_eq!(map.osd_state[0] & all, bit, "{percent} %");
        assert_eq!(map.osd_state[1] & all, OsdState::default());
        let all = PoolFlags::FULL | PoolFlags::BACKFILLFULL | PoolFlags::NEARFULL;
        assert_eq!(map.pool(PoolId(1)).unwrap().flags & all, flag, "{percent} %");
        if code != "HEALTH_OK" {
            let health = c.ok(client, r#"{"prefix":"health","detail":"detail"}"#);
            assert!(health.contains(code), "{health}");
        }
    }
}

#[test]
fn client_rates_appear_under_load() {
    let (mut c, s) = Cluster::with_osds(2);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    for i in 0..6 {
        let report = c.pg_report(PgId { pool: PoolId(1), seed: 0 }, &[0, 1], i * 100);
        c.report(s[0], 0, vec![report]);
        c.run(1);
    }
    let status = json(&c.ok(client, r#"{"prefix":"status","format":"json"}"#));
    let ops = status["pgmap"]["write_op_per_sec"].as_u64().unwrap();
    assert!((70..=110).contains(&ops), "{ops}");
    assert!(c.ok(client, r#"{"prefix":"status"}"#).contains("  io:\n    client:"));
}

#[test]
fn flags_and_weights() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    assert_eq!(c.command(client, r#"{"prefix":"osd set","key":"pause"}"#).status, "pauserd,pausewr is set");
    assert_eq!(
        c.command(client, r#"{"prefix":"osd unset","key":"pause"}"#).status,
        "pauserd,pausewr is unset"
    );
    let out = c.command(client, r#"{"prefix":"osd out","ids":["osd.0","7"]}"#);
    assert_eq!(out.status, "osd.7 does not exist. marked out osd.0. ");
    assert_eq!(c.command(client, r#"{"prefix":"osd in","ids":["0"]}"#).status, "marked in osd.0. ");
    let reweight = c.command(client, r#"{"prefix":"osd reweight","id":"osd.0","weight":0.5}"#);
    assert_eq!(reweight.status, "reweighted osd.0 to 0.5 (8000)");
    assert_eq!(c.command(client, r#"{"prefix":"osd reweight","id":99,"weight":1}"#).result, -2);
}

#[test]
fn crush_commands() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    let create = r#"{"prefix":"osd crush rule create-replicated","name":"r2","root":"default","type":"osd"}"#;
    assert_eq!(c.command(client, create).result, 0);
    assert_eq!(c.command(client, create).status, "rule r2 already exists");
    assert_eq!(c.ok(client, r#"{"prefix":"osd crush rule ls"}"#), "replicated_rule\nr2\n");
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"rule":"r2"}"#);
    assert_eq!(c.command(client, r#"{"prefix":"osd crush rule rm","name":"r2"}"#).result, -16);
    let bytes = c.mon.osd_map().crush.clone();
    assert_eq!(c.command_with(client, r#"{"prefix":"osd setcrushmap"}"#, bytes).result, 0);
    let hostile = bytes::Bytes::from_static(b"\0\0\x01\0\xff\xff\xff\x7f");
    assert_eq!(c.command_with(client, r#"{"prefix":"osd setcrushmap"}"#, hostile).result, -22);
    assert_eq!(c.command_with(client, r#"{"prefix":"osd setcrushmap"}"#, bytes::Bytes::new()).result, -22);
    let tree = c.ok(client, r#"{"prefix":"osd tree"}"#);
    assert!(tree.contains("host box") && tree.contains("osd.2"), "{tree}");
}

#[test]
fn maps_of_the_past_are_available() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    let newest = c.mon.osd_map().epoch.0;
    for epoch in 1..=newest {
        let dump =
            json(&c.ok(client, &format!(r#"{{"prefix":"osd dump","epoch":{epoch},"format":"json"}}"#)));
        assert_eq!(dump["epoch"], epoch);
        assert_eq!(c.command(client, &format!(r#"{{"prefix":"osd getmap","epoch":{epoch}}}"#)).result, 0);
    }
    let future = newest + 1;
    assert_eq!(c.command(client, &format!(r#"{{"prefix":"osd dump","epoch":{future}}}"#)).result, -2);
}

#[test]
fn commands_that_change_things_are_audited() {
    let (mut c, _) = Cluster::with_osds(1);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd set","key":"noout"}"#);
    let log = c.ok(client, r#"{"prefix":"log last","num":5,"channel":"audit"}"#);
    assert!(log.contains("entity='client.admin'") && log.contains("osd set"), "{log}");
}

#[test]
fn tell_answers_about_this_daemon() {
    let mut c = Cluster::new();
    let client = c.client();
    let fsid = c.mon.fsid();
    let cmd = vec![r#"{"prefix":"version","format":"json"}"#.to_string()];
    c.send(client, &MCommand { fsid, cmd, input: bytes::Bytes::new() });
    let reply = c.take::<MCommandReply>(client).remove(0);
    assert_eq!(reply.result, 0);
    assert_eq!(json(std::str::from_utf8(&reply.output).unwrap())["version"], "16.2.15");
}

#[test]
fn a_pg_is_a_warning_only_when_it_stays_undersized() {
    let (mut c, s) = Cluster::with_osds(3);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
    let pg = PgId { pool: PoolId(1), seed: 0 };
    let report = c.pg_report(pg, &[0, 1], 0);
    c.report(s[0], 0, vec![report]);
    c.run(300);
    let mut report = c.pg_report(pg, &[0], 0);
    report.state = pg_state::ACTIVE | pg_state::UNDERSIZED;
    c.report(s[0], 0, vec![report]);
    c.run(30);
    assert_eq!(c.ok(client, r#"{"prefix":"health"}"#), "HEALTH_OK\n");
    c.run(40);
    let health = c.ok(client, r#"{"prefix":"health"}"#);
    assert_eq!(health, "HEALTH_WARN Degraded data redundancy: 1 pg undersized\n");
}

#[test]
fn scrubs_are_sent_to_primaries_and_their_errors_are_health() {
    let (mut c, s) = Cluster::with_osds(2);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":4}"#);
    c.ok(client, r#"{"prefix":"osd pool application enable","pool":"p","app":"rados"}"#);
    s.iter().for_each(|osd| drop(c.take::<MOsdScrub>(*osd)));
    let answer = c.command(client, r#"{"prefix":"pg deep-scrub","pgid":"1.2"}"#);
    let told: Vec<Vec<MOsdScrub>> = s.iter().map(|osd| c.take(*osd)).collect();
    let primary = told.iter().position(|scrubs| !scrubs.is_empty()).unwrap();
    assert_eq!(
        (answer.result, answer.status),
        (0, format!("instructing pg 1.2 on osd.{primary} to deep-scrub"))
    );
    let pg = PgId { pool: PoolId(1), seed: 2 };
    let scrub = &told[primary][0];
    assert_eq!((scrub.deep, scrub.repair, &scrub.pgs[..]), (true, false, &[SpgId::replicated(pg)][..]));
    assert_eq!(c.command(client, r#"{"prefix":"pg repair","pgid":"1.4"}"#).result, -2);
    let all = c.command(client, r#"{"prefix":"osd repair","who":"all"}"#);
    assert_eq!(all.status, "instructed osd(s) 0,1 to repair");
    let told: Vec<MOsdScrub> = s.iter().flat_map(|osd| c.take::<MOsdScrub>(*osd)).collect();
    assert_eq!(told.iter().map(|scrub| scrub.pgs.len()).sum::<usize>(), 4);
    assert!(told.iter().all(|scrub| scrub.repair));
    assert_eq!(c.command(client, r#"{"prefix":"osd scrub","who":"7"}"#).result, -11);
    let mut report = c.pg_report(pg, &[primary as i32], 10);
    report.state |= pg_state::INCONSISTENT;
    (report.shallow_scrub_errors, report.deep_scrub_errors) = (1, 2);
    c.report(s[primary], primary as i32, vec![report]);
    let health = c.ok(client, r#"{"prefix":"health"}"#);
    assert!(health.starts_with("HEALTH_ERR") && health.contains("3 scrub errors"), "{health}");
    assert!(health.contains("Possible data damage: 1 pg inconsistent"), "{health}");
}
