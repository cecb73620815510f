use super::{ObjectStatSum, StoreStatfs};
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};

/// `pool_stat_t`: what a pool holds and did, summed over its PGs.
///
/// Source: Ceph 16.2.15, src/osd/osd_types.cc (`pool_stat_t::encode`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolStat {
    pub stats: ObjectStatSum,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    /// Sum over PGs of the up set's size.
    pub up: i32,
    /// Sum over PGs of the acting set's size.
    pub acting: i32,
    /// Of the OSDs' own reports about this pool; see `num_store_stats`.
    pub store_stats: StoreStatfs,
    /// How many OSDs `store_stats` sums up; 0 when OSDs do not report per pool.
    pub num_store_stats: i32,
}

impl Encode for PoolStat {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(7, 5, |e| {
            // object_stat_collection_t: the sum, and per-category sums that
            // nobody has filled for a decade.
            e.versioned(2, 2, |e| {
                e.put(&self.stats);
                e.u32(0);
            });
            e.i64(self.log_size);
            e.i64(self.ondisk_log_size);
            e.i32(self.up);
            e.i32(self.acting);
            e.put(&self.store_stats);
            e.i32(self.num_store_stats);
        });
    }
}

impl Decode for PoolStat {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("pool_stat_t", 7, |d, version| {
            if version < 7 {
                return Err(DecodeError::TooOld { what: "pool_stat_t", version, oldest: 7 });
            }
            Ok(PoolStat {
                stats: d.versioned("object_stat_collection_t", 2, |d, _| d.get())?,
                log_size: d.i64()?,
                ondisk_log_size: d.i64()?,
                up: d.i32()?,
                acting: d.i32()?,
                store_stats: d.get()?,
                num_store_stats: d.i32()?,
            })
        })
    }
}
