//! Objects in pieces are put together when nobody asks for anything.

mod common;

use base::Random;
use common::disk::SimDisk;
use common::*;
use env::{DiskOp, DiskRequest};
use store::{Mutation, ObjectId, ObjectStore, Options, StoreError};

const BLOCK: u64 = 4096;
const LEN: u64 = 1 << 20;

/// So that most of what small writes write is not waiting for its place in memory.
fn to_places() -> Options {
    Options { carried_blocks_max: 0, ..options() }
}

fn object(n: u64) -> ObjectId {
    id(pg(0), &format!("object {n}"))
}

/// Objects of which every block was overwritten by itself, in any order, and their contents.
fn in_pieces(rig: &mut Rig, count: u64, len: u64) -> Vec<Vec<u8>> {
    rig.run(vec![Mutation::CreateCollection(pg(0))]).unwrap();
    let mut contents = Vec::new();
    for n in 0..count {
        let content = pattern(n, len as usize);
        rig.run(vec![write(&object(n), 0, content.clone())]).unwrap();
        contents.push(content.to_vec());
    }
    rig.drive();
    scatter(rig, &mut contents, 2 * count * len / BLOCK, &mut Random::from_seed(1));
    contents
}

/// Until there is nothing left to do.
fn rest(rig: &mut Rig) {
    for _ in 0..1000 {
        let more = rig.engine.rest();
        rig.drive();
        if !more {
            return;
        }
    }
    panic!("it never ends");
}

/// Device requests of one read, and whether it has the right content.
fn requests(rig: &mut Rig, n: u64, content: &[u8]) -> u64 {
    let before = rig.engine.stats().device_reads;
    assert!(rig.read(&object(n), 0, content.len() as u64).unwrap() == content, "object {n}");
    rig.engine.stats().device_reads - before
}

fn assert_whole(rig: &Rig, options: &Options) {
    assert_eq!(rig.engine.fatal_error(), None);
    let disk = SimDisk::with_image(rig.disk.info.len_bytes, rig.disk.durable.clone());
    let reopened = Rig::try_open_disk(disk, options.clone(), 1);
    assert_eq!(reopened.err(), None);
}

#[test]
fn what_small_overwrites_cut_to_pieces_is_put_together() {
    for options in [to_places(), options(), tiny_memory(to_places())] {
        let mut rig = Rig::format(DEVICE_LEN, options.clone(), 1);
        let contents = in_pieces(&mut rig, 3, LEN);
        for (n, content) in (0..).zip(&contents) {
            assert!(requests(&mut rig, n, content) > 100);
        }
        rest(&mut rig);
        for (n, content) in (0..).zip(&contents) {
            assert!(requests(&mut rig, n, content) <= LEN / BLOCK / 64);
        }
        let stats = rig.engine.stats();
        assert!(stats.mended_units >= 12 && stats.mended_blocks <= 64 * stats.mended_units, "{stats:?}");
        assert_whole(&rig, &options);
        // And then there is nothing to do.
        assert!(!rig.engine.rest() && rig.engine.is_idle());
        rest(&mut rig);
        assert_eq!(rig.engine.stats().mended_units, stats.mended_units);
        // A new start finds it so.
        let image = rig.disk.durable.clone();
        let mut rig = Rig::try_open(image, options, 2).unwrap();
        rest(&mut rig);
        assert_eq!(rig.engine.stats().mended_units, 0);
        for (n, content) in (0..).zip(&contents) {
            assert!(requests(&mut rig, n, content) <= LEN / BLOCK / 64);
        }
    }
}

/// Overwrites single blocks. Once small writes have been everywhere on the device, what is free
/// lies in holes, though there may be much of it.
fn scatter(rig: &mut Rig, contents: &mut [Vec<u8>], writes: u64, random: &mut Random) {
    for step in 0..writes {
        let n = random.below(contents.len() as u64);
        let content = &mut contents[n as usize];
        let at = random.below(content.len() as u64 / BLOCK) * BLOCK;
        let data = pattern(9000 + step, BLOCK as usize);
        content[at as usize..(at + BLOCK) as usize].copy_from_slice(&data);
        rig.run(vec![write(&object(n), at, data)]).unwrap();
        if step % 16 == 0 {
            rig.drive();
        }
    }
    rig.engine.checkpoint();
    rig.drive();
}

#[test]
fn where_only_holes_are_free_runs_are_made() {
    let device_len = 4 * DEVICE_LEN;
    let third = device_len / LEN / 3;
    let cases = [
        (to_places(), third),
        (to_places(), 2 * third),
        (options(), third),
        (tiny_memory(to_places()), third),
    ];
    for (seed, (options, count)) in (1..).zip(cases) {
        let mut rig = Rig::format(device_len, options.clone(), seed);
        let mut contents = in_pieces(&mut rig, count, LEN);
        scatter(&mut rig, &mut contents, 2 * device_len / BLOCK, &mut Random::from_seed(seed));
        rest(&mut rig);
        let stats = rig.engine.stats();
        assert!(stats.moved_blocks > 0, "it needed no room: {stats:?}");
        assert!(stats.moved_blocks < 2 * stats.mended_blocks, "{stats:?}");
        for (n, content) in (0..).zip(&contents) {
            assert!(requests(&mut rig, n, content) <= 2 * LEN / BLOCK / 64, "object {n}");
        }
        let disk = SimDisk::with_image(device_len, rig.disk.durable.clone());
        assert_eq!(fsck_disk(disk, &options).problems, Vec::<String>::new());
        assert_whole(&rig, &options);
    }
}

/// Power cuts while it goes on.
#[test]
fn what_makes_room_survives_every_cut() {
    for seed in 1..4 {
        let options = if seed == 2 { tiny_memory(to_places()) } else { to_places() };
        let mut random = Random::from_seed(seed);
        let mut rig = Rig::format(2 * DEVICE_LEN, options.clone(), seed);
        let count = 2 * DEVICE_LEN / LEN * 2 / 3;
        let mut contents = in_pieces(&mut rig, count, LEN);
        let mut moved = 0;
        for step in 0..60 {
            let writes = match step % 10 {
                0 => 4 * DEVICE_LEN / BLOCK,
                _ => random.below(10),
            };
            scatter(&mut rig, &mut contents, writes, &mut random);
            for _ in 0..random.below(500) {
                rig.engine.rest();
                rig.engine.commit();
                rig.steps(random.below(30));
            }
            if random.chance(1, 12) {
                rig.engine.checkpoint();
            }
            rig.steps(random.below(20));
            moved += rig.engine.stats().moved_blocks;
            let image = rig.disk.cut(&mut random);
            let disk = SimDisk::with_image(2 * DEVICE_LEN, image);
            rig = Rig::try_open_disk(disk, options.clone(), random.next_u64()).unwrap();
            for (n, content) in (0..).zip(&contents) {
                assert!(rig.read(&object(n), 0, LEN).unwrap() == *content, "object {n}, step {step}");
            }
            if step % 10 == 0 {
                let disk = SimDisk::with_image(2 * DEVICE_LEN, rig.disk.durable.clone());
                assert_eq!(fsck_disk(disk, &options).problems, Vec::<String>::new());
            }
        }
        assert!(moved > 1000, "{moved} blocks made room");
    }
}

/// Pieces of an object.
fn pieces(rig: &Rig, n: u64) -> usize {
    rig.engine.device_extents(&object(n)).unwrap().len()
}

#[test]
fn small_objects_share_what_is_free_in_one_piece() {
    let mut rig = Rig::format(4 * DEVICE_LEN, to_places(), 1);
    in_pieces(&mut rig, 220, 16 * BLOCK);
    rest(&mut rig);
    // Room for ten of these in one piece is there, if small ones do not take a region each.
    for n in 500..510 {
        rig.run(vec![write(&object(n), 0, pattern(n, 4 << 20))]).unwrap();
        rig.drive();
    }
    let found: Vec<usize> = (500..510).map(|n| pieces(&rig, n)).collect();
    assert!(found.iter().all(|pieces| *pieces <= 2), "{found:?}");
}

/// What is free lies between pieces that are too long to be moved, and units that fit there come between
/// those that do not.
#[test]
fn what_cannot_be_emptied_is_not_tried_for_ever() {
    let mut rig = Rig::format(8 * DEVICE_LEN, to_places(), 1);
    rig.run(vec![Mutation::CreateCollection(pg(0))]).unwrap();
    for n in 0..740 {
        rig.run(vec![write(&object(n), 0, pattern(n, 40 * BLOCK as usize))]).unwrap();
        rig.drive();
    }
    for n in (0..740).step_by(2) {
        rig.run(vec![Mutation::Remove(object(n))]).unwrap();
        rig.drive();
    }
    rig.engine.checkpoint();
    rig.drive();
    // In the order in which a sweep meets them.
    let mut ids: Vec<ObjectId> = (1000..1280).map(object).collect();
    ids.sort_by_key(|id| id.object.hash.reverse_bits());
    let mut random = Random::from_seed(1);
    for round in 0..2 {
        let blocks = (0..ids.len()).flat_map(|at| (0..[64, 8][at % 2]).map(move |block| (at, block)));
        let mut left: Vec<(usize, u64)> = blocks.collect();
        while !left.is_empty() {
            let (at, block) = left.swap_remove(random.below(left.len() as u64) as usize);
            rig.run(vec![write(&ids[at], block * BLOCK, pattern(block + round, BLOCK as usize))]).unwrap();
            if left.len().is_multiple_of(16) {
                rig.drive();
            }
        }
    }
    rig.engine.checkpoint();
    rig.drive();
    rest(&mut rig);
    assert!(rig.engine.stats().mended_units > 100);
}

/// Who leaves no leave to empty anything is not in the way of what has room, and what had none is done
/// when nobody asks any more.
#[test]
fn light_load_puts_emptying_off() {
    let device_len = 4 * DEVICE_LEN;
    let count = device_len / LEN / 3;
    let scattered = || {
        let mut rig = Rig::format(device_len, to_places(), 1);
        let mut contents = in_pieces(&mut rig, count, LEN);
        scatter(&mut rig, &mut contents, 2 * device_len / BLOCK, &mut Random::from_seed(1));
        rig
    };
    let light_load = |rig: &mut Rig| {
        for _ in 0..200 {
            rig.read(&object(0), 0, BLOCK).unwrap();
            rig.engine.rest();
            rig.drive();
        }
    };
    let mut rig = scattered();
    light_load(&mut rig);
    assert_eq!(rig.engine.stats().moved_blocks, 0);
    rest(&mut rig);
    assert!(rig.engine.stats().mended_units > 80, "{:?}", rig.engine.stats());

    // It has begun already; and there is a small object in pieces, which has room.
    let mut rig = scattered();
    for n in [7, 3, 9, 1, 0, 5, 2, 8, 4, 6] {
        rig.run(vec![write(&object(count), n * BLOCK, pattern(n, BLOCK as usize))]).unwrap();
        rig.drive();
    }
    rig.engine.checkpoint();
    rig.drive();
    while rig.engine.stats().moved_blocks == 0 {
        rig.engine.rest();
        rig.engine.commit();
        rig.steps(30);
    }
    let moved = rig.engine.stats().moved_blocks;
    light_load(&mut rig);
    assert!(rig.engine.stats().moved_blocks <= moved + 64);
    assert!(pieces(&rig, count) < 4, "{} pieces", pieces(&rig, count));
    rest(&mut rig);
    assert!(rig.engine.stats().mended_units > 80, "{:?}", rig.engine.stats());
}

#[test]
fn damage_is_never_made_valid() {
    let mut rig = Rig::format(DEVICE_LEN, to_places(), 1);
    let contents = in_pieces(&mut rig, 2, LEN);
    let damaged = 77 * BLOCK;
    let place = rig.engine.device_offset(&object(1), damaged).unwrap();
    rig.disk.visible.flip(place + 100, 3);
    rig.disk.durable.flip(place + 100, 3);
    rest(&mut rig);
    // All but its unit.
    assert_eq!(rig.engine.stats().mended_blocks, 2 * LEN / BLOCK - 64);
    assert_eq!(rig.engine.device_offset(&object(1), damaged), Some(place));
    for offset in (0..LEN).step_by(BLOCK as usize) {
        match rig.read(&object(1), offset, BLOCK) {
            Ok(found) => assert!(found == contents[1][offset as usize..(offset + BLOCK) as usize]),
            Err(error) => {
                assert!(matches!(error, StoreError::Checksum { .. }) && offset == damaged, "{error}");
            }
        }
    }
    assert!(rig.read(&object(1), damaged, BLOCK).is_err());
}

#[test]
fn a_write_or_a_read_stops_it() {
    for writes in [false, true] {
        let mut rig = Rig::format(DEVICE_LEN, to_places(), 1);
        let contents = in_pieces(&mut rig, 3, LEN);
        rig.engine.rest();
        rig.drive();
        // What came before it was called counts: it has one unit at most.
        assert!(rig.engine.stats().mended_units <= 1);
        assert!(rig.engine.rest());
        rig.steps(100);
        match writes {
            true => drop(rig.run(vec![Mutation::Touch(object(9))]).unwrap()),
            false => drop(rig.read(&object(0), 0, BLOCK).unwrap()),
        }
        let before = rig.engine.stats().mended_units;
        rig.drive();
        let stopped = rig.engine.stats().mended_units;
        assert!(stopped <= before + 1, "{before}, {stopped}");
        // With a little to do, one unit each time; with much none.
        for few in [true, true, false] {
            let before = rig.engine.stats().mended_units;
            for n in 0..if few { 3 } else { 100 } {
                rig.run(vec![Mutation::Touch(object(9 + n))]).unwrap();
            }
            assert!(rig.engine.rest());
            rig.drive();
            assert_eq!(rig.engine.stats().mended_units, before + u64::from(few));
        }
        rest(&mut rig);
        assert_eq!(rig.engine.stats().mended_units, 3 * LEN / BLOCK / 64);
        for (n, content) in (0..).zip(&contents) {
            assert!(requests(&mut rig, n, content) <= LEN / BLOCK / 64);
        }
    }
}

/// Writes, clones and removals of an object while a unit of it is being read.
#[test]
fn what_changes_meanwhile_keeps_its_change() {
    let part = |n: u64| write(&object(0), n * 5000, pattern(5, 3000));
    let changes: [Vec<Mutation>; 6] = [
        vec![write(&object(0), 7 * BLOCK, pattern(3, 4096))],
        vec![part(3), part(9)],
        vec![Mutation::Truncate { id: object(0), size: 20 * BLOCK + 5 }],
        vec![Mutation::Clone { from: object(0), to: object(5) }, part(4)],
        vec![Mutation::Rename { from: object(0), to: object(5) }, part(1)],
        vec![Mutation::Remove(object(0)), part(2)],
    ];
    for (options, ops) in [to_places(), Options { always_keep_places: true, ..to_places() }]
        .iter()
        .flat_map(|options| changes.iter().map(move |ops| (options, ops)))
    {
        let mut rig = Rig::format(DEVICE_LEN, options.clone(), 1);
        let contents = in_pieces(&mut rig, 1, LEN / 4);
        let mut model = store::MemStore::new();
        let ops_before = vec![Mutation::CreateCollection(pg(0)), write(&object(0), 0, contents[0].clone())];
        model.queue(store::Transaction { ops: ops_before }).unwrap();
        rig.engine.rest();
        // Some parts have come, the last is slow.
        rig.steps(40);
        rig.run(ops.clone()).unwrap();
        model.queue(store::Transaction { ops: ops.clone() }).unwrap();
        rig.drive();
        assert_eq!(rig.engine.stats().mended_units, 0);
        compare_all(&mut rig, &mut model);
        rest(&mut rig);
        compare_all(&mut rig, &mut model);
        let report = fsck(rig.disk.durable.clone(), options);
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

#[test]
fn what_a_clone_shares_stays_where_it_is() {
    let mut rig = Rig::format(DEVICE_LEN, to_places(), 1);
    let contents = in_pieces(&mut rig, 1, LEN);
    rig.run(vec![Mutation::Clone { from: object(0), to: object(1) }]).unwrap();
    rig.drive();
    rest(&mut rig);
    assert_eq!(rig.engine.stats().mended_units, 0);
    // Each has a unit of its own again.
    rig.run(vec![Mutation::Remove(object(1))]).unwrap();
    rig.drive();
    let some: Vec<Mutation> = (0..64).map(|n| write(&object(7), n * BLOCK, pattern(n, 4096))).collect();
    rig.run(some).unwrap();
    rig.drive();
    rest(&mut rig);
    assert!(requests(&mut rig, 0, &contents[0]) <= LEN / BLOCK / 64);
}

#[test]
fn nothing_is_done_without_long_free_runs_or_leave() {
    let off = Options { mend: false, ..to_places() };
    let mut rig = Rig::format(DEVICE_LEN, off, 1);
    in_pieces(&mut rig, 2, LEN);
    assert!(!rig.engine.rest());
    rig.drive();
    assert_eq!(rig.engine.stats().mended_units, 0);

    let mut rig = Rig::format(DEVICE_LEN, to_places(), 1);
    in_pieces(&mut rig, 2, LEN);
    let mut n = 10;
    while rig.run(vec![write(&object(n), 0, pattern(n, 64 << 10))]).is_ok() {
        rig.drive();
        n += 1;
    }
    let before = rig.engine.stats();
    rest(&mut rig);
    assert_eq!(rig.engine.stats().mended_units, 0);
    assert_eq!(rig.engine.stats().device_reads, before.device_reads);
    assert_eq!(rig.engine.stats().available, before.available);
}

#[test]
fn a_lost_page_of_the_index_ends_the_mending_and_not_the_store() {
    let options = Options { checkpoint_copies: 1, ..tiny_memory(to_places()) };
    let mut rig = Rig::format(DEVICE_LEN, options.clone(), 1);
    let contents = in_pieces(&mut rig, 6, LEN);
    let mut rig = Rig::try_open(rig.disk.durable.clone(), options, 2).unwrap();
    let loaded = rig.engine.stats().metadata_reads;
    assert!(rig.engine.rest());
    rig.collect();
    assert!(rig.engine.stats().metadata_reads > loaded, "the first page is not in memory");
    let read = rig.disk.queue.iter().filter_map(|request| match request.op {
        DiskOp::Read { offset, .. } => Some(offset),
        _ => None,
    });
    let pages: Vec<u64> = read.collect();
    rig.disk.unreadable.extend(pages);
    rig.drive();
    assert_eq!(rig.engine.fatal_error(), None);
    assert!(!rig.engine.rest() && rig.engine.is_idle());
    assert_eq!(rig.engine.stats().mended_units, 0);
    // Whoever needs what is lost is told.
    let whole = (0..).zip(&contents).all(|(n, content)| {
        rig.read(&object(n), 0, content.len() as u64).is_ok_and(|found| found == *content)
    });
    assert!(!whole && rig.engine.fatal_error().is_some());
}

/// What units free comes back only when a checkpoint under way has ended.
#[test]
fn the_space_that_there_is_stays_for_others() {
    let mut rig = Rig::format(16 * DEVICE_LEN, to_places(), 1);
    in_pieces(&mut rig, 24, LEN);
    rig.run(vec![write(&object(0), 0, pattern(1, BLOCK as usize))]).unwrap();
    let before = rig.engine.stats().available;
    rig.engine.checkpoint();
    // The device takes its time with the superblock.
    let held = |request: &DiskRequest| matches!(request.op, DiskOp::Write { offset: 0, .. });
    for _ in 0..10_000 {
        rig.engine.rest();
        rig.engine.commit();
        rig.collect();
        let Some(at) = rig.disk.queue.iter().position(|request| !held(request)) else { continue };
        let (token, result) = rig.disk.complete(at);
        rig.engine.on_disk_done(token, result);
    }
    assert!(rig.disk.queue.iter().any(held), "the checkpoint is under way");
    let units = (before - rig.engine.stats().available) / (64 * BLOCK);
    assert!(units <= 2, "{units} units were taken");
    rest(&mut rig);
    assert!(rig.engine.stats().mended_units > 50);
    let left = before.saturating_sub(rig.engine.stats().available) / (64 * BLOCK);
    assert!(left <= 2, "{left} units did not come back");
}
