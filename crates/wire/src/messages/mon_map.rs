//! Monitor and manager maps as messages.

use super::Payload;
use crate::codec::{Decoder, Encoder, Result};
use bytes::Bytes;

/// `MMonGetMap`: asks for the MonMap. Empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MMonGetMap;

impl Payload for MMonGetMap {
    const KIND: u16 = 5;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, _: &mut Encoder) {}
    fn decode(_: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MMonGetMap)
    }
}

/// `MMonMap`: an encoded `MonMap`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MMonMap {
    pub map: Bytes,
}

impl Payload for MMonMap {
    const KIND: u16 = 4;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.blob(&self.map);
    }
    fn decode(front: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MMonMap { map: front.blob()? })
    }
}

/// `MMgrMap`: an encoded `MgrMap`, without a length before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MMgrMap {
    pub map: Bytes,
}

impl Payload for MMgrMap {
    const KIND: u16 = 0x704;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.raw(&self.map);
    }
    fn decode(front: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MMgrMap { map: front.rest_bytes() })
    }
}
