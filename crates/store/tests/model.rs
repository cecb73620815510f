//! The engine against the model: the same transactions, the same answers.

mod common;

use common::*;
use store::{MemStore, Mutation, ObjectStore, Options, StoreError};

/// Returns the mutations that were carried out.
fn compare_run(seed: u64, transactions: u64, mix: Mix, options: Options) -> u64 {
    let mut rig = Rig::format(DEVICE_LEN, options.clone(), seed);
    let mut model = MemStore::new();
    let mut generator = Generator::new(seed, mix);
    for coll in [store::CollId::Meta, pg(0)] {
        let op = Mutation::CreateCollection(coll);
        rig.run(vec![op.clone()]).unwrap();
        model.queue(store::Transaction { ops: vec![op] }).unwrap();
    }
    let mut mutations = 0;
    let mut expected = 3;
    let mut refused = 0;
    let mut waiting = Vec::new();
    for n in 0..transactions {
        let txn = generator.transaction();
        match rig.engine.queue(txn.clone()) {
            Ok(id) => {
                assert_eq!(id.0, expected);
                expected += 1;
                mutations += txn.ops.len() as u64;
                model.queue(txn.clone()).unwrap();
            }
            Err(StoreError::NoSpace { .. }) => {
                refused += 1;
                rig.drive();
            }
            Err(StoreError::TooLarge { .. }) => refused += 1,
            Err(error) => assert_eq!(model.queue(txn.clone()), Err(error)),
        }
        if generator.random.chance(1, 6)
            && let Some(Mutation::Write { id, offset, data }) = txn.ops.first()
        {
            // While all kinds of requests are under way.
            let offset = offset.saturating_sub(generator.random.below(9000));
            compare_read(&mut rig, &mut model, id, offset, data.len() as u64 + 5000);
        }
        if generator.random.chance(1, 5)
            && let Some(Mutation::Write { id, offset, data }) = txn.ops.last()
        {
            // Answered later, with what is there now.
            let len = data.len() as u64 + generator.random.below(20_000);
            match rig.engine.read(id, *offset, len) {
                Ok(fetch) => {
                    let expected = model_read(&mut model, id, *offset, len).unwrap();
                    waiting.push((fetch, expected));
                }
                Err(error) => {
                    assert_eq!(model_read(&mut model, id, *offset, len), Err(error));
                }
            }
        }
        waiting.retain(|(fetch, expected)| match rig.take_read(*fetch) {
            Some(found) => {
                assert_eq!(found.as_ref(), Ok(expected), "seed {seed}");
                false
            }
            None => true,
        });
        if generator.random.chance(1, 4) {
            rig.engine.commit();
        }
        for _ in 0..generator.random.below(6) {
            rig.step();
        }
        while model.poll_event().is_some() {}
        if n % 997 == 996 {
            rig.drive();
            compare_all(&mut rig, &mut model);
            if generator.random.chance(1, 2) {
                rig.drive();
                waiting.clear();
                let disk = rig.disk;
                rig = Rig::try_open_disk(disk, options.clone(), seed).unwrap();
                expected = 1;
                compare_all(&mut rig, &mut model);
            }
        }
    }
    rig.drive();
    let committed = rig.take_committed();
    assert!(committed.is_sorted());
    assert_eq!(committed.last().map_or(0, |txn| txn.0) + 1, expected);
    compare_all(&mut rig, &mut model);
    assert!(refused < transactions / 4, "{refused} of {transactions} refused");
    assert_eq!(rig.engine.fatal_error(), None);
    let info = rig.engine.info().unwrap();
    assert!(info.checkpoint_generation > transactions / 400, "the log never wrapped: {info:?}");
    mutations
}

#[test]
fn answers_as_the_model_does() {
    let mut mutations = 0;
    for seed in 0..24 {
        mutations += compare_run(seed, 4000, MIX, options());
    }
    assert!(mutations > 200_000, "{mutations}");
}

#[test]
fn answers_as_the_model_does_under_other_options() {
    let small = Mix { objects: 400, object_len: 16 << 10, large_percent: 0, ops_max: 3 };
    for seed in 100..104 {
        let one = Options { pipeline_depth: 1, checkpoint_copies: 1, ..options() };
        compare_run(seed, 1500, small, one);
        let discarding = Options { discard: true, discard_blocks_min: 1, ..options() };
        compare_run(seed, 1500, MIX, discarding);
        let direct = Options { direct_len_min: 4096, pipeline_depth: 4, ..options() };
        compare_run(seed, 1500, MIX, direct);
    }
}
