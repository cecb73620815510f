//! A client that has an image: objects that it alone writes, and snapshots whose ids it has the
//! monitor draw and sends along itself (self-managed ones, as librbd's). Several requests are
//! under way at once, also while a snapshot is taken.
//!
//! What must hold: requests to an object take effect in their order, and a snapshot separates
//! those sent with it from those sent without. So what a read at a snapshot must return is known
//! when it is taken, for as long as it exists. A read of a head returns what had been sent before
//! it, or, since it may have to be sent again, what was sent until it was answered.

use crate::cluster::POOL;
use crate::workload::content;
use base::{Duration, Errno, Random, Time};
use bytes::Bytes;
use client::{Completion, ObjectRequest, RequestId, ops};
use daemon::ClientHost;
use std::collections::{BTreeMap, VecDeque};
use tracing::debug;
use wire::Decoder;
use wire::messages::osd_op::{ExtentArgs, OpCode, SnapArgs};
use wire::messages::{OsdOp, PoolOpKind};
use wire::types::{PoolId, SnapId};

const OBJECTS: usize = 3;
/// At once; more are not taken before others are removed.
const SNAPSHOTS_MAX: usize = 6;
const DEPTH: usize = 4;
/// Where writes of a part begin and how long they are, at most.
const PART_MAX: u64 = 24 << 10;

/// What each object holds, if it is there.
type Contents = [Option<Bytes>; OBJECTS];

#[derive(Clone, PartialEq, Eq, Debug)]
enum Expected {
    Done,
    Missing,
    Content(Bytes),
}

#[derive(Debug)]
struct Asked {
    /// For the story of a violation.
    what: String,
    /// A read of this object's head.
    head: Option<usize>,
    /// One of these.
    expected: Vec<Expected>,
}

/// A snapshot leaves the context first; when nothing is under way that still has it, it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Removal {
    Draining(SnapId),
    Asked(RequestId),
}

#[derive(Debug)]
pub struct ImageClient {
    random: Random,
    /// Of the context; the snapshots are the keys below.
    seq: SnapId,
    heads: Contents,
    snapshots: BTreeMap<SnapId, Contents>,
    pending: BTreeMap<RequestId, Asked>,
    taking: Option<RequestId>,
    removal: Option<Removal>,
    last: VecDeque<(usize, Option<SnapId>)>,
    left: usize,
    tokens: u64,
    pause_us: u64,
    next_at: Time,
    pub violations: Vec<String>,
}

impl ImageClient {
    pub fn new(mut random: Random, steps: usize, pause_us: u64) -> ImageClient {
        ImageClient {
            random: random.fork(),
            seq: SnapId(0),
            heads: Contents::default(),
            snapshots: BTreeMap::new(),
            pending: BTreeMap::new(),
            taking: None,
            removal: None,
            last: VecDeque::new(),
            left: steps,
            tokens: 0,
            pause_us,
            next_at: Time::ZERO,
            violations: Vec::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        !self.has_work() && self.pending.is_empty() && self.taking.is_none() && self.removal.is_none()
    }

    fn has_work(&self) -> bool {
        self.left > 0 || !self.last.is_empty()
    }

    /// Snapshots that exist.
    pub fn alive(&self) -> impl Iterator<Item = SnapId> + '_ {
        self.snapshots.keys().copied()
    }

    /// Everything once more, as the last thing.
    pub fn read_everything(&mut self) {
        for snap in self.snapshots.keys().copied().map(Some).chain([None]) {
            self.last.extend((0..OBJECTS).map(|object| (object, snap)));
        }
        self.next_at = Time::ZERO;
    }

    pub fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        let now = host.env.now();
        let Some(pool) = host.client.pool_id(POOL) else {
            self.next_at = now + Duration::from_millis(10);
            return;
        };
        if let Some(Removal::Draining(snap)) = self.removal
            && self.pending.is_empty()
        {
            let id = host.client.pool_op(pool, PoolOpKind::DeleteUnmanagedSnap, snap);
            self.removal = Some(Removal::Asked(id));
        }
        while now >= self.next_at && self.may_submit() {
            match self.last.pop_front() {
                Some((object, snap)) => self.read(host, pool, object, snap),
                None => {
                    self.left -= 1;
                    self.step(host, pool);
                }
            }
            self.next_at = now + Duration::from_micros(self.random.below(2 * self.pause_us + 1));
        }
    }

    fn may_submit(&self) -> bool {
        let draining = matches!(self.removal, Some(Removal::Draining(_)));
        self.has_work() && self.pending.len() < DEPTH && !draining
    }

    fn any_snapshot(&mut self) -> Option<SnapId> {
        let count = self.snapshots.len() as u64;
        let nth = self.random.below(count.max(1)) as usize;
        self.snapshots.keys().nth(nth).copied()
    }

    fn step(&mut self, host: &mut ClientHost<'_>, pool: PoolId) {
        let object = self.random.below(OBJECTS as u64) as usize;
        let any = self.any_snapshot();
        match (self.random.below(16), any) {
            (0 | 1, _) if self.snapshots.len() < SNAPSHOTS_MAX && self.taking.is_none() => {
                self.taking = Some(host.client.pool_op(pool, PoolOpKind::CreateUnmanagedSnap, SnapId(0)));
            }
            (2, Some(snap)) if self.removal.is_none() => {
                self.snapshots.remove(&snap);
                self.removal = Some(Removal::Draining(snap));
            }
            (3, Some(snap)) => {
                let args = SnapArgs { snap: snap.0 }.into_args();
                let after = self.snapshots[&snap][object].clone();
                self.write(host, pool, object, OsdOp::new(OpCode::ROLLBACK, args, Bytes::new()), after);
            }
            (4..=7, snap) => self.read(host, pool, object, snap),
            (8, _) if self.heads[object].is_some() => self.write(host, pool, object, ops::delete(), None),
            (9 | 10, _) => {
                let data = self.new_content();
                self.write(host, pool, object, ops::write_full(data.clone()), Some(data));
            }
            (way, _) => self.change_part(host, pool, object, way == 11),
        }
    }

    fn new_content(&mut self) -> Bytes {
        self.tokens += 1;
        // Apart from the other workloads' tokens.
        content((2 << 40) + self.tokens)
    }

    fn change_part(&mut self, host: &mut ClientHost<'_>, pool: PoolId, object: usize, cut: bool) {
        let mut bytes = self.heads[object].clone().unwrap_or_default().to_vec();
        if cut && !bytes.is_empty() {
            let size = self.random.below(bytes.len() as u64);
            bytes.truncate(size as usize);
            self.write(host, pool, object, ops::truncate(size), Some(bytes.into()));
            return;
        }
        let aligned = if self.random.chance(1, 2) { 4096 } else { 1 };
        let offset = (self.random.below(PART_MAX) / aligned * aligned) as usize;
        let data = self.new_content();
        let data = data.slice(..data.len().min(PART_MAX as usize));
        let end = offset + data.len();
        // Zeroes within what there is (those that reach the end cut it off, as in Ceph); else data.
        let (op, data) = if end < bytes.len() && self.random.chance(1, 4) {
            let args = ExtentArgs::new(offset as u64, data.len() as u64).into_args();
            (OsdOp::new(OpCode::ZERO, args, Bytes::new()), Bytes::from(vec![0; data.len()]))
        } else {
            (ops::write(offset as u64, data.clone()), data)
        };
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset..end].copy_from_slice(&data);
        self.write(host, pool, object, op, Some(bytes.into()));
    }

    fn write(&mut self, host: &mut ClientHost<'_>, pool: PoolId, i: usize, op: OsdOp, after: Option<Bytes>) {
        let what = format!("{:?} of image-{i} in {:?}", op.code, self.seq);
        let seen = after.clone().map_or(Expected::Missing, Expected::Content);
        for read in self.pending.values_mut().filter(|asked| asked.head == Some(i)) {
            read.expected.push(seen.clone());
        }
        self.heads[i] = after;
        let mut request = ObjectRequest::new(pool, format!("image-{i}"), vec![op]);
        request.snap_seq = self.seq;
        request.snaps = self.snapshots.keys().rev().copied().collect();
        let id = host.client.submit(request, host.env.wall());
        debug!(id = id.0, what, len = self.heads[i].as_ref().map(Bytes::len), "image");
        self.pending.insert(id, Asked { what, head: None, expected: vec![Expected::Done] });
    }

    fn read(&mut self, host: &mut ClientHost<'_>, pool: PoolId, i: usize, snap: Option<SnapId>) {
        let contents = snap.map_or(&self.heads, |snap| &self.snapshots[&snap]);
        let expected = contents[i].clone().map_or(Expected::Missing, Expected::Content);
        let mut request = ObjectRequest::new(pool, format!("image-{i}"), vec![ops::read(0, 0)]);
        request.snap = snap.unwrap_or(SnapId::HEAD);
        let id = host.client.submit(request, host.env.wall());
        let what = format!("read of image-{i} at {snap:?}");
        debug!(id = id.0, what, "image");
        self.pending.insert(id, Asked { what, head: snap.is_none().then_some(i), expected: vec![expected] });
    }

    /// False if it is not about one of ours.
    pub fn on_completion(&mut self, id: RequestId, completion: &Completion) -> bool {
        match completion {
            Completion::Command { result, output, .. } if self.taking == Some(id) => {
                self.taking = None;
                self.on_taken(*result, output);
            }
            Completion::Command { result, .. } if self.removal == Some(Removal::Asked(id)) => {
                self.removal = None;
                if *result != 0 {
                    self.violations.push(format!("image: removing a snapshot failed with {result}"));
                }
            }
            Completion::Object { result, ops, .. } => {
                let Some(asked) = self.pending.remove(&id) else { return false };
                debug!(id = id.0, result, "image: answered");
                let data = ops.first().map(|op| op.outdata.clone()).unwrap_or_default();
                let seen = |expected: &Expected| match expected {
                    Expected::Done => *result == 0,
                    Expected::Missing => *result == Errno::ENOENT.negative(),
                    Expected::Content(bytes) => *result >= 0 && data == *bytes,
                };
                if !asked.expected.iter().any(seen) {
                    self.violations.push(told(&asked, *result, &data));
                }
            }
            Completion::Command { .. } | Completion::Notify { .. } => return false,
        }
        true
    }

    /// From here on requests have it in their context.
    fn on_taken(&mut self, result: i32, output: &Bytes) {
        match Decoder::plain(output.clone()).u64() {
            Ok(id) if result == 0 && id > self.seq.0 => {
                self.seq = SnapId(id);
                self.snapshots.insert(self.seq, self.heads.clone());
                debug!(id, "image: snapshot taken");
            }
            id => self.violations.push(format!("image: a snapshot {id:?} was taken, with {result}")),
        }
    }

    pub fn next_wake(&self) -> Time {
        if self.may_submit() { self.next_at } else { Time::MAX }
    }
}

fn told(asked: &Asked, result: i32, data: &Bytes) -> String {
    let expected = match asked.expected.as_slice() {
        [Expected::Content(bytes), ..] => {
            let same = bytes.iter().zip(data.iter()).take_while(|(a, b)| a == b).count();
            format!("instead of token: {} bytes, of which the first {same} are the same", bytes.len())
        }
        other => format!("instead of {other:?}"),
    };
    format!("image: {}: result {result}, {} bytes {expected}", asked.what, data.len())
}
