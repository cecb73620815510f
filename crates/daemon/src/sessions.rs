//! All msgr2 sessions of one daemon, and the connections they run on.
//!
//! A session's id is its connection's: one session lives and dies with one
//! connection, as all ours are lossy.

use base::{Duration, Time};
use bytes::Bytes;
use env::{CloseReason, ConnId, Env};
use msgr::auth::{AuthName, AuthNoneClient, AuthNoneServer, AuthRole};
use msgr::{AcceptConfig, ConnectConfig, Message, OutMessage, OwnAddrs, PeerIdentity, Session, SessionEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use tracing::debug;
use wire::messages::{Incoming, Outgoing, Peer, SessionId};
use wire::types::{EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId};

/// Replies that a peer has not taken, in bytes, before we stop reading its requests.
const UNSENT_MAX: usize = 64 << 20;

#[derive(Debug)]
pub enum NetEvent {
    /// The handshake is done; who dialled is in `dialled`.
    Opened {
        session: SessionId,
        peer: Peer,
        dialled: bool,
    },
    /// A monitor must answer with [`SessionTable::assign_global_id`].
    NeedGlobalId {
        session: SessionId,
        claimed: Option<GlobalId>,
    },
    Message {
        session: SessionId,
        message: Incoming,
    },
    /// The last event of a session; also for one that never opened.
    Closed {
        session: SessionId,
        reason: CloseReason,
    },
}

/// What a dialler says of itself and of whom it expects.
#[derive(Clone, Debug)]
pub struct Dial {
    pub entity: EntityName,
    pub auth_id: String,
    pub global_id: GlobalId,
    pub own: OwnAddrs,
    pub target: EntityAddr,
    pub target_kind: EntityType,
}

struct Entry {
    session: Session,
    dialled: bool,
    open: bool,
    connected: bool,
}

pub struct SessionTable {
    entity: EntityName,
    /// As the maps have them; blank for clients.
    addrs: EntityAddrVec,
    role: AuthRole,
    entries: BTreeMap<ConnId, Entry>,
    /// Sessions with output to collect.
    dirty: BTreeSet<ConnId>,
    events: VecDeque<NetEvent>,
    global_seq: u64,
    next_tick: Time,
    accepted_paused: bool,
}

/// Session time-outs are seconds long; this often is soon enough.
const TICK: Duration = Duration::from_secs(1);

impl SessionTable {
    /// `role` says whether we hand out global ids (a monitor) or take them.
    pub fn new(entity: EntityName, addrs: EntityAddrVec, role: AuthRole) -> SessionTable {
        SessionTable {
            entity,
            addrs,
            role,
            entries: BTreeMap::new(),
            dirty: BTreeSet::new(),
            events: VecDeque::new(),
            global_seq: 0,
            next_tick: Time::ZERO,
            accepted_paused: false,
        }
    }

    pub fn poll_event(&mut self) -> Option<NetEvent> {
        self.events.pop_front()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn owns(&self, conn: ConnId) -> bool {
        self.entries.contains_key(&conn)
    }

    /// The peer's address on the connection.
    pub fn peer(&self, session: SessionId) -> Option<&PeerIdentity> {
        self.entries.get(&ConnId(session.0))?.session.peer()
    }

    pub fn accept(&mut self, now: Time, conn: ConnId, peer: SocketAddr) {
        self.global_seq += 1;
        let auth = Box::new(AuthNoneServer::new(self.role));
        let mut config = AcceptConfig::new(self.entity, self.addrs.clone(), auth);
        config.global_seq = self.global_seq;
        let session = Session::accept(config, peer, now);
        self.entries.insert(conn, Entry { session, dialled: false, open: false, connected: true });
        self.dirty.insert(conn);
    }

    /// Dials; the session opens or closes later. `None` without an address.
    pub fn dial(&mut self, env: &mut dyn Env, dial: Dial) -> Option<SessionId> {
        let socket = dial.target.socket?;
        self.global_seq += 1;
        let role = if dial.target_kind == EntityType::Mon { AuthRole::Mon } else { AuthRole::Service };
        let name = AuthName::new(dial.entity.kind, dial.auth_id);
        let auth = Box::new(AuthNoneClient::new(role, name, dial.global_id));
        let mut config = ConnectConfig::new(dial.entity, dial.own, dial.target, dial.target_kind, auth);
        config.global_seq = self.global_seq;
        let conn = env.connect(socket);
        let session = Session::connect(config, env.now());
        self.entries.insert(conn, Entry { session, dialled: true, open: false, connected: false });
        Some(SessionId(conn.0))
    }

    pub fn on_connected(&mut self, conn: ConnId) {
        if let Some(entry) = self.entries.get_mut(&conn) {
            entry.connected = true;
            self.dirty.insert(conn);
        }
    }

    pub fn on_received(&mut self, env: &mut dyn Env, conn: ConnId, data: Bytes) {
        let Some(entry) = self.entries.get_mut(&conn) else { return };
        let outcome = entry.session.on_bytes(data);
        self.dirty.insert(conn);
        self.drain(conn);
        if let Err(error) = outcome {
            debug!(?conn, %error, "session ended");
            self.collect(env, conn);
            return self.end(env, conn, CloseReason::Error);
        }
        if let Some(entry) = self.entries.get_mut(&conn)
            && let Some(part) = entry.session.unfinished()
            && env.gather(conn, &part.head, part.len, part.lead)
        {
            entry.session.leave_unfinished();
        }
    }

    pub fn on_closed(&mut self, conn: ConnId, reason: CloseReason) {
        if self.entries.remove(&conn).is_some() {
            self.dirty.remove(&conn);
            self.events.push_back(NetEvent::Closed { session: SessionId(conn.0), reason });
        }
    }

    /// Ends a session of our own accord; no `Closed` follows.
    pub fn close(&mut self, env: &mut dyn Env, session: SessionId) {
        let conn = ConnId(session.0);
        self.collect(env, conn);
        if self.entries.remove(&conn).is_some() {
            self.dirty.remove(&conn);
            env.close(conn);
        }
    }

    pub fn assign_global_id(&mut self, session: SessionId, id: GlobalId) {
        let conn = ConnId(session.0);
        if let Some(entry) = self.entries.get_mut(&conn) {
            if let Err(error) = entry.session.assign_global_id(id) {
                debug!(?conn, %error, "global id not taken");
            }
            self.dirty.insert(conn);
            self.drain(conn);
        }
    }

    /// Queues a message; dropped if the session has ended, as its `Closed` tells.
    pub fn send(&mut self, session: SessionId, message: Outgoing) {
        let conn = ConnId(session.0);
        let Some(entry) = self.entries.get_mut(&conn) else { return };
        let message = OutMessage {
            kind: message.kind,
            tid: message.tid,
            priority: message.priority,
            version: message.version,
            compat: message.compat,
            front: message.front,
            middle: Bytes::new(),
            data: message.data,
        };
        if let Err(error) = entry.session.send(message) {
            debug!(?conn, %error, "message not sent");
        }
        self.dirty.insert(conn);
    }

    /// Hands all output to the environment, and lets slow readers feel it: a
    /// peer that does not take its replies is not read from.
    pub fn flush(&mut self, env: &mut dyn Env) {
        if env.now() >= self.next_tick {
            self.tick(env);
        }
        while let Some(conn) = self.dirty.pop_first() {
            self.collect(env, conn);
        }
    }

    /// Stops or resumes reading from everyone who dialled us.
    pub fn pause_accepted(&mut self, env: &mut dyn Env, paused: bool) {
        self.accepted_paused = paused;
        for (conn, _) in self.entries.iter().filter(|(_, e)| !e.dialled) {
            env.pause_reading(*conn, paused);
        }
    }

    pub fn next_wake(&self) -> Time {
        if self.entries.is_empty() { Time::MAX } else { self.next_tick }
    }

    fn tick(&mut self, env: &mut dyn Env) {
        let now = env.now();
        self.next_tick = now + TICK;
        let mut dead = Vec::new();
        for (conn, entry) in &mut self.entries {
            if entry.session.on_tick(now).is_err() {
                dead.push(*conn);
            }
            let held = self.accepted_paused && !entry.dialled;
            env.pause_reading(*conn, held || env.unsent_len(*conn) > UNSENT_MAX);
            self.dirty.insert(*conn);
        }
        for conn in dead {
            debug!(?conn, "session timed out");
            self.end(env, conn, CloseReason::Unreachable);
        }
    }

    fn end(&mut self, env: &mut dyn Env, conn: ConnId, reason: CloseReason) {
        env.close(conn);
        self.on_closed(conn, reason);
    }

    fn collect(&mut self, env: &mut dyn Env, conn: ConnId) {
        let Some(entry) = self.entries.get_mut(&conn) else { return };
        if !entry.connected {
            return;
        }
        while let Some(piece) = entry.session.poll_output() {
            env.send(conn, piece);
        }
    }

    fn drain(&mut self, conn: ConnId) {
        let Some(entry) = self.entries.get_mut(&conn) else { return };
        let session = SessionId(conn.0);
        while let Some(event) = entry.session.poll_event() {
            self.events.push_back(match event {
                SessionEvent::NeedGlobalId { claimed, .. } => NetEvent::NeedGlobalId { session, claimed },
                SessionEvent::Ready(identity) => {
                    entry.open = true;
                    NetEvent::Opened { session, peer: peer_of(&identity), dialled: entry.dialled }
                }
                SessionEvent::Message(message) => NetEvent::Message { session, message: incoming(message) },
            });
        }
    }
}

fn incoming(m: Message) -> Incoming {
    Incoming { kind: m.kind, version: m.version, tid: m.tid, front: m.front, data: m.data }
}

fn peer_of(identity: &PeerIdentity) -> Peer {
    Peer {
        name: identity.entity,
        auth_id: identity.auth_name.id.clone(),
        global_id: identity.global_id,
        addr: identity.addrs.msgr2().or(identity.addrs.0.first()).copied().unwrap_or(EntityAddr::BLANK),
        features: identity.features,
    }
}
