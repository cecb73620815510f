//! An object's name as the index keeps it: with a number that orders it.
//!
//! A search compares one name with a dozen others. Each of them lies behind a
//! pointer, with its strings behind others, and is not in the CPU's cache; the
//! numbers lie side by side in the page. Only where they are equal, which is
//! nearly always the name looked for, is the name itself read.

use crate::api::{CollId, ObjectId};
use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    /// Never descends where names ascend.
    head: u64,
    id: Arc<ObjectId>,
}

const POOL_BITS: u32 = 11;
const SEED_BITS: u32 = 20;

/// 1 bit: of a PG; then its pool, its seed, and the object's place in it, whatever
/// still fits behind a number that does not.
fn head(id: &ObjectId) -> u64 {
    let CollId::Pg(pg) = id.coll else { return 0 };
    let (pool, seed) = (pg.pool.0.max(0) as u64, u64::from(pg.seed));
    let (pool_max, seed_max) = ((1 << POOL_BITS) - 1, (1 << SEED_BITS) - 1);
    let in_pg = |seed: u64, place: u32| pool << (SEED_BITS + 32) | seed << 32 | u64::from(place);
    let rest = if pg.pool.0 < 0 {
        0
    } else if pool >= pool_max {
        return u64::MAX;
    } else if seed >= seed_max {
        in_pg(seed_max, u32::MAX)
    } else if id.object.is_max || id.object.pool > pg.pool {
        in_pg(seed, u32::MAX)
    } else if id.object.pool < pg.pool {
        in_pg(seed, 0)
    } else {
        in_pg(seed, id.object.hash.reverse_bits())
    };
    1 << 63 | rest
}

impl Name {
    pub(crate) fn new(id: Arc<ObjectId>) -> Name {
        Name { head: head(&id), id }
    }

    pub(crate) fn id(&self) -> &Arc<ObjectId> {
        &self.id
    }
}

impl Deref for Name {
    type Target = ObjectId;
    fn deref(&self) -> &ObjectId {
        &self.id
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Orders names against this one.
pub(crate) fn named(id: &ObjectId) -> impl Fn(&Name) -> Ordering {
    let head = head(id);
    move |name| name.head.cmp(&head).then_with(|| (*name.id).cmp(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use wire::types::{HObject, PgId, PoolId, SnapId};

    #[test]
    fn heads_never_descend_where_names_ascend() {
        let mut random = Random::from_seed(5);
        let mut pick = |from: &[i64]| from[random.below(from.len() as u64) as usize];
        let pools = [i64::MIN, -3, -1, 0, 1, 2, 2046, 2047, 2048, 5000, i64::MAX];
        let seeds = [0, 1, 7, (1 << 20) - 2, (1 << 20) - 1, 1 << 20, i64::from(u32::MAX)];
        let mut ids: Vec<ObjectId> = Vec::new();
        for n in 0..20_000 {
            let pg = PgId { pool: PoolId(pick(&pools)), seed: pick(&seeds) as u32 };
            let coll = if n % 50 == 0 { CollId::Meta } else { CollId::Pg(pg) };
            let object = HObject {
                pool: if n % 3 == 0 { PoolId(pick(&pools)) } else { pg.pool },
                hash: pick(&[0, 1, 2, 0x8000_0000, 0x7fff_ffff, i64::from(u32::MAX), 0x1234_5678]) as u32,
                name: format!("object {}", pick(&[1, 2, 3])).into(),
                snap: SnapId::HEAD,
                is_max: n % 40 == 0,
                ..HObject::default()
            };
            ids.push(ObjectId { coll, object });
        }
        ids.sort();
        ids.dedup_by(|a, b| ObjectId::cmp(a, b).is_eq());
        let names: Vec<Name> = ids.iter().map(|id| Name::new(Arc::new(id.clone()))).collect();
        for pair in names.windows(2) {
            assert!(pair[0].head <= pair[1].head, "{pair:?}");
            assert!(pair[0] < pair[1] && named(&pair[1])(&pair[0]) == Ordering::Less);
        }
        assert!(names.windows(2).filter(|pair| pair[0].head < pair[1].head).count() > 100);
    }
}
