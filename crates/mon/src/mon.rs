//! The monitor's outside: what the daemon calls, and the commit that comes
//! between an event and its answers.

use crate::cluster_log::ClusterLog;
use crate::config_store::ConfigStore;
use crate::core::{Core, Turn};
use crate::health::Mutes;
use crate::liveness::Liveness;
use crate::osd_maps::{OsdMaps, Prepared};
use crate::pg_map::PgMap;
use crate::sessions::Sessions;
use crate::{Batch, MapStore, MapStoreError, MkfsOptions, keys, mkfs};
use base::{Duration, Random, Time, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use wire::DecodeError;
use wire::codec::{Decode, Encode};
use wire::features::Features;
use wire::maps::{MonMap, OsdMap};
use wire::messages::{Incoming, MMonCommand, MPoolOp, Outgoing, Payload, Peer, SessionId};
use wire::types::{GlobalId, IntervalSet, OsdId, PoolId, Uuid};

/// How often statistics, time-outs and health are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Global ids reserved with one commit. Those left over at a restart are lost, which is fine.
const GLOBAL_IDS_RESERVED: u64 = 1000;

/// What an event brings along from the outside world.
pub struct Ctx<'a> {
    pub now: Time,
    pub wall: WallTime,
    pub random: &'a mut Random,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MonError {
    #[error(transparent)]
    Store(#[from] MapStoreError),
    #[error("map store: {key}: {error}")]
    Decode { key: String, error: DecodeError },
    #[error("map store: no cluster in it")]
    Empty,
    #[error("map store: a cluster exists already")]
    Exists,
    #[error("map store: written by a newer version ({found}; this one knows {known})")]
    TooNew { found: u32, known: u32 },
    #[error("{0}")]
    Invalid(String),
}

/// What the monitor wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Send(SessionId, Outgoing),
    /// Drop the session; `on_session_closed` need not follow.
    Close(SessionId),
    /// The store failed: nothing can be promised any more, so the process must end.
    Fatal(MonError),
}

/// One monitor.
pub struct Mon<M: MapStore> {
    store: M,
    revision: u64,
    core: Core,
    next_tick: Option<Time>,
    /// The next to give out, and the first that is not reserved.
    global_ids: (u64, u64),
}

impl<M: MapStore> Mon<M> {
    /// Writes a new cluster's first maps and opens it.
    ///
    /// Errors: `Exists` unless the store is empty.
    pub fn create(mut store: M, options: &MkfsOptions) -> Result<Mon<M>, MonError> {
        if store.revision() != 0 || store.get(keys::FORMAT)?.is_some() {
            return Err(MonError::Exists);
        }
        let batch = mkfs::first_batch(options)?;
        store.commit(0, batch)?;
        Mon::open(store)
    }

    /// Takes up a cluster where it was left.
    ///
    /// Errors: `Empty` when there is none yet.
    pub fn open(store: M) -> Result<Mon<M>, MonError> {
        let found = store.get(keys::FORMAT)?.ok_or(MonError::Empty)?;
        let found = read::<u32>(keys::FORMAT, found)?;
        if found > keys::FORMAT_VERSION {
            return Err(MonError::TooNew { found, known: keys::FORMAT_VERSION });
        }
        let mon_map: MonMap = read(keys::MON_MAP, required(&store, keys::MON_MAP)?)?;
        let first_id: u64 = read(keys::GLOBAL_ID, required(&store, keys::GLOBAL_ID)?)?;
        let mutes = match store.get(keys::HEALTH_MUTES)? {
            Some(bytes) => Mutes::load(bytes)?,
            None => Mutes::default(),
        };
        let core = Core {
            fsid: mon_map.fsid,
            name: read(keys::MON_NAME, required(&store, keys::MON_NAME)?)?,
            mon_map,
            osd: OsdMaps::load(&store)?,
            sessions: Sessions::new(),
            pgs: PgMap::default(),
            liveness: Liveness::default(),
            config: ConfigStore::load(&store)?,
            config_keys: list_tail(&store, keys::CONFIG_KEY)?,
            log: ClusterLog::load(&store)?,
            mutes,
            purged_snaps: load_purged_snaps(&store)?,
            metadata: load_metadata(&store)?,
            writes: Batch::default(),
            actions: VecDeque::new(),
            deferred: Vec::new(),
            commit_at: None,
            started: None,
        };
        Ok(Mon { revision: store.revision(), store, core, next_tick: None, global_ids: (first_id, first_id) })
    }

    pub fn fsid(&self) -> Uuid {
        self.core.fsid
    }

    /// The newest durable OSDMap.
    pub fn osd_map(&self) -> &OsdMap {
        self.core.osd.map()
    }

    pub fn mon_map(&self) -> &MonMap {
        &self.core.mon_map
    }

    pub fn store(&self) -> &M {
        &self.store
    }

    /// For a session that reconnects and had `claimed` before: it must keep it,
    /// as OSDs know its requests by it and a resent one must not look new. Only
    /// a number that was really given out is honoured.
    pub fn renew_global_id(&mut self, claimed: Option<GlobalId>) -> Result<GlobalId, MonError> {
        match claimed.filter(|id| (mkfs::FIRST_GLOBAL_ID..self.global_ids.0).contains(&id.0)) {
            Some(id) => Ok(id),
            None => self.allocate_global_id(),
        }
    }

    /// A number no session ever had, for the session that is authenticating.
    ///
    /// Crash: a range is reserved durably before its first number is given out.
    pub fn allocate_global_id(&mut self) -> Result<GlobalId, MonError> {
        let (next, reserved) = self.global_ids;
        if next >= reserved {
            let reserved = next + GLOBAL_IDS_RESERVED;
            let mut batch = Batch::default();
            batch.put(keys::GLOBAL_ID, reserved.to_bytes(Features::ALL));
            self.revision = self.store.commit(self.revision, batch)?;
            self.global_ids.1 = reserved;
        }
        self.global_ids.0 = next + 1;
        Ok(GlobalId(next))
    }

    pub fn on_session_open(&mut self, ctx: &mut Ctx<'_>, session: SessionId, peer: Peer) {
        self.turn(ctx, |core, turn| core.on_session_open(turn, session, peer));
    }

    pub fn on_message(&mut self, ctx: &mut Ctx<'_>, session: SessionId, message: Incoming) {
        // Commands are judged by the map as it is, so nothing may be pending.
        let judges_map = message.kind == MMonCommand::KIND || message.kind == MPoolOp::KIND;
        if judges_map && self.core.osd.has_pending() {
            self.commit(ctx);
        }
        self.turn(ctx, |core, turn| core.on_message(turn, session, message));
    }

    pub fn on_session_closed(&mut self, ctx: &mut Ctx<'_>, session: SessionId) {
        self.turn(ctx, |core, _| core.on_session_closed(session));
    }

    pub fn on_tick(&mut self, ctx: &mut Ctx<'_>) {
        if self.next_tick.is_none_or(|at| ctx.now >= at) {
            self.next_tick = Some(ctx.now + TICK);
            self.turn(ctx, |core, turn| core.on_tick(turn));
            if !self.core.writes.writes.is_empty() {
                self.commit(ctx);
            }
        } else {
            self.turn(ctx, |_, _| ());
        }
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        self.core.actions.pop_front()
    }

    /// When `on_tick` should be called next.
    pub fn next_wake(&self) -> Option<Time> {
        let tick = self.next_tick.unwrap_or(Time::ZERO);
        Some(self.core.commit_at.map_or(tick, |at| at.min(tick)))
    }

    fn turn(&mut self, ctx: &mut Ctx<'_>, event: impl FnOnce(&mut Core, &mut Turn)) {
        self.core.started.get_or_insert(ctx.now);
        let mut turn = Turn { now: ctx.now, wall: ctx.wall, random: ctx.random, store: &self.store };
        event(&mut self.core, &mut turn);
        self.settle(ctx);
    }

    /// Commits what is due and hands messages that waited for it back in.
    fn settle(&mut self, ctx: &mut Ctx<'_>) {
        while self.core.commit_at.is_some_and(|at| ctx.now >= at) {
            self.commit(ctx);
            let deferred = std::mem::take(&mut self.core.deferred);
            let mut turn = Turn { now: ctx.now, wall: ctx.wall, random: ctx.random, store: &self.store };
            for (session, message) in deferred {
                self.core.on_message(&mut turn, session, message);
            }
        }
    }

    /// Order: store; only then let answers out and peers see the new epoch. A
    /// crash before the commit leaves the old epoch and no answer; after it,
    /// clients that got none ask again.
    fn commit(&mut self, ctx: &mut Ctx<'_>) {
        self.core.commit_at = None;
        self.core.liveness.last_commit = Some(ctx.now);
        if let Err(error) = self.try_commit(ctx) {
            tracing::error!(%error, "commit failed");
            self.core.actions.clear();
            self.core.actions.push_back(Action::Fatal(error));
        }
    }

    fn try_commit(&mut self, ctx: &mut Ctx<'_>) -> Result<(), MonError> {
        let mut batch = std::mem::take(&mut self.core.writes);
        let keep_from = self.core.pgs.min_last_epoch_clean(self.core.osd.map());
        let prepared: Option<Prepared> = self.core.osd.prepare(ctx.wall, keep_from, &mut batch)?;
        if batch.writes.is_empty() {
            return Ok(());
        }
        self.revision = self.store.commit(self.revision, batch)?;
        let turn = Turn { now: ctx.now, wall: ctx.wall, random: ctx.random, store: &self.store };
        if let Some(prepared) = prepared {
            self.core.osd.install(prepared);
            self.core.on_new_osd_map(&turn);
            self.core.publish(&turn, "osdmap")?;
        }
        Ok(())
    }
}

fn required(store: &dyn MapStore, key: &str) -> Result<Bytes, MonError> {
    Ok(store.get(key)?.ok_or_else(|| MapStoreError::Corrupt(format!("{key} is missing")))?)
}

fn read<T: Decode>(key: &str, bytes: Bytes) -> Result<T, MonError> {
    T::from_bytes(bytes, Features::PACIFIC).map_err(|error| MonError::Decode { key: key.into(), error })
}

/// Entries below a prefix, by the rest of their keys.
fn list_tail(store: &dyn MapStore, prefix: &str) -> Result<BTreeMap<String, Bytes>, MonError> {
    let entries = store.list(prefix)?;
    Ok(entries.into_iter().map(|(key, value)| (key[prefix.len()..].to_string(), value)).collect())
}

fn load_purged_snaps(store: &dyn MapStore) -> Result<BTreeMap<PoolId, IntervalSet>, MonError> {
    let mut all = BTreeMap::new();
    for (id, value) in list_tail(store, keys::PURGED_SNAPS)? {
        let id = id.parse().map_err(|_| MonError::Invalid(format!("key {}{id}", keys::PURGED_SNAPS)))?;
        all.insert(PoolId(id), read(keys::PURGED_SNAPS, value)?);
    }
    Ok(all)
}

fn load_metadata(store: &dyn MapStore) -> Result<BTreeMap<OsdId, BTreeMap<String, String>>, MonError> {
    let mut all = BTreeMap::new();
    for (id, value) in list_tail(store, keys::OSD_METADATA)? {
        let id = id.parse().map_err(|_| MonError::Invalid(format!("key {}{id}", keys::OSD_METADATA)))?;
        all.insert(OsdId(id), read(keys::OSD_METADATA, value)?);
    }
    Ok(all)
}
