//! Statistics: what OSDs report of their PGs and of themselves.
//!
//! In memory only; OSDs report everything again when their session to the
//! monitor is new. A PG nobody reported is "unknown".

mod rates;
mod space;

pub use rates::Rates;
pub use space::{PoolUsage, Space, rule_weights};

use base::{Time, WallTime};
use rates::Window;
use std::collections::BTreeMap;
use wire::maps::{ObjectStatSum, OsdMap, PoolStat, StoreStatfs};
use wire::messages::{MOsdReport, OsdLoad, PgReport, pg_state};
use wire::types::{Epoch, OsdId, PgId, PoolId};

/// PGs accepted in one report: far more than an OSD should have.
const PGS_PER_REPORT_MAX: usize = 100_000;

/// One PG as last reported.
#[derive(Clone, Debug)]
pub struct PgEntry {
    pub report: PgReport,
    /// When the report came.
    pub fresh: WallTime,
    /// The last times it was in these states: for "stuck" PGs.
    pub last_active: WallTime,
    pub last_clean: WallTime,
    pub last_peered: WallTime,
    pub last_fullsized: WallTime,
    pub last_unstale: WallTime,
    pub last_undegraded: WallTime,
}

impl PgEntry {
    pub fn has(&self, state: u64) -> bool {
        self.report.state & state != 0
    }
}

/// One OSD as last reported.
#[derive(Clone, Debug, Default)]
pub struct OsdStat {
    pub load: OsdLoad,
    pub hb_peers: Vec<OsdId>,
}

#[derive(Default)]
pub struct PgMap {
    /// Counts changes, for `ceph pg dump`.
    pub version: u64,
    pub stamp: WallTime,
    pgs: BTreeMap<PgId, PgEntry>,
    osds: BTreeMap<OsdId, OsdStat>,
    windows: BTreeMap<PoolId, Window>,
}

impl PgMap {
    /// `pg_num`: of a pool, if it exists.
    pub fn apply(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MOsdReport,
        pg_num: impl Fn(PoolId) -> Option<u32>,
    ) {
        let stat = OsdStat { load: message.load, hb_peers: message.hb_peers.clone() };
        self.osds.insert(message.osd, stat);
        for report in message.pgs.iter().take(PGS_PER_REPORT_MAX) {
            let exists = pg_num(report.pg.pool).is_some_and(|n| report.pg.seed < n);
            if exists {
                self.apply_pg(now, wall, report);
            }
        }
        self.version += 1;
        self.stamp = wall;
    }

    fn apply_pg(&mut self, now: Time, wall: WallTime, report: &PgReport) {
        let before = self.pgs.get(&report.pg);
        if let Some(before) = before {
            let order = |r: &PgReport| (r.reported_epoch, r.reported_seq);
            let same_primary = before.report.acting_primary == report.acting_primary;
            // A primary counts its own reports; another primary's are newer by their interval.
            let newer = if same_primary {
                order(report) >= order(&before.report)
            } else {
                report.reported_epoch >= before.report.reported_epoch
            };
            if !newer {
                return;
            }
            if same_primary {
                let window = self.windows.entry(report.pg.pool).or_default();
                window.add(now, &Rates::between(&before.report, report));
            }
        }
        // PGs are reported when they change: what was well until now was well just now.
        let last_well = |well: fn(u64) -> bool, before_that: fn(&PgEntry) -> WallTime| match before {
            Some(before) if !well(report.state) && !well(before.report.state) => before_that(before),
            _ => wall,
        };
        let entry = PgEntry {
            fresh: wall,
            last_active: last_well(|s| s & pg_state::ACTIVE != 0, |e| e.last_active),
            last_clean: last_well(|s| s & pg_state::CLEAN != 0, |e| e.last_clean),
            last_peered: last_well(|s| s & (pg_state::ACTIVE | pg_state::PEERED) != 0, |e| e.last_peered),
            last_fullsized: last_well(|s| s & pg_state::UNDERSIZED == 0, |e| e.last_fullsized),
            last_unstale: wall,
            last_undegraded: last_well(|s| s & pg_state::DEGRADED == 0, |e| e.last_undegraded),
            report: report.clone(),
        };
        self.pgs.insert(report.pg, entry);
    }

    pub fn on_tick(&mut self, now: Time) {
        for window in self.windows.values_mut() {
            window.forget_old(now);
        }
    }

    pub fn on_new_map(&mut self, wall: WallTime, map: &OsdMap) {
        self.pgs.retain(|pg, _| map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num));
        self.windows.retain(|pool, _| map.pool(*pool).is_some());
        self.osds.retain(|osd, _| map.exists(*osd));
        for entry in self.pgs.values_mut() {
            // Nobody can report it until another primary takes over.
            if map.is_down(entry.report.acting_primary) && !entry.has(pg_state::STALE) {
                entry.report.state |= pg_state::STALE;
                entry.last_unstale = wall;
            }
        }
    }

    pub fn pg(&self, pg: PgId) -> Option<&PgEntry> {
        self.pgs.get(&pg)
    }

    pub fn pgs(&self) -> impl Iterator<Item = &PgEntry> {
        self.pgs.values()
    }

    pub fn osd(&self, osd: OsdId) -> Option<&OsdStat> {
        self.osds.get(&osd)
    }

    pub fn osds(&self) -> impl Iterator<Item = (OsdId, &OsdStat)> {
        self.osds.iter().map(|(osd, stat)| (*osd, stat))
    }

    /// How many PGs each state has, the most frequent first as Ceph lists
    /// them; PGs that nobody reported count as state 0.
    pub fn by_state(&self, map: &OsdMap) -> Vec<(u64, usize)> {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for entry in self.pgs.values() {
            *counts.entry(entry.report.state).or_default() += 1;
        }
        let unknown = Self::pg_count(map).saturating_sub(self.pgs.len());
        if unknown > 0 {
            *counts.entry(0).or_default() += unknown;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(b.0.cmp(&a.0)));
        counts
    }

    /// PGs that should exist.
    pub fn pg_count(map: &OsdMap) -> usize {
        map.pools.values().map(|p| p.pg_num as usize).sum()
    }

    /// PGs of which nobody reported anything.
    pub fn unknown(&self, map: &OsdMap) -> Vec<PgId> {
        let all = map.pools.iter().flat_map(|(pool, p)| (0..p.pg_num).map(|seed| PgId { pool: *pool, seed }));
        all.filter(|pg| !self.pgs.contains_key(pg)).collect()
    }

    pub fn pool_stat(&self, pool: PoolId) -> PoolStat {
        let range = PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX };
        sum(self.pgs.range(range).map(|(_, entry)| &entry.report))
    }

    pub fn total(&self) -> PoolStat {
        sum(self.pgs.values().map(|entry| &entry.report))
    }

    /// Of one pool, or of all.
    pub fn rates(&self, now: Time, pool: Option<PoolId>) -> Rates {
        let windows = self.windows.iter().filter(|(id, _)| pool.is_none_or(|p| p == **id));
        let mut total = Rates::default();
        for (_, window) in windows {
            total.add(&window.per_second(now));
        }
        total
    }

    /// Below this epoch no PG needs history any more; 0 while some PG is unknown.
    pub fn min_last_epoch_clean(&self, map: &OsdMap) -> Epoch {
        if self.pgs.len() < Self::pg_count(map) {
            return Epoch(0);
        }
        self.pgs.values().map(|entry| entry.report.last_epoch_clean).min().unwrap_or(map.epoch)
    }

    /// PGs that an OSD is in the acting set of.
    pub fn pgs_on(&self, osd: OsdId) -> usize {
        self.pgs.values().filter(|e| e.report.acting.contains(&osd) || e.report.up.contains(&osd)).count()
    }
}

/// A PG's counters in Ceph's form.
pub fn stat_sum(r: &PgReport) -> ObjectStatSum {
    let i = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    ObjectStatSum {
        num_bytes: i(r.bytes),
        num_objects: i(r.objects),
        num_object_clones: i(r.clones),
        num_object_copies: i(r.copies),
        num_objects_missing_on_primary: i(r.missing_on_primary),
        num_objects_degraded: i(r.degraded),
        num_objects_misplaced: i(r.misplaced),
        num_objects_unfound: i(r.unfound),
        num_rd: i(r.reads),
        num_rd_kb: i(r.read_kib),
        num_wr: i(r.writes),
        num_wr_kb: i(r.write_kib),
        num_objects_recovered: i(r.objects_recovered),
        num_bytes_recovered: i(r.bytes_recovered),
        num_keys_recovered: i(r.keys_recovered),
        num_objects_dirty: i(r.objects),
        num_omap_bytes: i(r.omap_bytes),
        num_omap_keys: i(r.omap_keys),
        num_scrub_errors: i(r.shallow_scrub_errors.saturating_add(r.deep_scrub_errors)),
        num_shallow_scrub_errors: i(r.shallow_scrub_errors),
        num_deep_scrub_errors: i(r.deep_scrub_errors),
        ..ObjectStatSum::default()
    }
}

/// The space that a PG's copies take: Loligo's OSDs do not report it by pool.
fn store_stats(r: &PgReport) -> (i64, i64) {
    let copies = r.acting.iter().filter(|osd| **osd != OsdId::NONE).count() as u64;
    let i = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
    (i(r.bytes.saturating_mul(copies)), i(r.omap_bytes.saturating_mul(copies)))
}

fn sum<'a>(reports: impl Iterator<Item = &'a PgReport>) -> PoolStat {
    let mut stat = PoolStat::default();
    let mut space = StoreStatfs::default();
    let mut osds = std::collections::BTreeSet::new();
    for r in reports {
        stat.stats.add(&stat_sum(r));
        let log = i64::try_from(r.log_entries).unwrap_or(i64::MAX);
        stat.log_size = stat.log_size.saturating_add(log);
        stat.ondisk_log_size = stat.log_size;
        stat.up += i32::try_from(r.up.len()).unwrap_or(0);
        stat.acting += i32::try_from(r.acting.len()).unwrap_or(0);
        let (data, omap) = store_stats(r);
        space.allocated = space.allocated.saturating_add(data);
        space.data_stored = space.allocated;
        space.omap_allocated = space.omap_allocated.saturating_add(omap);
        osds.extend(r.acting.iter().copied());
    }
    stat.store_stats = space;
    stat.num_store_stats = i32::try_from(osds.len()).unwrap_or(0);
    stat
}
