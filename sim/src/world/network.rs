//! Connections between nodes: ordered streams of chunks that are late, cut off
//! and broken, but never corrupted, as TCP's are.
//!
//! An end lives from the dial, or the accept, until its node has been told
//! `Closed` or has closed it. No event of an end reaches its node afterwards.

use super::{Core, Entry, NodeId};
use base::{Duration, Time};
use bytes::Bytes;
use env::{CloseReason, ConnId, Event, ListenerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// A dial that nobody answers gives up after this.
const DIAL_TIMEOUT: Duration = Duration::from_millis(1000);
/// Data behind a cut is tried again this often.
const RETRANSMIT: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Network {
    pub listeners: BTreeMap<SocketAddr, (NodeId, ListenerId)>,
    ends: BTreeMap<ConnId, End>,
    last_conn: u64,
    /// Directions in which nothing gets through.
    pub cut: BTreeSet<(NodeId, NodeId)>,
}

enum Item {
    Data(Bytes),
    Close,
}

/// One end of a connection.
struct End {
    node: NodeId,
    /// The other end; `None` until the dial is answered, and once the other
    /// end is gone for certain.
    peer: Option<ConnId>,
    /// Whose end that is, or was.
    from: Option<NodeId>,
    /// What travels towards this end.
    stream: VecDeque<Item>,
    last_arrival: Time,
    reading_paused: bool,
    /// Items of the stream that are due but wait for reading to go on.
    waiting: usize,
}

impl Core {
    fn latency(&mut self) -> Duration {
        let w = &self.weather;
        let mut us = w.latency_min_us + self.random.below(w.latency_max_us - w.latency_min_us);
        if w.slow_one_in > 0 && self.random.chance(1, w.slow_one_in) {
            us += w.slow_ms * 1000;
        }
        Duration::from_micros(us)
    }

    fn new_end(&mut self, node: NodeId) -> ConnId {
        self.network.last_conn += 1;
        let conn = ConnId(self.network.last_conn);
        let end = End {
            node,
            peer: None,
            from: None,
            stream: VecDeque::new(),
            last_arrival: Time::ZERO,
            reading_paused: false,
            waiting: 0,
        };
        self.network.ends.insert(conn, end);
        conn
    }

    pub(super) fn dial(&mut self, node: NodeId, to: SocketAddr) -> ConnId {
        let conn = self.new_end(node);
        let latency = self.latency();
        self.schedule_in(latency, Entry::Dial { end: conn, to });
        conn
    }

    pub(super) fn answer_dial(&mut self, dialler: ConnId, to: SocketAddr) {
        let Some(end) = self.network.ends.get(&dialler) else { return };
        let from = end.node;
        let life = self.nodes[from.0].life;
        let target = self.nodes.iter().position(|n| n.ip == to.ip()).map(NodeId);
        let cut = &self.network.cut;
        let answers =
            |t: NodeId| self.nodes[t.0].powered && !cut.contains(&(from, t)) && !cut.contains(&(t, from));
        let fail =
            |reason| Entry::Deliver { node: from, life, event: Event::Closed { conn: dialler, reason } };
        if !target.is_some_and(answers) {
            return self.schedule_in(DIAL_TIMEOUT, fail(CloseReason::Unreachable));
        }
        let back = self.latency();
        let Some(&(server, listener)) = self.network.listeners.get(&to) else {
            return self.schedule_in(back, fail(CloseReason::Refused));
        };
        let accepted = self.new_end(server);
        let connected_at = self.now + back;
        let port = 32_768 + (dialler.0 % 28_000) as u16;
        let local = SocketAddr::new(self.nodes[from.0].ip, port);
        let end = self.network.ends.get_mut(&accepted).expect("just made");
        (end.peer, end.from) = (Some(dialler), Some(from));
        let end = self.network.ends.get_mut(&dialler).expect("looked up above");
        (end.peer, end.from) = (Some(accepted), Some(server));
        end.last_arrival = connected_at;
        let event = Event::Accepted { listener, conn: accepted, peer: local };
        let server_life = self.nodes[server.0].life;
        self.schedule_in(Duration::ZERO, Entry::Deliver { node: server, life: server_life, event });
        let event = Event::Connected { conn: dialler, local };
        self.schedule_at(connected_at, Entry::Deliver { node: from, life, event });
    }

    pub(super) fn send(&mut self, conn: ConnId, data: Bytes) {
        let Some(peer) = self.network.ends.get(&conn).and_then(|e| e.peer) else { return };
        // Now and then in two pieces: receivers must not rely on boundaries.
        if data.len() > 1 && self.random.chance(1, 20) {
            let at = 1 + self.random.below(data.len() as u64 - 1) as usize;
            self.push(peer, Item::Data(data.slice(..at)));
            self.push(peer, Item::Data(data.slice(at..)));
        } else {
            self.push(peer, Item::Data(data));
        }
    }

    fn push(&mut self, to: ConnId, item: Item) {
        let latency = self.latency();
        let Some(end) = self.network.ends.get_mut(&to) else { return };
        let at = end.last_arrival.max(self.now + latency);
        end.last_arrival = at;
        end.stream.push_back(item);
        self.schedule_at(at, Entry::Arrive { end: to });
    }

    /// Each item has one entry in the queue; whichever comes first takes the
    /// first item, so delays cannot change their order.
    pub(super) fn arrive(&mut self, conn: ConnId) -> Option<(NodeId, Event)> {
        let end = self.network.ends.get_mut(&conn)?;
        let node = end.node;
        if end.from.is_some_and(|from| self.network.cut.contains(&(from, node))) {
            self.schedule_in(RETRANSMIT, Entry::Arrive { end: conn });
            return None;
        }
        if end.reading_paused {
            end.waiting += 1;
            return None;
        }
        Some(match end.stream.pop_front()? {
            Item::Data(data) => (node, Event::Received { conn, data }),
            Item::Close => (node, Event::Closed { conn, reason: CloseReason::Peer }),
        })
    }

    pub(super) fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        let Some(end) = self.network.ends.get_mut(&conn) else { return };
        end.reading_paused = paused;
        if !paused {
            for _ in 0..std::mem::take(&mut end.waiting) {
                self.schedule_in(Duration::ZERO, Entry::Arrive { end: conn });
            }
        }
    }

    /// True for an event of an end that its node has closed. `Closed` is an
    /// end's last event.
    pub(super) fn is_stale(&mut self, event: &Event) -> bool {
        match event {
            Event::Accepted { conn, .. } | Event::Connected { conn, .. } | Event::Received { conn, .. } => {
                !self.network.ends.contains_key(conn)
            }
            Event::Closed { conn, .. } => match self.network.ends.remove(conn) {
                Some(end) => {
                    self.forget(end.peer);
                    false
                }
                None => true,
            },
            Event::DiskDone { .. } | Event::Shutdown => false,
        }
    }

    /// The other end of this one is gone; nobody will close it.
    fn forget(&mut self, end: Option<ConnId>) {
        if let Some(end) = end.and_then(|peer| self.network.ends.get_mut(&peer)) {
            end.peer = None;
        }
    }

    /// This end is gone; the other learns of it after what was sent before.
    pub(super) fn hang_up(&mut self, conn: ConnId) {
        if let Some(end) = self.network.ends.remove(&conn)
            && let Some(peer) = end.peer
        {
            self.push(peer, Item::Close);
            self.forget(Some(peer));
        }
    }

    pub(super) fn end_connections(&mut self, node: NodeId, power_cut: bool) {
        self.network.listeners.retain(|_, (n, _)| *n != node);
        let ends: Vec<ConnId> =
            self.network.ends.iter().filter(|(_, e)| e.node == node).map(|(c, _)| *c).collect();
        for conn in ends {
            if power_cut {
                // The other end stays, and knows nothing.
                self.network.ends.remove(&conn);
                continue;
            }
            // What the kernel had not sent, or answered with a reset, is lost.
            let peer = self.network.ends[&conn].peer;
            if let Some(peer) = peer.and_then(|p| self.network.ends.get_mut(&p))
                && self.random.chance(1, 3)
            {
                let keep = self.random.below(peer.stream.len() as u64 + 1) as usize;
                peer.stream.truncate(keep);
            }
            self.hang_up(conn);
        }
    }

    /// A machine is back: whoever still thinks it is connected learns better.
    pub(super) fn reset_orphans(&mut self, node: NodeId) {
        let orphans: Vec<ConnId> = self
            .network
            .ends
            .iter()
            .filter(|(_, e)| {
                e.from == Some(node) && e.peer.is_some_and(|p| !self.network.ends.contains_key(&p))
            })
            .map(|(c, _)| *c)
            .collect();
        for conn in orphans {
            self.push(conn, Item::Close);
            self.network.ends.get_mut(&conn).expect("just listed").peer = None;
        }
    }

    pub(super) fn break_a_connection(&mut self) {
        let candidates: Vec<(ConnId, ConnId)> = self
            .network
            .ends
            .iter()
            .filter_map(|(conn, e)| Some((*conn, e.peer?)))
            .filter(|(_, peer)| self.network.ends.contains_key(peer))
            .collect();
        if candidates.is_empty() {
            return;
        }
        let (one, other) = candidates[self.random.below(candidates.len() as u64) as usize];
        for conn in [one, other] {
            let end = self.network.ends.get_mut(&conn).expect("filtered above");
            end.stream.clear();
            end.peer = None;
            // After `Connected`, should that still be on its way.
            let at = self.now.max(end.last_arrival);
            let (node, life) = (end.node, self.nodes[end.node.0].life);
            let event = Event::Closed { conn, reason: CloseReason::Peer };
            self.schedule_at(at, Entry::Deliver { node, life, event });
        }
    }
}
