use super::Epoch;
use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use std::fmt;

/// `eversion_t`: the order of writes in a PG, printed as `epoch'version`.
///
/// Shape: ordered by epoch, then version; `version` counts up across epochs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EVersion {
    pub epoch: Epoch,
    pub version: u64,
}

impl EVersion {
    pub const ZERO: EVersion = EVersion { epoch: Epoch(0), version: 0 };

    pub fn new(epoch: Epoch, version: u64) -> EVersion {
        EVersion { epoch, version }
    }
}

impl fmt::Display for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

impl fmt::Debug for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for EVersion {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.version);
        e.put(&self.epoch);
    }
}

impl Decode for EVersion {
    const MIN_LEN: usize = 12;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let version = d.u64()?;
        Ok(EVersion { epoch: d.get()?, version })
    }
}
