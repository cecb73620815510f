//! Clients: which requests reach a PG, and which get another answer.
//!
//! Source: Ceph `src/osd/OSD.cc` (`ms_fast_dispatch`, `enqueue_op`),
//! `src/osd/PrimaryLogPG.cc` (`do_op`, `can_discard_op`).

use super::Osd;
use super::backoffs::Backoffs;
use crate::action::{Action, Ctx};
use crate::exec::{self, Class, Fetched};
use crate::peer::{self, CopyGet, CopyResult, PgHeader};
use crate::pg::request::{Origin, Request, Work};
use crate::shared::CopyWait;
use base::{Errno, Time};
use store::ObjectStore;
use wire::messages::{Incoming, MCommand, MOsdBackoff, MOsdMap, MOsdOp, Outgoing, Payload, Peer, SessionId};
use wire::types::{EVersion, Epoch, HObject, OsdId, PgId, ReqId, SnapId};

/// Requests held for epochs that we do not have yet.
const FUTURE_MAX: usize = 4096;

pub struct ClientSession {
    pub peer: Peer,
    /// The newest epoch that we sent it.
    sent_epoch: Epoch,
    pub(super) backoffs: Backoffs,
}

/// Ceph's `MPing`, which has no payload.
const KIND_PING: u16 = 2;

impl ClientSession {
    pub fn new(peer: Peer) -> ClientSession {
        ClientSession { peer, sent_epoch: Epoch(0), backoffs: Backoffs::default() }
    }
}

impl<S: ObjectStore> Osd<S> {
    pub(super) fn handle_client_message(&mut self, ctx: &mut Ctx<'_>, session: SessionId, message: Incoming) {
        let Some(client) = self.sessions.get(&session) else { return };
        let features = client.peer.features;
        match message.kind {
            MOsdOp::KIND => match message.decode::<MOsdOp>(features) {
                Ok(op) if op.epoch > self.sh.epoch() => self.hold_future(session, op.epoch, message),
                // The client has the same map and would not send again.
                Ok(op) if self.comes_back_as_primary(op.pg.pg) => {
                    self.hold_future(session, op.epoch, message);
                }
                Ok(op) => {
                    let bytes = (message.front.len() + message.data.len()) as u64;
                    self.handle_op(ctx, session, message.tid, op, bytes);
                }
                Err(error) => self.refuse_session(session, format!("malformed MOSDOp: {error}")),
            },
            MCommand::KIND => match message.decode::<MCommand>(features) {
                Ok(command) => self.handle_command(ctx, session, message.tid, &command),
                Err(error) => self.refuse_session(session, format!("malformed MCommand: {error}")),
            },
            MOsdBackoff::KIND => match message.decode::<MOsdBackoff>(features) {
                Ok(backoff) => self.on_backoff(session, &backoff),
                Err(error) => self.refuse_session(session, format!("malformed MOSDBackoff: {error}")),
            },
            // A client whose request takes long asks whether we still live; the
            // connection answers that.
            KIND_PING => {}
            kind => {
                self.sh.counters.malformed += 1;
                tracing::warn!(kind, "unexpected kind of message from a client");
            }
        }
    }

    /// The map gives us a PG whose old copy we are still removing.
    fn comes_back_as_primary(&self, pg: PgId) -> bool {
        self.deleting.contains(&pg)
            && !self.pgs.contains_key(&pg)
            && self.sh.maps.map().pool(pg.pool).is_some_and(|pool| pg.seed < pool.pg_num)
            && self.sh.maps.placement(pg).primary == Some(self.sh.me())
    }

    fn refuse_session(&mut self, session: SessionId, reason: String) {
        self.sh.counters.malformed += 1;
        self.sh.actions.push_back(Action::CloseSession { session, reason });
    }

    fn hold_future(&mut self, session: SessionId, epoch: Epoch, message: Incoming) {
        // A client that claims an epoch far ahead, or too many of them.
        if self.future_requests.len() >= FUTURE_MAX {
            return self
                .refuse_session(session, format!("too many requests for maps to come, {epoch} is one"));
        }
        self.future_requests.push_back((epoch, session, message));
    }

    /// Sends a client the maps between its epoch and ours, once.
    fn share_maps(&mut self, session: SessionId, epoch: Epoch) {
        let newest = self.sh.epoch();
        let Some(client) = self.sessions.get_mut(&session) else { return };
        let mut have = client.sent_epoch.max(epoch);
        if have >= newest {
            return;
        }
        let features = client.peer.features;
        while have < newest {
            let (maps, reached) = self.sh.maps.share(have);
            if reached <= have {
                break;
            }
            have = reached;
            let message: Outgoing = Outgoing::new::<MOsdMap>(&maps, 0, features);
            self.sh.send_client(session, message);
        }
        if let Some(client) = self.sessions.get_mut(&session) {
            client.sent_epoch = have;
        }
    }

    fn handle_op(&mut self, ctx: &mut Ctx<'_>, session: SessionId, tid: u64, op: MOsdOp, bytes: u64) {
        self.share_maps(session, op.epoch);
        let Some(client) = self.sessions.get(&session) else { return };
        let peer = &client.peer;
        let features = peer.features;
        let map = self.sh.maps.map().clone();
        // A pool that is gone, or a PG that is not ours: the client learns it
        // from the map that it has just been sent, and sends again.
        let Some(pool) = map.pool(op.pg.pg.pool) else {
            self.sh.counters.misdirected += 1;
            return;
        };
        let class = exec::classify(&op);
        let folded = pool.raw_hash_to_seed(op.raw_hash);
        let misfolded = class != Class::PgOp && (folded != op.pg.pg.seed || op.locator.pool != op.pg.pg.pool);
        let pg = self.pgs.get_mut(&op.pg.pg).filter(|pg| pg.is_primary(&self.sh));
        let Some(pg) = pg.filter(|_| !misfolded) else {
            self.sh.counters.misdirected += 1;
            tracing::debug!(pg = %op.pg.pg, epoch = %op.epoch, ours = %map.epoch, tid, "a request for another OSD");
            return;
        };
        // The primary has changed since: the client sends it again by itself.
        if op.epoch < pg.info.history.same_primary_since || op.epoch < pool.last_force_op_resend {
            tracing::debug!(pg = %op.pg.pg, epoch = %op.epoch, ours = %map.epoch, tid, "a request to an earlier primary");
            return;
        }
        let id = op.pg.pg;
        if self.backs_off(session, id) {
            return;
        }
        let (Some(client), Some(pg)) = (self.sessions.get(&session), self.pgs.get_mut(&id)) else { return };
        let peer = &client.peer;
        let reqid = op.reqid.unwrap_or(ReqId {
            name: peer.name,
            tid,
            inc: i32::try_from(op.client_inc).unwrap_or(i32::MAX),
        });
        let object = HObject {
            pool: op.pg.pg.pool,
            hash: op.raw_hash,
            nspace: op.locator.nspace.clone(),
            key: if op.locator.key == op.object { Default::default() } else { op.locator.key.clone() },
            name: op.object.clone(),
            snap: wire::types::SnapId::HEAD,
            is_max: false,
        };
        self.sh.held_ops += 1;
        self.sh.held_bytes += bytes;
        let request = Box::new(Request {
            id: self.sh.new_id(),
            origin: Origin::Client {
                session,
                tid,
                features,
                who: cls::Origin { name: peer.name, addr: peer.addr },
            },
            reqid,
            object,
            work: Work::Op(op, class),
            fetched: Fetched::default(),
            arrived: ctx.now,
            bytes,
            version: EVersion::ZERO,
        });
        pg.submit(&mut self.sh, ctx, request);
    }

    /// Sends out what copies need, or sends it again where the primary has changed.
    pub(super) fn drive_copies(&mut self, ctx: &mut Ctx<'_>) {
        if self.sh.copies.is_empty() {
            return;
        }
        let limit = self.sh.config.retry_interval * 4;
        let due: Vec<(u64, CopyWait)> = self
            .sh
            .copies
            .iter()
            .filter(|(_, c)| c.sent == Time::ZERO || ctx.now.since(c.sent) > limit)
            .map(|(id, copy)| (*id, copy.clone()))
            .collect();
        for (id, copy) in due {
            let map = self.sh.maps.map().clone();
            let Some(pool) = map.pool(copy.source.object.pool) else {
                self.on_copy_result(ctx, CopyResult { id, errno: Errno::ENOENT.0, object: None });
                continue;
            };
            let pg = pool.raw_hash_to_pg(copy.source.object.pool, copy.source.object.hash);
            if let Some(wait) = self.sh.copies.get_mut(&id) {
                wait.sent = ctx.now.max(Time(1));
            }
            let Some(primary) = self.sh.maps.placement(pg).primary else { continue };
            let header = PgHeader { pg, interval: Epoch(0), epoch: self.sh.epoch() };
            let get = CopyGet { id, object: copy.source.object.clone(), version: copy.source.version };
            self.sh.send_pg(ctx, primary, header, get);
        }
        while let Some((kind, body)) = self.sh.loopback.pop_front() {
            let me = self.sh.me();
            self.handle_peer_message(ctx, me, kind, body);
        }
    }

    /// Another PG's primary, perhaps on this very OSD, copies one of our objects.
    pub(super) fn on_copy_get(&mut self, ctx: &mut Ctx<'_>, from: OsdId, header: &PgHeader, get: CopyGet) {
        let Some(pg) = self.pgs.get_mut(&header.pg).filter(|pg| pg.is_primary(&self.sh)) else {
            // It asks again, with a newer map.
            return;
        };
        let source = exec::CopySource { object: get.object.clone(), version: get.version };
        let request = Box::new(Request {
            id: self.sh.new_id(),
            origin: Origin::Copy { osd: from, id: get.id },
            reqid: ReqId { name: wire::types::EntityName::osd(from.0), tid: get.id, inc: 0 },
            object: HObject { snap: SnapId::HEAD, ..get.object },
            work: Work::Copy(source),
            fetched: Fetched::default(),
            arrived: ctx.now,
            bytes: 0,
            version: EVersion::ZERO,
        });
        pg.submit(&mut self.sh, ctx, request);
    }

    pub(super) fn on_copy_result(&mut self, ctx: &mut Ctx<'_>, result: peer::CopyResult) {
        let Some(copy) = self.sh.copies.remove(&result.id) else { return };
        let Some(pg) = self.pgs.get_mut(&copy.pg) else { return };
        let outcome = match (result.errno, result.object) {
            (0, Some(object)) => Ok(object),
            (0, None) => Err(Errno::EIO),
            (errno, _) => Err(Errno(errno)),
        };
        let source = copy.source;
        pg.fetched(&mut self.sh, ctx, copy.request, |r| r.fetched.copies.push((source, outcome)));
    }
}
