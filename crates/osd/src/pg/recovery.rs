//! Recovery by the log: objects that it names and a copy lacks.
//!
//! The primary first gets what it misses itself, then gives each target what
//! that misses. Objects travel whole, in parts that are acknowledged once
//! durable, so that a receiver never holds half an object under its name.
//! Objects that clients wait for come first.

use super::repair::is_damage;
use super::{Pg, Phase};
use crate::action::Ctx;
use crate::exec::{self, InfoError};
use crate::peer::{self, Pull, PullFailed, Push, PushAck};
use crate::shared::{Commit, Fetch, Load, Shared};
use base::Time;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::{CollId, Mutation, ObjectId, ObjectStore, StoreError, Transaction};
use wire::types::{EVersion, HObject, OsdId, PoolId};

/// Omap entries in one part.
const OMAP_PAGE: usize = 1024;
/// Objects half received are in the OSD's own collection under this pool.
pub const TEMP_POOL: PoolId = PoolId(-3);

/// One object being recovered, at the primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovering {
    /// The source asked, while the primary misses the object.
    pull_from: Option<OsdId>,
    /// Sources that did not have it.
    tried: BTreeSet<OsdId>,
    since: Time,
}

/// One object being sent to one OSD.
#[derive(Clone, PartialEq, Debug)]
pub struct Pushing {
    pub to: OsdId,
    pub object: HObject,
    version: EVersion,
    size: u64,
    part: u32,
    data_pos: u64,
    omap_after: Option<Bytes>,
    omap_done: bool,
    /// The part being read from the device.
    building: Option<(Push, usize)>,
    /// Metadata is being loaded for the next part.
    loading: bool,
    last_sent: bool,
    /// When anything was last done for it.
    since: Time,
    /// [`Pg::repairs`] when it began.
    repairs: u64,
}

enum Built {
    /// Sent, or being read.
    Going,
    /// Metadata is being loaded.
    Wait,
    /// The object is not what was to be sent.
    Failed,
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
        if !write || (!self.peers_missing && self.backfills.is_empty()) {
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
        let fresh =
            |object: &&HObject| !self.recovering.contains_key(*object) && !self.unfound.contains(*object);
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
    /// wherever it is found.
    fn sources(&self, object: &HObject, need: EVersion) -> Vec<OsdId> {
        let has = |copy: &super::PeerCopy| {
            copy.info.as_ref().is_some_and(|i| *object <= i.last_backfill && i.last_update >= need)
                && !copy.missing.contains(object)
        };
        let mut sources: Vec<(bool, OsdId)> = self
            .peers
            .iter()
            .filter(|(_, copy)| copy.info.is_some())
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
                sh.send_pg(ctx, from, self.header(sh), Pull { object: object.clone(), need });
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

    fn push_to_all<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, object: &HObject) {
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
    fn check_object<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, object: &HObject) {
        if self.recovering.contains_key(object) && !self.is_degraded(object) {
            self.recovering.remove(object);
            sh.recovering -= 1;
            self.note_peers_missing();
            self.stats.recovered_objects += 1;
            self.pump_object(sh, ctx, object);
            self.recover_more(sh, ctx);
        }
    }

    // The sending side.

    pub(super) fn start_push<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        to: OsdId,
        object: HObject,
    ) {
        self.pushing.retain(|_, p| p.to != to || p.object != object);
        let id = sh.new_id();
        let push = Pushing {
            to,
            object,
            version: EVersion::ZERO,
            size: 0,
            part: 0,
            data_pos: 0,
            omap_after: None,
            omap_done: false,
            building: None,
            loading: false,
            last_sent: false,
            since: ctx.now,
            repairs: self.repairs,
        };
        self.pushing.insert(id, push);
        self.send_part(sh, ctx, id);
    }

    fn send_part<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, id: u64) {
        match self.build_part(sh, id) {
            Ok(Built::Going) => self.send_if_built(sh, ctx, id),
            Ok(Built::Wait) => {}
            Ok(Built::Failed) => self.push_failed(sh, ctx, id, false),
            Err(error) => {
                tracing::warn!(pg = %self.id, %error, "cannot read an object to recover from");
                self.push_failed(sh, ctx, id, false);
            }
        }
    }

    fn build_part<S: ObjectStore>(&mut self, sh: &mut Shared<S>, id: u64) -> Result<Built, StoreError> {
        let Some(mut push) = self.pushing.remove(&id) else { return Ok(Built::Going) };
        let mut result = self.build(sh, id, &mut push);
        push.loading = false;
        if let Err(error @ StoreError::Pending(_)) = &result {
            sh.wait_load(error, Load::Background { pg: self.id });
            push.loading = true;
            result = Ok(Built::Wait);
        }
        self.pushing.insert(id, push);
        result
    }

    /// An error leaves the push as it was.
    fn build<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        id: u64,
        push: &mut Pushing,
    ) -> Result<Built, StoreError> {
        let object = self.object_id(&push.object);
        let info = match exec::ObjectInfo::load(&sh.store, &object) {
            Ok(Some(info)) => info,
            Err(InfoError::Store(error)) => return Err(error),
            Ok(None) | Err(_) => return Ok(Built::Failed),
        };
        let size = match push.part {
            0 => sh.store.stat(&object)?.map_or(0, |s| s.size),
            _ if push.version != info.version => return Ok(Built::Failed),
            _ => push.size,
        };
        let mut message = Push {
            object: push.object.clone(),
            version: info.version,
            part: push.part,
            last: false,
            size,
            data: Vec::new(),
            xattrs: BTreeMap::new(),
            omap_header: Bytes::new(),
            omap: BTreeMap::new(),
            repair: self.damaged.get(&push.object).is_some_and(|at| at.contains(&push.to)),
        };
        if push.part == 0 {
            message.xattrs = sh.store.xattrs(&object)?;
            message.omap_header = sh.store.omap_header(&object)?;
        }
        let window = sh.config.recovery_chunk_len.min(size - push.data_pos);
        let extents =
            if window > 0 { sh.store.data_extents(&object, push.data_pos, window)? } else { Vec::new() };
        let data_end = push.data_pos + window;
        let mut omap_after = push.omap_after.clone();
        let mut omap_done = push.omap_done;
        if data_end == size && !omap_done {
            let page = sh.store.omap_list(&object, omap_after.as_deref(), &[], OMAP_PAGE)?;
            omap_done = page.len() < OMAP_PAGE;
            omap_after = page.last().map(|(key, _)| key.clone()).or(omap_after);
            message.omap = page.into_iter().collect();
        }
        message.last = data_end == size && omap_done;
        let mut fetches = Vec::with_capacity(extents.len());
        for (offset, len) in extents {
            // An error part-way: nobody waits for what was begun.
            fetches.push(sh.store.read(&object, offset, len)?);
            message.data.push((offset, Bytes::new()));
        }
        let outstanding = fetches.len();
        for (index, fetch) in fetches.into_iter().enumerate() {
            sh.fetches.insert(fetch, Fetch::Push { pg: self.id, push: id, index });
        }
        push.version = info.version;
        push.size = size;
        push.data_pos = data_end;
        push.omap_after = omap_after;
        push.omap_done = omap_done;
        push.last_sent = message.last;
        push.building = Some((message, outstanding));
        Ok(Built::Going)
    }

    fn send_if_built<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, id: u64) {
        let Some(push) = self.pushing.get_mut(&id) else { return };
        if push.building.as_ref().is_none_or(|(_, outstanding)| *outstanding > 0) {
            return;
        }
        let Some((message, _)) = push.building.take() else { return };
        push.since = ctx.now;
        self.stats.recovered_bytes += message.data.iter().map(|(_, b)| b.len() as u64).sum::<u64>();
        let to = push.to;
        sh.send_pg(ctx, to, self.header(sh), message);
    }

    /// Data of a part has been read.
    pub fn on_push_read<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        id: u64,
        index: usize,
        result: Result<Bytes, StoreError>,
    ) {
        let Some(push) = self.pushing.get_mut(&id) else { return };
        let Some((message, outstanding)) = &mut push.building else { return };
        match result {
            Ok(bytes) => {
                message.data[index].1 = bytes;
                *outstanding -= 1;
                self.send_if_built(sh, ctx, id);
            }
            Err(error) => {
                let (object, to) = (push.object.clone(), push.to);
                if push.repairs != self.repairs {
                    // Perhaps it was read before it was replaced.
                    return self.start_push(sh, ctx, to, object);
                }
                self.note_read_error(sh, &object, &error);
                self.push_failed(sh, ctx, id, is_damage(&error));
            }
        }
    }

    /// We do not have what we are to send.
    fn push_failed<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, id: u64, damaged: bool) {
        let Some(push) = self.pushing.remove(&id) else { return };
        if self.phase != Phase::Active {
            // Asked by the primary, which knows other sources.
            let need = push.version;
            sh.send_pg(ctx, push.to, self.header(sh), PullFailed { object: push.object, need, damaged });
            return;
        }
        match push.version {
            // Our own copy is damaged: get it from another, then go on.
            version if version != EVersion::ZERO && !self.unrepairable.contains(&push.object) => {
                self.repair(sh, ctx, &push.object, version);
            }
            _ => {
                tracing::error!(pg = %self.id, object = %push.object.name, "no good copy to recover from");
                if self.recovering.remove(&push.object).is_some() {
                    sh.recovering -= 1;
                }
                self.unfound.insert(push.object);
            }
        }
    }

    pub(super) fn on_push_ack<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        ack: PushAck,
    ) {
        let found = self
            .pushing
            .iter()
            .find(|(_, p)| {
                p.to == from && p.object == ack.object && p.version == ack.version && p.part == ack.part
            })
            .map(|(id, p)| (*id, p.last_sent));
        let Some((id, last)) = found else { return };
        if !last {
            if let Some(push) = self.pushing.get_mut(&id) {
                push.part += 1;
            }
            return self.send_part(sh, ctx, id);
        }
        self.pushing.remove(&id);
        if self.phase != Phase::Active {
            return;
        }
        if let Some(copy) = self.peers.get_mut(&from) {
            copy.missing.0.remove(&ack.object);
        }
        if let Some(at) = self.damaged.get_mut(&ack.object) {
            at.remove(&from);
        }
        self.check_object(sh, ctx, &ack.object);
        self.on_backfill_pushed(sh, ctx, from, &ack.object);
    }

    pub(super) fn on_pull<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        pull: Pull,
    ) {
        let id = self.object_id(&pull.object);
        let ours = exec::ObjectInfo::load(&sh.store, &id);
        if let Err(InfoError::Store(error @ StoreError::Pending(_))) = &ours {
            let message = peer::PgMessage::from(pull);
            let body = Bytes::from(peer::encode_pg(&self.header(sh), &message).concat());
            sh.wait_load(error, Load::Message { from, kind: message.kind(), body });
            return;
        }
        let has = matches!(&ours, Ok(Some(info)) if info.version == pull.need);
        if !has || self.missing.contains(&pull.object) {
            let failed = PullFailed { object: pull.object, need: pull.need, damaged: false };
            return sh.send_pg(ctx, from, self.header(sh), failed);
        }
        self.start_push(sh, ctx, from, pull.object);
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
        }
    }

    // The receiving side.

    /// Crash: parts before the last go to a temporary object that a restart
    /// removes; the last one moves it into place together with the record that
    /// the object is no longer missing.
    pub(super) fn on_push<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        push: Push,
    ) {
        let pulled = self.recovering.get(&push.object).is_some_and(|r| r.pull_from == Some(from));
        let missed = self.missing.need(&push.object) == Some(push.version);
        let primary = self.placement.primary == Some(from);
        let backfilled = primary && self.info.is_incomplete() && push.object > self.info.last_backfill;
        if !(missed && (pulled || primary)) && !backfilled && !(primary && push.repair) {
            if primary && !self.missing.contains(&push.object) && push.last {
                // It is here already: the acknowledgement was lost.
                let ack = PushAck { object: push.object, version: push.version, part: push.part };
                sh.send_pg(ctx, from, self.header(sh), ack);
            }
            return;
        }
        let expected = match self.receiving.get(&push.object) {
            Some((version, next)) if *version == push.version => *next,
            _ => 0,
        };
        if push.part != 0 && push.part != expected {
            return;
        }
        let mut txn = Transaction::new();
        self.write_part(&push, &mut txn);
        let commit = Commit::Part {
            pg: self.id,
            interval: self.interval(),
            from,
            object: push.object.clone(),
            version: push.version,
            part: push.part,
            last: push.last,
        };
        let mut records = self.records();
        if let Some(snaps) = push.xattrs.get(exec::SNAPS_ATTR) {
            records.index_clone(&push.object, &exec::decode_snaps(snaps.clone()).unwrap_or_default());
        }
        if push.last && missed {
            records.not_missing(&push.object);
        }
        records.into_txn(&mut txn);
        if let Err(error) = sh.try_queue(txn, commit) {
            tracing::error!(pg = %self.id, %error, "cannot take a recovered object");
            return;
        }
        if push.last {
            self.receiving.remove(&push.object);
            self.missing.0.remove(&push.object);
            self.repairs += 1;
            let me = sh.me();
            if self.damaged.get_mut(&push.object).is_some_and(|at| at.remove(&me)) || push.repair {
                sh.counters.repaired += 1;
                tracing::info!(osd = %sh.me(), pg = %self.id, object = %push.object.name, "repaired from another copy");
            }
        } else {
            self.receiving.insert(push.object, (push.version, push.part + 1));
        }
    }

    fn write_part(&self, push: &Push, txn: &mut Transaction) {
        let id = self.object_id(&push.object);
        let whole = push.part == 0 && push.last;
        let to = if whole {
            id.clone()
        } else {
            ObjectId { coll: CollId::Meta, object: HObject { pool: TEMP_POOL, ..push.object.clone() } }
        };
        if push.part == 0 {
            txn.push(Mutation::Remove(to.clone()));
            txn.push(Mutation::Touch(to.clone()));
            txn.push(Mutation::SetXattrs { id: to.clone(), attrs: push.xattrs.clone().into() });
            if !push.omap_header.is_empty() {
                txn.push(Mutation::SetOmapHeader { id: to.clone(), header: push.omap_header.clone() });
            }
        }
        for (offset, data) in &push.data {
            txn.push(Mutation::Write { id: to.clone(), offset: *offset, data: data.clone() });
        }
        if !push.omap.is_empty() {
            txn.push(Mutation::SetOmap { id: to.clone(), entries: push.omap.clone().into() });
        }
        if push.last {
            txn.push(Mutation::Truncate { id: to.clone(), size: push.size });
            if !whole {
                txn.push(Mutation::Rename { from: to, to: id });
            }
        }
    }

    /// A received part is durable.
    pub fn on_part_committed<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        ack: PushAck,
        last: bool,
    ) {
        let object = ack.object.clone();
        sh.send_pg(ctx, from, self.header(sh), ack);
        // Damaged again already: another copy is on its way.
        if !last || self.phase != Phase::Active || self.missing.contains(&object) {
            return;
        }
        // Ours at last: reads may go on, and the others get it.
        if let Some(recovering) = self.recovering.get_mut(&object) {
            recovering.pull_from = None;
            recovering.since = ctx.now;
            self.push_to_all(sh, ctx, &object);
            self.pump_object(sh, ctx, &object);
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
        let pushes: Vec<HObject> =
            self.pushing.values().filter(|p| p.to == osd).map(|p| p.object.clone()).collect();
        for object in pushes {
            self.start_push(sh, ctx, osd, object);
        }
        self.resend_backfill(sh, ctx, osd);
    }

    /// Metadata is there, or time has passed.
    pub fn retry_recovery<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let loading: Vec<u64> = self.pushing.iter().filter(|(_, p)| p.loading).map(|(id, _)| *id).collect();
        for id in loading {
            self.send_part(sh, ctx, id);
        }
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
        // The receiver may have had no room for it.
        let unanswered = self.pushing.values().filter(|p| p.building.is_none() && !p.loading);
        let unanswered = unanswered.filter(|p| self.is_active() && ctx.now.since(p.since) > limit);
        for (to, object) in unanswered.map(|p| (p.to, p.object.clone())).collect::<Vec<_>>() {
            self.start_push(sh, ctx, to, object);
        }
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
