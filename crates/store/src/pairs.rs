//! Keys with values on their way into the store: made once, read in order, thrown away.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

/// Shape: ascending by key, each once. Most have a single one, which takes no memory
///        of its own.
#[derive(Clone)]
pub struct Pairs<K, V>(Kept<K, V>);

#[derive(Clone)]
enum Kept<K, V> {
    One((K, V)),
    Several(Vec<(K, V)>),
}

impl<K, V> Deref for Pairs<K, V> {
    type Target = [(K, V)];
    fn deref(&self) -> &[(K, V)] {
        match &self.0 {
            Kept::One(pair) => std::slice::from_ref(pair),
            Kept::Several(pairs) => pairs,
        }
    }
}

/// Of equal keys the last one stays.
impl<Q: Into<K>, K: Ord, V> FromIterator<(Q, V)> for Pairs<K, V> {
    fn from_iter<I: IntoIterator<Item = (Q, V)>>(pairs: I) -> Pairs<K, V> {
        let mut pairs = pairs.into_iter().map(|(key, value)| (key.into(), value));
        let Some(first) = pairs.next() else { return Pairs(Kept::Several(Vec::new())) };
        let Some(second) = pairs.next() else { return Pairs(Kept::One(first)) };
        let mut all = vec![first, second];
        all.extend(pairs);
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Pairs(Kept::Several(all))
    }
}

impl<Q: Into<K>, K: Ord, V, const N: usize> From<[(Q, V); N]> for Pairs<K, V> {
    fn from(pairs: [(Q, V); N]) -> Pairs<K, V> {
        pairs.into_iter().collect()
    }
}

impl<Q: Into<K>, K: Ord, V> From<BTreeMap<Q, V>> for Pairs<K, V> {
    fn from(pairs: BTreeMap<Q, V>) -> Pairs<K, V> {
        pairs.into_iter().collect()
    }
}

impl<'a, K, V> IntoIterator for &'a Pairs<K, V> {
    type Item = &'a (K, V);
    type IntoIter = std::slice::Iter<'a, (K, V)>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Pairs<K, V> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<K: Eq, V: Eq> Eq for Pairs<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Pairs<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(key, value)| (key, value))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn holds_what_a_map_holds() {
        let mut random = Random::from_seed(5);
        for step in 0..2000u64 {
            let count = random.below(5);
            let all: Vec<(u64, u64)> = (0..count).map(|at| (random.below(4), step + at)).collect();
            let pairs: Pairs<u64, u64> = all.iter().copied().collect();
            let map: BTreeMap<u64, u64> = all.into_iter().collect();
            assert!(pairs.iter().copied().eq(map.clone()));
            assert_eq!(pairs, Pairs::from(map));
        }
    }
}
