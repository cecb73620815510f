//! Several OSD cores, a toy monitor and a toy client, wired in memory.
//!
//! Events happen in an order that one seed decides: messages take random time,
//! are ordered within a connection and lost with it; commits take random time;
//! a crash loses what was not committed. The monitor is a stand-in with the
//! rules that the OSD relies on, nothing more.

use base::{Duration, Random, Time, WallTime};
use bytes::Bytes;
use crush::CrushMap;
use crush::FailureDomain;
use crush::placement::pg_to_up_acting;
use osd::{Action, Channel, Ctx, DownReason, Osd, OsdConfig};
use std::collections::{BTreeMap, BTreeSet};
use store::{FetchId, MemStore, PendingStore};
use wire::maps::{OsdMap, OsdMapIncremental, OsdState, OsdXInfo, PgPool, PoolFlags, placement_hash};
use wire::messages::osd_op::{ExtentArgs, OpCode, flags};
use wire::messages::*;
use wire::types::*;
use wire::{Encode, Features};

pub const POOL: PoolId = PoolId(1);
pub const MON_DELAY: Duration = Duration::from_millis(5);

enum Event {
    Peer { from: usize, to: usize, generation: u64, channel: Channel, kind: u16, body: Bytes },
    LinkUp { from: usize, to: usize, generation: u64 },
    LinkDown { from: usize, to: usize, generation: u64, reason: DownReason },
    ToMon { osd: usize, life: u64, message: Outgoing },
    FromMon { osd: usize, life: u64, maps: MOsdMap },
    MonCommit,
    ToOsd { osd: usize, life: u64, message: Outgoing },
    Reply { life: u64, osd: usize, client: usize, message: Outgoing },
    ClientMap { epoch: Epoch },
    Store { osd: usize, life: u64 },
    Loaded { osd: usize, life: u64, load: FetchId },
    Wake { osd: usize, life: u64 },
}

pub struct Node {
    pub osd: Osd<PendingStore<MemStore>>,
    pub life: u64,
    started: Time,
    woken_at: Time,
    store_pending: bool,
}

#[derive(Clone)]
struct Link {
    generation: u64,
    up: bool,
    last_delivery: Time,
}

pub struct Mon {
    pub map: OsdMap,
    pub crush: CrushMap,
    incrementals: BTreeMap<Epoch, Bytes>,
    maps: BTreeMap<Epoch, OsdMap>,
    pending: OsdMapIncremental,
    commit_scheduled: bool,
    pub reports: BTreeMap<PgId, PgReport>,
    /// The cluster log.
    pub log: Vec<String>,
    /// Failure reports are ignored.
    pub deaf: bool,
}

pub struct PendingOp {
    pub op: MOsdOp,
    attempts: i32,
    target: Option<(usize, u64)>,
    sent: Time,
}

#[derive(Default)]
pub struct Client {
    pub epoch: Epoch,
    next_tid: u64,
    pub pending: BTreeMap<u64, PendingOp>,
    pub replies: BTreeMap<u64, (Time, MOsdOpReply)>,
    sessions: BTreeSet<(usize, u64)>,
    /// Does not follow new maps: keeps talking to whom it knew.
    pub frozen: bool,
    /// OSD, its life, PG.
    pub backoffs: BTreeSet<(usize, u64, PgId)>,
    /// Of watches and notifications, oldest first.
    pub told: Vec<MWatchNotify>,
}

pub struct World {
    pub now: Time,
    pub random: Random,
    events: BTreeMap<(Time, u64), Event>,
    seq: u64,
    pub nodes: Vec<Option<Node>>,
    stores: Vec<Option<MemStore>>,
    links: BTreeMap<(usize, usize), Link>,
    /// No message passes between these, nor between one and the monitor (usize::MAX).
    pub cut: BTreeSet<(usize, usize)>,
    pub mon: Mon,
    pub clients: Vec<Client>,
    fsid: Uuid,
    next_life: u64,
    pub tweak: fn(&mut OsdConfig),
    /// Of a hundred pieces of metadata, so many must be loaded first.
    pub pending_percent: u64,
    pub fatal: Vec<String>,
    /// A device has lost something: scrubs may find errors.
    pub is_damaged: bool,
    /// Of the messages between OSDs, in bytes.
    pub longest_message: usize,
    order: BTreeMap<(u8, usize, u64), Time>,
}

pub const MON: usize = usize::MAX;

impl World {
    pub fn new(seed: u64, osds: usize, size: u8, min_size: u8, pgs: u32) -> World {
        World::tweaked(seed, osds, size, min_size, pgs, |_| {})
    }

    pub fn tweaked(
        seed: u64,
        osds: usize,
        size: u8,
        min_size: u8,
        pgs: u32,
        tweak: fn(&mut OsdConfig),
    ) -> World {
        let fsid = Uuid::from_random(1, 2);
        let mut crush = CrushMap::new_cluster(FailureDomain::Osd);
        for osd in 0..osds {
            crush.boot_device(osd as i32, 0x10000, None, "host").unwrap();
        }
        let mut map = OsdMap { fsid, epoch: Epoch(1), crush: crush.encode(), ..OsdMap::default() };
        map.set_max_osd(osds as i32);
        for osd in 0..osds {
            map.osd_state[osd] = OsdState::EXISTS;
            map.osd_weight[osd] = OsdMap::WEIGHT_IN;
        }
        let mut world = World {
            now: Time(1_000_000_000),
            random: Random::from_seed(seed),
            events: BTreeMap::new(),
            seq: 0,
            nodes: (0..osds).map(|_| None).collect(),
            stores: (0..osds).map(|_| Some(MemStore::new())).collect(),
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            mon: Mon {
                pending: OsdMapIncremental::new(fsid, Epoch(2)),
                maps: [(Epoch(1), map.clone())].into(),
                map,
                crush,
                incrementals: BTreeMap::new(),
                commit_scheduled: false,
                reports: BTreeMap::new(),
                log: Vec::new(),
                deaf: false,
            },
            clients: vec![Client::default()],
            fsid,
            next_life: 1,
            tweak,
            pending_percent: 0,
            fatal: Vec::new(),
            is_damaged: false,
            longest_message: 0,
            order: BTreeMap::new(),
        };
        for osd in 0..osds {
            world.start(osd);
        }
        world.run_for(Duration::from_millis(300));
        let mut pool = PgPool { size, min_size, flags: PoolFlags::HASHPSPOOL, ..PgPool::default() };
        pool.set_pg_num(pgs);
        world.change_map(|inc| {
            inc.new_pools.insert(POOL, pool);
            inc.new_pool_names.insert(POOL, "p".into());
            inc.new_pool_max = 1;
        });
        world
    }

    // The outside.

    pub fn start(&mut self, osd: usize) {
        assert!(self.nodes[osd].is_none());
        let life = self.next_life;
        self.next_life += 1;
        let mut store = self.stores[osd].take().expect("a store that is not in use");
        store.hold_commits();
        let mut config = OsdConfig::new(self.fsid, OsdId(osd as i32), Uuid::from_random(7, osd as u64));
        let addr = |port: u16| {
            let socket = format!("10.0.0.{}:{port}", osd + 1).parse().unwrap();
            EntityAddrVec::one(EntityAddr::msgr2(socket, life as u32))
        };
        config.client_addrs = addr(6800);
        config.cluster_addrs = addr(6801);
        config.hb_addrs = addr(6802);
        (self.tweak)(&mut config);
        let node = Node {
            osd: Osd::new(config, PendingStore::new(store, self.pending_percent, life)),
            life,
            started: self.now,
            woken_at: Time::MAX,
            store_pending: false,
        };
        self.nodes[osd] = Some(node);
        self.with(osd, |o, ctx| o.start(ctx).expect("loads"));
        self.with(osd, |o, ctx| o.on_mon_open(ctx));
    }

    /// From now on, of a hundred pieces of metadata so many must be loaded first.
    pub fn make_metadata_absent(&mut self, percent: u64) {
        self.pending_percent = percent;
        for node in self.nodes.iter_mut().flatten() {
            node.osd.store_mut().set_percent(percent);
        }
    }

    /// Power cut: what is not committed is lost, connections refuse.
    pub fn kill(&mut self, osd: usize) {
        let Some(mut node) = self.nodes[osd].take() else { return };
        let mut store = std::mem::take(node.osd.store_mut().inner_mut());
        store.crash();
        self.stores[osd] = Some(store);
        let links: Vec<(usize, usize)> =
            self.links.iter().filter(|(k, l)| (k.0 == osd || k.1 == osd) && l.up).map(|(k, _)| *k).collect();
        for (from, to) in links {
            let link = self.links.get_mut(&(from, to)).unwrap();
            link.up = false;
            let generation = link.generation;
            link.generation += 1;
            if to == osd {
                let event = Event::LinkDown { from, to, generation, reason: DownReason::Lost };
                self.after(Duration::from_micros(200), event);
            }
        }
        for client in &mut self.clients {
            client.sessions.retain(|(o, _)| *o != osd);
        }
    }

    /// The power goes, and comes back.
    pub fn kill_all(&mut self) {
        for osd in 0..self.nodes.len() {
            if self.nodes[osd].is_some() {
                self.kill(osd);
                self.start(osd);
            }
        }
    }

    /// Every PG is complete on OSDs other than this one: its data may be lost
    /// without loss.
    pub fn all_clean_without(&self, osd: usize) -> bool {
        let Some(pool) = self.mon.map.pool(POOL) else { return false };
        let others = self.nodes.iter().enumerate().filter(|(i, n)| *i != osd && n.is_some());
        let mut good = 0;
        for (i, node) in others {
            let Some(node) = node else { continue };
            for (pg, state) in node.osd.pg_states(self.local(i)) {
                let up_to_date = node.osd.epoch() == self.mon.map.epoch;
                let recovered = node.osd.pg(pg).is_some_and(|p| p.is_recovered());
                if state & pg_state::ACTIVE != 0 && up_to_date && recovered {
                    good += 1;
                }
            }
        }
        good == pool.pg_num
    }

    /// Replaces the data of an OSD that is down by nothing.
    pub fn wipe(&mut self, osd: usize) {
        assert!(self.nodes[osd].is_none());
        self.stores[osd] = Some(MemStore::new());
    }

    pub fn cut(&mut self, a: usize, b: usize) {
        self.cut.insert((a.min(b), a.max(b)));
    }

    pub fn heal(&mut self) {
        self.cut.clear();
        for client in &mut self.clients {
            client.frozen = false;
        }
        self.publish_all();
    }

    fn is_cut(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    pub fn change_map(&mut self, change: impl FnOnce(&mut OsdMapIncremental)) {
        change(&mut self.mon.pending);
        self.schedule_commit();
    }

    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(((at, _), _)) = self.events.first_key_value() {
            if *at > until {
                break;
            }
            self.step();
        }
        self.now = until;
    }

    /// Runs until the claim holds; panics after `limit`.
    #[track_caller]
    pub fn run_until(&mut self, what: &str, limit: Duration, claim: impl Fn(&World) -> bool) {
        let until = self.now + limit;
        while !claim(self) {
            assert!(self.now < until, "not in time: {what}\n{}", self.describe());
            if self.events.is_empty() {
                self.now = until;
                continue;
            }
            self.step();
        }
    }

    pub fn describe(&self) -> String {
        let mut text = format!("now {:?} epoch {:?}\n", self.now, self.mon.map.epoch);
        for (i, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else {
                text += &format!("osd.{i} dead\n");
                continue;
            };
            text += &format!("osd.{i} up {} epoch {}\n", node.osd.is_up(), node.osd.epoch());
            for (pg, state) in node.osd.pg_states(self.local(i)) {
                let phase = node
                    .osd
                    .pg(pg)
                    .map(|p| (p.phase.clone(), p.interval(), p.placement.clone(), p.last_update()));
                text += &format!("   {pg} {} {phase:?}\n", pg_state::text(state));
            }
        }
        for (i, c) in self.clients.iter().enumerate() {
            for (tid, p) in &c.pending {
                text += &format!(
                    "client {i} tid {tid} {} {:?} attempts {} to {:?}\n",
                    p.op.object, p.op.pg, p.attempts, p.target
                );
            }
        }
        text
    }

    pub fn all_clean(&self) -> bool {
        let Some(pool) = self.mon.map.pool(POOL) else { return false };
        let mut clean = 0;
        for (osd, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            for (_, state) in node.osd.pg_states(self.local(osd)) {
                let scrub = pg_state::SCRUBBING | pg_state::DEEP | pg_state::REPAIR;
                if state & !scrub == pg_state::ACTIVE | pg_state::CLEAN {
                    clean += 1;
                } else if state != 0 {
                    return false;
                }
            }
        }
        clean == pool.pg_num
    }

    #[track_caller]
    pub fn settle(&mut self) {
        self.run_until("all PGs active+clean", Duration::from_secs(60), World::all_clean);
    }

    // Events.

    fn after(&mut self, delay: Duration, event: Event) {
        self.seq += 1;
        self.events.insert((self.now + delay, self.seq), event);
    }

    /// In order within one stream.
    fn after_in_order(&mut self, stream: (u8, usize, u64), delay: Duration, event: Event) {
        let at = (self.now + delay)
            .max(self.order.get(&stream).copied().unwrap_or(Time::ZERO) + Duration::from_nanos(1));
        self.order.insert(stream, at);
        self.seq += 1;
        self.events.insert((at, self.seq), event);
    }

    fn delay(&mut self) -> Duration {
        Duration::from_micros(50 + self.random.below(300))
    }

    pub fn step(&mut self) {
        let Some(((at, _), event)) = self.events.pop_first() else { return };
        self.now = self.now.max(at);
        match event {
            Event::Peer { from, to, generation, channel, kind, body } => {
                let current = self.links.get(&(from, to)).is_some_and(|l| l.generation == generation && l.up);
                if current && self.is_cut(from, to) {
                    // What is lost takes its connection along.
                    let link = self.links.get_mut(&(from, to)).unwrap();
                    link.up = false;
                    link.generation += 1;
                    let event = Event::LinkDown { from, to, generation, reason: DownReason::Lost };
                    self.after(Duration::from_millis(20), event);
                } else if current {
                    self.with(to, |o, ctx| o.on_peer_message(ctx, OsdId(from as i32), channel, kind, body));
                }
            }
            Event::LinkUp { from, to, generation } => {
                let Some(link) = self.links.get_mut(&(from, to)) else { return };
                if link.generation != generation {
                    return;
                }
                if self.nodes[to].is_none() {
                    return self
                        .with(from, |o, ctx| o.on_peer_down(ctx, OsdId(to as i32), DownReason::Refused));
                }
                if self.is_cut(from, to) {
                    return self.with(from, |o, ctx| o.on_peer_down(ctx, OsdId(to as i32), DownReason::Lost));
                }
                self.links.get_mut(&(from, to)).unwrap().up = true;
                self.with(from, |o, ctx| o.on_peer_up(ctx, OsdId(to as i32)));
            }
            Event::LinkDown { from, to, generation, reason } => {
                if self.links.get(&(from, to)).is_some_and(|l| l.generation == generation + 1) {
                    self.with(from, |o, ctx| o.on_peer_down(ctx, OsdId(to as i32), reason));
                }
            }
            Event::ToMon { osd, life, message } => {
                if self.life(osd) == Some(life) && !self.is_cut(osd, MON) {
                    self.on_mon(osd, message);
                }
            }
            Event::FromMon { osd, life, maps } => {
                if self.life(osd) == Some(life) && !self.is_cut(osd, MON) {
                    // Sent before it had loaded what it knows: it asks from there by now.
                    let knows = self.nodes[osd].as_ref().is_some_and(|n| n.osd.epoch().0 > 0);
                    if knows && !maps.fulls.is_empty() {
                        return self.publish(osd, true);
                    }
                    let out = Outgoing::new(&maps, 0, Features::PACIFIC);
                    self.with(osd, |o, ctx| o.on_mon_message(ctx, incoming(out)));
                }
            }
            Event::MonCommit => self.mon_commit(),
            Event::ToOsd { osd, life, message } => {
                if self.life(osd) == Some(life) {
                    let tid = message.tid;
                    let client = (tid >> 32) as usize;
                    let session = SessionId(client as u64);
                    if self.clients[client].sessions.insert((osd, life)) {
                        let peer = Peer {
                            name: EntityName::client(client as i64 + 100),
                            auth_id: "admin".into(),
                            global_id: GlobalId(client as u64 + 100),
                            addr: client_addr(client),
                            features: Features::PACIFIC,
                        };
                        self.with(osd, |o, ctx| o.on_client_open(ctx, session, peer));
                    }
                    self.with(osd, |o, ctx| o.on_client_message(ctx, session, incoming(message)));
                }
            }
            Event::Reply { osd, life, client, message } => {
                if self.life(osd) == Some(life) && message.kind == MOsdBackoff::KIND {
                    self.on_backoff(osd, life, client, message);
                } else if self.life(osd) == Some(life) && message.kind == MWatchNotify::KIND {
                    let told = incoming(message).decode(Features::PACIFIC).unwrap();
                    self.clients[client].told.push(told);
                } else if self.life(osd) == Some(life) {
                    self.on_reply(message);
                }
            }
            Event::ClientMap { epoch } => {
                for client in 0..self.clients.len() {
                    if !self.clients[client].frozen && self.clients[client].epoch < epoch {
                        self.clients[client].epoch = epoch;
                        self.retarget(client);
                    }
                }
            }
            Event::Store { osd, life } => {
                if self.life(osd) != Some(life) {
                    return;
                }
                let node = self.nodes[osd].as_mut().unwrap();
                node.store_pending = false;
                let count = node.osd.store().inner().held_count();
                let some = 1 + self.random.below(count.max(1) as u64) as usize;
                let node = self.nodes[osd].as_mut().unwrap();
                node.osd.store_mut().inner_mut().commit_held(some);
                self.with(osd, |o, ctx| o.on_store_events(ctx));
            }
            Event::Loaded { osd, life, load } => {
                if self.life(osd) == Some(life) {
                    self.nodes[osd].as_mut().unwrap().osd.store_mut().finish_load(load);
                    self.with(osd, |o, ctx| o.on_store_events(ctx));
                }
            }
            Event::Wake { osd, life } => {
                if self.life(osd) == Some(life) {
                    self.nodes[osd].as_mut().unwrap().woken_at = Time::MAX;
                    self.with(osd, |o, ctx| o.on_tick(ctx));
                }
            }
        }
    }

    /// The OSD's own clock: clocks of different processes have nothing in common.
    pub fn local(&self, osd: usize) -> Time {
        let started = self.nodes[osd].as_ref().map_or(Time::ZERO, |n| n.started);
        Time(self.now.0 - started.0 + 5_000_000_000 * (osd as u64 + 1))
    }

    pub fn life(&self, osd: usize) -> Option<u64> {
        self.nodes[osd].as_ref().map(|n| n.life)
    }

    /// One call into a core, and everything that comes out of it.
    pub fn with(&mut self, osd: usize, call: impl FnOnce(&mut Osd<PendingStore<MemStore>>, &mut Ctx<'_>)) {
        let local = self.local(osd);
        let Some(node) = &mut self.nodes[osd] else { return };
        let mut ctx = Ctx {
            now: local,
            wall: WallTime::from_duration(Duration::from_nanos(self.now.0)),
            random: &mut self.random,
        };
        call(&mut node.osd, &mut ctx);
        // Reads answer at once, but through the queue like everything else.
        node.osd.on_store_events(&mut ctx);
        let errors = node.osd.counters().scrub_errors;
        assert!(errors == 0 || self.is_damaged, "osd.{osd}: a scrub found {errors} errors that are none");
        let life = node.life;
        node.osd.store_mut().end_turn();
        let loads: Vec<FetchId> = std::iter::from_fn(|| node.osd.store_mut().poll_load()).collect();
        let mut actions = Vec::new();
        while let Some(action) = node.osd.poll_action() {
            actions.push(action);
        }
        let wake = node.osd.next_wake();
        let skew = 5_000_000_000 * (osd as u64 + 1);
        let wake_at = Time((wake.0.saturating_sub(skew)).saturating_add(node.started.0))
            .max(self.now + Duration::from_micros(10));
        let schedule_wake = wake_at < node.woken_at;
        if schedule_wake {
            node.woken_at = wake_at;
        }
        let schedule_store = node.osd.store().inner().held_count() > 0 && !node.store_pending;
        if schedule_store {
            node.store_pending = true;
        }
        if schedule_wake {
            self.seq += 1;
            self.events.insert((wake_at, self.seq), Event::Wake { osd, life });
        }
        if schedule_store {
            let delay = Duration::from_micros(50 + self.random.below(500));
            self.after(delay, Event::Store { osd, life });
        }
        for load in loads {
            let delay = Duration::from_micros(50 + self.random.below(500));
            self.after(delay, Event::Loaded { osd, life, load });
        }
        for action in actions {
            self.act(osd, life, action);
        }
    }

    fn act(&mut self, osd: usize, life: u64, action: Action) {
        let delay = self.delay();
        match action {
            Action::SendClient { session, message } => {
                let client = session.0 as usize;
                self.after_in_order((0, osd, session.0), delay, Event::Reply { life, osd, client, message });
            }
            Action::SendMon(message) => {
                self.after_in_order((1, osd, life), delay, Event::ToMon { osd, life, message });
            }
            Action::SendPeer { osd: to, channel, kind, body } => {
                let to = to.0 as usize;
                let Some(link) = self.links.get_mut(&(osd, to)).filter(|l| l.up) else { return };
                let at = (self.now + delay).max(link.last_delivery + Duration::from_nanos(1));
                if channel == Channel::Data {
                    link.last_delivery = at;
                }
                let generation = link.generation;
                self.seq += 1;
                let body = Bytes::from(body.concat());
                self.longest_message = self.longest_message.max(body.len());
                self.events
                    .insert((at, self.seq), Event::Peer { from: osd, to, generation, channel, kind, body });
            }
            Action::ConnectPeer { osd: to, addrs } => {
                let to = to.0 as usize;
                let link = self.links.entry((osd, to)).or_insert(Link {
                    generation: 0,
                    up: false,
                    last_delivery: Time::ZERO,
                });
                link.generation += 1;
                link.up = false;
                let generation = link.generation;
                let alive = self.nodes[to].as_ref().is_some_and(|n| n.osd.config().cluster_addrs == addrs);
                if alive || self.is_cut(osd, to) {
                    self.after(delay * 2, Event::LinkUp { from: osd, to, generation });
                } else {
                    // Nobody there, or another life.
                    self.links.get_mut(&(osd, to)).unwrap().generation += 1;
                    self.after(
                        delay * 2,
                        Event::LinkDown { from: osd, to, generation, reason: DownReason::Refused },
                    );
                }
            }
            Action::DisconnectPeer { osd: to } => {
                if let Some(link) = self.links.get_mut(&(osd, to.0 as usize)) {
                    link.up = false;
                    link.generation += 1;
                }
            }
            Action::CloseSession { reason, .. } => panic!("session closed: {reason}"),
            Action::Fatal(reason) => {
                self.fatal.push(format!("osd.{osd}: {reason}"));
                panic!("osd.{osd}: {reason}");
            }
        }
    }

    // The monitor.

    fn on_mon(&mut self, osd: usize, message: Outgoing) {
        let kind = message.kind;
        let message = incoming(message);
        let features = Features::PACIFIC;
        let id = OsdId(osd as i32);
        if kind == MMonSubscribe::KIND {
            self.publish(osd, true);
        } else if kind == MLog::KIND {
            let log: MLog = message.decode(features).unwrap();
            self.mon.log.extend(log.entries.into_iter().map(|entry| entry.text));
        } else if kind == MOsdBoot::KIND {
            let boot: MOsdBoot = message.decode(features).unwrap();
            if self.mon.map.client_addrs(id) == Some(&boot.client_addrs) && self.mon.map.is_up(id) {
                return;
            }
            if self.mon.map.is_up(id) {
                // The old life first; the OSD asks again.
                self.mon.pending.new_state.insert(id, OsdState::UP);
                self.mark_dead(id);
            } else if !self.mon.pending.new_state.contains_key(&id) {
                let inc = &mut self.mon.pending;
                inc.new_up_client.insert(id, boot.client_addrs);
                inc.new_up_cluster.insert(id, boot.cluster_addrs);
                inc.new_hb_back_up.insert(id, boot.hb_addrs.clone());
                inc.new_hb_front_up.insert(id, boot.hb_addrs);
            }
            self.schedule_commit();
        } else if kind == MOsdFailure::KIND {
            let failure: MOsdFailure = message.decode(features).unwrap();
            let current = self.mon.map.info(failure.failed).is_some_and(|i| i.up_from == failure.up_from);
            let reporter_up = self.mon.map.is_up(failure.reporter);
            if self.mon.deaf || !self.mon.map.is_up(failure.failed) || !current || !reporter_up {
                return;
            }
            match failure.kind {
                FailureKind::Recovered => {}
                FailureKind::Refused => {
                    self.mon.pending.new_state.insert(failure.failed, OsdState::UP);
                    self.mark_dead(failure.failed);
                    self.schedule_commit();
                }
                FailureKind::Silent { .. } => {
                    self.mon.pending.new_state.insert(failure.failed, OsdState::UP);
                    self.schedule_commit();
                }
            }
        } else if kind == MOsdAlive::KIND {
            let alive: MOsdAlive = message.decode(features).unwrap();
            if self.mon.map.is_up(id) && self.mon.map.info(id).is_some_and(|i| i.up_thru < alive.want) {
                let epoch = self.mon.map.epoch;
                self.mon.pending.new_up_thru.insert(id, epoch.max(alive.want));
                self.schedule_commit();
            }
        } else if kind == MOsdPgTemp::KIND {
            let temp: MOsdPgTemp = message.decode(features).unwrap();
            for (pg, acting) in temp.pgs {
                let current = self.mon.map.pg_temp.get(&pg).cloned().unwrap_or_default();
                if current != acting {
                    self.mon.pending.new_pg_temp.insert(pg, acting);
                    self.schedule_commit();
                }
            }
        } else if kind == MOsdReport::KIND {
            let report: MOsdReport = message.decode(features).unwrap();
            for pg in report.pgs {
                self.mon.reports.insert(pg.pg, pg);
            }
        }
    }

    /// This life of the OSD is certainly over.
    fn mark_dead(&mut self, osd: OsdId) {
        let xinfo = self.mon.map.xinfo(osd).copied().unwrap_or_default();
        let dead_epoch = self.mon.map.epoch;
        self.mon.pending.new_xinfo.insert(osd, OsdXInfo { dead_epoch, ..xinfo });
    }

    fn schedule_commit(&mut self) {
        if !self.mon.commit_scheduled {
            self.mon.commit_scheduled = true;
            self.after(MON_DELAY, Event::MonCommit);
        }
    }

    fn mon_commit(&mut self) {
        let mon = &mut self.mon;
        mon.commit_scheduled = false;
        let next_epoch = mon.map.epoch.next();
        let mut inc =
            std::mem::replace(&mut mon.pending, OsdMapIncremental::new(self.fsid, next_epoch.next()));
        // pg_temp of a PG goes when its members do, as the monitor's rule is.
        let next = mon.map.advanced(&inc).expect("valid incremental");
        let downed: Vec<OsdId> = inc.new_state.keys().copied().filter(|o| next.is_down(*o)).collect();
        for (pg, temp) in &mon.map.pg_temp {
            if !temp.iter().any(|o| next.is_up(*o)) && temp.iter().any(|o| downed.contains(o)) {
                inc.new_pg_temp.entry(*pg).or_default();
            }
        }
        let next = mon.map.advanced(&inc).expect("valid incremental");
        inc.full_crc = next.crc();
        if std::env::var("OSD_TRACE").is_ok() {
            println!(
                "{:?} epoch {} state {:?} temp {:?} thru {:?}",
                self.now, inc.epoch, inc.new_state, inc.new_pg_temp, inc.new_up_thru
            );
        }
        mon.incrementals.insert(inc.epoch, inc.to_bytes(Features::PACIFIC));
        mon.map = next.clone();
        mon.maps.insert(next.epoch, next);
        self.publish_all();
    }

    fn publish_all(&mut self) {
        for osd in 0..self.nodes.len() {
            self.publish(osd, false);
        }
        let delay = self.delay() * 4;
        let epoch = self.mon.map.epoch;
        self.after(delay, Event::ClientMap { epoch });
    }

    fn publish(&mut self, osd: usize, _all: bool) {
        let Some(node) = &self.nodes[osd] else { return };
        let (life, have) = (node.life, node.osd.epoch());
        let mut maps =
            MOsdMap { fsid: self.fsid, oldest: Epoch(1), newest: self.mon.map.epoch, ..MOsdMap::default() };
        if have.0 == 0 {
            // Only the newest, as a real monitor does.
            maps.fulls.insert(self.mon.map.epoch, self.mon.map.to_bytes(Features::PACIFIC));
        } else {
            maps.incrementals =
                self.mon.incrementals.range(have.next()..).map(|(e, b)| (*e, b.clone())).collect();
        }
        let delay = self.delay();
        self.after_in_order((2, osd, life), delay, Event::FromMon { osd, life, maps });
    }

    // The client.

    pub fn submit(&mut self, client: usize, object: &str, ops: Vec<OsdOp>) -> u64 {
        self.submit_at(client, object, ops, SnapId::HEAD, &[])
    }

    /// Of a snapshot, or under these snapshots, the newest first.
    pub fn submit_at(
        &mut self,
        client: usize,
        object: &str,
        ops: Vec<OsdOp>,
        snap: SnapId,
        under: &[SnapId],
    ) -> u64 {
        let write = ops.iter().any(|o| o.code.is_write());
        let locator = ObjectLocator::pool(POOL);
        let hash = placement_hash(&locator, object);
        let op = MOsdOp {
            pg: SpgId::replicated(PgId { pool: POOL, seed: 0 }),
            raw_hash: hash,
            epoch: Epoch(0),
            flags: if write { flags::WRITE } else { flags::READ } | flags::ONDISK,
            reqid: None,
            client_inc: 0,
            mtime: WallTime { sec: 1, nsec: 1 },
            locator,
            object: object.into(),
            ops,
            snap,
            snap_seq: under.first().copied().unwrap_or(SnapId(0)),
            snaps: under.to_vec(),
            retry_attempt: 0,
            features: 0,
        };
        let c = &mut self.clients[client];
        c.next_tid += 1;
        let tid = ((client as u64) << 32) | c.next_tid;
        if c.epoch.0 == 0 {
            c.epoch = self.mon.map.epoch;
        }
        c.pending.insert(tid, PendingOp { op, attempts: 0, target: None, sent: Time::ZERO });
        self.send_op(client, tid);
        tid
    }

    fn send_op(&mut self, client: usize, tid: u64) {
        let epoch = self.clients[client].epoch;
        let map = self.mon.maps[&epoch].clone();
        let delay = self.delay();
        let Some(pending) = self.clients[client].pending.get_mut(&tid) else { return };
        let Some(pool) = map.pool(POOL) else { return };
        pending.op.pg = SpgId::replicated(pool.raw_hash_to_pg(POOL, pending.op.raw_hash));
        pending.op.epoch = epoch;
        let pending_pg = pending.op.pg.pg;
        let primary = pg_to_up_acting(&map, &self.mon.crush, pending_pg).acting_primary;
        pending.op.retry_attempt = pending.attempts;
        pending.attempts += 1;
        pending.target = None;
        pending.sent = self.now;
        let Some(primary) = primary else { return };
        let osd = primary.0 as usize;
        let Some(node) = &self.nodes[osd] else { return };
        let life = node.life;
        // An old map means an old address.
        if map.client_addrs(primary) != Some(&node.osd.config().client_addrs) {
            return;
        }
        if self.clients[client].backoffs.contains(&(osd, life, pending_pg)) {
            return;
        }
        let Some(pending) = self.clients[client].pending.get_mut(&tid) else { return };
        pending.target = Some((osd, life));
        let message = Outgoing::new(&pending.op, tid, Features::PACIFIC);
        self.after_in_order((3, osd, client as u64), delay, Event::ToOsd { osd, life, message });
    }

    fn retarget(&mut self, client: usize) {
        let tids: Vec<u64> = self.clients[client].pending.keys().copied().collect();
        for tid in tids {
            self.send_op(client, tid);
        }
    }

    /// Sends again what is unanswered, as after a lost connection.
    pub fn resend(&mut self, client: usize) {
        self.retarget(client);
    }

    /// The client's connections break; it dials again when it has something to say.
    pub fn disconnect(&mut self, client: usize) {
        for (osd, _) in std::mem::take(&mut self.clients[client].sessions) {
            self.with(osd, |o, ctx| o.on_client_close(ctx, SessionId(client as u64)));
        }
    }

    fn on_backoff(&mut self, osd: usize, life: u64, client: usize, message: Outgoing) {
        let backoff: MOsdBackoff = incoming(message).decode(Features::PACIFIC).unwrap();
        let key = (osd, life, backoff.pg.pg);
        let c = &mut self.clients[client];
        if backoff.op == BackoffOp::Block {
            c.backoffs.insert(key);
            let ack = MOsdBackoff { op: BackoffOp::AckBlock, ..backoff };
            // The session is known by what carries it.
            let message = Outgoing::new(&ack, (client as u64) << 32, Features::PACIFIC);
            let delay = self.delay();
            return self.after_in_order((3, osd, client as u64), delay, Event::ToOsd { osd, life, message });
        }
        assert!(c.backoffs.remove(&key), "unblocked what was not blocked");
        let held = c.pending.iter().filter(|(_, p)| p.op.pg.pg == backoff.pg.pg);
        for tid in held.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.send_op(client, tid);
        }
    }

    fn on_reply(&mut self, message: Outgoing) {
        if message.kind != MOsdOpReply::KIND {
            return;
        }
        let tid = message.tid;
        let client = (tid >> 32) as usize;
        let reply: MOsdOpReply = incoming(message).decode(Features::PACIFIC).unwrap();
        let c = &mut self.clients[client];
        let Some(pending) = c.pending.get(&tid) else { return };
        if reply.retry_attempt != pending.attempts - 1 {
            return;
        }
        c.pending.remove(&tid);
        c.replies.insert(tid, (self.now, reply));
    }

    #[track_caller]
    pub fn wait(&mut self, tid: u64) -> MOsdOpReply {
        let client = (tid >> 32) as usize;
        self.run_until("a reply", Duration::from_secs(30), |w| w.clients[client].replies.contains_key(&tid));
        self.clients[client].replies[&tid].1.clone()
    }

    #[track_caller]
    pub fn write(&mut self, object: &str, data: &[u8]) -> MOsdOpReply {
        let tid = self.submit(0, object, vec![write_full(data)]);
        let reply = self.wait(tid);
        assert_eq!(reply.result, 0, "{object}");
        reply
    }

    #[track_caller]
    pub fn read(&mut self, object: &str) -> Option<Bytes> {
        let tid = self.submit(0, object, vec![read_all()]);
        let reply = self.wait(tid);
        match reply.result {
            -2 => None,
            result => {
                assert!(result >= 0, "{object}: {result}");
                Some(reply.ops[0].outdata.clone())
            }
        }
    }

    pub fn pg_of(&self, object: &str) -> PgId {
        let pool = self.mon.map.pool(POOL).unwrap();
        pool.raw_hash_to_pg(POOL, placement_hash(&ObjectLocator::pool(POOL), object))
    }

    pub fn object_id(&self, object: &str) -> store::ObjectId {
        let pg = self.pg_of(object);
        let hash = placement_hash(&ObjectLocator::pool(POOL), object);
        let object =
            HObject { pool: POOL, hash, name: object.into(), snap: SnapId::HEAD, ..HObject::default() };
        store::ObjectId { coll: store::CollId::Pg(pg), object }
    }

    pub fn acting(&self, object: &str) -> Vec<usize> {
        let found = pg_to_up_acting(&self.mon.map, &self.mon.crush, self.pg_of(object));
        found.acting.osds().map(|o| o.0 as usize).collect()
    }

    /// Every copy of every PG has the same objects, versions and data.
    #[track_caller]
    pub fn assert_copies_equal(&mut self) {
        use store::{CollId, ObjectId, ObjectStore, OmapLimit, StoreEvent};
        self.settle();
        let pool = self.mon.map.pool(POOL).unwrap().clone();
        for seed in 0..pool.pg_num {
            let pg = PgId { pool: POOL, seed };
            let acting = pg_to_up_acting(&self.mon.map, &self.mon.crush, pg).acting;
            let mut copies = Vec::new();
            for osd in acting.osds() {
                let store = self.nodes[osd.0 as usize].as_mut().unwrap().osd.store_mut().inner_mut();
                let coll = CollId::Pg(pg);
                let mut copy = BTreeMap::new();
                for object in store.list(coll, &HObject::default(), usize::MAX).unwrap() {
                    let id = ObjectId { coll, object };
                    let xattrs = store.xattrs(&id).unwrap();
                    let omap = store.omap_list(&id, None, b"", OmapLimit::NONE).unwrap().entries;
                    let fetch = store.read(&id, 0, u64::MAX >> 1).unwrap();
                    let mut data = None;
                    while let Some(event) = store.poll_event() {
                        if let StoreEvent::Read { id, result } = event
                            && id == fetch
                        {
                            data = Some(result.unwrap());
                            break;
                        }
                    }
                    copy.insert(id.object.clone(), (xattrs, omap, data));
                }
                copies.push((osd, copy));
            }
            for pair in copies.windows(2) {
                assert_eq!(pair[0].1, pair[1].1, "PG {pg}: osd.{} and osd.{}", pair[0].0, pair[1].0);
            }
        }
    }
}

pub fn client_addr(client: usize) -> EntityAddr {
    let socket = format!("10.9.0.{}:0", client + 1).parse().unwrap();
    EntityAddr { kind: AddrType::Any, nonce: client as u32 + 100, socket: Some(socket) }
}

pub fn incoming(out: Outgoing) -> Incoming {
    Incoming {
        kind: out.kind,
        version: out.version,
        tid: out.tid,
        front: out.front,
        data: Bytes::from(out.data.concat()),
    }
}

pub fn write_full(data: &[u8]) -> OsdOp {
    let args = ExtentArgs::new(0, data.len() as u64).into_args();
    OsdOp::new(OpCode::WRITEFULL, args, Bytes::copy_from_slice(data))
}

pub fn append(data: &[u8]) -> OsdOp {
    let args = ExtentArgs::new(0, data.len() as u64).into_args();
    OsdOp::new(OpCode::APPEND, args, Bytes::copy_from_slice(data))
}

pub fn read_all() -> OsdOp {
    OsdOp::new(OpCode::READ, ExtentArgs::new(0, 0).into_args(), Bytes::new())
}

pub fn delete() -> OsdOp {
    OsdOp::new(OpCode::DELETE, [0; 28], Bytes::new())
}
