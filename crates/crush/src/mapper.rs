//! The mapping: a rule, an input and the devices' weights in; items out.
//!
//! Bit for bit Ceph's, including what its arithmetic does at the edges: every
//! client computes the same placement on its own. Where Ceph would follow a
//! dangling id or loop for ever on a malformed map, this gives up on the
//! replica instead; [`DRAWS_MAX`] bounds the work.
//!
//! Source: Ceph `src/crush/mapper.c`.

use crate::choose::Draw;
use crate::hash::hash2;
use crate::map::{Bucket, ChooseArgs, CrushMap, DEVICE_TYPE, ITEM_NONE, Rule, op, slot};

/// A position that an indep choice has not filled yet (`CRUSH_ITEM_UNDEF`).
const ITEM_UNDEF: i32 = 0x7fff_fffe;

/// Draws over bucket items that one mapping may take, some tenths of a second;
/// the largest real clusters need thousands.
const DRAWS_MAX: u64 = 20_000_000;

/// Result positions that are considered; pools have at most 255 replicas.
const RESULT_MAX: usize = 1024;

/// `crush_do_rule`.
///
/// Shape:   at most `result_max` items; indep rules leave [`ITEM_NONE`] where
///          they found nothing. Empty if there is no such rule.
/// Units:   `weights` are the devices' reweights by id, 0x10000 = in; devices
///          beyond its end count as out.
pub fn do_rule(
    map: &CrushMap,
    rule_number: i32,
    x: u32,
    result_max: usize,
    weights: &[u32],
    choose_args: Option<&ChooseArgs>,
) -> Vec<i32> {
    let Some(rule) = map.rule(rule_number) else {
        return Vec::new();
    };
    let mut mapper = Mapper { map, x, weights, draw: Draw { x, choose_args, left: DRAWS_MAX } };
    mapper.run(rule, result_max.min(RESULT_MAX))
}

struct Mapper<'a> {
    map: &'a CrushMap,
    x: u32,
    weights: &'a [u32],
    draw: Draw<'a>,
}

/// What a rule's `set_` steps may change on the way.
struct Settings {
    choose_tries: u32,
    /// 0: not set by the rule.
    chooseleaf_tries: u32,
    local_retries: u32,
    local_fallback_retries: u32,
    vary_r: u32,
    stable: bool,
}

/// One firstn choice.
#[derive(Clone, Copy)]
struct Firstn {
    replicas: i32,
    type_id: i32,
    tries: u32,
    leaf_tries: u32,
    local_retries: u32,
    local_fallback_retries: u32,
    vary_r: u32,
    stable: bool,
    parent_r: i32,
}

/// One indep choice.
#[derive(Clone, Copy)]
struct Indep {
    replicas: i32,
    type_id: i32,
    tries: u32,
    leaf_tries: u32,
    parent_r: i32,
}

/// What came of one attempt to place a replica.
enum Attempt {
    Chosen(i32),
    Collision,
    Rejected,
    /// The map is malformed there: no further attempt.
    Hopeless,
}

impl Mapper<'_> {
    fn run(&mut self, rule: &Rule, result_max: usize) -> Vec<i32> {
        let tunables = &self.map.tunables;
        let mut settings = Settings {
            // The tunable counts retries, not tries.
            choose_tries: tunables.choose_total_tries.wrapping_add(1),
            chooseleaf_tries: 0,
            local_retries: tunables.choose_local_tries,
            local_fallback_retries: tunables.choose_local_fallback_tries,
            vary_r: u32::from(tunables.chooseleaf_vary_r),
            stable: tunables.chooseleaf_stable != 0,
        };
        let mut result = Vec::with_capacity(result_max);
        let mut working: Vec<i32> = Vec::new();
        for step in &rule.steps {
            let natural = u32::try_from(step.arg1).ok();
            match step.op {
                op::TAKE if self.can_take(step.arg1) => working = vec![step.arg1],
                op::SET_CHOOSE_TRIES => {
                    settings.choose_tries = natural.filter(|&n| n > 0).unwrap_or(settings.choose_tries);
                }
                op::SET_CHOOSELEAF_TRIES => {
                    settings.chooseleaf_tries =
                        natural.filter(|&n| n > 0).unwrap_or(settings.chooseleaf_tries);
                }
                op::SET_CHOOSE_LOCAL_TRIES => {
                    settings.local_retries = natural.unwrap_or(settings.local_retries);
                }
                op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => {
                    settings.local_fallback_retries = natural.unwrap_or(settings.local_fallback_retries);
                }
                op::SET_CHOOSELEAF_VARY_R => settings.vary_r = natural.unwrap_or(settings.vary_r),
                op::SET_CHOOSELEAF_STABLE => {
                    settings.stable = natural.map_or(settings.stable, |n| n != 0);
                }
                op::CHOOSE_FIRSTN | op::CHOOSELEAF_FIRSTN | op::CHOOSE_INDEP | op::CHOOSELEAF_INDEP
                    if !working.is_empty() =>
                {
                    let firstn = matches!(step.op, op::CHOOSE_FIRSTN | op::CHOOSELEAF_FIRSTN);
                    let leaf = matches!(step.op, op::CHOOSELEAF_FIRSTN | op::CHOOSELEAF_INDEP);
                    // Zero or less is relative to the pool's size.
                    let replicas = match step.arg1 {
                        n if n > 0 => n,
                        n => n.saturating_add(result_max as i32),
                    };
                    working = self.choose(&working, &settings, firstn, leaf, replicas, step.arg2, result_max);
                }
                op::EMIT => {
                    let room = result_max - result.len();
                    result.extend(working.drain(..).take(room));
                }
                _ => {}
            }
        }
        result
    }

    fn can_take(&self, item: i32) -> bool {
        (item >= 0 && item < self.map.max_devices) || self.map.bucket(item).is_some()
    }

    /// One choose step, from each of the working items.
    #[allow(clippy::too_many_arguments)]
    fn choose(
        &mut self,
        from: &[i32],
        settings: &Settings,
        firstn: bool,
        leaf: bool,
        replicas: i32,
        type_id: i32,
        result_max: usize,
    ) -> Vec<i32> {
        let map = self.map;
        let mut out = vec![0; result_max];
        let mut leaves = vec![0; result_max];
        let mut filled = 0;
        if replicas <= 0 {
            return Vec::new();
        }
        for &item in from {
            // Devices and holes have nothing below them.
            let Some(bucket) = map.bucket(item) else {
                continue;
            };
            let out = &mut out[filled..];
            let leaves = leaf.then_some(&mut leaves[filled..]);
            if firstn {
                let leaf_tries = match settings.chooseleaf_tries {
                    0 if map.tunables.chooseleaf_descend_once != 0 => 1,
                    0 => settings.choose_tries,
                    tries => tries,
                };
                let choice = Firstn {
                    replicas,
                    type_id,
                    tries: settings.choose_tries,
                    leaf_tries,
                    local_retries: settings.local_retries,
                    local_fallback_retries: settings.local_fallback_retries,
                    vary_r: settings.vary_r,
                    stable: settings.stable,
                    parent_r: 0,
                };
                filled += self.choose_firstn(bucket, choice, out, 0, leaves);
            } else {
                let count = (replicas as usize).min(out.len());
                let choice = Indep {
                    replicas,
                    type_id,
                    tries: settings.choose_tries,
                    leaf_tries: settings.chooseleaf_tries.max(1),
                    parent_r: 0,
                };
                self.choose_indep(bucket, choice, out, 0..count, leaves);
                filled += count;
            }
        }
        let mut chosen = if leaf { leaves } else { out };
        chosen.truncate(filled);
        chosen
    }

    /// Fills `out` from `filled` on, skipping replicas that cannot be placed;
    /// returns how many entries are filled then. With `leaves`, finds a device
    /// below each chosen item, too.
    fn choose_firstn(
        &mut self,
        bucket: &Bucket,
        choice: Firstn,
        out: &mut [i32],
        mut filled: usize,
        mut leaves: Option<&mut [i32]>,
    ) -> usize {
        let first = if choice.stable { 0 } else { filled as i32 };
        for replica in first..choice.replicas {
            if filled == out.len() || self.draw.left == 0 {
                break;
            }
            let chosen = self.place_firstn(bucket, choice, replica, out, filled, &mut leaves);
            if let Some(item) = chosen {
                out[filled] = item;
                filled += 1;
            }
        }
        filled
    }

    /// Tries for one replica until an item is neither taken nor out.
    fn place_firstn(
        &mut self,
        bucket: &Bucket,
        choice: Firstn,
        replica: i32,
        out: &mut [i32],
        filled: usize,
        leaves: &mut Option<&mut [i32]>,
    ) -> Option<i32> {
        let map = self.map;
        let mut failures = 0u32;
        'descent: loop {
            let mut within = bucket;
            let mut local_failures = 0u32;
            loop {
                if self.draw.left == 0 {
                    return None;
                }
                let r = replica.wrapping_add(choice.parent_r).wrapping_add(failures as i32);
                let fall_back = choice.local_fallback_retries > 0
                    && local_failures as usize >= within.items.len() / 2
                    && local_failures > choice.local_fallback_retries;
                let drawn = self.draw.item(within, r, filled, fall_back);
                let attempt = match drawn {
                    None => Attempt::Rejected,
                    Some(item) => match self.item_type(item) {
                        None => Attempt::Hopeless,
                        Some(found) if found != choice.type_id => match map.bucket(item) {
                            None => Attempt::Hopeless,
                            Some(deeper) => {
                                within = deeper;
                                continue;
                            }
                        },
                        Some(found) => self.judge_firstn(item, found, choice, r, out, filled, leaves),
                    },
                };
                let collision = match attempt {
                    Attempt::Chosen(item) => return Some(item),
                    Attempt::Hopeless => return None,
                    Attempt::Collision => true,
                    Attempt::Rejected => false,
                };
                failures += 1;
                local_failures += 1;
                let again_here = (collision && local_failures <= choice.local_retries)
                    || (choice.local_fallback_retries > 0
                        && local_failures as usize
                            <= within.items.len() + choice.local_fallback_retries as usize);
                if again_here {
                    continue;
                }
                if failures < choice.tries {
                    continue 'descent;
                }
                return None;
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn judge_firstn(
        &mut self,
        item: i32,
        item_type: i32,
        choice: Firstn,
        r: i32,
        out: &[i32],
        filled: usize,
        leaves: &mut Option<&mut [i32]>,
    ) -> Attempt {
        if out[..filled].contains(&item) {
            return Attempt::Collision;
        }
        if let Some(leaves) = leaves {
            match self.map.bucket(item) {
                Some(below) => {
                    let leaf_choice = Firstn {
                        replicas: if choice.stable { 1 } else { filled as i32 + 1 },
                        type_id: DEVICE_TYPE,
                        tries: choice.leaf_tries,
                        leaf_tries: 0,
                        parent_r: match choice.vary_r {
                            0 => 0,
                            vary_r => r.wrapping_shr(vary_r - 1),
                        },
                        ..choice
                    };
                    if self.choose_firstn(below, leaf_choice, leaves, filled, None) <= filled {
                        return Attempt::Rejected;
                    }
                }
                None => leaves[filled] = item,
            }
        }
        if item_type == DEVICE_TYPE && self.is_out(item) {
            return Attempt::Rejected;
        }
        Attempt::Chosen(item)
    }

    /// Fills the positions of `out`, each on its own, so that one failed device
    /// leaves the other positions as they are. What cannot be placed becomes
    /// [`ITEM_NONE`].
    fn choose_indep(
        &mut self,
        bucket: &Bucket,
        choice: Indep,
        out: &mut [i32],
        positions: std::ops::Range<usize>,
        mut leaves: Option<&mut [i32]>,
    ) {
        out[positions.clone()].fill(ITEM_UNDEF);
        if let Some(leaves) = &mut leaves {
            leaves[positions.clone()].fill(ITEM_UNDEF);
        }
        let mut left = positions.len();
        for failures in 0..choice.tries {
            if left == 0 || self.draw.left == 0 {
                break;
            }
            for position in positions.clone() {
                if out[position] != ITEM_UNDEF {
                    continue;
                }
                let attempt =
                    self.place_indep(bucket, choice, failures, position, &positions, out, &mut leaves);
                match attempt {
                    Attempt::Chosen(item) => out[position] = item,
                    Attempt::Hopeless => {
                        out[position] = ITEM_NONE;
                        if let Some(leaves) = &mut leaves {
                            leaves[position] = ITEM_NONE;
                        }
                    }
                    Attempt::Collision | Attempt::Rejected => continue,
                }
                left -= 1;
            }
        }
        let close = |slots: &mut [i32]| {
            slots.iter_mut().filter(|slot| **slot == ITEM_UNDEF).for_each(|slot| *slot = ITEM_NONE);
        };
        close(&mut out[positions.clone()]);
        if let Some(leaves) = leaves {
            close(&mut leaves[positions]);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn place_indep(
        &mut self,
        bucket: &Bucket,
        choice: Indep,
        failures: u32,
        position: usize,
        positions: &std::ops::Range<usize>,
        out: &[i32],
        leaves: &mut Option<&mut [i32]>,
    ) -> Attempt {
        let map = self.map;
        let mut within = bucket;
        loop {
            if self.draw.left == 0 {
                return Attempt::Rejected;
            }
            // A uniform bucket whose size is a multiple of the replicas would
            // come back to the same items with the usual stride.
            let replicas = choice.replicas as u32;
            let uniform = within.weights.alg() == 1;
            let stride = match uniform && (within.items.len() as u32).is_multiple_of(replicas) {
                true => replicas.wrapping_add(1),
                false => replicas,
            };
            let r = (position as i32)
                .wrapping_add(choice.parent_r)
                .wrapping_add(stride.wrapping_mul(failures) as i32);
            let Some(item) = self.draw.item(within, r, positions.start, false) else {
                return Attempt::Rejected;
            };
            let Some(item_type) = self.item_type(item) else {
                return Attempt::Hopeless;
            };
            if item_type != choice.type_id {
                match map.bucket(item) {
                    None => return Attempt::Hopeless,
                    Some(deeper) => within = deeper,
                }
                continue;
            }
            if out[positions.clone()].contains(&item) {
                return Attempt::Collision;
            }
            if let Some(leaves) = leaves {
                match map.bucket(item) {
                    Some(below) => {
                        let leaf_choice = Indep {
                            replicas: choice.replicas,
                            type_id: DEVICE_TYPE,
                            tries: choice.leaf_tries,
                            leaf_tries: 0,
                            parent_r: r,
                        };
                        self.choose_indep(below, leaf_choice, leaves, position..position + 1, None);
                        if leaves[position] == ITEM_NONE {
                            return Attempt::Rejected;
                        }
                    }
                    None => leaves[position] = item,
                }
            }
            if item_type == DEVICE_TYPE && self.is_out(item) {
                return Attempt::Rejected;
            }
            return Attempt::Chosen(item);
        }
    }

    /// None for an item the map does not have.
    fn item_type(&self, item: i32) -> Option<i32> {
        match slot(item) {
            None => (item < self.map.max_devices).then_some(DEVICE_TYPE),
            Some(_) => self.map.item_type(item),
        }
    }

    /// Devices with a weight below 1.0 are out for a share of the inputs.
    fn is_out(&self, device: i32) -> bool {
        let weight = usize::try_from(device).ok().and_then(|index| self.weights.get(index));
        match weight {
            None | Some(0) => true,
            Some(&weight) => weight < 0x10000 && hash2(self.x, device as u32) & 0xffff >= weight,
        }
    }
}
