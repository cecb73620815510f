//! Who a peer is.

use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use std::fmt;

/// Source: Ceph `src/msg/msg_types.h` (`CEPH_ENTITY_TYPE_*`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntityType {
    Mon,
    Mds,
    Osd,
    Client,
    Mgr,
    Auth,
}

impl EntityType {
    pub fn from_u8(v: u8) -> Option<EntityType> {
        Some(match v {
            0x01 => EntityType::Mon,
            0x02 => EntityType::Mds,
            0x04 => EntityType::Osd,
            0x08 => EntityType::Client,
            0x10 => EntityType::Mgr,
            0x20 => EntityType::Auth,
            _ => return None,
        })
    }

    pub fn as_u8(self) -> u8 {
        match self {
            EntityType::Mon => 0x01,
            EntityType::Mds => 0x02,
            EntityType::Osd => 0x04,
            EntityType::Client => 0x08,
            EntityType::Mgr => 0x10,
            EntityType::Auth => 0x20,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            EntityType::Mon => "mon",
            EntityType::Mds => "mds",
            EntityType::Osd => "osd",
            EntityType::Client => "client",
            EntityType::Mgr => "mgr",
            EntityType::Auth => "auth",
        }
    }
}

impl Encode for EntityType {
    fn encode(&self, e: &mut Encoder) {
        e.u8(self.as_u8());
    }
}

impl Decode for EntityType {
    fn decode(d: &mut Decoder) -> Result<Self> {
        EntityType::from_u8(d.u8()?).ok_or(DecodeError::Invalid { what: "entity type" })
    }
}

/// `entity_name_t`: `osd.3`, `client.4123`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    pub kind: EntityType,
    pub num: i64,
}

impl EntityName {
    pub const fn client(num: i64) -> EntityName {
        EntityName { kind: EntityType::Client, num }
    }
    pub fn osd(num: i32) -> EntityName {
        EntityName { kind: EntityType::Osd, num: i64::from(num) }
    }
    pub fn mon(num: i64) -> EntityName {
        EntityName { kind: EntityType::Mon, num }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.name(), self.num)
    }
}

impl fmt::Debug for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for EntityName {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.kind);
        e.i64(self.num);
    }
}

impl Decode for EntityName {
    const MIN_LEN: usize = 9;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(EntityName { kind: d.get()?, num: d.i64()? })
    }
}
