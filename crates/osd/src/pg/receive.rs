//! Objects that another OSD sends: the receiving side of recovery and backfill.

use super::{Pg, Phase};
use crate::action::Ctx;
use crate::exec::{self, InfoError, ObjectInfo};
use crate::peer::{self, Base, PgMessage, Push, PushAck, PushRefused};
use crate::shared::{Commit, Load, Shared};
use bytes::Bytes;
use store::{CollId, Mutation, ObjectId, ObjectStore, StoreError, Transaction};
use wire::types::{EVersion, HObject, OsdId, PoolId};

/// Objects half received are in the OSD's own collection under this pool.
pub const TEMP_POOL: PoolId = PoolId(-3);

/// An object of which a part is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiving {
    attempt: u64,
    version: EVersion,
    /// The part expected next.
    next: u32,
}

impl Pg {
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
            if primary && !self.missing.contains(&push.object) {
                // It is here already: the acknowledgement was lost.
                sh.send_pg(ctx, from, self.header(sh), ack_of(&push));
            }
            return;
        }
        // One that waited may come after a later attempt, and after writes that went by that.
        if let Some(newest) = self.parked.get_mut(&push.object) {
            if newest.0 == from && push.attempt < newest.1 {
                return;
            }
            *newest = (from, push.attempt);
        }
        if pulled && let Some(recovering) = self.recovering.get_mut(&push.object) {
            // It comes, however long it is.
            recovering.since = ctx.now;
        }
        let follows = Receiving { attempt: push.attempt, version: push.version, next: push.part };
        if push.part != 0 && self.receiving.get(&push.object) != Some(&follows) {
            return;
        }
        if let (Some(base), 0) = (&push.base, push.part) {
            match self.has_base(sh, &push, base, missed) {
                Ok(true) => {}
                Ok(false) => return self.refuse_base(sh, ctx, from, &push),
                Err(error) => {
                    self.parked.insert(push.object.clone(), (from, push.attempt));
                    let message = PgMessage::from(push);
                    let body = Bytes::from(peer::encode_pg(&self.header(sh), &message).concat());
                    sh.wait_load(&error, Load::Message { from, kind: message.kind(), body });
                    return;
                }
            }
        }
        let mut txn = Transaction::new();
        self.write_part(&push, &mut txn);
        let commit = Commit::Part {
            pg: self.id,
            interval: self.interval(),
            from,
            ack: ack_of(&push),
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
            if push.base.is_some() && matches!(error, StoreError::TooLarge { .. } | StoreError::NoObject) {
                // More than one transaction holds; written plainly it is less.
                return self.refuse_base(sh, ctx, from, &push);
            }
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
            self.receiving.insert(push.object, Receiving { next: push.part + 1, ..follows });
        }
    }

    /// Whether the store has the very object that this one is to be made from, with everything
    /// that is queued: the clone is queued behind it.
    ///
    /// Errors: [`StoreError::Pending`] alone.
    fn has_base<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        push: &Push,
        base: &Base,
        missed: bool,
    ) -> Result<bool, StoreError> {
        let stored = |object: &HObject| match ObjectInfo::load(&sh.store, &self.object_id(object)) {
            Ok(info) => Ok(info.map(|info| info.version)),
            Err(InfoError::Store(error @ StoreError::Pending(_))) => Err(error),
            Err(_) => Ok(None),
        };
        let object = HObject { snap: base.snap, ..push.object.clone() };
        let version = stored(&object)?;
        if sh.config.sabotage.share_unchecked {
            return Ok(version.is_some() && object != push.object);
        }
        // Missing although it is there: damaged. So may be what shares its blocks.
        let is_damaged = missed && stored(&push.object)? == Some(push.version);
        let known = !self.missing.contains(&object) && !self.is_suspect(&object);
        Ok(version == Some(base.version) && object != push.object && known && !push.repair && !is_damaged)
    }

    fn refuse_base<S: ObjectStore>(&self, sh: &mut Shared<S>, ctx: &Ctx<'_>, from: OsdId, push: &Push) {
        let refused = PushRefused { attempt: push.attempt, object: push.object.clone() };
        sh.send_pg(ctx, from, self.header(sh), refused);
    }

    fn write_part(&self, push: &Push, txn: &mut Transaction) {
        let id = self.object_id(&push.object);
        let whole = push.part == 0 && push.last;
        let to = if whole { id.clone() } else { temporary(&push.object) };
        if push.part == 0 {
            match &push.base {
                None => {
                    txn.push(Mutation::Remove(to.clone()));
                    txn.push(Mutation::Touch(to.clone()));
                }
                Some(base) => self.begin_from_base(push, base, &to, txn),
            }
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

    /// Of the base remain the blocks that both have, and those that will be written over.
    fn begin_from_base(&self, push: &Push, base: &Base, to: &ObjectId, txn: &mut Transaction) {
        let from = self.object_id(&HObject { snap: base.snap, ..push.object.clone() });
        txn.push(Mutation::Clone { from, to: to.clone() });
        txn.push(Mutation::ClearXattrs(to.clone()));
        txn.push(Mutation::ClearOmap(to.clone()));
        txn.push(Mutation::Truncate { id: to.clone(), size: base.cut });
        for (offset, len) in base.zeros.iter() {
            txn.push(Mutation::Zero { id: to.clone(), offset, len });
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
}

fn ack_of(push: &Push) -> PushAck {
    PushAck { attempt: push.attempt, object: push.object.clone(), version: push.version, part: push.part }
}

/// Where an object's parts are gathered; objects of several pools may have the same name.
fn temporary(object: &HObject) -> ObjectId {
    let nspace = format!("{}/{}", object.pool, object.nspace).into();
    ObjectId { coll: CollId::Meta, object: HObject { pool: TEMP_POOL, nspace, ..object.clone() } }
}
