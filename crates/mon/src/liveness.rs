//! Which OSDs are up and in: boots, failure reports, time-outs.
//!
//! Two kinds of evidence bring an OSD down. A refused connection proves that
//! its process is gone: one reporter is believed at once. Silence proves
//! nothing by itself: it takes reports from several OSDs, or from the only one
//! there is, about silence longer than the grace.

use crate::core::{Core, Turn};
use crate::keys;
use base::{Duration, Time, WallTime};
use std::collections::BTreeMap;
use wire::codec::Encode;
use wire::features::Features;
use wire::maps::{OsdMap, OsdMapFlags, OsdState};
use wire::messages::*;
use wire::types::{EntityAddr, Epoch, OsdId, PgId, Uuid};

/// `mon_max_osd`'s spirit: ids beyond this are refused.
pub const OSD_ID_MAX: i32 = 10_000;
/// Metadata entries kept of one OSD, and the length of one.
const METADATA_MAX: usize = 200;
const METADATA_LEN_MAX: usize = 4096;
/// Bytes in a TiB: the unit of CRUSH weights.
const TIB: f64 = (1u64 << 40) as f64;

#[derive(Default)]
pub struct Liveness {
    /// By the failed OSD, then by reporter.
    failures: BTreeMap<OsdId, BTreeMap<OsdId, FailureReport>>,
    /// Since when an OSD that is in has been down, as far as this process knows.
    down_since: BTreeMap<OsdId, Time>,
    pub last_report: BTreeMap<OsdId, Time>,
    pub last_commit: Option<Time>,
}

struct FailureReport {
    up_from: Epoch,
    /// When the report came, and how long the silence had lasted then.
    at: Time,
    silent_for: Duration,
}

impl Core {
    // ---- boot ----

    pub fn on_osd_boot(&mut self, turn: &mut Turn, id: SessionId, message: &Incoming, boot: MOsdBoot) {
        if boot.fsid != self.fsid {
            self.log_cluster(turn, LogLevel::Warn, format!("osd.{} is of cluster {}", boot.osd, boot.fsid));
            return;
        }
        if !self.speaks_for(id, boot.osd) || boot.osd.0 < 0 || boot.osd.0 >= OSD_ID_MAX {
            tracing::warn!(session = id.0, osd = %boot.osd, "boot refused");
            return;
        }
        let map = self.osd.map();
        let uuid = map.uuid(boot.osd).unwrap_or(Uuid::ZERO);
        if map.exists(boot.osd) && uuid != Uuid::ZERO && uuid != boot.uuid {
            let text = format!("osd.{} refused: its store is {}, not {uuid}", boot.osd, boot.uuid);
            self.log_cluster(turn, LogLevel::Error, text);
            return;
        }
        if self.osd.is_pending_for(boot.osd) {
            self.deferred.push((id, message.clone()));
            self.commit_soon(turn);
            return;
        }
        if map.is_up(boot.osd) {
            if map.client_addrs(boot.osd) == Some(&boot.client_addrs) && uuid == boot.uuid {
                // A repeated boot of the same life: it has not seen its map yet.
                self.send_newer_maps(turn, id, boot.epoch);
                return;
            }
            // A new life before anybody noticed the end of the old one: the old one ends first.
            self.osd.mark_down(boot.osd);
            self.osd.pending().new_last_up_change = turn.wall;
            self.deferred.push((id, message.clone()));
            self.commit_now(turn);
            return;
        }
        let noup = map.test_flag(OsdMapFlags::NOUP) || self.has_osd_flag(boot.osd, OsdState::NOUP);
        if noup && map.exists(boot.osd) {
            self.send_newer_maps(turn, id, boot.epoch);
            return;
        }
        self.mark_up(turn, &boot);
        self.store_metadata(&boot);
        self.liveness.failures.remove(&boot.osd);
        self.liveness.last_report.insert(boot.osd, turn.now);
        self.commit_soon(turn);
    }

    fn mark_up(&mut self, turn: &Turn, boot: &MOsdBoot) {
        let osd = boot.osd;
        let (state, old_weight) = {
            let map = self.osd.map();
            (map.state(osd), map.xinfo(osd).map_or(0, |x| x.old_weight))
        };
        let max_osd = self.osd.map().max_osd.max(self.osd.pending().new_max_osd);
        if osd.0 >= max_osd {
            self.osd.pending().new_max_osd = osd.0 + 1;
        }
        let pending = self.osd.pending();
        pending.new_up_client.insert(osd, boot.client_addrs.clone());
        pending.new_up_cluster.insert(osd, boot.cluster_addrs.clone());
        pending.new_hb_back_up.insert(osd, boot.hb_addrs.clone());
        pending.new_hb_front_up.insert(osd, boot.hb_addrs.clone());
        pending.new_uuid.insert(osd, boot.uuid);
        pending.new_last_up_change = turn.wall;
        let xinfo = self.osd.xinfo_mut(osd);
        xinfo.features = Features::PACIFIC;
        let is_new = !state.contains(OsdState::EXISTS) || state.contains(OsdState::NEW);
        let noin = self.osd.map().test_flag(OsdMapFlags::NOIN) || self.has_osd_flag(osd, OsdState::NOIN);
        if (is_new || state.contains(OsdState::AUTOOUT)) && !noin {
            let weight = if old_weight > 0 { old_weight } else { OsdMap::WEIGHT_IN };
            self.osd.xinfo_mut(osd).old_weight = 0;
            let pending = self.osd.pending();
            pending.new_weight.insert(osd, weight);
            pending.new_last_in_change = turn.wall;
        } else if !state.contains(OsdState::EXISTS) {
            self.osd.toggle_state(osd, OsdState::NEW);
        }
        self.place(turn, boot);
        self.log_cluster(turn, LogLevel::Info, format!("osd.{osd} {} boot", boot.client_addrs));
    }

    /// Gives the OSD its place in CRUSH: below its host, weighing its size.
    fn place(&mut self, turn: &Turn, boot: &MOsdBoot) {
        if !self.config.bool("osd_crush_update_on_start", true) {
            return;
        }
        let said = |key: &str| boot.metadata.get(key).map(String::as_str).filter(|v| !v.is_empty());
        let host = said("hostname").unwrap_or("localhost").replace('.', "-");
        let class = said("default_device_class").or_else(|| said("device_class")).unwrap_or("ssd");
        let weight = (boot.total_bytes as f64 / TIB * 65536.0).max(1.0) as u32;
        let mut next = match self.osd.has_pending() {
            true => self.osd.pending_crush().clone(),
            false => self.osd.crush().clone(),
        };
        match next.boot_device(boot.osd.0, weight, Some(class), &host) {
            Ok(true) => *self.osd.pending_crush() = next,
            Ok(false) => {}
            Err(error) => {
                let text = format!("osd.{} has no place in the CRUSH map: {error}", boot.osd);
                self.log_cluster(turn, LogLevel::Error, text);
            }
        }
    }

    fn store_metadata(&mut self, boot: &MOsdBoot) {
        let mut metadata = BTreeMap::new();
        for (key, value) in boot.metadata.iter().take(METADATA_MAX) {
            if key.len() <= METADATA_LEN_MAX && value.len() <= METADATA_LEN_MAX {
                metadata.insert(key.clone(), value.clone());
            }
        }
        let addrs = [
            ("front_addr", &boot.client_addrs),
            ("back_addr", &boot.cluster_addrs),
            ("hb_front_addr", &boot.hb_addrs),
            ("hb_back_addr", &boot.hb_addrs),
        ];
        for (key, value) in addrs {
            metadata.insert(key.to_string(), bracketed(&value.to_string()));
        }
        self.writes.put(keys::osd_metadata(boot.osd), metadata.to_bytes(Features::ALL));
        self.metadata.insert(boot.osd, metadata);
    }

    /// A flag of this OSD alone, of a CRUSH bucket above it, or of its device class.
    pub fn has_osd_flag(&self, osd: OsdId, flag: OsdState) -> bool {
        let (map, crush) = (self.osd.map(), self.osd.crush());
        if map.state(osd).intersects(flag) {
            return true;
        }
        let class = crush.item_classes.get(&osd.0);
        if class.and_then(|c| map.device_class_flags.get(c)).is_some_and(|f| f.intersects(flag)) {
            return true;
        }
        let mut above = crush.parent(osd.0);
        while let Some(bucket) = above {
            if map.crush_node_flags.get(&bucket).is_some_and(|f| f.intersects(flag)) {
                return true;
            }
            above = crush.parent(bucket);
        }
        false
    }

    // ---- failures ----

    pub fn on_osd_failure(&mut self, turn: &mut Turn, id: SessionId, report: &MOsdFailure) {
        let map = self.osd.map();
        let up_from = map.info(report.failed).map(|i| i.up_from);
        let credible = report.fsid == self.fsid
            && self.speaks_for(id, report.reporter)
            && report.reporter != report.failed
            && map.is_up(report.reporter)
            && self.osd.stays_up(report.failed)
            && up_from == Some(report.up_from);
        if !credible {
            self.send_newer_maps(turn, id, report.epoch);
            return;
        }
        match report.kind {
            FailureKind::Recovered => self.withdraw_failure(report.failed, report.reporter),
            FailureKind::Refused => {
                if self.may_mark_down(report.failed) {
                    let text = format!(
                        "osd.{} reported immediately failed by osd.{}",
                        report.failed, report.reporter
                    );
                    self.log_cluster(turn, LogLevel::Info, text);
                    self.mark_down_dead(turn, report.failed, true);
                }
            }
            FailureKind::Silent { for_ms } => {
                let silent_for = Duration::from_millis(u64::from(for_ms));
                let reports = self.liveness.failures.entry(report.failed).or_default();
                let entry = FailureReport { up_from: report.up_from, at: turn.now, silent_for };
                if reports.insert(report.reporter, entry).is_none() {
                    let text = format!("osd.{} reported failed by osd.{}", report.failed, report.reporter);
                    self.log_cluster(turn, LogLevel::Debug, text);
                }
                self.judge_failures(turn);
            }
        }
    }

    fn withdraw_failure(&mut self, failed: OsdId, reporter: OsdId) {
        if let Some(reports) = self.liveness.failures.get_mut(&failed) {
            reports.remove(&reporter);
            if reports.is_empty() {
                self.liveness.failures.remove(&failed);
            }
        }
    }

    fn may_mark_down(&self, osd: OsdId) -> bool {
        !self.osd.map().test_flag(OsdMapFlags::NODOWN) && !self.has_osd_flag(osd, OsdState::NODOWN)
    }

    fn judge_failures(&mut self, turn: &mut Turn) {
        let grace = self.config.seconds("osd_heartbeat_grace", 20.0);
        let wanted = self.config.int("mon_osd_min_down_reporters", 2).max(1);
        let mut failed = Vec::new();
        let map = self.osd.map();
        for (osd, reports) in &self.liveness.failures {
            let up_from = map.info(*osd).map(|i| i.up_from);
            let valid = reports
                .iter()
                .filter(|(by, report)| self.osd.stays_up(**by) && Some(report.up_from) == up_from);
            let count = valid.clone().count();
            let others = map.osds().filter(|o| o != osd && self.osd.stays_up(*o)).count();
            let enough = count >= usize::try_from(wanted).unwrap_or(1).min(others.max(1));
            let silent = valid.map(|(_, report)| report.silent_for + turn.now.since(report.at)).max();
            if enough && silent.is_some_and(|s| s >= grace) && self.may_mark_down(*osd) {
                failed.push((*osd, count));
            }
        }
        for (osd, count) in failed {
            let text = format!("osd.{osd} failed ({count} reporters)");
            self.log_cluster(turn, LogLevel::Info, text);
            self.mark_down_dead(turn, osd, false);
        }
    }

    /// `dead`: its process is known to be gone, not merely unheard of.
    pub fn mark_down_dead(&mut self, turn: &mut Turn, osd: OsdId, dead: bool) {
        if !self.osd.mark_down(osd) {
            return;
        }
        if dead {
            let next = self.osd.epoch().next();
            self.osd.xinfo_mut(osd).dead_epoch = next;
        }
        self.osd.pending().new_last_up_change = turn.wall;
        self.commit_soon(turn);
    }

    pub fn on_osd_going_down(&mut self, turn: &mut Turn, id: SessionId, message: &MOsdGoingDown) {
        let up_from = self.osd.map().info(message.osd).map(|i| i.up_from);
        if !self.speaks_for(id, message.osd)
            || up_from != Some(message.up_from)
            || !self.osd.stays_up(message.osd)
        {
            return;
        }
        // It asks itself, so `nodown` does not hold it.
        self.log_cluster(turn, LogLevel::Info, format!("osd.{} marked itself down", message.osd));
        self.mark_down_dead(turn, message.osd, true);
    }

    // ---- what peering asks for ----

    pub fn on_osd_alive(&mut self, turn: &mut Turn, id: SessionId, message: &MOsdAlive) {
        if !self.speaks_for(id, message.osd) || !self.osd.stays_up(message.osd) {
            self.send_newer_maps(turn, id, message.epoch);
            return;
        }
        let map = self.osd.map();
        let Some(info) = map.info(message.osd) else { return };
        if info.up_thru >= message.want {
            // Recorded already: it only lacks the map that says so.
            self.send_newer_maps(turn, id, message.epoch);
            return;
        }
        // The newest epoch that it has seen; what it wants lies before that.
        let up_thru = message.epoch.min(map.epoch).max(message.want.min(map.epoch));
        let entry = self.osd.pending().new_up_thru.entry(message.osd).or_default();
        *entry = up_thru.max(*entry);
        self.commit_soon(turn);
    }

    pub fn on_osd_pg_temp(&mut self, turn: &mut Turn, id: SessionId, message: &MOsdPgTemp) {
        if !self.speaks_for(id, message.osd) || !self.osd.stays_up(message.osd) {
            self.send_newer_maps(turn, id, message.epoch);
            return;
        }
        let mut changed = false;
        for (pg, osds) in &message.pgs {
            if self.is_pg_temp_sane(*pg, osds) {
                let current = self.osd.map().pg_temp.get(pg).map_or(&[][..], Vec::as_slice);
                if current != osds.as_slice() {
                    self.osd.pending().new_pg_temp.insert(*pg, osds.clone());
                    changed = true;
                }
            }
        }
        if changed {
            // Like Ceph: who sets placements of its own has been up until now.
            let epoch = message.epoch.min(self.osd.epoch());
            let up_thru = self.osd.map().info(message.osd).map_or(Epoch(0), |i| i.up_thru);
            if up_thru < epoch {
                self.osd.pending().new_up_thru.insert(message.osd, epoch);
            }
            self.commit_soon(turn);
        } else {
            self.send_newer_maps(turn, id, message.epoch);
        }
    }

    fn is_pg_temp_sane(&self, pg: PgId, osds: &[OsdId]) -> bool {
        let map = self.osd.map();
        let pool = map.pool(pg.pool);
        pool.is_some_and(|p| pg.seed < p.pg_num)
            && osds.len() <= 64
            && osds.iter().all(|osd| *osd == OsdId::NONE || map.is_up(*osd))
    }

    // ---- time ----

    pub fn on_tick(&mut self, turn: &mut Turn) {
        self.pgs.on_tick(turn.now);
        self.judge_failures(turn);
        self.mark_silent_down(turn);
        self.mark_out(turn);
        self.expire_blocklist(turn);
        self.clear_pg_temps();
        self.check_quotas(turn);
        self.purge_snaps();
        self.flag_full(turn);
        self.watch_health(turn);
        if self.osd.has_pending() {
            self.commit_now(turn);
        }
    }

    /// OSDs that report no more at all, when nobody is left to report them.
    fn mark_silent_down(&mut self, turn: &mut Turn) {
        let limit = self.config.seconds("mon_osd_report_timeout", 900.0);
        let up: Vec<OsdId> = self.osd.map().osds().filter(|osd| self.osd.stays_up(*osd)).collect();
        for osd in up {
            // After a restart of ours, count from when we first looked.
            let last = *self.liveness.last_report.entry(osd).or_insert(turn.now);
            if turn.now.since(last) >= limit && self.may_mark_down(osd) {
                let text = format!("osd.{osd} marked down after no reports for {} seconds", limit.as_secs());
                self.log_cluster(turn, LogLevel::Info, text);
                self.mark_down_dead(turn, osd, false);
            }
        }
    }

    /// OSDs that stay down are taken out, so that their data gets new copies.
    fn mark_out(&mut self, turn: &mut Turn) {
        let after = self.config.seconds("mon_osd_down_out_interval", 600.0);
        let min_in_ratio = self.config.float("mon_osd_min_in_ratio", 0.75);
        let map = self.osd.map();
        let down_in: Vec<OsdId> = map.osds().filter(|o| map.is_down(*o) && map.is_in(*o)).collect();
        self.liveness.down_since.retain(|osd, _| down_in.contains(osd));
        for osd in &down_in {
            self.liveness.down_since.entry(*osd).or_insert(turn.now);
        }
        if after.is_zero() || map.test_flag(OsdMapFlags::NOOUT) {
            return;
        }
        for osd in down_in {
            let since = self.liveness.down_since.get(&osd).copied().unwrap_or(turn.now);
            let going_out = self.osd_pending_out_count();
            let map = self.osd.map();
            let ratio = (map.num_in_osds() - going_out) as f64 / map.num_osds().max(1) as f64;
            if turn.now.since(since) < after
                || self.has_osd_flag(osd, OsdState::NOOUT)
                || ratio < min_in_ratio
                || self.osd.is_pending_for(osd)
            {
                continue;
            }
            let weight = map.weight(osd);
            self.osd.pending().new_weight.insert(osd, OsdMap::WEIGHT_OUT);
            self.osd.toggle_state(osd, OsdState::AUTOOUT);
            self.osd.xinfo_mut(osd).old_weight = weight;
            self.osd.pending().new_last_in_change = turn.wall;
            let text = format!(
                "Marking osd.{osd} out (has been down for {} seconds)",
                turn.now.since(since).as_secs()
            );
            self.log_cluster(turn, LogLevel::Info, text);
        }
    }

    fn osd_pending_out_count(&mut self) -> usize {
        if !self.osd.has_pending() {
            return 0;
        }
        self.osd.pending().new_weight.values().filter(|w| **w == OsdMap::WEIGHT_OUT).count()
    }

    fn expire_blocklist(&mut self, turn: &Turn) {
        let map = self.osd.map();
        let expired = |list: &BTreeMap<EntityAddr, WallTime>| -> Vec<EntityAddr> {
            list.iter().filter(|(_, until)| **until <= turn.wall).map(|(addr, _)| *addr).collect()
        };
        let (lives, ranges) = (expired(&map.blocklist), expired(&map.range_blocklist));
        if !lives.is_empty() || !ranges.is_empty() {
            let pending = self.osd.pending();
            pending.old_blocklist.extend(lives);
            pending.old_range_blocklist.extend(ranges);
        }
    }

    /// Placements that name OSDs that are gone, or PGs that are.
    fn clear_pg_temps(&mut self) {
        let map = self.osd.map();
        let dead: Vec<PgId> = map
            .pg_temp
            .iter()
            .filter(|(pg, osds)| {
                let exists = map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
                !exists || !osds.iter().any(|osd| map.is_up(*osd))
            })
            .map(|(pg, _)| *pg)
            .collect();
        for pg in dead {
            self.osd.pending().new_pg_temp.insert(pg, Vec::new());
        }
    }

    /// After an epoch is durable.
    pub fn on_new_osd_map(&mut self, turn: &Turn) {
        let map = self.osd.map();
        self.liveness.failures.retain(|osd, _| map.is_up(*osd));
        self.liveness.last_report.retain(|osd, _| map.is_up(*osd));
        self.pgs.on_new_map(turn.wall, map);
    }
}

/// Address vectors in metadata stand in brackets even when there is one address.
fn bracketed(addrs: &str) -> String {
    if addrs.starts_with('[') { addrs.to_string() } else { format!("[{addrs}]") }
}
