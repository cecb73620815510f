//! Several OSD cores, a toy monitor and a toy client, wired in memory.
//!
//! Events happen in an order that one seed decides: messages take random time,
//! are ordered within a connection and lost with it; commits take random time;
//! a crash loses what was not committed. The monitor is a stand-in with the
//! rules that the OSD relies on, nothing more.

mod client;
mod events;
mod mon;

pub use client::*;
pub use events::incoming;
pub use mon::Mon;

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

use events::Event;

pub const POOL: PoolId = PoolId(1);
pub const MON_DELAY: Duration = Duration::from_millis(5);

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
            mon: Mon::new(map, crush),
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
