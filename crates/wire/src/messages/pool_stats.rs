use super::{Payload, decode_paxos_prefix, encode_paxos_prefix};
use crate::codec::{Decoder, Encoder, Result};
use crate::types::Uuid;
use bytes::Bytes;
use std::collections::BTreeMap;

/// `MGetPoolStats`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MGetPoolStats {
    pub fsid: Uuid,
    pub pools: Vec<String>,
}

impl Payload for MGetPoolStats {
    const KIND: u16 = 58;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, 0);
        e.put(&self.fsid);
        e.put(&self.pools);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        decode_paxos_prefix(d)?;
        Ok(MGetPoolStats { fsid: d.get()?, pools: d.get()? })
    }
}

/// `MGetPoolStatsReply`: each pool's encoded `pool_stat_t`, written as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MGetPoolStatsReply {
    pub fsid: Uuid,
    /// Encoded `pool_stat_t` by pool name.
    pub stats: BTreeMap<String, Bytes>,
    /// Whether omap and data sizes are known per pool.
    pub per_pool: bool,
}

impl Payload for MGetPoolStatsReply {
    const KIND: u16 = 59;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, 0);
        e.put(&self.fsid);
        e.count(self.stats.len());
        for (name, stat) in &self.stats {
            e.string(name);
            e.raw(stat);
        }
        e.bool(self.per_pool);
    }
    fn decode(d: &mut Decoder, _: Bytes, version: u16) -> Result<Self> {
        decode_paxos_prefix(d)?;
        let fsid = d.get()?;
        let n = d.count("pool stats", 4 + 6)?;
        let mut stats = BTreeMap::new();
        for _ in 0..n {
            let name = d.string()?;
            // The stat carries its own length in its envelope.
            let mut envelope = d.clone();
            envelope.skip("pool_stat_t", 2)?;
            let len = 6 + envelope.u32()? as usize;
            stats.insert(name, d.take("pool_stat_t", len)?);
        }
        let per_pool = if version >= 2 { d.bool()? } else { false };
        Ok(MGetPoolStatsReply { fsid, stats, per_pool })
    }
}
