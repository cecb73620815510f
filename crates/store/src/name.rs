//! An object's name as the index keeps it: with a number that orders it.
//!
//! A search compares one name with a dozen others. Each of them lies behind a
//! pointer, with its strings behind others, and is not in the CPU's cache; the
//! numbers lie side by side in the page. Only where they are equal, which is
//! nearly always the name looked for, is the name itself read.

use crate::api::{CollId, ObjectId};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;
use wire::types::{HObject, PgId, PoolId};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Name {
    /// Never descends where names ascend.
    head: u64,
    /// None: the place before every name with this head. Pages begin at such places: one for each
    /// page is in memory always, and the number is all that it takes.
    id: Option<Arc<ObjectId>>,
}

const POOL_BITS: u32 = 11;
const SEED_BITS: u32 = 20;

/// 1 bit: of a PG; then its pool, its seed, and the object's place in it, whatever
/// still fits behind a number that does not. Of the OSD's own records: their names' beginnings.
fn head(id: &ObjectId) -> u64 {
    let CollId::Pg(pg) = id.coll else { return own_head(&id.object) };
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

/// They are in this pool, without hash and namespace. Half-received objects are not: theirs comes before it, so that all
/// of them have one number, and their names are compared.
const OWN_POOL: PoolId = PoolId(-1);

fn own_head(object: &HObject) -> u64 {
    let max = u64::MAX >> 1;
    match object.pool.cmp(&OWN_POOL) {
        _ if object.is_max => max,
        Ordering::Less => 0,
        Ordering::Greater => max,
        Ordering::Equal if object.hash != 0 || !object.nspace.is_empty() => max,
        Ordering::Equal => {
            let mut first = [0; 8];
            first.iter_mut().zip(object.effective_key().bytes()).for_each(|(to, from)| *to = from);
            u64::from_be_bytes(first) >> 1
        }
    }
}

/// A number that few names share. Objects bring one along: their place in the PG, see [`Name::rank`].
pub(crate) fn token_of(id: &ObjectId) -> u64 {
    match id.coll {
        CollId::Pg(_) => u64::from(id.object.hash.reverse_bits()),
        CollId::Meta => id
            .object
            .name
            .bytes()
            .fold(0, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)),
    }
}

/// The first position that has this head; none where the head does not say.
fn position(head: u64) -> Option<ObjectId> {
    let (pool, seed) = (head << 1 >> (SEED_BITS + 33), head >> 32 & ((1 << SEED_BITS) - 1));
    let place = head as u32;
    let says = head >> 63 == 1 && pool < (1 << POOL_BITS) - 1 && seed < (1 << SEED_BITS) - 1;
    if !says || place == 0 || place == u32::MAX {
        return None;
    }
    let pool = PoolId(pool as i64);
    let coll = CollId::Pg(PgId { pool, seed: seed as u32 });
    Some(ObjectId { coll, object: HObject::pg_start(pool, place.reverse_bits()) })
}

const IS_A_PLACE: &str = "only the place where a page begins has no name";

impl Name {
    pub(crate) fn new(id: Arc<ObjectId>) -> Name {
        Name { head: head(&id), id: Some(id) }
    }

    /// Where a page begins whose first name is `first`, behind `before`.
    pub(crate) fn bound(before: Option<&Name>, first: &Name) -> Name {
        let apart = before.is_none_or(|before| before.head < first.head);
        if apart && position(first.head).is_some() {
            Name { head: first.head, id: None }
        } else {
            first.clone()
        }
    }

    /// The same, as a checkpoint's directory has it.
    pub(crate) fn written_bound(id: ObjectId) -> Name {
        let head = head(&id);
        let is_place = position(head).as_ref() == Some(&id);
        Name { head, id: (!is_place).then(|| Arc::new(id)) }
    }

    /// Of an entry. Panics where a page begins.
    pub(crate) fn id(&self) -> &Arc<ObjectId> {
        self.id.as_ref().expect(IS_A_PLACE)
    }

    pub(crate) fn position(&self) -> Cow<'_, ObjectId> {
        match &self.id {
            Some(id) => Cow::Borrowed(id),
            None => Cow::Owned(position(self.head).expect(IS_A_PLACE)),
        }
    }

    /// Its place in its PG.
    pub(crate) fn rank(&self) -> u64 {
        self.head & u64::from(u32::MAX)
    }

    /// Bytes of its texts.
    pub(crate) fn text_len(&self) -> usize {
        self.id.as_ref().map_or(0, |id| id.object.nspace.len() + id.object.key.len() + id.object.name.len())
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
    move |name| name.head.cmp(&head).then_with(|| name.id.as_deref().cmp(&Some(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use wire::types::SnapId;

    /// In order, each once; extremes of all that a head is made of.
    fn names() -> Vec<Name> {
        let mut random = Random::from_seed(5);
        let mut pick = |from: &[i64]| from[random.below(from.len() as u64) as usize];
        let pools = [i64::MIN, -3, -1, 0, 1, 2, 2046, 2047, 2048, 5000, i64::MAX];
        let seeds = [0, 1, 7, (1 << 20) - 2, (1 << 20) - 1, 1 << 20, i64::from(u32::MAX)];
        let mut ids: Vec<ObjectId> = Vec::new();
        for n in 0..20_000 {
            let pg = PgId { pool: PoolId(pick(&pools)), seed: pick(&seeds) as u32 };
            let coll = if n % 4 == 0 { CollId::Meta } else { CollId::Pg(pg) };
            let object = HObject {
                pool: if n % 3 == 0 { PoolId(pick(&pools)) } else { pg.pool },
                hash: if n % 8 == 0 {
                    0
                } else {
                    pick(&[0, 1, 2, 0x8000_0000, 0x7fff_ffff, i64::from(u32::MAX), 0x1234_5678]) as u32
                },
                name: [
                    "object 1",
                    "object 2",
                    "object 3",
                    "pg.1.2",
                    "pg.1.2f",
                    "p",
                    "\u{ff}\u{ff}\u{ff}\u{ff}",
                ][pick(&[0, 1, 2, 3, 4, 5, 6]) as usize]
                    .into(),
                snap: SnapId::HEAD,
                is_max: n % 40 == 0,
                ..HObject::default()
            };
            ids.push(ObjectId { coll, object });
        }
        ids.sort();
        ids.dedup_by(|a, b| ObjectId::cmp(a, b).is_eq());
        ids.into_iter().map(|id| Name::new(Arc::new(id))).collect()
    }

    #[test]
    fn heads_never_descend_where_names_ascend() {
        let names = names();
        for pair in names.windows(2) {
            assert!(pair[0].head <= pair[1].head, "{pair:?}");
            assert!(pair[0] < pair[1] && named(pair[1].id())(&pair[0]) == Ordering::Less);
        }
        assert!(names.windows(2).filter(|pair| pair[0].head < pair[1].head).count() > 100);
    }

    #[test]
    fn a_page_begins_above_the_one_before_and_at_most_at_its_first_name() {
        let mut places = 0;
        for pair in names().windows(2) {
            let bound = Name::bound(Some(&pair[0]), &pair[1]);
            assert!(pair[0] < bound && bound <= pair[1]);
            assert!(named(pair[0].id())(&bound) == Ordering::Greater);
            assert!(named(pair[1].id())(&bound) != Ordering::Greater);
            assert!(**pair[0].id() < *bound.position() && *bound.position() <= **pair[1].id(), "{bound:?}");
            // What a directory says is what was there; only a name that is a place may become one.
            let read = Name::written_bound(bound.position().into_owned());
            assert!(read == bound || read.id.is_none() && pair[0] < read);
            places += u32::from(bound.id.is_none());
        }
        assert!(places > 50);
    }
}
