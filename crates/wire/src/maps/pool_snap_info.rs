use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use crate::types::SnapId;
use base::WallTime;

/// `pool_snap_info_t`: a snapshot of a whole pool (`rados mksnap`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolSnapInfo {
    pub snapid: SnapId,
    pub stamp: WallTime,
    pub name: String,
}

impl Encode for PoolSnapInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 2, |e| {
            e.put(&self.snapid);
            e.put(&self.stamp);
            e.string(&self.name);
        });
    }
}

impl Decode for PoolSnapInfo {
    const MIN_LEN: usize = 6 + 20;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("pool_snap_info_t", 2, |d, _| {
            Ok(PoolSnapInfo { snapid: d.get()?, stamp: d.get()?, name: d.string()? })
        })
    }
}
