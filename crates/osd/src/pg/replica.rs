//! A PG at an OSD that is not its primary: it takes the primary's log, its
//! writes, and answers questions.

use super::intervals::PastIntervals;
use super::log::{EntryKind, MergeError, PgLog};
use super::missing::Missing;
use super::{Pg, Phase, persist};
use crate::action::Ctx;
use crate::peer::{self, Activate, Activated, NeedLog, Notify, Repl, ReplAck, ReplResend, Settled};
use crate::shared::{Commit, Shared};
use store::{Mutation, ObjectStore, Transaction};
use wire::types::{EVersion, HObject, OsdId};

impl Pg {
    /// Tells what we have; asked or, as a member or a stray, unasked.
    pub(super) fn send_notify<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, to: OsdId) {
        if to == sh.me() {
            return;
        }
        self.info.missing_count = self.missing.len() as u64;
        let notify = Notify {
            info: Some(self.info.clone()),
            past: self.past.clone(),
            leases: sh.peers.promises_left(ctx.now),
            lease_floor_ms: sh.peers.floor_left_ms(ctx.now),
        };
        sh.send_pg(ctx, to, self.header(sh), notify);
    }

    pub(super) fn on_query_log<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        query: peer::QueryLog,
    ) {
        // Older than our log reaches: the asker sees that the base is newer.
        let base = self.log.base_at_or_before(query.since).unwrap_or(self.log.tail());
        let log = peer::Log {
            info: self.info.clone(),
            base,
            entries: self.log.entries_after(base).collect(),
            missing: self.missing.clone(),
        };
        sh.send_pg(ctx, from, self.header(sh), log);
    }

    /// The primary's log, to become ours.
    ///
    /// Crash: merged log, missing set, removed objects and `last_epoch_started`
    /// are one transaction; the primary is told when it is durable.
    pub(super) fn on_activate<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        activate: Activate,
    ) {
        if self.placement.primary != Some(from) || self.is_primary(sh) {
            return;
        }
        if self.phase == (Phase::Replica { active: true }) {
            // Repeated: writes may have followed, so nothing must be merged again.
            if self.activation_durable {
                self.send_activated(sh, ctx, from);
            }
            return;
        }
        let mut txn = Transaction::new();
        if activate.restart {
            self.start_full_copy(&activate, &mut txn);
        } else {
            let last_backfill = self.info.last_backfill.clone();
            if let Err(error) = self.merge_log(activate.base, activate.entries, &last_backfill, &mut txn) {
                let since = match error {
                    MergeError::NoBase { before, .. } => before,
                    MergeError::OutOfOrder => None,
                };
                tracing::info!(pg = %self.id, %error, "cannot take the primary's log");
                if since.is_none() {
                    self.give_up_copy(sh);
                }
                return sh.send_pg(ctx, from, self.header(sh), NeedLog { since });
            }
        }
        self.info.history.merge(&activate.info.history);
        self.info.last_epoch_started = activate.activation;
        self.info.last_interval_started = self.interval();
        self.info.last_user_version = activate.info.last_user_version;
        self.info.sums = activate.info.sums;
        self.phase = Phase::Replica { active: true };
        self.activation_durable = false;
        self.dirty_info = true;
        self.save_if_dirty(&mut txn);
        sh.must_queue(txn, Commit::Activation { pg: self.id, interval: self.interval() });
    }

    /// The log that peering has chosen and ours have nothing in common any
    /// more, so this copy cannot be set right entry by entry. Remembered, lest
    /// every interval find that out anew.
    pub(super) fn give_up_copy<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        self.info.last_backfill = HObject::default();
        self.dirty_info = true;
        let mut txn = Transaction::new();
        self.save_if_dirty(&mut txn);
        sh.must_queue(txn, Commit::Silent);
    }

    /// Forgets the log; what objects there are is compared during the backfill.
    fn start_full_copy(&mut self, activate: &Activate, txn: &mut Transaction) {
        persist::clear_log(&self.meta, txn);
        self.missing = Missing::default();
        self.info.last_backfill = HObject::default();
        let log = PgLog::from_entries(activate.entries.clone(), activate.base);
        // The primary's own log, whose order it asserts.
        self.log = log.unwrap_or_default();
        self.info.log_tail = self.log.tail();
        self.info.last_update = self.log.head();
        let mut records = self.records();
        self.log.entries().for_each(|entry| records.entry(&entry));
        records.into_txn(txn);
    }

    /// Merges a log into ours, in memory and in the transaction.
    pub(super) fn merge_log(
        &mut self,
        base: EVersion,
        entries: Vec<super::log::LogEntry>,
        last_backfill: &HObject,
        txn: &mut Transaction,
    ) -> Result<(), MergeError> {
        let before = self.missing.clone();
        let merged = self.log.merge(base, entries, last_backfill, &mut self.missing)?;
        if !merged.divergent.is_empty() {
            tracing::info!(pg = %self.id, count = merged.divergent.len(), %base, "undoing divergent entries");
        }
        for object in &merged.remove {
            txn.push(Mutation::Remove(self.object_id(object)));
        }
        let mut records = self.records();
        merged.divergent.iter().for_each(|entry| records.remove_entry(entry.version));
        self.log.newest(merged.added).for_each(|entry| records.entry(&entry));
        for (object, need) in &self.missing.0 {
            if before.need(object) != Some(*need) {
                records.missing(object, *need);
            }
        }
        for object in before.0.keys().filter(|object| !self.missing.contains(object)) {
            records.not_missing(object);
        }
        records.into_txn(txn);
        self.info.last_update = self.log.head();
        self.committed = self.committed.min(base);
        if let Some(last) = self.log.last() {
            self.info.last_user_version = last.last_user_version;
            self.info.sums = last.sums;
        }
        self.dirty_info = true;
        Ok(())
    }

    pub(super) fn send_activated<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, to: OsdId) {
        let activated =
            Activated { missing: self.missing.clone(), last_backfill: self.info.last_backfill.clone() };
        sh.send_pg(ctx, to, self.header(sh), activated);
    }

    /// The activation is durable here: as a replica we tell, as primary we count.
    pub fn on_activation_committed<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        // The store commits in order: all of the log came before.
        self.committed = self.committed.max(self.info.last_update);
        match &mut self.phase {
            Phase::Replica { active: true } => {
                self.activation_durable = true;
                if let Some(primary) = self.placement.primary {
                    self.send_activated(sh, ctx, primary);
                }
            }
            Phase::Activating { local, .. } => {
                *local = true;
                self.check_activated(sh, ctx);
            }
            _ => {}
        }
    }

    /// A write from the primary.
    pub fn on_repl<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        repl: Repl,
    ) {
        if self.phase != (Phase::Replica { active: true }) || self.placement.primary != Some(from) {
            return;
        }
        let version = repl.entry.version;
        if version <= self.info.last_update {
            // Sent again. If it is durable, the acknowledgement was lost.
            if version <= self.committed {
                self.send_ack(sh, ctx, from);
            }
            return;
        }
        if repl.prev != self.info.last_update {
            self.stalled = true;
            return self.ask_resend(sh, ctx);
        }
        self.stalled = false;
        let mut txn = Transaction { ops: repl.mutations };
        // A change to an object that is missing here would be built on sand;
        // the primary recovers such objects first.
        if !repl.log_only && repl.entry.kind != EntryKind::Error {
            assert!(!self.missing.contains(&repl.entry.object), "PG {}: write to a missing object", self.id);
            let built_on = repl.entry.clones.iter().filter(|clone| clone.prior_version != EVersion::ZERO);
            for clone in built_on {
                assert!(!self.missing.contains(&clone.object), "PG {}: change of a missing clone", self.id);
            }
        }
        if let Err(error) = self.append(sh, &repl.entry, repl.entry_bytes, &mut txn) {
            // Held back until there is room: we ask for it again later.
            tracing::error!(pg = %self.id, %error, "replica cannot take a write");
            self.stalled = true;
            self.last_sent = ctx.now;
        }
    }

    /// Writes are missing before the one that came, or did not fit. Not more
    /// often than once in a while: the answer is everything that follows.
    pub(super) fn ask_resend<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        let (true, Some(primary)) = (self.stalled, self.placement.primary) else { return };
        if ctx.now.since(self.last_sent) < sh.config.retry_interval {
            return;
        }
        self.last_sent = ctx.now;
        let ask = ReplResend { after: self.info.last_update };
        sh.send_pg(ctx, primary, self.header(sh), ask);
    }

    pub(super) fn send_ack<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, to: OsdId) {
        sh.send_pg(ctx, to, self.header(sh), ReplAck { through: self.committed });
    }

    /// Durable here, and nothing more of this batch: one acknowledgement for all.
    pub fn on_replica_committed<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        version: EVersion,
    ) {
        self.committed = self.committed.max(version);
        if let (Phase::Replica { active: true }, Some(primary)) = (&self.phase, self.placement.primary) {
            self.send_ack(sh, ctx, primary);
        }
    }

    pub(super) fn on_settled<S: ObjectStore>(&mut self, sh: &mut Shared<S>, from: OsdId, settled: Settled) {
        if self.placement.primary != Some(from) {
            return;
        }
        self.info.history.merge(&settled.history);
        if settled.clean {
            self.past = PastIntervals::default();
        }
        self.dirty_info = true;
        let mut txn = Transaction::new();
        self.save_if_dirty(&mut txn);
        sh.must_queue(txn, Commit::Silent);
    }
}
