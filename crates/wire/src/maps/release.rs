use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use std::fmt;

/// A major Ceph release (`ceph_release_t`): 16 is "pacific".
///
/// Source: Ceph 16.2.15, src/common/ceph_releases.h, ceph_strings.cc.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Release(pub u8);

const NAMES: [&str; 17] = [
    "unknown",
    "argonaut",
    "bobtail",
    "cuttlefish",
    "dumpling",
    "emperor",
    "firefly",
    "giant",
    "hammer",
    "infernalis",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "nautilus",
    "octopus",
    "pacific",
];

impl Release {
    pub const UNKNOWN: Release = Release(0);
    pub const ARGONAUT: Release = Release(1);
    pub const BOBTAIL: Release = Release(2);
    pub const FIREFLY: Release = Release(6);
    pub const HAMMER: Release = Release(8);
    pub const JEWEL: Release = Release(10);
    pub const KRAKEN: Release = Release(11);
    pub const LUMINOUS: Release = Release(12);
    pub const NAUTILUS: Release = Release(14);
    pub const OCTOPUS: Release = Release(15);
    pub const PACIFIC: Release = Release(16);
    /// In an incremental: leave as it is.
    pub const UNCHANGED: Release = Release(0xff);

    pub fn name(self) -> &'static str {
        NAMES.get(usize::from(self.0)).copied().unwrap_or("unknown")
    }

    pub fn from_name(name: &str) -> Option<Release> {
        let index = NAMES.iter().skip(1).position(|n| *n == name)?;
        u8::try_from(index + 1).ok().map(Release)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Encode for Release {
    fn encode(&self, e: &mut Encoder) {
        e.u8(self.0);
    }
}

impl Decode for Release {
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Release(d.u8()?))
    }
}
