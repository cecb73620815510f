//! Feature bits that peers exchange and encodings depend on.
//!
//! Source: Ceph `src/include/ceph_features.h`.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// What a Pacific (16.2) peer advertises; we advertise the same.
    pub const PACIFIC: Features = Features(0x3f01_cfbd_fffd_ffff);
    /// For encodings that leave the process for our own use.
    pub const ALL: Features = Features::PACIFIC;

    pub const SERVER_NAUTILUS: Features = Features(1 << 2);
    pub const OSDREPLYMUX: Features = Features(1 << 12);
    pub const SERVER_OCTOPUS: Features = Features(1 << 16);
    pub const SERVER_PACIFIC: Features = Features(1 << 20);
    pub const SERVER_LUMINOUS: Features = Features(1 << 21);
    /// Shares its bit: every client since Luminous knows backoffs.
    pub const RADOS_BACKOFF: Features = Features(1 << 21);
    pub const SERVER_MIMIC: Features = Features(1 << 28);
    pub const MSG_ADDR2: Features = Features(1 << 59);

    /// What every peer must have: addresses of the msgr2 form.
    pub const REQUIRED: Features = Features::MSG_ADDR2;

    pub fn contains(self, wanted: Features) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    pub fn missing(self, required: Features) -> Features {
        Features(required.0 & !self.0)
    }
}

impl std::ops::BitAnd for Features {
    type Output = Features;
    fn bitand(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }
}

impl std::ops::BitOr for Features {
    type Output = Features;
    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({:#x})", self.0)
    }
}
