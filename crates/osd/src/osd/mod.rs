//! One OSD: all its PGs, its maps, its peers.

mod background;
mod backoffs;
mod clients;
mod command;
mod link;
mod map_steps;
mod mempools;
mod records;
mod scrubs;

use crate::action::{Action, Channel, Ctx, DownReason};
use crate::config::OsdConfig;
use crate::pg::{LoadError, Pg};
use crate::shared::{Commit, Counters, Fetch, Load, Shared};
use base::{MemoryUse, Time};
use bytes::Bytes;
use clients::ClientSession;
use records::Loading;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{ObjectStore, StoreError, StoreEvent, TxnId};
use wire::messages::{Incoming, Peer, SessionId};
use wire::types::{EVersion, Epoch, OsdId, PgId};

/// An OSD as a state machine.
///
/// Calling order: [`Osd::new`], [`Osd::start`]; then any `on_*`, each followed
/// by draining [`Osd::poll_action`]. After every batch of events that touched
/// the store, [`Osd::on_store_events`]. [`Osd::on_tick`] no later than
/// [`Osd::next_wake`].
///
/// Links: each OSD dials its peers and sends only on what it dialled; what
/// arrives on accepted links goes to [`Osd::on_peer_message`], with the OSD id
/// that the link's hello proved, and only while that life is the one the
/// peer's hello named.
///
/// Lives: `config.client_addrs` must differ between any two processes of one
/// OSD (their nonce), so that the OSD knows the map that shows it up from one
/// that shows an earlier life.
pub struct Osd<S: ObjectStore> {
    sh: Shared<S>,
    pgs: BTreeMap<PgId, Pg>,
    /// PGs whose objects are being removed, a few at a time.
    deleting: BTreeSet<PgId>,
    sessions: BTreeMap<SessionId, ClientSession>,
    /// PGs from which some session backs off.
    backed_off: BTreeSet<PgId>,
    /// Requests of clients that have newer maps than we.
    future_requests: VecDeque<(Epoch, SessionId, Incoming)>,
    /// Messages of peers that have newer maps than we.
    future_messages: VecDeque<(Epoch, OsdId, u16, Bytes)>,
    future_bytes: usize,
    mon: MonState,
    timers: Timers,
    loading: Loading,
    loaded: bool,
    /// The room that all peers have been told of.
    announced_room: u64,
    fullness: usize,
    stopping: bool,
    /// Last report of each PG, to send only what changed.
    reported: BTreeMap<PgId, background::Signature>,
    /// The environment's, as of the latest command.
    env_buffers: MemoryUse,
}

/// The session with the monitor.
#[derive(Debug, Default)]
struct MonState {
    open: bool,
    last_boot: Time,
    last_request: Time,
    /// Everything must be reported: the monitor may have forgotten.
    report_all: bool,
}

#[derive(Debug, Default)]
struct Timers {
    last_tick: Time,
    last_ping: Time,
    last_chase: Time,
    last_report: Time,
    last_retry: Time,
    last_delete: Time,
    last_space: Time,
    last_scrub_look: Time,
    last_rest: Time,
    /// The store has more to do then.
    rest_goes_on: bool,
}

impl<S: ObjectStore> Osd<S> {
    /// The store is open and recovered.
    pub fn new(config: OsdConfig, store: S) -> Osd<S> {
        config.assert_sane();
        Osd {
            sh: Shared::new(config, store),
            pgs: BTreeMap::new(),
            deleting: BTreeSet::new(),
            sessions: BTreeMap::new(),
            backed_off: BTreeSet::new(),
            future_requests: VecDeque::new(),
            future_messages: VecDeque::new(),
            future_bytes: 0,
            mon: MonState::default(),
            timers: Timers::default(),
            loading: Loading::default(),
            loaded: false,
            announced_room: 0,
            fullness: 0,
            stopping: false,
            reported: BTreeMap::new(),
            env_buffers: MemoryUse::default(),
        }
    }

    /// Loads what the store holds. Nothing is served before the monitor's maps
    /// arrive. While metadata is being loaded, waits for it by itself.
    pub fn start(&mut self, ctx: &mut Ctx<'_>) -> Result<(), LoadError> {
        // An earlier life may have promised until now at the latest.
        self.sh.peers.promise_floor = ctx.now + self.sh.config.lease_promise;
        self.go_on_loading(ctx)
    }

    /// Loads as much as is there, and what was waited for first: each wait gets further.
    fn go_on_loading(&mut self, ctx: &Ctx<'_>) -> Result<(), LoadError> {
        self.timers.last_tick = ctx.now;
        match self.load() {
            Ok(()) => {
                self.loading = Loading::default();
                self.loaded = true;
                Ok(())
            }
            Err(LoadError::Store(error @ StoreError::Pending(_))) => {
                self.sh.wait_load(&error, Load::Start);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    pub fn store(&self) -> &S {
        &self.sh.store
    }

    /// For the driver: device completions go into the store, then [`Osd::on_store_events`].
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.sh.store
    }

    pub fn config(&self) -> &OsdConfig {
        &self.sh.config
    }

    pub fn counters(&self) -> &Counters {
        &self.sh.counters
    }

    pub fn epoch(&self) -> Epoch {
        self.sh.epoch()
    }

    pub fn is_up(&self) -> bool {
        self.sh.am_up
    }

    /// Each PG here with its [`wire::messages::pg_state`] bits, 0 unless we are primary.
    pub fn pg_states(&self, now: Time) -> Vec<(PgId, u64)> {
        self.pgs.iter().map(|(id, pg)| (*id, pg.state_bits(&self.sh, now))).collect()
    }

    /// For tests and checkers.
    pub fn pg(&self, id: PgId) -> Option<&Pg> {
        self.pgs.get(&id)
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        self.sh.actions.pop_front()
    }

    /// A session with a monitor is open: subscriptions and reports start over.
    pub fn on_mon_open(&mut self, ctx: &mut Ctx<'_>) {
        self.mon = MonState { open: true, report_all: true, ..MonState::default() };
        if self.loaded {
            self.subscribe();
        }
        self.sh.mon_requests_dirty = true;
        self.settle(ctx);
    }

    pub fn on_mon_close(&mut self, ctx: &mut Ctx<'_>) {
        self.mon.open = false;
        self.settle(ctx);
    }

    pub fn on_mon_message(&mut self, ctx: &mut Ctx<'_>, message: Incoming) {
        self.handle_mon_message(ctx, &message);
        self.settle(ctx);
    }

    pub fn on_client_open(&mut self, ctx: &mut Ctx<'_>, session: SessionId, peer: Peer) {
        self.sh.sessions.insert(session);
        self.sessions.insert(session, ClientSession::new(peer));
        self.settle(ctx);
    }

    pub fn on_client_message(&mut self, ctx: &mut Ctx<'_>, session: SessionId, message: Incoming) {
        self.handle_client_message(ctx, session, message);
        self.settle(ctx);
    }

    pub fn on_client_close(&mut self, ctx: &mut Ctx<'_>, session: SessionId) {
        if self.sessions.remove(&session).is_some() {
            for pg in self.pgs.values_mut().filter(|pg| pg.has_requests()) {
                pg.drop_session(&mut self.sh, session);
            }
            self.future_requests.retain(|(_, s, _)| *s != session);
            self.sh.sessions.remove(&session);
            for pg in self.pgs.values_mut().filter(|pg| !pg.watches().is_empty()) {
                pg.lose_watch_session(&mut self.sh, ctx, session);
            }
        }
        self.settle(ctx);
    }

    /// Clients' requests that wait or are under way.
    pub fn held_requests(&self) -> usize {
        self.sh.held_ops
    }

    /// Requests held: the driver stops reading from clients while this says so.
    pub fn wants_pause(&self) -> bool {
        self.sh.held_ops >= self.sh.config.client_ops_max
            || self.sh.held_bytes >= self.sh.config.client_bytes_max
    }

    /// Both links that we dialled are ready.
    pub fn on_peer_up(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        self.handle_peer_up(ctx, osd);
        self.settle(ctx);
    }

    pub fn on_peer_down(&mut self, ctx: &mut Ctx<'_>, osd: OsdId, reason: DownReason) {
        self.handle_peer_down(ctx, osd, reason);
        self.settle(ctx);
    }

    pub fn on_peer_message(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        _channel: Channel,
        kind: u16,
        body: Bytes,
    ) {
        self.handle_peer_message(ctx, from, kind, body);
        self.settle(ctx);
    }

    /// Drains the store's events.
    pub fn on_store_events(&mut self, ctx: &mut Ctx<'_>) {
        let mut committed = None;
        while let Some(event) = self.sh.store.poll_event() {
            if let StoreEvent::Committed(id) = event {
                // In order: the last one speaks for all.
                committed = Some(id);
                continue;
            }
            if let Some(id) = committed.take() {
                self.on_committed(ctx, id);
                self.watch_space(ctx);
            }
            match event {
                StoreEvent::Committed(_) => {}
                StoreEvent::Read { id, result } => match self.sh.fetches.remove(&id) {
                    Some(Fetch::Request { pg, request, index }) => {
                        if let Some(pg) = self.pgs.get_mut(&pg) {
                            pg.fetched(&mut self.sh, ctx, request, |r| {
                                if let Some(slot) = r.fetched.data.get_mut(index) {
                                    slot.1 = result;
                                }
                            });
                        }
                    }
                    Some(Fetch::Push { pg, push, index }) => {
                        if let Some(pg) = self.pgs.get_mut(&pg) {
                            pg.on_push_read(&mut self.sh, ctx, push, index, result);
                        }
                    }
                    Some(Fetch::Scrub { pg, scan }) => {
                        if let Some(pg) = self.pgs.get_mut(&pg) {
                            pg.on_scrub_read(&mut self.sh, ctx, scan, result);
                        }
                    }
                    None => {}
                },
                StoreEvent::Loaded(id) => self.on_loaded(ctx, id),
            }
        }
        if let Some(id) = committed {
            self.on_committed(ctx, id);
            self.watch_space(ctx);
        }
        self.settle(ctx);
    }

    /// Everything up to this transaction is durable. Acknowledgements of one PG
    /// leave as one message.
    fn on_committed(&mut self, ctx: &mut Ctx<'_>, id: TxnId) {
        let mut writes: BTreeMap<PgId, (Epoch, EVersion)> = BTreeMap::new();
        while self.sh.commits.front().is_some_and(|(txn, _)| *txn <= id) {
            let Some((_, commit)) = self.sh.commits.pop_front() else { break };
            if let Commit::Write { pg, interval, version } = commit {
                // In order: the last one counts.
                writes.insert(pg, (interval, version));
                continue;
            }
            self.on_commit(ctx, commit);
        }
        for (pg, (interval, version)) in writes {
            self.on_commit(ctx, Commit::Write { pg, interval, version });
        }
    }

    fn on_commit(&mut self, ctx: &mut Ctx<'_>, commit: Commit) {
        let (pg, interval) = match &commit {
            Commit::Silent => return,
            Commit::Write { pg, interval, .. }
            | Commit::Activation { pg, interval }
            | Commit::Part { pg, interval, .. }
            | Commit::Backfilled { pg, interval, .. } => (*pg, *interval),
        };
        let sh = &mut self.sh;
        let Some(pg) = self.pgs.get_mut(&pg).filter(|pg| pg.interval() == interval) else { return };
        match commit {
            Commit::Silent => {}
            Commit::Write { version, .. } if pg.is_active() => pg.on_write_committed(sh, ctx, version),
            Commit::Write { version, .. } => pg.on_replica_committed(sh, ctx, version),
            Commit::Activation { .. } => pg.on_activation_committed(sh, ctx),
            Commit::Part { from, ack, last, .. } => pg.on_part_committed(sh, ctx, from, ack, last),
            Commit::Backfilled { last_backfill, .. } => pg.on_backfilled_committed(sh, ctx, last_backfill),
        }
    }

    fn on_loaded(&mut self, ctx: &mut Ctx<'_>, id: store::FetchId) {
        for load in self.sh.loads.remove(&id).unwrap_or_default() {
            match load {
                Load::Start => {
                    if let Err(error) = self.go_on_loading(ctx) {
                        self.sh.fatal(format!("cannot load the OSD's state: {error}"));
                    } else if self.loaded && self.mon.open {
                        self.subscribe();
                    }
                }
                Load::Request { pg, request } => {
                    if let Some(pg) = self.pgs.get_mut(&pg) {
                        pg.fetched(&mut self.sh, ctx, request, |_| {});
                    }
                }
                Load::Background { pg } => {
                    if let Some(pg) = self.pgs.get_mut(&pg) {
                        pg.retry_recovery(&mut self.sh, ctx);
                    }
                }
                Load::Scrub { pg } => self.continue_scrub(ctx, pg),
                Load::Removal => self.delete_some(ctx),
                Load::Message { from, kind, body } => self.handle_peer_message(ctx, from, kind, body),
            }
        }
    }

    /// After every event: what it left to do, and the invariants.
    fn settle(&mut self, ctx: &mut Ctx<'_>) {
        while let Some((kind, body)) = self.sh.loopback.pop_front() {
            let me = self.sh.me();
            self.handle_peer_message(ctx, me, kind, body);
        }
        for id in std::mem::take(&mut self.sh.dirty) {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.end_watches(&mut self.sh, ctx);
                pg.purge_strays(&mut self.sh, ctx);
                if cfg!(debug_assertions) {
                    pg.assert_sane();
                }
            }
            self.review_backoffs(ctx, id);
        }
        self.drive_copies(ctx);
        self.chase_leases(ctx);
        self.ask_mon(ctx);
        self.report_if_due(ctx);
    }

    /// When [`Osd::on_tick`] must be called.
    pub fn next_wake(&self) -> Time {
        if !self.loaded {
            return Time::MAX;
        }
        self.sh.wake.min(self.timers.last_tick + self.sh.config.heartbeat_interval)
    }

    /// Asks to stop: tells the monitor to mark us down. Done once
    /// [`Osd::is_stopped`] says so or the driver's patience ends.
    pub fn stop(&mut self, ctx: &mut Ctx<'_>) {
        self.stopping = true;
        let map = self.sh.maps.map().clone();
        let me = self.sh.me();
        if self.sh.am_up
            && let Some(info) = map.info(me)
        {
            self.sh.send_mon(&wire::messages::MOsdGoingDown { osd: me, up_from: info.up_from });
        }
        self.settle(ctx);
    }

    /// The map shows us down after [`Osd::stop`].
    pub fn is_stopped(&self) -> bool {
        self.stopping && !self.sh.am_up
    }
}
