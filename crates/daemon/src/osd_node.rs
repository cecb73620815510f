//! An OSD process: its core, its store on a device, its sessions and links.

use crate::device_store::{DeviceStore, OpenState};
use crate::mon_link::MonLink;
use crate::peer_links::{LinkNews, PeerLinks};
use crate::sessions::{Dial, NetEvent, SessionTable};
use base::{Duration, Random, Time};
use env::{Env, Event, ListenerId, Node};
use msgr::OwnAddrs;
use msgr::auth::AuthRole;
use osd::{Action, Ctx, Osd, OsdConfig};
use tracing::{error, info};
use wire::messages::{Incoming, MCommand, Payload, SessionId};
use wire::types::{EntityAddr, EntityName, EntityType, GlobalId};

/// For clients and `ceph tell`.
pub const CLIENT_LISTENER: ListenerId = ListenerId(0);
/// For other OSDs, both channels.
pub const CLUSTER_LISTENER: ListenerId = ListenerId(1);

/// How long a stopping OSD waits for the monitor to mark it down.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
/// How long it then takes at most to leave the store as the next start likes it.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(5);

/// A clean stop, in two steps.
enum Stopping {
    No,
    /// The monitor is to mark us down, so that clients turn elsewhere at once.
    AwaitMap {
        until: Time,
    },
    /// The store writes a checkpoint.
    AwaitStore {
        until: Time,
    },
}

enum Stage<S: DeviceStore> {
    /// The store is recovering; nobody is served.
    Opening(Box<(S, OsdConfig)>),
    Running(Box<Osd<S>>),
    /// Between the two, and after a failure to open.
    Dead,
}

pub struct OsdNode<S: DeviceStore> {
    stage: Stage<S>,
    sessions: SessionTable,
    links: PeerLinks,
    mon: MonLink,
    dial: Dial,
    paused: bool,
    stopping: Stopping,
}

impl<S: DeviceStore> OsdNode<S> {
    /// `store` is opening; its uuid goes into `config` when it is open.
    pub fn new(config: OsdConfig, store: S, mons: Vec<EntityAddr>) -> OsdNode<S> {
        let entity = EntityName::osd(config.whoami.0);
        let nonce = config.cluster_addrs.msgr2().map_or(0, |a| a.nonce);
        OsdNode {
            sessions: SessionTable::new(entity, config.client_addrs.clone(), AuthRole::Service),
            links: PeerLinks::new(config.fsid, config.whoami, nonce),
            mon: MonLink::new(mons),
            dial: Dial {
                entity,
                auth_id: config.whoami.to_string(),
                global_id: GlobalId(0),
                own: OwnAddrs::Known(config.client_addrs.clone()),
                target: EntityAddr::BLANK,
                target_kind: EntityType::Mon,
            },
            stage: Stage::Opening(Box::new((store, config))),
            paused: false,
            stopping: Stopping::No,
        }
    }

    /// The core, once the store is open.
    pub fn osd(&self) -> Option<&Osd<S>> {
        match &self.stage {
            Stage::Running(osd) => Some(osd),
            Stage::Opening(_) | Stage::Dead => None,
        }
    }

    fn store_mut(&mut self) -> Option<&mut S> {
        match &mut self.stage {
            Stage::Opening(opening) => Some(&mut opening.0),
            Stage::Running(osd) => Some(osd.store_mut()),
            Stage::Dead => None,
        }
    }

    /// Runs one core call with the time and randomness of now.
    fn with_osd(&mut self, env: &mut dyn Env, call: impl FnOnce(&mut Osd<S>, &mut Ctx<'_>)) {
        if let Stage::Running(osd) = &mut self.stage {
            with_ctx(env, |ctx| call(osd, ctx));
        }
    }

    fn finish_opening(&mut self, env: &mut dyn Env) {
        let Stage::Opening(opening) = &self.stage else { return };
        match opening.0.open_state() {
            OpenState::Opening => {}
            OpenState::Failed(reason) => {
                error!(reason, "cannot open the store");
                self.stage = Stage::Dead;
                env.exit(1);
            }
            OpenState::Open => {
                let Stage::Opening(opening) = std::mem::replace(&mut self.stage, Stage::Dead) else {
                    unreachable!("the stage was just looked at");
                };
                let (store, mut config) = *opening;
                config.uuid = store.uuid();
                info!(osd = %config.whoami, uuid = %config.uuid, "store is open");
                let mut osd = Box::new(Osd::new(config, store));
                if let Err(error) = with_ctx(env, |ctx| osd.start(ctx)) {
                    error!(%error, "cannot load the OSD's state");
                    return env.exit(1);
                }
                self.stage = Stage::Running(osd);
            }
        }
    }

    /// Carries messages and actions until everyone is quiet.
    fn pump(&mut self, env: &mut dyn Env) {
        loop {
            if let Some(event) = self.sessions.poll_event() {
                self.on_net(env, event);
            } else if let Some(news) = self.links.poll_news() {
                self.on_link(env, news);
            } else if let Stage::Running(osd) = &mut self.stage
                && let Some(action) = osd.poll_action()
            {
                self.act(env, action);
            } else {
                return;
            }
        }
    }

    fn on_net(&mut self, env: &mut dyn Env, event: NetEvent) {
        match event {
            NetEvent::Opened { session, .. } if self.mon.is(session) => {
                self.mon.on_opened();
                self.with_osd(env, |osd, ctx| osd.on_mon_open(ctx));
            }
            NetEvent::Opened { session, peer, .. } => {
                self.with_osd(env, |osd, ctx| osd.on_client_open(ctx, session, peer));
            }
            NetEvent::Message { session, message } => self.on_message(env, session, message),
            NetEvent::Closed { session, .. } if self.mon.is(session) => {
                self.mon.on_closed(env.now());
                self.with_osd(env, |osd, ctx| osd.on_mon_close(ctx));
            }
            NetEvent::Closed { session, .. } => {
                self.with_osd(env, |osd, ctx| osd.on_client_close(ctx, session));
            }
            NetEvent::NeedGlobalId { .. } => {}
        }
    }

    fn on_message(&mut self, env: &mut dyn Env, session: SessionId, message: Incoming) {
        let from_mon = self.mon.is(session);
        if message.kind == MCommand::KIND {
            let buffers = env.buffers();
            self.with_osd(env, |osd, _| osd.note_env_buffers(buffers));
        }
        self.with_osd(env, |osd, ctx| match from_mon {
            true => osd.on_mon_message(ctx, message),
            false => osd.on_client_message(ctx, session, message),
        });
    }

    fn on_link(&mut self, env: &mut dyn Env, news: LinkNews) {
        self.with_osd(env, |osd, ctx| match news {
            LinkNews::Up(peer) => osd.on_peer_up(ctx, peer),
            LinkNews::Down(peer, reason) => osd.on_peer_down(ctx, peer, reason),
            LinkNews::Message { from, channel, kind, body } => {
                osd.on_peer_message(ctx, from, channel, kind, body);
            }
        });
    }

    fn act(&mut self, env: &mut dyn Env, action: Action) {
        match action {
            Action::SendClient { session, message } => self.sessions.send(session, message),
            Action::SendMon(message) => self.mon.send(&mut self.sessions, message),
            Action::SendPeer { osd, channel, kind, body } => self.links.send(osd, channel, kind, &body),
            Action::ConnectPeer { osd, addrs } => self.links.connect(env, osd, &addrs),
            Action::DisconnectPeer { osd } => self.links.disconnect(env, osd),
            Action::CloseSession { session, reason } => {
                info!(?session, reason, "client session closed");
                self.sessions.close(env, session);
                self.with_osd(env, |osd, ctx| osd.on_client_close(ctx, session));
            }
            Action::Fatal(reason) => {
                error!(reason, "the OSD cannot go on");
                env.exit(1);
            }
        }
    }

    /// The disk and the store take turns until neither has news for the other.
    fn pump_store(&mut self, env: &mut dyn Env) {
        self.finish_opening(env);
        if let Some(store) = self.store_mut() {
            store.commit();
            send_to_disk(env, store);
            if let Some(reason) = store.fatal_error() {
                error!(reason, "the store failed");
                env.exit(1);
            }
        }
    }

    fn stop_deadline(&self) -> Time {
        match self.stopping {
            Stopping::No => Time::MAX,
            Stopping::AwaitMap { until } | Stopping::AwaitStore { until } => until,
        }
    }

    fn drive_stop(&mut self, env: &mut dyn Env) {
        let now = env.now();
        match self.stopping {
            Stopping::No => {}
            Stopping::AwaitMap { until } => {
                let down = matches!(&self.stage, Stage::Running(osd) if osd.is_stopped());
                if down || now >= until {
                    self.stopping = Stopping::AwaitStore { until: now + CHECKPOINT_PATIENCE };
                    if let Some(store) = self.store_mut() {
                        store.begin_shutdown();
                    }
                    self.pump_store(env);
                    self.drive_stop(env);
                }
            }
            Stopping::AwaitStore { until } => {
                if now >= until || self.store_mut().is_none_or(|store| store.is_idle()) {
                    env.exit(0);
                }
            }
        }
    }

    fn apply_back_pressure(&mut self, env: &mut dyn Env) {
        let Stage::Running(osd) = &self.stage else { return };
        let paused = osd.wants_pause();
        if paused != self.paused {
            self.paused = paused;
            self.sessions.pause_accepted(env, paused);
        }
    }
}

fn send_to_disk<S: DeviceStore>(env: &mut dyn Env, store: &mut S) {
    while let Some(request) = store.poll_disk() {
        env.submit(request);
    }
    env.submitted();
}

fn with_ctx<T>(env: &mut dyn Env, call: impl FnOnce(&mut Ctx<'_>) -> T) -> T {
    let (now, wall) = (env.now(), env.wall());
    let random: &mut Random = env.random();
    call(&mut Ctx { now, wall, random })
}

impl<S: DeviceStore> Node for OsdNode<S> {
    fn start(&mut self, env: &mut dyn Env) {
        self.on_batch_end(env);
    }

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::Accepted { listener: CLUSTER_LISTENER, conn, .. } => self.links.accept(env.now(), conn),
            Event::Accepted { conn, peer, .. } => self.sessions.accept(env.now(), conn, peer),
            Event::Connected { conn, .. } if self.links.owns(conn) => self.links.on_connected(conn),
            Event::Connected { conn, .. } => self.sessions.on_connected(conn),
            Event::Received { conn, data } if self.links.owns(conn) => {
                self.links.on_received(env, conn, data)
            }
            Event::Received { conn, data } => self.sessions.on_received(env, conn, data),
            Event::Closed { conn, reason } if self.links.owns(conn) => {
                self.links.on_closed(env, conn, reason)
            }
            Event::Closed { conn, reason } => self.sessions.on_closed(conn, reason),
            Event::DiskDone { token, result } => {
                if let Some(store) = self.store_mut() {
                    store.on_disk_done(token, result);
                }
                self.finish_opening(env);
                self.with_osd(env, |osd, ctx| osd.on_store_events(ctx));
            }
            Event::Shutdown => {
                self.stopping = Stopping::AwaitMap { until: env.now() + STOP_PATIENCE };
                match self.stage {
                    Stage::Running(_) => self.with_osd(env, |osd, ctx| osd.stop(ctx)),
                    Stage::Opening(_) | Stage::Dead => env.exit(0),
                }
            }
        }
        self.pump(env);
        // Reads and long data need not wait for the rest of the batch.
        if let Some(store) = self.store_mut() {
            send_to_disk(env, store);
        }
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        // The monitor is of use only once there is an OSD to speak for.
        if matches!(self.stage, Stage::Running(_)) {
            self.mon.drive(env, &mut self.sessions, &self.dial);
        }
        if let Stage::Running(osd) = &self.stage
            && env.now() >= osd.next_wake()
        {
            self.with_osd(env, |osd, ctx| osd.on_tick(ctx));
        }
        self.pump(env);
        self.pump_store(env);
        // Commits that need no disk, and what they set free.
        self.with_osd(env, |osd, ctx| osd.on_store_events(ctx));
        self.pump(env);
        self.pump_store(env);
        self.apply_back_pressure(env);
        self.sessions.flush(env);
        self.links.flush(env);
        self.drive_stop(env);
    }

    fn next_wake(&self) -> Time {
        let core = match &self.stage {
            Stage::Running(osd) => osd.next_wake().min(self.mon.next_wake()),
            Stage::Opening(_) | Stage::Dead => Time::MAX,
        };
        core.min(self.sessions.next_wake()).min(self.links.next_wake()).min(self.stop_deadline())
    }
}
