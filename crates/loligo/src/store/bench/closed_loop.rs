//! Keeps a number of operations in flight, and times them.
//!
//! A write counts when the store has said that it is committed, not earlier.

use super::layout::Layout;
use super::measured::{DeviceUse, Measured};
use super::order_watch::OrderWatch;
use super::plan::{Op, Plan};
use crate::store::process_use::CpuTime;
use anyhow::{Context, Result};
use base::{Duration, Random, Time};
use std::collections::{BTreeMap, VecDeque};
use store::{Engine, FetchId, ObjectStore, StoreError, StoreEvent, TxnId};

/// When operations count.
#[derive(Clone, Copy)]
pub enum Window {
    /// From the first to the last of a plan that ends.
    Whole,
    Timed {
        ramp: Duration,
        time: Duration,
    },
}

struct Flying {
    began: Time,
    len: u64,
    /// The write's number, for the order watch.
    operation: u64,
}

/// The state of device and process at the window's beginning.
struct Mark {
    at: Time,
    cpu: CpuTime,
    device: DeviceUse,
}

pub struct ClosedLoop {
    plan: Plan,
    depth: usize,
    window: Window,
    began: Option<Time>,
    mark: Option<Mark>,
    /// No new operations; what is in flight ends uncounted, or counted when the
    /// window is the whole plan.
    ending: bool,
    writes: VecDeque<(TxnId, Flying)>,
    reads: BTreeMap<FetchId, Flying>,
    /// Operations whose metadata is being loaded.
    blocked: Vec<(FetchId, Op, Time)>,
    ready: VecDeque<(Op, Time)>,
    measured: Measured,
}

/// What comes after a step.
pub enum Next {
    /// Another, when something has happened or at this time at the latest.
    Wait(Time),
    /// Another at once, when what was queued has been sent: operations come to an OSD one by one.
    Again,
    Done(Measured),
}

/// What the loop works with.
pub struct Surroundings<'a> {
    pub store: &'a mut Engine,
    pub layout: &'a mut Layout,
    pub random: &'a mut Random,
    pub watch: &'a mut Option<OrderWatch>,
    pub operations: &'a mut u64,
    pub discards: u64,
    pub now: Time,
}

impl Surroundings<'_> {
    fn device_use(&self) -> DeviceUse {
        let stats = self.store.stats();
        DeviceUse {
            writes: stats.device_writes,
            write_bytes: stats.device_write_bytes,
            reads: stats.device_reads,
            read_bytes: stats.device_read_bytes,
            // The kernel or the device flushes after each durable write, too.
            flushes: stats.flushes + stats.durable_writes,
            discards: self.discards,
        }
    }
}

impl ClosedLoop {
    pub fn new(plan: Plan, depth: u32, window: Window) -> ClosedLoop {
        ClosedLoop {
            plan,
            depth: depth as usize,
            window,
            began: None,
            mark: None,
            ending: false,
            writes: VecDeque::new(),
            reads: BTreeMap::new(),
            blocked: Vec::new(),
            ready: VecDeque::new(),
            measured: Measured::default(),
        }
    }

    fn in_flight(&self) -> usize {
        self.writes.len() + self.reads.len() + self.blocked.len() + self.ready.len()
    }

    /// In 0..=1, where it is known.
    pub fn fraction(&self, now: Time) -> Option<f64> {
        let Window::Timed { ramp, time } = self.window else { return None };
        Some(now.since(self.began?).as_secs_f64() / (ramp + time).as_secs_f64().max(1e-9))
    }

    pub fn ops(&self) -> u64 {
        self.measured.ops
    }

    pub fn step(&mut self, around: &mut Surroundings<'_>) -> Result<Next> {
        let now = around.now;
        let began = *self.began.get_or_insert(now);
        let (from, to) = match self.window {
            Window::Whole => (began, Time::MAX),
            Window::Timed { ramp, time } => (began + ramp, began + ramp + time),
        };
        if self.mark.is_none() && now >= from {
            self.mark = Some(Mark { at: now, cpu: CpuTime::now(), device: around.device_use() });
        }
        // A row without any operation would say nothing.
        if now >= to && !self.ending && self.measured.ops > 0 {
            self.ending = true;
            self.close(around);
        }
        for (op, began) in std::mem::take(&mut self.ready) {
            self.issue(around, op, began)?;
        }
        while !self.ending && self.in_flight() < self.depth {
            let store = &*around.store;
            match self.plan.next(around.layout, &|| store.stats(), around.random) {
                Some(op) => {
                    self.issue(around, op, now)?;
                    return Ok(Next::Again);
                }
                None => self.ending = true,
            }
        }
        if !self.ending || self.in_flight() > 0 {
            let next = if self.mark.is_none() { from } else { to };
            return Ok(Next::Wait(if next > now { next } else { Time::MAX }));
        }
        if matches!(self.window, Window::Whole) {
            self.close(around);
        }
        Ok(Next::Done(std::mem::take(&mut self.measured)))
    }

    fn close(&mut self, around: &Surroundings<'_>) {
        if let Some(mark) = &self.mark {
            self.measured.time = around.now.since(mark.at);
            self.measured.cpu = CpuTime::now().since(mark.cpu);
            self.measured.device = around.device_use().since(mark.device);
        }
    }

    fn issue(&mut self, around: &mut Surroundings<'_>, op: Op, began: Time) -> Result<()> {
        let operation = *around.operations;
        let len = match op {
            Op::Write { len, .. } | Op::Read { len, .. } => len,
            Op::Remove { .. } => 0,
        };
        let flying = Flying { began, len, operation };
        let result = match op {
            Op::Read { index, offset, len } => {
                let read = around.store.read(&around.layout.objects[index], offset, len);
                read.map(|id| {
                    self.reads.insert(id, flying);
                })
            }
            Op::Write { index, offset, len } => {
                let txn = around.layout.write(index, offset, len, operation, around.random);
                let queued = around.store.queue(txn);
                if let (Ok(_), Some(watch)) = (&queued, around.watch.as_mut()) {
                    watch.expect(operation, index as u64, offset, len);
                }
                queued.map(|id| self.writes.push_back((id, flying)))
            }
            Op::Remove { index } => {
                let queued = around.store.queue(around.layout.remove(index));
                queued.map(|id| self.writes.push_back((id, flying)))
            }
        };
        *around.operations += 1;
        match result {
            Ok(()) => Ok(()),
            Err(StoreError::Pending(id)) => {
                self.blocked.push((id, op, began));
                Ok(())
            }
            Err(error) => Err(error).context("use a larger --size if the store is full"),
        }
    }

    pub fn on_event(&mut self, event: StoreEvent, watch: &mut Option<OrderWatch>, now: Time) -> Result<()> {
        match event {
            StoreEvent::Committed(id) => {
                while self.writes.front().is_some_and(|(first, _)| *first <= id) {
                    let Some((_, flying)) = self.writes.pop_front() else { break };
                    // Deletes carry nothing that could be found on the device.
                    if let Some(watch) = watch
                        && flying.len > 0
                    {
                        watch.on_acknowledged(flying.operation)?;
                    }
                    self.count(&flying, now);
                }
            }
            StoreEvent::Read { id, result } => {
                if let Some(flying) = self.reads.remove(&id) {
                    let data = result?;
                    anyhow::ensure!(
                        data.len() as u64 == flying.len,
                        "a read of {} bytes gave {}",
                        flying.len,
                        data.len()
                    );
                    self.count(&flying, now);
                }
            }
            StoreEvent::Loaded(id) => {
                let (ready, blocked) = std::mem::take(&mut self.blocked).into_iter().partition(|b| b.0 == id);
                self.blocked = blocked;
                let ready: Vec<(FetchId, Op, Time)> = ready;
                self.ready.extend(ready.into_iter().map(|(_, op, began)| (op, began)));
            }
        }
        Ok(())
    }

    fn count(&mut self, flying: &Flying, now: Time) {
        let closed = self.ending && matches!(self.window, Window::Timed { .. });
        if self.mark.is_some() && !closed {
            self.measured.ops += 1;
            self.measured.bytes += flying.len;
            self.measured.latency.record(now.since(flying.began));
        }
    }
}
