//! A world of nodes on one thread, driven by one seed: time, network, disks.
//!
//! Everything that happens is an entry of one queue ordered by time, then by
//! the order in which it was scheduled; every random choice is drawn from the
//! seed. So the same seed gives the same trace, and [`World::trace`] proves it.
//!
//! Must not know what the nodes are: it hands them events and takes requests.

mod network;
mod sim_env;
mod weather;

use crate::disk::{SimDisk, WriteId};
use base::{Duration, Random, Time};
use bytes::Bytes;
use env::{ConnId, Env, Event, ListenerId, Node};
use network::Network;
use sim_env::SimEnv;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use weather::Weather;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub usize);

enum Entry {
    /// The next item of the stream towards this end is due.
    Arrive {
        end: ConnId,
    },
    Dial {
        end: ConnId,
        to: SocketAddr,
    },
    Deliver {
        node: NodeId,
        life: u64,
        event: Event,
    },
    DiskWritten {
        node: NodeId,
        life: u64,
        token: u64,
        write: WriteId,
    },
    DiskFlushed {
        node: NodeId,
        life: u64,
        token: u64,
        covered: Vec<WriteId>,
    },
    BatchEnd {
        node: NodeId,
        life: u64,
    },
    Wake {
        node: NodeId,
        life: u64,
        at: Time,
    },
    /// A pause may be over.
    Resume {
        node: NodeId,
        life: u64,
    },
}

struct NodeState {
    name: String,
    ip: IpAddr,
    running: bool,
    /// Without power a machine does not even refuse connections.
    powered: bool,
    /// Counts starts; events of an earlier life are dropped.
    life: u64,
    disk: Option<SimDisk>,
    random: Random,
    /// Clock error: offset, and rate in parts per million.
    clock_offset: Duration,
    clock_ppm: i64,
    paused_until: Time,
    /// What happened while the node was paused, in order.
    held: VecDeque<Event>,
    batch_pending: bool,
    wake_at: Time,
    exit: Option<i32>,
}

/// Everything but the nodes themselves, so that a node can be called with it.
pub struct Core {
    now: Time,
    seq: u64,
    queue: BTreeMap<(Time, u64), Entry>,
    random: Random,
    pub weather: Weather,
    nodes: Vec<NodeState>,
    network: Network,
    trace: u64,
    pub events: u64,
}

pub struct World<N: Node> {
    pub core: Core,
    nodes: Vec<Option<N>>,
}

/// Asking to be woken at once costs this much, so that a node that never
/// sleeps cannot stop time.
const WAKE_MIN: Duration = Duration::from_micros(1);

thread_local! {
    /// Who acts, and when, for log lines.
    static ACTING: Cell<(Time, Option<NodeId>)> = const { Cell::new((Time::ZERO, None)) };
}

/// The simulated time and the acting node of this thread.
pub fn acting() -> (Time, Option<NodeId>) {
    ACTING.get()
}

impl<N: Node> World<N> {
    pub fn new(seed: u64) -> World<N> {
        let mut random = Random::from_seed(seed);
        let weather = Weather::draw(&mut random);
        World {
            core: Core {
                now: Time(1_000_000_000),
                seq: 0,
                queue: BTreeMap::new(),
                random,
                weather,
                nodes: Vec::new(),
                network: Network::default(),
                trace: 0xcbf2_9ce4_8422_2325,
                events: 0,
            },
            nodes: Vec::new(),
        }
    }

    /// A machine with its own address, not yet running.
    pub fn add_machine(&mut self, name: &str, disk: Option<SimDisk>) -> NodeId {
        let id = NodeId(self.nodes.len());
        let random = self.core.random.fork();
        let clock_offset = Duration::from_millis(self.core.random.below(10_000));
        let clock_ppm = self.core.random.below(400) as i64 - 200;
        self.core.nodes.push(NodeState {
            name: name.into(),
            ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(id.0 + 1).expect("few machines"))),
            running: false,
            powered: true,
            life: 0,
            disk,
            random,
            clock_offset,
            clock_ppm,
            paused_until: Time::ZERO,
            held: VecDeque::new(),
            batch_pending: false,
            wake_at: Time::MAX,
            exit: None,
        });
        self.nodes.push(None);
        id
    }

    pub fn ip(&self, id: NodeId) -> IpAddr {
        self.core.nodes[id.0].ip
    }

    pub fn name(&self, id: NodeId) -> &str {
        &self.core.nodes[id.0].name
    }

    pub fn start(&mut self, id: NodeId, mut node: N, listeners: &[SocketAddr]) {
        let state = &mut self.core.nodes[id.0];
        assert!(!state.running, "{} runs already", state.name);
        state.running = true;
        state.life += 1;
        state.exit = None;
        state.batch_pending = false;
        state.wake_at = Time::MAX;
        state.paused_until = Time::ZERO;
        state.held.clear();
        if !std::mem::replace(&mut state.powered, true) {
            self.core.reset_orphans(id);
        }
        for (i, addr) in listeners.iter().enumerate() {
            self.core.network.listeners.insert(*addr, (id, ListenerId(i as u32)));
        }
        ACTING.set((self.core.now, Some(id)));
        node.start(&mut SimEnv { core: &mut self.core, me: id });
        self.nodes[id.0] = Some(node);
        self.after_call(id);
    }

    /// The process ends; the machine may lose power with it. Returns the node
    /// for whatever of it is durable by other means (a monitor's map store).
    ///
    /// Peers of a killed process see its connections close, and may lose what
    /// was on the way; peers of a machine without power hear nothing at all
    /// until it is back.
    pub fn kill(&mut self, id: NodeId, power_cut: bool) -> Option<N> {
        let state = &mut self.core.nodes[id.0];
        state.running = false;
        state.held.clear();
        if let Some(disk) = &mut state.disk {
            match power_cut {
                true => disk.power_cut(&mut self.core.random),
                false => disk.process_crash(&mut self.core.random),
            }
        }
        state.powered &= !power_cut;
        self.core.end_connections(id, power_cut);
        self.nodes[id.0].take()
    }

    pub fn node(&self, id: NodeId) -> Option<&N> {
        self.nodes[id.0].as_ref()
    }

    /// For the harness: what it changes is seen at the node's next event, so
    /// one is made.
    pub fn poke(&mut self, id: NodeId, change: impl FnOnce(&mut N)) {
        let Some(node) = self.nodes[id.0].as_mut() else { return };
        change(node);
        let life = self.core.nodes[id.0].life;
        if !std::mem::replace(&mut self.core.nodes[id.0].batch_pending, true) {
            self.core.schedule_in(Duration::ZERO, Entry::BatchEnd { node: id, life });
        }
    }

    pub fn is_running(&self, id: NodeId) -> bool {
        self.core.nodes[id.0].running
    }

    /// The status that a node ended itself with.
    pub fn exit_status(&self, id: NodeId) -> Option<i32> {
        self.core.nodes[id.0].exit
    }

    pub fn disk_mut(&mut self, id: NodeId) -> Option<&mut SimDisk> {
        self.core.nodes[id.0].disk.as_mut()
    }

    pub fn now(&self) -> Time {
        self.core.now
    }

    pub fn random(&mut self) -> &mut Random {
        &mut self.core.random
    }

    /// A hash over everything that happened.
    pub fn trace(&self) -> u64 {
        self.core.trace
    }

    /// Nothing gets from one to the other; what is sent waits.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.core.network.cut.insert((from, to));
    }

    pub fn uncut(&mut self, from: NodeId, to: NodeId) {
        self.core.network.cut.remove(&(from, to));
    }

    pub fn heal(&mut self) {
        self.core.network.cut.clear();
    }

    /// As SIGSTOP: events wait, clocks go on.
    pub fn pause(&mut self, id: NodeId, time: Duration) {
        let until = self.core.now + time;
        let state = &mut self.core.nodes[id.0];
        if !state.running || until <= state.paused_until {
            return;
        }
        state.paused_until = until;
        let life = state.life;
        self.core.schedule_at(until, Entry::Resume { node: id, life });
    }

    /// Breaks one connection between any two nodes; what was in flight is lost.
    pub fn break_a_connection(&mut self) {
        self.core.break_a_connection();
    }

    /// Runs until `time` has passed or `done` says so; true if it did.
    pub fn run(&mut self, time: Duration, mut done: impl FnMut(&World<N>) -> bool) -> bool {
        let deadline = self.core.now + time;
        while let Some(entry) = self.core.queue.first_entry() {
            let at = entry.key().0;
            if at > deadline {
                break;
            }
            let entry = entry.remove();
            self.core.now = at;
            self.step(entry);
            if done(self) {
                return true;
            }
        }
        self.core.now = deadline;
        done(self)
    }

    fn step(&mut self, entry: Entry) {
        self.core.events += 1;
        match entry {
            Entry::Arrive { end } => {
                if let Some((node, event)) = self.core.arrive(end) {
                    self.deliver(node, event);
                }
            }
            Entry::Dial { end, to } => self.core.answer_dial(end, to),
            Entry::Deliver { node, life, event } => {
                if self.core.is_current(node, life) {
                    self.deliver(node, event);
                }
            }
            Entry::DiskWritten { node, life, token, write } => {
                if self.core.is_current(node, life) {
                    self.core.disk(node).finish_write(write);
                    self.deliver(node, Event::DiskDone { token, result: Ok(Bytes::new()) });
                }
            }
            Entry::DiskFlushed { node, life, token, covered } => {
                if self.core.is_current(node, life) {
                    self.core.disk(node).finish_flush(&covered);
                    self.deliver(node, Event::DiskDone { token, result: Ok(Bytes::new()) });
                }
            }
            Entry::BatchEnd { node, life } => {
                // A paused node ends its batch when it resumes.
                if self.core.is_current(node, life) && !self.core.is_paused(node) {
                    self.end_batch(node);
                }
            }
            Entry::Wake { node, life, at } => {
                let due = self.core.is_current(node, life) && self.core.nodes[node.0].wake_at == at;
                if due && !self.core.is_paused(node) {
                    self.end_batch(node);
                }
            }
            Entry::Resume { node, life } => self.resume(node, life),
        }
    }

    fn resume(&mut self, node: NodeId, life: u64) {
        if !self.core.is_current(node, life) || self.core.is_paused(node) {
            return;
        }
        while let Some(event) = self.core.nodes[node.0].held.pop_front() {
            self.hand_over(node, event);
            if !self.core.is_current(node, life) {
                return;
            }
        }
        self.end_batch(node);
    }

    fn deliver(&mut self, node: NodeId, event: Event) {
        if !self.core.nodes[node.0].running {
            return;
        }
        if self.core.is_paused(node) {
            return self.core.nodes[node.0].held.push_back(event);
        }
        self.hand_over(node, event);
        let state = &mut self.core.nodes[node.0];
        // Some batches hold one event, some many.
        if state.running && !std::mem::replace(&mut state.batch_pending, true) {
            let life = state.life;
            let wait = Duration::from_micros(self.core.random.below(40));
            self.core.schedule_in(wait, Entry::BatchEnd { node, life });
        }
    }

    fn hand_over(&mut self, node: NodeId, event: Event) {
        if self.core.is_stale(&event) {
            return;
        }
        self.core.record(node, &event);
        self.call(node, |n, env| n.on_event(env, event));
    }

    fn end_batch(&mut self, node: NodeId) {
        let state = &mut self.core.nodes[node.0];
        state.batch_pending = false;
        state.wake_at = Time::MAX;
        self.call(node, |n, env| n.on_batch_end(env));
    }

    fn call(&mut self, id: NodeId, f: impl FnOnce(&mut N, &mut dyn Env)) {
        let mut node = self.nodes[id.0].take().expect("a running node");
        ACTING.set((self.core.now, Some(id)));
        f(&mut node, &mut SimEnv { core: &mut self.core, me: id });
        ACTING.set((self.core.now, None));
        self.nodes[id.0] = Some(node);
        self.after_call(id);
    }

    fn after_call(&mut self, id: NodeId) {
        if self.core.nodes[id.0].exit.is_some() {
            self.kill(id, false);
            return;
        }
        let wake = self.nodes[id.0].as_ref().expect("a running node").next_wake();
        if wake == Time::MAX {
            return;
        }
        let at = self.core.global_time(id, wake).max(self.core.now + WAKE_MIN);
        let state = &mut self.core.nodes[id.0];
        // A later wish is served by the earlier wake, which asks again.
        if at < state.wake_at {
            state.wake_at = at;
            let life = state.life;
            self.core.schedule_at(at, Entry::Wake { node: id, life, at });
        }
    }
}

impl Core {
    fn schedule_at(&mut self, at: Time, entry: Entry) {
        self.seq += 1;
        self.queue.insert((at, self.seq), entry);
    }

    fn schedule_in(&mut self, after: Duration, entry: Entry) {
        self.schedule_at(self.now + after, entry);
    }

    fn is_current(&self, node: NodeId, life: u64) -> bool {
        let state = &self.nodes[node.0];
        state.running && state.life == life
    }

    fn is_paused(&self, node: NodeId) -> bool {
        self.nodes[node.0].paused_until > self.now
    }

    fn disk(&mut self, node: NodeId) -> &mut SimDisk {
        self.nodes[node.0].disk.as_mut().expect("a node with a disk")
    }

    fn local_time(&self, node: NodeId) -> Time {
        let state = &self.nodes[node.0];
        let drift = i128::from(self.now.0) * i128::from(state.clock_ppm) / 1_000_000;
        let local = i128::from(self.now.0) + drift;
        Time(u64::try_from(local).unwrap_or(0)) + state.clock_offset
    }

    /// When the node's clock will have reached `local`.
    fn global_time(&self, node: NodeId, local: Time) -> Time {
        let state = &self.nodes[node.0];
        let t = i128::from((local - state.clock_offset).0);
        let global = t * 1_000_000 / (1_000_000 + i128::from(state.clock_ppm));
        // Rounded up, so that the clock is not just short of it.
        Time(u64::try_from(global).unwrap_or(0).saturating_add(2))
    }

    fn record(&mut self, node: NodeId, event: &Event) {
        let (kind, detail) = match event {
            Event::Accepted { conn, .. } => (1, conn.0),
            Event::Connected { conn, .. } => (2, conn.0),
            Event::Received { conn, data } => (3, u64::from(base::crc32c(data)) << 24 ^ conn.0),
            Event::Closed { conn, .. } => (4, conn.0),
            Event::DiskDone { token, result } => {
                (5, *token << 32 ^ result.as_ref().map_or(1, |data| u64::from(base::crc32c(data))))
            }
            Event::Shutdown => (6, 0),
        };
        for word in [self.now.0, node.0 as u64, kind, detail] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
