//! An object's xattrs in memory: names and values one behind the other.
//!
//! Nearly every object has one or two of them, and every write of an object replaces one
//! by another of the same length: that is a copy into its place, without an allocation.

use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

/// Of each entry: the lengths of name and value.
const HEAD_LEN: usize = 8;

/// Ascending by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attrs {
    count: usize,
    /// Entries: two lengths, the name, the value.
    packed: Vec<u8>,
}

/// Where an entry lies.
#[derive(Clone, Copy, PartialEq, Eq)]
struct At {
    start: usize,
    name_len: usize,
    value_len: usize,
}

impl At {
    fn name(self) -> Range<usize> {
        let start = self.start + HEAD_LEN;
        start..start + self.name_len
    }

    fn value(self) -> Range<usize> {
        let start = self.name().end;
        start..start + self.value_len
    }

    fn all(self) -> Range<usize> {
        self.start..self.value().end
    }
}

fn head(name: &str, value: &[u8]) -> [u8; HEAD_LEN] {
    let len = |len: usize| u32::try_from(len).expect("limits are below").to_le_bytes();
    let mut head = [0; HEAD_LEN];
    head[..4].copy_from_slice(&len(name.len()));
    head[4..].copy_from_slice(&len(value.len()));
    head
}

impl Attrs {
    fn entry(&self, start: usize) -> Option<At> {
        let head = self.packed[start..].first_chunk::<HEAD_LEN>()?;
        let len =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        Some(At { start, name_len: len(0), value_len: len(4) })
    }

    fn entries(&self) -> impl Iterator<Item = At> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let at = self.entry(start)?;
            start = at.all().end;
            Some(at)
        })
    }

    /// The entry, or where it would begin.
    fn find(&self, name: &str) -> Result<At, usize> {
        for at in self.entries() {
            match self.packed[at.name()].cmp(name.as_bytes()) {
                Ordering::Less => (),
                Ordering::Equal => return Ok(at),
                Ordering::Greater => return Err(at.start),
            }
        }
        Err(self.packed.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of all names and values.
    pub(crate) fn bytes(&self) -> usize {
        self.packed.len() - self.count * HEAD_LEN
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries().map(|at| {
            let name = str::from_utf8(&self.packed[at.name()]).expect("it came as text");
            (name, &self.packed[at.value()])
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.find(name).ok().map(|at| &self.packed[at.value()])
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Replaces the value that was there.
    pub(crate) fn set(&mut self, name: &str, value: &[u8]) {
        match self.find(name) {
            Ok(at) if at.value_len == value.len() => self.packed[at.value()].copy_from_slice(value),
            Ok(at) => self.replace(at.all(), name, value),
            Err(start) => {
                self.replace(start..start, name, value);
                self.count += 1;
            }
        }
    }

    fn replace(&mut self, old: Range<usize>, name: &str, value: &[u8]) {
        let head = head(name, value);
        let parts = [&self.packed[..old.start], &head, name.as_bytes(), value, &self.packed[old.end..]];
        // Exactly: most lists do not grow again.
        self.packed = parts.concat();
    }

    /// Behind all others, as the caller has found out.
    pub(crate) fn append(&mut self, name: &str, value: &[u8]) {
        let head = head(name, value);
        self.packed.reserve_exact(HEAD_LEN + name.len() + value.len());
        [&head, name.as_bytes(), value].into_iter().for_each(|part| self.packed.extend_from_slice(part));
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Ok(at) = self.find(name) {
            self.packed = [&self.packed[..at.start], &self.packed[at.all().end..]].concat();
            self.count -= 1;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Attrs::default();
    }

    pub(crate) fn to_map(&self) -> BTreeMap<String, Bytes> {
        self.iter().map(|(name, value)| (name.into(), Bytes::copy_from_slice(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn behaves_like_a_btreemap() {
        let mut random = Random::from_seed(3);
        let mut attrs = Attrs::default();
        let mut model: BTreeMap<String, Bytes> = BTreeMap::new();
        for step in 0..4000u64 {
            let name = format!("n{}", random.below(20));
            match random.below(40) {
                0 => {
                    attrs.clear();
                    model.clear();
                }
                1..15 => {
                    attrs.remove(&name);
                    model.remove(&name);
                }
                _ => {
                    let value = Bytes::from(step.to_string());
                    attrs.set(&name, &value);
                    model.insert(name.clone(), value);
                }
            }
            assert_eq!(attrs.to_map(), model);
            assert_eq!((attrs.len(), attrs.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(
                attrs.bytes(),
                model.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
            );
            assert_eq!(attrs.get(&name), model.get(&name).map(|value| &value[..]));
            assert_eq!(attrs.contains(&name), model.contains_key(&name));
        }
    }

    #[test]
    fn what_is_appended_is_what_is_set() {
        let (mut set, mut appended) = (Attrs::default(), Attrs::default());
        for (name, value) in [("c", &b"1"[..]), ("a", b""), ("bb", b"2")] {
            set.set(name, value);
        }
        for (name, value) in [("a", &b""[..]), ("bb", b"2"), ("c", b"1")] {
            appended.append(name, value);
        }
        assert!(set.iter().eq(appended.iter()));
        assert_eq!(set.packed, appended.packed);
    }
}
