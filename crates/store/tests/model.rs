//! The engine against the model: the same transactions, the same answers;
//! while requests are under way, after clean restarts, and after power cuts.
//!
//! More than a million operations a run; `STORE_MODEL_SCALE=n` does n times as many.

mod common;

use base::Random;
use bytes::Bytes;
use common::disk::SimDisk;
use common::*;
use store::{
    CollId, FetchId, MemStore, Mutation, ObjectId, ObjectStore, OmapLimit, Options, StoreError, Transaction,
};

struct Run {
    options: Options,
    mix: Mix,
    transactions: u64,
    /// The device is to become full now and then.
    fills: bool,
}

struct Pair {
    rig: Rig,
    /// Holds what the engine has not acknowledged.
    model: MemStore,
    options: Options,
    random: Random,
    /// Transactions of this store so far; each leaves its number.
    queued: u64,
    acknowledged: u64,
    /// The engine's number for the next transaction.
    next_txn: u64,
    /// Reads under way, with what they must answer.
    waiting: Vec<(FetchId, Bytes)>,
    refused: u64,
    mutations: u64,
    /// Units put together before the engine at hand.
    mended: u64,
}

fn marker() -> ObjectId {
    id(CollId::Meta, "marker")
}

impl Pair {
    fn new(seed: u64, options: &Options) -> Pair {
        let rig = Rig::format(DEVICE_LEN, options.clone(), seed);
        let mut model = MemStore::new();
        model.hold_commits();
        let mut pair = Pair {
            rig,
            model,
            options: options.clone(),
            random: Random::from_seed(!seed),
            queued: 0,
            acknowledged: 0,
            next_txn: 1,
            waiting: Vec::new(),
            refused: 0,
            mutations: 0,
            mended: 0,
        };
        pair.queue([CollId::Meta, pg(0)].map(Mutation::CreateCollection).to_vec());
        pair
    }

    fn queue(&mut self, mut ops: Vec<Mutation>) {
        let count = ops.len() as u64;
        let number = Bytes::from((self.queued + 1).to_string());
        ops.push(Mutation::SetXattrs { id: marker(), attrs: [("n", number)].into() });
        let txn = Transaction { ops };
        match self.rig.queue(&txn) {
            Ok(id) => {
                assert_eq!(id.0, self.next_txn);
                self.next_txn += 1;
                self.queued += 1;
                self.mutations += count;
                self.model.queue(txn).unwrap();
            }
            Err(StoreError::NoSpace { .. }) => {
                self.refused += 1;
                self.rig.drive();
            }
            Err(StoreError::TooLarge { .. }) => self.refused += 1,
            Err(error) => assert_same_refusal(&self.rig.engine, &error, self.model.queue(txn).err()),
        }
        self.settle();
    }

    /// Passes on acknowledgements, and checks answers that have come.
    fn settle(&mut self) {
        let committed = self.rig.take_committed();
        assert!(committed.is_sorted());
        self.acknowledged += committed.len() as u64;
        self.model.commit_held(committed.len());
        self.waiting.retain(|(fetch, expected)| match self.rig.take_read(*fetch) {
            Some(found) => {
                assert!(found.as_ref() == Ok(expected), "a late answer differs: {:?}", found.err());
                false
            }
            None => true,
        });
        while self.model.poll_event().is_some() {}
    }

    /// Reads around what was written: at once, or to be answered later with
    /// what is there now.
    fn read_around(&mut self, op: Option<&Mutation>) {
        let Some(Mutation::Write { id, offset, data }) = op else { return };
        let len = data.len() as u64 + self.random.below(20_000);
        if self.random.chance(1, 2) {
            let offset = offset.saturating_sub(self.random.below(9000));
            return compare_read(&mut self.rig, &mut self.model, id, offset, len);
        }
        let expected = model_read(&mut self.model, id, *offset, len);
        match self.rig.ask(|engine| engine.read(id, *offset, len)) {
            Ok(fetch) => self.waiting.push((fetch, expected.unwrap())),
            Err(error) => assert_eq!(expected, Err(error)),
        }
    }

    /// Narrow questions: one attribute, one key, a part of a listing.
    fn ask_around(&mut self, id: &ObjectId) {
        let (rig, model, random) = (&mut self.rig, &self.model, &mut self.random);
        let attr = format!("a{}", random.below(5));
        assert_eq!(rig.ask(|engine| engine.xattr(id, &attr)), model.xattr(id, &attr));
        let key = Bytes::from(format!("key {:03}", random.below(60)));
        assert_eq!(rig.ask(|engine| engine.omap_get(id, &key)), model.omap_get(id, &key));
        let max = random.below(9) as usize;
        let bytes = if random.chance(1, 2) { random.below(300) as usize } else { usize::MAX };
        let limit = OmapLimit { entries: max, bytes };
        for prefix in [&b""[..], b"key 0", b"key 05", b"l"] {
            let found = rig.ask(|engine| engine.omap_list(id, Some(&key), prefix, limit));
            assert_eq!(
                found,
                model.omap_list(id, Some(&key), prefix, limit),
                "after {key:?} with {prefix:?}"
            );
        }
        let (offset, len) = (random.below(100_000), random.below(100_000));
        let found = rig.ask(|engine| engine.data_extents(id, offset, len));
        assert_eq!(found, model.data_extents(id, offset, len));
        let found = rig.ask(|engine| engine.list(id.coll, &id.object, max));
        assert_eq!(found, model.list(id.coll, &id.object, max));
        compare_metadata(rig, model, id);
    }

    fn reopen(&mut self) {
        self.rig.drive();
        self.mended += self.rig.engine.stats().mended_units;
        self.settle();
        assert!(self.waiting.is_empty(), "reads without answers");
        assert_eq!(self.acknowledged, self.queued);
        let disk = SimDisk::with_image(DEVICE_LEN, self.rig.disk.durable.clone());
        let seed = self.random.next_u64();
        self.rig = Rig::try_open_disk(disk, self.options.clone(), seed).unwrap();
        self.next_txn = 1;
    }

    fn crash(&mut self) {
        self.rig.collect();
        self.mended += self.rig.engine.stats().mended_units;
        self.settle();
        let image = self.rig.disk.cut(&mut self.random);
        self.rig = Rig::try_open(image, self.options.clone(), self.random.next_u64()).unwrap();
        let found = match self.rig.ask(|engine| engine.xattr(&marker(), "n")) {
            Ok(Some(n)) => std::str::from_utf8(&n).unwrap().parse().unwrap(),
            _ => 0,
        };
        assert!((self.acknowledged..=self.queued).contains(&found), "{found} survived");
        self.model.commit_held((found - self.acknowledged) as usize);
        self.model.crash();
        while self.model.poll_event().is_some() {}
        self.model.hold_commits();
        (self.queued, self.acknowledged) = (found, found);
        self.waiting.clear();
        self.next_txn = 1;
    }
}

/// Returns the mutations that were carried out, and the units that were put together.
fn compare_run(seed: u64, run: &Run) -> (u64, u64) {
    let mut pair = Pair::new(seed, &run.options);
    let mut generator = Generator::new(seed, run.mix);
    for n in 1..=run.transactions {
        let ops = generator.transaction().ops;
        let (first, last) = (ops.first().cloned(), ops.last().cloned());
        pair.queue(ops);
        if pair.random.chance(1, 5) {
            pair.read_around(first.as_ref());
        }
        if pair.random.chance(1, 5) {
            pair.read_around(last.as_ref());
        }
        if pair.random.chance(1, 20)
            && let Some(Mutation::Write { id, .. } | Mutation::SetOmap { id, .. }) = &first
        {
            pair.ask_around(id);
        }
        if pair.random.chance(1, 4) {
            pair.rig.engine.commit();
        }
        for _ in 0..pair.random.below(6) {
            pair.rig.step();
        }
        if pair.random.chance(1, 700) {
            pair.rig.engine.checkpoint();
        }
        if pair.random.chance(1, 5) {
            pair.rig.engine.rest();
        }
        pair.settle();
        match pair.random.below(2500) {
            0 => pair.reopen(),
            1 | 2 => pair.crash(),
            3 => (),
            _ => continue,
        }
        let data_len = if n % 3 == 0 { u64::MAX } else { 1 << 20 };
        compare_up_to(&mut pair.rig, &mut pair.model, data_len);
    }
    pair.rig.drive();
    pair.settle();
    assert_eq!(pair.acknowledged, pair.queued);
    compare_all(&mut pair.rig, &mut pair.model);
    pair.reopen();
    compare_all(&mut pair.rig, &mut pair.model);
    let report = fsck(pair.rig.disk.durable.clone(), &run.options);
    assert_eq!(report.problems, Vec::<String>::new());
    assert!(run.mix.clone_percent == 0 || report.shared_blocks > 100, "{} shared", report.shared_blocks);
    match run.fills {
        true => assert!(pair.refused > 20, "the device was never full"),
        false => assert!(pair.refused < run.transactions / 4, "{} refused", pair.refused),
    }
    assert_eq!(pair.rig.engine.fatal_error(), None);
    assert!(pair.rig.engine.info().unwrap().checkpoint_generation > 1, "no checkpoint");
    (pair.mutations, pair.mended)
}

fn runs(what: &str, seeds: std::ops::Range<u64>, at_least: u64, run: &Run) {
    let scale: u64 = std::env::var("STORE_MODEL_SCALE").map_or(1, |n| n.parse().unwrap());
    let end = seeds.start + (seeds.end - seeds.start) * scale;
    let (mut mutations, mut mended) = (0, 0);
    for seed in seeds.start..end {
        let on_panic = OnPanic(seed);
        let (more_mutations, more_mended) = compare_run(seed, run);
        mutations += more_mutations;
        mended += more_mended;
        std::mem::forget(on_panic);
    }
    println!("{what}: {mutations} operations, {mended} units put together");
    assert!(mended > 0, "{what}: nothing was put together");
    assert!(mutations >= at_least, "{what}: only {mutations} operations");
}

struct OnPanic(u64);

impl Drop for OnPanic {
    fn drop(&mut self) {
        eprintln!("model seed {}", self.0);
    }
}

const SMALL: Mix = Mix { objects: 400, object_len: 16 << 10, large_percent: 0, ops_max: 3, ..MIX };

fn usual() -> Run {
    Run { options: cached(options()), mix: MIX, transactions: 10_000, fills: false }
}

#[test]
fn answers_as_the_model_does_0() {
    runs("usual options", 0..9, 190_000, &usual());
}

#[test]
fn answers_as_the_model_does_1() {
    runs("usual options", 1000..1009, 190_000, &usual());
}

#[test]
fn answers_as_the_model_does_with_little_memory_0() {
    runs("little memory", 2000..2009, 190_000, &Run { options: tiny_memory(cached(options())), ..usual() });
}

#[test]
fn answers_as_the_model_does_with_little_memory_1() {
    let run = Run { options: tiny_memory(options()), mix: SMALL, ..usual() };
    runs("little memory, many objects", 3000..3012, 200_000, &run);
}

/// References of shared blocks come from the device and leave memory like all else. More of what a
/// transaction writes is cloned by it, too, than OSDs ever do.
#[test]
fn answers_as_the_model_does_with_little_memory_and_many_clones() {
    let mix = Mix { objects: 40, object_len: 150 << 10, clone_percent: 12, ..MIX };
    let run = Run { options: tiny_memory(options()), mix, ..usual() };
    runs("little memory, many clones", 9000..9003, 50_000, &run);
    let mix = Mix { objects: 400, object_len: 16 << 10, large_percent: 0, clone_percent: 25, ops_max: 5 };
    let run = Run { options: tiny_memory(cached(options())), mix, ..usual() };
    runs("little memory, many clones of small objects", 9100..9103, 50_000, &run);
}

#[test]
fn answers_as_the_model_does_with_one_record_or_many() {
    let one = Options { pipeline_depth: 1, checkpoint_copies: 1, ..options() };
    runs("one record, one copy", 4000..4007, 100_000, &Run { options: one, mix: SMALL, ..usual() });
    let options =
        Options { pipeline_depth: 3, early_txns: 3, beside_txns: 1, carried_blocks_max: 0, ..options() };
    runs("many records, data apart", 4100..4104, 50_000, &Run { options, mix: SMALL, ..usual() });
}

#[test]
fn answers_as_the_model_does_when_discarding() {
    let options =
        Options { discard: true, discard_blocks_min: 1, discard_quiet_commits: 0, ..cached(options()) };
    runs("discarding", 5000..5005, 100_000, &Run { options: options.clone(), ..usual() });
    let options = Options { lay_ahead: true, ..options };
    runs("discarding and laying", 5100..5105, 100_000, &Run { options, ..usual() });
}

#[test]
fn answers_as_the_model_does_writing_directly() {
    let options = Options { direct_len_min: 4096, pipeline_depth: 4, ..cached(options()) };
    runs("direct writes", 6000..6005, 100_000, &Run { options, ..usual() });
}

#[test]
fn answers_as_the_model_does_keeping_places() {
    let options = Options { always_keep_places: true, ..cached(options()) };
    let mix = Mix { objects: 40, object_len: 150 << 10, clone_percent: 12, ..MIX };
    runs("places kept", 6500..6504, 70_000, &Run { options: options.clone(), mix, ..usual() });
    let options = tiny_memory(options);
    runs("places kept, little memory", 6600..6604, 70_000, &Run { options, mix, ..usual() });
}

#[test]
fn answers_as_the_model_does_on_a_full_device() {
    let options = Options { log_len: Some(4 << 20), lay_ahead: true, ..options() };
    let mix = Mix { objects: 60, object_len: 400 << 10, large_percent: 50, ops_max: 3, ..MIX };
    runs("full device", 7000..7004, 20_000, &Run { options, mix, transactions: 4000, fills: true });
}

#[test]
fn answers_as_the_model_does_on_a_full_device_with_little_memory() {
    let options = tiny_memory(Options { log_len: Some(4 << 20), ..options() });
    let mix = Mix { objects: 60, object_len: 400 << 10, large_percent: 50, ops_max: 3, ..MIX };
    runs("full device", 8000..8004, 20_000, &Run { options, mix, transactions: 4000, fills: true });
}

/// The page where a new object's blocks would lie is looked for even though it
/// has none: it was once not loaded.
#[test]
fn an_object_that_comes_and_goes_in_one_transaction() {
    for n in 0..4 {
        let mut pair = Pair::new(n, &tiny_memory(options()));
        for object in 0..300 {
            let id = id(pg(0), &format!("object {object}"));
            pair.queue(vec![write(&id, 0, pattern(object, 9000))]);
            pair.rig.drive();
        }
        pair.rig.engine.checkpoint();
        pair.reopen();
        let (new, copy) = (id(pg(0), "new"), id(pg(0), "copy"));
        let header = Mutation::SetOmapHeader { id: new.clone(), header: pattern(n, 10) };
        pair.queue(match n {
            0 => vec![Mutation::Touch(new.clone()), Mutation::Remove(new)],
            1 => vec![header, Mutation::Clone { from: new, to: copy }],
            2 => vec![header, Mutation::Rename { from: new, to: copy.clone() }, Mutation::Remove(copy)],
            _ => vec![header, Mutation::Truncate { id: new.clone(), size: 9000 }, Mutation::Remove(new)],
        });
        compare_all(&mut pair.rig, &mut pair.model);
    }
}

/// Nothing changes, but whether the object exists must be known: its page was once
/// not loaded for that.
#[test]
fn renaming_or_cloning_an_object_to_its_own_name_loads_its_page() {
    let mut pair = Pair::new(9, &tiny_memory(options()));
    let name = |object: u64| id(pg(0), &format!("object {object}"));
    for object in 0..300 {
        pair.queue(vec![write(&name(object), 0, pattern(object, 9000))]);
        pair.rig.drive();
    }
    pair.rig.engine.checkpoint();
    pair.reopen();
    for object in (0..300).step_by(7) {
        let (from, to) = (name(object), name(object));
        let op = match object % 2 {
            0 => Mutation::Rename { from, to },
            _ => Mutation::Clone { from, to },
        };
        // Not through the rig, which would ask for the object first.
        pair.rig.engine.queue(Transaction { ops: vec![op] }).expect("accepted");
        pair.rig.drive();
    }
    assert_eq!(pair.rig.engine.fatal_error(), None);
    compare_all(&mut pair.rig, &mut pair.model);
}

/// Where its blocks will be, and so on which pages their references, is known only once it is applied;
/// in a replay it is in the record.
#[test]
fn what_a_transaction_writes_it_may_clone_with_no_page_in_memory() {
    let name = |n: u64| id(pg(0), &format!("object {n}"));
    let (new, other, copy) = (name(1000), name(1001), name(1002));
    let clone = |from: &ObjectId, to: &ObjectId| Mutation::Clone { from: from.clone(), to: to.clone() };
    let part = |id: &ObjectId| write(id, 700, pattern(7, 5000));
    let whole = |id: &ObjectId, blocks: usize| write(id, 0, pattern(8, blocks * 4096));
    let rename = Mutation::Rename { from: new.clone(), to: other.clone() };
    let truncate = Mutation::Truncate { id: name(3), size: 5000 };
    let remove = Mutation::Remove(new.clone());
    let workloads = [
        vec![whole(&new, 3), clone(&new, &copy)],
        vec![whole(&new, 20), clone(&new, &copy), whole(&copy, 2), clone(&copy, &other)],
        vec![part(&new), rename, clone(&other, &copy), whole(&other, 1)],
        vec![part(&name(3)), clone(&name(3), &copy), part(&name(3)), clone(&name(3), &other)],
        vec![truncate, clone(&name(3), &copy), Mutation::Remove(name(3))],
        vec![whole(&new, 2), part(&new), whole(&new, 1), remove.clone()],
        vec![whole(&new, 2), clone(&new, &copy), remove, part(&copy)],
    ];
    for (seed, ops) in (0..).zip(workloads) {
        let mut pair = Pair::new(seed, &tiny_memory(options()));
        for n in 0..400 {
            let snapshot = id(pg(0), &format!("snapshot {n}"));
            pair.queue(vec![write(&name(n), 0, pattern(n, 9000)), clone(&name(n), &snapshot)]);
            pair.rig.drive();
        }
        pair.rig.engine.checkpoint();
        pair.reopen();
        pair.queue(ops);
        while pair.acknowledged < pair.queued {
            pair.rig.engine.commit();
            pair.rig.step();
            pair.settle();
        }
        // Before any checkpoint: a replay does it again.
        pair.crash();
        for _ in 0..2 {
            compare_all(&mut pair.rig, &mut pair.model);
            pair.reopen();
            let report = fsck(pair.rig.disk.durable.clone(), &pair.options);
            assert_eq!(report.problems, Vec::<String>::new());
            assert!(report.shared_blocks > 1000);
        }
    }
}
