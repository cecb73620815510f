//! Recovery by the log: objects that it names and a copy lacks.
//!
//! The primary first gets what it misses itself, then gives each target what
//! that misses. Objects travel in parts that are acknowledged once durable, so
//! that a receiver never holds half an object under its name (`push.rs`, `receive.rs`).
//! Clones of one object come one after the other and their head last, so that
//! each finds what it shares with them at its receiver (`push_base.rs`); but
//! objects that clients wait for come first.

use super::{Pg, Phase};
use crate::action::Ctx;
use crate::peer::{self, Pull, PullFailed};
use crate::shared::{Commit, Shared};
use base::Time;
use std::collections::BTreeSet;
use store::{ObjectStore, Transaction};
use wire::types::{EVersion, HObject, OsdId};

/// One object being recovered, at the primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovering {
    /// The source asked, while the primary misses the object.
    pub pull_from: Option<OsdId>,
    /// Sources that did not have it.
    tried: BTreeSet<OsdId>,
    pub since: Time,
}

impl Pg {
    /// Nothing of a finished interval goes on.
    pub(super) fn stop_recovery<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        sh.recovering -= self.recovering.len();
        for backfill in std::mem::take(&mut self.backfills).into_values() {
            sh.recovering -= backfill.slots();
        }
        self.recovering.clear();
        self.peers_missing = false;
        self.wanted.clear();
        self.unfound.clear();
        self.damaged.clear();
        self.unrepairable.clear();
        self.pushing.clear();
        self.receiving.clear();
        self.parked.clear();
    }

    /// The PG has become active.
    pub(super) fn start_recovery<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        self.note_peers_missing();
        self.start_backfills();
        self.recover_more(sh, ctx);
    }

    pub(super) fn note_peers_missing(&mut self) {
        self.peers_missing =
            self.targets.iter().any(|osd| self.peers.get(osd).is_some_and(|c| !c.missing.is_empty()));
    }

    /// Whether a request on this object has to wait for recovery.
    pub(super) fn is_unready(&self, object: &HObject, write: bool) -> bool {
        if self.missing.contains(object) {
            return true;
        }
        if !write {
            return false;
        }
        if self.scrub.holds(object) {
            return true;
        }
        if !self.peers_missing && self.backfills.is_empty() {
            return false;
        }
        self.targets.iter().any(|osd| self.peers.get(osd).is_some_and(|c| c.missing.contains(object)))
            || self.backfills.values().any(|b| b.blocks(object))
    }

    /// A client waits for this object.
    pub(super) fn want_object<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        object: &HObject,
    ) {
        self.want_in_backfill(sh, ctx, object);
        let hopeless = self.unfound.contains(object);
        if hopeless || self.recovering.contains_key(object) || !self.is_degraded(object) {
            return;
        }
        self.wanted.insert(object.clone());
        self.recover_more(sh, ctx);
    }

    pub(super) fn is_degraded(&self, object: &HObject) -> bool {
        self.missing.contains(object)
            || self.targets.iter().any(|osd| self.peers.get(osd).is_some_and(|c| c.missing.contains(object)))
    }

    /// Starts as much as the limits allow.
    pub fn recover_more<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if self.phase != Phase::Active {
            return;
        }
        // Tried again when time has passed.
        if !self.is_recovery_too_full(sh) {
            // Clients' objects may use as much again as everything else.
            while sh.recovering < 2 * sh.config.recovery_ops_max
                && let Some(object) = self.wanted.pop_first()
            {
                self.recover(sh, ctx, object);
            }
            while sh.recovering < sh.config.recovery_ops_max {
                let Some(object) = self.next_degraded() else { break };
                self.recover(sh, ctx, object);
            }
        }
        self.continue_backfills(sh, ctx);
        self.check_recovered(sh, ctx);
    }

    /// Somebody who lacks objects has no room for them.
    pub(super) fn is_recovery_too_full<S: ObjectStore>(&self, sh: &Shared<S>) -> bool {
        let lacks = |osd: &OsdId| self.peers.get(osd).is_some_and(|copy| !copy.missing.is_empty());
        (!self.missing.is_empty() && sh.is_failsafe_full(sh.me()))
            || (self.peers_missing && self.targets.iter().any(|osd| lacks(osd) && sh.is_failsafe_full(*osd)))
    }

    /// Somebody may have now what nobody had.
    pub(super) fn search_again(&mut self) {
        self.unfound.clear();
    }

    fn next_degraded(&self) -> Option<HObject> {
        let fresh = |object: &&HObject| {
            // Of an object and its clones one at a time: the next one shares blocks with it.
            let mut related = self.recovering.range(object.head_and_clones());
            related.next().is_none() && !self.unfound.contains(*object)
        };
        let own = self.missing.0.keys().find(fresh);
        let theirs = || {
            self.targets
                .iter()
                .filter_map(|osd| self.peers.get(osd))
                .find_map(|c| c.missing.0.keys().find(fresh))
        };
        own.or_else(theirs).cloned()
    }

    fn recover<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, object: HObject) {
        if self.recovering.contains_key(&object) || !self.is_degraded(&object) {
            return;
        }
        sh.recovering += 1;
        let recovering = Recovering { pull_from: None, tried: BTreeSet::new(), since: ctx.now };
        self.recovering.insert(object.clone(), recovering);
        if self.missing.contains(&object) {
            self.pull(sh, ctx, &object);
        } else {
            self.push_to_all(sh, ctx, &object);
        }
    }

    /// Other copies to ask, the likeliest first. Copies that are being
    /// backfilled, or have fallen behind the log, may be the last to have what
    /// they are asked for: they look, and a version stands for its content
    /// wherever it is found: but where it is known to be damaged.
    fn sources(&self, object: &HObject, need: EVersion) -> Vec<OsdId> {
        let has = |copy: &super::PeerCopy| {
            copy.info.as_ref().is_some_and(|i| *object <= i.last_backfill && i.last_update >= need)
                && !copy.missing.contains(object)
        };
        let damaged = self.damaged.get(object);
        let is_damaged = |osd: &OsdId| damaged.is_some_and(|at| at.contains(osd));
        let mut sources: Vec<(bool, OsdId)> = self
            .peers
            .iter()
            .filter(|(osd, copy)| copy.info.is_some() && !is_damaged(osd))
            .map(|(osd, copy)| (!has(copy), *osd))
            .collect();
        sources.sort_unstable();
        sources.into_iter().map(|(_, osd)| osd).collect()
    }

    pub(super) fn pull<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, object: &HObject) {
        let Some(need) = self.missing.need(object) else { return };
        let sources = self.sources(object, need);
        let Some(recovering) = self.recovering.get_mut(object) else { return };
        let up = |osd: &&OsdId| sh.maps.map().is_up(**osd);
        let source = sources.iter().filter(up).find(|osd| !recovering.tried.contains(osd)).copied();
        match source {
            Some(from) => {
                recovering.pull_from = Some(from);
                recovering.since = ctx.now;
                self.receiving.remove(object);
                let whole = self.damaged.get(object).is_some_and(|at| at.contains(&sh.me()));
                let lacks = self.missing.0.range(object.head_and_clones()).map(|(missed, _)| missed.clone());
                let pull = Pull { object: object.clone(), need, lacks: lacks.collect(), whole };
                sh.send_pg(ctx, from, self.header(sh), pull);
            }
            None => {
                self.recovering.remove(object);
                sh.recovering -= 1;
                if self.is_damaged_here(sh, object, need) {
                    return self.give_up_repair(sh, ctx, object);
                }
                tracing::warn!(pg = %self.id, object = %object.name, %need, "no copy found");
                self.unfound.insert(object.clone());
            }
        }
    }

    pub(super) fn push_to_all<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        object: &HObject,
    ) {
        let lacking: Vec<OsdId> = self
            .targets
            .iter()
            .copied()
            .filter(|osd| self.peers.get(osd).is_some_and(|c| c.missing.contains(object)))
            .collect();
        // A backfill that found the object damaged waits for it, too.
        let backfilled = self.backfills.iter().filter(|(_, b)| b.is_pushing(object)).map(|(osd, _)| *osd);
        let backfilled: Vec<OsdId> = backfilled.filter(|osd| !lacking.contains(osd)).collect();
        for osd in lacking.into_iter().chain(backfilled) {
            self.start_push(sh, ctx, osd, object.clone());
        }
        self.check_object(sh, ctx, object);
    }

    /// Ends an object's recovery once everybody has it.
    pub(super) fn check_object<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        object: &HObject,
    ) {
        if self.recovering.contains_key(object) && !self.is_degraded(object) {
            self.recovering.remove(object);
            sh.recovering -= 1;
            self.note_peers_missing();
            self.stats.recovered_objects += 1;
            self.pump_object(sh, ctx, object);
            self.recover_more(sh, ctx);
        }
    }

    pub(super) fn on_pull_failed<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        failed: PullFailed,
    ) {
        if failed.damaged {
            self.note_damaged_copy(from, &failed.object, failed.need);
        }
        let Some(recovering) = self.recovering.get_mut(&failed.object) else { return };
        if recovering.pull_from == Some(from) {
            recovering.tried.insert(from);
            self.pull(sh, ctx, &failed.object);
            // If nobody has it, others go on.
            self.recover_more(sh, ctx);
        }
    }

    /// The link to an OSD is new: transfers with it begin again.
    pub(super) fn restart_recovery_with<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        osd: OsdId,
    ) {
        let pulls: Vec<HObject> = self
            .recovering
            .iter()
            .filter(|(_, r)| r.pull_from == Some(osd))
            .map(|(o, _)| o.clone())
            .collect();
        for object in pulls {
            self.pull(sh, ctx, &object);
        }
        self.restart_pushes_to(sh, ctx, osd);
        self.resend_backfill(sh, ctx, osd);
    }

    /// Metadata is there, or time has passed.
    pub fn retry_recovery<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        self.retry_pushes(sh, ctx);
        let limit = sh.config.retry_interval * 10;
        if !self.unfound.is_empty() && ctx.now.since(self.last_sent) > limit {
            self.last_sent = ctx.now;
            self.search_again();
        }
        let stuck: Vec<HObject> = self
            .recovering
            .iter()
            .filter(|(o, r)| {
                (r.pull_from.is_some() || self.missing.contains(o)) && ctx.now.since(r.since) > limit
            })
            .map(|(o, _)| o.clone())
            .collect();
        for object in stuck {
            // Asking the same source twice does no harm.
            self.pull(sh, ctx, &object);
        }
        self.recover_more(sh, ctx);
        self.trim_snaps(sh, ctx);
    }

    /// All members have all objects.
    pub fn is_recovered(&self) -> bool {
        let busy = self.peers_missing || !self.recovering.is_empty() || !self.backfills.is_empty();
        self.is_active() && self.missing.is_empty() && self.unfound.is_empty() && !busy
    }

    /// Nothing is left to do: the PG may be clean, or its data may be where
    /// the map wants it and the acting set may follow.
    pub(super) fn check_recovered<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if self.clean || !self.is_recovered() {
            return;
        }
        let mine = self.info.clone();
        for osd in &self.targets {
            if let Some(info) = self.peers.get_mut(osd).and_then(|c| c.info.as_mut()) {
                let last_backfill = info.last_backfill.clone();
                *info = super::info::PgInfo { last_backfill, ..mine.clone() };
            }
        }
        if let super::peering::choose::Choice::OtherActing(want) = self.choose_acting(sh) {
            return sh.request_pg_temp(self.id, want);
        }
        let size = sh.maps.map().pool(self.id.pool).map_or(1, |p| usize::from(p.size));
        if self.placement.members().count() < size {
            return;
        }
        if self.placement.up != self.placement.acting {
            // The right members in another order: an override that nothing needs any more.
            return sh.request_pg_temp(self.id, Vec::new());
        }
        self.clean = true;
        self.info.history.last_epoch_clean = sh.epoch();
        self.past = Default::default();
        self.dirty_info = true;
        let mut txn = Transaction::new();
        self.save_if_dirty(&mut txn);
        sh.must_queue(txn, Commit::Silent);
        self.stats.on_clean(ctx.wall);
        sh.report_soon = true;
        tracing::debug!(me = %sh.me(), pg = %self.id, "clean");
        self.send_settled(sh, ctx);
        sh.dirty.insert(self.id);
        self.review_removed_snaps(sh, ctx);
    }

    /// Tells strays that nobody needs them.
    pub fn purge_strays<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        if self.clean {
            for osd in std::mem::take(&mut self.strays) {
                sh.send_pg(ctx, osd, self.header(sh), peer::Remove {});
            }
        }
    }
}
