use super::Payload;
use crate::codec::{DecodeError, Decoder, Encoder, Result};
use crate::types::{Epoch, HObject, SpgId};
use bytes::Bytes;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackoffOp {
    Block,
    AckBlock,
    Unblock,
}

/// `MOSDBackoff`: asks a client to hold requests in `begin..end` (one object
/// when both are equal) until unblocked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdBackoff {
    pub pg: SpgId,
    pub epoch: Epoch,
    pub op: BackoffOp,
    pub id: u64,
    pub begin: HObject,
    pub end: HObject,
}

impl Payload for MOsdBackoff {
    const KIND: u16 = 61;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.pg);
        e.put(&self.epoch);
        e.u8(match self.op {
            BackoffOp::Block => 1,
            BackoffOp::AckBlock => 2,
            BackoffOp::Unblock => 3,
        });
        e.u64(self.id);
        e.put(&self.begin);
        e.put(&self.end);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdBackoff {
            pg: d.get()?,
            epoch: d.get()?,
            op: match d.u8()? {
                1 => BackoffOp::Block,
                2 => BackoffOp::AckBlock,
                3 => BackoffOp::Unblock,
                _ => return Err(DecodeError::Invalid { what: "backoff operation" }),
            },
            id: d.u64()?,
            begin: d.get()?,
            end: d.get()?,
        })
    }
}
