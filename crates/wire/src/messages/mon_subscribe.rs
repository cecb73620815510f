use super::Payload;
use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use bytes::Bytes;
use std::collections::BTreeMap;

/// What a client wants of one map: everything from `start` on, or once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscription {
    /// The first version wanted; 0 for whatever is current.
    pub start: u64,
    pub once: bool,
}

impl Encode for Subscription {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.start);
        e.u8(u8::from(self.once));
    }
}

impl Decode for Subscription {
    const MIN_LEN: usize = 9;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Subscription { start: d.u64()?, once: d.u8()? & 1 != 0 })
    }
}

/// `MMonSubscribe`: a set of map names and what is wanted of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MMonSubscribe {
    pub what: BTreeMap<String, Subscription>,
    pub hostname: String,
}

impl Payload for MMonSubscribe {
    const KIND: u16 = 15;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.what);
        e.string(&self.hostname);
    }
    fn decode(front: &mut Decoder, _: Bytes, version: u16) -> Result<Self> {
        let what = front.get()?;
        let hostname = if version >= 3 { front.string()? } else { String::new() };
        Ok(MMonSubscribe { what, hostname })
    }
}
