//! `loligo store fsck`: reads everything, changes nothing.

use super::names;
use super::options::FsckOptions;
use crate::mon_daemon::backend;
use crate::progress::PhaseBar;
use anyhow::{Context, Result, anyhow};
use base::Time;
use daemon::{DeviceStore, OpenState};
use env::{Env, Event, Node};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;
use store::{Engine, Fsck, FsckReport, ObjectStore, Options};
use uring::{Disk, DiskOptions, ReactorConfig};

/// The exit status for a store that cannot be looked at.
const CANNOT_OPEN: u8 = 2;

pub fn run(options: &FsckOptions) -> Result<ExitCode> {
    let target = &options.target;
    let began = Instant::now();
    match check(options) {
        Ok(report) => {
            if target.json {
                println!("{}", serde_json::to_string_pretty(&as_json(&report))?);
            } else {
                print_report(&report, began.elapsed().as_secs_f64());
            }
            Ok(if report.problems_found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            if target.json {
                println!("{}", json!({ "opened": false, "error": format!("{error:#}") }));
            } else {
                eprintln!("loligo: {error:#}");
            }
            Ok(ExitCode::from(CANNOT_OPEN))
        }
    }
}

fn check(options: &FsckOptions) -> Result<FsckReport> {
    let target = &options.target;
    let read_only = DiskOptions { read_only: true, ..DiskOptions::default() };
    let disk = Disk::open(&target.path, read_only)?;
    let engine = Engine::open(disk.info(), None, Options { read_only: true, ..Options::default() });
    let bar = PhaseBar::new("opening");
    let mut node =
        FsckNode { stage: Stage::Opening(Box::new(engine)), data: 0, bar, in_flight: 0, failure: None };
    let mut config = ReactorConfig::new(backend(target.backend));
    config.disk = Some(disk);
    uring::run(config, &mut node)?;
    if let Some(failure) = node.failure {
        return Err(failure.context(target.path.display().to_string()));
    }
    match node.stage {
        Stage::Checking(fsck) => fsck.report().cloned().context("the check did not end"),
        _ => Err(anyhow!("the store did not open")),
    }
}

enum Stage {
    Opening(Box<Engine>),
    Checking(Box<Fsck>),
    /// Only while one becomes the other.
    Between,
}

struct FsckNode {
    stage: Stage,
    /// Bytes that there are to read, about: shared ones are read more than once.
    data: u64,
    bar: PhaseBar,
    in_flight: usize,
    failure: Option<anyhow::Error>,
}

impl FsckNode {
    fn send(&mut self, env: &mut dyn Env) {
        loop {
            let request = match &mut self.stage {
                Stage::Opening(engine) => Engine::poll_disk(engine),
                Stage::Checking(fsck) => fsck.poll_disk(),
                Stage::Between => None,
            };
            let Some(request) = request else { return };
            self.in_flight += 1;
            env.submit(request);
        }
    }

    fn fail(&mut self, env: &mut dyn Env, error: anyhow::Error) {
        self.failure.get_or_insert(error);
        env.exit(1);
    }
}

impl Node for FsckNode {
    fn start(&mut self, _: &mut dyn Env) {}

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::DiskDone { token, result } => {
                self.in_flight -= 1;
                match &mut self.stage {
                    Stage::Opening(engine) => engine.on_disk_done(token, result),
                    Stage::Checking(fsck) => fsck.on_disk_done(token, result),
                    Stage::Between => {}
                }
            }
            Event::Shutdown => self.fail(env, anyhow!("interrupted")),
            _ => {}
        }
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        self.send(env);
        if let Stage::Opening(engine) = &self.stage {
            match engine.open_state() {
                OpenState::Failed(reason) => return self.fail(env, anyhow!(reason)),
                OpenState::Opening => return,
                // What opening asked for must not reach the check.
                OpenState::Open if self.in_flight > 0 => return,
                OpenState::Open => {
                    self.data = engine.stats().data;
                    self.bar = PhaseBar::new("checking");
                    if let Stage::Opening(engine) = std::mem::replace(&mut self.stage, Stage::Between) {
                        self.stage = Stage::Checking(Box::new(Fsck::new(*engine)));
                    }
                    self.send(env);
                }
            }
        }
        if let Stage::Checking(fsck) = &self.stage {
            let found = fsck.so_far();
            let fraction = (found.data as f64 / self.data.max(1) as f64).min(1.0);
            let message = format!(
                "{} objects, {}, {} problems",
                found.objects,
                names::size(found.data),
                found.problems_found
            );
            self.bar.set(fraction, message);
            if fsck.report().is_some() && self.in_flight == 0 {
                env.exit(0);
            }
        }
    }

    fn next_wake(&self) -> Time {
        Time::MAX
    }
}

fn print_report(report: &FsckReport, seconds: f64) {
    for line in &report.problems {
        println!("{line}");
    }
    let hidden = report.problems_found - report.problems.len() as u64;
    if hidden > 0 {
        println!("… and {hidden} more");
    }
    println!(
        "{}: {} collections, {} objects, {} of data and {} omap keys checked in {seconds:.1} s; \
         {} blocks are shared; {} checkpoint chunks",
        match report.problems_found {
            0 => "whole".to_string(),
            1 => "DAMAGED, 1 problem".to_string(),
            n => format!("DAMAGED, {n} problems"),
        },
        report.collections,
        report.objects,
        names::size(report.data),
        report.omap_keys,
        report.shared_blocks,
        report.checkpoint_chunks,
    );
}

fn as_json(report: &FsckReport) -> serde_json::Value {
    json!({
        "opened": true,
        "whole": report.problems_found == 0,
        "collections": report.collections,
        "objects": report.objects,
        "data_bytes": report.data,
        "omap_keys": report.omap_keys,
        "shared_blocks": report.shared_blocks,
        "checkpoint_chunks": report.checkpoint_chunks,
        "problems_found": report.problems_found,
        "problems": report.problems,
    })
}
