//! Placement group ids.

use super::PoolId;
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use std::fmt;
use std::str::FromStr;

/// `pg_t`: printed as `pool.seed` with the seed in hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    pub pool: PoolId,
    pub seed: u32,
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

impl fmt::Debug for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PgId {
    type Err = DecodeError;
    fn from_str(s: &str) -> Result<PgId> {
        let bad = DecodeError::Invalid { what: "PG id" };
        let (pool, seed) = s.split_once('.').ok_or(bad.clone())?;
        Ok(PgId {
            pool: PoolId(pool.parse().map_err(|_| bad.clone())?),
            seed: u32::from_str_radix(seed, 16).map_err(|_| bad)?,
        })
    }
}

impl Encode for PgId {
    fn encode(&self, e: &mut Encoder) {
        e.u8(1);
        e.i64(self.pool.0);
        e.u32(self.seed);
        e.i32(-1);
    }
}

impl Decode for PgId {
    const MIN_LEN: usize = 17;
    fn decode(d: &mut Decoder) -> Result<Self> {
        if d.u8()? != 1 {
            return Err(DecodeError::Invalid { what: "pg_t version" });
        }
        let pg = PgId { pool: PoolId(d.i64()?), seed: d.u32()? };
        d.i32()?;
        Ok(pg)
    }
}

/// `spg_t`: a PG and, in erasure-coded pools, the shard of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpgId {
    pub pg: PgId,
    /// −1 in replicated pools.
    pub shard: i8,
}

impl SpgId {
    pub fn replicated(pg: PgId) -> SpgId {
        SpgId { pg, shard: -1 }
    }
}

impl Encode for SpgId {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.put(&self.pg);
            e.i8(self.shard);
        });
    }
}

impl Decode for SpgId {
    const MIN_LEN: usize = 24;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("spg_t", 1, |d, _| Ok(SpgId { pg: d.get()?, shard: d.i8()? }))
    }
}
