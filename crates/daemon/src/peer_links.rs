//! The links between OSDs: those we dialled, to send on, and those we accepted,
//! to receive on; two channels each, so that heartbeats never wait for data.

use base::{Duration, Time};
use bytes::Bytes;
use env::{CloseReason, ConnId, Env};
use msgr::peer::{LinkChannel, LinkConfig, LinkError, LinkEvent, OsdLife, PeerLink, Refusal};
use osd::{Channel, DownReason};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tracing::debug;
use wire::types::{EntityAddrVec, OsdId, Uuid};

#[derive(Debug)]
pub enum LinkNews {
    /// Both channels that we dialled are ready.
    Up(OsdId),
    Down(OsdId, DownReason),
    Message {
        from: OsdId,
        channel: Channel,
        kind: u16,
        body: Bytes,
    },
}

/// Both channels of one dialled peer.
struct Dialled {
    conns: [ConnId; 2],
    ready: [bool; 2],
}

struct Entry {
    link: PeerLink,
    role: Role,
    connected: bool,
}

enum Role {
    Dialled { osd: OsdId, channel: Channel },
    Accepted,
}

pub struct PeerLinks {
    config: LinkConfig,
    entries: BTreeMap<ConnId, Entry>,
    dialled: BTreeMap<OsdId, Dialled>,
    /// The accepted link of each peer and channel: a newer one replaces it.
    accepted: BTreeMap<(OsdId, Channel), ConnId>,
    dirty: BTreeSet<ConnId>,
    news: VecDeque<LinkNews>,
    next_tick: Time,
}

/// Hello time-outs are seconds long; this often is soon enough.
const TICK: Duration = Duration::from_secs(1);

const CHANNELS: [Channel; 2] = [Channel::Data, Channel::Heartbeat];

fn index(channel: Channel) -> usize {
    match channel {
        Channel::Data => 0,
        Channel::Heartbeat => 1,
    }
}

fn link_channel(channel: Channel) -> LinkChannel {
    match channel {
        Channel::Data => LinkChannel::Data,
        Channel::Heartbeat => LinkChannel::Heartbeat,
    }
}

impl PeerLinks {
    /// `incarnation` is the nonce of our addresses in the OSDMap.
    pub fn new(fsid: Uuid, osd: OsdId, incarnation: u32) -> PeerLinks {
        let local = OsdLife { osd, incarnation: u64::from(incarnation) };
        PeerLinks {
            config: LinkConfig { fsid, local, features: 0 },
            entries: BTreeMap::new(),
            dialled: BTreeMap::new(),
            accepted: BTreeMap::new(),
            dirty: BTreeSet::new(),
            news: VecDeque::new(),
            next_tick: Time::ZERO,
        }
    }

    pub fn poll_news(&mut self) -> Option<LinkNews> {
        self.news.pop_front()
    }

    pub fn owns(&self, conn: ConnId) -> bool {
        self.entries.contains_key(&conn)
    }

    pub fn accept(&mut self, now: Time, conn: ConnId) {
        let link = PeerLink::accept(self.config.clone(), now);
        self.entries.insert(conn, Entry { link, role: Role::Accepted, connected: true });
    }

    /// Dials both channels, replacing what was dialled before.
    pub fn connect(&mut self, env: &mut dyn Env, osd: OsdId, addrs: &EntityAddrVec) {
        self.disconnect(env, osd);
        let Some((addr, socket)) = addrs.msgr2().and_then(|a| Some((a, a.socket?))) else {
            self.news.push_back(LinkNews::Down(osd, DownReason::Lost));
            return;
        };
        let target = OsdLife { osd, incarnation: u64::from(addr.nonce) };
        let conns = CHANNELS.map(|channel| {
            let conn = env.connect(socket);
            let link = PeerLink::connect(self.config.clone(), target, link_channel(channel), env.now());
            self.entries.insert(conn, Entry { link, role: Role::Dialled { osd, channel }, connected: false });
            conn
        });
        self.dialled.insert(osd, Dialled { conns, ready: [false; 2] });
    }

    pub fn disconnect(&mut self, env: &mut dyn Env, osd: OsdId) {
        if let Some(old) = self.dialled.remove(&osd) {
            for conn in old.conns {
                self.drop_conn(env, conn);
            }
        }
    }

    pub fn send(&mut self, osd: OsdId, channel: Channel, kind: u16, body: &[Bytes]) {
        let Some(dialled) = self.dialled.get(&osd) else { return };
        let conn = dialled.conns[index(channel)];
        let Some(entry) = self.entries.get_mut(&conn) else { return };
        if let Err(error) = entry.link.send(kind, body) {
            debug!(%osd, %error, "message to a peer not sent");
        }
        self.dirty.insert(conn);
    }

    pub fn on_connected(&mut self, conn: ConnId) {
        if let Some(entry) = self.entries.get_mut(&conn) {
            entry.connected = true;
            self.dirty.insert(conn);
        }
    }

    pub fn on_received(&mut self, env: &mut dyn Env, conn: ConnId, data: Bytes) {
        let Some(entry) = self.entries.get_mut(&conn) else { return };
        let outcome = entry.link.on_bytes(data);
        self.dirty.insert(conn);
        self.drain(env, conn);
        if let Err(error) = outcome {
            debug!(?conn, %error, "peer link ended");
            self.collect(env, conn);
            let reason = match error {
                // Somebody else lives there now.
                LinkError::RefusedByPeer(Refusal::Target | Refusal::Incarnation) => DownReason::Refused,
                _ => DownReason::Lost,
            };
            env.close(conn);
            return self.lose(env, conn, reason);
        }
        if let Some(entry) = self.entries.get_mut(&conn)
            && let Some(part) = entry.link.unfinished()
            && env.gather(conn, &part.head, part.len, part.lead)
        {
            entry.link.leave_unfinished();
        }
    }

    pub fn on_closed(&mut self, env: &mut dyn Env, conn: ConnId, reason: CloseReason) {
        let down = match reason {
            CloseReason::Refused => DownReason::Refused,
            _ => DownReason::Lost,
        };
        self.lose(env, conn, down);
    }

    pub fn flush(&mut self, env: &mut dyn Env) {
        let now = env.now();
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            self.tick(env, now);
        }
        while let Some(conn) = self.dirty.pop_first() {
            self.collect(env, conn);
        }
    }

    fn tick(&mut self, env: &mut dyn Env, now: Time) {
        let late: Vec<ConnId> = self
            .entries
            .iter_mut()
            .filter_map(|(conn, entry)| entry.link.on_tick(now).is_err().then_some(*conn))
            .collect();
        for conn in late {
            env.close(conn);
            self.lose(env, conn, DownReason::Lost);
        }
    }

    pub fn next_wake(&self) -> Time {
        if self.entries.is_empty() { Time::MAX } else { self.next_tick }
    }

    fn collect(&mut self, env: &mut dyn Env, conn: ConnId) {
        let Some(entry) = self.entries.get_mut(&conn) else { return };
        if entry.connected {
            while let Some(piece) = entry.link.poll_output() {
                env.send(conn, piece);
            }
        }
    }

    fn drain(&mut self, env: &mut dyn Env, conn: ConnId) {
        while let Some(event) = self.entries.get_mut(&conn).and_then(|e| e.link.poll_event()) {
            match event {
                LinkEvent::Ready(peer) => self.on_ready(env, conn, peer.life.osd, peer.channel),
                LinkEvent::Message { kind, body } => self.on_message(conn, kind, body),
            }
        }
    }

    fn on_ready(&mut self, env: &mut dyn Env, conn: ConnId, peer: OsdId, channel: LinkChannel) {
        let channel = match channel {
            LinkChannel::Data => Channel::Data,
            LinkChannel::Heartbeat => Channel::Heartbeat,
        };
        match self.entries[&conn].role {
            Role::Dialled { osd, channel } => {
                let dialled = self.dialled.get_mut(&osd).expect("a dialled link belongs to a dialled peer");
                dialled.ready[index(channel)] = true;
                if dialled.ready == [true; 2] {
                    self.news.push_back(LinkNews::Up(osd));
                }
            }
            Role::Accepted => {
                if let Some(old) = self.accepted.insert((peer, channel), conn) {
                    self.drop_conn(env, old);
                }
            }
        }
    }

    fn on_message(&mut self, conn: ConnId, kind: u16, body: Bytes) {
        let entry = &self.entries[&conn];
        let Some(peer) = entry.link.peer() else { return };
        let channel = match peer.channel {
            LinkChannel::Data => Channel::Data,
            LinkChannel::Heartbeat => Channel::Heartbeat,
        };
        self.news.push_back(LinkNews::Message { from: peer.life.osd, channel, kind, body });
    }

    /// A connection is gone; a dialled peer goes down with either channel.
    fn lose(&mut self, env: &mut dyn Env, conn: ConnId, reason: DownReason) {
        let Some(entry) = self.entries.remove(&conn) else { return };
        self.dirty.remove(&conn);
        self.accepted.retain(|_, c| *c != conn);
        if let Role::Dialled { osd, .. } = entry.role {
            self.disconnect(env, osd);
            self.news.push_back(LinkNews::Down(osd, reason));
        }
    }

    fn drop_conn(&mut self, env: &mut dyn Env, conn: ConnId) {
        if self.entries.remove(&conn).is_some() {
            self.dirty.remove(&conn);
            env.close(conn);
        }
    }
}
