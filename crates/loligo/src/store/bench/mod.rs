//! `loligo store bench`: the engine as an OSD uses it, on a real device, without
//! network.
//!
//! All rows are measured on one store, one after the other, and in turns with
//! fio. CPU is that of this process: the load's own part, about half a
//! microsecond an operation, is in it.

mod closed_loop;
mod fio;
mod layout;
mod measured;
mod objects;
mod order_watch;
mod plan;
mod scratch;

use super::node::{Ending, Place, Step, Task, run_task};
use super::options::{Discard, Metadata, StoreBenchOptions, WorkloadKind};
use super::{device_report, names};
use crate::identity;
use crate::options::Mend;
use crate::osd_daemon::store_options;
use crate::progress::PhaseBar;
use anyhow::{Context, Result, bail};
use base::{Duration, Random, Time};
use closed_loop::{ClosedLoop, Next, Surroundings, Window};
use env::{DiskOp, DiskRequest};
use fio::Fio;
use layout::{Layout, OBJECT_LEN};
use measured::{Age, Row, table};
use order_watch::OrderWatch;
use plan::{Aging, Plan};
use scratch::Scratch;
use serde_json::json;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use store::{Engine, Identity, ObjectStore, Options, StoreEvent};
use uring::{Disk, DiskFacts, DiskOptions};
use wire::types::{OsdId, Uuid};

/// Large operations in flight: more only wait.
const LARGE_DEPTH_MAX: u32 = 8;
/// While preparing.
const FILL_DEPTH: u32 = 8;
const AGE_DEPTH: u32 = 32;
/// Drawing takes as long as an operation.
const BAR_PERIOD: Duration = Duration::from_millis(100);
/// Of its rate on a fresh store, a filled and aged one must keep this.
const KEPT_MIN: f64 = 0.5;

pub fn run(options: &StoreBenchOptions) -> Result<ExitCode> {
    if options.restart {
        return objects::run_restart(options, options.path.as_deref().context("--restart needs a path")?);
    }
    if options.data_size < OBJECT_LEN {
        bail!("--data-size {}: at least 4M", options.data_size);
    }
    if options.check_order && options.metadata == Metadata::None {
        bail!("--check-order needs --metadata osd: it looks for what an OSD writes");
    }
    let seed = identity::random_u64()?;
    let mut random = Random::from_seed(seed);
    let scratch = Scratch::new(options.path.as_deref(), options.overwrite)?;
    let size = options.size.unwrap_or_else(|| default_size(options)) / 4096 * 4096;
    if !scratch.is_block_device() && std::fs::metadata(&scratch.path).map_or(0, |m| m.len()) == 0 {
        scratch.make_file(size, options.sparse || options.objects.is_some(), &mut random)?;
    }
    let identity = Identity { fsid: Uuid::from_random(seed, 0), osd: OsdId(0), uuid: identity::new_uuid()? };
    let place = Place { path: &scratch.path, backend: options.backend, options: DiskOptions::default() };
    let format = |disk: &Disk| Engine::format(disk.info(), identity, engine_options(options, disk.facts()));
    if let Some(count) = options.objects {
        return objects::run(options, &place, count, format);
    }
    let fio = match &options.fio {
        None => None,
        Some(path) => {
            let path = match path {
                Some(path) => path.clone(),
                None if scratch.is_block_device() => bail!("--fio=FILE: say where, beside a block device"),
                None => beside(&scratch.path),
            };
            Some(Fio::new(path, options.data_size / OBJECT_LEN * OBJECT_LEN, options.seconds, options.ramp)?)
        }
    };
    let mut bench = Bench::new(options, fio, random);
    let reached = run_task(&place, Ending::Clean, &mut bench, format)?;
    let acknowledged = bench.watch.as_ref().map(|watch| watch.acknowledged);
    report(options, &bench, acknowledged, &reached)
}

fn default_size(options: &StoreBenchOptions) -> u64 {
    match options.objects {
        // Metadata of about half a kilobyte each, in two checkpoints of two copies.
        Some(count) => (count * 4096).max(1 << 30),
        None => options.data_size + (options.data_size / 2).max(1 << 30),
    }
}

fn beside(path: &std::path::Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".fio");
    PathBuf::from(name)
}

fn engine_options(options: &StoreBenchOptions, facts: &DiskFacts) -> Options {
    let used = store_options(facts);
    Options {
        overwrite: options.overwrite,
        // What is measured is the way to the device and back.
        read_cache: 0,
        discard: used.discard && options.discard == Discard::Auto,
        mend: options.mend == Mend::On,
        ..used
    }
}

enum Stage {
    Prepare {
        name: &'static str,
        plan: Plan,
        depth: u32,
        row: Option<usize>,
    },
    /// Lets the store put objects together again, then writeback and checkpoints end: a quiet moment.
    Settle,
    Measure(usize),
    FioLayOut,
    Fio(usize),
}

enum Running {
    Loop { work: Box<ClosedLoop>, row: Option<usize> },
    Mending { since: Time },
    Settling,
}

struct Bench<'a> {
    options: &'a StoreBenchOptions,
    fio: Option<Fio>,
    stages: VecDeque<Stage>,
    running: Option<Running>,
    rows: Vec<Row>,
    layout: Layout,
    random: Random,
    watch: Option<OrderWatch>,
    operations: u64,
    discards: u64,
    mending: Duration,
    bar: Option<PhaseBar>,
    bar_due: Time,
    began: bool,
}

impl<'a> Bench<'a> {
    fn new(options: &'a StoreBenchOptions, fio: Option<Fio>, mut random: Random) -> Bench<'a> {
        let layout = Layout::new(options.metadata, options.check_order, &mut random);
        Bench {
            options,
            fio,
            stages: VecDeque::new(),
            running: None,
            rows: Vec::new(),
            layout,
            random,
            watch: options.check_order.then(OrderWatch::default),
            operations: 0,
            discards: 0,
            mending: Duration::ZERO,
            bar: None,
            bar_due: Time::ZERO,
            began: false,
        }
    }

    /// Everything that will be done.
    fn plan(&mut self, log_len: u64) {
        let options = self.options;
        let count = (options.data_size / OBJECT_LEN) as usize;
        if self.fio.is_some() {
            self.stages.push_back(Stage::FioLayOut);
        }
        let workload = WorkloadKind::Write4m;
        let (age, depth) = (Age::Filling, FILL_DEPTH);
        self.rows.push(Row { age, workload, depth, measured: Default::default(), fio: None });
        let (name, plan) = ("filling", Plan::Fill { count });
        self.stages.push_back(Stage::Prepare { name, plan, depth, row: Some(0) });
        self.prepare("first round of the log", Plan::Round { left: log_len }, AGE_DEPTH);
        let left = count.min(plan::ROUND_OBJECTS);
        self.prepare("what that cut to pieces", Plan::Mend { left }, FILL_DEPTH);
        self.plan_rows(Age::Fresh);
        if let Some(percent) = options.fill {
            self.stages.push_back(Stage::Settle);
            self.prepare("filling up", Plan::FillTo { percent }, FILL_DEPTH);
            if let Some(percent) = options.age {
                let aging = Aging { left: u64::from(percent), rebuilding: Vec::new() };
                self.prepare("aging", Plan::Age(aging), AGE_DEPTH);
            }
            self.plan_rows(Age::Filled);
        }
    }

    fn prepare(&mut self, name: &'static str, plan: Plan, depth: u32) {
        self.stages.push_back(Stage::Prepare { name, plan, depth, row: None });
    }

    fn plan_rows(&mut self, age: Age) {
        let mut kinds: Vec<WorkloadKind> = self.options.workload.clone();
        kinds.dedup();
        for workload in kinds {
            let large = workload.len() == OBJECT_LEN;
            let mut depths: Vec<u32> = self.options.depth.clone();
            if large {
                depths.iter_mut().for_each(|depth| *depth = (*depth).min(LARGE_DEPTH_MAX));
            }
            depths.dedup();
            for depth in depths {
                let row = self.rows.len();
                self.rows.push(Row { age, workload, depth, measured: Default::default(), fio: None });
                for _ in 0..self.options.rounds {
                    self.stages.extend([Stage::Settle, Stage::Measure(row)]);
                    // On the filled store only the store is in question.
                    if self.fio.is_some() && age == Age::Fresh {
                        self.stages.extend([Stage::Settle, Stage::Fio(row)]);
                    }
                }
            }
        }
    }

    /// Starts a stage. Afterwards `now` is of the past if the stage was fio's.
    fn begin(&mut self, stage: Stage, store: &mut Engine, now: Time) -> Result<()> {
        match stage {
            Stage::Prepare { name, mut plan, depth, row } => {
                if let Plan::Age(aging) = &mut plan {
                    // Given as a part of what is there.
                    aging.left *= self.layout.objects.len() as u64 * OBJECT_LEN / 100;
                }
                self.bar = Some(PhaseBar::waiting(name));
                let work = Box::new(ClosedLoop::new(plan, depth, Window::Whole));
                self.running = Some(Running::Loop { work, row });
            }
            Stage::Settle => {
                store.commit();
                self.running = Some(Running::Mending { since: now });
            }
            Stage::Measure(row) => {
                let Row { workload, depth, .. } = self.rows[row];
                let window = Window::Timed {
                    ramp: Duration::from_secs_f64(self.options.ramp),
                    time: Duration::from_secs_f64(self.options.seconds),
                };
                let name = format!("{:?} at depth {depth}", workload);
                self.bar = Some(PhaseBar::new(&name));
                let work = Box::new(ClosedLoop::new(Plan::Random(workload), depth, window));
                self.running = Some(Running::Loop { work, row: Some(row) });
            }
            // Both block this thread, and with it the store, which is idle.
            Stage::FioLayOut => {
                self.bar = Some(PhaseBar::waiting("fio: writing its file once"));
                self.fio.as_ref().context("no fio")?.lay_out()?;
            }
            Stage::Fio(row) => {
                let Row { workload, depth, .. } = self.rows[row];
                self.bar = Some(PhaseBar::waiting(&format!("fio: {workload:?} at depth {depth}")));
                let found = self.fio.as_ref().context("no fio")?.run(workload, depth)?;
                self.rows[row].fio.get_or_insert_default().add(found);
            }
        }
        Ok(())
    }
}

impl Task for Bench<'_> {
    fn step(&mut self, store: &mut Engine, now: Time) -> Result<Step> {
        if !self.began {
            store.queue(layout::create_collections())?;
            self.began = true;
            self.plan(store.info().context("the store is not open")?.log_len);
        }
        loop {
            match &mut self.running {
                None => match self.stages.pop_front() {
                    Some(stage) => {
                        self.begin(stage, store, now)?;
                        if self.running.is_none() {
                            return Ok(Step::WaitUntil(now));
                        }
                    }
                    None => return Ok(Step::Done),
                },
                Some(Running::Mending { since }) => {
                    let more = store.rest();
                    match (store.is_idle(), more) {
                        (false, _) => return Ok(Step::Wait),
                        (true, true) => return Ok(Step::WaitUntil(now)),
                        (true, false) => {
                            self.mending += now.since(*since);
                            store.checkpoint();
                            self.running = Some(Running::Settling);
                        }
                    }
                }
                Some(Running::Settling) => {
                    if !store.is_idle() {
                        return Ok(Step::Wait);
                    }
                    self.running = None;
                }
                Some(Running::Loop { work, row }) => {
                    if now >= self.bar_due
                        && let (Some(bar), Some(fraction)) = (&self.bar, work.fraction(now))
                    {
                        self.bar_due = now + BAR_PERIOD;
                        bar.set(fraction, format!("{} operations", work.ops()));
                    }
                    let mut around = Surroundings {
                        store,
                        layout: &mut self.layout,
                        random: &mut self.random,
                        watch: &mut self.watch,
                        operations: &mut self.operations,
                        discards: self.discards,
                        now,
                    };
                    match work.step(&mut around)? {
                        Next::Wait(latest) => return Ok(Step::WaitUntil(latest)),
                        Next::Again => return Ok(Step::Again),
                        Next::Done(measured) => {
                            let row = *row;
                            self.running = None;
                            self.bar = None;
                            if let Some(row) = row {
                                self.rows[row].measured.add(&measured);
                            }
                        }
                    }
                }
            }
        }
    }

    fn on_event(&mut self, _: &mut Engine, event: StoreEvent, now: Time) -> Result<()> {
        match &mut self.running {
            Some(Running::Loop { work, .. }) => work.on_event(event, &mut self.watch, now),
            _ => Ok(()),
        }
    }

    fn on_submit(&mut self, request: &DiskRequest) {
        self.discards += u64::from(matches!(request.op, DiskOp::Discard { .. }));
        if let Some(watch) = &mut self.watch {
            watch.on_submit(request);
        }
    }

    fn on_disk_done(&mut self, token: u64, ok: bool) {
        if let Some(watch) = &mut self.watch {
            watch.on_disk_done(token, ok);
        }
    }
}

fn report(
    options: &StoreBenchOptions,
    bench: &Bench<'_>,
    acknowledged: Option<u64>,
    reached: &super::node::Reached,
) -> Result<ExitCode> {
    let rows = &bench.rows;
    let mended = reached.engine.stats();
    let slow = if options.age.is_some() { slowed(rows) } else { Vec::new() };
    if options.json {
        let result = json!({
            "device": device_report::json(&reached.facts, Some(reached.backend)),
            "data_size": options.data_size,
            "metadata": format!("{:?}", options.metadata).to_lowercase(),
            "writes_in_order": acknowledged,
            "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
            "mended_units": mended.mended_units,
            "mended_blocks": mended.mended_blocks,
            "moved_blocks": mended.moved_blocks,
            "mending_seconds": bench.mending.as_secs_f64(),
            "slowed": slow,
        });
        println!("{}", serde_json::to_string_pretty(&result)?);
    } else {
        println!(
            "{} of {}, {}; {} of data; metadata as {}",
            reached.facts.kind.name(),
            names::size(reached.facts.len_bytes),
            reached.backend,
            names::size(options.data_size),
            if options.metadata == Metadata::Osd { "an OSD's" } else { "none" }
        );
        print!("{}", table(rows));
        println!(
            "put together in quiet moments before the rows: {} in {:.1} s; moved for that: {}",
            names::size(mended.mended_blocks * 4096),
            bench.mending.as_secs_f64(),
            names::size(mended.moved_blocks * 4096)
        );
        if let Some(acknowledged) = acknowledged {
            println!("{acknowledged} writes: each was acknowledged when all of it was durable");
        }
        slow.iter().for_each(|line| println!("{line}"));
    }
    if !reached.facts.direct.yes {
        eprintln!("loligo: reads may come from the page cache: {}", reached.facts.direct.reason);
    }
    Ok(if slow.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Rows that kept less than [`KEPT_MIN`] of their rate.
fn slowed(rows: &[Row]) -> Vec<String> {
    let of_age = |age: Age| rows.iter().filter(move |row| row.age == age);
    let mut lines = Vec::new();
    for (fresh, filled) in of_age(Age::Fresh).zip(of_age(Age::Filled)) {
        let kept = filled.measured.rate() / fresh.measured.rate().max(1e-9);
        if kept < KEPT_MIN {
            lines.push(format!(
                "{:?} at depth {} kept {:.0} % of its rate on the filled store; at least {:.0} % are expected",
                fresh.workload,
                fresh.depth,
                kept * 100.0,
                KEPT_MIN * 100.0
            ));
        }
    }
    lines
}
