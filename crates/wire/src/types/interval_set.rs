use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use std::collections::BTreeMap;

/// `interval_set<u64>`: disjoint, non-adjacent, non-empty ranges.
///
/// Units: whatever the u64 counts; each entry is start → length.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntervalSet(BTreeMap<u64, u64>);

impl IntervalSet {
    pub fn new() -> IntervalSet {
        IntervalSet::default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ranges ascending, as (start, length).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(s, l)| (*s, *l))
    }

    pub fn contains(&self, v: u64) -> bool {
        self.0.range(..=v).next_back().is_some_and(|(s, l)| v - s < *l)
    }

    /// Adds a range, merging whatever it touches.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut start, mut end) = (start, start.saturating_add(len));
        while let Some((s, l)) = self.0.range(..=end).next_back().map(|(s, l)| (*s, *l)) {
            if s + l < start {
                break;
            }
            self.0.remove(&s);
            start = start.min(s);
            end = end.max(s + l);
        }
        self.0.insert(start, end - start);
    }

    /// Removes a range; what is absent stays absent.
    pub fn remove(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len);
        while let Some((s, l)) = self.0.range(..end).next_back().map(|(s, l)| (*s, *l)) {
            if s + l <= start {
                break;
            }
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start - s);
            }
            if s + l > end {
                self.0.insert(end, s + l - end);
            }
        }
    }

    /// What both have.
    pub fn intersection(&self, other: &IntervalSet) -> IntervalSet {
        let mut both = IntervalSet::new();
        for (start, len) in self.iter() {
            let end = start + len;
            // The range that may begin before ours, and those within it.
            let first = other.0.range(..=start).next_back().map_or(start, |(s, _)| *s);
            for (s, l) in other.0.range(first..end) {
                let (from, to) = (start.max(*s), end.min(s + l));
                both.insert(from, to.saturating_sub(from));
            }
        }
        both
    }

    /// Without what the other has.
    pub fn subtract(&mut self, other: &IntervalSet) {
        for (start, len) in other.iter() {
            self.remove(start, len);
        }
    }

    pub fn total_len(&self) -> u64 {
        self.0.values().sum()
    }
}

impl Encode for IntervalSet {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.0);
    }
}

impl Decode for IntervalSet {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let ranges: BTreeMap<u64, u64> = d.get()?;
        let mut set = IntervalSet::new();
        for (start, len) in ranges {
            if start.checked_add(len).is_none() {
                return Err(DecodeError::Invalid { what: "interval" });
            }
            set.insert(start, len);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> IntervalSet {
        let mut set = IntervalSet::new();
        ranges.iter().for_each(|(start, len)| set.insert(*start, *len));
        set
    }

    #[test]
    fn intersections_and_differences() {
        let a = set(&[(0, 10), (20, 10), (40, 10)]);
        let b = set(&[(5, 20), (28, 1), (45, 100)]);
        assert_eq!(a.intersection(&b), set(&[(5, 5), (20, 5), (28, 1), (45, 5)]));
        assert_eq!(b.intersection(&a), a.intersection(&b));
        assert!(a.intersection(&IntervalSet::new()).is_empty());
        let mut rest = a.clone();
        rest.subtract(&b);
        assert_eq!(rest, set(&[(0, 5), (25, 3), (29, 1), (40, 5)]));
    }

    #[test]
    fn neighbours_merge_and_removal_splits() {
        let mut s = IntervalSet::new();
        s.insert(10, 5);
        s.insert(20, 5);
        s.insert(15, 5);
        assert_eq!(s.iter().collect::<Vec<_>>(), [(10, 15)]);
        s.remove(12, 3);
        assert_eq!(s.iter().collect::<Vec<_>>(), [(10, 2), (15, 10)]);
        assert!(s.contains(11) && !s.contains(12) && s.contains(24) && !s.contains(25));
    }
}
