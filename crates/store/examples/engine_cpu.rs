//! What the engine itself costs: 4 KiB random overwrites with the metadata of
//! a PG's log entry, against a device that does nothing.
//!
//! `cargo run --release -p store --example engine_cpu [batch [seconds [objects [percent]]]]`
//!
//! `percent`: how full the device is; above 50 it is also aged, by overwriting
//! all of it twice at random.
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
const PGS: u32 = 32;
/// Entries that a PG's log keeps.
const LOG_ENTRIES: u64 = 3000;

fn coll(pg: u32) -> CollId {
    CollId::Pg(PgId { pool: PoolId(1), seed: pg })
}

fn object(pg: u32, name: String, snap: SnapId) -> ObjectId {
    let hash = base::crc32c(name.as_bytes()) / PGS * PGS + pg;
    let object = HObject { pool: PoolId(1), hash, name: name.into(), snap, ..HObject::default() };
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

/// The workload: which write comes next.
struct Writes {
    random: Random,
    ids: Vec<ObjectId>,
    logs: Vec<ObjectId>,
    versions: Vec<u64>,
    data: Bytes,
}

impl Writes {
    fn next(&mut self) -> Transaction {
        let n = self.random.below(self.ids.len() as u64) as usize;
        let pg = n % PGS as usize;
        let offset = self.random.below(OBJECT_LEN / 4096) * 4096;
        // As received: at any address.
        let at = self.random.below(1000) as usize;
        let piece = self.data.slice(at..at + 4096);
        let version = self.versions[pg];
        self.versions[pg] += 1;
        transaction(&self.ids[n], offset, piece, &self.logs[pg], version)
    }

    fn run(&mut self, engine: &mut Engine, batch: u64) -> u64 {
        for _ in 0..batch {
            let txn = self.next();
            engine.queue(txn).expect("fits");
        }
        commit(engine)
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let batch = args.next().unwrap_or(32);
    let seconds = args.next().unwrap_or(5);
    let objects = args.next().unwrap_or(1024);
    let percent = args.next().unwrap_or(20).clamp(1, 95);
    let blocks = objects * OBJECT_LEN / 4096;
    let log_len = 512 << 20;
    let len_bytes = (blocks * 4096 * 100 / percent + log_len) / 4096 * 4096;
    let disk = DiskInfo { len_bytes, block_len: 4096, volatile_cache: true };
    let uuid = Uuid::from_random(1, 2);
    let identity = Identity { fsid: uuid, osd: OsdId(0), uuid };
    let options = Options { log_len: Some(log_len), ..Options::default() };
    let mut engine = Engine::format(disk, identity, options);
    drive(&mut engine);
    assert!(engine.is_open(), "{:?}", engine.open_error());

    let mut ids = Vec::new();
    let aligned = AlignedBuf::zeroed(OBJECT_LEN as usize).freeze();
    let unaligned = Bytes::from(vec![1; OBJECT_LEN as usize + 1]).slice(1..);
    for pg in 0..PGS {
        let create = Mutation::CreateCollection(coll(pg));
        engine.queue(Transaction { ops: vec![create] }).expect("fits");
    }
    let mut filling = [0.0, 0.0];
    for n in 0..objects {
        let half = (2 * n / objects) as usize;
        let data = [&aligned, &unaligned][half].clone();
        let start = Instant::now();
        let name = format!("rbd_data.10226b8b4567.{n:016x}");
        let id = object(n as u32 % PGS, name, SnapId::HEAD);
        let write = Mutation::Write { id: id.clone(), offset: 0, data };
        engine.queue(Transaction { ops: vec![write] }).expect("fits");
        commit(&mut engine);
        ids.push(id);
        filling[half] += start.elapsed().as_secs_f64();
    }
    let [aligned, unaligned] = filling.map(|seconds| seconds / objects as f64 * 2e6);
    println!("4 MiB writes: {aligned:.0} us each, {unaligned:.0} us where the data is not aligned");

    let mut writes = Writes {
        random: Random::from_seed(7),
        ids,
        logs: (0..PGS).map(|pg| object(pg, String::new(), SnapId(0))).collect(),
        versions: vec![0; PGS as usize],
        data: Bytes::from(vec![0x5a; 64 << 10]),
    };
    // Until the log has wrapped; on a full device, until its free space is scattered.
    let start = Instant::now();
    let mut aged = 0;
    while start.elapsed().as_secs() < 2 || (percent > 50 && aged < 2 * blocks) {
        aged += writes.run(&mut engine, batch);
    }
    let (old, before) = (engine.stats(), cpu_seconds());
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed().as_secs() < seconds {
        for _ in 0..64 {
            count += writes.run(&mut engine, batch);
        }
    }
    let (stats, cpu, count) = (engine.stats(), cpu_seconds() - before, count as f64);
    let start = Instant::now();
    let (before, mut made) = (cpu_seconds(), 0);
    while start.elapsed().as_secs() < 1 {
        for _ in 0..1000 {
            made += std::hint::black_box(writes.next()).ops.len().min(1);
        }
    }
    let making = (cpu_seconds() - before) / made as f64;
    println!(
        "4 KiB overwrites in batches of {batch}, {percent} % full: {:.2} us CPU ({:.2} us of it making \
         the transactions), {:.3} device writes, {:.3} flushes, {:.3} device bytes per byte",
        cpu / count * 1e6,
        making * 1e6,
        (stats.device_writes - old.device_writes) as f64 / count,
        (stats.flushes - old.flushes) as f64 / count,
        (stats.device_write_bytes - old.device_write_bytes) as f64 / count / 4096.0,
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("");
    println!("{resident}");
    println!("{aged} + {count} written, {:?}", engine.info());
}
