use super::Payload;
use crate::codec::{Decoder, Encoder, Result};
use bytes::Bytes;

/// `MMonGetVersion`: asks how new a map is; `what` is "osdmap", "fsmap", …
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MMonGetVersion {
    pub handle: u64,
    pub what: String,
}

impl Payload for MMonGetVersion {
    const KIND: u16 = 19;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.u64(self.handle);
        e.string(&self.what);
    }
    fn decode(front: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MMonGetVersion { handle: front.u64()?, what: front.string()? })
    }
}

/// `MMonGetVersionReply`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MMonGetVersionReply {
    pub handle: u64,
    pub newest: u64,
    pub oldest: u64,
}

impl Payload for MMonGetVersionReply {
    const KIND: u16 = 20;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;
    fn encode_front(&self, e: &mut Encoder) {
        e.u64(self.handle);
        e.u64(self.newest);
        e.u64(self.oldest);
    }
    fn decode(front: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MMonGetVersionReply { handle: front.u64()?, newest: front.u64()?, oldest: front.u64()? })
    }
}
