//! Device classes, and the shadow trees that let a rule take only the devices
//! of one class.
//!
//! For each tree and each class there is a copy of the tree with only that
//! class's devices, its buckets named `name~class`. The copies are rebuilt
//! after every change; a copy keeps its id as long as its original lives,
//! because rules refer to it and its id enters the draw of its parent.
//!
//! Source: Ceph `src/crush/CrushWrapper.cc` (`rebuild_roots_with_classes`,
//! `device_class_clone`, `update_device_class`).

use crate::error::{EditError, EditResult};
use crate::map::*;
use base::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// Shadow bucket by bucket and class.
type ClassBuckets = BTreeMap<i32, BTreeMap<i32, i32>>;

/// By weight set and shadow bucket: the bucket's weight in each position.
type ShadowWeights = BTreeMap<(i64, i32), Vec<u32>>;

impl CrushMap {
    /// The class's id; creates the class where it is new.
    pub fn get_or_create_class(&mut self, name: &str) -> i32 {
        if let Some(id) = self.class_id(name) {
            return id;
        }
        let id = self.class_names.last_key_value().map_or(0, |(last, _)| last.wrapping_add(1).max(0));
        self.class_names.insert(id, name.to_string());
        id
    }

    /// Puts a device into a class; false if it is in it already.
    ///
    /// Errors:  EBUSY if it is in another class, ENOENT if there is no such device.
    pub fn set_device_class(&mut self, device: i32, class: &str) -> EditResult<bool> {
        if device < 0 || self.name(device).is_none() {
            return Err(EditError::new(Errno::ENOENT, format!("osd.{device} does not exist")));
        }
        match self.item_class(device) {
            Some(old) if old == class => return Ok(false),
            Some(old) => {
                let text = format!(
                    "osd.{device} has already bound to class '{old}', can not reset class to \
                     '{class}'; use 'ceph osd crush rm-device-class <id>' to remove old class first"
                );
                return Err(EditError::new(Errno::EBUSY, text));
            }
            None => {}
        }
        self.atomically(|map| {
            let class = map.get_or_create_class(class);
            map.item_classes.insert(device, class);
            map.rebuild_shadow_trees()?;
            Ok(true)
        })
    }

    /// Takes a device out of its class; false if it is in none. A class
    /// without devices and rules goes away.
    pub fn remove_device_class(&mut self, device: i32) -> EditResult<bool> {
        if self.name(device).is_none() {
            return Err(EditError::new(Errno::ENOENT, format!("osd.{device} does not have a name")));
        }
        self.atomically(|map| {
            let removed = map.item_classes.remove(&device).is_some();
            map.rebuild_shadow_trees()?;
            Ok(removed)
        })
    }

    /// `osd crush class create`: its id; EEXIST where it exists.
    pub fn create_class(&mut self, name: &str) -> EditResult<i32> {
        if self.class_id(name).is_some() {
            return Err(EditError::new(Errno::EEXIST, format!("class '{name}' already exists")));
        }
        Ok(self.get_or_create_class(name))
    }

    /// `osd crush class rm`: also takes its devices out of it; its id.
    ///
    /// Errors:  EBUSY if a rule takes it, ENOENT if there is none.
    pub fn remove_class(&mut self, name: &str) -> EditResult<i32> {
        let Some(class) = self.class_id(name) else {
            return Err(EditError::new(Errno::ENOENT, format!("class '{name}' does not exist")));
        };
        let rules: Vec<String> = self
            .rules_of_class(class)
            .into_iter()
            .map(|rule| format!("'{}'", self.rule_name(rule).unwrap_or_default()))
            .collect();
        if !rules.is_empty() {
            let text = format!("class '{name}' still referenced by crush_rule(s): {}", rules.join(","));
            return Err(EditError::new(Errno::EBUSY, text));
        }
        self.atomically(|map| {
            map.item_classes.retain(|item, c| *item < 0 || *c != class);
            map.rebuild_shadow_trees()?;
            Ok(class)
        })
    }

    /// `osd crush class rename`.
    pub fn rename_class(&mut self, from: &str, to: &str) -> EditResult<()> {
        let Some(class) = self.class_id(from) else {
            return Err(EditError::new(Errno::ENOENT, format!("class '{from}' does not exist")));
        };
        if self.class_id(to).is_some() {
            return Err(EditError::new(Errno::EEXIST, format!("class '{to}' already exists")));
        }
        for (item, name) in &mut self.names {
            let shadow_of_class = *item < 0 && self.item_classes.get(item) == Some(&class);
            if let (true, Some((original, _))) = (shadow_of_class, name.split_once('~')) {
                *name = format!("{original}~{to}");
            }
        }
        self.class_names.insert(class, to.to_string());
        Ok(())
    }

    /// Rules that take a shadow tree of the class.
    pub fn rules_of_class(&self, class: i32) -> Vec<i32> {
        let shadows: BTreeSet<i32> =
            self.class_buckets.values().filter_map(|by_class| by_class.get(&class).copied()).collect();
        let takes =
            |rule: &Rule| rule.steps.iter().any(|step| step.op == op::TAKE && shadows.contains(&step.arg1));
        (0..).zip(&self.rules).filter(|(_, r)| r.as_ref().is_some_and(takes)).map(|(n, _)| n).collect()
    }

    /// Devices of a class, ascending.
    pub fn devices_of_class(&self, class: i32) -> Vec<i32> {
        let of_class = self.item_classes.iter().filter(|(item, c)| **item >= 0 && **c == class);
        of_class.map(|(item, _)| *item).collect()
    }

    /// A bucket's shadow for a class.
    pub fn shadow_of(&self, bucket: i32, class: i32) -> Option<i32> {
        self.class_buckets.get(&bucket)?.get(&class).copied()
    }

    /// Rebuilds all shadow trees. Every edit that could change them calls this.
    pub fn rebuild_shadow_trees(&mut self) -> EditResult<()> {
        let old = self.class_buckets.clone();
        let dead: Vec<i32> = self
            .class_names
            .keys()
            .copied()
            .filter(|class| {
                self.devices_of_class(*class).is_empty() && self.rules_of_class(*class).is_empty()
            })
            .collect();
        for class in dead {
            self.class_names.remove(&class);
        }
        for root in self.roots(true) {
            if self.is_shadow(root) {
                self.drop_tree(root);
            }
        }
        self.class_buckets.clear();

        let used: BTreeSet<i32> = old.values().flat_map(|by_class| by_class.values().copied()).collect();
        let mut weights = ShadowWeights::new();
        let classes: Vec<i32> = self.class_names.keys().copied().collect();
        for root in self.roots(false) {
            for &class in &classes {
                self.clone_for_class(root, class, &old, &used, &mut weights)?;
            }
        }
        Ok(())
    }

    fn drop_tree(&mut self, id: i32) {
        // A shadow bucket may be linked into several trees.
        let Some(bucket) = self.bucket(id) else { return };
        for item in bucket.items.clone() {
            if item < 0 {
                self.drop_tree(item);
            }
        }
        self.drop_bucket(id);
    }

    /// Copies a tree with only the devices of a class; the copy's id.
    fn clone_for_class(
        &mut self,
        original_id: i32,
        class: i32,
        old: &ClassBuckets,
        used: &BTreeSet<i32>,
        weights: &mut ShadowWeights,
    ) -> EditResult<i32> {
        // An original may be linked into several trees: one copy serves all.
        if let Some(copy) = self.shadow_of(original_id, class) {
            return Ok(copy);
        }
        let original = self.bucket(original_id).ok_or(Errno::ENOENT)?.clone();
        let mut copy = original.empty_like(0);
        let mut positions = Vec::new();
        for (position, &item) in original.items.iter().enumerate() {
            if item >= 0 {
                if self.item_classes.get(&item) != Some(&class) {
                    continue;
                }
                copy.push(item, original.item_weight(position))?;
            } else {
                let child = self.clone_for_class(item, class, old, used, weights)?;
                let weight = self.bucket(child).map_or(0, |bucket| bucket.weight);
                copy.push(child, weight)?;
            }
            positions.push(position);
        }

        let id = match old.get(&original_id).and_then(|by_class| by_class.get(&class)) {
            Some(&id) => id,
            // Neither taken now, nor a former shadow's that may come back.
            None => (0..)
                .map(|slot: i32| !slot)
                .find(|id| self.bucket(*id).is_none() && !used.contains(id))
                .ok_or(Errno::ENOSPC)?,
        };
        copy.id = id;
        let items = copy.items.clone();
        self.add_bucket_slot(Some(id), |_| copy)?;
        let name = format!(
            "{}~{}",
            self.name(original_id).unwrap_or_default(),
            self.class_names.get(&class).ok_or(Errno::EBADF)?
        );
        self.names.insert(id, name);
        self.item_classes.insert(id, class);
        self.class_buckets.entry(original_id).or_default().insert(class, id);
        self.clone_weight_sets(original_id, id, &items, &positions, weights);
        Ok(id)
    }

    /// The original's weight sets, for the items that the copy has.
    fn clone_weight_sets(
        &mut self,
        original_id: i32,
        id: i32,
        items: &[i32],
        positions: &[usize],
        weights: &mut ShadowWeights,
    ) {
        for (&key, args) in &mut self.choose_args {
            let Some(original) = args.get(&(!original_id as u32)) else { continue };
            if original.weight_sets.is_empty() {
                continue;
            }
            let mut sets = Vec::new();
            for (number, set) in original.weight_sets.iter().enumerate() {
                let weight_of = |(&item, &position): (&i32, &usize)| match item {
                    0.. => set[position],
                    _ => weights.get(&(key, item)).and_then(|w| w.get(number)).copied().unwrap_or(0),
                };
                sets.push(items.iter().zip(positions).map(weight_of).collect::<Vec<u32>>());
            }
            let sums = sets.iter().map(|set| set.iter().fold(0, |sum: u32, w| sum.saturating_add(*w)));
            weights.insert((key, id), sums.collect());
            args.insert(!id as u32, ChooseArg { weight_sets: sets, ids: Vec::new() });
        }
    }
}
