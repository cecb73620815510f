//! Free space is told to the device, and only when there is nothing else to do.

use base::AlignedBuf;
use bytes::Bytes;
use env::{DiskInfo, DiskOp, read_into};
use std::collections::BTreeMap;
use store::{CollId, Engine, Identity, Mutation, ObjectId, ObjectStore, Options, Transaction};
use wire::types::{HObject, OsdId, Uuid};

const LEN: u64 = 256 << 20;
const QUIET: u32 = 4;

/// A device without faults, by block.
#[derive(Default)]
struct Device {
    blocks: BTreeMap<u64, Bytes>,
    discards: Vec<(u64, u64)>,
}

impl Device {
    fn drive(&mut self, engine: &mut Engine) {
        while let Some(request) = engine.poll_disk() {
            let result = match request.op {
                DiskOp::Write { offset, data, .. } => {
                    let blocks = data
                        .iter()
                        .flat_map(|piece| (0..piece.len()).step_by(4096).map(move |at| (piece, at)));
                    for (number, (piece, at)) in (offset / 4096..).zip(blocks) {
                        self.blocks.insert(number, piece.slice(at..at + 4096));
                    }
                    Bytes::new()
                }
                DiskOp::Read { offset, len, into } => {
                    let mut found = AlignedBuf::zeroed(len as usize);
                    for (number, part) in (offset / 4096..).zip(found.chunks_mut(4096)) {
                        if let Some(block) = self.blocks.get(&number) {
                            part.copy_from_slice(block);
                        }
                    }
                    read_into(into, found.freeze())
                }
                DiskOp::Flush => Bytes::new(),
                DiskOp::Discard { offset, len } => {
                    self.discards.push((offset, len));
                    (offset / 4096..(offset + len) / 4096).for_each(|block| drop(self.blocks.remove(&block)));
                    Bytes::new()
                }
            };
            engine.on_disk_done(request.token, Ok(result));
        }
    }

    fn discarded(&self) -> u64 {
        self.discards.iter().map(|(_, len)| len).sum()
    }
}

fn object(name: &str) -> ObjectId {
    ObjectId { coll: CollId::Meta, object: HObject { name: name.into(), ..HObject::default() } }
}

fn change(engine: &mut Engine, device: &mut Device, op: Mutation) {
    engine.queue(Transaction { ops: vec![op] }).expect("accepted");
    engine.commit();
    device.drive(engine);
}

fn write(id: &ObjectId) -> Mutation {
    Mutation::Write { id: id.clone(), offset: 0, data: Bytes::from(vec![7; 4 << 20]) }
}

fn started(discard: bool) -> (Engine, Device) {
    let info = DiskInfo { len_bytes: LEN, block_len: 4096, volatile_cache: true };
    let uuid = Uuid::from_random(1, 2);
    let identity = Identity { fsid: uuid, osd: OsdId(0), uuid };
    let options = Options { discard, discard_quiet_commits: QUIET, ..Options::default() };
    let (mut engine, mut device) = (Engine::format(info, identity, options), Device::default());
    device.drive(&mut engine);
    assert!(engine.is_open());
    change(&mut engine, &mut device, Mutation::CreateCollection(CollId::Meta));
    (engine, device)
}

#[test]
fn removed_objects_are_discarded_after_some_quiet_commits() {
    let (mut engine, mut device) = started(true);
    for name in ["a", "b", "c"] {
        change(&mut engine, &mut device, write(&object(name)));
    }
    for name in ["a", "b"] {
        change(&mut engine, &mut device, Mutation::Remove(object(name)));
    }
    for _ in 0..QUIET - 1 {
        engine.commit();
        device.drive(&mut engine);
    }
    assert_eq!(device.discards, [], "not yet");
    engine.commit();
    device.drive(&mut engine);
    // But for the cells at the ends, which others share.
    assert!(device.discarded() >= 6 << 20, "{:?}", device.discards);
    let free = engine.info().expect("open").free;
    // The space can be used, and what stayed is whole.
    for name in ["d", "e"] {
        change(&mut engine, &mut device, write(&object(name)));
    }
    assert!(engine.info().expect("open").free < free);
    for name in ["c", "d", "e"] {
        engine.read(&object(name), 0, 4 << 20).expect("begun");
        device.drive(&mut engine);
        while let Some(event) = engine.poll_event() {
            if let store::StoreEvent::Read { result, .. } = event {
                assert_eq!(result, Ok(Bytes::from(vec![7; 4 << 20])));
            }
        }
    }
}

#[test]
fn nothing_is_discarded_while_there_is_work() {
    let (mut engine, mut device) = started(true);
    for _ in 0..100 {
        change(&mut engine, &mut device, write(&object("a")));
        engine.commit();
        device.drive(&mut engine);
    }
    assert_eq!(device.discards, []);
}

#[test]
fn a_device_that_cannot_forget_is_not_asked() {
    let (mut engine, mut device) = started(false);
    change(&mut engine, &mut device, write(&object("a")));
    change(&mut engine, &mut device, Mutation::Remove(object("a")));
    for _ in 0..100 {
        engine.commit();
        device.drive(&mut engine);
    }
    assert_eq!(device.discards, []);
}
