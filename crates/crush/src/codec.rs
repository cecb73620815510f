//! The CRUSH map's encoding: one blob without an envelope, that ends wherever
//! its writer's version ended.
//!
//! Maps of Luminous and later are encoded back bit for bit. Older ones, which
//! end earlier, decode with the meaning Ceph gives them and are written in
//! full.
//!
//! Source: Ceph `src/crush/CrushWrapper.cc` (`encode`, `decode`).

use crate::map::*;
use bytes::Bytes;
use wire::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};

const MAGIC: u32 = 0x0001_0000;

impl CrushMap {
    /// Errors:  whatever is truncated, inconsistent in its sizes, or of an
    ///          unknown bucket algorithm. See [`CrushMap::check`] for what a
    ///          map that decodes may still have wrong.
    pub fn decode(blob: &[u8]) -> Result<CrushMap> {
        Decode::decode(&mut Decoder::plain(Bytes::copy_from_slice(blob)))
    }

    pub fn encode(&self) -> Bytes {
        let mut e = Encoder::plain();
        Encode::encode(self, &mut e);
        e.finish()
    }
}

impl Encode for CrushMap {
    fn encode(&self, e: &mut Encoder) {
        e.u32(MAGIC);
        e.count(self.buckets.len());
        e.count(self.rules.len());
        e.i32(self.max_devices);
        for bucket in &self.buckets {
            match bucket {
                None => e.u32(0),
                Some(bucket) => encode_bucket(bucket, e),
            }
        }
        for rule in &self.rules {
            match rule {
                None => e.u32(0),
                Some(rule) => encode_rule(rule, e),
            }
        }
        e.put(&self.types);
        e.put(&self.names);
        e.put(&self.rule_names);
        encode_tunables(&self.tunables, e);
        e.put(&self.item_classes);
        e.put(&self.class_names);
        e.put(&self.class_buckets);
        e.count(self.choose_args.len());
        for (key, args) in &self.choose_args {
            e.i64(*key);
            encode_choose_args(args, e);
        }
        e.raw(&self.newer_tail);
    }
}

impl Decode for CrushMap {
    const MIN_LEN: usize = 28;

    /// Takes all that is left of the input.
    fn decode(d: &mut Decoder) -> Result<CrushMap> {
        if d.u32()? != MAGIC {
            return Err(DecodeError::Invalid { what: "CRUSH map magic" });
        }
        // Each slot takes four bytes at least, which bounds the counts.
        let bucket_slots = d.count("CRUSH buckets", 4)?;
        let rule_slots = d.count("CRUSH rules", 4)?;
        let max_devices = d.i32()?;
        if max_devices < 0 {
            return Err(DecodeError::Invalid { what: "CRUSH max_devices" });
        }
        let mut map = CrushMap { max_devices, tunables: Tunables::LEGACY, ..CrushMap::empty() };
        for slot in 0..bucket_slots {
            map.buckets.push(decode_bucket(slot, d)?);
        }
        for _ in 0..rule_slots {
            map.rules.push(decode_rule(d)?);
        }
        map.types = d.get()?;
        map.names = d.get()?;
        map.rule_names = d.get()?;
        decode_tunables(&mut map.tunables, d)?;
        if !d.is_empty() {
            map.item_classes = d.get()?;
            map.class_names = d.get()?;
            map.class_buckets = d.get()?;
        }
        if !d.is_empty() {
            for _ in 0..d.count("CRUSH choose_args", 12)? {
                let key = d.i64()?;
                let args = decode_choose_args(&map, d)?;
                map.choose_args.insert(key, args);
            }
        }
        map.newer_tail = d.take("CRUSH map tail", d.remaining())?.to_vec();
        Ok(map)
    }
}

fn encode_bucket(bucket: &Bucket, e: &mut Encoder) {
    e.u32(u32::from(bucket.weights.alg()));
    e.i32(bucket.id);
    e.u16(bucket.type_id);
    e.u8(bucket.weights.alg());
    e.u8(bucket.hash);
    e.u32(bucket.weight);
    e.put(&bucket.items);
    let pairs = |e: &mut Encoder, first: &[u32], second: &[u32]| {
        for (a, b) in first.iter().zip(second) {
            e.u32(*a);
            e.u32(*b);
        }
    };
    match &bucket.weights {
        BucketWeights::Uniform { item_weight } => e.u32(*item_weight),
        BucketWeights::List { item_weights, sum_weights } => pairs(e, item_weights, sum_weights),
        BucketWeights::Tree { node_weights } => {
            e.u8(u8::try_from(node_weights.len()).expect("a tree bucket of at most 255 nodes"));
            node_weights.iter().for_each(|weight| e.u32(*weight));
        }
        BucketWeights::Straw { item_weights, straws } => pairs(e, item_weights, straws),
        BucketWeights::Straw2 { item_weights } => {
            item_weights.iter().for_each(|weight| e.u32(*weight));
        }
    }
}

fn decode_bucket(slot: usize, d: &mut Decoder) -> Result<Option<Bucket>> {
    let alg = d.u32()?;
    if alg == 0 {
        return Ok(None);
    }
    let id = d.i32()?;
    if crate::map::slot(id) != Some(slot) {
        return Err(DecodeError::Invalid { what: "CRUSH bucket: the id is not its slot's" });
    }
    let type_id = d.u16()?;
    if u32::from(d.u8()?) != alg {
        return Err(DecodeError::Invalid { what: "CRUSH bucket: two different algorithms" });
    }
    let hash = d.u8()?;
    let weight = d.u32()?;
    let items: Vec<i32> = d.get()?;
    let weights = decode_bucket_weights(alg, items.len(), d)?;
    Ok(Some(Bucket { id, type_id, hash, weight, items, weights }))
}

fn decode_bucket_weights(alg: u32, size: usize, d: &mut Decoder) -> Result<BucketWeights> {
    let pairs = |d: &mut Decoder| -> Result<(Vec<u32>, Vec<u32>)> {
        let mut both = (Vec::new(), Vec::new());
        for _ in 0..size {
            both.0.push(d.u32()?);
            both.1.push(d.u32()?);
        }
        Ok(both)
    };
    Ok(match alg {
        1 => BucketWeights::Uniform { item_weight: d.u32()? },
        2 => {
            let (item_weights, sum_weights) = pairs(d)?;
            BucketWeights::List { item_weights, sum_weights }
        }
        3 => {
            let nodes = usize::from(d.u8()?);
            BucketWeights::Tree { node_weights: plain_u32s(nodes, d)? }
        }
        4 => {
            let (item_weights, straws) = pairs(d)?;
            BucketWeights::Straw { item_weights, straws }
        }
        5 => BucketWeights::Straw2 { item_weights: plain_u32s(size, d)? },
        _ => {
            return Err(DecodeError::Invalid { what: "CRUSH bucket algorithm" });
        }
    })
}

/// `count` values without a count in front; grows as they prove real.
fn plain_u32s(count: usize, d: &mut Decoder) -> Result<Vec<u32>> {
    (0..count).map(|_| d.u32()).collect()
}

fn encode_rule(rule: &Rule, e: &mut Encoder) {
    e.u32(1);
    e.count(rule.steps.len());
    e.u8(rule.ruleset);
    e.u8(rule.rule_type);
    e.u8(rule.min_size);
    e.u8(rule.max_size);
    for step in &rule.steps {
        e.u32(step.op);
        e.i32(step.arg1);
        e.i32(step.arg2);
    }
}

fn decode_rule(d: &mut Decoder) -> Result<Option<Rule>> {
    if d.u32()? == 0 {
        return Ok(None);
    }
    let steps = d.count("CRUSH rule steps", 12)?;
    let mut rule = Rule {
        ruleset: d.u8()?,
        rule_type: d.u8()?,
        min_size: d.u8()?,
        max_size: d.u8()?,
        steps: Vec::new(),
    };
    for _ in 0..steps {
        rule.steps.push(RuleStep { op: d.u32()?, arg1: d.i32()?, arg2: d.i32()? });
    }
    Ok(Some(rule))
}

fn encode_tunables(tunables: &Tunables, e: &mut Encoder) {
    e.u32(tunables.choose_local_tries);
    e.u32(tunables.choose_local_fallback_tries);
    e.u32(tunables.choose_total_tries);
    e.u32(tunables.chooseleaf_descend_once);
    e.u8(tunables.chooseleaf_vary_r);
    e.u8(tunables.straw_calc_version);
    e.u32(tunables.allowed_bucket_algs);
    e.u8(tunables.chooseleaf_stable);
}

/// Each release added some at the end.
fn decode_tunables(tunables: &mut Tunables, d: &mut Decoder) -> Result<()> {
    if !d.is_empty() {
        tunables.choose_local_tries = d.u32()?;
        tunables.choose_local_fallback_tries = d.u32()?;
        tunables.choose_total_tries = d.u32()?;
    }
    if !d.is_empty() {
        tunables.chooseleaf_descend_once = d.u32()?;
    }
    if !d.is_empty() {
        tunables.chooseleaf_vary_r = d.u8()?;
    }
    if !d.is_empty() {
        tunables.straw_calc_version = d.u8()?;
    }
    if !d.is_empty() {
        tunables.allowed_bucket_algs = d.u32()?;
    }
    if !d.is_empty() {
        tunables.chooseleaf_stable = d.u8()?;
    }
    Ok(())
}

fn encode_choose_args(args: &ChooseArgs, e: &mut Encoder) {
    e.count(args.len());
    for (slot, arg) in args {
        e.u32(*slot);
        e.put(&arg.weight_sets);
        e.put(&arg.ids);
    }
}

fn decode_choose_args(map: &CrushMap, d: &mut Decoder) -> Result<ChooseArgs> {
    let mut args = ChooseArgs::new();
    for _ in 0..d.count("CRUSH choose_args", 12)? {
        let slot = d.u32()?;
        let arg = ChooseArg { weight_sets: d.get()?, ids: d.get()? };
        let size = map.buckets.get(slot as usize).and_then(Option::as_ref).map(|b| b.items.len());
        let fits = size.is_some_and(|size| {
            arg.weight_sets.iter().all(|set| set.len() == size)
                && (arg.ids.is_empty() || arg.ids.len() == size)
        });
        if !fits {
            return Err(DecodeError::Invalid { what: "CRUSH choose_args: not of the bucket's size" });
        }
        args.insert(slot, arg);
    }
    Ok(args)
}
