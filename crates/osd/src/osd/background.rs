//! What happens by itself as time passes: heartbeats, retries, requests and
//! reports to the monitor, removal of PGs.

use super::Osd;
use crate::action::Ctx;
use crate::heartbeat::{Link, Reported};
use crate::pg::scrub::ScrubRecord;
use crate::space::Space;
use base::{Duration, Time};
use store::ObjectStore;
use wire::messages::{FailureKind, MOsdAlive, MOsdBoot, MOsdPgTemp, MOsdReport, OsdLoad};
use wire::types::{EVersion, Epoch, IntervalSet, OsdId};

/// Changes of PGs' states are reported after so short a wait, together.
const REPORT_SOON: Duration = Duration::from_millis(20);
/// Unchanged figures are reported so seldom.
const REPORT_IDLE: u32 = 5;
/// Requests to the monitor are repeated after this.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Between two extra rounds of pings while requests wait for leases.
const CHASE_PAUSE: Duration = Duration::from_millis(50);
/// Between two looks at the device's space while there is plenty.
const SPACE_PAUSE: Duration = Duration::from_millis(20);
/// Between two steps of removing PGs.
const DELETE_PAUSE: Duration = Duration::from_millis(5);
/// Between two looks whether the store had little to do.
const REST_PAUSE: Duration = Duration::from_millis(100);

/// What decides whether a PG's report says anything new.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// Another primary may have reported in between.
    interval: Epoch,
    state: u64,
    version: EVersion,
    reads: u64,
    up: Vec<OsdId>,
    acting: Vec<OsdId>,
    recovered: u64,
    purged_snaps: IntervalSet,
    scrub: ScrubRecord,
}

impl<S: ObjectStore> Osd<S> {
    pub fn on_tick(&mut self, ctx: &mut Ctx<'_>) {
        if !self.loaded {
            return;
        }
        let config = &self.sh.config;
        let (interval, grace) = (config.heartbeat_interval, config.heartbeat_grace);
        // We were stopped ourselves: that others were not heard says nothing.
        if ctx.now.since(self.timers.last_tick) > grace / 2 {
            for peer in self.sh.peers.all.values_mut() {
                peer.last_heard = ctx.now;
            }
        }
        self.timers.last_tick = ctx.now;
        self.sh.wake = Time::MAX;
        if ctx.now.since(self.timers.last_ping) >= interval {
            self.heartbeat(ctx);
        }
        for id in self.sh.laggy.clone() {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.serve_waiting(&mut self.sh, ctx);
            }
        }
        if ctx.now.since(self.timers.last_retry) >= self.sh.config.retry_interval / 2 {
            self.timers.last_retry = ctx.now;
            for pg in self.pgs.values_mut() {
                pg.on_retry(&mut self.sh, ctx);
            }
        }
        for pg in self.pgs.values_mut() {
            pg.expire_watches(&mut self.sh, ctx);
        }
        self.sh.wake_at(self.timers.last_retry + self.sh.config.retry_interval / 2);
        if !self.deleting.is_empty() {
            if ctx.now.since(self.timers.last_delete) >= DELETE_PAUSE {
                self.timers.last_delete = ctx.now;
                self.delete_some(ctx);
            }
            self.sh.wake_in(ctx, DELETE_PAUSE);
        }
        self.let_store_rest(ctx);
        self.drive_scrubs(ctx);
        self.boot_if_needed(ctx);
        self.settle(ctx);
    }

    /// It puts itself in order when there is little to do, and not when a stop waits for it.
    fn let_store_rest(&mut self, ctx: &Ctx<'_>) {
        if self.stopping {
            return;
        }
        if ctx.now.since(self.timers.last_rest) >= REST_PAUSE {
            self.timers.last_rest = ctx.now;
            self.timers.rest_goes_on = self.sh.store.rest();
        }
        if self.timers.rest_goes_on {
            self.sh.wake_at(self.timers.last_rest + REST_PAUSE);
        }
    }

    /// A step in the removal of PGs.
    pub(super) fn delete_some(&mut self, ctx: &mut Ctx<'_>) {
        if self.delete_step() && self.sh.am_up {
            // The map may have given it back to us meanwhile.
            self.find_unknown_pgs(ctx);
            self.handle_future(ctx);
        }
    }

    fn heartbeat(&mut self, ctx: &mut Ctx<'_>) {
        self.timers.last_ping = ctx.now;
        self.watch_space(ctx);
        if !self.sh.am_up {
            return;
        }
        self.dial_all(ctx);
        let grace = self.sh.config.heartbeat_grace;
        let peers: Vec<OsdId> = self.sh.peers.all.keys().copied().collect();
        for osd in peers {
            let Some(peer) = self.sh.peers.all.get(&osd) else { continue };
            let silence = ctx.now.since(peer.last_heard);
            let repeat = ctx.now.since(peer.last_report) >= ASK_AGAIN;
            if peer.reported == Reported::Refused {
                if repeat {
                    self.report_failure(ctx, osd, FailureKind::Refused);
                }
            } else if silence > grace && (peer.reported == Reported::Nothing || repeat) {
                if let Some(peer) = self.sh.peers.all.get_mut(&osd) {
                    peer.reported = Reported::Silent;
                }
                let for_ms = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
                self.report_failure(ctx, osd, FailureKind::Silent { for_ms });
            }
            match self.sh.peers.all.get(&osd).map(|p| p.link) {
                Some(Link::Up) => self.ping(ctx, osd),
                Some(Link::Down) => self.sh.dial(ctx, osd),
                Some(Link::Dialing) | None => {}
            }
        }
    }

    /// Notes how full the device is, and tells those who must know at once.
    pub(super) fn watch_space(&mut self, ctx: &mut Ctx<'_>) {
        // With plenty left, no commits of so short a time matter.
        if !self.sh.is_space_tight && ctx.now.since(self.timers.last_space) < SPACE_PAUSE {
            return;
        }
        self.timers.last_space = ctx.now;
        let space = Space::of(&self.sh.store.stats());
        if space == self.sh.space {
            return;
        }
        self.sh.space = space;
        self.sh.judge_space();
        let map = self.sh.maps.map();
        let ratios = [map.nearfull_ratio, map.backfillfull_ratio, map.full_ratio];
        let used = space.used_ratio();
        let fullness = ratios.iter().filter(|ratio| **ratio > 0.0 && used >= f64::from(**ratio)).count();
        if fullness != self.fullness {
            self.fullness = fullness;
            self.mon.report_all = true;
        }
        // In steps, so that a device that fills up does not talk of nothing else.
        let (room, announced) = (space.room(), self.announced_room);
        let moved = room < announced - announced / 8 || room > announced + announced / 8;
        if self.sh.is_space_tight && moved {
            self.announced_room = room;
            let linked: Vec<OsdId> =
                self.sh.peers.all.keys().copied().filter(|osd| self.sh.peers.is_linked(*osd)).collect();
            for osd in linked {
                self.ping(ctx, osd);
            }
        }
    }

    /// Requests wait for leases: do not let them wait for the next heartbeat.
    pub(super) fn chase_leases(&mut self, ctx: &mut Ctx<'_>) {
        if self.sh.laggy.is_empty() {
            return;
        }
        if ctx.now.since(self.timers.last_chase) < CHASE_PAUSE {
            return self.sh.wake_at(self.timers.last_chase + CHASE_PAUSE);
        }
        self.timers.last_chase = ctx.now;
        self.sh.wake_in(ctx, CHASE_PAUSE);
        let linked: Vec<OsdId> =
            self.sh.peers.all.keys().copied().filter(|osd| self.sh.peers.is_linked(*osd)).collect();
        for osd in linked {
            self.ping(ctx, osd);
        }
    }

    /// Tells the monitor that we are here, until the map says so.
    pub(super) fn boot_if_needed(&mut self, ctx: &mut Ctx<'_>) {
        if self.sh.am_up || self.stopping || !self.mon.open || self.sh.epoch().0 == 0 {
            return;
        }
        if self.mon.last_boot != Time::ZERO && ctx.now.since(self.mon.last_boot) < ASK_AGAIN {
            return;
        }
        self.mon.last_boot = ctx.now.max(Time(1));
        let config = &self.sh.config;
        let boot = MOsdBoot {
            fsid: config.fsid,
            osd: config.whoami,
            uuid: config.uuid,
            client_addrs: config.client_addrs.clone(),
            cluster_addrs: config.cluster_addrs.clone(),
            hb_addrs: config.hb_addrs.clone(),
            epoch: self.sh.epoch(),
            total_bytes: self.sh.store.stats().total,
            metadata: config.metadata.clone(),
        };
        self.sh.send_mon(&boot);
    }

    /// Sends what PGs want of the monitor: new wishes at once, old ones again.
    pub(super) fn ask_mon(&mut self, ctx: &mut Ctx<'_>) {
        let wishes = self.sh.want_up_thru.0 > 0 || !self.sh.want_pg_temp.is_empty();
        if !wishes || !self.mon.open || !self.sh.am_up {
            return;
        }
        if !self.sh.mon_requests_dirty && ctx.now.since(self.mon.last_request) < ASK_AGAIN {
            return;
        }
        self.sh.mon_requests_dirty = false;
        self.mon.last_request = ctx.now;
        let (osd, epoch) = (self.sh.me(), self.sh.epoch());
        if self.sh.want_up_thru.0 > 0 {
            self.sh.send_mon(&MOsdAlive { osd, epoch, want: self.sh.want_up_thru });
        }
        if !self.sh.want_pg_temp.is_empty() {
            let pgs = self.sh.want_pg_temp.clone();
            self.sh.send_mon(&MOsdPgTemp { osd, epoch, pgs });
        }
    }

    /// Reports to the monitor: soon after a PG's state has changed, else once
    /// in a while.
    pub(super) fn report_if_due(&mut self, ctx: &mut Ctx<'_>) {
        if !self.mon.open || !self.sh.am_up {
            return;
        }
        let since = ctx.now.since(self.timers.last_report);
        let interval = self.sh.config.report_interval;
        let urgent = self.sh.report_soon || self.mon.report_all;
        if !(since >= interval || (urgent && since >= REPORT_SOON)) {
            if urgent {
                self.sh.wake_at(self.timers.last_report + REPORT_SOON);
            }
            return;
        }
        let all = self.mon.report_all;
        let mut pgs = Vec::new();
        for (id, pg) in &mut self.pgs {
            if !pg.is_primary(&self.sh) {
                self.reported.remove(id);
                continue;
            }
            let signature = Signature {
                interval: pg.interval(),
                state: pg.state_bits(&self.sh, ctx.now),
                version: pg.info.last_update,
                reads: pg.stats.reads,
                up: pg.placement.up.clone(),
                acting: pg.placement.acting.clone(),
                recovered: pg.stats.recovered_objects,
                purged_snaps: pg.snap_trim().purged().clone(),
                scrub: pg.info.history.scrub,
            };
            if all || self.reported.get(id) != Some(&signature) {
                pgs.push(pg.report(&self.sh, ctx.now, ctx.wall));
                self.reported.insert(*id, signature);
            }
        }
        if pgs.is_empty() && !all && since < interval * REPORT_IDLE {
            self.sh.report_soon = false;
            if urgent {
                self.timers.last_report = ctx.now;
            }
            return;
        }
        self.sh.report_soon = false;
        self.mon.report_all = false;
        self.timers.last_report = ctx.now;
        let report = MOsdReport {
            fsid: self.sh.config.fsid,
            osd: self.sh.me(),
            epoch: self.sh.epoch(),
            load: self.load_figures(ctx.now),
            pgs,
            hb_peers: self.sh.peers.all.keys().copied().collect(),
        };
        self.sh.send_mon(&report);
    }

    fn load_figures(&self, now: Time) -> OsdLoad {
        let stats = self.sh.store.stats();
        let (mut oldest, mut slow) = (Duration::ZERO, 0);
        for pg in self.pgs.values().filter(|pg| pg.has_requests()) {
            let (since, _) = pg.oldest_request();
            let age = since.map_or(Duration::ZERO, |t| now.since(t));
            oldest = oldest.max(age);
            slow += u64::from(age > self.sh.config.complaint_time);
        }
        OsdLoad {
            total: stats.total,
            available: stats.available,
            data: stats.data,
            omap: stats.omap,
            internal: stats.internal,
            pgs: self.pgs.len() as u64,
            commit_latency_us: 0,
            slow_ops: slow,
            oldest_op_ms: u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
