//! From a placement group to the OSDs that hold it: CRUSH's answer, corrected
//! by what the OSDMap says about OSDs and PGs.
//!
//! Every daemon and client computes this by itself, so it is bit for bit
//! Ceph's. The stages, in order: CRUSH (*raw*); explicit placements
//! (`pg_upmap`, `pg_upmap_items`); OSDs that are down drop out (*up*); primary
//! affinity picks the primary; `pg_temp` and `primary_temp` override (*acting*).
//! In a replicated pool the ranks close when an OSD drops out; in an
//! erasure-coded pool each position is a shard of its own, so a hole stays.
//!
//! Source: Ceph 16.2.15 `src/osd/OSDMap.cc` (`_pg_to_up_acting_osds` and what
//! it calls), `osd_types.cc` (`raw_pg_to_pps`).

use crate::hash::hash2;
use crate::map::{CrushMap, RULE_ERASURE, RULE_REPLICATED};
use crate::mapper::do_rule;
use wire::maps::{OsdMap, PgPool, PoolFlags};
use wire::types::{OsdId, PgId, PoolId};

macro_rules! osd_set {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Shape:   by rank; [`OsdId::NONE`] marks the holes of an
        ///          erasure-coded PG.
        #[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(pub Vec<OsdId>);

        impl $name {
            /// Ranks, holes included.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// With holes, by rank.
            pub fn as_slice(&self) -> &[OsdId] {
                &self.0
            }

            /// Without holes, by rank.
            pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
                self.0.iter().copied().filter(|osd| *osd != OsdId::NONE)
            }

            pub fn contains(&self, osd: OsdId) -> bool {
                self.rank(osd).is_some()
            }

            pub fn rank(&self, osd: OsdId) -> Option<usize> {
                self.0.iter().position(|&o| o == osd && o != OsdId::NONE)
            }

            /// The first that is no hole: the primary unless affinity or
            /// `primary_temp` say otherwise.
            pub fn first(&self) -> Option<OsdId> {
                self.osds().next()
            }
        }
    };
}

osd_set! {
    /// CRUSH's answer with explicit placements, without the OSDs that are down:
    /// where the PG's data should be.
    UpSet
}
osd_set! {
    /// The OSDs responsible for the PG now: the up set, unless `pg_temp`
    /// overrides it while data moves.
    ActingSet
}

/// Who holds a PG in one epoch. Without a primary, nobody serves it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct UpActing {
    pub up: UpSet,
    pub up_primary: Option<OsdId>,
    pub acting: ActingSet,
    pub acting_primary: Option<OsdId>,
}

/// `pg_to_up_acting_osds`.
///
/// Shape:   all empty for a pool or a PG that does not exist.
pub fn pg_to_up_acting(map: &OsdMap, crush: &CrushMap, pg: PgId) -> UpActing {
    let Some(pool) = map.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else {
        return UpActing::default();
    };
    let mut up = raw_to_up(map, pool, pg_to_raw_upmap(map, crush, pg));
    let first = up.iter().copied().find(|osd| *osd != OsdId::NONE);
    let up_primary = apply_primary_affinity(map, pool, placement_input(pool, pg), &mut up).or(first);

    let (mut acting, mut acting_primary) = temporary(map, pool, pg);
    if acting.is_empty() {
        acting.clone_from(&up);
        acting_primary = acting_primary.or(up_primary);
    }
    UpActing { up: UpSet(up), up_primary, acting: ActingSet(acting), acting_primary }
}

/// CRUSH's answer, without OSDs that do not exist: `pg_to_raw_osds`. Empty for
/// a pool that does not exist or whose rule does not.
pub fn pg_to_raw_osds(map: &OsdMap, crush: &CrushMap, pg: PgId) -> Vec<OsdId> {
    let Some(pool) = map.pool(pg.pool) else { return Vec::new() };
    let size = usize::from(pool.size);
    let rule_type = if pool.is_replicated() { RULE_REPLICATED } else { RULE_ERASURE };
    let Some(rule) = crush.find_rule(pool.crush_rule, rule_type, size) else { return Vec::new() };
    let weights = crush.choose_args_for(pg.pool.0);
    let mapped = do_rule(crush, rule, placement_input(pool, pg), size, &map.osd_weight, weights);
    keep(pool, mapped.into_iter().map(OsdId), |osd| map.exists(osd))
}

/// [`pg_to_raw_osds`] with explicit placements applied: `pg_to_raw_upmap`.
pub fn pg_to_raw_upmap(map: &OsdMap, crush: &CrushMap, pg: PgId) -> Vec<OsdId> {
    let mut raw = pg_to_raw_osds(map, crush, pg);
    if let Some(pool) = map.pool(pg.pool) {
        apply_upmap(map, pool.raw_hash_to_pg(pg.pool, pg.seed), &mut raw);
    }
    raw
}

/// CRUSH's input for a PG: `raw_pg_to_pps`.
pub fn placement_input(pool: &PgPool, pg: PgId) -> u32 {
    let PoolId(id) = pg.pool;
    let seed = pool.placement_seed(pg.seed);
    if pool.flags.contains(PoolFlags::HASHPSPOOL) {
        hash2(seed, id as u32)
    } else {
        // Adjacent pools then overlap, which is why the flag exists.
        (i64::from(seed).wrapping_add(id)) as u32
    }
}

/// Drops what does not pass, leaving a hole where the pool's ranks matter.
fn keep(pool: &PgPool, osds: impl Iterator<Item = OsdId>, passes: impl Fn(OsdId) -> bool) -> Vec<OsdId> {
    if pool.can_shift_osds() {
        osds.filter(|osd| passes(*osd)).collect()
    } else {
        osds.map(|osd| if passes(osd) { osd } else { OsdId::NONE }).collect()
    }
}

/// Whether an explicit placement names an OSD of the map that is out.
fn is_marked_out(map: &OsdMap, osd: OsdId) -> bool {
    usize::try_from(osd.0).ok().and_then(|index| map.osd_weight.get(index)) == Some(&OsdMap::WEIGHT_OUT)
}

fn apply_upmap(map: &OsdMap, pg: PgId, raw: &mut Vec<OsdId>) {
    if let Some(explicit) = map.pg_upmap.get(&pg) {
        if explicit.iter().any(|osd| is_marked_out(map, *osd)) {
            // Ceph then leaves the replacements below aside, too.
            return;
        }
        raw.clone_from(explicit);
    }
    for &(from, to) in map.pg_upmap_items.get(&pg).into_iter().flatten() {
        if raw.contains(&to) || is_marked_out(map, to) {
            continue;
        }
        if let Some(rank) = raw.iter().position(|osd| *osd == from) {
            raw[rank] = to;
        }
    }
}

fn raw_to_up(map: &OsdMap, pool: &PgPool, raw: Vec<OsdId>) -> Vec<OsdId> {
    keep(pool, raw.into_iter(), |osd| map.is_up(osd))
}

/// Picks the primary if any of the OSDs has an affinity below 1; the OSD and
/// the PG decide together, so that each OSD is primary for its share of PGs.
/// In a replicated pool the primary moves to the front.
fn apply_primary_affinity(map: &OsdMap, pool: &PgPool, input: u32, up: &mut [OsdId]) -> Option<OsdId> {
    let affinity = |osd: OsdId| map.primary_affinity(osd);
    let default = OsdMap::DEFAULT_PRIMARY_AFFINITY;
    if up.iter().all(|osd| *osd == OsdId::NONE || affinity(*osd) == default) {
        return None;
    }
    let candidates = || up.iter().enumerate().filter(|(_, osd)| **osd != OsdId::NONE);
    let willing = |osd: OsdId| {
        let affinity = affinity(osd);
        affinity >= default || hash2(input, osd.0 as u32) >> 16 < affinity
    };
    // If all refuse, the first one has to.
    let (rank, &primary) = candidates().find(|(_, osd)| willing(**osd)).or(candidates().next())?;
    if pool.can_shift_osds() {
        up[..=rank].rotate_right(1);
    }
    Some(primary)
}

/// What `pg_temp` and `primary_temp` say: `_get_temp_osds`.
fn temporary(map: &OsdMap, pool: &PgPool, pg: PgId) -> (Vec<OsdId>, Option<OsdId>) {
    let acting: Vec<OsdId> = match map.pg_temp.get(&pg) {
        Some(osds) => keep(pool, osds.iter().copied(), |osd| map.is_up(osd)),
        None => Vec::new(),
    };
    let primary = match map.primary_temp.get(&pg) {
        Some(&osd) => Some(osd).filter(|osd| osd.0 != -1),
        None => acting.iter().copied().find(|osd| *osd != OsdId::NONE),
    };
    (acting, primary)
}
