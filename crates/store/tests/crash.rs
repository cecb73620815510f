//! Power cuts: every workload of up to three operations out of a set that has
//! every kind of mutation, and long random ones.
//!
//! A failure prints a line that tries the one state again:
//! `STORE_CRASH=WORKLOAD:CUT:STATE cargo test -p store --test crash replay`.
//! `STORE_CRASH_SCALE=n` runs n times as many long workloads.

mod common;

use base::Random;
use bytes::Bytes;
use common::crash::{Checker, Effort, Replay, STATES, Tears, Trace};
use common::disk::{Image, SimDisk};
use common::*;
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use store::{MemStore, Mutation, ObjectStore, Options};

/// Names of the operations of short workloads, as [`operation`] makes them.
const OPERATIONS: [&str; 25] = [
    "create-collection",
    "remove-collection",
    "touch",
    "write-small",
    "write-part",
    "write-large",
    "write-clone",
    "zero",
    "truncate",
    "extend",
    "remove",
    "set-xattrs",
    "rm-xattr",
    "clear-xattrs",
    "omap-header",
    "set-omap",
    "rm-omap",
    "rm-omap-range",
    "clear-omap",
    "clone",
    "rename",
    "new-object",
    "large-other",
    "checkpoint",
    REST,
];

/// The store may put together what is in pieces.
const REST: &str = "rest";

/// `step` makes the content differ. `None`: a checkpoint begins, or a [`REST`].
fn operation(name: &str, step: u64) -> Option<Mutation> {
    let (a, b) = (id(pg(0), "a"), id(pg(1), "b"));
    let value = |len| pattern(100 + step, len);
    let key = |n: u8| Bytes::from(vec![b'k', n]);
    Some(match name {
        "create-collection" => Mutation::CreateCollection(pg(2)),
        "remove-collection" => Mutation::RemoveCollection(pg(2)),
        "touch" => Mutation::Touch(id(pg(0), "touched")),
        "write-small" => write(&a, 4096, value(4096)),
        "write-part" => write(&a, 5000, value(700)),
        "write-large" => write(&a, 4096 * step, value(68 << 10)),
        "write-clone" => write(&b, 3000, value(3000)),
        "zero" => Mutation::Zero { id: a, offset: 3000, len: 6000 },
        "truncate" => Mutation::Truncate { id: a, size: 5000 + step },
        "extend" => Mutation::Truncate { id: a, size: 90_000 + step },
        "remove" => Mutation::Remove(a),
        "set-xattrs" => Mutation::SetXattrs { id: a, attrs: [("x", value(20)), ("y", value(90))].into() },
        "rm-xattr" => Mutation::RmXattr { id: a, name: "x".into() },
        "clear-xattrs" => Mutation::ClearXattrs(a),
        "omap-header" => Mutation::SetOmapHeader { id: a, header: value(30) },
        "set-omap" => {
            Mutation::SetOmap { id: a, entries: (0..5).map(|n| (key(n * step as u8), value(300))).collect() }
        }
        "rm-omap" => Mutation::RmOmap { id: a, keys: BTreeSet::from([key(1), key(2)]) },
        "rm-omap-range" => Mutation::RmOmapRange { id: a, start: key(1), end: key(4) },
        "clear-omap" => Mutation::ClearOmap(a),
        "clone" => Mutation::Clone { from: a, to: b },
        "rename" => Mutation::Rename { from: a, to: b },
        "new-object" => write(&id(pg(1), "new"), 100, value(5000)),
        "large-other" => write(&b, 0, value(72 << 10)),
        "checkpoint" | REST => return None,
        name => panic!("no operation {name}"),
    })
}

/// What the store holds when a short workload begins.
const BEGINNINGS: [&str; 5] = ["empty", "logged", "cold", "kept", "cut"];

fn beginning(which: usize) -> &'static (Image, MemStore, usize) {
    static MADE: [OnceLock<(Image, MemStore, usize)>; 5] = [const { OnceLock::new() }; 5];
    MADE[which].get_or_init(|| {
        let mut trace = Trace::format(&options(), DEVICE_LEN, 1);
        if BEGINNINGS[which] == "cut" {
            // Two objects that lie between each other, block by block.
            for n in 0..20 {
                for (object, seed) in [(id(pg(0), "a"), 50 + n), (id(pg(1), "b"), 80 + n)] {
                    trace.queue(vec![write(&object, n * 4096, pattern(seed, 4096))]).unwrap();
                    trace.rig.drive();
                }
            }
        } else if which > 0 {
            let ops = |names: &[&str]| names.iter().filter_map(|name| operation(name, 9)).collect::<Vec<_>>();
            let a = id(pg(0), "a");
            trace
                .queue(vec![write(&a, 0, pattern(1, 80 << 10)), write(&a, 80 << 10, pattern(2, 3000))])
                .unwrap();
            trace
                .queue(ops(&["create-collection", "set-xattrs", "set-omap", "omap-header", "clone"]))
                .unwrap();
            trace.queue(ops(&["write-part", "new-object"])).unwrap();
            trace.rig.drive();
        }
        if which >= 2 {
            trace.rig.engine.checkpoint();
            trace.rig.drive();
        }
        let last = trace.last();
        // All that arrived, as if flushed.
        (trace.rig.disk.visible, trace.models.pop().unwrap(), last)
    })
}

/// How the operations reach the device.
const PACES: [&str; 4] = ["piped", "batched", "one-by-one", "apart"];

/// "kept": what is overwritten keeps its place. "apart": data goes to its places, in durable writes
/// beside another record and before a flush alone.
fn options_of(beginning: usize, pace: usize) -> Options {
    let options = Options { always_keep_places: BEGINNINGS[beginning] == "kept", ..options() };
    match PACES[pace] {
        "apart" => Options { carried_blocks_max: 0, beside_txns: 1, ..options },
        _ => options,
    }
}

/// Runs one short workload and tries its cuts: those after its last operation
/// only, the others being those of a shorter workload.
fn short(beginning_at: usize, pace: usize, operations: &[usize], effort: Effort) -> u64 {
    let names: Vec<&str> = operations.iter().map(|at| OPERATIONS[*at]).collect();
    let workload = format!("{}/{}/{}", BEGINNINGS[beginning_at], PACES[pace], names.join("+"));
    let options = options_of(beginning_at, pace);
    let mut checker = Checker::new(workload, options.clone(), effort);
    let mut random = Random::from_seed(checker.seed);
    let (image, model, number) = beginning(beginning_at);
    let disk = SimDisk::with_image(DEVICE_LEN, image.clone());
    let rig = Rig::try_open_disk(disk, options, random.next_u64()).unwrap();
    let mut trace = Trace::new(rig, model.clone(), *number);
    for (step, name) in (1..).zip(&names) {
        if step == names.len() as u64 {
            trace.rig.cuts = Some(Vec::new());
        }
        match operation(name, step) {
            // What is not valid here leaves a shorter workload.
            Some(op) => {
                let _ = trace.queue(vec![op]);
            }
            None if *name == REST => drop(trace.rig.engine.rest()),
            None => trace.rig.engine.checkpoint(),
        }
        match PACES[pace] {
            "batched" => (),
            "piped" | "apart" => {
                trace.rig.engine.commit();
                trace.rig.collect();
                for _ in 0..random.below(3) {
                    trace.rig.step();
                }
            }
            _ => trace.rig.drive(),
        }
    }
    trace.rig.drive();
    assert_eq!(trace.acknowledged(), trace.last());
    checker.check_cuts(&mut trace);
    checker.states
}

/// All there is to try of one operation; less of two, a little of three: what
/// differs there is what came before.
const ONE: Effort = Effort { writes: 6, tears: Tears::Every, drawn: 20, aftermath_of: 3, data_len: u64::MAX };
const TWO: Effort = Effort { writes: 5, tears: Tears::Few, drawn: 6, aftermath_of: 8, data_len: u64::MAX };
const THREE: Effort =
    Effort { writes: 3, tears: Tears::None, drawn: 3, aftermath_of: 10, data_len: u64::MAX };

#[test]
fn one_or_two_operations_survive_every_cut() {
    let mut states = 0;
    for (beginning, held) in BEGINNINGS.iter().enumerate() {
        for (pace, how) in PACES.iter().enumerate() {
            let is_piped = matches!(*how, "piped" | "apart");
            // Where a block lies makes no difference to how it gets there.
            if matches!(*held, "kept" | "cut") && !is_piped {
                continue;
            }
            // What begins in pieces is there to be put together.
            let rests =
                |operations: &[usize]| *held != "cut" || operations.iter().any(|at| OPERATIONS[*at] == REST);
            for first in 0..OPERATIONS.len() {
                if is_piped && rests(&[first]) {
                    states += short(beginning, pace, &[first], ONE);
                }
                for second in 0..OPERATIONS.len() {
                    if rests(&[first, second]) {
                        states += short(beginning, pace, &[first, second], TWO);
                    }
                }
            }
        }
    }
    report("one or two operations", states, 20_000);
}

/// Which beginning and pace a workload of three has is spread evenly.
fn three_operations(part: usize, parts: usize) {
    let count = OPERATIONS.len();
    let mut states = 0;
    for n in (part..count * count * count).step_by(parts) {
        let operations = [n / (count * count), n / count % count, n % count];
        let spread = operations[0] + 2 * operations[1] + 5 * operations[2];
        states += short(spread % 5, spread / 5 % 4, &operations, THREE);
    }
    report(&format!("three operations, part {part}"), states, 20_000);
}

#[test]
fn three_operations_survive_every_cut_0() {
    three_operations(0, 2);
}

#[test]
fn three_operations_survive_every_cut_1() {
    three_operations(1, 2);
}

fn report(what: &str, states: u64, at_least: u64) {
    println!("{what}: {states} crash states, {} so far", STATES.load(Ordering::Relaxed));
    assert!(states >= at_least, "{what}: only {states} crash states");
}

/// A kind of long workload.
struct Long {
    name: &'static str,
    options: fn() -> Options,
    mix: Mix,
    transactions: u64,
    /// Adds objects until the device refuses them, then removes some.
    fills: bool,
    runs: u64,
    effort: Effort,
}

const SMALL: Mix = Mix { objects: 60, object_len: 16 << 10, large_percent: 0, ops_max: 3, ..MIX };
const DRAW: Effort =
    Effort { writes: 2, tears: Tears::None, drawn: 3, aftermath_of: 12, data_len: 300 << 10 };

const LONG: [Long; 10] = [
    Long {
        name: "mixed",
        options: || cached(options()),
        mix: MIX,
        transactions: 400,
        fills: false,
        runs: 12,
        effort: DRAW,
    },
    Long {
        name: "paged",
        options: || tiny_memory(options()),
        mix: Mix { objects: 200, object_len: 40 << 10, large_percent: 3, ops_max: 4, ..MIX },
        transactions: 400,
        fills: false,
        runs: 12,
        effort: DRAW,
    },
    Long {
        name: "cloned",
        options: || tiny_memory(options()),
        mix: Mix { objects: 60, object_len: 100 << 10, large_percent: 3, ops_max: 4, clone_percent: 15 },
        transactions: 400,
        fills: false,
        runs: 12,
        effort: DRAW,
    },
    Long {
        name: "deep",
        options: || Options { pipeline_depth: 4, early_txns: 3, beside_txns: 1, ..options() },
        mix: SMALL,
        transactions: 400,
        fills: false,
        runs: 8,
        effort: DRAW,
    },
    Long {
        name: "apart",
        options: || Options { carried_blocks_max: 0, early_txns: 3, beside_txns: 1, ..cached(options()) },
        mix: SMALL,
        transactions: 400,
        fills: false,
        runs: 8,
        effort: DRAW,
    },
    Long {
        name: "direct",
        options: || Options { direct_len_min: 4096, pipeline_depth: 3, ..options() },
        mix: MIX,
        transactions: 300,
        fills: false,
        runs: 6,
        effort: DRAW,
    },
    Long {
        name: "discard",
        options: || Options {
            discard: true,
            discard_blocks_min: 1,
            discard_quiet_commits: 0,
            pipeline_depth: 1,
            ..options()
        },
        mix: MIX,
        transactions: 300,
        fills: false,
        runs: 6,
        effort: DRAW,
    },
    Long {
        name: "laid",
        options: || Options { lay_ahead: true, ..options() },
        mix: MIX,
        transactions: 400,
        fills: false,
        runs: 8,
        effort: DRAW,
    },
    Long {
        name: "kept",
        options: || Options { always_keep_places: true, pipeline_depth: 3, ..tiny_memory(options()) },
        mix: Mix { objects: 60, object_len: 40 << 10, large_percent: 5, ops_max: 3, ..MIX },
        transactions: 400,
        fills: false,
        runs: 8,
        effort: DRAW,
    },
    Long {
        name: "full",
        options: || Options { log_len: Some(8 << 20), ..tiny_memory(options()) },
        mix: Mix { objects: 60, object_len: 200 << 10, large_percent: 40, ops_max: 2, ..MIX },
        transactions: 400,
        fills: true,
        runs: 4,
        effort: DRAW,
    },
];

fn long(kind: &Long, run: u64) -> u64 {
    let options = (kind.options)();
    let mut checker = Checker::new(format!("long/{}/{run}", kind.name), options.clone(), kind.effort);
    let mut random = Random::from_seed(checker.seed);
    let mut trace = Trace::format(&options, DEVICE_LEN, random.next_u64());
    let mut generator = Generator::new(random.next_u64(), kind.mix);
    let (mut refused, mut crashes) = (0, 0);
    for n in 0..kind.transactions {
        let error = match kind.fills && n % 3 == 0 {
            true => {
                let object = id(pg(0), &format!("filler {}", random.below(60)));
                trace.queue(vec![write(&object, 0, pattern(n, 256 << 10))]).err()
            }
            false => trace.queue(generator.transaction().ops).err(),
        };
        refused += u64::from(matches!(error, Some(store::StoreError::NoSpace { .. })));
        if random.chance(1, 2) {
            trace.rig.engine.commit();
        }
        for _ in 0..random.below(6) {
            trace.rig.step();
        }
        if random.chance(1, 60) {
            trace.rig.engine.checkpoint();
        }
        if random.chance(1, 4) {
            trace.rig.engine.rest();
        }
        if random.chance(1, 12) {
            checker.check_cuts(&mut trace);
            trace.trim();
        }
        if random.chance(1, 60) {
            crashes += 1;
            trace = trace.crash(&mut checker, &mut random);
        }
    }
    trace.rig.drive();
    checker.check_cuts(&mut trace);
    assert_eq!(trace.acknowledged(), trace.last());
    assert!(!kind.fills || refused > 0, "{}: the device was never full", checker.workload);
    assert!(crashes > 0);
    checker.states
}

fn long_runs(names: &[&str], at_least: u64) {
    let scale: u64 = std::env::var("STORE_CRASH_SCALE").map_or(1, |n| n.parse().unwrap());
    for kind in LONG.iter().filter(|kind| names.contains(&kind.name)) {
        let states = (0..kind.runs * scale).map(|run| long(kind, run)).sum();
        report(&format!("long workloads, {}", kind.name), states, at_least);
    }
}

#[test]
fn long_workloads_survive_sampled_cuts() {
    long_runs(&["mixed", "deep", "apart"], 1000);
}

#[test]
fn long_workloads_survive_sampled_cuts_with_little_memory_or_space() {
    long_runs(&["paged", "cloned", "full"], 1000);
}

#[test]
fn long_workloads_survive_sampled_cuts_with_other_options() {
    long_runs(&["direct", "discard", "laid", "kept"], 1000);
}

/// Chunks of a checkpoint may take blocks that its snapshot still refers to,
/// when a later transaction has freed them. Such a store was once refused.
#[test]
fn blocks_freed_under_a_checkpoint_may_hold_it() {
    let mut trace = Trace::format(&options(), DEVICE_LEN, 1);
    let mut random = Random::from_seed(1);
    let object = |n: u64| id(pg(0), &format!("object {n}"));
    let make = |n: u64, data: u64| {
        let attrs = [("x", pattern(n, 3000))].into();
        vec![write(&object(n), 0, pattern(data, 4096)), Mutation::SetXattrs { id: object(n), attrs }]
    };
    for n in 0..300 {
        trace.queue(make(n, n)).unwrap();
        trace.rig.drive();
    }
    for round in 0..20 {
        trace.rig.engine.checkpoint();
        for _ in 0..20 {
            let n = random.below(300);
            trace.queue(vec![Mutation::Remove(object(n))]).unwrap();
            trace.rig.engine.commit();
            trace.rig.steps(4);
            trace.queue(make(n, round)).unwrap();
            trace.rig.engine.commit();
            trace.rig.steps(4);
            let disk = SimDisk::with_image(DEVICE_LEN, trace.rig.disk.durable.clone());
            assert_eq!(Rig::try_open_disk(disk, options(), 1).err(), None);
        }
    }
}

/// Does nothing unless `STORE_CRASH` names a state.
#[test]
fn replay() {
    let Some(replay) = Replay::from_env() else { return };
    let parts: Vec<&str> = replay.workload.split('/').collect();
    if let ["long", name, run] = parts[..] {
        let kind = LONG.iter().find(|kind| kind.name == name).expect("a kind of long workload");
        long(kind, run.parse().expect("a number"));
        return;
    }
    let at = |names: &[&str], name: &str| names.iter().position(|n| *n == name).expect("a known name");
    let [beginning, pace, operations] = parts[..] else { panic!("no workload {}", replay.workload) };
    let operations: Vec<usize> = operations.split('+').map(|name| at(&OPERATIONS, name)).collect();
    let effort = [ONE, TWO, THREE][operations.len() - 1];
    let states = short(at(&BEGINNINGS, beginning), at(&PACES, pace), &operations, effort);
    assert_eq!(states, 1, "no such state");
}
