//! `ceph osd dump -f json`.

use super::pg_pool::with_name;
use super::{addrs, legacy_addr_text, number, wall_time};
use crate::maps::crush_summary::CrushSummary;
use crate::maps::{OsdMap, OsdState, Release};
use crate::types::{EntityAddr, EntityAddrVec, IntervalSet, OsdId, PoolId};
use base::WallTime;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub fn osd_map(map: &OsdMap) -> Value {
    let crush = CrushSummary::of(&map.crush).unwrap_or_default();
    let mut out = Map::new();
    for part in [header(map), members(map), overrides(map), tail(map, &crush)] {
        if let Value::Object(fields) = part {
            out.extend(fields);
        }
    }
    Value::Object(out)
}

/// The oldest release whose clients understand everything in this map.
pub fn min_compat_client(map: &OsdMap) -> Release {
    let crush = CrushSummary::of(&map.crush).unwrap_or_default();
    let has_affinity = map.primary_affinity.iter().any(|a| *a != OsdMap::DEFAULT_PRIMARY_AFFINITY);
    let has_tiers = map.pools.values().any(|p| p.tier_of.0 >= 0 || !p.tiers.is_empty());
    let rungs = [
        (
            !map.pg_upmap.is_empty() || !map.pg_upmap_items.is_empty() || crush.has_choose_args,
            Release::LUMINOUS,
        ),
        (crush.chooseleaf_stable, Release::JEWEL),
        (crush.has_straw2, Release::HAMMER),
        (has_affinity || crush.chooseleaf_vary_r || has_tiers, Release::FIREFLY),
        (crush.chooseleaf_descend_once, Release::BOBTAIL),
    ];
    rungs.into_iter().find(|(needed, _)| *needed).map_or(Release::ARGONAUT, |(_, release)| release)
}

fn header(map: &OsdMap) -> Value {
    let mut flags: Vec<&str> = map.flags.names().collect();
    flags.sort_unstable();
    json!({
        "epoch": map.epoch.0,
        "fsid": map.fsid.to_string(),
        "created": wall_time(map.created),
        "modified": wall_time(map.modified),
        "last_up_change": wall_time(map.last_up_change),
        "last_in_change": wall_time(map.last_in_change),
        "flags": map.flags.to_string(),
        "flags_num": map.flags.0,
        "flags_set": flags,
        "crush_version": map.crush_version,
        "full_ratio": number(map.full_ratio.into()),
        "backfillfull_ratio": number(map.backfillfull_ratio.into()),
        "nearfull_ratio": number(map.nearfull_ratio.into()),
        "cluster_snapshot": map.cluster_snapshot,
        "pool_max": map.pool_max,
        "max_osd": map.max_osd,
        "require_min_compat_client": map.require_min_compat_client.name(),
        "min_compat_client": min_compat_client(map).name(),
        "require_osd_release": map.require_osd_release.name(),
    })
}

fn members(map: &OsdMap) -> Value {
    let pools: Vec<Value> = map.pools.iter().map(|(id, pool)| with_name("pool", map, *id, pool)).collect();
    json!({
        "pools": pools,
        "osds": map.osds().map(|osd| osd_info(map, osd)).collect::<Vec<_>>(),
        "osd_xinfo": map.osds().map(|osd| osd_xinfo(map, osd)).collect::<Vec<_>>(),
    })
}

/// Names in alphabetical order, as Ceph's sets of strings have them.
pub(super) fn state_names(state: OsdState) -> Vec<&'static str> {
    let mut names: Vec<&str> = state.names().collect();
    names.sort_unstable();
    names
}

/// The float that Ceph makes of a fixed-point weight.
pub(super) fn weight(fixed: u32) -> f64 {
    f64::from(fixed as f32 / OsdMap::WEIGHT_IN as f32)
}

pub(super) fn nth(list: &[EntityAddrVec], osd: OsdId) -> EntityAddrVec {
    usize::try_from(osd.0).ok().and_then(|i| list.get(i)).cloned().unwrap_or_default()
}

fn osd_info(map: &OsdMap, osd: OsdId) -> Value {
    let info = map.info(osd).copied().unwrap_or_default();
    let public = nth(&map.client_addrs, osd);
    let cluster = nth(&map.cluster_addrs, osd);
    let back = nth(&map.hb_back_addrs, osd);
    let front = nth(&map.hb_front_addrs, osd);
    json!({
        "osd": osd.0,
        "uuid": map.uuid(osd).unwrap_or_default().to_string(),
        "up": u8::from(map.is_up(osd)),
        "in": u8::from(map.is_in(osd)),
        "weight": number(weight(map.weight(osd))),
        "primary_affinity": number(weight(map.primary_affinity(osd))),
        "last_clean_begin": info.last_clean_begin.0,
        "last_clean_end": info.last_clean_end.0,
        "up_from": info.up_from.0,
        "up_thru": info.up_thru.0,
        "down_at": info.down_at.0,
        "lost_at": info.lost_at.0,
        "public_addrs": addrs(&public),
        "cluster_addrs": addrs(&cluster),
        "heartbeat_back_addrs": addrs(&back),
        "heartbeat_front_addrs": addrs(&front),
        "public_addr": legacy_addr_text(&public),
        "cluster_addr": legacy_addr_text(&cluster),
        "heartbeat_back_addr": legacy_addr_text(&back),
        "heartbeat_front_addr": legacy_addr_text(&front),
        "state": state_names(map.state(osd)),
    })
}

fn osd_xinfo(map: &OsdMap, osd: OsdId) -> Value {
    let xinfo = map.xinfo(osd).copied().unwrap_or_default();
    let laggy = xinfo.laggy_probability as f32 / u32::MAX as f32;
    json!({
        "osd": osd.0,
        "down_stamp": wall_time(xinfo.down_stamp),
        "laggy_probability": number(laggy.into()),
        "laggy_interval": xinfo.laggy_interval,
        "features": xinfo.features.0,
        "old_weight": xinfo.old_weight,
        "last_purged_snaps_scrub": wall_time(xinfo.last_purged_snaps_scrub),
        "dead_epoch": xinfo.dead_epoch.0,
    })
}

fn osd_ids(osds: &[OsdId]) -> Vec<i32> {
    osds.iter().map(|osd| osd.0).collect()
}

fn overrides(map: &OsdMap) -> Value {
    let upmap_items: Vec<Value> = (map.pg_upmap_items.iter())
        .map(|(pg, items)| {
            let mappings: Vec<Value> =
                items.iter().map(|(from, to)| json!({"from": from.0, "to": to.0})).collect();
            json!({"pgid": pg.to_string(), "mappings": mappings})
        })
        .collect();
    let sets = |sets: &BTreeMap<_, Vec<OsdId>>| -> Vec<Value> {
        sets.iter()
            .map(
                |(pg, osds): (&crate::types::PgId, _)| json!({"pgid": pg.to_string(), "osds": osd_ids(osds)}),
            )
            .collect()
    };
    // Not objects: Ceph forgets to open one per entry, so ids and OSDs alternate.
    let primary_temp: Vec<Value> =
        map.primary_temp.iter().flat_map(|(pg, osd)| [json!(pg.to_string()), json!(osd.0)]).collect();
    json!({
        "pg_upmap": sets(&map.pg_upmap),
        "pg_upmap_items": upmap_items,
        "pg_temp": sets(&map.pg_temp),
        "primary_temp": primary_temp,
    })
}

fn expiries(list: &BTreeMap<EntityAddr, WallTime>) -> Map<String, Value> {
    list.iter().map(|(addr, until)| (addr.to_string(), json!(wall_time(*until)))).collect()
}

fn snap_queues(queues: &BTreeMap<PoolId, IntervalSet>) -> Vec<Value> {
    (queues.iter())
        .map(|(pool, snaps)| {
            let intervals: Vec<Value> =
                snaps.iter().map(|(begin, length)| json!({"begin": begin, "length": length})).collect();
            json!({"pool": pool.0, "snaps": intervals})
        })
        .collect()
}

fn named_flags(flags: &BTreeMap<i32, OsdState>, names: &BTreeMap<i32, String>) -> Map<String, Value> {
    (flags.iter())
        .map(|(id, bits)| {
            let name = names.get(id).cloned().unwrap_or_else(|| id.to_string());
            (name, json!(state_names(*bits)))
        })
        .collect()
}

fn tail(map: &OsdMap, crush: &CrushSummary) -> Value {
    let stretch = map.stretch_mode.unwrap_or_default();
    json!({
        "blocklist": expiries(&map.blocklist),
        "range_blocklist": expiries(&map.range_blocklist),
        "erasure_code_profiles": map.erasure_code_profiles,
        "removed_snaps_queue": snap_queues(&map.removed_snaps_queue),
        "new_removed_snaps": snap_queues(&map.new_removed_snaps),
        "new_purged_snaps": snap_queues(&map.new_purged_snaps),
        "crush_node_flags": named_flags(&map.crush_node_flags, &crush.item_names),
        "device_class_flags": named_flags(&map.device_class_flags, &crush.class_names),
        "stretch_mode": {
            "stretch_mode_enabled": stretch.enabled,
            "stretch_bucket_count": stretch.bucket_count,
            "degraded_stretch_mode": stretch.degraded,
            "recovering_stretch_mode": stretch.recovering,
            "stretch_mode_bucket": stretch.bucket,
        },
    })
}
