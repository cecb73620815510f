//! A client that takes, reads, rolls back to and removes snapshots of objects that it
//! alone writes, one request at a time: so it knows what each snapshot must show.
//!
//! What must hold: as long as a snapshot exists, a read at it returns what each object
//! was when it was taken, and ENOENT of objects that were not there.

use crate::workload::content;
use base::{Duration, Errno, Random, Time};
use client::{Completion, ObjectRequest, RequestId, ops};
use daemon::ClientHost;
use std::collections::{BTreeMap, VecDeque};
use wire::messages::OsdOp;
use wire::messages::osd_op::{OpCode, SnapArgs};
use wire::types::SnapId;

pub const SNAP_POOL: &str = "snapshots";
pub const SNAP_PGS: u32 = 2;
const OBJECTS: usize = 4;
/// At once; more are not taken before others are removed.
const SNAPSHOTS_MAX: usize = 5;

/// What each object is: the token of its content, if it is there.
type Contents = [Option<u64>; OBJECTS];

#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Write {
        object: usize,
        token: u64,
    },
    Delete {
        object: usize,
    },
    RollBack {
        object: usize,
        name: String,
    },
    /// Of the head, or of a snapshot.
    Read {
        object: usize,
        name: Option<String>,
    },
    Take {
        name: String,
    },
    Remove {
        name: String,
    },
}

#[derive(Debug)]
struct Snapshot {
    id: SnapId,
    contents: Contents,
}

#[derive(Debug)]
pub struct SnapshotClient {
    random: Random,
    heads: Contents,
    snapshots: BTreeMap<String, Snapshot>,
    pending: Option<(RequestId, Step)>,
    /// Taken at the monitor; our map does not show it yet.
    expected: Option<String>,
    last: VecDeque<Step>,
    left: usize,
    named: u64,
    pause_us: u64,
    next_at: Time,
    pub violations: Vec<String>,
}

impl SnapshotClient {
    pub fn new(mut random: Random, steps: usize, pause_us: u64) -> SnapshotClient {
        let random = random.fork();
        SnapshotClient {
            random,
            heads: [None; OBJECTS],
            snapshots: BTreeMap::new(),
            pending: None,
            expected: None,
            last: VecDeque::new(),
            left: steps,
            named: 0,
            pause_us,
            next_at: Time::ZERO,
            violations: Vec::new(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.left == 0 && self.last.is_empty() && self.pending.is_none() && self.expected.is_none()
    }

    /// Snapshots that exist.
    pub fn alive(&self) -> impl Iterator<Item = SnapId> + '_ {
        self.snapshots.values().map(|snapshot| snapshot.id)
    }

    /// Everything once more, as the last thing.
    pub fn read_everything(&mut self) {
        let names = self.snapshots.keys().cloned().map(Some).chain([None]);
        for name in names.collect::<Vec<_>>() {
            self.last.extend((0..OBJECTS).map(|object| Step::Read { object, name: name.clone() }));
        }
        self.next_at = Time::ZERO;
    }

    fn draw(&mut self) -> Step {
        let object = self.random.below(OBJECTS as u64) as usize;
        let count = self.snapshots.len() as u64;
        let any = match count {
            0 => None,
            _ => self.snapshots.keys().nth(self.random.below(count) as usize).cloned(),
        };
        self.named += 1;
        match (self.random.below(12), any) {
            (0 | 1, _) if self.snapshots.len() < SNAPSHOTS_MAX => {
                Step::Take { name: format!("s{}", self.named) }
            }
            (2, Some(name)) => Step::Remove { name },
            (3, Some(name)) => Step::RollBack { object, name },
            (4..=6, name) => Step::Read { object, name },
            (7, _) if self.heads[object].is_some() => Step::Delete { object },
            // Apart from the other workload's tokens.
            _ => Step::Write { object, token: (1 << 40) + self.named },
        }
    }

    pub fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        let now = host.env.now();
        let Some(pool) = host.client.pool_id(SNAP_POOL) else {
            self.next_at = now + Duration::from_millis(10);
            return;
        };
        if let Some(name) = &self.expected {
            let known = host.client.map().and_then(|map| map.pool(pool)).and_then(|p| p.snap_by_name(name));
            let Some(id) = known.map(|info| info.snapid) else { return };
            // Nothing is under way: this is what it shows for ever.
            self.snapshots.insert(name.clone(), Snapshot { id, contents: self.heads });
            self.expected = None;
        }
        if self.pending.is_some() || now < self.next_at || (self.left == 0 && self.last.is_empty()) {
            return;
        }
        let step = match self.last.pop_front() {
            Some(step) => step,
            None => {
                self.left -= 1;
                self.draw()
            }
        };
        self.next_at = now + Duration::from_micros(self.random.below(2 * self.pause_us + 1));
        let id = match self.request(&step) {
            Err(command) => host.client.command(command, bytes::Bytes::new()),
            Ok((object, snap, op)) => {
                let mut request = ObjectRequest::new(pool, format!("snap-{object}"), vec![op]);
                request.snap = snap;
                host.client.submit(request, host.env.wall())
            }
        };
        self.pending = Some((id, step));
    }

    /// An operation on an object, or a command.
    fn request(&self, step: &Step) -> Result<(usize, SnapId, OsdOp), String> {
        let id = |name: &String| self.snapshots[name].id;
        let command = |what: &str, name: &str| {
            format!(r#"{{"prefix":"osd pool {what}","pool":"{SNAP_POOL}","snap":"{name}"}}"#)
        };
        Ok(match step {
            Step::Write { object, token } => (*object, SnapId::HEAD, ops::write_full(content(*token))),
            Step::Delete { object } => (*object, SnapId::HEAD, ops::delete()),
            Step::RollBack { object, name } => {
                let args = SnapArgs { snap: id(name).0 }.into_args();
                (*object, SnapId::HEAD, OsdOp::new(OpCode::ROLLBACK, args, bytes::Bytes::new()))
            }
            Step::Read { object, name } => (*object, name.as_ref().map_or(SnapId::HEAD, id), ops::read(0, 0)),
            Step::Take { name } => return Err(command("mksnap", name)),
            Step::Remove { name } => return Err(command("rmsnap", name)),
        })
    }

    /// False if it is not about one of ours.
    pub fn on_completion(&mut self, id: RequestId, completion: &Completion) -> bool {
        if self.pending.as_ref().is_none_or(|(pending, _)| *pending != id) {
            return false;
        }
        let Some((_, step)) = self.pending.take() else { return false };
        let (result, data) = match completion {
            Completion::Command { result, .. } => (*result, None),
            Completion::Object { result, ops, .. } => (*result, ops.first().map(|op| op.outdata.clone())),
            Completion::Notify { .. } => unreachable!("snapshots notify nobody"),
        };
        let missing = result == Errno::ENOENT.negative();
        match &step {
            Step::Write { object, token } if result == 0 => self.heads[*object] = Some(*token),
            Step::Delete { object } if result == 0 => self.heads[*object] = None,
            Step::RollBack { object, name } if result == 0 => {
                self.heads[*object] = self.snapshots[name].contents[*object];
            }
            Step::Read { object, name } => {
                let expected = match name {
                    Some(name) => self.snapshots[name].contents[*object],
                    None => self.heads[*object],
                };
                let seen = match expected {
                    None => missing,
                    Some(token) => result >= 0 && data.as_ref().is_some_and(|data| *data == content(token)),
                };
                if !seen {
                    let len = data.map_or(0, |data| data.len());
                    self.violations.push(format!("snapshot {name:?} of snap-{object}: result {result}, {len} bytes instead of token {expected:?}"));
                }
            }
            Step::Take { name } if result == 0 => self.expected = Some(name.clone()),
            Step::Remove { name } if result == 0 => _ = self.snapshots.remove(name),
            _ => self.violations.push(format!("snapshots: {step:?} failed with {result}")),
        }
        true
    }

    pub fn next_wake(&self) -> Time {
        let idle = self.left == 0 && self.last.is_empty();
        if idle || self.pending.is_some() || self.expected.is_some() { Time::MAX } else { self.next_at }
    }
}
