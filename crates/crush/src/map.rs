//! The CRUSH map: devices and buckets in trees, rules that walk them, and the
//! tunables of the walk. Plain data and look-ups; it knows neither the
//! algorithm (`mapper`) nor how maps are edited (`edit`).
//!
//! An item id is a device (an OSD) if it is ≥ 0 and a bucket if it is < 0;
//! bucket `id` lives in slot `-1 - id`. Weights are 16.16 fixed point:
//! 0x10000 is 1.0, by convention one TiB.
//!
//! Source: Ceph `src/crush/crush.h`, `CrushWrapper.h`.

use std::collections::BTreeMap;
use wire::codec::{DecodeError, Result};

/// No item: a hole in an indep mapping (`CRUSH_ITEM_NONE`).
pub const ITEM_NONE: i32 = 0x7fff_ffff;

/// A weight of 1.0.
pub const WEIGHT_ONE: u32 = 0x10000;

/// The weight set used by pools that have none of their own
/// (`CrushWrapper::DEFAULT_CHOOSE_ARGS`).
pub const DEFAULT_CHOOSE_ARGS: i64 = -1;

/// Levels of buckets that [`CrushMap::check`] lets pass; Ceph's default types
/// make twelve.
const DEPTH_MAX: usize = 64;

/// Items of one tree, each link counted, that [`CrushMap::check`] lets pass:
/// links could otherwise double the walk with each level.
const TREE_ITEMS_MAX: usize = 1 << 22;

/// Type 0 is the device, whatever its name.
pub const DEVICE_TYPE: i32 = 0;

/// Rule types: those of the pools they serve.
pub const RULE_REPLICATED: u8 = 1;
pub const RULE_ERASURE: u8 = 3;

/// Operations of rule steps (`CRUSH_RULE_*`).
pub mod op {
    pub const NOOP: u32 = 0;
    pub const TAKE: u32 = 1;
    pub const CHOOSE_FIRSTN: u32 = 2;
    pub const CHOOSE_INDEP: u32 = 3;
    pub const EMIT: u32 = 4;
    pub const CHOOSELEAF_FIRSTN: u32 = 6;
    pub const CHOOSELEAF_INDEP: u32 = 7;
    pub const SET_CHOOSE_TRIES: u32 = 8;
    pub const SET_CHOOSELEAF_TRIES: u32 = 9;
    pub const SET_CHOOSE_LOCAL_TRIES: u32 = 10;
    pub const SET_CHOOSE_LOCAL_FALLBACK_TRIES: u32 = 11;
    pub const SET_CHOOSELEAF_VARY_R: u32 = 12;
    pub const SET_CHOOSELEAF_STABLE: u32 = 13;
}

/// How a bucket picks one of its items, with what it needs for that.
///
/// Shape:   vectors are as long as the bucket's items; `node_weights` is a
///          binary tree in an array, at most 255 nodes.
/// Units:   16.16 weights; `straws` are scaled lengths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BucketWeights {
    Uniform { item_weight: u32 },
    List { item_weights: Vec<u32>, sum_weights: Vec<u32> },
    Tree { node_weights: Vec<u32> },
    Straw { item_weights: Vec<u32>, straws: Vec<u32> },
    Straw2 { item_weights: Vec<u32> },
}

impl BucketWeights {
    /// `CRUSH_BUCKET_*`.
    pub fn alg(&self) -> u8 {
        match self {
            BucketWeights::Uniform { .. } => 1,
            BucketWeights::List { .. } => 2,
            BucketWeights::Tree { .. } => 3,
            BucketWeights::Straw { .. } => 4,
            BucketWeights::Straw2 { .. } => 5,
        }
    }

    pub fn alg_name(&self) -> &'static str {
        match self {
            BucketWeights::Uniform { .. } => "uniform",
            BucketWeights::List { .. } => "list",
            BucketWeights::Tree { .. } => "tree",
            BucketWeights::Straw { .. } => "straw",
            BucketWeights::Straw2 { .. } => "straw2",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    pub id: i32,
    pub type_id: u16,
    /// [`crate::hash::RJENKINS1`]; with any other value all hashes are 0.
    pub hash: u8,
    /// The sum of the items' weights, as the parent sees it.
    pub weight: u32,
    pub items: Vec<i32>,
    pub weights: BucketWeights,
}

impl Bucket {
    /// The weight of the item at `position`; 0 where there is none.
    pub fn item_weight(&self, position: usize) -> u32 {
        if position >= self.items.len() {
            return 0;
        }
        match &self.weights {
            BucketWeights::Uniform { item_weight } => *item_weight,
            BucketWeights::List { item_weights, .. }
            | BucketWeights::Straw { item_weights, .. }
            | BucketWeights::Straw2 { item_weights } => item_weights.get(position).copied().unwrap_or(0),
            BucketWeights::Tree { node_weights } => node_weights.get(2 * position + 1).copied().unwrap_or(0),
        }
    }

    pub fn position_of(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|&i| i == item)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleStep {
    /// One of [`op`]; the mapper passes over those it does not know.
    pub op: u32,
    pub arg1: i32,
    pub arg2: i32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Equal to the rule's own number in all maps since Luminous.
    pub ruleset: u8,
    pub rule_type: u8,
    /// Pool sizes that the rule serves.
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<RuleStep>,
}

/// Parameters of the walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunables {
    pub choose_local_tries: u32,
    pub choose_local_fallback_tries: u32,
    /// Counts retries: one less than the attempts.
    pub choose_total_tries: u32,
    pub chooseleaf_descend_once: u32,
    pub chooseleaf_vary_r: u8,
    pub straw_calc_version: u8,
    /// A bit per [`BucketWeights::alg`].
    pub allowed_bucket_algs: u32,
    pub chooseleaf_stable: u8,
}

impl Tunables {
    /// The profile of all current clusters.
    pub const JEWEL: Tunables = Tunables {
        choose_local_tries: 0,
        choose_local_fallback_tries: 0,
        choose_total_tries: 50,
        chooseleaf_descend_once: 1,
        chooseleaf_vary_r: 1,
        straw_calc_version: 1,
        allowed_bucket_algs: 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5,
        chooseleaf_stable: 1,
    };

    /// `argonaut`: what a map without tunables means.
    pub const LEGACY: Tunables = Tunables {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: 1 << 1 | 1 << 2 | 1 << 4,
        chooseleaf_stable: 0,
    };
}

/// Replaces a straw2 bucket's weights and ids in the draw.
///
/// Shape:   each weight set is as long as the bucket; set n serves result
///          position n, the last one all further positions. `ids` is empty or
///          as long as the bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChooseArg {
    pub weight_sets: Vec<Vec<u32>>,
    pub ids: Vec<i32>,
}

/// By bucket slot (`-1 - id`).
pub type ChooseArgs = BTreeMap<u32, ChooseArg>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CrushMap {
    /// Devices are `0..max_devices`.
    pub max_devices: i32,
    /// Slot n holds bucket `-1 - n`.
    pub buckets: Vec<Option<Bucket>>,
    pub rules: Vec<Option<Rule>>,
    pub types: BTreeMap<i32, String>,
    /// Of devices and buckets; a shadow bucket's is `name~class`.
    pub names: BTreeMap<i32, String>,
    pub rule_names: BTreeMap<i32, String>,
    pub tunables: Tunables,
    /// Item to class; shadow buckets have one too.
    pub item_classes: BTreeMap<i32, i32>,
    pub class_names: BTreeMap<i32, String>,
    /// Bucket to class to shadow bucket.
    pub class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// By pool, or [`DEFAULT_CHOOSE_ARGS`].
    pub choose_args: BTreeMap<i64, ChooseArgs>,
    /// What a newer writer put behind the fields known here; kept as it is.
    pub newer_tail: Vec<u8>,
}

impl CrushMap {
    pub fn empty() -> CrushMap {
        CrushMap {
            max_devices: 0,
            buckets: Vec::new(),
            rules: Vec::new(),
            types: BTreeMap::new(),
            names: BTreeMap::new(),
            rule_names: BTreeMap::new(),
            tunables: Tunables::JEWEL,
            item_classes: BTreeMap::new(),
            class_names: BTreeMap::new(),
            class_buckets: BTreeMap::new(),
            choose_args: BTreeMap::new(),
            newer_tail: Vec::new(),
        }
    }

    /// None for devices and for ids that no bucket has.
    #[inline]
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(slot(id)?)?.as_ref()
    }

    pub(crate) fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(slot(id)?)?.as_mut()
    }

    /// By ascending slot, so by descending id.
    pub fn iter_buckets(&self) -> impl DoubleEndedIterator<Item = &Bucket> {
        self.buckets.iter().flatten()
    }

    pub fn rule(&self, number: i32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// The rule of a pool: `CrushWrapper::find_rule`.
    pub fn find_rule(&self, ruleset: u8, rule_type: u8, size: usize) -> Option<i32> {
        let found = self.rules.iter().position(|rule| {
            rule.as_ref().is_some_and(|rule| {
                rule.ruleset == ruleset
                    && rule.rule_type == rule_type
                    && (usize::from(rule.min_size)..=usize::from(rule.max_size)).contains(&size)
            })
        })?;
        i32::try_from(found).ok()
    }

    pub fn name(&self, item: i32) -> Option<&str> {
        self.names.get(&item).map(String::as_str)
    }

    pub fn item_id(&self, name: &str) -> Option<i32> {
        self.names.iter().find(|(_, n)| *n == name).map(|(&id, _)| id)
    }

    pub fn type_name(&self, type_id: i32) -> Option<&str> {
        self.types.get(&type_id).map(String::as_str)
    }

    pub fn type_id(&self, name: &str) -> Option<i32> {
        self.types.iter().find(|(_, n)| *n == name).map(|(&id, _)| id)
    }

    pub fn rule_name(&self, number: i32) -> Option<&str> {
        self.rule_names.get(&number).map(String::as_str)
    }

    pub fn rule_id(&self, name: &str) -> Option<i32> {
        self.rule_names.iter().find(|(_, n)| *n == name).map(|(&id, _)| id)
    }

    pub fn class_id(&self, name: &str) -> Option<i32> {
        self.class_names.iter().find(|(_, n)| *n == name).map(|(&id, _)| id)
    }

    /// The device class of an item, by name.
    pub fn item_class(&self, item: i32) -> Option<&str> {
        self.class_names.get(self.item_classes.get(&item)?).map(String::as_str)
    }

    /// Whether the item is a device-class copy of a bucket.
    pub fn is_shadow(&self, item: i32) -> bool {
        item < 0 && self.name(item).is_some_and(|name| name.contains('~'))
    }

    /// The type of a device or bucket.
    pub fn item_type(&self, item: i32) -> Option<i32> {
        if item >= 0 {
            return Some(DEVICE_TYPE);
        }
        self.bucket(item).map(|bucket| i32::from(bucket.type_id))
    }

    /// The weight sets for a pool: its own, or else the default ones.
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgs> {
        self.choose_args.get(&pool).or_else(|| self.choose_args.get(&DEFAULT_CHOOSE_ARGS))
    }

    /// Buckets that are no bucket's item, ascending; with or without shadow trees.
    pub fn roots(&self, with_shadows: bool) -> Vec<i32> {
        let children: std::collections::BTreeSet<i32> =
            self.iter_buckets().flat_map(|bucket| bucket.items.iter().copied()).collect();
        let mut roots: Vec<i32> = self
            .iter_buckets()
            .map(|bucket| bucket.id)
            .filter(|id| !children.contains(id) && (with_shadows || !self.is_shadow(*id)))
            .collect();
        roots.sort_unstable();
        roots
    }

    /// The bucket that holds the item, shadow buckets aside.
    pub fn parent(&self, item: i32) -> Option<i32> {
        self.iter_buckets()
            .find(|bucket| !self.is_shadow(bucket.id) && bucket.position_of(item).is_some())
            .map(|bucket| bucket.id)
    }

    /// Refuses what would send a walk in circles or out of the map: items that
    /// do not exist, buckets that contain themselves, trees without end. The
    /// mapper survives such maps, but a monitor must not accept them and
    /// editing functions rely on it.
    pub fn check(&self) -> Result<()> {
        // What is below each bucket, found from the leaves upward.
        let mut extents: Vec<Option<Extent>> = vec![None; self.buckets.len()];
        // Each round settles one more level, at least.
        for _ in 0..=DEPTH_MAX {
            let mut settled = true;
            for (slot, bucket) in self.buckets.iter().enumerate() {
                let Some(bucket) = bucket else { continue };
                if extents[slot].is_none() {
                    extents[slot] = self.extent_of(bucket, &extents)?;
                    settled &= extents[slot].is_some();
                }
            }
            if extents.iter().flatten().any(|extent| extent.is_excessive()) {
                let what = "CRUSH map: a tree is too deep, or has too many items";
                return Err(DecodeError::Invalid { what });
            }
            if settled {
                return Ok(());
            }
        }
        Err(DecodeError::Invalid { what: "CRUSH map: a bucket contains itself" })
    }

    /// None if that of a child is not known yet.
    fn extent_of(&self, bucket: &Bucket, known: &[Option<Extent>]) -> Result<Option<Extent>> {
        let mut sum = Extent { levels: 0, items: 1 };
        for &item in &bucket.items {
            let below = match slot(item) {
                None if item < self.max_devices => Extent { levels: 0, items: 1 },
                Some(slot) if self.bucket(item).is_some() => match known[slot] {
                    None => return Ok(None),
                    Some(extent) => extent,
                },
                _ => {
                    let what = "CRUSH map: a bucket contains an item that does not exist";
                    return Err(DecodeError::Invalid { what });
                }
            };
            sum.levels = sum.levels.max(below.levels + 1);
            sum.items = sum.items.saturating_add(below.items);
        }
        Ok(Some(sum))
    }
}

/// What is below a bucket: `items` counts those linked in several places once
/// for each, as a recursive walk does.
#[derive(Clone, Copy)]
struct Extent {
    levels: usize,
    items: usize,
}

impl Extent {
    fn is_excessive(self) -> bool {
        self.levels > DEPTH_MAX || self.items > TREE_ITEMS_MAX
    }
}

/// The slot of a bucket id.
#[inline]
pub(crate) fn slot(id: i32) -> Option<usize> {
    if id < 0 { Some(!id as usize) } else { None }
}
