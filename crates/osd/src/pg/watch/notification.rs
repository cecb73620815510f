//! Notifications: who is told, who has answered, when that is enough.
//!
//! A notification is nowhere but here: it goes to all watchers that the object
//! has, to those without a connection once they have one; it is complete when
//! each has answered, or its end is recorded everywhere, or its own time is up. When the interval ends
//! it is forgotten, and the notifier, who sees that too, sends it again.

use super::{Pg, WatchTotals, outgoing};
use crate::action::Ctx;
use crate::exec::watch::{Notification, NotifyAck, WatchKey};
use crate::shared::Shared;
use base::{Duration, Errno, Time};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::ObjectStore;
use wire::codec::Encoder;
use wire::messages::{MWatchNotify, Outgoing, SessionId, WatchOpcode};
use wire::types::{EntityName, HObject};

/// Of a watcher that is waited for.
const WAITING_COST: usize = 64;

#[derive(Debug)]
pub(super) struct Notify {
    /// The notifier.
    session: SessionId,
    client: EntityName,
    cookie: u64,
    /// The object's user version.
    version: u64,
    payload: Bytes,
    /// Bytes of memory, roughly.
    cost: usize,
    pub(super) ends: Time,
    pub(super) waiting: BTreeSet<WatchKey>,
    replies: BTreeMap<(i64, WatchKey), Bytes>,
}

impl Notify {
    pub(super) fn message(&self, id: u64, cookie: u64) -> Outgoing {
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

/// A client's global id.
fn gid(client: EntityName) -> u64 {
    client.num as u64
}

pub(super) fn forget_notify(totals: &mut WatchTotals, notify: &Notify) {
    totals.notifies -= 1;
    totals.notify_bytes -= notify.cost;
}

impl Pg {
    pub(super) fn start_notify<S: ObjectStore>(
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

    pub(super) fn take_ack<S: ObjectStore>(
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
    pub(super) fn finish_notifies<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        object: &HObject,
        now: Option<Time>,
    ) {
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
}
