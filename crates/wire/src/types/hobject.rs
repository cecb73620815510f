use super::{PoolId, SnapId};
use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use ecow::EcoString;
use std::cmp::Ordering;
use std::fmt;
use std::ops::RangeInclusive;

/// `hobject_t`: one object, or one clone of it, with its place in the order
/// that listings and backfill follow.
///
/// Shape: ordered by pool, bit-reversed hash, namespace, key (or name), name,
/// snap; `MAX` sorts after everything, the default before everything.
/// Copies share their names' memory: a request makes a dozen of them.
/// Source: Ceph `src/common/hobject.h`, `hobject.cc` (`cmp`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HObject {
    pub pool: PoolId,
    pub hash: u32,
    pub nspace: EcoString,
    /// The locator key; empty when it equals the name.
    pub key: EcoString,
    pub name: EcoString,
    pub snap: SnapId,
    /// The end of all objects; every other field is then ignored.
    pub is_max: bool,
}

impl HObject {
    pub fn max() -> HObject {
        HObject { is_max: true, ..HObject::default() }
    }

    /// The first position of a PG's hash range.
    pub fn pg_start(pool: PoolId, hash: u32) -> HObject {
        HObject { pool, hash, snap: SnapId(0), ..HObject::default() }
    }

    /// The live object that this is, or is a clone of.
    pub fn head(&self) -> HObject {
        HObject { snap: SnapId::HEAD, ..self.clone() }
    }

    /// The live object and all the clones that it may have.
    pub fn head_and_clones(&self) -> RangeInclusive<HObject> {
        HObject { snap: SnapId(0), ..self.clone() }..=self.head()
    }

    pub fn is_clone(&self) -> bool {
        self.snap != SnapId::HEAD && !self.is_max
    }

    /// What is hashed and compared: the locator key where there is one.
    pub fn effective_key(&self) -> &str {
        if self.key.is_empty() { &self.name } else { &self.key }
    }

    /// What decides nearly always, without following a pointer: a look-up
    /// compares one object with many.
    #[inline]
    fn place(&self) -> (bool, PoolId, u32) {
        match self.is_max {
            true => (true, PoolId(0), 0),
            false => (false, self.pool, self.hash.reverse_bits()),
        }
    }

    fn cmp_names(&self, other: &HObject) -> Ordering {
        if self.is_max {
            return Ordering::Equal;
        }
        // Mostly it is the same object: a copy, and without a key.
        let keyless = self.key.is_empty() && other.key.is_empty();
        let cmp_keys =
            || if keyless { Ordering::Equal } else { self.effective_key().cmp(other.effective_key()) };
        cmp_text(&self.nspace, &other.nspace)
            .then_with(cmp_keys)
            .then_with(|| cmp_text(&self.name, &other.name))
            .then_with(|| self.snap.cmp(&other.snap))
    }
}

/// Copies are the same memory.
fn cmp_text(a: &str, b: &str) -> Ordering {
    if std::ptr::eq(a, b) { Ordering::Equal } else { a.cmp(b) }
}

/// As Ceph's logs write it: pool, bit-reversed hash, namespace, key, name, snap.
impl fmt::Display for HObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_max {
            return f.write_str("MAX");
        }
        let (nspace, key, name) =
            (self.nspace.escape_default(), self.key.escape_default(), self.name.escape_default());
        write!(f, "{}:{:08x}:{nspace}:{key}:{name}:", self.pool, self.hash.reverse_bits())?;
        match self.snap {
            SnapId::HEAD => f.write_str("head"),
            SnapId(number) => write!(f, "{number:x}"),
        }
    }
}

/// Ceph's blank object, which sorts first.
impl Default for HObject {
    fn default() -> HObject {
        HObject {
            pool: PoolId(i64::MIN),
            hash: 0,
            nspace: EcoString::new(),
            key: EcoString::new(),
            name: EcoString::new(),
            snap: SnapId(0),
            is_max: false,
        }
    }
}

impl Ord for HObject {
    #[inline]
    fn cmp(&self, other: &HObject) -> Ordering {
        match self.place().cmp(&other.place()) {
            Ordering::Equal => self.cmp_names(other),
            order => order,
        }
    }
}

impl PartialOrd for HObject {
    fn partial_cmp(&self, other: &HObject) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Encode for HObject {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(4, 3, |e| {
            e.string(&self.key);
            e.string(&self.name);
            e.put(&self.snap);
            e.u32(self.hash);
            e.bool(self.is_max);
            e.string(&self.nspace);
            e.put(&self.pool);
        });
    }
}

impl Decode for HObject {
    const MIN_LEN: usize = 6 + 33;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("hobject_t", 4, |d, _| {
            Ok(HObject {
                key: d.text()?,
                name: d.text()?,
                snap: d.get()?,
                hash: d.u32()?,
                is_max: d.bool()?,
                nspace: d.text()?,
                pool: d.get()?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_shown_as_ceph_shows_it() {
        let object = HObject {
            pool: PoolId(1),
            hash: 0x7fc1_f406,
            name: "foo".into(),
            snap: SnapId::HEAD,
            ..HObject::default()
        };
        assert_eq!(object.to_string(), "1:602f83fe:::foo:head");
        assert_eq!(HObject::max().to_string(), "MAX");
    }
}
