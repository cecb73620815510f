//! A closed loop: a fixed number of requests in flight, the next one sent when
//! one is answered.
//!
//! A latency is the time from the request's submission to its answer, as the
//! client's process sees it; in a closed loop a cluster that stalls is asked
//! less meanwhile, so compare rates and latencies together.
//!
//! A request that fails, or reads something wrong, ends the phase: no more are
//! sent, and the result names the first failure.

use crate::latency::Latency;
use crate::object_set::{Content, ObjectSet};
use crate::result::PhaseResult;
use base::{Duration, Errno, Random, Time, WallTime};
use client::{Client, Completion, ObjectRequest, RequestId, ops};
use std::collections::BTreeMap;
use wire::types::PoolId;

/// No answer for this long while requests are in flight ends the phase.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// Which requests a phase makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// Every object of the set once, in order: as its next version.
    WriteEach,
    /// Every stored object once, in order.
    ReadEach,
    /// Every object that may be stored, once.
    RemoveEach,
    /// Objects at random, written whole; until the limit.
    Write,
    /// Stored objects at random; until the limit.
    Read,
    /// Both; until the limit.
    Mix { read_percent: u8 },
}

impl Plan {
    fn is_pass(self) -> bool {
        matches!(self, Plan::WriteEach | Plan::ReadEach | Plan::RemoveEach)
    }
}

/// When a phase stops sending: at whichever comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limit {
    pub ops: Option<u64>,
    pub time: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct PhaseSpec {
    /// As the table shows it.
    pub name: String,
    pub plan: Plan,
    /// Requests in flight.
    pub depth: usize,
    pub limit: Limit,
    /// Compare what is read with what was written.
    pub verify: bool,
    /// Decides the order of random requests.
    pub seed: u64,
}

/// The clocks, as the host has them.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub time: Time,
    pub wall: WallTime,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write { version: u64 },
    Read { version: u64 },
    Remove,
}

struct InFlight {
    index: usize,
    kind: Kind,
    since: Time,
}

pub struct Phase {
    spec: PhaseSpec,
    random: Random,
    in_flight: BTreeMap<RequestId, InFlight>,
    /// The next object of a pass.
    cursor: usize,
    submitted: u64,
    started: Option<Time>,
    last_answer: Time,
    ended: Option<Time>,
    reads: Latency,
    writes: Latency,
    bytes: u64,
    verified: u64,
    failures: u64,
    first_failure: Option<String>,
}

impl Phase {
    pub fn new(spec: PhaseSpec) -> Phase {
        assert!(spec.depth > 0, "at least one request in flight");
        let limited = spec.limit.ops.is_some() || spec.limit.time.is_some();
        assert!(limited || spec.plan.is_pass(), "random requests go on until a limit");
        Phase {
            random: Random::from_seed(spec.seed),
            spec,
            in_flight: BTreeMap::new(),
            cursor: 0,
            submitted: 0,
            started: None,
            last_answer: Time::ZERO,
            ended: None,
            reads: Latency::default(),
            writes: Latency::default(),
            bytes: 0,
            verified: 0,
            failures: 0,
            first_failure: None,
        }
    }

    /// Sends what is due. Call it after each batch of completions, and at
    /// [`Phase::next_wake`].
    pub fn drive(&mut self, client: &mut Client, pool: PoolId, objects: &mut ObjectSet, now: Now) {
        if self.started.is_none() {
            self.started = Some(now.time);
            self.last_answer = now.time;
        }
        while self.ended.is_none() && self.in_flight.len() < self.spec.depth {
            let Some((index, kind)) = self.choose(objects, now.time) else { break };
            self.submit(client, pool, objects, now, index, kind);
        }
        self.give_up_if_stalled(client, objects, now.time);
        if self.in_flight.is_empty() && self.ended.is_none() {
            self.ended = Some(now.time);
        }
    }

    /// False for a request of somebody else.
    pub fn on_completion(
        &mut self,
        objects: &mut ObjectSet,
        now: Time,
        id: RequestId,
        done: &Completion,
    ) -> bool {
        let Some(request) = self.in_flight.remove(&id) else { return false };
        let Completion::Object { result, ops, .. } = done else { return false };
        self.last_answer = now;
        let latency = now.since(request.since);
        let outcome = match request.kind {
            Kind::Write { version } => {
                self.end_write(objects, request.index, *result, Content::Version(version), latency)
            }
            Kind::Remove => {
                // Gone before: all the better.
                let result = if *result == Errno::ENOENT.negative() { 0 } else { *result };
                self.end_write(objects, request.index, result, Content::Absent, latency)
            }
            Kind::Read { version } => {
                objects.end_read(request.index);
                let found = ops.first().map(|op| op.outdata.as_ref()).unwrap_or_default();
                self.end_read(objects, request.index, version, *result, found, latency)
            }
        };
        if let Err(error) = outcome {
            self.fail(format!("{}: {error}", objects.name(request.index)));
        }
        true
    }

    /// All sent and answered, or given up.
    pub fn is_done(&self) -> bool {
        self.ended.is_some()
    }

    /// Requests answered.
    pub fn completed(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }

    pub fn failed(&self) -> bool {
        self.failures > 0
    }

    /// How far the phase is, 0 to 1: by count or by time, whichever is further.
    pub fn fraction(&self, objects: &ObjectSet, now: Time) -> f64 {
        let of = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
        let by_time = |limit: Duration| {
            let passed = self.started.map_or(Duration::ZERO, |start| now.since(start));
            of(passed.as_secs_f64(), limit.as_secs_f64())
        };
        let completed = self.completed() as f64;
        let by_ops = self.spec.limit.ops.map_or(0.0, |ops| of(completed, ops as f64));
        let by_pass = if self.spec.plan.is_pass() { of(completed, objects.len() as f64) } else { 0.0 };
        let by_time = self.spec.limit.time.map_or(0.0, by_time);
        by_ops.max(by_pass).max(by_time).min(1.0)
    }

    /// When [`Phase::drive`] must be called even if nothing is answered.
    pub fn next_wake(&self) -> Time {
        match self.started {
            None => Time::ZERO,
            Some(_) if self.is_done() => Time::MAX,
            Some(_) => self.last_answer + STALLED_AFTER,
        }
    }

    pub fn finish(self, now: Time) -> PhaseResult {
        let end = self.ended.unwrap_or(now);
        let elapsed = self.started.map_or(Duration::ZERO, |start| end.since(start));
        PhaseResult::new(self.spec.name, &self.reads, &self.writes, self.bytes, elapsed)
            .with_verified(self.verified)
            .with_failures(self.failures, self.first_failure)
    }

    // ---- choosing ----

    fn choose(&mut self, objects: &ObjectSet, now: Time) -> Option<(usize, Kind)> {
        let passed = now.since(self.started?);
        let over = self.spec.limit.time.is_some_and(|limit| passed >= limit)
            || self.spec.limit.ops.is_some_and(|limit| self.submitted >= limit);
        if over || self.failed() || objects.is_empty() {
            return None;
        }
        match self.spec.plan {
            Plan::WriteEach => {
                self.next_of_pass(objects, |_, _| true).map(|i| (i, Kind::Write { version: 0 }))
            }
            Plan::ReadEach => {
                let stored = |objects: &ObjectSet, i| matches!(objects.content(i), Content::Version(_));
                self.next_of_pass(objects, stored).map(|i| (i, Kind::Read { version: 0 }))
            }
            Plan::RemoveEach => {
                let may_exist = |objects: &ObjectSet, i| objects.content(i) != Content::Absent;
                self.next_of_pass(objects, may_exist).map(|i| (i, Kind::Remove))
            }
            Plan::Write => self.any_writable(objects),
            Plan::Read => self.any_readable(objects),
            Plan::Mix { read_percent } if self.random.chance(u64::from(read_percent), 100) => {
                self.any_readable(objects)
            }
            Plan::Mix { .. } => self.any_writable(objects),
        }
    }

    fn next_of_pass(
        &mut self,
        objects: &ObjectSet,
        wanted: impl Fn(&ObjectSet, usize) -> bool,
    ) -> Option<usize> {
        let index = (self.cursor..objects.len()).find(|i| wanted(objects, *i))?;
        self.cursor = index + 1;
        Some(index)
    }

    fn any_writable(&mut self, objects: &ObjectSet) -> Option<(usize, Kind)> {
        let index = self.any(objects, ObjectSet::is_writable_now)?;
        Some((index, Kind::Write { version: 0 }))
    }

    fn any_readable(&mut self, objects: &ObjectSet) -> Option<(usize, Kind)> {
        let index = self.any(objects, ObjectSet::is_readable_now)?;
        Some((index, Kind::Read { version: 0 }))
    }

    /// A random object, or the next one after it that will do.
    fn any(&mut self, objects: &ObjectSet, will_do: fn(&ObjectSet, usize) -> bool) -> Option<usize> {
        let count = objects.len();
        let start = usize::try_from(self.random.below(count as u64)).expect("an index");
        (0..count).map(|step| (start + step) % count).find(|i| will_do(objects, *i))
    }

    fn submit(
        &mut self,
        client: &mut Client,
        pool: PoolId,
        objects: &mut ObjectSet,
        now: Now,
        index: usize,
        kind: Kind,
    ) {
        let (kind, op) = match kind {
            Kind::Write { .. } => {
                let (version, data) = objects.begin_write(index);
                (Kind::Write { version }, ops::write_full(data))
            }
            Kind::Read { .. } => {
                let version = objects.begin_read(index);
                (Kind::Read { version }, ops::read(0, objects.object_len(index) as u64))
            }
            Kind::Remove => {
                objects.begin_remove(index);
                (kind, ops::delete())
            }
        };
        let request = ObjectRequest::new(pool, objects.name(index), vec![op]);
        let id = client.submit(request, now.wall);
        self.in_flight.insert(id, InFlight { index, kind, since: now.time });
        self.submitted += 1;
    }

    // ---- answers ----

    fn end_write(
        &mut self,
        objects: &mut ObjectSet,
        index: usize,
        result: i32,
        written: Content,
        latency: Duration,
    ) -> Result<(), String> {
        if result < 0 {
            objects.end_write(index, Content::Unknown);
            return Err(format!("{}", Errno(result.saturating_neg())));
        }
        objects.end_write(index, written);
        if written != Content::Absent {
            self.bytes += objects.object_len(index) as u64;
        }
        self.writes.record(latency);
        Ok(())
    }

    fn end_read(
        &mut self,
        objects: &ObjectSet,
        index: usize,
        version: u64,
        result: i32,
        found: &[u8],
        latency: Duration,
    ) -> Result<(), String> {
        if result < 0 {
            return Err(format!("{}", Errno(result.saturating_neg())));
        }
        if self.spec.verify {
            objects.check(index, version, found).map_err(|mismatch| mismatch.to_string())?;
            self.verified += 1;
        }
        self.bytes += found.len() as u64;
        self.reads.record(latency);
        Ok(())
    }

    fn fail(&mut self, what: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(what);
    }

    fn give_up_if_stalled(&mut self, client: &mut Client, objects: &mut ObjectSet, now: Time) {
        if self.in_flight.is_empty() || now.since(self.last_answer) < STALLED_AFTER {
            return;
        }
        let count = self.in_flight.len();
        for (id, request) in std::mem::take(&mut self.in_flight) {
            client.cancel(id);
            match request.kind {
                Kind::Read { .. } => objects.end_read(request.index),
                Kind::Write { .. } | Kind::Remove => objects.end_write(request.index, Content::Unknown),
            }
        }
        self.fail(format!("no answer for {} s to {count} requests in flight", STALLED_AFTER.as_secs()));
    }
}

#[cfg(test)]
mod tests;
