//! Watches and notifications through lost sessions and new maps.

use super::*;
use crate::NotifyReply;
use base::Duration;
use wire::codec::Encoder;
use wire::messages::osd_op::{OpCode, WatchArgs};
use wire::messages::{OsdOp, WatchOpcode};

const WATCH: u8 = 3;
const RECONNECT: u8 = 5;
const PING: u8 = 7;
const UNWATCH: u8 = 0;
const ENOTCONN: i32 = -107;
const TIMEOUT_S: u32 = 4;

fn second(n: u64) -> Time {
    Time::ZERO + Duration::from_secs(n)
}

/// Without the tids.
fn places(ops: &[(OsdId, u64, u8)]) -> Vec<(OsdId, u8)> {
    ops.iter().map(|(osd, _, op)| (*osd, *op)).collect()
}

impl World {
    fn watch(&mut self) -> WatchId {
        self.client.watch(ObjectRequest::new(POOL, "a", vec![]), TIMEOUT_S, WallTime::ZERO)
    }

    fn notify(&mut self) -> RequestId {
        self.client.notify(ObjectRequest::new(POOL, "a", vec![]), b"news", 10, WallTime::ZERO)
    }

    /// The WATCH operations sent: OSD, tid, what.
    fn watch_ops(&mut self) -> Vec<(OsdId, u64, u8)> {
        self.ops().into_iter().map(|(osd, tid, op)| (osd, tid, WatchArgs::of(&op.args).op)).collect()
    }

    /// The first operation of each request.
    fn ops(&mut self) -> Vec<(OsdId, u64, OsdOp)> {
        self.requests().into_iter().map(|(osd, tid, mut op)| (osd, tid, op.ops.remove(0))).collect()
    }

    fn events(&mut self) -> Vec<WatchEvent> {
        let event = |action| match action {
            Action::Watch(_, event) => Some(event),
            _ => None,
        };
        self.take().into_iter().filter_map(event).collect()
    }

    /// Established, by whichever OSD is primary.
    fn established(&mut self) -> (WatchId, OsdId) {
        let watch = self.watch();
        let ops = self.watch_ops();
        let primary = self.primary("a");
        assert_eq!(places(&ops), [(primary, WATCH)]);
        self.reply(primary, RequestId(ops[0].1), 0, 0);
        assert_eq!(self.events(), [WatchEvent::Established]);
        (watch, primary)
    }

    fn tell(&mut self, osd: OsdId, opcode: WatchOpcode, cookie: u64, notify_id: u64, data: Bytes) {
        let message = MWatchNotify {
            opcode,
            cookie,
            version: 1,
            notify_id,
            payload: Bytes::from_static(b"news"),
            return_code: 0,
            notifier_gid: 9,
            data,
        };
        self.client.on_osd_message(osd, &incoming(&message, 0)).unwrap();
    }

    fn notify_reply(&mut self, osd: OsdId, tid: u64, notify_id: u64) {
        let mut e = Encoder::plain();
        e.u64(notify_id);
        let op = OsdOp::new(OpCode::NOTIFY, [0; 28], Bytes::new());
        self.reply_with(osd, RequestId(tid), 0, 0, vec![OpResult::new(op, 0, e.finish())]);
    }

    fn notify_completions(&mut self) -> Vec<(RequestId, i32, Vec<NotifyReply>)> {
        let done = |action| match action {
            Action::Complete(id, Completion::Notify { result, replies, .. }) => Some((id, result, replies)),
            _ => None,
        };
        self.take().into_iter().filter_map(done).collect()
    }
}

#[test]
fn a_watch_whose_session_is_lost_before_the_answer_is_asked_for_again_under_a_new_tid() {
    let mut world = World::new();
    world.watch();
    let first = world.watch_ops()[0];
    world.client.on_osd_closed(first.0);
    world.client.reconnect_osd(first.0);
    let second = world.watch_ops();
    assert_eq!(places(&second), [(first.0, WATCH)]);
    // The old tid's answer would not mean this session.
    assert_ne!(second[0].1, first.1);
    world.reply(first.0, RequestId(first.1), 0, 0);
    assert_eq!(world.events(), []);
    world.reply(first.0, RequestId(second[0].1), 0, 0);
    assert_eq!(world.events(), [WatchEvent::Established]);
    assert_eq!(world.client.pending(), 0);
}

#[test]
fn an_established_watch_is_connected_again_after_every_interruption() {
    let mut world = World::new();
    let (_, primary) = world.established();
    world.client.on_osd_closed(primary);
    world.client.reconnect_osd(primary);
    let again = world.watch_ops();
    assert_eq!(places(&again), [(primary, RECONNECT)]);
    world.reply(primary, RequestId(again[0].1), 0, 0);
    assert_eq!(world.events(), [], "it was established before");
    // Another primary; and one that was there for less than a message.
    world.change(down(primary));
    let other = world.primary("a");
    assert_eq!(places(&world.watch_ops()), [(other, RECONNECT)]);
    let incs = vec![world.advance(up(primary, 2)), world.advance(down(primary))];
    world.send_incrementals(incs);
    assert_eq!(places(&world.watch_ops()), [(other, RECONNECT)]);
}

#[test]
fn pings_are_sent_several_times_within_the_timeout_and_say_how_long_it_was_valid() {
    let mut world = World::new();
    let (watch, primary) = world.established();
    world.client.ping_watches(second(10));
    let ping = world.watch_ops();
    assert_eq!(places(&ping), [(primary, PING)]);
    assert_eq!(world.client.next_ping(), Time::MAX, "one at a time");
    world.reply(primary, RequestId(ping[0].1), 0, 0);
    assert_eq!(world.client.watch_valid_thru(watch), Some(second(10)));
    assert_eq!(world.client.next_ping(), second(11));
    // A ping that went over another session says nothing about this one.
    world.client.ping_watches(second(11));
    let ping = world.watch_ops();
    world.client.on_osd_closed(primary);
    world.client.reconnect_osd(primary);
    let again = world.watch_ops();
    assert_eq!(again.len(), 1, "the ping is not sent again");
    world.reply(primary, RequestId(ping[0].1), ENOTCONN, 0);
    assert_eq!(world.events(), []);
    world.reply(primary, RequestId(again[0].1), 0, 0);
    assert_eq!(world.client.watch_valid_thru(watch), Some(second(11)));
}

#[test]
fn a_watch_is_lost_once_and_nothing_comes_after() {
    for how in 0..3 {
        let mut world = World::new();
        let (watch, primary) = world.established();
        match how {
            0 => world.tell(primary, WatchOpcode::Disconnect, watch.0, 0, Bytes::new()),
            1 => {
                world.client.ping_watches(second(10));
                let ping = world.watch_ops();
                world.reply(primary, RequestId(ping[0].1), ENOTCONN, 0);
            }
            _ => {
                world.client.on_osd_closed(primary);
                world.client.reconnect_osd(primary);
                let again = world.watch_ops();
                // The object is gone.
                world.reply(primary, RequestId(again[0].1), -2, 0);
            }
        }
        assert_eq!(world.events(), [WatchEvent::Lost(ENOTCONN)]);
        world.tell(primary, WatchOpcode::Disconnect, watch.0, 0, Bytes::new());
        world.tell(primary, WatchOpcode::Notify, watch.0, 1, Bytes::new());
        world.client.on_osd_closed(primary);
        world.client.ping_watches(second(20));
        assert_eq!((world.events(), world.client.next_ping()), (vec![], Time::MAX));
        assert_eq!(world.client.watch_valid_thru(watch), Some(Time::ZERO));
    }
}

#[test]
fn a_watch_that_is_being_ended_is_not_connected_again() {
    let mut world = World::new();
    let (watch, primary) = world.established();
    let unwatch = world.client.unwatch(watch, WallTime::ZERO).unwrap();
    assert_eq!(world.client.unwatch(watch, WallTime::ZERO), None);
    assert_eq!(world.watch_ops(), [(primary, unwatch.0, UNWATCH)]);
    world.client.on_osd_closed(primary);
    world.client.reconnect_osd(primary);
    assert_eq!(world.watch_ops(), [(primary, unwatch.0, UNWATCH)], "as any request, under its tid");
    // Until it is answered they are welcome.
    world.tell(primary, WatchOpcode::Notify, watch.0, 1, Bytes::new());
    assert_eq!(world.events().len(), 1);
    world.reply(primary, unwatch, 0, 1);
    assert_eq!(world.completions(), [(unwatch, 0)]);
    world.tell(primary, WatchOpcode::Notify, watch.0, 1, Bytes::new());
    assert_eq!(world.events(), []);
}

#[test]
fn a_notification_completes_once_whether_or_not_its_answer_came_first() {
    let mut e = Encoder::plain();
    e.u32(1);
    e.u64(7);
    e.u64(8);
    e.blob(b"heard");
    e.u32(0);
    let data = e.finish();
    let reply = NotifyReply { gid: 7, cookie: 8, reply: Bytes::from_static(b"heard") };
    for answered in [false, true] {
        let mut world = World::new();
        let id = world.notify();
        let (primary, tid, op) = world.ops().remove(0);
        assert_eq!(op.code, OpCode::NOTIFY);
        if answered {
            world.notify_reply(primary, tid, 55);
            assert_eq!(world.notify_completions(), []);
            // Of an attempt before this one.
            world.tell(primary, WatchOpcode::NotifyComplete, id.0, 54, data.clone());
            assert_eq!(world.notify_completions(), []);
        }
        assert_eq!(world.client.pending(), 1);
        world.tell(primary, WatchOpcode::NotifyComplete, id.0, 55, data.clone());
        assert_eq!(world.notify_completions(), [(id, 0, vec![reply.clone()])]);
        world.tell(primary, WatchOpcode::NotifyComplete, id.0, 55, data.clone());
        world.notify_reply(primary, tid, 55);
        assert_eq!((world.notify_completions(), world.client.pending()), (vec![], 0));
    }
}

#[test]
fn a_notification_is_sent_again_in_a_new_interval_although_it_was_answered() {
    let mut world = World::new();
    let id = world.notify();
    let (primary, tid, _) = world.ops().remove(0);
    world.notify_reply(primary, tid, 55);
    world.change(down(primary));
    let (other, again, op) = world.ops().remove(0);
    assert_eq!((other, op.code), (world.primary("a"), OpCode::NOTIFY));
    assert_ne!(again, tid);
    world.tell(other, WatchOpcode::NotifyComplete, id.0, 56, Bytes::new());
    assert_eq!(world.notify_completions(), [(id, 0, vec![])]);
}

#[test]
fn a_refused_notification_completes_with_the_error() {
    let mut world = World::new();
    let id = world.notify();
    let (primary, tid, _) = world.ops().remove(0);
    world.reply(primary, RequestId(tid), -2, 0);
    assert_eq!(world.notify_completions(), [(id, -2, vec![])]);
}

#[test]
fn a_completion_that_is_cut_short_is_an_error_and_changes_nothing() {
    let mut world = World::new();
    let id = world.notify();
    let (primary, ..) = world.ops().remove(0);
    let message = MWatchNotify {
        opcode: WatchOpcode::NotifyComplete,
        cookie: id.0,
        version: 1,
        notify_id: 1,
        payload: Bytes::new(),
        return_code: 0,
        notifier_gid: 0,
        data: Bytes::from_static(&[255, 255, 255, 255, 0]),
    };
    assert!(world.client.on_osd_message(primary, &incoming(&message, 0)).is_err());
    assert_eq!((world.notify_completions(), world.client.pending()), (vec![], 1));
}
