//! Taking in new maps: epoch by epoch, then what the newest one means.

use super::Osd;
use crate::action::{Action, Ctx};
use crate::maps::Placement;
use crate::pg::Pg;
use crate::shared::Commit;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{ObjectStore, Transaction};
use wire::Features;
use wire::maps::OsdMap;
use wire::messages::{Incoming, MMonSubscribe, MOsdMap, MOsdScrub, Payload, Subscription};
use wire::types::{Epoch, OsdId, PgId};

impl<S: ObjectStore> Osd<S> {
    /// Everything after the epoch that we have, for ever.
    pub(super) fn subscribe(&mut self) {
        let start = u64::from(self.sh.epoch().0);
        let start = if start == 0 { 0 } else { start + 1 };
        let what = BTreeMap::from([("osdmap".to_string(), Subscription { start, once: false })]);
        self.sh.send_mon(&MMonSubscribe { what, hostname: String::new() });
    }

    pub(super) fn handle_mon_message(&mut self, ctx: &mut Ctx<'_>, message: &Incoming) {
        if !self.loaded {
            return;
        }
        if message.kind == MOsdScrub::KIND {
            return match message.decode::<MOsdScrub>(Features::PACIFIC) {
                Ok(scrub) => self.on_scrub_command(ctx, &scrub),
                Err(error) => tracing::warn!(%error, "malformed scrub command"),
            };
        }
        if message.kind != MOsdMap::KIND {
            return;
        }
        match message.decode::<MOsdMap>(Features::PACIFIC) {
            Ok(maps) if maps.fsid == self.sh.config.fsid => {
                self.take_maps(ctx, maps.incrementals, maps.fulls);
            }
            Ok(maps) => tracing::warn!(theirs = %maps.fsid, "a map of another cluster"),
            Err(error) => tracing::warn!(%error, "malformed map message"),
        }
    }

    /// Takes in every epoch that follows ours without a gap.
    pub(super) fn take_maps(
        &mut self,
        ctx: &mut Ctx<'_>,
        incrementals: BTreeMap<Epoch, Bytes>,
        fulls: BTreeMap<Epoch, Bytes>,
    ) {
        let before = self.sh.epoch();
        let mut changed: BTreeSet<PgId> = BTreeSet::new();
        let scan_base = self.sh.maps.map().clone();
        loop {
            let next = self.sh.epoch().next();
            let old_map = self.sh.maps.map().clone();
            let result = if let Some(bytes) = incrementals.get(&next) {
                self.sh.maps.apply(next, bytes.clone()).map(|()| Some(bytes.clone()))
            } else if let Some(bytes) = fulls.get(&next) {
                self.sh.maps.install_full(next, bytes.clone()).map(|()| None)
            } else if let Some((epoch, bytes)) = fulls.last_key_value().filter(|(e, _)| **e > next)
                && self.may_skip_to(*epoch)
            {
                self.sh.maps.install_full(*epoch, bytes.clone()).map(|()| None)
            } else {
                break;
            };
            match result {
                Ok(incremental) => self.step(ctx, &old_map, incremental, &mut changed),
                Err(error) => {
                    // Ask for the whole map; if that is as bad, say so for ever.
                    tracing::error!(%error, "cannot take in a map");
                    break;
                }
            }
        }
        let newest = incrementals.keys().chain(fulls.keys()).max().copied().unwrap_or_default();
        if newest > self.sh.epoch() && self.mon.open {
            self.subscribe();
        }
        if self.sh.epoch() > before {
            self.after_maps(ctx, &scan_base, &changed);
        }
    }

    /// A gap in the epochs is a gap in what PGs know of their intervals.
    fn may_skip_to(&mut self, epoch: Epoch) -> bool {
        if self.pgs.is_empty() {
            return true;
        }
        self.sh.fatal(format!(
            "the monitor has no maps between {} and {epoch} any more: this OSD was away for too long; \
             remove its data and let it be filled again",
            self.sh.epoch()
        ));
        false
    }

    /// One epoch, in one transaction.
    fn step(
        &mut self,
        ctx: &mut Ctx<'_>,
        old_map: &Arc<OsdMap>,
        incremental: Option<Bytes>,
        changed: &mut BTreeSet<PgId>,
    ) {
        let map = self.sh.maps.map().clone();
        let mut txn = Transaction::new();
        self.store_epoch(incremental, &mut txn);
        let ids: Vec<PgId> = self.pgs.keys().copied().collect();
        for id in ids {
            if map.pool(id.pool).is_none() {
                self.forget_pg(id);
                self.delete_pg(id, &mut txn);
                continue;
            }
            let placement = self.sh.maps.placement(id);
            let Some(pg) = self.pgs.get_mut(&id) else { continue };
            if pg.is_provisional() {
                if pg.placement != placement {
                    changed.insert(id);
                }
                continue;
            }
            if pg.advance(&mut self.sh, old_map, placement, &mut txn) {
                changed.insert(id);
            }
        }
        if old_map.epoch != Epoch(0) {
            self.create_pgs(old_map, &mut txn, changed);
        }
        self.sh.must_queue(txn, Commit::Silent);
        let _ = ctx;
    }

    /// PGs of pools that this epoch creates: they have no past, so every
    /// member may begin at once.
    fn create_pgs(&mut self, old_map: &OsdMap, txn: &mut Transaction, changed: &mut BTreeSet<PgId>) {
        let map = self.sh.maps.map().clone();
        for (pool_id, pool) in &map.pools {
            if old_map.pools.contains_key(pool_id) || !pool.is_replicated() {
                continue;
            }
            for seed in 0..pool.pg_num {
                let id = PgId { pool: *pool_id, seed };
                let placement = self.sh.maps.placement(id);
                let me = self.sh.me();
                if placement.up.contains(&me) || placement.acting.contains(&me) {
                    self.pgs.insert(id, Pg::create(id, placement, map.epoch, txn));
                    changed.insert(id);
                }
            }
        }
    }

    /// Drops a PG from memory.
    pub(super) fn forget_pg(&mut self, id: PgId) {
        if let Some(mut pg) = self.pgs.remove(&id) {
            pg.retire(&mut self.sh);
        }
        // Its clients may turn elsewhere.
        self.sh.dirty.insert(id);
    }

    fn after_maps(&mut self, ctx: &mut Ctx<'_>, scan_base: &OsdMap, changed: &BTreeSet<PgId>) {
        let map = self.sh.maps.map().clone();
        let me = self.sh.me();
        let was_up = self.sh.am_up;
        self.sh.am_up = map.is_up(me) && map.client_addrs(me) == Some(&self.sh.config.client_addrs);
        if self.sh.am_up && !was_up {
            tracing::info!(osd = %me, epoch = %map.epoch, "up");
            self.mon.report_all = true;
        } else if was_up && !self.sh.am_up && !self.stopping {
            tracing::warn!(osd = %me, epoch = %map.epoch, "the map shows us down");
        }
        self.refresh_peers(ctx, &map);
        let ids: Vec<PgId> = self.pgs.keys().copied().collect();
        let begin_again = |pg: &Pg| pg.is_provisional() && changed.contains(&pg.id);
        for id in ids {
            if let Some(pg) = self.pgs.get_mut(&id).filter(|pg| !begin_again(pg)) {
                pg.after_maps(&mut self.sh, ctx, changed.contains(&id));
            }
        }
        for id in changed {
            if self.pgs.get(id).is_some_and(begin_again) {
                self.discover_again(ctx, *id);
            }
        }
        if self.sh.am_up && (!was_up || placement_may_differ(scan_base, &map)) {
            self.find_unknown_pgs(ctx);
        }
        if scan_base.blocklist != map.blocklist || scan_base.range_blocklist != map.range_blocklist {
            for pg in self.pgs.values_mut() {
                pg.fence_watches(&mut self.sh, ctx);
            }
        }
        let wanted = self.sh.want_up_thru;
        if map.info(me).is_some_and(|i| i.up_thru >= wanted) {
            self.sh.want_up_thru = Epoch(0);
        }
        self.sh.dirty.extend(self.backed_off.iter().copied());
        self.sh.report_soon = true;
        self.handle_future(ctx);
        self.boot_if_needed(ctx);
    }

    /// PGs that the map gives to us as primary and that we have never heard of.
    pub(super) fn find_unknown_pgs(&mut self, ctx: &mut Ctx<'_>) {
        let map = self.sh.maps.map().clone();
        let me = self.sh.me();
        for (pool_id, pool) in map.pools.iter().filter(|(_, pool)| pool.is_replicated()) {
            for seed in 0..pool.pg_num {
                let id = PgId { pool: *pool_id, seed };
                if self.pgs.contains_key(&id) || self.deleting.contains(&id) {
                    continue;
                }
                let placement = self.sh.maps.placement(id);
                if placement.primary == Some(me) {
                    self.discover(ctx, id, placement);
                }
            }
        }
    }

    /// A provisional PG's placement has changed. What clients sent keeps its
    /// place: whoever has not seen the change yet sends on behind it.
    fn discover_again(&mut self, ctx: &mut Ctx<'_>, id: PgId) {
        let placement = self.sh.maps.placement(id);
        if !self.sh.am_up || placement.primary != Some(self.sh.me()) {
            return self.forget_pg(id);
        }
        let waiting = self.pgs.remove(&id).map(|mut pg| pg.take_waiting(&mut self.sh)).unwrap_or_default();
        self.discover(ctx, id, placement);
        if let Some(pg) = self.pgs.get_mut(&id) {
            pg.give_waiting(waiting);
        }
    }

    fn discover(&mut self, ctx: &mut Ctx<'_>, id: PgId, placement: Placement) {
        let epoch = self.sh.epoch();
        let mut pg = Pg::provisional(id, placement, epoch);
        pg.start_discovery(&mut self.sh, ctx);
        self.pgs.insert(id, pg);
    }

    /// Links follow the map: lives that are over are dropped, new ones dialled.
    fn refresh_peers(&mut self, ctx: &mut Ctx<'_>, map: &OsdMap) {
        let gone: Vec<OsdId> = self
            .sh
            .peers
            .all
            .iter()
            .filter(|(osd, peer)| {
                !map.is_up(**osd)
                    || map.cluster_addrs(**osd) != Some(&peer.addrs)
                    || map.info(**osd).is_none_or(|i| i.up_from != peer.up_from)
            })
            .map(|(osd, _)| *osd)
            .collect();
        for osd in gone {
            self.sh.peers.all.remove(&osd);
            self.sh.actions.push_back(Action::DisconnectPeer { osd });
        }
        for peer in self.sh.peers.all.values_mut() {
            peer.on_map(map.epoch);
        }
        if self.sh.am_up {
            self.dial_all(ctx);
        }
    }

    /// Messages and requests that waited for the epoch that is here now.
    pub(super) fn handle_future(&mut self, ctx: &mut Ctx<'_>) {
        let epoch = self.sh.epoch();
        self.future_bytes = 0;
        for (needed, from, kind, body) in std::mem::take(&mut self.future_messages) {
            if needed > epoch {
                self.future_bytes += body.len();
                self.future_messages.push_back((needed, from, kind, body));
            } else {
                self.handle_peer_message(ctx, from, kind, body);
            }
        }
        for (needed, session, message) in std::mem::take(&mut self.future_requests) {
            if needed > epoch {
                self.future_requests.push_back((needed, session, message));
            } else {
                self.handle_client_message(ctx, session, message);
            }
        }
    }
}

/// Whether any PG's members may have changed between two maps.
fn placement_may_differ(a: &OsdMap, b: &OsdMap) -> bool {
    a.crush != b.crush
        || a.osd_state != b.osd_state
        || a.osd_weight != b.osd_weight
        || a.primary_affinity != b.primary_affinity
        || a.pg_temp != b.pg_temp
        || a.primary_temp != b.primary_temp
        || a.pg_upmap != b.pg_upmap
        || a.pg_upmap_items != b.pg_upmap_items
        || a.pools != b.pools
}
