//! How each kind of bucket draws one of its items for an input and an attempt.
//!
//! Source: Ceph `src/crush/mapper.c` (`bucket_*_choose`).

use crate::hash::{RJENKINS1, hash3, hash4};
use crate::ln::ln;
use crate::map::{Bucket, BucketWeights, ChooseArg, ChooseArgs};

/// The constant part of all draws of one mapping.
pub(crate) struct Draw<'a> {
    pub x: u32,
    pub choose_args: Option<&'a ChooseArgs>,
    /// Items that may still be looked at.
    pub left: u64,
}

impl Draw<'_> {
    /// None if the bucket is empty. `position` selects the weight set.
    pub fn item(&mut self, bucket: &Bucket, r: i32, position: usize, permute: bool) -> Option<i32> {
        if bucket.items.is_empty() {
            self.left = self.left.saturating_sub(1);
            return None;
        }
        self.left = self.left.saturating_sub(bucket.items.len() as u64);
        let r = r as u32;
        let index = if permute {
            permutation(bucket, self.x, r)
        } else {
            match &bucket.weights {
                BucketWeights::Uniform { .. } => permutation(bucket, self.x, r),
                BucketWeights::List { item_weights, sum_weights } => {
                    list(bucket, item_weights, sum_weights, self.x, r)
                }
                BucketWeights::Tree { node_weights } => tree(bucket, node_weights, self.x, r),
                BucketWeights::Straw { straws, .. } => straw(bucket, straws, self.x, r),
                BucketWeights::Straw2 { item_weights } => {
                    let arg = self.choose_args.and_then(|args| args.get(&(!bucket.id as u32)));
                    straw2(bucket, item_weights, arg, position, self.x, r)
                }
            }
        };
        bucket.items.get(index).copied()
    }
}

/// Ceph's hashes are 0 for a bucket whose hash type they do not know.
#[inline]
fn bucket_hash3(bucket: &Bucket, a: u32, b: u32, c: u32) -> u32 {
    if bucket.hash == RJENKINS1 { hash3(a, b, c) } else { 0 }
}

#[inline]
fn bucket_hash4(bucket: &Bucket, a: u32, b: u32, c: u32, d: u32) -> u32 {
    if bucket.hash == RJENKINS1 { hash4(a, b, c, d) } else { 0 }
}

/// The r-th place of a shuffle of the bucket that depends on `x` alone.
fn permutation(bucket: &Bucket, x: u32, r: u32) -> usize {
    let size = bucket.items.len();
    let place = r as usize % size;
    let offset = |p: usize| bucket_hash3(bucket, x, bucket.id as u32, p as u32) as usize % (size - p);
    if place == 0 {
        return offset(0);
    }
    let mut order: Vec<usize> = (0..size).collect();
    // The last place has nothing left to swap with.
    for p in 0..=place.min(size - 2) {
        order.swap(p, p + offset(p));
    }
    order[place]
}

fn list(bucket: &Bucket, item_weights: &[u32], sum_weights: &[u32], x: u32, r: u32) -> usize {
    for index in (0..bucket.items.len()).rev() {
        let hash = bucket_hash4(bucket, x, bucket.items[index] as u32, r, bucket.id as u32);
        let point = (u64::from(hash & 0xffff) * u64::from(sum_weights[index])) >> 16;
        if point < u64::from(item_weights[index]) {
            return index;
        }
    }
    0
}

/// Walks a binary tree stored in an array: leaves are the odd nodes.
fn tree(bucket: &Bucket, node_weights: &[u32], x: u32, r: u32) -> usize {
    let weight = |node: usize| u64::from(node_weights.get(node).copied().unwrap_or(0));
    let mut node = node_weights.len() / 2;
    while node != 0 && node & 1 == 0 {
        let half = 1 << (node.trailing_zeros() - 1);
        let hash = bucket_hash4(bucket, x, node as u32, r, bucket.id as u32);
        let point = (u64::from(hash) * weight(node)) >> 32;
        node = if point < weight(node - half) { node - half } else { node + half };
    }
    node / 2
}

fn straw(bucket: &Bucket, straws: &[u32], x: u32, r: u32) -> usize {
    let mut best = (0, 0);
    for (index, (&item, &length)) in bucket.items.iter().zip(straws).enumerate() {
        let hash = bucket_hash3(bucket, x, item as u32, r);
        let draw = u64::from(hash & 0xffff) * u64::from(length);
        if index == 0 || draw > best.1 {
            best = (index, draw);
        }
    }
    best.0
}

/// Each item draws from an exponential distribution with its weight as the
/// rate; the first of the highest draws wins, so that a change of one weight
/// moves data from or to that item only.
fn straw2(
    bucket: &Bucket,
    item_weights: &[u32],
    arg: Option<&ChooseArg>,
    position: usize,
    x: u32,
    r: u32,
) -> usize {
    let mut weights = item_weights;
    let mut ids = &bucket.items[..];
    if let Some(arg) = arg {
        if let Some(set) = arg.weight_sets.get(position).or(arg.weight_sets.last()) {
            weights = set;
        }
        if !arg.ids.is_empty() {
            ids = &arg.ids;
        }
    }
    let mut best = (0, i64::MIN);
    for (index, (&id, &weight)) in ids.iter().zip(weights).enumerate() {
        if weight == 0 {
            continue;
        }
        let hash = bucket_hash3(bucket, x, id as u32, r);
        let log = ln(hash as u16) as i64 - (1 << 48);
        // Ceph passes the weight as a signed int.
        let draw = log / i64::from(weight as i32);
        if draw > best.1 {
            best = (index, draw);
        }
    }
    best.0
}
