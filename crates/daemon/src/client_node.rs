//! A client process: the client core, its sessions, and a workload that uses it.

use crate::mon_link::MonLink;
use crate::sessions::{Dial, NetEvent, SessionTable};
use base::{Duration, Time};
use client::{Action, Client, ClientConfig, Completion, RequestId, WatchEvent, WatchId};
use env::{Env, Event, Node};
use msgr::OwnAddrs;
use msgr::auth::AuthRole;
use std::collections::BTreeMap;
use tracing::debug;
use wire::messages::{Peer, SessionId};
use wire::types::{EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId, OsdId};

/// Pause before a lost OSD session is dialled again.
const RECONNECT: Duration = Duration::from_millis(20);

/// What a workload works with.
pub struct ClientHost<'a> {
    pub client: &'a mut Client,
    pub env: &'a mut dyn Env,
    /// The client's name, once the monitor has given it one.
    pub global_id: Option<GlobalId>,
}

/// Something that uses a client: a benchmark, a test, a simulated application.
pub trait Workload {
    /// Called after each batch of events: submit what is due. The first map
    /// may not be there yet.
    fn on_batch_end(&mut self, host: &mut ClientHost<'_>);
    fn on_completion(&mut self, host: &mut ClientHost<'_>, id: RequestId, completion: Completion);
    fn on_watch(&mut self, _: &mut ClientHost<'_>, watch: WatchId, event: WatchEvent) {
        unreachable!("{event:?} of {watch:?}: this workload watches nothing");
    }
    fn next_wake(&self) -> Time;
}

pub struct ClientNode<W: Workload> {
    client: Client,
    workload: W,
    sessions: SessionTable,
    mon: MonLink,
    auth_id: String,
    nonce: u32,
    /// Handed out by the monitor; part of every request's identity, so a
    /// client keeps the first one for its life.
    global_id: Option<GlobalId>,
    osds: BTreeMap<OsdId, SessionId>,
    reconnect_at: BTreeMap<OsdId, Time>,
}

impl<W: Workload> ClientNode<W> {
    /// `auth_id` is "admin" of `client.admin`; `nonce` tells this process's
    /// life from others on the host.
    pub fn new(
        mons: Vec<EntityAddr>,
        auth_id: &str,
        nonce: u32,
        hostname: &str,
        workload: W,
    ) -> ClientNode<W> {
        ClientNode {
            client: Client::new(ClientConfig { hostname: hostname.into() }),
            workload,
            sessions: SessionTable::new(EntityName::client(-1), EntityAddrVec::default(), AuthRole::Service),
            mon: MonLink::new(mons),
            auth_id: auth_id.into(),
            nonce,
            global_id: None,
            osds: BTreeMap::new(),
            reconnect_at: BTreeMap::new(),
        }
    }

    pub fn workload(&self) -> &W {
        &self.workload
    }

    pub fn workload_mut(&mut self) -> &mut W {
        &mut self.workload
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    fn dial(&self, target: EntityAddr, target_kind: EntityType) -> Dial {
        let id = self.global_id.map_or(-1, |id| i64::try_from(id.0).unwrap_or(i64::MAX));
        Dial {
            entity: EntityName::client(id),
            auth_id: self.auth_id.clone(),
            global_id: self.global_id.unwrap_or(GlobalId(0)),
            own: OwnAddrs::Learn { nonce: self.nonce },
            target,
            target_kind,
        }
    }

    fn pump(&mut self, env: &mut dyn Env) {
        loop {
            if let Some(event) = self.sessions.poll_event() {
                self.on_net(env, event);
            } else if let Some(action) = self.client.poll_action() {
                self.act(env, action);
            } else {
                return;
            }
        }
    }

    fn on_net(&mut self, env: &mut dyn Env, event: NetEvent) {
        match event {
            NetEvent::Opened { session, peer, .. } => self.on_opened(session, &peer),
            NetEvent::Message { session, message } => {
                let outcome = if self.mon.is(session) {
                    self.client.on_mon_message(&message)
                } else if let Some(osd) = self.osd_of(session) {
                    self.client.on_osd_message(osd, &message)
                } else {
                    Ok(())
                };
                if let Err(error) = outcome {
                    debug!(%error, kind = message.kind, "undecodable message: session dropped");
                    self.sessions.close(env, session);
                    self.on_session_gone(env, session);
                }
            }
            NetEvent::Closed { session, .. } => self.on_session_gone(env, session),
            NetEvent::NeedGlobalId { .. } => {}
        }
    }

    fn on_opened(&mut self, session: SessionId, peer: &Peer) {
        if self.mon.is(session) {
            self.global_id.get_or_insert(peer.global_id);
            self.mon.on_opened();
            self.client.on_mon_open(peer.features);
        } else if let Some(osd) = self.osd_of(session) {
            self.client.on_osd_open(osd);
        }
    }

    fn on_session_gone(&mut self, env: &mut dyn Env, session: SessionId) {
        if self.mon.is(session) {
            self.mon.on_closed(env.now());
            self.client.on_mon_closed();
        } else if let Some(osd) = self.osd_of(session) {
            self.osds.remove(&osd);
            self.reconnect_at.insert(osd, env.now() + RECONNECT);
            self.client.on_osd_closed(osd);
        }
    }

    fn osd_of(&self, session: SessionId) -> Option<OsdId> {
        self.osds.iter().find(|(_, s)| **s == session).map(|(osd, _)| *osd)
    }

    fn act(&mut self, env: &mut dyn Env, action: Action) {
        match action {
            Action::SendMon(message) => self.mon.send(&mut self.sessions, message),
            Action::ConnectOsd { osd, addr } => {
                self.reconnect_at.remove(&osd);
                let dial = self.dial(addr, EntityType::Osd);
                if let Some(session) = self.sessions.dial(env, dial) {
                    self.osds.insert(osd, session);
                }
            }
            Action::DisconnectOsd(osd) => {
                self.reconnect_at.remove(&osd);
                if let Some(session) = self.osds.remove(&osd) {
                    self.sessions.close(env, session);
                }
            }
            Action::SendOsd { osd, message } => {
                if let Some(session) = self.osds.get(&osd) {
                    self.sessions.send(*session, message);
                }
            }
            Action::Complete(id, completion) => {
                let mut host = ClientHost { client: &mut self.client, env, global_id: self.global_id };
                self.workload.on_completion(&mut host, id, completion);
            }
            Action::Watch(watch, event) => {
                let mut host = ClientHost { client: &mut self.client, env, global_id: self.global_id };
                self.workload.on_watch(&mut host, watch, event);
            }
        }
    }

    fn drive_reconnects(&mut self, now: Time) {
        let due: Vec<OsdId> =
            self.reconnect_at.iter().filter(|(_, at)| now >= **at).map(|(osd, _)| *osd).collect();
        for osd in due {
            self.reconnect_at.remove(&osd);
            self.client.reconnect_osd(osd);
        }
    }
}

impl<W: Workload> Node for ClientNode<W> {
    fn start(&mut self, env: &mut dyn Env) {
        self.on_batch_end(env);
    }

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::Connected { conn, .. } => self.sessions.on_connected(conn),
            Event::Received { conn, data } => self.sessions.on_received(env, conn, data),
            Event::Closed { conn, reason } => self.sessions.on_closed(conn, reason),
            Event::Shutdown => env.exit(0),
            Event::Accepted { .. } | Event::DiskDone { .. } => {}
        }
        self.pump(env);
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        let dial = self.dial(EntityAddr::BLANK, EntityType::Mon);
        self.mon.drive(env, &mut self.sessions, &dial);
        self.drive_reconnects(env.now());
        self.client.ping_watches(env.now());
        self.pump(env);
        self.workload.on_batch_end(&mut ClientHost {
            client: &mut self.client,
            env,
            global_id: self.global_id,
        });
        self.pump(env);
        self.sessions.flush(env);
    }

    fn next_wake(&self) -> Time {
        let reconnect = self.reconnect_at.values().min().copied().unwrap_or(Time::MAX);
        let links = self.mon.next_wake().min(self.sessions.next_wake()).min(reconnect);
        self.workload.next_wake().min(self.client.next_ping()).min(links)
    }
}
