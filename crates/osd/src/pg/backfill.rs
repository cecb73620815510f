//! Backfill: copies for OSDs that the log cannot help.
//!
//! Objects are compared range by range, in their order. Writes to objects
//! beyond the range that is being worked on go to the target as log entries
//! alone; writes within it wait; writes before it go there in full. So the
//! target always has everything up to its `last_backfill`, as of its log. Ranges end
//! at heads: what changes a head and its clones together is never half in a range.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`recover_backfill`), in outline.

use super::{Pg, Phase};
use crate::action::Ctx;
use crate::exec::{self, InfoError};
use crate::peer::{self, Backfilled, BackfilledAck, Scan, ScanResult};
use crate::shared::{Commit, Load, Shared};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::{Mutation, ObjectStore, StoreError, Transaction};
use wire::types::{EVersion, HObject, OsdId};

/// Objects compared at once: also how many may be blocked at once.
const RANGE_OBJECTS: usize = 16;
/// Objects whose metadata is loaded together when a scan finds it absent.
const LOADED_AHEAD: usize = 16;
/// Objects a target lists in one answer.
const SCAN_MAX: u32 = 512;

type Versions = BTreeMap<HObject, EVersion>;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    Idle,
    /// Waiting for the target's list of the range; ours is here.
    Scanning(BTreeMap<HObject, EVersion>),
    /// These are on their way.
    Pushing(BTreeSet<HObject>),
    /// The target records that the range is done.
    Recording,
}

/// One target's progress, at the primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backfill {
    /// Durable at the target: everything up to here.
    done: HObject,
    /// The range being worked on ends here; equals `done` when idle.
    range_end: HObject,
    stage: Stage,
    /// Objects of the range that only the target has: it drops them when it
    /// records the range, and nobody may create them before.
    drops: BTreeSet<HObject>,
}

impl Backfill {
    /// Writes to the object must wait.
    pub fn blocks(&self, object: &HObject) -> bool {
        match &self.stage {
            Stage::Scanning(_) => *object > self.done && *object <= self.range_end,
            Stage::Pushing(objects) => objects.contains(object) || self.drops_any_of(object),
            Stage::Recording => self.drops_any_of(object),
            Stage::Idle => false,
        }
    }

    /// The object or a clone of it is to be dropped: a write may make a clone of the same id.
    fn drops_any_of(&self, object: &HObject) -> bool {
        self.drops.range(object.head_and_clones()).next().is_some()
    }

    /// The object is to be sent, or on its way.
    pub fn is_pushing(&self, object: &HObject) -> bool {
        matches!(&self.stage, Stage::Pushing(objects) if objects.contains(object))
    }

    /// The target has it as we do.
    pub fn has(&self, object: &HObject) -> bool {
        let compared = matches!(&self.stage, Stage::Pushing(objects) if !objects.contains(object));
        *object <= self.done || (compared && *object <= self.range_end)
    }

    /// Places it takes in the throttle.
    pub fn slots(&self) -> usize {
        usize::from(self.stage != Stage::Idle)
    }
}

impl Pg {
    pub(super) fn start_backfills(&mut self) {
        for osd in &self.targets {
            let last = self.peers.get(osd).and_then(|c| c.info.as_ref()).map(|i| i.last_backfill.clone());
            if let Some(last) = last.filter(|last| !last.is_max) {
                let backfill = Backfill {
                    done: last.clone(),
                    range_end: last,
                    stage: Stage::Idle,
                    drops: BTreeSet::new(),
                };
                self.backfills.insert(*osd, backfill);
            }
        }
    }

    /// A target has no room for more.
    pub(super) fn is_backfill_too_full<S: ObjectStore>(&self, sh: &Shared<S>) -> bool {
        self.backfills.iter().any(|(osd, b)| b.stage == Stage::Idle && sh.is_backfill_full(*osd))
    }

    pub fn is_backfilling(&self) -> bool {
        !self.backfills.is_empty()
    }

    /// The target does not have the object yet, nor is it getting it now.
    pub(super) fn lacks_object(&self, osd: OsdId, object: &HObject) -> bool {
        !self.backfills.is_empty() && self.backfills.get(&osd).is_some_and(|b| *object > b.range_end)
    }

    /// Begins the next range of every idle target, once the log's work is done.
    pub(super) fn continue_backfills<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if self.backfills.is_empty() || !self.missing.is_empty() || self.peers_missing {
            return;
        }
        // A target that is full is looked at again later.
        let idle = self.backfills.iter().filter(|(_, b)| b.stage == Stage::Idle).map(|(osd, _)| *osd);
        let idle: Vec<OsdId> = idle.filter(|osd| !sh.is_backfill_full(*osd)).collect();
        for osd in idle {
            if sh.recovering >= sh.config.recovery_ops_max {
                return;
            }
            self.begin_range(sh, ctx, osd);
        }
    }

    fn begin_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Some(done) = self.backfills.get(&osd).map(|b| b.done.clone()) else { return };
        let (ours, range_end) = match self.scan_local(sh, &done, &HObject::max(), RANGE_OBJECTS) {
            Ok(found) => found,
            Err(error) => {
                if !sh.wait_load(&error, Load::Background { pg: self.id }) {
                    tracing::error!(pg = %self.id, %error, "cannot list objects for backfill");
                }
                return;
            }
        };
        if let Some(backfill) = self.backfills.get_mut(&osd) {
            backfill.range_end = range_end;
            backfill.stage = Stage::Scanning(ours);
            sh.recovering += 1;
        }
        self.send_scan(sh, ctx, osd);
    }

    fn send_scan<S: ObjectStore>(&self, sh: &mut Shared<S>, ctx: &Ctx<'_>, osd: OsdId) {
        let Some(backfill) = self.backfills.get(&osd) else { return };
        let scan = Scan { begin: backfill.done.clone(), end: backfill.range_end.clone(), max: SCAN_MAX };
        sh.send_pg(ctx, osd, self.header(sh), scan);
    }

    /// Objects after `begin` up to `end`, and up to where the list is complete: at a head.
    fn scan_local<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        begin: &HObject,
        end: &HObject,
        mut max: usize,
    ) -> Result<(BTreeMap<HObject, EVersion>, HObject), StoreError> {
        loop {
            let (mut found, reached, pending) = self.scan_at_most(sh, begin, end, max)?;
            if !reached.is_clone() || reached >= *end {
                return Ok((found, reached));
            }
            let last_head = found.keys().rev().find(|object| !object.is_clone()).cloned();
            if let Some(head) = last_head {
                found.retain(|object, _| *object <= head);
                return Ok((found, head));
            }
            // Clones of a single object, more of them than that.
            match pending {
                Some(error) => return Err(error),
                None => max = max.saturating_mul(2),
            }
        }
    }

    fn scan_at_most<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        begin: &HObject,
        end: &HObject,
        max: usize,
    ) -> Result<(Versions, HObject, Option<StoreError>), StoreError> {
        let mut found = BTreeMap::new();
        // One more, because `begin` itself may be listed.
        let listed = sh.store.list(self.coll, begin, max + 1)?;
        let complete = listed.len() < max + 1;
        for (at, object) in listed.iter().enumerate() {
            if object > end {
                return Ok((found, end.clone(), None));
            }
            if object <= begin || found.len() == max {
                continue;
            }
            let version = match exec::ObjectInfo::load(&sh.store, &self.object_id(object)) {
                Ok(Some(info)) => info.version,
                Err(InfoError::Store(error @ StoreError::Pending(_))) => {
                    // What comes after it is loaded meanwhile.
                    for object in listed[at + 1..].iter().take(LOADED_AHEAD) {
                        _ = exec::ObjectInfo::load(&sh.store, &self.object_id(object));
                    }
                    // To have all of them at once might take for ever: a shorter range will do.
                    let Some((last, _)) = found.last_key_value() else { return Err(error) };
                    let reached = last.clone();
                    return Ok((found, reached, Some(error)));
                }
                Err(InfoError::Store(error)) => return Err(error),
                // Unreadable: differs from everything.
                Ok(None) | Err(_) => EVersion::ZERO,
            };
            found.insert(object.clone(), version);
        }
        let reached = match found.last_key_value() {
            Some((last, _)) if !complete => last.clone(),
            _ => end.clone(),
        };
        Ok((found, reached, None))
    }

    pub(super) fn on_scan<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        scan: Scan,
    ) {
        let max = (scan.max.min(SCAN_MAX) as usize).max(1);
        match self.scan_local(sh, &scan.begin, &scan.end, max) {
            Ok((objects, end)) => {
                let objects = objects.into_iter().collect();
                sh.send_pg(ctx, from, self.header(sh), ScanResult { begin: scan.begin, end, objects });
            }
            Err(error) => {
                let message = peer::PgMessage::from(scan);
                let body = Bytes::from(peer::encode_pg(&self.header(sh), &message).concat());
                sh.wait_load(&error, Load::Message { from, kind: message.kind(), body });
            }
        }
    }

    pub(super) fn on_scan_result<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        theirs: ScanResult,
    ) {
        let Some(backfill) = self.backfills.get_mut(&from) else { return };
        let Stage::Scanning(ours) = &backfill.stage else { return };
        if theirs.begin != backfill.done || theirs.end > backfill.range_end {
            return;
        }
        let theirs_by_object: BTreeMap<&HObject, EVersion> =
            theirs.objects.iter().map(|(object, version)| (object, *version)).collect();
        let ours_in_range: Vec<(&HObject, EVersion)> =
            ours.range(..=theirs.end.clone()).map(|(o, v)| (o, *v)).collect();
        let to_push: BTreeSet<HObject> = ours_in_range
            .iter()
            .filter(|(object, version)| {
                theirs_by_object.get(object) != Some(version) || *version == EVersion::ZERO
            })
            .map(|(object, _)| (*object).clone())
            .collect();
        let drops: BTreeSet<HObject> = theirs_by_object
            .keys()
            .filter(|object| !ours.contains_key(**object))
            .map(|o| (*o).clone())
            .collect();
        let blocked = (backfill.done.clone(), backfill.range_end.clone());
        backfill.range_end = theirs.end;
        backfill.stage = Stage::Pushing(to_push);
        backfill.drops = drops;
        self.push_range(sh, ctx, from);
        self.check_range(sh, ctx, from);
        // What was the same on both sides need not wait any longer.
        let waiting: Vec<HObject> =
            self.objects.range(blocked.0..=blocked.1).map(|(object, _)| object.clone()).collect();
        for object in waiting {
            self.pump_object(sh, ctx, &object);
        }
    }

    /// Sends what may be sent now: of an object and its clones one at a time, from the oldest on,
    /// so that each finds at the target what it shares with the one before.
    fn push_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Some(Stage::Pushing(objects)) = self.backfills.get(&osd).map(|b| &b.stage) else { return };
        let under_way = self.pushing.values().filter(|push| push.to == osd);
        let mut heads: BTreeSet<HObject> = under_way.map(|push| push.object.head()).collect();
        // Others of it do not wait for what we lack ourselves: that goes to all once we have it.
        let is_lacked = |object: &HObject| self.missing.contains(object) || self.unfound.contains(object);
        let next = objects.iter().filter(|object| !is_lacked(object) && heads.insert(object.head()));
        for object in next.cloned().collect::<Vec<_>>() {
            self.start_push(sh, ctx, osd, object);
        }
    }

    /// The same for all targets.
    pub(super) fn push_ranges<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        for osd in self.backfills.keys().copied().collect::<Vec<_>>() {
            self.push_range(sh, ctx, osd);
        }
    }

    /// A client waits for this object: it does not wait for others of its range.
    pub(super) fn want_in_backfill<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        object: &HObject,
    ) {
        if self.backfills.is_empty() || self.missing.contains(object) || self.unfound.contains(object) {
            return;
        }
        let begun = |osd: OsdId| self.pushing.values().any(|p| p.to == osd && p.object == *object);
        let waits = self.backfills.iter().filter(|(osd, b)| b.is_pushing(object) && !begun(**osd));
        for osd in waits.map(|(osd, _)| *osd).collect::<Vec<_>>() {
            self.start_push(sh, ctx, osd, object.clone());
        }
    }

    pub(super) fn on_backfill_pushed<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        osd: OsdId,
        object: &HObject,
    ) {
        let Some(backfill) = self.backfills.get_mut(&osd) else { return };
        let Stage::Pushing(objects) = &mut backfill.stage else { return };
        if objects.remove(object) {
            self.stats.recovered_objects += 1;
            self.push_range(sh, ctx, osd);
            self.check_range(sh, ctx, osd);
            self.pump_object(sh, ctx, object);
        }
    }

    fn check_range<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Some(backfill) = self.backfills.get_mut(&osd) else { return };
        if backfill.stage == Stage::Pushing(BTreeSet::new()) {
            backfill.stage = Stage::Recording;
            self.send_backfilled(sh, ctx, osd);
        }
    }

    fn send_backfilled<S: ObjectStore>(&self, sh: &mut Shared<S>, ctx: &Ctx<'_>, osd: OsdId) {
        let Some(backfill) = self.backfills.get(&osd) else { return };
        let done = Backfilled {
            last_backfill: backfill.range_end.clone(),
            sums: self.info.sums,
            drops: backfill.drops.iter().cloned().collect(),
        };
        sh.send_pg(ctx, osd, self.header(sh), done);
    }

    pub(super) fn on_backfilled_ack<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        ack: BackfilledAck,
    ) {
        let Some(backfill) = self.backfills.get_mut(&from) else { return };
        if backfill.stage != Stage::Recording || ack.last_backfill != backfill.range_end {
            return;
        }
        sh.recovering -= 1;
        backfill.stage = Stage::Idle;
        backfill.done = ack.last_backfill.clone();
        let dropped = std::mem::take(&mut backfill.drops);
        if let Some(info) = self.peers.get_mut(&from).and_then(|c| c.info.as_mut()) {
            info.last_backfill = ack.last_backfill.clone();
        }
        if ack.last_backfill.is_max {
            self.backfills.remove(&from);
        }
        for object in dropped {
            self.pump_object(sh, ctx, &object);
        }
        self.recover_more(sh, ctx);
    }

    /// The link to the target is new: repeat what it may not have got.
    pub(super) fn resend_backfill<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>, osd: OsdId) {
        match self.backfills.get(&osd).map(|b| &b.stage) {
            Some(Stage::Scanning(_)) => self.send_scan(sh, ctx, osd),
            Some(Stage::Recording) => self.send_backfilled(sh, ctx, osd),
            // Pushes are repeated one by one.
            Some(Stage::Pushing(_) | Stage::Idle) | None => {}
        }
    }

    // At the target.

    pub(super) fn on_backfilled<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        done: Backfilled,
    ) {
        if self.placement.primary != Some(from) || self.phase != (Phase::Replica { active: true }) {
            return;
        }
        if done.last_backfill <= self.info.last_backfill {
            let ack = BackfilledAck { last_backfill: done.last_backfill };
            return sh.send_pg(ctx, from, self.header(sh), ack);
        }
        sh.counters.backfilled_ranges += 1;
        let mut txn = Transaction::new();
        for object in done.drops.iter().filter(|object| **object > self.info.last_backfill) {
            txn.push(Mutation::Remove(self.object_id(object)));
        }
        self.info.last_backfill = done.last_backfill.clone();
        self.dirty_info = true;
        self.save_if_dirty(&mut txn);
        let commit =
            Commit::Backfilled { pg: self.id, interval: self.interval(), last_backfill: done.last_backfill };
        sh.must_queue(txn, commit);
    }

    pub fn on_backfilled_committed<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        last_backfill: HObject,
    ) {
        if let Some(primary) = self.placement.primary {
            sh.send_pg(ctx, primary, self.header(sh), BackfilledAck { last_backfill });
        }
    }
}
