//! A world of nodes on one thread, driven by one seed: time, network, disks.
//!
//! Everything that happens is an entry of one queue ordered by time; every
//! random choice is drawn from the seed. So the same seed gives the same trace,
//! and [`World::trace`] proves it.

use crate::disk::SimDisk;
use base::{Duration, Random, Time, WallTime};
use bytes::Bytes;
use env::{CloseReason, ConnId, DiskInfo, DiskOp, DiskRequest, DiskResult, Env, Event, ListenerId, Node};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub usize);

/// How unfriendly the network and the disks are.
#[derive(Clone, Debug)]
pub struct Weather {
    pub latency_min_us: u64,
    pub latency_max_us: u64,
    /// One chunk in this many takes `slow_ms` longer; 0 for never.
    pub slow_one_in: u64,
    pub slow_ms: u64,
    pub disk_min_us: u64,
    pub disk_max_us: u64,
}

impl Weather {
    pub fn draw(random: &mut Random) -> Weather {
        let latency_min_us = 5 + random.below(100);
        let disk_min_us = 10 + random.below(200);
        Weather {
            latency_min_us,
            latency_max_us: latency_min_us + 1 + random.below(2000),
            slow_one_in: [0, 1000, 100][random.below(3) as usize],
            slow_ms: 1 + random.below(150),
            disk_min_us,
            disk_max_us: disk_min_us + 1 + random.below(3000),
        }
    }
}

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
    },
    DiskFlushed {
        node: NodeId,
        life: u64,
        token: u64,
        covered: Vec<u64>,
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
}

enum Item {
    Data(Bytes),
    Close,
}

/// One end of a connection.
struct End {
    node: NodeId,
    /// `None` until the dial is answered, and after the other end has closed.
    peer: Option<ConnId>,
    /// What travels towards this end.
    stream: VecDeque<Item>,
    last_arrival: Time,
    reading_paused: bool,
    /// Arrived while reading was paused.
    held: VecDeque<Item>,
}

struct NodeState {
    name: String,
    ip: IpAddr,
    running: bool,
    /// Counts starts; events of an earlier life are dropped.
    life: u64,
    disk: Option<SimDisk>,
    random: Random,
    /// Clock error: offset, and rate in parts per million.
    clock_offset: Duration,
    clock_ppm: i64,
    paused_until: Time,
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
    listeners: BTreeMap<SocketAddr, (NodeId, ListenerId)>,
    ends: BTreeMap<ConnId, End>,
    next_conn: u64,
    /// Directions in which nothing gets through.
    cut: BTreeSet<(NodeId, NodeId)>,
    trace: u64,
    pub events: u64,
}

pub struct World<N: Node> {
    pub core: Core,
    nodes: Vec<Option<N>>,
}

/// A dial that nobody answers gives up after this.
const DIAL_TIMEOUT: Duration = Duration::from_millis(1000);
/// Data behind a cut is tried again this often.
const RETRANSMIT: Duration = Duration::from_millis(20);
const WALL_START: WallTime = WallTime { sec: 1_700_000_000, nsec: 0 };

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
                listeners: BTreeMap::new(),
                ends: BTreeMap::new(),
                next_conn: 1,
                cut: BTreeSet::new(),
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
            life: 0,
            disk,
            random,
            clock_offset,
            clock_ppm,
            paused_until: Time::ZERO,
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

    pub fn start(&mut self, id: NodeId, mut node: N, listeners: &[SocketAddr]) {
        let state = &mut self.core.nodes[id.0];
        assert!(!state.running, "{} runs already", state.name);
        state.running = true;
        state.life += 1;
        state.exit = None;
        state.batch_pending = false;
        state.wake_at = Time::MAX;
        state.paused_until = Time::ZERO;
        for (i, addr) in listeners.iter().enumerate() {
            self.core.listeners.insert(*addr, (id, ListenerId(i as u32)));
        }
        node.start(&mut SimEnv { core: &mut self.core, me: id });
        self.nodes[id.0] = Some(node);
        self.after_call(id);
    }

    /// The process ends; the machine may lose power with it. Returns the node
    /// for whatever of it is durable by other means (a monitor's map store).
    pub fn kill(&mut self, id: NodeId, power_cut: bool) -> Option<N> {
        let state = &mut self.core.nodes[id.0];
        state.running = false;
        if let Some(disk) = &mut state.disk {
            match power_cut {
                true => disk.power_cut(&mut self.core.random),
                false => disk.process_crash(),
            }
        }
        self.core.listeners.retain(|_, (node, _)| *node != id);
        let ends: Vec<ConnId> =
            self.core.ends.iter().filter(|(_, e)| e.node == id).map(|(c, _)| *c).collect();
        for end in ends {
            self.core.hang_up(end);
        }
        self.nodes[id.0].take()
    }

    pub fn node(&self, id: NodeId) -> Option<&N> {
        self.nodes[id.0].as_ref()
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
        self.core.cut.insert((from, to));
    }

    pub fn heal(&mut self) {
        self.core.cut.clear();
    }

    /// As SIGSTOP: events wait, clocks go on.
    pub fn pause(&mut self, id: NodeId, time: Duration) {
        self.core.nodes[id.0].paused_until = self.core.now + time;
    }

    /// Breaks one connection between any two nodes; what was in flight is lost.
    pub fn break_a_connection(&mut self) {
        let candidates: Vec<ConnId> =
            self.core.ends.iter().filter(|(_, e)| e.peer.is_some()).map(|(c, _)| *c).collect();
        if candidates.is_empty() {
            return;
        }
        let end = candidates[self.core.random.below(candidates.len() as u64) as usize];
        let Some(peer) = self.core.ends[&end].peer else { return };
        for end in [end, peer] {
            if let Some(e) = self.core.ends.remove(&end) {
                let life = self.core.nodes[e.node.0].life;
                let event = Event::Closed { conn: end, reason: CloseReason::Peer };
                self.core.schedule_in(Duration::ZERO, Entry::Deliver { node: e.node, life, event });
            }
        }
    }

    /// Runs until `time` has passed or `done` says so; true if it did.
    pub fn run(&mut self, time: Duration, mut done: impl FnMut(&World<N>) -> bool) -> bool {
        let deadline = self.core.now + time;
        while let Some((&(at, seq), _)) = self.core.queue.first_key_value() {
            if at > deadline {
                break;
            }
            let entry = self.core.queue.remove(&(at, seq)).expect("just seen");
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
                if let Some((node, life, event)) = self.core.arrive(end) {
                    self.deliver(node, life, event);
                }
            }
            Entry::Dial { end, to } => self.core.answer_dial(end, to),
            Entry::Deliver { node, life, event } => self.deliver(node, life, event),
            Entry::DiskWritten { node, life, token } => {
                if self.core.is_current(node, life) {
                    self.core.disk(node).finish_write(token);
                    self.deliver(node, life, Event::DiskDone { token, result: Ok(Bytes::new()) });
                }
            }
            Entry::DiskFlushed { node, life, token, covered } => {
                if self.core.is_current(node, life) {
                    self.core.disk(node).finish_flush(&covered);
                    self.deliver(node, life, Event::DiskDone { token, result: Ok(Bytes::new()) });
                }
            }
            Entry::BatchEnd { node, life } => {
                if self.core.is_current(node, life)
                    && !self.postpone_if_paused(node, Entry::BatchEnd { node, life })
                {
                    self.core.nodes[node.0].batch_pending = false;
                    self.call(node, |n, env| n.on_batch_end(env));
                }
            }
            Entry::Wake { node, life, at } => {
                let due = self.core.is_current(node, life) && self.core.nodes[node.0].wake_at == at;
                if due && !self.postpone_if_paused(node, Entry::Wake { node, life, at }) {
                    self.core.nodes[node.0].wake_at = Time::MAX;
                    self.call(node, |n, env| n.on_batch_end(env));
                }
            }
        }
    }

    /// A paused node's events wait until it runs again, in order.
    fn postpone_if_paused(&mut self, node: NodeId, entry: Entry) -> bool {
        let until = self.core.nodes[node.0].paused_until;
        if self.core.now >= until {
            return false;
        }
        self.core.schedule_at(until, entry);
        true
    }

    fn deliver(&mut self, node: NodeId, life: u64, event: Event) {
        if !self.core.is_current(node, life) {
            return;
        }
        if self.core.nodes[node.0].paused_until > self.core.now {
            let until = self.core.nodes[node.0].paused_until;
            return self.core.schedule_at(until, Entry::Deliver { node, life, event });
        }
        self.core.record(node, &event);
        self.call(node, |n, env| n.on_event(env, event));
        // Some batches hold one event, some many.
        if self.core.nodes[node.0].running && !self.core.nodes[node.0].batch_pending {
            self.core.nodes[node.0].batch_pending = true;
            let wait = Duration::from_micros(self.core.random.below(40));
            self.core.schedule_in(wait, Entry::BatchEnd { node, life });
        }
    }

    fn call(&mut self, id: NodeId, f: impl FnOnce(&mut N, &mut dyn Env)) {
        let mut node = self.nodes[id.0].take().expect("a running node");
        f(&mut node, &mut SimEnv { core: &mut self.core, me: id });
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
        let at = self.core.global_time(id, wake).max(self.core.now);
        let state = &mut self.core.nodes[id.0];
        if at < state.wake_at || state.wake_at <= self.core.now {
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

    fn disk(&mut self, node: NodeId) -> &mut SimDisk {
        self.nodes[node.0].disk.as_mut().expect("a node with a disk")
    }

    fn latency(&mut self) -> Duration {
        let w = &self.weather;
        let mut us = w.latency_min_us + self.random.below(w.latency_max_us - w.latency_min_us);
        if w.slow_one_in > 0 && self.random.chance(1, w.slow_one_in) {
            us += w.slow_ms * 1000;
        }
        Duration::from_micros(us)
    }

    fn disk_time(&mut self) -> Duration {
        let w = &self.weather;
        Duration::from_micros(w.disk_min_us + self.random.below(w.disk_max_us - w.disk_min_us))
    }

    fn local_time(&self, node: NodeId) -> Time {
        let state = &self.nodes[node.0];
        let drift = i128::from(self.now.0) * i128::from(state.clock_ppm) / 1_000_000;
        let local = i128::from(self.now.0) + drift;
        Time(u64::try_from(local).unwrap_or(0)) + state.clock_offset
    }

    fn global_time(&self, node: NodeId, local: Time) -> Time {
        let state = &self.nodes[node.0];
        let t = i128::from((local - state.clock_offset).0);
        let global = t * 1_000_000 / (1_000_000 + i128::from(state.clock_ppm));
        // Rounded up, so that the node's clock has reached the time it asked for.
        Time(u64::try_from(global).unwrap_or(0).saturating_add(2))
    }

    fn record(&mut self, node: NodeId, event: &Event) {
        let (kind, size) = match event {
            Event::Accepted { .. } => (1, 0),
            Event::Connected { .. } => (2, 0),
            Event::Received { data, .. } => (3, u64::from(base::crc32c(data))),
            Event::Closed { .. } => (4, 0),
            Event::DiskDone { token, .. } => (5, *token),
            Event::Shutdown => (6, 0),
        };
        for word in [self.now.0, node.0 as u64, kind, size] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn new_end(&mut self, node: NodeId) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let end = End {
            node,
            peer: None,
            stream: VecDeque::new(),
            last_arrival: Time::ZERO,
            reading_paused: false,
            held: VecDeque::new(),
        };
        self.ends.insert(conn, end);
        conn
    }

    fn push(&mut self, to: ConnId, item: Item) {
        let latency = self.latency();
        let Some(end) = self.ends.get_mut(&to) else { return };
        let at = end.last_arrival.max(self.now + latency);
        end.last_arrival = at;
        end.stream.push_back(item);
        self.schedule_at(at, Entry::Arrive { end: to });
    }

    fn arrive(&mut self, conn: ConnId) -> Option<(NodeId, u64, Event)> {
        let end = self.ends.get(&conn)?;
        let node = end.node;
        let from = end.peer.and_then(|p| self.ends.get(&p)).map(|p| p.node);
        if from.is_some_and(|from| self.cut.contains(&(from, node))) {
            self.schedule_in(RETRANSMIT, Entry::Arrive { end: conn });
            return None;
        }
        let end = self.ends.get_mut(&conn)?;
        let item = end.stream.pop_front()?;
        if end.reading_paused {
            end.held.push_back(item);
            return None;
        }
        self.take_in(conn, item)
    }

    fn take_in(&mut self, conn: ConnId, item: Item) -> Option<(NodeId, u64, Event)> {
        let node = self.ends.get(&conn)?.node;
        let life = self.nodes[node.0].life;
        Some(match item {
            Item::Data(data) => (node, life, Event::Received { conn, data }),
            Item::Close => {
                self.ends.remove(&conn);
                (node, life, Event::Closed { conn, reason: CloseReason::Peer })
            }
        })
    }

    fn answer_dial(&mut self, dialler: ConnId, to: SocketAddr) {
        let Some(end) = self.ends.get(&dialler) else { return };
        let from = end.node;
        let life = self.nodes[from.0].life;
        let target = self.nodes.iter().position(|n| n.ip == to.ip()).map(NodeId);
        let unreachable =
            target.is_none_or(|t| self.cut.contains(&(from, t)) || self.cut.contains(&(t, from)));
        let fail =
            |reason| Entry::Deliver { node: from, life, event: Event::Closed { conn: dialler, reason } };
        if unreachable {
            self.ends.remove(&dialler);
            return self.schedule_in(DIAL_TIMEOUT, fail(CloseReason::Unreachable));
        }
        let back = self.latency();
        let Some(&(server, listener)) = self.listeners.get(&to) else {
            self.ends.remove(&dialler);
            return self.schedule_in(back, fail(CloseReason::Refused));
        };
        let accepted = self.new_end(server);
        self.ends.get_mut(&accepted).expect("just made").peer = Some(dialler);
        let local = SocketAddr::new(self.nodes[from.0].ip, 40_000);
        let end = self.ends.get_mut(&dialler).expect("looked up above");
        end.peer = Some(accepted);
        let connected_at = self.now + back;
        end.last_arrival = connected_at;
        let event = Event::Accepted { listener, conn: accepted, peer: local };
        let server_life = self.nodes[server.0].life;
        self.schedule_in(Duration::ZERO, Entry::Deliver { node: server, life: server_life, event });
        let event = Event::Connected { conn: dialler, local };
        self.schedule_at(connected_at, Entry::Deliver { node: from, life, event });
    }

    /// This end is gone; the other learns of it after what was sent before.
    fn hang_up(&mut self, conn: ConnId) {
        if let Some(end) = self.ends.remove(&conn)
            && let Some(peer) = end.peer
        {
            self.push(peer, Item::Close);
            if let Some(peer) = self.ends.get_mut(&peer) {
                peer.peer = None;
            }
        }
    }
}

/// The world as one node sees it.
struct SimEnv<'a> {
    core: &'a mut Core,
    me: NodeId,
}

impl Env for SimEnv<'_> {
    fn now(&self) -> Time {
        self.core.local_time(self.me)
    }

    fn wall(&self) -> WallTime {
        WALL_START + Duration::from_nanos(self.core.local_time(self.me).0)
    }

    fn random(&mut self) -> &mut Random {
        &mut self.core.nodes[self.me.0].random
    }

    fn connect(&mut self, to: SocketAddr) -> ConnId {
        let conn = self.core.new_end(self.me);
        let latency = self.core.latency();
        self.core.schedule_in(latency, Entry::Dial { end: conn, to });
        conn
    }

    fn send(&mut self, conn: ConnId, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let Some(peer) = self.core.ends.get(&conn).and_then(|e| e.peer) else { return };
        // Now and then in two pieces: receivers must not rely on boundaries.
        if data.len() > 1 && self.core.random.chance(1, 20) {
            let at = 1 + self.core.random.below(data.len() as u64 - 1) as usize;
            self.core.push(peer, Item::Data(data.slice(..at)));
            self.core.push(peer, Item::Data(data.slice(at..)));
        } else {
            self.core.push(peer, Item::Data(data));
        }
    }

    fn unsent_len(&self, _: ConnId) -> usize {
        0
    }

    fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        let Some(end) = self.core.ends.get_mut(&conn) else { return };
        if end.reading_paused == paused {
            return;
        }
        end.reading_paused = paused;
        if !paused {
            // What was held goes in before what is still on its way.
            let held = std::mem::take(&mut end.held);
            let n = held.len();
            for item in held.into_iter().rev() {
                end.stream.push_front(item);
            }
            for _ in 0..n {
                self.core.schedule_in(Duration::ZERO, Entry::Arrive { end: conn });
            }
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.core.hang_up(conn);
    }

    fn disk_info(&self) -> Option<DiskInfo> {
        self.core.nodes[self.me.0].disk.as_ref().map(SimDisk::info)
    }

    fn submit(&mut self, request: DiskRequest) {
        let (node, token) = (self.me, request.token);
        let life = self.core.nodes[node.0].life;
        let after = self.core.disk_time();
        let done =
            |result: DiskResult| Entry::Deliver { node, life, event: Event::DiskDone { token, result } };
        let entry = match request.op {
            DiskOp::Write { offset, data } => match self.core.disk(node).start_write(token, offset, &data) {
                Ok(()) => Entry::DiskWritten { node, life, token },
                Err(error) => done(Err(error)),
            },
            DiskOp::Read { offset, len } => done(self.core.disk(node).read(offset, len)),
            DiskOp::Flush => {
                let covered = self.core.disk(node).start_flush();
                Entry::DiskFlushed { node, life, token, covered }
            }
            // Discarded space may read as anything, so leaving it is allowed.
            DiskOp::Discard { .. } => done(Ok(Bytes::new())),
        };
        self.core.schedule_in(after, entry);
    }

    fn exit(&mut self, status: i32) {
        self.core.nodes[self.me.0].exit = Some(status);
    }
}
