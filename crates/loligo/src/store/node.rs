//! Drives one store for a command: opens it, lets the command work, stops it.
//!
//! Knows no command. A [`Task`] is called again whenever something happened;
//! when a call of the store answers [`StoreError::Pending`], the task returns
//! it and is called again once that is loaded.

use crate::mon_daemon::backend;
use crate::options::Backend;
use anyhow::{Context, Result, anyhow, bail};
use base::Time;
use daemon::{DeviceStore, OpenState};
use env::{DiskRequest, Env, Event, Node};
use std::path::Path;
use store::{Engine, FetchId, ObjectStore, StoreError, StoreEvent};
use uring::{BackendKind, Disk, DiskFacts, DiskOptions, Reactor, ReactorConfig};

pub enum Step {
    /// Until the next event.
    Wait,
    /// Or until then. When that is now: until the clock has been read again.
    WaitUntil(Time),
    /// Not at all: what was queued goes to the device first.
    Again,
    Done,
}

/// What a command does with an open store.
pub trait Task {
    /// Called when the store is open, and then after every batch of events.
    ///
    /// Errors: any ends the run, except [`StoreError::Pending`]: the step is
    /// made again from its beginning once that is loaded.
    fn step(&mut self, store: &mut Engine, now: Time) -> Result<Step>;

    fn on_event(&mut self, _store: &mut Engine, _event: StoreEvent, _now: Time) -> Result<()> {
        Ok(())
    }

    /// Every request to the device, as it leaves.
    fn on_submit(&mut self, _request: &DiskRequest) {}

    /// As its result arrives, before anything comes of it.
    fn on_disk_done(&mut self, _token: u64, _ok: bool) {}
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a checkpoint, as a daemon that is asked to stop.
    Clean,
    /// As a process that is killed, but for what is on its way to the device.
    Abrupt,
}

#[derive(PartialEq, Eq)]
enum Phase {
    Opening,
    Working,
    Stopping,
    Ended,
}

pub struct TaskNode<'a, T> {
    pub engine: Engine,
    task: &'a mut T,
    ending: Ending,
    read_only: bool,
    phase: Phase,
    pending: Option<FetchId>,
    in_flight: usize,
    wake: Time,
    /// A step may take its time: the next one is to know a later time than this.
    stepped_at: Time,
    failure: Option<anyhow::Error>,
}

/// Where and how to reach the device.
pub struct Place<'a> {
    pub path: &'a Path,
    pub backend: Backend,
    pub options: DiskOptions,
}

/// The device as it was opened, and the interface in use.
pub struct Reached {
    pub facts: DiskFacts,
    pub backend: BackendKind,
    pub engine: Engine,
}

pub fn open_disk(path: &Path, options: DiskOptions) -> Result<Disk> {
    Disk::open(path, options).context("cannot open the device")
}

/// Runs a task on a store that `start` makes or opens.
pub fn run_task<T: Task>(
    place: &Place<'_>,
    ending: Ending,
    task: &mut T,
    start: impl FnOnce(&Disk) -> Engine,
) -> Result<Reached> {
    let disk = open_disk(place.path, place.options)?;
    let facts = *disk.facts();
    let mut node = TaskNode {
        engine: start(&disk),
        task,
        ending,
        read_only: place.options.read_only,
        phase: Phase::Opening,
        pending: None,
        in_flight: 0,
        wake: Time::MAX,
        stepped_at: Time::ZERO,
        failure: None,
    };
    let mut config = ReactorConfig::new(backend(place.backend));
    config.disk = Some(disk);
    let reactor = Reactor::new(config)?;
    let backend = reactor.backend();
    reactor.run(&mut node);
    match node.failure {
        Some(error) => Err(error),
        None => Ok(Reached { facts, backend, engine: node.engine }),
    }
}

impl<T: Task> TaskNode<'_, T> {
    fn send(&mut self, env: &mut dyn Env) -> usize {
        let mut sent = 0;
        while let Some(request) = self.engine.poll_disk() {
            self.task.on_submit(&request);
            self.in_flight += 1;
            sent += 1;
            env.submit(request);
        }
        env.submitted();
        sent
    }

    /// Hands events to the task, lets it go on, and sends what came of it and needs no commit.
    fn advance(&mut self, env: &mut dyn Env) -> Result<()> {
        if let Some(error) = self.engine.fatal_error() {
            bail!("{error}");
        }
        self.deliver(env.now())?;
        if env.now() <= self.stepped_at {
            self.wake = env.now();
            return Ok(());
        }
        self.wake = Time::MAX;
        while self.pending.is_none() {
            let step = self.task.step(&mut self.engine, env.now());
            self.send(env);
            match step {
                Ok(Step::Wait) => break,
                Ok(Step::WaitUntil(at)) => {
                    self.wake = at;
                    if at <= env.now() {
                        self.stepped_at = env.now();
                    }
                    break;
                }
                Ok(Step::Again) => {}
                Ok(Step::Done) => {
                    self.stop(env);
                    break;
                }
                Err(error) => match error.downcast_ref() {
                    Some(StoreError::Pending(id)) => self.pending = Some(*id),
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// The same at the end of a batch, with a commit.
    fn work(&mut self, env: &mut dyn Env) -> Result<()> {
        self.advance(env)?;
        if self.phase != Phase::Working {
            return Ok(());
        }
        if !self.read_only {
            self.engine.commit();
        }
        self.send(env);
        // Some answers need no device. The clock has to go on meanwhile, so the
        // task sees them in the next round.
        if self.deliver(env.now())? {
            self.wake = env.now();
        }
        Ok(())
    }

    fn deliver(&mut self, now: Time) -> Result<bool> {
        let mut any = false;
        while let Some(event) = self.engine.poll_event() {
            any = true;
            match event {
                StoreEvent::Loaded(id) if self.pending == Some(id) => self.pending = None,
                event => self.task.on_event(&mut self.engine, event, now)?,
            }
        }
        Ok(any)
    }

    fn stop(&mut self, env: &mut dyn Env) {
        self.phase = Phase::Stopping;
        self.wake = Time::MAX;
        if !self.read_only && self.ending == Ending::Clean {
            self.engine.commit();
            self.engine.checkpoint();
        }
        self.send(env);
    }

    fn fail(&mut self, env: &mut dyn Env, error: anyhow::Error) {
        if self.failure.is_none() {
            self.failure = Some(error);
        }
        self.phase = Phase::Ended;
        env.exit(1);
    }
}

impl<T: Task> Node for TaskNode<'_, T> {
    fn start(&mut self, _: &mut dyn Env) {}

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::DiskDone { token, result } => {
                self.in_flight -= 1;
                self.task.on_disk_done(token, result.is_ok());
                self.engine.on_disk_done(token, result);
                if self.phase == Phase::Working
                    && let Err(error) = self.advance(env)
                {
                    self.fail(env, error);
                }
            }
            Event::Shutdown => self.fail(env, anyhow!("interrupted")),
            _ => {}
        }
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        if self.phase == Phase::Opening {
            self.send(env);
            match self.engine.open_state() {
                OpenState::Failed(reason) => return self.fail(env, anyhow!(reason)),
                OpenState::Opening => return,
                OpenState::Open => self.phase = Phase::Working,
            }
        }
        if self.phase == Phase::Working
            && let Err(error) = self.work(env)
        {
            return self.fail(env, error);
        }
        if self.phase == Phase::Stopping {
            if let Some(error) = DeviceStore::fatal_error(&self.engine) {
                return self.fail(env, anyhow!(error));
            }
            self.send(env);
            let quiet = self.ending == Ending::Abrupt || self.read_only || self.engine.is_idle();
            if quiet && self.in_flight == 0 {
                self.phase = Phase::Ended;
                env.exit(0);
            }
        }
    }

    fn next_wake(&self) -> Time {
        self.wake
    }
}
