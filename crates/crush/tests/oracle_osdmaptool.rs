//! Up and acting sets against `osdmaptool --test-map-pgs-dump-all`: the same
//! text for the same OSDMap.

mod common;

use base::Random;
use common::*;
use crush::placement::{pg_to_raw_osds, pg_to_raw_upmap};
use crush::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use wire::maps::{OsdMap, OsdMapFlags, OsdState, PgPool, PoolFlags, PoolType, Release};
use wire::types::{EntityAddrVec, Epoch, OsdId, PgId, PoolId, Uuid};
use wire::{Encode, Features};

const MAPS: u64 = 100;

#[test]
fn placements_are_osdmaptools() {
    if !have("osdmaptool") {
        return;
    }
    let scratch = Scratch::new("placements");
    let mut placements = 0;
    for seed in 0..MAPS {
        let mut random = Random::from_seed(seed);
        let crush = random_map(&mut random);
        let map = random_osd_map(&crush, &mut random);
        let file = scratch.file("map", &map.to_bytes(Features::ALL));
        let theirs = run("osdmaptool", &file, &["--test-map-pgs-dump-all".to_string()]);
        let theirs = placement_lines(&theirs);
        for pool in map.pools.keys() {
            for seed_of_pg in 0..map.pools[pool].pg_num {
                let pg = PgId { pool: *pool, seed: seed_of_pg };
                let ours = placement_as_text(&map, &crush, pg);
                let their = theirs.get(&pg.to_string()).map(String::as_str);
                assert_eq!(Some(ours.as_str()), their, "seed {seed}, PG {pg}");
                placements += 1;
            }
        }
    }
    println!("{placements} placements compared");
    assert!(placements >= 10_000);
}

/// By PG id, the rest of its line.
fn placement_lines(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once(" raw "));
    lines.map(|(pg, rest)| (pg.to_string(), format!("raw {rest}"))).collect()
}

fn placement_as_text(map: &OsdMap, crush: &CrushMap, pg: PgId) -> String {
    let raw = pg_to_raw_osds(map, crush, pg);
    let raw_primary = raw.iter().copied().find(|osd| *osd != OsdId::NONE);
    let found = pg_to_up_acting(map, crush, pg);
    let mut text = String::new();
    for (what, osds, primary) in [
        ("raw", &raw[..], raw_primary),
        (" up", found.up.as_slice(), found.up_primary),
        (" acting", found.acting.as_slice(), found.acting_primary),
    ] {
        let list: Vec<String> = osds.iter().map(OsdId::to_string).collect();
        let primary = primary.map_or(-1, |osd| osd.0);
        write!(text, "{what} ([{}], p{primary})", list.join(",")).expect("into a string");
    }
    text
}

/// An OSDMap over the CRUSH map with everything that bends a placement.
fn random_osd_map(crush: &CrushMap, random: &mut Random) -> OsdMap {
    let mut map = OsdMap {
        fsid: Uuid([7; 16]),
        epoch: Epoch(9),
        flags: OsdMapFlags::SORTBITWISE,
        require_osd_release: Release::PACIFIC,
        require_min_compat_client: Release::LUMINOUS,
        crush: crush.encode(),
        ..OsdMap::default()
    };
    // OSDs may be missing from CRUSH's devices, and the other way round.
    map.set_max_osd((crush.max_devices + random.below(4) as i32 - 2).max(1));
    map.osd_weight = random_reweights(crush, random);
    map.osd_weight.resize(map.max_osd as usize, OsdMap::WEIGHT_IN);
    for state in &mut map.osd_state {
        *state = match random.below(12) {
            0 => OsdState::NONE,
            1 | 2 => OsdState::EXISTS,
            _ => OsdState::EXISTS | OsdState::UP,
        };
    }
    map.client_addrs.fill(EntityAddrVec::default());
    if random.chance(1, 2) {
        let affinity = |_| match random.below(4) {
            0 => 0,
            1 => random.below(0x10000) as u32,
            _ => OsdMap::DEFAULT_PRIMARY_AFFINITY,
        };
        map.primary_affinity = (0..map.max_osd).map(affinity).collect();
    }
    for (number, rule) in (0u8..).zip(&crush.rules) {
        let rule = rule.as_ref().expect("no holes among the rules");
        let id = PoolId(1 + i64::from(number) * 3);
        let pool = random_pool(number, rule, random);
        for seed in 0..pool.pg_num {
            bend_placement(&mut map, &pool, PgId { pool: id, seed }, crush, random);
        }
        map.pools.insert(id, pool);
        map.pool_names.insert(id, format!("pool{number}"));
        map.pool_max = map.pool_max.max(id.0 as i32);
    }
    map
}

fn random_pool(rule_number: u8, rule: &Rule, random: &mut Random) -> PgPool {
    let replicated = rule.rule_type == RULE_REPLICATED;
    let mut pool = PgPool {
        pool_type: if replicated { PoolType::Replicated } else { PoolType::Erasure },
        // Sizes that the rule does not serve leave a pool without placement.
        size: 1 + random.below(7) as u8,
        min_size: 1,
        crush_rule: rule_number,
        flags: if random.chance(3, 4) { PoolFlags::HASHPSPOOL } else { PoolFlags::NONE },
        ..PgPool::default()
    };
    pool.set_pg_num(1 + random.below(64) as u32);
    if random.chance(1, 4) {
        pool.pgp_num = 1 + random.below(u64::from(pool.pg_num)) as u32;
        pool.pgp_num_target = pool.pgp_num;
    }
    pool
}

/// Now and then an entry of the maps that override CRUSH for one PG, sensible
/// or not.
fn bend_placement(map: &mut OsdMap, pool: &PgPool, pg: PgId, crush: &CrushMap, random: &mut Random) {
    let osds = map.max_osd as u64 + 1;
    let size = pool.size;
    let any = |random: &mut Random| OsdId(random.below(osds) as i32);
    let some = |random: &mut Random| -> Vec<OsdId> {
        let mut list: Vec<OsdId> = (0..size).map(|_| any(random)).collect();
        let mut seen = std::collections::BTreeSet::new();
        list.retain(|osd| seen.insert(*osd));
        list
    };
    if random.chance(1, 8) {
        let osds = some(random);
        map.pg_upmap.insert(pg, osds);
    }
    if random.chance(1, 6) {
        map.pools.insert(pg.pool, pool.clone());
        let raw = pg_to_raw_upmap(map, crush, pg);
        let items = (0..1 + random.below(3)).map(|_| {
            let from = match raw.get(random.below(raw.len().max(1) as u64) as usize) {
                Some(osd) if random.chance(5, 6) => *osd,
                _ => any(random),
            };
            (from, any(random))
        });
        let items = items.collect();
        map.pg_upmap_items.insert(pg, items);
    }
    if random.chance(1, 8) {
        let mut osds = some(random);
        if !pool.is_replicated() && random.chance(1, 3) {
            osds[0] = OsdId::NONE;
        }
        map.pg_temp.insert(pg, osds);
    }
    if random.chance(1, 10) {
        // Of an OSD beyond max_osd, osdmaptool overruns its statistics.
        let osd = OsdId(random.below(osds - 1) as i32);
        map.primary_temp.insert(pg, osd);
    }
}
