//! What WATCH and NOTIFY record and ask for.

use super::*;
use crate::exec::watch::{WatchInfo, WatchKey, Watching, end_watches};
use wire::messages::osd_op::{NotifyArgs, WatchArgs};

const UNWATCH: u8 = 0;
const LEGACY: u8 = 1;
const WATCH: u8 = 3;
const RECONNECT: u8 = 5;
const PING: u8 = 7;

fn watch(cookie: u64, op_code: u8) -> OsdOp {
    let args = WatchArgs { cookie, op: op_code, timeout_s: 7, ..WatchArgs::default() };
    op(OpCode::WATCH, args.into_args(), b"")
}

fn notify(cookie: u64, payload: &[u8]) -> OsdOp {
    let indata = encoded(|e| {
        e.u32(1);
        e.u32(9);
        e.blob(payload);
    });
    op(OpCode::NOTIFY, NotifyArgs { cookie }.into_args(), &indata)
}

fn key(cookie: u64) -> WatchKey {
    WatchKey { cookie, client: EntityName::client(1) }
}

fn watching(outcome: &Outcome) -> Watching {
    outcome.watch.as_deref().cloned().unwrap_or_default()
}

#[test]
fn a_watch_is_recorded_once_and_moves_no_user_version() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(vec![watch(5, WATCH)]).result, -2, "no object");
    bench.run(vec![write_full(b"x")]);
    let user_version = bench.info().unwrap().user_version;
    let outcome = bench.run(vec![watch(5, WATCH)]);
    assert_eq!(outcome.result, 0);
    let effects = watching(&outcome).effects;
    assert_eq!(effects.connects.len(), 1);
    assert!(effects.connects[0].pings);
    let info = bench.info().unwrap();
    let recorded = WatchInfo { timeout_s: 7, addr: wire::types::EntityAddr::BLANK };
    assert_eq!(info.watchers.into_iter().collect::<Vec<_>>(), [(key(5), recorded)]);
    assert_eq!(info.user_version, user_version);

    let again = bench.run(vec![watch(5, LEGACY)]);
    assert!(matches!(again.effect, Effect::ErrorOnly), "nothing changes, yet it is a write");
    assert!(!watching(&again).effects.connects[0].pings);
    assert_eq!(watching(&again).before.len(), 1);
}

#[test]
fn only_a_recorded_watch_is_reconnected_pinged_and_ended() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"x")]);
    assert_eq!(bench.run(vec![watch(5, RECONNECT)]).result, -107);
    assert_eq!(bench.run(vec![watch(5, PING)]).result, -107);
    let idle = bench.run(vec![watch(5, UNWATCH)]);
    assert_eq!((idle.result, watching(&idle)), (0, Watching::default()));
    bench.run(vec![watch(5, WATCH)]);
    assert_eq!(bench.run(vec![watch(5, RECONNECT)]).result, 0);
    // The bench has no connections.
    let ping = bench.run(vec![watch(5, PING)]);
    assert_eq!(ping.result, -110);
    assert!(matches!(ping.effect, Effect::None), "a ping is answered like a read");
    let end = bench.run(vec![watch(5, UNWATCH)]);
    assert_eq!(watching(&end).effects.disconnects.len(), 1);
    assert!(!watching(&end).effects.disconnects[0].tell);
    assert!(bench.info().unwrap().watchers.is_empty());
}

#[test]
fn removal_tells_watchers_and_a_failed_message_tells_nobody() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"x")]);
    bench.run(vec![watch(5, WATCH)]);
    bench.run(vec![watch(6, WATCH)]);
    let failed = bench.run(vec![bare(OpCode::DELETE), get_xattr("none")]);
    assert!(failed.result < 0);
    assert!(watching(&failed).effects.is_empty());
    let gone = bench.run(vec![bare(OpCode::DELETE)]);
    let told: Vec<_> = watching(&gone).effects.disconnects.iter().map(|d| (d.key, d.tell)).collect();
    assert_eq!(told, [(key(5), true), (key(6), true)]);
}

/// Ends take effect before beginnings: else it would be connected, but not recorded, and never end.
#[test]
fn a_watch_that_ends_in_the_message_of_its_beginning_is_not_connected() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"x")]);
    for end in [watch(5, UNWATCH), bare(OpCode::DELETE)] {
        let outcome = bench.run(vec![watch(6, WATCH), watch(5, WATCH), end]);
        let begun: Vec<_> = watching(&outcome).effects.connects.iter().map(|c| c.key).collect();
        let recorded: Vec<_> = bench.info().map_or(vec![], |info| info.watchers.into_keys().collect());
        assert_eq!((outcome.result, begun), (0, recorded));
    }
    bench.run(vec![write_full(b"x"), watch(5, WATCH)]);
    let effects = watching(&bench.run(vec![watch(5, UNWATCH), watch(5, WATCH)])).effects;
    assert_eq!((effects.disconnects.len(), effects.connects.len()), (1, 1));
}

#[test]
fn writes_and_copies_keep_watchers() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"x")]);
    bench.run(vec![watch(5, WATCH)]);
    bench.run(vec![write_full(b"y")]);
    assert_eq!(bench.info().unwrap().watchers.len(), 1);
}

#[test]
fn notifications_are_numbered_and_carry_what_was_sent() {
    let mut bench = Bench::new();
    assert_eq!(bench.run(vec![notify(3, b"hello")]).result, -2, "no object");
    bench.run(vec![write_full(b"x")]);
    let outcome = bench.run(vec![notify(3, b"hello"), notify(4, b"world")]);
    let ids: Vec<u64> =
        outcome.ops.iter().map(|op| u64::from_le_bytes(op.outdata[..].try_into().unwrap())).collect();
    assert_eq!(ids, [0, 1]);
    let notifies = watching(&outcome).effects.notifies;
    assert_eq!((notifies[0].id, notifies[0].cookie, notifies[0].timeout_s), (0, 3, 9));
    assert_eq!(&notifies[1].payload[..], b"world");

    let nonsense = bench.run(vec![op(OpCode::NOTIFY, [0; 28], b"\x01")]);
    let notifies = watching(&nonsense).effects.notifies;
    assert_eq!((notifies[0].timeout_s, notifies[0].payload.len()), (30, 0));
}

#[test]
fn acknowledgements_come_in_two_forms() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"x")]);
    let full = encoded(|e| {
        e.u64(70);
        e.u64(5);
        e.blob(b"reply");
    });
    let outcome = bench.run(vec![op(OpCode::NOTIFY_ACK, [0; 28], &full)]);
    let acks = watching(&outcome).effects.acks;
    assert_eq!((acks[0].notify_id, acks[0].cookie, &acks[0].reply[..]), (70, Some(5), &b"reply"[..]));
    let old = WatchArgs { cookie: 70, ..WatchArgs::default() };
    let outcome = bench.run(vec![op(OpCode::NOTIFY_ACK, old.into_args(), b"")]);
    let acks = watching(&outcome).effects.acks;
    assert_eq!((acks[0].notify_id, acks[0].cookie), (70, None));
}

#[test]
fn bounds_are_refused_clearly() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"x")]);
    let long = vec![0; limits::NOTIFY_LEN_MAX + 1];
    assert_eq!(bench.run(vec![notify(1, &long)]).result, -90);
    for first in (0..limits::WATCHERS_MAX as u64).step_by(1024) {
        let ops = (first..first + 1024).map(|cookie| watch(cookie, WATCH)).collect();
        assert_eq!(bench.run(ops).result, 0);
    }
    assert_eq!(bench.run(vec![watch(u64::MAX, WATCH)]).result, -87);
    assert_eq!(bench.run(vec![watch(1, WATCH)]).result, 0, "known ones may come again");
}

#[test]
fn the_osd_ends_watches_by_a_change_of_the_record_alone() {
    let mut bench = Bench::new();
    bench.run(vec![write_full(b"x")]);
    bench.run(vec![watch(5, WATCH)]);
    bench.run(vec![watch(6, WATCH)]);
    let before = bench.info().unwrap();
    let version = EVersion::new(Epoch(9), 100);
    let end = |bench: &Bench, key| {
        end_watches(&bench.store, id("o"), &[key], version, &Fetched::default()).unwrap()
    };
    let outcome = end(&bench, key(5));
    assert!(watching(&outcome).effects.disconnects[0].tell);
    bench.store.queue(Transaction { ops: change(&outcome).mutations.clone() }).unwrap();
    while bench.store.poll_event().is_some() {}
    let after = bench.info().unwrap();
    assert_eq!(after.watchers.keys().copied().collect::<Vec<_>>(), [key(6)]);
    assert_eq!(
        (after.version, after.prior_version, after.user_version, after.mtime),
        (version, before.version, before.user_version, before.mtime)
    );
    let again = end(&bench, key(5));
    assert!(matches!(again.effect, Effect::None), "gone already");
    assert!(watching(&again).effects.is_empty(), "that write tells it, once it is everywhere");
}
