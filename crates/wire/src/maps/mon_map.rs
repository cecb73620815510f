use super::Release;
use crate::types::{EntityAddrVec, Uuid};
use base::WallTime;
use std::collections::{BTreeMap, BTreeSet};

/// `mon_info_t`: one monitor.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MonInfo {
    pub name: String,
    pub public_addrs: EntityAddrVec,
    /// Lower is asked first.
    pub priority: u16,
    pub weight: u16,
    pub crush_loc: BTreeMap<String, String>,
}

/// `MonMap`: the cluster's identity and its monitors.
///
/// Shape:  `ranks` holds the names of `mon_info`, by rank.
/// Source: Ceph 16.2.15, src/mon/MonMap.{h,cc}.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonMap {
    pub fsid: Uuid,
    /// The monmap's own version, unrelated to the OSDMap's.
    pub epoch: u32,
    pub last_changed: WallTime,
    pub created: WallTime,
    /// `mon_feature_t` bits: what every monitor of the quorum must understand.
    pub persistent_features: u64,
    pub optional_features: u64,
    pub mon_info: BTreeMap<String, MonInfo>,
    pub ranks: Vec<String>,
    pub min_mon_release: Release,
    pub removed_ranks: BTreeSet<u32>,
    /// Election strategy: 1 classic, 2 disallow, 3 connectivity.
    pub strategy: u8,
    pub disallowed_leaders: BTreeSet<String>,
    pub stretch_mode_enabled: bool,
    pub tiebreaker_mon: String,
    pub stretch_marked_down_mons: BTreeSet<String>,
}

impl MonMap {
    /// kraken, luminous, mimic, osdmap-prune, nautilus, octopus, pacific,
    /// elector-pinging: a Pacific cluster's persistent features. Clients wait
    /// for a config message when nautilus is among them.
    pub const FEATURES_PACIFIC: u64 = 0xff;

    /// The names of `mon_feature_t` bits.
    pub const FEATURE_NAMES: [(u64, &'static str); 8] = [
        (1 << 0, "kraken"),
        (1 << 1, "luminous"),
        (1 << 2, "mimic"),
        (1 << 3, "osdmap-prune"),
        (1 << 4, "nautilus"),
        (1 << 5, "octopus"),
        (1 << 6, "pacific"),
        (1 << 7, "elector-pinging"),
    ];
}

impl Default for MonMap {
    fn default() -> MonMap {
        MonMap {
            fsid: Uuid::ZERO,
            epoch: 0,
            last_changed: WallTime::ZERO,
            created: WallTime::ZERO,
            persistent_features: MonMap::FEATURES_PACIFIC,
            optional_features: 0,
            mon_info: BTreeMap::new(),
            ranks: Vec::new(),
            min_mon_release: Release::PACIFIC,
            removed_ranks: BTreeSet::new(),
            strategy: 1,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode_enabled: false,
            tiebreaker_mon: String::new(),
            stretch_marked_down_mons: BTreeSet::new(),
        }
    }
}
