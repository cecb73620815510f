//! Peers: links, heartbeats, and what they say.

use super::Osd;
use crate::action::{Ctx, DownReason};
use crate::heartbeat::{Link, Reported};
use crate::peer::{self, NotHere, PeerMessage, PgHeader, PgMessage, Repl};
use crate::pg::Pg;
use crate::shared::Commit;
use base::Time;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{ObjectStore, Transaction};
use wire::messages::{FailureKind, MOsdFailure};
use wire::types::{OsdId, PgId};

/// Messages held for epochs that we do not have yet; more is dropped, and
/// repeated by its sender.
const FUTURE_BYTES_MAX: usize = 64 << 20;
/// All OSDs of a small cluster watch each other; in a larger one those that share PGs.
const WATCH_ALL_MAX: usize = 32;

impl<S: ObjectStore> Osd<S> {
    /// Dials everyone whom we should watch.
    pub(super) fn dial_all(&mut self, ctx: &Ctx<'_>) {
        let map = self.sh.maps.map().clone();
        let everyone: Vec<OsdId> = map.osds().filter(|osd| map.is_up(*osd)).collect();
        let wanted: Vec<OsdId> = if everyone.len() <= WATCH_ALL_MAX {
            everyone
        } else {
            let members =
                |pg: &Pg| pg.placement.up.iter().chain(&pg.placement.acting).copied().collect::<Vec<_>>();
            let set: std::collections::BTreeSet<OsdId> = self.pgs.values().flat_map(members).collect();
            set.into_iter().filter(|osd| *osd != OsdId::NONE).collect()
        };
        for osd in wanted {
            self.sh.dial(ctx, osd);
        }
    }

    pub(super) fn handle_peer_up(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Some(peer) = self.sh.peers.all.get_mut(&osd) else { return };
        peer.link = Link::Up;
        peer.last_heard = ctx.now;
        self.ping(ctx, osd);
        for pg in self.pgs.values_mut() {
            pg.on_peer_linked(&mut self.sh, ctx, osd);
        }
    }

    pub(super) fn handle_peer_down(&mut self, ctx: &mut Ctx<'_>, osd: OsdId, reason: DownReason) {
        let Some(peer) = self.sh.peers.all.get_mut(&osd) else { return };
        let was_up = peer.link == Link::Up;
        peer.link = Link::Down;
        match reason {
            DownReason::Refused => {
                if peer.reported != Reported::Refused {
                    peer.reported = Reported::Refused;
                    self.report_failure(ctx, osd, FailureKind::Refused);
                }
            }
            DownReason::Lost => {
                if was_up {
                    // At once: a process that died refuses, and is reported within milliseconds.
                    peer.last_dial = Time::ZERO;
                    self.sh.dial(ctx, osd);
                }
            }
        }
    }

    pub(super) fn report_failure(&mut self, ctx: &Ctx<'_>, osd: OsdId, kind: FailureKind) {
        let Some(peer) = self.sh.peers.all.get_mut(&osd) else { return };
        peer.last_report = ctx.now;
        tracing::info!(me = %self.sh.config.whoami, failed = %osd, ?kind, "reporting");
        let failure = MOsdFailure {
            fsid: self.sh.config.fsid,
            reporter: self.sh.config.whoami,
            failed: osd,
            up_from: peer.up_from,
            epoch: self.sh.maps.epoch(),
            kind,
        };
        if self.sh.am_up {
            self.sh.send_mon(&failure);
        }
    }

    pub(super) fn ping(&mut self, ctx: &Ctx<'_>, osd: OsdId) {
        let body = peer::encode_ping(self.sh.epoch(), ctx.now.0, self.sh.space);
        self.sh.send_peer(ctx, osd, peer::KIND_PING, body);
    }

    pub(super) fn handle_peer_message(&mut self, ctx: &mut Ctx<'_>, from: OsdId, kind: u16, body: Bytes) {
        if !self.loaded {
            return;
        }
        let len = body.len();
        let message = match PeerMessage::decode(kind, body.clone()) {
            Ok(message) => message,
            Err(error) => {
                self.sh.counters.malformed += 1;
                tracing::warn!(%from, kind, %error, "malformed message of a peer");
                return;
            }
        };
        if let Some(peer) = self.sh.peers.all.get_mut(&from) {
            peer.last_heard = ctx.now;
        }
        if let PeerMessage::Pg(header, _) | PeerMessage::Repl(header, _) = &message
            && header.epoch > self.sh.epoch()
        {
            if self.future_bytes + len <= FUTURE_BYTES_MAX {
                self.future_bytes += len;
                self.future_messages.push_back((header.epoch, from, kind, body));
            }
            return;
        }
        match message {
            PeerMessage::Ping { epoch, stamp, space } => {
                self.sh.note_peer_space(from, space);
                self.sh.peers.promise(from, ctx.now + self.sh.config.lease_promise);
                let body = peer::encode_ping(self.sh.epoch(), stamp, self.sh.space);
                self.sh.send_peer(ctx, from, peer::KIND_PONG, body);
                self.share_with_peer(ctx, from, epoch);
            }
            PeerMessage::Pong { epoch, stamp, space } => {
                self.sh.note_peer_space(from, space);
                self.on_pong(ctx, from, epoch, Time(stamp));
            }
            PeerMessage::Maps(maps) => {
                let maps: BTreeMap<_, _> = maps.into_iter().collect();
                self.take_maps(ctx, maps, BTreeMap::new());
            }
            PeerMessage::Pg(header, message) => self.on_pg_message(ctx, from, header, message),
            PeerMessage::Repl(header, repl) => self.on_repl(ctx, from, &header, repl),
            PeerMessage::CopyResult(result) => self.on_copy_result(ctx, result),
        }
    }

    /// Peers bring each other up to date when the monitor is slow or far.
    fn share_with_peer(&mut self, ctx: &Ctx<'_>, osd: OsdId, epoch: wire::types::Epoch) {
        if epoch.0 == 0 || epoch >= self.sh.epoch() {
            return;
        }
        if let Some(maps) = self.sh.maps.incrementals_after(epoch)
            && !maps.is_empty()
        {
            self.sh.send_peer(ctx, osd, peer::KIND_MAPS, peer::encode_maps(&maps));
        }
    }

    fn on_pong(&mut self, ctx: &mut Ctx<'_>, from: OsdId, epoch: wire::types::Epoch, stamp: Time) {
        let ours = self.sh.epoch();
        let until = stamp + self.sh.config.lease;
        let Some(peer) = self.sh.peers.all.get_mut(&from) else { return };
        // A stamp of the future is not ours.
        if stamp > ctx.now {
            return;
        }
        peer.epoch = peer.epoch.max(epoch);
        peer.on_grant(epoch, until, ours);
        if peer.reported == Reported::Silent {
            peer.reported = Reported::Nothing;
            self.report_failure(ctx, from, FailureKind::Recovered);
        }
        for id in self.sh.laggy.clone() {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.serve_waiting(&mut self.sh, ctx);
            }
        }
    }

    fn on_repl(&mut self, ctx: &mut Ctx<'_>, from: OsdId, header: &PgHeader, repl: Repl) {
        let lenient = self.sh.config.sabotage.ignore_interval_check;
        if let Some(pg) =
            self.pgs.get_mut(&header.pg).filter(|pg| pg.interval() == header.interval || lenient)
        {
            pg.on_repl(&mut self.sh, ctx, from, repl);
        }
    }

    fn on_pg_message(&mut self, ctx: &mut Ctx<'_>, from: OsdId, header: PgHeader, message: PgMessage) {
        let id = header.pg;
        tracing::trace!(me = %self.sh.me(), %from, ?header, ?message, "receive");
        if let PgMessage::CopyGet(get) = message {
            return self.on_copy_get(ctx, from, &header, get);
        }
        let known = self.pgs.get(&id).is_some_and(|pg| !pg.is_provisional());
        if !known {
            return self.on_unknown_pg_message(ctx, from, header, message);
        }
        let Some(pg) = self.pgs.get_mut(&id) else { return };
        // Somebody new to the PG cannot know its interval.
        let asks_at_large = matches!(message, PgMessage::Discover(_));
        if header.interval != pg.interval() && !asks_at_large {
            return;
        }
        if let PgMessage::Remove(_) = message {
            let member =
                pg.placement.up.contains(&self.sh.me()) || pg.placement.acting.contains(&self.sh.me());
            if pg.placement.primary == Some(from) && !member {
                tracing::debug!(me = %self.sh.me(), pg = %id, "stray removed");
                self.forget_pg(id);
                let mut txn = Transaction::new();
                self.delete_pg(id, &mut txn);
                self.sh.must_queue(txn, Commit::Silent);
            }
            return;
        }
        pg.on_message(&mut self.sh, ctx, from, message);
    }

    /// A PG that we do not have, or only hope to have.
    fn on_unknown_pg_message(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        header: PgHeader,
        message: PgMessage,
    ) {
        let id = header.pg;
        match message {
            PgMessage::QueryInfo(_) | PgMessage::Discover(_) => {
                let answer = PgHeader { epoch: self.sh.epoch(), ..header };
                self.sh.send_pg(ctx, from, answer, NotHere {});
            }
            PgMessage::NotHere(_) => {
                if let Some(pg) = self.pgs.get_mut(&id).filter(|pg| header.interval == pg.interval()) {
                    pg.on_message(&mut self.sh, ctx, from, message);
                }
            }
            PgMessage::Activate(activate) => {
                let placement = self.sh.maps.placement(id);
                let me = self.sh.me();
                let member = placement.up.contains(&me) || placement.acting.contains(&me);
                let current = header.epoch == self.sh.epoch() && placement.primary == Some(from);
                if !member || !current || !self.sh.am_up || self.deleting.contains(&id) {
                    return;
                }
                self.adopt(id, &activate.info, activate.past.clone());
                if let Some(pg) = self.pgs.get_mut(&id) {
                    pg.after_maps(&mut self.sh, ctx, false);
                    pg.on_message(&mut self.sh, ctx, from, PgMessage::Activate(activate));
                }
            }
            PgMessage::Notify(peer::Notify { info: Some(info), past, .. }) => {
                let placement = self.sh.maps.placement(id);
                let ours = placement.primary == Some(self.sh.me());
                if !ours || header.epoch != self.sh.epoch() || !self.sh.am_up || self.deleting.contains(&id) {
                    return;
                }
                // The sender asks again, and hears us ask, in the PG's own interval.
                self.adopt(id, &info, past);
                if let Some(pg) = self.pgs.get_mut(&id) {
                    pg.after_maps(&mut self.sh, ctx, true);
                }
            }
            _ => {}
        }
    }

    /// Takes over a PG from what another OSD tells, in the epoch that both have.
    fn adopt(&mut self, id: PgId, info: &crate::pg::info::PgInfo, past: crate::pg::intervals::PastIntervals) {
        let waiting = self.pgs.remove(&id).map(|mut pg| pg.take_waiting(&mut self.sh)).unwrap_or_default();
        let placement = self.sh.maps.placement(id);
        let mut txn = Transaction::new();
        let mut pg = Pg::adopt(id, placement, info, past, &mut txn);
        self.sh.must_queue(txn, Commit::Silent);
        pg.give_waiting(waiting);
        self.pgs.insert(id, pg);
    }
}
