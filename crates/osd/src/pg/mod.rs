//! One placement group on one OSD.
//!
//! Knows its own members, log and objects; not sockets, not other PGs, not how
//! maps arrive. `crate::osd` hands it events; it acts through
//! `Shared`.
//!
//! Invariants:
//! - `log.head() == info.last_update`, in memory and in the store.
//! - Only a primary in [`Phase::Active`] executes client requests, and only
//!   while [`Pg::may_serve`] holds.
//! - A change is in the local store's queue before it is sent to a replica.
//! - Nothing of a past interval changes anything: messages, commits and
//!   fetches name the interval they belong to.

pub mod backfill;
mod fence;
pub mod info;
pub mod intervals;
pub mod log;
pub mod missing;
mod ops;
mod peering;
mod persist;
mod placement;
mod push;
mod push_base;
mod receive;
mod recovery;
mod repair;
mod replica;
mod replication;
pub mod request;
pub mod scrub;
mod snap_index;
mod snap_trim;
pub mod stats;
pub mod watch;

pub use persist::{LoadError, load, meta_object, pg_meta};
pub use receive::TEMP_POOL;

use crate::action::Ctx;
use crate::maps::Placement;
use crate::peer::{PgHeader, PgMessage};
use crate::shared::Shared;
use backfill::Backfill;
use base::{MemoryUse, Time};
use info::PgInfo;
use intervals::{PastIntervals, PriorSet};
use log::PgLog;
use missing::Missing;
use ops::{Fetching, ObjectQueue};
use persist::{Loaded, Records};
use push::Pushing;
use recovery::Recovering;
use replication::InFlight;
use request::Request;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{CollId, Mutation, ObjectId, ObjectStore, Transaction};
use wire::types::{EVersion, Epoch, HObject, OsdId, PgId};

/// Where the PG is in its life on this OSD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not a member, or we are not up: nothing to do but to tell the primary.
    Stray,
    /// A member; `active` once the primary's log is durable here.
    Replica {
        active: bool,
    },
    /// Primary, not knowing the PG: asking everybody whether it ever lived.
    Discovering {
        awaiting: BTreeSet<OsdId>,
    },
    /// Primary, asking those who may know.
    GetInfo {
        awaiting: BTreeSet<OsdId>,
    },
    /// Primary; acknowledged writes may be on OSDs that are down.
    Down,
    /// Primary; no copy is complete.
    Incomplete,
    GetLog {
        from: OsdId,
    },
    /// Waiting for the monitor to make other OSDs the acting set.
    WaitActing {
        want: Vec<OsdId>,
    },
    /// Waiting for the monitor to record that we were up in this interval.
    WaitUpThru,
    Activating {
        awaiting: BTreeSet<OsdId>,
        local: bool,
    },
    /// All members have the log. Serves clients unless below `min_size`.
    Active,
}

/// What the primary knows of another OSD's copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerCopy {
    /// `None`: it has no copy.
    pub info: Option<PgInfo>,
    pub missing: Missing,
    /// Durable there.
    pub acked: EVersion,
}

impl PeerCopy {
    /// As a copy that does not exist.
    pub fn info_or_default(&self) -> PgInfo {
        self.info.clone().unwrap_or_default()
    }
}

pub struct Pg {
    pub id: PgId,
    pub coll: CollId,
    meta: ObjectId,
    pub placement: Placement,
    pub info: PgInfo,
    past: PastIntervals,
    log: PgLog,
    missing: Missing,
    pub phase: Phase,
    /// Info or intervals changed since they were last stored.
    dirty_info: bool,

    // As primary, for this interval:
    prior: PriorSet,
    peers: BTreeMap<OsdId, PeerCopy>,
    /// Peers whose log turned out useless: they get full copies.
    full_copy: BTreeSet<OsdId>,
    /// Everybody who gets writes: acting and up, without us.
    targets: Vec<OsdId>,
    backfills: BTreeMap<OsdId, Backfill>,
    strays: BTreeSet<OsdId>,
    /// When leases of past primaries may have run out latest, as reported.
    lease_reports: BTreeMap<OsdId, Time>,
    lease_floor: Time,
    /// No client is served before: somebody may still serve reads of the past.
    readable_from: Time,
    /// Cached: all members' leases hold at least so long.
    lease_until: Time,
    last_sent: Time,
    clean: bool,
    /// The activation is durable here (as a replica).
    activation_durable: bool,
    /// Writes were dropped (as a replica): ask for them again.
    stalled: bool,

    /// What creates the PG once it is certain that it is new.
    creation: Option<Transaction>,

    // Requests:
    /// Wait for the PG, in order of arrival.
    waiting: VecDeque<Box<Request>>,
    objects: BTreeMap<HObject, ObjectQueue>,
    fetching: BTreeMap<u64, Fetching>,
    in_flight: VecDeque<InFlight>,
    /// Durable here.
    committed: EVersion,
    /// Durable everywhere: what clients may know.
    acked: EVersion,

    // Recovery:
    recovering: BTreeMap<HObject, Recovering>,
    /// Some target misses objects.
    peers_missing: bool,
    wanted: BTreeSet<HObject>,
    unfound: BTreeSet<HObject>,
    /// Objects that the devices of these OSDs, ours among them, have lost; being repaired.
    damaged: BTreeMap<HObject, BTreeSet<OsdId>>,
    /// Counts objects that came in: an older read's error may be about what is replaced by now.
    repairs: u64,
    /// Damaged here, and in this interval nobody has an intact copy.
    unrepairable: BTreeSet<HObject>,
    pushing: BTreeMap<u64, Pushing>,
    /// Parts of an object on their way in: the part expected next.
    receiving: BTreeMap<HObject, receive::Receiving>,
    /// Objects a push of which once had to wait for metadata: the newest attempt since, and whose.
    parked: BTreeMap<HObject, (OsdId, u64)>,

    watches: watch::Watches,

    snap_trim: snap_trim::SnapTrim,

    scrub: scrub::Scrub,
    /// A range that the primary, be it us or not, wants to know of.
    scan: Option<scrub::Scan>,

    pub stats: stats::Activity,
}

impl Pg {
    fn blank(id: PgId) -> Pg {
        Pg {
            id,
            coll: CollId::Pg(id),
            meta: pg_meta(id),
            placement: Placement::default(),
            info: PgInfo::default(),
            past: PastIntervals::default(),
            log: PgLog::default(),
            missing: Missing::default(),
            phase: Phase::Stray,
            dirty_info: false,
            prior: PriorSet::default(),
            peers: BTreeMap::new(),
            full_copy: BTreeSet::new(),
            targets: Vec::new(),
            backfills: BTreeMap::new(),
            strays: BTreeSet::new(),
            lease_reports: BTreeMap::new(),
            lease_floor: Time::ZERO,
            readable_from: Time::ZERO,
            lease_until: Time::ZERO,
            last_sent: Time::ZERO,
            clean: false,
            activation_durable: false,
            stalled: false,
            creation: None,
            waiting: VecDeque::new(),
            objects: BTreeMap::new(),
            fetching: BTreeMap::new(),
            in_flight: VecDeque::new(),
            committed: EVersion::ZERO,
            acked: EVersion::ZERO,
            recovering: BTreeMap::new(),
            peers_missing: false,
            wanted: BTreeSet::new(),
            unfound: BTreeSet::new(),
            damaged: BTreeMap::new(),
            unrepairable: BTreeSet::new(),
            repairs: 0,
            pushing: BTreeMap::new(),
            receiving: BTreeMap::new(),
            parked: BTreeMap::new(),
            watches: watch::Watches::default(),
            snap_trim: snap_trim::SnapTrim::default(),
            scrub: scrub::Scrub::default(),
            scan: None,
            stats: stats::Activity::default(),
        }
    }

    /// A PG without a past: it begins its life in this epoch. The caller has
    /// made sure that it never lived before.
    pub fn create(id: PgId, placement: Placement, epoch: Epoch, txn: &mut Transaction) -> Pg {
        Pg::newborn(id, placement, epoch, epoch, txn)
    }

    fn newborn(
        id: PgId,
        placement: Placement,
        epoch: Epoch,
        primary_since: Epoch,
        txn: &mut Transaction,
    ) -> Pg {
        let mut pg = Pg::blank(id);
        pg.placement = placement;
        let history = &mut pg.info.history;
        history.created = epoch;
        history.same_interval_since = epoch;
        history.same_up_since = epoch;
        history.same_primary_since = primary_since;
        txn.push(Mutation::CreateCollection(pg.coll));
        pg.dirty_info = true;
        pg.save_if_dirty(txn);
        pg
    }

    /// A PG that we are primary of and have never heard of; kept in memory
    /// only, until [`Pg::start_discovery`] has shown that it is new.
    pub fn provisional(id: PgId, placement: Placement, epoch: Epoch) -> Pg {
        let mut txn = Transaction::new();
        // For how long we have been primary is not known. Clients that saw the
        // interval begin do not send again, so nothing they sent may be dropped.
        let mut pg = Pg::newborn(id, placement, epoch, Epoch(0), &mut txn);
        pg.creation = Some(txn);
        pg
    }

    /// The PG leaves this OSD's memory.
    pub fn retire<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        self.end_interval(sh);
        self.drop_waiting(sh);
        sh.dirty.remove(&self.id);
    }

    /// Requests change over to the PG that takes this one's place.
    pub fn take_waiting<S: ObjectStore>(&mut self, sh: &mut Shared<S>) -> VecDeque<Box<Request>> {
        self.end_interval(sh);
        std::mem::take(&mut self.waiting)
    }

    pub fn give_waiting(&mut self, waiting: VecDeque<Box<Request>>) {
        self.waiting = waiting;
    }

    pub fn is_provisional(&self) -> bool {
        self.creation.is_some()
    }

    /// A PG that another OSD tells us of, in the interval that it names.
    pub fn adopt(
        id: PgId,
        placement: Placement,
        info: &PgInfo,
        past: PastIntervals,
        txn: &mut Transaction,
    ) -> Pg {
        let mut pg = Pg::blank(id);
        pg.placement = placement;
        pg.info.history = info.history;
        pg.past = past;
        txn.push(Mutation::CreateCollection(pg.coll));
        pg.dirty_info = true;
        pg.save_if_dirty(txn);
        pg
    }

    /// As stored; `placement` is that of the epoch it was stored in.
    pub fn from_loaded(id: PgId, loaded: Loaded, placement: Placement) -> Pg {
        let mut pg = Pg::blank(id);
        pg.placement = placement;
        pg.committed = loaded.info.last_update;
        pg.acked = EVersion::ZERO;
        pg.info = loaded.info;
        pg.past = loaded.past;
        pg.log = loaded.log;
        pg.missing = loaded.missing;
        pg
    }

    pub fn interval(&self) -> Epoch {
        self.info.history.same_interval_since
    }

    pub fn header<S: ObjectStore>(&self, sh: &Shared<S>) -> PgHeader {
        PgHeader { pg: self.id, interval: self.interval(), epoch: sh.epoch() }
    }

    pub fn is_primary<S: ObjectStore>(&self, sh: &Shared<S>) -> bool {
        sh.am_up && self.placement.primary == Some(sh.me())
    }

    pub fn object_id(&self, object: &HObject) -> ObjectId {
        ObjectId { coll: self.coll, object: object.clone() }
    }

    pub fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    pub fn is_clean(&self) -> bool {
        self.clean
    }

    pub fn last_update(&self) -> EVersion {
        self.info.last_update
    }

    /// Of the log: entries and bytes.
    pub fn log_memory(&self) -> MemoryUse {
        MemoryUse::new(self.log.len(), self.log.memory())
    }

    /// Requests held here.
    pub fn has_requests(&self) -> bool {
        !self.waiting.is_empty() || !self.objects.is_empty()
    }

    fn records(&self) -> Records {
        Records::new(self.meta.clone())
    }

    /// Stores info and intervals with the transaction if they changed.
    fn save_if_dirty(&mut self, txn: &mut Transaction) {
        if !self.dirty_info {
            return;
        }
        self.dirty_info = false;
        self.info.missing_count = self.missing.len() as u64;
        let mut records = self.records();
        records.info(&self.info);
        records.past(&self.past);
        records.into_txn(txn);
    }

    /// A message about this PG, of our interval.
    pub fn on_message<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        message: PgMessage,
    ) {
        match message {
            PgMessage::QueryInfo(_) | PgMessage::Discover(_) => self.send_notify(sh, ctx, from),
            PgMessage::NotHere(_) => self.on_not_here(sh, ctx, from),
            PgMessage::Notify(m) => self.on_notify(sh, ctx, from, m),
            PgMessage::QueryLog(m) => self.on_query_log(sh, ctx, from, m),
            PgMessage::Log(m) => self.on_log(sh, ctx, from, m),
            PgMessage::Activate(m) => self.on_activate(sh, ctx, from, m),
            PgMessage::Activated(m) => self.on_activated(sh, ctx, from, m),
            PgMessage::NeedLog(m) => self.on_need_log(sh, ctx, from, m),
            PgMessage::Settled(m) => self.on_settled(sh, from, m),
            PgMessage::ReplAck(m) => self.on_repl_ack(sh, ctx, from, m),
            PgMessage::ReplResend(m) => self.on_repl_resend(sh, ctx, from, m),
            PgMessage::Pull(m) => self.on_pull(sh, ctx, from, m),
            PgMessage::Push(m) => self.on_push(sh, ctx, from, m),
            PgMessage::PushAck(m) => self.on_push_ack(sh, ctx, from, m),
            PgMessage::PushRefused(m) => self.on_push_refused(sh, ctx, from, m),
            PgMessage::PullFailed(m) => self.on_pull_failed(sh, ctx, from, m),
            PgMessage::Scan(m) => self.on_scan(sh, ctx, from, m),
            PgMessage::ScanResult(m) => self.on_scan_result(sh, ctx, from, m),
            PgMessage::Backfilled(m) => self.on_backfilled(sh, ctx, from, m),
            PgMessage::BackfilledAck(m) => self.on_backfilled_ack(sh, ctx, from, m),
            PgMessage::ScrubScan(m) => self.on_scrub_scan(sh, ctx, from, m),
            PgMessage::ScrubMap(m) => self.on_scrub_map(sh, ctx, from, m),
            // Handled before it gets here.
            PgMessage::Remove(_) | PgMessage::CopyGet(_) => {}
        }
    }

    /// Checks what must hold after every event.
    pub fn assert_sane(&self) {
        assert_eq!(self.log.head(), self.info.last_update, "PG {}: log and info", self.id);
        assert!(self.acked <= self.info.last_update, "PG {}: acknowledged beyond the log", self.id);
    }
}
