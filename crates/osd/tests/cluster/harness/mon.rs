//! A stand-in for the monitor: the rules that the OSD relies on, nothing more.

use super::*;

pub struct Mon {
    pub map: OsdMap,
    pub crush: CrushMap,
    incrementals: BTreeMap<Epoch, Bytes>,
    pub(super) maps: BTreeMap<Epoch, OsdMap>,
    pending: OsdMapIncremental,
    commit_scheduled: bool,
    pub reports: BTreeMap<PgId, PgReport>,
    /// The cluster log.
    pub log: Vec<String>,
    /// Failure reports are ignored.
    pub deaf: bool,
}

impl Mon {
    pub(super) fn new(map: OsdMap, crush: CrushMap) -> Mon {
        Mon {
            pending: OsdMapIncremental::new(map.fsid, map.epoch.next()),
            maps: [(map.epoch, map.clone())].into(),
            map,
            crush,
            incrementals: BTreeMap::new(),
            commit_scheduled: false,
            reports: BTreeMap::new(),
            log: Vec::new(),
            deaf: false,
        }
    }
}

impl World {
    pub fn change_map(&mut self, change: impl FnOnce(&mut OsdMapIncremental)) {
        change(&mut self.mon.pending);
        self.schedule_commit();
    }

    pub(super) fn on_mon(&mut self, osd: usize, message: Outgoing) {
        let kind = message.kind;
        let message = incoming(message);
        let features = Features::PACIFIC;
        let id = OsdId(osd as i32);
        if kind == MMonSubscribe::KIND {
            self.publish(osd, true);
        } else if kind == MLog::KIND {
            let log: MLog = message.decode(features).unwrap();
            self.mon.log.extend(log.entries.into_iter().map(|entry| entry.text));
        } else if kind == MOsdBoot::KIND {
            let boot: MOsdBoot = message.decode(features).unwrap();
            if self.mon.map.client_addrs(id) == Some(&boot.client_addrs) && self.mon.map.is_up(id) {
                return;
            }
            if self.mon.map.is_up(id) {
                // The old life first; the OSD asks again.
                self.mon.pending.new_state.insert(id, OsdState::UP);
                self.mark_dead(id);
            } else if !self.mon.pending.new_state.contains_key(&id) {
                let inc = &mut self.mon.pending;
                inc.new_up_client.insert(id, boot.client_addrs);
                inc.new_up_cluster.insert(id, boot.cluster_addrs);
                inc.new_hb_back_up.insert(id, boot.hb_addrs.clone());
                inc.new_hb_front_up.insert(id, boot.hb_addrs);
            }
            self.schedule_commit();
        } else if kind == MOsdFailure::KIND {
            let failure: MOsdFailure = message.decode(features).unwrap();
            let current = self.mon.map.info(failure.failed).is_some_and(|i| i.up_from == failure.up_from);
            let reporter_up = self.mon.map.is_up(failure.reporter);
            if self.mon.deaf || !self.mon.map.is_up(failure.failed) || !current || !reporter_up {
                return;
            }
            match failure.kind {
                FailureKind::Recovered => {}
                FailureKind::Refused => {
                    self.mon.pending.new_state.insert(failure.failed, OsdState::UP);
                    self.mark_dead(failure.failed);
                    self.schedule_commit();
                }
                FailureKind::Silent { .. } => {
                    self.mon.pending.new_state.insert(failure.failed, OsdState::UP);
                    self.schedule_commit();
                }
            }
        } else if kind == MOsdAlive::KIND {
            let alive: MOsdAlive = message.decode(features).unwrap();
            if self.mon.map.is_up(id) && self.mon.map.info(id).is_some_and(|i| i.up_thru < alive.want) {
                let epoch = self.mon.map.epoch;
                self.mon.pending.new_up_thru.insert(id, epoch.max(alive.want));
                self.schedule_commit();
            }
        } else if kind == MOsdPgTemp::KIND {
            let temp: MOsdPgTemp = message.decode(features).unwrap();
            for (pg, acting) in temp.pgs {
                let current = self.mon.map.pg_temp.get(&pg).cloned().unwrap_or_default();
                if current != acting {
                    self.mon.pending.new_pg_temp.insert(pg, acting);
                    self.schedule_commit();
                }
            }
        } else if kind == MOsdReport::KIND {
            let report: MOsdReport = message.decode(features).unwrap();
            for pg in report.pgs {
                self.mon.reports.insert(pg.pg, pg);
            }
        }
    }

    /// This life of the OSD is certainly over.
    fn mark_dead(&mut self, osd: OsdId) {
        let xinfo = self.mon.map.xinfo(osd).copied().unwrap_or_default();
        let dead_epoch = self.mon.map.epoch;
        self.mon.pending.new_xinfo.insert(osd, OsdXInfo { dead_epoch, ..xinfo });
    }

    pub(super) fn schedule_commit(&mut self) {
        if !self.mon.commit_scheduled {
            self.mon.commit_scheduled = true;
            self.after(MON_DELAY, Event::MonCommit);
        }
    }

    pub(super) fn mon_commit(&mut self) {
        let mon = &mut self.mon;
        mon.commit_scheduled = false;
        let next_epoch = mon.map.epoch.next();
        let mut inc =
            std::mem::replace(&mut mon.pending, OsdMapIncremental::new(self.fsid, next_epoch.next()));
        // pg_temp of a PG goes when its members do, as the monitor's rule is.
        let next = mon.map.advanced(&inc).expect("valid incremental");
        let downed: Vec<OsdId> = inc.new_state.keys().copied().filter(|o| next.is_down(*o)).collect();
        for (pg, temp) in &mon.map.pg_temp {
            if !temp.iter().any(|o| next.is_up(*o)) && temp.iter().any(|o| downed.contains(o)) {
                inc.new_pg_temp.entry(*pg).or_default();
            }
        }
        let next = mon.map.advanced(&inc).expect("valid incremental");
        inc.full_crc = next.crc();
        if std::env::var("OSD_TRACE").is_ok() {
            println!(
                "{:?} epoch {} state {:?} temp {:?} thru {:?}",
                self.now, inc.epoch, inc.new_state, inc.new_pg_temp, inc.new_up_thru
            );
        }
        mon.incrementals.insert(inc.epoch, inc.to_bytes(Features::PACIFIC));
        mon.map = next.clone();
        mon.maps.insert(next.epoch, next);
        self.publish_all();
    }

    pub(super) fn publish_all(&mut self) {
        for osd in 0..self.nodes.len() {
            self.publish(osd, false);
        }
        let delay = self.delay() * 4;
        let epoch = self.mon.map.epoch;
        self.after(delay, Event::ClientMap { epoch });
    }

    pub(super) fn publish(&mut self, osd: usize, _all: bool) {
        let Some(node) = &self.nodes[osd] else { return };
        let (life, have) = (node.life, node.osd.epoch());
        let mut maps =
            MOsdMap { fsid: self.fsid, oldest: Epoch(1), newest: self.mon.map.epoch, ..MOsdMap::default() };
        if have.0 == 0 {
            // Only the newest, as a real monitor does.
            maps.fulls.insert(self.mon.map.epoch, self.mon.map.to_bytes(Features::PACIFIC));
        } else {
            maps.incrementals =
                self.mon.incrementals.range(have.next()..).map(|(e, b)| (*e, b.clone())).collect();
        }
        let delay = self.delay();
        self.after_in_order((2, osd, life), delay, Event::FromMon { osd, life, maps });
    }
}
