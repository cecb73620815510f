mod codec;

use super::{PgMergeMeta, PoolFlags, PoolOpts, PoolSnapInfo, stable_mod};
use crate::types::{Epoch, IntervalSet, PgId, PoolId, SnapId};
use base::WallTime;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PoolType {
    #[default]
    Replicated,
    Erasure,
}

/// What the manager's autoscaler may do to a pool's `pg_num`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AutoscaleMode {
    #[default]
    Off,
    Warn,
    On,
    /// Never said: only in pools of old clusters.
    Unknown,
}

/// `HitSet::Params`: how a cache tier remembers what was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HitSetParams {
    #[default]
    None,
    ExplicitHash,
    ExplicitObject,
    /// `fpp_micro` is the false-positive probability in millionths.
    Bloom {
        fpp_micro: u32,
        target_size: u64,
        seed: u64,
    },
}

/// How a stretch pool's PGs may peer: only in pools of a stretch cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeeringCrush {
    pub bucket_count: u32,
    pub bucket_target: u32,
    pub bucket_barrier: u32,
    pub mandatory_member: i32,
}

/// `pg_pool_t`: a pool.
///
/// Shape:  counts and sizes are what the writer put there; 0 PGs give PG 0, not a
///         panic.
/// Source: Ceph 16.2.15, src/osd/osd_types.{h,cc} (`pg_pool_t`).
#[derive(Clone, PartialEq, Debug)]
pub struct PgPool {
    pub pool_type: PoolType,
    pub size: u8,
    pub min_size: u8,
    pub crush_rule: u8,
    /// 2 is rjenkins, the only one supported.
    pub object_hash: u8,
    pub pg_num: u32,
    /// How many different placements the PGs have; follows `pg_num`.
    pub pgp_num: u32,
    pub last_change: Epoch,
    pub snap_seq: SnapId,
    pub snap_epoch: Epoch,
    pub snaps: BTreeMap<SnapId, PoolSnapInfo>,
    /// Before Octopus; since then see `OsdMap::removed_snaps_queue`.
    pub removed_snaps: IntervalSet,
    pub auid: u64,
    pub flags: PoolFlags,
    /// 0 is no quota.
    pub quota_max_bytes: u64,
    pub quota_max_objects: u64,
    pub tiers: BTreeSet<PoolId>,
    /// −1 for none, as in the next two.
    pub tier_of: PoolId,
    /// 0 none, 1 writeback, 2 forward, 3 readonly, 4 readforward, 5 readproxy, 6 proxy.
    pub cache_mode: u8,
    pub read_tier: PoolId,
    pub write_tier: PoolId,
    pub properties: BTreeMap<String, String>,
    pub hit_set_params: HitSetParams,
    pub hit_set_period: u32,
    pub hit_set_count: u32,
    /// Units: bytes of user data in one stripe of an erasure-coded pool.
    pub stripe_width: u32,
    pub target_max_bytes: u64,
    pub target_max_objects: u64,
    pub cache_target_dirty_ratio_micro: u32,
    pub cache_target_dirty_high_ratio_micro: u32,
    pub cache_target_full_ratio_micro: u32,
    /// Units: seconds, as the next one.
    pub cache_min_flush_age: u32,
    pub cache_min_evict_age: u32,
    pub erasure_code_profile: String,
    /// Clients resend what they sent before this epoch; three generations of them.
    pub last_force_op_resend: Epoch,
    pub last_force_op_resend_prenautilus: Epoch,
    pub last_force_op_resend_preluminous: Epoch,
    pub min_read_recency_for_promote: u32,
    pub min_write_recency_for_promote: u32,
    pub expected_num_objects: u64,
    pub use_gmt_hitset: bool,
    pub fast_read: bool,
    pub hit_set_grade_decay_rate: i32,
    pub hit_set_search_last_n: u32,
    pub opts: PoolOpts,
    /// Application name to its keys and values.
    pub application_metadata: BTreeMap<String, BTreeMap<String, String>>,
    pub create_time: WallTime,
    pub pg_num_target: u32,
    pub pgp_num_target: u32,
    pub pg_num_pending: u32,
    pub pg_autoscale_mode: AutoscaleMode,
    pub last_pg_merge_meta: PgMergeMeta,
    pub peering_crush: Option<PeeringCrush>,
}

impl Default for PgPool {
    /// As a new replicated pool without PGs; callers set sizes and counts.
    fn default() -> PgPool {
        PgPool {
            pool_type: PoolType::Replicated,
            size: 0,
            min_size: 0,
            crush_rule: 0,
            object_hash: 2,
            pg_num: 0,
            pgp_num: 0,
            last_change: Epoch(0),
            snap_seq: SnapId(0),
            snap_epoch: Epoch(0),
            snaps: BTreeMap::new(),
            removed_snaps: IntervalSet::new(),
            auid: 0,
            flags: PoolFlags::NONE,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: PoolId(-1),
            cache_mode: 0,
            read_tier: PoolId(-1),
            write_tier: PoolId(-1),
            properties: BTreeMap::new(),
            hit_set_params: HitSetParams::None,
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_dirty_high_ratio_micro: 600_000,
            cache_target_full_ratio_micro: 800_000,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend: Epoch(0),
            last_force_op_resend_prenautilus: Epoch(0),
            last_force_op_resend_preluminous: Epoch(0),
            min_read_recency_for_promote: 0,
            min_write_recency_for_promote: 0,
            expected_num_objects: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            opts: PoolOpts::default(),
            application_metadata: BTreeMap::new(),
            create_time: WallTime::ZERO,
            pg_num_target: 0,
            pgp_num_target: 0,
            pg_num_pending: 0,
            pg_autoscale_mode: AutoscaleMode::Off,
            last_pg_merge_meta: PgMergeMeta::default(),
            peering_crush: None,
        }
    }
}

/// The smallest 2^k − 1 that covers `0..n`.
fn mask_for(n: u32) -> u32 {
    n.checked_sub(1).map_or(0, |last| u32::MAX.checked_shr(last.leading_zeros()).unwrap_or(0))
}

impl PgPool {
    pub fn is_replicated(&self) -> bool {
        self.pool_type == PoolType::Replicated
    }

    pub fn is_erasure(&self) -> bool {
        self.pool_type == PoolType::Erasure
    }

    /// In an erasure-coded pool each position of a PG's set is a shard of its
    /// own, so a missing OSD leaves a hole instead of closing the ranks.
    pub fn can_shift_osds(&self) -> bool {
        self.is_replicated()
    }

    pub fn is_stretch(&self) -> bool {
        self.peering_crush.is_some_and(|p| p.bucket_count != 0)
    }

    pub fn pg_num_mask(&self) -> u32 {
        mask_for(self.pg_num)
    }

    pub fn pgp_num_mask(&self) -> u32 {
        mask_for(self.pgp_num)
    }

    /// The PG seed within this pool for a raw placement hash.
    pub fn raw_hash_to_seed(&self, hash: u32) -> u32 {
        stable_mod(hash, self.pg_num, self.pg_num_mask())
    }

    /// The PG that holds objects with this raw placement hash.
    pub fn raw_hash_to_pg(&self, pool: PoolId, hash: u32) -> PgId {
        PgId { pool, seed: self.raw_hash_to_seed(hash) }
    }

    /// A PG's placement group for placement: PGs with equal results are placed
    /// alike. CRUSH's input is the hash of this and the pool's id when the
    /// pool has [`PoolFlags::HASHPSPOOL`], else their sum.
    pub fn placement_seed(&self, pg_seed: u32) -> u32 {
        stable_mod(pg_seed, self.pgp_num, self.pgp_num_mask())
    }

    /// Sets `pg_num`, `pgp_num` and their targets alike: a pool at rest.
    pub fn set_pg_num(&mut self, pg_num: u32) {
        self.pg_num = pg_num;
        self.pgp_num = pg_num;
        self.pg_num_target = pg_num;
        self.pgp_num_target = pg_num;
        self.pg_num_pending = pg_num;
    }

    pub fn snap_by_name(&self, name: &str) -> Option<&PoolSnapInfo> {
        self.snaps.values().find(|s| s.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_cover_the_pg_count() {
        let masks = [0, 1, 2, 3, 4, 5, 8, 9, 1 << 31, u32::MAX].map(mask_for);
        let max = u32::MAX;
        assert_eq!(masks, [0, 0, 1, 3, 3, 7, 7, 15, max >> 1, max]);
    }

    #[test]
    fn hashes_fall_into_pgs_that_exist() {
        let pool = PgPool { pg_num: 12, ..PgPool::default() };
        for hash in 0..1000 {
            assert!(pool.raw_hash_to_seed(hash) < 12);
        }
        // 12..16 fold onto 4..8, everything else stays.
        assert_eq!(pool.raw_hash_to_seed(13), 5);
        assert_eq!(pool.raw_hash_to_seed(11), 11);
    }
}
