mod apply;
pub(in crate::maps) mod codec;

pub use apply::ApplyError;

use super::{OsdInfo, OsdMapFlags, OsdState, OsdXInfo, PgPool, Release};
use crate::types::{EntityAddr, EntityAddrVec, Epoch, IntervalSet, OsdId, PgId, PoolId, Uuid};
use base::WallTime;
use bytes::Bytes;
use std::collections::BTreeMap;

/// `k`, `m`, `plugin` and so on.
pub type ErasureCodeProfile = BTreeMap<String, String>;

/// A stretch cluster's state; absent in every other cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StretchMode {
    pub enabled: bool,
    pub bucket_count: u32,
    pub degraded: u32,
    pub recovering: u32,
    pub bucket: i32,
}

/// `OSDMap`: everything that placement and liveness depend on, in one epoch.
///
/// Shape:  the per-OSD vectors all have `max_osd` elements, `primary_affinity`
///         that many or none; use the methods, which bound the index.
///         Decoding refuses maps that are otherwise.
/// Units:  weights and affinities are fractions of 0x10000.
/// Source: Ceph 16.2.15, src/osd/OSDMap.{h,cc}.
#[derive(Clone, PartialEq, Debug)]
pub struct OsdMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub created: WallTime,
    pub modified: WallTime,
    pub pools: BTreeMap<PoolId, PgPool>,
    pub pool_names: BTreeMap<PoolId, String>,
    /// The highest pool id ever given out.
    pub pool_max: i32,
    pub flags: OsdMapFlags,
    pub max_osd: i32,
    pub osd_state: Vec<OsdState>,
    /// The reweight: 0 is out, 0x10000 fully in.
    pub osd_weight: Vec<u32>,
    pub client_addrs: Vec<EntityAddrVec>,
    /// Acting sets that override CRUSH's answer while PGs move.
    pub pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    pub primary_temp: BTreeMap<PgId, OsdId>,
    /// Empty while every OSD has the default.
    pub primary_affinity: Vec<u32>,
    /// Ceph's encoding of the CRUSH map.
    pub crush: Bytes,
    pub erasure_code_profiles: BTreeMap<String, ErasureCodeProfile>,
    pub pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// Replacements (from, to) in CRUSH's answer.
    pub pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Counts changes of `crush`.
    pub crush_version: i32,
    /// Snapshots removed, and purged, in this very epoch.
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    pub last_up_change: WallTime,
    pub last_in_change: WallTime,

    pub hb_back_addrs: Vec<EntityAddrVec>,
    pub osd_info: Vec<OsdInfo>,
    /// Address (with nonce) to the time when it is let in again.
    pub blocklist: BTreeMap<EntityAddr, WallTime>,
    /// Networks; the nonce is the prefix length.
    pub range_blocklist: BTreeMap<EntityAddr, WallTime>,
    pub cluster_addrs: Vec<EntityAddrVec>,
    pub cluster_snapshot_epoch: Epoch,
    pub cluster_snapshot: String,
    pub osd_uuid: Vec<Uuid>,
    pub osd_xinfo: Vec<OsdXInfo>,
    pub hb_front_addrs: Vec<EntityAddrVec>,
    pub nearfull_ratio: f32,
    pub full_ratio: f32,
    pub backfillfull_ratio: f32,
    pub require_min_compat_client: Release,
    pub require_osd_release: Release,
    pub removed_snaps_queue: BTreeMap<PoolId, IntervalSet>,
    /// State bits (noup, nodown, noin, noout) that hold for whole buckets …
    pub crush_node_flags: BTreeMap<i32, OsdState>,
    /// … and for device classes.
    pub device_class_flags: BTreeMap<i32, OsdState>,
    pub stretch_mode: Option<StretchMode>,
}

impl Default for OsdMap {
    fn default() -> OsdMap {
        OsdMap {
            fsid: Uuid::ZERO,
            epoch: Epoch(0),
            created: WallTime::ZERO,
            modified: WallTime::ZERO,
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_max: 0,
            flags: OsdMapFlags::NONE,
            max_osd: 0,
            osd_state: Vec::new(),
            osd_weight: Vec::new(),
            client_addrs: Vec::new(),
            pg_temp: BTreeMap::new(),
            primary_temp: BTreeMap::new(),
            primary_affinity: Vec::new(),
            crush: Bytes::new(),
            erasure_code_profiles: BTreeMap::new(),
            pg_upmap: BTreeMap::new(),
            pg_upmap_items: BTreeMap::new(),
            crush_version: 1,
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: WallTime::ZERO,
            last_in_change: WallTime::ZERO,
            hb_back_addrs: Vec::new(),
            osd_info: Vec::new(),
            blocklist: BTreeMap::new(),
            range_blocklist: BTreeMap::new(),
            cluster_addrs: Vec::new(),
            cluster_snapshot_epoch: Epoch(0),
            cluster_snapshot: String::new(),
            osd_uuid: Vec::new(),
            osd_xinfo: Vec::new(),
            hb_front_addrs: Vec::new(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: Release::UNKNOWN,
            require_osd_release: Release::UNKNOWN,
            removed_snaps_queue: BTreeMap::new(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
            stretch_mode: None,
        }
    }
}

impl OsdMap {
    /// Fully in, and always willing to be primary.
    pub const WEIGHT_IN: u32 = 0x10000;
    pub const WEIGHT_OUT: u32 = 0;
    pub const DEFAULT_PRIMARY_AFFINITY: u32 = 0x10000;
    /// Bounds `max_osd`, which a hostile incremental could otherwise inflate.
    /// Ceph's own limit is the monitor's `mon_max_osd`, 10,000 by default.
    pub const OSDS_MAX: i32 = 1 << 16;

    fn slot<T: Clone>(list: &[T], osd: OsdId) -> Option<T> {
        usize::try_from(osd.0).ok().and_then(|i| list.get(i)).cloned()
    }

    /// No bits at all for an OSD beyond `max_osd`.
    pub fn state(&self, osd: OsdId) -> OsdState {
        Self::slot(&self.osd_state, osd).unwrap_or_default()
    }

    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd).contains(OsdState::EXISTS)
    }

    pub fn is_up(&self, osd: OsdId) -> bool {
        self.state(osd).contains(OsdState::EXISTS | OsdState::UP)
    }

    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }

    /// 0 for an OSD that does not exist.
    pub fn weight(&self, osd: OsdId) -> u32 {
        Self::slot(&self.osd_weight, osd).unwrap_or(Self::WEIGHT_OUT)
    }

    pub fn is_in(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.weight(osd) != Self::WEIGHT_OUT
    }

    pub fn is_out(&self, osd: OsdId) -> bool {
        !self.is_in(osd)
    }

    pub fn primary_affinity(&self, osd: OsdId) -> u32 {
        Self::slot(&self.primary_affinity, osd).unwrap_or(Self::DEFAULT_PRIMARY_AFFINITY)
    }

    pub fn client_addrs(&self, osd: OsdId) -> Option<&EntityAddrVec> {
        usize::try_from(osd.0).ok().and_then(|i| self.client_addrs.get(i))
    }

    pub fn cluster_addrs(&self, osd: OsdId) -> Option<&EntityAddrVec> {
        usize::try_from(osd.0).ok().and_then(|i| self.cluster_addrs.get(i))
    }

    pub fn info(&self, osd: OsdId) -> Option<&OsdInfo> {
        usize::try_from(osd.0).ok().and_then(|i| self.osd_info.get(i))
    }

    pub fn xinfo(&self, osd: OsdId) -> Option<&OsdXInfo> {
        usize::try_from(osd.0).ok().and_then(|i| self.osd_xinfo.get(i))
    }

    pub fn uuid(&self, osd: OsdId) -> Option<Uuid> {
        Self::slot(&self.osd_uuid, osd)
    }

    /// OSDs that exist, ascending.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        (0..self.max_osd).map(OsdId).filter(|osd| self.exists(*osd))
    }

    pub fn num_osds(&self) -> usize {
        self.osds().count()
    }

    pub fn num_up_osds(&self) -> usize {
        self.osds().filter(|osd| self.is_up(*osd)).count()
    }

    pub fn num_in_osds(&self) -> usize {
        self.osds().filter(|osd| self.is_in(*osd)).count()
    }

    pub fn pool(&self, id: PoolId) -> Option<&PgPool> {
        self.pools.get(&id)
    }

    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool_names.get(&id).map(String::as_str)
    }

    pub fn pool_by_name(&self, name: &str) -> Option<(PoolId, &PgPool)> {
        let id = *self.pool_names.iter().find(|(_, n)| *n == name)?.0;
        Some((id, self.pools.get(&id)?))
    }

    pub fn test_flag(&self, flag: OsdMapFlags) -> bool {
        self.flags.intersects(flag)
    }

    /// Gives every per-OSD vector `max_osd` elements; new OSDs do not exist.
    pub fn set_max_osd(&mut self, max_osd: i32) {
        let n = usize::try_from(max_osd).unwrap_or(0);
        self.max_osd = max_osd.max(0);
        self.osd_state.resize(n, OsdState::NONE);
        self.osd_weight.resize(n, Self::WEIGHT_OUT);
        self.osd_info.resize(n, OsdInfo::default());
        self.osd_xinfo.resize(n, OsdXInfo::default());
        self.osd_uuid.resize(n, Uuid::ZERO);
        for addrs in [
            &mut self.client_addrs,
            &mut self.cluster_addrs,
            &mut self.hb_back_addrs,
            &mut self.hb_front_addrs,
        ] {
            addrs.resize(n, EntityAddrVec::default());
        }
        if !self.primary_affinity.is_empty() {
            self.primary_affinity.resize(n, Self::DEFAULT_PRIMARY_AFFINITY);
        }
    }
}
