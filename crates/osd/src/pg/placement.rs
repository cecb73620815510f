//! New maps: does an interval end, and what then?

use super::intervals::{Interval, is_new_interval, may_have_gone_rw};
use super::{Pg, Phase};
use crate::action::Ctx;
use crate::maps::Placement;
use crate::shared::Shared;
use std::sync::Arc;
use store::{ObjectStore, Transaction};
use wire::maps::OsdMap;
use wire::types::EVersion;

impl Pg {
    /// Takes in one epoch, which `sh.maps` is at. True if an interval ended.
    ///
    /// Crash: the interval record goes into `txn`, which also advances the
    /// OSD's epoch: an OSD never forgets that an interval ended, nor counts it twice.
    pub fn advance<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        old_map: &Arc<OsdMap>,
        placement: Placement,
        txn: &mut Transaction,
    ) -> bool {
        let map = sh.maps.map().clone();
        if !is_new_interval(&self.placement, old_map, &placement, &map, self.id.pool) {
            return false;
        }
        let first = self.interval();
        let min_size = old_map.pool(self.id.pool).map_or(1, |p| usize::from(p.min_size));
        self.past.0.push(Interval {
            first,
            last: old_map.epoch,
            up: self.placement.up.clone(),
            acting: self.placement.acting.clone(),
            primary: self.placement.primary,
            maybe_went_rw: may_have_gone_rw(&self.placement, first, old_map, min_size),
        });
        let history = &mut self.info.history;
        history.same_interval_since = map.epoch;
        if self.placement.up != placement.up {
            history.same_up_since = map.epoch;
        }
        if self.placement.primary != placement.primary {
            history.same_primary_since = map.epoch;
        }
        self.placement = placement;
        self.dirty_info = true;
        self.save_if_dirty(txn);
        self.end_interval(sh);
        true
    }

    /// Forgets everything that belonged to the interval, and takes requests
    /// back to where they wait.
    pub(super) fn end_interval<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        self.phase = Phase::Stray;
        self.take_back_requests(sh);
        self.forget_watches(sh);
        sh.forget_fetches(self.id);
        self.stop_recovery(sh);
        self.stop_snap_trim(sh);
        self.stop_scrub(sh);
        self.prior = Default::default();
        self.peers.clear();
        self.full_copy.clear();
        self.targets.clear();
        self.strays.clear();
        self.lease_reports.clear();
        self.lease_floor = base::Time::ZERO;
        self.lease_until = base::Time::ZERO;
        self.readable_from = base::Time::ZERO;
        self.last_sent = base::Time::ZERO;
        self.clean = false;
        self.activation_durable = false;
        self.stalled = false;
        self.acked = EVersion::ZERO;
        sh.want_pg_temp.remove(&self.id);
        sh.laggy.remove(&self.id);
        sh.dirty.insert(self.id);
        sh.report_soon = true;
    }

    /// The newest map is in, and this PG's interval began with it or before.
    pub fn after_maps<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, new_interval: bool) {
        if !sh.am_up {
            if new_interval || self.phase != Phase::Stray {
                self.end_interval(sh);
                self.drop_waiting(sh);
            }
            return;
        }
        if self.is_primary(sh) {
            if new_interval || self.phase == Phase::Stray {
                self.start_peering(sh, ctx);
            } else {
                self.recheck_peering(sh, ctx);
                self.review_removed_snaps(sh, ctx);
            }
            return;
        }
        self.drop_waiting(sh);
        self.scrub.forget_asked();
        if self.phase == Phase::Stray
            && self.placement.members().chain(self.placement.up.iter().copied()).any(|o| o == sh.me())
        {
            self.phase = Phase::Replica { active: false };
        }
        if (new_interval || matches!(self.phase, Phase::Stray | Phase::Replica { active: false }))
            && let Some(primary) = self.placement.primary
        {
            self.last_sent = ctx.now;
            self.send_notify(sh, ctx, primary);
        }
    }
}
