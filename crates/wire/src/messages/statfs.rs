use super::{Payload, decode_paxos_prefix, encode_paxos_prefix};
use crate::codec::{Decoder, Encoder, Result};
use crate::types::{PoolId, Uuid};
use bytes::Bytes;

/// `MStatfs`: asks for the cluster's, or one data pool's, space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MStatfs {
    pub fsid: Uuid,
    pub data_pool: Option<PoolId>,
}

impl Payload for MStatfs {
    const KIND: u16 = 13;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, 0);
        e.put(&self.fsid);
        e.put(&self.data_pool);
    }
    fn decode(d: &mut Decoder, _: Bytes, version: u16) -> Result<Self> {
        decode_paxos_prefix(d)?;
        let fsid = d.get()?;
        let data_pool = if version >= 2 { d.get()? } else { None };
        Ok(MStatfs { fsid, data_pool })
    }
}

/// `MStatfsReply`.
///
/// Units: KiB, but for `objects`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MStatfsReply {
    pub fsid: Uuid,
    pub version: u64,
    pub total_kib: u64,
    pub used_kib: u64,
    pub available_kib: u64,
    pub objects: u64,
}

impl Payload for MStatfsReply {
    const KIND: u16 = 14;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.u64(self.version);
        e.u64(self.total_kib);
        e.u64(self.used_kib);
        e.u64(self.available_kib);
        e.u64(self.objects);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MStatfsReply {
            fsid: d.get()?,
            version: d.u64()?,
            total_kib: d.u64()?,
            used_kib: d.u64()?,
            available_kib: d.u64()?,
            objects: d.u64()?,
        })
    }
}
