//! Watches and notifications at the primary.
//!
//! A watch is recorded with its object (`exec::ObjectInfo`); here, in memory,
//! is which session it is connected to and when it ends (`registration.rs`), and
//! which notifications are under way (`notification.rs`). How watches end is in
//! `end.rs`.
//!
//! This memory is of one interval: whoever is primary next finds the recorded
//! watches when their object is first used, waits as long for their clients as if
//! they had just been lost, and clients connect them again because the map tells
//! them to.
//!
//! Source: Ceph `src/osd/Watch.cc`, `src/osd/PrimaryLogPG.cc`
//! (`do_osd_op_effects`).

mod end;
mod notification;
mod registration;

use super::Pg;
use super::request::{Request, Work};
use crate::action::Ctx;
use crate::exec::watch::{WatchContext, WatchEffects, WatchKey};
use crate::shared::Shared;
use base::Time;
use notification::{Notify, forget_notify};
use registration::Watch;
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectStore;
use wire::Features;
use wire::messages::osd_op::OpCode;
use wire::messages::{MWatchNotify, Outgoing};
use wire::types::HObject;

/// Watches of one OSD, in memory.
pub const WATCHES_MAX: usize = 1 << 17;
/// Notifications under way in one OSD, and what they carry.
pub const NOTIFIES_MAX: usize = 1 << 14;
pub const NOTIFIES_BYTES_MAX: usize = 128 << 20;

/// What all PGs of an OSD together have.
#[derive(Debug, Default)]
pub struct WatchTotals {
    pub watches: usize,
    pub notifies: usize,
    notify_bytes: usize,
    /// Of the next notification, without the epoch.
    next_notify: u32,
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
            // Who begins anew would take the word for the end of its next watch.
            let tell = gone.tell && !self.begins_anew(object, gone.key);
            self.remove_watch(sh, object, gone.key, tell);
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
}

/// Looks the same with whatever features the client has.
fn outgoing(message: MWatchNotify) -> Outgoing {
    Outgoing::new(&message, 0, Features::PACIFIC)
}
