//! What need not be sent of an object, because its receiver has it already.
//!
//! An object and its clones are for the most part the same blocks. The sender names one of them
//! as the *base*: the next older or the next newer one that the receiver has, whichever gives
//! more. The receiver clones that, and gets only what differs: so the copies share blocks there,
//! too. What is the same, the head's snapset tells.
//!
//! A version stands for its content wherever it is found. So a base is good if the receiver has
//! it in the version that the sender has; whatever the sender thinks of the receiver is a guess
//! that saves a refusal. Damage is another matter: who replaces a damaged copy gets it whole, since
//! the copy's blocks may be the base's as well.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`calc_head_subsets`, `calc_clone_subsets`), in outline:
//! there each range may come from another clone.

use super::push::Pushing;
use super::{Pg, Phase};
use crate::exec::{InfoError, ObjectInfo, SnapSet};
use crate::peer::Base;
use crate::shared::Shared;
use store::limits::BLOCK_LEN;
use store::{ObjectStore, StoreError};
use wire::types::{HObject, IntervalSet, OsdId, SnapId};

/// Each one is a mutation.
const ZEROS_MAX: usize = 64;

/// An object as its base and what differs from that.
pub(super) struct Difference {
    pub base: Base,
    /// What has to be sent.
    pub ranges: IntervalSet,
    /// Bytes that need not be.
    pub saved: u64,
}

impl Pg {
    /// How an object that is in our store may be made from one that its receiver has.
    /// `None`: it has to be sent as a whole.
    pub(super) fn difference<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        push: &Pushing,
        size: u64,
    ) -> Result<Option<Difference>, StoreError> {
        let object = &push.object;
        let is_repair = self.damaged.get(object).is_some_and(|at| at.contains(&push.to));
        if size < BLOCK_LEN || push.whole || is_repair {
            return Ok(None);
        }
        let Some(snapset) = self.snapset_of(sh, object)? else { return Ok(None) };
        let mut best: Option<Difference> = None;
        for (snap, shared) in self.bases(sh, push, size, &snapset).into_iter().flatten() {
            let found = self.difference_from(sh, object, size, snap, &shared)?;
            let saved = best.as_ref().map_or(0, |best| best.saved);
            best = found.filter(|found| found.saved > saved).or(best);
        }
        Ok(best)
    }

    /// `None` without clones; or our store's head may not be what it was when our clones were made.
    fn snapset_of<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        object: &HObject,
    ) -> Result<Option<SnapSet>, StoreError> {
        let head = object.head();
        if self.missing.contains(&head) || head > self.info.last_backfill {
            return Ok(None);
        }
        let head = self.object_id(&head);
        match readable(ObjectInfo::load(&sh.store, &head))?.flatten() {
            Some(info) if info.has_clones => readable(SnapSet::load(&sh.store, &head)),
            _ => Ok(None),
        }
    }

    /// The next older and the next newer object that the receiver should have, and what both share with this one.
    fn bases<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        push: &Pushing,
        size: u64,
        snapset: &SnapSet,
    ) -> [Option<(SnapId, IntervalSet)>; 2] {
        let clones = &snapset.clones;
        let is_head = !push.object.is_clone();
        let own = clones.iter().position(|clone| clone.id == push.object.snap);
        let Some(at) = own.or(is_head.then_some(clones.len())) else { return [None, None] };
        let mut whole = IntervalSet::new();
        whole.insert(0, size);
        let first_there = |chain: &mut dyn Iterator<Item = (SnapId, &IntervalSet)>| {
            let mut shared = whole.clone();
            for (snap, overlap) in chain {
                shared = shared.intersection(overlap);
                if shared.is_empty() {
                    return None;
                }
                if self.is_there(sh, push, snap) {
                    return Some((snap, shared));
                }
            }
            None
        };
        let older = first_there(&mut clones[..at].iter().rev().map(|clone| (clone.id, &clone.overlap)));
        let ids = clones.iter().map(|clone| clone.id).chain([SnapId::HEAD]).skip(at + 1);
        let newer = first_there(&mut ids.zip(clones[at..].iter().map(|clone| &clone.overlap)));
        [older, newer]
    }

    /// Both sides should have it, intact.
    fn is_there<S: ObjectStore>(&self, sh: &Shared<S>, push: &Pushing, snap: SnapId) -> bool {
        let object = HObject { snap, ..push.object.clone() };
        if self.missing.contains(&object) || self.is_suspect(&object) {
            return false;
        }
        if sh.config.sabotage.share_unchecked {
            return true;
        }
        match self.phase {
            Phase::Active => self.has_object(push.to, &object),
            // Asked by the primary, which told what it lacks.
            _ => !push.lacks.contains(&object),
        }
    }

    fn has_object(&self, osd: OsdId, object: &HObject) -> bool {
        let missed = self.peers.get(&osd).is_some_and(|copy| copy.missing.contains(object));
        !missed && self.backfills.get(&osd).is_none_or(|backfill| backfill.has(object))
    }

    /// Some copy of it is known to be damaged.
    pub(super) fn is_suspect(&self, object: &HObject) -> bool {
        self.damaged.contains_key(object) || self.unrepairable.contains(object)
    }

    fn difference_from<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        object: &HObject,
        size: u64,
        snap: SnapId,
        shared: &IntervalSet,
    ) -> Result<Option<Difference>, StoreError> {
        let base = self.object_id(&HObject { snap, ..object.clone() });
        let info = match readable(ObjectInfo::load(&sh.store, &base))?.flatten() {
            // An omap would be cloned only to be dropped.
            Some(info) if info.omap_keys == 0 => info,
            _ => return Ok(None),
        };
        let base_size = sh.store.stat(&base)?.map_or(0, |stat| stat.size);
        let shared = whole_blocks(shared, size, base_size);
        let Some((start, len)) = shared.iter().last() else { return Ok(None) };
        let cut = start + len;
        let extents = |id, len| -> Result<IntervalSet, StoreError> {
            let mut set = IntervalSet::new();
            sh.store.data_extents(id, 0, len)?.into_iter().for_each(|(offset, len)| set.insert(offset, len));
            Ok(set)
        };
        let object = self.object_id(object);
        let data = extents(&object, size)?;
        let mut zeros = extents(&base, cut)?;
        zeros.subtract(&shared);
        zeros.subtract(&data);
        let saved = data.intersection(&shared).total_len();
        let mut ranges = data;
        ranges.subtract(&shared);
        if saved == 0 || zeros.iter().count() > ZEROS_MAX {
            return Ok(None);
        }
        Ok(Some(Difference { base: Base { snap, version: info.version, cut, zeros }, ranges, saved }))
    }
}

/// What cannot be read is not there; but what has to be loaded first is waited for.
fn readable<T>(result: Result<T, InfoError>) -> Result<Option<T>, StoreError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(InfoError::Store(error @ StoreError::Pending(_))) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Stores share whole blocks; the last one counts as such where both objects end with it.
fn whole_blocks(shared: &IntervalSet, size: u64, base_size: u64) -> IntervalSet {
    let mut blocks = IntervalSet::new();
    for (start, len) in shared.iter() {
        let end = (start + len).min(size).min(base_size);
        let both_end = end == size && end == base_size;
        let end = if both_end { end } else { end / BLOCK_LEN * BLOCK_LEN };
        let start = start.next_multiple_of(BLOCK_LEN);
        blocks.insert(start, end.saturating_sub(start));
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(shared: &[(u64, u64)], size: u64, base_size: u64) -> Vec<(u64, u64)> {
        let mut set = IntervalSet::new();
        shared.iter().for_each(|(start, len)| set.insert(*start, *len));
        whole_blocks(&set, size, base_size).iter().collect()
    }

    #[test]
    fn only_whole_blocks_are_shared_and_a_common_end() {
        assert_eq!(blocks(&[(0, 4095), (4096, 4096), (9000, 3288)], 20_000, 20_000), [(4096, 4096)]);
        assert_eq!(blocks(&[(1, 9999)], 10_000, 10_000), [(4096, 5904)]);
        assert_eq!(blocks(&[(0, 10_000)], 10_000, 12_000), [(0, 8192)]);
        assert_eq!(blocks(&[(0, 10_000)], 12_000, 10_000), [(0, 8192)]);
        assert_eq!(blocks(&[(100, 200)], 10_000, 10_000), []);
    }
}
