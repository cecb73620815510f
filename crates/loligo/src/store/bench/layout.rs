//! What the workloads work on: objects as an RBD image has them, in the PGs of
//! one pool, and the transactions that an OSD would make for them.

use crate::store::options::Metadata;
use base::{AlignedBuf, Random};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{CollId, Mutation, ObjectId, Transaction};
use wire::types::{HObject, PgId, PoolId, SnapId};

pub const OBJECT_LEN: u64 = 4 << 20;
const PGS: u32 = 32;
/// Entries that a PG's log keeps.
const LOG_ENTRIES: u64 = 3000;
/// Of a small object's info, and of a log entry, as an OSD encodes them.
const INFO_LEN: usize = 250;
const ENTRY_LEN: usize = 180;
/// The writes' payloads begin anywhere in this, as they do in received messages;
/// long ones at a block's boundary, for those are received aligned.
const PAYLOAD_SLACK: u64 = 64 << 10;
const ALIGNED_LEN_MIN: u64 = 64 << 10;

pub struct Layout {
    pub objects: Vec<ObjectId>,
    logs: Vec<ObjectId>,
    versions: Vec<u64>,
    metadata: Metadata,
    /// Every write carries its number in each block: see `order_watch`.
    marked: bool,
    payload: Bytes,
}

pub fn collection(pg: u32) -> CollId {
    CollId::Pg(PgId { pool: PoolId(1), seed: pg })
}

/// The `number`th object; its PG follows from its number.
pub fn object(number: u64) -> ObjectId {
    named(number as u32 % PGS, format!("rbd_data.10226b8b4567.{number:016x}"), SnapId::HEAD)
}

fn named(pg: u32, name: String, snap: SnapId) -> ObjectId {
    let hash = base::crc32c(name.as_bytes()) / PGS * PGS + pg;
    let object = HObject { pool: PoolId(1), hash, name: name.into(), snap, ..HObject::default() };
    ObjectId { coll: collection(pg), object }
}

pub fn create_collections() -> Transaction {
    Transaction { ops: (0..PGS).map(|pg| Mutation::CreateCollection(collection(pg))).collect() }
}

/// Object info as its xattr holds it.
pub fn object_info(number: u64) -> BTreeMap<String, Bytes> {
    let mut info = vec![number as u8; INFO_LEN];
    info[..8].copy_from_slice(&number.to_le_bytes());
    BTreeMap::from([("_".to_string(), Bytes::from(info))])
}

/// As an OSD has it: version, epoch.
fn log_key(version: u64) -> Bytes {
    let mut key = [b'l'; 13];
    key[1..9].copy_from_slice(&version.to_be_bytes());
    key[9..].copy_from_slice(&17u32.to_be_bytes());
    Bytes::copy_from_slice(&key)
}

impl Layout {
    pub fn new(metadata: Metadata, marked: bool, random: &mut Random) -> Layout {
        // In huge pages, as long messages are received.
        let mut payload = AlignedBuf::zeroed((OBJECT_LEN + PAYLOAD_SLACK) as usize);
        for word in payload.as_chunks_mut().0 {
            *word = random.next_u64().to_le_bytes();
        }
        Layout {
            objects: Vec::new(),
            logs: (0..PGS).map(|pg| named(pg, String::new(), SnapId(0))).collect(),
            versions: vec![0; PGS as usize],
            metadata,
            marked,
            payload: payload.freeze(),
        }
    }

    pub fn add_object(&mut self) -> usize {
        self.objects.push(object(self.objects.len() as u64));
        self.objects.len() - 1
    }

    /// `operation` counts the writes of this run.
    pub fn write(
        &mut self,
        index: usize,
        offset: u64,
        len: u64,
        operation: u64,
        random: &mut Random,
    ) -> Transaction {
        let unit = if len >= ALIGNED_LEN_MIN { base::aligned::ALIGNMENT as u64 } else { 1 };
        let at = (random.below(PAYLOAD_SLACK) / unit * unit) as usize;
        let mut data = self.payload.slice(at..at + len as usize);
        if self.marked {
            data = super::order_watch::mark_data(&data, operation, index as u64, offset);
        }
        let id = &self.objects[index];
        let mut txn = Transaction::new();
        txn.push(Mutation::Write { id: id.clone(), offset, data });
        if self.metadata == Metadata::Osd {
            let mut attrs = object_info(operation);
            if self.marked {
                attrs.insert("mark".into(), super::order_watch::mark_metadata(operation, index as u64));
            }
            txn.push(Mutation::SetXattrs { id: id.clone(), attrs: attrs.into() });
            self.log(index, &mut txn);
        }
        txn
    }

    pub fn remove(&mut self, index: usize) -> Transaction {
        let mut txn = Transaction::new();
        txn.push(Mutation::Remove(self.objects[index].clone()));
        if self.metadata == Metadata::Osd {
            self.log(index, &mut txn);
        }
        txn
    }

    /// One entry in, and one out when the log is full.
    fn log(&mut self, index: usize, txn: &mut Transaction) {
        let pg = index % PGS as usize;
        let version = self.versions[pg];
        self.versions[pg] += 1;
        if let Some(oldest) = version.checked_sub(LOG_ENTRIES) {
            let (start, end) = (log_key(oldest), log_key(oldest + 1));
            txn.push(Mutation::RmOmapRange { id: self.logs[pg].clone(), start, end });
        }
        let entries = [
            (Bytes::from_static(b"info2"), Bytes::from(vec![2; ENTRY_LEN])),
            (log_key(version), Bytes::from(vec![1; ENTRY_LEN])),
        ];
        txn.push(Mutation::SetOmap { id: self.logs[pg].clone(), entries: entries.into() });
    }
}
