//! Damaged objects: data that the device lost, found when it is read.
//!
//! The damaged copy counts as missing until another one has replaced it;
//! requests wait for that as for any recovery. When no other copy is intact,
//! the object stays as it is: what can be read is served, the rest is answered
//! with EIO, and a client's overwrite or delete ends the trouble.
//!
//! A replica that finds damage while it serves a pull only tells its primary:
//! were it to count its own copy as missing at once, it would have to refuse
//! the writes to the object that are already on their way.

use super::Pg;
use super::request::Request;
use crate::action::Ctx;
use crate::exec::{self, InfoError};
use crate::shared::{Commit, Shared};
use store::{ObjectStore, StoreError, Transaction};
use wire::types::{EVersion, HObject, OsdId};

/// The device gave nothing, or something else than was written.
pub(super) fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Checksum { .. } | StoreError::Io { .. })
}

impl Pg {
    /// The error names the object, the place in it and on the device.
    pub(super) fn note_read_error<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        object: &HObject,
        error: &StoreError,
    ) {
        if is_damage(error) {
            sh.counters.read_errors += 1;
        }
        tracing::error!(osd = %sh.me(), pg = %self.id, object = %object.name, %error, "object data cannot be read");
    }

    /// The request again, if it is to go on as it is.
    pub(super) fn try_repair<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        mut request: Box<Request>,
        repairs: u64,
    ) -> Option<Box<Request>> {
        let errors = request.fetched.data.iter().filter_map(|(range, result)| match result {
            Err(error) if is_damage(error) => Some((range.id.object.clone(), error.clone())),
            _ => None,
        });
        // The head, or a clone that the request reads.
        let Some((object, error)) = errors.into_iter().next() else { return Some(request) };
        if self.missing.contains(&object) {
            // Somebody else found it first.
            self.requeue(sh, ctx, request);
            return None;
        }
        if repairs != self.repairs {
            // Perhaps it was read before it was replaced: read it again.
            request.fetched = Default::default();
            return Some(request);
        }
        let version = match exec::ObjectInfo::load(&sh.store, &self.object_id(&object)) {
            Ok(Some(info)) => info.version,
            Err(InfoError::Store(error @ StoreError::Pending(_))) => {
                self.wait_metadata(sh, request, &error);
                return None;
            }
            _ => return Some(request),
        };
        self.note_read_error(sh, &object, &error);
        if self.unrepairable.contains(&object) {
            return Some(request);
        }
        self.requeue(sh, ctx, request);
        self.repair(sh, ctx, &object, version);
        None
    }

    /// Gets the object from another copy, and what waits for it goes on then.
    pub(super) fn repair<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        object: &HObject,
        version: EVersion,
    ) {
        if self.missing.contains(object) {
            return;
        }
        self.mark_damaged(sh, object, version);
        match self.recovering.contains_key(object) {
            // It was being sent to somebody else, who gets it once it is good.
            true => self.pull(sh, ctx, object),
            false => self.want_object(sh, ctx, object),
        }
    }

    /// From now on our copy counts as missing.
    fn mark_damaged<S: ObjectStore>(&mut self, sh: &mut Shared<S>, object: &HObject, need: EVersion) {
        self.damaged.entry(object.clone()).or_default().insert(sh.me());
        self.missing.0.insert(object.clone(), need);
        self.clean = false;
        sh.report_soon = true;
        let mut records = self.records();
        records.missing(object, need);
        let mut txn = Transaction::new();
        records.into_txn(&mut txn);
        sh.must_queue(txn, Commit::Silent);
    }

    /// A replica has told that its copy is damaged: it gets ours, once we have one.
    pub(super) fn note_damaged_copy(&mut self, at: OsdId, object: &HObject, need: EVersion) {
        if !self.is_active() || !self.targets.contains(&at) {
            return;
        }
        let Some(copy) = self.peers.get_mut(&at) else { return };
        copy.missing.0.insert(object.clone(), need);
        self.peers_missing = true;
        self.damaged.entry(object.clone()).or_default().insert(at);
    }

    /// The store has the very version that counts as missing.
    pub(super) fn is_damaged_here<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        object: &HObject,
        need: EVersion,
    ) -> bool {
        let known = self.damaged.get(object).is_some_and(|at| at.contains(&sh.me()));
        let stored = || exec::ObjectInfo::load(&sh.store, &self.object_id(object));
        known || matches!(stored(), Ok(Some(info)) if info.version == need)
    }

    /// Nobody has an intact copy: the damaged ones are all there is.
    pub(super) fn give_up_repair<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        object: &HObject,
    ) {
        tracing::error!(osd = %sh.me(), pg = %self.id, object = %object.name, "damaged, and no other copy is intact");
        sh.counters.unrepairable += 1;
        sh.report_soon = true;
        for osd in self.damaged.remove(object).unwrap_or_default() {
            if let Some(copy) = self.peers.get_mut(&osd) {
                copy.missing.0.remove(object);
            }
        }
        self.missing.0.remove(object);
        let mut records = self.records();
        records.not_missing(object);
        let mut txn = Transaction::new();
        records.into_txn(&mut txn);
        sh.must_queue(txn, Commit::Silent);
        self.unrepairable.insert(object.clone());
        self.note_peers_missing();
        if self.is_degraded(object) {
            self.unfound.insert(object.clone());
        }
        self.pump_object(sh, ctx, object);
        self.recover_more(sh, ctx);
    }
}
