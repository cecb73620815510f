//! What the store's tests share: a device that can lose power, an engine with
//! its device, random transactions, and the comparison with the model.
#![allow(dead_code)]

pub mod crash;
pub mod damage;
pub mod disk;
pub mod golden;
pub mod recovery_input;

use base::Random;
use bytes::Bytes;
use crash::Cut;
use disk::{Image, SimDisk};
use std::collections::{BTreeMap, BTreeSet};
use store::{
    CollId, Engine, FetchId, Fsck, FsckReport, Identity, MemStore, Mutation, ObjectId, ObjectStore,
    OmapLimit, OpenError, Options, StoreError, StoreEvent, Transaction, TxnId,
};
use wire::types::{HObject, OsdId, PgId, PoolId, SnapId, Uuid};

pub const DEVICE_LEN: u64 = 16 << 20;

pub fn identity() -> Identity {
    Identity { fsid: Uuid::from_random(1, 1), osd: OsdId(3), uuid: Uuid::from_random(2, 2) }
}

/// Small enough that checkpoints and writeback run all the time.
/// Without a read cache: most tests want to see what the device holds.
pub fn options() -> Options {
    Options { log_len: Some(1 << 20), dirty_len_max: 64 << 10, read_cache: 0, ..Options::default() }
}

/// With one that does not hold everything.
pub fn cached(options: Options) -> Options {
    Options { read_cache: 128 << 10, ..options }
}

/// So little that the index does not fit.
pub fn tiny_memory(options: Options) -> Options {
    Options { memory_limit: 64 << 10, ..options }
}

/// An engine and its device, completing requests in random order.
pub struct Rig {
    pub engine: Engine,
    pub disk: SimDisk,
    pub random: Random,
    pub events: Vec<StoreEvent>,
    pub newest_first: bool,
    /// Zeros are laid out in advance: work begins while they are on their way.
    pub lays: bool,
    /// `Committed` events so far.
    pub committed: u64,
    /// When recording: what the device held before each flush and durable write that changed it.
    pub cuts: Option<Vec<Cut>>,
}

impl Rig {
    pub fn new(engine: Engine, disk: SimDisk, seed: u64) -> Rig {
        let random = Random::from_seed(seed);
        let newest_first = seed % 2 == 1;
        let (events, lays) = (Vec::new(), false);
        Rig { engine, disk, random, events, newest_first, lays, committed: 0, cuts: None }
    }

    pub fn format(len: u64, options: Options, seed: u64) -> Rig {
        let disk = SimDisk::new(len);
        let lays = options.lay_ahead;
        let engine = Engine::format(disk.info, identity(), options);
        let mut rig = Rig { lays, ..Rig::new(engine, disk, seed) };
        rig.open();
        assert_eq!(rig.engine.open_error(), None);
        assert!(rig.engine.is_open());
        rig
    }

    pub fn try_open(image: Image, options: Options, seed: u64) -> Result<Rig, OpenError> {
        let disk = SimDisk::with_image(DEVICE_LEN, image);
        Rig::try_open_disk(disk, options, seed)
    }

    pub fn try_open_disk(disk: SimDisk, options: Options, seed: u64) -> Result<Rig, OpenError> {
        let (rig, error) = Rig::open_recording(disk, options, seed, false);
        error.map_or(Ok(rig), Err)
    }

    /// With the cuts of the opening itself. The store is open unless there is an error.
    pub fn open_recording(
        disk: SimDisk,
        options: Options,
        seed: u64,
        record: bool,
    ) -> (Rig, Option<OpenError>) {
        let expect = Some((identity().fsid, identity().osd));
        let lays = options.lay_ahead;
        let engine = Engine::open(disk.info, expect, options);
        let mut rig = Rig { lays, ..Rig::new(engine, disk, seed) };
        rig.cuts = record.then(Vec::new);
        rig.open();
        let error = rig.engine.open_error().cloned();
        assert_eq!(rig.engine.is_open(), error.is_none());
        (rig, error)
    }

    fn open(&mut self) {
        while !self.engine.is_open() && self.step() {}
        self.settle();
    }

    /// What is queued is done; or under way, where zeros may be, too: it is to meet them.
    pub fn settle(&mut self) {
        match self.lays {
            true => {
                self.engine.commit();
                self.collect();
            }
            false => self.drive(),
        }
    }

    /// Takes the engine's requests and events.
    pub fn collect(&mut self) {
        while let Some(request) = self.engine.poll_disk() {
            self.disk.submit(request);
        }
        while let Some(event) = self.engine.poll_event() {
            self.committed += u64::from(matches!(event, StoreEvent::Committed(_)));
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
        if self.disk.makes_durable(at) {
            self.record_cut();
        }
        let (token, result) = self.disk.complete(at);
        self.engine.on_disk_done(token, result);
        self.collect();
        true
    }

    pub fn steps(&mut self, count: u64) {
        for _ in 0..count {
            self.step();
        }
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

    /// See [`Cut`] for why this moment stands for all since the last flush.
    pub fn record_cut(&mut self) {
        let Some(cuts) = &mut self.cuts else { return };
        let writes = self.disk.at_risk();
        if !writes.is_empty() {
            let durable = self.disk.durable.clone();
            let open = self.engine.is_open();
            cuts.push(Cut { durable, writes, committed: self.committed, open });
        }
    }

    /// Asks until the answer is not [`StoreError::Pending`].
    pub fn ask<T>(
        &mut self,
        mut question: impl FnMut(&mut Engine) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            match question(&mut self.engine) {
                Err(StoreError::Pending(load)) => self.wait_for(load),
                answer => return answer,
            }
        }
    }

    fn wait_for(&mut self, load: FetchId) {
        loop {
            self.collect();
            let loaded = |event: &StoreEvent| *event == StoreEvent::Loaded(load);
            if let Some(at) = self.events.iter().position(loaded) {
                self.events.remove(at);
                return;
            }
            if self.engine.fatal_error().is_some() {
                // Asked again, it answers that it has stopped.
                return;
            }
            assert!(self.step(), "a load never ends");
        }
    }

    /// All objects of a collection, asked for in parts.
    pub fn list_all(&mut self, coll: CollId) -> Result<Vec<HObject>, StoreError> {
        let mut found: Vec<HObject> = Vec::new();
        let mut start = HObject::default();
        loop {
            let part = self.ask(|engine| engine.list(coll, &start, 100))?;
            // The start is there again.
            let again = found.last().is_some_and(|last| part.first() == Some(last));
            let before = found.len();
            found.extend(part.into_iter().skip(usize::from(again)));
            if found.len() == before {
                return Ok(found);
            }
            start.clone_from(found.last().expect("grew"));
        }
    }

    pub fn read(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let fetch = self.ask(|engine| engine.read(id, offset, len))?;
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
        self.queue(&Transaction { ops })
    }

    /// A store that has to load metadata first takes an impossible transaction at its
    /// word, so whether objects exist is asked before.
    pub fn queue(&mut self, txn: &Transaction) -> Result<TxnId, StoreError> {
        let sources = |op: &Mutation| match op {
            Mutation::Clone { from, .. } | Mutation::Rename { from, .. } => Some(from.clone()),
            _ => None,
        };
        let sources: Vec<ObjectId> = txn.ops.iter().filter_map(sources).collect();
        let removes = txn.ops.iter().any(|op| matches!(op, Mutation::RemoveCollection(_)));
        // What one transaction that waited lets go of, the next may be asked about.
        let pages = self.engine.stats().metadata_reads > 0;
        if removes || (pages && !sources.is_empty()) {
            self.drive();
        }
        for from in sources {
            let _ = self.ask(|engine| engine.stat(&from));
        }
        self.ask(|engine| engine.queue(txn.clone()))
    }
}

/// What a check of the whole store finds.
pub fn fsck(image: Image, options: &Options) -> FsckReport {
    fsck_disk(SimDisk::with_image(DEVICE_LEN, image), options)
}

pub fn fsck_disk(disk: SimDisk, options: &Options) -> FsckReport {
    let read_only = Options { read_only: true, ..options.clone() };
    let Rig { engine, mut disk, .. } = Rig::try_open_disk(disk, read_only, 1).unwrap();
    let mut fsck = Fsck::new(engine);
    loop {
        while let Some(request) = fsck.poll_disk() {
            disk.submit(request);
        }
        if disk.queue.is_empty() {
            return fsck.report().expect("ends").clone();
        }
        let (token, result) = disk.complete(0);
        fsck.on_disk_done(token, result);
    }
}

/// Store and model refuse a transaction, for the same reason. Of several reasons,
/// a store that had to load metadata may find another one first.
pub fn assert_same_refusal(engine: &Engine, found: &StoreError, expected: Option<StoreError>) {
    let expected = expected.expect("the model accepts what the store refuses");
    let exact = engine.stats().metadata_reads == 0;
    assert!(!exact || *found == expected, "{found:?}, not {expected:?}");
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
    /// Of 100 operations, so many are clones, beside those that come anyway.
    pub clone_percent: u64,
}

pub const MIX: Mix =
    Mix { objects: 12, object_len: 200 << 10, large_percent: 6, ops_max: 4, clone_percent: 0 };

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
        if self.mix.clone_percent > 0 && self.random.below(100) < self.mix.clone_percent {
            return Mutation::Clone { from: id, to: self.object() };
        }
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
                let entries = (0..self.random.below(6)).map(|_| (self.key(), self.value())).collect();
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
    compare_metadata(rig, model, id);
    compare_read(rig, model, id, 0, u64::MAX);
}

pub fn compare_metadata(rig: &mut Rig, model: &MemStore, id: &ObjectId) {
    assert_eq!(rig.ask(|engine| engine.stat(id)), model.stat(id), "stat of {id:?}");
    assert_eq!(rig.ask(|engine| engine.xattrs(id)), model.xattrs(id), "xattrs of {id:?}");
    assert_eq!(rig.ask(|engine| engine.omap_header(id)), model.omap_header(id), "header of {id:?}");
    let all = OmapLimit::NONE;
    let found = rig.ask(|engine| engine.omap_list(id, None, b"", all));
    assert_eq!(found, model.omap_list(id, None, b"", all), "omap of {id:?}");
    let found = rig.ask(|engine| engine.data_extents(id, 0, u64::MAX));
    assert_eq!(found, model.data_extents(id, 0, u64::MAX), "extents of {id:?}");
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
    compare_up_to(rig, model, u64::MAX);
}

/// Compares all metadata, and data until so many bytes of it were read.
pub fn compare_up_to(rig: &mut Rig, model: &mut MemStore, mut data_len: u64) {
    assert_eq!(rig.engine.collections(), model.collections());
    for coll in model.collections() {
        let names = model.list(coll, &HObject::default(), usize::MAX).unwrap();
        assert_eq!(rig.list_all(coll).unwrap(), names, "names in {coll:?}");
        for object in names {
            let id = ObjectId { coll, object };
            compare_metadata(rig, model, &id);
            if data_len > 0 {
                let len = model.stat(&id).ok().flatten().map_or(0, |stat| stat.size);
                data_len = data_len.saturating_sub(len);
                compare_read(rig, model, &id, 0, u64::MAX);
            }
        }
    }
    let (ours, theirs) = (rig.engine.stats(), model.stats());
    assert_eq!((ours.omap, ours.objects), (theirs.omap, theirs.objects));
}
