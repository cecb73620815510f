//! A client that works on a few shared objects and writes down what happened.

use crate::history::{Call, History, Outcome};
use crate::images::ImageClient;
use crate::locks::LockClient;
use crate::snapshots::SnapshotClient;
use crate::watches::WatchClient;
use base::{Duration, Errno, Random, Time};
use bytes::Bytes;
use client::{Completion, ObjectRequest, RequestId, WatchEvent, WatchId, ops};
use daemon::{ClientHost, Workload};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::messages::OpResult;
use wire::messages::OsdOp;
use wire::messages::osd_op::OpCode;
use wire::types::PoolId;
use wire::{Decoder, Encoder};

pub type SharedHistory = Rc<RefCell<History>>;

#[derive(Clone, Debug)]
pub struct WorkloadPlan {
    pub pool: String,
    pub append_objects: usize,
    pub register_objects: usize,
    /// Operations at once.
    pub depth: usize,
    /// Operations before it stops.
    pub operations: usize,
    /// Mean pause between operations.
    pub think_us: u64,
}

pub struct ModelWorkload {
    me: usize,
    plan: WorkloadPlan,
    history: SharedHistory,
    random: Random,
    /// Some clients only look: their requests are not held up behind writes of
    /// their own that cannot complete, so they see most of what a split does.
    only_reads: bool,
    pending: BTreeMap<RequestId, usize>,
    submitted: usize,
    next_at: Time,
    /// Reads each object once, as the last thing.
    final_reads: Option<Vec<String>>,
    /// One client of a cluster works with snapshots, too: of a pool,
    pub snapshots: Option<SnapshotClient>,
    /// and of its own.
    pub image: Option<ImageClient>,
    /// In some runs every client has to do with locks, or with watches.
    pub locks: Option<LockClient>,
    pub watches: Option<WatchClient>,
}

impl ModelWorkload {
    pub fn new(me: usize, plan: WorkloadPlan, history: SharedHistory, mut random: Random) -> ModelWorkload {
        let only_reads = me > 0 && random.chance(1, 3);
        ModelWorkload {
            me,
            plan,
            history,
            random,
            only_reads,
            pending: BTreeMap::new(),
            submitted: 0,
            next_at: Time::ZERO,
            final_reads: None,
            snapshots: None,
            image: None,
            locks: None,
            watches: None,
        }
    }

    pub fn is_done(&self) -> bool {
        self.submitted >= self.plan.operations
            && self.pending.is_empty()
            && self.snapshots.as_ref().is_none_or(SnapshotClient::is_done)
            && self.image.as_ref().is_none_or(ImageClient::is_done)
            && self.locks.as_ref().is_none_or(LockClient::is_done)
            && self.watches.as_ref().is_none_or(WatchClient::is_done)
    }

    /// What is left to do for whoever takes its place.
    pub fn remaining(&self) -> usize {
        self.plan.operations - self.submitted
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// No more changes: one read of each object, whose answers end the history.
    pub fn read_everything(&mut self) {
        self.submitted = self.plan.operations;
        let appends = (0..self.plan.append_objects).map(append_name);
        self.final_reads = Some(appends.chain((0..self.plan.register_objects).map(register_name)).collect());
        self.next_at = Time::ZERO;
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.read_everything();
        }
        if let Some(image) = &mut self.image {
            image.read_everything();
        }
        if let Some(locks) = &mut self.locks {
            locks.read_everything();
        }
        if let Some(watches) = &mut self.watches {
            watches.finish();
        }
    }

    fn submit(&mut self, host: &mut ClientHost<'_>, pool: PoolId, object: String, call: Call) {
        let request = ObjectRequest::new(pool, &*object, request_ops(&call));
        let operation = self.history.borrow_mut().invoke(self.me, &object, call);
        if let Some(map) = host.client.map() {
            self.history.borrow_mut().note_map(operation, map);
        }
        let wall = host.env.wall();
        let id = host.client.submit(request, wall);
        self.pending.insert(id, operation);
    }

    fn submit_random(&mut self, host: &mut ClientHost<'_>, pool: PoolId) {
        let objects = self.plan.append_objects + self.plan.register_objects;
        let i = self.random.below(objects as u64) as usize;
        let (object, call) = if i < self.plan.append_objects {
            let call = match self.random.below(3) {
                _ if self.only_reads => Call::ReadList,
                0 => Call::ReadList,
                _ => Call::Append(self.history.borrow_mut().new_token()),
            };
            (append_name(i), call)
        } else {
            let call = match self.random.below(8) {
                _ if self.only_reads => Call::Read,
                0 => Call::Delete,
                1..=4 => Call::Read,
                _ => Call::WriteFull(self.history.borrow_mut().new_token()),
            };
            (register_name(i - self.plan.append_objects), call)
        };
        self.submitted += 1;
        self.submit(host, pool, object, call);
    }
}

fn append_name(i: usize) -> String {
    format!("append-{i}")
}

fn register_name(i: usize) -> String {
    format!("register-{i}")
}

fn request_ops(call: &Call) -> Vec<OsdOp> {
    match call {
        Call::Append(token) => {
            let key = Bytes::copy_from_slice(&token.to_be_bytes());
            vec![
                ops::append(Bytes::copy_from_slice(&token.to_le_bytes())),
                ops::omap_set(BTreeMap::from([(key, Bytes::from_static(b"x"))])),
            ]
        }
        Call::ReadList => vec![ops::read(0, 0), omap_keys()],
        Call::WriteFull(token) => vec![ops::write_full(content(*token))],
        Call::Delete => vec![ops::delete()],
        Call::Read => vec![ops::read(0, 0)],
        Call::Lock(_) => unreachable!("locks have a client of their own"),
    }
}

fn omap_keys() -> OsdOp {
    let mut e = Encoder::plain();
    e.string("");
    e.u64(1000);
    OsdOp::new(OpCode::OMAPGETKEYS, [0; 28], e.finish())
}

/// A token's content: its length varies from a few bytes to past the store's
/// limit for small writes, and every byte follows from the token.
pub fn content(token: u64) -> Bytes {
    let mut random = Random::from_seed(token);
    let len = match random.below(10) {
        0 => 100_000 + random.below(100_000),
        1..=3 => 4096 * (1 + random.below(8)),
        _ => 16 + random.below(6000),
    } as usize;
    let mut data = Vec::with_capacity(len + 8);
    data.extend(token.to_le_bytes());
    while data.len() < len {
        data.extend(random.next_u64().to_le_bytes());
    }
    data.truncate(len.max(8));
    Bytes::from(data)
}

fn outcome_of(call: &Call, result: i32, ops: &[OpResult]) -> Outcome {
    let missing = result == Errno::ENOENT.negative();
    match call {
        Call::Append(_) | Call::WriteFull(_) if result == 0 => Outcome::Done,
        Call::Delete if result == 0 => Outcome::Done,
        Call::Delete if missing => Outcome::Missing,
        Call::ReadList if missing => Outcome::List { data: vec![], omap: vec![] },
        Call::Read if missing => Outcome::Value(None),
        Call::ReadList if result >= 0 => parse_list(ops),
        Call::Read if result >= 0 => parse_value(ops),
        _ => Outcome::Failed(result),
    }
}

fn parse_list(ops: &[OpResult]) -> Outcome {
    let [data, keys] = ops else { return Outcome::Garbage("not two results".into()) };
    if data.outdata.len() % 8 != 0 {
        return Outcome::Garbage(format!("{} bytes of tokens", data.outdata.len()));
    }
    let tokens = data.outdata.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes")));
    let keys: Result<Vec<Bytes>, _> = Decoder::plain(keys.outdata.clone()).get();
    let omap: Option<Vec<u64>> = keys
        .unwrap_or_default()
        .iter()
        .map(|k| <[u8; 8]>::try_from(&k[..]).ok().map(u64::from_be_bytes))
        .collect();
    match omap {
        Some(omap) => Outcome::List { data: tokens.collect(), omap },
        None => Outcome::Garbage("omap key of a strange length".into()),
    }
}

fn parse_value(ops: &[OpResult]) -> Outcome {
    let Some(data) = ops.first().map(|op| &op.outdata) else {
        return Outcome::Garbage("no result".into());
    };
    let Some(head) = data.first_chunk::<8>() else {
        return Outcome::Garbage(format!("{} bytes", data.len()));
    };
    let token = u64::from_le_bytes(*head);
    match content(token) == *data {
        true => Outcome::Value(Some(token)),
        false => Outcome::Garbage(format!("{} bytes that start with token {token}", data.len())),
    }
}

impl Workload for ModelWorkload {
    fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.on_batch_end(host);
        }
        if let Some(image) = &mut self.image {
            image.on_batch_end(host);
        }
        if let Some(locks) = &mut self.locks {
            locks.on_batch_end(host);
        }
        if let Some(watches) = &mut self.watches {
            watches.on_batch_end(host);
        }
        let Some(pool) = host.client.pool_id(&self.plan.pool) else {
            self.next_at = host.env.now() + Duration::from_millis(10);
            return;
        };
        if let Some(objects) = self.final_reads.take() {
            for object in objects {
                let call = if object.starts_with("append") { Call::ReadList } else { Call::Read };
                self.submit(host, pool, object, call);
            }
        }
        let now = host.env.now();
        while now >= self.next_at
            && self.pending.len() < self.plan.depth
            && self.submitted < self.plan.operations
        {
            self.submit_random(host, pool);
            self.next_at = now + Duration::from_micros(self.random.below(2 * self.plan.think_us + 1));
        }
    }

    fn on_completion(&mut self, _: &mut ClientHost<'_>, id: RequestId, completion: Completion) {
        if self.snapshots.as_mut().is_some_and(|snapshots| snapshots.on_completion(id, &completion))
            || self.image.as_mut().is_some_and(|image| image.on_completion(id, &completion))
            || self.locks.as_mut().is_some_and(|locks| locks.on_completion(id, &completion))
            || self.watches.as_mut().is_some_and(|watches| watches.on_completion(id, &completion))
        {
            return;
        }
        let Some(operation) = self.pending.remove(&id) else { return };
        let Completion::Object { result, ops, .. } = completion else { return };
        let mut history = self.history.borrow_mut();
        let outcome = outcome_of(&history.operations[operation].call.clone(), result, &ops);
        history.complete(operation, outcome);
    }

    fn on_watch(&mut self, host: &mut ClientHost<'_>, watch: WatchId, event: WatchEvent) {
        let watches = self.watches.as_mut().expect("whoever watches is there to hear of it");
        watches.on_watch(host, watch, event);
    }

    fn next_wake(&self) -> Time {
        let idle = self.submitted >= self.plan.operations && self.final_reads.is_none();
        let own = if idle || self.pending.len() >= self.plan.depth { Time::MAX } else { self.next_at };
        let snapshots = self.snapshots.as_ref().map_or(Time::MAX, SnapshotClient::next_wake);
        let image = self.image.as_ref().map_or(Time::MAX, ImageClient::next_wake);
        let locks = self.locks.as_ref().map_or(Time::MAX, LockClient::next_wake);
        let watches = self.watches.as_ref().map_or(Time::MAX, WatchClient::next_wake);
        own.min(snapshots).min(image).min(locks).min(watches)
    }
}
