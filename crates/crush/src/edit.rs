//! Adding, moving, removing and reweighting items of the tree, as the monitor's
//! `osd crush …` commands do.
//!
//! An edit that fails changes nothing. A bucket's weight is the sum of its
//! items' and its parents follow every change; shadow trees and weight sets
//! follow, too.
//!
//! Source: Ceph 16.2.15 `src/crush/CrushWrapper.cc`.

use crate::error::{EditError, EditResult};
use crate::hash::RJENKINS1;
use crate::map::*;
use base::Errno;
use std::collections::BTreeMap;

/// Where an item belongs: names of buckets by name of type, such as
/// `host=a rack=b root=default`.
pub type Location = BTreeMap<String, String>;

/// Reads `type=name` words, as the command line has them.
pub fn parse_location<S: AsRef<str>>(words: &[S]) -> EditResult<Location> {
    let mut location = Location::new();
    for word in words {
        match word.as_ref().split_once('=') {
            Some((kind, name)) if !name.is_empty() => {
                location.insert(kind.to_string(), name.to_string());
            }
            _ => {
                let text = format!("unable to parse location '{}'", word.as_ref());
                return Err(EditError::new(Errno::EINVAL, text));
            }
        }
    }
    Ok(location)
}

/// A weight as people write it, in 16.16 fixed point, cut off as Ceph does.
pub fn weight_from(weight: f64) -> EditResult<u32> {
    let fixed = weight as f32 * WEIGHT_ONE as f32;
    if !(0.0..i32::MAX as f32).contains(&fixed) {
        let errno = if fixed >= 0.0 { Errno::EOVERFLOW } else { Errno::EINVAL };
        return Err(errno.into());
    }
    Ok(fixed as u32)
}

/// A 16.16 weight as people read it.
pub fn weight_to_f64(weight: u32) -> f64 {
    f64::from(weight as f32 / WEIGHT_ONE as f32)
}

pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn check_name(name: &str) -> EditResult<()> {
    if is_valid_name(name) {
        return Ok(());
    }
    Err(EditError::new(Errno::EINVAL, format!("'{name}' does not match [-_.0-9a-zA-Z]+")))
}

fn check_location(location: &Location) -> EditResult<()> {
    location.iter().try_for_each(|(kind, name)| check_name(kind).and_then(|()| check_name(name)))
}

fn no_such_item(name: &str) -> EditError {
    EditError::new(Errno::ENOENT, format!("item {name} does not exist"))
}

impl CrushMap {
    /// Runs an edit, and undoes it if it fails half-way.
    pub(crate) fn atomically<T>(
        &mut self,
        edit: impl FnOnce(&mut CrushMap) -> EditResult<T>,
    ) -> EditResult<T> {
        let before = self.clone();
        let result = edit(self);
        if result.is_err() {
            *self = before;
        }
        result
    }

    /// The id of a name, or ENOENT.
    pub fn require_item(&self, name: &str) -> EditResult<i32> {
        self.item_id(name).ok_or_else(|| no_such_item(name))
    }

    /// Whether `item` is `root` or below it.
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        root == item
            || self
                .bucket(root)
                .is_some_and(|bucket| bucket.items.iter().any(|&child| self.subtree_contains(child, item)))
    }

    /// Whether any bucket lists the item.
    pub fn is_linked(&self, item: i32) -> bool {
        self.iter_buckets().any(|bucket| bucket.position_of(item).is_some())
    }

    /// Its weight where it is first listed, or its own if it is a bucket.
    pub fn item_weight(&self, item: i32) -> Option<u32> {
        self.iter_buckets().find_map(|bucket| {
            if bucket.id == item {
                return Some(bucket.weight);
            }
            bucket.position_of(item).map(|position| bucket.item_weight(position))
        })
    }

    /// The buckets above an item, nearest first: type name and name.
    pub fn full_location(&self, item: i32) -> Vec<(String, String)> {
        let mut path = Vec::new();
        let mut current = item;
        // Bounded, for maps that were never checked.
        while let Some(parent) = self.parent(current).filter(|_| path.len() <= self.buckets.len()) {
            let kind = self.item_type(parent).and_then(|id| self.type_name(id)).unwrap_or_default();
            path.push((kind.to_string(), self.name(parent).unwrap_or_default().to_string()));
            current = parent;
        }
        path
    }

    /// Devices below an item, ascending.
    pub fn devices_below(&self, item: i32) -> std::collections::BTreeSet<i32> {
        match self.bucket(item) {
            None if item >= 0 => [item].into(),
            None => Default::default(),
            Some(bucket) => bucket.items.iter().flat_map(|&child| self.devices_below(child)).collect(),
        }
    }

    /// The weight with which the lowest bucket of the location lists the item;
    /// None if it does not: `check_item_loc`.
    pub fn weight_in_location(&self, item: i32, location: &Location) -> Option<u32> {
        let (_, name) = self.levels_of(location).next()?;
        let bucket = self.bucket(self.item_id(name)?)?;
        bucket.position_of(item).map(|position| bucket.item_weight(position))
    }

    /// The location's parts from the lowest type up; unknown types are left out.
    fn levels_of<'a>(&'a self, location: &'a Location) -> impl Iterator<Item = (i32, &'a str)> {
        let buckets = self.types.iter().filter(|(id, _)| **id != DEVICE_TYPE);
        buckets.filter_map(|(id, kind)| Some((*id, location.get(kind)?.as_str())))
    }

    /// An empty bucket that nothing lists: `osd crush add-bucket`. Its id.
    pub fn add_bucket(&mut self, name: &str, kind: &str) -> EditResult<i32> {
        check_name(name)?;
        if self.item_id(name).is_some() {
            return Err(EditError::new(Errno::EEXIST, format!("bucket '{name}' already exists")));
        }
        let type_id = self
            .type_id(kind)
            .ok_or_else(|| EditError::new(Errno::EINVAL, format!("type '{kind}' does not exist")))?;
        if type_id == DEVICE_TYPE {
            let text = format!("type '{kind}' is for devices, not buckets");
            return Err(EditError::new(Errno::EINVAL, text));
        }
        // Its shadows come with the first edit that gives it a place or items.
        self.new_bucket(name, type_id)
    }

    fn new_bucket(&mut self, name: &str, type_id: i32) -> EditResult<i32> {
        let type_id = u16::try_from(type_id).map_err(|_| Errno::EINVAL)?;
        let id = self.add_bucket_slot(None, |id| Bucket {
            id,
            type_id,
            hash: RJENKINS1,
            weight: 0,
            items: Vec::new(),
            weights: BucketWeights::Straw2 { item_weights: Vec::new() },
        })?;
        self.names.insert(id, name.to_string());
        Ok(id)
    }

    /// `osd crush add`: adds a device or an existing bucket at a location, with a
    /// weight, besides the places it has; makes the location's buckets that do
    /// not exist yet.
    ///
    /// Errors:  EEXIST if another item has the name, EINVAL for a location that
    ///          holds it already or of other types, ELOOP for one inside it.
    pub fn insert_item(&mut self, item: i32, weight: u32, name: &str, at: &Location) -> EditResult<()> {
        self.atomically(|map| map.insert(item, weight, name, at))
    }

    fn insert(&mut self, item: i32, weight: u32, name: &str, at: &Location) -> EditResult<()> {
        check_name(name)?;
        check_location(at)?;
        if self.item_id(name).is_some_and(|id| id != item) {
            let text = format!("device name '{name}' already exists as another item");
            return Err(EditError::new(Errno::EEXIST, text));
        }
        if item < 0 && self.bucket(item).is_none() {
            return Err(no_such_item(name));
        }
        self.names.insert(item, name.to_string());
        let levels: Vec<(i32, String)> =
            self.levels_of(at).map(|(type_id, name)| (type_id, name.to_string())).collect();
        // The item goes into the lowest level; each level that is new goes, in
        // turn, into the next one.
        let mut current = item;
        for (type_id, name) in levels {
            let Some(id) = self.item_id(&name) else {
                let id = self.new_bucket(&name, type_id)?;
                self.begin_weight_sets(id);
                self.bucket_push(id, current, 0)?;
                current = id;
                continue;
            };
            let bucket = self.bucket(id).ok_or(Errno::EINVAL)?;
            if self.subtree_contains(id, current) {
                // Already below that level.
                return Err(Errno::EINVAL.into());
            }
            if i32::from(bucket.type_id) != type_id {
                return Err(Errno::EINVAL.into());
            }
            if self.subtree_contains(current, id) {
                return Err(Errno::ELOOP.into());
            }
            self.bucket_push(id, current, 0)?;
            break;
        }
        if !self.set_weight_at(item, weight, at, true)? {
            // The location names no level to put it in.
            return Err(Errno::EINVAL.into());
        }
        if item >= self.max_devices {
            self.max_devices = item.checked_add(1).ok_or(Errno::ERANGE)?;
        }
        self.rebuild_shadow_trees()
    }

    /// `osd crush create-or-move`, what an OSD asks for when it starts: puts a
    /// new device there; moves one that is elsewhere, which keeps its weight.
    /// False if it is there already, whatever its weight.
    pub fn create_or_move_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        at: &Location,
    ) -> EditResult<bool> {
        check_name(name)?;
        if self.weight_in_location(item, at).is_some() {
            return Ok(false);
        }
        self.atomically(|map| {
            let mut weight = weight;
            if map.is_linked(item) {
                weight = map.item_weight(item).unwrap_or(weight);
                map.unlink(item)?;
            }
            map.insert(item, weight, name, at)?;
            Ok(true)
        })
    }

    /// `osd crush set`: the device is at the location, and nowhere else,
    /// with that weight and name. False if it was so before.
    pub fn update_item(&mut self, item: i32, weight: u32, name: &str, at: &Location) -> EditResult<bool> {
        check_name(name)?;
        check_location(at)?;
        self.atomically(|map| {
            let Some(old) = map.weight_in_location(item, at) else {
                if map.is_linked(item) {
                    map.unlink(item)?;
                }
                map.insert(item, weight, name, at)?;
                return Ok(true);
            };
            let mut changed = false;
            if old != weight {
                map.set_weight_at(item, weight, at, true)?;
                map.rebuild_shadow_trees()?;
                changed = true;
            }
            if map.name(item) != Some(name) {
                map.names.insert(item, name.to_string());
                changed = true;
            }
            Ok(changed)
        })
    }

    /// `osd crush move`; false if it is there already. Keeps the weight.
    pub fn move_item(&mut self, name: &str, at: &Location) -> EditResult<bool> {
        let id = self.require_item(name)?;
        let Some(bucket) = self.bucket(id) else {
            return self.create_or_move_item(id, 0, name, at);
        };
        if self.weight_in_location(id, at).is_some() {
            return Ok(false);
        }
        let weight = bucket.weight;
        self.atomically(|map| {
            if let Some(parent) = map.parent(id) {
                map.unlink_from(parent, id)?;
            }
            map.insert(id, weight, name, at)?;
            Ok(true)
        })
    }

    /// `osd crush link`: another place for a bucket that keeps those it has.
    pub fn link_bucket(&mut self, name: &str, at: &Location) -> EditResult<()> {
        let id = self.require_item(name)?;
        let weight = self.bucket(id).ok_or(Errno::EINVAL)?.weight;
        self.insert_item(id, weight, name, at)
    }

    /// `osd crush rm`: off the whole map.
    ///
    /// Errors:  ENOTEMPTY for a bucket with items, EBUSY for one that a rule takes.
    pub fn remove_item(&mut self, item: i32) -> EditResult<()> {
        if item < 0 {
            let bucket = self.bucket(item).ok_or(Errno::ENOENT)?;
            if !bucket.items.is_empty() {
                return Err(Errno::ENOTEMPTY.into());
            }
            if self.is_taken(item) {
                return Err(Errno::EBUSY.into());
            }
        }
        self.atomically(|map| {
            map.unlink(item)?;
            if item < 0 {
                map.drop_bucket(item);
            } else {
                map.names.remove(&item);
                map.item_classes.remove(&item);
            }
            map.recount_devices();
            map.rebuild_shadow_trees()
        })
    }

    /// `osd crush unlink`: off one subtree only; off the map if that was its
    /// last place and it is a device. False if it was not there.
    pub fn unlink_under(&mut self, item: i32, ancestor: i32) -> EditResult<bool> {
        self.bucket(ancestor).ok_or(Errno::EINVAL)?;
        if !self.subtree_contains(ancestor, item) || item == ancestor {
            return Ok(false);
        }
        self.atomically(|map| {
            let holders: Vec<i32> = map
                .iter_buckets()
                .filter(|bucket| bucket.position_of(item).is_some())
                .map(|bucket| bucket.id)
                .filter(|holder| map.subtree_contains(ancestor, *holder))
                .collect();
            for holder in holders {
                map.unlink_from(holder, item)?;
            }
            if item >= 0 && map.parent(item).is_none() {
                map.names.remove(&item);
            }
            map.recount_devices();
            map.rebuild_shadow_trees()?;
            Ok(true)
        })
    }

    /// Whether a rule takes the bucket or one of its shadows.
    pub fn is_taken(&self, bucket: i32) -> bool {
        let shadows = self.class_buckets.get(&bucket);
        let is_it = |item: i32| {
            item == bucket || shadows.is_some_and(|by_class| by_class.values().any(|&id| id == item))
        };
        let mut steps = self.rules.iter().flatten().flat_map(|rule| &rule.steps);
        steps.any(|step| step.op == op::TAKE && is_it(step.arg1))
    }

    /// `osd crush reweight`: a device's weight, wherever it is.
    pub fn reweight_device(&mut self, name: &str, weight: u32) -> EditResult<i32> {
        let Some(id) = self.item_id(name) else {
            let text = format!("device '{name}' does not appear in the crush map");
            return Err(EditError::new(Errno::ENOENT, text));
        };
        if id < 0 {
            let text = format!("device '{name}' is not a leaf in the crush map");
            return Err(EditError::new(Errno::EINVAL, text));
        }
        self.atomically(|map| {
            if !map.set_weight_everywhere(id, weight, true)? {
                return Err(Errno::ENOENT.into());
            }
            map.rebuild_shadow_trees()?;
            Ok(id)
        })
    }

    /// `osd crush reweight-subtree`: one weight for all devices below.
    pub fn reweight_subtree(&mut self, name: &str, weight: u32) -> EditResult<i32> {
        let Some(id) = self.item_id(name) else {
            let text = format!("device '{name}' does not appear in the crush map");
            return Err(EditError::new(Errno::ENOENT, text));
        };
        if id >= 0 {
            let text = format!("device '{name}' is not a subtree in the crush map");
            return Err(EditError::new(Errno::EINVAL, text));
        }
        self.atomically(|map| {
            for holder in map.buckets_below(id) {
                let items = map.bucket(holder).map(|bucket| bucket.items.clone()).unwrap_or_default();
                for item in items.into_iter().filter(|item| *item >= 0) {
                    map.set_weight_in(holder, item, weight, true)?;
                }
            }
            map.rebuild_shadow_trees()?;
            Ok(id)
        })
    }

    /// `osd crush reweight-all`: sums all weights up from the devices.
    pub fn reweight_all(&mut self) -> EditResult<()> {
        self.atomically(|map| {
            for root in map.roots(false) {
                // Children stand before their parents in the reversed list.
                for id in map.buckets_below(root).into_iter().rev() {
                    let items = map.bucket(id).map(|bucket| bucket.items.clone()).unwrap_or_default();
                    for (position, item) in items.into_iter().enumerate() {
                        let Some(weight) = map.bucket(item).map(|child| child.weight) else { continue };
                        if let Some(bucket) = map.bucket_mut(id) {
                            bucket.set_item_weight(position, weight)?;
                        }
                    }
                }
            }
            map.rebuild_shadow_trees()
        })
    }

    /// `osd crush swap-bucket`: exchanges the contents and names of two buckets,
    /// so that the ids stay where the rules and parents expect them.
    pub fn swap_buckets(&mut self, a: i32, b: i32) -> EditResult<()> {
        if self.bucket(a).is_none() || self.bucket(b).is_none() {
            return Err(Errno::EINVAL.into());
        }
        if self.subtree_contains(a, b) || self.subtree_contains(b, a) {
            return Err(Errno::EINVAL.into());
        }
        self.atomically(|map| {
            let contents = |map: &CrushMap, id| {
                let bucket = map.bucket(id)?;
                Some(bucket.items.iter().copied().zip(bucket.item_weights()).collect::<Vec<_>>())
            };
            let in_a = contents(map, a).unwrap_or_default();
            // Ceph hands the first bucket's items over in the order of their ids.
            let sorted_a: BTreeMap<i32, u32> = in_a.iter().copied().collect();
            let in_b = contents(map, b).unwrap_or_default();
            for (id, count) in [(a, in_a.len()), (b, in_b.len())] {
                for _ in 0..count {
                    map.bucket_remove(id, 0)?;
                }
            }
            for (item, weight) in in_b {
                map.bucket_push(a, item, weight)?;
            }
            for (item, weight) in sorted_a {
                map.bucket_push(b, item, weight)?;
            }
            for id in [a, b] {
                let weight = map.bucket(id).map_or(0, |bucket| bucket.weight);
                map.set_weight_everywhere(id, weight, true)?;
            }
            let (name_a, name_b) = (map.names.remove(&a), map.names.remove(&b));
            map.names.extend(name_a.map(|name| (b, name)));
            map.names.extend(name_b.map(|name| (a, name)));
            map.rebuild_shadow_trees()
        })
    }

    /// `osd crush rename-bucket`. The shadows are renamed at once, where Ceph
    /// leaves that to the next edit.
    pub fn rename_bucket(&mut self, from: &str, to: &str) -> EditResult<()> {
        let Some(id) = self.item_id(from) else {
            return Err(match self.item_id(to) {
                Some(_) => EditError::new(
                    Errno::EALREADY,
                    format!("srcname = '{from}' does not exist and dstname = '{to}' already exists"),
                ),
                None => EditError::new(Errno::ENOENT, format!("srcname = '{from}' does not exist")),
            });
        };
        if self.item_id(to).is_some() {
            return Err(EditError::new(Errno::EEXIST, format!("dstname = '{to}' already exists")));
        }
        if !is_valid_name(to) {
            let text = format!("dstname = '{to}' does not match [-_.0-9a-zA-Z]+");
            return Err(EditError::new(Errno::EINVAL, text));
        }
        if id >= 0 {
            let text = format!("srcname = '{from}' is not a bucket because its id = {id} is >= 0");
            return Err(EditError::new(Errno::ENOTDIR, text));
        }
        self.atomically(|map| {
            map.names.insert(id, to.to_string());
            map.rebuild_shadow_trees()
        })
    }

    /// `max_devices` is one more than the highest device that has a name or a place.
    fn recount_devices(&mut self) {
        let named = self.names.last_key_value().map_or(-1, |(item, _)| *item);
        let placed = self.iter_buckets().flat_map(|bucket| bucket.items.iter().copied()).max();
        self.max_devices = named.max(placed.unwrap_or(-1)).max(-1).saturating_add(1);
    }

    /// A bucket and the buckets below it, parents before children.
    fn buckets_below(&self, root: i32) -> Vec<i32> {
        let mut found = Vec::new();
        if let Some(bucket) = self.bucket(root) {
            found.push(root);
            for &item in &bucket.items {
                found.extend(self.buckets_below(item));
            }
        }
        found
    }

    /// Out of every bucket that lists it, shadows included.
    fn unlink(&mut self, item: i32) -> EditResult<()> {
        let holders: Vec<i32> = self
            .iter_buckets()
            .filter(|bucket| bucket.position_of(item).is_some())
            .map(|bucket| bucket.id)
            .collect();
        holders.into_iter().try_for_each(|holder| self.unlink_from(holder, item))
    }

    fn unlink_from(&mut self, holder: i32, item: i32) -> EditResult<()> {
        while let Some(position) = self.bucket(holder).and_then(|bucket| bucket.position_of(item)) {
            self.set_weight_in(holder, item, 0, true)?;
            self.bucket_remove(holder, position)?;
        }
        Ok(())
    }

    /// In those buckets of the location that list it; false if none does.
    fn set_weight_at(
        &mut self,
        item: i32,
        weight: u32,
        at: &Location,
        with_weight_sets: bool,
    ) -> EditResult<bool> {
        let mut changed = false;
        for name in at.values() {
            if let Some(id) = self.item_id(name) {
                changed |= self.set_weight_in(id, item, weight, with_weight_sets)?;
            }
        }
        Ok(changed)
    }

    fn set_weight_everywhere(&mut self, item: i32, weight: u32, with_weight_sets: bool) -> EditResult<bool> {
        let ids: Vec<i32> = self.iter_buckets().map(|bucket| bucket.id).collect();
        let mut changed = false;
        for id in ids {
            changed |= self.set_weight_in(id, item, weight, with_weight_sets)?;
        }
        Ok(changed)
    }

    /// Sets an item's weight in one bucket and carries the new sum upward.
    /// False if the bucket does not list it.
    fn set_weight_in(
        &mut self,
        holder: i32,
        item: i32,
        weight: u32,
        with_weight_sets: bool,
    ) -> EditResult<bool> {
        let Some(bucket) = self.bucket_mut(holder) else { return Ok(false) };
        let Some(position) = bucket.position_of(item) else { return Ok(false) };
        bucket.set_item_weight(position, weight)?;
        let sum = bucket.weight;
        if with_weight_sets {
            for arg in self.args_of_bucket(holder) {
                arg.weight_sets.iter_mut().for_each(|set| set[position] = weight);
            }
        }
        self.set_weight_everywhere(holder, sum, false)?;
        self.carry_weight_sets_up(holder);
        Ok(true)
    }

    /// Makes the weight sets of a bucket's parents hold the sums of its own.
    fn carry_weight_sets_up(&mut self, id: i32) {
        let mut parents = Vec::new();
        for (key, args) in &self.choose_args {
            let Some(arg) = args.get(&(!id as u32)) else { continue };
            let sums: Vec<u32> = arg
                .weight_sets
                .iter()
                .map(|set| set.iter().fold(0u32, |sum, weight| sum.saturating_add(*weight)))
                .collect();
            for parent in self.iter_buckets() {
                if let Some(position) = parent.position_of(id) {
                    parents.push((*key, parent.id, position, sums.clone()));
                }
            }
        }
        for (key, parent, position, sums) in parents {
            let arg = self.choose_args.get_mut(&key).and_then(|args| args.get_mut(&(!parent as u32)));
            let Some(arg) = arg.filter(|arg| arg.weight_sets.len() == sums.len()) else { continue };
            for (set, sum) in arg.weight_sets.iter_mut().zip(sums) {
                set[position] = sum;
            }
            self.carry_weight_sets_up(parent);
        }
    }
}
