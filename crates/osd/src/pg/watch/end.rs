//! How watches end without their clients: their time is over, or their client is fenced.
//!
//! The end is a write of the OSD's own, in order with the clients' requests: a ping
//! that has waited here since before it, for a lease or for a replica, averts it.
//!
//! A client may leave a watch, or hear that it is over, and have the next one under the same key. Memory
//! follows the record only when writes are durable everywhere, so an end, of which there may be several
//! for one watch, looks at the writes under way: what memory knows to be over may not be what is recorded.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`handle_watch_timeout`, `check_blocklisted_watchers`).

use super::Pg;
use super::registration::{Watch, timeout};
use crate::action::Ctx;
use crate::exec::Fetched;
use crate::exec::watch::{WatchEffects, WatchInfo, WatchKey};
use crate::pg::request::{Origin, Request, Work};
use crate::shared::Shared;
use base::{Duration, Time};
use std::collections::BTreeSet;
use store::ObjectStore;
use wire::types::{EVersion, EntityName, HObject, ReqId};

/// How long a write that ends a watch may take, before there is another.
fn retry(info: &WatchInfo) -> Duration {
    timeout(info).max(Duration::from_secs(1))
}

impl Pg {
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
    pub(super) fn fence_watches_of<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        object: &HObject,
    ) {
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
    pub(in crate::pg) fn still_over<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        object: &HObject,
        keys: &[WatchKey],
    ) -> Vec<WatchKey> {
        let Some(known) = self.watches.objects.get(object) else { return Vec::new() };
        let leaves =
            |key| self.has_under_way(object, |effects| effects.disconnects.iter().any(|w| w.key == key));
        // What is not known any more, or leaves, has ended otherwise: if its key is recorded, that is the next one's.
        let over = |key: &WatchKey| {
            let over = |watch: &Watch| watch.over || watch.is_fenced(sh.maps.map());
            known.watches.get(key).is_some_and(over) && !leaves(*key)
        };
        keys.iter().copied().filter(over).collect()
    }

    /// Whether the client has this watch anew, be it recorded everywhere or not.
    pub(super) fn begins_anew(&self, object: &HObject, key: WatchKey) -> bool {
        self.has_under_way(object, |effects| effects.connects.iter().any(|w| w.key == key))
    }

    /// Of the writes to the object that are not durable everywhere.
    fn has_under_way(&self, object: &HObject, what: impl Fn(&WatchEffects) -> bool) -> bool {
        self.in_flight.iter().filter_map(|write| write.watch_effects(object)).any(what)
    }
}
