//! Room on devices: refusing a write while everybody could still take it.
//!
//! A write that a replica's device cannot hold must not be in the log: nothing
//! behind it could be done, not even the deletes that would make room. So a
//! primary knows what room its replicas have (every heartbeat says it, and a
//! device that fills up says it at once) and answers ENOSPC before anything is
//! queued. What an OSD has left it may use up to its share: the other primaries
//! do not know what it sends. What only takes away passes always; the store
//! keeps a reserve for that.
//!
//! This is the last line. Long before it the monitor flags full OSDs and pools.
//!
//! Source: Ceph `src/osd/OSD.cc` (`recalc_full_state`, `osd_failsafe_full_ratio`),
//! for the idea of a failsafe; the shares are ours.

use crate::exec::{INFO_ATTR, SNAPSET_ATTR};
use store::{Mutation, StoreStats};

/// Of the device, never taken by clients' data: `osd_failsafe_full_ratio` is 0.97.
const FAILSAFE_PART: u64 = 33;
/// On a small device the part above is less than a few writes under way.
const FAILSAFE_MIN: u64 = 16 << 20;
/// Below this share nothing is certain; above it no write can exceed it.
const PLENTY: u64 = 1 << 30;

/// Units: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    pub total: u64,
    pub available: u64,
}

impl Space {
    pub fn of(stats: &StoreStats) -> Space {
        Space { total: stats.total, available: stats.available }
    }

    /// What clients' data may still take.
    pub fn room(&self) -> u64 {
        let floor = (self.total / FAILSAFE_PART).max(FAILSAFE_MIN.min(self.total / 8));
        self.available.saturating_sub(floor)
    }

    pub fn used_ratio(&self) -> f64 {
        if self.total == 0 { 0.0 } else { 1.0 - self.available as f64 / self.total as f64 }
    }

    /// One of `primaries` may have so much under way.
    pub fn share(&self, primaries: u64) -> u64 {
        self.room() / primaries.max(1)
    }

    pub fn is_plenty(&self, primaries: u64) -> bool {
        self.share(primaries) >= PLENTY
    }
}

/// What a change takes of the device, at most; 0 when it only takes away.
pub fn cost_of(mutations: &[Mutation]) -> u64 {
    const BLOCK: u64 = store::limits::BLOCK_LEN;
    let attr_len = |name: &str, value: &bytes::Bytes| {
        if name == INFO_ATTR || name == SNAPSET_ATTR { 0 } else { (name.len() + value.len()) as u64 }
    };
    mutations
        .iter()
        .map(|mutation| match mutation {
            // Its ends may share blocks with older data.
            Mutation::Write { data, .. } => (data.len() as u64).next_multiple_of(BLOCK) + BLOCK,
            Mutation::SetOmap { entries, .. } => {
                entries.iter().map(|(key, value)| (key.len() + value.len() + 64) as u64).sum()
            }
            Mutation::SetOmapHeader { header, .. } => header.len() as u64,
            Mutation::SetXattrs { attrs, .. } => {
                attrs.iter().map(|(name, value)| attr_len(name, value)).sum()
            }
            Mutation::Touch(_) => BLOCK,
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::meta_object;
    use bytes::Bytes;

    #[test]
    fn the_last_part_of_a_device_is_no_room() {
        let large = Space { total: 33 << 30, available: 2 << 30 };
        assert_eq!(large.room(), 1 << 30);
        assert_eq!(Space { available: 1 << 30, ..large }.room(), 0);
        let small = Space { total: 256 << 20, available: 20 << 20 };
        assert_eq!((small.room(), small.share(4)), (4 << 20, 1 << 20));
        assert!(large.is_plenty(1) && !large.is_plenty(2));
    }

    #[test]
    fn what_takes_away_costs_nothing() {
        let id = meta_object("a".into());
        let info = [(INFO_ATTR, Bytes::from_static(b"info"))].into();
        let delete = [
            Mutation::Remove(id.clone()),
            Mutation::Truncate { id: id.clone(), size: 0 },
            Mutation::SetXattrs { id: id.clone(), attrs: info },
        ];
        assert_eq!(cost_of(&delete), 0);
        assert_eq!(cost_of(&[Mutation::Write { id, offset: 1, data: Bytes::from_static(b"x") }]), 8192);
    }
}
