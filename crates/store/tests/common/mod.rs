//! What the store's tests share: a device that can lose power, an engine with
//! its device, random transactions, and the comparison with the model.
#![allow(dead_code)]

pub mod disk;
pub mod recovery_input;

use base::Random;
use bytes::Bytes;
use disk::{Image, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use store::{
    CollId, Engine, FetchId, Identity, MemStore, Mutation, ObjectId, ObjectStore, OpenError, Options,
    StoreError, StoreEvent, Transaction, TxnId,
};
use wire::types::{HObject, OsdId, PgId, PoolId, SnapId, Uuid};

pub const DEVICE_LEN: u64 = 16 << 20;

pub fn identity() -> Identity {
    Identity { fsid: Uuid::from_random(1, 1), osd: OsdId(3), uuid: Uuid::from_random(2, 2) }
}

/// Small enough that checkpoints and writeback run all the time.
pub fn options() -> Options {
    Options { log_len: Some(1 << 20), dirty_len_max: 64 << 10, ..Options::default() }
}

/// An engine and its device, completing requests in random order.
pub struct Rig {
    pub engine: Engine,
    pub disk: SimDisk,
    pub random: Random,
    pub events: Vec<StoreEvent>,
    pub newest_first: bool,
}

impl Rig {
    pub fn new(engine: Engine, disk: SimDisk, seed: u64) -> Rig {
        let random = Random::from_seed(seed);
        Rig { engine, disk, random, events: Vec::new(), newest_first: seed % 2 == 1 }
    }

    pub fn format(len: u64, options: Options, seed: u64) -> Rig {
        let disk = SimDisk::new(len);
        let engine = Engine::format(disk.info, identity(), options);
        let mut rig = Rig::new(engine, disk, seed);
        rig.drive();
        assert_eq!(rig.engine.open_error(), None);
        assert!(rig.engine.is_open());
        rig
    }

    pub fn try_open(image: Image, options: Options, seed: u64) -> Result<Rig, OpenError> {
        let disk = SimDisk::with_image(DEVICE_LEN, image);
        Rig::try_open_disk(disk, options, seed)
    }

    pub fn try_open_disk(disk: SimDisk, options: Options, seed: u64) -> Result<Rig, OpenError> {
        let expect = Some((identity().fsid, identity().osd));
        let engine = Engine::open(disk.info, expect, options);
        let mut rig = Rig::new(engine, disk, seed);
        rig.drive();
        match rig.engine.open_error() {
            Some(error) => Err(error.clone()),
            None => {
                assert!(rig.engine.is_open());
                Ok(rig)
            }
        }
    }

    /// Takes the engine's requests and events.
    pub fn collect(&mut self) {
        while let Some(request) = self.engine.poll_disk() {
            self.disk.submit(request);
        }
        while let Some(event) = self.engine.poll_event() {
            self.events.push(event);
        }
    }

    /// One request of the device completes; false when there is none.
    pub fn step(&mut self) -> bool {
        self.collect();
        if self.disk.queue.is_empty() {
            return false;
        }
        let len = self.disk.queue.len() as u64;
        let mut at = self.random.below(len) as usize;
        if self.newest_first {
            // Some requests stay for long while others overtake them.
            at = at.max(self.random.below(len) as usize).max(self.random.below(len) as usize);
        }
        let (token, result) = self.disk.complete(at);
        self.engine.on_disk_done(token, result);
        self.collect();
        true
    }

    /// Until the device has nothing more to do; commits what is queued.
    pub fn drive(&mut self) {
        loop {
            while self.step() {}
            self.engine.commit();
            self.collect();
            if self.disk.queue.is_empty() {
                return;
            }
        }
    }

    pub fn read(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let fetch = self.engine.read(id, offset, len)?;
        loop {
            self.collect();
            if let Some(result) = self.take_read(fetch) {
                return result;
            }
            assert!(self.step(), "a read is never answered");
        }
    }

    pub fn take_read(&mut self, fetch: FetchId) -> Option<Result<Bytes, StoreError>> {
        let is_it = |e: &StoreEvent| matches!(e, StoreEvent::Read { id, .. } if *id == fetch);
        let at = self.events.iter().position(is_it)?;
        match self.events.remove(at) {
            StoreEvent::Read { result, .. } => Some(result),
            _ => None,
        }
    }

    /// Transactions committed since the last call.
    pub fn take_committed(&mut self) -> Vec<TxnId> {
        self.collect();
        let mut found = Vec::new();
        self.events.retain(|event| match event {
            StoreEvent::Committed(txn) => {
                found.push(*txn);
                false
            }
            _ => true,
        });
        found
    }

    pub fn run(&mut self, ops: Vec<Mutation>) -> Result<TxnId, StoreError> {
        self.engine.queue(Transaction { ops })
    }
}

pub fn pg(seed: u32) -> CollId {
    CollId::Pg(PgId { pool: PoolId(1), seed })
}

pub fn id(coll: CollId, name: &str) -> ObjectId {
    let hash = base::crc32c(name.as_bytes());
    let object =
        HObject { pool: PoolId(1), hash, name: name.into(), snap: SnapId::HEAD, ..HObject::default() };
    ObjectId { coll, object }
}

pub fn write(id: &ObjectId, offset: u64, data: impl Into<Bytes>) -> Mutation {
    Mutation::Write { id: id.clone(), offset, data: data.into() }
}

pub fn pattern(seed: u64, len: usize) -> Bytes {
    let mut random = Random::from_seed(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    out.truncate(len);
    out.into()
}

/// What [`Generator`] draws from.
#[derive(Clone, Copy)]
pub struct Mix {
    pub objects: u64,
    /// Largest object, roughly.
    pub object_len: u64,
    /// Of 100 writes, so many are large enough to go straight to their place.
    pub large_percent: u64,
    pub ops_max: u64,
}

pub const MIX: Mix = Mix { objects: 12, object_len: 200 << 10, large_percent: 6, ops_max: 4 };

/// Random transactions that are valid more often than not.
pub struct Generator {
    pub random: Random,
    pub mix: Mix,
    draws: u64,
}

impl Generator {
    pub fn new(seed: u64, mix: Mix) -> Generator {
        Generator { random: Random::from_seed(seed), mix, draws: 0 }
    }

    fn object(&mut self) -> ObjectId {
        let coll = match self.random.below(5) {
            0 => CollId::Meta,
            1 => pg(1),
            _ => pg(0),
        };
        let n = self.random.below(self.mix.objects);
        id(coll, &format!("object {n}"))
    }

    fn key(&mut self) -> Bytes {
        Bytes::from(format!("key {:03}", self.random.below(60)))
    }

    fn value(&mut self) -> Bytes {
        let len = if self.random.chance(1, 30) { 5000 } else { self.random.below(60) };
        self.draws += 1;
        pattern(self.draws, len as usize)
    }

    fn data(&mut self) -> (u64, Bytes) {
        let blocks = self.mix.object_len / 4096;
        self.draws += 1;
        let (offset, len) = if self.random.below(100) < self.mix.large_percent {
            let len = (64 << 10) + self.random.below(96 << 10);
            let aligned = self.random.chance(2, 3);
            let at = self.random.below(blocks) * 4096;
            if aligned { (at, len & !4095) } else { (at + self.random.below(4096), len) }
        } else {
            match self.random.below(4) {
                // Whole blocks.
                0 | 1 => (self.random.below(blocks) * 4096, (1 + self.random.below(3)) * 4096),
                // Within a block or over a boundary.
                2 => (self.random.below(self.mix.object_len), 1 + self.random.below(5000)),
                _ => (self.random.below(300), 1 + self.random.below(300)),
            }
        };
        (offset, pattern(self.draws, len as usize))
    }

    pub fn mutation(&mut self) -> Mutation {
        let id = self.object();
        match self.random.below(40) {
            0 => Mutation::CreateCollection(id.coll),
            1 => Mutation::Touch(id),
            2 | 3 => {
                let (offset, data) = self.data();
                Mutation::Zero { id, offset, len: data.len() as u64 }
            }
            4 | 5 => Mutation::Truncate { id, size: self.random.below(self.mix.object_len) },
            6 => Mutation::Truncate { id, size: self.random.below(60) * 4096 },
            7 | 8 => Mutation::Remove(id),
            9 | 10 => {
                let attrs = (0..self.random.below(3))
                    .map(|_| (format!("a{}", self.random.below(5)), self.value()))
                    .collect();
                Mutation::SetXattrs { id, attrs }
            }
            11 => Mutation::RmXattr { id, name: format!("a{}", self.random.below(5)) },
            12 => Mutation::ClearXattrs(id),
            13 => Mutation::SetOmapHeader { id, header: self.value() },
            14..=17 => {
                let entries: BTreeMap<Bytes, Bytes> =
                    (0..self.random.below(6)).map(|_| (self.key(), self.value())).collect();
                Mutation::SetOmap { id, entries }
            }
            18 => {
                let keys: BTreeSet<Bytes> = (0..self.random.below(4)).map(|_| self.key()).collect();
                Mutation::RmOmap { id, keys }
            }
            19 => Mutation::RmOmapRange { id, start: self.key(), end: self.key() },
            20 => Mutation::ClearOmap(id),
            21 | 22 => Mutation::Clone { from: id, to: self.object() },
            23 => Mutation::Rename { from: id, to: self.object() },
            24 => Mutation::RemoveCollection(pg(1)),
            _ => {
                let (offset, data) = self.data();
                Mutation::Write { id, offset, data }
            }
        }
    }

    pub fn transaction(&mut self) -> Transaction {
        let count = 1 + self.random.below(self.mix.ops_max);
        Transaction { ops: (0..count).map(|_| self.mutation()).collect() }
    }
}

/// Everything that can be asked about an object, compared.
pub fn compare_object(rig: &mut Rig, model: &mut MemStore, id: &ObjectId) {
    let engine = &rig.engine;
    assert_eq!(engine.stat(id), model.stat(id), "stat of {id:?}");
    assert_eq!(engine.xattrs(id), model.xattrs(id));
    assert_eq!(engine.omap_header(id), model.omap_header(id));
    let all = usize::MAX;
    assert_eq!(engine.omap_list(id, None, b"", all), model.omap_list(id, None, b"", all));
    assert_eq!(engine.data_extents(id, 0, u64::MAX), model.data_extents(id, 0, u64::MAX));
    compare_read(rig, model, id, 0, u64::MAX);
}

pub fn model_read(model: &mut MemStore, id: &ObjectId, offset: u64, len: u64) -> Result<Bytes, StoreError> {
    let fetch = model.read(id, offset, len)?;
    loop {
        match model.poll_event() {
            Some(StoreEvent::Read { id, result }) if id == fetch => return result,
            Some(_) => (),
            None => panic!("the model does not answer"),
        }
    }
}

pub fn compare_read(rig: &mut Rig, model: &mut MemStore, id: &ObjectId, offset: u64, len: u64) {
    let found = rig.read(id, offset, len);
    let expected = model_read(model, id, offset, len);
    if found != expected {
        let what = match (&found, &expected) {
            (Ok(a), Ok(b)) => {
                let at = a.iter().zip(b.iter()).position(|(a, b)| a != b);
                format!("lengths {} and {}, first difference at {at:?}", a.len(), b.len())
            }
            (a, b) => format!("{:?} and {:?}", a.as_ref().err(), b.as_ref().err()),
        };
        panic!("read of {id:?} at {offset}+{len}: {what}");
    }
}

pub fn compare_all(rig: &mut Rig, model: &mut MemStore) {
    assert_eq!(rig.engine.collections(), model.collections());
    for coll in model.collections() {
        let start = HObject::default();
        let names = model.list(coll, &start, usize::MAX).unwrap();
        assert_eq!(rig.engine.list(coll, &start, usize::MAX).unwrap(), names);
        for object in names {
            compare_object(rig, model, &ObjectId { coll, object });
        }
    }
    let (ours, theirs) = (rig.engine.stats(), model.stats());
    assert_eq!((ours.omap, ours.objects), (theirs.omap, theirs.objects));
}
