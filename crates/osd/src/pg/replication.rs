//! Writes at the primary: log entry, store, replicas, acknowledgement.
//!
//! 1. The change and its log entry go into the local store's queue as one
//!    transaction. A crash here: nobody else knows, the entry is divergent, or
//!    the first of a log that peering chooses; no client was told.
//! 2. Every target gets the same entry and change. A crash here: peering finds
//!    the entry on some of them; it is kept or undone everywhere alike.
//! 3. Each target acknowledges once it is durable there, cumulatively.
//! 4. When it is durable on all of them, the client is told.
//!
//! Links that break lose messages; the primary then sends again whatever the
//! target has not acknowledged, and the target knows by version what is new.

use super::log::{EntryKind, LogEntry};
use super::ops::{Answer, reply};
use super::request::{Request, Work};
use super::{Pg, persist};
use crate::action::Ctx;
use crate::exec::watch::WatchEffects;
use crate::exec::{Effect, Outcome, limits};
use crate::peer::{self, PgHeader};
use crate::shared::{Commit, Shared};
use crate::space;
use base::Time;
use bytes::Bytes;
use store::{Mutation, ObjectStore, StoreError, Transaction};
use wire::messages::OpResult;
use wire::types::{EVersion, HObject, OsdId};
use wire::{Encode, Features};

/// An executed write, before anything of it is visible.
pub struct Prepared {
    pub request: Box<Request>,
    pub at_version: EVersion,
    pub outcome: Outcome,
    /// Once it is durable everywhere.
    pub effects: WatchEffects,
}

/// Who wants to be told, what of its operations, and what happens then.
pub struct Asked {
    request: Box<Request>,
    ops: Vec<OpResult>,
    effects: WatchEffects,
}

/// A write that is not durable everywhere yet.
pub struct InFlight {
    pub version: EVersion,
    /// `None` for our own, and once answered (by a deliberately broken build).
    pub request: Option<Box<Request>>,
    /// Resends that arrived meanwhile.
    #[allow(clippy::vec_box, reason = "they are boxed when they come and when they go on")]
    pub duplicates: Vec<Box<Request>>,
    /// To all targets, for the last time.
    sent: Time,
    /// Bytes of a device, at most.
    pub cost: u64,
    prev: EVersion,
    entry: LogEntry,
    entry_bytes: Bytes,
    /// The message to targets, encoded once; empty when there are none.
    body: Vec<Bytes>,
    /// Targets that do not have the object yet: they get the log entry alone.
    log_only: Vec<OsdId>,
    ops: Vec<OpResult>,
    effects: WatchEffects,
}

impl InFlight {
    fn body(&self, header: &PgHeader, log_only: bool) -> Vec<Bytes> {
        if log_only {
            return peer::encode_repl(header, self.prev, &self.entry, &self.entry_bytes, None);
        }
        self.body.clone()
    }

    /// What happens to this object's watches once the write is durable everywhere.
    pub(super) fn watch_effects(&self, object: &HObject) -> Option<&WatchEffects> {
        (self.entry.object == *object).then_some(&self.effects)
    }
}

impl Pg {
    pub(super) fn submit_write<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        prepared: Prepared,
    ) {
        let Prepared { request, at_version, outcome, effects } = prepared;
        let Outcome { result, ops, user_version, effect, .. } = outcome;
        let mut entry = LogEntry {
            kind: EntryKind::Error,
            version: at_version,
            prior_version: EVersion::ZERO,
            user_version,
            last_user_version: self.info.last_user_version.max(user_version),
            reqid: request.reqid,
            object: request.object.clone(),
            clones: Vec::new(),
            mtime: ctx.wall,
            result,
            returns: recorded_returns(&ops),
            sums: self.info.sums,
        };
        let mut mutations = Vec::new();
        match effect {
            Effect::Change(change) => {
                entry.kind = if change.deleted { EntryKind::Delete } else { EntryKind::Modify };
                entry.version = change.version;
                entry.prior_version = change.prior_version;
                entry.clones = change.clones;
                entry.sums.add(&change.delta);
                mutations = change.mutations;
            }
            Effect::ErrorOnly => {}
            Effect::None => unreachable!("only what is logged gets here"),
        }
        let mut asked = Some(Asked { request, ops, effects });
        if let Err(error) = self.submit_entry(sh, ctx, entry, mutations, &mut asked)
            && let Some(asked) = asked
        {
            let object = asked.request.object.clone();
            self.reply_error(sh, asked.request, error.errno());
            self.pump_object(sh, ctx, &object);
        }
    }

    /// A change of ours, be it a client's or not, on its way to all targets.
    ///
    /// An error leaves everything as it was, `asked` included.
    pub(super) fn submit_entry<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        entry: LogEntry,
        mutations: Vec<Mutation>,
        asked: &mut Option<Asked>,
    ) -> Result<(), StoreError> {
        let entry_bytes = entry.to_bytes(Features::ALL);
        let prev = self.info.last_update;
        let body = match self.targets.is_empty() {
            true => Vec::new(),
            false => peer::encode_repl(&self.header(sh), prev, &entry, &entry_bytes, Some(&mutations)),
        };
        let cost = space::cost_of(&mutations);
        let mut txn = Transaction { ops: mutations };
        if let Err(error) = self.append(sh, &entry, entry_bytes.clone(), &mut txn) {
            tracing::error!(pg = %self.id, %error, "write refused by the store");
            return Err(error);
        }
        if !self.unrepairable.is_empty() && entry.kind != EntryKind::Error {
            // Perhaps overwritten: if not, the next read finds out.
            self.unrepairable.remove(&entry.object);
            for clone in entry.clones.iter().filter(|clone| clone.deleted) {
                self.unrepairable.remove(&clone.object);
            }
        }
        self.objects.entry(entry.object.clone()).or_default().writes += 1;
        let (request, ops, effects) = match asked.take() {
            Some(asked) => (Some(asked.request), asked.ops, asked.effects),
            None => (None, Vec::new(), WatchEffects::default()),
        };
        let mut write = InFlight {
            version: entry.version,
            request,
            duplicates: Vec::new(),
            sent: ctx.now,
            cost,
            prev,
            entry,
            entry_bytes,
            body,
            log_only: Vec::new(),
            ops,
            effects,
        };
        sh.in_flight_bytes += cost;
        self.replicate(sh, ctx, &mut write);
        if sh.config.sabotage.ack_before_commit {
            self.answer(sh, ctx, &mut write);
        }
        self.in_flight.push_back(write);
        Ok(())
    }

    /// Makes an entry the newest of log and store, as primary or as replica.
    /// An error leaves everything as it was.
    pub(super) fn append<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        entry: &LogEntry,
        entry_bytes: Bytes,
        txn: &mut Transaction,
    ) -> Result<(), StoreError> {
        let version = entry.version;
        let expected = self.info.last_update.version + entry.span();
        assert_eq!(version.version, expected, "PG {}: a gap", self.id);
        if !entry.clones.is_empty() {
            let mut records = self.records();
            records.clone_changes(entry);
            records.into_txn(txn);
        }
        txn.push(persist::set_entry(self.meta.clone(), version, entry_bytes.clone()));
        let commit = Commit::Write { pg: self.id, interval: self.interval(), version };
        sh.try_queue(std::mem::take(txn), commit)?;
        self.info.last_update = version;
        self.info.last_user_version = entry.last_user_version;
        self.info.sums = entry.sums;
        self.log.push_encoded(entry, &entry_bytes);
        self.trim_log(sh);
        Ok(())
    }

    fn trim_log<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        let config = &sh.config;
        let trimmed = self.log.trim(config.log_entries_max, config.log_dups_max, config.log_trim_batch);
        let Some(trimmed) = trimmed else { return };
        self.info.log_tail = self.log.tail();
        let mut records = self.records();
        records.info(&self.info);
        if let Some((first, last)) = trimmed.removed {
            records.remove_entries(first, last);
        }
        let mut txn = Transaction::new();
        records.into_txn(&mut txn);
        sh.must_queue(txn, Commit::Silent);
    }

    fn replicate<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, write: &mut InFlight) {
        if self.targets.is_empty() {
            return;
        }
        let header = self.header(sh);
        for at in 0..self.targets.len() {
            let osd = self.targets[at];
            let log_only = self.lacks_object(osd, &write.entry.object);
            if log_only {
                write.log_only.push(osd);
            }
            sh.send_peer(ctx, osd, peer::KIND_REPL, write.body(&header, log_only));
        }
    }

    /// Sends again what a target has not acknowledged.
    pub(super) fn resend_writes<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        to: OsdId,
        after: EVersion,
    ) {
        let header = self.header(sh);
        for write in self.in_flight.iter().filter(|w| w.version > after) {
            let body = write.body(&header, write.log_only.contains(&to));
            sh.send_peer(ctx, to, peer::KIND_REPL, body);
        }
    }

    /// Links do not lose messages without breaking; should one be lost anyway,
    /// writes must not hang for ever.
    pub(super) fn resend_old_writes<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        let limit = sh.config.retry_interval * 4;
        let Some(front) = self.in_flight.front_mut() else { return };
        if ctx.now.since(front.sent) < limit {
            return;
        }
        front.sent = ctx.now;
        for osd in self.targets.clone() {
            if self.unacked_by(osd) {
                let acked = self.peers.get(&osd).map_or(EVersion::ZERO, |c| c.acked);
                self.resend_writes(sh, ctx, osd, acked);
            }
        }
    }

    /// A write of ours is durable here.
    pub fn on_write_committed<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        version: EVersion,
    ) {
        self.committed = self.committed.max(version);
        self.complete_writes(sh, ctx);
    }

    pub(super) fn on_repl_ack<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        ack: peer::ReplAck,
    ) {
        if !self.is_active() {
            return;
        }
        let Some(copy) = self.peers.get_mut(&from) else { return };
        copy.acked = copy.acked.max(ack.through);
        self.complete_writes(sh, ctx);
    }

    pub(super) fn on_repl_resend<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        ask: peer::ReplResend,
    ) {
        if self.is_active() && self.targets.contains(&from) {
            self.resend_writes(sh, ctx, from, ask.after);
        }
    }

    /// Answers writes that are durable on every target and here.
    fn complete_writes<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let peers = &self.peers;
        let everywhere = self
            .targets
            .iter()
            .map(|osd| peers.get(osd).map_or(EVersion::ZERO, |copy| copy.acked))
            .fold(self.committed, EVersion::min);
        let mut trimmed = false;
        while self.in_flight.front().is_some_and(|w| w.version <= everywhere) {
            let Some(mut write) = self.in_flight.pop_front() else { return };
            self.acked = write.version;
            sh.in_flight_bytes -= write.cost;
            trimmed |= self.note_trimmed(sh, write.version);
            self.answer(sh, ctx, &mut write);
            for duplicate in write.duplicates {
                self.reply_recorded(sh, duplicate, write.version);
            }
            if let Some(queue) = self.objects.get_mut(&write.entry.object) {
                queue.writes -= 1;
            }
            self.pump_object(sh, ctx, &write.entry.object);
        }
        if trimmed {
            self.trim_snaps(sh, ctx);
        }
        if self.scrub.is_draining() {
            self.ask_when_drained(sh, ctx);
        }
    }

    fn answer<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, write: &mut InFlight) {
        let Some(request) = write.request.take() else { return };
        if !write.effects.is_empty() {
            let effects = std::mem::take(&mut write.effects);
            self.apply_watch_effects(sh, ctx, &request, write.entry.user_version, effects);
        }
        if let Work::Op(op, _) = &request.work {
            self.stats.write_bytes += op.ops.iter().map(|o| o.indata.len() as u64).sum::<u64>();
        }
        self.stats.writes += 1;
        sh.counters.writes += 1;
        let answer = Answer {
            result: write.entry.result,
            ops: std::mem::take(&mut write.ops),
            version: write.version,
            user_version: write.entry.user_version,
        };
        reply(sh, request, answer);
    }

    /// The oldest version not durable everywhere has waited for this target.
    pub(super) fn unacked_by(&self, osd: OsdId) -> bool {
        let acked = self.peers.get(&osd).map_or(EVersion::ZERO, |copy| copy.acked);
        self.in_flight.back().is_some_and(|w| w.version > acked)
    }
}

/// What a duplicate must be told besides the result: most writes nothing.
///
/// A write that failed may have answered at length, after reading: that is not kept, for
/// the log would hold it on every OSD.
fn recorded_returns(ops: &[OpResult]) -> Vec<(i32, Bytes)> {
    if ops.iter().all(|op| op.rval == 0 && op.out_len() == 0) {
        return Vec::new();
    }
    let kept = |op: &OpResult| match op.out_len() {
        // A copy, so that no larger buffer stays with the log.
        0..=limits::WRITE_REPLY_LEN_MAX => Bytes::copy_from_slice(&op.outdata),
        _ => Bytes::new(),
    };
    ops.iter().map(|op| (op.rval, kept(op))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::messages::OsdOp;
    use wire::messages::osd_op::OpCode;

    #[test]
    fn the_log_keeps_codes_and_short_answers() {
        let answered = |rval, len| {
            let op = OsdOp::new(OpCode::CALL, [0; 28], Bytes::new());
            OpResult::new(op, rval, vec![7; len].into())
        };
        assert_eq!(recorded_returns(&[answered(0, 0), answered(0, 0)]), []);
        let kept = recorded_returns(&[answered(0, 65), answered(42, 64), answered(-22, 1 << 20)]);
        let lengths: Vec<_> = kept.iter().map(|(rval, out)| (*rval, out.len())).collect();
        assert_eq!(lengths, [(0, 0), (42, 64), (-22, 0)]);
    }
}
