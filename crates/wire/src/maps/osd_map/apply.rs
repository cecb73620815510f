//! From one epoch to the next.
//!
//! Every holder of a map must get the very same bytes out of an incremental,
//! so the order and the odd cases here are Ceph's.
//!
//! Source: Ceph 16.2.15, src/osd/OSDMap.cc (`OSDMap::apply_incremental`).

use super::OsdMap;
use crate::codec::{Decode, DecodeError};
use crate::features::Features;
use crate::maps::crush_summary::{CrushSummary, canonical};
use crate::maps::{OsdInfo, OsdMapFlags, OsdMapIncremental, OsdState, OsdXInfo, Release};
use crate::types::{EntityAddrVec, Epoch, OsdId, Uuid};
use base::WallTime;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("the incremental is of cluster {theirs}, the map of {ours}")]
    WrongCluster { ours: Uuid, theirs: Uuid },
    #[error("the incremental makes epoch {makes}, the map is at {at}")]
    WrongEpoch { at: Epoch, makes: Epoch },
    #[error("the incremental is about osd.{osd}, max_osd is {max_osd}")]
    NoSuchOsd { osd: OsdId, max_osd: i32 },
    #[error("the incremental sets max_osd to {0}")]
    MaxOsd(i32),
    #[error("the incremental brings osd.{0} up without heartbeat addresses")]
    NoHeartbeatAddrs(OsdId),
    #[error("in the incremental: {0}")]
    Decode(#[from] DecodeError),
    #[error("the resulting map's checksum is {found:08x}, expected {expected:08x}")]
    Checksum { found: u32, expected: u32 },
}

impl OsdMap {
    /// Advances the map by one epoch.
    ///
    /// Errors: the map stays as it was. After a checksum error the holder must
    /// fetch the full map: it and the writer no longer agree.
    pub fn apply(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        let next = self.advanced(inc)?;
        let found = next.crc();
        if found != inc.full_crc {
            return Err(ApplyError::Checksum { found, expected: inc.full_crc });
        }
        *self = next;
        Ok(())
    }

    /// What the map becomes, without asking for a checksum: for the writer of
    /// the incremental, who then puts the result's [`OsdMap::crc`] into it.
    pub fn advanced(&self, inc: &OsdMapIncremental) -> Result<OsdMap, ApplyError> {
        // Epoch 1 is where the cluster's identity comes from.
        if inc.epoch != Epoch(1) && inc.fsid != self.fsid {
            return Err(ApplyError::WrongCluster { ours: self.fsid, theirs: inc.fsid });
        }
        if self.epoch.0.checked_add(1) != Some(inc.epoch.0) {
            return Err(ApplyError::WrongEpoch { at: self.epoch, makes: inc.epoch });
        }
        if !inc.fullmap.is_empty() {
            return Ok(OsdMap::from_bytes(inc.fullmap.clone(), Features::PACIFIC)?);
        }
        let max_osd = if inc.new_max_osd >= 0 { inc.new_max_osd } else { self.max_osd };
        inc.check_osds(max_osd)?;

        let mut next = self.clone();
        next.epoch = inc.epoch;
        next.fsid = inc.fsid;
        next.modified = inc.modified;
        next.apply_flags(inc);
        next.apply_pools(inc);
        next.apply_snaps(inc);
        next.apply_weights(inc);
        next.apply_profiles(inc);
        next.apply_states(inc);
        next.apply_boots(inc);
        next.apply_overrides(inc);
        next.apply_blocklist(inc);
        next.apply_settings(inc);
        next.apply_crush(inc)?;
        if let Some(stretch) = inc.new_stretch_mode {
            next.stretch_mode = Some(stretch);
        }
        Ok(next)
    }

    fn apply_flags(&mut self, inc: &OsdMapIncremental) {
        if let Some(flags) = inc.new_flags {
            self.flags = flags;
            // A cluster on its way to Luminous says its release with flags.
            let implied = if flags.contains(OsdMapFlags::REQUIRE_KRAKEN) {
                Release::KRAKEN
            } else if flags.contains(OsdMapFlags::REQUIRE_JEWEL) {
                Release::JEWEL
            } else {
                Release::UNKNOWN
            };
            self.require_osd_release = self.require_osd_release.max(implied);
        }
        if inc.new_max_osd >= 0 {
            self.set_max_osd(inc.new_max_osd);
        }
    }

    fn apply_pools(&mut self, inc: &OsdMapIncremental) {
        if inc.new_pool_max != -1 {
            // Ceph keeps 32 bits in the map and 64 in the incremental.
            self.pool_max = inc.new_pool_max as i32;
        }
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = self.epoch;
            self.pools.insert(*id, pool);
        }
        for (id, name) in &inc.new_pool_names {
            self.pool_names.insert(*id, name.clone());
        }
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
    }

    fn apply_snaps(&mut self, inc: &OsdMapIncremental) {
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (pool, snaps) in &inc.new_removed_snaps {
            let queue = self.removed_snaps_queue.entry(*pool).or_default();
            for (start, len) in snaps.iter() {
                queue.insert(start, len);
            }
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            let Some(queue) = self.removed_snaps_queue.get_mut(pool) else { continue };
            for (start, len) in snaps.iter() {
                queue.remove(start, len);
            }
            if queue.is_empty() {
                self.removed_snaps_queue.remove(pool);
            }
        }
        if inc.new_last_up_change != WallTime::ZERO {
            self.last_up_change = inc.new_last_up_change;
        }
        if inc.new_last_in_change != WallTime::ZERO {
            self.last_in_change = inc.new_last_in_change;
        }
    }

    fn apply_weights(&mut self, inc: &OsdMapIncremental) {
        for (osd, weight) in &inc.new_weight {
            let i = index(*osd);
            self.osd_weight[i] = *weight;
            if *weight != Self::WEIGHT_OUT {
                self.osd_state[i].insert(OsdState::EXISTS);
                self.osd_state[i].remove(OsdState::AUTOOUT | OsdState::NEW);
                self.osd_xinfo[i].old_weight = 0;
            }
        }
        for (osd, affinity) in &inc.new_primary_affinity {
            self.set_primary_affinity(*osd, *affinity);
        }
    }

    fn set_primary_affinity(&mut self, osd: OsdId, affinity: u32) {
        if self.primary_affinity.is_empty() {
            self.primary_affinity = vec![Self::DEFAULT_PRIMARY_AFFINITY; self.osd_state.len()];
        }
        self.primary_affinity[index(osd)] = affinity;
    }

    fn apply_profiles(&mut self, inc: &OsdMapIncremental) {
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        for (name, profile) in &inc.new_erasure_code_profiles {
            self.erasure_code_profiles.insert(name.clone(), profile.clone());
        }
    }

    fn apply_states(&mut self, inc: &OsdMapIncremental) {
        for (osd, mask) in &inc.new_state {
            let i = index(*osd);
            let mask = if mask.is_empty() { OsdState::UP } else { *mask };
            let both = self.osd_state[i] & mask;
            if both.contains(OsdState::UP) {
                self.osd_info[i].down_at = self.epoch;
                self.osd_xinfo[i].down_stamp = self.modified;
            }
            if both.contains(OsdState::EXISTS) {
                self.forget_osd(*osd);
            } else {
                self.osd_state[i] = self.osd_state[i] ^ mask;
            }
        }
    }

    /// An OSD that is destroyed leaves nothing behind but its number and weight.
    fn forget_osd(&mut self, osd: OsdId) {
        let i = index(osd);
        self.osd_uuid[i] = Uuid::ZERO;
        self.osd_info[i] = OsdInfo::default();
        self.osd_xinfo[i] = OsdXInfo::default();
        // As in Ceph, this makes the vector of affinities exist.
        self.set_primary_affinity(osd, Self::DEFAULT_PRIMARY_AFFINITY);
        self.client_addrs[i] = EntityAddrVec::default();
        self.cluster_addrs[i] = EntityAddrVec::default();
        self.hb_front_addrs[i] = EntityAddrVec::default();
        self.hb_back_addrs[i] = EntityAddrVec::default();
        self.osd_state[i] = OsdState::NONE;
    }

    fn apply_boots(&mut self, inc: &OsdMapIncremental) {
        for (osd, addrs) in &inc.new_up_client {
            let i = index(*osd);
            self.osd_state[i].insert(OsdState::EXISTS | OsdState::UP);
            self.client_addrs[i] = addrs.clone();
            self.hb_back_addrs[i] = inc.new_hb_back_up.get(osd).cloned().unwrap_or_default();
            self.hb_front_addrs[i] = inc.new_hb_front_up.get(osd).cloned().unwrap_or_default();
            self.osd_info[i].up_from = self.epoch;
        }
        for (osd, addrs) in &inc.new_up_cluster {
            self.cluster_addrs[index(*osd)] = addrs.clone();
        }
        for (osd, epoch) in &inc.new_up_thru {
            self.osd_info[index(*osd)].up_thru = *epoch;
        }
        for (osd, (begin, end)) in &inc.new_last_clean_interval {
            self.osd_info[index(*osd)].last_clean_begin = *begin;
            self.osd_info[index(*osd)].last_clean_end = *end;
        }
        for (osd, epoch) in &inc.new_lost {
            self.osd_info[index(*osd)].lost_at = *epoch;
        }
        for (osd, xinfo) in &inc.new_xinfo {
            self.osd_xinfo[index(*osd)] = *xinfo;
        }
        for (osd, uuid) in &inc.new_uuid {
            self.osd_uuid[index(*osd)] = *uuid;
        }
    }

    fn apply_overrides(&mut self, inc: &OsdMapIncremental) {
        for (pg, osds) in &inc.new_pg_temp {
            if osds.is_empty() {
                self.pg_temp.remove(pg);
            } else {
                self.pg_temp.insert(*pg, osds.clone());
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            if *osd == OsdId(-1) {
                self.primary_temp.remove(pg);
            } else {
                self.primary_temp.insert(*pg, *osd);
            }
        }
        for (pg, osds) in &inc.new_pg_upmap {
            self.pg_upmap.insert(*pg, osds.clone());
        }
        for pg in &inc.old_pg_upmap {
            self.pg_upmap.remove(pg);
        }
        for (pg, items) in &inc.new_pg_upmap_items {
            self.pg_upmap_items.insert(*pg, items.clone());
        }
        for pg in &inc.old_pg_upmap_items {
            self.pg_upmap_items.remove(pg);
        }
    }

    /// An entry that exists keeps its expiry, odd as it is: Ceph inserts
    /// without overwriting, and every holder must do the same.
    fn apply_blocklist(&mut self, inc: &OsdMapIncremental) {
        for (addr, until) in &inc.new_blocklist {
            self.blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_blocklist {
            self.blocklist.remove(addr);
        }
        for (addr, until) in &inc.new_range_blocklist {
            self.range_blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_range_blocklist {
            self.range_blocklist.remove(addr);
        }
    }

    fn apply_settings(&mut self, inc: &OsdMapIncremental) {
        self.cluster_snapshot = inc.cluster_snapshot.clone();
        self.cluster_snapshot_epoch = if inc.cluster_snapshot.is_empty() { Epoch(0) } else { inc.epoch };
        for (new, ratio) in [
            (inc.new_nearfull_ratio, &mut self.nearfull_ratio),
            (inc.new_backfillfull_ratio, &mut self.backfillfull_ratio),
            (inc.new_full_ratio, &mut self.full_ratio),
        ] {
            if new >= 0.0 {
                *ratio = new;
            }
        }
        if inc.new_require_min_compat_client != Release::UNCHANGED {
            self.require_min_compat_client = inc.new_require_min_compat_client;
        }
        if inc.new_require_osd_release != Release::UNCHANGED {
            self.require_osd_release = inc.new_require_osd_release;
            if self.require_osd_release >= Release::LUMINOUS {
                self.flags.remove(OsdMapFlags::LEGACY_REQUIRE);
                self.flags.insert(OsdMapFlags::RECOVERY_DELETES);
            }
        }
        for (changes, flags) in [
            (&inc.new_crush_node_flags, &mut self.crush_node_flags),
            (&inc.new_device_class_flags, &mut self.device_class_flags),
        ] {
            for (id, bits) in changes {
                if bits.is_empty() {
                    flags.remove(id);
                } else {
                    flags.insert(*id, *bits);
                }
            }
        }
    }

    fn apply_crush(&mut self, inc: &OsdMapIncremental) -> Result<(), ApplyError> {
        if inc.crush.is_empty() {
            return Ok(());
        }
        let summary = CrushSummary::of(&inc.crush)?;
        self.crush = canonical(&inc.crush, &summary);
        if self.require_osd_release >= Release::LUMINOUS {
            self.crush_version = self.crush_version.wrapping_add(1);
        }
        self.device_class_flags.retain(|id, _| summary.class_names.contains_key(id));
        Ok(())
    }
}

/// `check_osds` has seen every id of the incremental.
fn index(osd: OsdId) -> usize {
    usize::try_from(osd.0).expect("an OSD id that was checked")
}

impl OsdMapIncremental {
    fn check_osds(&self, max_osd: i32) -> Result<(), ApplyError> {
        if max_osd > OsdMap::OSDS_MAX {
            return Err(ApplyError::MaxOsd(max_osd));
        }
        let named = (self.new_weight.keys())
            .chain(self.new_primary_affinity.keys())
            .chain(self.new_state.keys())
            .chain(self.new_up_client.keys())
            .chain(self.new_up_cluster.keys())
            .chain(self.new_up_thru.keys())
            .chain(self.new_last_clean_interval.keys())
            .chain(self.new_lost.keys())
            .chain(self.new_xinfo.keys())
            .chain(self.new_uuid.keys());
        for osd in named {
            if osd.0 < 0 || osd.0 >= max_osd {
                return Err(ApplyError::NoSuchOsd { osd: *osd, max_osd });
            }
        }
        for osd in self.new_up_client.keys() {
            if !self.new_hb_back_up.contains_key(osd) || !self.new_hb_front_up.contains_key(osd) {
                return Err(ApplyError::NoHeartbeatAddrs(*osd));
            }
        }
        Ok(())
    }
}
