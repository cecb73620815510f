//! Cluster maps: what every daemon and client agrees on.
//!
//! One file per type. The encodings are bit exact with Ceph 16.2 for a peer
//! that has every Pacific feature: the checksum in an OSDMap covers its bytes,
//! so a map encoded otherwise is a broken map. Peers that lack one of
//! [`REQUIRED_FEATURES`] would be sent older forms by Ceph; we do not speak
//! those, and the monitor must refuse such peers.
//!
//! What this module must not know: how a map is stored, who asked for it, and
//! what CRUSH says (the CRUSH map is an opaque blob here).

mod bits;
pub(crate) mod crush_summary;
mod mgr_map;
mod mon_map;
mod object_stat_sum;
mod osd_flags;
mod osd_info;
mod osd_map;
mod osd_map_incremental;
mod osd_state;
mod osd_xinfo;
mod pg_merge_meta;
mod pg_pool;
mod placement;
mod pool_flags;
mod pool_opts;
mod pool_snap_info;
mod pool_stat;
mod release;
mod store_statfs;

pub use mgr_map::{MgrMap, ModuleInfo, ModuleOption, StandbyInfo};
pub use mon_map::{MonInfo, MonMap};
pub use object_stat_sum::ObjectStatSum;
pub use osd_flags::OsdMapFlags;
pub use osd_info::OsdInfo;
pub use osd_map::{ApplyError, ErasureCodeProfile, OsdMap, StretchMode};
pub use osd_map_incremental::OsdMapIncremental;
pub use osd_state::OsdState;
pub use osd_xinfo::OsdXInfo;
pub use pg_merge_meta::PgMergeMeta;
pub use pg_pool::{AutoscaleMode, HitSetParams, PeeringCrush, PgPool, PoolType};
pub use placement::{placement_hash, stable_mod, string_hash};
pub use pool_flags::PoolFlags;
pub use pool_opts::{PoolOpt, PoolOptKey, PoolOptType, PoolOptValue, PoolOpts};
pub use pool_snap_info::PoolSnapInfo;
pub use pool_stat::PoolStat;
pub use release::Release;
pub use store_statfs::StoreStatfs;

use crate::features::Features;

/// What a peer must have for our encoding of the maps to be the one it expects:
/// refuse it when `peer.missing(REQUIRED_FEATURES)` is not empty.
/// WIRE: maps#features
pub const REQUIRED_FEATURES: Features = Features(
    Features::SERVER_LUMINOUS.0
        | Features::SERVER_MIMIC.0
        | Features::SERVER_NAUTILUS.0
        | Features::SERVER_OCTOPUS.0
        | Features::MSG_ADDR2.0,
);

/// The features on which the bytes of an OSDMap depend, as a Pacific monitor
/// records them in an incremental.
///
/// Source: Ceph 16.2.15, src/osd/OSDMap.h (`SIGNIFICANT_FEATURES`), and a
/// captured incremental.
pub const SIGNIFICANT_FEATURES: Features = Features(0x0f00_0880_1021_2a04);
