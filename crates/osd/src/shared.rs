//! What all PGs of an OSD use: store, maps, peers, the way out, and the lists
//! of what completions belong to whom.

use crate::action::{Action, Ctx};
use crate::config::OsdConfig;
use crate::exec::CopySource;
use crate::heartbeat::{Link, PeerOsd, Peers};
use crate::maps::Maps;
use crate::peer::{self, PgHeader, PgMessage, PushAck};
use crate::pg::watch::WatchTotals;
use crate::space::Space;
use base::{Duration, Time};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{FetchId, ObjectStore, StoreError, Transaction, TxnId};
use wire::features::Features;
use wire::messages::osd_op::OpCode;
use wire::messages::{LogEntry, LogLevel, MLog, Outgoing, Payload, SessionId};
use wire::types::{EVersion, EntityName, EntityType, Epoch, HObject, OsdId, PgId};

/// What becomes durable with a transaction, and who wants to know.
///
/// `interval` tells notifications of a past interval from current ones.
#[derive(Clone, PartialEq, Debug)]
pub enum Commit {
    /// Nobody asks.
    Silent,
    /// A write at its primary or at a replica.
    Write {
        pg: PgId,
        interval: Epoch,
        version: EVersion,
    },
    Activation {
        pg: PgId,
        interval: Epoch,
    },
    /// A part of a recovered object, from this OSD.
    Part {
        pg: PgId,
        interval: Epoch,
        from: OsdId,
        ack: PushAck,
        last: bool,
    },
    Backfilled {
        pg: PgId,
        interval: Epoch,
        last_backfill: HObject,
    },
}

/// Who reads object data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetch {
    Request {
        pg: PgId,
        request: u64,
        index: usize,
    },
    /// Data of a part that is to be pushed.
    Push {
        pg: PgId,
        push: u64,
        index: usize,
    },
    /// Data that a scrub looks at.
    Scrub {
        pg: PgId,
        scan: u64,
    },
}

/// Who waits for metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Load {
    /// The OSD, to start.
    Start,
    Request {
        pg: PgId,
        request: u64,
    },
    /// Recovery and the rest of a PG's background work.
    Background {
        pg: PgId,
    },
    /// A PG's scrub, or another's that wants to know of our copy.
    Scrub {
        pg: PgId,
    },
    /// The removal of PGs.
    Removal,
    /// Peer message to be handled again.
    Message {
        from: OsdId,
        kind: u16,
        body: Bytes,
    },
}

/// An object that a request copies from somewhere else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyWait {
    pub pg: PgId,
    pub request: u64,
    pub source: CopySource,
    pub sent: Time,
    pub to: OsdId,
}

/// Cumulative counts since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    pub reads: u64,
    pub writes: u64,
    pub duplicates: u64,
    pub misdirected: u64,
    pub unsupported: BTreeMap<OpCode, u64>,
    pub malformed: u64,
    /// Reads of object data that the device failed, or answered with something else.
    pub read_errors: u64,
    /// Objects found damaged here and replaced from another copy.
    pub repaired: u64,
    /// Objects found damaged here of which no other copy was intact.
    pub unrepairable: u64,
    /// Clones that lost snapshots, or went, because those were removed.
    pub snap_trims: u64,
    /// Ranges of objects that this OSD took in as the target of a backfill.
    pub backfilled_ranges: u64,
    /// Bytes of objects sent to others that those took from objects they had.
    pub recovery_bytes_shared: u64,
    /// Objects sent so that the receiver did not have what they were to be made from.
    pub recovery_bases_refused: u64,
    /// Writes that some member's device had no room for.
    pub refused_full: u64,
    /// As primary: scrubs that went through a whole PG, and how many of them were deep.
    pub scrubs: u64,
    pub deep_scrubs: u64,
    pub scrubbed_objects: u64,
    /// What they found, be it repaired since or not.
    pub scrub_errors: u64,
}

pub struct Shared<S> {
    pub config: OsdConfig,
    pub store: S,
    pub actions: VecDeque<Action>,
    pub maps: Maps,
    /// The map shows this very life of ours up.
    pub am_up: bool,
    pub peers: Peers,
    /// Queued transactions in order, until each is durable.
    pub commits: VecDeque<(TxnId, Commit)>,
    pub fetches: BTreeMap<FetchId, Fetch>,
    pub loads: BTreeMap<FetchId, Vec<Load>>,
    pub copies: BTreeMap<u64, CopyWait>,
    /// Messages to ourselves.
    pub loopback: VecDeque<(u16, Bytes)>,
    /// PGs with work to do once the event is handled.
    pub dirty: BTreeSet<PgId>,
    /// PGs whose requests wait for time to pass or a lease to come.
    pub laggy: BTreeSet<PgId>,
    pub next_id: u64,
    /// Recovery operations under way in all PGs.
    pub recovering: usize,
    /// Changes by trimming under way in all PGs.
    pub snap_trims: usize,
    /// The PG that we, as primary, scrub.
    pub scrubbing: Option<PgId>,
    /// PGs that we look at for the scrubs of others.
    pub scans: BTreeSet<PgId>,
    /// PGs that let others have their turn.
    pub scrub_turns: BTreeSet<PgId>,
    /// Entries that we have sent to the cluster log.
    logged: u64,
    /// Client requests held, and their bytes.
    pub held_ops: usize,
    pub held_bytes: u64,
    pub counters: Counters,
    /// Clients' sessions that are open.
    pub sessions: BTreeSet<SessionId>,
    pub watch_totals: WatchTotals,
    /// On our device, as of the latest batch.
    pub space: Space,
    /// Writes under way in all PGs, in bytes of a device.
    pub in_flight_bytes: u64,
    /// Somebody's room could be less than what may be under way: look before each write.
    pub is_space_tight: bool,
    /// `up_thru` that PGs need; repeated until a map shows it.
    pub want_up_thru: Epoch,
    /// Acting sets that PGs ask for; repeated until a map shows them.
    pub want_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    pub mon_requests_dirty: bool,
    /// A PG's state has changed: the monitor should know soon.
    pub report_soon: bool,
    pub wake: Time,
}

impl<S: ObjectStore> Shared<S> {
    pub fn new(config: OsdConfig, store: S) -> Shared<S> {
        let space = Space::of(&store.stats());
        Shared {
            config,
            store,
            actions: VecDeque::new(),
            maps: Maps::default(),
            am_up: false,
            peers: Peers::default(),
            commits: VecDeque::new(),
            fetches: BTreeMap::new(),
            loads: BTreeMap::new(),
            copies: BTreeMap::new(),
            loopback: VecDeque::new(),
            dirty: BTreeSet::new(),
            laggy: BTreeSet::new(),
            next_id: 1,
            recovering: 0,
            snap_trims: 0,
            scrubbing: None,
            scans: BTreeSet::new(),
            scrub_turns: BTreeSet::new(),
            logged: 0,
            held_ops: 0,
            held_bytes: 0,
            counters: Counters::default(),
            sessions: BTreeSet::new(),
            watch_totals: WatchTotals::default(),
            space,
            in_flight_bytes: 0,
            is_space_tight: true,
            want_up_thru: Epoch(0),
            want_pg_temp: BTreeMap::new(),
            mon_requests_dirty: false,
            report_soon: false,
            wake: Time::MAX,
        }
    }

    pub fn me(&self) -> OsdId {
        self.config.whoami
    }

    pub fn epoch(&self) -> Epoch {
        self.maps.epoch()
    }

    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Queues a transaction that our own state demands: refusing it is fatal,
    /// because memory and store would part.
    pub fn must_queue(&mut self, txn: Transaction, commit: Commit) {
        if txn.is_empty() && commit == Commit::Silent {
            return;
        }
        if let Err(error) = self.try_queue(txn, commit) {
            self.fatal(format!("the store refuses a transaction: {error}"));
        }
    }

    pub fn try_queue(&mut self, txn: Transaction, commit: Commit) -> Result<(), StoreError> {
        let id = self.store.queue(txn)?;
        debug_assert!(self.commits.back().is_none_or(|(last, _)| *last < id));
        self.commits.push_back((id, commit));
        Ok(())
    }

    pub fn fatal(&mut self, reason: String) {
        tracing::error!(reason, "fatal");
        self.actions.push_back(Action::Fatal(reason));
    }

    pub fn send_mon<P: Payload>(&mut self, payload: &P) {
        self.actions.push_back(Action::SendMon(Outgoing::new(payload, 0, Features::PACIFIC)));
    }

    /// For `ceph log last` and `ceph -w`.
    pub fn log_cluster(&mut self, ctx: &Ctx<'_>, level: LogLevel, texts: Vec<String>) {
        if texts.is_empty() {
            return;
        }
        let first = self.logged + 1;
        self.logged += texts.len() as u64;
        let entry = |(seq, text)| LogEntry {
            name: (u32::from(EntityType::Osd.as_u8()), self.me().to_string()),
            rank: EntityName::osd(self.me().0),
            addrs: self.config.client_addrs.clone(),
            stamp: ctx.wall,
            seq,
            level,
            text,
            channel: "cluster".into(),
        };
        let (fsid, entries) = (self.config.fsid, (first..).zip(texts).map(entry).collect());
        self.send_mon(&MLog { version: 0, fsid, entries });
    }

    pub fn send_client(&mut self, session: SessionId, message: Outgoing) {
        self.actions.push_back(Action::SendClient { session, message });
    }

    /// To a peer, or to ourselves. Lost when the link is not up: every sender
    /// repeats what matters when the link comes up, or after a while.
    pub fn send_peer(&mut self, ctx: &Ctx<'_>, to: OsdId, kind: u16, body: Vec<Bytes>) {
        if to == self.me() {
            self.loopback.push_back((kind, Bytes::from(body.concat())));
            return;
        }
        match self.peers.all.get(&to).map(|p| p.link) {
            Some(Link::Up) => {
                self.actions.push_back(Action::SendPeer {
                    osd: to,
                    channel: peer::channel_of(kind),
                    kind,
                    body,
                });
            }
            Some(Link::Dialing) => {}
            Some(Link::Down) | None => self.dial(ctx, to),
        }
    }

    pub fn send_pg(&mut self, ctx: &Ctx<'_>, to: OsdId, header: PgHeader, message: impl Into<PgMessage>) {
        let message = message.into();
        tracing::trace!(me = %self.me(), %to, ?header, ?message, "send");
        self.send_peer(ctx, to, message.kind(), peer::encode_pg(&header, &message));
    }

    /// Dials a peer that the map shows up, unless that was just tried.
    pub fn dial(&mut self, ctx: &Ctx<'_>, osd: OsdId) {
        let map = self.maps.map().clone();
        if osd == self.me() || !map.is_up(osd) {
            return;
        }
        let (Some(addrs), Some(info)) = (map.cluster_addrs(osd), map.info(osd)) else { return };
        let fresh = || PeerOsd::new(addrs.clone(), info.up_from, ctx.now);
        let peer = self.peers.all.entry(osd).or_insert_with(fresh);
        let redial_after = self.config.heartbeat_interval;
        if peer.link != Link::Down
            || (peer.last_dial != Time::ZERO && ctx.now.since(peer.last_dial) < redial_after)
        {
            return;
        }
        peer.link = Link::Dialing;
        peer.last_dial = ctx.now.max(Time(1));
        self.actions.push_back(Action::ConnectPeer { osd, addrs: peer.addrs.clone() });
    }

    /// Until when all these members let us serve reads.
    pub fn lease_until(&self, members: impl Iterator<Item = OsdId>) -> Time {
        let mut until = Time::MAX;
        for osd in members.filter(|osd| *osd != self.me()) {
            until = until.min(self.peers.all.get(&osd).map_or(Time::ZERO, PeerOsd::lease_until));
        }
        until
    }

    pub fn wake_at(&mut self, at: Time) {
        self.wake = self.wake.min(at);
    }

    pub fn wake_in(&mut self, ctx: &Ctx<'_>, delay: Duration) {
        self.wake_at(ctx.now + delay);
    }

    /// Notes that somebody waits for metadata; `false` if the error is another one.
    pub fn wait_load(&mut self, error: &StoreError, waiter: Load) -> bool {
        let StoreError::Pending(id) = error else { return false };
        let waiters = self.loads.entry(*id).or_default();
        if !waiters.contains(&waiter) {
            waiters.push(waiter);
        }
        true
    }

    /// Everybody who may send writes to one of us.
    fn primaries(&self) -> u64 {
        self.peers.all.len() as u64 + 1
    }

    pub fn note_peer_space(&mut self, osd: OsdId, space: Space) {
        let Some(peer) = self.peers.all.get_mut(&osd) else { return };
        if peer.space != Some(space) {
            peer.space = Some(space);
            self.judge_space();
        }
    }

    /// Own or peers' figures have changed.
    pub fn judge_space(&mut self) {
        let primaries = self.primaries();
        let peers = self.peers.all.values().filter_map(|peer| peer.space);
        self.is_space_tight = peers.chain([self.space]).any(|space| !space.is_plenty(primaries));
    }

    /// Recovery would take the last room of this OSD's device.
    pub fn is_failsafe_full(&self, osd: OsdId) -> bool {
        self.space_of(osd).is_some_and(|space| space.total > 0 && space.room() == 0)
    }

    pub fn is_backfill_full(&self, osd: OsdId) -> bool {
        let ratio = f64::from(self.maps.map().backfillfull_ratio);
        ratio > 0.0 && self.space_of(osd).is_some_and(|space| space.used_ratio() >= ratio)
    }

    pub fn space_of(&self, osd: OsdId) -> Option<Space> {
        if osd == self.me() { Some(self.space) } else { self.peers.all.get(&osd)?.space }
    }

    /// The first of these, or ourselves, whose device might not hold what is under way and `cost` more.
    pub fn who_lacks_room(&self, targets: &[OsdId], cost: u64) -> Option<OsdId> {
        if cost == 0 || !self.is_space_tight {
            return None;
        }
        let primaries = self.primaries();
        let wanted = self.in_flight_bytes + cost;
        let lacks = |osd: &OsdId| self.space_of(*osd).is_some_and(|space| space.share(primaries) < wanted);
        targets.iter().copied().chain([self.me()]).find(|osd| lacks(osd))
    }

    /// A PG's interval has ended: what was being read for it answers nobody.
    pub fn forget_fetches(&mut self, of: PgId) {
        self.fetches.retain(|_, fetch| match fetch {
            Fetch::Request { pg, .. } | Fetch::Push { pg, .. } | Fetch::Scrub { pg, .. } => *pg != of,
        });
        for waiters in self.loads.values_mut() {
            waiters.retain(|load| !matches!(load, Load::Request { pg, .. } if *pg == of));
        }
    }

    /// A PG wants the map to show that we were up in `epoch`.
    pub fn request_up_thru(&mut self, epoch: Epoch) {
        if epoch > self.want_up_thru {
            self.want_up_thru = epoch;
            self.mon_requests_dirty = true;
        }
    }

    pub fn request_pg_temp(&mut self, pg: PgId, acting: Vec<OsdId>) {
        if self.want_pg_temp.get(&pg) != Some(&acting) {
            self.want_pg_temp.insert(pg, acting);
            self.mon_requests_dirty = true;
        }
    }
}
