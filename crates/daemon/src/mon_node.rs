//! A monitor process: its core, its map store, its sessions.

use crate::sessions::{NetEvent, SessionTable};
use base::Time;
use env::{Env, Event, Node};
use mon::{Action, Ctx, MapStore, Mon};
use msgr::auth::AuthRole;
use tracing::{error, info};
use wire::types::{EntityAddrVec, EntityName};

pub struct MonNode<M: MapStore> {
    mon: Mon<M>,
    sessions: SessionTable,
}

impl<M: MapStore> MonNode<M> {
    /// `rank` and `addrs` as the MonMap has them.
    pub fn new(mon: Mon<M>, rank: i64, addrs: EntityAddrVec) -> MonNode<M> {
        MonNode { mon, sessions: SessionTable::new(EntityName::mon(rank), addrs, AuthRole::Mon) }
    }

    pub fn mon(&self) -> &Mon<M> {
        &self.mon
    }

    /// Ends the process's life and keeps its durable state: for the simulator.
    pub fn into_mon(self) -> Mon<M> {
        self.mon
    }

    /// Carries messages between sessions and core until both are quiet.
    fn pump(&mut self, env: &mut dyn Env) {
        loop {
            if let Some(event) = self.sessions.poll_event() {
                self.on_net(env, event);
            } else if let Some(action) = self.mon.poll_action() {
                self.act(env, action);
            } else {
                return;
            }
        }
    }

    fn on_net(&mut self, env: &mut dyn Env, event: NetEvent) {
        let mut random = env.random().fork();
        let mut ctx = Ctx { now: env.now(), wall: env.wall(), random: &mut random };
        match event {
            NetEvent::Opened { session, peer, .. } => self.mon.on_session_open(&mut ctx, session, peer),
            NetEvent::Message { session, message } => self.mon.on_message(&mut ctx, session, message),
            NetEvent::Closed { session, .. } => self.mon.on_session_closed(&mut ctx, session),
            NetEvent::NeedGlobalId { session, claimed } => match self.mon.renew_global_id(claimed) {
                Ok(id) => self.sessions.assign_global_id(session, id),
                Err(error) => {
                    error!(%error, "no global id for a new session");
                    self.sessions.close(env, session);
                }
            },
        }
    }

    fn act(&mut self, env: &mut dyn Env, action: Action) {
        match action {
            Action::Send(session, message) => self.sessions.send(session, message),
            Action::Close(session) => self.sessions.close(env, session),
            Action::Fatal(error) => {
                error!(%error, "the monitor cannot go on");
                env.exit(1);
            }
        }
    }
}

impl<M: MapStore> Node for MonNode<M> {
    fn start(&mut self, env: &mut dyn Env) {
        info!(fsid = %self.mon.fsid(), "monitor started");
        self.on_batch_end(env);
    }

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::Accepted { conn, peer, .. } => self.sessions.accept(env.now(), conn, peer),
            Event::Received { conn, data } => self.sessions.on_received(env, conn, data),
            Event::Closed { conn, reason } => self.sessions.on_closed(conn, reason),
            Event::Shutdown => env.exit(0),
            Event::Connected { .. } | Event::DiskDone { .. } => {}
        }
        self.pump(env);
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        if self.mon.next_wake().is_some_and(|at| env.now() >= at) {
            let mut random = env.random().fork();
            let mut ctx = Ctx { now: env.now(), wall: env.wall(), random: &mut random };
            self.mon.on_tick(&mut ctx);
        }
        self.pump(env);
        self.sessions.flush(env);
    }

    fn next_wake(&self) -> Time {
        self.mon.next_wake().unwrap_or(Time::MAX).min(self.sessions.next_wake())
    }
}
