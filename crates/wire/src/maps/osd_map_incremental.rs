mod codec;

use super::{
    ApplyError, ErasureCodeProfile, OsdMap, OsdMapFlags, OsdState, OsdXInfo, PgPool, Release,
    SIGNIFICANT_FEATURES, StretchMode,
};
use crate::features::Features;
use crate::types::{EntityAddr, EntityAddrVec, Epoch, IntervalSet, OsdId, PgId, PoolId, Uuid};
use base::WallTime;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// `OSDMap::Incremental`: what turns epoch − 1 into `epoch`.
///
/// Shape:  empty fields change nothing; `Option`s likewise.
/// Source: Ceph 16.2.15, src/osd/OSDMap.{h,cc}.
#[derive(Clone, PartialEq, Debug)]
pub struct OsdMapIncremental {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub modified: WallTime,
    /// −1 for unchanged.
    pub new_pool_max: i64,
    pub new_flags: Option<OsdMapFlags>,
    /// A whole encoded map, instead of all that follows; empty normally.
    pub fullmap: Bytes,
    /// A new CRUSH map; empty for unchanged.
    pub crush: Bytes,
    /// −1 for unchanged.
    pub new_max_osd: i32,
    pub new_pools: BTreeMap<PoolId, PgPool>,
    pub new_pool_names: BTreeMap<PoolId, String>,
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs that came up, and where clients reach them.
    pub new_up_client: BTreeMap<OsdId, EntityAddrVec>,
    /// Masks to XOR into states; 0 stands for [`OsdState::UP`].
    pub new_state: BTreeMap<OsdId, OsdState>,
    pub new_weight: BTreeMap<OsdId, u32>,
    /// An empty set removes the entry.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// −1 removes the entry.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    pub new_erasure_code_profiles: BTreeMap<String, ErasureCodeProfile>,
    pub old_erasure_code_profiles: Vec<String>,
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    pub old_pg_upmap: BTreeSet<PgId>,
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    pub old_pg_upmap_items: BTreeSet<PgId>,
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Zero for unchanged, as the next one.
    pub new_last_up_change: WallTime,
    pub new_last_in_change: WallTime,

    pub new_hb_back_up: BTreeMap<OsdId, EntityAddrVec>,
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    /// (begin, end)
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    pub new_lost: BTreeMap<OsdId, Epoch>,
    pub new_blocklist: BTreeMap<EntityAddr, WallTime>,
    pub old_blocklist: Vec<EntityAddr>,
    pub new_range_blocklist: BTreeMap<EntityAddr, WallTime>,
    pub old_range_blocklist: Vec<EntityAddr>,
    pub new_up_cluster: BTreeMap<OsdId, EntityAddrVec>,
    pub cluster_snapshot: String,
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    pub new_xinfo: BTreeMap<OsdId, OsdXInfo>,
    pub new_hb_front_up: BTreeMap<OsdId, EntityAddrVec>,
    /// The features with which the resulting full map is encoded, on which its
    /// checksum depends.
    pub encode_features: Features,
    /// Negative for unchanged, as the next two.
    pub new_nearfull_ratio: f32,
    pub new_full_ratio: f32,
    pub new_backfillfull_ratio: f32,
    pub new_require_min_compat_client: Release,
    pub new_require_osd_release: Release,
    pub new_crush_node_flags: BTreeMap<i32, OsdState>,
    pub new_device_class_flags: BTreeMap<i32, OsdState>,
    pub new_stretch_mode: Option<StretchMode>,
    /// The checksum that the resulting full map must have.
    pub full_crc: u32,
}

impl OsdMapIncremental {
    /// Changes nothing but the epoch.
    pub fn new(fsid: Uuid, epoch: Epoch) -> OsdMapIncremental {
        OsdMapIncremental {
            fsid,
            epoch,
            modified: WallTime::ZERO,
            new_pool_max: -1,
            new_flags: None,
            fullmap: Bytes::new(),
            crush: Bytes::new(),
            new_max_osd: -1,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: BTreeMap::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            new_last_up_change: WallTime::ZERO,
            new_last_in_change: WallTime::ZERO,
            new_hb_back_up: BTreeMap::new(),
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            new_up_cluster: BTreeMap::new(),
            cluster_snapshot: String::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            encode_features: SIGNIFICANT_FEATURES,
            new_nearfull_ratio: -1.0,
            new_full_ratio: -1.0,
            new_backfillfull_ratio: -1.0,
            new_require_min_compat_client: Release::UNCHANGED,
            new_require_osd_release: Release::UNCHANGED,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            new_stretch_mode: None,
            full_crc: 0,
        }
    }

    /// Finishes an incremental that the caller has filled in: sets the checksum
    /// of the full map that it leads to, and returns that map.
    ///
    /// Errors: as [`OsdMap::advanced`]; the incremental is then as it was.
    pub fn seal(&mut self, from: &OsdMap) -> Result<OsdMap, ApplyError> {
        let next = from.advanced(self)?;
        self.full_crc = next.crc();
        Ok(next)
    }
}
