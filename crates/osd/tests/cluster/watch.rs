//! Watches and notifications across OSDs' lives, and clients that are fenced.

use crate::harness::*;
use base::{Duration, Random, WallTime};
use bytes::Bytes;
use osd::exec::ObjectInfo;
use wire::codec::{Decoder, Encoder};
use wire::messages::osd_op::{ExtentArgs, NotifyArgs, OpCode, WatchArgs};
use wire::messages::{MWatchNotify, OsdOp, WatchOpcode};

const UNWATCH: u8 = 0;
const WATCH: u8 = 3;
const RECONNECT: u8 = 5;
const PING: u8 = 7;

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn watch(cookie: u64, op: u8) -> OsdOp {
    let args = WatchArgs { cookie, op, timeout_s: 10, ..WatchArgs::default() };
    OsdOp::new(OpCode::WATCH, args.into_args(), Bytes::new())
}

fn notify(cookie: u64, timeout_s: u32) -> OsdOp {
    let mut e = Encoder::plain();
    e.u32(1);
    e.u32(timeout_s);
    e.blob(b"news");
    OsdOp::new(OpCode::NOTIFY, NotifyArgs { cookie }.into_args(), e.finish())
}

fn ack(told: &MWatchNotify) -> OsdOp {
    let mut e = Encoder::plain();
    e.u64(told.notify_id);
    e.u64(told.cookie);
    e.blob(b"heard");
    OsdOp::new(OpCode::NOTIFY_ACK, [0; 28], e.finish())
}

/// Client and cookie.
type Watchers = Vec<(u64, u64)>;

/// Who answered, and who did not in time.
fn completion(told: &MWatchNotify) -> (Watchers, Watchers) {
    assert_eq!(told.opcode, WatchOpcode::NotifyComplete);
    let mut d = Decoder::plain(told.data.clone());
    let replies = (0..d.u32().unwrap())
        .map(|_| {
            let who = (d.u64().unwrap(), d.u64().unwrap());
            assert_eq!(d.blob().unwrap(), "heard");
            who
        })
        .collect();
    let late = (0..d.u32().unwrap()).map(|_| (d.u64().unwrap(), d.u64().unwrap())).collect();
    assert_eq!(d.remaining(), 0);
    (replies, late)
}

trait Watching {
    fn ask(&mut self, client: usize, op: OsdOp) -> i32;
    fn told(&mut self, client: usize, opcode: WatchOpcode) -> MWatchNotify;
    fn watchers(&self, osd: usize) -> usize;
}

impl Watching for World {
    #[track_caller]
    fn ask(&mut self, client: usize, op: OsdOp) -> i32 {
        let tid = self.submit(client, "o", vec![op]);
        self.wait(tid).result
    }

    #[track_caller]
    fn told(&mut self, client: usize, opcode: WatchOpcode) -> MWatchNotify {
        let at = |w: &World| w.clients[client].told.iter().position(|m| m.opcode == opcode);
        self.run_until("word of a watch", second(60), |w| at(w).is_some());
        let at = at(self).unwrap();
        self.clients[client].told.remove(at)
    }

    /// As the OSD's store has them.
    fn watchers(&self, osd: usize) -> usize {
        let store = self.nodes[osd].as_ref().unwrap().osd.store().inner();
        ObjectInfo::load(store, &self.object_id("o")).unwrap().map_or(0, |info| info.watchers.len())
    }
}

fn world(seed: u64, clients: usize) -> World {
    let mut w = World::new(seed, 3, 2, 1, 1);
    w.settle();
    w.clients.resize_with(clients, Client::default);
    w.write("o", b"x");
    w
}

#[test]
fn a_notification_is_complete_when_all_have_answered() {
    let mut w = world(61, 3);
    assert_eq!(w.ask(1, watch(11, WATCH)), 0);
    assert_eq!(w.ask(2, watch(12, WATCH)), 0);
    assert_eq!(w.ask(0, notify(5, 30)), 0);
    let first = w.told(1, WatchOpcode::Notify);
    assert_eq!((first.cookie, &first.payload[..], first.notifier_gid), (11, &b"news"[..], 100));
    w.ask(1, ack(&first));
    w.run_for(second(1));
    assert!(w.clients[0].told.is_empty(), "one has not answered");
    let second = w.told(2, WatchOpcode::Notify);
    w.ask(2, ack(&second));
    let done = w.told(0, WatchOpcode::NotifyComplete);
    assert_eq!((done.cookie, done.return_code, done.notify_id), (5, 0, first.notify_id));
    assert_eq!(completion(&done), (vec![(101, 11), (102, 12)], vec![]));
}

#[test]
fn without_watchers_it_is_complete_at_once_and_late_ones_are_named() {
    let mut w = world(62, 2);
    w.ask(0, notify(5, 30));
    assert_eq!(completion(&w.told(0, WatchOpcode::NotifyComplete)), (vec![], vec![]));
    w.ask(1, watch(11, WATCH));
    let began = w.now;
    w.ask(0, notify(6, 3));
    let done = w.told(0, WatchOpcode::NotifyComplete);
    assert!(w.now.since(began) >= second(3) && w.now.since(began) < second(4));
    assert_eq!(done.return_code, -110);
    assert_eq!(completion(&done), (vec![], vec![(101, 11)]));
}

#[test]
fn pings_keep_a_watch_and_silence_ends_it_on_every_copy() {
    let mut w = world(63, 2);
    w.ask(1, watch(11, WATCH));
    for _ in 0..5 {
        w.run_for(second(5));
        assert_eq!(w.ask(1, watch(11, PING)), 0);
    }
    w.disconnect(1);
    w.ask(0, notify(5, 60));
    w.run_for(second(5));
    assert!(w.clients[0].told.is_empty());
    // Its end is no answer, but nobody is waited for any more.
    assert_eq!(completion(&w.told(0, WatchOpcode::NotifyComplete)), (vec![], vec![]));
    w.run_for(second(1));
    for osd in w.acting("o") {
        assert_eq!(w.watchers(osd), 0);
    }
    assert_eq!(w.ask(1, watch(11, PING)), -107);
    assert_eq!(w.ask(1, watch(11, RECONNECT)), -107);
    w.assert_copies_equal();
}

#[test]
fn who_connects_again_gets_what_it_missed() {
    let mut w = world(64, 2);
    w.ask(1, watch(11, WATCH));
    w.disconnect(1);
    w.ask(0, notify(5, 30));
    w.run_for(second(1));
    assert!(w.clients[1].told.is_empty());
    assert_eq!(w.ask(1, watch(11, PING)), -110, "it must connect first");
    assert_eq!(w.ask(1, watch(11, RECONNECT)), 0);
    let told = w.told(1, WatchOpcode::Notify);
    w.ask(1, ack(&told));
    assert_eq!(completion(&w.told(0, WatchOpcode::NotifyComplete)).0, [(101, 11)]);
    assert_eq!(w.ask(1, watch(11, UNWATCH)), 0);
    assert!(w.clients[1].told.is_empty(), "who leaves is not told that it has gone");
}

/// Its time passes while its primary may not serve: it connects in time, and the notification was sent in
/// time, but both wait.
#[test]
fn who_connects_in_time_but_has_to_wait_misses_nothing() {
    let mut w = world(69, 2);
    assert_eq!(w.ask(1, watch(11, WATCH)), 0);
    w.run_for(second(7));
    lose_lease(&mut w);
    w.run_for(second(2));
    w.disconnect(1);
    let notification = w.submit(0, "o", vec![notify(5, 30)]);
    w.run_for(Duration::from_millis(10));
    let reconnection = w.submit(1, "o", vec![watch(11, RECONNECT)]);
    w.run_for(second(2));
    assert!(!w.clients[0].replies.contains_key(&notification) && w.clients[0].told.is_empty());
    w.heal();
    assert_eq!((w.wait(notification).result, w.wait(reconnection).result), (0, 0));
    let told = w.told(1, WatchOpcode::Notify);
    w.ask(1, ack(&told));
    assert_eq!(completion(&w.told(0, WatchOpcode::NotifyComplete)), (vec![(101, 11)], vec![]));
}

/// The next primary has to know that the watch is over: it would let it connect again.
#[test]
fn a_silent_watch_is_waited_for_until_its_end_is_recorded_everywhere() {
    for seed in 0..20 {
        let mut w = world(seed, 2);
        assert_eq!(w.ask(1, watch(11, WATCH)), 0);
        w.disconnect(1);
        w.run_for(second(8));
        lose_lease(&mut w);
        w.run_for(Duration::from_millis(1500));
        // Before the watch's end, which waits too.
        w.submit(0, "o", vec![notify(5, 30)]);
        w.run_for(second(1));
        w.heal();
        let done = w.told(0, WatchOpcode::NotifyComplete);
        assert_eq!(completion(&done), (vec![], vec![]));
        for osd in w.acting("o") {
            assert_eq!(w.watchers(osd), 0, "seed {seed}: osd.{osd}");
        }
    }
}

/// Two fences, and a replica that is cut off: the first fence's end is under way when the second finds that
/// there is nothing left to end.
#[test]
fn a_watchs_end_that_is_under_way_is_not_anticipated_by_another() {
    let mut w = world(70, 2);
    assert_eq!(w.ask(1, watch(11, WATCH)), 0);
    w.ask(0, notify(5, 30));
    w.told(1, WatchOpcode::Notify);
    lose_lease(&mut w);
    for fenced in [1, 2] {
        begin_fence(&mut w, fenced);
        w.run_for(Duration::from_millis(100));
    }
    let acting = w.acting("o");
    assert_eq!([w.watchers(acting[0]), w.watchers(acting[1])], [0, 1]);
    assert!(w.clients[0].told.is_empty(), "the next primary would let it connect again");
    w.heal();
    assert_eq!(completion(&w.told(0, WatchOpcode::NotifyComplete)), (vec![], vec![]));
    assert_eq!(w.watchers(acting[1]), 0);
}

/// Leases last, so that the primary serves; what it writes does not become durable.
fn cut_off_replica(seed: u64) -> World {
    let mut w = World::tweaked(seed, 3, 2, 1, 1, |config| {
        config.lease = second(60);
        config.lease_promise = second(61);
    });
    w.settle();
    w.clients.resize_with(2, Client::default);
    w.write("o", b"x");
    assert_eq!(w.ask(1, watch(11, WATCH)), 0);
    lose_lease(&mut w);
    w
}

fn assert_watches(w: &mut World) {
    assert_eq!(w.ask(1, watch(11, PING)), 0);
    for osd in w.acting("o") {
        assert_eq!(w.watchers(osd), 1);
    }
    assert!(w.clients[1].told.is_empty(), "it does not tell which of them is over: {:?}", w.clients[1].told);
}

/// The first one's end is not durable in its time, so it is tried again: the client has the same watch anew by then.
#[test]
fn a_watchs_end_tried_again_leaves_the_next_watch_alone() {
    let mut w = cut_off_replica(71);
    let primary = w.acting("o")[0];
    w.run_for(second(11));
    assert_eq!(w.watchers(primary), 0, "over, but not everywhere");
    let anew = w.submit(1, "o", vec![watch(11, WATCH)]);
    w.run_for(second(11));
    assert_eq!(w.watchers(primary), 1, "the next one has just begun");
    w.heal();
    assert_eq!(w.wait(anew).result, 0);
    assert_watches(&mut w);
}

/// Neither the client's end of the first one nor its next one is durable when the first one's time is over.
#[test]
fn the_time_of_a_watch_that_was_left_is_not_that_of_the_next() {
    let mut w = cut_off_replica(72);
    let left = w.submit(1, "o", vec![watch(11, UNWATCH)]);
    let anew = w.submit(1, "o", vec![watch(11, WATCH)]);
    w.run_for(second(11));
    w.heal();
    assert_eq!((w.wait(left).result, w.wait(anew).result), (0, 0));
    assert_watches(&mut w);
}

/// The primary loses touch with its replica, of which nobody takes notice.
fn lose_lease(w: &mut World) {
    w.mon.deaf = true;
    let acting = w.acting("o");
    w.cut(acting[0], acting[1]);
}

#[test]
fn the_next_primary_knows_the_watches_and_gives_them_their_time() {
    let mut w = world(65, 3);
    w.ask(1, watch(11, WATCH));
    w.ask(2, watch(12, WATCH));
    let first = w.acting("o")[0];
    w.kill(first);
    w.run_until("another primary", second(30), |w| w.acting("o").first().is_some_and(|osd| *osd != first));
    assert_eq!(w.ask(1, watch(11, RECONNECT)), 0);
    let primary = w.acting("o")[0];
    assert_eq!(w.watchers(primary), 2);
    for _ in 0..2 {
        w.run_for(second(4));
        assert_eq!(w.ask(1, watch(11, PING)), 0);
        assert_eq!(w.watchers(primary), 2, "the other one still has time");
    }
    w.run_for(second(4));
    assert_eq!(w.ask(1, watch(11, PING)), 0);
    assert_eq!(w.watchers(primary), 1);
    w.ask(0, notify(5, 30));
    let told = w.told(1, WatchOpcode::Notify);
    w.ask(1, ack(&told));
    assert_eq!(completion(&w.told(0, WatchOpcode::NotifyComplete)), (vec![(101, 11)], vec![]));
}

#[test]
fn removing_the_object_tells_its_watchers() {
    let mut w = world(66, 2);
    w.ask(1, watch(11, WATCH));
    w.ask(0, notify(5, 30));
    w.ask(0, delete());
    let told = w.told(1, WatchOpcode::Disconnect);
    assert_eq!(told.cookie, 11);
    assert_eq!(completion(&w.told(0, WatchOpcode::NotifyComplete)), (vec![], vec![]));
}

fn begin_fence(w: &mut World, client: usize) {
    w.change_map(|inc| {
        inc.new_blocklist.insert(client_addr(client), WallTime { sec: u32::MAX, nsec: 0 });
    });
}

fn fence(w: &mut World, client: usize) {
    begin_fence(w, client);
    await_fence(w, client);
}

/// Who fences waits for the map that has it.
fn await_fence(w: &mut World, client: usize) {
    w.run_until("the fence", second(10), |w| {
        w.clients[0].epoch == w.mon.map.epoch && w.mon.map.blocklist.contains_key(&client_addr(client))
    });
}

#[test]
fn a_fenced_client_loses_its_watches_and_others_do_not() {
    let mut w = world(67, 3);
    w.ask(1, watch(11, WATCH));
    w.ask(2, watch(12, WATCH));
    fence(&mut w, 1);
    assert_eq!(w.told(1, WatchOpcode::Disconnect).cookie, 11);
    let primary = w.acting("o")[0];
    assert_eq!(w.watchers(primary), 1);
    assert_eq!(w.ask(1, watch(11, WATCH)), -108);
    assert_eq!(w.ask(1, write_full(b"late")), -108);
    assert_eq!(w.ask(1, read_all()), -108);
    assert_eq!(w.ask(2, watch(12, PING)), 0);
}

#[test]
fn a_fenced_clients_request_that_waits_for_its_pg_is_refused_when_its_turn_comes() {
    let mut w = world(68, 2);
    let acting = w.acting("o");
    w.clients[1].frozen = true;
    w.mon.deaf = true;
    // Without a lease nothing runs.
    w.kill(acting[1]);
    w.run_for(second(2));
    let late = w.submit(1, "o", vec![append(b"late")]);
    w.run_for(second(1));
    fence(&mut w, 1);
    w.mon.deaf = false;
    w.start(acting[1]);
    w.run_for(second(5));
    assert_eq!(w.read("o").unwrap(), "x");
    w.clients[1].frozen = false;
    w.resend(1);
    assert_eq!(w.wait(late).result, -108);
    assert_eq!(w.read("o").unwrap(), "x");
}

/// A client writes without end, some of it such that data must be read first,
/// while OSDs come and go; then it is fenced. Once the first request of him who
/// fenced it has run, nothing of it lands.
fn fenced_writer(seed: u64, tweak: fn(&mut osd::OsdConfig)) -> Result<(), String> {
    let mut w = World::tweaked(seed, 3, 3, 1, 1, tweak);
    w.settle();
    w.clients.resize_with(2, Client::default);
    w.write("o", b"x");
    w.make_metadata_absent(50);
    let mut random = Random::from_seed(seed);
    let mut victim = None;
    let kills = random.chance(1, 2);
    w.clients[1].frozen = true;
    for round in 0..60 {
        let mut ops = vec![append(b".")];
        if random.chance(1, 2) {
            // True whatever was appended; reads first.
            let args = ExtentArgs::new(0, 1).into_args();
            ops.insert(0, OsdOp::new(OpCode::CMPEXT, args, Bytes::from_static(b"x")));
        }
        w.submit(1, "o", ops);
        w.run_for(Duration::from_micros(random.below(400)));
        if round == 20 && kills {
            let osd = w.acting("o")[random.below(3) as usize];
            w.kill(osd);
            victim = Some(osd);
        }
        if round == 25 {
            begin_fence(&mut w, 1);
        }
    }
    await_fence(&mut w, 1);
    // Another object, so that it does not queue up behind the writes.
    let first = w.submit(0, "p", vec![write_full(b"mine now")]);
    for _ in 0..5 {
        w.run_for(Duration::from_micros(random.below(2000)));
        w.resend(1);
    }
    if let Some(osd) = victim {
        w.start(osd);
    }
    let first = w.wait(first);
    let after_fence = w.read("o").unwrap();
    w.resend(1);
    w.run_for(second(3));
    // It learns of the map at last.
    w.heal();
    w.run_for(second(3));
    for (_, reply) in w.clients[1].replies.values() {
        if reply.result == 0 && reply.replay_version > first.replay_version {
            return Err(format!("{:?} ran after {:?}", reply.replay_version, first.replay_version));
        }
    }
    let at_last = w.read("o").unwrap();
    if at_last != after_fence {
        return Err(format!("{} bytes after the fence, {} at last", after_fence.len(), at_last.len()));
    }
    if let Some((_, op)) = w.clients[1].pending.first_key_value() {
        return Err(format!("no answer to {:?}\n{}", op.op.ops, w.describe()));
    }
    Ok(())
}

#[test]
fn a_fenced_clients_late_write_never_lands() {
    for seed in 0..40 {
        fenced_writer(seed, |_| {}).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn a_build_that_fences_arrivals_only_is_caught() {
    let caught = (0..40).any(|seed| fenced_writer(seed, |c| c.sabotage.fence_arrivals_only = true).is_err());
    assert!(caught, "the test above would not see a late write");
}

/// The fence comes while the watch's write is under way: it ends with the others.
#[test]
fn a_watch_that_is_being_recorded_when_its_client_is_fenced_ends_too() {
    for seed in 0..100 {
        let mut w = world(seed, 2);
        let mut random = Random::from_seed(seed);
        begin_fence(&mut w, 1);
        w.run_for(MON_DELAY - Duration::from_micros(500) + Duration::from_micros(random.below(1000)));
        w.submit(1, "o", vec![watch(11, WATCH)]);
        await_fence(&mut w, 1);
        w.run_for(second(5));
        let primary = w.acting("o")[0];
        assert_eq!(w.watchers(primary), 0, "seed {seed}: half of its timeout later");
    }
}

/// The fence lifts between a notification, which it passed over, and the record of the watch's end, which waited.
#[test]
fn a_watch_that_was_fenced_ends_though_the_fence_lifts() {
    for seed in 0..100 {
        let mut w = world(seed, 2);
        let mut random = Random::from_seed(seed);
        assert_eq!(w.ask(1, watch(11, WATCH)), 0);
        w.make_metadata_absent(50);
        lose_lease(&mut w);
        // For this the notification waits, and behind it the watch's end.
        w.submit(0, "o", vec![append(b".")]);
        w.submit(0, "o", vec![notify(5, 3)]);
        fence(&mut w, 1);
        w.heal();
        // About when links are there again.
        w.run_for(Duration::from_micros(9000 + random.below(4000)));
        w.change_map(|inc| inc.old_blocklist.push(client_addr(1)));
        w.told(0, WatchOpcode::NotifyComplete);
        w.run_for(second(1));
        let told: Vec<WatchOpcode> = w.clients[1].told.iter().map(|told| told.opcode).collect();
        assert!(told.contains(&WatchOpcode::Disconnect), "seed {seed}: {told:?}");
        assert_eq!(w.ask(1, watch(11, PING)), -107, "seed {seed}");
    }
}
