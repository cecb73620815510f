//! What clients asked and were told, in the order it happened.
//!
//! The world runs on one thread, so an entry's index is real time: an operation
//! that returned at index 5 ended before one invoked at index 6 began.

use crate::watch_history::{Listed, Notified, Watched};
use base::Errno;
use std::collections::{BTreeMap, BTreeSet};
use wire::maps::OsdMap;
use wire::types::EntityAddr;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Adds the token to the object's data and, in the same request, to its omap.
    Append(u64),
    /// Data and omap keys of an append object in one request.
    ReadList,
    WriteFull(u64),
    Delete,
    Read,
    Lock(LockCall),
}

/// Types of locks.
pub const EXCLUSIVE: u8 = 1;
pub const SHARED: u8 = 2;
/// Exclusive; the object goes with the lock.
pub const EPHEMERAL: u8 = 3;

/// A client and its cookie.
pub type Locker = (usize, u8);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renew {
    Not,
    /// Taking a lock that one holds renews it.
    May,
    /// Only renewing is wanted.
    Must,
}

/// Methods of class `lock`, on the one lock that an object has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockCall {
    Take {
        kind: u8,
        cookie: u8,
        renew: Renew,
        expires: bool,
    },
    Release {
        cookie: u8,
    },
    Break(Locker),
    /// A held lock gets another cookie.
    Rename {
        kind: u8,
        cookie: u8,
        to: u8,
    },
    Assert {
        kind: u8,
        cookie: u8,
    },
    Info,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Tokens in the data, tokens in the omap; empty for a missing object.
    List { data: Vec<u64>, omap: Vec<u64> },
    /// The token that the content was made from; `None` for a missing object.
    Value(Option<u64>),
    /// A write took effect.
    Done,
    /// A delete found nothing.
    Missing,
    /// Who holds a lock.
    Lockers { kind: u8, lockers: BTreeSet<Locker> },
    /// A lock's method said no, and did nothing.
    Refused(Errno),
    /// Any other answer: a write may have taken effect or not.
    Failed(i32),
    /// The content is none that was ever written.
    Garbage(String),
}

#[derive(Clone, Debug)]
pub struct Operation {
    /// One life of a client: who comes back after a fence is another.
    pub client: usize,
    pub object: String,
    pub call: Call,
    /// Clients that were on the blocklist of the map under which it was asked.
    pub fenced: Vec<usize>,
    pub invoked: u64,
    /// Index and outcome; `None` while, or if forever, pending.
    pub returned: Option<(u64, Outcome)>,
}

#[derive(Default, Debug)]
pub struct History {
    pub operations: Vec<Operation>,
    /// By client, as the blocklist would have it.
    pub addresses: Vec<EntityAddr>,
    pub watches: Vec<Watched>,
    pub notifies: Vec<Notified>,
    pub listed: Vec<Listed>,
    /// From when on a client may be fenced, or dead.
    pub doomed: BTreeMap<usize, u64>,
    /// When every fault was over.
    pub peace: Option<u64>,
    clock: u64,
    next_token: u64,
}

impl History {
    pub fn new_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Something happens now.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub fn declare_peace(&mut self) {
        self.peace = Some(self.tick());
    }

    /// From now on the client may be fenced, or dead.
    pub fn doom(&mut self, client: usize) {
        let now = self.tick();
        self.doomed.entry(client).or_insert(now);
    }

    pub fn invoke(&mut self, client: usize, object: &str, call: Call) -> usize {
        let invoked = self.tick();
        let object = object.into();
        self.operations.push(Operation { client, object, call, fenced: Vec::new(), invoked, returned: None });
        self.operations.len() - 1
    }

    /// The map that the caller of an operation knows.
    pub fn note_map(&mut self, operation: usize, map: &OsdMap) {
        self.operations[operation].fenced = self.fenced(map);
    }

    /// Clients on the map's blocklist.
    pub fn fenced(&self, map: &OsdMap) -> Vec<usize> {
        if map.blocklist.is_empty() {
            return Vec::new();
        }
        let lives = self.addresses.iter().enumerate();
        lives.filter(|(_, addr)| map.blocklist.contains_key(addr)).map(|(life, _)| life).collect()
    }

    pub fn complete(&mut self, operation: usize, outcome: Outcome) {
        self.operations[operation].returned = Some((self.tick(), outcome));
    }

    pub fn by_object(&self) -> BTreeMap<&str, Vec<&Operation>> {
        let mut objects: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for op in &self.operations {
            objects.entry(&op.object).or_default().push(op);
        }
        objects
    }

    pub fn acknowledged(&self) -> usize {
        self.operations.iter().filter(|op| op.returned.is_some()).count()
    }
}
