//! Following the OSDMap, one epoch at a time.
//!
//! Every epoch counts, also those that arrive together: a replica that went
//! down and came back between two maps leaves the placement as it was, but the
//! primary has dropped what it had in hand when the interval changed. So each
//! request is compared with every map, and where epochs were skipped,
//! everything is sent again.
//!
//! Source: Ceph 16.2.15 `src/osdc/Objecter.cc` (`handle_osd_map`,
//! `_scan_requests`, `_calc_target`).

use super::{Action, Client, InFlight, PoolCheck, RequestId, client_addr};
use crate::target::Target;
use base::Errno;
use crush::CrushMap;
use std::collections::BTreeSet;
use tracing::warn;
use wire::maps::{OsdMap, OsdMapIncremental};
use wire::messages::{MMonGetVersion, MMonGetVersionReply, MOsdMap};
use wire::types::{Epoch, OsdId};
use wire::{Decode, DecodeError, Features};

impl Client {
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.map.as_ref().map(|map| map.epoch)
    }

    pub(super) fn on_map(&mut self, message: MOsdMap) -> Result<(), DecodeError> {
        if self.fsid.is_some_and(|mine| mine != message.fsid) {
            warn!(theirs = %message.fsid, "a map of another cluster is ignored");
            return Ok(());
        }
        let before = self.epoch();
        while let Some((map, skipped)) = self.next_map(&message)? {
            self.adopt(map, skipped)?;
        }
        let after = self.epoch();
        if after == before {
            // Nothing that leads on from ours, though there is something newer,
            // so the monitor shall send from where we are; or, if what it sent
            // does not fit our map, the full map.
            if after.is_some_and(|epoch| epoch < message.newest) {
                let unusable = after.is_some_and(|epoch| message.incrementals.contains_key(&epoch.next()));
                let next = after.map_or(0, |epoch| u64::from(epoch.0) + 1);
                self.subscribe(if unusable { 0 } else { next });
            }
            return Ok(());
        }
        if self.fsid.is_none() {
            self.fsid = Some(message.fsid);
            self.send_commands();
        }
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in all {
            self.send_if_waiting(id);
        }
        self.send_disturbed_lingers();
        Ok(())
    }

    /// The next map that the message leads to, and whether epochs before it
    /// are unknown to us.
    fn next_map(&self, message: &MOsdMap) -> Result<Option<(OsdMap, bool)>, DecodeError> {
        if let Some(map) = &self.map
            && let Some(bytes) = message.incrementals.get(&map.epoch.next())
        {
            let inc = OsdMapIncremental::from_bytes(bytes.clone(), Features::ALL)?;
            let mut next = map.clone();
            match next.apply(&inc) {
                Ok(()) => return Ok(Some((next, false))),
                Err(error) => warn!(%error, epoch = %inc.epoch, "incremental map not applied"),
            }
        }
        let current = self.epoch();
        let Some((&epoch, full)) = message.fulls.last_key_value() else { return Ok(None) };
        if current.is_some_and(|current| epoch <= current) {
            return Ok(None);
        }
        let skipped = current.is_some_and(|current| epoch != current.next());
        Ok(Some((OsdMap::from_bytes(full.clone(), Features::ALL)?, skipped)))
    }

    fn adopt(&mut self, map: OsdMap, skipped: bool) -> Result<(), DecodeError> {
        if self.crush.is_none() || self.map.as_ref().is_none_or(|old| old.crush != map.crush) {
            let crush = CrushMap::decode(&map.crush);
            self.crush = Some(crush.map_err(|_| DecodeError::Invalid { what: "CRUSH map" })?);
        }
        self.map = Some(map);
        self.drop_dead_sessions();
        self.place_lingers(skipped);
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in all {
            if skipped && let Some(op) = self.requests.get_mut(&id) {
                op.sent_to = None;
            }
            self.place(id);
        }
        Ok(())
    }

    /// Sessions to OSDs that the map says are down, or live elsewhere now.
    fn drop_dead_sessions(&mut self) {
        let map = self.map.as_ref().expect("called with a map");
        let dead: BTreeSet<OsdId> = self
            .sessions
            .iter()
            .filter(|(osd, s)| !map.is_up(**osd) || client_addr(map, **osd) != s.addr)
            .map(|(osd, _)| *osd)
            .collect();
        for osd in dead {
            self.sessions.remove(&osd);
            self.actions.push_back(Action::DisconnectOsd(osd));
            self.forget_sent(osd);
        }
    }

    /// Finds a request's PG and OSD under the current map. If the PG's interval
    /// is another than when the request was sent, it waits to be sent again.
    pub(super) fn place(&mut self, id: RequestId) {
        let (Some(map), Some(crush)) = (&self.map, &self.crush) else { return };
        let Some(op) = self.requests.get_mut(&id) else { return };
        let target = Target::calc(map, crush, &op.request);
        if target.is_some() {
            op.pool_check = None;
            if op.target != target {
                op.target = target;
                op.sent_to = None;
            }
            return;
        }
        op.target = None;
        op.sent_to = None;
        if Self::cannot_exist(map, op) {
            self.complete(id, Errno::ENOENT.negative(), Vec::new(), 0);
        } else if op.pool_check.is_none() {
            op.pool_check = Some(PoolCheck::Asked);
            self.ask_newest_epoch(id);
        }
    }

    /// Pool numbers are never reused: one that the map has passed is gone.
    fn cannot_exist(map: &OsdMap, op: &InFlight) -> bool {
        let was_removed = op.request.locator.pool.0 <= i64::from(map.pool_max);
        let is_late = matches!(op.pool_check, Some(PoolCheck::Until(epoch)) if map.epoch >= epoch);
        was_removed || is_late
    }

    fn ask_newest_epoch(&mut self, id: RequestId) {
        if self.mon_open {
            self.send_mon(&MMonGetVersion { handle: id.0, what: "osdmap".into() }, id.0);
        }
    }

    /// A new session with a monitor knows nothing of what the last one was asked.
    pub(super) fn ask_for_pools_again(&mut self) {
        let asked = |op: &InFlight| op.pool_check == Some(PoolCheck::Asked);
        let ids: Vec<RequestId> =
            self.requests.iter().filter(|(_, op)| asked(op)).map(|(id, _)| *id).collect();
        for id in ids {
            self.ask_newest_epoch(id);
        }
    }

    pub(super) fn on_newest_epoch(&mut self, reply: MMonGetVersionReply) {
        let id = RequestId(reply.handle);
        let Some(op) = self.requests.get_mut(&id) else { return };
        if op.pool_check == Some(PoolCheck::Asked) {
            // The subscription brings the map if we do not have it.
            op.pool_check = Some(PoolCheck::Until(Epoch(u32::try_from(reply.newest).unwrap_or(u32::MAX))));
            self.place(id);
        }
    }
}
