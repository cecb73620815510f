use super::harness::{Cluster, MapHolder};
use crate::{MemMapStore, Mon, MonError};
use wire::features::Features;
use wire::messages::*;
use wire::types::*;

#[test]
fn bootstrap_gets_monmap_and_config_even_when_there_is_little_to_say() {
    let mut c = Cluster::new();
    let client = c.client();
    c.send(client, &MMonGetMap);
    let what = ["config", "monmap"].map(|w| (w.to_string(), Subscription { start: 0, once: false })).into();
    c.send(client, &MMonSubscribe { what, hostname: "box".into() });
    assert_eq!(c.take::<MMonMap>(client).len(), 2);
    assert_eq!(c.take::<MConfig>(client).len(), 1);
    c.subscribe(client, "mgrmap", 0, false);
    assert_eq!(c.take::<MMgrMap>(client).len(), 1);
    c.subscribe(client, "nonsense", 0, false);
    assert!(c.sent.is_empty() && c.closed.is_empty());
}

#[test]
fn subscriber_follows_every_epoch_and_ends_with_the_same_map() {
    let mut c = Cluster::new();
    let client = c.client();
    let mut holder = MapHolder::default();
    c.subscribe(client, "osdmap", 0, false);
    for osd in 0..3 {
        c.boot(osd, 1);
    }
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    c.ok(client, r#"{"prefix":"osd set","key":"noout"}"#);
    holder.take_in(c.take(client));
    assert_eq!(holder.map, *c.mon.osd_map());
    assert_eq!(holder.map.num_up_osds(), 3);
}

#[test]
fn one_time_request_for_a_future_epoch_waits_for_it() {
    let mut c = Cluster::new();
    let client = c.client();
    let next = u64::from(c.mon.osd_map().epoch.0) + 1;
    c.subscribe(client, "osdmap", next, true);
    assert!(c.take::<MOsdMap>(client).is_empty());
    c.boot(0, 1);
    assert_eq!(c.take::<MOsdMap>(client).len(), 1);
    c.boot(1, 1);
    assert!(c.take::<MOsdMap>(client).is_empty(), "it was asked for once");
}

#[test]
fn a_peer_far_behind_catches_up_in_pieces() {
    let (mut c, _) = Cluster::with_osds(1);
    let client = c.client();
    let mut holder = MapHolder::default();
    c.subscribe(client, "osdmap", 0, true);
    holder.take_in(c.take(client));
    let admin = c.client();
    for i in 0..100 {
        let op = if i % 2 == 0 { "set" } else { "unset" };
        c.ok(admin, &format!(r#"{{"prefix":"osd {op}","key":"noout"}}"#));
    }
    c.subscribe(client, "osdmap", u64::from(holder.map.epoch.0) + 1, true);
    let messages = c.take::<MOsdMap>(client);
    assert!(messages.len() > 1);
    holder.take_in(messages);
    assert_eq!(holder.map, *c.mon.osd_map());
}

#[test]
fn global_ids_are_never_given_twice_not_even_across_restarts() {
    let mut c = Cluster::new();
    let mut last = c.mon.allocate_global_id().unwrap();
    for _ in 0..3 {
        for _ in 0..1500 {
            let id = c.mon.allocate_global_id().unwrap();
            assert!(id > last);
            last = id;
        }
        c = c.restart();
    }
}

#[test]
fn everything_durable_survives_a_restart() {
    let (mut c, _) = Cluster::with_osds(3);
    let client = c.client();
    c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    c.ok(client, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"3"}"#);
    c.ok(client, r#"{"prefix":"config-key set","key":"a/b","val":"v"}"#);
    c.ok(client, r#"{"prefix":"log","logtext":["hello"]}"#);
    let map = c.mon.osd_map().clone();
    let mut c = c.restart();
    assert_eq!(*c.mon.osd_map(), map);
    let client = c.client();
    assert_eq!(c.ok(client, r#"{"prefix":"config get","who":"osd.0","key":"osd_max_backfills"}"#), "3\n");
    assert_eq!(c.ok(client, r#"{"prefix":"config-key get","key":"a/b"}"#), "v");
    assert!(c.ok(client, r#"{"prefix":"log last"}"#).contains("hello"));
    assert!(c.ok(client, r#"{"prefix":"osd metadata","id":0}"#).contains("\"hostname\": \"box\""));
}

#[test]
fn a_store_is_made_once_and_opened_only_when_made() {
    assert_eq!(Mon::open(MemMapStore::default()).err(), Some(MonError::Empty));
    let c = Cluster::new();
    let addrs = EntityAddrVec::one(EntityAddr::msgr2("127.0.0.1:1".parse().unwrap(), 0));
    let options = crate::MkfsOptions::new(Uuid::ZERO, "a", addrs, super::harness::START);
    assert_eq!(Mon::create(c.mon.store().clone(), &options).err(), Some(MonError::Exists));
}

#[test]
fn peers_that_cannot_read_the_maps_are_turned_away() {
    let mut c = Cluster::new();
    let old = c.open_with(EntityName::client(1), "admin", Features(Features::MSG_ADDR2.0));
    assert_eq!(c.closed, [old]);
}

#[test]
fn options_reach_sessions_when_they_change() {
    let mut c = Cluster::new();
    let osd = c.osd_session(3);
    c.subscribe(osd, "config", 0, false);
    c.take::<MConfig>(osd);
    let client = c.client();
    c.ok(client, r#"{"prefix":"config set","who":"osd.3","name":"osd_max_backfills","value":"7"}"#);
    let sent = c.take::<MConfig>(osd);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].options["osd_max_backfills"], "7");
    c.ok(client, r#"{"prefix":"config set","who":"osd.4","name":"osd_max_backfills","value":"8"}"#);
    assert!(c.take::<MConfig>(osd).is_empty(), "it concerns somebody else");
}

#[test]
fn log_subscribers_see_what_is_logged() {
    let mut c = Cluster::new();
    let (watcher, client) = (c.client(), c.client());
    c.subscribe(watcher, "log-info", 0, false);
    c.ok(client, r#"{"prefix":"log","logtext":["hello","world"]}"#);
    let texts: Vec<String> =
        c.take::<MLog>(watcher).into_iter().flat_map(|m| m.entries).map(|e| e.text).collect();
    assert!(texts.contains(&"hello world".to_string()), "{texts:?}");
}

#[test]
fn versions_of_maps_are_told() {
    let (mut c, _) = Cluster::with_osds(1);
    let client = c.client();
    c.send(client, &MMonGetVersion { handle: 5, what: "osdmap".into() });
    let replies = c.take::<MMonGetVersionReply>(client);
    let newest = u64::from(c.mon.osd_map().epoch.0);
    assert_eq!(replies, [MMonGetVersionReply { handle: 5, newest, oldest: 1 }]);
}

#[test]
fn a_reconnecting_client_keeps_its_id_but_nobody_picks_one() {
    let mut c = Cluster::new();
    let id = c.mon.allocate_global_id().unwrap();
    assert_eq!(c.mon.renew_global_id(Some(id)).unwrap(), id);
    c = c.restart();
    assert_eq!(c.mon.renew_global_id(Some(id)).unwrap(), id, "not even a restart changes it");
    for invented in [0, 1, id.0 + 1_000_000, u64::MAX] {
        let given = c.mon.renew_global_id(Some(GlobalId(invented))).unwrap();
        assert!(given.0 > id.0 && given.0 != invented);
    }
    assert!(c.mon.renew_global_id(None).unwrap().0 > id.0);
}
