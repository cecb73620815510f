//! Authentication traffic on an open session: cephx ticket renewal and rotating keys.

use super::{Payload, decode_paxos_prefix, encode_paxos_prefix};
use crate::codec::{Decoder, Encoder, Result};
use crate::types::GlobalId;
use bytes::Bytes;

/// `MAuth`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MAuth {
    pub protocol: u32,
    pub payload: Bytes,
    pub monmap_epoch: u32,
}

impl Payload for MAuth {
    const KIND: u16 = 17;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, 0);
        e.u32(self.protocol);
        e.blob(&self.payload);
        e.u32(self.monmap_epoch);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        decode_paxos_prefix(d)?;
        Ok(MAuth { protocol: d.u32()?, payload: d.blob()?, monmap_epoch: d.u32()? })
    }
}

/// `MAuthReply`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MAuthReply {
    pub protocol: u32,
    pub result: i32,
    pub global_id: GlobalId,
    pub payload: Bytes,
    pub status: String,
}

impl Payload for MAuthReply {
    const KIND: u16 = 18;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.u32(self.protocol);
        e.i32(self.result);
        e.put(&self.global_id);
        e.blob(&self.payload);
        e.string(&self.status);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MAuthReply {
            protocol: d.u32()?,
            result: d.i32()?,
            global_id: d.get()?,
            payload: d.blob()?,
            status: d.string()?,
        })
    }
}
