//! What the engine itself costs: 4 KiB random overwrites with the metadata of
//! a PG's log entry, against a device that does nothing.
//!
//! `cargo run --release -p store --example engine_cpu [batch [seconds]]`
//!
//! Prints microseconds of CPU, device writes, bytes and flushes per client
//! write, in steady state: checkpoints and writeback included.

use base::{AlignedBuf, Random};
use bytes::Bytes;
use env::{DiskInfo, DiskOp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use store::{CollId, Engine, Identity, Mutation, ObjectId, ObjectStore, Options, StoreEvent, Transaction};
use wire::types::{HObject, OsdId, PgId, PoolId, SnapId, Uuid};

const OBJECT_LEN: u64 = 4 << 20;
const OBJECTS: u64 = 1024;
const PGS: u32 = 32;
/// Entries that a PG's log keeps.
const LOG_ENTRIES: u64 = 3000;

fn coll(pg: u32) -> CollId {
    CollId::Pg(PgId { pool: PoolId(1), seed: pg })
}

fn object(pg: u32, name: String, snap: SnapId) -> ObjectId {
    let hash = base::crc32c(name.as_bytes()) / PGS * PGS + pg;
    let object = HObject { pool: PoolId(1), hash, name, snap, ..HObject::default() };
    ObjectId { coll: coll(pg), object }
}

/// Answers at once. Reads return zeros, so nothing may depend on them.
fn drive(engine: &mut Engine) {
    while let Some(request) = engine.poll_disk() {
        let result = match request.op {
            DiskOp::Read { len, .. } => AlignedBuf::zeroed(len as usize).freeze(),
            _ => Bytes::new(),
        };
        engine.on_disk_done(request.token, Ok(result));
    }
}

/// Like an OSD's transaction: data, object info, one log entry in, one out.
fn transaction(id: &ObjectId, offset: u64, data: Bytes, log: &ObjectId, version: u64) -> Transaction {
    let info = BTreeMap::from([("_".to_string(), Bytes::from(vec![version as u8; 250]))]);
    let key = |version: u64| Bytes::from(format!("{:010}.{version:020}", 17));
    let entries = BTreeMap::from([
        (key(version), Bytes::from(vec![1; 180])),
        (Bytes::from_static(b"_fastinfo"), Bytes::from(vec![2; 180])),
    ]);
    let mut txn = Transaction::new();
    txn.push(Mutation::Write { id: id.clone(), offset, data });
    txn.push(Mutation::SetXattrs { id: id.clone(), attrs: info });
    txn.push(Mutation::SetOmap { id: log.clone(), entries });
    if version >= LOG_ENTRIES {
        let keys = BTreeSet::from([key(version - LOG_ENTRIES)]);
        txn.push(Mutation::RmOmap { id: log.clone(), keys });
    }
    txn
}

fn commit(engine: &mut Engine) -> u64 {
    engine.commit();
    drive(engine);
    let mut committed = 0;
    while let Some(event) = engine.poll_event() {
        committed += u64::from(matches!(event, StoreEvent::Committed(_)));
    }
    committed
}

/// User and system time of this process, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let batch = args.next().unwrap_or(32);
    let seconds = args.next().unwrap_or(5);
    let disk = DiskInfo { len_bytes: 20 << 30, block_len: 4096, volatile_cache: true };
    let uuid = Uuid::from_random(1, 2);
    let identity = Identity { fsid: uuid, osd: OsdId(0), uuid };
    let mut engine = Engine::format(disk, identity, Options::default());
    drive(&mut engine);
    assert!(engine.is_open());

    let mut random = Random::from_seed(7);
    let mut ids = Vec::new();
    let large = AlignedBuf::zeroed(OBJECT_LEN as usize).freeze();
    for pg in 0..PGS {
        let create = Mutation::CreateCollection(coll(pg));
        engine.queue(Transaction { ops: vec![create] }).expect("fits");
    }
    let start = Instant::now();
    for n in 0..OBJECTS {
        let name = format!("rbd_data.10226b8b4567.{n:016x}");
        let id = object(n as u32 % PGS, name, SnapId::HEAD);
        let write = Mutation::Write { id: id.clone(), offset: 0, data: large.clone() };
        engine.queue(Transaction { ops: vec![write] }).expect("fits");
        commit(&mut engine);
        ids.push(id);
    }
    let filling = start.elapsed().as_secs_f64();
    let filled = OBJECTS as f64 * OBJECT_LEN as f64 / f64::from(1 << 20);
    println!("fill: {:.0} MiB/s, {:.0} us per 4 MiB", filled / filling, filling / OBJECTS as f64 * 1e6);

    let logs: Vec<ObjectId> = (0..PGS).map(|pg| object(pg, String::new(), SnapId(0))).collect();
    let data = Bytes::from(vec![0x5a; 64 << 10]);
    let mut versions = vec![0u64; PGS as usize];
    let (mut writes, mut committed) = (0u64, 0u64);
    let mut before = (engine.stats(), cpu_seconds(), 0u64);
    let start = Instant::now();
    let mut measuring = false;
    while start.elapsed().as_secs() < seconds + 2 {
        if !measuring && start.elapsed().as_secs() >= 2 {
            // Steady state: the log has wrapped.
            measuring = true;
            before = (engine.stats(), cpu_seconds(), writes);
        }
        for _ in 0..64 {
            for _ in 0..batch {
                let n = random.below(OBJECTS) as usize;
                let pg = n % PGS as usize;
                let offset = random.below(OBJECT_LEN / 4096) * 4096;
                let at = random.below(1000) as usize;
                let piece = data.slice(at..at + 4096);
                let txn = transaction(&ids[n], offset, piece, &logs[pg], versions[pg]);
                versions[pg] += 1;
                engine.queue(txn).expect("fits");
            }
            writes += batch;
            committed += commit(&mut engine);
        }
    }
    let (stats, cpu) = (engine.stats(), cpu_seconds() - before.1);
    let count = (writes - before.2) as f64;
    let old = before.0;
    println!(
        "4 KiB overwrites in batches of {batch}: {:.2} us CPU, {:.3} device writes, {:.3} flushes, \
         {:.3} device bytes per byte",
        cpu / count * 1e6,
        (stats.device_writes - old.device_writes) as f64 / count,
        (stats.flushes - old.flushes) as f64 / count,
        (stats.device_write_bytes - old.device_write_bytes) as f64 / count / 4096.0,
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("");
    println!("{resident}");
    println!("{writes} written, {committed} committed, {:?}", engine.info());
}
