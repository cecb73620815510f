//! The monitor's whole state, and which message goes where.
//!
//! A turn is: one event changes the state, adding to the pending map changes,
//! to `writes`, and to the queue of answers; then [`crate::Mon`] commits what
//! must be durable before any answer leaves.

use crate::cluster_log::ClusterLog;
use crate::config_store::ConfigStore;
use crate::health::Mutes;
use crate::liveness::Liveness;
use crate::osd_maps::OsdMaps;
use crate::pg_map::PgMap;
use crate::sessions::{SESSIONS_MAX, Session, Sessions};
use crate::{Action, Batch, MapStore, MonError, commands, fs_maps};
use base::{Duration, Errno, Random, Time, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wire::codec::Encode;
use wire::features::Features;
use wire::maps::{MgrMap, MonMap, PoolStat, REQUIRED_FEATURES};
use wire::messages::*;
use wire::types::{EntityType, IntervalSet, OsdId, PoolId, Uuid};

/// The manager map's version: there is no manager, and never another map.
pub const MGR_MAP_EPOCH: u32 = 1;

/// One event's surroundings.
pub struct Turn<'a> {
    pub now: Time,
    pub wall: WallTime,
    pub random: &'a mut Random,
    pub store: &'a dyn MapStore,
}

pub struct Core {
    pub fsid: Uuid,
    /// "a" of `mon.a`.
    pub name: String,
    pub mon_map: MonMap,
    pub osd: OsdMaps,
    pub sessions: Sessions,
    pub pgs: PgMap,
    pub liveness: Liveness,
    pub config: ConfigStore,
    pub config_keys: BTreeMap<String, Bytes>,
    pub log: ClusterLog,
    pub mutes: Mutes,
    /// Snapshots that every PG has trimmed, and the numbers that removals took: see `snapshots.rs`.
    pub purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// What OSDs say of themselves when they boot.
    pub metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// Durable changes other than the OSDMap's.
    pub writes: Batch,
    pub actions: VecDeque<Action>,
    /// Messages that wait for the pending epoch.
    pub deferred: Vec<(SessionId, Incoming)>,
    /// When pending changes should become an epoch; `None` when there are none,
    /// or when nobody has decided yet.
    pub commit_at: Option<Time>,
    /// When this process took up its work.
    pub started: Option<Time>,
}

impl Core {
    pub fn on_session_open(&mut self, turn: &mut Turn, id: SessionId, peer: Peer) {
        let supported = peer.features.contains(REQUIRED_FEATURES);
        if !supported || self.sessions.len() >= SESSIONS_MAX {
            tracing::warn!(peer = %peer.name, features = ?peer.features, "session refused");
            self.actions.push_back(Action::Close(id));
            return;
        }
        self.sessions.insert(id, Session::new(peer, turn.now));
    }

    pub fn on_session_closed(&mut self, id: SessionId) {
        self.sessions.remove(&id);
        self.deferred.retain(|(session, _)| *session != id);
    }

    /// Sends to a session that is still there.
    pub fn send<P: Payload>(&mut self, id: SessionId, payload: &P, tid: u64) {
        let Some(session) = self.sessions.get(&id) else { return };
        let message = Outgoing::new(payload, tid, session.peer.features);
        self.actions.push_back(Action::Send(id, message));
    }

    pub fn send_raw(&mut self, id: SessionId, message: Outgoing) {
        if self.sessions.contains_key(&id) {
            self.actions.push_back(Action::Send(id, message));
        }
    }

    /// Wants the pending changes committed with this turn.
    pub fn commit_now(&mut self, turn: &Turn) {
        self.commit_at = Some(turn.now);
    }

    /// Wants the pending changes committed soon, together with what else comes.
    pub fn commit_soon(&mut self, turn: &Turn) {
        let at = turn.now + self.commit_delay(turn.now);
        self.commit_at = Some(self.commit_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// A lone change is committed at once; in a burst, changes gather.
    fn commit_delay(&self, now: Time) -> Duration {
        const GATHER: Duration = Duration::from_millis(25);
        match self.liveness.last_commit {
            Some(last) if now.since(last) < GATHER => GATHER - now.since(last),
            _ => Duration::ZERO,
        }
    }

    pub fn on_message(&mut self, turn: &mut Turn, id: SessionId, message: Incoming) {
        if !self.sessions.contains_key(&id) {
            return;
        }
        if let Err(error) = self.dispatch(turn, id, &message) {
            match error {
                MessageError::Malformed(error) => {
                    tracing::warn!(session = id.0, kind = message.kind, %error, "malformed message");
                    self.on_session_closed(id);
                    self.actions.push_back(Action::Close(id));
                }
                MessageError::Mon(error) => self.actions.push_back(Action::Fatal(error)),
            }
        }
    }

    fn dispatch(&mut self, turn: &mut Turn, id: SessionId, message: &Incoming) -> Result<(), MessageError> {
        let features = self.sessions.get(&id).map_or(Features::ALL, |s| s.peer.features);
        macro_rules! payload {
            ($t:ty) => {
                message.decode::<$t>(features)?
            };
        }
        let tid = message.tid;
        match message.kind {
            MMonGetMap::KIND => self.send_mon_map(id, tid),
            MMonSubscribe::KIND => self.on_subscribe(turn, id, payload!(MMonSubscribe))?,
            MMonGetVersion::KIND => self.on_get_version(id, tid, &payload!(MMonGetVersion)),
            MStatfs::KIND => self.on_statfs(id, tid, &payload!(MStatfs)),
            MGetPoolStats::KIND => self.on_get_pool_stats(id, tid, &payload!(MGetPoolStats)),
            MPoolOp::KIND => self.on_pool_op(turn, id, tid, &payload!(MPoolOp)),
            MMonCommand::KIND => commands::on_mon_command(self, turn, id, tid, payload!(MMonCommand)),
            MCommand::KIND => commands::on_tell(self, turn, id, tid, payload!(MCommand)),
            MLog::KIND => self.on_log(turn, id, tid, payload!(MLog)),
            MAuth::KIND => self.on_auth(id, tid, &payload!(MAuth)),
            MOsdBoot::KIND => self.on_osd_boot(turn, id, message, payload!(MOsdBoot)),
            MOsdFailure::KIND => self.on_osd_failure(turn, id, &payload!(MOsdFailure)),
            MOsdAlive::KIND => self.on_osd_alive(turn, id, &payload!(MOsdAlive)),
            MOsdPgTemp::KIND => self.on_osd_pg_temp(turn, id, &payload!(MOsdPgTemp)),
            MOsdGoingDown::KIND => self.on_osd_going_down(turn, id, &payload!(MOsdGoingDown)),
            MOsdReport::KIND => self.on_osd_report(turn, id, payload!(MOsdReport)),
            kind => tracing::debug!(session = id.0, kind, "message of a kind not handled here"),
        }
        Ok(())
    }

    /// The OSD that a session belongs to, when a message claims to come from it.
    pub fn speaks_for(&self, id: SessionId, osd: OsdId) -> bool {
        self.sessions.get(&id).and_then(Session::osd) == Some(osd)
    }

    pub fn send_mon_map(&mut self, id: SessionId, tid: u64) {
        let map = self.mon_map.to_bytes(Features::PACIFIC);
        self.send(id, &MMonMap { map }, tid);
    }

    pub fn mgr_map() -> MgrMap {
        MgrMap { epoch: MGR_MAP_EPOCH, ..MgrMap::default() }
    }

    fn on_get_version(&mut self, id: SessionId, tid: u64, request: &MMonGetVersion) {
        let (newest, oldest) = match request.what.as_str() {
            "osdmap" => (u64::from(self.osd.epoch().0), u64::from(self.osd.oldest().0)),
            "monmap" => (u64::from(self.mon_map.epoch), u64::from(self.mon_map.epoch)),
            "mgrmap" => (u64::from(MGR_MAP_EPOCH), u64::from(MGR_MAP_EPOCH)),
            "fsmap" | "mdsmap" => (u64::from(fs_maps::FS_MAP_EPOCH), u64::from(fs_maps::FS_MAP_EPOCH)),
            _ => (0, 0),
        };
        self.send(id, &MMonGetVersionReply { handle: request.handle, newest, oldest }, tid);
    }

    fn on_statfs(&mut self, id: SessionId, tid: u64, request: &MStatfs) {
        let space = self.pgs.space(self.osd.map());
        let mut reply = MStatfsReply {
            fsid: self.fsid,
            version: self.pgs.version,
            total_kib: space.total / 1024,
            used_kib: space.used() / 1024,
            available_kib: space.available / 1024,
            objects: 0,
        };
        match request.data_pool {
            // What the pool's users can have, as CephFS shows its size.
            Some(pool) => {
                let usage = self.pgs.pool_usage(self.osd.map(), self.osd.crush(), pool);
                reply.used_kib = usage.stored / 1024;
                reply.available_kib = usage.max_available / 1024;
                reply.total_kib = reply.used_kib + reply.available_kib;
                reply.objects = usage.objects;
            }
            None => {
                let sum = self.pgs.total();
                reply.objects = u64::try_from(sum.stats.num_objects).unwrap_or(0);
            }
        }
        self.send(id, &reply, tid);
    }

    fn on_get_pool_stats(&mut self, id: SessionId, tid: u64, request: &MGetPoolStats) {
        let mut stats = BTreeMap::new();
        for name in &request.pools {
            let Some((pool, _)) = self.osd.map().pool_by_name(name) else { continue };
            let stat: PoolStat = self.pgs.pool_stat(pool);
            stats.insert(name.clone(), stat.to_bytes(Features::PACIFIC));
        }
        self.send(id, &MGetPoolStatsReply { fsid: self.fsid, stats, per_pool: true }, tid);
    }

    fn on_log(&mut self, turn: &mut Turn, id: SessionId, tid: u64, message: MLog) {
        let Some(last) = message.entries.last() else { return };
        let (seq, channel) = (last.seq, last.channel.clone());
        for entry in message.entries {
            self.log.add(entry, &mut self.writes);
        }
        self.publish_log(turn);
        self.send(id, &MLogAck { fsid: self.fsid, last: seq, channel }, tid);
    }

    /// Tickets are cephx's; with authentication `none` there is nothing to renew.
    fn on_auth(&mut self, id: SessionId, tid: u64, request: &MAuth) {
        let Some(session) = self.sessions.get(&id) else { return };
        let reply = MAuthReply {
            protocol: request.protocol,
            result: Errno::EOPNOTSUPP.negative(),
            global_id: session.peer.global_id,
            payload: Bytes::new(),
            status: "no tickets without cephx".into(),
        };
        self.send(id, &reply, tid);
    }

    fn on_osd_report(&mut self, turn: &mut Turn, id: SessionId, report: MOsdReport) {
        if report.fsid != self.fsid || !self.speaks_for(id, report.osd) {
            return;
        }
        let known = |pool: PoolId| self.osd.map().pool(pool).map(|p| p.pg_num);
        self.pgs.apply(turn.now, turn.wall, &report, known);
        self.liveness.last_report.insert(report.osd, turn.now);
    }

    /// An entry of our own for the cluster log.
    pub fn log_cluster(&mut self, turn: &Turn, level: LogLevel, text: impl Into<String>) {
        self.log_to(turn, "cluster", level, text.into());
    }

    pub fn log_to(&mut self, turn: &Turn, channel: &str, level: LogLevel, text: String) {
        let addrs = self.mon_map.mon_info.get(&self.name).map(|m| m.public_addrs.clone());
        let entry = LogEntry {
            name: (u32::from(EntityType::Mon.as_u8()), self.name.clone()),
            rank: wire::types::EntityName::mon(0),
            addrs: addrs.unwrap_or_default(),
            stamp: turn.wall,
            seq: self.log.next_own_seq(),
            level,
            text,
            channel: channel.to_string(),
        };
        self.log.add(entry, &mut self.writes);
        self.publish_log(turn);
    }
}

pub enum MessageError {
    Malformed(wire::DecodeError),
    Mon(MonError),
}

impl From<wire::DecodeError> for MessageError {
    fn from(error: wire::DecodeError) -> MessageError {
        MessageError::Malformed(error)
    }
}

impl From<MonError> for MessageError {
    fn from(error: MonError) -> MessageError {
        MessageError::Mon(error)
    }
}
