//! Objects whose newest version, according to the log, is not in the store.

use std::collections::BTreeMap;
use wire::codec::Result;
use wire::types::{EVersion, HObject};
use wire::{Decode, Decoder, Encode, Encoder};

/// Object to the version needed. The store holds no trusted content of a
/// missing object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing(pub BTreeMap<HObject, EVersion>);

impl Missing {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn contains(&self, object: &HObject) -> bool {
        // The common case must cost nothing.
        !self.0.is_empty() && self.0.contains_key(object)
    }

    pub fn need(&self, object: &HObject) -> Option<EVersion> {
        self.0.get(object).copied()
    }
}

impl Encode for Missing {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.0);
    }
}

impl Decode for Missing {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Missing(d.get()?))
    }
}
