//! Intervals: runs of epochs in which a PG's members do not change.
//!
//! Every OSD that has a PG walks every map epoch and notes where one interval
//! ends and the next begins. From the intervals since the PG was last active,
//! peering knows whose logs it must have seen before it may go on: in every
//! interval that *may have gone read-write*, some member may have acknowledged
//! writes that others never saw.
//!
//! Source: Ceph `src/osd/osd_types.cc` (`PastIntervals::check_new_interval`,
//! `PastIntervals::PriorSet`).

use crate::maps::Placement;
use std::collections::BTreeSet;
use wire::codec::Result;
use wire::maps::OsdMap;
use wire::types::{Epoch, OsdId};
use wire::{Decode, Decoder, Encode, Encoder};

/// One interval that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    pub first: Epoch,
    pub last: Epoch,
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    pub primary: Option<OsdId>,
    pub maybe_went_rw: bool,
}

impl Encode for Interval {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.first);
        e.put(&self.last);
        e.put(&self.up);
        e.put(&self.acting);
        e.put(&self.primary);
        e.bool(self.maybe_went_rw);
    }
}

impl Decode for Interval {
    const MIN_LEN: usize = 18;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Interval {
            first: d.get()?,
            last: d.get()?,
            up: d.get()?,
            acting: d.get()?,
            primary: d.get()?,
            maybe_went_rw: d.bool()?,
        })
    }
}

/// Intervals since the PG was last clean, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PastIntervals(pub Vec<Interval>);

impl Encode for PastIntervals {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.0);
    }
}

impl Decode for PastIntervals {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(PastIntervals(d.get()?))
    }
}

/// Whether the members changed from one epoch to the next: their sets, their
/// lives, or the pool's sizes that decide when the PG may be active.
pub fn is_new_interval(
    old: &Placement,
    old_map: &OsdMap,
    new: &Placement,
    new_map: &OsdMap,
    pool: wire::types::PoolId,
) -> bool {
    if old != new {
        return true;
    }
    let sizes = |map: &OsdMap| map.pool(pool).map(|p| (p.size, p.min_size, p.pg_num));
    if sizes(old_map) != sizes(new_map) {
        return true;
    }
    let life = |map: &OsdMap, osd: OsdId| map.info(osd).map(|info| info.up_from);
    new.up.iter().chain(&new.acting).any(|&osd| life(old_map, osd) != life(new_map, osd))
}

/// Whether the interval that ended with `last_map` can have acknowledged writes.
///
/// The primary activates only after the monitor recorded that it was alive in
/// the interval (`up_thru`), and not below `min_size`.
pub fn may_have_gone_rw(placement: &Placement, first: Epoch, last_map: &OsdMap, min_size: usize) -> bool {
    let Some(primary) = placement.primary else { return false };
    let members = placement.acting.iter().filter(|osd| **osd != OsdId::NONE).count();
    if members == 0 || members < min_size {
        return false;
    }
    last_map.info(primary).is_some_and(|info| info.up_thru >= first && info.up_from <= first)
}

/// Whom a primary must ask before it may choose a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PriorSet {
    /// OSDs to ask, all of them up; never the primary itself.
    pub probe: BTreeSet<OsdId>,
    /// Down members of intervals none of whose members is up: until one of
    /// them returns or is declared lost, acknowledged writes may be hidden.
    pub blocked_by: BTreeSet<OsdId>,
    /// Primaries of past intervals, with the last epoch of each: some may still
    /// believe in their leases.
    pub past_primaries: Vec<(OsdId, Epoch)>,
}

impl PastIntervals {
    /// Drops what can no longer matter once the PG was active in `started`.
    pub fn trim_before(&mut self, started: Epoch) {
        self.0.retain(|interval| interval.last >= started);
    }

    pub fn prior_set(
        &self,
        me: OsdId,
        placement: &Placement,
        last_epoch_started: Epoch,
        map: &OsdMap,
    ) -> PriorSet {
        let mut prior = PriorSet::default();
        let mut probe = |osd: OsdId| {
            if osd != me && osd != OsdId::NONE && map.is_up(osd) {
                prior.probe.insert(osd);
            }
        };
        placement.up.iter().chain(&placement.acting).for_each(|osd| probe(*osd));
        let relevant = || self.0.iter().filter(|i| i.last >= last_epoch_started);
        for interval in relevant() {
            interval.acting.iter().chain(&interval.up).for_each(|osd| probe(*osd));
        }
        for interval in relevant().filter(|i| i.maybe_went_rw) {
            if let Some(primary) = interval.primary {
                prior.past_primaries.push((primary, interval.last));
            }
            let members = || interval.acting.iter().copied().filter(|osd| *osd != OsdId::NONE);
            let survivor = members().any(|osd| osd == me || map.is_up(osd));
            // Data declared lost does not block: the administrator has decided.
            let down: Vec<OsdId> = members()
                .filter(|osd| map.exists(*osd))
                .filter(|osd| map.info(*osd).is_none_or(|i| i.lost_at <= interval.first))
                .collect();
            if !survivor {
                prior.blocked_by.extend(down);
            }
        }
        prior
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::maps::OsdState;

    fn map(up: &[i32], max: i32) -> OsdMap {
        let mut map = OsdMap::default();
        map.set_max_osd(max);
        for osd in 0..max {
            map.osd_state[osd as usize] =
                if up.contains(&osd) { OsdState::EXISTS | OsdState::UP } else { OsdState::EXISTS };
        }
        map
    }

    fn placement(osds: &[i32]) -> Placement {
        let osds: Vec<OsdId> = osds.iter().map(|o| OsdId(*o)).collect();
        Placement {
            up: osds.clone(),
            acting: osds.clone(),
            up_primary: osds.first().copied(),
            primary: osds.first().copied(),
        }
    }

    fn interval(first: u32, last: u32, osds: &[i32], rw: bool) -> Interval {
        let p = placement(osds);
        Interval {
            first: Epoch(first),
            last: Epoch(last),
            up: p.up,
            acting: p.acting,
            primary: p.primary,
            maybe_went_rw: rw,
        }
    }

    #[test]
    fn an_interval_that_may_have_gone_rw_blocks_until_a_member_is_up() {
        let past = PastIntervals(vec![interval(5, 9, &[1, 2], true)]);
        let blocked = past.prior_set(OsdId(0), &placement(&[0]), Epoch(5), &map(&[0, 3], 4));
        assert_eq!(blocked.blocked_by, [OsdId(1), OsdId(2)].into());
        let open = past.prior_set(OsdId(0), &placement(&[0]), Epoch(5), &map(&[0, 2], 4));
        assert!(open.blocked_by.is_empty());
        assert_eq!(open.probe, [OsdId(2)].into());
    }

    #[test]
    fn an_interval_that_never_went_rw_does_not_block() {
        let past = PastIntervals(vec![interval(5, 9, &[1, 2], false)]);
        assert!(past.prior_set(OsdId(0), &placement(&[0]), Epoch(5), &map(&[0], 4)).blocked_by.is_empty());
    }

    #[test]
    fn up_thru_decides_whether_an_interval_may_have_gone_rw() {
        let mut m = map(&[1, 2], 4);
        let p = placement(&[1, 2]);
        m.osd_info[1].up_from = Epoch(4);
        m.osd_info[1].up_thru = Epoch(4);
        assert!(!may_have_gone_rw(&p, Epoch(5), &m, 1));
        m.osd_info[1].up_thru = Epoch(5);
        assert!(may_have_gone_rw(&p, Epoch(5), &m, 1));
        assert!(!may_have_gone_rw(&p, Epoch(5), &m, 3));
    }
}
