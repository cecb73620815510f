//! Peers: links, heartbeats, failure reports, and leases.
//!
//! **Leases.** A primary serves reads only while every other acting member has
//! promised not to help anybody else serve the PG. The promise rides on the
//! heartbeat: a ping asks for it with the primary's own time stamp, the pong
//! grants it. The receiver of the ping promises for `lease_promise` from its
//! own now on; the primary counts `lease`, which is shorter, from the moment it
//! *sent* the ping. So no clocks are compared, only elapsed time.
//!
//! A grant carries the granter's map epoch. The primary uses it only once its
//! own map is at least as new: then, if the granter had already moved on to
//! another interval, the primary knows that too. See docs/design/0001-peering.md.

use crate::space::Space;
use base::Time;
use std::collections::BTreeMap;
use wire::types::{EntityAddrVec, Epoch, OsdId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    Down,
    Dialing,
    Up,
}

/// What was last told to the monitor of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reported {
    Nothing,
    Refused,
    Silent,
}

#[derive(Clone, Debug)]
pub struct PeerOsd {
    pub addrs: EntityAddrVec,
    /// The life of the peer that this is about.
    pub up_from: Epoch,
    pub link: Link,
    pub last_dial: Time,
    /// When it last gave a sign of life, or when we began to listen.
    pub last_heard: Time,
    pub reported: Reported,
    pub last_report: Time,
    /// The newest map it is known to have.
    pub epoch: Epoch,
    /// On its device, as it last said.
    pub space: Option<Space>,
    /// Usable grant.
    lease_until: Time,
    /// Grants of maps that we do not have yet, ascending by epoch.
    future_leases: Vec<(Epoch, Time)>,
}

impl PeerOsd {
    pub fn new(addrs: EntityAddrVec, up_from: Epoch, now: Time) -> PeerOsd {
        PeerOsd {
            addrs,
            up_from,
            link: Link::Down,
            last_dial: Time::ZERO,
            last_heard: now,
            reported: Reported::Nothing,
            last_report: Time::ZERO,
            epoch: Epoch(0),
            space: None,
            lease_until: Time::ZERO,
            future_leases: Vec::new(),
        }
    }

    /// A grant counted from when its ping was sent.
    pub fn on_grant(&mut self, granter_epoch: Epoch, until: Time, our_epoch: Epoch) {
        if granter_epoch <= our_epoch {
            self.lease_until = self.lease_until.max(until);
        } else if self.future_leases.len() < 16 {
            self.future_leases.push((granter_epoch, until));
        }
    }

    /// Our map has advanced: grants of its epoch and before become usable.
    pub fn on_map(&mut self, our_epoch: Epoch) {
        let mut usable = self.lease_until;
        self.future_leases.retain(|(epoch, until)| {
            let now_usable = *epoch <= our_epoch;
            if now_usable {
                usable = usable.max(*until);
            }
            !now_usable
        });
        self.lease_until = usable;
    }

    pub fn lease_until(&self) -> Time {
        self.lease_until
    }
}

/// All peers, and the promises made to them.
#[derive(Debug, Default)]
pub struct Peers {
    pub all: BTreeMap<OsdId, PeerOsd>,
    /// To whom we promised, until when. Survives the peer's entry.
    promises: BTreeMap<OsdId, Time>,
    /// Promises of an earlier life of ours that nobody remembers.
    pub promise_floor: Time,
}

impl Peers {
    pub fn promise(&mut self, to: OsdId, until: Time) {
        let entry = self.promises.entry(to).or_insert(until);
        *entry = (*entry).max(until);
    }

    /// Promises that still hold, with the time left in milliseconds, rounded up.
    pub fn promises_left(&self, now: Time) -> Vec<(OsdId, u32)> {
        self.promises
            .iter()
            .filter(|(_, until)| **until > now)
            .map(|(osd, until)| (*osd, left_ms(*until, now)))
            .collect()
    }

    pub fn promised_until(&self, to: OsdId) -> Time {
        self.promises.get(&to).copied().unwrap_or(Time::ZERO)
    }

    pub fn floor_left_ms(&self, now: Time) -> u32 {
        left_ms(self.promise_floor, now)
    }

    pub fn is_linked(&self, osd: OsdId) -> bool {
        self.all.get(&osd).is_some_and(|p| p.link == Link::Up)
    }
}

fn left_ms(until: Time, now: Time) -> u32 {
    u32::try_from(until.since(now).as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_of_a_newer_map_counts_only_once_we_have_that_map() {
        let mut peer = PeerOsd::new(EntityAddrVec::default(), Epoch(1), Time(0));
        peer.on_grant(Epoch(5), Time(100), Epoch(5));
        assert_eq!(peer.lease_until(), Time(100));
        peer.on_grant(Epoch(6), Time(200), Epoch(5));
        assert_eq!(peer.lease_until(), Time(100));
        peer.on_map(Epoch(6));
        assert_eq!(peer.lease_until(), Time(200));
    }

    #[test]
    fn promises_run_out() {
        let mut peers = Peers::default();
        peers.promise(OsdId(1), Time(5_000_000));
        peers.promise(OsdId(1), Time(3_000_000));
        assert_eq!(peers.promises_left(Time(4_500_000)), [(OsdId(1), 1)]);
        assert!(peers.promises_left(Time(5_000_000)).is_empty());
    }
}
