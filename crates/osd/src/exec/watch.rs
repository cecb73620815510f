//! Watches: who wants to hear of an object's notifications.
//!
//! Here is what a request's execution knows of them and asks for. Who watches
//! is recorded with the object ([`super::ObjectInfo::watchers`]), so that it
//! survives this OSD; which watch has a connection, and which notifications
//! are under way, only the primary's memory knows (`crate::pg`'s watches).
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`do_osd_ops`, `do_osd_op_effects`,
//! `handle_watch_timeout`), `src/osd/osd_types.h` (`watch_info_t`).

use super::staged::{StagedObject, Stop};
use super::{Change, Effect, Fetched, INFO_ATTR, Need, Outcome, StatDelta};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::{Mutation, ObjectId, ObjectStore};
use wire::codec::{Decode, Decoder, Encode, Encoder, Result};
use wire::types::{EVersion, EntityAddr, EntityName};

/// One watch among those of an object: one client may have several.
///
/// Shape: ordered as Ceph lists them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WatchKey {
    pub cookie: u64,
    pub client: EntityName,
}

impl Encode for WatchKey {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.cookie);
        e.put(&self.client);
    }
}

impl Decode for WatchKey {
    const MIN_LEN: usize = 8 + EntityName::MIN_LEN;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(WatchKey { cookie: d.u64()?, client: d.get()? })
    }
}

/// What is recorded of a watch.
///
/// Units: seconds of silence after which the watch ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatchInfo {
    pub timeout_s: u32,
    pub addr: EntityAddr,
}

impl Encode for WatchInfo {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.timeout_s);
        e.put(&self.addr);
    }
}

impl Decode for WatchInfo {
    const MIN_LEN: usize = 4 + EntityAddr::MIN_LEN;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(WatchInfo { timeout_s: d.u32()?, addr: d.get()? })
    }
}

pub type Watchers = BTreeMap<WatchKey, WatchInfo>;

/// What a request may know of watches besides the object's record.
#[derive(Clone, Debug, Default)]
pub struct WatchContext {
    /// Cookies of this client's watches on the object that have a connection.
    pub connected: BTreeSet<u64>,
    /// The id of the message's first notification; more follow it.
    pub notify_id: u64,
    /// This OSD has as many watches, or notifications under way, as it may.
    pub watches_full: bool,
    pub notifies_full: bool,
}

/// What has to do with watches once the request took effect.
///
/// Shape: `disconnects` take effect first, so `connects` are of watches that are recorded afterwards.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WatchEffects {
    pub connects: Vec<WatchConnect>,
    pub disconnects: Vec<WatchDisconnect>,
    pub pings: Vec<WatchKey>,
    pub notifies: Vec<Notification>,
    pub acks: Vec<NotifyAck>,
}

impl WatchEffects {
    pub fn is_empty(&self) -> bool {
        let WatchEffects { connects, disconnects, pings, notifies, acks } = self;
        connects.is_empty()
            && disconnects.is_empty()
            && pings.is_empty()
            && notifies.is_empty()
            && acks.is_empty()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchConnect {
    pub key: WatchKey,
    pub info: WatchInfo,
    /// It promises to ping; who does not is alive as long as the connection.
    pub pings: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchDisconnect {
    pub key: WatchKey,
    /// It did not ask for that itself.
    pub tell: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    pub id: u64,
    /// The notifier's, for the completion.
    pub cookie: u64,
    pub timeout_s: u32,
    pub payload: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotifyAck {
    pub notify_id: u64,
    /// `None`: all watches of the client on the object, as old clients say it.
    pub cookie: Option<u64>,
    pub reply: Bytes,
}

/// What an execution found and did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Watching {
    /// Recorded before the request.
    pub before: Watchers,
    pub effects: WatchEffects,
}

/// The OSD itself ends watches: their time is over, or their client is blocked.
/// No request of a client, so nothing of the object but this record changes.
///
/// [`Effect::None`] if none of them is recorded any more.
pub fn end_watches(
    store: &dyn ObjectStore,
    id: ObjectId,
    keys: &[WatchKey],
    at_version: EVersion,
    fetched: &Fetched,
) -> std::result::Result<Outcome, Need> {
    let mut outcome = Outcome {
        result: 0,
        ops: Vec::new(),
        user_version: 0,
        effect: Effect::None,
        unsupported: Vec::new(),
        watch: None,
    };
    let mut object = match StagedObject::load(store, fetched, id) {
        Ok(object) => object,
        Err(Stop::Need(need)) => return Err(need),
        Err(Stop::Code(_) | Stop::Abort(_) | Stop::Data) => return Ok(outcome),
    };
    let recorded = &object.before.info.watchers;
    // The others' end is told by the write that recorded it, which may be under way still.
    let ended = keys.iter().filter(|key| recorded.contains_key(key));
    let disconnects: Vec<WatchDisconnect> =
        ended.map(|key| WatchDisconnect { key: *key, tell: true }).collect();
    let nothing_to_do = disconnects.is_empty();
    outcome.watch = Some(Box::new(Watching {
        before: recorded.clone(),
        effects: WatchEffects { disconnects, ..WatchEffects::default() },
    }));
    let info = &mut object.info;
    outcome.user_version = info.user_version;
    if nothing_to_do {
        return Ok(outcome);
    }
    info.watchers.retain(|key, _| !keys.contains(key));
    info.prior_version = info.version;
    info.version = at_version;
    let attrs = [(INFO_ATTR, info.to_record())].into();
    outcome.effect = Effect::Change(Change {
        mutations: vec![Mutation::SetXattrs { id: object.id.clone(), attrs }],
        deleted: false,
        version: at_version,
        clones: Vec::new(),
        prior_version: object.before.info.version,
        delta: StatDelta::default(),
    });
    Ok(outcome)
}
