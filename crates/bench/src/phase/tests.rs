//! A client without a map keeps its requests: the answers here are made up.

use super::*;
use crate::size_mix::SizeMix;
use bytes::Bytes;
use client::ClientConfig;
use std::collections::BTreeSet;
use wire::messages::OpResult;

struct Bench {
    client: Client,
    objects: ObjectSet,
    phase: Phase,
    now: Time,
    /// What the made-up cluster holds.
    stored: BTreeMap<usize, Bytes>,
}

fn spec(plan: Plan, depth: usize, limit: Limit) -> PhaseSpec {
    PhaseSpec { name: "test".into(), plan, depth, limit, verify: true, seed: 1 }
}

impl Bench {
    fn new(count: usize, spec: PhaseSpec) -> Bench {
        Bench {
            client: Client::new(ClientConfig { hostname: "test".into() }),
            objects: ObjectSet::new("o", count, &SizeMix::fixed(4096), 1),
            phase: Phase::new(spec),
            now: Time::ZERO,
            stored: BTreeMap::new(),
        }
    }

    fn next_phase(&mut self, spec: PhaseSpec) {
        self.phase = Phase::new(spec);
    }

    fn drive(&mut self) {
        let now = Now { time: self.now, wall: WallTime::ZERO };
        self.phase.drive(&mut self.client, PoolId(1), &mut self.objects, now);
    }

    fn answer(&mut self, id: RequestId, result: i32, outdata: Bytes) {
        let op = OpResult::new(ops::stat(), result, outdata);
        let done = Completion::Object { result, ops: vec![op], user_version: 1 };
        assert!(self.phase.on_completion(&mut self.objects, self.now, id, &done));
        self.client.cancel(id);
    }

    /// Answers the oldest request in flight as a cluster would, 1 ms later.
    fn serve_one(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        let (&id, request) = self.phase.in_flight.first_key_value().expect("a request in flight");
        let index = request.index;
        let outdata = match request.kind {
            Kind::Write { version } => {
                let data = crate::content::generate(1, &self.objects.name(index), version, 4096);
                self.stored.insert(index, data);
                Bytes::new()
            }
            Kind::Read { .. } => self.stored[&index].clone(),
            Kind::Remove => {
                self.stored.remove(&index);
                Bytes::new()
            }
        };
        self.answer(id, 0, outdata);
    }

    fn run(&mut self) -> PhaseResult {
        self.drive();
        while !self.phase.is_done() {
            self.serve_one();
            self.drive();
        }
        let spec = self.phase.spec.clone();
        std::mem::replace(&mut self.phase, Phase::new(spec)).finish(self.now)
    }
}

#[test]
fn passes_write_verify_and_remove_every_object_once() {
    let mut bench = Bench::new(10, spec(Plan::WriteEach, 4, Limit::default()));
    let written = bench.run();
    assert_eq!((written.ops, written.bytes, written.failures), (10, 40_960, 0));
    assert!((written.seconds - 0.010).abs() < 1e-9);
    assert_eq!(bench.objects.stored(), (10, 40_960));
    bench.next_phase(spec(Plan::ReadEach, 4, Limit::default()));
    assert_eq!(bench.run().verified, 10);
    bench.next_phase(spec(Plan::RemoveEach, 4, Limit::default()));
    assert_eq!(bench.run().ops, 10);
    assert_eq!((bench.stored.len(), bench.objects.stored()), (0, (0, 0)));
}

#[test]
fn depth_is_kept_and_an_object_has_one_writer() {
    let mut bench = Bench::new(8, spec(Plan::Write, 5, Limit { ops: Some(200), time: None }));
    bench.drive();
    while !bench.phase.is_done() {
        let targets: BTreeSet<usize> = bench.phase.in_flight.values().map(|r| r.index).collect();
        assert_eq!(targets.len(), bench.phase.in_flight.len());
        assert!(bench.phase.in_flight.len() == 5 || bench.phase.submitted == 200);
        bench.serve_one();
        bench.drive();
    }
    assert_eq!(bench.phase.completed(), 200);
}

#[test]
fn depth_beyond_the_set_uses_what_there_is() {
    let mut bench = Bench::new(2, spec(Plan::Write, 16, Limit { ops: Some(20), time: None }));
    bench.drive();
    assert_eq!(bench.phase.in_flight.len(), 2);
    assert_eq!(bench.run().ops, 20);
}

#[test]
fn mix_reads_and_writes_and_every_read_checks_out() {
    let mut bench = Bench::new(50, spec(Plan::WriteEach, 8, Limit::default()));
    bench.run();
    let plan = Plan::Mix { read_percent: 70 };
    bench.next_phase(spec(plan, 8, Limit { ops: Some(1000), time: None }));
    let result = bench.run();
    assert_eq!((result.ops, result.failures, result.verified), (1000, 0, result.reads));
    assert!((600..800).contains(&result.reads), "{}", result.reads);
    assert!(result.read_latency_us.is_some() && result.write_latency_us.is_some());
}

#[test]
fn time_limit_ends_a_phase_after_what_is_in_flight() {
    let limit = Limit { ops: None, time: Some(Duration::from_millis(20)) };
    let mut bench = Bench::new(100, spec(Plan::Write, 3, limit));
    let result = bench.run();
    assert!((20..=23).contains(&result.ops), "{}", result.ops);
    assert!((result.seconds - 0.022).abs() < 0.002);
}

#[test]
fn wrong_content_ends_the_phase_and_is_named() {
    let mut bench = Bench::new(10, spec(Plan::WriteEach, 2, Limit::default()));
    bench.run();
    let stale = crate::content::generate(1, "o3", 7, 4096);
    bench.stored.insert(3, stale);
    bench.next_phase(spec(Plan::ReadEach, 1, Limit::default()));
    let result = bench.run();
    assert_eq!((result.verified, result.failures), (3, 1));
    assert_eq!(result.first_failure.as_deref(), Some("o3: content of version 7 instead of 1"));
}

#[test]
fn failed_write_leaves_the_object_unread() {
    let mut bench = Bench::new(2, spec(Plan::WriteEach, 2, Limit::default()));
    bench.drive();
    let ids: Vec<RequestId> = bench.phase.in_flight.keys().copied().collect();
    bench.answer(ids[0], -28, Bytes::new());
    bench.answer(ids[1], 0, Bytes::new());
    bench.drive();
    assert!(bench.phase.is_done() && bench.phase.failed());
    assert_eq!(bench.objects.content(0), Content::Unknown);
    assert_eq!(bench.objects.stored().0, 1);
    assert_eq!(bench.phase.first_failure.as_deref(), Some("o0: (ENOSPC) No space left on device"));
}

#[test]
fn silence_is_given_up_on() {
    let mut bench = Bench::new(4, spec(Plan::WriteEach, 2, Limit::default()));
    bench.drive();
    assert_eq!(bench.phase.next_wake(), Time::ZERO + STALLED_AFTER);
    bench.now = bench.now + STALLED_AFTER;
    bench.drive();
    assert!(bench.phase.is_done() && bench.phase.failed());
    assert_eq!(bench.client.pending(), 0);
}

#[test]
fn completions_of_others_are_left_alone() {
    let mut bench = Bench::new(1, spec(Plan::WriteEach, 1, Limit::default()));
    bench.drive();
    let done = Completion::Command { result: 0, status: String::new(), output: Bytes::new() };
    assert!(!bench.phase.on_completion(&mut bench.objects, bench.now, RequestId(77), &done));
}
