//! Objects that are sent to another OSD: the sending side of recovery and backfill.
//!
//! One part after the other, the next when the one before is durable. Only what
//! the receiver does not have is read and sent: see `push_base.rs`.

use super::repair::is_damage;
use super::{Pg, Phase};
use crate::action::Ctx;
use crate::exec::{self, InfoError};
use crate::peer::{self, Base, Pull, PullFailed, Push, PushAck, PushRefused};
use crate::shared::{Fetch, Load, Shared};
use base::Time;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{ObjectStore, OmapLimit, StoreError};
use wire::types::{EVersion, HObject, IntervalSet, OsdId};

/// Omap entries in one part.
const OMAP_PAGE: usize = 1024;

/// One object being sent to one OSD.
#[derive(Clone, PartialEq, Debug)]
pub struct Pushing {
    pub to: OsdId,
    pub object: HObject,
    /// The receiver takes nothing from a base.
    pub whole: bool,
    /// What the receiver of an object that it asked for misses besides: no bases.
    pub lacks: Vec<HObject>,
    version: EVersion,
    size: u64,
    part: u32,
    /// Ranges that have not been sent.
    left: IntervalSet,
    /// Bytes that the base saves.
    saved: u64,
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
    pub(super) fn start_push<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        to: OsdId,
        object: HObject,
    ) {
        self.start_push_as(sh, ctx, to, object, false, Vec::new());
    }

    /// From its first part, as it was begun.
    fn start_push_again<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, id: u64) {
        if let Some(push) = self.pushing.remove(&id) {
            self.start_push_as(sh, ctx, push.to, push.object, push.whole, push.lacks);
        }
    }

    /// The link to it is new.
    pub(super) fn restart_pushes_to<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        osd: OsdId,
    ) {
        let pushes = self.pushing.iter().filter(|(_, push)| push.to == osd);
        for id in pushes.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.start_push_again(sh, ctx, id);
        }
    }

    /// Metadata is there, or time has passed.
    pub(super) fn retry_pushes<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let loading = self.pushing.iter().filter(|(_, push)| push.loading);
        for id in loading.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.send_part(sh, ctx, id);
        }
        // The receiver may have had no room for it.
        let limit = sh.config.retry_interval * 10;
        let unanswered = self.pushing.iter().filter(|(_, push)| push.building.is_none() && !push.loading);
        let unanswered = unanswered.filter(|(_, push)| self.is_active() && ctx.now.since(push.since) > limit);
        for id in unanswered.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.start_push_again(sh, ctx, id);
        }
        self.push_ranges(sh, ctx);
    }

    fn start_push_as<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        to: OsdId,
        object: HObject,
        whole: bool,
        lacks: Vec<HObject>,
    ) {
        self.pushing.retain(|_, p| p.to != to || p.object != object);
        let id = sh.new_id();
        let push = Pushing {
            to,
            object,
            whole,
            lacks,
            version: EVersion::ZERO,
            size: 0,
            part: 0,
            left: IntervalSet::new(),
            saved: 0,
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
        let (size, left, base, saved) = match push.part {
            0 => self.begin_push(sh, push, info.has_clones)?,
            _ if push.version != info.version => return Ok(Built::Failed),
            _ => (push.size, push.left.clone(), None, push.saved),
        };
        let mut message = Push {
            attempt: id,
            object: push.object.clone(),
            version: info.version,
            base,
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
        let (window, left) = split_front(left, sh.config.recovery_chunk_len);
        let mut extents = Vec::new();
        for (offset, len) in window {
            extents.extend(sh.store.data_extents(&object, offset, len)?);
        }
        let mut omap_after = push.omap_after.clone();
        let mut omap_done = push.omap_done;
        if left.is_empty() && !omap_done {
            let limit = OmapLimit { entries: OMAP_PAGE, bytes: sh.config.recovery_chunk_len as usize };
            let page = sh.store.omap_list(&object, omap_after.as_deref(), &[], limit)?;
            omap_done = !page.more;
            omap_after = page.last_key().cloned().or(omap_after);
            message.omap = page.entries.into_iter().collect();
        }
        message.last = left.is_empty() && omap_done;
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
        push.left = left;
        push.saved = saved;
        push.omap_after = omap_after;
        push.omap_done = omap_done;
        push.last_sent = message.last;
        push.building = Some((message, outstanding));
        Ok(Built::Going)
    }

    /// The object's size, the ranges to be sent, and what the rest is taken from, so many bytes.
    fn begin_push<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        push: &Pushing,
        has_clones: bool,
    ) -> Result<(u64, IntervalSet, Option<Base>, u64), StoreError> {
        let size = sh.store.stat(&self.object_id(&push.object))?.map_or(0, |s| s.size);
        let may_share = has_clones || push.object.is_clone();
        if may_share && let Some(difference) = self.difference(sh, push, size)? {
            return Ok((size, difference.ranges, Some(difference.base), difference.saved));
        }
        let mut all = IntervalSet::new();
        all.insert(0, size);
        Ok((size, all, None, 0))
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
                let object = push.object.clone();
                if push.repairs != self.repairs {
                    // Perhaps it was read before it was replaced.
                    return self.start_push_again(sh, ctx, id);
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
        self.push_ranges(sh, ctx);
    }

    pub(super) fn on_push_ack<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        ack: PushAck,
    ) {
        let id = ack.attempt;
        let Some(push) = self.pushing.get_mut(&id) else { return };
        let is_same = push.to == from && push.object == ack.object && push.version == ack.version;
        if !is_same || push.part != ack.part {
            return;
        }
        if !push.last_sent {
            push.part += 1;
            return self.send_part(sh, ctx, id);
        }
        sh.counters.recovery_bytes_shared += push.saved;
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

    /// The receiver does not have what we thought it had.
    pub(super) fn on_push_refused<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        refused: PushRefused,
    ) {
        let Some(push) = self.pushing.get(&refused.attempt) else { return };
        // Without a base there is nothing to refuse.
        if push.to == from && push.object == refused.object && !push.whole {
            sh.counters.recovery_bases_refused += 1;
            self.start_push_as(sh, ctx, from, refused.object, true, Vec::new());
        }
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
        self.start_push_as(sh, ctx, from, pull.object, pull.whole, pull.lacks);
    }
}

/// The first `max` bytes of what is to be sent, and the rest.
fn split_front(ranges: IntervalSet, max: u64) -> (Vec<(u64, u64)>, IntervalSet) {
    let mut room = max;
    let mut front = Vec::new();
    let mut rest = ranges.clone();
    for (start, len) in ranges.iter() {
        if room == 0 {
            break;
        }
        let taken = len.min(room);
        room -= taken;
        rest.remove(start, taken);
        front.push((start, taken));
    }
    (front, rest)
}
