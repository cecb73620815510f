//! Trimming: removed snapshots are taken from the clones that stand for them, and
//! clones that stand for none are deleted.
//!
//! The map's `removed_snaps_queue` says what is to be done, the index ([`super::snap_index`])
//! where. Each clone's change is a write of the PG's own, logged and replicated like a
//! client's; a few are under way at once. It begins when the PG is clean. What has been
//! trimmed is remembered in memory alone and told to the monitor: a primary that does not
//! know it looks at the index again, which then has nothing.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`SnapTrimmer`, `trim_object`).

use super::log::{EntryKind, LogEntry};
use super::snap_index;
use super::{Pg, Phase};
use crate::action::Ctx;
use crate::exec::{self, InfoError};
use crate::shared::{Commit, Load, Shared};
use std::collections::BTreeSet;
use store::{ObjectStore, StoreError, Transaction};
use wire::maps::OsdMapFlags;
use wire::messages::pg_state;
use wire::types::{EVersion, HObject, IntervalSet, ReqId, SnapId};

#[derive(Debug, Default)]
pub struct SnapTrim {
    /// Removed snapshots whose clones may still be here.
    queue: IntervalSet,
    /// Removed snapshots without clones, on every member.
    purged: IntervalSet,
    /// Changes not durable everywhere yet.
    in_flight: BTreeSet<EVersion>,
    /// A clone's record cannot be read: nothing goes on in this interval.
    has_failed: bool,
}

enum Step {
    /// Something was done; go on.
    Done,
    /// The clone is in use; look again later.
    Busy,
}

impl SnapTrim {
    pub fn purged(&self) -> &IntervalSet {
        &self.purged
    }

    /// Snapshots to be trimmed.
    pub fn queue_len(&self) -> u64 {
        self.queue.total_len()
    }
}

impl Pg {
    pub fn snap_trim(&self) -> &SnapTrim {
        &self.snap_trim
    }

    pub(super) fn stop_snap_trim<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        sh.snap_trims -= self.snap_trim.in_flight.len();
        self.snap_trim = SnapTrim::default();
    }

    /// A newer map may have removed snapshots, or say that they are gone everywhere.
    pub(super) fn review_removed_snaps<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let map = sh.maps.map().clone();
        match map.removed_snaps_queue.get(&self.id.pool) {
            None => {
                self.snap_trim.queue = IntervalSet::new();
                self.snap_trim.purged = IntervalSet::new();
            }
            Some(removed) => {
                self.snap_trim.purged = self.snap_trim.purged.intersection(removed);
                self.snap_trim.queue = removed.clone();
                self.snap_trim.queue.subtract(&self.snap_trim.purged);
            }
        }
        self.trim_snaps(sh, ctx);
    }

    fn may_trim<S: ObjectStore>(&self, sh: &Shared<S>) -> bool {
        self.phase == Phase::Active
            && self.clean
            && !self.snap_trim.has_failed
            && !sh.maps.map().test_flag(OsdMapFlags::NOSNAPTRIM)
    }

    pub(super) fn snap_trim_state(&self) -> u64 {
        let trim = &self.snap_trim;
        match (trim.queue.is_empty(), trim.has_failed, trim.in_flight.is_empty()) {
            (true, _, _) => 0,
            (false, true, _) => pg_state::SNAPTRIM_ERROR,
            (false, false, false) => pg_state::SNAPTRIM,
            (false, false, true) => pg_state::SNAPTRIM_WAIT,
        }
    }

    /// Does as much as the limits allow.
    pub(super) fn trim_snaps<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        while self.may_trim(sh)
            && self.snap_trim.in_flight.len() < sh.config.snap_trims_per_pg_max
            && sh.snap_trims < sh.config.snap_trims_max
        {
            let Some((start, len)) = self.snap_trim.queue.iter().next() else { return };
            match self.trim_next(sh, ctx, start, len) {
                Ok(Step::Done) => {}
                Ok(Step::Busy) => return,
                Err(InfoError::Store(error @ StoreError::Pending(_))) => {
                    sh.wait_load(&error, Load::Background { pg: self.id });
                    return;
                }
                Err(error) => {
                    tracing::error!(pg = %self.id, %error, "cannot trim snapshots");
                    self.snap_trim.has_failed = true;
                    sh.report_soon = true;
                }
            }
        }
    }

    /// The next clone of these removed snapshots, or the end of them.
    fn trim_next<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        start: u64,
        len: u64,
    ) -> Result<Step, InfoError> {
        let entry =
            snap_index::next(&sh.store, &self.meta, start)?.filter(|entry| entry.snap.0 - start < len);
        let Some(entry) = entry else {
            if !self.snap_trim.in_flight.is_empty() {
                return Ok(Step::Busy);
            }
            self.snap_trim.queue.remove(start, len);
            self.snap_trim.purged.insert(start, len);
            sh.report_soon = true;
            return Ok(Step::Done);
        };
        let Some(clone) = entry.clone else { return Ok(self.drop_index_key(sh, entry.key)) };
        let head = clone.head();
        let is_held = self.objects.get(&head).is_some_and(|queue| !queue.admits(true));
        if is_held || self.is_unready(&head, true) || self.is_unready(&clone, true) {
            return Ok(Step::Busy);
        }
        let map = sh.maps.map().clone();
        let removed = map.removed_snaps_queue.get(&self.id.pool);
        let at_version = EVersion::new(map.epoch, self.info.last_update.version + 1);
        let too_much = sh.config.sabotage.trim_too_much;
        let is_removed = |snap: SnapId| too_much || removed.is_some_and(|removed| removed.contains(snap.0));
        match exec::trim(&sh.store, &self.object_id(&clone), is_removed, at_version)? {
            // The clone has gone in another way.
            None => Ok(self.drop_index_key(sh, entry.key)),
            Some(trimmed) => Ok(self.submit_trim(sh, ctx, head, trimmed)),
        }
    }

    fn drop_index_key<S: ObjectStore>(&mut self, sh: &mut Shared<S>, key: bytes::Bytes) -> Step {
        let mut txn = Transaction::new();
        let mut records = self.records();
        records.remove_key(key);
        records.into_txn(&mut txn);
        sh.must_queue(txn, Commit::Silent);
        Step::Done
    }

    fn submit_trim<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        head: HObject,
        trimmed: exec::Trimmed,
    ) -> Step {
        let mut sums = self.info.sums;
        sums.add(&trimmed.delta);
        let entry = LogEntry {
            kind: if trimmed.head_deleted { EntryKind::Delete } else { EntryKind::Modify },
            version: trimmed.version,
            prior_version: trimmed.head_prior_version,
            user_version: 0,
            last_user_version: self.info.last_user_version,
            reqid: ReqId::NONE,
            object: head,
            clones: vec![trimmed.clone],
            mtime: ctx.wall,
            result: 0,
            returns: Vec::new(),
            sums,
        };
        if self.submit_entry(sh, ctx, entry, trimmed.mutations, &mut None).is_err() {
            return Step::Busy;
        }
        if self.snap_trim.in_flight.is_empty() {
            sh.report_soon = true;
        }
        self.snap_trim.in_flight.insert(trimmed.version);
        sh.snap_trims += 1;
        sh.counters.snap_trims += 1;
        Step::Done
    }

    /// A write is durable everywhere; true if it was one of ours.
    pub(super) fn note_trimmed<S: ObjectStore>(&mut self, sh: &mut Shared<S>, version: EVersion) -> bool {
        let ours = !self.snap_trim.in_flight.is_empty() && self.snap_trim.in_flight.remove(&version);
        if ours {
            sh.snap_trims -= 1;
        }
        ours
    }
}
