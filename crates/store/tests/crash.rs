//! Power cuts: after each one the store holds exactly the first k
//! transactions, for some k between those acknowledged and those queued.

mod common;

use base::Random;
use bytes::Bytes;
use common::disk::{Image, SECTOR, Unflushed};
use common::*;
use std::collections::BTreeMap;
use store::{CollId, MemStore, Mutation, ObjectStore, Options, Transaction};

/// A workload on its way, with the model after each transaction.
struct Trace {
    rig: Rig,
    /// By number of transactions.
    models: Vec<MemStore>,
    acknowledged: usize,
}

fn marker() -> store::ObjectId {
    id(CollId::Meta, "marker")
}

impl Trace {
    fn new(options: Options, seed: u64) -> Trace {
        let rig = Rig::format(DEVICE_LEN, options, seed);
        let mut trace = Trace { rig, models: vec![MemStore::new()], acknowledged: 0 };
        let create = |coll| Mutation::CreateCollection(coll);
        assert!(trace.queue(vec![create(CollId::Meta), create(pg(0)), create(pg(1))]));
        trace.rig.drive();
        trace.acknowledge();
        trace
    }

    /// Adds the transaction's number to it. False when it was refused.
    fn queue(&mut self, mut ops: Vec<Mutation>) -> bool {
        let number = Bytes::from(self.models.len().to_string());
        let attrs = BTreeMap::from([("n".to_string(), number)]);
        ops.push(Mutation::SetXattrs { id: marker(), attrs });
        let txn = Transaction { ops };
        if self.rig.engine.queue(txn.clone()).is_err() {
            return false;
        }
        let mut model = self.models.last().unwrap().clone();
        model.queue(txn).unwrap();
        while model.poll_event().is_some() {}
        self.models.push(model);
        true
    }

    fn acknowledge(&mut self) {
        self.acknowledged += self.rig.take_committed().len();
    }

    fn step(&mut self) -> bool {
        let more = self.rig.step();
        self.acknowledge();
        more
    }

    /// Opens what a power cut left and checks it. Returns the open store.
    fn check(&self, image: Image, options: &Options, what: &dyn Fn() -> String) -> (Rig, usize) {
        let mut rig =
            Rig::try_open(image, options.clone(), 1).unwrap_or_else(|error| panic!("{}: {error}", what()));
        let found = match rig.engine.xattr(&marker(), "n") {
            Ok(Some(n)) => std::str::from_utf8(&n).unwrap().parse().unwrap(),
            _ => 0,
        };
        assert!(
            (self.acknowledged..self.models.len()).contains(&found),
            "{}: {found} transactions, {} acknowledged, {} queued",
            what(),
            self.acknowledged,
            self.models.len() - 1
        );
        let mut model = self.models[found].clone();
        compare_all(&mut rig, &mut model);
        (rig, found)
    }
}

/// Every subset of the writes at risk; each of them torn, with all others kept
/// or all lost; all of them in reverse order.
fn every_cut(durable: &Image, writes: &[Unflushed]) -> Vec<Image> {
    let mut images = Vec::new();
    let apply = |image: &mut Image, write: &Unflushed| image.write(write.offset, &write.data);
    let subsets = 1u32 << writes.len().min(6);
    for subset in 0..subsets {
        let mut image = durable.clone();
        for (i, write) in writes.iter().enumerate() {
            // Beyond six, the rest shares the last one's fate.
            if subset >> i.min(5) & 1 == 1 {
                apply(&mut image, write);
            }
        }
        images.push(image);
    }
    let mut reversed = durable.clone();
    writes.iter().rev().for_each(|write| apply(&mut reversed, write));
    images.push(reversed);
    for (torn, write) in writes.iter().enumerate() {
        let sectors = write.data.len() / SECTOR;
        let cuts = [1, sectors / 2, sectors - 1];
        for (others_kept, tail) in [(false, false), (false, true), (true, false), (true, true)] {
            for cut in cuts {
                let mut image = durable.clone();
                for (i, other) in writes.iter().enumerate() {
                    if i != torn && others_kept {
                        apply(&mut image, other);
                    }
                }
                let at = cut * SECTOR;
                match tail {
                    true => image.write(write.offset + at as u64, &write.data[at..]),
                    false => image.write(write.offset, &write.data[..at]),
                }
                images.push(image);
            }
        }
    }
    images
}

/// Cuts the power before every completion of the device, in every way.
fn enumerate(name: &str, prepare: Vec<Vec<Mutation>>, workload: Vec<Vec<Mutation>>, seed: u64) -> usize {
    let options = options();
    let mut trace = Trace::new(options.clone(), seed);
    for ops in prepare {
        assert!(trace.queue(ops));
        trace.rig.drive();
        trace.acknowledge();
    }
    let mut states = 0;
    let mut workload = workload.into_iter();
    loop {
        let writes = trace.rig.disk.at_risk();
        for (n, image) in every_cut(&trace.rig.disk.durable, &writes).into_iter().enumerate() {
            states += 1;
            let what = || format!("{name}, seed {seed}, state {states} (cut {n})");
            trace.check(image, &options, &what);
        }
        if trace.rig.random.chance(1, 3) && !trace.step() && workload.len() == 0 {
            break;
        }
        if let Some(ops) = workload.next() {
            assert!(trace.queue(ops));
            if trace.rig.random.chance(1, 2) {
                trace.rig.engine.commit();
                trace.rig.collect();
            }
        } else {
            trace.rig.engine.commit();
            trace.rig.collect();
            trace.step();
        }
    }
    assert_eq!(trace.acknowledged, trace.models.len() - 1);
    states
}

#[test]
fn short_workloads_survive_every_cut() {
    let (a, b) = (id(pg(0), "a"), id(pg(1), "b"));
    let small = |offset, seed| write(&a, offset, pattern(seed, 4096));
    let part = |offset, seed| write(&a, offset, pattern(seed, 700));
    let large = |offset, seed| write(&a, offset, pattern(seed, 80 << 10));
    let clone = Mutation::Clone { from: a.clone(), to: b.clone() };
    let rename = Mutation::Rename { from: a.clone(), to: b.clone() };
    let remove = Mutation::Remove(a.clone());
    let truncate = Mutation::Truncate { id: a.clone(), size: 5000 };
    let omap = Mutation::SetOmap {
        id: a.clone(),
        entries: (0..9u8).map(|k| (Bytes::from(vec![k]), pattern(k.into(), 500))).collect(),
    };
    let cold = vec![vec![large(0, 1), small(90 << 10, 2)]];
    type Case = (&'static str, Vec<Vec<Mutation>>, Vec<Vec<Mutation>>);
    let cases: Vec<Case> = vec![
        ("small writes", vec![], vec![vec![small(0, 1)], vec![small(0, 2)], vec![small(4096, 3)]]),
        ("large write", vec![], vec![vec![large(0, 3)]]),
        ("large over large", cold.clone(), vec![vec![large(0, 3)], vec![large(4096, 4)]]),
        ("small over flying", vec![], vec![vec![large(0, 3), small(0, 4)], vec![small(0, 5)]]),
        ("part of a cold block", cold.clone(), vec![vec![part(100, 5)], vec![part(300, 6)]]),
        ("clone, then write", cold.clone(), vec![vec![clone.clone()], vec![part(0, 7), small(0, 8)]]),
        ("rename and rewrite", cold.clone(), vec![vec![part(9, 1), rename], vec![large(0, 9)]]),
        ("remove and reuse", cold.clone(), vec![vec![remove], vec![large(0, 9)], vec![large(0, 10)]]),
        ("truncate", cold.clone(), vec![vec![truncate], vec![part(9000, 11)]]),
        ("omap", vec![], vec![vec![omap], vec![Mutation::ClearOmap(a.clone()), clone]]),
    ];
    let mut states = 0;
    for (name, prepare, workload) in cases {
        for seed in 0..4 {
            states += enumerate(name, prepare.clone(), workload.clone(), seed);
        }
    }
    println!("{states} crash states");
    assert!(states > 3000, "{states}");
}

#[test]
fn a_checkpoint_survives_every_cut() {
    let options = options();
    let mut states = 0;
    for seed in 0..2 {
        let mut trace = Trace::new(options.clone(), seed);
        let mut generator = Generator::new(seed, MIX);
        for _ in 0..12 {
            trace.queue(generator.transaction().ops);
            trace.rig.drive();
        }
        trace.acknowledge();
        trace.rig.engine.checkpoint();
        loop {
            let writes = trace.rig.disk.at_risk();
            for image in every_cut(&trace.rig.disk.durable, &writes) {
                states += 1;
                trace.check(image, &options, &|| format!("seed {seed}, state {states}"));
            }
            if !trace.step() {
                break;
            }
        }
        assert!(trace.rig.engine.is_idle());
        assert_eq!(trace.rig.engine.info().unwrap().log_used, 0);
    }
    println!("{states} crash states");
}

/// Runs on after a cut, so that later cuts meet what earlier ones left.
fn sampled(seed: u64, options: Options, mix: Mix, cuts: usize) -> usize {
    let mut random = Random::from_seed(seed ^ 0x5a5a);
    let mut trace = Trace::new(options.clone(), seed);
    let mut generator = Generator::new(seed, mix);
    let mut states = 0;
    while states < cuts {
        for _ in 0..random.below(4) {
            trace.queue(generator.transaction().ops);
        }
        if random.chance(1, 2) {
            trace.rig.engine.commit();
        }
        for _ in 0..random.below(5) {
            trace.step();
        }
        if trace.models.len() > 400 {
            // Old models are of no more use, and cost memory.
            let keep = trace.acknowledged;
            for model in &mut trace.models[..keep] {
                *model = MemStore::new();
            }
        }
        if random.chance(1, 4) {
            continue;
        }
        states += 1;
        trace.rig.collect();
        let image = trace.rig.disk.cut(&mut random);
        let what = || format!("seed {seed}, state {states}");
        let (rig, found) = trace.check(image, &options, &what);
        if random.chance(1, 8) {
            trace.rig = rig;
            trace.models.truncate(found + 1);
            trace.acknowledged = found;
        }
    }
    states
}

#[test]
fn long_workloads_survive_sampled_cuts() {
    let scale: usize = std::env::var("STORE_CRASH_SCALE").map_or(1, |n| n.parse().unwrap());
    let small = Mix { objects: 60, object_len: 16 << 10, large_percent: 0, ops_max: 3 };
    let mut states = 0;
    for seed in 0..8 * scale as u64 {
        states += sampled(seed, options(), MIX, 250);
        states += sampled(seed, Options { pipeline_depth: 4, ..options() }, small, 150);
        let direct = Options { direct_len_min: 4096, pipeline_depth: 3, ..options() };
        states += sampled(seed, direct, MIX, 150);
        let discard = Options { discard: true, discard_blocks_min: 1, ..options() };
        states += sampled(seed, Options { pipeline_depth: 1, ..discard }, MIX, 60);
    }
    println!("{states} crash states");
}
