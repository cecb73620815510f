//! Changing one bucket: its items, their weights and what its algorithm derives
//! from them; and the weight sets that shadow it.
//!
//! Straw buckets cannot be changed: their straws come from a calculation that
//! has been obsolete since straw2, and this writes none. Everything else here
//! knows one bucket only; weights of parents are `edit`'s business.
//!
//! Source: Ceph `src/crush/builder.c`, `CrushWrapper.cc` (`bucket_add_item`
//! and its siblings).

use crate::error::{EditError, EditResult};
use crate::map::*;
use base::Errno;

/// More leaves do not fit into the encoding's count of nodes.
const TREE_ITEMS_MAX: usize = 64;

impl Bucket {
    /// The item weights, by position.
    pub fn item_weights(&self) -> Vec<u32> {
        (0..self.items.len()).map(|position| self.item_weight(position)).collect()
    }

    /// An empty bucket of the same algorithm.
    pub(crate) fn empty_like(&self, id: i32) -> Bucket {
        let weights = match &self.weights {
            BucketWeights::Uniform { item_weight } => BucketWeights::Uniform { item_weight: *item_weight },
            BucketWeights::List { .. } => {
                BucketWeights::List { item_weights: Vec::new(), sum_weights: Vec::new() }
            }
            BucketWeights::Tree { .. } => BucketWeights::Tree { node_weights: Vec::new() },
            BucketWeights::Straw { .. } => {
                BucketWeights::Straw { item_weights: Vec::new(), straws: Vec::new() }
            }
            BucketWeights::Straw2 { .. } => BucketWeights::Straw2 { item_weights: Vec::new() },
        };
        Bucket { id, weight: 0, items: Vec::new(), weights, ..*self }
    }

    pub(crate) fn push(&mut self, item: i32, weight: u32) -> EditResult<()> {
        let mut weights = self.item_weights();
        weights.push(weight);
        if let BucketWeights::Uniform { item_weight } = &mut self.weights {
            if self.items.is_empty() {
                *item_weight = weight;
            } else if *item_weight != weight {
                return Err(Errno::EINVAL.into());
            }
        }
        self.items.push(item);
        self.set_item_weights(&weights)
    }

    pub(crate) fn remove(&mut self, position: usize) -> EditResult<()> {
        let mut weights = self.item_weights();
        weights.remove(position);
        self.items.remove(position);
        self.set_item_weights(&weights)
    }

    /// In a uniform bucket the weight becomes that of all items.
    pub(crate) fn set_item_weight(&mut self, position: usize, weight: u32) -> EditResult<()> {
        let mut weights = self.item_weights();
        weights[position] = weight;
        if let BucketWeights::Uniform { item_weight } = &mut self.weights {
            *item_weight = weight;
            weights.fill(weight);
        }
        self.set_item_weights(&weights)
    }

    /// Derives everything else from the items' weights.
    fn set_item_weights(&mut self, weights: &[u32]) -> EditResult<()> {
        let sum = weights.iter().try_fold(0u32, |sum, weight| sum.checked_add(*weight));
        // Weights travel as signed numbers in places.
        self.weight = sum.filter(|sum| *sum <= i32::MAX as u32).ok_or(Errno::ERANGE)?;
        match &mut self.weights {
            BucketWeights::Uniform { .. } => {}
            BucketWeights::Straw2 { item_weights } => *item_weights = weights.to_vec(),
            BucketWeights::List { item_weights, sum_weights } => {
                *item_weights = weights.to_vec();
                *sum_weights = weights
                    .iter()
                    .scan(0, |sum, weight| {
                        *sum += weight;
                        Some(*sum)
                    })
                    .collect();
            }
            BucketWeights::Tree { node_weights } => *node_weights = tree_nodes(weights)?,
            BucketWeights::Straw { .. } => {
                let text = "straw buckets cannot be changed; use straw2";
                return Err(EditError::new(Errno::EOPNOTSUPP, text));
            }
        }
        Ok(())
    }
}

/// The array of a tree bucket: leaf i is node 2i + 1, an inner node's weight
/// is the sum of its two children's.
fn tree_nodes(weights: &[u32]) -> EditResult<Vec<u32>> {
    if weights.len() > TREE_ITEMS_MAX {
        return Err(Errno::ERANGE.into());
    }
    if weights.is_empty() {
        return Ok(Vec::new());
    }
    let mut nodes = vec![0; 2 * weights.len().next_power_of_two()];
    for (index, weight) in weights.iter().enumerate() {
        let mut node = 2 * index + 1;
        nodes[node] = *weight;
        // Up to the root, which is the middle of the array.
        while node != nodes.len() / 2 {
            let half = 1 << node.trailing_zeros();
            node = if node & (2 * half) != 0 { node - half } else { node + half };
            nodes[node] += *weight;
        }
    }
    Ok(nodes)
}

impl CrushMap {
    /// A new bucket in the given slot's id, or in the first free slot. The
    /// table of slots grows as Ceph's does.
    pub(crate) fn add_bucket_slot(
        &mut self,
        id: Option<i32>,
        make: impl FnOnce(i32) -> Bucket,
    ) -> EditResult<i32> {
        let free = self.buckets.iter().position(Option::is_none).unwrap_or(self.buckets.len());
        let position = match id {
            Some(id) => slot(id).ok_or(Errno::EINVAL)?,
            None => free,
        };
        while position >= self.buckets.len() {
            let slots = (self.buckets.len() * 2).max(8);
            self.buckets.resize(slots, None);
        }
        if self.buckets[position].is_some() {
            return Err(Errno::EEXIST.into());
        }
        let id = !(i32::try_from(position).map_err(|_| Errno::ENOSPC)?);
        self.buckets[position] = Some(make(id));
        Ok(id)
    }

    /// Also to the bucket's weight sets.
    pub(crate) fn bucket_push(&mut self, id: i32, item: i32, weight: u32) -> EditResult<()> {
        self.bucket_mut(id).ok_or(Errno::ENOENT)?.push(item, weight)?;
        for arg in self.args_of_bucket(id) {
            arg.weight_sets.iter_mut().for_each(|set| set.push(weight));
            if !arg.ids.is_empty() {
                arg.ids.push(item);
            }
        }
        Ok(())
    }

    /// Also from the bucket's weight sets.
    pub(crate) fn bucket_remove(&mut self, id: i32, position: usize) -> EditResult<()> {
        self.bucket_mut(id).ok_or(Errno::ENOENT)?.remove(position)?;
        for arg in self.args_of_bucket(id) {
            for set in &mut arg.weight_sets {
                set.remove(position);
            }
            if !arg.ids.is_empty() {
                arg.ids.remove(position);
            }
        }
        // An argument without ids and sets is not encoded, so it is none.
        for args in self.choose_args.values_mut() {
            args.retain(|_, arg| !arg.weight_sets.is_empty() || !arg.ids.is_empty());
        }
        Ok(())
    }

    pub(crate) fn args_of_bucket(&mut self, id: i32) -> impl Iterator<Item = &mut ChooseArg> {
        let index = !id as u32;
        self.choose_args.values_mut().filter_map(move |args| args.get_mut(&index))
    }

    /// Gives a new bucket as many (empty) weight sets as the others have.
    pub(crate) fn begin_weight_sets(&mut self, id: i32) {
        for args in self.choose_args.values_mut() {
            let positions = args.values().map(|arg| arg.weight_sets.len()).find(|n| *n > 0).unwrap_or(1);
            let arg = ChooseArg { weight_sets: vec![Vec::new(); positions], ids: Vec::new() };
            args.insert(!id as u32, arg);
        }
    }

    /// Takes the bucket, its name, class and weight sets off the map. Its
    /// parents must not list it any more.
    pub(crate) fn drop_bucket(&mut self, id: i32) {
        if let Some(place) = slot(id).and_then(|slot| self.buckets.get_mut(slot)) {
            *place = None;
        }
        self.names.remove(&id);
        self.item_classes.remove(&id);
        self.class_buckets.remove(&id);
        for args in self.choose_args.values_mut() {
            args.remove(&(!id as u32));
        }
    }
}
