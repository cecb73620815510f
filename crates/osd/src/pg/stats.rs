//! What a PG reports of itself.

use super::{Pg, Phase};
use crate::shared::Shared;
use base::WallTime;
use store::ObjectStore;
use wire::messages::{PgReport, pg_state};
use wire::types::OsdId;

/// Counts since this OSD began to know the PG.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub recovered_objects: u64,
    pub recovered_bytes: u64,
    last_active: WallTime,
    last_clean: WallTime,
    last_change: WallTime,
    last_state: u64,
    reported_seq: u64,
}

impl Activity {
    pub fn on_active(&mut self, wall: WallTime) {
        self.last_active = wall;
    }

    pub fn on_clean(&mut self, wall: WallTime) {
        self.last_clean = wall;
    }
}

impl Pg {
    /// [`pg_state`] bits, as the primary sees them.
    pub fn state_bits<S: ObjectStore>(&self, sh: &Shared<S>, now: base::Time) -> u64 {
        let size = sh.maps.map().pool(self.id.pool).map_or(1, |p| usize::from(p.size));
        let members = self.placement.members().count();
        let mut state = match &self.phase {
            Phase::Stray | Phase::Replica { .. } => return 0,
            Phase::Discovering { .. } => pg_state::CREATING | pg_state::PEERING,
            Phase::GetInfo { .. } | Phase::GetLog { .. } | Phase::WaitActing { .. } | Phase::WaitUpThru => {
                let new = self.info.history.last_epoch_started.0 == 0;
                pg_state::PEERING | if new { pg_state::CREATING } else { 0 }
            }
            Phase::Down => pg_state::DOWN | pg_state::PEERING,
            Phase::Incomplete => pg_state::INCOMPLETE | pg_state::PEERING,
            Phase::Activating { .. } => pg_state::ACTIVATING,
            Phase::Active if self.has_min_size(sh) => pg_state::ACTIVE,
            Phase::Active => pg_state::PEERED,
        };
        if self.phase == Phase::Active {
            if self.clean {
                state |= pg_state::CLEAN;
            }
            if !self.recovering.is_empty() {
                state |= pg_state::RECOVERING;
            } else if !self.missing.is_empty() || self.peers_missing {
                state |= pg_state::RECOVERY_WAIT;
            }
            if self.is_recovery_too_full(sh) {
                state |= pg_state::RECOVERY_TOOFULL;
            }
            if self.is_backfill_too_full(sh) {
                state |= pg_state::BACKFILL_TOOFULL;
            }
            if self.is_backfilling() {
                let working = self.backfills.values().any(|b| b.slots() > 0);
                state |= if working { pg_state::BACKFILLING } else { pg_state::BACKFILL_WAIT };
            }
            state |= self.snap_trim_state() | self.scrub.state();
            if !self.unrepairable.is_empty() || self.info.history.scrub.errors() > 0 {
                state |= pg_state::INCONSISTENT;
            }
            if !self.unfound.is_empty() {
                state |= pg_state::RECOVERY_UNFOUND;
            }
            if now < self.readable_from {
                state |= pg_state::WAIT;
            } else if now >= self.lease_until && sh.lease_until(self.placement.members()) <= now {
                state |= pg_state::LAGGY;
            }
        }
        if members < size {
            state |= pg_state::UNDERSIZED;
        }
        if self.placement.up != self.placement.acting {
            state |= pg_state::REMAPPED;
        }
        if self.degraded_copies(size) > 0 {
            state |= pg_state::DEGRADED;
        }
        state
    }

    /// Copies of objects that should be and are not.
    fn degraded_copies(&self, size: usize) -> u64 {
        let objects = u64::try_from(self.info.sums.objects).unwrap_or(0);
        let absent = size.saturating_sub(self.placement.members().count()) as u64 * objects;
        let theirs: usize = self
            .placement
            .members()
            .filter_map(|osd| self.peers.get(&osd))
            .map(|copy| copy.missing.len())
            .sum();
        absent + (self.missing.len() + theirs) as u64
    }

    /// Copies that are complete but not where the map wants them.
    fn misplaced_copies(&self) -> u64 {
        let objects = u64::try_from(self.info.sums.objects).unwrap_or(0);
        let acting: Vec<OsdId> = self.placement.members().collect();
        let up = self.placement.up.iter().filter(|osd| **osd != OsdId::NONE);
        up.filter(|osd| !acting.contains(osd)).count() as u64 * objects
    }

    pub fn report<S: ObjectStore>(&mut self, sh: &Shared<S>, now: base::Time, wall: WallTime) -> PgReport {
        let state = self.state_bits(sh, now);
        if state != self.stats.last_state {
            self.stats.last_state = state;
            self.stats.last_change = wall;
        }
        if state & pg_state::ACTIVE != 0 {
            self.stats.last_active = wall;
        }
        if state & pg_state::CLEAN != 0 {
            self.stats.last_clean = wall;
        }
        self.stats.reported_seq += 1;
        let size = sh.maps.map().pool(self.id.pool).map_or(1, |p| usize::from(p.size));
        let sums = &self.info.sums;
        let count = |v: i64| u64::try_from(v).unwrap_or(0);
        let history = &self.info.history;
        let activity = &self.stats;
        PgReport {
            pg: self.id,
            state,
            version: self.info.last_update,
            reported_epoch: sh.epoch(),
            reported_seq: activity.reported_seq,
            up: self.placement.up.clone(),
            acting: self.placement.acting.clone(),
            up_primary: self.placement.up_primary.unwrap_or(OsdId(-1)),
            acting_primary: self.placement.primary.unwrap_or(OsdId(-1)),
            log_start: self.log.tail(),
            log_entries: self.log.len() as u64,
            created: history.created,
            last_epoch_clean: history.last_epoch_clean,
            last_epoch_started: history.last_epoch_started,
            same_interval_since: history.same_interval_since,
            last_active: activity.last_active,
            last_clean: activity.last_clean,
            last_change: activity.last_change,
            last_scrub: history.scrub.last,
            last_scrub_stamp: history.scrub.last_stamp,
            last_deep_scrub: history.scrub.last_deep,
            last_deep_scrub_stamp: history.scrub.last_deep_stamp,
            last_clean_scrub_stamp: history.scrub.last_clean_stamp,
            shallow_scrub_errors: history.scrub.shallow_errors.into(),
            deep_scrub_errors: history.scrub.deep_errors.into(),
            objects: count(sums.objects),
            clones: count(sums.clones),
            copies: count(sums.objects) * size as u64,
            missing_on_primary: self.missing.len() as u64,
            degraded: self.degraded_copies(size),
            misplaced: self.misplaced_copies(),
            unfound: self.unfound.len() as u64,
            bytes: count(sums.bytes),
            omap_bytes: count(sums.omap_bytes),
            omap_keys: count(sums.omap_keys),
            reads: activity.reads,
            read_kib: activity.read_bytes >> 10,
            writes: activity.writes,
            write_kib: activity.write_bytes >> 10,
            objects_recovered: activity.recovered_objects,
            bytes_recovered: activity.recovered_bytes,
            keys_recovered: 0,
            snap_trim_queue_len: self.snap_trim().queue_len(),
            purged_snaps: self.snap_trim().purged().clone(),
            blocked_by: self.prior.blocked_by.iter().copied().collect(),
        }
    }
}
