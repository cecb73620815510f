//! What the engine itself costs, against a device that does nothing: 4 KiB random
//! overwrites with the metadata of a PG's log entry, and 4 KiB random reads with the
//! questions that an OSD asks first.
//!
//! `cargo run --release -p store --example engine_cpu [batch [count [objects [percent]]]]`
//!
//! `percent`: how full the device is; above 50 it is also aged, by overwriting
//! all of it twice at random.
//!
//! Prints microseconds of CPU, device writes, bytes and flushes per client
//! write, in steady state: checkpoints and writeback included. Where the machine is
//! busy, count instructions instead, of [`measure_writes`] and [`measure_reads`] each:
//!
//! `valgrind --tool=callgrind --collect-atstart=no --toggle-collect='engine_cpu::measure_writes'
//! target/release/examples/engine_cpu 32 100000 128`

use base::{AlignedBuf, Random};
use bytes::Bytes;
use env::{DiskInfo, DiskOp, read_into};
use store::{CollId, Engine, Identity, Mutation, ObjectId, ObjectStore, Options, StoreEvent, Transaction};
use wire::types::{HObject, OsdId, PgId, PoolId, SnapId, Uuid};

const OBJECT_LEN: u64 = 4 << 20;
const BLOCK_LEN: u64 = 4096;
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

/// Answers at once. Every read returns zeros, so they are all that is ever written, and
/// no page of the index may have to be read.
fn drive(engine: &mut Engine, zeros: &Bytes) {
    while let Some(request) = engine.poll_disk() {
        let result = match request.op {
            DiskOp::Read { len, into: None, .. } if len as usize <= zeros.len() => {
                zeros.slice(..len as usize)
            }
            DiskOp::Read { len, into, .. } => read_into(into, AlignedBuf::zeroed(len as usize).freeze()),
            _ => Bytes::new(),
        };
        engine.on_disk_done(request.token, Ok(result));
    }
}

/// As an OSD has them.
fn log_key(version: u64) -> Bytes {
    let mut key = [b'l'; 13];
    key[1..9].copy_from_slice(&version.to_be_bytes());
    key[9..].copy_from_slice(&17u32.to_be_bytes());
    Bytes::copy_from_slice(&key)
}

/// Like an OSD's transaction: data, object info, one log entry in, one out.
fn transaction(id: &ObjectId, offset: u64, data: Bytes, log: &ObjectId, version: u64) -> Transaction {
    let info = [("_", Bytes::from(vec![version as u8; 250]))].into();
    let entries = [
        (Bytes::from_static(b"info2"), Bytes::from(vec![2; 180])),
        (log_key(version), Bytes::from(vec![1; 180])),
    ]
    .into();
    let mut txn = Transaction::new();
    txn.push(Mutation::Write { id: id.clone(), offset, data });
    txn.push(Mutation::SetXattrs { id: id.clone(), attrs: info });
    if version >= LOG_ENTRIES {
        let (start, end) = (log_key(version - LOG_ENTRIES), log_key(version - LOG_ENTRIES + 1));
        txn.push(Mutation::RmOmapRange { id: log.clone(), start, end });
    }
    txn.push(Mutation::SetOmap { id: log.clone(), entries });
    txn
}

/// User and system time of this process, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

struct Load {
    engine: Engine,
    random: Random,
    ids: Vec<ObjectId>,
    logs: Vec<ObjectId>,
    versions: Vec<u64>,
    zeros: Bytes,
}

impl Load {
    fn commit(&mut self) -> u64 {
        self.engine.commit();
        drive(&mut self.engine, &self.zeros);
        let mut ended = 0;
        while let Some(event) = self.engine.poll_event() {
            ended += match event {
                StoreEvent::Committed(_) => 1,
                StoreEvent::Read { result, .. } => u64::from(result.expect("read").len() as u64 == BLOCK_LEN),
                StoreEvent::Loaded(_) => panic!("a page was not in memory"),
            };
        }
        ended
    }

    fn fill(&mut self, data: &Bytes, objects: std::ops::Range<u64>) {
        for n in objects {
            let name = format!("rbd_data.10226b8b4567.{n:016x}");
            let id = object(n as u32 % PGS, name, SnapId::HEAD);
            let write = Mutation::Write { id: id.clone(), offset: 0, data: data.clone() };
            self.engine.queue(Transaction { ops: vec![write] }).expect("fits");
            self.commit();
            self.ids.push(id);
        }
    }

    /// An object, and a block of it.
    fn place(&mut self) -> (usize, u64) {
        let n = self.random.below(self.ids.len() as u64) as usize;
        (n, self.random.below(OBJECT_LEN / BLOCK_LEN) * BLOCK_LEN)
    }

    fn next_write(&mut self) -> Transaction {
        let (n, offset) = self.place();
        let pg = n % PGS as usize;
        // As received: at any address.
        let at = self.random.below(1000) as usize;
        let piece = self.zeros.slice(at..at + BLOCK_LEN as usize);
        let version = self.versions[pg];
        self.versions[pg] += 1;
        transaction(&self.ids[n], offset, piece, &self.logs[pg], version)
    }

    fn write(&mut self, count: u64, batch: u64) {
        for _ in 0..count / batch {
            for _ in 0..batch {
                let txn = self.next_write();
                self.engine.queue(txn).expect("fits");
            }
            // The rest of a batch whose first part left early may go with the next.
            self.commit();
        }
        self.commit();
    }

    fn read_whole(&mut self) {
        for id in &self.ids {
            self.engine.read(id, 0, OBJECT_LEN).expect("it is there");
            self.engine.commit();
            drive(&mut self.engine, &self.zeros);
            let event = self.engine.poll_event();
            assert!(matches!(event, Some(StoreEvent::Read { result: Ok(_), .. })));
        }
    }

    fn read(&mut self, count: u64, batch: u64) {
        for _ in 0..count / batch {
            for _ in 0..batch {
                let (n, offset) = self.place();
                let id = &self.ids[n];
                assert!(matches!(self.engine.stat(id), Ok(Some(stat)) if stat.size == OBJECT_LEN));
                assert!(matches!(self.engine.xattr(id, "_"), Ok(Some(_))));
                self.engine.read(id, offset, BLOCK_LEN).expect("it is there");
            }
            assert_eq!(self.commit(), batch);
        }
    }
}

#[inline(never)]
fn measure_writes(load: &mut Load, count: u64, batch: u64) {
    load.write(count, batch);
}

#[inline(never)]
fn measure_reads(load: &mut Load, count: u64, batch: u64) {
    load.read(count, batch);
}

#[inline(never)]
fn measure_making(load: &mut Load, count: u64) {
    for _ in 0..count {
        std::hint::black_box(load.next_write());
    }
}

/// Microseconds of CPU for each of `count`.
fn timed(count: u64, work: impl FnOnce()) -> f64 {
    let before = cpu_seconds();
    work();
    (cpu_seconds() - before) / count as f64 * 1e6
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let batch = args.next().unwrap_or(32).max(1);
    let count = args.next().unwrap_or(500_000).next_multiple_of(batch);
    let objects = args.next().unwrap_or(1024).max(u64::from(PGS));
    let percent = args.next().unwrap_or(20).clamp(1, 95);
    let blocks = objects * OBJECT_LEN / BLOCK_LEN;
    // An eighth of the data: a smaller store has as many checkpoints for each of its blocks.
    let log_len = objects * OBJECT_LEN / 8;
    let len_bytes = (blocks * BLOCK_LEN * 100 / percent + log_len) / BLOCK_LEN * BLOCK_LEN;
    let disk = DiskInfo { len_bytes, block_len: BLOCK_LEN as u32, volatile_cache: true };
    let uuid = Uuid::from_random(1, 2);
    let identity = Identity { fsid: uuid, osd: OsdId(0), uuid };
    let options = Options { log_len: Some(log_len), ..Options::default() };
    let engine = Engine::format(disk, identity, options);
    let mut load = Load {
        engine,
        random: Random::from_seed(7),
        ids: Vec::new(),
        logs: (0..PGS).map(|pg| object(pg, String::new(), SnapId(0))).collect(),
        versions: vec![0; PGS as usize],
        zeros: AlignedBuf::zeroed(64 << 10).freeze(),
    };
    drive(&mut load.engine, &load.zeros);
    assert!(load.engine.is_open(), "{:?}", load.engine.open_error());

    for pg in 0..PGS {
        let create = Mutation::CreateCollection(coll(pg));
        load.engine.queue(Transaction { ops: vec![create] }).expect("fits");
    }
    let aligned = AlignedBuf::zeroed(OBJECT_LEN as usize).freeze();
    let unaligned = Bytes::from(vec![0; OBJECT_LEN as usize + 1]).slice(1..);
    let half = objects / 2;
    let aligned = timed(half, || load.fill(&aligned, 0..half));
    let unaligned = timed(objects - half, || load.fill(&unaligned, half..objects));
    println!("4 MiB writes: {aligned:.0} us each, {unaligned:.0} us where the data is not aligned");

    // Until a PG's log is full and checkpoints come and go; on a full device, until
    // its free space is scattered.
    load.write(count.max(if percent > 50 { 2 * blocks } else { 0 }), batch);
    let old = load.engine.stats();
    let writing = timed(count, || measure_writes(&mut load, count, batch));
    let stats = load.engine.stats();
    let making = timed(count, || measure_making(&mut load, count));
    let per_write = |new: u64, old: u64| (new - old) as f64 / count as f64;
    println!(
        "4 KiB overwrites in batches of {batch}, {percent} % full: {writing:.2} us CPU ({making:.2} us of it making \
         the transactions), {:.3} device writes, {:.3} flushes, {:.3} device bytes per byte",
        per_write(stats.device_writes, old.device_writes),
        per_write(stats.flushes + stats.durable_writes, old.flushes + old.durable_writes),
        per_write(stats.device_write_bytes, old.device_write_bytes) / BLOCK_LEN as f64,
    );
    let parts = |stats: &store::StoreStats| {
        let parts = stats.writes_by_part;
        [parts.log, parts.data, parts.in_place, parts.checkpoints].map(|part| part.requests)
    };
    let [log, data, in_place, checkpoints] =
        std::array::from_fn(|n| per_write(parts(&stats)[n], parts(&old)[n]));
    println!(
        "device writes of these: {log:.3} log, {data:.3} data, {in_place:.3} in place, {checkpoints:.3} checkpoints"
    );
    let reads = load.engine.stats().device_reads;
    load.read_whole();
    let reads = (load.engine.stats().device_reads - reads) as f64 / objects as f64;
    println!("device reads of a whole object: {reads:.1}");
    let reading = timed(count, || measure_reads(&mut load, count, batch));
    let hits = load.engine.stats().cache_hits - stats.cache_hits;
    println!(
        "4 KiB reads in batches of {batch}: {reading:.2} us CPU, {:.3} of them from the cache",
        hits as f64 / count as f64
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("");
    println!("{resident}");
    println!("{:?}", load.engine.info());
}
