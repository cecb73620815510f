//! A client that takes, renews, releases and breaks locks of class `lock`, and asks who holds
//! them. It remembers nothing of what it holds: all that is right or wrong about the answers
//! [`crate::checkers::lock`] says, from the history.
//!
//! Of one lock the holders may be limited in time; the other one's object is there only while
//! somebody holds it.

use crate::cluster::POOL;
use crate::history::{Call, EPHEMERAL, EXCLUSIVE, LockCall, Locker, Outcome, Renew, SHARED};
use crate::workload::SharedHistory;
use base::{Duration, Errno, Random, Time, WallTime};
use bytes::Bytes;
use client::{Completion, ObjectRequest, RequestId, ops};
use daemon::ClientHost;
use std::collections::BTreeMap;
use wire::messages::osd_op::flags;
use wire::types::{EntityAddr, EntityName, EntityType, PoolId};
use wire::{Decode, DecodeError, Decoder, Encoder, Features};

const OBJECTS: usize = 2;
/// The object whose locks may be limited in time.
const LEASES: usize = 0;
const COOKIES: u64 = 2;
/// At once.
const DEPTH: usize = 2;
const NAME: &str = "l";

pub struct LockClient {
    me: usize,
    history: SharedHistory,
    random: Random,
    /// The operation of the history, and its object.
    pending: BTreeMap<RequestId, (usize, usize)>,
    /// Whoever it has seen as a holder, and by what name that one must be called.
    seen: [BTreeMap<Locker, EntityName>; OBJECTS],
    left: usize,
    /// Objects to be looked at as the last thing.
    last: Vec<usize>,
    pause_us: u64,
    next_at: Time,
}

impl LockClient {
    pub fn new(me: usize, history: SharedHistory, random: Random, steps: usize, pause_us: u64) -> LockClient {
        LockClient {
            me,
            history,
            random,
            pending: BTreeMap::new(),
            seen: Default::default(),
            left: steps,
            last: Vec::new(),
            pause_us,
            next_at: Time::ZERO,
        }
    }

    pub fn is_done(&self) -> bool {
        !self.has_work() && self.pending.is_empty()
    }

    /// What is left to do for whoever takes its place.
    pub fn remaining(&self) -> usize {
        self.left
    }

    fn has_work(&self) -> bool {
        self.left > 0 || !self.last.is_empty()
    }

    pub fn read_everything(&mut self) {
        self.left = 0;
        self.last = (0..OBJECTS).collect();
        self.next_at = Time::ZERO;
    }

    pub fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        let now = host.env.now();
        let Some(pool) = host.client.pool_id(POOL) else {
            self.next_at = now + Duration::from_millis(10);
            return;
        };
        while now >= self.next_at && self.has_work() && self.pending.len() < DEPTH {
            match self.last.pop() {
                Some(object) => self.submit(host, pool, object, LockCall::Info),
                None => {
                    self.left -= 1;
                    let object = self.random.below(OBJECTS as u64) as usize;
                    let call = self.draw(object);
                    self.submit(host, pool, object, call);
                }
            }
            self.next_at = now + Duration::from_micros(self.random.below(2 * self.pause_us + 1));
        }
    }

    fn draw(&mut self, object: usize) -> LockCall {
        let cookie = self.random.below(COOKIES) as u8;
        let exclusive = if object == LEASES { EXCLUSIVE } else { EPHEMERAL };
        let kind = if self.random.chance(2, 3) { exclusive } else { SHARED };
        let nth = self.random.below(self.seen[object].len().max(1) as u64) as usize;
        match (self.random.below(16), self.seen[object].keys().nth(nth)) {
            (0..=2, _) => LockCall::Info,
            (3 | 4, Some(locker)) => LockCall::Break(*locker),
            (5, _) => LockCall::Assert { kind, cookie },
            (6, _) => LockCall::Rename { kind, cookie, to: self.random.below(COOKIES) as u8 },
            (7..=10, _) => LockCall::Release { cookie },
            _ => LockCall::Take {
                kind,
                cookie,
                renew: [Renew::Not, Renew::Not, Renew::May, Renew::Must][self.random.below(4) as usize],
                expires: object == LEASES && self.random.chance(1, 4),
            },
        }
    }

    fn submit(&mut self, host: &mut ClientHost<'_>, pool: PoolId, object: usize, call: LockCall) {
        let (method, writes, input) = self.encode(object, &call);
        let name = format!("lock-{object}");
        let mut request = ObjectRequest::new(pool, &*name, vec![ops::call("lock", method, &input)]);
        request.extra_flags = if writes { flags::WRITE } else { 0 };
        let mut history = self.history.borrow_mut();
        let operation = history.invoke(self.me, &name, Call::Lock(call));
        if let Some(map) = host.client.map() {
            history.note_map(operation, map);
        }
        let id = host.client.submit(request, host.env.wall());
        self.pending.insert(id, (operation, object));
    }

    fn encode(&mut self, object: usize, call: &LockCall) -> (&'static str, bool, Bytes) {
        let mut e = Encoder::plain();
        let cookie_of = |e: &mut Encoder, cookie: u8| e.blob(&[b'c', cookie]);
        let (method, writes) = match call {
            LockCall::Take { kind, cookie, renew, expires } => {
                let sec = if *expires { 1 + self.random.below(3) as u32 } else { 0 };
                e.versioned(1, 1, |e| {
                    e.string(NAME);
                    e.u8(*kind);
                    cookie_of(e, *cookie);
                    e.string("");
                    e.string("sim");
                    e.put(&WallTime { sec, nsec: 0 });
                    e.u8(match renew {
                        Renew::Not => 0,
                        Renew::May => 1,
                        Renew::Must => 2,
                    });
                });
                ("lock", true)
            }
            LockCall::Release { cookie } => {
                e.versioned(1, 1, |e| {
                    e.string(NAME);
                    cookie_of(e, *cookie);
                });
                ("unlock", true)
            }
            LockCall::Break(locker) => {
                e.versioned(1, 1, |e| {
                    e.string(NAME);
                    e.put(&self.seen[object][locker]);
                    cookie_of(e, locker.1);
                });
                ("break_lock", true)
            }
            LockCall::Rename { kind, cookie, .. } | LockCall::Assert { kind, cookie } => {
                e.versioned(1, 1, |e| {
                    e.string(NAME);
                    e.u8(*kind);
                    cookie_of(e, *cookie);
                    e.string("");
                    if let LockCall::Rename { to, .. } = call {
                        cookie_of(e, *to);
                    }
                });
                let renames = matches!(call, LockCall::Rename { .. });
                (if renames { "set_cookie" } else { "assert_locked" }, renames)
            }
            LockCall::Info => {
                e.versioned(1, 1, |e| e.string(NAME));
                ("get_info", false)
            }
        };
        (method, writes, e.finish())
    }

    /// False if it is not about one of ours.
    pub fn on_completion(&mut self, id: RequestId, completion: &Completion) -> bool {
        let Completion::Object { result, ops, .. } = completion else { return false };
        let Some((operation, object)) = self.pending.remove(&id) else { return false };
        let outdata = ops.first().map(|op| op.outdata.clone()).unwrap_or_default();
        let mut history = self.history.borrow_mut();
        let info = history.operations[operation].call == Call::Lock(LockCall::Info);
        let errno = Errno(-*result);
        let outcome = match errno {
            Errno(0) if info => match Lockers::from_bytes(outdata, Features::ALL) {
                Ok(found) => lockers(&found, &history.addresses, &mut self.seen[object]),
                Err(error) => Outcome::Garbage(error.to_string()),
            },
            Errno(0) => Outcome::Done,
            // The object is not there, so nobody holds its lock.
            Errno::ENOENT if info => Outcome::Lockers { kind: EXCLUSIVE, lockers: Default::default() },
            Errno::ENOENT | Errno::EBUSY | Errno::EEXIST => Outcome::Refused(errno),
            _ => Outcome::Failed(*result),
        };
        history.complete(operation, outcome);
        true
    }

    pub fn next_wake(&self) -> Time {
        if self.has_work() && self.pending.len() < DEPTH { self.next_at } else { Time::MAX }
    }
}

/// What `get_info` answers: `cls_lock_get_info_reply`.
struct Lockers {
    kind: u8,
    lockers: Vec<(EntityName, Bytes, EntityAddr)>,
}

impl Decode for Lockers {
    fn decode(d: &mut Decoder) -> Result<Self, DecodeError> {
        d.versioned("lock info", 1, |d, _| {
            let mut lockers = Vec::new();
            for _ in 0..d.u32()? {
                let (name, cookie) = d.versioned("locker", 1, |d, _| Ok((d.get()?, d.get()?)))?;
                let addr = d.versioned("locker info", 1, |d, _| {
                    let (_expiration, addr) = (d.get::<WallTime>()?, d.get()?);
                    d.blob()?;
                    Ok(addr)
                })?;
                lockers.push((name, cookie, addr));
            }
            let kind = d.u8()?;
            d.blob()?;
            Ok(Lockers { kind, lockers })
        })
    }
}

/// As the history calls them: by the life of a client, which its address tells.
fn lockers(found: &Lockers, lives: &[EntityAddr], seen: &mut BTreeMap<Locker, EntityName>) -> Outcome {
    let mut all = Outcome::Lockers { kind: found.kind, lockers: Default::default() };
    for (name, cookie, addr) in &found.lockers {
        let life = lives.iter().position(|life| life.nonce == addr.nonce);
        match (&mut all, life, &cookie[..]) {
            (Outcome::Lockers { lockers, .. }, Some(life), [b'c', cookie])
                if name.kind == EntityType::Client =>
            {
                lockers.insert((life, *cookie));
                seen.insert((life, *cookie), *name);
            }
            _ => return Outcome::Garbage(format!("locker {name} at {addr} with cookie {cookie:?}")),
        }
    }
    all
}
