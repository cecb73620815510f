//! What clients asked and were told, in the order it happened.
//!
//! The world runs on one thread, so an entry's index is real time: an operation
//! that returned at index 5 ended before one invoked at index 6 began.

use std::collections::BTreeMap;
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
    clock: u64,
    next_token: u64,
}

impl History {
    pub fn new_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub fn invoke(&mut self, client: usize, object: &str, call: Call) -> usize {
        self.clock += 1;
        let invoked = self.clock;
        let object = object.into();
        self.operations.push(Operation { client, object, call, fenced: Vec::new(), invoked, returned: None });
        self.operations.len() - 1
    }

    /// The map that the caller of an operation knows.
    pub fn note_map(&mut self, operation: usize, map: &OsdMap) {
        if !map.blocklist.is_empty() {
            let lives = self.addresses.iter().enumerate();
            let fenced = lives.filter(|(_, addr)| map.blocklist.contains_key(addr)).map(|(life, _)| life);
            self.operations[operation].fenced = fenced.collect();
        }
    }

    pub fn complete(&mut self, operation: usize, outcome: Outcome) {
        self.clock += 1;
        self.operations[operation].returned = Some((self.clock, outcome));
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
