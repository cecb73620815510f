//! The client's state: sessions, commands, requests in flight. How it follows
//! the maps is in `maps`, and what goes on after an answer in `linger`.

mod linger;
mod maps;
#[cfg(test)]
mod tests;

use crate::backoff::Backoffs;
use crate::linger::{Kind, Linger, NotifyReply, WatchEvent, WatchId};
use crate::request::ObjectRequest;
use crate::target::Target;
use base::{Errno, Time, WallTime};
use bytes::Bytes;
use crush::CrushMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::Features;
use wire::maps::{OsdMap, OsdMapFlags, PgPool, PoolFlags};
use wire::messages::osd_op::flags;
use wire::messages::{
    BackoffOp, Incoming, MMonCommand, MMonCommandAck, MMonGetVersionReply, MMonSubscribe, MOsdBackoff,
    MOsdMap, MOsdOp, MOsdOpReply, MPoolOp, MPoolOpReply, MWatchNotify, OpResult, Outgoing, Payload,
    PoolOpKind, Subscription,
};
use wire::types::{EntityAddr, Epoch, HObject, OsdId, PoolId, SnapId, SpgId, Uuid};

/// A submitted request; the tid on the wire. Unique for the client's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Shown to the monitor in subscriptions.
    pub hostname: String,
}

/// What the host must do.
#[derive(Clone, Debug)]
pub enum Action {
    SendMon(Outgoing),
    /// Open a session; answered by `on_osd_open` or `on_osd_closed`.
    ConnectOsd {
        osd: OsdId,
        addr: EntityAddr,
    },
    DisconnectOsd(OsdId),
    SendOsd {
        osd: OsdId,
        message: Outgoing,
    },
    Complete(RequestId, Completion),
    Watch(WatchId, WatchEvent),
}

/// How a request ended.
#[derive(Clone, Debug)]
pub enum Completion {
    Object {
        result: i32,
        ops: Vec<OpResult>,
        user_version: u64,
    },
    /// Of a command or a pool operation; the output of a new snapshot is its id as a u64.
    Command {
        result: i32,
        status: String,
        output: Bytes,
    },
    /// Of a notification: ETIMEDOUT if some watchers did not answer in time. Those are named by
    /// client and cookie.
    Notify {
        result: i32,
        replies: Vec<NotifyReply>,
        missed: Vec<(u64, u64)>,
    },
}

/// Who wants the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Caller,
    /// It begins a watch or a notification, or connects a watch again.
    Linger {
        cookie: u64,
        sent: Time,
    },
    Ping {
        cookie: u64,
        generation: u32,
    },
    /// The caller; but the watch is over then.
    Unwatch(WatchId),
}

struct InFlight {
    owner: Owner,
    request: ObjectRequest,
    mtime: WallTime,
    target: Option<Target>,
    /// The session it was sent on; `None` while it waits.
    sent_to: Option<OsdId>,
    attempts: i32,
    /// Set while the pool is newer than our map, or never existed.
    pool_check: Option<PoolCheck>,
}

/// A pool that our map does not know yet may be in a newer one: only the
/// monitor can say which map would have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PoolCheck {
    /// The monitor has been asked for the newest epoch.
    Asked,
    /// If the map of this epoch has no such pool, there is none.
    Until(Epoch),
}

#[derive(Default)]
struct OsdSession {
    open: bool,
    addr: Option<EntityAddr>,
    backoffs: Backoffs,
}

/// What the monitor is asked for.
enum Command {
    Text { json: String, input: Bytes },
    PoolOp { pool: PoolId, op: PoolOpKind, snap: SnapId },
}

pub struct Client {
    config: ClientConfig,
    fsid: Option<Uuid>,
    map: Option<OsdMap>,
    crush: Option<CrushMap>,
    mon_open: bool,
    mon_features: Features,
    sessions: BTreeMap<OsdId, OsdSession>,
    requests: BTreeMap<RequestId, InFlight>,
    commands: BTreeMap<RequestId, Command>,
    /// Watches and notifications, by cookie.
    lingers: BTreeMap<u64, Linger>,
    /// Those that have to be sent again.
    disturbed: BTreeSet<u64>,
    /// As told last.
    now: Time,
    next_id: u64,
    actions: VecDeque<Action>,
}

impl Client {
    pub fn new(config: ClientConfig) -> Client {
        Client {
            config,
            fsid: None,
            map: None,
            crush: None,
            mon_open: false,
            mon_features: Features::PACIFIC,
            sessions: BTreeMap::new(),
            requests: BTreeMap::new(),
            commands: BTreeMap::new(),
            lingers: BTreeMap::new(),
            disturbed: BTreeSet::new(),
            now: Time::ZERO,
            next_id: 1,
            actions: VecDeque::new(),
        }
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The newest map known.
    pub fn map(&self) -> Option<&OsdMap> {
        self.map.as_ref()
    }

    pub fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.map.as_ref()?.pool_by_name(name).map(|(id, _)| id)
    }

    /// What the caller waits for.
    pub fn pending(&self) -> usize {
        let asked = |op: &&InFlight| matches!(op.owner, Owner::Caller | Owner::Unwatch(_));
        let notify = |linger: &&Linger| matches!(linger.kind, Kind::Notify(_));
        self.requests.values().filter(asked).count()
            + self.commands.len()
            + self.lingers.values().filter(notify).count()
    }

    /// The OSDs that hold an object now, primary first: for read-back of every copy.
    pub fn target(&self, request: &ObjectRequest) -> Option<Target> {
        Target::calc(self.map.as_ref()?, self.crush.as_ref()?, request)
    }

    /// Queues a request; it is sent as soon as its PG has a primary.
    pub fn submit(&mut self, request: ObjectRequest, mtime: WallTime) -> RequestId {
        self.submit_for(Owner::Caller, request, mtime)
    }

    fn submit_for(&mut self, owner: Owner, request: ObjectRequest, mtime: WallTime) -> RequestId {
        let id = self.next_request_id();
        let op =
            InFlight { owner, request, mtime, target: None, sent_to: None, attempts: 0, pool_check: None };
        self.requests.insert(id, op);
        self.place(id);
        self.send_if_waiting(id);
        id
    }

    /// Queues a command for the monitor: one JSON object, and bulk input.
    pub fn command(&mut self, json: String, input: Bytes) -> RequestId {
        let id = self.next_request_id();
        self.commands.insert(id, Command::Text { json, input });
        self.send_command(id);
        id
    }

    /// Takes or removes a self-managed snapshot; `snap` is 0 for a new one. Where the
    /// connection is lost it is asked for again, and an id that was drawn may go unused.
    pub fn pool_op(&mut self, pool: PoolId, op: PoolOpKind, snap: SnapId) -> RequestId {
        let id = self.next_request_id();
        self.commands.insert(id, Command::PoolOp { pool, op, snap });
        self.send_command(id);
        id
    }

    /// Forgets a request; its reply, if any comes, is ignored. A write may
    /// have taken effect or not.
    pub fn cancel(&mut self, id: RequestId) {
        if matches!(self.lingers.get(&id.0), Some(Linger { kind: Kind::Notify(_), .. })) {
            self.end_linger(id.0);
        }
        self.requests.remove(&id);
        self.commands.remove(&id);
    }

    fn next_request_id(&mut self) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        id
    }

    // ---- the monitor's session ----

    pub fn on_mon_open(&mut self, features: Features) {
        self.mon_open = true;
        self.mon_features = features;
        self.subscribe(self.epoch().map_or(0, |epoch| u64::from(epoch.0) + 1));
        self.send_commands();
        self.ask_for_pools_again();
    }

    pub fn on_mon_closed(&mut self) {
        self.mon_open = false;
    }

    pub fn on_mon_message(&mut self, message: &Incoming) -> Result<(), wire::DecodeError> {
        match message.kind {
            MOsdMap::KIND => self.on_map(message.decode(self.mon_features)?),
            MMonCommandAck::KIND => {
                let ack: MMonCommandAck = message.decode(self.mon_features)?;
                self.complete_command(RequestId(message.tid), ack.result, ack.status, ack.output);
                Ok(())
            }
            MPoolOpReply::KIND => {
                let reply: MPoolOpReply = message.decode(self.mon_features)?;
                let output = reply.data.unwrap_or_default();
                self.complete_command(RequestId(message.tid), reply.code, String::new(), output);
                Ok(())
            }
            MMonGetVersionReply::KIND => {
                self.on_newest_epoch(message.decode(self.mon_features)?);
                Ok(())
            }
            // Maps and settings that this client has no use for.
            _ => Ok(()),
        }
    }

    fn complete_command(&mut self, id: RequestId, result: i32, status: String, output: Bytes) {
        if self.commands.remove(&id).is_some() {
            let done = Completion::Command { result, status, output };
            self.actions.push_back(Action::Complete(id, done));
        }
    }

    fn send_mon<P: Payload>(&mut self, payload: &P, tid: u64) {
        self.actions.push_back(Action::SendMon(Outgoing::new(payload, tid, self.mon_features)));
    }

    fn subscribe(&mut self, start: u64) {
        let what = BTreeMap::from([("osdmap".to_string(), Subscription { start, once: false })]);
        let subscribe = MMonSubscribe { what, hostname: self.config.hostname.clone() };
        self.send_mon(&subscribe, 0);
    }

    fn send_commands(&mut self) {
        let waiting: Vec<RequestId> = self.commands.keys().copied().collect();
        for id in waiting {
            self.send_command(id);
        }
    }

    /// Monitors refuse commands for another cluster, so the first map, which
    /// names it, comes first.
    fn send_command(&mut self, id: RequestId) {
        let Some(fsid) = self.fsid.filter(|_| self.mon_open) else { return };
        match &self.commands[&id] {
            Command::Text { json, input } => {
                let message = MMonCommand { fsid, cmd: vec![json.clone()], input: input.clone() };
                self.send_mon(&message, id.0);
            }
            Command::PoolOp { pool, op, snap } => {
                let (pool, op, snap) = (*pool, *op, *snap);
                let message = MPoolOp { fsid, pool, op, snap, name: String::new(), crush_rule: -1 };
                self.send_mon(&message, id.0);
            }
        }
    }

    // ---- OSD sessions ----

    pub fn on_osd_open(&mut self, osd: OsdId) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        session.open = true;
        session.backoffs = Backoffs::default();
        self.send_waiting(osd);
    }

    fn forget_sent(&mut self, osd: OsdId) {
        self.disturb_lingers_of(osd);
        for op in self.requests.values_mut().filter(|op| op.sent_to == Some(osd)) {
            op.sent_to = None;
        }
    }

    /// The session ended or could not be opened. The host should call
    /// [`Client::reconnect_osd`] after a pause if requests still want it.
    pub fn on_osd_closed(&mut self, osd: OsdId) {
        if let Some(session) = self.sessions.get_mut(&osd) {
            session.open = false;
        }
        self.forget_sent(osd);
        self.send_disturbed_lingers();
    }

    /// Dials again if the OSD is still up in the map and wanted.
    pub fn reconnect_osd(&mut self, osd: OsdId) {
        if self.sessions.remove(&osd).is_some_and(|s| s.open) {
            unreachable!("reconnecting an open session");
        }
        let wanted =
            self.requests.values().any(|op| op.target.as_ref().and_then(Target::primary) == Some(osd));
        if wanted {
            self.ensure_session(osd);
        }
    }

    fn ensure_session(&mut self, osd: OsdId) -> bool {
        if let Some(session) = self.sessions.get(&osd) {
            return session.open;
        }
        let addr = self.map.as_ref().and_then(|m| client_addr(m, osd));
        if let Some(addr) = addr {
            self.sessions.insert(osd, OsdSession { addr: Some(addr), ..OsdSession::default() });
            self.actions.push_back(Action::ConnectOsd { osd, addr });
        }
        false
    }

    pub fn on_osd_message(&mut self, osd: OsdId, message: &Incoming) -> Result<(), wire::DecodeError> {
        match message.kind {
            MOsdMap::KIND => self.on_map(message.decode(Features::ALL)?),
            MOsdOpReply::KIND => {
                let reply = message.decode(Features::ALL)?;
                self.on_reply(osd, RequestId(message.tid), reply);
                Ok(())
            }
            MOsdBackoff::KIND => {
                self.on_backoff(osd, message.decode(Features::ALL)?);
                Ok(())
            }
            MWatchNotify::KIND => self.on_watch_notify(message.decode(Features::ALL)?),
            _ => Ok(()),
        }
    }

    fn on_reply(&mut self, osd: OsdId, id: RequestId, reply: MOsdOpReply) {
        let Some(op) = self.requests.get_mut(&id) else { return };
        // An answer to an earlier attempt, or over another session: the attempt
        // under way will be answered too. −1 is an OSD that does not say.
        let other_attempt = reply.retry_attempt >= 0 && reply.retry_attempt != op.attempts - 1;
        if op.sent_to != Some(osd) || other_attempt {
            return;
        }
        if reply.result == Errno::EAGAIN.negative() {
            op.sent_to = None;
            self.send(id);
            return;
        }
        self.complete(id, reply.result, reply.ops, reply.user_version);
    }

    fn complete(&mut self, id: RequestId, result: i32, ops: Vec<OpResult>, user_version: u64) {
        let Some(op) = self.requests.remove(&id) else { return };
        if op.owner == Owner::Caller {
            let done = Completion::Object { result, ops, user_version };
            self.actions.push_back(Action::Complete(id, done));
        } else {
            self.on_own_reply(id, op, result, &ops);
        }
    }

    fn on_backoff(&mut self, osd: OsdId, backoff: MOsdBackoff) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        match backoff.op {
            BackoffOp::Block => {
                session.backoffs.block(&backoff);
                for op in self.requests.values_mut().filter(|op| op.sent_to == Some(osd)) {
                    let Some(target) = &op.target else { continue };
                    let object = hobject(&op.request, target);
                    if target.pg == backoff.pg.pg && session.backoffs.blocks(target.pg, &object) {
                        op.sent_to = None;
                    }
                }
                let ack = Outgoing::new(&Backoffs::ack(&backoff), 0, Features::ALL);
                self.actions.push_back(Action::SendOsd { osd, message: ack });
            }
            BackoffOp::Unblock => {
                if session.backoffs.unblock(&backoff) {
                    self.send_waiting(osd);
                }
            }
            BackoffOp::AckBlock => {}
        }
    }

    // ---- sending ----

    fn send_if_waiting(&mut self, id: RequestId) {
        if self.requests.get(&id).is_some_and(|op| op.sent_to.is_none()) {
            self.send(id);
        }
    }

    fn send_waiting(&mut self, osd: OsdId) {
        let ids: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, op)| op.sent_to.is_none())
            .filter(|(_, op)| op.target.as_ref().and_then(Target::primary) == Some(osd))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.send(id);
        }
    }

    /// Sends now if the way is free; otherwise an event will call again.
    fn send(&mut self, id: RequestId) {
        let op = &self.requests[&id];
        let Some(target) = op.target.clone() else { return };
        let Some(osd) = target.primary() else { return };
        if self.is_paused(&op.request) || !self.ensure_session(osd) {
            return;
        }
        let op = &self.requests[&id];
        if self.sessions[&osd].backoffs.blocks(target.pg, &hobject(&op.request, &target)) {
            return;
        }
        let epoch = self.map.as_ref().map_or(Epoch(0), |m| m.epoch);
        let op = self.requests.get_mut(&id).expect("a known request");
        op.sent_to = Some(osd);
        op.attempts += 1;
        let message = Outgoing::new(&encode_request(op, &target, epoch), id.0, Features::ALL);
        self.actions.push_back(Action::SendOsd { osd, message });
    }

    /// Ceph's clients hold writes back while the cluster or pool is full.
    fn is_paused(&self, request: &ObjectRequest) -> bool {
        let Some(map) = &self.map else { return true };
        let write = request.is_write();
        let pause = if write { OsdMapFlags::PAUSEWR } else { OsdMapFlags::PAUSERD };
        if map.test_flag(pause) {
            return true;
        }
        let insists = request.extra_flags & (flags::FULL_TRY | flags::FULL_FORCE) != 0;
        let pool_full = |pool: &PgPool| {
            pool.flags.contains(PoolFlags::FULL) || pool.flags.contains(PoolFlags::FULL_QUOTA)
        };
        let full = map.test_flag(OsdMapFlags::FULL) || map.pool(request.locator.pool).is_some_and(pool_full);
        write && full && !insists
    }
}

fn client_addr(map: &OsdMap, osd: OsdId) -> Option<EntityAddr> {
    map.client_addrs(osd)?.msgr2().copied()
}

fn hobject(request: &ObjectRequest, target: &Target) -> HObject {
    let name = request.object.as_str();
    let key = &request.locator.key;
    HObject {
        pool: request.locator.pool,
        hash: target.raw_hash,
        nspace: request.locator.nspace.clone(),
        key: if key == name { Default::default() } else { key.clone() },
        name: name.into(),
        snap: request.snap,
        is_max: false,
    }
}

fn encode_request(op: &InFlight, target: &Target, epoch: Epoch) -> MOsdOp {
    let request = &op.request;
    let retry = if op.attempts > 1 { flags::RETRY } else { 0 };
    MOsdOp {
        pg: SpgId::replicated(target.pg),
        raw_hash: target.raw_hash,
        epoch,
        flags: request.message_flags() | retry,
        reqid: None,
        client_inc: 0,
        mtime: op.mtime,
        locator: request.locator.clone(),
        object: request.object.as_str().into(),
        ops: request.ops.clone(),
        snap: request.snap,
        snap_seq: request.snap_seq,
        snaps: request.snaps.clone(),
        retry_attempt: op.attempts - 1,
        features: Features::PACIFIC.0,
    }
}
