//! How the cluster is: `ceph -s`, health, space.

use super::{Command, Failure, Outcome, Reply, Request, fail};
use crate::format::table::{Align, Table};
use crate::format::time;
use crate::format::units::{self, bytes};
use crate::health::{Mute, share};
use crate::pg_map::{PgMap, PoolUsage, Rates, Space};
use crate::{fs_maps, keys};
use base::{Errno, Json, WallTime};
use std::collections::BTreeMap;
use wire::messages::pg_state;
use wire::types::OsdId;

pub const COMMANDS: &[Command] = &[
    Command { signature: "status", access: "mon r", help: "show the cluster's status", run: status },
    Command {
        signature: "health name=detail,type=CephChoices,strings=detail,req=false",
        access: "mon r",
        help: "show the cluster's health",
        run: health,
    },
    Command {
        signature: "health mute name=code,type=CephString name=ttl,type=CephString,req=false name=sticky,type=CephBool,req=false",
        access: "mon w",
        help: "do not let a health check count, for a time or until it clears",
        run: health_mute,
    },
    Command {
        signature: "health unmute name=code,type=CephString,req=false",
        access: "mon w",
        help: "let a muted health check, or all, count again",
        run: health_unmute,
    },
    Command {
        signature: "df name=detail,type=CephChoices,strings=detail,req=false",
        access: "mon r",
        help: "show used and free space",
        run: df,
    },
];

// ---- status ----

fn status(r: &mut Request) -> Outcome {
    Ok(r.json_or(|| status_json(r), || status_text(r)))
}

pub fn osd_summary(r: &Request) -> Json {
    let map = r.core.osd.map();
    Json::object()
        .with("epoch", map.epoch.0)
        .with("num_osds", map.num_osds())
        .with("num_up_osds", map.num_up_osds())
        .with("osd_up_since", map.last_up_change.sec)
        .with("num_in_osds", map.num_in_osds())
        .with("osd_in_since", map.last_in_change.sec)
        .with("num_remapped_pgs", remapped(r))
}

fn remapped(r: &Request) -> usize {
    r.core.pgs.pgs().filter(|e| e.has(pg_state::REMAPPED)).count()
}

/// `3 osds: 3 up (since 2m), 3 in (since 2m)`
pub fn osd_summary_text(r: &Request) -> String {
    let map = r.core.osd.map();
    let since = |at: WallTime| {
        if at == WallTime::ZERO {
            return String::new();
        }
        format!(" (since {})", time::age(u64::from(r.turn.wall.sec.saturating_sub(at.sec))))
    };
    format!(
        "{} osds: {} up{}, {} in{}",
        map.num_osds(),
        map.num_up_osds(),
        since(map.last_up_change),
        map.num_in_osds(),
        since(map.last_in_change)
    )
}

fn status_json(r: &Request) -> Json {
    let core = &*r.core;
    let health = core.health(r.turn.wall);
    let monmap = Json::object()
        .with("epoch", core.mon_map.epoch)
        .with("min_mon_release_name", core.mon_map.min_mon_release.name())
        .with("num_mons", core.mon_map.ranks.len());
    let fsmap = Json::object()
        .with("epoch", fs_maps::FS_MAP_EPOCH)
        .with("by_rank", Json::Array(vec![]))
        .with("up:standby", 0);
    let mgrmap = Json::object()
        .with("available", false)
        .with("num_standbys", 0)
        .with("modules", Json::Array(vec![]))
        .with("services", Json::object());
    let servicemap = Json::object()
        .with("epoch", 0)
        .with("modified", time::stamp(WallTime::ZERO))
        .with("services", Json::object());
    Json::object()
        .with("fsid", core.fsid.to_string())
        .with("health", health.to_json(false))
        .with("election_epoch", super::mon::ELECTION_EPOCH)
        .with("quorum", Json::array([0]))
        .with("quorum_names", Json::array([core.name.as_str()]))
        .with("quorum_age", super::mon::quorum_age(r))
        .with("monmap", monmap)
        .with("osdmap", osd_summary(r))
        .with("pgmap", pgmap_json(r))
        .with("fsmap", fsmap)
        .with("mgrmap", mgrmap)
        .with("servicemap", servicemap)
        .with("progress_events", Json::object())
}

fn pgmap_json(r: &Request) -> Json {
    let map = r.core.osd.map();
    let pgs = &r.core.pgs;
    let states = pgs
        .by_state(map)
        .into_iter()
        .map(|(state, count)| Json::object().with("state_name", pg_state::text(state)).with("count", count));
    let space = pgs.space(map);
    let sum = pgs.total().stats;
    let total = PgMap::pg_count(map);
    let mut json = Json::object()
        .with("pgs_by_state", Json::array(states))
        .with("num_pgs", total)
        .with("num_pools", map.pools.len())
        .with("num_objects", sum.num_objects)
        .with("data_bytes", sum.num_bytes)
        .with("bytes_used", space.used())
        .with("bytes_avail", space.available)
        .with("bytes_total", space.total);
    let unknown = pgs.unknown(map).len();
    let inactive = pgs.pgs().filter(|e| !e.has(pg_state::ACTIVE | pg_state::PEERED)).count();
    let ratio = |n: usize| n as f32 / total.max(1) as f32;
    if unknown > 0 {
        json.push("unknown_pgs_ratio", ratio(unknown));
    }
    if inactive > 0 {
        json.push("inactive_pgs_ratio", ratio(inactive));
    }
    for (part, whole, word) in [
        (sum.num_objects_degraded, sum.num_object_copies, "degraded"),
        (sum.num_objects_misplaced, sum.num_object_copies, "misplaced"),
        (sum.num_objects_unfound, sum.num_objects, "unfound"),
    ] {
        if part > 0 {
            json.push(format!("{word}_objects"), part);
            json.push(format!("{word}_total"), whole);
            json.push(format!("{word}_ratio"), part as f64 / whole.max(1) as f64);
        }
    }
    let rates = pgs.rates(r.turn.now, None);
    push_recovery(&mut json, &rates);
    push_client(&mut json, &rates);
    json
}

pub fn push_recovery(json: &mut Json, rates: &Rates) {
    if rates.has_recovery() {
        json.push("recovering_objects_per_sec", rates.recovered_objects);
        json.push("recovering_bytes_per_sec", rates.recovered_bytes);
        json.push("recovering_keys_per_sec", rates.recovered_keys);
        json.push("num_objects_recovered", rates.recovered_objects);
        json.push("num_bytes_recovered", rates.recovered_bytes);
        json.push("num_keys_recovered", rates.recovered_keys);
    }
}

pub fn push_client(json: &mut Json, rates: &Rates) {
    if rates.has_client_io() {
        if rates.read_bytes > 0 {
            json.push("read_bytes_sec", rates.read_bytes);
        }
        if rates.write_bytes > 0 {
            json.push("write_bytes_sec", rates.write_bytes);
        }
        json.push("read_op_per_sec", rates.read_ops);
        json.push("write_op_per_sec", rates.write_ops);
    }
}

/// `1.2 MiB/s rd, 3 MiB/s wr, 4 op/s rd, 5 op/s wr`
pub fn client_text(rates: &Rates) -> Option<String> {
    if !rates.has_client_io() {
        return None;
    }
    let mut parts = Vec::new();
    if rates.read_bytes > 0 {
        parts.push(format!("{}/s rd", bytes(rates.read_bytes)));
    }
    if rates.write_bytes > 0 {
        parts.push(format!("{}/s wr", bytes(rates.write_bytes)));
    }
    parts.push(format!("{} op/s rd", units::count(rates.read_ops)));
    parts.push(format!("{} op/s wr", units::count(rates.write_ops)));
    Some(parts.join(", "))
}

/// `1.2 MiB/s, 3 keys/s, 4 objects/s`
pub fn recovery_text(rates: &Rates) -> Option<String> {
    if !rates.has_recovery() {
        return None;
    }
    let mut parts = vec![format!("{}/s", bytes(rates.recovered_bytes))];
    if rates.recovered_keys > 0 {
        parts.push(format!("{} keys/s", units::count(rates.recovered_keys)));
    }
    if rates.recovered_objects > 0 {
        parts.push(format!("{} objects/s", units::count(rates.recovered_objects)));
    }
    Some(parts.join(", "))
}

fn status_text(r: &Request) -> String {
    let core = &*r.core;
    let health = core.health(r.turn.wall).status_lines().join("\n            ");
    let age = time::age(super::mon::quorum_age(r));
    let mut out = format!("  cluster:\n    id:     {}\n    health: {health}\n \n", core.fsid);
    out.push_str(&format!(
        "  services:\n    mon: 1 daemons, quorum {} (age {age})\n    mgr: no daemons active\n    osd: {}",
        core.name,
        osd_summary_text(r)
    ));
    let remapped = remapped(r);
    if remapped > 0 {
        out.push_str(&format!("; {remapped} remapped pgs"));
    }
    out.push_str("\n \n  data:\n");
    out.push_str(&data_text(r));
    let rates = core.pgs.rates(r.turn.now, None);
    let (client, recovery) = (client_text(&rates), recovery_text(&rates));
    if client.is_some() || recovery.is_some() {
        out.push_str(" \n  io:\n");
        for (word, text) in [("client:  ", client), ("recovery:", recovery)] {
            if let Some(text) = text {
                out.push_str(&format!("    {word} {text}\n"));
            }
        }
    }
    out.push_str(" \n");
    out
}

fn data_text(r: &Request) -> String {
    let map = r.core.osd.map();
    let pgs = &r.core.pgs;
    let (space, sum, total) = (pgs.space(map), pgs.total().stats, PgMap::pg_count(map));
    let objects = units::count(u64::try_from(sum.num_objects).unwrap_or(0));
    let data = bytes(u64::try_from(sum.num_bytes).unwrap_or(0));
    let mut out = format!(
        "    pools:   {} pools, {total} pgs\n    objects: {objects} objects, {data}\n    usage:   {} used, {} / {} avail\n",
        map.pools.len(),
        bytes(space.used()),
        bytes(space.available),
        bytes(space.total)
    );
    let mut lines = Vec::new();
    let percent = |n: usize| n as f64 * 100.0 / total.max(1) as f64;
    let unknown = pgs.unknown(map).len();
    if unknown > 0 {
        lines.push(format!("{:.3}% pgs unknown", percent(unknown)));
    }
    let inactive = pgs.pgs().filter(|e| !e.has(pg_state::ACTIVE | pg_state::PEERED)).count();
    if inactive > 0 {
        lines.push(format!("{:.3}% pgs not active", percent(inactive)));
    }
    for (part, whole, word) in [
        (sum.num_objects_degraded, sum.num_object_copies, "degraded"),
        (sum.num_objects_misplaced, sum.num_object_copies, "misplaced"),
        (sum.num_objects_unfound, sum.num_objects, "unfound"),
    ] {
        if part > 0 {
            lines.push(share(part, whole, word));
        }
    }
    let states = pgs.by_state(map);
    let width = states.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(1);
    lines.extend(states.iter().map(|(state, n)| format!("{n:<width$} {}", pg_state::text(*state))));
    for (i, line) in lines.iter().enumerate() {
        let label = if i == 0 { "    pgs:     " } else { "             " };
        out.push_str(&format!("{label}{line}\n"));
    }
    if lines.is_empty() {
        out.push_str("    pgs:     \n");
    }
    out
}

// ---- health ----

fn health(r: &mut Request) -> Outcome {
    let detail = r.args.has("detail");
    let health = r.core.health(r.turn.wall);
    Ok(r.json_or(|| health.to_json(detail), || health.to_text(detail)))
}

fn health_mute(r: &mut Request) -> Outcome {
    let code = r.args.string("code")?;
    let sticky = r.args.flag("sticky");
    let until = match r.args.optional_string("ttl") {
        Some(ttl) => r.turn.wall + parse_ttl(&ttl)?,
        None => WallTime::ZERO,
    };
    let health = r.core.health(r.turn.wall);
    let check = health.checks.get(code.as_str());
    if check.is_none() && !sticky {
        return fail(Errno::ENOENT, format!("health alert {code} is not currently raised"));
    }
    let mute = Mute {
        sticky,
        until,
        summary: check.map(|c| c.summary.clone()).unwrap_or_default(),
        count: check.map_or(0, |c| c.count as u64),
    };
    r.core.mutes.by_code.insert(code, mute);
    let encoded = r.core.mutes.encode();
    r.core.writes.put(keys::HEALTH_MUTES, encoded);
    Ok(Reply::default())
}

/// `10m`, `4h`, `1d`, or seconds.
fn parse_ttl(text: &str) -> Result<std::time::Duration, Failure> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let scale = match text[digits..].trim() {
        "" | "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" | "hr" => 3600,
        "d" | "day" => 86_400,
        "w" | "week" => 604_800,
        _ => return fail(Errno::EINVAL, format!("not a valid duration: {text}")),
    };
    match text[..digits].parse::<u32>() {
        Ok(n) => Ok(std::time::Duration::from_secs(u64::from(n) * scale)),
        Err(_) => fail(Errno::EINVAL, format!("not a valid duration: {text}")),
    }
}

fn health_unmute(r: &mut Request) -> Outcome {
    match r.args.optional_string("code") {
        Some(code) => drop(r.core.mutes.by_code.remove(&code)),
        None => r.core.mutes.by_code.clear(),
    }
    let encoded = r.core.mutes.encode();
    r.core.writes.put(keys::HEALTH_MUTES, encoded);
    Ok(Reply::default())
}

// ---- df ----

fn df(r: &mut Request) -> Outcome {
    let detail = r.args.has("detail");
    Ok(r.json_or(|| df_json(r, detail), || df_text(r, detail)))
}

/// The space of OSDs by device class.
fn by_class(r: &Request) -> BTreeMap<String, Space> {
    let map = r.core.osd.map();
    let mut classes: BTreeMap<String, Space> = BTreeMap::new();
    for (osd, _) in r.core.pgs.osds() {
        let class = r.core.osd.crush().item_class(osd.0).unwrap_or("").to_string();
        classes.entry(class).or_default().add(&r.core.pgs.osd_space(map, osd));
    }
    classes.retain(|_, space| space.total > 0);
    classes
}

fn push_space(json: &mut Json, space: &Space) {
    json.push("total_bytes", space.total);
    json.push("total_avail_bytes", space.available);
    json.push("total_used_bytes", space.used());
    json.push("total_used_raw_bytes", space.used());
    json.push("total_used_raw_ratio", space.used_ratio() as f32);
}

fn df_json(r: &Request, detail: bool) -> Json {
    let map = r.core.osd.map();
    let mut stats = Json::object();
    push_space(&mut stats, &r.core.pgs.space(map));
    let osds: Vec<OsdId> = r.core.pgs.osds().map(|(osd, _)| osd).filter(|o| map.is_in(*o)).collect();
    for key in ["num_osds", "num_per_pool_osds", "num_per_pool_omap_osds"] {
        stats.push(key, osds.len());
    }
    let mut classes = Json::object();
    for (class, space) in by_class(r) {
        let mut json = Json::object();
        push_space(&mut json, &space);
        classes.push(class, json);
    }
    let pools = map.pools.keys().map(|id| {
        let usage = r.core.pgs.pool_usage(map, r.core.osd.crush(), *id);
        let mut stats = pool_json(&usage, detail);
        if detail {
            push_pool_detail(r, &mut stats, *id, &usage);
        }
        Json::object().with("name", map.pool_name(*id).unwrap_or("")).with("id", id.0).with("stats", stats)
    });
    let pools = Json::array(pools.collect::<Vec<_>>());
    Json::object().with("stats", stats).with("stats_by_class", classes).with("pools", pools)
}

fn pool_json(usage: &PoolUsage, detail: bool) -> Json {
    let mut json = Json::object().with("stored", usage.stored);
    if detail {
        json.push("stored_data", usage.stored_data);
        json.push("stored_omap", usage.stored_omap);
    }
    json.push("objects", usage.objects);
    json.push("kb_used", usage.used.div_ceil(1024));
    json.push("bytes_used", usage.used);
    if detail {
        json.push("data_bytes_used", usage.used_data);
        json.push("omap_bytes_used", usage.used_omap);
    }
    json.push("percent_used", usage.percent_used);
    json.push("max_avail", usage.max_available);
    json
}

fn push_pool_detail(r: &Request, json: &mut Json, id: wire::types::PoolId, usage: &PoolUsage) {
    let Some(pool) = r.core.osd.map().pool(id) else { return };
    let sum = r.core.pgs.pool_stat(id).stats;
    json.push("quota_objects", pool.quota_max_objects);
    json.push("quota_bytes", pool.quota_max_bytes);
    json.push("dirty", 0);
    json.push("rd", sum.num_rd);
    json.push("rd_bytes", sum.num_rd_kb.saturating_mul(1024));
    json.push("wr", sum.num_wr);
    json.push("wr_bytes", sum.num_wr_kb.saturating_mul(1024));
    json.push("compress_bytes_used", 0);
    json.push("compress_under_bytes", 0);
    json.push("stored_raw", usage.stored.saturating_mul(u64::from(pool.size)));
    json.push("avail_raw", usage.raw_available);
}

fn df_text(r: &Request, detail: bool) -> String {
    let map = r.core.osd.map();
    let mut raw = Table::new()
        .column("CLASS", Align::Left, Align::Left)
        .column("SIZE", Align::Right, Align::Right)
        .column("AVAIL", Align::Right, Align::Right)
        .column("USED", Align::Right, Align::Right)
        .column("RAW USED", Align::Right, Align::Right)
        .column("%RAW USED", Align::Right, Align::Right);
    let total = r.core.pgs.space(map);
    let rows = by_class(r).into_iter().chain([("TOTAL".to_string(), total)]);
    for (class, s) in rows {
        let percent = percentage(s.used_ratio());
        raw.row([class, bytes(s.total), bytes(s.available), bytes(s.used()), bytes(s.used()), percent]);
    }
    let mut pools = Table::new()
        .column("POOL", Align::Left, Align::Left)
        .column("ID", Align::Right, Align::Right)
        .column("PGS", Align::Right, Align::Right);
    let names: &[&str] = if detail {
        &[
            "STORED",
            "(DATA)",
            "(OMAP)",
            "OBJECTS",
            "USED",
            "(DATA)",
            "(OMAP)",
            "%USED",
            "MAX AVAIL",
            "QUOTA OBJECTS",
            "QUOTA BYTES",
            "DIRTY",
            "USED COMPR",
            "UNDER COMPR",
        ]
    } else {
        &["STORED", "OBJECTS", "USED", "%USED", "MAX AVAIL"]
    };
    for name in names {
        pools = pools.column(name, Align::Right, Align::Right);
    }
    for (id, pool) in &map.pools {
        let u = r.core.pgs.pool_usage(map, r.core.osd.crush(), *id);
        let mut row =
            vec![map.pool_name(*id).unwrap_or("").to_string(), id.to_string(), pool.pg_num.to_string()];
        let percent = percentage(f64::from(u.percent_used));
        let count = units::count(u.objects);
        if detail {
            row.extend([bytes(u.stored), bytes(u.stored_data), bytes(u.stored_omap), count]);
            row.extend([
                bytes(u.used),
                bytes(u.used_data),
                bytes(u.used_omap),
                percent,
                bytes(u.max_available),
            ]);
            row.push(or_none(pool.quota_max_objects, units::count));
            row.push(or_none(pool.quota_max_bytes, bytes));
            row.extend(["N/A".to_string(), bytes(0), bytes(0)]);
        } else {
            row.extend([bytes(u.stored), count, bytes(u.used), percent, bytes(u.max_available)]);
        }
        pools.row(row);
    }
    format!("--- RAW STORAGE ---\n{} \n--- POOLS ---\n{}", raw.render(), pools.render())
}

fn or_none(value: u64, text: fn(u64) -> String) -> String {
    if value == 0 { "N/A".into() } else { text(value) }
}

/// Two decimals at most, as in `ceph df`: `1.43`, `0.01`, `0`.
fn percentage(ratio: f64) -> String {
    if ratio == 0.0 { "0".into() } else { format!("{:.2}", ratio * 100.0) }
}
