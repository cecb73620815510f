use super::*;
use crate::ops::put_varint;
use base::Random;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

struct Numbers;

impl Kind for Numbers {
    type Key = u64;
    type Value = u64;
    const PAGE_LEN: usize = 100;
    const OVERHEAD: usize = 8;

    fn measure(key: &u64, _: &u64) -> u64 {
        *key
    }
    fn token(key: &u64) -> u64 {
        *key / 100
    }
    fn rank(key: &u64) -> u64 {
        *key / 100
    }
    fn key_weight(_: &u64) -> usize {
        5
    }
    fn value_weight(value: &u64) -> usize {
        // One in a few does not fit a page.
        5 + *value as usize % 7 + if value.is_multiple_of(50) { Self::PAGE_LEN } else { 0 }
    }
    fn put_key(out: &mut Vec<u8>, key: &u64) {
        put_varint(out, *key);
    }
    fn read_key(r: &mut Reader) -> Result<u64> {
        r.varint()
    }
    fn put(out: &mut Vec<u8>, key: &u64, value: &u64) {
        put_varint(out, *key);
        put_varint(out, *value);
    }
    fn read(r: &mut Reader, _: u32) -> Result<(u64, u64)> {
        Ok((r.varint()?, r.varint()?))
    }
}

/// A tree, a model, and a device that holds written pages.
#[derive(Default)]
struct Rig {
    tree: Tree<Numbers>,
    model: BTreeMap<u64, u64>,
    device: HashMap<PageId, Entries<Numbers>>,
}

impl Rig {
    fn load(&mut self, by: impl Fn(&u64) -> Ordering, edges_only: bool) {
        let mut wanted = Vec::new();
        self.tree.absent_in(by, edges_only, |slot| wanted.push((slot.first, slot.page)));
        for (first, page) in wanted {
            let entries = self.device[&page].clone();
            self.tree.fill(&first, page, entries, false).unwrap();
        }
    }

    fn at(&mut self, key: u64) {
        if let Some(slot) = self.tree.absent(|other| other.cmp(&key)) {
            let (first, page) = (slot.first, slot.page);
            let entries = self.device[&page].clone();
            self.tree.fill(&first, page, entries, false).unwrap();
        }
    }

    fn checkpoint(&mut self) {
        let snapshot = self.tree.snapshot();
        let model = self.model.clone();
        for (page, leaf) in &snapshot.changed {
            self.device.insert(*page, leaf.entries.clone());
        }
        let kept: Vec<(u64, u64)> = snapshot
            .nodes
            .iter()
            .flat_map(|node| &node.slots)
            .flat_map(|slot| self.device[&slot.page].clone())
            .collect();
        assert!(kept.into_iter().eq(model));
        self.tree.written(snapshot.generation, &snapshot.dropped);
    }

    fn check(&mut self) {
        self.load(|_| Ordering::Equal, false);
        let mut found = Vec::new();
        let absent = self.tree.walk(
            |_| Ordering::Equal,
            |k, v| {
                found.push((*k, *v));
                true
            },
        );
        assert!(absent.is_none());
        assert!(found.into_iter().eq(self.model.clone()));
        let firsts: Vec<u64> = self.tree.slots().map(|slot| slot.first).collect();
        assert!(firsts.is_sorted_by(|a, b| a < b), "two pages begin alike: no directory has that");
        let mut sums = Sums::default();
        for branch in &self.tree.nodes {
            for (slot, leaf) in branch.node.slots.iter().zip(&branch.leaves) {
                assert_eq!(slot.sums, Sums::of_all::<Numbers>(&leaf.as_ref().unwrap().entries));
                sums.add(slot.sums);
            }
        }
        assert_eq!(self.tree.memory(), sums.memory::<Numbers>());
        assert_eq!(self.tree.weight(), u64::from(sums.weight));
        assert_eq!(self.tree.len(), self.tree.slots().count());
        assert_eq!(self.tree.names(), 5 * self.tree.len() as u64);
        assert!(self.tree.is_loaded());
    }
}

fn range(from: u64, to: u64) -> impl Fn(&u64) -> Ordering {
    move |key| match *key {
        key if key < from => Ordering::Less,
        key if key >= to => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

#[test]
fn behaves_like_a_btreemap_while_pages_come_and_go() {
    let mut random = Random::from_seed(11);
    let mut rig = Rig::default();
    for step in 0..60_000u64 {
        let key = random.below(4000);
        match random.below(if step < 30_000 { 10 } else { 14 }) {
            0..=5 => {
                rig.at(key);
                assert_eq!(rig.tree.insert(key, step), rig.model.insert(key, step));
            }
            6 => {
                rig.at(key);
                let updated = rig.tree.update(key / 100, |other| other.cmp(&key), |value| *value += 1);
                let model = rig.model.get_mut(&key).map(|value| *value += 1);
                assert_eq!(updated, model);
            }
            7 if random.chance(1, 8) => {
                let to = key + random.below(400);
                rig.load(range(key, to), true);
                let gone = rig.tree.remove_range(Numbers::token(&key), range(key, to));
                let model: Vec<u64> = rig.model.range(key..to).map(|(k, _)| *k).collect();
                assert_eq!((gone.count as usize, gone.measure), (model.len(), model.iter().sum()));
                rig.model.retain(|k, _| !model.contains(k));
            }
            8 => {
                rig.at(key);
                assert_eq!(
                    rig.tree.get(key / 100, |other| other.cmp(&key)).map(|e| e.1),
                    rig.model.get(&key).copied()
                );
            }
            _ => {
                rig.at(key);
                let removed = rig.tree.remove(key / 100, |other| other.cmp(&key));
                assert_eq!(removed, rig.model.remove_entry(&key));
            }
        }
        if random.chance(1, 300) {
            rig.checkpoint();
        }
        if random.chance(1, 50) {
            let enough = rig.tree.memory() / 2;
            rig.tree.evict(enough);
        }
        if step % 1000 == 0 {
            rig.check();
        }
    }
    rig.check();
}

#[test]
fn a_range_goes_without_its_pages_being_read() {
    let mut rig = Rig::default();
    for key in 0..1000 {
        rig.tree.insert(key, key);
        rig.model.insert(key, key);
    }
    rig.checkpoint();
    while rig.tree.evict(usize::MAX) > 0 {}
    assert_eq!(rig.tree.memory(), 0);
    rig.load(range(50, 950), true);
    assert_eq!(rig.tree.loaded(), 2, "only the pages at the edges");
    assert_eq!(rig.tree.remove_range(0, range(50, 950)).count, 900);
    rig.model.retain(|key, _| !(50..950).contains(key));
    rig.check();
}

#[test]
fn a_page_that_is_not_what_the_directory_says_is_refused() {
    let mut tree: Tree<Numbers> = Tree::default();
    let entries = vec![(5, 1), (6, 2)];
    let sums = Sums::of_all::<Numbers>(&entries);
    let page = tree.push_absent(5, sums).unwrap();
    assert!(tree.push_absent(5, sums).is_err());
    tree.push_absent(8, sums).unwrap();
    assert!(tree.fill(&5, page, vec![(5, 1)], false).is_err());
    assert!(tree.fill(&5, page, vec![(6, 2), (5, 1)], false).is_err());
    assert!(tree.fill(&5, page, vec![(5, 1), (9, 2)], false).is_err());
    assert!(tree.fill(&5, page, entries, false).is_ok());
}

#[test]
fn a_search_finds_the_same_wherever_it_begins() {
    for len in 0..20u64 {
        let entries: Vec<(u64, ())> = (0..len).map(|at| (2 * at + 1, ())).collect();
        for key in 0..2 * len + 2 {
            for guess in 0..len as usize + 2 {
                let found = hints::search_near(&entries, guess, |other| other.cmp(&key));
                assert_eq!(
                    found,
                    entries.binary_search_by(|(other, ())| other.cmp(&key)),
                    "{len} {key} {guess}"
                );
            }
        }
    }
}
