//! Reads that are put together from pieces, in memory that earlier reads have used.

mod common;

use common::*;
use store::{Mutation, ObjectStore};

const LEN: usize = 1 << 20;

/// Where an object has nothing, nothing of another object's read shows.
#[test]
fn holes_are_zero_in_memory_that_is_used_again() {
    let mut rig = Rig::format(DEVICE_LEN, options(), 1);
    let (full, sparse) = (id(pg(0), "full"), id(pg(0), "sparse"));
    rig.run(vec![Mutation::CreateCollection(pg(0)), write(&full, 0, pattern(1, LEN))]).unwrap();
    let (mut full_content, mut sparse_content) = (pattern(1, LEN).to_vec(), vec![0; LEN]);
    for n in 0..20u64 {
        let at = (n as usize * 13 + 1) * 4096 - 100 * (n as usize % 3);
        let data = pattern(n + 2, 4096);
        let both = [&full, &sparse].map(|object| write(object, at as u64, data.clone()));
        rig.run(both.into()).unwrap();
        full_content[at..at + 4096].copy_from_slice(&data);
        sparse_content[at..at + 4096].copy_from_slice(&data);
        rig.drive();
    }
    let end = sparse_content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    for (from, len) in [(0, LEN), (0, LEN), (5000, 900_000), (4096, 65536), (8191, 12_290)] {
        assert!(rig.read(&full, from as u64, len as u64).unwrap() == full_content[from..from + len]);
        let to = (from + len).min(end);
        assert!(rig.read(&sparse, from as u64, len as u64).unwrap() == sparse_content[from..to]);
    }
    let used = rig.engine.memory().buffers;
    for _ in 0..20 {
        rig.engine.commit();
        rig.drive();
    }
    let kept = rig.engine.memory().buffers;
    assert!(
        kept.bytes + LEN as u64 <= used.bytes,
        "a long read's memory goes when nothing happens: {used:?}, {kept:?}"
    );
}

/// Blocks of short reads are kept for the next one; pieces of long reads are not.
#[test]
fn a_long_read_in_pieces_leaves_the_read_cache_alone() {
    let mut rig = Rig::format(DEVICE_LEN, cached(options()), 1);
    let object = id(pg(0), "o");
    rig.run(vec![Mutation::CreateCollection(pg(0)), write(&object, 0, pattern(1, LEN))]).unwrap();
    for n in 0..40u64 {
        rig.run(vec![write(&object, (n * 6 + 1) * 4096, pattern(n, 4096))]).unwrap();
        rig.drive();
    }
    rig.read(&object, 0, LEN as u64).unwrap();
    assert_eq!(rig.engine.memory().cache.items, 0);
    rig.read(&object, 0, 4 * 4096).unwrap();
    assert_eq!(rig.engine.memory().cache.items, 4);
}
