//! What a damaged store may answer: the truth, or an error that names the place.
//!
//! Knows the store by its public interface, and where its log lies.

use super::disk::{Image, PAGE, SimDisk};
use super::*;
use std::ops::Range;

pub const LOG: Range<u64> = (64 << 10)..(64 << 10) + (1 << 20);

fn marker() -> ObjectId {
    id(CollId::Meta, "marker")
}

/// A used store at rest, its model, and its image a little earlier.
pub struct Used {
    pub rig: Rig,
    pub image: Image,
    pub earlier: Image,
    pub model: MemStore,
}

/// The last record holds only the marker, so that losing it loses nothing else.
pub fn used(seed: u64, transactions: u64) -> Used {
    used_on(SimDisk::new(DEVICE_LEN), seed, transactions, MIX)
}

/// On a device that may lie.
pub fn used_on(disk: SimDisk, seed: u64, transactions: u64, mix: Mix) -> Used {
    let engine = Engine::format(disk.info, identity(), options());
    let mut rig = Rig::new(engine, disk, seed);
    rig.drive();
    let mut model = MemStore::new();
    let mut generator = Generator::new(seed, mix);
    let create = [CollId::Meta, pg(0), pg(1)].map(Mutation::CreateCollection).to_vec();
    rig.run(create.clone()).unwrap();
    model.queue(Transaction { ops: create }).unwrap();
    let mut earlier = rig.disk.visible.clone();
    for n in 0..transactions {
        let txn = generator.transaction();
        if rig.queue(&txn).is_ok() {
            model.queue(txn).unwrap();
        }
        while model.poll_event().is_some() {}
        if generator.random.chance(1, 3) {
            rig.drive();
        }
        if n == transactions / 3 {
            rig.engine.checkpoint();
        }
        if n == transactions * 4 / 5 {
            earlier = rig.disk.visible.clone();
        }
    }
    rig.drive();
    let attrs = [("last", Bytes::from("1"))].into();
    let ops = vec![Mutation::SetXattrs { id: marker(), attrs }];
    rig.run(ops.clone()).unwrap();
    model.queue(Transaction { ops }).unwrap();
    rig.drive();
    assert_eq!(rig.engine.fatal_error(), None);
    Used { image: rig.disk.durable.clone(), rig, earlier, model }
}

/// An unreadable place, as an error names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    pub object: String,
    pub offset: u64,
    pub device_offset: u64,
}

#[derive(Debug)]
pub enum Outcome {
    Refused(OpenError),
    Open {
        metadata: Vec<Complaint>,
        data: Vec<Complaint>,
        /// The last transaction is gone: damage of the last record is like a torn write.
        last_lost: bool,
    },
}

impl Outcome {
    pub fn is_harmless(&self) -> bool {
        matches!(self, Outcome::Open { metadata, data, last_lost: false } if metadata.is_empty() && data.is_empty())
    }
}

/// The model's answer, or an error that says what is damaged.
fn right_or_error<T: PartialEq + std::fmt::Debug>(
    found: Result<T, StoreError>,
    expected: &Result<T, StoreError>,
    what: &str,
    complaints: &mut Vec<Complaint>,
) {
    match found {
        Err(
            StoreError::Checksum { object, offset, device_offset }
            | StoreError::Io { object, offset, device_offset, .. },
        ) => complaints.push(Complaint { object, offset, device_offset }),
        found => assert!(found == *expected, "{what}: wrong: {:?}", found.err()),
    }
}

/// Whatever opens must be right, and stay so when it is used, healed and opened again.
pub fn judge(disk: SimDisk, model: &MemStore, what: &str) -> Outcome {
    let (mut rig, error) = Rig::open_recording(disk, options(), 5, false);
    if let Some(error) = error {
        return Outcome::Refused(error);
    }
    let mut model = model.clone();
    let last = rig.ask(|engine| engine.xattr(&marker(), "last")).ok().flatten();
    let last_lost = last.is_none();
    if last_lost {
        let remove = vec![Mutation::Remove(marker())];
        model.queue(Transaction { ops: remove.clone() }).unwrap();
        rig.run(remove).unwrap();
    }
    let (metadata, data) = answers(&mut rig, &mut model, what);
    if metadata.is_empty() {
        heal(rig, &mut model, what);
    }
    Outcome::Open { metadata, data, last_lost }
}

/// Asks everything. Returns the complaints about metadata and about data.
pub fn answers(rig: &mut Rig, model: &mut MemStore, what: &str) -> (Vec<Complaint>, Vec<Complaint>) {
    let (mut metadata, mut data) = (Vec::new(), Vec::new());
    assert_eq!(rig.engine.collections(), model.collections(), "{what}");
    for coll in model.collections() {
        let names = model.list(coll, &HObject::default(), usize::MAX).unwrap();
        right_or_error(rig.list_all(coll), &Ok(names.clone()), what, &mut metadata);
        for object in names {
            let id = ObjectId { coll, object };
            let stat = rig.ask(|engine| engine.stat(&id));
            right_or_error(stat, &model.stat(&id), what, &mut metadata);
            let xattrs = rig.ask(|engine| engine.xattrs(&id));
            right_or_error(xattrs, &model.xattrs(&id), what, &mut metadata);
            let omap = rig.ask(|engine| engine.omap_list(&id, None, b"", OmapLimit::NONE));
            right_or_error(omap, &model.omap_list(&id, None, b"", OmapLimit::NONE), what, &mut metadata);
            let mut whole = Vec::new();
            let expected = model_read(model, &id, 0, u64::MAX);
            right_or_error(rig.read(&id, 0, u64::MAX), &expected, what, &mut whole);
            if !whole.is_empty() {
                let bad = blocks_one_by_one(rig, model, &id, what);
                assert!(!bad.is_empty(), "{what}: {whole:?} together, nothing one by one");
                data.extend(bad);
            }
        }
    }
    (metadata, data)
}

/// Which blocks cannot be read. (A device does not say which part of a long read
/// it failed for.)
fn blocks_one_by_one(rig: &mut Rig, model: &mut MemStore, id: &ObjectId, what: &str) -> Vec<Complaint> {
    let size = model.stat(id).unwrap().unwrap().size;
    let mut bad = Vec::new();
    for offset in (0..size).step_by(PAGE) {
        let before = bad.len();
        let expected = model_read(model, id, offset, PAGE as u64);
        right_or_error(rig.read(id, offset, PAGE as u64), &expected, what, &mut bad);
        if let Some(complaint) = bad.get(before) {
            assert!(complaint.object.contains(id.object.name.as_str()), "{what}: {complaint:?} of {id:?}");
            assert_eq!(complaint.offset, offset, "{what}: {complaint:?}");
        }
    }
    bad
}

/// As from a replica: the whole object is written anew. Then the store is used
/// on, checkpointed and opened again, and nothing is damaged any more.
fn heal(mut rig: Rig, model: &mut MemStore, what: &str) {
    for coll in model.collections() {
        for object in model.list(coll, &HObject::default(), usize::MAX).unwrap() {
            let id = ObjectId { coll, object };
            if rig.read(&id, 0, u64::MAX).is_ok() {
                continue;
            }
            let data = model_read(model, &id, 0, u64::MAX).unwrap();
            let ops = vec![Mutation::Truncate { id: id.clone(), size: 0 }, write(&id, 0, data)];
            rig.run(ops.clone()).unwrap();
            model.queue(Transaction { ops }).unwrap();
        }
    }
    rig.drive();
    rig.disk.unreadable.clear();
    compare_all(&mut rig, model);
    rig.engine.checkpoint();
    rig.drive();
    assert_eq!(rig.engine.fatal_error(), None, "{what}");
    let mut rig = Rig::try_open(rig.disk.durable, options(), 6).unwrap_or_else(|e| panic!("{what}: {e}"));
    compare_all(&mut rig, model);
}
