//! Placement groups.

use super::osd_view::set_text;
use super::{Command, Failure, Outcome, Reply, Request, fail};
use crate::format::table::{Align, Table};
use crate::format::time::{self, age};
use crate::format::units::bytes;
use crate::health::STUCK_SECONDS;
use crate::pg_map::{PgEntry, PgMap, Space, stat_sum};
use base::{Errno, Json, WallTime};
use crush::pg_to_up_acting;
use wire::maps::{ObjectStatSum, PoolStat, StoreStatfs};
use wire::messages::pg_state;
use wire::types::{OsdId, PgId};

const OMAP_NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon afterwards depending on utilization. See http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

pub const COMMANDS: &[Command] = &[
    Command { signature: "pg stat", access: "pg r", help: "summarize the PGs", run: stat },
    Command {
        signature: "pg dump name=dumpcontents,type=CephChoices,strings=all|summary|sum|delta|pools|osds|pgs|pgs_brief,req=false,n=N",
        access: "pg r",
        help: "dump the PGs' statistics",
        run: dump,
    },
    Command {
        signature: "pg dump_json name=dumpcontents,type=CephChoices,strings=all|summary|sum|pools|osds|pgs,req=false,n=N",
        access: "pg r",
        help: "dump the PGs' statistics as JSON",
        run: dump,
    },
    Command {
        signature: "pg dump_pools_json",
        access: "pg r",
        help: "dump the pools' statistics as JSON",
        run: dump,
    },
    Command {
        signature: "pg ls name=pool,type=CephInt,req=false name=states,type=CephString,req=false,n=N",
        access: "pg r",
        help: "list PGs, of a pool or in some state",
        run: ls,
    },
    Command {
        signature: "pg ls-by-pool name=poolstr,type=CephString name=states,type=CephString,req=false,n=N",
        access: "pg r",
        help: "list PGs of a pool",
        run: ls,
    },
    Command {
        signature: "pg ls-by-primary name=osd,type=CephOsdName name=pool,type=CephInt,req=false name=states,type=CephString,req=false,n=N",
        access: "pg r",
        help: "list PGs whose primary is an OSD",
        run: ls,
    },
    Command {
        signature: "pg ls-by-osd name=osd,type=CephOsdName name=pool,type=CephInt,req=false name=states,type=CephString,req=false,n=N",
        access: "pg r",
        help: "list PGs on an OSD",
        run: ls,
    },
    Command {
        signature: "pg dump_stuck name=stuckops,type=CephChoices,strings=inactive|unclean|stale|undersized|degraded,req=false,n=N name=threshold,type=CephInt,req=false",
        access: "pg r",
        help: "list PGs that stay in a bad state",
        run: dump_stuck,
    },
    Command {
        signature: "pg map name=pgid,type=CephPgid",
        access: "pg r",
        help: "show which OSDs hold a PG",
        run: map,
    },
    Command {
        signature: "pg debug name=debugop,type=CephChoices,strings=unfound_objects_exist|degraded_pgs_exist",
        access: "pg r",
        help: "tell whether anything is unfound or degraded",
        run: debug,
    },
];

/// Ceph's dumps say first that statistics have come in at all.
fn ready() -> Json {
    Json::object().with("pg_ready", true)
}

// ---- stat ----

fn stat(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let (space, sum) = (r.core.pgs.space(map), r.core.pgs.total().stats);
    let total = PgMap::pg_count(map);
    let states = r.core.pgs.by_state(map);
    let rates = r.core.pgs.rates(r.turn.now, None);
    let json = || {
        let states = states
            .iter()
            .map(|(state, n)| Json::object().with("name", pg_state::text(*state)).with("num", *n));
        let mut summary = Json::object()
            .with("num_pg_by_state", Json::array(states))
            .with("num_pgs", total)
            .with("num_bytes", sum.num_bytes)
            .with("total_bytes", space.total)
            .with("total_avail_bytes", space.available)
            .with("total_used_bytes", space.used())
            .with("total_used_raw_bytes", space.used());
        super::status::push_client(&mut summary, &rates);
        super::status::push_recovery(&mut summary, &rates);
        ready().with("pg_summary", summary)
    };
    let text = || {
        let parts: Vec<String> = states.iter().map(|(s, n)| format!("{n} {}", pg_state::text(*s))).collect();
        let mut out = format!(
            "{total} pgs: {}; {} data, {} used, {} / {} avail",
            parts.join(", "),
            bytes(u64::try_from(sum.num_bytes).unwrap_or(0)),
            bytes(space.used()),
            bytes(space.available),
            bytes(space.total)
        );
        for (part, whole, word) in [
            (sum.num_objects_degraded, sum.num_object_copies, "degraded"),
            (sum.num_objects_misplaced, sum.num_object_copies, "misplaced"),
            (sum.num_objects_unfound, sum.num_objects, "unfound"),
        ] {
            if part > 0 {
                out.push_str(&format!("; {}", crate::health::share(part, whole, word)));
            }
        }
        for text in
            [super::status::client_text(&rates), super::status::recovery_text(&rates)].into_iter().flatten()
        {
            out.push_str(&format!("; {text}"));
        }
        out.push('\n');
        out
    };
    Ok(r.json_or(json, text))
}

// ---- lists ----

fn ls(r: &mut Request) -> Outcome {
    let prefix = r.args.prefix().to_string();
    let map = r.core.osd.map();
    let mut pool = r.args.optional_int("pool")?;
    if prefix == "pg ls-by-pool" {
        let name = r.args.string("poolstr")?;
        match map.pool_by_name(&name) {
            Some((id, _)) => pool = Some(id.0),
            None => return fail(Errno::ENOENT, format!("pool {name} does not exist")),
        }
    }
    if let Some(id) = pool.filter(|id| map.pool(wire::types::PoolId(*id)).is_none()) {
        return fail(Errno::ENOENT, format!("pool {id} does not exist"));
    }
    let osd = r.args.optional_osd("osd")?;
    if let Some(osd) = osd.filter(|osd| !map.exists(*osd)) {
        return fail(Errno::ENOENT, format!("osd {osd} does not exist"));
    }
    let states = wanted_states(r)?;
    let entries = r.core.pgs.pgs().filter(|e| {
        let p = &e.report;
        let osd_ok = osd.is_none_or(|osd| match prefix.as_str() {
            "pg ls-by-primary" => p.acting_primary == osd,
            _ => p.acting.contains(&osd) || p.up.contains(&osd),
        });
        let state_ok = states.is_none_or(|states| p.state & states != 0);
        osd_ok && state_ok && pool.is_none_or(|id| p.pg.pool.0 == id)
    });
    let entries: Vec<&PgEntry> = entries.collect();
    let json = || ready().with("pg_stats", Json::array(entries.iter().map(|e| pg_json(e))));
    let text = || format!("{}{OMAP_NOTE}", pg_table(r.turn.wall, &entries));
    Ok(r.json_or(json, text))
}

fn wanted_states(r: &Request) -> Result<Option<u64>, Failure> {
    let mut bits = None;
    for name in r.args.strings("states") {
        if name == "all" {
            return Ok(None);
        }
        match pg_state::from_name(&name) {
            Some(bit) => bits = Some(bits.unwrap_or(0) | bit),
            None => return fail(Errno::EINVAL, format!("'{name}' is not a valid pg state")),
        }
    }
    Ok(bits)
}

/// `[1,0]p1`
fn set_with_primary(osds: &[OsdId], primary: OsdId) -> String {
    format!("{}p{}", set_text(osds), primary.0)
}

fn pg_table(wall: WallTime, entries: &[&PgEntry]) -> String {
    let mut table = Table::new().column("PG", Align::Left, Align::Left);
    for heading in
        ["OBJECTS", "DEGRADED", "MISPLACED", "UNFOUND", "BYTES", "OMAP_BYTES*", "OMAP_KEYS*", "LOG"]
    {
        table = table.column(heading, Align::Left, Align::Right);
    }
    table = table.column("STATE", Align::Left, Align::Left);
    for heading in ["SINCE", "VERSION", "REPORTED"] {
        table = table.column(heading, Align::Left, Align::Right);
    }
    table = table.columns(Align::Left, &["UP", "ACTING", "SCRUB_STAMP", "DEEP_SCRUB_STAMP"]);
    for e in entries {
        let p = &e.report;
        let counts = [
            p.objects,
            p.degraded,
            p.misplaced,
            p.unfound,
            p.bytes,
            p.omap_bytes,
            p.omap_keys,
            p.log_entries,
        ];
        let mut row = vec![p.pg.to_string()];
        row.extend(counts.map(|n| n.to_string()));
        row.push(pg_state::text(p.state));
        row.push(age(u64::from(wall.sec.saturating_sub(p.last_change.sec))));
        row.push(p.version.to_string());
        row.push(format!("{}:{}", p.reported_epoch, p.reported_seq));
        row.push(set_with_primary(&p.up, p.up_primary));
        row.push(set_with_primary(&p.acting, p.acting_primary));
        row.push(time::stamp(p.last_scrub_stamp));
        row.push(time::stamp(p.last_deep_scrub_stamp));
        table.row(row);
    }
    table.render()
}

fn pg_json(e: &PgEntry) -> Json {
    let p = &e.report;
    let at = time::stamp;
    let osds = |list: &[OsdId]| Json::array(list.iter().map(|o| o.0));
    Json::object()
        .with("pgid", p.pg.to_string())
        .with("version", p.version.to_string())
        .with("reported_seq", p.reported_seq)
        .with("reported_epoch", p.reported_epoch.0)
        .with("state", pg_state::text(p.state))
        .with("last_fresh", at(e.fresh))
        .with("last_change", at(p.last_change))
        .with("last_active", at(e.last_active))
        .with("last_peered", at(e.last_peered))
        .with("last_clean", at(e.last_clean))
        .with("last_became_active", at(p.last_change))
        .with("last_became_peered", at(p.last_change))
        .with("last_unstale", at(e.last_unstale))
        .with("last_undegraded", at(e.last_undegraded))
        .with("last_fullsized", at(e.last_fullsized))
        .with("mapping_epoch", p.same_interval_since.0)
        .with("log_start", p.log_start.to_string())
        .with("ondisk_log_start", p.log_start.to_string())
        .with("created", p.created.0)
        .with("last_epoch_clean", p.last_epoch_clean.0)
        .with("parent", "0.0")
        .with("parent_split_bits", 0)
        .with("last_scrub", p.last_scrub.to_string())
        .with("last_scrub_stamp", at(p.last_scrub_stamp))
        .with("last_deep_scrub", p.last_deep_scrub.to_string())
        .with("last_deep_scrub_stamp", at(p.last_deep_scrub_stamp))
        .with("last_clean_scrub_stamp", at(p.last_clean_scrub_stamp))
        .with("log_size", p.log_entries)
        .with("ondisk_log_size", p.log_entries)
        .with("stats_invalid", false)
        .with("dirty_stats_invalid", false)
        .with("omap_stats_invalid", false)
        .with("hitset_stats_invalid", false)
        .with("hitset_bytes_stats_invalid", false)
        .with("pin_stats_invalid", false)
        .with("manifest_stats_invalid", false)
        .with("snaptrimq_len", p.snap_trim_queue_len)
        .with("stat_sum", sum_json(&stat_sum(p)))
        .with("up", osds(&p.up))
        .with("acting", osds(&p.acting))
        .with("avail_no_missing", Json::Array(vec![]))
        .with("object_location_counts", Json::Array(vec![]))
        .with("blocked_by", osds(&p.blocked_by))
        .with("up_primary", p.up_primary.0)
        .with("acting_primary", p.acting_primary.0)
        .with("purged_snaps", Json::Array(vec![]))
}

fn sum_json(s: &ObjectStatSum) -> Json {
    Json::object()
        .with("num_bytes", s.num_bytes)
        .with("num_objects", s.num_objects)
        .with("num_object_clones", s.num_object_clones)
        .with("num_object_copies", s.num_object_copies)
        .with("num_objects_missing_on_primary", s.num_objects_missing_on_primary)
        .with("num_objects_missing", s.num_objects_missing)
        .with("num_objects_degraded", s.num_objects_degraded)
        .with("num_objects_misplaced", s.num_objects_misplaced)
        .with("num_objects_unfound", s.num_objects_unfound)
        .with("num_objects_dirty", s.num_objects_dirty)
        .with("num_whiteouts", s.num_whiteouts)
        .with("num_read", s.num_rd)
        .with("num_read_kb", s.num_rd_kb)
        .with("num_write", s.num_wr)
        .with("num_write_kb", s.num_wr_kb)
        .with("num_scrub_errors", s.num_scrub_errors)
        .with("num_shallow_scrub_errors", s.num_shallow_scrub_errors)
        .with("num_deep_scrub_errors", s.num_deep_scrub_errors)
        .with("num_objects_recovered", s.num_objects_recovered)
        .with("num_bytes_recovered", s.num_bytes_recovered)
        .with("num_keys_recovered", s.num_keys_recovered)
        .with("num_objects_omap", s.num_objects_omap)
        .with("num_objects_hit_set_archive", s.num_objects_hit_set_archive)
        .with("num_bytes_hit_set_archive", s.num_bytes_hit_set_archive)
        .with("num_flush", s.num_flush)
        .with("num_flush_kb", s.num_flush_kb)
        .with("num_evict", s.num_evict)
        .with("num_evict_kb", s.num_evict_kb)
        .with("num_promote", s.num_promote)
        .with("num_flush_mode_high", s.num_flush_mode_high)
        .with("num_flush_mode_low", s.num_flush_mode_low)
        .with("num_evict_mode_some", s.num_evict_mode_some)
        .with("num_evict_mode_full", s.num_evict_mode_full)
        .with("num_objects_pinned", s.num_objects_pinned)
        .with("num_legacy_snapsets", s.num_legacy_snapsets)
        .with("num_large_omap_objects", s.num_large_omap_objects)
        .with("num_objects_manifest", s.num_objects_manifest)
        .with("num_omap_bytes", s.num_omap_bytes)
        .with("num_omap_keys", s.num_omap_keys)
        .with("num_objects_repaired", s.num_objects_repaired)
}

fn statfs_json(s: &StoreStatfs) -> Json {
    Json::object()
        .with("total", s.total)
        .with("available", s.available)
        .with("internally_reserved", s.internally_reserved)
        .with("allocated", s.allocated)
        .with("data_stored", s.data_stored)
        .with("data_compressed", s.data_compressed)
        .with("data_compressed_allocated", s.data_compressed_allocated)
        .with("data_compressed_original", s.data_compressed_original)
        .with("omap_allocated", s.omap_allocated)
        .with("internal_metadata", s.internal_metadata)
}

fn push_pool_stat(json: &mut Json, stat: &PoolStat) {
    json.push("stat_sum", sum_json(&stat.stats));
    json.push("store_stats", statfs_json(&stat.store_stats));
    json.push("log_size", stat.log_size);
    json.push("ondisk_log_size", stat.ondisk_log_size);
    json.push("up", stat.up);
    json.push("acting", stat.acting);
    json.push("num_store_stats", stat.num_store_stats);
}

// ---- dump ----

fn dump(r: &mut Request) -> Outcome {
    let mut wanted = r.args.strings("dumpcontents");
    let mut status_what = wanted.join(",");
    if r.args.prefix() == "pg dump_pools_json" {
        wanted = vec!["pools".into()];
    }
    if wanted.is_empty() {
        wanted = vec!["all".into()];
        status_what = "all".into();
    }
    let has = |what: &str| wanted.iter().any(|w| w == what);
    let force_json = r.args.prefix() != "pg dump";
    let reply = if r.format.is_json() || force_json {
        let json = dump_json(r, &has);
        if force_json && !r.format.is_json() { Reply::text(json.compact()) } else { r.json(&json) }
    } else {
        Reply::text(dump_text(r, &has))
    };
    Ok(reply.and_status(format!("dumped {status_what}")))
}

fn dump_json(r: &Request, has: &dyn Fn(&str) -> bool) -> Json {
    let pgs = || Json::array(r.core.pgs.pgs().map(pg_json).collect::<Vec<_>>());
    if has("all") {
        let mut map = header_json(r);
        map.push("pg_stats", pgs());
        map.push("pool_stats", pools_json(r));
        map.push("osd_stats", osds_json(r));
        map.push("pool_statfs", Json::Array(vec![]));
        return ready().with("pg_map", map);
    }
    if has("summary") || has("sum") {
        return ready().with("pg_map", header_json(r));
    }
    let mut json = ready();
    if has("delta") {
        json.push("pg_stats_delta", delta_json());
    }
    if has("pools") {
        json.push("pool_stats", pools_json(r));
    }
    if has("osds") {
        json.push("osd_stats", osds_json(r));
        json.push("pool_statfs", Json::Array(vec![]));
    }
    if has("pgs") {
        json.push("pg_stats", pgs());
    }
    if has("pgs_brief") {
        json.push("pg_stats", Json::array(r.core.pgs.pgs().map(brief_json).collect::<Vec<_>>()));
    }
    json
}

fn brief_json(e: &PgEntry) -> Json {
    let p = &e.report;
    Json::object()
        .with("pgid", p.pg.to_string())
        .with("state", pg_state::text(p.state))
        .with("up", Json::array(p.up.iter().map(|o| o.0)))
        .with("acting", Json::array(p.acting.iter().map(|o| o.0)))
        .with("up_primary", p.up_primary.0)
        .with("acting_primary", p.acting_primary.0)
}

fn delta_json() -> Json {
    let mut json = Json::object();
    push_pool_stat(&mut json, &PoolStat::default());
    json.with("stamp_delta", "0.000000")
}

fn header_json(r: &Request) -> Json {
    let (map, pgs) = (r.core.osd.map(), &r.core.pgs);
    let mut sum = Json::object();
    push_pool_stat(&mut sum, &pgs.total());
    let slots: usize = pgs.osds().map(|(osd, _)| pgs.pgs_on(osd)).sum();
    let osds = pgs.osds().filter(|(osd, _)| map.is_in(*osd)).count();
    let mut osd_sum = Json::object().with("up_from", 0).with("seq", 0).with("num_pgs", slots);
    for key in ["num_osds", "num_per_pool_osds", "num_per_pool_omap_osds"] {
        osd_sum.push(key, osds);
    }
    push_osd_figures(&mut osd_sum, &pgs.space(map), &[], 0);
    Json::object()
        .with("version", pgs.version)
        .with("stamp", time::stamp(pgs.stamp))
        .with("last_osdmap_epoch", 0)
        .with("last_pg_scan", 0)
        .with("pg_stats_sum", sum)
        .with("osd_stats_sum", osd_sum)
        .with("pg_stats_delta", delta_json())
}

fn push_osd_figures(json: &mut Json, space: &Space, peers: &[OsdId], latency_us: u64) {
    json.push("kb", space.total / 1024);
    json.push("kb_used", space.used() / 1024);
    json.push("kb_used_data", space.data / 1024);
    json.push("kb_used_omap", space.omap / 1024);
    json.push("kb_used_meta", space.internal / 1024);
    json.push("kb_avail", space.available / 1024);
    let i = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    let statfs = StoreStatfs {
        total: space.total,
        available: space.available,
        allocated: i(space.data),
        data_stored: i(space.data),
        omap_allocated: i(space.omap),
        internal_metadata: i(space.internal),
        ..StoreStatfs::default()
    };
    json.push("statfs", statfs_json(&statfs));
    json.push("hb_peers", Json::array(peers.iter().map(|o| o.0)));
    json.push("snap_trim_queue_len", 0);
    json.push("num_snap_trimming", 0);
    json.push("num_shards_repaired", 0);
    let histogram = Json::object().with("histogram", Json::Array(vec![])).with("upper_bound", 1);
    json.push("op_queue_age_hist", histogram);
    let ms = latency_us / 1000;
    let perf = Json::object()
        .with("commit_latency_ms", ms)
        .with("apply_latency_ms", ms)
        .with("commit_latency_ns", latency_us * 1000)
        .with("apply_latency_ns", latency_us * 1000);
    json.push("perf_stat", perf);
    json.push("alerts", Json::Array(vec![]));
    json.push("network_ping_times", Json::Array(vec![]));
}

fn pools_json(r: &Request) -> Json {
    let map = r.core.osd.map();
    Json::array(
        map.pools
            .iter()
            .map(|(id, pool)| {
                let mut json = Json::object().with("poolid", id.0).with("num_pg", pool.pg_num);
                push_pool_stat(&mut json, &r.core.pgs.pool_stat(*id));
                json
            })
            .collect::<Vec<_>>(),
    )
}

fn osds_json(r: &Request) -> Json {
    let (map, pgs) = (r.core.osd.map(), &r.core.pgs);
    let mut osds: Vec<_> = pgs.osds().collect();
    osds.reverse();
    Json::array(
        osds.into_iter()
            .map(|(osd, stat)| {
                let up_from = map.info(osd).map_or(0, |i| i.up_from.0);
                let mut json = Json::object()
                    .with("osd", osd.0)
                    .with("up_from", up_from)
                    .with("seq", 0)
                    .with("num_pgs", pgs.pgs_on(osd))
                    .with("num_osds", 1)
                    .with("num_per_pool_osds", 1)
                    .with("num_per_pool_omap_osds", 1);
                push_osd_figures(
                    &mut json,
                    &pgs.osd_space(map, osd),
                    &stat.hb_peers,
                    stat.load.commit_latency_us,
                );
                json
            })
            .collect::<Vec<_>>(),
    )
}

fn dump_text(r: &Request, has: &dyn Fn(&str) -> bool) -> String {
    let pgs = &r.core.pgs;
    let mut out = String::new();
    let all = has("all");
    let sums = all || has("summary") || has("sum");
    if sums {
        out.push_str(&format!(
            "version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n",
            pgs.version,
            time::stamp(pgs.stamp)
        ));
    }
    if all || has("pgs") {
        out.push_str(&full_table(&pgs.pgs().collect::<Vec<_>>()));
    }
    if has("pgs_brief") {
        out.push_str(&brief_table(&pgs.pgs().collect::<Vec<_>>()));
    }
    if all || has("pools") {
        out.push_str(&pools_table(r, !all));
    }
    if sums {
        out.push_str(&sum_table(&pgs.total(), !all));
    }
    if all || has("osds") {
        out.push_str(&osds_table(r));
    } else if sums {
        out.push_str(&osd_sum_table(r));
    }
    if !has("pgs_brief") {
        out.push_str(OMAP_NOTE);
    }
    out
}

fn full_table(entries: &[&PgEntry]) -> String {
    let mut table = Table::new().column("PG_STAT", Align::Left, Align::Left);
    for heading in [
        "OBJECTS",
        "MISSING_ON_PRIMARY",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "DISK_LOG",
        "STATE",
        "STATE_STAMP",
        "VERSION",
        "REPORTED",
        "UP",
        "UP_PRIMARY",
        "ACTING",
        "ACTING_PRIMARY",
        "LAST_SCRUB",
        "SCRUB_STAMP",
        "LAST_DEEP_SCRUB",
        "DEEP_SCRUB_STAMP",
        "SNAPTRIMQ_LEN",
    ] {
        table = table.column(heading, Align::Left, Align::Right);
    }
    for e in entries {
        let p = &e.report;
        let counts = [
            p.objects,
            p.missing_on_primary,
            p.degraded,
            p.misplaced,
            p.unfound,
            p.bytes,
            p.omap_bytes,
            p.omap_keys,
            p.log_entries,
            p.log_entries,
        ];
        let mut row = vec![p.pg.to_string()];
        row.extend(counts.map(|n| n.to_string()));
        row.extend([
            pg_state::text(p.state),
            time::stamp(p.last_change),
            p.version.to_string(),
            format!("{}:{}", p.reported_epoch, p.reported_seq),
            set_text(&p.up),
            p.up_primary.to_string(),
            set_text(&p.acting),
            p.acting_primary.to_string(),
            p.last_scrub.to_string(),
            time::stamp(p.last_scrub_stamp),
            p.last_deep_scrub.to_string(),
            time::stamp(p.last_deep_scrub_stamp),
            "0".into(),
        ]);
        table.row(row);
    }
    table.render()
}

fn brief_table(entries: &[&PgEntry]) -> String {
    let mut table = Table::new().column("PG_STAT", Align::Left, Align::Left);
    for heading in ["STATE", "UP", "UP_PRIMARY", "ACTING", "ACTING_PRIMARY"] {
        table = table.column(heading, Align::Left, Align::Right);
    }
    for e in entries {
        let p = &e.report;
        table.row([
            p.pg.to_string(),
            pg_state::text(p.state),
            set_text(&p.up),
            p.up_primary.to_string(),
            set_text(&p.acting),
            p.acting_primary.to_string(),
        ]);
    }
    table.render()
}

/// Within a dump of everything these tables go without words in their first line.
fn count_columns(first: &str, headed: bool) -> Table {
    let headings = [
        "OBJECTS",
        "MISSING_ON_PRIMARY",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "DISK_LOG",
    ];
    let word = |heading| if headed { heading } else { "" };
    let table = Table::new().column(word(first), Align::Left, Align::Left);
    headings.into_iter().fold(table, |table, heading| table.column(word(heading), Align::Left, Align::Right))
}

fn count_cells(stat: &PoolStat) -> [String; 10] {
    let s = &stat.stats;
    [
        s.num_objects,
        s.num_objects_missing_on_primary,
        s.num_objects_degraded,
        s.num_objects_misplaced,
        s.num_objects_unfound,
        s.num_bytes,
        s.num_omap_bytes,
        s.num_omap_keys,
        stat.log_size,
        stat.ondisk_log_size,
    ]
    .map(|n| n.to_string())
}

fn pools_table(r: &Request, headed: bool) -> String {
    let mut table = count_columns("POOLID", headed);
    for id in r.core.osd.map().pools.keys() {
        let cells = count_cells(&r.core.pgs.pool_stat(*id));
        table.row([id.to_string()].into_iter().chain(cells));
    }
    table.render()
}

fn sum_table(stat: &PoolStat, headed: bool) -> String {
    let mut table = count_columns("PG_STAT", headed);
    table.row(["sum".to_string()].into_iter().chain(count_cells(stat)));
    table.render()
}

fn osds_table(r: &Request) -> String {
    let (map, pgs) = (r.core.osd.map(), &r.core.pgs);
    let mut table = Table::new().column("OSD_STAT", Align::Left, Align::Left);
    for heading in ["USED", "AVAIL", "USED_RAW", "TOTAL", "HB_PEERS", "PG_SUM", "PRIMARY_PG_SUM"] {
        table = table.column(heading, Align::Left, Align::Right);
    }
    let mut osds: Vec<_> = pgs.osds().collect();
    osds.reverse();
    for (osd, stat) in osds {
        let s = pgs.osd_space(map, osd);
        let primaries = pgs.pgs().filter(|e| e.report.acting_primary == osd).count();
        table.row([
            osd.to_string(),
            bytes(s.used()),
            bytes(s.available),
            bytes(s.used()),
            bytes(s.total),
            set_text(&stat.hb_peers),
            pgs.pgs_on(osd).to_string(),
            primaries.to_string(),
        ]);
    }
    let s = pgs.space(map);
    table.row(["sum".to_string(), bytes(s.used()), bytes(s.available), bytes(s.used()), bytes(s.total)]);
    table.render()
}

fn osd_sum_table(r: &Request) -> String {
    let s = r.core.pgs.space(r.core.osd.map());
    let mut table = Table::new().column("OSD_STAT", Align::Left, Align::Left);
    for heading in ["USED", "AVAIL", "USED_RAW"] {
        table = table.column(heading, Align::Left, Align::Right);
    }
    table = table.column("TOTAL", Align::Left, Align::Right);
    table.row(["sum".to_string(), bytes(s.used()), bytes(s.available), bytes(s.used()), bytes(s.total)]);
    table.render()
}

// ---- stuck ----

fn dump_stuck(r: &mut Request) -> Outcome {
    let mut kinds = r.args.strings("stuckops");
    if kinds.is_empty() {
        kinds = vec!["unclean".into()];
    }
    let threshold =
        r.args.optional_int("threshold")?.and_then(|t| u64::try_from(t).ok()).unwrap_or(STUCK_SECONDS);
    let old = |since: WallTime| u64::from(r.turn.wall.sec.saturating_sub(since.sec)) >= threshold;
    let stuck = |e: &PgEntry, kind: &str| match kind {
        "inactive" => !e.has(pg_state::ACTIVE) && old(e.last_active),
        "unclean" => !e.has(pg_state::CLEAN) && old(e.last_clean),
        "degraded" => e.has(pg_state::DEGRADED) && old(e.last_undegraded),
        "undersized" => e.has(pg_state::UNDERSIZED) && old(e.last_fullsized),
        "stale" => e.has(pg_state::STALE) && old(e.last_unstale),
        _ => false,
    };
    let found: Vec<&PgEntry> = r.core.pgs.pgs().filter(|e| kinds.iter().any(|k| stuck(e, k))).collect();
    let json = || ready().with("stuck_pg_stats", Json::array(found.iter().map(|e| pg_json(e))));
    let text = || if found.is_empty() { String::new() } else { brief_table(&found) };
    Ok(r.json_or(json, text).and_status("ok"))
}

// ---- single PGs ----

fn map(r: &mut Request) -> Outcome {
    let raw = r.args.pg("pgid")?;
    let osdmap = r.core.osd.map();
    let Some(pool) = osdmap.pool(raw.pool) else {
        return fail(Errno::ENOENT, format!("pg '{raw}' does not exist"));
    };
    if raw.seed >= pool.pg_num {
        return fail(Errno::ENOENT, format!("pg '{raw}' does not exist"));
    }
    let pg = PgId { pool: raw.pool, seed: raw.seed };
    let set = pg_to_up_acting(osdmap, r.core.osd.crush(), pg);
    let (up, acting) = (set.up.as_slice(), set.acting.as_slice());
    let json = || {
        Json::object()
            .with("epoch", osdmap.epoch.0)
            .with("raw_pgid", raw.to_string())
            .with("pgid", pg.to_string())
            .with("up", Json::array(up.iter().map(|o| o.0)))
            .with("acting", Json::array(acting.iter().map(|o| o.0)))
    };
    let text = || {
        format!("osdmap e{} pg {raw} ({pg}) -> up {} acting {}", osdmap.epoch, set_text(up), set_text(acting))
    };
    Ok(r.json_or(json, text))
}

fn debug(r: &mut Request) -> Outcome {
    let sum = r.core.pgs.total().stats;
    let found = match r.args.string("debugop")?.as_str() {
        "unfound_objects_exist" => sum.num_objects_unfound > 0,
        _ => sum.num_objects_degraded > 0,
    };
    Ok(Reply::text(if found { "TRUE" } else { "FALSE" }))
}
