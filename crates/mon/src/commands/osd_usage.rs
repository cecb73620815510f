//! What OSDs and pools do and hold.

use super::status::{client_text, push_client, push_recovery, recovery_text};
use super::{Command, Outcome, Reply, Request, fail};
use crate::format::table::{Align, Table};
use crate::format::units::bytes;
use crate::health::share;
use crate::pg_map::Space;
use base::{Errno, Json};
use crush::tree::{self, TreeItem};
use crush::{CrushMap, weight_to_f64};
use std::collections::{BTreeMap, BTreeSet};
use wire::maps::{OsdMap, PoolStat};
use wire::messages::pg_state;
use wire::types::{OsdId, PgId, PoolId};

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd df name=output_method,type=CephChoices,strings=plain|tree,req=false name=filter_by,type=CephChoices,strings=class|name,req=false name=filter,type=CephString,req=false",
        access: "osd r",
        help: "show how full OSDs are",
        run: osd_df,
    },
    Command { signature: "osd perf", access: "osd r", help: "show OSDs' latencies", run: osd_perf },
    Command {
        signature: "osd blocked-by",
        access: "osd r",
        help: "show which OSDs others wait for",
        run: blocked_by,
    },
    Command {
        signature: "osd utilization",
        access: "osd r",
        help: "show how evenly PGs are spread",
        run: utilization,
    },
    Command {
        signature: "osd pool stats name=pool_name,type=CephPoolname,req=false",
        access: "osd r",
        help: "show what goes on in pools",
        run: pool_stats,
    },
    Command {
        signature: "osd ok-to-stop name=ids,type=CephString,n=N name=max,type=CephInt,req=false",
        access: "osd r",
        help: "tell whether OSDs can stop without taking data away",
        run: ok_to_stop,
    },
    Command {
        signature: "osd safe-to-destroy name=ids,type=CephString,n=N",
        access: "osd r",
        help: "tell whether OSDs hold nothing that is needed",
        run: safe_to_destroy,
    },
    Command {
        signature: "osd status name=bucket,type=CephString,req=false",
        access: "mgr r",
        help: "show OSDs with their load",
        run: osd_status,
    },
    Command {
        signature: "osd numa-status",
        access: "osd r",
        help: "show OSDs' NUMA nodes",
        run: numa_status,
    },
];

// ---- osd df ----

struct Usage {
    item: TreeItem,
    space: Space,
    pgs: usize,
}

impl Usage {
    fn percent(&self) -> f64 {
        self.space.used_ratio() * 100.0
    }
}

struct Figures {
    rows: Vec<Usage>,
    total: Space,
    average: f64,
    min: f64,
    max: f64,
    deviation: f64,
}

fn figures(r: &Request, as_tree: bool) -> Figures {
    let (map, crush) = (r.core.osd.map(), r.core.osd.crush());
    let class = filter(r, "class");
    let below: Option<BTreeSet<i32>> = filter(r, "name").map(|name| match crush.item_id(&name) {
        Some(id) => crush.devices_below(id),
        None => BTreeSet::new(),
    });
    let passes = |id: i32| {
        let class_ok = class.as_deref().is_none_or(|c| crush.item_class(id) == Some(c));
        class_ok && below.as_ref().is_none_or(|b| b.contains(&id))
    };
    let roots = crush.roots(false);
    let items = tree::walk(crush, &roots, &|id| {
        if id >= 0 { passes(id) } else { crush.devices_below(id).into_iter().any(passes) }
    });
    let mut rows = Vec::new();
    for item in items {
        if item.id < 0 && !as_tree {
            continue;
        }
        let mut space = Space::default();
        for osd in crush.devices_below(item.id).into_iter().filter(|id| passes(*id)) {
            space.add(&r.core.pgs.osd_space(map, OsdId(osd)));
        }
        let pgs = if item.id >= 0 { r.core.pgs.pgs_on(OsdId(item.id)) } else { 0 };
        rows.push(Usage { item, space, pgs });
    }
    let osds: Vec<&Usage> = rows.iter().filter(|u| u.item.id >= 0 && u.space.total > 0).collect();
    let mut total = Space::default();
    osds.iter().for_each(|u| total.add(&u.space));
    let average = total.used_ratio() * 100.0;
    let var = |u: &&Usage| if average > 0.0 { u.percent() / average } else { 0.0 };
    let min = osds.iter().map(var).fold(f64::INFINITY, f64::min);
    let max = osds.iter().map(var).fold(0.0, f64::max);
    let squares: f64 = osds.iter().map(|u| (u.percent() - average).powi(2)).sum();
    let deviation = if osds.is_empty() { 0.0 } else { (squares / osds.len() as f64).sqrt() };
    Figures { total, average, min: if osds.is_empty() { 0.0 } else { min }, max, deviation, rows }
}

fn filter(r: &Request, by: &str) -> Option<String> {
    let filter_by = r.args.optional_string("filter_by")?;
    if filter_by == by { r.args.optional_string("filter") } else { None }
}

fn osd_df(r: &mut Request) -> Outcome {
    let as_tree = r.args.optional_string("output_method").as_deref() == Some("tree");
    if let Some(name) = filter(r, "name").filter(|name| r.core.osd.crush().item_id(name).is_none()) {
        return fail(Errno::EINVAL, format!("'{name}' not a valid filter value"));
    }
    let f = figures(r, as_tree);
    Ok(r.json_or(|| df_json(r, &f), || df_text(r, &f, as_tree)))
}

fn df_json(r: &Request, f: &Figures) -> Json {
    let (map, crush) = (r.core.osd.map(), r.core.osd.crush());
    let nodes = f.rows.iter().map(|u| {
        let mut json = node_json(map, crush, u);
        push_kib(&mut json, "kb", &u.space);
        json.push("utilization", u.percent());
        json.push("var", if f.average > 0.0 { u.percent() / f.average } else { 0.0 });
        json.push("pgs", u.pgs);
        if u.item.id >= 0 {
            json.push("status", if map.is_up(OsdId(u.item.id)) { "up" } else { "down" });
        } else {
            json.push("children", Json::array(u.item.children.iter().copied()));
        }
        json
    });
    let mut summary = Json::object();
    push_kib(&mut summary, "total_kb", &f.total);
    summary.push("average_utilization", f.average);
    summary.push("min_var", f.min);
    summary.push("max_var", f.max);
    summary.push("dev", f.deviation);
    Json::object()
        .with("nodes", Json::array(nodes.collect::<Vec<_>>()))
        .with("stray", Json::Array(vec![]))
        .with("summary", summary)
}

fn type_name(crush: &CrushMap, id: i32) -> (&str, i32) {
    let kind = crush.item_type(id).unwrap_or(0);
    (crush.type_name(kind).unwrap_or("osd"), kind)
}

fn node_json(map: &OsdMap, crush: &CrushMap, u: &Usage) -> Json {
    let id = u.item.id;
    let (kind, type_id) = type_name(crush, id);
    let mut json = Json::object().with("id", id);
    if let Some(class) = crush.item_class(id).filter(|_| id >= 0) {
        json.push("device_class", class);
    }
    json.push("name", crush.name(id).map_or_else(|| format!("osd.{id}"), str::to_string));
    json.push("type", kind);
    json.push("type_id", type_id);
    if id >= 0 {
        json.push("crush_weight", weight_to_f64(u.item.weight));
        json.push("depth", u.item.depth);
        json.push("pool_weights", Json::object());
        json.push("reweight", reweight(map, OsdId(id)));
    } else {
        if u.item.depth > 0 {
            json.push("pool_weights", Json::object());
        }
        json.push("reweight", -1.0);
    }
    json
}

fn reweight(map: &OsdMap, osd: OsdId) -> f64 {
    f64::from(map.weight(osd) as f32 / OsdMap::WEIGHT_IN as f32)
}

fn push_kib(json: &mut Json, prefix: &str, space: &Space) {
    json.push(prefix, space.total / 1024);
    json.push(format!("{prefix}_used"), space.used() / 1024);
    json.push(format!("{prefix}_used_data"), space.data / 1024);
    json.push(format!("{prefix}_used_omap"), space.omap / 1024);
    json.push(format!("{prefix}_used_meta"), space.internal / 1024);
    json.push(format!("{prefix}_avail"), space.available / 1024);
}

fn df_text(r: &Request, f: &Figures, as_tree: bool) -> String {
    let (map, crush) = (r.core.osd.map(), r.core.osd.crush());
    let mut table = Table::new().column("ID", Align::Left, Align::Right);
    for heading in [
        "CLASS", "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL", "%USE", "VAR",
        "PGS", "STATUS",
    ] {
        table = table.column(heading, Align::Left, Align::Right);
    }
    if as_tree {
        table = table.column("TYPE NAME", Align::Left, Align::Left);
    }
    let cells = |s: &Space| [s.total, s.used(), s.data, s.omap, s.internal, s.available].map(bytes);
    for u in &f.rows {
        let id = u.item.id;
        let is_osd = id >= 0;
        let osd = OsdId(id);
        let mut row = vec![
            id.to_string(),
            crush.item_class(id).filter(|_| is_osd).unwrap_or("").to_string(),
            five(weight_to_f64(u.item.weight)),
            if is_osd { five(reweight(map, osd)) } else { "-".into() },
        ];
        row.extend(cells(&u.space));
        row.push(two(u.percent()));
        row.push(two(if f.average > 0.0 { u.percent() / f.average } else { 0.0 }));
        row.push(if is_osd { u.pgs.to_string() } else { "-".into() });
        row.push(
            if !is_osd {
                ""
            } else if map.is_up(osd) {
                "up"
            } else {
                "down"
            }
            .into(),
        );
        if as_tree {
            let indent = "    ".repeat(u.item.depth);
            let name = crush.name(id).map_or_else(|| format!("osd.{id}"), str::to_string);
            let label = if is_osd { name } else { format!("{} {name}", type_name(crush, id).0) };
            row.push(format!("{indent}{label}"));
        }
        table.row(row);
    }
    let mut total = vec![String::new(), String::new(), String::new(), "TOTAL".into()];
    total.extend(cells(&f.total));
    total.push(two(f.average));
    table.row(total);
    format!("{}MIN/MAX VAR: {}/{}  STDDEV: {}\n", table.render(), two(f.min), two(f.max), two(f.deviation))
}

/// A weight with five decimals, and a bare 0.
fn five(v: f64) -> String {
    if v == 0.0 { "0".into() } else { format!("{v:.5}") }
}

fn two(v: f64) -> String {
    if v == 0.0 { "0".into() } else { format!("{v:.2}") }
}

// ---- osd perf and friends ----

fn osd_perf(r: &mut Request) -> Outcome {
    // Ceph goes through a hash table; we list in order.
    let stats: Vec<(OsdId, u64)> =
        r.core.pgs.osds().map(|(osd, stat)| (osd, stat.load.commit_latency_us)).collect();
    let json = || {
        let infos = stats.iter().map(|(osd, us)| {
            let (ms, ns) = (us / 1000, us * 1000);
            let perf = Json::object()
                .with("commit_latency_ms", ms)
                .with("apply_latency_ms", ms)
                .with("commit_latency_ns", ns)
                .with("apply_latency_ns", ns);
            Json::object().with("id", osd.0).with("perf_stats", perf)
        });
        let infos = Json::object().with("osd_perf_infos", Json::array(infos));
        Json::object().with("pg_ready", true).with("osdstats", infos)
    };
    let text = || {
        let mut table = Table::new()
            .column("osd", Align::Left, Align::Right)
            .column("commit_latency(ms)", Align::Left, Align::Right)
            .column("apply_latency(ms)", Align::Left, Align::Right);
        for (osd, us) in &stats {
            let ms = (us / 1000).to_string();
            table.row([osd.to_string(), ms.clone(), ms]);
        }
        table.render()
    };
    Ok(r.json_or(json, text))
}

fn blocked_by(r: &mut Request) -> Outcome {
    let mut counts: BTreeMap<OsdId, usize> = BTreeMap::new();
    for entry in r.core.pgs.pgs() {
        for osd in &entry.report.blocked_by {
            *counts.entry(*osd).or_default() += 1;
        }
    }
    let json = || {
        let infos = counts.iter().map(|(osd, n)| Json::object().with("id", osd.0).with("num_blocked", *n));
        let infos = Json::object().with("osd_blocked_by_infos", Json::array(infos));
        Json::object().with("pg_ready", true).with("osd_blocked_by", infos)
    };
    let text = || {
        let mut table = Table::new().column("osd", Align::Left, Align::Right).column(
            "num_blocked",
            Align::Left,
            Align::Right,
        );
        counts.iter().for_each(|(osd, n)| table.row([osd.to_string(), n.to_string()]));
        table.render()
    };
    Ok(r.json_or(json, text))
}

fn utilization(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let counts: Vec<(OsdId, usize)> = map.osds().map(|osd| (osd, r.core.pgs.pgs_on(osd))).collect();
    let (Some(min), Some(max)) =
        (counts.iter().min_by_key(|(_, n)| *n), counts.iter().max_by_key(|(_, n)| *n))
    else {
        return Ok(r.json_or(Json::object, String::new));
    };
    let n = counts.len() as f32;
    let total: usize = counts.iter().map(|(_, pgs)| pgs).sum();
    let average = total as f32 / n;
    let squares: f32 = counts.iter().map(|(_, pgs)| (*pgs as f32 - average).powi(2)).sum();
    let deviation = (squares / n).sqrt();
    let expected = (total as f32 * (1.0 / n) * (1.0 - 1.0 / n)).sqrt();
    let json = || {
        Json::object()
            .with("avg_pgs", average)
            .with("std_dev", deviation)
            .with("expected_baseline_std_dev", expected)
            .with("min_osd", min.0.0)
            .with("min_osd_pgs", min.1)
            .with("max_osd", max.0.0)
            .with("max_osd_pgs", max.1)
    };
    let g = |v: f32| wire::dump::general(f64::from(v));
    let share = |pgs: usize| if average > 0.0 { g(pgs as f32 / average) } else { "0".into() };
    let text = || {
        format!(
            "avg {}\nstddev {} (expected baseline {})\nmin osd.{} with {} pgs ({} * mean)\nmax osd.{} with {} pgs ({} * mean)\n",
            g(average),
            g(deviation),
            g(expected),
            min.0,
            min.1,
            share(min.1),
            max.0,
            max.1,
            share(max.1)
        )
    };
    Ok(r.json_or(json, text))
}

// ---- pools ----

fn recovery_json(stat: &PoolStat) -> Json {
    let s = &stat.stats;
    let mut json = Json::object();
    for (part, whole, word) in [
        (s.num_objects_degraded, s.num_object_copies, "degraded"),
        (s.num_objects_misplaced, s.num_object_copies, "misplaced"),
        (s.num_objects_unfound, s.num_objects, "unfound"),
    ] {
        if part > 0 {
            json.push(format!("{word}_objects"), part);
            json.push(format!("{word}_total"), whole);
            json.push(format!("{word}_ratio"), part as f64 / whole.max(1) as f64);
        }
    }
    json
}

fn pool_stats(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let pools: Vec<(PoolId, String)> = match r.args.optional_string("pool_name") {
        None => map.pool_names.iter().map(|(id, name)| (*id, name.clone())).collect(),
        Some(name) => match map.pool_by_name(&name) {
            Some((id, _)) => vec![(id, name)],
            None => return fail(Errno::ENOENT, format!("unrecognized pool '{name}'")),
        },
    };
    if pools.is_empty() {
        return Ok(r.json_or(|| Json::Array(vec![]), || "there are no pools!\n".into()));
    }
    let now = r.turn.now;
    let json = || {
        Json::array(pools.iter().map(|(id, name)| {
            let rates = r.core.pgs.rates(now, Some(*id));
            let (mut recovery, mut client) = (Json::object(), Json::object());
            push_recovery(&mut recovery, &rates);
            push_client(&mut client, &rates);
            Json::object()
                .with("pool_name", name.as_str())
                .with("pool_id", id.0)
                .with("recovery", recovery_json(&r.core.pgs.pool_stat(*id)))
                .with("recovery_rate", recovery)
                .with("client_io_rate", client)
        }))
    };
    let text = || {
        let mut out = String::new();
        for (id, name) in &pools {
            out.push_str(&format!("pool {name} id {id}\n"));
            let (stat, rates) = (r.core.pgs.pool_stat(*id).stats, r.core.pgs.rates(now, Some(*id)));
            let mut lines = Vec::new();
            for (part, whole, word) in [
                (stat.num_objects_degraded, stat.num_object_copies, "degraded"),
                (stat.num_objects_misplaced, stat.num_object_copies, "misplaced"),
                (stat.num_objects_unfound, stat.num_objects, "unfound"),
            ] {
                if part > 0 {
                    lines.push(share(part, whole, word));
                }
            }
            lines.extend(recovery_text(&rates).map(|t| format!("recovery io {t}")));
            lines.extend(client_text(&rates).map(|t| format!("client io {t}")));
            if lines.is_empty() {
                lines.push("nothing is going on".into());
            }
            lines.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
            out.push('\n');
        }
        out
    };
    Ok(r.json_or(json, text))
}

// ---- stopping and destroying ----

fn named_osds(r: &Request) -> Result<BTreeSet<OsdId>, super::Failure> {
    let mut osds = BTreeSet::new();
    for id in r.args.strings("ids") {
        match super::args::parse_osd(&id) {
            Some(osd) => drop(osds.insert(osd)),
            None if matches!(id.as_str(), "all" | "any" | "*") => osds.extend(r.core.osd.map().osds()),
            None => return fail(Errno::EINVAL, format!("invalid osd id {id}")),
        }
    }
    if osds.is_empty() {
        return fail(Errno::EINVAL, "must specify one or more OSDs");
    }
    Ok(osds)
}

fn ok_to_stop(r: &mut Request) -> Outcome {
    let osds = named_osds(r)?;
    let map = r.core.osd.map();
    let (mut ok, mut bad, mut degraded, mut offline) = (0, 0, Vec::<PgId>::new(), Vec::<PgId>::new());
    for entry in r.core.pgs.pgs() {
        let p = &entry.report;
        if !p.acting.iter().any(|o| osds.contains(o)) {
            continue;
        }
        let left = p.acting.iter().filter(|o| !osds.contains(o) && **o != OsdId::NONE).count();
        let min_size = map.pool(p.pg.pool).map_or(1, |pool| usize::from(pool.min_size));
        if entry.has(pg_state::ACTIVE) && left >= min_size {
            ok += 1;
            degraded.push(p.pg);
        } else {
            bad += 1;
            offline.push(p.pg);
        }
    }
    let unknown = r.core.pgs.unknown(map).len();
    let is_ok = bad == 0 && unknown == 0;
    let pgs = |list: &[PgId]| Json::array(list.iter().map(PgId::to_string));
    let mut json = Json::object()
        .with("ok_to_stop", is_ok)
        .with("osds", Json::array(osds.iter().map(|o| o.0)))
        .with("num_ok_pgs", ok)
        .with("num_not_ok_pgs", bad);
    if !offline.is_empty() {
        json.push("bad_become_inactive", pgs(&offline));
    }
    json.push("ok_become_degraded", pgs(&degraded));
    let output = if r.format.is_json() { json.compact() } else { format!("{}\n", json.compact()) };
    if is_ok {
        return Ok(if r.format.is_json() { r.json(&json) } else { Reply::text(output) });
    }
    let why = if unknown > 0 {
        format!("{unknown} pgs have unknown state; cannot draw any conclusions")
    } else {
        format!("unsafe to stop osd(s) at this time ({bad} PGs are or would become offline)")
    };
    Err(super::Failure { errno: Errno::EBUSY, status: why, output: output.into() })
}

fn safe_to_destroy(r: &mut Request) -> Outcome {
    let osds = named_osds(r)?;
    let map = r.core.osd.map();
    let unknown = r.core.pgs.unknown(map).len();
    if unknown > 0 {
        return fail(Errno::EAGAIN, format!("{unknown} pgs have unknown state; cannot draw any conclusions"));
    }
    let all_clean = r.core.pgs.pgs().all(|e| e.has(pg_state::ACTIVE) && e.has(pg_state::CLEAN));
    let (mut safe, mut active, mut missing, mut stored) = (vec![], vec![], vec![], vec![]);
    let mut mapped = 0;
    for osd in &osds {
        let pgs = r.core.pgs.pgs_on(*osd);
        if !map.exists(*osd) {
            safe.push(osd.0);
        } else if pgs > 0 {
            mapped += pgs;
            active.push(osd.0);
        } else if r.core.pgs.osd(*osd).is_none() {
            if map.is_up(*osd) {
                missing.push(osd.0)
            } else if all_clean {
                safe.push(osd.0)
            } else {
                missing.push(osd.0)
            }
        } else if !all_clean {
            stored.push(osd.0);
        } else {
            safe.push(osd.0);
        }
    }
    let json = Json::object()
        .with("safe_to_destroy", Json::array(safe.clone()))
        .with("active", Json::array(active.clone()))
        .with("missing_stats", Json::array(missing.clone()))
        .with("stored_pgs", Json::array(stored.clone()));
    if r.format.is_json() {
        return Ok(r.json(&json));
    }
    let list = |ids: &[i32]| ids.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    if !active.is_empty() {
        return fail(
            Errno::EBUSY,
            format!("OSD(s) {} have {mapped} pgs currently mapped to them. ", list(&active)),
        );
    }
    if !missing.is_empty() {
        return fail(
            Errno::EAGAIN,
            format!(
                "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
                list(&missing)
            ),
        );
    }
    if !stored.is_empty() {
        return fail(
            Errno::EBUSY,
            format!(
                "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot be sure they aren't still needed.",
                list(&stored)
            ),
        );
    }
    Ok(Reply::status(format!("OSD(s) {} are safe to destroy without reducing data durability.", list(&safe))))
}

// ---- tables of OSDs ----

fn osd_status(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let mut table = Table::new()
        .column("ID", Align::Left, Align::Right)
        .column("HOST", Align::Left, Align::Left)
        .column("USED", Align::Right, Align::Right)
        .column("AVAIL", Align::Right, Align::Right)
        .column("STATE", Align::Left, Align::Left);
    let mut list = Vec::new();
    for osd in map.osds() {
        let space = r.core.pgs.osd_space(map, osd);
        let host = r.core.metadata.get(&osd).and_then(|m| m.get("hostname")).cloned().unwrap_or_default();
        let state = map.state(osd).to_string();
        table.row([
            osd.to_string(),
            host.clone(),
            bytes(space.used()),
            bytes(space.available),
            state.clone(),
        ]);
        list.push(
            Json::object()
                .with("id", osd.0)
                .with("host name", host)
                .with("kb used", space.used() / 1024)
                .with("kb available", space.available / 1024)
                .with("state", Json::array(state.split(','))),
        );
    }
    Ok(r.json_or(|| Json::object().with("OSDs", Json::Array(list)), || table.render()))
}

fn numa_status(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let host =
        |osd: OsdId| r.core.metadata.get(&osd).and_then(|m| m.get("hostname")).cloned().unwrap_or_default();
    let json = || {
        Json::array(
            map.osds()
                .map(|osd| Json::object().with("osd", osd.0).with("host", host(osd)))
                .collect::<Vec<_>>(),
        )
    };
    let text = || {
        let mut table = Table::new()
            .column("OSD", Align::Left, Align::Right)
            .column("HOST", Align::Left, Align::Left)
            .column("NETWORK", Align::Right, Align::Right)
            .column("STORAGE", Align::Right, Align::Right)
            .column("AFFINITY", Align::Right, Align::Right)
            .column("CPUS", Align::Left, Align::Left);
        for osd in map.osds() {
            table.row([osd.to_string(), host(osd), "-".into(), "-".into(), "-".into(), "-".into()]);
        }
        table.render()
    };
    Ok(r.json_or(json, text))
}
