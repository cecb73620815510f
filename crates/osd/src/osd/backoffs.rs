//! Backoffs: clients of a PG that cannot serve them for long are asked to hold
//! their requests themselves, so that one such PG does not fill what this OSD
//! may hold and keep everybody else out.
//!
//! A PG that is only peering holds requests: that takes milliseconds. One that
//! waits for OSDs to come back (down, incomplete, below `min_size`) drops what
//! it holds; clients send it again, in their own order, once they are unblocked.
//!
//! Invariant: between our block and the client's acknowledgement, whatever
//! arrives was sent before the client knew, and is dropped; unblocking waits
//! for the acknowledgement, so that nothing is both held here and sent again.
//!
//! Source: Ceph `src/osd/PG.cc` (`add_backoff`, `release_backoffs`, `handle_backoff`),
//! `src/osd/PrimaryLogPG.cc` (`do_request`), `src/osdc/Objecter.cc`.

use super::Osd;
use crate::action::Ctx;
use crate::exec;
use std::collections::BTreeMap;
use store::ObjectStore;
use wire::features::Features;
use wire::messages::{BackoffOp, MOsdBackoff, Outgoing, SessionId};
use wire::types::{HObject, PgId, SpgId};

/// One session's backoff from one PG.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Backoff {
    id: u64,
    acked: bool,
    /// Unblocked as soon as it is acknowledged.
    over: bool,
}

/// All backoffs of one session.
#[derive(Debug, Default)]
pub(super) struct Backoffs(BTreeMap<PgId, Backoff>);

impl<S: ObjectStore> Osd<S> {
    /// Whether the request is dropped, to be sent again when the client is told.
    pub(super) fn backs_off(&mut self, session: SessionId, pg: PgId) -> bool {
        let Some(client) = self.sessions.get(&session) else { return false };
        if client.backoffs.0.contains_key(&pg) {
            return true;
        }
        let able = client.peer.features.contains(Features::RADOS_BACKOFF);
        let wanted = self.pgs.get(&pg).is_some_and(|pg| pg.wants_backoff(&self.sh));
        if able && wanted {
            self.block(session, pg);
        }
        able && wanted
    }

    fn block(&mut self, session: SessionId, pg: PgId) {
        let id = self.sh.new_id();
        let Some(client) = self.sessions.get_mut(&session) else { return };
        client.backoffs.0.insert(pg, Backoff { id, acked: false, over: false });
        self.backed_off.insert(pg);
        tracing::debug!(%pg, ?session, id, "client is asked to hold back");
        self.send_backoff(session, pg, BackoffOp::Block, id);
    }

    fn send_backoff(&mut self, session: SessionId, pg: PgId, op: BackoffOp, id: u64) {
        let Some(client) = self.sessions.get(&session) else { return };
        let features = client.peer.features;
        let pg_num = self.sh.maps.map().pool(pg.pool).map_or(1, |pool| pool.pg_num);
        let message = MOsdBackoff {
            pg: SpgId::replicated(pg),
            epoch: self.sh.epoch(),
            op,
            id,
            begin: HObject::pg_start(pg.pool, pg.seed),
            end: exec::pg_end(pg, pg_num),
        };
        self.sh.send_client(session, Outgoing::new(&message, 0, features));
    }

    pub(super) fn on_backoff(&mut self, session: SessionId, message: &MOsdBackoff) {
        let pg = message.pg.pg;
        let Some(client) = self.sessions.get_mut(&session) else { return };
        let Some(backoff) = client.backoffs.0.get_mut(&pg) else { return };
        if message.op != BackoffOp::AckBlock || message.id != backoff.id {
            return;
        }
        backoff.acked = true;
        if backoff.over {
            let id = backoff.id;
            client.backoffs.0.remove(&pg);
            self.send_backoff(session, pg, BackoffOp::Unblock, id);
        }
    }

    /// The PG's state may have changed: what it holds for clients goes back to
    /// them, or they may send again.
    pub(super) fn review_backoffs(&mut self, _ctx: &Ctx<'_>, id: PgId) {
        let wanted = self.pgs.get(&id).is_some_and(|pg| pg.wants_backoff(&self.sh));
        if wanted {
            let able = |session: SessionId| {
                self.sessions
                    .get(&session)
                    .is_some_and(|client| client.peer.features.contains(Features::RADOS_BACKOFF))
            };
            let Some(pg) = self.pgs.get_mut(&id) else { return };
            let sessions = pg.drop_waiting_of(&mut self.sh, able);
            for session in sessions {
                if self.sessions.get(&session).is_some_and(|client| !client.backoffs.0.contains_key(&id)) {
                    self.block(session, id);
                }
            }
            return;
        }
        let keeps = self.pgs.get(&id).is_some_and(|pg| pg.keeps_backoff(&self.sh));
        if keeps || !self.backed_off.remove(&id) {
            return;
        }
        let mut unblocked = Vec::new();
        for (session, client) in &mut self.sessions {
            let Some(backoff) = client.backoffs.0.get_mut(&id) else { continue };
            backoff.over = true;
            if backoff.acked {
                unblocked.push((*session, backoff.id));
                client.backoffs.0.remove(&id);
            }
        }
        for (session, backoff) in unblocked {
            self.send_backoff(session, id, BackoffOp::Unblock, backoff);
        }
    }
}
