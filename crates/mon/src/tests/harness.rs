//! A monitor, a clock, and peers that talk to it.

use crate::{Action, Ctx, FailureDomain, MemMapStore, MkfsOptions, Mon};
use base::{Duration, Random, Time, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wire::codec::Decode;
use wire::features::Features;
use wire::maps::{OsdMap, OsdMapIncremental};
use wire::messages::*;
use wire::types::*;

pub const START: WallTime = WallTime { sec: 1_795_291_300, nsec: 0 };

pub struct Cluster {
    pub mon: Mon<MemMapStore>,
    pub now: Time,
    pub sent: VecDeque<(SessionId, Outgoing)>,
    pub closed: Vec<SessionId>,
    random: Random,
    sessions: u64,
}

pub struct Answer {
    pub result: i32,
    pub status: String,
    pub output: String,
}

impl Cluster {
    pub fn new() -> Cluster {
        let addr = EntityAddr::msgr2("127.0.0.1:3300".parse().unwrap(), 0);
        let fsid = Uuid::from_random(1, 2);
        let mut options = MkfsOptions::new(fsid, "a", EntityAddrVec::one(addr), START);
        options.failure_domain = FailureDomain::Osd;
        options.pool_size = 2;
        options.pool_min_size = 1;
        options.pool_pg_num = 8;
        options.config.insert("mon_allow_pool_delete".into(), "true".into());
        Cluster::over(Mon::create(MemMapStore::default(), &options).unwrap())
    }

    fn over(mon: Mon<MemMapStore>) -> Cluster {
        Cluster {
            mon,
            now: Time::ZERO,
            sent: VecDeque::new(),
            closed: Vec::new(),
            random: Random::from_seed(7),
            sessions: 0,
        }
    }

    /// The process ends and starts again on the same store.
    pub fn restart(self) -> Cluster {
        let now = self.now;
        let mut again = Cluster::over(Mon::open(self.mon.store().clone()).unwrap());
        again.now = now;
        again.sessions = self.sessions;
        again
    }

    pub fn with<T>(&mut self, event: impl FnOnce(&mut Mon<MemMapStore>, &mut Ctx) -> T) -> T {
        let wall = START + Duration::from_nanos(self.now.0);
        let mut ctx = Ctx { now: self.now, wall, random: &mut self.random };
        let result = event(&mut self.mon, &mut ctx);
        while let Some(action) = self.mon.poll_action() {
            match action {
                Action::Send(session, message) => self.sent.push_back((session, message)),
                Action::Close(session) => self.closed.push(session),
                Action::Fatal(error) => panic!("{error}"),
            }
        }
        result
    }

    /// Lets time pass, ticking when the monitor wants to.
    pub fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            let wake = self.mon.next_wake().unwrap_or(end);
            if wake > end {
                break;
            }
            self.now = self.now.max(wake);
            self.with(|mon, ctx| mon.on_tick(ctx));
        }
        self.now = end;
    }

    pub fn open(&mut self, name: EntityName, auth_id: &str) -> SessionId {
        self.open_with(name, auth_id, Features::PACIFIC)
    }

    pub fn open_with(&mut self, name: EntityName, auth_id: &str, features: Features) -> SessionId {
        self.sessions += 1;
        let id = SessionId(self.sessions);
        let global_id = self.mon.allocate_global_id().unwrap();
        let addr = EntityAddr::msgr2("127.0.0.1:50000".parse().unwrap(), 9);
        let peer = Peer { name, auth_id: auth_id.into(), global_id, addr, features };
        self.with(|mon, ctx| mon.on_session_open(ctx, id, peer));
        id
    }

    pub fn client(&mut self) -> SessionId {
        self.open(EntityName::client(4100), "admin")
    }

    pub fn send<P: Payload>(&mut self, session: SessionId, payload: &P) {
        let data: Vec<u8> = payload.data().concat();
        let front = payload.front(Features::PACIFIC);
        self.send_raw(session, P::KIND, P::VERSION, front, Bytes::from(data));
    }

    pub fn send_raw(&mut self, session: SessionId, kind: u16, version: u16, front: Bytes, data: Bytes) {
        let message = Incoming { kind, version, tid: 42, front, data };
        self.with(|mon, ctx| mon.on_message(ctx, session, message));
    }

    /// What a session was sent of one kind, oldest first; it is taken away.
    pub fn take<P: Payload>(&mut self, session: SessionId) -> Vec<P> {
        let (found, rest): (Vec<_>, Vec<_>) =
            self.sent.drain(..).partition(|(to, m)| *to == session && m.kind == P::KIND);
        self.sent = rest.into();
        let decode = |m: Outgoing| {
            let data = Bytes::from(m.data.concat());
            let incoming = Incoming { kind: m.kind, version: m.version, tid: m.tid, front: m.front, data };
            incoming.decode(Features::PACIFIC).unwrap()
        };
        found.into_iter().map(|(_, m)| decode(m)).collect()
    }

    pub fn subscribe(&mut self, session: SessionId, what: &str, start: u64, once: bool) {
        let what = [(what.to_string(), Subscription { start, once })].into();
        self.send(session, &MMonSubscribe { what, hostname: "box".into() });
    }

    /// Runs a command given as JSON.
    pub fn command(&mut self, session: SessionId, json: &str) -> Answer {
        self.command_with(session, json, Bytes::new())
    }

    pub fn command_with(&mut self, session: SessionId, json: &str, input: Bytes) -> Answer {
        let fsid = self.mon.fsid();
        self.send(session, &MMonCommand { fsid, cmd: vec![json.to_string()], input });
        let mut acks = self.take::<MMonCommandAck>(session);
        assert_eq!(acks.len(), 1, "one answer to {json}");
        let ack = acks.remove(0);
        let output = String::from_utf8_lossy(&ack.output).into_owned();
        Answer { result: ack.result, status: ack.status, output }
    }

    /// Runs a command that must succeed; its output.
    pub fn ok(&mut self, session: SessionId, json: &str) -> String {
        let answer = self.command(session, json);
        assert_eq!(answer.result, 0, "{json}: {}", answer.status);
        answer.output
    }

    pub fn addrs(osd: i32, life: u32) -> EntityAddrVec {
        let port = 6800 + u16::try_from(osd).unwrap();
        EntityAddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), life))
    }

    pub fn boot_message(&self, osd: i32, life: u32) -> MOsdBoot {
        let metadata = [("hostname", "box"), ("default_device_class", "ssd")];
        MOsdBoot {
            fsid: self.mon.fsid(),
            osd: OsdId(osd),
            uuid: Uuid::from_random(100, u64::try_from(osd).unwrap()),
            client_addrs: Cluster::addrs(osd, life),
            cluster_addrs: Cluster::addrs(osd, life),
            hb_addrs: Cluster::addrs(osd, life),
            epoch: self.mon.osd_map().epoch,
            total_bytes: 20 << 30,
            metadata: metadata.map(|(k, v)| (k.to_string(), v.to_string())).into(),
        }
    }

    pub fn osd_session(&mut self, osd: i32) -> SessionId {
        self.open(EntityName::osd(osd), &osd.to_string())
    }

    pub fn boot(&mut self, osd: i32, life: u32) -> SessionId {
        let session = self.osd_session(osd);
        let message = self.boot_message(osd, life);
        self.send(session, &message);
        self.run(1);
        session
    }

    /// A cluster with OSDs 0..n up, and their sessions.
    pub fn with_osds(n: i32) -> (Cluster, Vec<SessionId>) {
        let mut cluster = Cluster::new();
        let sessions = (0..n).map(|osd| cluster.boot(osd, 1)).collect();
        (cluster, sessions)
    }

    pub fn report(&mut self, session: SessionId, osd: i32, pgs: Vec<PgReport>) {
        self.report_space(session, osd, 19 << 30, pgs);
    }

    /// Of 20 GiB.
    pub fn report_space(&mut self, session: SessionId, osd: i32, available: u64, pgs: Vec<PgReport>) {
        let load = OsdLoad {
            total: 20 << 30,
            available,
            data: 1 << 20,
            pgs: pgs.len() as u64,
            ..OsdLoad::default()
        };
        let message = MOsdReport {
            fsid: self.mon.fsid(),
            osd: OsdId(osd),
            epoch: self.mon.osd_map().epoch,
            load,
            pgs,
            hb_peers: Vec::new(),
        };
        self.send(session, &message);
    }

    /// A PG's report by its primary: clean, with as many objects.
    pub fn pg_report(&self, pg: PgId, osds: &[i32], objects: u64) -> PgReport {
        let map = self.mon.osd_map();
        let osds: Vec<OsdId> = osds.iter().map(|o| OsdId(*o)).collect();
        let now = START + Duration::from_nanos(self.now.0);
        PgReport {
            pg,
            state: pg_state::ACTIVE | pg_state::CLEAN,
            version: EVersion::new(map.epoch, objects),
            reported_epoch: map.epoch,
            reported_seq: 1 + self.now.0,
            up: osds.clone(),
            acting: osds.clone(),
            up_primary: osds[0],
            acting_primary: osds[0],
            log_start: EVersion::ZERO,
            log_entries: objects,
            created: Epoch(1),
            last_epoch_clean: map.epoch,
            last_epoch_started: map.epoch,
            same_interval_since: map.epoch,
            last_active: now,
            last_clean: now,
            last_change: now,
            last_scrub: EVersion::ZERO,
            last_scrub_stamp: now,
            last_deep_scrub: EVersion::ZERO,
            last_deep_scrub_stamp: now,
            objects,
            clones: 0,
            copies: objects * osds.len() as u64,
            missing_on_primary: 0,
            degraded: 0,
            misplaced: 0,
            unfound: 0,
            bytes: objects * 4096,
            omap_bytes: 0,
            omap_keys: 0,
            reads: 0,
            read_kib: 0,
            writes: objects,
            write_kib: objects * 4,
            objects_recovered: 0,
            bytes_recovered: 0,
            keys_recovered: 0,
            blocked_by: Vec::new(),
            snap_trim_queue_len: 0,
            purged_snaps: Default::default(),
            shallow_scrub_errors: 0,
            deep_scrub_errors: 0,
            last_clean_scrub_stamp: now,
        }
    }
}

/// A peer's copy of the map, kept up to date from messages as clients do.
#[derive(Default)]
pub struct MapHolder {
    pub map: OsdMap,
}

impl MapHolder {
    pub fn take_in(&mut self, messages: Vec<MOsdMap>) {
        for message in messages {
            let epochs: BTreeMap<Epoch, ()> =
                message.incrementals.keys().chain(message.fulls.keys()).map(|e| (*e, ())).collect();
            for epoch in epochs.into_keys() {
                if epoch <= self.map.epoch {
                    continue;
                }
                if let Some(inc) = message.incrementals.get(&epoch).filter(|_| epoch == self.map.epoch.next())
                {
                    let inc = OsdMapIncremental::from_bytes(inc.clone(), Features::PACIFIC).unwrap();
                    self.map.apply(&inc).unwrap();
                } else if let Some(full) = message.fulls.get(&epoch) {
                    self.map = OsdMap::from_bytes(full.clone(), Features::PACIFIC).unwrap();
                }
            }
        }
    }
}
