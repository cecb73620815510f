use super::Release;
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
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

impl MonMap {
    const VERSION: u8 = 9;
    const COMPAT: u8 = 6;

    /// A monitor's rank: its place in `ranks`.
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// Monitors in the order of their ranks.
    pub fn iter_by_rank(&self) -> impl Iterator<Item = &MonInfo> {
        self.ranks.iter().filter_map(|name| self.mon_info.get(name))
    }
}

/// `mon_feature_t` is an integer in an envelope of its own.
fn encode_mon_features(e: &mut Encoder, bits: u64) {
    e.versioned(1, 1, |e| e.u64(bits));
}

fn decode_mon_features(d: &mut Decoder) -> Result<u64> {
    d.versioned("mon_feature_t", 1, |d, _| d.u64())
}

impl Encode for MonMap {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(Self::VERSION, Self::COMPAT, |e| {
            e.put(&self.fsid);
            e.u32(self.epoch);
            e.put(&self.last_changed);
            e.put(&self.created);
            encode_mon_features(e, self.persistent_features);
            encode_mon_features(e, self.optional_features);
            e.put(&self.mon_info);
            e.put(&self.ranks);
            e.put(&self.min_mon_release);
            e.put(&self.removed_ranks);
            e.u8(self.strategy);
            e.put(&self.disallowed_leaders);
            e.bool(self.stretch_mode_enabled);
            e.string(&self.tiebreaker_mon);
            e.put(&self.stretch_marked_down_mons);
        });
    }
}

impl Decode for MonMap {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("MonMap", Self::VERSION, |d, version| {
            if version < Self::VERSION {
                return Err(DecodeError::TooOld { what: "MonMap", version, oldest: Self::VERSION });
            }
            Ok(MonMap {
                fsid: d.get()?,
                epoch: d.u32()?,
                last_changed: d.get()?,
                created: d.get()?,
                persistent_features: decode_mon_features(d)?,
                optional_features: decode_mon_features(d)?,
                mon_info: d.get()?,
                ranks: d.get()?,
                min_mon_release: d.get()?,
                removed_ranks: d.get()?,
                strategy: d.u8()?,
                disallowed_leaders: d.get()?,
                stretch_mode_enabled: d.bool()?,
                tiebreaker_mon: d.string()?,
                stretch_marked_down_mons: d.get()?,
            })
        })
    }
}

impl Encode for MonInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(5, 1, |e| {
            e.string(&self.name);
            e.put(&self.public_addrs);
            e.u16(self.priority);
            e.u16(self.weight);
            e.put(&self.crush_loc);
        });
    }
}

impl Decode for MonInfo {
    const MIN_LEN: usize = 6 + 4 + 5;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("mon_info_t", 5, |d, version| {
            Ok(MonInfo {
                name: d.string()?,
                public_addrs: d.get()?,
                priority: if version >= 2 { d.u16()? } else { 0 },
                weight: if version >= 4 { d.u16()? } else { 0 },
                crush_loc: if version >= 5 { d.get()? } else { BTreeMap::new() },
            })
        })
    }
}
