//! `ceph osd dump`, plain.

use super::osd_map::{nth, state_names, weight};
use super::pg_pool::pool_name;
use super::{addrs_text, general, min_compat_client, pool_text, snap_intervals_text, snap_text, wall_time};
use crate::maps::{OsdMap, Release};
use crate::types::{OsdId, Uuid};
use std::fmt::Write;

pub fn osd_map_text(map: &OsdMap) -> String {
    let mut out = String::new();
    write_header(&mut out, map);
    write_pools(&mut out, map);
    let _ = writeln!(out, "max_osd {}", map.max_osd);
    for osd in map.osds() {
        write_osd(&mut out, map, osd);
    }
    write_overrides(&mut out, map);
    for (addr, until) in &map.blocklist {
        let _ = writeln!(out, "blocklist {addr} expires {}", wall_time(*until));
    }
    for (addr, until) in &map.range_blocklist {
        let _ = writeln!(out, "range blocklist {addr} expires {}", wall_time(*until));
    }
    out
}

/// `ceph osd pool ls detail`, which ends with an empty line.
pub fn pools_detail_text(map: &OsdMap) -> String {
    let mut out = String::new();
    write_pools(&mut out, map);
    out.push('\n');
    out
}

fn write_header(out: &mut String, map: &OsdMap) {
    let _ = writeln!(out, "epoch {}", map.epoch);
    let _ = writeln!(out, "fsid {}", map.fsid);
    let _ = writeln!(out, "created {}", wall_time(map.created));
    let _ = writeln!(out, "modified {}", wall_time(map.modified));
    let _ = writeln!(out, "flags {}", map.flags);
    let _ = writeln!(out, "crush_version {}", map.crush_version);
    let _ = writeln!(out, "full_ratio {}", general(map.full_ratio.into()));
    let _ = writeln!(out, "backfillfull_ratio {}", general(map.backfillfull_ratio.into()));
    let _ = writeln!(out, "nearfull_ratio {}", general(map.nearfull_ratio.into()));
    if map.require_min_compat_client != Release::UNKNOWN {
        let _ = writeln!(out, "require_min_compat_client {}", map.require_min_compat_client);
    }
    let _ = writeln!(out, "min_compat_client {}", min_compat_client(map));
    if map.require_osd_release != Release::UNKNOWN {
        let _ = writeln!(out, "require_osd_release {}", map.require_osd_release);
    }
    let stretch = map.stretch_mode.unwrap_or_default();
    let _ = writeln!(out, "stretch_mode_enabled {}", stretch.enabled);
    if stretch.enabled {
        let _ = writeln!(out, "stretch_bucket_count {}", stretch.bucket_count);
        let _ = writeln!(out, "degraded_stretch_mode {}", stretch.degraded);
        let _ = writeln!(out, "recovering_stretch_mode {}", stretch.recovering);
        let _ = writeln!(out, "stretch_mode_bucket {}", stretch.bucket);
    }
    if !map.cluster_snapshot.is_empty() {
        let _ = writeln!(out, "cluster_snapshot {}", map.cluster_snapshot);
    }
}

fn write_pools(out: &mut String, map: &OsdMap) {
    for (id, pool) in &map.pools {
        let _ = writeln!(out, "pool {id} '{}' {}", pool_name(map, *id), pool_text(pool));
        for snap in pool.snaps.values() {
            let stamp = wall_time(snap.stamp);
            let _ = writeln!(out, "\tsnap {} '{}' {stamp}", snap_text(snap.snapid), snap.name);
        }
        if !pool.removed_snaps.is_empty() {
            let _ = writeln!(out, "\tremoved_snaps {}", snap_intervals_text(&pool.removed_snaps));
        }
        if let Some(queue) = map.removed_snaps_queue.get(id) {
            let _ = writeln!(out, "\tremoved_snaps_queue {}", snap_intervals_text(queue));
        }
    }
}

fn write_osd(out: &mut String, map: &OsdMap, osd: OsdId) {
    let up = if map.is_up(osd) { "up  " } else { "down" };
    let inside = if map.is_in(osd) { "in " } else { "out" };
    let _ = write!(out, "osd.{osd} {up} {inside} weight {}", general(weight(map.weight(osd))));
    let affinity = map.primary_affinity(osd);
    if affinity != OsdMap::DEFAULT_PRIMARY_AFFINITY {
        let _ = write!(out, " primary_affinity {}", general(weight(affinity)));
    }
    let info = map.info(osd).copied().unwrap_or_default();
    let _ = write!(
        out,
        " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
        info.up_from, info.up_thru, info.down_at, info.last_clean_begin, info.last_clean_end
    );
    if info.lost_at.0 != 0 {
        let _ = write!(out, " lost_at {}", info.lost_at);
    }
    let public = addrs_text(&nth(&map.client_addrs, osd));
    let cluster = addrs_text(&nth(&map.cluster_addrs, osd));
    let _ = write!(out, " {public} {cluster} {}", state_names(map.state(osd)).join(","));
    match map.uuid(osd) {
        Some(uuid) if uuid != Uuid::ZERO => {
            let _ = writeln!(out, " {uuid}");
        }
        _ => out.push('\n'),
    }
}

fn list(items: impl Iterator<Item = i32>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    format!("[{}]", items.join(","))
}

fn write_overrides(out: &mut String, map: &OsdMap) {
    for (pg, osds) in &map.pg_upmap {
        let _ = writeln!(out, "pg_upmap {pg} {}", list(osds.iter().map(|o| o.0)));
    }
    for (pg, items) in &map.pg_upmap_items {
        let _ = writeln!(out, "pg_upmap_items {pg} {}", list(items.iter().flat_map(|(a, b)| [a.0, b.0])));
    }
    for (pg, osds) in &map.pg_temp {
        let _ = writeln!(out, "pg_temp {pg} {}", list(osds.iter().map(|o| o.0)));
    }
    for (pg, osd) in &map.primary_temp {
        let _ = writeln!(out, "primary_temp {pg} {osd}");
    }
}
