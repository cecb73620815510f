//! A store used without a daemon: made before the first start, and read after
//! the last stop.

use crate::disk::SimDisk;
use base::Random;
use bytes::Bytes;
use env::{DiskOp, DiskRequest, DiskResult, read_into};
use osd::exec::ObjectInfo;
use store::{
    CollId, Engine, FetchId, Identity, Mutation, ObjectId, ObjectStore, Options, StoreError, StoreEvent,
    Transaction,
};
use wire::types::HObject;

/// Carries out everything that the engine asks of its device, at once.
fn settle(engine: &mut Engine, disk: &mut SimDisk) {
    while let Some(DiskRequest { token, op }) = engine.poll_disk() {
        engine.on_disk_done(token, carry_out(disk, op));
    }
}

fn carry_out(disk: &mut SimDisk, op: DiskOp) -> DiskResult {
    match op {
        DiskOp::Write { offset, data, durable } => {
            let write = disk.start_write(offset, data, durable)?;
            disk.finish_write(write);
            Ok(Bytes::new())
        }
        DiskOp::Read { offset, len, into } => disk.read(offset, len).map(|data| read_into(into, data)),
        DiskOp::Flush => {
            let covered = disk.start_flush();
            disk.finish_flush(&covered);
            Ok(Bytes::new())
        }
        DiskOp::Discard { .. } => Ok(Bytes::new()),
    }
}

/// Panics when the engine refuses: the device is new and of our own making.
pub fn format(disk: &mut SimDisk, identity: Identity, options: Options) {
    let mut engine = Engine::format(disk.info(), identity, options);
    settle(&mut engine, disk);
    assert!(engine.is_open(), "a new device takes a store: {:?}", engine.open_error());
}

/// One place on the device for each object with data, once all of it is at its place.
pub fn data_places(disk: &mut SimDisk, options: Options) -> Result<Vec<u64>, String> {
    let mut engine = Engine::open(disk.info(), None, options);
    settle(&mut engine, disk);
    engine.checkpoint();
    settle(&mut engine, disk);
    if !engine.is_idle() {
        return Err("a store that was stopped takes no checkpoint".into());
    }
    let store = OfflineStore { engine, disk };
    let mut places = Vec::new();
    for coll in store.engine.collections().into_iter().filter(|coll| *coll != CollId::Meta) {
        let objects = store.engine.list(coll, &HObject::default(), usize::MAX).map_err(|e| e.to_string())?;
        places.extend(
            objects
                .into_iter()
                .filter_map(|object| store.engine.device_offset(&ObjectId { coll, object }, 0)),
        );
    }
    Ok(places)
}

/// Removes some of the objects, heads and clones alike, as if they had never been written. Returns how many.
/// None that are watched: watchers come back at once, before any scrub, and would find nothing.
pub fn lose(disk: &mut SimDisk, options: Options, random: &mut Random) -> Result<u64, String> {
    let mut engine = Engine::open(disk.info(), None, options);
    settle(&mut engine, disk);
    let mut txn = Transaction::new();
    for coll in engine.collections().into_iter().filter(|coll| *coll != CollId::Meta) {
        let objects = engine.list(coll, &HObject::default(), usize::MAX).map_err(|e| e.to_string())?;
        let ids = objects.into_iter().map(|object| ObjectId { coll, object });
        for id in ids.filter(|_| random.chance(1, 6)) {
            let info = ObjectInfo::load(&engine, &id).map_err(|e| e.to_string())?;
            if info.is_some_and(|info| info.watchers.is_empty()) {
                txn.push(Mutation::Remove(id));
            }
        }
    }
    let count = txn.ops.len() as u64;
    if count > 0 {
        engine.queue(txn).map_err(|e| e.to_string())?;
        engine.commit();
        settle(&mut engine, disk);
    }
    Ok(count)
}

pub struct OfflineStore<'a> {
    pub engine: Engine,
    disk: &'a mut SimDisk,
}

impl<'a> OfflineStore<'a> {
    pub fn open(disk: &'a mut SimDisk, options: Options) -> Result<OfflineStore<'a>, String> {
        let options = Options { read_only: true, ..options };
        let mut engine = Engine::open(disk.info(), None, options);
        settle(&mut engine, disk);
        match engine.open_error() {
            Some(error) => Err(format!("the store does not open: {error}")),
            None if engine.is_open() => Ok(OfflineStore { engine, disk }),
            None => Err("the store does not open: it asks for nothing more".into()),
        }
    }

    pub fn read_all(&mut self, id: &ObjectId) -> Result<Bytes, StoreError> {
        let size = self.engine.stat(id)?.ok_or(StoreError::NoObject)?.size;
        let fetch = self.engine.read(id, 0, size)?;
        settle(&mut self.engine, self.disk);
        self.take(fetch)
    }

    fn take(&mut self, fetch: FetchId) -> Result<Bytes, StoreError> {
        while let Some(event) = self.engine.poll_event() {
            if let StoreEvent::Read { id, result } = event
                && id == fetch
            {
                return result;
            }
        }
        Err(StoreError::Stopped)
    }
}
