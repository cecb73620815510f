//! Ids and quantities that are bare integers on the wire.

use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ident)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl Encode for $name {
            fn encode(&self, e: &mut Encoder) { e.$inner(self.0); }
        }
        impl Decode for $name {
            const MIN_LEN: usize = size_of::<$inner>();
            fn decode(d: &mut Decoder) -> Result<Self> { Ok($name(d.$inner()?)) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}", self.0) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}", self.0) }
        }
    };
}

id! {
    /// A version of the OSDMap; 0 is "none".
    Epoch(u32)
}
id! {
    /// A pool's number; never reused.
    PoolId(i64)
}
id! {
    /// An OSD's number.
    OsdId(i32)
}
id! {
    /// A snapshot's number within a pool.
    SnapId(u64)
}
id! {
    /// A session's number, unique for the cluster's life: `client.4123`.
    GlobalId(u64)
}

impl Epoch {
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

impl SnapId {
    /// The live object, not a snapshot of it.
    pub const HEAD: SnapId = SnapId(u64::MAX - 1);
    /// Asks for the snapshot directory of an object.
    pub const SNAPDIR: SnapId = SnapId(u64::MAX);
}

impl OsdId {
    /// CRUSH's hole in an indep mapping (`CRUSH_ITEM_NONE`).
    pub const NONE: OsdId = OsdId(0x7fff_ffff);
}
