//! `loligo store bench --objects N`: how a store with many small objects restarts.
//!
//! The restarts are measured in processes of their own, so that nothing of the
//! making is in their memory.

use super::layout;
use crate::osd_daemon::store_options;
use crate::progress::PhaseBar;
use crate::store::names;
use crate::store::node::{Ending, Place, Step, Task, run_task};
use crate::store::options::StoreBenchOptions;
use crate::store::process_use::{CpuTime, resident_bytes};
use anyhow::{Context, Result, bail};
use base::Time;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use store::{Engine, FetchId, Mutation, ObjectStore, StoreError, StoreEvent, Transaction, TxnId};
use uring::{Disk, DiskOptions};

/// Objects of one transaction, and transactions in flight: large records, few flushes.
const PER_TRANSACTION: u64 = 64;
const TRANSACTIONS_MAX: usize = 64;

struct Make {
    count: u64,
    next: u64,
    in_flight: VecDeque<TxnId>,
    blocked: Option<FetchId>,
    began_collections: bool,
    bar: PhaseBar,
}

impl Task for Make {
    fn step(&mut self, store: &mut Engine, _: Time) -> Result<Step> {
        if !self.began_collections {
            self.in_flight.push_back(store.queue(layout::create_collections())?);
            self.began_collections = true;
        }
        while self.blocked.is_none() && self.next < self.count && self.in_flight.len() < TRANSACTIONS_MAX {
            let end = (self.next + PER_TRANSACTION).min(self.count);
            let ops = (self.next..end)
                .map(|number| Mutation::SetXattrs {
                    id: layout::object(number),
                    attrs: layout::object_info(number).into(),
                })
                .collect();
            match store.queue(Transaction { ops }) {
                Ok(id) => {
                    self.next = end;
                    self.in_flight.push_back(id);
                }
                Err(StoreError::Pending(id)) => self.blocked = Some(id),
                Err(error) => return Err(error).context("use a larger --size if the store is full"),
            }
        }
        let done = self.next as f64 / self.count as f64;
        self.bar.set(done, format!("{} objects", self.next));
        Ok(if self.in_flight.is_empty() && self.next == self.count { Step::Done } else { Step::Wait })
    }

    fn on_event(&mut self, _: &mut Engine, event: StoreEvent, _: Time) -> Result<()> {
        match event {
            StoreEvent::Committed(id) => {
                while self.in_flight.front().is_some_and(|first| *first <= id) {
                    self.in_flight.pop_front();
                }
            }
            StoreEvent::Loaded(id) if self.blocked == Some(id) => self.blocked = None,
            _ => {}
        }
        Ok(())
    }
}

pub fn run(
    options: &StoreBenchOptions,
    place: &Place<'_>,
    count: u64,
    format: impl FnOnce(&Disk) -> Engine,
) -> Result<ExitCode> {
    let began = Instant::now();
    let mut make = Make {
        count,
        next: 0,
        in_flight: VecDeque::new(),
        blocked: None,
        began_collections: false,
        bar: PhaseBar::new("making objects"),
    };
    // Abruptly: the first restart is that after a crash.
    let reached = run_task(place, Ending::Abrupt, &mut make, format)?;
    let making = began.elapsed();
    let memory = resident_bytes();
    let stats = reached.engine.stats();
    drop((make, reached));
    let crashed = restart(options, place.path)?;
    let stopped = restart(options, place.path)?;
    if options.json {
        let result = json!({
            "objects": count,
            "make_seconds": making.as_secs_f64(),
            "make_resident_bytes": memory,
            "device_bytes_written": stats.device_write_bytes,
            "restart_after_crash": crashed,
            "restart_after_stop": stopped,
        });
        println!("{}", serde_json::to_string_pretty(&result)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{count} objects made in {:.1} s, {:.0} a second; {} resident, {} written",
        making.as_secs_f64(),
        count as f64 / making.as_secs_f64(),
        names::size(memory),
        names::size(stats.device_write_bytes)
    );
    for (what, restart) in [("a crash", &crashed), ("a clean stop", &stopped)] {
        let number = |name: &str| restart.get(name).and_then(Value::as_f64).unwrap_or(0.0);
        println!(
            "restart after {what}: {:.2} s, {:.2} s of CPU, {} resident, {} objects",
            number("open_seconds"),
            number("cpu_seconds"),
            names::size(number("resident_bytes") as u64),
            number("objects")
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn restart(options: &StoreBenchOptions, path: &Path) -> Result<Value> {
    let backend = options.backend.to_possible_value().context("no such backend")?;
    let done = Command::new(std::env::current_exe()?)
        .args(["store", "bench", "--restart", "--backend", backend.get_name()])
        .arg(path)
        .output()?;
    if !done.status.success() {
        bail!("the restart failed: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    serde_json::from_slice(&done.stdout).context("the restart's answer")
}

struct Reopen {
    began: Instant,
    found: Option<Value>,
}

impl Task for Reopen {
    fn step(&mut self, store: &mut Engine, _: Time) -> Result<Step> {
        let opened_in: Duration = self.began.elapsed();
        self.found.get_or_insert_with(|| {
            json!({
                "open_seconds": opened_in.as_secs_f64(),
                "cpu_seconds": CpuTime::now().total().as_secs_f64(),
                "resident_bytes": resident_bytes(),
                "objects": store.stats().objects,
                "device_bytes_read": store.stats().device_read_bytes,
            })
        });
        Ok(Step::Done)
    }
}

/// The other side of [`restart`].
pub fn run_restart(options: &StoreBenchOptions, path: &Path) -> Result<ExitCode> {
    let place = Place { path, backend: options.backend, options: DiskOptions::default() };
    let mut reopen = Reopen { began: Instant::now(), found: None };
    run_task(&place, Ending::Clean, &mut reopen, |disk| {
        Engine::open(disk.info(), None, store_options(disk.facts()))
    })?;
    println!("{}", reopen.found.context("the store did not open")?);
    Ok(ExitCode::SUCCESS)
}
