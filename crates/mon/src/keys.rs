//! Where what lies in the map store. Numbers are padded so that the store's
//! order is theirs.

use wire::types::{Epoch, OsdId, PoolId};

/// The store's own version; see [`FORMAT_VERSION`].
pub const FORMAT: &str = "format";
/// Raised when older programs could not read what newer ones write.
pub const FORMAT_VERSION: u32 = 1;

pub const MON_MAP: &str = "monmap";
pub const MON_NAME: &str = "mon/name";
/// The first global id not yet reserved.
pub const GLOBAL_ID: &str = "ids/global";
/// The oldest and the newest OSDMap epoch kept.
pub const OSD_MAP_RANGE: &str = "osdmap/range";
pub const CONFIG: &str = "config/";
pub const CONFIG_LOG: &str = "config_log/";
pub const CONFIG_KEY: &str = "config_key/";
pub const LOG: &str = "log/";
pub const OSD_METADATA: &str = "osd_metadata/";
/// Of each pool with self-managed snapshots, the ids that need no trimming any more.
pub const PURGED_SNAPS: &str = "purged_snaps/";
pub const HEALTH_MUTES: &str = "health/mutes";

pub fn osd_map_full(epoch: Epoch) -> String {
    format!("osdmap/full/{:010}", epoch.0)
}

pub fn osd_map_incremental(epoch: Epoch) -> String {
    format!("osdmap/inc/{:010}", epoch.0)
}

pub fn log_entry(seq: u64) -> String {
    format!("{LOG}{seq:020}")
}

pub fn config_change(version: u64) -> String {
    format!("{CONFIG_LOG}{version:020}")
}

pub fn osd_metadata(osd: OsdId) -> String {
    format!("{OSD_METADATA}{:010}", osd.0)
}

pub fn purged_snaps(pool: PoolId) -> String {
    format!("{PURGED_SNAPS}{:010}", pool.0)
}
