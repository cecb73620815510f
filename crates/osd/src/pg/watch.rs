//! Watches and notifications at the primary.
//!
//! A watch is recorded with its object (`exec::ObjectInfo`); here, in memory,
//! is which session it is connected to and when it ends. This memory is of one
//! interval: whoever is primary next finds the recorded watches when their
//! object is first used, waits as long for their clients as if they had just
//! been lost, and clients connect them again because the map tells them to.
//!
//! A watch that pings ends when its pings stay away for its timeout, connected
//! or not; one that does not ping (old clients), its timeout after its session.
//! The end is a write of the OSD's own, in order with the clients' requests: a ping
//! that has waited here since before it, for a lease or for a replica, averts it.
//!
//! A notification is nowhere but here: it goes to all watchers that the object
//! has, to those without a connection once they have one; it is complete when
//! each has answered, or its end is recorded everywhere, or its own time is up. When the interval ends
//! it is forgotten, and the notifier, who sees that too, sends it again.
//!
//! Source: Ceph `src/osd/Watch.cc`, `src/osd/PrimaryLogPG.cc`
//! (`do_osd_op_effects`, `populate_obc_watchers`, `handle_watch_timeout`,
//! `check_blocklisted_watchers`).

use super::Pg;
use super::request::{Origin, Request, Work};
use crate::action::Ctx;
use crate::blocklist::is_blocklisted;
use crate::exec::Fetched;
use crate::exec::watch::{
    Notification, NotifyAck, WatchConnect, WatchContext, WatchEffects, WatchInfo, WatchKey, Watchers,
};
use crate::shared::Shared;
use base::{Duration, Errno, Time};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectStore;
use wire::Features;
use wire::codec::Encoder;
use wire::maps::OsdMap;
use wire::messages::osd_op::OpCode;
use wire::messages::{MOsdOp, MWatchNotify, Outgoing, SessionId, WatchOpcode};
use wire::types::{EVersion, EntityName, HObject, ReqId};

/// Watches of one OSD, in memory.
pub const WATCHES_MAX: usize = 1 << 17;
/// Notifications under way in one OSD, and what they carry.
pub const NOTIFIES_MAX: usize = 1 << 14;
pub const NOTIFIES_BYTES_MAX: usize = 128 << 20;

/// Of a watcher that is waited for.
const WAITING_COST: usize = 64;

/// What all PGs of an OSD together have.
#[derive(Debug, Default)]
pub struct WatchTotals {
    pub watches: usize,
    pub notifies: usize,
    notify_bytes: usize,
    /// Of the next notification, without the epoch.
    next_notify: u32,
}

#[derive(Debug)]
struct Watch {
    info: WatchInfo,
    session: Option<SessionId>,
    pings: bool,
    /// Never, while a session without pings is its sign of life.
    ends: Time,
    /// Its time is up, and nothing was heard of it since.
    over: bool,
    /// Its client is on the blocklist, or was: the watch is over either way, for it is not told of notifications.
    fenced: bool,
}

impl Watch {
    fn new(info: WatchInfo, pings: bool, now: Time) -> Watch {
        Watch { info, session: None, pings, ends: now + timeout(&info), over: false, fenced: false }
    }

    fn is_fenced(&self, map: &OsdMap) -> bool {
        self.fenced || is_blocklisted(map, &self.info.addr)
    }

    /// Who is told of notifications. The fence may have come, and the record of the watch's end may wait:
    /// then nobody is.
    fn listener(&self, map: &OsdMap) -> Option<SessionId> {
        self.session.filter(|_| !self.is_fenced(map))
    }

    /// A sign of life.
    fn refresh(&mut self, now: Time) {
        if self.fenced {
            return;
        }
        self.ends = if self.session.is_some() && !self.pings { Time::MAX } else { now + timeout(&self.info) };
        self.over = false;
    }
}

#[derive(Debug)]
struct Notify {
    /// The notifier.
    session: SessionId,
    client: EntityName,
    cookie: u64,
    /// The object's user version.
    version: u64,
    payload: Bytes,
    /// Bytes of memory, roughly.
    cost: usize,
    ends: Time,
    waiting: BTreeSet<WatchKey>,
    replies: BTreeMap<(i64, WatchKey), Bytes>,
}

#[derive(Debug, Default)]
struct ObjectWatches {
    watches: BTreeMap<WatchKey, Watch>,
    notifies: BTreeMap<u64, Notify>,
}

/// All of a PG's watches.
#[derive(Debug, Default)]
pub struct Watches {
    objects: BTreeMap<HObject, ObjectWatches>,
    /// Nothing ends before.
    next_end: Option<Time>,
    /// To be ended by a write once the event is handled.
    ended: BTreeMap<HObject, BTreeSet<WatchKey>>,
}

impl Watches {
    fn note_end<S: ObjectStore>(&mut self, sh: &mut Shared<S>, at: Time) {
        if at < Time::MAX {
            self.next_end = Some(self.next_end.map_or(at, |next| next.min(at)));
            sh.wake_at(at);
        }
    }

    pub fn len(&self) -> usize {
        self.objects.values().map(|object| object.watches.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

fn timeout(info: &WatchInfo) -> Duration {
    Duration::from_secs(u64::from(info.timeout_s))
}

/// How long a write that ends a watch may take, before there is another.
fn retry(info: &WatchInfo) -> Duration {
    timeout(info).max(Duration::from_secs(1))
}

/// A client's global id.
fn gid(client: EntityName) -> u64 {
    client.num as u64
}

impl Pg {
    pub(super) fn watch_context<S: ObjectStore>(&self, sh: &Shared<S>, request: &Request) -> WatchContext {
        let mut context = WatchContext::default();
        let Work::Op(op, _) = &request.work else {
            return context;
        };
        let concerned = |code: OpCode| matches!(code, OpCode::WATCH | OpCode::NOTIFY);
        if !op.ops.iter().any(|op| concerned(op.code)) {
            return context;
        }
        context.notify_id = u64::from(sh.epoch().0) << 32 | u64::from(sh.watch_totals.next_notify);
        let totals = &sh.watch_totals;
        context.watches_full = totals.watches >= WATCHES_MAX;
        context.notifies_full = totals.notifies >= NOTIFIES_MAX || totals.notify_bytes >= NOTIFIES_BYTES_MAX;
        if let Some(object) = self.watches.objects.get(&request.object) {
            let own = object.watches.iter().filter(|(key, _)| key.client == request.reqid.name);
            context.connected = own.filter(|(_, w)| w.session.is_some()).map(|(key, _)| key.cookie).collect();
        }
        context
    }

    /// The object is used: its recorded watches, if this interval does not know
    /// them yet, have their time from now on.
    pub(super) fn meet_watchers<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        object: &HObject,
        recorded: &Watchers,
    ) {
        let known = self.watches.objects.contains_key(object);
        if recorded.is_empty() || known || sh.config.sabotage.forget_watches {
            return;
        }
        let mut known = ObjectWatches::default();
        for (key, info) in recorded {
            let watch = Watch::new(*info, false, ctx.now);
            self.watches.note_end(sh, watch.ends);
            known.watches.insert(*key, watch);
        }
        sh.watch_totals.watches += known.watches.len();
        self.watches.objects.insert(object.clone(), known);
        self.fence_watches_of(sh, ctx, object);
    }

    /// What a request wants besides its change, once that has taken effect.
    pub(super) fn apply_watch_effects<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        request: &Request,
        user_version: u64,
        effects: WatchEffects,
    ) {
        let (object, client) = (&request.object, request.reqid.name);
        for gone in effects.disconnects {
            self.remove_watch(sh, object, gone.key, gone.tell);
        }
        let Some(session) = request.session() else { return };
        let connects = !effects.connects.is_empty();
        for connect in effects.connects {
            self.connect_watch(sh, ctx, object, session, connect);
        }
        if connects {
            // Those of fenced clients are over.
            self.fence_watches_of(sh, ctx, object);
        }
        for key in effects.pings {
            self.ping_watch(sh, ctx, object, key);
        }
        for notification in effects.notifies {
            self.start_notify(sh, ctx, object, (session, client), user_version, notification);
        }
        for ack in effects.acks {
            self.take_ack(sh, object, client, &ack);
        }
    }

    fn connect_watch<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        object: &HObject,
        session: SessionId,
        connect: WatchConnect,
    ) {
        let WatchConnect { key, info, pings } = connect;
        let entry = self.watches.objects.entry(object.clone()).or_default();
        let watch = entry.watches.entry(key).or_insert_with(|| {
            sh.watch_totals.watches += 1;
            Watch::new(info, pings, ctx.now)
        });
        if watch.session == Some(session) {
            watch.refresh(ctx.now);
            return;
        }
        watch.pings = pings;
        if sh.sessions.contains(&session) {
            watch.session = Some(session);
        }
        watch.refresh(ctx.now);
        let (ends, listener) = (watch.ends, watch.listener(sh.maps.map()));
        self.watches.note_end(sh, ends);
        let Some(session) = listener else { return };
        // What it has missed while it had no connection.
        let Some(entry) = self.watches.objects.get(object) else { return };
        for (id, notify) in entry.notifies.iter().filter(|(_, notify)| notify.waiting.contains(&key)) {
            sh.send_client(session, notify.message(*id, key.cookie));
        }
    }

    fn ping_watch<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        object: &HObject,
        key: WatchKey,
    ) {
        let watches = self.watches.objects.get_mut(object).map(|object| &mut object.watches);
        let Some(watch) = watches.and_then(|watches| watches.get_mut(&key)) else { return };
        if watch.session.is_some() {
            watch.refresh(ctx.now);
            let ends = watch.ends;
            self.watches.note_end(sh, ends);
        }
    }

    /// The watch is recorded no more.
    fn remove_watch<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        object: &HObject,
        key: WatchKey,
        tell: bool,
    ) {
        let Some(entry) = self.watches.objects.get_mut(object) else { return };
        let Some(watch) = entry.watches.remove(&key) else { return };
        sh.watch_totals.watches -= 1;
        if let Some(session) = watch.session.filter(|_| tell) {
            sh.send_client(session, disconnected(key.cookie));
        }
        for notify in entry.notifies.values_mut() {
            notify.waiting.remove(&key);
        }
        self.finish_notifies(sh, object, None);
    }

    fn start_notify<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        object: &HObject,
        (session, client): (SessionId, EntityName),
        user_version: u64,
        notification: Notification,
    ) {
        let Notification { id, cookie, timeout_s, payload } = notification;
        sh.watch_totals.next_notify = sh.watch_totals.next_notify.wrapping_add(1);
        let ends = ctx.now + Duration::from_secs(u64::from(timeout_s));
        let mut notify = Notify {
            cost: payload.len(),
            session,
            client,
            cookie,
            version: user_version,
            payload,
            ends,
            waiting: BTreeSet::new(),
            replies: BTreeMap::new(),
        };
        let entry = self.watches.objects.entry(object.clone()).or_default();
        for (key, watch) in &entry.watches {
            // Also if its time is up: until its end is recorded it may connect again, here or at the next primary,
            // and would not know what it has missed.
            notify.waiting.insert(*key);
            notify.cost += WAITING_COST;
            if let Some(session) = watch.listener(sh.maps.map()) {
                sh.send_client(session, notify.message(id, key.cookie));
            }
        }
        if sh.config.sabotage.notify_without_waiting {
            notify.waiting.clear();
        }
        sh.watch_totals.notifies += 1;
        sh.watch_totals.notify_bytes += notify.cost;
        entry.notifies.insert(id, notify);
        self.watches.note_end(sh, ends);
        self.finish_notifies(sh, object, None);
    }

    fn take_ack<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        object: &HObject,
        client: EntityName,
        ack: &NotifyAck,
    ) {
        let Some(entry) = self.watches.objects.get_mut(object) else { return };
        let Some(notify) = entry.notifies.get_mut(&ack.notify_id) else { return };
        let acked: Vec<WatchKey> = notify
            .waiting
            .iter()
            .filter(|key| key.client == client && ack.cookie.is_none_or(|cookie| cookie == key.cookie))
            .copied()
            .collect();
        for key in acked {
            notify.waiting.remove(&key);
            sh.watch_totals.notify_bytes += ack.reply.len();
            notify.cost += ack.reply.len();
            notify.replies.insert((key.client.num, key), ack.reply.clone());
        }
        self.finish_notifies(sh, object, None);
    }

    /// Ends the object's notifications that nobody is waited for any more, and,
    /// given the time, those whose time is up.
    fn finish_notifies<S: ObjectStore>(&mut self, sh: &mut Shared<S>, object: &HObject, now: Option<Time>) {
        let Some(entry) = self.watches.objects.get_mut(object) else { return };
        entry.notifies.retain(|id, notify| {
            let late = now.is_some_and(|now| notify.ends <= now);
            if !late && !notify.waiting.is_empty() {
                return true;
            }
            sh.send_client(notify.session, notify.completion(*id));
            forget_notify(&mut sh.watch_totals, notify);
            false
        });
        if entry.watches.is_empty() && entry.notifies.is_empty() {
            self.watches.objects.remove(object);
        }
    }

    /// A session has ended: its watches wait for another one.
    pub fn lose_watch_session<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        session: SessionId,
    ) {
        let mut first = Time::MAX;
        let watches = self.watches.objects.values_mut().flat_map(|object| object.watches.values_mut());
        for watch in watches.filter(|watch| watch.session == Some(session)) {
            watch.session = None;
            if !watch.pings {
                watch.ends = ctx.now + timeout(&watch.info);
            }
            first = first.min(watch.ends);
        }
        self.watches.note_end(sh, first);
    }

    /// Ends what has come to its time.
    pub fn expire_watches<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        let Some(next) = self.watches.next_end else { return };
        if ctx.now < next {
            return sh.wake_at(next);
        }
        let mut next = Time::MAX;
        let mut late_notifies = Vec::new();
        for (object, entry) in &mut self.watches.objects {
            for (key, watch) in &mut entry.watches {
                if watch.ends <= ctx.now && sh.config.sabotage.keep_silent_watches {
                    continue;
                }
                if watch.ends <= ctx.now {
                    self.watches.ended.entry(object.clone()).or_default().insert(*key);
                    // Again, should the write not come about.
                    watch.ends = ctx.now + retry(&watch.info);
                    watch.over = true;
                    sh.dirty.insert(self.id);
                    tracing::info!(pg = %self.id, object = %object.name, client = %key.client, cookie = key.cookie,
                        "a watch has timed out");
                }
                next = next.min(watch.ends);
            }
            if entry.notifies.values().any(|notify| notify.ends <= ctx.now) {
                late_notifies.push(object.clone());
            }
            let going_on = entry.notifies.values().map(|notify| notify.ends).filter(|ends| *ends > ctx.now);
            next = going_on.fold(next, Time::min);
        }
        self.watches.next_end = None;
        self.watches.note_end(sh, next);
        for object in late_notifies {
            self.finish_notifies(sh, &object, Some(ctx.now));
        }
    }

    /// The blocklist has changed.
    pub fn fence_watches<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        let objects: Vec<HObject> = self.watches.objects.keys().cloned().collect();
        for object in objects {
            self.fence_watches_of(sh, ctx, &object);
        }
    }

    /// For good, though the fence may lift before that is written: as in Ceph, which writes it when it takes in the map.
    fn fence_watches_of<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, object: &HObject) {
        let Some(entry) = self.watches.objects.get_mut(object) else { return };
        let mut first = Time::MAX;
        let mut fenced = BTreeSet::new();
        // Of one that was fenced before the end is under way, or tried again in its time.
        let newly = |watch: &Watch| !watch.fenced && watch.is_fenced(sh.maps.map());
        for (key, watch) in entry.watches.iter_mut().filter(|(_, watch)| newly(watch)) {
            watch.fenced = true;
            watch.ends = watch.ends.min(ctx.now + retry(&watch.info));
            first = first.min(watch.ends);
            fenced.insert(*key);
        }
        if !fenced.is_empty() {
            self.watches.note_end(sh, first);
            self.watches.ended.entry(object.clone()).or_default().extend(fenced);
            sh.dirty.insert(self.id);
        }
    }

    /// Writes that watches are over.
    pub fn end_watches<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        for (object, keys) in std::mem::take(&mut self.watches.ended) {
            let id = sh.new_id();
            let request = Request {
                id,
                origin: Origin::Own,
                // Nobody sends it again, so nobody is looked for under this id.
                reqid: ReqId { name: EntityName::osd(sh.me().0), tid: id, inc: 0 },
                object,
                work: Work::EndWatches(keys.into_iter().collect()),
                fetched: Fetched::default(),
                arrived: ctx.now,
                bytes: 0,
                version: EVersion::ZERO,
            };
            self.submit(sh, ctx, Box::new(request));
        }
    }

    /// Those of them that are over still: who was heard of since lives, unless it is fenced.
    pub(super) fn still_over<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        object: &HObject,
        keys: &[WatchKey],
    ) -> Vec<WatchKey> {
        let known = self.watches.objects.get(object);
        let over = |key: &WatchKey| match known.and_then(|known| known.watches.get(key)) {
            Some(watch) => watch.over || watch.is_fenced(sh.maps.map()),
            None => true,
        };
        keys.iter().copied().filter(over).collect()
    }

    /// The interval is over: the next primary, be it us, begins with what is recorded.
    pub(super) fn forget_watches<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        let watches = std::mem::take(&mut self.watches);
        sh.watch_totals.watches -= watches.len();
        for notify in watches.objects.values().flat_map(|object| object.notifies.values()) {
            forget_notify(&mut sh.watch_totals, notify);
        }
    }

    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// For a client that has been put on the blocklist: see [`crate::blocklist`].
    pub(super) fn is_fenced<S: ObjectStore>(&self, sh: &Shared<S>, ctx: &Ctx<'_>, request: &Request) -> bool {
        let sabotage = sh.config.sabotage;
        if sabotage.ignore_fence || sabotage.fence_arrivals_only && request.arrived < ctx.now {
            return false;
        }
        // Ceph's OSD lists objects for everybody.
        !request.is_pg_op()
            && match &request.origin {
                Origin::Client { who, .. } => is_blocklisted(sh.maps.map(), &who.addr),
                Origin::Copy { .. } | Origin::Own => false,
            }
    }

    pub(super) fn refuse_fenced<S: ObjectStore>(&mut self, sh: &mut Shared<S>, request: Box<Request>) {
        if let Work::Op(MOsdOp { object, .. }, ..) = &request.work {
            tracing::info!(pg = %self.id, %object, client = %request.reqid.name, "refused: the client is blocklisted");
        }
        self.reply_error(sh, request, Errno::ESHUTDOWN);
    }
}

fn forget_notify(totals: &mut WatchTotals, notify: &Notify) {
    totals.notifies -= 1;
    totals.notify_bytes -= notify.cost;
}

impl Notify {
    fn message(&self, id: u64, cookie: u64) -> Outgoing {
        outgoing(MWatchNotify {
            opcode: WatchOpcode::Notify,
            cookie,
            version: self.version,
            notify_id: id,
            payload: self.payload.clone(),
            return_code: 0,
            notifier_gid: gid(self.client),
            data: Bytes::new(),
        })
    }

    /// Who has answered what, and who has not.
    fn completion(&self, id: u64) -> Outgoing {
        let mut e = Encoder::plain();
        e.count(self.replies.len());
        for ((_, key), reply) in &self.replies {
            e.u64(gid(key.client));
            e.u64(key.cookie);
            e.blob(reply);
        }
        e.count(self.waiting.len());
        for key in &self.waiting {
            e.u64(gid(key.client));
            e.u64(key.cookie);
        }
        let complete = self.waiting.is_empty();
        outgoing(MWatchNotify {
            opcode: WatchOpcode::NotifyComplete,
            cookie: self.cookie,
            version: self.version,
            notify_id: id,
            payload: Bytes::new(),
            return_code: if complete { 0 } else { Errno::ETIMEDOUT.negative() },
            notifier_gid: gid(self.client),
            data: e.finish(),
        })
    }
}

fn disconnected(cookie: u64) -> Outgoing {
    outgoing(MWatchNotify {
        opcode: WatchOpcode::Disconnect,
        cookie,
        version: 0,
        notify_id: 0,
        payload: Bytes::new(),
        return_code: 0,
        notifier_gid: 0,
        data: Bytes::new(),
    })
}

/// Looks the same with whatever features the client has.
fn outgoing(message: MWatchNotify) -> Outgoing {
    Outgoing::new(&message, 0, Features::PACIFIC)
}
