//! A whole cluster in a [`World`]: one monitor, some OSDs on simulated devices,
//! clients that write down what they see, and an operator.
//!
//! Knows how daemons are started, killed and started again on what survived.
//! Must not know what a run does with them: that is [`crate::run`].

mod clients;

use crate::admin::Operator;
use crate::checkers::fence;
use crate::checkers::replicas::{self, PgContent};
use crate::disk::SimDisk;
use crate::history::{History, Outcome};
use crate::offline;
use crate::snapshots::SNAP_PGS;
use crate::workload::{ModelWorkload, SharedHistory, WorkloadPlan};
use crate::world::{NodeId, World};
use base::{Duration, Errno, Random, Time, WallTime};
use client::{ObjectRequest, Target};
use daemon::{ClientNode, MonNode, OsdNode};
use env::{Env, Event, Node};
use mon::{FailureDomain, MemMapStore, MkfsOptions, Mon};
use osd::{OsdConfig, Sabotage};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use store::{Engine, Identity, ObjectStore, Options, PendingStore};
use tracing::debug;
use wire::types::{EntityAddr, EntityAddrVec, OsdId, PgId, Uuid};

const FSID: Uuid = Uuid([7; 16]);
pub const POOL: &str = "data";
const MON_PORT: u16 = 3300;
const CLIENT_PORT: u16 = 6800;
const CLUSTER_PORT: u16 = 6801;

/// A client is put on the blocklist, whatever it is doing.
#[derive(Clone, Copy, Debug)]
pub struct FencePlan {
    pub client: usize,
    /// After the clients have begun.
    pub at: Duration,
    /// Until then it lives on and knows no better; then its process is started again.
    pub rebirth_after: Duration,
}

/// What a seed's cluster is made of.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub osds: usize,
    pub clients: usize,
    pub pool_size: u8,
    pub min_size: u8,
    pub pg_num: u32,
    pub device_len: u64,
    /// Of the stores; small ones make checkpoints frequent.
    pub log_len: Option<u64>,
    /// Of the PG logs; small ones make OSDs that were down need backfill.
    pub log_entries_max: usize,
    pub log_dups_max: usize,
    pub log_trim_batch: usize,
    pub recovery_ops_max: usize,
    pub recovery_chunk_len: u64,
    /// Seconds of silence that the monitor wants before it believes reports.
    pub grace_s: u64,
    pub workload: WorkloadPlan,
    /// Of a hundred pieces of metadata that an OSD asks its store for, so many must be loaded first.
    pub pending_percent: u64,
    /// Seed and steps of a client that takes snapshots in a pool of its own.
    pub snapshots: Option<(u64, usize)>,
    /// The same of a client that has an image in the pool of all.
    pub image: Option<(u64, usize)>,
    /// Seed and steps of each client's locks.
    pub locks: Option<(u64, usize)>,
    /// The same of each client's watches.
    pub watches: Option<(u64, usize)>,
    pub fences: Vec<FencePlan>,
    /// Time between scrubs of a PG; twice that between deep ones. They go on while faults do.
    pub scrubs: Option<Duration>,
    /// Clients that die, and when, and are started again at once.
    pub deaths: Vec<(usize, Duration)>,
    pub sabotage: Sabotage,
}

impl ClusterPlan {
    pub fn draw(random: &mut Random, duration: Duration) -> ClusterPlan {
        let osds = 3 + random.below(3) as usize;
        let clients = 2 + random.below(3) as usize;
        let pool_size = 2 + random.below(2) as u8;
        let min_size = 1 + random.below(u64::from(pool_size)) as u8;
        let operations = 40 + random.below(110) as usize;
        // Short histories of each object keep the search for an order short.
        let objects_min = clients * operations / 50;
        let small_log = random.chance(1, 2);
        let depth = [1, 4, 16][random.below(3) as usize];
        ClusterPlan {
            osds,
            clients,
            pool_size,
            min_size: min_size.min(2),
            pg_num: [1, 2, 4, 8][random.below(4) as usize],
            device_len: (64 + 64 * random.below(3)) << 20,
            log_len: [None, Some(1 << 20), Some(2 << 20)][random.below(3) as usize],
            log_entries_max: if small_log { 2 + random.below(30) as usize } else { 2000 },
            // A client's request may be resent as long as it is in flight: the
            // window must cover what the clients can have in flight at once.
            log_dups_max: 1000,
            log_trim_batch: if small_log { 1 + random.below(4) as usize } else { 100 },
            recovery_ops_max: 1 + random.below(16) as usize,
            recovery_chunk_len: [4 << 20, 64 << 10, 8 << 10][random.below(3) as usize],
            grace_s: 1 + random.below(2),
            workload: WorkloadPlan {
                pool: POOL.into(),
                append_objects: objects_min.div_ceil(3) + random.below(3) as usize,
                register_objects: objects_min.div_ceil(2) + 1 + random.below(6) as usize,
                depth,
                operations,
                think_us: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX) / operations as u64,
            },
            pending_percent: 0,
            snapshots: None,
            image: None,
            locks: None,
            watches: None,
            scrubs: None,
            fences: Vec::new(),
            deaths: Vec::new(),
            sabotage: Sabotage::default(),
        }
    }

    /// In all pools.
    pub fn pgs(&self) -> u32 {
        self.pg_num + if self.snapshots.is_some() { SNAP_PGS } else { 0 }
    }

    fn store_options(&self) -> Options {
        let mut options = Options { log_len: self.log_len, read_cache: 256 << 10, ..Options::default() };
        if self.log_len.is_some() {
            options.dirty_len_max = 256 << 10;
        }
        options
    }
}

/// Any daemon.
pub enum SimNode {
    Mon(Box<MonNode<MemMapStore>>),
    Osd(Box<OsdNode<PendingStore<Engine>>>),
    Client(Box<ClientNode<ModelWorkload>>),
    Operator(Box<ClientNode<Operator>>),
}

impl SimNode {
    fn node(&self) -> &dyn Node {
        match self {
            SimNode::Mon(n) => n.as_ref(),
            SimNode::Osd(n) => n.as_ref(),
            SimNode::Client(n) => n.as_ref(),
            SimNode::Operator(n) => n.as_ref(),
        }
    }

    fn node_mut(&mut self) -> &mut dyn Node {
        match self {
            SimNode::Mon(n) => n.as_mut(),
            SimNode::Osd(n) => n.as_mut(),
            SimNode::Client(n) => n.as_mut(),
            SimNode::Operator(n) => n.as_mut(),
        }
    }
}

impl Node for SimNode {
    fn start(&mut self, env: &mut dyn Env) {
        self.node_mut().start(env);
    }

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        self.node_mut().on_event(env, event);
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        self.node_mut().on_batch_end(env);
    }

    fn next_wake(&self) -> Time {
        self.node().next_wake()
    }
}

/// What a run reached, so that tests can tell that it is not idle where it matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// Resent requests that were recognised.
    pub duplicates: u64,
    pub backfilled_ranges: u64,
    /// Bytes that recovered objects took from others at their receiver.
    pub shared_bytes: u64,
    /// Checkpoints that the stores took.
    pub checkpoints: u64,
    /// Answers of stores that metadata had to be loaded first.
    pub pending: u64,
    /// Stretches of objects that stores put together again.
    pub mended: u64,
    /// Objects that the run damaged on a device.
    pub damaged: u64,
    /// Objects that OSDs found damaged and repaired.
    pub repaired: u64,
    /// Scrubs that came to their end, and what they found where something was to be found.
    pub scrubs: u64,
    pub scrub_errors: u64,
    /// Requests of clients on the blocklist.
    pub refused: u64,
    /// Locks that somebody else held.
    pub locks_busy: u64,
    /// Notifications that watchers answered, those that timed out, and watches that ended so.
    pub notifies_answered: u64,
    pub notifies_late: u64,
    pub watches_lost: u64,
}

impl Coverage {
    /// What clients were told.
    pub fn note(&mut self, history: &History) {
        self.refused = fence::refused(history);
        let busy = Outcome::Refused(Errno::EBUSY);
        let returned = history.operations.iter().filter_map(|op| op.returned.as_ref());
        self.locks_busy = returned.filter(|(_, outcome)| *outcome == busy).count() as u64;
        let completed = || history.notifies.iter().filter_map(|notify| notify.completed.as_ref());
        self.notifies_answered = completed().filter(|done| !done.replies.is_empty()).count() as u64;
        self.notifies_late = completed().filter(|done| !done.missed.is_empty()).count() as u64;
        self.watches_lost = history.watches.iter().filter(|watch| watch.lost.is_some()).count() as u64;
    }

    pub fn add(&mut self, other: Coverage) {
        self.duplicates += other.duplicates;
        self.backfilled_ranges += other.backfilled_ranges;
        self.shared_bytes += other.shared_bytes;
        self.checkpoints += other.checkpoints;
        self.pending += other.pending;
        self.mended += other.mended;
        self.damaged += other.damaged;
        self.repaired += other.repaired;
        self.scrubs += other.scrubs;
        self.scrub_errors += other.scrub_errors;
        self.refused += other.refused;
        self.locks_busy += other.locks_busy;
        self.notifies_answered += other.notifies_answered;
        self.notifies_late += other.notifies_late;
        self.watches_lost += other.watches_lost;
    }
}

pub struct SimCluster {
    pub world: World<SimNode>,
    pub plan: ClusterPlan,
    pub history: SharedHistory,
    pub coverage: Coverage,
    /// The OSD whose device has lost data that nobody may have missed yet.
    damaged: Option<usize>,
    /// Errors that scrubs found before any device had lost anything.
    false_errors: u64,
    mon: NodeId,
    osds: Vec<NodeId>,
    clients: Vec<NodeId>,
    /// The life that each of the clients has now: an index of the history's addresses.
    lives: Vec<usize>,
    operator: NodeId,
    /// What a monitor that was killed left behind.
    map_store: Option<MemMapStore>,
    /// Tells the lives of one daemon apart.
    next_nonce: u32,
}

impl SimCluster {
    /// All machines are there, the devices formatted, nothing runs.
    pub fn new(seed: u64, plan: ClusterPlan) -> SimCluster {
        let mut world = World::new(seed);
        let mon = world.add_machine("mon.a", None);
        let osds: Vec<NodeId> = (0..plan.osds)
            .map(|i| world.add_machine(&format!("osd.{i}"), Some(SimDisk::new(plan.device_len))))
            .collect();
        let clients: Vec<NodeId> =
            (0..plan.clients).map(|i| world.add_machine(&format!("client.{i}"), None)).collect();
        let operator = world.add_machine("operator", None);
        for (i, id) in osds.iter().enumerate() {
            let uuid = Uuid([i as u8 + 1; 16]);
            let identity = Identity { fsid: FSID, osd: OsdId(i as i32), uuid };
            let disk = world.disk_mut(*id).expect("OSDs have devices");
            offline::format(disk, identity, plan.store_options());
        }
        let history = Rc::new(RefCell::new(History::default()));
        let coverage = Coverage::default();
        SimCluster {
            world,
            plan,
            history,
            coverage,
            damaged: None,
            false_errors: 0,
            mon,
            osds,
            lives: vec![0; clients.len()],
            clients,
            operator,
            map_store: None,
            next_nonce: 1,
        }
    }

    pub fn start_everything(&mut self) {
        self.start_mon();
        for osd in 0..self.osds.len() {
            self.start_osd(osd);
        }
        let operator = self.operator;
        let node = self.client_node("admin", "operator", Operator::default());
        self.world.start(operator, SimNode::Operator(Box::new(node)), &[]);
    }

    fn client_node<W: daemon::Workload>(&mut self, auth: &str, host: &str, workload: W) -> ClientNode<W> {
        let mons = vec![self.mon_addr()];
        ClientNode::new(mons, auth, self.nonce(), host, workload)
    }

    fn nonce(&mut self) -> u32 {
        self.next_nonce += 1;
        self.next_nonce
    }

    fn mon_addr(&self) -> EntityAddr {
        EntityAddr::msgr2(SocketAddr::new(self.world.ip(self.mon), MON_PORT), 0)
    }

    // ---- the monitor ----

    pub fn start_mon(&mut self) {
        if self.world.is_running(self.mon) {
            return;
        }
        let addrs = EntityAddrVec::one(self.mon_addr());
        let mon = match self.map_store.take() {
            Some(store) => Mon::open(store),
            None => Mon::create(MemMapStore::default(), &self.mkfs(addrs.clone())),
        };
        let mon = mon.expect("a map store that the monitor wrote itself");
        let node = MonNode::new(mon, 0, addrs);
        let listen = SocketAddr::new(self.world.ip(self.mon), MON_PORT);
        self.world.start(self.mon, SimNode::Mon(Box::new(node)), &[listen]);
    }

    fn mkfs(&self, addrs: EntityAddrVec) -> MkfsOptions {
        let mut options = MkfsOptions::new(FSID, "a", addrs, WallTime { sec: 1_700_000_000, nsec: 0 });
        options.failure_domain = FailureDomain::Osd;
        options.pool_size = self.plan.pool_size;
        options.pool_min_size = self.plan.min_size;
        options.config.insert("osd_heartbeat_grace".into(), self.plan.grace_s.to_string());
        options
    }

    pub fn kill_mon(&mut self, power_cut: bool) {
        if let Some(SimNode::Mon(node)) = self.world.kill(self.mon, power_cut) {
            self.map_store = Some(node.into_mon().store().clone());
        }
    }

    // ---- OSDs ----

    pub fn start_osd(&mut self, osd: usize) {
        let id = self.osds[osd];
        if self.world.is_running(id) {
            return;
        }
        let ip = self.world.ip(id);
        let nonce = self.nonce();
        let addrs = |port| EntityAddrVec::one(EntityAddr::msgr2(SocketAddr::new(ip, port), nonce));
        let whoami = OsdId(osd as i32);
        let mut config = OsdConfig::new(FSID, whoami, Uuid::ZERO);
        config.client_addrs = addrs(CLIENT_PORT);
        config.cluster_addrs = addrs(CLUSTER_PORT);
        config.hb_addrs = addrs(CLUSTER_PORT);
        config.metadata.insert("hostname".into(), format!("host-{osd}"));
        config.version = "16.2.15".into();
        let plan = &self.plan;
        config.log_entries_max = plan.log_entries_max;
        config.log_dups_max = plan.log_dups_max;
        config.log_trim_batch = plan.log_trim_batch;
        config.recovery_ops_max = plan.recovery_ops_max;
        config.recovery_chunk_len = plan.recovery_chunk_len;
        if let Some(interval) = plan.scrubs {
            config.scrub_interval = interval;
            config.deep_scrub_interval = interval * 2;
            config.scrub_look_interval = interval / 4;
        }
        config.sabotage = plan.sabotage;
        let options = plan.store_options();
        let info = self.world.disk_mut(id).expect("OSDs have devices").info();
        let engine = Engine::open(info, Some((FSID, whoami)), options);
        let store = PendingStore::new(engine, plan.pending_percent, u64::from(nonce));
        let node = OsdNode::new(config, store, vec![self.mon_addr()]);
        let listen = [CLIENT_PORT, CLUSTER_PORT].map(|port| SocketAddr::new(ip, port));
        self.world.start(id, SimNode::Osd(Box::new(node)), &listen);
        debug!(osd, "started");
    }

    pub fn kill_osd(&mut self, osd: usize, power_cut: bool) {
        let Some(SimNode::Osd(node)) = self.world.kill(self.osds[osd], power_cut) else { return };
        if let Some(osd) = node.osd() {
            let counters = osd.counters();
            self.coverage.duplicates += counters.duplicates;
            self.coverage.backfilled_ranges += counters.backfilled_ranges;
            self.coverage.shared_bytes += counters.recovery_bytes_shared;
            self.coverage.pending += osd.store().answered_pending();
            self.coverage.mended += osd.store().stats().mended_units;
            self.coverage.repaired += counters.repaired;
            self.coverage.scrubs += counters.scrubs;
            match self.coverage.damaged {
                0 => self.false_errors += counters.scrub_errors,
                _ => self.coverage.scrub_errors += counters.scrub_errors,
            }
        }
    }

    /// Until a device loses something, scrubs find nothing.
    pub fn false_errors(&self) -> u64 {
        let cores = self.osds.iter().filter_map(|id| self.core(*id));
        let now =
            if self.coverage.damaged == 0 { cores.map(|osd| osd.counters().scrub_errors).sum() } else { 0 };
        self.false_errors + now
    }

    fn core(&self, id: NodeId) -> Option<&osd::Osd<PendingStore<Engine>>> {
        match self.world.node(id) {
            Some(SimNode::Osd(node)) => node.osd(),
            _ => None,
        }
    }

    /// When each PG was last scrubbed deeply, as its primary knows.
    pub fn deep_scrubs(&self) -> BTreeMap<PgId, WallTime> {
        let cores = self.osds.iter().filter_map(|id| self.core(*id));
        let led = cores.flat_map(|osd| {
            let led = osd.pg_states(Time::MAX).into_iter().filter(|(_, state)| *state != 0);
            led.filter_map(|(id, _)| Some((id, osd.pg(id)?.info.history.scrub.last_deep_stamp)))
        });
        led.collect()
    }

    /// Flips a bit in the data of about every second object of one OSD, stopped
    /// for that, and starts it again. Only ever done to one OSD in a run, when
    /// all copies of everything are there: never are all copies of an object damaged.
    pub fn damage_osd(&mut self, osd: usize, random: &mut Random) -> Result<(), String> {
        self.kill_osd(osd, false);
        self.damaged = Some(osd);
        let options = self.plan.store_options();
        let disk = self.world.disk_mut(self.osds[osd]).expect("OSDs have devices");
        let places = offline::data_places(disk, options)?;
        for at in places {
            if random.chance(1, 2) {
                disk.flip_bit_at(at, random);
                self.coverage.damaged += 1;
            }
        }
        self.start_osd(osd);
        Ok(())
    }

    /// The same OSD loses some objects altogether, which only a scrub finds.
    pub fn lose_objects(&mut self, random: &mut Random) -> Result<(), String> {
        let Some(osd) = self.damaged else { return Ok(()) };
        self.kill_osd(osd, false);
        let options = self.plan.store_options();
        let disk = self.world.disk_mut(self.osds[osd]).expect("OSDs have devices");
        self.coverage.damaged += offline::lose(disk, options, random)?;
        self.start_osd(osd);
        Ok(())
    }

    /// Scrubs have found everything: from now on nothing may be damaged.
    pub fn expect_no_damage(&mut self) {
        self.damaged = None;
    }

    /// What a stopped OSD's device holds.
    pub fn content_of(&mut self, osd: usize) -> Result<BTreeMap<PgId, PgContent>, String> {
        let options = self.plan.store_options();
        let disk = self.world.disk_mut(self.osds[osd]).expect("OSDs have devices");
        let (content, checkpoints) = replicas::content(disk, options, self.damaged == Some(osd))?;
        self.coverage.checkpoints += checkpoints;
        Ok(content)
    }

    pub fn osd_id(&self, osd: usize) -> NodeId {
        self.osds[osd]
    }

    /// All machines but this one.
    pub fn others(&self, than: NodeId) -> Vec<NodeId> {
        self.machines().filter(|id| *id != than).collect()
    }

    fn machines(&self) -> impl Iterator<Item = NodeId> {
        let all = [self.mon, self.operator].into_iter();
        all.chain(self.osds.iter().copied()).chain(self.clients.iter().copied())
    }

    /// The directed pairs of machines that a split keeps apart. Clients are on
    /// a side by `side`, and so is everyone else unless an OSD is to be alone.
    /// The operator stands beside the monitor.
    pub fn split(&self, side: u64, lonely: Option<usize>) -> Vec<(NodeId, NodeId)> {
        let side_of = |id: NodeId| {
            let id = if id == self.operator { self.mon } else { id };
            match lonely {
                Some(osd) if !self.clients.contains(&id) => id == self.osds[osd],
                _ => side >> id.0 & 1 == 1,
            }
        };
        let machines: Vec<NodeId> = self.machines().collect();
        let pairs = machines.iter().flat_map(|a| machines.iter().map(move |b| (*a, *b)));
        pairs.filter(|(a, b)| side_of(*a) != side_of(*b)).collect()
    }

    /// Daemons that ended by themselves, which none should.
    pub fn ended_by_themselves(&self) -> Vec<String> {
        self.machines()
            .filter_map(|id| {
                let status = self.world.exit_status(id)?;
                Some(format!("{} ended with status {status}", self.world.name(id)))
            })
            .collect()
    }

    /// Each OSD's own view of its PGs, for the story of a stuck run.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for id in &self.osds {
            let name = self.world.name(*id);
            let Some(SimNode::Osd(node)) = self.world.node(*id) else {
                lines.push(format!("{name}: not running"));
                continue;
            };
            let Some(osd) = node.osd() else {
                lines.push(format!("{name}: its store is opening"));
                continue;
            };
            lines.push(format!("{name}: epoch {}, up: {}", osd.epoch(), osd.is_up()));
            for (pg, state) in osd.pg_states(Time::MAX) {
                lines.push(format!("  {pg} {}", wire::messages::pg_state::text(state)));
            }
        }
        lines
    }

    // ---- the operator ----

    pub fn operator(&self) -> &ClientNode<Operator> {
        match self.world.node(self.operator) {
            Some(SimNode::Operator(node)) => node,
            _ => unreachable!("the operator runs until the end"),
        }
    }

    pub fn ask(&mut self, json: String) {
        self.world.poke(self.operator, |node| {
            if let SimNode::Operator(node) = node {
                node.workload_mut().ask(json);
            }
        });
    }

    /// Where a PG is, as the newest map that the operator knows says.
    pub fn target(&self, pg: PgId) -> Option<Target> {
        let mut request = ObjectRequest::new(pg.pool, "", vec![]);
        request.pg = Some(pg);
        self.operator().client().target(&request)
    }
}
