//! Damaged, foreign, full and failing devices: an error that says what is
//! wrong, never wrong data, never a panic.

mod common;

fn marker() -> ObjectId {
    id(CollId::Meta, "marker")
}

use base::{AlignedBuf, Errno, Random};
use bytes::Bytes;
use common::damage::{LOG, Used, used};
use common::disk::{Image, SimDisk};
use common::*;
use env::{DiskOp, DiskRequest};
use store::{
    CollId, DEVICE_LEN_MIN, Engine, FsckReport, Identity, Mutation, ObjectId, ObjectStore, OpenError,
    Options, StoreError, StoreEvent,
};
use wire::types::{OsdId, Uuid};

#[test]
fn foreign_devices_are_refused_with_what_is_wrong() {
    let image = used(2, 10).image;
    let open = |image: &Image, len, expect| {
        let disk = SimDisk::with_image(len, image.clone());
        let engine = Engine::open(disk.info, expect, options());
        let mut rig = Rig::new(engine, disk, 1);
        rig.drive();
        rig.engine.open_error().cloned()
    };
    let Identity { fsid, osd, .. } = identity();
    let other = Uuid::from_random(9, 9);
    assert_eq!(
        open(&image, DEVICE_LEN, Some((other, osd))),
        Some(OpenError::OtherCluster { found: fsid, expected: other })
    );
    assert_eq!(
        open(&image, DEVICE_LEN, Some((fsid, OsdId(4)))),
        Some(OpenError::OtherOsd { found: osd, expected: OsdId(4) })
    );
    assert_eq!(
        open(&image, DEVICE_LEN_MIN - 4096, None),
        Some(OpenError::TooSmall { len: DEVICE_LEN_MIN - 4096, need: DEVICE_LEN_MIN })
    );
    assert_eq!(open(&Image::default(), DEVICE_LEN, None), Some(OpenError::NotAStore));
    // Grown: opens, with the second superblock where the end was.
    assert_eq!(open(&image, DEVICE_LEN * 2, Some((fsid, osd))), None);

    let with_version = |version: u8| {
        let mut other = image.clone();
        for offset in [0, DEVICE_LEN - 4096] {
            let mut block = [0; 4096];
            image.read(offset, &mut block);
            block[8] = version;
            let crc = base::crc32c(&block[..4092]);
            block[4092..].copy_from_slice(&crc.to_le_bytes());
            other.write(offset, &block);
        }
        open(&other, DEVICE_LEN, None)
    };
    let error = with_version(9);
    assert!(matches!(error, Some(OpenError::Newer { version: 9, .. })), "{error:?}");
    let error = with_version(1);
    assert!(matches!(error, Some(OpenError::Older { version: 1, .. })), "{error:?}");
}

#[test]
fn a_device_cut_short_is_refused() {
    let rig = Rig::format(DEVICE_LEN * 2, options(), 1);
    let disk = SimDisk::with_image(DEVICE_LEN, rig.disk.durable);
    let error = Rig::try_open_disk(disk, options(), 1).err();
    assert_eq!(error, Some(OpenError::Shrunk { len: DEVICE_LEN, need: DEVICE_LEN * 2 }));
}

#[test]
fn format_does_not_overwrite_a_store_unasked() {
    let image = used(3, 10).image;
    let format = |options: Options| {
        let disk = SimDisk::with_image(DEVICE_LEN, image.clone());
        let identity = Identity { uuid: Uuid::from_random(8, 8), ..identity() };
        let engine = Engine::format(disk.info, identity, options);
        let mut rig = Rig::new(engine, disk, 1);
        rig.drive();
        rig
    };
    let refused = format(options());
    let fsid = identity().fsid;
    assert_eq!(refused.engine.open_error(), Some(&OpenError::AlreadyAStore { fsid }));
    let fresh = format(Options { overwrite: true, ..options() });
    assert!(fresh.engine.is_open());
    // Nothing of the old store's log comes back.
    let reopened = Rig::try_open(fresh.disk.durable, options(), 1).unwrap();
    assert_eq!(reopened.engine.collections(), []);
}

#[test]
fn a_failed_write_or_flush_ends_all_acknowledgements() {
    for seed in 0..60 {
        let mut rig = Rig::format(DEVICE_LEN, options(), seed);
        let mut generator = Generator::new(seed, MIX);
        rig.run([CollId::Meta, pg(0)].map(Mutation::CreateCollection).to_vec()).unwrap();
        rig.drive();
        rig.disk.fail_after = Some(rig.disk.requests + generator.random.below(120));
        let mut queued = 0;
        while rig.engine.fatal_error().is_none() {
            queued += u64::from(rig.queue(&generator.transaction()).is_ok());
            rig.engine.commit();
            rig.step();
            assert!(queued < 2000, "never failed");
        }
        rig.collect();
        rig.events.clear();
        let refused = rig.queue(&generator.transaction());
        assert_eq!(refused.unwrap_err().errno(), Errno::EIO);
        rig.engine.commit();
        rig.drive();
        assert_eq!(rig.events, [], "an event after the failure");
    }
}

fn fill(rig: &mut Rig, len: usize) -> Vec<ObjectId> {
    let mut filled = Vec::new();
    loop {
        let id = id(pg(0), &format!("filler {} {len}", filled.len()));
        match rig.run(vec![write(&id, 0, pattern(1, len))]) {
            Ok(_) => filled.push(id),
            Err(StoreError::NoSpace { .. }) => {
                rig.drive();
                return filled;
            }
            Err(error) => panic!("{error}"),
        }
        if filled.len() % 7 == 0 {
            rig.drive();
        }
    }
}

#[test]
fn a_full_device_takes_deletes_and_metadata_and_recovers() {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    rig.run(vec![Mutation::CreateCollection(pg(0))]).unwrap();
    for round in 0..3 {
        let mut filled = fill(&mut rig, 256 << 10);
        filled.extend(fill(&mut rig, 4096));
        assert!(filled.len() > 40, "{}", filled.len());
        assert!(rig.engine.stats().available < 512 << 10);
        // In place, and metadata: as a delete's log entry is.
        let last = filled.last().unwrap().clone();
        rig.run(vec![write(&last, 0, pattern(2, 4096))]).unwrap();
        for (n, id) in filled.into_iter().enumerate() {
            let entries = [(Bytes::from("k"), pattern(n as u64, 200))].into();
            let log = Mutation::SetOmap { id: marker_in_pg(), entries };
            rig.run(vec![Mutation::Remove(id), log]).unwrap();
            rig.engine.commit();
            rig.step();
        }
        rig.drive();
        assert_eq!(rig.engine.fatal_error(), None);
        assert!(rig.engine.stats().available > 8 << 20, "round {round}: {:?}", rig.engine.stats());
        if round == 1 {
            rig = Rig::try_open_disk(rig.disk, options(), 1).unwrap();
        }
    }
}

#[test]
fn a_full_device_takes_overwrites_of_what_it_holds() {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    rig.run(vec![Mutation::CreateCollection(pg(0))]).unwrap();
    fill(&mut rig, 256 << 10);
    let small = fill(&mut rig, 4096);
    let available = rig.engine.stats().available;
    for (n, id) in (0u64..).zip(&small) {
        rig.run(vec![write(id, 0, pattern(n, 4096))]).unwrap();
    }
    rig.drive();
    assert!(rig.engine.stats().available.abs_diff(available) < 64 << 10);
    let mut rig = Rig::try_open_disk(rig.disk, options(), 1).unwrap();
    for (n, id) in (0u64..).zip(&small) {
        assert_eq!(rig.read(id, 0, 4096).unwrap(), pattern(n, 4096));
    }
    assert_eq!(fsck(rig.disk.durable).problems, Vec::<String>::new());
}

fn marker_in_pg() -> ObjectId {
    id(pg(0), "log")
}

#[test]
fn metadata_alone_can_fill_the_device_and_be_deleted() {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    rig.run(vec![Mutation::CreateCollection(pg(0))]).unwrap();
    let mut objects = 0;
    loop {
        let entries = (0..20u8).map(|k| (Bytes::from(vec![k]), pattern(1, 2000))).collect();
        let id = id(pg(0), &objects.to_string());
        match rig.run(vec![Mutation::SetOmap { id, entries }]) {
            Ok(_) => objects += 1,
            Err(StoreError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        rig.engine.commit();
        rig.step();
    }
    rig.drive();
    assert!(objects > 50, "{objects}");
    rig.engine.checkpoint();
    rig.drive();
    for n in 0..objects {
        rig.run(vec![Mutation::Remove(id(pg(0), &n.to_string()))]).unwrap();
        rig.engine.commit();
        rig.step();
    }
    rig.drive();
    assert_eq!(rig.engine.fatal_error(), None);
    rig.run(vec![write(&marker_in_pg(), 0, pattern(1, 1 << 20))]).unwrap();
}

/// Checksums that come with the data are those stored: a block that does not
/// match is refused, so a bit that flips after receipt is found.
#[test]
fn data_that_changed_after_it_was_summed_is_refused_when_read() {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    let object = id(pg(0), "o");
    let data = pattern(1, 256 << 10);
    let mut crcs: Vec<u32> = data.chunks(4096).map(base::crc32c).collect();
    crcs[7] ^= 1;
    let data = AlignedBuf::copy_of(&data).freeze();
    let summed = base::sums::remember(data.clone(), 0, crcs);
    rig.run(vec![Mutation::CreateCollection(pg(0)), write(&object, 0, summed)]).unwrap();
    rig.drive();
    // After a crash the log's tail would be taken for a torn write.
    rig.engine.checkpoint();
    rig.drive();
    let mut rig = Rig::try_open_disk(rig.disk, options(), 1).unwrap();
    assert_eq!(rig.read(&object, 0, 7 * 4096).unwrap(), data[..7 * 4096]);
    assert_eq!(rig.read(&object, 8 * 4096, 24 * 4096).unwrap(), data[8 * 4096..32 * 4096]);
    for (offset, len) in [(0, 256 << 10), (7 * 4096 + 5, 1)] {
        let result = rig.read(&object, offset, len);
        assert!(matches!(result, Err(StoreError::Checksum { offset: 28_672, .. })), "{result:?}");
    }
}

/// Flips a bit under an object's block, as the device would.
fn spoil(rig: &mut Rig, content: &[u8]) {
    let pages: Vec<u64> = rig.disk.visible.pages().filter(|page| !LOG.contains(page)).collect();
    for page in pages {
        let mut found = [0; 4096];
        rig.disk.visible.read(page, &mut found);
        if found == content {
            rig.disk.visible.flip(page + 9, 1);
            rig.disk.durable.flip(page + 9, 1);
            return;
        }
    }
    panic!("the block is not in its place");
}

#[test]
fn a_partial_overwrite_of_a_bad_block_does_not_make_it_good() {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    let object = id(pg(0), "o");
    let data = pattern(1, 128 << 10);
    let create = Mutation::CreateCollection(pg(0));
    rig.run(vec![create, write(&object, 0, data.clone())]).unwrap();
    rig.drive();
    spoil(&mut rig, &data[4096..8192]);

    let mut early = rig.ask(|engine| engine.read(&object, 4096, 10)).unwrap();
    rig.run(vec![write(&object, 5000, pattern(2, 100))]).unwrap();
    // Asked for while the block below is being read.
    let late = rig.ask(|engine| engine.read(&object, 5000, 100)).unwrap();
    rig.drive();
    for fetch in [early, late] {
        let result = rig.take_read(fetch).unwrap();
        assert!(matches!(result, Err(StoreError::Checksum { .. })), "{result:?}");
    }
    // With neighbours that are good and on the device, while the bad one is in memory.
    for (offset, len) in [(0, 8192), (4096, 12_288), (0, 128 << 10), (4000, 200)] {
        let result = rig.read(&object, offset, len);
        assert!(matches!(result, Err(StoreError::Checksum { offset: 4096, .. })), "{result:?}");
    }
    rig.engine.checkpoint();
    rig.drive();
    let mut rig = Rig::try_open_disk(rig.disk, options(), 1).unwrap();
    early = rig.ask(|engine| engine.read(&object, 4096, 4096)).unwrap();
    rig.drive();
    let result = rig.take_read(early).unwrap();
    assert!(matches!(result, Err(StoreError::Checksum { offset: 4096, .. })), "{result:?}");
    assert_eq!(rig.read(&object, 0, 4096).unwrap(), data[..4096]);
    assert_eq!(rig.read(&object, 8192, 4096).unwrap(), data[8192..12288]);

    // A whole new block heals it.
    rig.run(vec![write(&object, 4096, pattern(3, 4096))]).unwrap();
    assert_eq!(rig.read(&object, 4096, 4096).unwrap(), pattern(3, 4096));
    assert!(rig.engine.stats().checksum_errors >= 1);
}

/// A read that the device is slow with, while all else goes on.
#[test]
fn a_slow_read_sees_what_was_there_when_it_was_asked_for() {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    let (object, other) = (id(pg(0), "o"), id(pg(0), "p"));
    let data = pattern(1, 128 << 10);
    let create = Mutation::CreateCollection(pg(0));
    rig.run(vec![create, write(&object, 0, data.clone())]).unwrap();
    rig.drive();
    let fetch = rig.ask(|engine| engine.read(&object, 0, 128 << 10)).unwrap();
    let slow = rig.engine.poll_disk().unwrap();
    rig.run(vec![write(&object, 4096, pattern(2, 4096))]).unwrap();
    rig.engine.checkpoint();
    rig.drive();
    assert!(!rig.engine.is_idle(), "a block under a read was overwritten");
    rig.run(vec![Mutation::Remove(object)]).unwrap();
    rig.drive();
    for n in 0..100 {
        // Takes whatever blocks the allocator calls free.
        let refused = rig.run(vec![write(&other, n * (128 << 10), pattern(n, 128 << 10))]).is_err();
        rig.drive();
        if refused {
            break;
        }
    }
    rig.disk.submit(slow);
    rig.drive();
    assert_eq!(rig.take_read(fetch).unwrap().unwrap(), data);
    rig.drive();
    assert!(rig.engine.is_idle());
}

/// A store whose device has nothing to do, after so many writes of a block side by side and a commit.
fn after_writes(count: u64) -> Rig {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    rig.run(vec![Mutation::CreateCollection(pg(0))]).unwrap();
    rig.drive();
    rig.take_committed();
    for n in 0..count {
        rig.run(vec![write(&id(pg(0), "o"), n * 4096, pattern(n, 4096))]).unwrap();
    }
    rig.engine.commit();
    rig.collect();
    rig
}

fn is_durable_write(request: &DiskRequest) -> bool {
    matches!(request.op, DiskOp::Write { durable: true, .. })
}

#[test]
fn nothing_is_acknowledged_before_its_flush() {
    let mut rig = after_writes(19);
    assert_eq!(rig.disk.queue.len(), 2, "one write carries the data, one the record");
    assert!(!rig.disk.queue.iter().any(is_durable_write), "nobody else keeps the device busy");
    while rig.disk.queue.iter().any(|request| !matches!(request.op, DiskOp::Flush)) {
        rig.step();
        assert!(!rig.events.iter().any(|e| matches!(e, StoreEvent::Committed(_))));
    }
    let flushes = rig.engine.stats().flushes;
    rig.step();
    assert_eq!(rig.take_committed().len(), 19);
    assert_eq!(rig.engine.stats().flushes, flushes);
}

#[test]
fn a_small_batch_is_one_durable_write() {
    let mut rig = after_writes(8);
    let flushes = rig.engine.stats().flushes;
    assert_eq!(rig.disk.queue.len(), 1, "the record carries the data");
    assert!(is_durable_write(&rig.disk.queue[0]));
    assert!(rig.take_committed().is_empty());
    rig.step();
    assert_eq!(rig.take_committed().len(), 8);
    assert_eq!(rig.engine.stats().flushes, flushes);
    // Its places are side by side: one request, whenever the log has to go.
    let in_place = rig.engine.stats().writes_by_part.in_place;
    assert_eq!(in_place.requests, 0);
    assert_eq!(rig.read(&id(pg(0), "o"), 4096, 4096).unwrap(), pattern(1, 4096));
    rig.engine.checkpoint();
    rig.drive();
    assert_eq!(rig.engine.stats().writes_by_part.in_place.requests, 1);
    assert_eq!(rig.read(&id(pg(0), "o"), 4096, 4096).unwrap(), pattern(1, 4096));
}

#[test]
fn the_first_part_of_a_long_batch_does_not_wait_for_the_rest() {
    let mut rig = after_writes(32);
    assert_eq!(rig.disk.queue.len(), 4, "twice data and record");
    assert!(rig.disk.queue.iter().all(is_durable_write), "one is on its way while the other is prepared");
    let flushes = rig.engine.stats().flushes;
    rig.drive();
    assert_eq!(rig.take_committed().len(), 32);
    assert_eq!(rig.engine.stats().flushes, flushes);
}

#[test]
fn a_durable_record_is_acknowledged_after_all_before_it() {
    let mut rig = after_writes(32);
    let complete = |rig: &mut Rig, at| {
        let (token, result) = rig.disk.complete(at);
        rig.engine.on_disk_done(token, result);
        rig.take_committed().len()
    };
    // The last two are the second record and its data.
    assert_eq!([complete(&mut rig, 3), complete(&mut rig, 2)], [0, 0]);
    assert_eq!([complete(&mut rig, 1), complete(&mut rig, 0)], [0, 32]);
}

/// A process dies when its record has been written and not flushed, the next one finds the record,
/// and then the power fails: the superblock must not vouch for what the cache has lost.
#[test]
fn opening_makes_durable_what_it_has_found() {
    let mut dead = after_writes(19);
    while dead.disk.queue.iter().any(|request| !matches!(request.op, DiskOp::Flush)) {
        dead.step();
    }
    dead.disk.queue.clear();
    assert_eq!(dead.disk.unflushed.len(), 2, "data and record");
    let (mut next, error) = Rig::open_recording(dead.disk, options(), 2, true);
    assert_eq!(error, None);
    let cuts = next.cuts.take().unwrap();
    assert!(!cuts.is_empty());
    for (n, cut) in cuts.iter().enumerate() {
        for kept in 0..1u32 << cut.writes.len() {
            let mut image = cut.durable.clone();
            for (_, write) in (0..).zip(&cut.writes).filter(|(at, _)| kept >> at & 1 == 1) {
                image.write(write.offset, &write.data);
            }
            let opened = Rig::try_open(image, options(), 3);
            let mut opened = opened.unwrap_or_else(|error| panic!("cut {n}, writes {kept:b} kept: {error}"));
            for at in 0..19 {
                let read = opened.read(&id(pg(0), "o"), at * 4096, 4096);
                let is_whole = read == Ok(pattern(at, 4096)) || read == Err(StoreError::NoObject);
                assert!(is_whole, "cut {n}, writes {kept:b} kept, block {at}: {:?}", read.err());
            }
        }
    }
}

/// What an opening has found is durable since: a block that does not hold then is damage,
/// and no reason to take acknowledged writes for a tail that never was complete.
#[test]
fn damage_to_what_was_recovered_costs_no_other_write() {
    let mut rig = after_writes(19);
    rig.drive();
    assert_eq!(rig.take_committed().len(), 19);
    let mut rig = Rig::try_open(rig.disk.durable, options(), 2).unwrap();
    spoil(&mut rig, &pattern(3, 4096));
    let mut rig = Rig::try_open(rig.disk.durable, options(), 3).unwrap();
    for n in 0..19 {
        match rig.read(&id(pg(0), "o"), n * 4096, 4096) {
            Err(StoreError::Checksum { .. }) if n == 3 => (),
            read => assert_eq!(read.unwrap(), pattern(n, 4096), "block {n}"),
        }
    }
}

/// Programs that do not know of carried blocks have to refuse the store, by whichever copy they read.
#[test]
fn both_superblocks_say_that_records_carry_blocks() {
    const FEATURES: usize = 24;
    let rig = Rig::format(DEVICE_LEN, options(), 1);
    for offset in [0, DEVICE_LEN - 4096] {
        assert_eq!(rig.disk.durable.block(offset)[FEATURES], 1);
    }
}

fn fsck(image: Image) -> FsckReport {
    common::fsck(image, &options())
}

#[test]
fn fsck_finds_each_damaged_block_and_copy() {
    let Used { image, model, .. } = used(6, 500);
    let report = fsck(image.clone());
    assert_eq!(report.problems, Vec::<String>::new());
    let stats = model.stats();
    assert_eq!(report.objects, stats.objects);
    assert!(report.data > 0 && report.shared_blocks > 0 && report.checkpoint_chunks >= 2);

    let mut bad = image.clone();
    bad.flip(DEVICE_LEN - 4096 + 50, 1);
    assert_eq!(fsck(bad).problems_found, 1);

    let mut random = Random::from_seed(1);
    let pages: Vec<u64> = image.pages().filter(|page| *page > LOG.end).collect();
    let mut found = 0;
    for _ in 0..200 {
        let mut bad = image.clone();
        bad.flip(pages[random.below(pages.len() as u64) as usize] + 100, 1);
        found += usize::from(fsck(bad).problems_found > 0);
    }
    println!("{found} of 200 flips are in blocks that are in use");
    assert!(found > 10);
}

#[test]
fn a_read_only_open_writes_nothing() {
    let Used { image, mut model, .. } = used(4, 300);
    let disk = SimDisk::with_image(DEVICE_LEN, image);
    let read_only = Options { read_only: true, ..options() };
    let mut rig = Rig::try_open_disk(disk, read_only, 1).unwrap();
    compare_all(&mut rig, &mut model);
    assert_eq!(rig.run(vec![Mutation::Touch(marker())]), Err(StoreError::Stopped));
    rig.drive();
    assert!(rig.disk.unflushed.is_empty());
    assert_eq!(rig.engine.stats().device_writes, 0);
}
