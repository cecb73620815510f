use crate::codec::{Decode, Decoder, Encode, Encoder, Result};

/// `store_statfs_t`: an object store's space.
///
/// Units: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreStatfs {
    pub total: u64,
    pub available: u64,
    pub internally_reserved: u64,
    pub allocated: i64,
    pub data_stored: i64,
    pub data_compressed: i64,
    pub data_compressed_allocated: i64,
    pub data_compressed_original: i64,
    pub omap_allocated: i64,
    pub internal_metadata: i64,
}

impl Encode for StoreStatfs {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.u64(self.total);
            e.u64(self.available);
            e.u64(self.internally_reserved);
            e.i64(self.allocated);
            e.i64(self.data_stored);
            e.i64(self.data_compressed);
            e.i64(self.data_compressed_allocated);
            e.i64(self.data_compressed_original);
            e.i64(self.omap_allocated);
            e.i64(self.internal_metadata);
        });
    }
}

impl Decode for StoreStatfs {
    const MIN_LEN: usize = 6 + 80;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("store_statfs_t", 1, |d, _| {
            Ok(StoreStatfs {
                total: d.u64()?,
                available: d.u64()?,
                internally_reserved: d.u64()?,
                allocated: d.i64()?,
                data_stored: d.i64()?,
                data_compressed: d.i64()?,
                data_compressed_allocated: d.i64()?,
                data_compressed_original: d.i64()?,
                omap_allocated: d.i64()?,
                internal_metadata: d.i64()?,
            })
        })
    }
}
