//! What the primary remembers of each recorded watch: its connection, and until when it may be silent.
//!
//! A watch that pings ends when its pings stay away for its timeout, connected
//! or not; one that does not ping (old clients), its timeout after its session.
//!
//! Source: Ceph `src/osd/Watch.cc`, `src/osd/PrimaryLogPG.cc` (`populate_obc_watchers`).

use super::{ObjectWatches, Pg, outgoing};
use crate::action::Ctx;
use crate::blocklist::is_blocklisted;
use crate::exec::watch::{WatchConnect, WatchInfo, WatchKey, Watchers};
use crate::shared::Shared;
use base::{Duration, Time};
use bytes::Bytes;
use store::ObjectStore;
use wire::maps::OsdMap;
use wire::messages::{MWatchNotify, Outgoing, SessionId, WatchOpcode};
use wire::types::HObject;

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) info: WatchInfo,
    pub(super) session: Option<SessionId>,
    pings: bool,
    /// Never, while a session without pings is its sign of life.
    pub(super) ends: Time,
    /// Its time is up, and nothing was heard of it since.
    pub(super) over: bool,
    /// Its client is on the blocklist, or was: the watch is over either way, for it is not told of notifications.
    pub(super) fenced: bool,
}

impl Watch {
    fn new(info: WatchInfo, pings: bool, now: Time) -> Watch {
        Watch { info, session: None, pings, ends: now + timeout(&info), over: false, fenced: false }
    }

    pub(super) fn is_fenced(&self, map: &OsdMap) -> bool {
        self.fenced || is_blocklisted(map, &self.info.addr)
    }

    /// Who is told of notifications. The fence may have come, and the record of the watch's end may wait:
    /// then nobody is.
    pub(super) fn listener(&self, map: &OsdMap) -> Option<SessionId> {
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

pub(super) fn timeout(info: &WatchInfo) -> Duration {
    Duration::from_secs(u64::from(info.timeout_s))
}

impl Pg {
    /// The object is used: its recorded watches, if this interval does not know
    /// them yet, have their time from now on.
    pub(in crate::pg) fn meet_watchers<S: ObjectStore>(
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

    pub(super) fn connect_watch<S: ObjectStore>(
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

    pub(super) fn ping_watch<S: ObjectStore>(
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
    pub(super) fn remove_watch<S: ObjectStore>(
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
