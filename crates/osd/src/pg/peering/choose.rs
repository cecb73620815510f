//! Which log is the truth, and who may be an acting member.
//!
//! Source: Ceph `src/osd/PeeringState.cc` (`find_best_info`,
//! `calc_replicated_acting`).

use crate::pg::info::PgInfo;
use crate::pg::{PeerCopy, Pg};
use crate::shared::Shared;
use std::collections::BTreeMap;
use store::ObjectStore;
use wire::types::{EVersion, Epoch, OsdId};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The acting set is right; this OSD has the log.
    Log(OsdId),
    /// These should act instead.
    OtherActing(Vec<OsdId>),
    /// No complete copy with a recent enough log.
    Incomplete,
}

/// The copy whose log contains every acknowledged write.
///
/// Only copies that took part in the newest known activation count: each of
/// them has everything acknowledged in earlier intervals, and those of them
/// with the least have everything acknowledged in the newest. Among the rest
/// the longest history wins; then the longest log; then `prefer`.
pub fn find_best(infos: &BTreeMap<OsdId, PgInfo>, prefer: OsdId) -> Option<OsdId> {
    let started = infos
        .values()
        .map(|i| {
            let own = if i.is_incomplete() { Epoch(0) } else { i.last_epoch_started };
            i.history.last_epoch_started.max(own)
        })
        .max()?;
    infos
        .iter()
        .filter(|(_, i)| i.last_epoch_started >= started && !i.is_incomplete())
        .max_by_key(|(osd, i)| {
            (i.last_update, std::cmp::Reverse(i.log_tail), **osd == prefer, std::cmp::Reverse(**osd))
        })
        .map(|(osd, _)| *osd)
}

/// Whether a copy can catch up from a log with this tail.
fn is_usable(info: &PgInfo, tail: EVersion) -> bool {
    !info.is_incomplete() && info.last_update >= tail
}

/// Who should act, primary first.
pub fn calc_acting(
    infos: &BTreeMap<OsdId, PgInfo>,
    best: OsdId,
    up: &[OsdId],
    up_primary: Option<OsdId>,
    acting: &[OsdId],
    size: usize,
    unusable: impl Fn(OsdId) -> bool,
) -> Vec<OsdId> {
    let Some(best_info) = infos.get(&best) else { return Vec::new() };
    let usable = |osd: OsdId, tail: EVersion| {
        !unusable(osd) && infos.get(&osd).is_some_and(|info| is_usable(info, tail))
    };
    let primary = up_primary.filter(|osd| usable(*osd, best_info.log_tail)).unwrap_or(best);
    // The primary's own log, once merged, reaches back as far as its own tail.
    let tail = infos.get(&primary).map_or(best_info.log_tail, |i| i.log_tail.max(best_info.log_tail));
    let mut want = vec![primary];
    let add = |osd: OsdId, want: &mut Vec<OsdId>| {
        if want.len() < size && osd != OsdId::NONE && !want.contains(&osd) && usable(osd, tail) {
            want.push(osd);
        }
    };
    up.iter().for_each(|osd| add(*osd, &mut want));
    acting.iter().for_each(|osd| add(*osd, &mut want));
    infos.keys().for_each(|osd| add(*osd, &mut want));
    want
}

impl Pg {
    /// While active, only the members count: strays have not followed since.
    pub(in crate::pg) fn choose_acting<S: ObjectStore>(&self, sh: &Shared<S>) -> Choice {
        let map = sh.maps.map();
        let mut infos: BTreeMap<OsdId, PgInfo> = self
            .peers
            .iter()
            .filter(|(osd, _)| map.is_up(**osd) && (!self.is_active() || self.targets.contains(osd)))
            .map(|(osd, copy)| (*osd, PeerCopy::info_or_default(copy)))
            .collect();
        infos.insert(sh.me(), self.info.clone());
        let Some(best) = find_best(&infos, sh.me()) else { return Choice::Incomplete };
        let members = |osd: &OsdId| self.placement.up.contains(osd) || self.placement.acting.contains(osd);
        let copies: BTreeMap<OsdId, PgInfo> = infos
            .iter()
            // Somebody without a copy joins only where the map puts it.
            .filter(|(osd, _)| members(osd) || self.peers.get(osd).is_some_and(|c| c.info.is_some()))
            .map(|(osd, info)| (*osd, info.clone()))
            .collect();
        let size = map.pool(self.id.pool).map_or(1, |p| usize::from(p.size));
        let want = calc_acting(
            &copies,
            best,
            &self.placement.up,
            self.placement.up_primary,
            &self.placement.acting,
            size,
            |osd| self.full_copy.contains(&osd),
        );
        let acting: Vec<OsdId> = self.placement.members().collect();
        let same = want.first() == self.placement.primary.as_ref() && same_members(&want, &acting);
        if same {
            return Choice::Log(best);
        }
        // The up set needs no override: ask for none.
        let up: Vec<OsdId> = self.placement.up.iter().copied().filter(|o| *o != OsdId::NONE).collect();
        let no_override = want.first() == self.placement.up_primary.as_ref() && same_members(&want, &up);
        Choice::OtherActing(if no_override { Vec::new() } else { want })
    }
}

fn same_members(a: &[OsdId], b: &[OsdId]) -> bool {
    a.len() == b.len() && a.iter().all(|osd| b.contains(osd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::HObject;

    fn info(les: u32, update: u64, tail: u64) -> PgInfo {
        PgInfo {
            last_update: EVersion::new(Epoch(les), update),
            log_tail: EVersion::new(Epoch(les), tail),
            last_epoch_started: Epoch(les),
            ..PgInfo::default()
        }
    }

    fn infos(list: &[(i32, PgInfo)]) -> BTreeMap<OsdId, PgInfo> {
        list.iter().map(|(osd, info)| (OsdId(*osd), info.clone())).collect()
    }

    #[test]
    fn a_longer_log_of_an_older_activation_does_not_win() {
        let all = infos(&[(0, info(5, 90, 0)), (1, info(6, 80, 0)), (2, info(6, 85, 0))]);
        assert_eq!(find_best(&all, OsdId(0)), Some(OsdId(2)));
    }

    #[test]
    fn a_copy_being_backfilled_is_never_the_truth() {
        let mut young = info(6, 85, 0);
        young.last_backfill = HObject::default();
        let all = infos(&[(1, info(6, 80, 0)), (2, young)]);
        assert_eq!(find_best(&all, OsdId(2)), Some(OsdId(1)));
    }

    #[test]
    fn history_of_a_later_activation_disqualifies_all_who_missed_it() {
        let mut stale = info(5, 90, 0);
        stale.history.last_epoch_started = Epoch(7);
        assert_eq!(find_best(&infos(&[(0, stale)]), OsdId(0)), None);
    }

    #[test]
    fn who_cannot_catch_up_from_the_log_does_not_act() {
        let all = infos(&[(0, info(3, 10, 0)), (1, info(6, 80, 50)), (2, info(6, 80, 40))]);
        let up = [OsdId(0), OsdId(1), OsdId(2)];
        let want = calc_acting(&all, OsdId(2), &up, Some(OsdId(0)), &up, 3, |_| false);
        assert_eq!(want, [OsdId(2), OsdId(1)]);
    }
}
