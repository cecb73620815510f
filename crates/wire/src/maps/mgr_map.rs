mod codec;

use crate::types::{EntityAddrVec, Epoch};
use base::WallTime;
use std::collections::{BTreeMap, BTreeSet};

/// `MgrMap::ModuleOption`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleOption {
    pub name: String,
    /// `Option::type_t`
    pub kind: u8,
    /// `Option::level_t`
    pub level: u8,
    pub flags: u32,
    pub default_value: String,
    pub min: String,
    pub max: String,
    pub enum_allowed: BTreeSet<String>,
    pub desc: String,
    pub long_desc: String,
    pub tags: BTreeSet<String>,
    pub see_also: BTreeSet<String>,
}

/// `MgrMap::ModuleInfo`: a manager module that could be enabled.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModuleInfo {
    pub name: String,
    pub can_run: bool,
    pub error_string: String,
    pub module_options: BTreeMap<String, ModuleOption>,
}

/// `MgrMap::StandbyInfo`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StandbyInfo {
    pub gid: u64,
    pub name: String,
    pub available_modules: Vec<ModuleInfo>,
    pub mgr_features: u64,
}

/// `MgrMap`: where the manager is. The default, no manager at all, is valid:
/// nobody dials one then.
///
/// Source: Ceph 16.2.15, src/mon/MgrMap.h.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MgrMap {
    /// The mgrmap's own version, unrelated to the OSDMap's.
    pub epoch: u32,
    pub active_addrs: EntityAddrVec,
    pub active_gid: u64,
    pub available: bool,
    pub active_name: String,
    pub standbys: BTreeMap<u64, StandbyInfo>,
    pub modules: BTreeSet<String>,
    /// Service name to URI.
    pub services: BTreeMap<String, String>,
    pub available_modules: Vec<ModuleInfo>,
    pub active_change: WallTime,
    /// By release number.
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    pub active_mgr_features: u64,
    pub last_failure_osd_epoch: Epoch,
    /// The RADOS clients that run inside the active manager: names and addresses, in step.
    pub clients: Vec<(String, EntityAddrVec)>,
}
