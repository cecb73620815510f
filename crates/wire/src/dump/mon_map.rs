//! `ceph mon dump`.

use super::{addrs, addrs_text, legacy_addr_text, wall_time, wall_time_utc};
use crate::maps::{MonInfo, MonMap};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

fn feature_names(bits: u64) -> Vec<&'static str> {
    MonMap::FEATURE_NAMES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

fn joined<T: ToString>(set: &BTreeSet<T>) -> String {
    set.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn location_text(location: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = location.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}

/// `quorum` holds the ranks that are in it.
pub fn mon_map(map: &MonMap, quorum: &[u32]) -> Value {
    let mons: Vec<Value> = map.iter_by_rank().enumerate().map(|(rank, mon)| mon_info(rank, mon)).collect();
    // The keys with a colon are Ceph's.
    json!({
        "epoch": map.epoch,
        "fsid": map.fsid.to_string(),
        "modified": wall_time_utc(map.last_changed),
        "created": wall_time_utc(map.created),
        "min_mon_release": map.min_mon_release.0,
        "min_mon_release_name": map.min_mon_release.name(),
        "election_strategy": map.strategy,
        "disallowed_leaders: ": joined(&map.disallowed_leaders),
        "stretch_mode": map.stretch_mode_enabled,
        "tiebreaker_mon": map.tiebreaker_mon,
        "removed_ranks: ": joined(&map.removed_ranks),
        "features": {
            "persistent": feature_names(map.persistent_features),
            "optional": feature_names(map.optional_features),
        },
        "mons": mons,
        "quorum": quorum,
    })
}

fn mon_info(rank: usize, mon: &MonInfo) -> Value {
    json!({
        "rank": rank,
        "name": mon.name,
        "public_addrs": addrs(&mon.public_addrs),
        "addr": legacy_addr_text(&mon.public_addrs),
        "public_addr": legacy_addr_text(&mon.public_addrs),
        "priority": mon.priority,
        "weight": mon.weight,
        "crush_location": location_text(&mon.crush_loc),
    })
}

pub fn mon_map_text(map: &MonMap) -> String {
    let mut out = format!(
        "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\nelection_strategy: {}\n",
        map.epoch,
        map.fsid,
        wall_time(map.last_changed),
        wall_time(map.created),
        map.min_mon_release.0,
        map.min_mon_release,
        map.strategy,
    );
    if map.stretch_mode_enabled {
        let _ = writeln!(out, "stretch_mode_enabled 1\ntiebreaker_mon {}", map.tiebreaker_mon);
    }
    if map.stretch_mode_enabled || !map.disallowed_leaders.is_empty() {
        let _ = writeln!(out, "disallowed_leaders {}", joined(&map.disallowed_leaders));
    }
    for (rank, mon) in map.iter_by_rank().enumerate() {
        let _ = write!(out, "{rank}: {} mon.{}", addrs_text(&mon.public_addrs), mon.name);
        if !mon.crush_loc.is_empty() {
            let _ = write!(out, "; crush_location {}", location_text(&mon.crush_loc));
        }
        out.push('\n');
    }
    out
}
