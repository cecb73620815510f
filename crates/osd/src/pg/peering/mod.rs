//! Peering: how a new interval's primary learns what the PG's state is, makes
//! it the state of all members, and only then serves clients.
//!
//! The argument for its safety is in docs/design/0001-peering.md; in short:
//! an acknowledged write is durable on every acting member of its interval;
//! the primary sees at least one member of every interval that may have
//! acknowledged writes (else it stays `down`); the log chosen contains all
//! entries of the newest interval that went active; and no member serves a
//! client before all of them hold that log durably.
//!
//! Source: Ceph `src/osd/PeeringState.cc`.

pub mod choose;

use super::{PeerCopy, Pg, Phase};
use crate::action::Ctx;
use crate::peer::{Activate, Activated, Discover, Log, NeedLog, Notify, QueryInfo, QueryLog, Settled};
use crate::shared::{Commit, Shared};
use base::{Duration, Time};
use choose::Choice;
use std::collections::BTreeSet;
use store::{ObjectStore, Transaction};
use wire::types::{EVersion, OsdId};

impl Pg {
    /// Begins, or begins again within the interval.
    pub(super) fn start_peering<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        assert!(self.is_primary(sh));
        self.peers.clear();
        self.targets.clear();
        let map = sh.maps.map().clone();
        self.prior =
            self.past.prior_set(sh.me(), &self.placement, self.info.history.last_epoch_started, &map);
        self.phase = Phase::GetInfo { awaiting: self.prior.probe.clone() };
        tracing::debug!(me = %sh.me(), pg = %self.id, interval = %self.interval(), prior = ?self.prior, "peering");
        self.send_queries(sh, ctx);
        self.check_infos(sh, ctx);
    }

    /// A PG that this OSD is primary of and has never heard of: if no OSD has
    /// ever seen it, it is new.
    pub fn start_discovery<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let map = sh.maps.map().clone();
        let ever_up = |osd: &OsdId| map.info(*osd).is_some_and(|i| i.up_from.0 > 0);
        let awaiting = map.osds().filter(|osd| *osd != sh.me()).filter(ever_up).collect();
        self.phase = Phase::Discovering { awaiting };
        self.send_queries(sh, ctx);
    }

    /// Asks everyone whose answer is awaited; repeated until they answer.
    pub(super) fn send_queries<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        self.last_sent = ctx.now;
        let header = self.header(sh);
        match self.phase.clone() {
            Phase::Discovering { awaiting } => {
                awaiting.iter().for_each(|osd| sh.send_pg(ctx, *osd, header, Discover {}));
            }
            Phase::GetInfo { awaiting } => {
                awaiting.iter().for_each(|osd| sh.send_pg(ctx, *osd, header, QueryInfo {}));
            }
            Phase::GetLog { from } => self.ask_log(sh, ctx, from, self.log_needed_since(from)),
            Phase::Activating { awaiting, .. } => {
                awaiting.iter().for_each(|osd| self.send_activate(sh, ctx, *osd, None));
            }
            Phase::WaitActing { want } => sh.request_pg_temp(self.id, want),
            Phase::WaitUpThru => sh.request_up_thru(self.interval()),
            Phase::Replica { active: false } | Phase::Stray => {
                if let Some(primary) = self.placement.primary {
                    self.send_notify(sh, ctx, primary);
                }
            }
            Phase::Down | Phase::Incomplete | Phase::Replica { active: true } | Phase::Active => {}
        }
    }

    /// A newer map of the same interval.
    pub(super) fn recheck_peering<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        match self.phase {
            Phase::Active => return,
            Phase::WaitUpThru => return self.check_up_thru(sh, ctx),
            Phase::Discovering { .. } => return self.start_discovery(sh, ctx),
            _ => {}
        }
        let map = sh.maps.map().clone();
        let prior = self.past.prior_set(sh.me(), &self.placement, self.info.history.last_epoch_started, &map);
        // Whoever we wait for may have gone, or come back.
        if prior != self.prior {
            self.start_peering(sh, ctx);
        } else {
            self.send_queries(sh, ctx);
        }
    }

    pub(super) fn on_not_here<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, from: OsdId) {
        match &mut self.phase {
            Phase::Discovering { awaiting } => {
                awaiting.remove(&from);
                self.check_discovery(sh, ctx);
            }
            Phase::GetInfo { .. } => {
                let notify =
                    Notify { info: None, past: Default::default(), leases: Vec::new(), lease_floor_ms: 0 };
                self.on_notify(sh, ctx, from, notify);
            }
            _ => {}
        }
    }

    pub(super) fn check_discovery<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if self.phase == (Phase::Discovering { awaiting: BTreeSet::new() }) {
            // Nobody has seen it: its life begins here. Not stored before, lest
            // a restart take an empty PG for one that it knows.
            if let Some(creation) = self.creation.take() {
                sh.must_queue(creation, Commit::Silent);
            }
            self.start_peering(sh, ctx);
        }
    }

    pub(super) fn on_notify<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        notify: Notify,
    ) {
        if !self.is_primary(sh) {
            return;
        }
        let arrived = ctx.now;
        for (osd, ms) in notify.leases {
            let until = arrived + Duration::from_millis(u64::from(ms));
            let known = self.lease_reports.entry(osd).or_insert(until);
            *known = (*known).max(until);
        }
        let floor = arrived + Duration::from_millis(u64::from(notify.lease_floor_ms));
        self.lease_floor = self.lease_floor.max(floor);

        let member = self.placement.up.contains(&from) || self.placement.acting.contains(&from);
        if notify.info.is_some() && !member {
            self.strays.insert(from);
            sh.dirty.insert(self.id);
        }
        if matches!(self.phase, Phase::Active | Phase::Activating { .. }) {
            if !member && !self.peers.contains_key(&from) {
                // Too late to have a say, but it may have what is missing.
                self.peers.insert(from, PeerCopy { info: notify.info, ..PeerCopy::default() });
                self.unrepairable.clear();
                self.search_again();
                self.recover_more(sh, ctx);
            }
            return;
        }
        if let Some(info) = &notify.info {
            let before = self.info.history;
            self.info.history.merge(&info.history);
            self.dirty_info |= before != self.info.history;
        }
        let copy = PeerCopy { info: notify.info, ..PeerCopy::default() };
        self.peers.insert(from, copy);
        match &mut self.phase {
            Phase::GetInfo { awaiting } => {
                awaiting.remove(&from);
                self.check_infos(sh, ctx);
            }
            // News from someone new may end the wait.
            Phase::Incomplete | Phase::Down => self.start_choosing(sh, ctx),
            _ => {}
        }
    }

    fn check_infos<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if self.phase == (Phase::GetInfo { awaiting: BTreeSet::new() }) {
            self.start_choosing(sh, ctx);
        }
    }

    /// Everybody who can answer has answered.
    fn start_choosing<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        // The answers may have told of a later activation, which makes older
        // intervals irrelevant.
        let map = sh.maps.map().clone();
        let known = self.info.history.last_epoch_started;
        self.prior = self.past.prior_set(sh.me(), &self.placement, known, &map);
        let unasked: BTreeSet<OsdId> =
            self.prior.probe.iter().copied().filter(|osd| !self.peers.contains_key(osd)).collect();
        if !unasked.is_empty() {
            self.phase = Phase::GetInfo { awaiting: unasked };
            return self.send_queries(sh, ctx);
        }
        if !self.prior.blocked_by.is_empty() {
            self.phase = Phase::Down;
            sh.dirty.insert(self.id);
            return;
        }
        self.choose(sh, ctx);
    }

    fn choose<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        match self.choose_acting(sh) {
            Choice::Incomplete => {
                self.phase = Phase::Incomplete;
                sh.dirty.insert(self.id);
            }
            Choice::OtherActing(want) => {
                tracing::info!(pg = %self.id, ?want, acting = ?self.placement.acting, "asking for another acting set");
                sh.request_pg_temp(self.id, want.clone());
                self.phase = Phase::WaitActing { want };
            }
            Choice::Log(best) if best == sh.me() => self.check_up_thru(sh, ctx),
            Choice::Log(best) => {
                self.phase = Phase::GetLog { from: best };
                self.ask_log(sh, ctx, best, self.log_needed_since(best));
            }
        }
    }

    /// The oldest version that a member, we included, must catch up from.
    fn log_needed_since(&self, best: OsdId) -> EVersion {
        let tail = self.peers.get(&best).map_or(EVersion::ZERO, |c| c.info_or_default().log_tail);
        let members = self.placement.members().chain(self.placement.up.iter().copied());
        let theirs = members
            .filter_map(|osd| self.peers.get(&osd))
            .map(|copy| copy.info_or_default().last_update)
            .filter(|version| *version >= tail);
        // Our own log must be able to take it: nothing before its tail helps.
        theirs.fold(self.info.last_update, EVersion::min).max(self.log.tail())
    }

    fn ask_log<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        since: EVersion,
    ) {
        self.last_sent = ctx.now;
        sh.send_pg(ctx, from, self.header(sh), QueryLog { since });
    }

    pub(super) fn on_log<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        log: Log,
    ) {
        if self.phase != (Phase::GetLog { from }) {
            return;
        }
        let last_backfill = self.info.last_backfill.clone();
        let mut txn = Transaction::new();
        match self.merge_log(log.base, log.entries, &last_backfill, &mut txn) {
            Ok(()) => {
                self.save_if_dirty(&mut txn);
                sh.must_queue(txn, Commit::Silent);
                let copy = PeerCopy { info: Some(log.info), missing: log.missing, acked: EVersion::ZERO };
                self.peers.insert(from, copy);
                self.check_up_thru(sh, ctx);
            }
            Err(super::log::MergeError::NoBase { before: Some(since), .. }) => {
                self.ask_log(sh, ctx, from, since);
            }
            Err(error) => {
                tracing::warn!(pg = %self.id, %error, "our log does not meet the best one: a full copy is needed");
                self.give_up_copy(sh);
                self.choose(sh, ctx);
            }
        }
    }

    /// The monitor must know that we were up in this interval before it can
    /// have acknowledged anything: see `may_have_gone_rw`.
    fn check_up_thru<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let recorded = sh.maps.map().info(sh.me()).map_or(wire::types::Epoch(0), |i| i.up_thru);
        if recorded < self.interval() {
            self.phase = Phase::WaitUpThru;
            return sh.request_up_thru(self.interval());
        }
        self.activate(sh, ctx);
    }

    fn activate<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        self.info.last_epoch_started = sh.epoch();
        self.info.last_interval_started = self.interval();
        self.dirty_info = true;
        let mut txn = Transaction::new();
        self.save_if_dirty(&mut txn);
        sh.must_queue(txn, Commit::Activation { pg: self.id, interval: self.interval() });

        let mut targets: BTreeSet<OsdId> = self.placement.members().collect();
        targets.extend(self.placement.up.iter().copied().filter(|osd| *osd != OsdId::NONE));
        targets.remove(&sh.me());
        self.targets = targets.iter().copied().collect();
        for osd in &self.targets {
            self.peers.entry(*osd).or_default().acked = EVersion::ZERO;
        }
        self.phase = Phase::Activating { awaiting: targets, local: false };
        self.send_queries(sh, ctx);
    }

    /// `since`: what the member asked for, when its log lacked the base.
    fn send_activate<S: ObjectStore>(
        &self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        to: OsdId,
        since: Option<EVersion>,
    ) {
        let theirs = self.peers.get(&to).map(PeerCopy::info_or_default).unwrap_or_default();
        // A backfill that has not begun has nothing to keep.
        let nothing = theirs.last_backfill == wire::types::HObject::default();
        let base = match nothing || self.full_copy.contains(&to) {
            true => None,
            false => self.log.base_at_or_before(since.unwrap_or(theirs.last_update)),
        };
        let (restart, base, entries) = match base {
            Some(base) => (false, base, self.log.entries_after(base).collect()),
            // Duplicates before the tail included.
            None => (true, self.log.tail(), self.log.entries().collect()),
        };
        let activate = Activate {
            info: self.info.clone(),
            past: self.past.clone(),
            restart,
            base,
            entries,
            activation: self.info.last_epoch_started,
        };
        sh.send_pg(ctx, to, self.header(sh), activate);
    }

    pub(super) fn on_need_log<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        need: NeedLog,
    ) {
        let Phase::Activating { awaiting, .. } = &self.phase else { return };
        if !awaiting.contains(&from) {
            return;
        }
        match need.since {
            Some(since) if self.log.base_at_or_before(since).is_some() => {
                self.send_activate(sh, ctx, from, Some(since));
            }
            _ => {
                // It cannot count as a member before it has a full copy: choose again.
                self.full_copy.insert(from);
                self.choose(sh, ctx);
            }
        }
    }

    pub(super) fn on_activated<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        activated: Activated,
    ) {
        let Phase::Activating { awaiting, .. } = &mut self.phase else { return };
        if !awaiting.remove(&from) {
            return;
        }
        let head = self.info.last_update;
        let copy = self.peers.entry(from).or_default();
        copy.missing = activated.missing;
        copy.acked = head;
        let info = copy.info.get_or_insert_default();
        info.last_update = head;
        info.last_backfill = activated.last_backfill;
        self.check_activated(sh, ctx);
    }

    /// All members hold the log durably: the PG is active.
    pub(super) fn check_activated<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if self.phase != (Phase::Activating { awaiting: BTreeSet::new(), local: true }) {
            return;
        }
        self.phase = Phase::Active;
        sh.dirty.insert(self.id);
        self.acked = self.info.last_update;
        self.readable_from = self.prior_leases_end(sh, ctx.now);
        let history = &mut self.info.history;
        history.last_epoch_started = self.info.last_epoch_started;
        history.last_interval_started = self.info.last_interval_started;
        self.begin_scrub_record(ctx.wall);
        self.dirty_info = true;
        let mut txn = Transaction::new();
        self.save_if_dirty(&mut txn);
        sh.must_queue(txn, Commit::Silent);
        self.stats.on_active(ctx.wall);
        sh.report_soon = true;
        tracing::debug!(me = %sh.me(), pg = %self.id, interval = %self.interval(), head = %self.info.last_update, "active");
        self.send_settled(sh, ctx);
        self.start_recovery(sh, ctx);
        self.serve_waiting(sh, ctx);
    }

    pub(super) fn send_settled<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        let settled = Settled { history: self.info.history, clean: self.clean };
        for osd in self.targets.clone() {
            sh.send_pg(ctx, osd, self.header(sh), settled.clone());
        }
    }

    /// When no primary of a past interval can serve reads any more.
    ///
    /// A past primary needed a lease from every member of its interval. We have
    /// heard, in this interval, from at least one member of each interval that
    /// may have gone read-write, and from now on that member's grants carry
    /// epochs that tell the past primary that it is past. So what the members
    /// promised before is the end of it.
    fn prior_leases_end<S: ObjectStore>(&self, sh: &Shared<S>, now: Time) -> Time {
        let map = sh.maps.map();
        let suspects: BTreeSet<OsdId> = self
            .prior
            .past_primaries
            .iter()
            .filter(|(osd, last)| {
                // Whoever answered in this interval knows that the past is over.
                let told = *osd == sh.me() || self.peers.contains_key(osd);
                let reborn = map.info(*osd).is_some_and(|i| i.up_from > *last);
                let dead = map.info(*osd).zip(map.xinfo(*osd)).is_some_and(|(i, x)| {
                    !map.is_up(*osd) && x.dead_epoch >= i.up_from && x.dead_epoch.0 > 0
                });
                !told && !reborn && !dead
            })
            .map(|(osd, _)| *osd)
            .collect();
        if suspects.is_empty() {
            return now;
        }
        let own = suspects.iter().map(|osd| sh.peers.promised_until(*osd));
        let reported = suspects.iter().filter_map(|osd| self.lease_reports.get(osd).copied());
        own.chain(reported).fold(self.lease_floor.max(sh.peers.promise_floor), Time::max)
    }

    /// The link to a peer is new: what was on the old one may be lost.
    pub fn on_peer_linked<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, osd: OsdId) {
        match &self.phase {
            Phase::Active => {
                if self.targets.contains(&osd) {
                    if self.unacked_by(osd) {
                        let acked = self.peers.get(&osd).map_or(EVersion::ZERO, |c| c.acked);
                        self.resend_writes(sh, ctx, osd, acked);
                    }
                    let settled = Settled { history: self.info.history, clean: self.clean };
                    sh.send_pg(ctx, osd, self.header(sh), settled);
                }
                self.restart_recovery_with(sh, ctx, osd);
            }
            Phase::Replica { active: true } if self.placement.primary == Some(osd) => {
                if self.activation_durable {
                    self.send_activated(sh, ctx, osd);
                }
                self.send_ack(sh, ctx, osd);
            }
            Phase::Replica { .. } | Phase::Stray if self.placement.primary != Some(osd) => {}
            _ => self.send_queries(sh, ctx),
        }
    }

    /// Repeats what is unanswered.
    pub fn on_retry<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if ctx.now.since(self.last_sent) >= sh.config.retry_interval {
            match self.phase {
                Phase::Active => {}
                Phase::Replica { active: true } => return self.ask_resend(sh, ctx),
                _ if sh.am_up => return self.send_queries(sh, ctx),
                _ => return,
            }
        }
        if self.phase == Phase::Active {
            self.resend_old_writes(sh, ctx);
            self.retry_recovery(sh, ctx);
        }
    }
}
