//! Power cuts: what a device may hold after one, and the check that a store
//! opened on it holds the first k transactions, for some k between those
//! acknowledged and those queued, and goes on from there.
//!
//! Knows the store by its public interface only.

use super::disk::{Image, SECTOR, SimDisk, Unflushed};
use super::*;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A moment right before a flush takes effect.
///
/// Such moments stand for all others: between two flushes writes only become
/// more, so what a cut can leave earlier is among what it can leave here, where
/// as much or more is acknowledged.
#[derive(Clone)]
pub struct Cut {
    pub durable: Image,
    /// In order of completion, those under way last.
    pub writes: Vec<Unflushed>,
    pub committed: u64,
    /// The store had been opened by then.
    pub open: bool,
}

/// A set of sectors of one write.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sectors(Vec<bool>);

impl Sectors {
    fn of(write: &Unflushed, kept: impl Fn(usize) -> bool) -> Sectors {
        Sectors((0..write.sectors()).map(kept).collect())
    }
}

/// Of each write, the sectors that the cut leaves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    kept: Vec<Sectors>,
    /// Writes to the same place arrive newest first.
    reversed: bool,
}

impl State {
    pub fn image(&self, cut: &Cut) -> Image {
        let mut image = cut.durable.clone();
        let mut order: Vec<usize> = (0..cut.writes.len()).collect();
        if self.reversed {
            order.reverse();
        }
        for i in order {
            let (write, kept) = (&cut.writes[i], &self.kept[i].0);
            let mut start = 0;
            for run in kept.chunk_by(|a, b| a == b) {
                let end = start + run.len();
                if run[0] {
                    let data = &write.data[start * SECTOR..end * SECTOR];
                    image.write(write.offset + (start * SECTOR) as u64, data);
                }
                start = end;
            }
        }
        image
    }
}

/// How many of the states of a cut are tried.
#[derive(Clone, Copy)]
pub struct Effort {
    /// All subsets of whole writes when there are at most so many writes; drawn
    /// ones, and those in order, when there are more.
    pub writes: usize,
    pub tears: Tears,
    /// States with everything drawn.
    pub drawn: u64,
    /// After so many states one more power cut during recovery, and one after more work.
    pub aftermath_of: u64,
    /// Data read back in each state.
    pub data_len: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tears {
    None,
    Few,
    /// Every subset of a 4 KiB write's sectors; of longer ones every prefix and
    /// suffix and every single sector and page, there or missing.
    Every,
}

fn torn(write: &Unflushed, tears: Tears) -> Vec<Sectors> {
    let count = write.sectors();
    let mut found = Vec::new();
    match tears {
        Tears::None => (),
        Tears::Every if count <= 8 => {
            found.extend((1..(1u32 << count) - 1).map(|bits| Sectors::of(write, |i| bits >> i & 1 == 1)));
        }
        Tears::Every => {
            for at in 0..count {
                found.push(Sectors::of(write, |i| i < at));
                found.push(Sectors::of(write, |i| i >= at));
                found.push(Sectors::of(write, |i| i != at));
                found.push(Sectors::of(write, |i| i == at));
                found.push(Sectors::of(write, |i| i / 8 != at / 8));
                found.push(Sectors::of(write, |i| i / 8 == at / 8));
            }
        }
        Tears::Few => {
            for at in [1, count / 2, count - 1] {
                found.push(Sectors::of(write, |i| i < at));
                found.push(Sectors::of(write, |i| i >= at));
            }
            found.push(Sectors::of(write, |i| i / 8 != count / 16));
        }
    }
    found
}

fn drawn(cut: &Cut, random: &mut Random) -> State {
    let mut kept = Vec::new();
    let mostly = random.chance(1, 2);
    for write in &cut.writes {
        let grain = if random.chance(1, 2) { 1 } else { 8 };
        let fate = random.below(if mostly { 8 } else { 3 });
        let count = write.sectors();
        kept.push(match fate {
            0 => Sectors(vec![false; count]),
            1 if random.chance(1, 2) => {
                let end = random.below(count.div_ceil(grain) as u64 + 1) as usize * grain;
                Sectors::of(write, |i| i < end)
            }
            1 => {
                let grains: Vec<bool> = (0..count.div_ceil(grain)).map(|_| random.chance(1, 2)).collect();
                Sectors::of(write, |i| grains[i / grain])
            }
            _ => Sectors(vec![true; count]),
        });
    }
    State { kept, reversed: random.chance(1, 2) }
}

/// The states to try, each leaving a different device.
pub fn states(cut: &Cut, effort: &Effort, random: &mut Random) -> Vec<State> {
    let writes = &cut.writes;
    let overlapping =
        writes.iter().enumerate().any(|(i, write)| writes[..i].iter().any(|other| write.overlaps(other)));
    // Sectors that are the same either way make no difference.
    let matters: Vec<Vec<bool>> = writes
        .iter()
        .map(|write| {
            let mut old = vec![0; write.data.len()];
            cut.durable.read(write.offset, &mut old);
            let pairs = old.chunks_exact(SECTOR).zip(write.data.chunks_exact(SECTOR));
            pairs.map(|(old, new)| overlapping || old != new).collect()
        })
        .collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut add = |mut state: State| {
        for (kept, matters) in state.kept.iter_mut().zip(&matters) {
            kept.0.iter_mut().zip(matters).for_each(|(kept, matters)| *kept &= matters);
        }
        state.reversed &= overlapping;
        if seen.insert(state.clone()) {
            found.push(state);
        }
    };
    let whole = |kept: &dyn Fn(usize) -> bool, reversed| State {
        kept: writes.iter().enumerate().map(|(i, write)| Sectors::of(write, |_| kept(i))).collect(),
        reversed,
    };
    let count = writes.len();
    if count <= effort.writes {
        for subset in 0..1u32 << count {
            add(whole(&|i| subset >> i & 1 == 1, false));
            add(whole(&|i| subset >> i & 1 == 1, true));
        }
    } else {
        add(whole(&|_| false, false));
        add(whole(&|_| true, false));
        let at = random.below(count as u64) as usize;
        add(whole(&|i| i < at, false));
        add(whole(&|i| i != at, false));
        add(whole(&|i| i == at, false));
    }
    for (torn_at, write) in writes.iter().enumerate() {
        for sectors in torn(write, effort.tears) {
            for others in [false, true] {
                let mut state = whole(&|_| others, false);
                state.kept[torn_at] = sectors.clone();
                add(state);
            }
        }
    }
    for _ in 0..effort.drawn {
        add(drawn(cut, random));
    }
    found
}

/// `STORE_CRASH`: one workload, one cut of it, one state of that cut.
#[derive(Clone, Debug)]
pub struct Replay {
    pub workload: String,
    cut: u64,
    state: u64,
}

impl Replay {
    pub fn from_env() -> Option<Replay> {
        let text = std::env::var("STORE_CRASH").ok()?;
        let parts: Vec<&str> = text.split(':').collect();
        let [workload, cut, state] = parts[..] else { panic!("STORE_CRASH=WORKLOAD:CUT:STATE") };
        let number = |text: &str| text.parse().expect("a number");
        Some(Replay { workload: workload.into(), cut: number(cut), state: number(state) })
    }
}

/// Crash states tried by this process.
pub static STATES: AtomicU64 = AtomicU64::new(0);

/// Checks cuts of one workload.
pub struct Checker {
    pub workload: String,
    pub options: Options,
    pub effort: Effort,
    pub seed: u64,
    pub device_len: u64,
    pub only: Option<Replay>,
    /// Cuts met, states tried.
    pub cuts: u64,
    pub states: u64,
}

/// Names the state when a check fails.
struct OnPanic<'a> {
    checker: &'a Checker,
    cut: &'a Cut,
    state: &'a State,
    number: u64,
}

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{self}");
        }
    }
}

impl fmt::Display for OnPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workload, cut) = (&self.checker.workload, self.checker.cuts);
        writeln!(
            f,
            "reproduce: STORE_CRASH={workload}:{cut}:{} cargo test -p store --test crash replay",
            self.number
        )?;
        for (write, kept) in self.cut.writes.iter().zip(&self.state.kept) {
            let mask: String = kept.0.iter().map(|kept| if *kept { '1' } else { '0' }).collect();
            let under_way = if write.number == u64::MAX { ", under way" } else { "" };
            writeln!(f, "  write at {}{under_way}: sectors that arrive and matter {mask}", write.offset)?;
        }
        Ok(())
    }
}

pub fn marker() -> ObjectId {
    id(CollId::Meta, "marker")
}

/// A workload on its way, with the model after each transaction.
pub struct Trace {
    pub rig: Rig,
    /// By transaction, the first being number `first`.
    pub models: Vec<MemStore>,
    first: usize,
}

impl Trace {
    /// `model` is the store's state, `number` the transactions that led to it.
    pub fn new(mut rig: Rig, model: MemStore, number: usize) -> Trace {
        rig.settle();
        rig.events.clear();
        rig.committed = 0;
        rig.cuts = Some(Vec::new());
        Trace { rig, models: vec![model], first: number }
    }

    /// With three collections, formatted.
    pub fn format(options: &Options, device_len: u64, seed: u64) -> Trace {
        let rig = Rig::format(device_len, options.clone(), seed);
        let mut trace = Trace::new(rig, MemStore::new(), 0);
        let create = [CollId::Meta, pg(0), pg(1)].map(Mutation::CreateCollection);
        trace.queue(create.to_vec()).unwrap();
        trace.rig.settle();
        trace
    }

    pub fn last(&self) -> usize {
        self.first + self.models.len() - 1
    }

    pub fn acknowledged(&self) -> usize {
        self.first + self.rig.committed as usize
    }

    /// Adds the transaction's number to it. Engine and model must agree whether
    /// it is valid; only the engine knows whether it has room.
    pub fn queue(&mut self, mut ops: Vec<Mutation>) -> Result<(), StoreError> {
        let number = Bytes::from((self.last() + 1).to_string());
        let attrs = [("n", number)].into();
        ops.push(Mutation::SetXattrs { id: marker(), attrs });
        let txn = Transaction { ops };
        let mut model = self.models.last().unwrap().clone();
        match self.rig.queue(&txn) {
            Ok(_) => {
                model.queue(txn).unwrap();
                while model.poll_event().is_some() {}
                self.models.push(model);
                Ok(())
            }
            Err(error @ (StoreError::NoSpace { .. } | StoreError::TooLarge { .. })) => Err(error),
            Err(error) => {
                assert_same_refusal(&self.rig.engine, &error, model.queue(txn).err());
                Err(error)
            }
        }
    }

    /// Forgets models that no cut can bring back.
    pub fn trim(&mut self) {
        let unneeded = self.acknowledged() - self.first;
        if unneeded > 100 {
            self.models.drain(..unneeded);
            self.first += unneeded;
            self.rig.committed = 0;
        }
    }

    /// The power goes now. Returns the trace that goes on after the recovery.
    pub fn crash(mut self, checker: &mut Checker, random: &mut Random) -> Trace {
        checker.check_cuts(&mut self);
        self.rig.cuts = Some(Vec::new());
        self.rig.collect();
        let image = self.rig.disk.cut(random);
        let mut problems = fsck(image.clone(), &checker.options).problems;
        // The cut may have come between the two.
        problems.retain(|problem| !problem.starts_with("superblock copy"));
        assert_eq!(problems, Vec::<String>::new(), "{} after cut {}", checker.workload, checker.cuts);
        let range = self.acknowledged()..self.models.len() + self.first;
        let disk = SimDisk::with_image(checker.device_len, image);
        let (rig, error) = Rig::open_recording(disk, checker.options.clone(), random.next_u64(), false);
        assert_eq!(error, None, "{} after cut {}", checker.workload, checker.cuts);
        let (rig, found) = checker.compare(rig, &self, range);
        let model = self.models[found - self.first].clone();
        Trace::new(rig, model, found)
    }
}

impl Checker {
    pub fn new(workload: String, options: Options, effort: Effort) -> Checker {
        let seed = u64::from(base::crc32c(workload.as_bytes()));
        let only = Replay::from_env();
        Checker { workload, options, effort, seed, device_len: DEVICE_LEN, only, cuts: 0, states: 0 }
    }

    /// Tries the states of each cut that the trace has met since the last call.
    pub fn check_cuts(&mut self, trace: &mut Trace) {
        trace.rig.record_cut();
        let cuts = trace.rig.cuts.replace(Vec::new()).unwrap_or_default();
        for cut in cuts {
            self.cuts += 1;
            let seed = self.seed.wrapping_add(self.cuts << 32);
            if self.only.as_ref().is_some_and(|only| only.cut != self.cuts) {
                continue;
            }
            let states = states(&cut, &self.effort, &mut Random::from_seed(seed));
            for (number, state) in (0..).zip(&states) {
                if self.only.as_ref().is_some_and(|only| only.state != number) {
                    continue;
                }
                self.states += 1;
                let mut random = Random::from_seed(seed ^ ((number + 1) * 0x9e37_79b9));
                let on_panic = OnPanic { checker: self, cut: &cut, state, number };
                if self.only.is_some() {
                    println!("{on_panic}");
                }
                self.check(trace, &cut, state, &mut random);
            }
            STATES.fetch_add(states.len() as u64, Ordering::Relaxed);
        }
    }

    fn open(&self, image: Image, random: &mut Random, record: bool) -> Rig {
        let disk = SimDisk::with_image(self.device_len, image);
        let (rig, error) = Rig::open_recording(disk, self.options.clone(), random.next_u64(), record);
        assert_eq!(error, None, "refused after a mere power cut");
        rig
    }

    /// Transactions from the first of `range` on were not acknowledged, those
    /// from its end on not queued.
    fn compare(&self, mut rig: Rig, trace: &Trace, range: std::ops::Range<usize>) -> (Rig, usize) {
        let found = match rig.ask(|engine| engine.xattr(&marker(), "n")) {
            Ok(Some(n)) => std::str::from_utf8(&n).unwrap().parse().unwrap(),
            _ => 0,
        };
        assert!(range.contains(&found), "{found} transactions, expected one of {range:?}");
        let mut model = trace.models[found - trace.first].clone();
        compare_up_to(&mut rig, &mut model, self.effort.data_len);
        assert_eq!(rig.engine.fatal_error(), None);
        (rig, found)
    }

    fn check(&self, trace: &Trace, cut: &Cut, state: &State, random: &mut Random) {
        let aftermath = random.chance(1, self.effort.aftermath_of);
        let acknowledged = trace.first + cut.committed as usize;
        let queued = trace.first + trace.models.len();
        let mut rig = self.open(state.image(cut), random, aftermath);
        let recovery_cuts = rig.cuts.take().unwrap_or_default();
        let (rig, found) = self.compare(rig, trace, acknowledged..queued);
        if !aftermath {
            return;
        }
        if !recovery_cuts.is_empty() {
            let again = &recovery_cuts[random.below(recovery_cuts.len() as u64) as usize];
            // Whoever was told about the state after an opening finds it again.
            let range = if again.open { found..found + 1 } else { acknowledged..queued };
            let state = drawn(again, random);
            let rig = self.open(state.image(again), random, false);
            self.compare(rig, trace, range);
        }
        let model = trace.models[found - trace.first].clone();
        let mut next = Trace::new(rig, model, found);
        let mut generator = Generator::new(random.next_u64(), MIX);
        let objects: Vec<HObject> = next.rig.list_all(pg(0)).unwrap_or_default();
        if let Some(object) = objects.into_iter().next() {
            let partial = write(&ObjectId { coll: pg(0), object }, 700, pattern(1, 5000));
            let _ = next.queue(vec![partial]);
        }
        for _ in 0..random.below(4) {
            let _ = next.queue(generator.transaction().ops);
            next.rig.engine.commit();
            (0..random.below(4)).for_each(|_| {
                next.rig.step();
            });
        }
        next.rig.record_cut();
        let cuts = next.rig.cuts.take().unwrap_or_default();
        if !cuts.is_empty() {
            let last = &cuts[random.below(cuts.len() as u64) as usize];
            let rig = self.open(drawn(last, random).image(last), random, false);
            let range = found + last.committed as usize..next.first + next.models.len();
            self.compare(rig, &next, range);
        }
    }
}
