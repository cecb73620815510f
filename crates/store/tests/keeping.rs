//! Small overwrites on a full and scattered device keep the places that their blocks have.

mod common;

use common::*;
use store::{Mutation, ObjectStore, StoreError, WritesByPart};

const OBJECT_LEN: u64 = 60 << 10;
const BLOCK_LEN: u64 = 4096;

fn object(n: u64) -> store::ObjectId {
    id(pg(0), &format!("object {n}"))
}

/// What was written to the device by this, put in place and all.
fn written(rig: &mut Rig, ops: Vec<Mutation>) -> WritesByPart {
    rig.drive();
    let old = rig.engine.stats().writes_by_part;
    rig.run(ops).unwrap();
    rig.engine.checkpoint();
    rig.drive();
    let mut new = rig.engine.stats().writes_by_part;
    new.data.bytes -= old.data.bytes;
    new.in_place.bytes -= old.in_place.bytes;
    new
}

#[test]
fn small_overwrites_stay_where_they_are_when_it_is_full_and_scattered() {
    // What its record carries comes to its place later, fresh or not.
    let options = store::Options { carried_blocks_max: 0, ..options() };
    let mut rig = Rig::format(64 << 20, options, 1);
    rig.run(vec![Mutation::CreateCollection(pg(0))]).unwrap();
    let mut objects = 0;
    loop {
        match rig.run(vec![write(&object(objects), 0, pattern(objects, OBJECT_LEN as usize))]) {
            Ok(_) => objects += 1,
            Err(StoreError::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    for n in (0..objects).step_by(objects as usize / 24) {
        rig.run(vec![Mutation::Remove(object(n))]).unwrap();
    }
    // What is free in one piece is used up first.
    for n in 0..1000 {
        let (n, block) = (1 + n % 9, n % 15);
        rig.run(vec![write(&object(n), block * BLOCK_LEN, pattern(n, 4096))]).unwrap();
        rig.drive();
    }
    rig.engine.checkpoint();
    rig.drive();
    let available = rig.engine.stats().available;
    assert!(available > 16 * BLOCK_LEN, "{available}");

    // Whole blocks, one and several, and the last one of an object.
    for (n, offset, len) in
        [(10, 0, BLOCK_LEN), (11, 8192, 9 * BLOCK_LEN), (12, OBJECT_LEN - BLOCK_LEN, BLOCK_LEN - 100)]
    {
        let content = pattern(n, len as usize);
        let parts = written(&mut rig, vec![write(&object(n), offset, content.clone())]);
        let blocks = len.next_multiple_of(BLOCK_LEN);
        assert_eq!((parts.data.bytes, parts.in_place.bytes), (0, blocks), "object {n}");
        assert_eq!(rig.read(&object(n), offset, len), Ok(content));
    }
    // What is new, or somebody else's as well, goes elsewhere.
    let parts = written(&mut rig, vec![write(&object(0), 0, pattern(7, 8192))]);
    assert_eq!((parts.data.bytes, parts.in_place.bytes), (8192, 0));
    let ops =
        vec![Mutation::Clone { from: object(20), to: object(1) }, write(&object(20), 4096, pattern(8, 4096))];
    let parts = written(&mut rig, ops);
    assert_eq!((parts.data.bytes, parts.in_place.bytes), (4096, 0));
    assert_eq!(rig.read(&object(1), 0, OBJECT_LEN), Ok(pattern(20, OBJECT_LEN as usize)));
    // The copy has taken nothing yet, and what it is written to is not shared any more.
    let parts = written(&mut rig, vec![write(&object(1), 4096, pattern(9, 4096))]);
    assert_eq!((parts.data.bytes, parts.in_place.bytes), (0, 4096));

    // With room.
    for n in objects / 2..objects {
        rig.run(vec![Mutation::Remove(object(n))]).unwrap();
    }
    rig.engine.checkpoint();
    let parts = written(&mut rig, vec![write(&object(10), 0, pattern(10, 4096))]);
    assert_eq!((parts.data.bytes, parts.in_place.bytes), (4096, 0));
}
