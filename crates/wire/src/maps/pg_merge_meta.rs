use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use crate::types::{EVersion, Epoch, PgId, PoolId};

/// `pg_merge_meta_t`: the last merge of two PGs of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PgMergeMeta {
    pub source_pgid: PgId,
    pub ready_epoch: Epoch,
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub source_version: EVersion,
    pub target_version: EVersion,
}

impl Default for PgMergeMeta {
    fn default() -> PgMergeMeta {
        PgMergeMeta {
            source_pgid: PgId { pool: PoolId(0), seed: 0 },
            ready_epoch: Epoch(0),
            last_epoch_started: Epoch(0),
            last_epoch_clean: Epoch(0),
            source_version: EVersion::ZERO,
            target_version: EVersion::ZERO,
        }
    }
}

impl Encode for PgMergeMeta {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.put(&self.source_pgid);
            e.put(&self.ready_epoch);
            e.put(&self.last_epoch_started);
            e.put(&self.last_epoch_clean);
            e.put(&self.source_version);
            e.put(&self.target_version);
        });
    }
}

impl Decode for PgMergeMeta {
    const MIN_LEN: usize = 6 + 53;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("pg_merge_meta_t", 1, |d, _| {
            Ok(PgMergeMeta {
                source_pgid: d.get()?,
                ready_epoch: d.get()?,
                last_epoch_started: d.get()?,
                last_epoch_clean: d.get()?,
                source_version: d.get()?,
                target_version: d.get()?,
            })
        })
    }
}
