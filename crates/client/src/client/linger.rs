//! Watches and notifications follow sessions and maps.
//!
//! Whenever the PG's interval changes or the session is lost, a watch that is recorded is
//! connected again, one that is not is asked for again, and so is a notification, of which the
//! OSD then knows nothing. Each time by a new request, with a new tid: one with the old tid the
//! OSD might take for done, and connect nothing to the new session.
//!
//! Pings show that the client is alive, and tell it whether the watch is.
//!
//! Source: Ceph 16.2.15 `src/osdc/Objecter.cc` (`_send_linger`, `_linger_commit`, `_linger_reconnect`,
//! `_send_linger_ping`, `_linger_ping`, `handle_watch_notify`, `linger_check`).

use super::{Action, Client, Completion, InFlight, Owner, RequestId};
use crate::linger::{
    Answers, Kind, Linger, Notify, Watch, WatchEvent, WatchId, WatchOp, ack_op, notify_op, watch_op,
};
use crate::request::ObjectRequest;
use crate::target::Target;
use base::{Errno, Time, WallTime};
use std::collections::BTreeSet;
use tracing::debug;
use wire::codec::{DecodeError, Decoder};
use wire::messages::osd_op::flags;
use wire::messages::{MWatchNotify, OpResult, WatchOpcode};
use wire::types::OsdId;

impl Client {
    /// Watches the object that `object` names (it must exist). `timeout_s` is how long the OSD
    /// bears with silence; 0 leaves that to it.
    pub fn watch(&mut self, mut object: ObjectRequest, timeout_s: u32, mtime: WallTime) -> WatchId {
        let cookie = self.next_request_id().0;
        let watch = Watch::new(timeout_s);
        object.ops = vec![watch.op(cookie, WatchOp::Watch)];
        self.begin_linger(cookie, object, mtime, Kind::Watch(watch));
        WatchId(cookie)
    }

    /// Ends a watch, also one that was lost. Until this is answered notifications may come.
    /// `None` if there is no such watch any more.
    pub fn unwatch(&mut self, watch: WatchId, mtime: WallTime) -> Option<RequestId> {
        let linger = self.lingers.get_mut(&watch.0)?;
        let Kind::Watch(Watch { ending, .. }) = &mut linger.kind else { return None };
        if std::mem::replace(ending, true) {
            return None;
        }
        let mut request = linger.request.clone();
        request.ops = vec![watch_op(watch.0, WatchOp::Unwatch, 0, 0)];
        Some(self.submit_for(Owner::Unwatch(watch), request, mtime))
    }

    /// When that was sent by whose answer the watch is known to have been alive; `None` before
    /// it is established.
    pub fn watch_valid_thru(&self, watch: WatchId) -> Option<Time> {
        match &self.lingers.get(&watch.0)?.kind {
            Kind::Watch(watch) => watch.valid_thru,
            Kind::Notify(_) => None,
        }
    }

    /// Tells the object's watchers; completes with [`Completion::Notify`] when all have
    /// answered, or the time is up.
    pub fn notify(
        &mut self,
        mut object: ObjectRequest,
        payload: &[u8],
        timeout_s: u32,
        mtime: WallTime,
    ) -> RequestId {
        let id = self.next_request_id();
        object.ops = vec![notify_op(id.0, timeout_s, payload)];
        self.begin_linger(id.0, object, mtime, Kind::Notify(Notify::default()));
        id
    }

    /// A watcher's answer.
    pub fn notify_ack(
        &mut self,
        watch: WatchId,
        notify_id: u64,
        reply: &[u8],
        mtime: WallTime,
    ) -> Option<RequestId> {
        let mut request = self.lingers.get(&watch.0)?.request.clone();
        request.ops = vec![ack_op(notify_id, watch.0, reply)];
        Some(self.submit(request, mtime))
    }

    /// Pings what is due. To be called at [`Client::next_ping`].
    pub fn ping_watches(&mut self, now: Time) {
        self.now = now;
        let due = |linger: &Linger| matches!(ping_due(linger), Some(at) if at <= now);
        let cookies: Vec<u64> =
            self.lingers.iter().filter(|(_, linger)| due(linger)).map(|(cookie, _)| *cookie).collect();
        for cookie in cookies {
            let linger = self.lingers.get_mut(&cookie).expect("found above");
            let Kind::Watch(watch) = &mut linger.kind else { continue };
            watch.ping_at = now + watch.ping_interval();
            let mut request = linger.request.clone();
            request.ops = vec![watch.op(cookie, WatchOp::Ping)];
            // No write, though its code is one: a full cluster does not hold it up.
            request.extra_flags |= flags::FULL_TRY;
            let generation = watch.generation;
            let id = self.submit_for(Owner::Ping { cookie, generation }, request, WallTime::ZERO);
            if let Some(Linger { kind: Kind::Watch(watch), .. }) = self.lingers.get_mut(&cookie) {
                watch.ping = Some((id, now));
            }
        }
    }

    pub fn next_ping(&self) -> Time {
        self.lingers.values().filter_map(ping_due).min().unwrap_or(Time::MAX)
    }

    fn begin_linger(&mut self, cookie: u64, request: ObjectRequest, mtime: WallTime, kind: Kind) {
        let target = self.target(&request);
        self.lingers.insert(cookie, Linger { request, mtime, kind, target, under_way: None });
        self.send_linger(cookie);
    }

    fn send_linger(&mut self, cookie: u64) {
        let Some(linger) = self.lingers.get_mut(&cookie) else { return };
        let mut request = linger.request.clone();
        match &mut linger.kind {
            // After the unwatch it would be watched again.
            Kind::Watch(watch) if watch.lost || watch.ending => return,
            Kind::Watch(watch) if watch.registered => {
                watch.generation += 1;
                request.ops = vec![watch.op(cookie, WatchOp::Reconnect)];
            }
            Kind::Watch(_) => {}
            Kind::Notify(notify) => notify.id = None,
        }
        let (mtime, sent) = (linger.mtime, self.now);
        let id = self.submit_for(Owner::Linger { cookie, sent }, request, mtime);
        if let Some(linger) = self.lingers.get_mut(&cookie) {
            linger.under_way = Some(id);
        }
    }

    fn forget_linger_requests(&mut self, cookie: u64) {
        let Some(linger) = self.lingers.get_mut(&cookie) else { return };
        let ping = match &mut linger.kind {
            Kind::Watch(watch) => watch.ping.take().map(|(id, _)| id),
            Kind::Notify(_) => None,
        };
        for id in linger.under_way.take().into_iter().chain(ping) {
            self.requests.remove(&id);
        }
    }

    pub(super) fn end_linger(&mut self, cookie: u64) {
        self.forget_linger_requests(cookie);
        self.lingers.remove(&cookie);
    }

    /// The session to this OSD is gone, or another one.
    pub(super) fn disturb_lingers_of(&mut self, osd: OsdId) {
        let there = |linger: &Linger| linger.target.as_ref().and_then(Target::primary) == Some(osd);
        let cookies = self.lingers.iter().filter(|(_, linger)| there(linger)).map(|(cookie, _)| *cookie);
        self.disturb(cookies.collect());
    }

    /// Finds the PGs and OSDs of all under the newest map: those whose interval is another, or
    /// all where epochs were skipped, are to be sent again.
    pub(super) fn place_lingers(&mut self, skipped: bool) {
        let (Some(map), Some(crush)) = (&self.map, &self.crush) else { return };
        let mut moved = BTreeSet::new();
        for (cookie, linger) in &mut self.lingers {
            let target = Target::calc(map, crush, &linger.request);
            if skipped || target != linger.target {
                linger.target = target;
                moved.insert(*cookie);
            }
        }
        self.disturb(moved);
    }

    fn disturb(&mut self, cookies: BTreeSet<u64>) {
        cookies.iter().for_each(|cookie| self.forget_linger_requests(*cookie));
        self.disturbed.extend(cookies);
    }

    /// Once the sessions and maps are such as they will be for a while.
    pub(super) fn send_disturbed_lingers(&mut self) {
        for cookie in std::mem::take(&mut self.disturbed) {
            self.send_linger(cookie);
        }
    }

    /// The answer to a request that this client made for itself.
    pub(super) fn on_own_reply(&mut self, id: RequestId, op: InFlight, result: i32, ops: &[OpResult]) {
        match op.owner {
            Owner::Caller => unreachable!("not a request of our own"),
            Owner::Linger { cookie, sent } => self.on_linger_reply(cookie, sent, result, ops),
            Owner::Ping { cookie, generation } => self.on_pong(id, cookie, generation, result),
            Owner::Unwatch(watch) => {
                self.end_linger(watch.0);
                let done = Completion::Object { result, ops: ops.to_vec(), user_version: 0 };
                self.actions.push_back(Action::Complete(id, done));
            }
        }
    }

    fn on_linger_reply(&mut self, cookie: u64, sent: Time, result: i32, ops: &[OpResult]) {
        let Some(linger) = self.lingers.get_mut(&cookie) else { return };
        linger.under_way = None;
        match &mut linger.kind {
            Kind::Watch(_) if result < 0 => self.lose_watch(cookie, result),
            Kind::Watch(watch) => {
                watch.valid_thru = Some(sent);
                watch.ping_at = sent + watch.ping_interval();
                if !std::mem::replace(&mut watch.registered, true) {
                    self.actions.push_back(Action::Watch(WatchId(cookie), WatchEvent::Established));
                }
            }
            Kind::Notify(_) if result < 0 => self.complete_notify(cookie, result, Answers::default()),
            // The completion comes by itself, and may have come.
            Kind::Notify(notify) => {
                notify.id = ops.first().and_then(|op| Decoder::plain(op.outdata.clone()).u64().ok());
            }
        }
    }

    fn on_pong(&mut self, id: RequestId, cookie: u64, generation: u32, result: i32) {
        let Some(Linger { kind: Kind::Watch(watch), .. }) = self.lingers.get_mut(&cookie) else { return };
        let Some((_, sent)) = watch.ping.take_if(|(ping, _)| *ping == id) else { return };
        if generation != watch.generation {
            return;
        }
        match result {
            0.. => watch.valid_thru = Some(sent),
            _ => self.lose_watch(cookie, result),
        }
    }

    fn lose_watch(&mut self, cookie: u64, result: i32) {
        self.forget_linger_requests(cookie);
        let Some(Linger { kind: Kind::Watch(watch), .. }) = self.lingers.get_mut(&cookie) else { return };
        if std::mem::replace(&mut watch.lost, true) || watch.ending {
            return;
        }
        // A watch ends with its object.
        let gone = watch.registered && result == Errno::ENOENT.negative();
        let why = if gone { Errno::ENOTCONN.negative() } else { result };
        self.actions.push_back(Action::Watch(WatchId(cookie), WatchEvent::Lost(why)));
    }

    pub(super) fn on_watch_notify(&mut self, m: MWatchNotify) -> Result<(), DecodeError> {
        let cookie = m.cookie;
        let Some(linger) = self.lingers.get_mut(&cookie) else {
            // Also from a former primary, which has not heard of the end yet.
            debug!(cookie, opcode = ?m.opcode, "word of a watch or notification that is over");
            return Ok(());
        };
        match (m.opcode, &mut linger.kind) {
            (WatchOpcode::Disconnect, Kind::Watch(_)) => self.lose_watch(cookie, Errno::ENOTCONN.negative()),
            (WatchOpcode::Notify, Kind::Watch(watch)) if !watch.lost => {
                let MWatchNotify { notify_id, notifier_gid, payload, .. } = m;
                let event = WatchEvent::Notify { notify_id, notifier_gid, payload };
                self.actions.push_back(Action::Watch(WatchId(cookie), event));
            }
            // Of an earlier attempt, unless the id is not known yet.
            (WatchOpcode::NotifyComplete, Kind::Notify(notify))
                if notify.id.is_none_or(|id| id == m.notify_id) =>
            {
                // What does not decode leaves everything as it was.
                let answers = Answers::decode(m.data)?;
                self.complete_notify(cookie, m.return_code, answers);
            }
            _ => debug!(cookie, opcode = ?m.opcode, "not for what has this cookie, or late"),
        }
        Ok(())
    }

    fn complete_notify(&mut self, cookie: u64, result: i32, answers: Answers) {
        self.end_linger(cookie);
        let Answers { replies, missed } = answers;
        let done = Completion::Notify { result, replies, missed };
        self.actions.push_back(Action::Complete(RequestId(cookie), done));
    }
}

/// When a watch wants to be pinged; not while it is being connected, nor before the last one
/// was answered.
fn ping_due(linger: &Linger) -> Option<Time> {
    let Kind::Watch(watch) = &linger.kind else { return None };
    let over = watch.lost || watch.ending;
    let waits = linger.under_way.is_some() || watch.ping.is_some();
    (watch.registered && !over && !waits).then_some(watch.ping_at)
}
