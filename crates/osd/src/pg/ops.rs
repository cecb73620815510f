//! The way of a request through the PG: wait, queue per object, execute, reply.
//!
//! Order: requests on one object start in the order in which they arrived.
//! Reads of an object wait until its writes are durable everywhere, so that
//! nothing is read that a failover could take back; writes do not wait for
//! each other's durability. A request that needs data first (a read, a
//! compare) holds the object: reads shared, writes alone.

use super::replication::Prepared;
use super::request::{Origin, Request, Work};
use super::{Pg, Phase};
use crate::action::Ctx;
use crate::exec::{self, Class, DataRange, Effect, Need, Outcome};
use crate::peer::{self, CopyResult};
use crate::shared::{CopyWait, Fetch, Load, Shared};
use crate::space;
use base::{Errno, Time};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};
use store::{ObjectStore, StoreError};
use wire::maps::{OsdMapFlags, PoolFlags};
use wire::messages::osd_op::flags;
use wire::messages::{MOsdOp, MOsdOpReply, OpResult, OsdOp, Outgoing};
use wire::types::{EVersion, HObject};

/// Requests on one object that have not ended.
#[derive(Debug, Default)]
pub struct ObjectQueue {
    queue: VecDeque<Box<Request>>,
    /// Writes on their way to durability.
    pub writes: u32,
    /// Reads fetching data.
    readers: u32,
    /// A write fetching data.
    exclusive: bool,
    /// A clone that must be recovered before the first of the queue can run.
    waits_for: Option<HObject>,
    /// One of them is being started by [`Pg::pump_object`], which looks again afterwards.
    starting: bool,
}

impl ObjectQueue {
    pub fn admits(&self, write: bool) -> bool {
        !self.exclusive && if write { self.readers == 0 } else { self.writes == 0 }
    }

    pub fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.writes == 0 && self.readers == 0 && !self.exclusive
    }
}

/// A request that waits for data, or for metadata, holding its object.
#[derive(Debug)]
pub struct Fetching {
    request: Box<Request>,
    /// Answers still to come.
    outstanding: usize,
    /// [`Pg::repairs`] when it began.
    repairs: u64,
}

impl Pg {
    /// Whether clients may be served now.
    pub fn may_serve<S: ObjectStore>(&mut self, sh: &Shared<S>, now: Time) -> bool {
        if self.phase != Phase::Active || now < self.readable_from || !self.has_min_size(sh) {
            return false;
        }
        if now < self.lease_until || sh.config.sabotage.ignore_lease {
            return true;
        }
        self.lease_until = sh.lease_until(self.placement.members());
        now < self.lease_until
    }

    pub(super) fn has_min_size<S: ObjectStore>(&self, sh: &Shared<S>) -> bool {
        let min_size = sh.maps.map().pool(self.id.pool).map_or(1, |p| usize::from(p.min_size));
        self.placement.members().count() >= min_size
    }

    /// A request for this PG, of which we are primary.
    pub fn submit<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, request: Box<Request>) {
        if !self.waiting.is_empty() || !self.may_serve(sh, ctx.now) {
            self.waiting.push_back(request);
            self.note_lag(sh, ctx);
            return;
        }
        self.enqueue(sh, ctx, request);
    }

    /// Requests wait for a lease or for its time: look again soon.
    fn note_lag<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &Ctx<'_>) {
        if self.phase == Phase::Active {
            sh.laggy.insert(self.id);
            if ctx.now < self.readable_from {
                sh.wake_at(self.readable_from);
            }
        }
    }

    /// Lets waiting requests go on if they may.
    pub fn serve_waiting<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        if self.waiting.is_empty() {
            sh.laggy.remove(&self.id);
            return;
        }
        if !self.may_serve(sh, ctx.now) {
            self.note_lag(sh, ctx);
            return;
        }
        sh.laggy.remove(&self.id);
        for request in std::mem::take(&mut self.waiting) {
            self.enqueue(sh, ctx, request);
        }
    }

    fn enqueue<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, request: Box<Request>) {
        if request.is_pg_op() {
            return self.run(sh, ctx, request, false);
        }
        let write = request.is_write();
        let unready = self.is_unready(&request.object, write);
        let queue = self.objects.get_mut(&request.object);
        let free = queue.as_ref().is_none_or(|q| q.queue.is_empty() && q.admits(write));
        if free && !unready {
            return self.start(sh, ctx, request);
        }
        let object = request.object.clone();
        match queue {
            Some(queue) => queue.queue.push_back(request),
            None => {
                let queue = ObjectQueue { queue: [request].into(), ..ObjectQueue::default() };
                self.objects.insert(object.clone(), queue);
            }
        }
        if unready {
            self.want_object(sh, ctx, &object);
        }
    }

    /// Starts what may start on this object. A loop: what ends while it is started lets the next go
    /// on, and thousands may wait.
    pub(super) fn pump_object<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        object: &HObject,
    ) {
        // Requests for clones queue at the head.
        let object = &object.head();
        loop {
            let Some(queue) = self.objects.get_mut(object).filter(|queue| !queue.starting) else { return };
            let Some(front) = queue.queue.front() else {
                if queue.is_idle() {
                    self.objects.remove(object);
                }
                return;
            };
            let write = front.is_write();
            if !queue.admits(write) {
                return;
            }
            let waits_for = queue.waits_for.take();
            if self.is_unready(object, write) {
                return self.want_object(sh, ctx, object);
            }
            if let Some(clone) = waits_for.filter(|clone| self.is_unready(clone, write)) {
                return self.wait_for_clone(sh, ctx, object, clone);
            }
            if !self.may_serve(sh, ctx.now) {
                // Back to where they wait for a lease, in order, before later arrivals.
                let queued =
                    self.objects.get_mut(object).map(|q| std::mem::take(&mut q.queue)).unwrap_or_default();
                for request in queued.into_iter().rev() {
                    self.waiting.push_front(request);
                }
                self.note_lag(sh, ctx);
                continue;
            }
            let Some(queue) = self.objects.get_mut(object) else { return };
            let Some(request) = queue.queue.pop_front() else { return };
            queue.starting = true;
            self.start(sh, ctx, request);
            if let Some(queue) = self.objects.get_mut(object) {
                queue.starting = false;
            }
        }
    }

    fn wait_for_clone<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        head: &HObject,
        clone: HObject,
    ) {
        if let Some(queue) = self.objects.get_mut(head) {
            queue.waits_for = Some(clone.clone());
        }
        self.want_object(sh, ctx, &clone);
    }

    fn start<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>, request: Box<Request>) {
        if self.is_fenced(sh, ctx, &request) {
            let object = request.object.clone();
            self.refuse_fenced(sh, request);
            return self.pump_object(sh, ctx, &object);
        }
        if request.is_write()
            && request.origin != Origin::Own
            && !sh.config.sabotage.skip_dup_check
            && let Some(version) = self.log.find_request(&request.reqid)
        {
            sh.counters.duplicates += 1;
            if version > self.acked
                && let Some(original) = self.in_flight.iter_mut().find(|w| w.version == version)
            {
                original.duplicates.push(request);
                return;
            }
            return self.reply_recorded(sh, request, version);
        }
        self.run(sh, ctx, request, false);
    }

    /// Executes; `held` when the request holds its object already.
    fn run<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        mut request: Box<Request>,
        held: bool,
    ) {
        if held && !request.is_pg_op() && self.is_unready(&request.object, request.is_write()) {
            // While the request waited, a backfill has reached the object, or it turned out damaged.
            return self.requeue(sh, ctx, request);
        }
        let map = sh.maps.map().clone();
        let Some(pool) = map.pool(self.id.pool) else {
            // The pool is gone: so is the PG, in a moment.
            if held {
                self.unlock(&request);
            }
            return self.discard(sh, request);
        };
        let at_version = EVersion::new(map.epoch, self.info.last_update.version + 1);
        if let Some(outcome) = request.fetched.answer() {
            request.fetched = Default::default();
            return self.finish(sh, ctx, request, at_version, outcome, held);
        }
        let clones = exec::Clones {
            removed_snaps: map.removed_snaps_queue.get(&self.id.pool),
            is_unready: &|object, write| self.is_unready(object, write),
        };
        let result = match &request.work {
            Work::Op(op, Class::PgOp) => exec::execute_pg_op(
                &exec::PgListContext {
                    request: op,
                    pool,
                    pg: self.id,
                    coll: self.coll,
                    scrub_ls: &|input| self.list_findings(sh, input),
                },
                &sh.store,
            ),
            Work::Op(op, _) => exec::execute(
                &exec::Context {
                    request: op,
                    reqid: request.reqid,
                    pool,
                    coll: self.coll,
                    object: request.object.clone(),
                    at_version,
                    epoch: map.epoch,
                    now: ctx.wall,
                    origin: request.origin.who(),
                    pg_user_version: self.info.last_user_version,
                    seed: ctx.random.next_u64(),
                    watch: self.watch_context(sh, &request),
                    ignore_lock_holders: sh.config.sabotage.ignore_lock_holders,
                    clones,
                },
                &sh.store,
                &request.fetched,
            ),
            Work::EndWatches(keys) => {
                let id = self.object_id(&request.object);
                let keys = self.still_over(sh, &request.object, keys);
                exec::watch::end_watches(&sh.store, id, &keys, at_version, &request.fetched)
            }
            Work::Copy(source) => {
                match exec::read_whole(&sh.store, self.coll, source, &clones, &request.fetched) {
                    Ok(result) => {
                        if held {
                            self.unlock(&request);
                        }
                        let object = request.object.clone();
                        self.reply_copy(sh, ctx, request, result);
                        return self.pump_object(sh, ctx, &object);
                    }
                    Err(need) => Err(need),
                }
            }
        };
        match result {
            Ok(outcome) => {
                request.fetched = Default::default();
                self.finish(sh, ctx, request, at_version, outcome, held);
            }
            Err(need) => self.fetch(sh, ctx, request, need, held),
        }
    }

    fn lock(&mut self, request: &Request) {
        if request.is_pg_op() {
            return;
        }
        let queue = self.objects.entry(request.object.clone()).or_default();
        if request.is_write() {
            queue.exclusive = true;
        } else {
            queue.readers += 1;
        }
    }

    fn unlock(&mut self, request: &Request) {
        if request.is_pg_op() {
            return;
        }
        let Some(queue) = self.objects.get_mut(&request.object) else { return };
        if request.is_write() {
            queue.exclusive = false;
        } else {
            queue.readers -= 1;
        }
    }

    /// Gets what execution lacks; the request goes on in [`Self::fetched`].
    fn fetch<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        mut request: Box<Request>,
        need: Need,
        held: bool,
    ) {
        if let Need::Object(clone) = need {
            let head = request.object.clone();
            if held {
                self.unlock(&request);
            }
            request.fetched = Default::default();
            self.objects.entry(head.clone()).or_default().queue.push_front(request);
            return self.wait_for_clone(sh, ctx, &head, clone);
        }
        let (need, outstanding) = match need {
            Need::Data(ranges) => (None, self.read_ranges(sh, &mut request, ranges)),
            other => (Some(other), 1),
        };
        if outstanding == 0 && request.fetched.data.iter().all(|(_, data)| data.is_ok()) {
            // All was in memory: it goes on within this event, so that nobody needs to be held off.
            return self.run(sh, ctx, request, held);
        }
        if !held {
            self.lock(&request);
        }
        let id = request.id;
        match need {
            None if outstanding == 0 => {
                let repairs = self.repairs;
                return self.resume(sh, ctx, request, repairs);
            }
            None => {}
            Some(Need::Copy(source)) => {
                let copy = sh.new_id();
                let wait = CopyWait { pg: self.id, request: id, source, sent: Time::ZERO, to: sh.me() };
                sh.copies.insert(copy, wait);
                sh.dirty.insert(self.id);
            }
            Some(Need::Object(_) | Need::Data(_)) => unreachable!("dealt with above"),
            Some(Need::Metadata(error)) => {
                let waits = sh.wait_load(&error, Load::Request { pg: self.id, request: id });
                if !waits {
                    // The store cannot give the metadata: nothing to try again.
                    self.unlock(&request);
                    let object = request.object.clone();
                    self.reply_error(sh, request, error.errno());
                    return self.pump_object(sh, ctx, &object);
                }
            }
        }
        self.fetching.insert(id, Fetching { request, outstanding, repairs: self.repairs });
    }

    /// Asks the store for what execution lacks; answers how much of it is still to come.
    fn read_ranges<S: ObjectStore>(
        &self,
        sh: &mut Shared<S>,
        request: &mut Request,
        ranges: Vec<DataRange>,
    ) -> usize {
        assert!(!ranges.is_empty(), "execution needs nothing and yet does not end");
        let (pg, id) = (self.id, request.id);
        let mut outstanding = 0;
        let mut pending = None;
        for range in ranges {
            let index = request.fetched.data.len();
            let data = match sh.store.read(&range.id, range.offset, range.len) {
                Ok(fetch) => sh.store.take_read(fetch).unwrap_or_else(|| {
                    sh.fetches.insert(fetch, Fetch::Request { pg, request: id, index });
                    outstanding += 1;
                    Ok(Bytes::new())
                }),
                // Asked for again with what else is lacking then.
                Err(error @ StoreError::Pending(_)) => {
                    pending = Some(error);
                    continue;
                }
                Err(error) => Err(error),
            };
            request.fetched.data.push((range, data));
        }
        if let Some(error) = pending {
            sh.wait_load(&error, Load::Request { pg, request: id });
            outstanding += 1;
        }
        outstanding
    }

    /// One answer for a waiting request.
    pub fn fetched<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        request: u64,
        fill: impl FnOnce(&mut Request),
    ) {
        let Some(fetching) = self.fetching.get_mut(&request) else { return };
        fill(&mut fetching.request);
        fetching.outstanding -= 1;
        if fetching.outstanding > 0 {
            return;
        }
        let Some(fetching) = self.fetching.remove(&request) else { return };
        let repairs = fetching.repairs;
        self.resume(sh, ctx, fetching.request, repairs);
    }

    /// What the request waited for is there, if only as an error.
    fn resume<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        request: Box<Request>,
        repairs: u64,
    ) {
        if let Some(request) = self.try_repair(sh, ctx, request, repairs) {
            if self.is_fenced(sh, ctx, &request) {
                // While it waited, its client was put on the list.
                self.unlock(&request);
                let object = request.object.clone();
                self.refuse_fenced(sh, request);
                return self.pump_object(sh, ctx, &object);
            }
            self.run(sh, ctx, request, true);
        }
    }

    /// Back to the head of its object's queue, to begin again once that is possible.
    pub(super) fn requeue<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        mut request: Box<Request>,
    ) {
        self.unlock(&request);
        request.fetched = Default::default();
        let object = request.object.clone();
        self.objects.entry(object.clone()).or_default().queue.push_front(request);
        self.want_object(sh, ctx, &object);
    }

    /// Waits for metadata, holding its object.
    pub(super) fn wait_metadata<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        request: Box<Request>,
        error: &StoreError,
    ) {
        let id = request.id;
        sh.wait_load(error, Load::Request { pg: self.id, request: id });
        self.fetching.insert(id, Fetching { request, outstanding: 1, repairs: self.repairs });
    }

    fn finish<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        request: Box<Request>,
        at_version: EVersion,
        mut outcome: Outcome,
        held: bool,
    ) {
        if held {
            self.unlock(&request);
        }
        for what in &outcome.unsupported {
            *sh.counters.unsupported.entry(what.code()).or_default() += 1;
            tracing::warn!(%what, pg = %self.id, "operation not supported");
        }
        let object = request.object.clone();
        let pg_op = request.is_pg_op();
        let watching = outcome.watch.take().map(|watching| *watching).unwrap_or_default();
        self.meet_watchers(sh, ctx, &object, &watching.before);
        let mut effects = watching.effects;
        if let Effect::Change(change) = &outcome.effect
            && let Some(refusal) =
                self.refuse_when_full(sh, &request, change.delta.bytes, change.delta.objects)
        {
            match refusal {
                Some(errno) => self.reply_error(sh, request, errno),
                None => self.discard(sh, request),
            }
        } else if let Effect::Change(change) = &outcome.effect
            && let Some(osd) = sh.who_lacks_room(&self.targets, space::cost_of(&change.mutations))
        {
            sh.counters.refused_full += 1;
            tracing::debug!(pg = %self.id, %osd, "no room for a write");
            self.reply_error(sh, request, Errno::ENOSPC);
        } else {
            if !matches!(outcome.effect, Effect::Change(_)) && !effects.is_empty() {
                let effects = std::mem::take(&mut effects);
                self.apply_watch_effects(sh, ctx, &request, outcome.user_version, effects);
            }
            match outcome.effect {
                Effect::None => self.reply_read(sh, request, outcome),
                Effect::ErrorOnly | Effect::Change(_) => {
                    self.submit_write(sh, ctx, Prepared { request, at_version, outcome, effects });
                }
            }
        }
        if held && !pg_op {
            self.pump_object(sh, ctx, &object);
        }
    }

    /// `Some(None)`: hold back silently, the client sends it again with a newer map.
    fn refuse_when_full<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        request: &Request,
        bytes: i64,
        objects: i64,
    ) -> Option<Option<Errno>> {
        let Work::Op(op, _) = &request.work else { return None };
        if (bytes <= 0 && objects <= 0) || op.flags & flags::FULL_FORCE != 0 {
            return None;
        }
        let map = sh.maps.map();
        let pool = map.pool(self.id.pool)?;
        let cluster_full = map.test_flag(OsdMapFlags::FULL);
        if !cluster_full && !pool.flags.intersects(PoolFlags::FULL) {
            return None;
        }
        if op.flags & flags::FULL_TRY == 0 {
            return Some(None);
        }
        let quota = pool.flags.intersects(PoolFlags::FULL_QUOTA);
        Some(Some(if quota { Errno::EDQUOT } else { Errno::ENOSPC }))
    }

    /// Ends a request without an answer: its client has gone, or sends it again.
    pub(super) fn discard<S: ObjectStore>(&mut self, sh: &mut Shared<S>, request: Box<Request>) {
        release(sh, &request);
    }

    fn reply_read<S: ObjectStore>(&mut self, sh: &mut Shared<S>, request: Box<Request>, outcome: Outcome) {
        let bytes: usize = outcome.ops.iter().map(OpResult::out_len).sum();
        self.stats.reads += 1;
        self.stats.read_bytes += bytes as u64;
        sh.counters.reads += 1;
        let user_version =
            if request.is_pg_op() { self.info.last_user_version } else { outcome.user_version };
        let replay = if request.is_pg_op() { self.info.last_update } else { EVersion::ZERO };
        let answer = Answer { result: outcome.result, ops: outcome.ops, version: replay, user_version };
        reply(sh, request, answer);
    }

    fn reply_copy<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &Ctx<'_>,
        request: Box<Request>,
        result: Result<exec::CopiedObject, Errno>,
    ) {
        let Origin::Copy { osd, id } = request.origin else { return release(sh, &request) };
        let result = match result {
            Ok(object) => CopyResult { id, errno: 0, object: Some(object) },
            Err(errno) => CopyResult { id, errno: errno.0, object: None },
        };
        sh.send_peer(ctx, osd, peer::KIND_COPY_RESULT, peer::encode_copy_result(&result));
        release(sh, &request);
    }

    /// Fails the whole request; nothing is recorded.
    pub(super) fn reply_error<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        request: Box<Request>,
        errno: Errno,
    ) {
        let Work::Op(op, _) = &request.work else { return release(sh, &request) };
        let ops = blank_results(op);
        let answer = Answer { result: errno.negative(), ops, version: EVersion::ZERO, user_version: 0 };
        reply(sh, request, answer);
    }

    /// Answers a duplicate from the log.
    pub(super) fn reply_recorded<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        request: Box<Request>,
        version: EVersion,
    ) {
        let Some(entry) = self.log.get(version) else { return self.discard(sh, request) };
        let Work::Op(op, _) = &request.work else { return release(sh, &request) };
        let mut ops = blank_results(op);
        for (op, (rval, outdata)) in ops.iter_mut().zip(&entry.returns) {
            op.rval = *rval;
            op.outdata = outdata.clone();
        }
        let answer = Answer { result: entry.result, ops, version, user_version: entry.user_version };
        reply(sh, request, answer);
    }

    /// Takes all unfinished requests back into `waiting`, in order of arrival:
    /// the interval has ended. Writes that are in the log are recognised as
    /// duplicates when they run again.
    pub(super) fn take_back_requests<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        #[allow(clippy::vec_box, reason = "they are boxed when they come and when they go on")]
        let mut all: Vec<Box<Request>> = Vec::new();
        for write in self.in_flight.drain(..) {
            sh.in_flight_bytes -= write.cost;
            all.extend(write.request);
            all.extend(write.duplicates);
        }
        all.extend(std::mem::take(&mut self.fetching).into_values().map(|f| f.request));
        for queue in std::mem::take(&mut self.objects).into_values() {
            all.extend(queue.queue);
        }
        all.extend(self.waiting.drain(..));
        // Ids are given in order of arrival.
        all.sort_by_key(|r| r.id);
        // Whose time is over in this interval has all of it again in the next.
        all.retain(|r| r.origin != Origin::Own);
        for mut request in all {
            request.fetched = Default::default();
            request.version = EVersion::ZERO;
            self.waiting.push_back(request);
        }
        let pg = self.id;
        sh.copies.retain(|_, copy| copy.pg != pg);
    }

    /// We are not the primary any more: clients send again to who is.
    pub(super) fn drop_waiting<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        if !self.waiting.is_empty() {
            tracing::debug!(pg = %self.id, requests = self.waiting.len(), "requests left to be sent again");
        }
        for request in std::mem::take(&mut self.waiting) {
            self.discard(sh, request);
        }
        sh.laggy.remove(&self.id);
    }

    /// Nobody can be served until OSDs come back.
    pub fn wants_backoff<S: ObjectStore>(&self, sh: &Shared<S>) -> bool {
        self.is_primary(sh)
            && match self.phase {
                Phase::Down | Phase::Incomplete => true,
                Phase::Active => !self.has_min_size(sh),
                _ => false,
            }
    }

    /// Not able to serve yet: those who back off need not come back to wait here.
    pub fn keeps_backoff<S: ObjectStore>(&self, sh: &Shared<S>) -> bool {
        self.is_primary(sh) && (self.phase != Phase::Active || !self.has_min_size(sh))
    }

    /// Drops what these sessions wait for; returns the sessions. They send it again.
    pub fn drop_waiting_of<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        of: impl Fn(wire::messages::SessionId) -> bool,
    ) -> BTreeSet<wire::messages::SessionId> {
        let mut sessions = BTreeSet::new();
        self.waiting.retain(|request| match request.session().filter(|session| of(*session)) {
            Some(session) => {
                release(sh, request);
                sessions.insert(session);
                false
            }
            None => true,
        });
        if self.waiting.is_empty() {
            sh.laggy.remove(&self.id);
        }
        sessions
    }

    /// A session has ended: what has not started is not wanted any more.
    pub fn drop_session<S: ObjectStore>(&mut self, sh: &mut Shared<S>, session: wire::messages::SessionId) {
        let gone = |r: &Request| r.session() == Some(session);
        self.waiting.retain(|r| {
            if gone(r) {
                release(sh, r);
            }
            !gone(r)
        });
        for queue in self.objects.values_mut() {
            queue.queue.retain(|r| {
                if gone(r) {
                    release(sh, r);
                }
                !gone(r)
            });
        }
        self.objects.retain(|_, q| !q.is_idle());
    }

    /// The oldest unfinished request's arrival, and how many there are.
    pub fn oldest_request(&self) -> (Option<Time>, usize) {
        let waiting = self.waiting.iter().map(|r| r.arrived);
        let fetching = self.fetching.values().map(|f| f.request.arrived);
        let queued = self.objects.values().flat_map(|q| q.queue.iter().map(|r| r.arrived));
        let flying = self.in_flight.iter().filter_map(|w| w.request.as_ref().map(|r| r.arrived));
        let mut count = 0;
        let oldest = waiting.chain(fetching).chain(queued).chain(flying).inspect(|_| count += 1).min();
        (oldest, count)
    }
}

/// What a reply says.
pub(super) struct Answer {
    pub result: i32,
    pub ops: Vec<OpResult>,
    /// The PG's version that the change got; ZERO for reads.
    pub version: EVersion,
    pub user_version: u64,
}

fn blank_results(op: &MOsdOp) -> Vec<OpResult> {
    let bare = |op: &OsdOp| OsdOp { code: op.code, flags: op.flags, args: op.args, indata: Bytes::new() };
    op.ops.iter().map(|o| OpResult::new(bare(o), 0, Bytes::new())).collect()
}

fn release<S: ObjectStore>(sh: &mut Shared<S>, request: &Request) {
    if let Origin::Client { .. } = request.origin {
        sh.held_ops -= 1;
        sh.held_bytes -= request.bytes;
    }
}

/// Source: Ceph `src/messages/MOSDOpReply.h` (`set_reply_versions`).
pub(super) fn reply<S: ObjectStore>(sh: &mut Shared<S>, request: Box<Request>, answer: Answer) {
    release(sh, &request);
    let (Origin::Client { session, tid, features, .. }, Work::Op(op, _)) = (request.origin, request.work)
    else {
        return;
    };
    let bad_replay_version = match answer.user_version {
        0 => answer.version,
        user => EVersion { version: user, ..answer.version },
    };
    let message = MOsdOpReply {
        object: op.object,
        pg: op.pg.pg,
        flags: u64::from(op.flags | flags::ACK | flags::ONDISK),
        result: answer.result,
        bad_replay_version,
        epoch: sh.epoch(),
        ops: answer.ops,
        retry_attempt: op.retry_attempt,
        replay_version: answer.version,
        user_version: answer.user_version,
    };
    sh.send_client(session, Outgoing::new(&message, tid, features));
}
