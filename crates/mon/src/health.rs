//! Health checks, with Ceph's codes and words.
//!
//! Source: Ceph 16.2.15, src/osd/OSDMap.cc (`check_health`), src/mon/PGMap.cc
//! (`get_health_checks`), doc/rados/operations/health-checks.rst.

use crate::core::{Core, Turn};
use crate::{MonError, keys};
use base::{Json, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::{Decode, Decoder, Encode, Encoder};
use wire::features::Features;
use wire::maps::{OsdMapFlags, OsdState, PoolFlags};
use wire::messages::{LogLevel, pg_state};
use wire::types::{OsdId, PgId};

/// Details listed under one check; the rest is only counted.
const DETAILS_MAX: usize = 50;
/// Seconds in a bad state before a PG counts as stuck (`mon_pg_stuck_threshold`).
pub const STUCK_SECONDS: u64 = 60;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    Ok,
    Warn,
    Error,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "HEALTH_OK",
            Severity::Warn => "HEALTH_WARN",
            Severity::Error => "HEALTH_ERR",
        }
    }

    fn tag(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Warn => "WRN",
            Severity::Error => "ERR",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    pub severity: Severity,
    pub summary: String,
    pub count: usize,
    pub detail: Vec<String>,
}

/// A check that an operator does not want to hear of for now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mute {
    pub sticky: bool,
    /// Zero for ever.
    pub until: WallTime,
    pub summary: String,
    pub count: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mutes {
    pub by_code: BTreeMap<String, Mute>,
    /// What the last look found, to log what changed.
    last: BTreeMap<String, String>,
}

impl Mutes {
    pub fn load(bytes: Bytes) -> Result<Mutes, MonError> {
        let mut d = Decoder::plain(bytes);
        let read = |d: &mut Decoder| {
            let n = d.count("mutes", 4)?;
            let mut by_code = BTreeMap::new();
            for _ in 0..n {
                let code = d.string()?;
                let mute = Mute {
                    sticky: d.bool()?,
                    until: WallTime::decode(d)?,
                    summary: d.string()?,
                    count: d.u64()?,
                };
                by_code.insert(code, mute);
            }
            Ok(by_code)
        };
        let by_code =
            read(&mut d).map_err(|error| MonError::Decode { key: keys::HEALTH_MUTES.into(), error })?;
        Ok(Mutes { by_code, last: BTreeMap::new() })
    }

    pub fn encode(&self) -> Bytes {
        let mut e = Encoder::new(Features::ALL);
        e.count(self.by_code.len());
        for (code, mute) in &self.by_code {
            e.string(code);
            e.bool(mute.sticky);
            mute.until.encode(&mut e);
            e.string(&mute.summary);
            e.u64(mute.count);
        }
        e.finish()
    }
}

pub type Checks = BTreeMap<&'static str, Check>;

/// `HEALTH_WARN` and what it consists of.
pub struct Health {
    pub checks: Checks,
    pub status: Severity,
    pub mutes: BTreeMap<String, Mute>,
}

impl Health {
    fn is_muted(&self, code: &str) -> bool {
        self.mutes.contains_key(code)
    }

    /// Checks that are not muted.
    fn loud(&self) -> impl Iterator<Item = (&'static str, &Check)> {
        self.checks.iter().filter(|(code, _)| !self.is_muted(code)).map(|(code, check)| (*code, check))
    }

    fn muted_note(&self) -> String {
        let muted: Vec<&str> = self.checks.keys().filter(|c| self.is_muted(c)).copied().collect();
        if muted.is_empty() { String::new() } else { format!(" (muted: {})", muted.join(" ")) }
    }

    pub fn to_json(&self, with_detail: bool) -> Json {
        let mut checks = Json::object();
        for (code, check) in &self.checks {
            let summary = Json::object().with("message", check.summary.as_str()).with("count", check.count);
            let mut json = Json::object().with("severity", check.severity.name()).with("summary", summary);
            if with_detail {
                let detail = check.detail.iter().map(|d| Json::object().with("message", d.as_str()));
                json.push("detail", Json::array(detail));
            }
            json.push("muted", self.is_muted(code));
            checks.push(*code, json);
        }
        let mutes = self.mutes.iter().map(|(code, mute)| {
            let mut json = Json::object().with("code", code.as_str());
            if mute.until != WallTime::ZERO {
                json.push("ttl", crate::format::time::stamp(mute.until));
            }
            json.with("sticky", mute.sticky).with("summary", mute.summary.as_str()).with("count", mute.count)
        });
        Json::object()
            .with("status", self.status.name())
            .with("checks", checks)
            .with("mutes", Json::array(mutes))
    }

    /// `ceph health` and `ceph health detail`.
    pub fn to_text(&self, with_detail: bool) -> String {
        let summaries: Vec<&str> = self.loud().map(|(_, c)| c.summary.as_str()).collect();
        let mut out = self.status.name().to_string();
        if !summaries.is_empty() {
            out.push(' ');
            out.push_str(&summaries.join("; "));
        }
        out.push_str(&self.muted_note());
        if !with_detail {
            return out;
        }
        for (code, check) in &self.checks {
            let muted = if self.is_muted(code) { "(MUTED) " } else { "" };
            out.push_str(&format!("\n{muted}[{}] {code}: {}", check.severity.tag(), check.summary));
            for line in &check.detail {
                out.push_str(&format!("\n    {line}"));
            }
        }
        out
    }

    /// The lines below `health:` in `ceph -s`.
    pub fn status_lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{}{}", self.status.name(), self.muted_note())];
        lines.extend(self.loud().map(|(_, check)| check.summary.clone()));
        lines
    }
}

struct Found(Checks);

impl Found {
    fn add(&mut self, code: &'static str, severity: Severity, summary: String, detail: Vec<String>) {
        self.add_counted(code, severity, summary, detail.len(), detail);
    }

    fn add_counted(
        &mut self,
        code: &'static str,
        severity: Severity,
        summary: String,
        count: usize,
        mut detail: Vec<String>,
    ) {
        detail.truncate(DETAILS_MAX);
        self.0.insert(code, Check { severity, summary, count, detail });
    }
}

impl Core {
    pub fn health(&self, wall: WallTime) -> Health {
        let mut found = Found(Checks::new());
        self.check_osds(&mut found);
        self.check_flags(&mut found);
        self.check_fullness(&mut found);
        self.check_pools(&mut found);
        self.check_pgs(wall, &mut found);
        self.check_slow_ops(&mut found);
        let mutes: BTreeMap<String, Mute> = (self.mutes.by_code.iter())
            .filter(|(_, m)| m.until == WallTime::ZERO || m.until > wall)
            .map(|(code, mute)| (code.clone(), mute.clone()))
            .collect();
        let checks = found.0;
        let loud = checks.iter().filter(|(code, _)| !mutes.contains_key(**code));
        let status = loud.map(|(_, check)| check.severity).max().unwrap_or(Severity::Ok);
        Health { checks, status, mutes }
    }

    fn check_osds(&self, found: &mut Found) {
        let map = self.osd.map();
        let wanted = self.config.int("osd_pool_default_size", 3);
        let count = map.num_osds();
        if i64::try_from(count).unwrap_or(0) < wanted {
            let text = format!("OSD count {count} < osd_pool_default_size {wanted}");
            found.add_counted("TOO_FEW_OSDS", Severity::Warn, text, count, Vec::new());
        }
        let down: Vec<OsdId> = map.osds().filter(|o| map.is_down(*o) && map.is_in(*o)).collect();
        if down.is_empty() {
            return;
        }
        self.check_subtrees(found, &down);
        let detail = down.iter().map(|osd| format!("osd.{osd} ({}) is down", self.location_text(osd.0)));
        let text = format!("{} osds down", down.len());
        found.add("OSD_DOWN", Severity::Warn, text, detail.collect());
    }

    /// Hosts, racks and so on of which every OSD is down.
    fn check_subtrees(&self, found: &mut Found, down: &[OsdId]) {
        const CODES: [(&str, &str); 10] = [
            ("host", "OSD_HOST_DOWN"),
            ("chassis", "OSD_CHASSIS_DOWN"),
            ("rack", "OSD_RACK_DOWN"),
            ("row", "OSD_ROW_DOWN"),
            ("pdu", "OSD_PDU_DOWN"),
            ("pod", "OSD_POD_DOWN"),
            ("room", "OSD_ROOM_DOWN"),
            ("datacenter", "OSD_DATACENTER_DOWN"),
            ("region", "OSD_REGION_DOWN"),
            ("root", "OSD_ROOT_DOWN"),
        ];
        let (map, crush) = (self.osd.map(), self.osd.crush());
        for (kind, code) in CODES {
            let (mut detail, mut osds) = (Vec::new(), 0);
            for bucket in crush.iter_buckets().filter(|b| !crush.is_shadow(b.id)) {
                if crush.type_name(i32::from(bucket.type_id)) != Some(kind) {
                    continue;
                }
                let below = crush.devices_below(bucket.id);
                let below: Vec<OsdId> = below.into_iter().map(OsdId).filter(|o| map.exists(*o)).collect();
                if !below.is_empty() && below.iter().all(|osd| down.contains(osd)) {
                    let name = crush.name(bucket.id).unwrap_or("?");
                    let location = self.location_text(bucket.id);
                    detail.push(format!("{kind} {name} ({location}) ({} osds) is down", below.len()));
                    osds += below.len();
                }
            }
            if !detail.is_empty() {
                let plural = if detail.len() == 1 { "" } else { "s" };
                let text = format!("{} {kind}{plural} ({osds} osds) down", detail.len());
                found.add(code, Severity::Warn, text, detail);
            }
        }
    }

    /// `root=default,host=a`
    fn location_text(&self, item: i32) -> String {
        let mut path = self.osd.crush().full_location(item);
        path.reverse();
        path.into_iter().map(|(kind, name)| format!("{kind}={name}")).collect::<Vec<_>>().join(",")
    }

    fn check_flags(&self, found: &mut Found) {
        let map = self.osd.map();
        let warned = OsdMapFlags::PAUSERD
            | OsdMapFlags::PAUSEWR
            | OsdMapFlags::PAUSEREC
            | OsdMapFlags::NOUP
            | OsdMapFlags::NODOWN
            | OsdMapFlags::NOIN
            | OsdMapFlags::NOOUT
            | OsdMapFlags::NOBACKFILL
            | OsdMapFlags::NORECOVER
            | OsdMapFlags::NOSCRUB
            | OsdMapFlags::NODEEP_SCRUB
            | OsdMapFlags::NOTIERAGENT
            | OsdMapFlags::NOSNAPTRIM
            | OsdMapFlags::NOREBALANCE;
        let set = map.flags & warned;
        if !set.is_empty() {
            let text = format!("{set} flag(s) set");
            let count = set.names().count();
            found.add_counted("OSDMAP_FLAGS", Severity::Warn, text, count, Vec::new());
        }
        let personal = OsdState::NOUP | OsdState::NODOWN | OsdState::NOIN | OsdState::NOOUT;
        let flagged = |what: String, bits: OsdState| {
            let set = bits & personal;
            (!set.is_empty()).then(|| format!("{what} has flags {set}"))
        };
        let crush = self.osd.crush();
        let osds = map.osds().filter_map(|osd| flagged(format!("osd.{osd}"), map.state(osd)));
        let nodes = map.crush_node_flags.iter().filter_map(|(id, bits)| {
            flagged(format!("{} {}", self.type_of(*id), crush.name(*id).unwrap_or("?")), *bits)
        });
        let classes = map.device_class_flags.iter().filter_map(|(id, bits)| {
            flagged(format!("device class '{}'", crush.class_names.get(id).map_or("?", |n| n)), *bits)
        });
        let detail: Vec<String> = osds.chain(nodes).chain(classes).collect();
        if !detail.is_empty() {
            let text = format!(
                "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
                detail.len()
            );
            found.add("OSD_FLAGS", Severity::Warn, text, detail);
        }
    }

    fn type_of(&self, item: i32) -> &str {
        let crush = self.osd.crush();
        crush.item_type(item).and_then(|t| crush.type_name(t)).unwrap_or("?")
    }

    fn check_fullness(&self, found: &mut Found) {
        let map = self.osd.map();
        let ratios = [
            (f64::from(map.full_ratio), "OSD_FULL", "full", Severity::Error),
            (f64::from(map.backfillfull_ratio), "OSD_BACKFILLFULL", "backfillfull", Severity::Warn),
            (f64::from(map.nearfull_ratio), "OSD_NEARFULL", "nearfull", Severity::Warn),
        ];
        let mut details: [Vec<String>; 3] = Default::default();
        for osd in map.osds() {
            let used = self.pgs.osd_space(map, osd).used_ratio();
            let level = ratios.iter().position(|(ratio, ..)| *ratio > 0.0 && used >= *ratio);
            if let Some(level) = level {
                details[level].push(format!(
                    "osd.{osd} is {}",
                    ratios[level].2.replace("near", "near ").replace("backfill", "backfill ")
                ));
            }
        }
        for ((_, code, word, severity), detail) in ratios.into_iter().zip(details) {
            if !detail.is_empty() {
                found.add(code, severity, format!("{} {word} osd(s)", detail.len()), detail);
            }
        }
        let full =
            map.pools.iter().filter(|(_, p)| p.flags.intersects(PoolFlags::FULL | PoolFlags::FULL_QUOTA));
        let detail: Vec<String> = full
            .map(|(id, pool)| {
                let why = if pool.flags.contains(PoolFlags::FULL_QUOTA) {
                    "running out of quota"
                } else {
                    "no space"
                };
                format!("pool '{}' is full ({why})", map.pool_name(*id).unwrap_or("?"))
            })
            .collect();
        if !detail.is_empty() {
            found.add("POOL_FULL", Severity::Warn, format!("{} pool(s) full", detail.len()), detail);
        }
        for (flag, code, word) in [
            (PoolFlags::BACKFILLFULL, "POOL_BACKFILLFULL", "backfillfull"),
            (PoolFlags::NEARFULL, "POOL_NEARFULL", "nearfull"),
        ] {
            let pools = map.pools.iter().filter(|(_, pool)| pool.flags.contains(flag));
            let detail: Vec<String> = pools
                .map(|(id, _)| format!("pool '{}' is {word}", map.pool_name(*id).unwrap_or("?")))
                .collect();
            if !detail.is_empty() {
                found.add(code, Severity::Warn, format!("{} pool(s) {word}", detail.len()), detail);
            }
        }
    }

    fn check_pools(&self, found: &mut Found) {
        let map = self.osd.map();
        let name = |id| map.pool_name(id).unwrap_or("?").to_string();
        if self.config.bool("mon_warn_on_pool_no_app", true) {
            let bare = map.pools.iter().filter(|(id, pool)| {
                pool.application_metadata.is_empty() && self.pgs.pool_stat(**id).stats.num_objects > 0
            });
            let mut detail: Vec<String> =
                bare.map(|(id, _)| format!("application not enabled on pool '{}'", name(*id))).collect();
            let count = detail.len();
            if count > 0 {
                detail.push(
                    "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', \
                     'rbd', 'rgw', or freeform for custom applications."
                        .into(),
                );
                let text = format!("application not enabled on {count} pool(s)");
                found.add_counted("POOL_APP_NOT_ENABLED", Severity::Warn, text, count, detail);
            }
        }
        let odd = map.pools.iter().filter(|(_, pool)| !pool.pg_num_target.is_power_of_two());
        let detail: Vec<String> = odd
            .map(|(id, p)| format!("pool '{}' pg_num {} is not a power of two", name(*id), p.pg_num_target))
            .collect();
        if !detail.is_empty() {
            let text = format!("{} pool(s) have non-power-of-two pg_num", detail.len());
            found.add("POOL_PG_NUM_NOT_POWER_OF_TWO", Severity::Warn, text, detail);
        }
        if self.config.bool("mon_warn_on_pool_no_redundancy", true) {
            let single = map.pools.iter().filter(|(_, pool)| pool.is_replicated() && pool.size == 1);
            let detail: Vec<String> =
                single.map(|(id, _)| format!("pool '{}' has no replicas configured", name(*id))).collect();
            if !detail.is_empty() {
                let text = format!("{} pool(s) have no replicas configured", detail.len());
                found.add("POOL_NO_REDUNDANCY", Severity::Warn, text, detail);
            }
        }
    }

    fn check_pgs(&self, wall: WallTime, found: &mut Found) {
        use pg_state::*;
        let stuck = |since: WallTime| u64::from(wall.sec.saturating_sub(since.sec)) >= STUCK_SECONDS;
        let mut groups: BTreeMap<(&'static str, u8, &'static str), BTreeSet<PgId>> = BTreeMap::new();
        for entry in self.pgs.pgs() {
            let r = &entry.report;
            let mut put = |code, order, word| {
                groups.entry((code, order, word)).or_default().insert(r.pg);
            };
            if !entry.has(ACTIVE) && stuck(entry.last_active) {
                put("PG_AVAILABILITY", 0, "inactive");
            }
            for (order, (state, word, since)) in (1u8..).zip([
                (DOWN, "down", None),
                (INCOMPLETE, "incomplete", None),
                (PEERING, "peering", Some(entry.last_peered)),
                (STALE, "stale", Some(entry.last_unstale)),
            ]) {
                if entry.has(state) && since.is_none_or(stuck) {
                    put("PG_AVAILABILITY", order, word);
                }
            }
            if entry.has(DEGRADED) {
                put("PG_DEGRADED", 0, "degraded");
            }
            if entry.has(UNDERSIZED) && stuck(entry.last_fullsized) {
                put("PG_DEGRADED", 1, "undersized");
            }
            for (order, (state, code, word)) in (0u8..).zip([
                (INCONSISTENT, "PG_DAMAGED", "inconsistent"),
                (SNAPTRIM_ERROR, "PG_DAMAGED", "snaptrim_error"),
                (RECOVERY_UNFOUND, "PG_DAMAGED", "recovery_unfound"),
                (BACKFILL_UNFOUND, "PG_DAMAGED", "backfill_unfound"),
                (RECOVERY_TOOFULL, "PG_RECOVERY_FULL", "recovery_toofull"),
                (BACKFILL_TOOFULL, "PG_BACKFILL_FULL", "backfill_toofull"),
            ]) {
                if entry.has(state) {
                    put(code, order, word);
                }
            }
        }
        self.add_unknown_pgs(wall, &mut groups);
        let codes = [
            ("PG_AVAILABILITY", Severity::Warn, "Reduced data availability"),
            ("PG_DEGRADED", Severity::Warn, "Degraded data redundancy"),
            ("PG_DAMAGED", Severity::Error, "Possible data damage"),
            ("PG_RECOVERY_FULL", Severity::Error, "Full OSDs blocking recovery"),
            (
                "PG_BACKFILL_FULL",
                Severity::Warn,
                "Low space hindering backfill (add storage if this doesn't resolve itself)",
            ),
        ];
        let sum = self.pgs.total().stats;
        if sum.num_scrub_errors > 0 {
            let count = usize::try_from(sum.num_scrub_errors).unwrap_or(usize::MAX);
            let text = format!("{count} scrub errors");
            found.add_counted("OSD_SCRUB_ERRORS", Severity::Error, text, count, Vec::new());
        }
        for (code, severity, title) in codes {
            let mine: Vec<_> = groups.iter().filter(|((c, ..), _)| *c == code).collect();
            let mut parts: Vec<String> = Vec::new();
            if code == "PG_DEGRADED" && sum.num_objects_degraded > 0 {
                parts.push(share(sum.num_objects_degraded, sum.num_object_copies, "degraded"));
            }
            for ((_, _, word), pgs) in &mine {
                let plural = if pgs.len() == 1 { "pg" } else { "pgs" };
                parts.push(format!("{} {plural} {word}", pgs.len()));
            }
            if parts.is_empty() {
                continue;
            }
            let pgs: BTreeSet<PgId> = mine.iter().flat_map(|(_, pgs)| pgs.iter().copied()).collect();
            let detail: Vec<String> = pgs.iter().map(|pg| self.pg_detail(wall, *pg)).collect();
            let text = format!("{title}: {}", parts.join(", "));
            found.add_counted(code, severity, text, pgs.len(), detail);
        }
        if sum.num_objects_misplaced > 0 {
            let text = share(sum.num_objects_misplaced, sum.num_object_copies, "misplaced");
            let count = usize::try_from(sum.num_objects_misplaced).unwrap_or(0);
            found.add_counted("OBJECT_MISPLACED", Severity::Warn, text, count, Vec::new());
        }
        if sum.num_objects_unfound > 0 {
            let text = share(sum.num_objects_unfound, sum.num_objects, "unfound");
            let bad = self.pgs.pgs().filter(|e| e.report.unfound > 0);
            let detail = bad.map(|e| format!("pg {} has {} unfound objects", e.report.pg, e.report.unfound));
            let count = usize::try_from(sum.num_objects_unfound).unwrap_or(0);
            found.add_counted("OBJECT_UNFOUND", Severity::Warn, text, count, detail.collect());
        }
    }

    /// PGs that nobody reported, long after their pool was made.
    fn add_unknown_pgs(
        &self,
        wall: WallTime,
        groups: &mut BTreeMap<(&'static str, u8, &'static str), BTreeSet<PgId>>,
    ) {
        let map = self.osd.map();
        let old = |pg: &PgId| {
            let created = map.pool(pg.pool).map_or(wall, |p| p.create_time);
            u64::from(wall.sec.saturating_sub(created.sec)) >= STUCK_SECONDS
        };
        let unknown: BTreeSet<PgId> = self.pgs.unknown(map).into_iter().filter(old).collect();
        if !unknown.is_empty() {
            groups.entry(("PG_AVAILABILITY", 0, "inactive")).or_default().extend(unknown);
        }
    }

    fn pg_detail(&self, wall: WallTime, pg: PgId) -> String {
        let Some(entry) = self.pgs.pg(pg) else {
            return format!("pg {pg} is stuck inactive, current state unknown, last acting []");
        };
        let r = &entry.report;
        let acting: Vec<String> = r.acting.iter().map(|o| osd_text(*o)).collect();
        let state = pg_state::text(r.state);
        let age = crate::format::time::age(u64::from(wall.sec.saturating_sub(entry.last_active.sec)));
        if r.state & pg_state::ACTIVE == 0 {
            return format!(
                "pg {pg} is stuck inactive for {age}, current state {state}, last acting [{}]",
                acting.join(",")
            );
        }
        format!("pg {pg} is {state}, acting [{}]", acting.join(","))
    }

    fn check_slow_ops(&self, found: &mut Found) {
        let slow: Vec<(OsdId, u64, u64)> = self
            .pgs
            .osds()
            .filter(|(osd, stat)| self.osd.map().is_up(*osd) && stat.load.slow_ops > 0)
            .map(|(osd, stat)| (osd, stat.load.slow_ops, stat.load.oldest_op_ms))
            .collect();
        if slow.is_empty() {
            return;
        }
        let ops: u64 = slow.iter().map(|(_, ops, _)| ops).sum();
        let oldest = slow.iter().map(|(_, _, ms)| ms / 1000).max().unwrap_or(0);
        let names: Vec<String> = slow.iter().map(|(osd, ..)| format!("osd.{osd}")).collect();
        let who = match names.as_slice() {
            [one] => format!("{one} has slow ops"),
            _ => format!("daemons [{}] have slow ops.", names.join(",")),
        };
        let text = format!("{ops} slow ops, oldest one blocked for {oldest} sec, {who}");
        let count = usize::try_from(ops).unwrap_or(usize::MAX);
        found.add_counted("SLOW_OPS", Severity::Warn, text, count, Vec::new());
    }

    /// Logs what became worse or better since the last look, and forgets mutes
    /// that have served their purpose.
    pub fn watch_health(&mut self, turn: &mut Turn) {
        let health = self.health(turn.wall);
        let now: BTreeMap<String, String> =
            health.checks.iter().map(|(code, c)| (code.to_string(), c.summary.clone())).collect();
        let before = std::mem::replace(&mut self.mutes.last, now);
        for (code, check) in &health.checks {
            let level = if check.severity == Severity::Error { LogLevel::Error } else { LogLevel::Warn };
            match before.get(*code) {
                None => {
                    self.log_cluster(turn, level, format!("Health check failed: {} ({code})", check.summary))
                }
                Some(old) if *old != check.summary => {
                    self.log_cluster(turn, level, format!("Health check update: {} ({code})", check.summary));
                }
                Some(_) => {}
            }
        }
        let cleared: Vec<(String, String)> =
            before.into_iter().filter(|(code, _)| !health.checks.contains_key(code.as_str())).collect();
        let any_cleared = !cleared.is_empty();
        for (code, summary) in cleared {
            self.log_cluster(turn, LogLevel::Info, format!("Health check cleared: {code} (was: {summary})"));
        }
        if any_cleared && health.checks.is_empty() {
            self.log_cluster(turn, LogLevel::Info, "Cluster is now healthy");
        }
        let mutes = self.mutes.by_code.len();
        self.mutes.by_code.retain(|code, mute| {
            let expired = mute.until != WallTime::ZERO && mute.until <= turn.wall;
            let gone = !mute.sticky && !health.checks.contains_key(code.as_str());
            !expired && !gone
        });
        if mutes != self.mutes.by_code.len() {
            self.writes.put(keys::HEALTH_MUTES, self.mutes.encode());
        }
    }
}

/// `12/36 objects degraded (33.333%)`
pub fn share(part: i64, whole: i64, word: &str) -> String {
    let percent = if whole > 0 { part as f64 * 100.0 / whole as f64 } else { 0.0 };
    format!("{part}/{whole} objects {word} ({percent:.3}%)")
}

/// An OSD's number, or Ceph's word for a hole.
pub fn osd_text(osd: OsdId) -> String {
    if osd == OsdId::NONE { "NONE".into() } else { osd.0.to_string() }
}
