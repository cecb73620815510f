//! One OSD: all its PGs, its maps, its peers.

use crate::action::{Action, Channel, Ctx, DownReason};
use crate::config::OsdConfig;
use base::Time;
use bytes::Bytes;
use std::collections::VecDeque;
use store::{ObjectStore, StoreError};
use wire::messages::{Incoming, Peer, SessionId};
use wire::types::OsdId;

/// An OSD as a state machine.
///
/// Calling order: [`Osd::new`], [`Osd::start`]; then any `on_*`, each followed
/// by draining [`Osd::poll_action`]. After every batch of events that touched
/// the store, [`Osd::on_store_events`]. [`Osd::on_tick`] no later than
/// [`Osd::next_wake`].
///
/// Links: each OSD dials its peers and sends only on what it dialled; what
/// arrives on accepted links goes to [`Osd::on_peer_message`], with the OSD id
/// that the link's hello proved, and only while that life is the one the
/// peer's hello named.
pub struct Osd<S: ObjectStore> {
    config: OsdConfig,
    store: S,
    actions: VecDeque<Action>,
}

impl<S: ObjectStore> Osd<S> {
    /// The store is open and recovered.
    pub fn new(config: OsdConfig, store: S) -> Osd<S> {
        config.assert_sane();
        Osd { config, store, actions: VecDeque::new() }
    }

    /// Loads what the store holds. Nothing is served before the monitor's maps arrive.
    pub fn start(&mut self, ctx: &mut Ctx<'_>) -> Result<(), StoreError> {
        let _ = (ctx, &self.config);
        Ok(())
    }

    pub fn store(&self) -> &S {
        &self.store
    }

    /// For the driver: device completions go into the store, then [`Osd::on_store_events`].
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A session with a monitor is open: subscriptions and reports start over.
    pub fn on_mon_open(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
    }

    pub fn on_mon_close(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
    }

    pub fn on_mon_message(&mut self, ctx: &mut Ctx<'_>, message: Incoming) {
        let _ = (ctx, message);
    }

    pub fn on_client_open(&mut self, ctx: &mut Ctx<'_>, session: SessionId, peer: Peer) {
        let _ = (ctx, session, peer);
    }

    pub fn on_client_message(&mut self, ctx: &mut Ctx<'_>, session: SessionId, message: Incoming) {
        let _ = (ctx, session, message);
    }

    pub fn on_client_close(&mut self, ctx: &mut Ctx<'_>, session: SessionId) {
        let _ = (ctx, session);
    }

    /// Bytes of requests held: the driver stops reading from clients while
    /// this says so.
    pub fn wants_pause(&self) -> bool {
        false
    }

    /// Both links that we dialled are ready.
    pub fn on_peer_up(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let _ = (ctx, osd);
    }

    pub fn on_peer_down(&mut self, ctx: &mut Ctx<'_>, osd: OsdId, reason: DownReason) {
        let _ = (ctx, osd, reason);
    }

    pub fn on_peer_message(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        channel: Channel,
        kind: u16,
        body: Bytes,
    ) {
        let _ = (ctx, from, channel, kind, body);
    }

    /// Drains the store's events.
    pub fn on_store_events(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
        while self.store.poll_event().is_some() {}
    }

    pub fn on_tick(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
    }

    pub fn next_wake(&self) -> Time {
        Time::MAX
    }

    /// Asks to stop: tells the monitor to mark us down. Done once
    /// [`Osd::is_stopped`] says so or the driver's patience ends.
    pub fn stop(&mut self, ctx: &mut Ctx<'_>) {
        let _ = ctx;
    }

    /// The map shows us down after [`Osd::stop`].
    pub fn is_stopped(&self) -> bool {
        false
    }
}
