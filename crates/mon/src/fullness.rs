//! What full OSDs mean for the map: their state bits, and the flags of the
//! pools that they serve, by which clients know to hold their writes back.
//!
//! The levels exclude each other: an OSD, or a pool, has the highest it reaches.
//!
//! Source: Ceph 16.2.15, src/osd/OSD.cc (`recalc_full_state`),
//! src/osd/OSDMap.cc (`get_full_pools`), src/mon/OSDMonitor.cc (`encode_pending`).

use crate::core::{Core, Turn};
use crate::pg_map::rule_weights;
use std::collections::BTreeMap;
use wire::maps::{OsdState, PoolFlags};
use wire::messages::LogLevel;
use wire::types::PoolId;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    None,
    Near,
    Backfill,
    Full,
}

const OSD_BITS: [(Level, OsdState); 3] = [
    (Level::Near, OsdState::NEARFULL),
    (Level::Backfill, OsdState::BACKFILLFULL),
    (Level::Full, OsdState::FULL),
];

const POOL_FLAGS: [(Level, PoolFlags); 3] = [
    (Level::Near, PoolFlags::NEARFULL),
    (Level::Backfill, PoolFlags::BACKFILLFULL),
    (Level::Full, PoolFlags::FULL),
];

impl Core {
    /// Brings the map up to date with what OSDs report of their space.
    pub fn flag_full(&mut self, turn: &mut Turn) {
        self.mark_full_osds();
        self.mark_full_pools(turn);
    }

    fn mark_full_osds(&mut self) {
        let map = self.osd.map();
        let ratios = [
            (f64::from(map.full_ratio), Level::Full),
            (f64::from(map.backfillfull_ratio), Level::Backfill),
            (f64::from(map.nearfull_ratio), Level::Near),
        ];
        let mut toggles = Vec::new();
        for osd in map.osds().filter(|osd| map.is_up(*osd)) {
            let space = self.pgs.osd_space(map, osd);
            // Nothing reported: as it was.
            if space.total == 0 || self.osd.is_pending_for(osd) {
                continue;
            }
            let reached = ratios.iter().find(|(ratio, _)| *ratio > 0.0 && space.used_ratio() >= *ratio);
            let level = reached.map_or(Level::None, |(_, level)| *level);
            let state = map.osd_state.get(osd.0 as usize).copied().unwrap_or_default();
            for (which, bit) in OSD_BITS {
                if state.contains(bit) != (level == which) {
                    toggles.push((osd, bit));
                }
            }
        }
        for (osd, bit) in toggles {
            self.osd.toggle_state(osd, bit);
        }
    }

    /// A pool is as full as the fullest OSD that its rule may choose.
    fn mark_full_pools(&mut self, turn: &mut Turn) {
        let map = self.osd.map();
        let mut changes: BTreeMap<PoolId, Level> = BTreeMap::new();
        for (id, pool) in &map.pools {
            // A quota has its own say, and is above this.
            if pool.flags.contains(PoolFlags::FULL_QUOTA) {
                continue;
            }
            let serving = rule_weights(self.osd.crush(), i32::from(pool.crush_rule));
            let states = serving
                .keys()
                .filter(|osd| map.is_up(**osd) && map.is_in(**osd))
                .filter_map(|osd| map.osd_state.get(osd.0 as usize));
            let level_of = |state: &OsdState| {
                OSD_BITS.iter().rev().find(|(_, bit)| state.contains(*bit)).map_or(Level::None, |(l, _)| *l)
            };
            let level = states.map(level_of).max().unwrap_or(Level::None);
            if POOL_FLAGS.iter().any(|(which, flag)| pool.flags.contains(*flag) != (*which == level)) {
                changes.insert(*id, level);
            }
        }
        for (id, level) in changes {
            let name = self.osd.map().pool_name(id).unwrap_or("?").to_string();
            if let Some(pool) = self.osd.pool_mut(id) {
                for (which, flag) in POOL_FLAGS {
                    pool.flags.set(flag, which == level);
                }
            }
            if level == Level::Full {
                self.log_cluster(turn, LogLevel::Warn, format!("pool '{name}' is full (no space)"));
            }
        }
    }
}
