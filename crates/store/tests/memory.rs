//! The memory limit is kept by what is really allocated, not only by what the
//! store believes: every allocation of this process is counted.
#![allow(unsafe_code)]

use base::{AlignedBuf, Random};
use bytes::Bytes;
use env::{DiskInfo, DiskOp, DiskRequest, read_into};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::{
    CollId, Engine, Identity, Mutation, ObjectId, ObjectStore, Options, StoreEvent, StoreMemory, Transaction,
};
use wire::types::{HObject, OsdId, PgId, PoolId, SnapId, Uuid};

/// Bytes allocated and not freed yet.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// What the system's allocator takes: its own word in front, and all of it in 16 bytes.
fn taken(layout: Layout) -> usize {
    (layout.size() + size_of::<usize>()).next_multiple_of(16)
}

struct Counting;

// SAFETY: the system's allocator does the work; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(taken(layout), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(taken(layout), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(taken(layout), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Held by the test whose allocations are counted.
static ALONE: Mutex<()> = Mutex::new(());

const OBJECTS: u64 = 30_000;
const OVERWRITES: u64 = 30_000;
const PGS: u64 = 16;
const LOG_ENTRIES: u64 = 500;
const BATCH: u64 = 32;
/// Requests that a slow device gets around to for each batch, of a checkpoint's long ones but one.
const SLOW: usize = 16;

fn coll(pg: u64) -> CollId {
    CollId::Pg(PgId { pool: PoolId(1), seed: pg as u32 })
}

fn object(n: u64) -> ObjectId {
    let name = format!("benchmark_data_node1_4711_object{n}");
    let hash = base::crc32c(name.as_bytes());
    let object =
        HObject { pool: PoolId(1), hash, name: name.into(), snap: SnapId::HEAD, ..HObject::default() };
    ObjectId { coll: coll(u64::from(hash) % PGS), object }
}

/// Pages of the index and their directory: long requests, and not in pieces of a block as data is.
fn is_of_checkpoint(op: &DiskOp) -> bool {
    let DiskOp::Write { data, .. } = op else { return false };
    let len: usize = data.iter().map(Bytes::len).sum();
    len >= 16 * 4096 && data.iter().any(|piece| piece.len() > 4096)
}

/// A store on a file, which is not in this process's memory. Zeros take no place in it, as long as nothing
/// else was there.
struct Rig {
    engine: Engine,
    file: File,
    info: DiskInfo,
    options: Options,
    /// By block: something else than zeros was there.
    touched: Vec<bool>,
    /// Requests that a slow device has not got around to.
    late: VecDeque<DiskRequest>,
    written: u64,
    /// Of those, not committed yet.
    waiting: u64,
    most: usize,
    most_believed: usize,
    most_index: usize,
    start: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    fn new(memory_limit: usize) -> Rig {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let file = tempfile::tempfile().unwrap();
        let info = DiskInfo { len_bytes: 4 << 30, block_len: 4096, volatile_cache: true };
        file.set_len(info.len_bytes).unwrap();
        let uuid = Uuid::from_random(1, 2);
        let identity = Identity { fsid: uuid, osd: OsdId(0), uuid };
        let options = Options { memory_limit, ..Options::default() };
        let touched = vec![false; (info.len_bytes / 4096) as usize];
        let start = LIVE.load(Relaxed);
        let engine = Engine::format(info, identity, options.clone());
        let mut rig = Rig {
            engine,
            file,
            info,
            options,
            touched,
            late: VecDeque::new(),
            written: 0,
            waiting: 0,
            most: 0,
            most_believed: 0,
            most_index: 0,
            start,
            _alone: alone,
        };
        rig.drive(usize::MAX);
        assert!(rig.engine.is_open(), "{:?}", rig.engine.open_error());
        for coll in (0..PGS).map(coll).chain([CollId::Meta]) {
            rig.engine.queue(Transaction { ops: vec![Mutation::CreateCollection(coll)] }).unwrap();
        }
        rig.waiting = 1 + PGS;
        rig.commit(usize::MAX);
        rig
    }

    /// As after a power cut that lost nothing but what the device had not got around to.
    fn restart(&mut self) {
        self.late.clear();
        self.engine = Engine::open(self.info, None, self.options.clone());
        (self.most, self.most_believed, self.most_index) = (0, 0, 0);
        while !self.engine.is_open() {
            self.drive(1);
            assert!(self.engine.open_error().is_none(), "{:?}", self.engine.open_error());
            self.note_memory();
        }
    }

    fn note_memory(&mut self) {
        let stats = self.engine.stats();
        self.most_index = self.most_index.max(stats.metadata_memory as usize);
        self.most = self.most.max(LIVE.load(Relaxed) - self.start);
        self.most_believed = self.most_believed.max((stats.metadata_memory + stats.cache_memory) as usize);
    }

    fn drive(&mut self, requests: usize) {
        for _ in 0..requests {
            let Some(request) = self.engine.poll_disk() else { break };
            match requests == SLOW && is_of_checkpoint(&request.op) {
                true => self.late.push_back(request),
                false => self.answer(request),
            }
        }
        if let Some(request) = self.late.pop_front() {
            self.answer(request);
        }
    }

    fn answer(&mut self, request: DiskRequest) {
        let result = match request.op {
            DiskOp::Read { offset, len, into } => {
                let mut buf = AlignedBuf::zeroed(len as usize);
                self.file.read_exact_at(&mut buf[..len as usize], offset).unwrap();
                read_into(into, buf.freeze())
            }
            DiskOp::Write { mut offset, data, .. } => {
                for block in data.iter().flat_map(|piece| piece.chunks(4096)) {
                    let touched = &mut self.touched[(offset / 4096) as usize];
                    *touched |= block.iter().any(|byte| *byte != 0);
                    if *touched {
                        self.file.write_all_at(block, offset).unwrap();
                    }
                    offset += block.len() as u64;
                }
                Bytes::new()
            }
            _ => Bytes::new(),
        };
        self.engine.on_disk_done(request.token, Ok(result));
    }

    /// The device gets around to so many requests.
    fn commit(&mut self, requests: usize) {
        self.engine.commit();
        self.drive(requests);
        while let Some(event) = self.engine.poll_event() {
            self.waiting -= u64::from(matches!(event, StoreEvent::Committed(_)));
        }
        assert!(self.engine.fatal_error().is_none());
        self.note_memory();
    }

    fn write_slowly(&mut self, n: u64, data: &Bytes) {
        self.write(n, data);
        while self.waiting >= 4 * BATCH {
            self.commit(SLOW);
        }
    }

    fn finish(&mut self) {
        while self.waiting > 0 {
            self.commit(SLOW);
        }
    }

    /// As an OSD writes 4 KiB: data, the object's info, an entry of the PG's log in and one out.
    fn write(&mut self, n: u64, data: &Bytes) {
        let id = object(n);
        self.written += 1;
        self.waiting += 1;
        let version = self.written;
        let log = ObjectId {
            coll: CollId::Meta,
            object: HObject {
                name: format!("pg.{:?}", id.coll).into(),
                pool: PoolId(-1),
                ..HObject::default()
            },
        };
        let key = |version: u64| Bytes::from(format!("l{version:012}"));
        let mut txn = Transaction::new();
        let info = [("_", Bytes::from(vec![version as u8; 250]))].into();
        txn.push(Mutation::Write { id: id.clone(), offset: 0, data: data.clone() });
        txn.push(Mutation::SetXattrs { id, attrs: info });
        let entries = [(key(version), Bytes::from(vec![1; 100]))].into();
        txn.push(Mutation::SetOmap { id: log.clone(), entries });
        if let Some(old) = version.checked_sub(LOG_ENTRIES * PGS) {
            txn.push(Mutation::RmOmap { id: log, keys: BTreeSet::from([key(old)]) });
        }
        self.engine.queue(txn).unwrap();
    }
}

#[test]
fn small_objects_beyond_what_the_limit_holds_are_paged_not_kept() {
    const MEMORY_LIMIT: usize = 24 << 20;
    let mut rig = Rig::new(MEMORY_LIMIT);
    let mut random = Random::from_seed(7);
    let data = AlignedBuf::zeroed(4096).freeze();
    for n in 0..OBJECTS + OVERWRITES {
        let n = if n < OBJECTS { n } else { random.below(OBJECTS) };
        rig.write(n, &data);
        if rig.written.is_multiple_of(BATCH) {
            rig.commit(usize::MAX);
        }
    }
    rig.commit(usize::MAX);
    let stats = rig.engine.stats();
    assert_eq!(stats.objects, OBJECTS + PGS);
    assert!(stats.metadata_reads > 1000, "the index did not fit: {}", stats.metadata_reads);
    assert!(rig.most_believed <= MEMORY_LIMIT, "believed: {} MiB", rig.most_believed >> 20);
    assert!(rig.most <= MEMORY_LIMIT, "allocated: {} MiB", rig.most >> 20);

    let StoreMemory { cache, objects, maps, buffers } = rig.engine.memory();
    assert_eq!((objects + maps).bytes, stats.metadata_memory);
    assert_eq!(cache.bytes, stats.cache_memory);
    assert!(objects.items > 10 && maps.items > 10 && buffers.items > 0);
    let told = (cache + objects + maps + buffers).bytes as usize;
    let allocated = LIVE.load(Relaxed) - rig.start;
    assert!(told <= allocated && told > allocated / 2, "{told} of {allocated} bytes");
}

/// New objects come in any order: each changes a page that has to be read first, and to be
/// written before it may leave memory. The device here is slow, so that checkpoints do not keep up.
#[test]
fn new_objects_wait_for_checkpoints_instead_of_filling_memory() {
    const MEMORY_LIMIT: usize = 32 << 20;
    const NEW_OBJECTS: u64 = 60_000;
    let mut rig = Rig::new(MEMORY_LIMIT);
    let data = AlignedBuf::zeroed(4096).freeze();
    for n in 0..NEW_OBJECTS {
        rig.write_slowly(n, &data);
    }
    rig.finish();
    let stats = rig.engine.stats();
    assert_eq!(stats.objects, NEW_OBJECTS + PGS);
    assert!(stats.transactions_paced > 1000, "checkpoints kept up: {}", stats.transactions_paced);
    assert!(rig.most_believed <= MEMORY_LIMIT, "believed: {} MiB", rig.most_believed >> 20);
    assert!(rig.most <= MEMORY_LIMIT, "allocated: {} MiB", rig.most >> 20);

    // What changed last is changed again, and what was logged is in memory again.
    rig.restart();
    assert_eq!(rig.engine.stats().objects, NEW_OBJECTS + PGS);
    assert!(rig.most <= MEMORY_LIMIT, "after a restart: {} MiB", rig.most >> 20);

    // Parts of blocks go through the log, and stay in memory until they are in place.
    let part = Bytes::from(vec![1; 512]);
    for n in 0..20_000 {
        rig.write_slowly(n, &part);
    }
    rig.finish();
    assert!(rig.most <= MEMORY_LIMIT, "logged: {} MiB", rig.most >> 20);
    rig.restart();
    assert!(rig.most <= MEMORY_LIMIT, "after another restart: {} MiB", rig.most >> 20);

    // So do whole blocks that keep their places.
    rig.options.always_keep_places = true;
    rig.restart();
    let in_place = rig.engine.stats().writes_by_part.in_place.bytes;
    for n in 0..20_000 {
        rig.write_slowly(n, &data);
    }
    rig.finish();
    let in_place = rig.engine.stats().writes_by_part.in_place.bytes - in_place;
    assert!(in_place > 10_000 * 4096, "in place: {} MiB", in_place >> 20);
    assert!(rig.most <= MEMORY_LIMIT, "kept: {} MiB", rig.most >> 20);
    rig.restart();
    assert!(rig.most <= MEMORY_LIMIT, "kept, after a restart: {} MiB", rig.most >> 20);
}

/// A clone keeps a reference of each block that it shares, about 6 bytes of a page: more than the
/// index may take here, all of them.
#[test]
fn references_of_shared_blocks_are_paged_not_kept() {
    const MEMORY_LIMIT: usize = 10 << 20;
    const IMAGE: u64 = 800;
    const OBJECT_LEN: u64 = 4 << 20;
    let data = AlignedBuf::zeroed(OBJECT_LEN as usize).freeze();
    // Never given back: that would be taken off the next test's count.
    std::mem::forget(data.clone());
    let mut rig = Rig::new(MEMORY_LIMIT);
    let mut random = Random::from_seed(8);
    let snapshot = |n: u64| {
        let mut id = object(n);
        id.object.snap = SnapId(1);
        id
    };
    let run = |rig: &mut Rig, op: Mutation| {
        rig.engine.queue(Transaction { ops: vec![op] }).unwrap();
        rig.waiting += 1;
        while rig.waiting >= 4 {
            rig.commit(16);
        }
    };
    for n in 0..IMAGE {
        run(&mut rig, Mutation::Write { id: object(n), offset: 0, data: data.clone() });
        run(&mut rig, Mutation::Clone { from: object(n), to: snapshot(n) });
    }
    rig.finish();
    let overwrite = |rig: &mut Rig, random: &mut Random| {
        for _ in 0..4000 {
            let (n, offset) = (random.below(IMAGE), random.below(OBJECT_LEN / 4096) * 4096);
            run(rig, Mutation::Write { id: object(n), offset, data: data.slice(..4096) });
        }
        rig.finish();
    };
    overwrite(&mut rig, &mut random);
    let check = |rig: &Rig, when: &str| {
        // Pages arrive before others leave.
        let (index, share) = (rig.most_index, MEMORY_LIMIT / 8 * 3);
        println!("{when}: {} KiB of index, {} KiB in all", index >> 10, rig.most >> 10);
        assert!(index <= share / 8 * 9, "{when}, index: {} of {} KiB", index >> 10, share >> 10);
        assert!(rig.most <= MEMORY_LIMIT, "{when}, allocated: {} KiB", rig.most >> 10);
    };
    check(&rig, "overwritten");

    rig.restart();
    check(&rig, "after a restart");
    overwrite(&mut rig, &mut random);
    for n in 0..IMAGE {
        run(&mut rig, Mutation::Remove(snapshot(n)));
    }
    rig.finish();
    check(&rig, "without clones");
    let stats = rig.engine.stats();
    assert_eq!((stats.objects, stats.data), (IMAGE, IMAGE * OBJECT_LEN));
}
